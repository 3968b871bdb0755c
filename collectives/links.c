/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a communicator: transports, who is where, links.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "collectives/create.h"
#include "collectives/watch.h"
#include "transport/watch/watch.h"

/* Transports in order of preference; `auto` takes the first that works for a peer. */
static const struct {
    const char *name;
    int id;
    const struct spr_transport_ops *ops;
} known[] = {
    {"shm", SPR_T_SHM, &spr_transport_shm},
#ifdef HAVE_URING
    {"uring", SPR_T_URING, &spr_transport_uring},
#endif
    {"epoll", SPR_T_EPOLL, &spr_transport_epoll},
};

/* How often it is looked whether those who wait for links are still wanted. */
#define LOOK_NS 200000000ull

static bool is_tcp(int id) { return id != SPR_T_SHM; }

/* Is `name` in the comma-separated list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* self is there in any case; a rank alone may ask for nothing else. */
spr_status spr_comm_check_transports(const char *list, struct spr_error *error)
{
    char word[32], names[64] = "auto,self";

    for (size_t i = 0; i < SPR_ARRAY_LEN(known); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), ",%s", known[i].name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (!listed(names, word))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "unknown transport '%s' in '%s': there is %s", word, list, names);
    }
    return SPR_OK;
}

/* Who we are to the others --------------------------------------------------------------------- */

static void read_boot_id(uint8_t id[16])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;

    if (fd >= 0)
        close(fd);
    memset(id, 0, 16);
    for (ssize_t i = 0, digit = 0; i < n && digit < 32; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, text[i]);
        if (!at || !text[i])
            continue;
        id[digit / 2] = (uint8_t)(id[digit / 2] << 4 | (at - hex));
        digit++;
    }
}

static void describe_self(const spr_comm *comm, struct spr_peer_info *info)
{
    struct stat st;

    memset(info, 0, sizeof *info);
    info->version = SPR_FRAME_VERSION;
    info->config_hash = comm->key.config_hash;
    read_boot_id(info->boot_id);
    info->net_namespace = stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
    info->pid = (uint32_t)getpid();
    info->uid = (uint32_t)getuid();
    if (comm->watch)
        spr_watch_describe(comm->watch, &info->watch);
    gethostname(info->host, sizeof info->host - 1);
    for (int i = 0; i < comm->transport_count; i++) {
        for (size_t k = 0; k < SPR_ARRAY_LEN(known); k++) {
            if (known[k].ops != comm->transports[i]->ops)
                continue;
            info->transports |= 1u << known[k].id;
            known[k].ops->address(comm->transports[i], info->address[known[k].id]);
        }
    }
}

/* Transports ----------------------------------------------------------------------------------- */

static spr_status open_one(spr_comm *comm, size_t k, bool asked_for, struct spr_error *error)
{
    struct spr_transport_params params = spr_comm_transport_params(comm);
    struct spr_error reason = {0};
    struct spr_transport *t = NULL;
    spr_status status;

    params.key = &comm->key;
    params.loopback_only = comm->key.secret_bytes == 0 && !comm->options.insecure;
    params.one_thread = comm->options.progress == 0;
    status = known[k].ops->open(&params, &t, &reason);
    if (status == SPR_OK) {
        comm->transports[comm->transport_count++] = t;
        return SPR_OK;
    }
    if (asked_for || status == SPR_ERR_INVALID) {
        *error = reason;
        return spr_error_set(error, status, comm->rank, "transport %s: %s", known[k].name,
                             spr_status_string(status));
    }
    comm->counters.fallbacks++;
    spr_trace_add(comm->trace, spr_monotonic_ns(), SPR_EV_FALLBACK, -1,
                  spr_trace_word(comm->trace, known[k].name), 0, 0);
    spr_warn(SPR_SUB_INIT, "transport %s cannot be used: %s", known[k].name, reason.text);
    return SPR_OK;
}

/* shm, and one of the two TCP twins: epoll only where io_uring is not wanted or refused. */
spr_status spr_comm_open_transports(spr_comm *comm, struct spr_error *error)
{
    const char *list = comm->options.transports;
    bool any = listed(list, "auto"), have_tcp = false;
    int without = comm->transport_count;
    spr_status status = SPR_OK;

    for (size_t k = 0; status == SPR_OK && k < SPR_ARRAY_LEN(known); k++) {
        bool tcp = is_tcp(known[k].id), asked_for = listed(list, known[k].name);
        bool has_twin = known[k].id == SPR_T_URING && (any || listed(list, "epoll"));
        int before = comm->transport_count;
        if ((!asked_for && !any) || (tcp && have_tcp))
            continue;
        status = open_one(comm, k, asked_for && !has_twin, error);
        if (comm->transport_count > before && tcp) {
            have_tcp = true;
            comm->thread_only |= known[k].id == SPR_T_URING;
        }
    }
    if (status == SPR_OK && comm->transport_count == without)
        status = spr_error_set(error, SPR_ERR_UNSUPPORTED, comm->rank, "no transport of '%s' works",
                               list);
    return status;
}

static bool has_crc(const spr_comm *comm, const struct spr_peer_info *mine,
                    const struct spr_peer_info *peer)
{
    return comm->options.crc == SPR_CRC_AUTO ? !spr_peer_same_host(mine, peer)
                                             : comm->options.crc == SPR_CRC_YES;
}

