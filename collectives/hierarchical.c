/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hierarchical allreduce: what ranks of one host have is summed there before it goes to other
 * hosts, and what hosts of one rack have before it goes to other racks. As many ranks of each host
 * as the smallest host has are leaders, each for one shard of the vector, so that all of them, and
 * all their links, work; and so do as many hosts of each rack, if that is at least half of the
 * largest one's, or racks are left alone. Not canonical: a host's ranks are added first; same bits
 * on all ranks and in every run of the same world on the same hosts in the same racks.
 *
 * Cost, n elements of v bytes, N hosts of G ranks: 4 steps; sent per host to others 2 (N-1)/N n v
 * bytes, where the direct algorithm sends G times that; per rank 2 (G-1)/G n v inside its host and
 * 2 (N-1)/N n/G v between hosts; (G-1)/G n + (N-1)/N n/G additions. With K racks 6 steps; a rack
 * sends 2 (K-1)/K n v bytes to others, where its N/K hosts would send 2 (K-1)/K n v each. Where
 * links of hosts are not alike, slower ones carry less (collectives/shares.h).
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
 * one handed out. Sums of a host lie in the result, where those of all will come. The stages that
 * let messages wait in the transport's memory have no link in common.
 *
 * Sums of halves (fp16, bf16) are floats until they are those of all ranks, and lie beside, of a
 * few slices. So they are rounded once; a host sends 3 (N-1)/N n v bytes to others, not 2.
 */
#include "collectives/direct.h"
#include "collectives/shares.h"
#include "collectives/reduce.h"

#define SLICES 8
#define MIN_SLICE_BYTES ((size_t)1 << 20)
#define SLICE_STEPS_LOG2 20 /* no slice has so many chunks */
#define MOST_LEVELS 3
#define WIDE_SLICES 3u /* whose sums are there, of halves */
#define MOST_STAGES (2 * MOST_LEVELS - 1)

struct hierarchical {
    size_t slice, slices; /* elements; how many */
    char *sums;           /* of halves: [WIDE_SLICES][shard]; NULL: in the result */
    size_t shard;         /* elements, of the first level */
    int levels;           /* from the inside */
    struct level {
        struct spr_group group;
        size_t shards; /* that it cuts its part into: so many of the group work at the next one */
        bool works;
    } level[MOST_LEVELS];
    size_t *cuts; /* [hosts + 1] for the last level, whose links are not alike; or NULL */
    /* In through all levels, and back; their works are slices. */
    struct spr_direct_stage stages[MOST_STAGES];
};

static size_t even(size_t count, size_t parts)
{
    return spr_align_up(spr_div_ceil(count, parts), 64);
}

static int stages_of(const struct hierarchical *h) { return 2 * h->levels - 1; }

static int level_of(const struct hierarchical *h, int stage)
{
    return stage < h->levels ? stage : stages_of(h) - 1 - stage;
}

/* Where a stage takes its input from and leaves its result: `start` is where its part of the vector
 * begins, `first` where its shard of the first level does. */
static void place(const spr_request *rq, struct spr_direct *d, int stage, size_t slice,
                  size_t start, size_t first)
{
    const struct hierarchical *h = rq->state;
    spr_dtype dtype = rq->plan.dtype, wide = spr_reduce_acc(dtype);
    char *there = (char *)rq->plan.recv + start * spr_dtype_size(dtype), *sums = there;

    if (h->sums)
        sums = h->sums + (slice % WIDE_SLICES * h->shard + start - first) * spr_dtype_size(wide);
    d->in = stage > 0 && stage < h->levels ? wide : dtype;
    d->out = stage + 1 < h->levels ? wide : dtype;
    d->send = stage > 0 && stage < h->levels ? sums : there;
    if (stage == 0)
        d->send = (const char *)rq->plan.send + start * spr_dtype_size(dtype);
    d->recv = stage + 1 < h->levels ? sums : there;
    d->own_alone = h->sums && stage == 0;
}

/* Between hosts whose links are not alike. A shard has `most` elements at most, and in later slices
 * no more. Contributions of halves are twice as long as results, which parts do not know. */
static void cut(const spr_request *rq, struct spr_direct *d, size_t most)
{
    const struct hierarchical *h = rq->state;
    const struct spr_topology *t = &rq->comm->topology;

    spr_shares_cut(t->cuts, t->hosts, d->total, h->cuts);
    d->cuts = h->cuts;
    d->segment = spr_shares_longest(t->cuts, t->hosts, most);
}

/* What a stage does with a slice. */
static void set_up(const spr_request *rq, struct spr_direct *d, size_t slice)
{
    const struct hierarchical *h = rq->state;
    int stage = (int)(spr_container_of(d, struct spr_direct_stage, direct) - h->stages);
    size_t start = slice * h->slice, first_shard = start;
    size_t count = spr_min_size(h->slice, rq->plan.count - start), segment = count;
    int level = level_of(h, stage);
    bool in = stage + 1 < h->levels, out = stage >= h->levels;

    for (int l = 0; l < level; l++) { /* our shard of each level before */
        size_t first, shard = even(segment, h->level[l].shards);

        first = spr_min_size((size_t)h->level[l].group.rank * shard, count);
        start += first;
        first_shard += l == 0 ? first : 0;
        count = spr_min_size(shard, count - first);
        segment = shard;
    }
    place(rq, d, stage, slice, start, first_shard);
    d->op = in && rq->plan.op == SPR_AVG ? SPR_SUM : rq->plan.op;
    d->divisor = rq->comm->size;
    d->step = (uint32_t)slice << SLICE_STEPS_LOG2;
    d->reduce = !out;
    d->gather = !in;
    d->group = h->level[level].group;
    d->total = count;
    d->segment = even(segment, h->level[level].shards);
    if (level + 1 == h->levels && h->cuts)
        cut(rq, d, segment);
}

