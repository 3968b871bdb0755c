/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a communicator: who is where, links.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/series.h"
#include "collectives/choice.h"
#include "collectives/create.h"
#include "collectives/racks.h"
#include "collectives/watch.h"
#include "transport/watch/watch.h"

/* How often it is looked whether those who wait for links are still wanted. */
#define LOOK_NS 200000000ull
/* Threads of a rank that help to compute, where it is not said how many: trainers have other uses
 * for CPUs. */
#define MOST_HELPERS 3

/* Who we are to the others --------------------------------------------------------------------- */

/* Where it cannot be read, a rank is on a host of its own: on one host, TCP does it, too; on two,
 * shared memory would not. */
static void read_boot_id(uint8_t id[16])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0, digit = 0;

    if (fd >= 0)
        close(fd);
    memset(id, 0, 16);
    for (ssize_t i = 0; i < n && digit < 32; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, text[i]);
        if (!at || !text[i])
            continue;
        id[digit / 2] = (uint8_t)(id[digit / 2] << 4 | (at - hex));
        digit++;
    }
    if (digit == 32)
        return;
    spr_warn(SPR_SUB_INIT, "cannot read /proc/sys/kernel/random/boot_id: this rank counts as alone "
                           "on its host, without shared memory; mount /proc");
    if (getrandom(id, 16, 0) != 16)
        memcpy(id, &(pid_t){getpid()}, sizeof(pid_t));
}

void spr_comm_describe(const spr_comm *comm, struct spr_peer_info *info)
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
    spr_cpu_set_own(&info->cpus);
    for (int i = 0; i < comm->transport_count; i++) {
        for (size_t k = 0; k < spr_transport_kinds_count; k++) {
            const struct spr_transport_kind *kind = &spr_transport_kinds[k];
            if (!spr_transport_is(comm->transports[i], kind))
                continue;
            info->transports |= 1u << kind->id;
            comm->transports[i]->ops->address(comm->transports[i], info->address[kind->id]);
            info->rate[kind->id] = spr_comm_link_rate(comm, comm->transports[i]);
        }
    }
}

/* Links ---------------------------------------------------------------------------------------- */

/* auto: TCP between hosts. RDMA packets have a better checksum of their own. */
static bool has_crc(const spr_comm *comm, int id, const struct spr_peer_info *mine,
                    const struct spr_peer_info *peer)
{
    bool tcp = id == SPR_T_URING || id == SPR_T_EPOLL;

    if (id == SPR_T_SHM || comm->options.crc != SPR_CRC_AUTO)
        return id != SPR_T_SHM && comm->options.crc == SPR_CRC_YES;
    return tcp && !spr_peer_same_host(mine, peer);
}

static spr_status connect_peer(spr_comm *comm, int peer, struct spr_error *error)
{
    const struct spr_peer_info *mine = &comm->peers[comm->rank], *info = &comm->peers[peer];
    const struct spr_transport_kind *kind = spr_transport_choose(mine, info, NULL);
    struct spr_link *link;
    spr_status status;

    for (int i = 0; kind && i < comm->transport_count; i++) {
        struct spr_transport *t = comm->transports[i];
        if (!spr_transport_is(t, kind))
            continue;
        status = t->ops->connect(t, peer, info, &link, error);
        if (status == SPR_OK)
            spr_channel_attach(&comm->channel, link, has_crc(comm, kind->id, mine, info));
        return status;
    }
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, peer,
                         "no transport reaches rank %d (host %s): this rank offers 0x%x, that one "
                         "0x%x; check SPARRING_TRANSPORTS, SPARRING_INTERFACE and the secret",
                         peer, info->host, mine->transports, info->transports);
}

static bool is_used(const spr_comm *comm, const struct spr_transport *t)
{
    for (int r = 0; r < comm->size; r++) {
        const struct spr_transport_kind *kind =
            r == comm->rank ? NULL
                            : spr_transport_choose(&comm->peers[comm->rank], &comm->peers[r], NULL);
        if (kind && spr_transport_is(t, kind))
            return true;
    }
    return false;
}

void spr_comm_close_unused(spr_comm *comm)
{
    int kept = 1; /* the first leads to this rank itself */

    for (int i = 1; i < comm->transport_count; i++) {
        struct spr_transport *t = comm->transports[i];
        if (!is_used(comm, t)) {
            t->ops->close(t);
            continue;
        }
        comm->transports[kept++] = t;
        comm->thread_only |= t->ops->one_submitter;
    }
    comm->transport_count = kept;
}

static bool links_complete(void *arg)
{
    const spr_comm *comm = arg;

    return comm->channel.links_up == comm->size || comm->error.status;
}

/* "rank 3 (host b)" for each peer without a link. */
static void missing_links(const spr_comm *comm, char *text, size_t bytes)
{
    struct spr_series links;

    spr_series_begin(&links, text, bytes);
    for (int r = 0; r < comm->size; r++) {
        const struct spr_link *l = comm->channel.peers[r].link;
        if (r != comm->rank && !(l && l->state == SPR_LINK_UP))
            spr_series_add(&links, "rank %d (host %s)", r, comm->peers[r].host);
    }
}

/* Are the links still wanted? Not if those who wait for newcomers, or the communicator that is
 * split, have given up. */
