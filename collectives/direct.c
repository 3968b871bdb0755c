/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Direct reduce-scatter and allgather: allreduce, reduce_scatter, allgather and broadcast of large
 * vectors. Canonical: one owner per element adds the contributions in rank order and its bytes are
 * forwarded unchanged, so the bits depend on nothing but inputs and world. With
 * SPARRING_DETERMINISM=off it adds them as they come, and all ranks still have the same bits.
 *
 * Cost, n elements of v bytes, P ranks: 2 steps, 2 (P-1) messages per chunk and rank;
 *   sent and received per rank 2 (P-1)/P n v bytes (the lower bound of an allreduce; half of it for
 * the others); (P-1)/P n additions per rank.
 *
 * Where links of hosts are not alike, segments are not equally long (collectives/shares.h).
 *
 * Data movement, 4 ranks; the vector is cut into 4 segments, segment s belongs to rank s; xr(s) is
 * rank r's input of segment s, S(s) the sum:
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   send     x0(1..3)      x1(0,2,3)     x2(0,1,3)     x3(0..2)      to the segment's owner
 *   sum      S(0)          S(1)          S(2)          S(3)          x0 + x1 + x2 + x3, in order
 *   send     S(0) to all   S(1) to all   S(2) to all   S(3) to all
 *
 * Segments are cut into chunks, and both steps run at the same time, each link busy in both
 * directions from start to end: while a chunk is summed, the next one is on its way in and the last
 * one on its way out. Receives are posted (granted) a few chunks ahead, rotated over the senders,
 * rank r beginning with r + 1, so that at any time each rank sends to another one: no incast.
 */
#include <string.h>

#include "base/crc32c.h"
#include "collectives/direct.h"
#include "collectives/reduce.h"

#define SPREAD_STEP 0x80000000u

static size_t chunk_length(const struct spr_direct *d, int owner, uint32_t c)
{
    return spr_min_size(d->chunk, spr_direct_segment_length(d, owner) - c * d->chunk);
}

static const char *source(const struct spr_direct *d, int owner, uint32_t c)
{
    return d->send + (spr_direct_segment_start(d, owner) + c * d->chunk) * d->in_element;
}

static char *target(const struct spr_direct *d, int owner, uint32_t c)
{
    size_t start = d->own_alone ? 0 : spr_direct_segment_start(d, owner);

    return d->recv + (start + c * d->chunk) * d->out_element;
}

/* Step 1: contributions to the owners -----------------------------------------------------------
 */

static void contribute(spr_request *rq, struct spr_direct *d)
{
    int size = d->group.size, i;

    spr_marks_for_each(i, &d->may_contribute, 0)
    {
        int owner = spr_direct_before(d, i);
        struct spr_direct_peer *p = &d->peers[owner];
        uint32_t chunks =
            spr_direct_contributes(d, owner) ? spr_direct_segment_chunks(d, owner) : 0;
        spr_marks_clear(&d->may_contribute, i);
        while (p->contributed < chunks) {
            uint32_t c = p->contributed;
            struct spr_out *out = &d->to_owner[(c % d->ahead) * (uint32_t)size + (uint32_t)owner];
            if (out->busy)
                break;
            p->contributed++;
            d->unsent--;
            spr_post_send(rq, out, spr_group_rank(&d->group, owner), d->step + c,
                          source(d, owner, c), chunk_length(d, owner, c) * d->in_element, d->eager);
        }
    }
}

/* Ask for contributions: all of one chunk, then of the next, SPR_DIRECT_WINDOWS chunks ahead. */
static void ask(spr_request *rq, struct spr_direct *d)
{
    uint32_t size = (uint32_t)d->group.size, rank = (uint32_t)d->group.rank;
    bool oldest = rq->comm->running.next == &rq->node;

    if (!d->reduce && (!d->scatter || d->group.rank == d->root))
        return;
    while (d->wanted_chunk < d->own &&
           d->wanted_chunk < d->finished + (oldest ? SPR_DIRECT_WINDOWS : 1)) {
        uint32_t c = d->wanted_chunk;
        uint32_t peer = d->reduce ? (rank + 1 + d->wanted_peer) % size : (uint32_t)d->root;
        uint32_t slot = (c % SPR_DIRECT_WINDOWS) * size + peer;
        char *into = d->reduce ? NULL : target(d, (int)rank, c);
        if (d->reduce && !oldest && size > 1) {
            into = d->staging[slot] = spr_comm_buffer_get(rq->comm);
            if (!into)
                return; /* when it is the oldest it needs none */
        }
        if (size > 1)
            spr_post_receive(rq, &d->contributions[slot], spr_group_rank(&d->group, (int)peer),
                             d->step + c, into, chunk_length(d, (int)rank, c) * d->in_element,
                             d->eager);
        if (++d->wanted_peer >= (d->reduce ? size - 1 : 1)) {
            d->wanted_peer = 0;
            d->wanted_chunk++;
        }
    }
}

