/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What commonly goes wrong. A problem keeps something from working that was asked for, an advice is
 * about speed or about limits that larger jobs meet; both come with a remedy. A check that does not
 * apply here says why.
 */
#include "tools/info/doctor.h"

#include <stdarg.h>
#include <string.h>

#include "transport/tcp/rate.h"

struct finding *doctor_add(struct findings *f, const char *check, enum finding_state state,
                           const char *format, ...)
{
    static struct finding overflow;
    struct finding *one = f->count < FINDINGS ? &f->all[f->count++] : &overflow;
    va_list arguments;

    *one = (struct finding){.state = (int32_t)state};
    snprintf(one->check, sizeof one->check, "%s", check);
    va_start(arguments, format);
    vsnprintf(one->text, sizeof one->text, format, arguments);
    va_end(arguments);
    return one;
}

void doctor_remedy(struct finding *f, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(f->remedy, sizeof f->remedy, format, arguments);
    va_end(arguments);
}

bool doctor_asked(const struct spr_options *options, const char *transport)
{
    const char *list = options->transports;
    size_t n = strlen(transport);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, transport, n) && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* Limits ----------------------------------------------------------------------------------------
 */

#define MIB (1ull << 20)
/* Buckets of a training job, registered or locked, are hundreds of MiB. */
#define MEMLOCK_ENOUGH (1024 * MIB)
/* Sockets and memory of a peer (link, control link, shared memory), and those of the rank itself.
 */
#define FILES_PER_PEER 4
#define FILES_OF_RANK 64
#define FILES_ENOUGH 1024
/* A flight recorder of a rank is 164 KiB. */
#define SHM_ENOUGH (64 * MIB)

static const char memlock_remedy[] =
    "ulimit -l unlimited; or 'memlock unlimited' in /etc/security/limits.conf, "
    "LimitMEMLOCK=infinity of the service, docker run --ulimit memlock=-1";

static void check_memlock(const struct report *r, const struct spr_options *options,
                          struct findings *f)
{
    const struct info_limit *l = &r->system.memlock;
    bool rdma = r->rdma.built && (r->rdma.suiting > 0 || doctor_asked(options, "verbs"));
    uint64_t peers = r->choice.size > 2 ? (uint64_t)r->choice.size - 1 : 1;
    uint64_t needed = rdma ? r->rdma.locked_bytes + peers * r->rdma.locked_per_peer : 8 * MIB;
    bool enough = l->soft >= needed;
    struct finding *one;

    if (l->soft == INFO_NONE || l->soft >= MEMLOCK_ENOUGH) {
        doctor_add(f, "memlock", FINDING_OK, "%s may be locked and registered",
                   l->soft == INFO_NONE ? "all memory" : "1 GiB or more");
        return;
    }
    if (r->system.ipc_lock) {
        doctor_add(f, "memlock", FINDING_OK,
                   "the limit is %llu KiB, but CAP_IPC_LOCK lifts it for this process",
                   (unsigned long long)l->soft >> 10);
        return;
    }
    one = doctor_add(f, "memlock", enough ? FINDING_ADVICE : FINDING_PROBLEM,
                     "only %llu KiB of memory can be locked: %s", (unsigned long long)l->soft >> 10,
                     !rdma    ? "buckets stay unlocked"
                     : enough ? "buckets that cannot be registered are copied"
                              : "RDMA needs registered memory, and TCP is used instead");
    doctor_remedy(one, "%s", memlock_remedy);
}

static void check_files(const struct report *r, struct findings *f)
{
    const struct info_limit *l = &r->system.files;
    uint64_t needed = FILES_OF_RANK + FILES_PER_PEER * (uint64_t)r->choice.size;
    bool fits = l->soft == INFO_NONE || l->soft >= needed;
    struct finding *one;

    if (fits && (l->soft == INFO_NONE || l->soft >= FILES_ENOUGH)) {
        doctor_add(f, "open-files", FINDING_OK, "enough descriptors for jobs of %llu ranks",
                   l->soft == INFO_NONE
                       ? 1000000ull
                       : (unsigned long long)(l->soft - FILES_OF_RANK) / FILES_PER_PEER);
        return;
    }
    one = doctor_add(f, "open-files", fits ? FINDING_ADVICE : FINDING_PROBLEM,
                     "%llu descriptors may be open; a job of %d ranks needs about %llu",
                     (unsigned long long)l->soft, fits ? 240 : r->choice.size,
                     (unsigned long long)(fits ? FILES_ENOUGH : needed));
    if (l->hard == INFO_NONE || l->hard >= FILES_ENOUGH)
        doctor_remedy(one, "ulimit -n hard (sparring-run does so by itself)");
    else
        doctor_remedy(one, "'nofile' in /etc/security/limits.conf, or LimitNOFILE= of the service");
}

