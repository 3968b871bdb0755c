/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact: recursive doubling (Renggli et al. 2019, "SparCML", SSAR_Recursive_
 * double). In each round a rank exchanges all that it has with a partner, and both add the sum of
 * the lower ranks and that of the higher ones, in this order. Not canonical: sums of pairs are
 * added before others; same bits on all ranks and in every run of the same world.
 *
 * Cost, P = 2^m + e ranks, U(r) entries in the union of r of them, b bytes per entry as encoded: m
 * steps, 2 more with e > 0; sent per rank (U(1) + U(2) + U(4) .. + U(P/2)) b: k m b when all ranks
 * have the same positions, (P-1) k b when no two of them do; as many additions.
 *
 * Of more than a power of two, the first 2 e ranks are pairs: the odd one gives its list to the
 * even one, and gets the sum. Data movement, 4 ranks; xr = the list of rank r, x(a..b) = the sum of
 * those of ranks a to b:
 *
 *   round   rank 0          rank 1          rank 2          rank 3
 *    1      x0 to 1         x1 to 0         x2 to 3         x3 to 2
 *           x(0..1)         x(0..1)         x(2..3)         x(2..3)
 *    2      x(0..1) to 2    x(0..1) to 3    x(2..3) to 0    x(2..3) to 1
 *           x(0..3)         x(0..3)         x(0..3)         x(0..3)
 *
 * All rounds work at the same time: a window goes on to the next as soon as the partner's part of
 * it is there. Memory is bounded: per round a writer, SPR_SPARSE_UNIONS chunks of ours and
 * SPR_SPARSE_AHEAD of the partner's. What a round needs, the round before makes, and the last one
 * never waits for memory: so nothing waits for ever.
 */
#include "collectives/sparse_lane.h"

#define STEP_SHIFT 20 /* more than a round has chunks: 2^16 windows */

/* What this rank has before a round; at the last level, the sum of all. */
struct level {
    int peer;   /* whom it exchanges it with, or -1 */
    bool makes; /* it is encoded, to be sent or to be added */
    bool takes; /* the peer's chunks come, too */
    struct spr_lane ours;
    struct spr_stream theirs;
    struct spr_chunk_writer writer; /* of ours, but at the first level */
    uint32_t merged;                /* windows that are at the next level */
};

struct doubling {
    struct spr_sparse_state s; /* blocks of one owner */
    struct level *level;       /* [last + 1]; 0: pairs, 1 and on: rounds, last: the sum */
    int first, last;
    bool guest; /* the odd one of a pair: its list goes from level 0, the sum comes at the last */
    uint32_t encoded; /* windows of our list */
};

static bool is_done(const struct doubling *d)
{
    uint32_t merged = d->level[d->guest ? d->last : d->last - 1].merged;

    return d->encoded == d->s.windows && merged == d->s.windows;
}

static uint32_t step_of(const struct doubling *d, const struct level *level)
{
    return (uint32_t)(level - d->level) << STEP_SHIFT;
}

/* Both parts of the next window are there: their sum goes to the accumulator. Returns the entries
 * of both. */
static size_t add_both(spr_request *rq, struct level *level)
{
    bool lower = level->takes && level->peer < rq->comm->rank;
    size_t n = lower ? spr_stream_add(rq, &level->theirs) : 0;

    n += spr_lane_add(rq, &level->ours);
    return n + (level->takes && !lower ? spr_stream_add(rq, &level->theirs) : 0);
}

/* The chunk in the writer of the level, which ends before window `end`. */
static void close_chunk(spr_request *rq, struct level *level, uint32_t end)
{
    struct doubling *d = rq->state;
    size_t bytes = spr_chunk_writer_finish(&level->writer, SPR_V_FP32, -1,
                                           end == d->s.windows ? SPR_CHUNK_LAST : 0,
                                           spr_lane_buffer(&level->ours), d->s.chunk_bytes);

    spr_lane_send(rq, &level->ours, bytes, step_of(d, level));
    spr_chunk_writer_begin(&level->writer, end);
}

/* n entries of a window are in the writer of the level. */
static void go_on(spr_request *rq, struct level *level, uint32_t w, size_t n)
{
    const struct doubling *d = rq->state;
    struct spr_chunk_writer *writer = &level->writer;

    if (!level->makes)
        return;
    spr_chunk_writer_window(writer, n);
    if (w + 1 == d->s.windows || spr_sparse_is_long(writer->count) ||
        !spr_chunk_writer_room(writer, d->s.span))
        close_chunk(rq, level, w + 1);
}

/* From this level to the next: as many windows as are there. */
static bool merge(spr_request *rq, struct level *level)
{
    struct doubling *d = rq->state;
    struct level *next = level + 1;
    bool end = next == &d->level[d->last];
    uint32_t before = level->merged;

    while (
        level->merged < d->s.windows && (!next->makes || spr_lane_has_two(&next->ours)) &&
        spr_lane_covers(rq, &level->ours, level->merged) &&
        (!level->takes || spr_stream_covers(rq, &level->theirs, level->peer, 0, level->merged))) {
        uint32_t w = level->merged++, len = spr_blocks_window_len(&d->s.blocks, 0, w);
        size_t n = add_both(rq, level);
        uint16_t *pos;
        float *val;

        if (!spr_sparse_fits(&next->writer, d->s.touched, d->s.span, n))
            close_chunk(rq, next, w);
        pos = next->writer.pos + next->writer.count;
        val = next->writer.val + next->writer.count;
        if (n)
            n = spr_window_harvest(d->s.accumulator, d->s.touched, len, pos, val);
        if (end) {
            spr_sparse_average(rq, val, n);
            spr_sparse_put(rq, w, pos, val, n);
        }
        go_on(rq, next, w, n);
    }
    return level->merged > before;
}

