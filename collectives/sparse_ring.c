/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact: ring reduce-scatter and ring allgather of the lists; each rank only
 * talks to its neighbours. Not canonical: the order of the sum depends on the segment; same bits on
 * all ranks and in every run of the same world.
 *
 * Cost, U(r) entries in the union of r of P ranks, b bytes per entry as encoded: 2 (P-1) steps;
 * sent per rank, to one peer, (U(1) + U(2) .. + U(P-1) + (P-1) U(P)) / P b: 2 (P-1)/P k b when all
 * ranks have the same k positions, 1.5 (P-1) k b when no two of them do; half as many additions.
 * More bytes than the direct one, of which only neighbours see any.
 *
 * Data movement, 4 ranks; the segment s is what the blocks of owner s hold (compress/blocks.h);
 * s(a..b) = segment s summed over ranks a..b, S(s) the full sum:
 *
 *   step   rank 0 -> 1    rank 1 -> 2    rank 2 -> 3    rank 3 -> 0
 *    0     0(0)           1(1)           2(2)           3(3)            reduce-scatter
 *    1     3(3,0)         0(0,1)         1(1,2)         2(2,3)
 *    2     2(2,3,0)       3(3,0,1)       0(0..2)        1(1..3)
 *    3     S(1)           S(2)           S(3)           S(0)            allgather
 *    4     S(0)           S(1)           S(2)           S(3)
 *    5     S(3)           S(0)           S(1)           S(2)
 *
 * Each hop encodes what its union has become. A window is added and goes on as soon as it has
 * arrived, so all links stay busy; and it is kept until the neighbour takes it. How much is kept is
 * bounded: a chunk of step t is taken when all that was to be sent before step t is on its way, so
 * there is never more than what two steps send. That also means that nothing waits for ever: the
 * rank that is at the earliest step finds its neighbour willing to take what it sends.
 */
#include <string.h>

#include "collectives/sparse.h"

#define SENDS 8
/* From the left. A hop to another host takes longer than those inside: with two, it held up all. */
#define AHEAD 8

/* A chunk that waits for its turn, or is under way. */
struct node {
    struct node *next;
    uint32_t step;
    unsigned room_log2;
    size_t bytes;
    _Alignas(8) char data[];
};
#define LEAST_LOG2 10
#define ROOMS 10 /* 1 KiB .. 512 KiB */
_Static_assert(SPR_FRAME_MAX_PAYLOAD <= (size_t)1 << (LEAST_LOG2 + ROOMS - 1), "rooms");

struct ring {
    struct spr_sparse_state s; /* blocks of as many owners as ranks */
    uint32_t steps;
    uint32_t encoded; /* windows of our list in our segment, for step 0 */
    /* From the left: */
    struct spr_stream in;
    uint32_t step, window; /* next to come */
    /* To the right: */
    struct node *head, *tail; /* in order; not of step 0 */
    struct node *spare[ROOMS];
    struct node *under_way[SENDS];
    struct spr_out out[SENDS];
    uint32_t sent;
    char *encode; /* chunk_bytes */
};

static uint32_t segment_at(const spr_request *rq, int sender, uint32_t step)
{
    uint32_t size = (uint32_t)rq->comm->size;

    return ((uint32_t)sender + 2 * size - step) % size;
}

static int left_of(const spr_request *rq)
{
    return (rq->comm->rank + rq->comm->size - 1) % rq->comm->size;
}

/* Chunks to be sent ----------------------------------------------------------------------------
 */

static struct node *node_get(spr_request *rq, size_t bytes)
{
    struct ring *g = rq->state;
    unsigned i = 0;
    struct node *node;

    while ((size_t)1 << (LEAST_LOG2 + i) < bytes)
        i++;
    node = g->spare[i];
    if (node)
        g->spare[i] = node->next;
    else
        node = spr_arena_buffer(&rq->arena, sizeof *node + ((size_t)1 << (LEAST_LOG2 + i)));
    if (!node) {
        spr_comm_fail(rq->comm, SPR_ERR_NOMEM, rq->comm->rank, -1, "no memory for a partial sum");
        return NULL;
    }
    node->next = NULL;
    node->room_log2 = i;
    return node;
}

/* A copy of the chunk is sent when it is its turn. */
static bool enqueue(spr_request *rq, uint32_t step, const void *data, size_t bytes)
{
    struct ring *g = rq->state;
    struct node *node;

    if (step >= g->steps)
        return true;
    node = node_get(rq, bytes);
    if (!node)
        return false;
    node->step = step;
    node->bytes = bytes;
    memcpy(node->data, data, bytes);
    if (g->head)
        g->tail->next = node;
    else
        g->head = node;
    g->tail = node;
    return true;
}

