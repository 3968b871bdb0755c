/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/info/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/info/firewall.h"

#define SYSFS "/sys/class/infiniband"
#define CM_FILE "/dev/infiniband/rdma_cm"

static const struct info_module *module_of(const struct report *r, const char *name)
{
    for (int i = 0; i < r->system.module_count; i++)
        if (!strcmp(r->system.modules[i].name, name))
            return &r->system.modules[i];
    return NULL;
}

static bool loaded(const struct report *r, const char *name)
{
    const struct info_module *m = module_of(r, name);

    return m && m->state == MODULE_THERE;
}

/* Devices that the kernel has, whether or not libibverbs sees them. */
static int kernel_devices(void)
{
    DIR *dir = opendir(SYSFS);
    struct dirent *e;
    int count = 0;

    while (dir && (e = readdir(dir)))
        count += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

/* The kernel has some, and libibverbs could see them, but sees none. */
static bool lacks_provider(const struct report *r, int devices)
{
    return r->rdma.built && devices && !r->rdma.device_count && loaded(r, "ib_uverbs");
}

static void check_devices(const struct report *r, bool asked, int devices, struct findings *f)
{
    struct finding *one;

    if (!r->rdma.built) {
        one = doctor_add(f, "rdma", asked ? FINDING_PROBLEM : FINDING_NONE,
                         "built without libibverbs");
        if (asked)
            doctor_remedy(one, "apt-get install libibverbs-dev, and configure --with-verbs");
    } else if (lacks_provider(r, devices)) {
        one = doctor_add(f, "rdma", FINDING_PROBLEM, "libibverbs sees none of %d device%s", devices,
                         spr_plural((uint64_t)devices));
        doctor_remedy(one, "apt-get install ibverbs-providers, or its maker's driver for "
                           "libibverbs; in a container: docker run --device=/dev/infiniband");
    } else if (devices) {
        doctor_add(f, "rdma", FINDING_OK, "%d device%s", devices, spr_plural((uint64_t)devices));
    } else {
        one = doctor_add(f, "rdma", asked ? FINDING_PROBLEM : FINDING_NONE,
                         "this host has no RDMA device");
        if (asked)
            doctor_remedy(one,
                          "load its driver; or soft-RoCE: modprobe rdma_rxe && "
                          "rdma link add rxe0 type rxe netdev %s",
                          f->interface[0] ? f->interface : "DEVICE");
    }
}

static void check_modules(const struct report *r, bool asked, int devices, struct findings *f)
{
    bool uverbs = loaded(r, "ib_uverbs"), ucm = loaded(r, "rdma_ucm");
    struct finding *one;

    if (!devices && !asked) {
        doctor_add(f, "rdma-modules", FINDING_NONE, "no RDMA device");
        return;
    }
    if (!uverbs) {
        one = doctor_add(f, "rdma-modules", FINDING_PROBLEM, "the module ib_uverbs is missing");
        doctor_remedy(one, "modprobe ib_uverbs");
    }
    if (!devices && !loaded(r, "rdma_rxe")) {
        one = doctor_add(f, "rdma-modules", FINDING_PROBLEM,
                         "neither a driver with a device nor rdma_rxe is loaded");
        doctor_remedy(one, "modprobe rdma_rxe (Debian: a kernel that is not a -cloud one)");
    }
    if (!ucm) {
        one = doctor_add(f, "rdma-modules", FINDING_ADVICE,
                         "the module rdma_ucm is missing, which SPARRING_VERBS_CONNECT=cm needs, "
                         "and other RDMA programs do");
        doctor_remedy(one, "modprobe rdma_ucm");
    }
    if (uverbs && ucm && (devices || loaded(r, "rdma_rxe")))
        doctor_add(f, "rdma-modules", FINDING_OK, "ib_uverbs and rdma_ucm are there");
}

/* No device suits the verbs transport. */
static const char *unseen(const struct report *r)
{
    return r->rdma.device_count ? "no device is an InfiniBand or RoCE one"
                                : "libibverbs sees no device";
}

/* Why this file cannot be opened for reading and writing, or 0. */
static int refused(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static void add_refused(struct findings *f, enum finding_state state, const char *path,
                        const char *what, int why)
{
    struct finding *one =
        doctor_add(f, "rdma-rights", state, "%s%s: %s", path, what, strerror(why));

    if (why == ENOENT)
        doctor_remedy(one, "udev makes it; in a container: docker run --device=/dev/infiniband");
    else
        doctor_remedy(one, "chmod 666 %s (rdma-core's udev rules do so)", path);
}

static void check_rights(const struct report *r, int devices, struct findings *f)
{
    char path[128], what[128];
    int why;

    if (!devices || !r->rdma.built) {
        doctor_add(f, "rdma-rights", FINDING_NONE, "no RDMA device");
        return;
    }
    for (int i = 0; i < r->rdma.device_count; i++) {
        const struct rdma_device *d = &r->rdma.devices[i];
        if (!d->suits)
            continue;
        snprintf(path, sizeof path, "/dev/infiniband/%s", d->file);
        snprintf(what, sizeof what, " of %s", d->name);
        why = refused(path);
        if (why) {
            add_refused(f, FINDING_PROBLEM, path, what, why);
            return;
        }
    }
    /* Without the module there is another finding. */
    why = loaded(r, "rdma_ucm") ? refused(CM_FILE) : 0;
    if (why && r->rdma.suiting)
        add_refused(f, FINDING_ADVICE, CM_FILE, ", which SPARRING_VERBS_CONNECT=cm needs", why);
    else if (r->rdma.suiting)
        doctor_add(f, "rdma-rights", FINDING_OK, "/dev/infiniband can be opened");
    else
        doctor_add(f, "rdma-rights", FINDING_NONE, "%s", unseen(r));
}

static void check_ports(const struct report *r, bool asked, int devices, struct findings *f)
{
    struct finding *one;

    if (!devices || !r->rdma.built) {
        doctor_add(f, "rdma-port", FINDING_NONE, "no RDMA device");
    } else if (!r->rdma.suiting) {
        asked = asked && r->rdma.device_count; /* else there is another finding */
        one = doctor_add(f, "rdma-port", asked ? FINDING_PROBLEM : FINDING_NONE, "%s", unseen(r));
        if (asked)
            doctor_remedy(one, "SPARRING_TRANSPORTS=auto: TCP is used instead");
    } else if (r->rdma.usable) {
        doctor_add(f, "rdma-port", FINDING_OK, "%s", r->rdma.chosen);
    } else {
        one = doctor_add(f, "rdma-port", FINDING_PROBLEM, "%s", r->rdma.chosen);
        doctor_remedy(one,
                      "bring the port up (ip link set dev NAME up, or the subnet manager), give "
                      "its interface an address; SPARRING_VERBS_DEVICES and SPARRING_VERBS_GID "
                      "must name what sparring-info shows");
    }
}

static void check_rdma_mtu(const struct report *r, int devices, struct findings *f)
{
    struct finding *one;
    int looked = 0;

    for (int i = 0; i < r->rdma.device_count; i++)
        for (int k = 0; k < r->rdma.devices[i].port_count; k++) {
            const struct rdma_port *p = &r->rdma.devices[i].ports[k];
            if (!r->rdma.devices[i].suits || p->why_not[0] || strcmp(p->layer, "Ethernet"))
                continue;
            looked++;
            if (p->mtu_bytes >= 4096 || p->mtu_bytes >= p->max_mtu_bytes)
                continue;
            one = doctor_add(f, "rdma-mtu", FINDING_ADVICE, "%s port %u sends packets of %u bytes",
                             r->rdma.devices[i].name, p->number, p->mtu_bytes);
            doctor_remedy(one,
                          "ip link set dev %s mtu 9000 gives 4096, when every host and switch "
                          "can",
                          p->interface[0] ? p->interface : "NAME");
            return;
        }
    if (looked)
        doctor_add(f, "rdma-mtu", FINDING_OK, "RoCE packets are as large as they can be");
    else
        doctor_add(f, "rdma-mtu", FINDING_NONE, devices ? "no active RoCE port" : "no RDMA device");
}

static void check_registration(const struct report *r, struct findings *f)
{
    struct finding *one;
    int tried = 0;

    for (int i = 0; i < r->rdma.device_count; i++) {
        const struct rdma_device *d = &r->rdma.devices[i];
        if (!d->suits || !d->registered[0])
            continue;
        tried++;
        if (strncmp(d->registered, "no", 2))
            continue;
        one = doctor_add(f, "rdma-memory", FINDING_PROBLEM, "%s registers no 2 MiB: %s", d->name,
                         d->registered);
        doctor_remedy(one, "raise the memlock limit: ulimit -l unlimited");
        return;
    }
    if (tried)
        doctor_add(f, "rdma-memory", FINDING_OK, "memory can be registered");
    else
        doctor_add(f, "rdma-memory", FINDING_NONE,
                   r->rdma.device_count ? "no device to try" : "no RDMA device");
}

/* Packets of soft-RoCE pass the filter of this host; those of a card pass none. */
static void check_firewall(const struct report *r, struct findings *f)
{
    const struct rdma_device *soft = NULL;
    char text[INFO_TEXT];
    struct finding *one;
    enum finding_state state;

    for (int i = 0; i < r->rdma.device_count && !soft; i++)
        if (!strncmp(r->rdma.devices[i].driver, "soft", 4))
            soft = &r->rdma.devices[i];
    if (!soft) {
        doctor_add(f, "firewall", FINDING_NONE,
                   r->rdma.device_count ? "cards send past the packet filter of this host"
                                        : "no RDMA device");
        return;
    }
    state = firewall_look(r, text, sizeof text);
    one = doctor_add(f, "firewall", state, "%s", text);
    if (state != FINDING_OK)
        doctor_remedy(one,
                      "nft insert rule inet filter input udp dport 4791 accept; or iptables -I "
                      "INPUT -p udp --dport 4791 -j ACCEPT");
}

void doctor_rdma(const struct report *r, const struct spr_options *options, struct findings *f)
{
    bool asked = doctor_asked(options, "verbs");
    int devices = kernel_devices();

    check_devices(r, asked, devices, f);
    check_modules(r, asked, devices, f);
    check_rights(r, devices, f);
    check_ports(r, asked, devices, f);
    check_rdma_mtu(r, devices, f);
    check_registration(r, f);
    check_firewall(r, f);
}