/* The contribution of `from` to chunk c, or NULL when it has not arrived. */
static const void *contribution(spr_request *rq, struct spr_direct *d, int from, uint32_t c,
                                struct spr_in **in)
{
    size_t bytes = chunk_length(d, d->group.rank, c) * d->in_element;

    *in = NULL;
    if (from == d->group.rank)
        return source(d, from, c);
    *in = &d->contributions[(c % SPR_DIRECT_WINDOWS) * (uint32_t)d->group.size + (uint32_t)from];
    if ((*in)->state != SPR_IN_ARRIVED)
        return NULL;
    if ((*in)->recv.bytes != bytes) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, spr_group_rank(&d->group, from), -1,
                      "sent a chunk of another size");
        return NULL;
    }
    return (*in)->recv.data;
}

static void release(spr_request *rq, struct spr_direct *d, struct spr_in *in)
{
    size_t slot = (size_t)(in - d->contributions);

    spr_in_release(in);
    spr_comm_buffer_put(rq->comm, d->staging[slot]);
    d->staging[slot] = NULL;
}

/* Whose contribution to chunk `finished` is added next, or after that of `first`: the next one in
 * rank order, or any. -1: it is not there. */
static int whose(spr_request *rq, struct spr_direct *d, int first)
{
    int begin = d->taken ? 0 : d->added + (first >= 0), end = d->taken ? d->group.size : begin + 1;
    struct spr_in *in;

    for (int r = begin; r < end && !rq->comm->error.status; r++)
        if (r != first && !(d->taken && d->taken[r]) && contribution(rq, d, r, d->finished, &in))
            return r;
    return -1;
}

/* It has been added. */
static void took(spr_request *rq, struct spr_direct *d, int rank, struct spr_in *in)
{
    if (in)
        release(rq, d, in);
    if (d->taken)
        d->taken[rank] = true;
    d->added++;
}

/* Add the next contribution to chunk `finished`, the first two at once: each byte is read once, and
 * the last sum goes to its place. False: one has not arrived. */
static bool add_next(spr_request *rq, struct spr_direct *d)
{
    bool first = d->added == 0;
    int size = d->group.size, rank_a = first ? whose(rq, d, -1) : -1, rank_b;
    const struct spr_reduce_two two = {
        d->in, d->out, d->op, first, d->added + first + 1 == size, d->divisor};
    size_t n = chunk_length(d, d->group.rank, d->finished);
    void *out = two.last ? target(d, d->group.rank, d->finished) : d->accumulator;
    const void *a = d->accumulator, *b;
    struct spr_in *in_a = NULL, *in_b;

    if ((first && rank_a < 0) || (rank_b = whose(rq, d, rank_a)) < 0)
        return false;
    if (first)
        a = contribution(rq, d, rank_a, d->finished, &in_a);
    b = contribution(rq, d, rank_b, d->finished, &in_b);
    spr_reduce_two(&two, out, a, b, n);
    if (first)
        took(rq, d, rank_a, in_a);
    took(rq, d, rank_b, in_b);
    return true;
}

/* Add what has arrived. */
static void sum(spr_request *rq, struct spr_direct *d)
{
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (d->finished < d->own) {
        while (d->group.size > 1 && d->added < d->group.size)
            if (!add_next(rq, d))
                goto out;
        if (d->group.size == 1) {
            size_t n = chunk_length(d, 0, d->finished);
            spr_reduce_load(d->in, d->accumulator, source(d, 0, d->finished), n);
            spr_reduce_store(d->out, d->op, target(d, 0, d->finished), d->accumulator, n,
                             d->divisor);
        }
        if (d->crc) /* while it is in the cache */
            d->crc[d->finished] =
                spr_crc32c(0, target(d, d->group.rank, d->finished),
                           chunk_length(d, d->group.rank, d->finished) * d->out_element);
        d->added = 0;
        if (d->taken)
            memset(d->taken, 0, (size_t)d->group.size * sizeof *d->taken);
        d->finished++;
        spr_marks_set_all(&d->may_spread);
    }
out:
    rq->comm->counters.reduce_ns += spr_now_ns(rq->comm->clock) - begin;
}