static bool encoded_all(const spr_request *rq)
{
    const struct ring *g = rq->state;

    return g->encoded == g->s.windows;
}

/* The step of the next chunk that is to be sent; none is known: later than all. */
static uint32_t next_step(const spr_request *rq)
{
    const struct ring *g = rq->state;

    if (!encoded_all(rq))
        return 0;
    return g->head ? g->head->step : UINT32_MAX;
}

/* Our list first, which is encoded when it is its turn; then what came. */
static struct node *next_to_send(spr_request *rq)
{
    struct ring *g = rq->state;
    struct node *node = g->head;
    size_t bytes;

    if (!encoded_all(rq)) {
        bytes = spr_sparse_encode(rq, (uint32_t)rq->comm->rank, &g->encoded, g->encode);
        node = node_get(rq, bytes);
        if (!node)
            return NULL;
        node->bytes = bytes;
        memcpy(node->data, g->encode, bytes);
    } else if (node) {
        g->head = node->next;
    }
    return node;
}

static bool pass_on(spr_request *rq)
{
    struct ring *g = rq->state;
    int right = (rq->comm->rank + 1) % rq->comm->size;
    uint32_t before = g->sent;
    struct node *node;

    for (;;) {
        uint32_t i = g->sent % SENDS;
        if (g->out[i].busy)
            break;
        node = g->under_way[i];
        if (node) { /* it was */
            node->next = g->spare[node->room_log2];
            g->spare[node->room_log2] = node;
            g->under_way[i] = NULL;
        }
        node = next_to_send(rq);
        if (!node)
            break;
        g->under_way[i] = node;
        spr_post_send(rq, &g->out[i], right, g->sent++, node->data, node->bytes, false);
    }
    return g->sent > before;
}

/* What comes -----------------------------------------------------------------------------------
 */

/* Add our entries of a window. Returns how many. */
static size_t add_own(spr_request *rq, uint32_t segment, uint32_t w)
{
    struct spr_sparse_state *s = rq->state;

    return spr_sparse_add_list(rq, segment, w, s->writer.pos, s->writer.val, s->accumulator,
                               s->touched);
}

/* The sum of a segment is known: into the result. */
static bool finish(spr_request *rq, uint32_t segment, uint32_t first_window, const void *data,
                   size_t bytes)
{
    struct ring *g = rq->state;
    struct spr_chunk chunk;
    const char *why;

    (void)spr_chunk_open(&chunk, data, bytes, &g->s.blocks, segment, first_window, NULL,
                         &why); /* our own: cannot fail */
    g->s.union_entries += chunk.count;
    return spr_sparse_take(rq, &chunk, data, bytes) == SPR_OK;
}

/* Of all ranks. */
static bool is_full_sum(const spr_request *rq, uint32_t step)
{
    return step + 1 == (uint32_t)rq->comm->size;
}

/* The chunk in the writer, which ends before window `end` of a segment, is on its way. */
static bool close_chunk(spr_request *rq, uint32_t segment, uint32_t step, uint32_t end)
{
    struct ring *g = rq->state;
    struct spr_chunk_writer *writer = &g->s.union_writer;
    bool last = end == spr_blocks_windows(&g->s.blocks, segment);
    size_t bytes = spr_chunk_writer_finish(writer, SPR_V_FP32, -1, last ? SPR_CHUNK_LAST : 0,
                                           g->encode, g->s.chunk_bytes);

    if (is_full_sum(rq, step) && !finish(rq, segment, writer->first_window, g->encode, bytes))
        return false;
    spr_chunk_writer_begin(writer, end);
    return enqueue(rq, step, g->encode, bytes);
}

/* The sum of window w of a segment, so far, goes to the writer; and from there on its way, for this
 * step, as a full chunk. */
static bool harvest(spr_request *rq, uint32_t segment, uint32_t step, uint32_t w, size_t entries)
{
    struct ring *g = rq->state;
    struct spr_chunk_writer *writer = &g->s.union_writer;
    uint32_t len = spr_blocks_window_len(&g->s.blocks, segment, w);
    size_t n = 0;
    float *val;

    if (!spr_sparse_fits(writer, g->s.touched, g->s.span, entries) &&
        !close_chunk(rq, segment, step, w))
        return false;
    val = writer->val + writer->count;
    if (entries)
        n = spr_window_harvest(g->s.accumulator, g->s.touched, len, writer->pos + writer->count,
                               val);
    if (is_full_sum(rq, step))
        spr_sparse_average(rq, val, n);
    spr_chunk_writer_window(writer, n);
    if (w + 1 < spr_blocks_windows(&g->s.blocks, segment) && !spr_sparse_is_long(writer->count) &&
        spr_chunk_writer_room(writer, g->s.span))
        return true;
    return close_chunk(rq, segment, step, w + 1);
}

