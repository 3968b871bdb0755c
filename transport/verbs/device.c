/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which devices, ports and GIDs. Every candidate is tried by making an address handle of it: tables
 * of GIDs hold entries of interfaces that are down, or that belong to another network namespace.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "transport/verbs/gids.h"
#include "transport/verbs/survey.h"
#include "transport/verbs/verbs.h"

/* What has been found so far. */
struct search {
    const struct spr_options *options;
    const struct spr_tcp_interface *interface;
    struct verbs_device best[VERBS_RAILS]; /* the best first */
    int score[VERBS_RAILS];
    uint32_t count, most;
    int devices;
    bool elsewhere;    /* some have addresses of other network namespaces only */
    char why_not[200]; /* of the last that cannot be used */
    void (*tell)(void *ctx, const struct spr_verbs_candidate *candidate); /* or NULL */
    void *ctx;
};

static void tell(const struct search *s, const struct verbs_device *d, int gid, bool usable,
                 const char *why)
{
    struct spr_verbs_candidate c = {d->name, d->port_number, gid, usable, false, why};

    if (s->tell)
        s->tell(s->ctx, &c);
}

/* It cannot be used, and perhaps that is why none can. */
static void pass_over(struct search *s, const struct verbs_device *d, const char *why)
{
    tell(s, d, -1, false, why);
    if (d->port_number)
        snprintf(s->why_not, sizeof s->why_not, "%s:%u %s", d->name, d->port_number, why);
    else
        snprintf(s->why_not, sizeof s->why_not, "%s %s", d->name, why);
}

/* Loading the drivers of libibverbs takes milliseconds: not where the kernel knows no device. */
bool verbs_kernel_has_devices(void)
{
    DIR *dir = opendir("/sys/class/infiniband_verbs");
    struct dirent *e;
    bool found = false;

    while (dir && !found && (e = readdir(dir)))
        found = !strncmp(e->d_name, "uverbs", 6);
    if (dir)
        closedir(dir);
    return found;
}

const char *verbs_gid_print(const union ibv_gid *gid, char *text, size_t bytes)
{
    if (!inet_ntop(AF_INET6, gid->raw, text, (socklen_t)bytes))
        snprintf(text, bytes, "?");
    return text;
}

const char *verbs_device_print(const struct verbs_device *d, char *text, size_t bytes)
{
    char gid[VERBS_GID_TEXT];
    const char *kind = d->port.link_layer != IBV_LINK_LAYER_ETHERNET ? "InfiniBand"
                       : d->gid_type == IBV_GID_TYPE_ROCE_V2         ? "RoCE v2"
                                                                     : "RoCE v1";

    snprintf(text, bytes, "%s:%u (%s, GID %d %s)", d->name, d->port_number, kind, d->gid_index,
             verbs_gid_print(&d->gid, gid, sizeof gid));
    return text;
}

/* Is "device" or "device:port" in the list? "" lists all. */
static bool wanted(const char *list, const char *device, uint8_t port)
{
    size_t n = strlen(device);
    char with_port[96];
    int m = snprintf(with_port, sizeof with_port, "%s:%u", device, port);

    if (!list[0])
        return true;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        size_t length = strcspn(p, ",");
        if ((length == n && !strncmp(p, device, n)) ||
            (length == (size_t)m && !strncmp(p, with_port, length)))
            return true;
    }
    return false;
}

static bool is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return !memcmp(gid->raw, mapped, sizeof mapped);
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* The address that the job uses for TCP as well. */
static bool is_interface(const union ibv_gid *gid, const struct spr_tcp_interface *interface)
{
    const struct spr_tcp_address *a = &interface->address;

    if (a->family == SPR_TCP_IPV4)
        return is_ipv4(gid) && !memcmp(gid->raw + 12, a->bytes, 4);
    return !memcmp(gid->raw, a->bytes, 16);
}