/* The odd one of a pair: chunks of the sum. */
static bool take_sum(spr_request *rq)
{
    struct doubling *d = rq->state;
    struct level *last = &d->level[d->last];
    uint32_t before = last->merged;

    while (last->merged < d->s.windows &&
           spr_stream_covers(rq, &last->theirs, last->peer, 0, last->merged)) {
        last->merged += last->theirs.chunk.windows;
        spr_sparse_put_chunk(rq, &last->theirs.chunk);
        spr_stream_close(&last->theirs);
    }
    return last->merged > before;
}

static bool advance(spr_request *rq)
{
    struct doubling *d = rq->state;
    const struct spr_error *error = &rq->comm->error;
    struct spr_counters *counters = &rq->comm->counters;
    uint64_t begin = spr_now_ns(rq->comm->clock) - counters->encode_ns;
    bool moved;

    do {
        moved = spr_lane_give(rq, &d->level[d->first].ours, &d->encoded,
                              step_of(d, &d->level[d->first]));
        for (int l = d->first; l < d->last && !d->guest; l++)
            moved |= merge(rq, &d->level[l]);
        if (d->guest)
            moved |= take_sum(rq);
    } while (moved && !error->status);
    counters->merge_ns += spr_now_ns(rq->comm->clock) - counters->encode_ns - begin;
    for (int l = d->first; l <= d->last && !error->status; l++)
        if (d->level[l].takes)
            spr_stream_ask(rq, &d->level[l].theirs, d->level[l].peer, step_of(d, &d->level[l]));
    if (error->status || !is_done(d))
        return false;
    for (int l = d->first; l <= d->last; l++)
        if (!spr_stream_withdraw(&d->level[l].theirs))
            return false;
    return spr_sparse_end(rq, spr_sparse_put_end);
}

/* Who is whose partner, in which level. */
static void arrange(struct doubling *d, int rank, int size)
{
    int whole = 1, pairs, place;

    d->last = 2;
    for (; whole * 2 <= size; whole *= 2)
        d->last += whole > 1;
    pairs = size - whole;
    place = rank < 2 * pairs ? rank / 2 : rank - pairs;
    d->first = rank < 2 * pairs ? 0 : 1;
    d->guest = rank < 2 * pairs && rank % 2;
    for (int l = 0; l <= d->last; l++)
        d->level[l].peer = -1;
    if (rank < 2 * pairs) {
        struct level *list = &d->level[0], *sum = &d->level[d->last];
        list->peer = sum->peer = rank ^ 1;
        list->makes = true;
        list->takes = !d->guest;
        sum->makes = !d->guest;
        sum->takes = d->guest;
    }
    for (int l = 1; l < d->last && !d->guest; l++) {
        int other = place ^ (1 << (l - 1));
        d->level[l].makes = true;
        if (size == 1)
            continue; /* what there is goes through */
        d->level[l].takes = true;
        d->level[l].peer = other < pairs ? 2 * other : other + pairs;
    }
}

static bool open_level(spr_request *rq, struct level *level)
{
    struct doubling *d = rq->state;
    struct spr_sparse_state *s = &d->s;
    bool first = level == &d->level[d->first], last = level == &d->level[d->last];
    void *scratch;

    if (level->makes) {
        bool pair_gets = level == &d->level[0] && !d->guest;
        level->ours.first_peer = level->peer < 0 ? 0 : level->peer;
        level->ours.peers = level->peer >= 0 && !pair_gets;
        level->ours.adds = !last && !d->guest;
        if (!spr_lane_open(rq, &level->ours))
            return false;
    }
    if (level->takes && !spr_stream_open(rq, &level->theirs, s->windows))
        return false;
    level->writer = s->writer; /* to harvest into, and for no more than that */
    if (first || !level->makes)
        return true;
    scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);
    if (!scratch)
        return false;
    spr_sparse_writer_init(s, &level->writer, 0, scratch);
    spr_chunk_writer_begin(&level->writer, 0);
    return true;
}

static void cleanup(spr_request *rq)
{
    struct doubling *d = rq->state;

    for (int l = 0; d->level && l <= d->last; l++) {
        spr_lane_free(rq, &d->level[l].ours);
        spr_stream_free(rq, &d->level[l].theirs);
    }
}

static spr_status start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct doubling), 1);
    struct doubling *d = rq->state;
    bool good;

    if (status)
        return status;
    d->s.windows = spr_blocks_windows(&d->s.blocks, 0);
    d->level = spr_arena_alloc(&rq->arena, (sizeof(int) * 8 + 2) * sizeof *d->level);
    good = d->level != NULL;
    if (good)
        arrange(d, rq->comm->rank, rq->comm->size);
    for (int l = d->first; good && l <= d->last; l++)
        good = open_level(rq, &d->level[l]);
    if (!good) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_sparse_doubling = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "doubling",
    .cost = "log2 P steps (+2), between k log2 P and (P-1) k entries",
    .usable = spr_sparse_is_uncoded,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_sparse_doubling};