static void begin_segment(struct ring *g, uint32_t segment)
{
    struct spr_chunk_writer *w = &g->s.union_writer;

    w->owner = segment;
    spr_chunk_writer_begin(w, 0);
}

/* Windows of a partial sum: with ours, they are what the next step sends. */
static bool add(spr_request *rq, uint32_t segment, struct spr_chunk *c)
{
    struct ring *g = rq->state;

    if (c->first_window == 0)
        begin_segment(g, segment);
    for (uint32_t i = 0; i < c->windows; i++) {
        uint32_t w = c->first_window + i;
        size_t n = spr_chunk_add(c, g->s.accumulator, g->s.touched);
        if (!harvest(rq, segment, g->step + 1, w, n + add_own(rq, segment, w)))
            return false;
    }
    return true;
}

/* Owners of no windows (a very short vector) have no segment. */
static void skip_empty(spr_request *rq)
{
    struct ring *g = rq->state;

    while (g->step < g->steps &&
           !spr_blocks_windows(&g->s.blocks, segment_at(rq, left_of(rq), g->step)))
        g->step++;
    g->in.last = g->step == g->steps;
}

static bool take(spr_request *rq)
{
    struct ring *g = rq->state;
    uint32_t segment = segment_at(rq, left_of(rq), g->step);
    struct spr_chunk *c = &g->in.chunk;
    const struct spr_recv *recv;
    bool good;

    if (g->step == g->steps || g->step > next_step(rq) ||
        !spr_stream_covers(rq, &g->in, left_of(rq), segment, g->window))
        return false;
    recv = &spr_stream_next(&g->in)->recv;
    if (g->step + 1 < (uint32_t)rq->comm->size) {
        good = add(rq, segment, c);
    } else {
        g->s.union_entries += c->count;
        good = enqueue(rq, g->step + 1, recv->data, recv->bytes) &&
               spr_sparse_take(rq, c, recv->data, recv->bytes) == SPR_OK;
    }
    g->window += c->windows;
    if (c->flags & SPR_CHUNK_LAST) {
        g->window = 0;
        g->step++;
    }
    skip_empty(rq);
    spr_stream_close(&g->in);
    return good;
}

static bool take_all(spr_request *rq)
{
    struct spr_counters *counters = &rq->comm->counters;
    const struct ring *g = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    bool moved = false;

    while (take(rq))
        moved = true;
    counters->merge_ns += spr_now_ns(rq->comm->clock) - begin;
    if (g->step + 1 >= (uint32_t)rq->comm->size)
        spr_sparse_summed(rq);
    return moved;
}

/* One rank has the sum. */
static void take_own(spr_request *rq)
{
    struct ring *g = rq->state;

    begin_segment(g, 0);
    for (uint32_t w = 0; w < g->s.windows; w++)
        if (!harvest(rq, 0, 0, w, add_own(rq, 0, w)))
            return;
    g->encoded = g->s.windows;
}

static bool advance(spr_request *rq)
{
    struct ring *g = rq->state;
    const struct spr_error *error = &rq->comm->error;
    bool moved;

    if (rq->comm->size == 1)
        take_own(rq);
    do {
        moved = pass_on(rq);
        moved |= take_all(rq);
    } while (moved && !error->status);
    if (!error->status && g->steps)
        spr_stream_ask(rq, &g->in, left_of(rq), 0);
    if (error->status || g->step < g->steps || g->head || !encoded_all(rq) ||
        !spr_stream_withdraw(&g->in))
        return false;
    return spr_sparse_end(rq, spr_sparse_list);
}

static void cleanup(spr_request *rq)
{
    struct ring *g = rq->state;

    spr_sparse_buffer_put(rq, g->encode);
    spr_stream_free(rq, &g->in);
}

static spr_status start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct ring), rq->comm->size);
    struct ring *g = rq->state;
    void *scratch;

    if (status)
        return status;
    g->s.packs = false; /* what came is sent on, and read again */
    g->s.windows = spr_blocks_windows(&g->s.blocks, (uint32_t)rq->comm->rank);
    g->steps = 2 * ((uint32_t)rq->comm->size - 1);
    g->encode = spr_sparse_buffer_get(rq);
    scratch = spr_arena_buffer(&rq->arena, g->s.writer_bytes);
    if (!g->encode || !scratch || !spr_stream_open_ahead(rq, &g->in, UINT32_MAX, AHEAD)) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    /* As long as that of any owner. */
    spr_sparse_writer_init(&g->s, &g->s.union_writer, 0, scratch);
    skip_empty(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_sparse_ring = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "ring",
    .cost = "2(P-1) steps, at most 1.5 (P-1) k entries to one "
            "neighbour",
    .usable = spr_sparse_is_uncoded,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_sparse_ring};