/* 0: not at all. RoCE v2 before v1, IPv4 before global before link-local IPv6. */
static int gid_score(const struct search *s, const struct ibv_gid_entry *e)
{
    const union ibv_gid *gid = (const union ibv_gid *)&e->gid;
    static const uint8_t zero[16];
    int score = 1;

    if (!memcmp(gid->raw, zero, sizeof zero))
        return 0;
    if (e->gid_type == IBV_GID_TYPE_IB)
        return 10;
    if (is_ipv4(gid))
        score = 4;
    else if (!is_link_local(gid))
        score = 3;
    score += e->gid_type == IBV_GID_TYPE_ROCE_V2 ? 10 : 0;
    return score + (is_interface(gid, s->interface) ? 20 : 0);
}

static bool address_works(const struct verbs_device *d, const union ibv_gid *gid, int index)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = d->port_number, .dlid = d->port.lid};
    struct ibv_ah *ah;

    attr.grh.dgid = *gid;
    attr.grh.sgid_index = (uint8_t)index;
    attr.grh.hop_limit = 64;
    ah = ibv_create_ah(d->pd, &attr);
    if (ah)
        (void)ibv_destroy_ah(ah);
    return ah != NULL;
}

static const char *gid_kind(const struct ibv_gid_entry *e)
{
    if (e->gid_type == IBV_GID_TYPE_IB)
        return "InfiniBand";
    if (is_ipv4((const union ibv_gid *)&e->gid))
        return e->gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2, IPv4" : "RoCE v1, IPv4";
    return e->gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2, IPv6" : "RoCE v1, IPv6";
}

/* The score of an entry that works; 0: it does not. */
static int weigh_gid(struct search *s, const struct verbs_device *d, int index,
                     const struct ibv_gid_entry *e)
{
    int asked = s->options->verbs_gid, score = gid_score(s, e);

    if (!score)
        return 0; /* empty */
    if (asked >= 0 && index != asked) {
        tell(s, d, index, false, "SPARRING_VERBS_GID names another one");
        return 0;
    }
    if (!address_works(d, (const union ibv_gid *)&e->gid, index)) {
        tell(s, d, index, false, "no address handle can be made of it");
        return 0;
    }
    if (e->gid_type != IBV_GID_TYPE_IB && !verbs_gid_is_here((const union ibv_gid *)&e->gid)) {
        tell(s, d, index, false, "it is of another network namespace");
        s->elsewhere = true;
        return 0;
    }
    tell(s, d, index, true, gid_kind(e));
    return score;
}

/* The best GID of a port. Returns its score. */
static int choose_gid(struct search *s, struct verbs_device *d)
{
    static const char elsewhere[] = "belongs to another network namespace";
    struct ibv_gid_entry *all;
    size_t count = spr_verbs_gids(d->context, &all);
    bool before = s->elsewhere;
    int best = 0;

    s->elsewhere = false; /* of this port */

    for (size_t i = 0; i < count; i++) {
        const struct ibv_gid_entry *e = &all[i];
        int score = e->port_num == d->port_number ? weigh_gid(s, d, (int)e->gid_index, e) : 0;
        if (score <= best)
            continue;
        best = score;
        d->gid = *(const union ibv_gid *)&e->gid;
        d->gid_index = (int)e->gid_index;
        d->gid_type = e->gid_type;
    }
    spr_free(all);
    if (!best && s->elsewhere)
        tell(s, d, -1, false, elsewhere);
    else if (!best)
        pass_over(s, d, "has no GID that can be used");
    s->elsewhere |= before;
    return best;
}

static const char *port_unusable(const struct ibv_port_attr *p)
{
    if (p->link_layer != IBV_LINK_LAYER_ETHERNET && p->link_layer != IBV_LINK_LAYER_INFINIBAND)
        return "is neither InfiniBand nor RoCE";
    return p->state == IBV_PORT_ACTIVE ? NULL : "is not active";
}