/* Broadcast's first step: our segment arrives from the root, into place. */
static void take_from_root(spr_request *rq, struct spr_direct *d)
{

    while (d->finished < d->own) {
        struct spr_in *in;
        if (d->group.rank != d->root) {
            if (!contribution(rq, d, d->root, d->finished, &in))
                return;
            spr_in_release(in);
        }
        d->finished++;
        spr_marks_set_all(&d->may_spread);
    }
}

/* Step 2: results to everybody ------------------------------------------------------------------
 */

static void spread(spr_request *rq, struct spr_direct *d)
{
    int size = d->group.size, i;

    spr_marks_for_each(i, &d->may_spread, 0)
    {
        int peer = spr_direct_before(d, i);
        struct spr_direct_peer *p = &d->peers[peer];
        uint32_t ready = i > 0 && spr_direct_gathers(d, peer) ? d->finished : 0;
        spr_marks_clear(&d->may_spread, i);
        while (p->spread < ready) {
            uint32_t c = p->spread;
            struct spr_out *out = &d->to_all[(c % d->ahead) * (uint32_t)size + (uint32_t)peer];
            if (out->busy)
                break;
            p->spread++;
            d->unsent--;
            out->send.crc_known = d->crc;
            out->send.crc = d->crc ? d->crc[c] : 0;
            spr_post_send(rq, out, spr_group_rank(&d->group, peer), SPREAD_STEP | (d->step + c),
                          target(d, d->group.rank, c),
                          chunk_length(d, d->group.rank, c) * d->out_element, d->eager);
        }
    }
}

/* Take arrived chunks of one owner off its slots. False: it sent something else. */
static bool gather_arrived(spr_request *rq, struct spr_direct *d, int owner)
{
    struct spr_direct_peer *p = &d->peers[owner];

    while (p->gathered < p->expected) {
        uint32_t c = p->gathered;
        struct spr_in *in =
            &d->from_owner[(c % d->ahead) * (uint32_t)d->group.size + (uint32_t)owner];
        if (in->state != SPR_IN_ARRIVED)
            break;
        if (in->recv.bytes != chunk_length(d, owner, c) * d->out_element) {
            spr_comm_fail(rq->comm, SPR_ERR_PROTO, spr_group_rank(&d->group, owner), -1,
                          "sent a chunk of another size");
            return false;
        }
        spr_in_release(in);
        p->gathered++;
    }
    return true;
}

static bool gather(spr_request *rq, struct spr_direct *d)
{
    int size = d->group.size, i;

    if (!spr_direct_gathers(d, d->group.rank))
        return true;
    spr_marks_for_each(i, &d->came, 0)
    {
        int owner = spr_direct_behind(d, i);
        struct spr_direct_peer *p = &d->peers[owner];
        uint32_t chunks = i > 0 ? spr_direct_segment_chunks(d, owner) : 0, before = p->gathered;
        spr_marks_clear(&d->came, i);
        if (!gather_arrived(rq, d, owner))
            return false;
        while (p->expected < chunks && p->expected < p->gathered + d->ahead) {
            uint32_t c = p->expected++;
            spr_post_receive(rq, &d->from_owner[(c % d->ahead) * (uint32_t)size + (uint32_t)owner],
                             spr_group_rank(&d->group, owner), SPREAD_STEP | (d->step + c),
                             target(d, owner, c), chunk_length(d, owner, c) * d->out_element,
                             d->eager);
        }
        d->missing -= before < p->gathered && p->gathered == chunks;
    }
    return d->missing == 0;
}

bool spr_direct_go_on(spr_request *rq, struct spr_direct *d)
{
    bool gathered;

    if (d->reduce)
        sum(rq, d);
    else if (d->scatter)
        take_from_root(rq, d);
    ask(rq, d);
    spread(rq, d);
    contribute(rq, d);
    gathered = gather(rq, d);
    return gathered && d->finished == d->own && d->unsent == 0;
}

bool spr_direct_is_idle(const struct spr_direct *d) { return d->under_way == 0; }

bool spr_direct_step(spr_request *rq, struct spr_direct_stage *s, size_t ready,
                     void (*set_up)(const spr_request *rq, struct spr_direct *d, size_t work))
{
    if (s->done < s->begun) {
        if (!spr_direct_go_on(rq, &s->direct))
            return false;
        s->done++;
        return true;
    }
    if (s->begun >= ready || !spr_direct_is_idle(&s->direct))
        return false;
    set_up(rq, &s->direct, s->begun++);
    spr_direct_begin(rq, &s->direct);
    return true;
}

size_t spr_direct_gone(const struct spr_direct_stage *s)
{
    bool sends = s->done > 0 && s->begun == s->done && !spr_direct_is_idle(&s->direct);

    return s->done - sends;
}
