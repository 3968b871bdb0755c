/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The way of a union between hosts: what an owner tells all enters each other host once; where
 * there are racks, each of them once, from where it goes on to the hosts of the rack. There a relay
 * checks it and passes the same bytes on to its neighbours, as long as they stay in the
 * buffer that it was received into (topology.h says who relays whose union). So whoever gets a
 * chunk that is wrong has it from the rank that is to blame.
 *
 * Bytes of the second step between hosts, per host of G ranks, U entries in the union, b bytes
 * each, N hosts: (N-1)/N U b, where every rank for itself receives G times that.
 *
 * Data movement, 4 ranks, 2 hosts; S(i) = the union of owner i:
 *
 *            rank 0 (A)    rank 1 (A)    rank 2 (B)    rank 3 (B)
 *   tell     S(0) to 1,2   S(1) to 0,3   S(2) to 0,3   S(3) to 1,2
 *   pass on  S(2) to 1     S(3) to 0     S(0) to 3     S(1) to 2
 */
#include "collectives/sparse.h"

int spr_sparse_source(const spr_request *rq, int owner, int to)
{
    const struct spr_sparse_state *s = rq->state;
    int from = spr_sparse_owner(s, owner);

    return s->topology ? spr_topology_source(s->topology, from, to) : from;
}

/* The number of ranks that this one passes an owner's union on to. */
static int listeners(const spr_request *rq, int owner)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_topology *t = s->topology;

    return t ? spr_topology_listeners(t, spr_sparse_owner(s, owner), rq->comm->rank) : 0;
}

bool spr_sparse_relay_start(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s);

    if (!s->topology)
        return true;
    s->relays = spr_arena_alloc(&rq->arena, (size_t)owners * sizeof *s->relays);
    for (int o = 0; s->relays && o < owners; o++) {
        size_t n = (size_t)listeners(rq, o);
        if (n == 0)
            continue;
        s->relays[o] = spr_arena_alloc(&rq->arena, SPR_SPARSE_AHEAD * n * sizeof **s->relays);
        if (!s->relays[o])
            return false;
    }
    return s->relays;
}

bool spr_sparse_pass_on(spr_request *rq, int owner, uint32_t message, const struct spr_in *in,
                        uint32_t step)
{
    const struct spr_sparse_state *s = rq->state;
    int n = listeners(rq, owner), rank = rq->comm->rank;

    for (int i = 0; i < n; i++) {
        int to = spr_topology_listener(s->topology, spr_sparse_owner(s, owner), rank, i);
        struct spr_out *out = &s->relays[owner][(int)(message % SPR_SPARSE_AHEAD) * n + i];
        spr_post_send(rq, out, to, step, in->recv.data, in->recv.bytes, false);
    }
    return n > 0;
}

bool spr_sparse_passed_on(const spr_request *rq, int owner, uint32_t message)
{
    const struct spr_sparse_state *s = rq->state;
    int n = listeners(rq, owner);

    for (int i = 0; i < n; i++)
        if (s->relays[owner][(int)(message % SPR_SPARSE_AHEAD) * n + i].busy)
            return false;
    return true;
}
