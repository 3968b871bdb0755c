/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact: direct reduce-scatter of the lists to block-cyclic owners, allgather of
 * the encoded unions. Canonical: the owner adds in rank order and its bytes are forwarded
 * unchanged; of a codec that rounds sums, after a second rounding, and what that loses stays with
 * the owner.
 *
 * Cost, k entries per rank, U entries in the union of P ranks, b bytes per entry as encoded: 2
 * steps; sent per rank (P-1)/P k b + (P-1)/P U b (within (U-k)/P entries of the lower bound, for
 * any overlap of supports); k + U/P additions and U scattered writes per rank.
 *
 * Data movement, 4 ranks; block i of the vector belongs to rank i mod 4; xr(s) = rank r's entries
 * in the blocks of rank s, S(s) = their sum over ranks:
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   send     x0(1..3)      x1(0,2,3)     x2(0,1,3)     x3(0..2)      in chunks (compress/chunk.h)
 *   merge    S(0)          S(1)          S(2)          S(3)          by window, in rank order
 *   send     S(0) to all   S(1) to all   S(2) to all   S(3) to all   in chunks
 *   write    the whole union into the dense result, or into a list
 *
 * Streaming: a window (65536 positions of one owner) is merged in a dense accumulator that fits the
 * L2 cache as soon as every rank's chunk that covers it is there, while later chunks are on the
 * wire. Memory is bounded: SPR_SPARSE_AHEAD chunks per peer and step. Chunks are received into
 * private memory, so that a peer cannot change them between check and use.
 */
#include "collectives/sparse.h"

#include <string.h>

#include "compress/kernels/kernels.h"
#include "compress/select/topk.h"

/* Sender: our list to the owners ----------------------------------------------------------------
 */

/* Encode the next chunk for an owner. Returns its bytes. */
static size_t encode_next(spr_request *rq, int owner)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->writer;
    size_t bytes =
        s->way->encode(rq, (uint32_t)owner, &s->sent_windows[owner], s->to_owner_buffer[owner]);

    if (rq->plan.rest && s->vtype == SPR_V_CODED) {
        spr_chunk_leave_rest(w, spr_sparse_coding(rq), s->to_owner_buffer[owner], bytes);
        spr_chunk_scatter(w, rq->plan.rest);
    }
    return bytes;
}

static bool contributed_all(const struct spr_sparse_state *s, int owner)
{
    return s->sent_windows[owner] == spr_blocks_windows(&s->blocks, (uint32_t)owner);
}

bool spr_sparse_contribute(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s), i;
    int first = ((s->own < 0 ? rq->comm->rank : s->own) + 1) % owners;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    spr_marks_for_each(i, &s->may_send, first)
    {
        int owner = (first + i) % owners;
        uint32_t step = s->collectors ? spr_sparse_step(s, owner) : 0;
        size_t bytes;
        if (s->way->is_ready && !s->way->is_ready(rq, owner))
            continue;
        spr_marks_clear(&s->may_send, owner);
        if (contributed_all(s, owner))
            continue;
        bytes = encode_next(rq, owner);
        spr_wire_begin(&s->to_owner_wire[owner]);
        spr_wire_send(rq, &s->to_owner_wire[owner], &s->to_owner[owner],
                      spr_sparse_collector(s, owner), step + s->sent_chunks[owner]++,
                      s->to_owner_buffer[owner], bytes);
        s->unsent -= contributed_all(s, owner);
    }
    rq->comm->counters.encode_ns += spr_now_ns(rq->comm->clock) - begin;
    return s->unsent == 0;
}

/* Owner: merge ----------------------------------------------------------------------------------
 */

/* A dense vector is summed in its place in the union; the first rank's values are set. */
static float *sums_of(const struct spr_sparse_state *s)
{
    return s->offsets ? s->accumulator : s->union_writer.val + s->union_writer.count;
}

static enum spr_decode add_or_set(const struct spr_sparse_state *s)
{
    return s->next_rank == 0 ? SPR_DECODE_SET : SPR_DECODE_ADD;
}

bool spr_sparse_add_own(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    uint16_t *pos = s->offsets ? s->writer.pos : NULL;
    float *val = s->writer.val;
    uint32_t own = (uint32_t)s->own;
    size_t n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value, own,
                                 s->merged, pos, val);

    /* As others would have it from us. */
    if (!s->offsets) {
        spr_coding_pass(&s->coding, &s->blocks, own, s->merged, val, n, add_or_set(s), sums_of(s));
        if (rq->plan.rest) {
            s->coding.coder->decode(s->coding.options, s->coding.image, n, SPR_DECODE_TAKE, val);
            spr_blocks_scatter(&s->blocks, own, s->merged, val, rq->plan.rest);
        }
        return true;
    }
    if (spr_sparse_coding(rq))
        (void)spr_coding_round(&s->coding, &s->blocks, own, s->merged, val, n);
    s->contributed += n;
    spr_kernels()->add_at(s->accumulator, s->touched, pos, val, n);
    return true;
}

/* Add what a source has of the window; close its chunk behind the last window. */
static bool add(spr_request *rq, int source)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_stream *stream = &s->contributions[source];
    int from = spr_group_rank(&s->sources, source);

    if (from == rq->comm->rank)
        return s->add_own(rq);
    if (!spr_stream_covers(rq, stream, from, (uint32_t)s->own, s->merged))
        return false;
    if (s->offsets)
        s->contributed += spr_chunk_add(&stream->chunk, s->accumulator, s->touched);
    else
        (void)spr_chunk_values(&stream->chunk, add_or_set(s), sums_of(s));
    if (s->merged + 1 == stream->chunk.first_window + stream->chunk.windows)
        spr_stream_close(stream);
    return true;
}

