/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ring allreduce (Patarasuk and Yuan 2009): each rank only talks to its neighbours. Not canonical:
 * the order of the sum depends on the segment; same bits on all ranks and in every run of the same
 * world.
 *
 * Cost, n elements of v bytes, P ranks: 2(P-1) steps; 2 (P-1)/P n v bytes sent per rank, to one
 * peer; (P-1)/P n additions per rank.
 *
 * Data movement, 4 ranks, 4 segments; s(a..b) = segment s summed over ranks a..b, S(s) the full
 * sum:
 *
 *   step   rank 0 -> 1    rank 1 -> 2    rank 2 -> 3    rank 3 -> 0
 *    0     0(0)           1(1)           2(2)           3(3)            reduce-scatter
 *    1     3(3,0)         0(0,1)         1(1,2)         2(2,3)
 *    2     2(2,3,0)       3(3,0,1)       0(0..2)        1(1..3)
 *    3     S(1)           S(2)           S(3)           S(0)            allgather
 *    4     S(0)           S(1)           S(2)           S(3)
 *    5     S(3)           S(0)           S(1)           S(2)
 *
 * Segments are cut into chunks; chunk c of step t is sent as soon as chunk c of step t - 1 has
 * arrived (and was added), so all links stay busy.
 */
#include <string.h>

#include "collectives/collective.h"
#include "collectives/reduce.h"

#define AHEAD 4
#define MIN_CHUNK_BYTES ((size_t)16 << 10)

struct ring {
    size_t segment, chunk, element;
    uint32_t per_step; /* chunks per step, the same on all ranks (the last segment may have empty
                          ones) */
    uint32_t total;    /* chunks sent, and received: 2 (P-1) per_step */
    uint32_t asked, arrived, sent;
    bool eager;
    char *staging; /* of chunks that are eager, [AHEAD]; else NULL */
    struct spr_in in[AHEAD];
    struct spr_out out[AHEAD];
};

/* No halves: partial sums would be rounded at every hop. */
static bool usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype != SPR_FP16 && plan->dtype != SPR_BF16;
}

/* Chunk i of the sequence, as seen by the rank that sends it: its position and length in elements.
 */
static void locate(const spr_request *rq, int sender, uint32_t i, size_t *start, size_t *length)
{
    const struct ring *g = rq->state;
    uint32_t size = (uint32_t)rq->comm->size, step = i / g->per_step;
    size_t segment = ((uint32_t)sender + 2 * size - step) % size;
    size_t end = spr_min_size((segment + 1) * g->segment, rq->plan.count);

    *start = spr_min_size(segment * g->segment + i % g->per_step * g->chunk, end);
    *length = spr_min_size(g->chunk, end - *start);
}

static bool take(spr_request *rq, int left)
{
    struct ring *g = rq->state;
    struct spr_in *in = &g->in[g->arrived % AHEAD];
    const struct spr_plan *plan = &rq->plan;
    uint32_t step = g->arrived / g->per_step, last = (uint32_t)rq->comm->size - 2;
    size_t start, n;
    char *target;

    if (in->state != SPR_IN_ARRIVED)
        return false;
    locate(rq, left, g->arrived, &start, &n);
    if (in->recv.bytes != n * g->element) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, left, -1, "sent a chunk of another size");
        return false;
    }
    target = (char *)plan->recv + start * g->element;
    if (step <= last) {
        if (plan->recv != plan->send)
            memcpy(target, (const char *)plan->send + start * g->element, n * g->element);
        spr_reduce_add(plan->dtype, plan->op, target, in->recv.data, n);
        if (step == last)
            spr_reduce_store(plan->dtype, plan->op, target, target, n, rq->comm->size);
    }
    spr_in_release(in);
    g->arrived++;
    return true;
}

/* A chunk that is to be added waits in the transport's memory; but not an eager one: it overtakes
 * one before it that has to ask, the window being used up, and would take the memory that the other
 * one needs. */
static void ask(spr_request *rq, int left)
{
    struct ring *g = rq->state;
    uint32_t scatter = g->total / 2;

    while (g->asked < g->total && g->asked < g->arrived + AHEAD) {
        uint32_t slot = g->asked % AHEAD;
        char *into = g->staging ? g->staging + slot * g->chunk * g->element : NULL;
        size_t start, n;
        locate(rq, left, g->asked, &start, &n);
        if (g->asked >= scatter)
            into = (char *)rq->plan.recv + start * g->element;
        spr_post_receive(rq, &g->in[slot], left, g->asked, into, n * g->element, g->eager);
        g->asked++;
    }
}

static void pass_on(spr_request *rq, int right)
{
    struct ring *g = rq->state;

    while (g->sent < g->total && g->sent < g->arrived + g->per_step) {
        struct spr_out *out = &g->out[g->sent % AHEAD];
        const char *from = g->sent < g->per_step ? rq->plan.send : rq->plan.recv;
        size_t start, n;
        if (out->busy)
            return;
        locate(rq, rq->comm->rank, g->sent, &start, &n);
        spr_post_send(rq, out, right, g->sent, from + start * g->element, n * g->element, g->eager);
        g->sent++;
    }
}

static bool advance(spr_request *rq)
{
    struct ring *g = rq->state;
    int size = rq->comm->size, left = (rq->comm->rank + size - 1) % size;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (g->arrived < g->asked && take(rq, left))
        continue;
    rq->comm->counters.reduce_ns += spr_now_ns(rq->comm->clock) - begin;
    if (rq->comm->error.status)
        return false;
    ask(rq, left);
    pass_on(rq, (rq->comm->rank + 1) % size);
    return g->arrived == g->total && g->sent == g->total;
}

static spr_status start(spr_request *rq)
{
    struct ring *g = spr_arena_alloc(&rq->arena, sizeof *g);
    size_t size = (size_t)rq->comm->size, bytes;

    if (!g)
        return SPR_ERR_NOMEM;
    rq->state = g;
    g->element = spr_dtype_size(rq->plan.dtype);
    g->segment = spr_div_ceil(rq->plan.count, size);
    bytes =
        spr_min_size(spr_max_size(g->segment * g->element / 4, MIN_CHUNK_BYTES), SPR_CHUNK_BYTES);
    g->chunk = bytes / g->element;
    g->per_step = (uint32_t)spr_max_size(spr_div_ceil(g->segment, g->chunk), 1);
    g->total = 2 * ((uint32_t)size - 1) * g->per_step;
    g->eager = spr_min_size(g->chunk, g->segment) * g->element <= rq->comm->options.eager_bytes;
    if (g->eager) {
        g->chunk = spr_min_size(g->chunk, spr_max_size(g->segment, 1));
        g->staging = spr_arena_buffer(&rq->arena, AHEAD * g->chunk * g->element);
        if (!g->staging)
            return SPR_ERR_NOMEM;
    }
    if (size == 1 && rq->plan.recv != rq->plan.send)
        memcpy(rq->plan.recv, rq->plan.send, rq->plan.count * g->element);
    return SPR_OK;
}

static void cleanup(spr_request *rq)
{
    struct ring *g = rq->state;

    spr_in_release_all(g->in, AHEAD);
}

const struct spr_algorithm spr_allreduce_ring = {
    .collective = SPR_C_ALLREDUCE,
    .name = "ring",
    .cost = "2(P-1) steps, 2(P-1)/P n bytes to one neighbour",
    .usable = usable,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_ring};
