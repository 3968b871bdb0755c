/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact: every rank sends its list to all others, and each sums all of them in
 * rank order. Canonical: the bits of the direct one, whose owners add in the same order; what a
 * codec has it round besides is not rounded here, where no sums travel.
 *
 * Cost, k entries per rank, P ranks, b bytes per entry as encoded: 1 step; sent per rank (P-1) k b;
 * P k additions per rank. The fewest steps, and the most bytes and additions: for lists so short
 * that the step costs more than they do.
 *
 * Data movement, 4 ranks; xr = the list of rank r, S = the sum:
 *
 *            rank 0       rank 1       rank 2       rank 3
 *   send     x0 to all    x1 to all    x2 to all    x3 to all     in chunks, of the whole vector
 *   merge    S            S            S            S             by window, in rank order
 *
 * Memory is bounded: SPR_SPARSE_AHEAD chunks per peer. A rank adds its own list from the bytes that
 * the others get, so that values which have a shorter type are the same everywhere.
 */
#include "collectives/sparse_lane.h"

struct gather {
    struct spr_sparse_state s; /* blocks of one owner; merged, next_rank, contributed */
    struct spr_lane mine;
    uint32_t encoded;          /* windows in it */
    struct spr_stream *theirs; /* [size] */
};

static void merge(spr_request *rq)
{
    struct gather *g = rq->state;
    struct spr_sparse_state *s = &g->s;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (s->merged < s->windows && spr_lane_add_all(rq, &g->mine, g->theirs)) {
        uint32_t len = spr_blocks_window_len(&s->blocks, 0, s->merged);
        float *val = s->writer.val;
        size_t n = 0;

        if (s->contributed)
            n = spr_window_harvest(s->accumulator, s->touched, len, s->writer.pos, val);
        spr_sparse_average(rq, val, n);
        spr_sparse_put(rq, s->merged, s->writer.pos, val, n);
        s->contributed = 0;
        s->next_rank = 0;
        s->merged++;
    }
    rq->comm->counters.merge_ns += spr_now_ns(rq->comm->clock) - begin;
}

static bool advance(spr_request *rq)
{
    struct gather *g = rq->state;
    int size = rq->comm->size;

    do
        merge(rq);
    while (!rq->comm->error.status && spr_lane_give(rq, &g->mine, &g->encoded, 0));
    for (int i = 1; i < size && !rq->comm->error.status; i++) {
        int peer = (rq->comm->rank + i) % size;
        spr_stream_ask(rq, &g->theirs[peer], peer, 0);
    }
    if (g->s.merged < g->s.windows || rq->comm->error.status)
        return false;
    for (int r = 0; r < size; r++)
        if (!spr_stream_withdraw(&g->theirs[r]))
            return false;
    return spr_sparse_end(rq, spr_sparse_put_end);
}

static void cleanup(spr_request *rq)
{
    struct gather *g = rq->state;

    spr_lane_free(rq, &g->mine);
    for (int r = 0; g->theirs && r < rq->comm->size; r++)
        spr_stream_free(rq, &g->theirs[r]);
}

static spr_status start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct gather), 1);
    struct gather *g = rq->state;
    size_t size = (size_t)rq->comm->size;
    bool good;

    if (status)
        return status;
    g->s.windows = spr_blocks_windows(&g->s.blocks, 0);
    g->mine.first_peer = (rq->comm->rank + 1) % rq->comm->size;
    g->mine.peers = rq->comm->size - 1;
    g->mine.adds = true;
    g->theirs = spr_arena_alloc(&rq->arena, size * sizeof *g->theirs);
    good = g->theirs && spr_lane_open(rq, &g->mine);
    for (size_t r = 0; good && r < size; r++)
        good = r == (size_t)rq->comm->rank || spr_stream_open(rq, &g->theirs[r], g->s.windows);
    if (!good) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_sparse_allgather = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                                   .name = "allgather",
                                                   .cost = "1 step, (P-1) k entries, canonical",
                                                   .usable = spr_sparse_is_uncoded,
                                                   .start = start,
                                                   .advance = advance,
                                                   .cleanup = cleanup,
                                                   .predict = spr_cost_sparse_allgather};