void spr_sparse_average(const spr_request *rq, float *sum, size_t n)
{
    if (rq->plan.op == SPR_AVG)
        for (size_t i = 0; i < n; i++)
            sum[i] /= (float)rq->comm->size;
}

/* The window is complete: move its union into the writer. */
static bool harvest(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->union_writer;
    uint32_t len = spr_blocks_window_len(&s->blocks, (uint32_t)s->own, s->merged);
    float *val = w->val + w->count;
    size_t n = len; /* of a dense vector, of which a window fills a chunk */

    if (s->offsets && !spr_sparse_fits(w, s->touched, s->span, s->contributed))
        return spr_union_close(rq);
    if (s->add_left)
        s->add_left(rq);
    if (s->offsets)
        n = spr_window_harvest(s->accumulator, s->touched, len, w->pos + w->count, val);
    if (s->largest)
        n = spr_topk_keep(w->pos + w->count, val, n,
                          spr_div_ceil(s->contributed, (size_t)rq->comm->size), NULL, s->largest);
    s->contributed = 0;
    s->next_rank = 0;
    spr_sparse_average(rq, val, n);
    return spr_union_window(rq, n);
}

const struct spr_sparse_way spr_sparse_chunks = {.encode = spr_sparse_encode,
                                                 .has_room = spr_union_has_room,
                                                 .add = add,
                                                 .harvest = harvest,
                                                 .take = spr_union_take_chunk};

/* All steps -------------------------------------------------------------------------------------
 */

/* Add what is there of window `merged`: in the order of sources, or any. True: of all. */
static bool add_sources(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int sources = s->sources.size;

    if (s->taken && s->next_rank == 0)
        memset(s->taken, 0, (size_t)sources * sizeof *s->taken);
    for (int i = s->taken ? 0 : s->next_rank; i < sources && !rq->comm->error.status; i++) {
        if (s->taken && s->taken[i])
            continue;
        if (s->way->add(rq, i)) {
            s->next_rank++;
            if (s->taken)
                s->taken[i] = true;
        } else if (!s->taken) {
            break;
        }
    }
    return s->next_rank == sources;
}

static void merge(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int sources = s->sources.size, i;
    int first = sources ? (s->sources.rank + 1) % sources : 0;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (s->merged < s->windows && s->way->has_room(rq)) {
        enum spr_together_next next =
            s->next_rank == 0 ? spr_sparse_sum_together(rq) : SPR_TOGETHER_ALONE;
        if (next == SPR_TOGETHER_WAIT ||
            (next == SPR_TOGETHER_ALONE && (!add_sources(rq) || !s->way->harvest(rq))))
            break;
    }
    rq->comm->counters.merge_ns += spr_now_ns(rq->comm->clock) - begin;
    if (s->windows == 0 || rq->comm->error.status)
        return;
    spr_marks_for_each(i, &s->stirred_sources, first)
    {
        int from = (first + i) % sources;
        spr_marks_clear(&s->stirred_sources, from);
        if (from != s->sources.rank)
            spr_stream_ask(rq, &s->contributions[from], spr_group_rank(&s->sources, from), 0);
    }
}

static void withdraw_rest(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;

    if (s->withdrawn)
        return;
    for (int i = 0; i < s->sources.size; i++)
        if (!spr_stream_withdraw(&s->contributions[i]))
            return;
    for (int o = 0; o < spr_sparse_owners(s); o++)
        if (!spr_stream_withdraw(&s->unions[o]))
            return;
    s->withdrawn = true;
}

bool spr_sparse_go_on(spr_request *rq, bool contributed)
{
    struct spr_sparse_state *s = rq->state;
    bool taken;

    merge(rq);
    if (rq->comm->error.status)
        return false;
    if (s->merged == s->windows)
        spr_sparse_summed(rq);
    taken = spr_union_take(rq);
    if (rq->comm->error.status || !contributed || !taken || s->merged < s->windows)
        return false;
    withdraw_rest(rq);
    return spr_sparse_end(rq, spr_sparse_list);
}

static bool advance(spr_request *rq) { return spr_sparse_go_on(rq, spr_sparse_contribute(rq)); }

static bool usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype == SPR_FP32;
}

const struct spr_algorithm spr_sparse_hierarchical = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "hierarchical",
    .cost = "2 or 3 steps, (P-1)/P k entries; the union enters each host once; canonical",
    .usable = usable,
    .start = spr_sparse_start,
    .advance = advance,
    .cleanup = spr_sparse_cleanup,
    .predict = spr_cost_sparse_hierarchical};
const struct spr_algorithm spr_sparse_relay = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "relay",
    .cost = "(P-1)/P k entries; the union round a ring of N hosts, in N - 1 steps or N; canonical",
    .usable = usable,
    .start = spr_sparse_start,
    .advance = advance,
    .cleanup = spr_sparse_cleanup,
    .predict = spr_cost_sparse_relay};
const struct spr_algorithm spr_sparse_direct = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                                .name = "direct",
                                                .cost =
                                                    "2 steps, (P-1)/P (k + U) entries, canonical",
                                                .usable = usable,
                                                .start = spr_sparse_start,
                                                .advance = advance,
                                                .cleanup = spr_sparse_cleanup,
                                                .predict = spr_cost_sparse_direct};
