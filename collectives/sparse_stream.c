/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Streams of chunks: what every sparse allreduce does with those that come in, and how it makes
 * those of this rank's own list. Memory is bounded: `ahead` chunks per stream.
 */
#include "collectives/sparse.h"

#include "compress/kernels/kernels.h"
#include "compress/zstd.h"

/* Memory of chunks ------------------------------------------------------------------------------
 */

char *spr_sparse_buffer_get(spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;

    return s->chunk_bytes <= SPR_SPARSE_SMALL_BYTES ? spr_arena_buffer(&rq->arena, s->chunk_bytes)
                                                    : spr_comm_buffer_get(rq->comm);
}

void spr_sparse_buffer_put(spr_request *rq, char *buffer)
{
    const struct spr_sparse_state *s = rq->state;

    if (s->chunk_bytes > SPR_SPARSE_SMALL_BYTES)
        spr_comm_buffer_put(rq->comm, buffer);
}

/* Compressed chunks ------------------------------------------------------------------------------
 */

bool spr_wire_open(spr_request *rq, struct spr_wire *w)
{
    const struct spr_sparse_state *s = rq->state;

    return !s->packs || (w->packed = spr_sparse_buffer_get(rq)) != NULL;
}

void spr_wire_free(spr_request *rq, struct spr_wire *w) { spr_sparse_buffer_put(rq, w->packed); }

void spr_wire_send(spr_request *rq, struct spr_wire *w, struct spr_out *out, int peer,
                   uint32_t step, const void *chunk, size_t bytes)
{
    const struct spr_link *link = spr_channel_link(&rq->comm->channel, rq->comm->ids[peer]);

    if (w->packed && link && link->transport->ops->narrow) {
        if (!w->tried)
            w->bytes = spr_zstd_pack(rq->comm->zstd, chunk, bytes, w->packed);
        w->tried = true;
        if (w->bytes) {
            chunk = w->packed;
            bytes = w->bytes;
        }
    }
    spr_post_send(rq, out, peer, step, chunk, bytes, false);
}

bool spr_stream_plain(spr_request *rq, struct spr_stream *s, const struct spr_in *in, int from,
                      const void **data, size_t *bytes)
{
    const struct spr_sparse_state *state = rq->state;
    const char *why = "";
    spr_status status;

    *data = in->recv.data;
    *bytes = in->recv.bytes;
    if (!state->packs || !spr_zstd_is(*data, *bytes))
        return true; /* if it should not be compressed, who opens it says so */
    status =
        spr_zstd_unpack(rq->comm->zstd, *data, *bytes, s->plain, state->chunk_bytes, bytes, &why);
    *data = s->plain;
    if (status)
        spr_comm_fail(rq->comm, status, from, -1, why);
    return status == SPR_OK;
}

/* Streams -------------------------------------------------------------------------------------- */

bool spr_stream_open_ahead(spr_request *rq, struct spr_stream *s, uint32_t most, uint32_t ahead)
{
    const struct spr_sparse_state *state = rq->state;

    s->coding = spr_sparse_coding(rq);
    s->most = most;
    if (most == 0)
        return true;
    ahead = most < ahead ? most : ahead;
    s->in = spr_arena_alloc(&rq->arena, ahead * sizeof *s->in);
    s->buffer = spr_arena_alloc(&rq->arena, ahead * sizeof *s->buffer);
    if (!s->in || !s->buffer)
        return false;
    s->ahead = ahead;
    for (uint32_t i = 0; i < ahead; i++)
        if (!(s->buffer[i] = spr_sparse_buffer_get(rq)))
            return false;
    return !state->packs || (s->plain = spr_sparse_buffer_get(rq)) != NULL;
}

bool spr_stream_open(spr_request *rq, struct spr_stream *s, uint32_t most)
{
    return spr_stream_open_ahead(rq, s, most, SPR_SPARSE_AHEAD);
}

void spr_stream_free(spr_request *rq, struct spr_stream *s)
{
    for (uint32_t i = 0; i < s->ahead; i++) {
        if (s->in[i].state == SPR_IN_ARRIVED)
            spr_in_release(&s->in[i]);
        spr_sparse_buffer_put(rq, s->buffer[i]);
    }
    spr_sparse_buffer_put(rq, s->plain);
}

void spr_stream_ask(spr_request *rq, struct spr_stream *s, int peer, uint32_t step)
{
    const struct spr_sparse_state *state = rq->state;
    size_t bytes = state->chunk_bytes;

    while (!s->last && s->asked < s->taken + s->ahead && s->asked < s->most) {
        uint32_t i = s->asked % s->ahead;
        if (s->in[i].state != SPR_IN_FREE)
            return;
        spr_post_receive(rq, &s->in[i], peer, step + s->asked, s->buffer[i], bytes, false);
        s->asked++;
    }
}