static void check_shm(const struct report *r, struct findings *f)
{
    const struct info_system *s = &r->system;
    struct finding *one;

    if (s->memfd_why_not[0]) {
        one = doctor_add(f, "shared-memory", FINDING_PROBLEM,
                         "no sealed memory files, so no shared memory: %s", s->memfd_why_not);
        doctor_remedy(one, "allow memfd_create (seccomp profile of the container), or more memory");
    } else {
        doctor_add(f, "shared-memory", FINDING_OK, "memory files work; /dev/shm is not needed");
    }
    if (s->shm_bytes == INFO_NONE || !s->shm_writable)
        one = doctor_add(f, "dev-shm", FINDING_ADVICE, "/dev/shm %s",
                         s->shm_bytes == INFO_NONE ? "is missing" : "cannot be written to");
    else if (s->shm_free_bytes <= SHM_ENOUGH)
        one = doctor_add(f, "dev-shm", FINDING_ADVICE, "only %llu MiB are free in /dev/shm",
                         (unsigned long long)(s->shm_free_bytes / MIB));
    else {
        doctor_add(f, "dev-shm", FINDING_OK, "%llu MiB are free in /dev/shm",
                   (unsigned long long)(s->shm_free_bytes / MIB));
        return;
    }
    doctor_remedy(one, "docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm; Sparring "
                       "itself keeps only flight recorders there (SPARRING_TRACE_DIR moves them)");
}

/* TCP and io_uring ------------------------------------------------------------------------------
 */

static void check_uring(const struct report *r, const struct spr_options *options,
                        struct findings *f)
{
    struct finding *one;

    if (!doctor_asked(options, "uring")) {
        doctor_add(f, "io_uring", FINDING_NONE, "not named in SPARRING_TRANSPORTS=%s",
                   options->transports);
        return;
    }
    if (r->uring.usable) {
        doctor_add(f, "io_uring", FINDING_OK, "%s", r->uring.survey.ring);
        return;
    }
    one = doctor_add(f, "io_uring", FINDING_PROBLEM, "%s", r->uring.why_not);
    if (!strcmp(r->uring.why_not, "built without liburing"))
        doctor_remedy(one, "build with liburing, or SPARRING_TRANSPORTS=shm,epoll");
    else
        doctor_remedy(one, "sysctl kernel.io_uring_disabled=0, and a seccomp profile that allows "
                           "io_uring_setup; or SPARRING_TRANSPORTS=shm,epoll: as right, without "
                           "the warning");
}

static void check_interface(const struct report *r, struct findings *f)
{
    const struct info_network *n = &r->network;
    const struct info_interface *chosen = NULL;
    struct finding *one;

    for (int i = 0; i < n->interface_count; i++)
        if (n->interfaces[i].chosen)
            chosen = &n->interfaces[i];
    if (!chosen) {
        one = doctor_add(f, "interface", FINDING_PROBLEM, "%s", n->why_none);
        doctor_remedy(one, "name one that is up: SPARRING_INTERFACE=NAME");
        return;
    }
    f->mtu_bytes = chosen->mtu_bytes;
    snprintf(f->interface, sizeof f->interface, "%s", chosen->at.name);
    if (!chosen->at.address.loopback) {
        doctor_add(f, "interface", FINDING_OK, "%s: %s", chosen->at.name, chosen->at.why);
        return;
    }
    one = doctor_add(f, "interface", FINDING_ADVICE,
                     "only loopback is used (%s): no other host can be reached", chosen->at.why);
    doctor_remedy(one, "bring an interface up, or name one: SPARRING_INTERFACE=NAME; give the job "
                       "a secret (SPARRING_SECRET_FILE)");
}