static spr_status look(const spr_comm *comm, const spr_bootstrap *meeting, struct spr_error *error)
{
    spr_comm *maker = comm->maker;
    spr_status status;

    if (meeting)
        return spr_meeting_look(meeting, error);
    if (!maker)
        return SPR_OK;
    (void)spr_comm_progress(maker); /* there may be no thread for it */
    spr_comm_lock(maker);
    status = maker->error.status;
    if (status)
        *error = maker->error;
    spr_comm_unlock(maker);
    return status;
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
        status = complete ? SPR_OK : look(comm, meeting, error);
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

    spr_comm_lock(comm);
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
                                   "rank %d: no connection within %.3g s to %s: look for a "
                                   "firewall, name the network with SPARRING_INTERFACE, or wait "
                                   "longer with SPARRING_INIT_TIMEOUT",
                                   comm->rank, comm->options.init_timeout_s, missing);
        }
    }
    spr_comm_unlock(comm);
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

enum spr_medium spr_comm_medium(const spr_comm *comm, const struct spr_group *group)
{
    const struct spr_peer_info *peers = comm->peers;
    int first = comm->ids[spr_group_rank(group, 0)];
    bool memory = true, places = true;

    for (int i = 0; i < group->size; i++) {
        int id = comm->ids[spr_group_rank(group, i)];
        const struct spr_link *link = comm->channel.peers[id].link;
        if (peers) {
            memory &= peers[id].transports >> SPR_T_SHM & 1 &&
                      spr_peer_same_host(&peers[first], &peers[id]);
            places &= peers[id].transports >> SPR_T_VERBS & 1;
        } else if (i != group->rank) {
            memory &= link && link->transport->ops->memory;
            places &= link && link->transport->ops->places;
        }
    }
    return memory ? SPR_MEDIUM_MEMORY : places ? SPR_MEDIUM_PLACES : SPR_MEDIUM_ANY;
}

/* CPUs for this rank, of those that it shares with other ranks of the machine: containers and
 * emulated hosts are on the same. A quota is taken for one that all of them have together. */
static double find_share(const spr_comm *comm)
{
    const struct spr_peer_info *peers = comm->peers, *mine = &peers[comm->rank];
    uint32_t counts[SPR_CPU_SET_CPUS] = {0};
    double share, quota = spr_cpu_quota("");
    int local = 0;

    for (int r = 0; r < comm->size; r++) {
        if (memcmp(peers[r].boot_id, mine->boot_id, sizeof mine->boot_id) != 0)
            continue;
        local++;
        spr_cpu_set_count(&peers[r].cpus, counts);
    }
    share = spr_cpu_set_share(&mine->cpus, counts);
    if (share == 0)
        share = (double)spr_cpu_usable() / local;
    if (quota > 0 && quota / local < share)
        share = quota / local;
    return share + 1e-9; /* thirds make a whole */
}

/* Threads that help a rank with so many CPUs. Who wants no thread of the library for progress gets
 * none of these either. */
static int helpers(const struct spr_options *options, double share)
{
    int spare = (int)share - 1;

    if (options->workers >= 0)
        return options->workers;
    if (options->progress != 0 || spare < 0)
        return 0;
    return spare < MOST_HELPERS ? spare : MOST_HELPERS;
}

static spr_status find_rack(spr_comm *comm, const char *host, struct spr_error *error)
{
    const char *path = comm->options.topology;
    spr_status status;

    if (comm->rack_known || !path || !*path)
        return SPR_OK;
    status = spr_rack_find(path, host, &comm->rack, error);
    comm->rack_known = status == SPR_OK;
    if (comm->rack_known && !comm->rack)
        spr_warn(SPR_SUB_INIT, "rank %d: host %s is in no rack of %s", comm->rank, host, path);
    return status;
}

/* Who shares a host, and a rack. */
static void find_places(spr_comm *comm)
{
    const struct spr_peer_info *peers = comm->peers;

    for (int r = 0; r < comm->size; r++) {
        int host = 0, rack = 0;

        while (!spr_peer_same_host(&peers[host], &peers[r]))
            host++;
        while (rack < host && (!peers[r].rack || peers[rack].rack != peers[r].rack))
            rack++;
        comm->topology.identity[r] = host;
        comm->topology.rack_identity[r] = rack;
    }
}

spr_status spr_comm_exchange(spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                             struct spr_error *error)
{
    struct spr_peer_info mine;
    double share;
    spr_status status;

    comm->peers = spr_calloc((size_t)comm->size, sizeof *comm->peers);
    if (!comm->peers)
        return SPR_ERR_NOMEM;
    spr_comm_describe(comm, &mine);
    status = find_rack(comm, mine.host, error);
    if (status)
        return status;
    mine.rack = comm->rack;
    status = spr_bootstrap_allgather(boot, &mine, comm->peers, sizeof mine, deadline_ns, error);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        comm->peers[r].host[sizeof comm->peers[r].host - 1] = '\0';
        if (comm->peers[r].version != mine.version ||
            comm->peers[r].config_hash != mine.config_hash)
            return spr_error_set(error, SPR_ERR_MISMATCH, r,
                                 "rank %d (host %s) runs another version or other settings "
                                 "(" SPR_EQUAL_SETTINGS ") than rank %d",
                                 r, comm->peers[r].host, comm->rank);
    }
    share = find_share(comm);
    comm->may_spin = share >= 1;
    comm->helpers = helpers(&comm->options, share);
    find_places(comm);
    spr_comm_find_rates(comm);
    spr_topology_update(&comm->topology, comm->ids, comm->size);
    if (spr_topology_has_racks(&comm->topology))
        spr_info(SPR_SUB_INIT, "rank %d: %d hosts in %d racks", comm->rank, comm->topology.hosts,
                 comm->topology.racks);
    spr_comm_tell_rates(comm);
    return SPR_OK;
}
