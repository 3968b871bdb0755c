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

#include <assert.h>
#include <string.h>

#include "compress/codec.h"
#include "compress/select/topk.h"

#define UNION_STEP 0x80000000u

/* Sender: our list to the owners ----------------------------------------------------------------
 */

/* The values of a writer are left with what encoding has lost of them. */
static void leave_rest(const spr_request *rq, const struct spr_chunk_writer *w, const void *encoded,
                       size_t bytes)
{
    struct spr_chunk chunk;
    const char *why;
    float *val = w->val;

    (void)spr_chunk_open(&chunk, encoded, bytes, w->blocks, w->owner, w->first_window,
                         spr_sparse_coding(rq), &why); /* our own: cannot fail */
    for (uint32_t i = 0; i < w->windows; i++)
        val += spr_chunk_values(&chunk, SPR_DECODE_TAKE, val);
}

/* Encode the next chunk for an owner. Returns its bytes. */
static size_t encode_next(spr_request *rq, int owner)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->writer;
    size_t bytes =
        spr_sparse_encode(rq, (uint32_t)owner, &s->sent_windows[owner], s->to_owner_buffer[owner]);

    if (rq->plan.rest) {
        const float *val = w->val;

        leave_rest(rq, w, s->to_owner_buffer[owner], bytes);
        for (uint32_t i = 0; i < w->windows; val += w->per_window[i++])
            spr_blocks_scatter(&s->blocks, (uint32_t)owner, w->first_window + i, val,
                               rq->plan.rest);
    }
    return bytes;
}

/* An owner of no windows (a very short vector) takes no part. */
static bool contributed_all(const struct spr_sparse_state *s, int owner)
{
    return s->sent_windows[owner] == spr_blocks_windows(&s->blocks, (uint32_t)owner);
}

static bool contribute(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int size = rq->comm->size;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    bool all = true;

    for (int i = 1; i < size; i++) {
        int owner = (rq->comm->rank + i) % size;
        if (!s->to_owner[owner].busy && !contributed_all(s, owner)) {
            size_t bytes = encode_next(rq, owner);
            spr_post_send(rq, &s->to_owner[owner], owner, s->sent_chunks[owner]++,
                          s->to_owner_buffer[owner], bytes, false);
        }
        all &= contributed_all(s, owner);
    }
    rq->comm->counters.encode_ns += spr_now_ns(rq->comm->clock) - begin;
    return all;
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

static void add_own(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    uint16_t *pos = s->offsets ? s->writer.pos : NULL;
    float *val = s->writer.val;
    uint32_t rank = (uint32_t)rq->comm->rank;
    size_t n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value, rank,
                                 s->merged, pos, val);

    /* As others would have it from us. */
    if (!s->offsets) {
        spr_coding_pass(&s->coding, &s->blocks, rank, s->merged, val, n, add_or_set(s), sums_of(s));
        if (rq->plan.rest) {
            s->coding.coder->decode(s->coding.options, s->coding.image, n, SPR_DECODE_TAKE, val);
            spr_blocks_scatter(&s->blocks, rank, s->merged, val, rq->plan.rest);
        }
        return;
    }
    if (spr_sparse_coding(rq))
        (void)spr_coding_round(&s->coding, &s->blocks, rank, s->merged, val, n);
    s->contributed += n;
    for (size_t i = 0; i < n; i++) {
        s->accumulator[pos[i]] += val[i];
        s->touched[pos[i] >> 6] |= (uint64_t)1 << (pos[i] & 63);
    }
}

/* Add the entries of one rank to the window; close its chunk behind the last window. */
static bool add(spr_request *rq, int from)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_stream *stream = &s->contributions[from];

    if (from == rq->comm->rank) {
        add_own(rq);
        return true;
    }
    if (!spr_stream_covers(rq, stream, from, (uint32_t)rq->comm->rank, s->merged))
        return false;
    if (s->offsets)
        s->contributed += spr_chunk_add(&stream->chunk, s->accumulator, s->touched);
    else
        (void)spr_chunk_values(&stream->chunk, add_or_set(s), sums_of(s));
    if (s->merged + 1 == stream->chunk.first_window + stream->chunk.windows)
        spr_stream_close(stream);
    return true;
}