static void check_mtu(const struct report *r, struct findings *f)
{
    struct finding *one;

    for (int i = 0; i < r->network.interface_count; i++) {
        const struct info_interface *at = &r->network.interfaces[i];
        if (!at->chosen)
            continue;
        if (at->at.address.loopback) {
            doctor_add(f, "mtu", FINDING_NONE, "loopback has no limit worth the name");
        } else if (at->mtu_bytes < 1280) {
            one = doctor_add(f, "mtu", FINDING_PROBLEM, "%s has an MTU of %llu", at->at.name,
                             (unsigned long long)at->mtu_bytes);
            doctor_remedy(one, "ip link set dev %s mtu 1500, and the same on every host and switch",
                          at->at.name);
        } else if (at->mtu_bytes < 9000 && spr_tcp_link_mbit(at->at.name) >= 10000) {
            one = doctor_add(f, "mtu", FINDING_ADVICE, "%s runs at %llu Gb/s with an MTU of %llu",
                             at->at.name, (unsigned long long)at->speed_mbit / 1000,
                             (unsigned long long)at->mtu_bytes);
            doctor_remedy(one, "ip link set dev %s mtu 9000, when every host and switch can",
                          at->at.name);
        } else {
            doctor_add(f, "mtu", FINDING_OK, "%s: %llu bytes", at->at.name,
                       (unsigned long long)at->mtu_bytes);
        }
    }
}

static void check_congestion(const struct report *r, struct findings *f)
{
    const struct info_network *n = &r->network;
    struct finding *one;

    if (n->congestion_why_not[0]) {
        one = doctor_add(f, "congestion", FINDING_PROBLEM, "%s", n->congestion_why_not);
        doctor_remedy(one, "SPARRING_CONGESTION=%.*s, or modprobe tcp_NAME",
                      (int)strcspn(n->available, " "), n->available);
    } else if (!strncmp(n->congestion, "bbr", 3)) {
        one = doctor_add(
            f, "congestion", FINDING_ADVICE,
            "%s paces, so bursts wait: on loopback and local networks sums took up to nine times "
            "as long as with cubic",
            n->congestion);
        doctor_remedy(one, "SPARRING_CONGESTION=cubic");
    } else {
        doctor_add(f, "congestion", FINDING_OK, "%s", n->congestion);
    }
}

static void check_transports(const struct report *r, struct findings *f)
{
    struct finding *one;

    if (r->choice.error[0]) {
        one = doctor_add(f, "transports", FINDING_PROBLEM, "%s", r->choice.error);
        doctor_remedy(one, "SPARRING_TRANSPORTS=auto");
        return;
    }
    for (size_t i = 0; i < r->choice.pair_count; i++) {
        const struct info_pair *p = &r->choice.pairs[i];
        if (p->kind)
            continue;
        one = doctor_add(f, "transports", r->choice.in_job ? FINDING_PROBLEM : FINDING_ADVICE,
                         "nothing links %s and %s", p->from, p->to);
        doctor_remedy(one, "SPARRING_TRANSPORTS=auto; then SPARRING_INTERFACE and the secret");
        return;
    }
    doctor_add(f, "transports", FINDING_OK, "all ranks can be linked");
}

void doctor_examine(const struct report *r, const struct spr_options *options, struct findings *f)
{
    *f = (struct findings){.rank = r->choice.rank, .mtu_bytes = INFO_NONE};
    snprintf(f->host, sizeof f->host, "%s", r->system.host);
    check_transports(r, f);
    check_interface(r, f);
    check_mtu(r, f);
    check_congestion(r, f);
    check_uring(r, options, f);
    check_memlock(r, options, f);
    check_files(r, f);
    check_shm(r, f);
    doctor_rdma(r, options, f);
}

void doctor_compare(struct report *r)
{
    const struct findings *first = &r->doctor[0], *least = first, *most = first;
    struct finding *one;

    for (int i = 1; i < r->doctor_count; i++) {
        const struct findings *f = &r->doctor[i];
        if (f->mtu_bytes == INFO_NONE)
            continue;
        if (least->mtu_bytes == INFO_NONE || f->mtu_bytes < least->mtu_bytes)
            least = f;
        if (most->mtu_bytes == INFO_NONE || f->mtu_bytes > most->mtu_bytes)
            most = f;
    }
    if (least->mtu_bytes == most->mtu_bytes)
        return;
    one = doctor_add(&r->doctor[0], "mtu", FINDING_PROBLEM,
                     "%s of host %s has an MTU of %llu, %s of host %s one of %llu",
                     least->interface, least->host, (unsigned long long)least->mtu_bytes,
                     most->interface, most->host, (unsigned long long)most->mtu_bytes);
    doctor_remedy(one, "ip link set dev %s mtu %llu on host %s, or less on the others",
                  least->interface, (unsigned long long)most->mtu_bytes, least->host);
}
