/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hierarchical allreduce: what ranks of one host have is summed there before it goes to other
 * hosts. As many ranks of each host as the smallest host has are leaders, each for one shard of the
 * vector, so that all of them, and all their links, work. Not canonical: a host's ranks are added
 * first; same bits on all ranks and in every run of the same world on the same hosts.
 *
 * Cost, n elements of v bytes, N hosts of G ranks: 4 steps; sent per host to others 2 (N-1)/N n v
 * bytes, where the direct algorithm sends G times that; per rank 2 (G-1)/G n v inside its host and
 * 2 (N-1)/N n/G v between hosts; (G-1)/G n + (N-1)/N n/G additions.
 *
 * Data movement, 4 ranks, 2 hosts; shard s is led by the s-th rank of each host and cut into halves
 * (s, h), one per host; A(..) the sum over host A, S(..) over all:
 *
 *             rank 0 (A)      rank 1 (A)      rank 2 (B)      rank 3 (B)
 *   scatter   x0(1) to 1      x1(0) to 0      x2(1) to 3      x3(0) to 2      A(0) A(1) B(0) B(1)
 *   between   A(0,B) to 2     A(1,B) to 3     B(0,A) to 0     B(1,A) to 1     S of own halves
 *             S(0,A) to 2     S(1,A) to 3     S(0,B) to 0     S(1,B) to 1
 *   gather    S(0) to 1       S(1) to 0       S(0) to 3       S(1) to 2
 *
 * Each stage is the direct algorithm, in a group. The vector is cut into slices, which go through
 * the stages one after the other: while one is between hosts, the next one is summed and the last
 * one handed out. Sums of a host lie in the result, where those of all will come. The two stages
 * that let messages wait in the transport's memory have no link in common.
 */
#include "collectives/direct.h"
#include "collectives/reduce.h"

#define SLICES 8
#define MIN_SLICE_BYTES ((size_t)1 << 20)
#define SLICE_STEPS_LOG2 20 /* no slice has so many chunks */

enum { SCATTER, BETWEEN, GATHER, STAGES };

struct hierarchical {
    size_t slice, slices; /* elements; how many */
    struct spr_group local, leaders;
    size_t shards;
    bool leads;
    struct stage {
        struct spr_direct direct;
        size_t begun, done; /* slices */
    } stages[STAGES];
};

/* No halves: the sums of a host would be rounded. */
static bool usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype != SPR_FP16 && plan->dtype != SPR_BF16;
}

static size_t even(size_t count, size_t parts)
{
    return spr_align_up(spr_div_ceil(count, parts), 64);
}

/* What a stage does with a slice. */
static void set_up(const spr_request *rq, struct spr_direct *d, int stage, size_t slice)
{
    const struct hierarchical *h = rq->state;
    size_t element = spr_dtype_size(rq->plan.dtype), start = slice * h->slice;
    size_t count = spr_min_size(h->slice, rq->plan.count - start);
    size_t shard = even(count, h->shards);

    d->send = (const char *)rq->plan.send + start * element;
    d->recv = (char *)rq->plan.recv + start * element;
    d->op = rq->plan.op;
    d->divisor = rq->comm->size;
    d->step = (uint32_t)slice << SLICE_STEPS_LOG2;
    d->reduce = stage != GATHER;
    d->gather = stage != SCATTER;
    d->group = stage == BETWEEN ? h->leaders : h->local;
    d->total = count;
    d->segment = shard;
    if (stage == SCATTER && d->op == SPR_AVG)
        d->op = SPR_SUM;
    if (stage == BETWEEN) {
        size_t first = spr_min_size((size_t)h->local.rank * shard, count);
        d->recv += first * element;
        d->send = d->recv;
        d->total = spr_min_size(shard, count - first);
        d->segment = even(shard, (size_t)h->leaders.size);
    }
}

/* One step of a stage. True: something is different. */
static bool step(spr_request *rq, int stage)
{
    struct hierarchical *h = rq->state;
    struct stage *s = &h->stages[stage];
    size_t ready = stage == SCATTER ? h->slices : h->stages[stage - 1].done;

    if (stage == BETWEEN && !h->leads) {
        s->begun = s->done = ready;
        return false;
    }
    if (s->done < s->begun) {
        if (!spr_direct_go_on(rq, &s->direct))
            return false;
        s->done++;
        return true;
    }
    if (s->begun == ready || !spr_direct_is_idle(&s->direct))
        return false;
    set_up(rq, &s->direct, stage, s->begun++);
    spr_direct_begin(rq, &s->direct);
    return true;
}

static bool advance(spr_request *rq)
{
    const struct hierarchical *h = rq->state;

    for (int stage = 0; stage < STAGES; stage++)
        while (!rq->comm->error.status && step(rq, stage))
            continue;
    return h->stages[GATHER].done == h->slices && !rq->comm->error.status;
}

/* Who works with whom. False: no memory. */
static bool find_groups(spr_request *rq)
{
    struct hierarchical *h = rq->state;
    const struct spr_topology *t = &rq->comm->topology;
    int host = t->host[rq->comm->rank], fewest = spr_topology_fewest(t);
    int *leaders = spr_arena_alloc(&rq->arena, (size_t)t->hosts * sizeof *leaders);

    if (!leaders)
        return false;
    h->shards = (size_t)fewest;
    h->local = spr_topology_neighbours(t, rq->comm->rank);
    h->leads = h->local.rank < fewest;
    for (int i = 0; i < t->hosts; i++)
        leaders[i] = t->ranks[t->first[i] + (h->leads ? h->local.rank : 0)];
    h->leaders = (struct spr_group){leaders, t->hosts, host};
    return true;
}

static void cleanup(spr_request *rq)
{
    struct hierarchical *h = rq->state;

    for (int stage = 0; stage < STAGES; stage++)
        spr_direct_end(rq, &h->stages[stage].direct);
}

static spr_status start(spr_request *rq)
{
    struct hierarchical *h = spr_arena_alloc(&rq->arena, sizeof *h);
    size_t bytes = rq->plan.count * spr_dtype_size(rq->plan.dtype);

    if (!h)
        return SPR_ERR_NOMEM;
    rq->state = h;
    *h = (struct hierarchical){.slices =
                                   spr_min_size(spr_max_size(bytes / MIN_SLICE_BYTES, 1), SLICES)};
    h->slice = even(rq->plan.count, h->slices);
    /* Rounded up, fewer may do. */
    h->slices = spr_max_size(spr_div_ceil(rq->plan.count, spr_max_size(h->slice, 1)), 1);
    if (!find_groups(rq))
        return SPR_ERR_NOMEM;
    for (int stage = 0; stage < STAGES; stage++) {
        set_up(rq, &h->stages[stage].direct, stage, 0); /* the first slice is the longest */
        if (!spr_direct_make(rq, &h->stages[stage].direct))
            return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_allreduce_hierarchical = {
    .collective = SPR_C_ALLREDUCE,
    .name = "hierarchical",
    .cost = "4 steps, 2(N-1)/N n bytes per host of N",
    .usable = usable,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_hierarchical};