static struct spr_union_slot *free_slot(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_union_slot *slot = &s->slots[s->union_chunks % SPR_SPARSE_UNIONS];

    for (int r = 0; r < rq->comm->size; r++)
        if (slot->out[r].busy)
            return NULL;
    return slot;
}

/* What encoding has left of the union that is in the writer. */
static void keep_rest(spr_request *rq, const void *encoded, size_t bytes)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_chunk_writer *w = &s->union_writer;
    float weight = rq->plan.op == SPR_AVG ? (float)rq->comm->size : 1;
    size_t done = 0;

    leave_rest(rq, w, encoded, bytes);
    for (uint32_t i = 0; i < w->windows; done += w->per_window[i++]) {
        const struct spr_codec_rest r = {w->first_window + i, w->pos + done, w->val + done,
                                         w->per_window[i]};
        spr_codec_keep_rest(rq->codec, &r, weight);
    }
}

/* Sums travel as values do, or as fp32. */
static const struct spr_coding *union_coding(const spr_request *rq)
{
    return rq->plan.round_sums ? spr_sparse_coding(rq) : NULL;
}

/* Of the first chunk of an owner's union: no owner has more chunks than the first has windows, and
 * a few more are asked for before the last one is known. */
static uint32_t union_step(const struct spr_sparse_state *s, int owner)
{
    return UNION_STEP | (uint32_t)owner * (spr_blocks_windows(&s->blocks, 0) + SPR_SPARSE_AHEAD);
}

/* Encode what was harvested and send it to everybody; take it into our own result. */
static bool send_union(spr_request *rq, bool last)
{
    enum spr_vtype vtype = rq->plan.round_sums ? rq->plan.vtype : SPR_V_FP32;
    struct spr_sparse_state *s = rq->state;
    struct spr_union_slot *slot = free_slot(rq);
    int size = rq->comm->size, rank = rq->comm->rank;
    struct spr_chunk c;
    size_t bytes;

    assert(slot); /* merge() has looked */
    s->union_writer.coding = &s->coding;
    bytes = spr_chunk_writer_finish(&s->union_writer, vtype, -1, last ? SPR_CHUNK_LAST : 0,
                                    slot->buffer, s->chunk_bytes);
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        if (spr_sparse_source(rq, rank, peer) == rank)
            spr_post_send(rq, &slot->out[peer], peer, union_step(s, rank) + s->union_chunks,
                          slot->buffer, bytes, false);
    }
    s->union_chunks++;
    if (spr_sparse_check(rq, &c, slot->buffer, bytes, rank, (uint32_t)rank,
                         s->union_writer.first_window, union_coding(rq)) != SPR_OK ||
        spr_sparse_take(rq, &c, slot->buffer, bytes) != SPR_OK)
        return false;
    if (rq->plan.round_sums)
        keep_rest(rq, slot->buffer, bytes);
    return true;
}

/* The window is complete: move its union into the writer, which sends full chunks. */
static bool harvest(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->union_writer;
    uint32_t len = spr_blocks_window_len(&s->blocks, (uint32_t)rq->comm->rank, s->merged);
    float *val = w->val + w->count;
    size_t n = s->offsets
                   ? spr_window_harvest(s->accumulator, s->touched, len, w->pos + w->count, val)
                   : len;
    bool last = s->merged + 1 == s->windows;

    if (s->largest)
        n = spr_topk_keep(w->pos + w->count, val, n,
                          spr_div_ceil(s->contributed, (size_t)rq->comm->size), s->largest);
    s->contributed = 0;
    if (rq->plan.op == SPR_AVG)
        for (size_t i = 0; i < n; i++)
            val[i] /= (float)rq->comm->size;
    s->union_entries += n;
    spr_chunk_writer_window(w, n);
    s->merged++;
    s->next_rank = 0;
    if (last || w->count * 6 > SPR_SPARSE_TARGET_BYTES || !spr_chunk_writer_room(w, s->span)) {
        if (!send_union(rq, last))
            return false;
        spr_chunk_writer_begin(w, s->merged);
    }
    return true;
}

