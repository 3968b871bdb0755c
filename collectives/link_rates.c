/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What links between hosts are worth: what a rank tells of its own, and what all make of it.
 */
#include "base/log.h"
#include "collectives/choice.h"
#include "collectives/create.h"

struct spr_link_rate spr_comm_link_rate(const spr_comm *comm, const struct spr_transport *t)
{
    double kbit = comm->options.link_rate / 1e3;

    if (kbit > 0)
        return (struct spr_link_rate){kbit > 1 ? (uint32_t)kbit : 1, 0};
    return t->ops->rate ? t->ops->rate(t) : (struct spr_link_rate){0};
}

/* Do all links of rank 0 to other hosts go by RDMA, or all not? Every rank comes to the same. */
static bool all_links_are(const spr_comm *comm, bool rdma)
{
    const struct spr_peer_info *peers = comm->peers;

    for (int r = 1; r < comm->size; r++) {
        const struct spr_transport_kind *kind;

        if (spr_peer_same_host(&peers[0], &peers[r]))
            continue;
        kind = spr_transport_choose(&peers[0], &peers[r], NULL);
        if (!kind || (kind->id == SPR_T_VERBS) != rdma)
            return false;
    }
    return true;
}

/* By RDMA, or by that of the TCP twins which the rank has. */
static struct spr_link_rate rate_of(const struct spr_peer_info *peer, bool rdma)
{
    if (rdma)
        return peer->rate[SPR_T_VERBS];
    return peer->rate[peer->transports >> SPR_T_URING & 1 ? SPR_T_URING : SPR_T_EPOLL];
}

/* Not known where some have more interfaces or devices than others, of which they do not use all
 * between each other. */
void spr_comm_find_rates(spr_comm *comm)
{
    bool rdma = all_links_are(comm, true), alike = rdma || all_links_are(comm, false);
    uint32_t of = 0;

    for (int r = 0; alike && r < comm->size; r++) {
        struct spr_link_rate rate = rate_of(&comm->peers[r], rdma);
        alike = !rate.of || !of || rate.of == of;
        of = rate.of ? rate.of : of;
    }
    for (int r = 0; r < comm->size; r++)
        comm->topology.rate[r] = alike ? rate_of(&comm->peers[r], rdma).kbit : 0;
}

static const char *host_name(const spr_comm *comm, int host)
{
    const struct spr_topology *t = &comm->topology;

    return comm->peers[t->ranks[t->first[host]]].host;
}

void spr_comm_tell_rates(const spr_comm *comm)
{
    const struct spr_topology *t = &comm->topology;
    int slow = 0, fast = 0;

    for (int h = 1; h < t->hosts; h++) {
        slow = t->host_rate[h] < t->host_rate[slow] ? h : slow;
        fast = t->host_rate[h] > t->host_rate[fast] ? h : fast;
    }
    if (t->uneven)
        spr_info(SPR_SUB_INIT,
                 "rank %d: links of hosts differ: %s %.6g Mbit/s, %s %.6g; parts of dense sums are "
                 "as long as they are worth, for %.2f of the time of equal ones "
                 "(SPARRING_LINK_RATE)",
                 comm->rank, host_name(comm, slow), t->host_rate[slow] / 1e3, host_name(comm, fast),
                 t->host_rate[fast] / 1e3, t->gain);
    else if (comm->options.link_rate > 0 && t->host_rate[slow] == 0 && t->hosts > 1)
        spr_info(
            SPR_SUB_INIT,
            "rank %d: the rate of the link of %s is not known, so SPARRING_LINK_RATE of others "
            "has no effect",
            comm->rank, host_name(comm, slow));
}
