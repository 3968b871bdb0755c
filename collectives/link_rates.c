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

enum links { LINKS_TCP, LINKS_RDMA, LINKS_MIXED };

/* Of those who have RDMA, are some on different hosts? *all: everybody has it. */
static bool may_use_rdma(const spr_comm *comm, bool *all)
{
    const struct spr_peer_info *first = NULL;
    bool apart = false;

    *all = true;
    for (int r = 0; r < comm->size; r++) {
        const struct spr_peer_info *peer = &comm->peers[r];

        if (!(peer->transports >> SPR_T_VERBS & 1)) {
            *all = false;
            continue;
        }
        first = first ? first : peer;
        apart |= !spr_peer_same_host(first, peer);
    }
    return apart;
}

/* By what hosts are linked. All ranks come to the same, also those that were built without RDMA:
 * what links two others is asked only where everybody has it. */
static enum links kind_of_links(const spr_comm *comm)
{
    const struct spr_peer_info *peers = comm->peers;
    int links = 0, rdma = 0;
    bool all;

    if (!may_use_rdma(comm, &all))
        return LINKS_TCP;
    for (int r = 1; all && r < comm->size; r++) {
        const struct spr_transport_kind *kind;

        if (spr_peer_same_host(&peers[0], &peers[r]))
            continue;
        kind = spr_transport_choose(&peers[0], &peers[r], NULL);
        links++;
        rdma += kind && kind->id == SPR_T_VERBS;
    }
    return !all || (rdma > 0 && rdma < links) ? LINKS_MIXED : rdma > 0 ? LINKS_RDMA : LINKS_TCP;
}

/* By RDMA, or by that of the TCP twins which the rank has. */
static struct spr_link_rate rate_of(const struct spr_peer_info *peer, enum links links)
{
    if (links == LINKS_RDMA)
        return peer->rate[SPR_T_VERBS];
    return peer->rate[peer->transports >> SPR_T_URING & 1 ? SPR_T_URING : SPR_T_EPOLL];
}

/* Not known where some go by RDMA and some do not, or have more interfaces or devices than others,
 * of which they do not use all between each other. */
void spr_comm_find_rates(spr_comm *comm)
{
    enum links links = kind_of_links(comm);
    bool alike = links != LINKS_MIXED;
    uint32_t of = 0;

    for (int r = 0; alike && r < comm->size; r++) {
        struct spr_link_rate rate = rate_of(&comm->peers[r], links);
        alike = !rate.of || !of || rate.of == of;
        of = rate.of ? rate.of : of;
    }
    for (int r = 0; r < comm->size; r++)
        comm->topology.rate[r] = alike ? rate_of(&comm->peers[r], links).kbit : 0;
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