static void merge(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (s->merged < s->windows && free_slot(rq)) {
        while (s->next_rank < rq->comm->size && add(rq, s->next_rank))
            s->next_rank++;
        if (s->next_rank < rq->comm->size || !harvest(rq))
            break;
    }
    rq->comm->counters.merge_ns += spr_now_ns(rq->comm->clock) - begin;
    for (int i = 1; i < rq->comm->size && !rq->comm->error.status; i++) {
        int peer = (rq->comm->rank + i) % rq->comm->size;
        if (s->windows)
            spr_stream_ask(rq, &s->contributions[peer], peer, 0);
    }
}

/* Step 2: everybody's unions --------------------------------------------------------------------
 */

/* What the next message of an owner's union says, for us and, once it is checked, for those that we
 * pass it on to. */
static bool take_union(spr_request *rq, int owner, struct spr_in *in)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_stream *u = &s->unions[owner];
    int from = spr_sparse_source(rq, owner, rq->comm->rank);
    struct spr_chunk c;
    bool held;

    if (spr_sparse_check(rq, &c, in->recv.data, in->recv.bytes, from, (uint32_t)owner, u->window,
                         union_coding(rq)) != SPR_OK)
        return false;
    held = spr_sparse_pass_on(rq, owner, u->taken, in, union_step(s, owner) + u->taken);
    u->last = c.flags & SPR_CHUNK_LAST;
    u->window += c.windows;
    s->union_entries += c.count;
    if (spr_sparse_take(rq, &c, in->recv.data, in->recv.bytes) != SPR_OK)
        return false;
    if (held)
        u->taken++;
    else
        spr_stream_close(u);
    return true;
}

/* Messages that were passed on, and have left. */
static void release_passed_on(spr_request *rq, int owner)
{
    struct spr_stream *u = &((struct spr_sparse_state *)rq->state)->unions[owner];

    for (; u->passed_on < u->taken && spr_sparse_passed_on(rq, owner, u->passed_on); u->passed_on++)
        spr_in_release(&u->in[u->passed_on % SPR_SPARSE_AHEAD]);
}

static bool take_unions(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    int size = rq->comm->size;
    bool all = true;

    for (int i = 1; i < size; i++) {
        int owner = (rq->comm->rank + i) % size;
        struct spr_stream *u = &s->unions[owner];
        struct spr_in *in;
        while (!u->last && (in = spr_stream_next(u)) != NULL)
            if (!take_union(rq, owner, in))
                return false;
        if (s->relays && s->relays[owner])
            release_passed_on(rq, owner);
        spr_stream_ask(rq, u, spr_sparse_source(rq, owner, rq->comm->rank), union_step(s, owner));
        all &= u->last;
    }
    rq->comm->counters.decode_ns += spr_now_ns(rq->comm->clock) - begin;
    return all;
}

static void withdraw_rest(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;

    for (int r = 0; r < rq->comm->size; r++)
        if (!spr_stream_withdraw(&s->contributions[r]) || !spr_stream_withdraw(&s->unions[r]))
            return;
}

static bool advance(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    bool contributed, taken;

    contributed = contribute(rq);
    merge(rq);
    if (rq->comm->error.status)
        return false;
    if (s->merged == s->windows)
        spr_sparse_summed(rq);
    taken = take_unions(rq);
    if (rq->comm->error.status || !contributed || !taken || s->merged < s->windows)
        return false;
    withdraw_rest(rq);
    return spr_sparse_end(rq, spr_sparse_list);
}

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
const struct spr_algorithm spr_sparse_direct = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                                .name = "direct",
                                                .cost =
                                                    "2 steps, (P-1)/P (k + U) entries, canonical",
                                                .usable = usable,
                                                .start = spr_sparse_start,
                                                .advance = advance,
                                                .cleanup = spr_sparse_cleanup,
                                                .predict = spr_cost_sparse_direct};