static spr_status connect_peer(spr_comm *comm, int peer, struct spr_error *error)
{
    const struct spr_peer_info *mine = &comm->peers[comm->rank], *info = &comm->peers[peer];
    struct spr_link *link;
    spr_status status;

    for (size_t k = 0; k < SPR_ARRAY_LEN(known); k++) {
        for (int i = 0; i < comm->transport_count; i++) {
            struct spr_transport *t = comm->transports[i];
            /* Both ends come to the same answer; the TCP twins reach each other. */
            if (t->ops != known[k].ops || !t->ops->usable(t, mine, info))
                continue;
            status = t->ops->connect(t, peer, info, &link, error);
            if (status == SPR_OK)
                spr_channel_attach(&comm->channel, link,
                                   known[k].id != SPR_T_SHM && has_crc(comm, mine, info));
            return status;
        }
    }
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, peer,
                         "no transport reaches rank %d (host %s): this rank offers 0x%x, that one "
                         "0x%x; check SPARRING_TRANSPORTS, SPARRING_INTERFACE and the secret",
                         peer, info->host, mine->transports, info->transports);
}

static bool links_complete(void *arg)
{
    const spr_comm *comm = arg;

    return comm->channel.links_up == comm->size || comm->error.status;
}

/* "rank 3 (host b)" for each peer without a link. */
static void missing_links(const spr_comm *comm, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < comm->size && used < bytes; r++) {
        const struct spr_link *l = comm->channel.peers[r].link;
        if (r == comm->rank || (l && l->state == SPR_LINK_UP))
            continue;
        int n = snprintf(text + used, bytes - used, "%srank %d (host %s)", used ? ", " : "", r,
                         comm->peers[r].host);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* SPR_IN_PROGRESS: the time is over. */
static spr_status await_links(spr_comm *comm, const spr_bootstrap *meeting, uint64_t deadline_ns,
                              struct spr_error *error)
{
    spr_status status;
    bool complete;
    uint64_t now;

    do {
        now = spr_monotonic_ns();
        complete =
            spr_comm_drive(comm, links_complete, comm, spr_min_u64(now + LOOK_NS, deadline_ns));
        status = complete || !meeting ? SPR_OK : spr_meeting_look(meeting, error);
    } while (!complete && status == SPR_OK && now < deadline_ns);
    if (comm->error.status) {
        *error = comm->error;
        return comm->error.status;
    }
    return status ? status : complete ? SPR_OK : SPR_IN_PROGRESS;
}

spr_status spr_comm_connect(spr_comm *comm, const spr_bootstrap *meeting, uint64_t deadline_ns,
                            struct spr_error *error)
{
    spr_status status = SPR_OK;
    char missing[300];

    pthread_mutex_lock(&comm->lock);
    for (int r = 0; r < comm->size && status == SPR_OK; r++)
        if (r != comm->rank)
            status = connect_peer(comm, r, error);
    if (status == SPR_OK) {
        comm->background++;
        spr_comm_kick(comm);
        status = await_links(comm, meeting, deadline_ns, error);
        comm->background--;
        if (status == SPR_IN_PROGRESS) {
            missing_links(comm, missing, sizeof missing);
            status = spr_error_set(error, SPR_ERR_BOOTSTRAP, -1,
                                   "rank %d: no connection within %.3g s to %s", comm->rank,
                                   comm->options.init_timeout_s, missing);
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

void spr_comm_announce(const spr_comm *comm)
{
    char text[160] = "";
    int local = 1;

    for (int i = 0; i < comm->transport_count; i++) {
        int n = 0;
        for (int r = 0; r < comm->size; r++)
            n += r != comm->rank && comm->channel.peers[r].link &&
                 comm->channel.peers[r].link->transport == comm->transports[i];
        if (n)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s to %d ranks",
                     *text ? ", " : "", comm->transports[i]->ops->name, n);
    }
    for (int r = 0; r < comm->size; r++)
        local += r != comm->rank && spr_peer_same_host(&comm->peers[r], &comm->peers[comm->rank]);
    spr_info(SPR_SUB_INIT, "rank %d of %d on host %s (%d ranks here): %s; progress by %s, %s",
             comm->rank, comm->size, comm->peers[comm->rank].host, local, *text ? text : "no links",
             comm->has_thread ? "thread" : "caller", comm->may_spin ? "spinning" : "sleeping");
}

spr_status spr_comm_exchange(spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                             struct spr_error *error)
{
    struct spr_peer_info mine;
    spr_status status;
    int local = 0;

    comm->peers = spr_calloc((size_t)comm->size, sizeof *comm->peers);
    if (!comm->peers)
        return SPR_ERR_NOMEM;
    describe_self(comm, &mine);
    status = spr_bootstrap_allgather(boot, &mine, comm->peers, sizeof mine, deadline_ns, error);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        comm->peers[r].host[sizeof comm->peers[r].host - 1] = '\0';
        /* Containers and emulated hosts of one machine share its CPUs. */
        local += !memcmp(comm->peers[r].boot_id, mine.boot_id, sizeof mine.boot_id);
        if (comm->peers[r].version != mine.version ||
            comm->peers[r].config_hash != mine.config_hash)
            return spr_error_set(error, SPR_ERR_MISMATCH, r,
                                 "rank %d (host %s) runs another version or other settings "
                                 "(SPARRING_EAGER, SPARRING_EAGER_WINDOW) than rank %d",
                                 r, comm->peers[r].host, comm->rank);
    }
    comm->may_spin = local <= spr_cpu_usable();
    return SPR_OK;
}