/* So many slices: of the others there is no room for the sums yet. What a stage has sent last may
 * still be on its way from there. */
static size_t may_begin(const struct hierarchical *h)
{
    size_t gone = h->slices;

    for (int stage = 1; stage < h->levels; stage++)
        gone = spr_min_size(gone, spr_direct_gone(&h->stages[stage]));
    return h->sums ? spr_min_size(h->slices, gone + WIDE_SLICES) : h->slices;
}

/* One step of a stage. True: something is different. */
static bool step(spr_request *rq, int stage)
{
    struct hierarchical *h = rq->state;
    struct spr_direct_stage *s = &h->stages[stage];
    size_t ready = stage == 0 ? may_begin(h) : h->stages[stage - 1].done;

    if (!h->level[level_of(h, stage)].works) {
        s->begun = s->done = ready;
        return false;
    }
    return spr_direct_step(rq, s, ready, set_up);
}

static bool advance(spr_request *rq)
{
    const struct hierarchical *h = rq->state;
    bool again;

    do { /* the first stage may wait for a later one */
        again = false;
        for (int stage = 0; stage < stages_of(h); stage++)
            while (!rq->comm->error.status && step(rq, stage))
                again = h->sums != NULL;
    } while (again);
    return h->stages[stages_of(h) - 1].done == h->slices && !rq->comm->error.status;
}

/* One level further out: this rank's group there, of which so many lead a shard each. */
static void add_level(struct hierarchical *h, struct spr_group group, int shards)
{
    const struct level *inner = h->levels > 0 ? &h->level[h->levels - 1] : NULL;
    bool works = !inner || (inner->works && (size_t)inner->group.rank < inner->shards);

    h->level[h->levels++] = (struct level){group, (size_t)shards, works};
}

/* Whose shard a rank has where it leads one; else the first one's, with which it does nothing. */
static int place_in(const struct level *l)
{
    return (size_t)l->group.rank < l->shards ? l->group.rank : 0;
}

/* Who works with whom: the ranks of a host, their like on the hosts of the rack, and theirs in all
 * racks; without racks, on all hosts. False: no memory. */
static bool find_groups(spr_request *rq)
{
    struct hierarchical *h = rq->state;
    const struct spr_topology *t = &rq->comm->topology;
    int host = t->host[rq->comm->rank], rack = t->rack[host], first = t->rack_first[rack];
    int outer = t->hosts, among = host, local, beside = 0;
    int *ranks = spr_arena_alloc(&rq->arena, (size_t)t->hosts * sizeof *ranks);
    int *leaders = spr_arena_alloc(&rq->arena, (size_t)t->hosts * sizeof *leaders);

    if (!ranks || !leaders)
        return false;
    add_level(h, spr_topology_neighbours(t, rq->comm->rank), spr_topology_fewest(t));
    local = place_in(&h->level[0]);
    if (spr_topology_has_racks(t) && spr_topology_racks_are_even(t)) {
        int hosts = spr_topology_rack_hosts(t, rack);

        for (int i = 0; i < hosts; i++)
            ranks[i] = t->ranks[t->first[first + i] + local];
        add_level(h, (struct spr_group){ranks, hosts, host - first}, spr_topology_fewest_hosts(t));
        beside = place_in(&h->level[1]);
        outer = t->racks;
        among = rack;
    }
    for (int i = 0; i < outer; i++) {
        int there = h->levels > 1 ? t->rack_first[i] + beside : i;

        leaders[i] = t->ranks[t->first[there] + local];
    }
    add_level(h, (struct spr_group){leaders, outer, among}, outer);
    return true;
}

static void cleanup(spr_request *rq)
{
    struct hierarchical *h = rq->state;

    for (int stage = 0; stage < stages_of(h); stage++)
        spr_direct_end(rq, &h->stages[stage].direct);
}

/* False: no memory. */
static bool make_sums(spr_request *rq)
{
    struct hierarchical *h = rq->state;
    spr_dtype dtype = rq->plan.dtype, wide = spr_reduce_acc(dtype);

    h->shard = even(h->slice, h->level[0].shards);
    if (wide == dtype)
        return true;
    h->sums = spr_arena_buffer(&rq->arena, (spr_min_size(h->slices, WIDE_SLICES) * h->shard + 1) *
                                               spr_dtype_size(wide));
    return h->sums != NULL;
}

/* False: no memory. */
static bool make_cuts(spr_request *rq)
{
    struct hierarchical *h = rq->state;
    const struct spr_topology *t = &rq->comm->topology;

    if (t->uneven)
        h->cuts = spr_arena_alloc(&rq->arena, ((size_t)t->hosts + 1) * sizeof *h->cuts);
    return h->cuts || !t->uneven;
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
    if (!find_groups(rq) || !make_sums(rq) || !make_cuts(rq))
        return SPR_ERR_NOMEM;
    for (int stage = 0; stage < stages_of(h); stage++) {
        set_up(rq, &h->stages[stage].direct, 0); /* the first slice is the longest */
        if (!spr_direct_make(rq, &h->stages[stage].direct))
            return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_allreduce_hierarchical = {
    .collective = SPR_C_ALLREDUCE,
    .name = "hierarchical",
    .cost = "4 steps, 2(N-1)/N n bytes per host of N",
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_hierarchical};
