/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact: one rank, the server, gets the lists of all, sums them in rank order and
 * sends everybody the sum. Canonical: the bits of the direct one, whose owners add in the same
 * order; a codec's sums are not rounded besides.
 *
 * The server is the first rank on the host with the most ranks, the first of such hosts; where each
 * has a host of its own, rank 0.
 *
 * Cost, k entries per rank, U entries in the union of P ranks, b bytes per entry as encoded: 2
 * steps; sent k b by each rank but the server, which sends (P-1) U b and gets (P-1) k b; it makes
 * all P k additions. For a few ranks around a host that is better connected than they are: nobody
 * else sends less, (P-1)/P (k + U) b by the direct way, or has fewer than these two messages.
 *
 * Data movement, 4 ranks, rank 0 the server; xr = the list of rank r, S = the sum:
 *
 *            rank 0       rank 1       rank 2       rank 3
 *   send     -            x1 to 0      x2 to 0      x3 to 0     in chunks, of the whole vector
 *   merge    S            -            -            -           by window, in rank order
 *   send     S to all     -            -            -           in chunks
 *
 * Both steps work at the same time, window by window. Memory is bounded: SPR_SPARSE_AHEAD chunks
 * per peer that are received, SPR_SPARSE_UNIONS that are sent.
 */
#include "collectives/sparse_lane.h"

#define SUM_STEP 0x80000000u

struct star {
    struct spr_sparse_state s; /* blocks of one owner; merged: windows that are in the result */
    int server;
    struct spr_lane mine;      /* our list, to the server; its own is only added */
    uint32_t encoded;          /* windows in it */
    struct spr_stream *theirs; /* [size] at the server: lists. Else, [server]: the sum */
    struct spr_lane sum;       /* at the server: to all */
};

static int choose_server(const struct spr_topology *t)
{
    int host = 0;

    for (int h = 1; h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) > spr_topology_local_ranks(t, host))
            host = h;
    return t->ranks[t->first[host]];
}

static bool serves(const spr_request *rq)
{
    return rq->comm->rank == ((const struct star *)rq->state)->server;
}

/* The server ------------------------------------------------------------------------------------
 */

/* The chunk in the writer, which ends before window `end`. */
static void send_chunk(spr_request *rq, uint32_t end)
{
    struct star *g = rq->state;
    struct spr_chunk_writer *w = &g->s.union_writer;
    size_t bytes =
        spr_chunk_writer_finish(w, SPR_V_FP32, -1, end == g->s.windows ? SPR_CHUNK_LAST : 0,
                                spr_lane_buffer(&g->sum), g->s.chunk_bytes);

    spr_lane_send(rq, &g->sum, bytes, SUM_STEP);
    spr_chunk_writer_begin(w, end);
}

/* The window is complete. At most two chunks are sent. */
static void harvest(spr_request *rq)
{
    struct star *g = rq->state;
    struct spr_sparse_state *s = &g->s;
    struct spr_chunk_writer *w = &s->union_writer;
    uint32_t window = s->merged++, len = spr_blocks_window_len(&s->blocks, 0, window);
    uint16_t *pos;
    float *val;
    size_t n;

    if (!spr_sparse_fits(w, s->touched, s->span, s->contributed))
        send_chunk(rq, window);
    pos = w->pos + w->count;
    val = w->val + w->count;
    n = s->contributed ? spr_window_harvest(s->accumulator, s->touched, len, pos, val) : 0;
    spr_sparse_average(rq, val, n);
    spr_sparse_put(rq, window, pos, val, n);
    spr_chunk_writer_window(w, n);
    if (s->merged == s->windows || spr_sparse_is_long(w->count) ||
        !spr_chunk_writer_room(w, s->span))
        send_chunk(rq, s->merged);
    s->contributed = 0;
    s->next_rank = 0;
}

static void serve(spr_request *rq)
{
    struct star *g = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (g->s.merged < g->s.windows && spr_lane_has_two(&g->sum) &&
           spr_lane_add_all(rq, &g->mine, g->theirs))
        harvest(rq);
    if (g->s.merged == g->s.windows)
        spr_sparse_summed(rq);
    rq->comm->counters.merge_ns += spr_now_ns(rq->comm->clock) - begin;
}

/* The others ------------------------------------------------------------------------------------
 */

static void take_sum(spr_request *rq)
{
    struct star *g = rq->state;
    struct spr_stream *sum = &g->theirs[g->server];
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (g->s.merged < g->s.windows && spr_stream_covers(rq, sum, g->server, 0, g->s.merged)) {
        g->s.merged += sum->chunk.windows;
        spr_sparse_put_chunk(rq, &sum->chunk);
        spr_stream_close(sum);
    }
    rq->comm->counters.decode_ns += spr_now_ns(rq->comm->clock) - begin;
}

static bool advance(spr_request *rq)
{
    struct star *g = rq->state;
    const struct spr_error *error = &rq->comm->error;
    int size = rq->comm->size;

    do
        (serves(rq) ? serve : take_sum)(rq);
    while (!error->status && spr_lane_give(rq, &g->mine, &g->encoded, 0));
    for (int r = 0; r < size && !error->status; r++)
        if (r != rq->comm->rank && (serves(rq) || r == g->server))
            spr_stream_ask(rq, &g->theirs[r], r, serves(rq) ? 0 : SUM_STEP);
    if (error->status || g->encoded < g->s.windows || g->s.merged < g->s.windows)
        return false;
    for (int r = 0; r < size; r++)
        if (!spr_stream_withdraw(&g->theirs[r]))
            return false;
    return spr_sparse_end(rq, spr_sparse_put_end);
}

static void cleanup(spr_request *rq)
{
    struct star *g = rq->state;

    spr_lane_free(rq, &g->mine);
    spr_lane_free(rq, &g->sum);
    for (int r = 0; g->theirs && r < rq->comm->size; r++)
        spr_stream_free(rq, &g->theirs[r]);
}

/* Of the server: what it sends, and lists of all others. */
static bool open_server(spr_request *rq)
{
    struct star *g = rq->state;
    struct spr_sparse_state *s = &g->s;
    void *scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);

    g->mine.adds = true;
    g->sum.first_peer = (g->server + 1) % rq->comm->size;
    g->sum.peers = rq->comm->size - 1;
    if (!scratch || !spr_lane_open(rq, &g->sum))
        return false;
    spr_sparse_writer_init(s, &s->union_writer, 0, scratch);
    spr_chunk_writer_begin(&s->union_writer, 0);
    for (int r = 0; r < rq->comm->size; r++)
        if (r != g->server && !spr_stream_open(rq, &g->theirs[r], s->windows))
            return false;
    return true;
}

static spr_status start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct star), 1);
    struct star *g = rq->state;
    size_t size = (size_t)rq->comm->size;
    bool good;

    if (status)
        return status;
    g->s.windows = spr_blocks_windows(&g->s.blocks, 0);
    g->server = choose_server(&rq->comm->topology);
    g->mine.first_peer = g->server;
    g->mine.peers = !serves(rq);
    g->theirs = spr_arena_alloc(&rq->arena, size * sizeof *g->theirs);
    good = g->theirs && (serves(rq) ? open_server(rq)
                                    : spr_stream_open(rq, &g->theirs[g->server], g->s.windows));
    if (!good || !spr_lane_open(rq, &g->mine)) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_sparse_server = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "server",
    .cost = "2 steps, k entries, the server (P-1) U; canonical",
    .usable = spr_sparse_is_uncoded,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .predict = spr_cost_sparse_server};