/* The best port of an open device; returns its score, 0: none. */
static int try_ports(struct search *s, struct verbs_device *d, struct verbs_device *chosen)
{
    int best = 0;

    for (uint8_t port = 1; port <= d->limits.phys_port_cnt; port++) {
        const char *why;
        int score;
        d->port_number = port;
        if (!wanted(s->options->verbs_devices, d->name, port)) {
            tell(s, d, -1, false, "not among SPARRING_VERBS_DEVICES");
            continue;
        }
        why = ibv_query_port(d->context, port, &d->port) ? "does not answer"
                                                         : port_unusable(&d->port);
        if (why) {
            pass_over(s, d, why);
            continue;
        }
        score = choose_gid(s, d);
        if (score > best) {
            best = score;
            *chosen = *d;
        }
    }
    return best;
}

/* Among the best so far, the one of the lowest score is let go. */
static void take_if_good(struct search *s, struct verbs_device *d, int score)
{
    uint32_t at = s->count;

    while (at > 0 && s->score[at - 1] < score)
        at--;
    if (at == s->most) {
        verbs_device_close(d);
        return;
    }
    if (s->count == s->most)
        verbs_device_close(&s->best[--s->count]);
    memmove(&s->best[at + 1], &s->best[at], (s->count - at) * sizeof *s->best);
    memmove(&s->score[at + 1], &s->score[at], (s->count - at) * sizeof *s->score);
    s->best[at] = *d;
    s->score[at] = score;
    s->count++;
}

static void try_device(struct search *s, struct ibv_device *device)
{
    struct verbs_device d = {0}, chosen;
    char why[160];
    int score;

    snprintf(d.name, sizeof d.name, "%s", ibv_get_device_name(device));
    if (device->transport_type != IBV_TRANSPORT_IB) {
        tell(s, &d, -1, false, "is no InfiniBand or RoCE device");
        return;
    }
    s->devices++;
    d.context = ibv_open_device(device);
    if (!d.context) {
        snprintf(why, sizeof why, "cannot be opened: %s (rights of /dev/infiniband/%s)",
                 strerrordesc_np(errno), device->dev_name);
        pass_over(s, &d, why);
        return;
    }
    d.pd = ibv_alloc_pd(d.context);
    if (!d.pd || ibv_query_device(d.context, &d.limits)) {
        pass_over(s, &d, "does not answer");
        verbs_device_close(&d);
        return;
    }
    score = try_ports(s, &d, &chosen);
    if (score)
        take_if_good(s, &chosen, score);
    else
        verbs_device_close(&d);
}

/* Parent and child share all pages at first, and who writes gets a copy: the device would go on
 * with what has become the child's. Kernels from 5.12 on give the child its copies at once; before,
 * such pages can be kept from it. */
static void prepare_fork(void)
{
    static _Atomic bool told;
    int error = ibv_is_fork_initialized() == IBV_FORK_DISABLED ? ibv_fork_init() : 0;

    if (error && !atomic_exchange(&told, true))
        spr_warn(
            SPR_SUB_NET,
            "verbs: fork() would let results go astray: ibv_fork_init: %s; Linux 5.12 needs none",
            strerrordesc_np(error));
}

static spr_status none_found(const struct search *s, struct spr_error *error)
{
    bool named = s->options->verbs_devices[0] || s->options->verbs_gid >= 0;

    if (s->why_not[0])
        return spr_error_set(error, named ? SPR_ERR_INVALID : SPR_ERR_SYSTEM, -1, "%s", s->why_not);
    if (s->elsewhere)
        return spr_error_set(error, named ? SPR_ERR_INVALID : SPR_ERR_UNSUPPORTED, -1,
                             "the RDMA devices belong to another network namespace");
    if (s->devices && named)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "no RDMA device is called %s",
                             s->options->verbs_devices);
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1, "there is no RDMA device");
}

static spr_status start_events(struct verbs_device *d, struct spr_error *error)
{
    int flags = fcntl(d->context->async_fd, F_GETFL);

    d->channel = ibv_create_comp_channel(d->context);
    if (!d->channel || flags < 0 || fcntl(d->context->async_fd, F_SETFL, flags | O_NONBLOCK))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "%s gives no events", d->name);
    flags = fcntl(d->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(d->channel->fd, F_SETFL, flags | O_NONBLOCK))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "%s gives no events", d->name);
    return SPR_OK;
}

