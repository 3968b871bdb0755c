/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The way of a union by others than its owner. A relay checks what it receives, and passes the same
 * bytes on, as long as they stay in the buffer that they were received into. So whoever gets a
 * chunk that is wrong has it from the rank that is to blame.
 *
 * Between hosts: what an owner tells all enters each other host once; where there are racks, each
 * of them once, from where it goes on to the hosts of the rack; and there its relay (topology.h
 * says who relays whose union) tells its neighbours.
 *
 * Bytes of the second step between hosts, per host of G ranks, U entries in the union, b bytes
 * each, N hosts: (N-1)/N U b, where every rank for itself receives G times that.
 *
 * Data movement, 4 ranks, 2 hosts; S(i) = the union of owner i:
 *
 *            rank 0 (A)    rank 1 (A)    rank 2 (B)    rank 3 (B)
 *   tell     S(0) to 1,2   S(1) to 0,3   S(2) to 0,3   S(3) to 1,2
 *   pass on  S(2) to 1     S(3) to 0     S(0) to 3     S(1) to 2
 *
 * Round a ring: a host tells the next one alone, which passes it on, until it has been round. As
 * many bytes, but the port of a host never has several senders. 3 hosts of a rank each:
 *
 *            rank 0 (A)    rank 1 (B)    rank 2 (C)
 *   tell     S(0) to 1     S(1) to 2     S(2) to 0
 *   pass on  S(2) to 1     S(0) to 2     S(1) to 0
 */
#include "collectives/sparse.h"

int spr_sparse_source(const spr_request *rq, int owner, int to)
{
    const struct spr_sparse_state *s = rq->state;
    int from = spr_sparse_owner(s, owner);

    return s->route == SPR_ROUTE_STRAIGHT
               ? from
               : spr_topology_source(&rq->comm->topology, s->route == SPR_ROUTE_RING, from, to);
}

/* The number of ranks that this one passes an owner's union on to. */
static int listeners(const spr_request *rq, int owner)
{
    const struct spr_sparse_state *s = rq->state;

    return s->route == SPR_ROUTE_STRAIGHT
               ? 0
               : spr_topology_listeners(&rq->comm->topology, s->route == SPR_ROUTE_RING,
                                        spr_sparse_owner(s, owner), rq->comm->rank);
}

/* The i-th of them. */
static int listener(const spr_request *rq, int owner, int i)
{
    const struct spr_sparse_state *s = rq->state;

    return spr_topology_listener(&rq->comm->topology, s->route == SPR_ROUTE_RING,
                                 spr_sparse_owner(s, owner), rq->comm->rank, i);
}

bool spr_sparse_relay_start(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s);

    if (s->route == SPR_ROUTE_STRAIGHT)
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
    int n = listeners(rq, owner);

    for (int i = 0; i < n; i++) {
        struct spr_out *out = &s->relays[owner][(int)(message % SPR_SPARSE_AHEAD) * n + i];
        spr_post_send(rq, out, listener(rq, owner, i), step, in->recv.data, in->recv.bytes, false);
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