struct spr_in *spr_stream_next(struct spr_stream *s)
{
    struct spr_in *in = s->taken < s->asked ? &s->in[s->taken % s->ahead] : NULL;

    return in && in->state == SPR_IN_ARRIVED ? in : NULL;
}

void spr_stream_close(struct spr_stream *s)
{
    spr_in_release(&s->in[s->taken % s->ahead]);
    s->taken++;
    s->open = false;
    if (s->stirred)
        spr_marks_set(s->stirred, (int)s->number);
}

bool spr_stream_withdraw(struct spr_stream *s)
{
    for (uint32_t i = 0; i < s->ahead; i++)
        if (s->last && s->in[i].state == SPR_IN_POSTED && !spr_withdraw_receive(&s->in[i]))
            return false;
    return true;
}

bool spr_stream_covers(spr_request *rq, struct spr_stream *stream, int from, uint32_t owner,
                       uint32_t window)
{
    const struct spr_in *in;
    const void *data;
    size_t bytes;

    if (stream->open)
        return true;
    in = spr_stream_next(stream);
    if (!in || !spr_stream_plain(rq, stream, in, from, &data, &bytes) ||
        spr_sparse_check(rq, &stream->chunk, data, bytes, from, owner, window, stream->coding) !=
            SPR_OK)
        return false;
    stream->open = true;
    stream->last |= stream->chunk.flags & SPR_CHUNK_LAST; /* which may be known already */
    return true;
}

spr_status spr_sparse_check(spr_request *rq, struct spr_chunk *c, const void *data, size_t bytes,
                            int from, uint32_t owner, uint32_t first_window,
                            const struct spr_coding *coding)
{
    const struct spr_sparse_state *s = rq->state;
    uint32_t windows = spr_blocks_windows(&s->blocks, owner);
    const char *why = "";
    spr_status status =
        spr_chunk_open(c, data, bytes, &s->blocks, owner, first_window, coding, &why);

    if (status == SPR_OK && (c->flags & SPR_CHUNK_LAST) != (first_window + c->windows == windows)) {
        status = SPR_ERR_PROTO;
        why = "a stream of chunks ends at the wrong place";
    } else if (status == SPR_OK && !s->offsets && c->format != SPR_CHUNK_DENSE) {
        status = SPR_ERR_PROTO;
        why = "a part of a vector is missing";
    }
    if (status)
        spr_comm_fail(rq->comm, status, from, -1, why);
    return status;
}

/* This rank's list ------------------------------------------------------------------------------
 */

void spr_sparse_writer_init(const struct spr_sparse_state *s, struct spr_chunk_writer *w,
                            uint32_t owner, void *scratch)
{
    spr_chunk_writer_init(w, &s->blocks, owner, s->most_windows, s->writer.max_entries, scratch);
    w->coding = &s->coding;
    w->indices = s->indices;
}

size_t spr_sparse_encode(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->writer;
    uint32_t windows = spr_blocks_windows(&s->blocks, owner);
    uint32_t next = *next_window;

    spr_sparse_writer_init(s, w, owner, s->writer_scratch);
    spr_chunk_writer_begin(w, next);
    for (; next < windows; next++) {
        size_t n = spr_blocks_gather_count(&s->blocks, s->offsets, owner, next);
        if (w->windows && (spr_sparse_is_long(w->count + n) || !spr_chunk_writer_room(w, n)))
            break;
        n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value, owner, next,
                              s->offsets ? w->pos + w->count : NULL, w->val + w->count);
        spr_chunk_writer_window(w, n);
    }
    *next_window = next;
    return spr_chunk_writer_finish(w, s->vtype, -1, next == windows ? SPR_CHUNK_LAST : 0, out,
                                   s->chunk_bytes);
}

size_t spr_sparse_add_list(const spr_request *rq, uint32_t owner, uint32_t window, uint16_t *pos,
                           float *val, float *accumulator, uint64_t *touched)
{
    const struct spr_sparse_state *s = rq->state;
    size_t n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value, owner,
                                 window, pos, val);

    spr_kernels()->add_at(accumulator, touched, pos, val, n);
    return n;
}

bool spr_sparse_fits(const struct spr_chunk_writer *w, const uint64_t *touched, uint32_t span,
                     size_t n)
{
    if (!w->windows || w->count + n <= SPR_SPARSE_MOST_JOINED)
        return true;
    return w->count + (size_t)spr_kernels()->popcount(touched, span / 64) <= SPR_SPARSE_MOST_JOINED;
}