static spr_status look_for_best(struct search *s, struct spr_error *error)
{
    struct ibv_device **list;
    int n = 0;

    if (!verbs_kernel_has_devices())
        return none_found(s, error);
    prepare_fork();
    list = ibv_get_device_list(&n);
    for (int i = 0; list && i < n; i++)
        try_device(s, list[i]);
    if (list)
        ibv_free_device_list(list);
    return s->count ? SPR_OK : none_found(s, error);
}

/* Both ends of a rail are the devices of the same place in this order, so it is not that in which
 * the kernel lists them. */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct verbs_device *)a)->name, ((const struct verbs_device *)b)->name);
}

spr_status verbs_devices_open(struct verbs_device *d, uint32_t most, uint32_t *count,
                              const struct spr_options *options,
                              const struct spr_tcp_interface *interface, struct spr_error *error)
{
    struct search s = {.options = options, .interface = interface};
    spr_status status;

    *count = 0;
    s.most = (uint32_t)options->verbs_rails < most ? (uint32_t)options->verbs_rails : most;
    status = look_for_best(&s, error);
    if (status)
        return status;
    qsort(&s.best[1], s.count - 1, sizeof *s.best, by_name);
    for (uint32_t i = 0; i < s.count && status == SPR_OK; i++) {
        status = start_events(&s.best[i], error);
        if (status == SPR_OK)
            verbs_inline_probe(&s.best[i]);
    }
    for (uint32_t i = 0; i < s.count; i++)
        if (status)
            verbs_device_close(&s.best[i]);
        else
            d[(*count)++] = s.best[i];
    return status;
}

spr_status
spr_verbs_survey(const struct spr_options *options, const struct spr_tcp_interface *interface,
                 void (*tell_candidate)(void *ctx, const struct spr_verbs_candidate *candidate),
                 void *ctx, char *chosen, size_t bytes, struct spr_error *error)
{
    struct search s = {
        .options = options, .interface = interface, .most = 1, .tell = tell_candidate, .ctx = ctx};
    spr_status status = look_for_best(&s, error);

    if (status == SPR_OK) {
        struct spr_verbs_candidate c = {
            s.best[0].name, s.best[0].port_number, s.best[0].gid_index, true, true, "the best"};
        verbs_device_print(&s.best[0], chosen, bytes);
        tell_candidate(ctx, &c);
        verbs_device_close(&s.best[0]);
    }
    return status;
}

void verbs_device_close(struct verbs_device *d)
{
    if (d->channel)
        (void)ibv_destroy_comp_channel(d->channel);
    if (d->pd)
        (void)ibv_dealloc_pd(d->pd);
    if (d->context)
        (void)ibv_close_device(d->context);
    *d = (struct verbs_device){0};
}

/* What it means for us. */
static const char *weigh(const struct ibv_async_event *e, uint32_t *queue_pair)
{
    *queue_pair = 0;
    switch (e->event_type) {
    case IBV_EVENT_CQ_ERR:
        return "a completion queue overflowed";
    case IBV_EVENT_DEVICE_FATAL:
        return "the device failed";
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        *queue_pair = e->element.qp->qp_num;
        return "the queue pair failed";
    default:
        return NULL;
    }
}

const char *verbs_device_event(struct verbs_device *d, uint32_t *queue_pair)
{
    struct ibv_async_event e;
    char text[VERBS_DEVICE_TEXT];
    const char *fatal;
    bool bad;

    *queue_pair = 0;
    if (ibv_get_async_event(d->context, &e))
        return NULL;
    fatal = weigh(&e, queue_pair);
    bad = fatal || e.event_type == IBV_EVENT_PORT_ERR;
    verbs_device_print(d, text, sizeof text);
    if (bad)
        spr_warn(SPR_SUB_NET, "verbs: %s: %s", text, ibv_event_type_str(e.event_type));
    else
        spr_info(SPR_SUB_NET, "verbs: %s: %s", text, ibv_event_type_str(e.event_type));
    /* Last: it may wait for whoever destroys what the event is about. */
    ibv_ack_async_event(&e);
    return fatal;
}
