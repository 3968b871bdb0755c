/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Step 2 of the sparse allreduce: an owner encodes the windows of its union as they are harvested
 * and sends them to everybody, itself included; every rank takes those of all owners. Who hears
 * from whom: sparse_relay.c.
 */
#include <assert.h>

#include "collectives/sparse.h"
#include "compress/codec.h"

#define UNION_STEP 0x80000000u

/* An owner's union ------------------------------------------------------------------------------
 */

static struct spr_union_slot *slot_of(const spr_request *rq, uint32_t chunk)
{
    struct spr_sparse_state *s = rq->state;

    return &s->slots[chunk % s->slot_count];
}

char *spr_union_buffer(const spr_request *rq, uint32_t i)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_union_slot *slot = slot_of(rq, s->union_chunks + i);

    return i < s->slot_count && !slot->under_way ? slot->buffer : NULL;
}

void spr_union_make_room(spr_request *rq, uint32_t n)
{
    const struct spr_sparse_state *s = rq->state;

    /* No more of the batch are chunks of ours, the last ones. */
    if (s->batch.count + n > s->slot_count)
        spr_sparse_write(rq);
}

void spr_union_keep_rest(spr_request *rq, const struct spr_chunk_writer *w,
                         const struct spr_coding *coding, const void *encoded, size_t bytes,
                         float weight)
{
    size_t done = 0;

    spr_chunk_leave_rest(w, coding, encoded, bytes);
    for (uint32_t i = 0; i < w->windows; done += w->per_window[i++]) {
        const struct spr_codec_rest r = {.blocks = w->blocks,
                                         .owner = w->owner,
                                         .window = w->first_window + i,
                                         .pos = w->pos + done,
                                         .rest = w->val + done,
                                         .count = w->per_window[i]};
        spr_codec_keep_rest(rq->codec, &r, weight);
    }
}

uint32_t spr_union_step(const struct spr_sparse_state *s, int owner)
{
    return UNION_STEP | spr_sparse_step(s, owner);
}

bool spr_union_send(spr_request *rq, const struct spr_chunk_writer *w, size_t bytes)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_union_slot *slot = slot_of(rq, s->union_chunks);
    int size = rq->comm->size, rank = rq->comm->rank;
    struct spr_chunk c;

    spr_wire_begin(&slot->wire);
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        if (spr_sparse_source(rq, s->own, peer) == rank)
            spr_wire_send(rq, &slot->wire, &slot->out[peer], peer,
                          spr_union_step(s, s->own) + s->union_chunks, slot->buffer, bytes);
    }
    s->union_chunks++;
    if (spr_sparse_check(rq, &c, slot->buffer, bytes, rank, (uint32_t)s->own, w->first_window,
                         spr_sparse_sum_coding(rq)) != SPR_OK ||
        spr_sparse_take_soon(rq, &c, slot->buffer, bytes, NULL) != SPR_OK)
        return false;
    if (s->sum_vtype != SPR_V_FP32)
        spr_union_keep_rest(rq, w, spr_sparse_sum_coding(rq), slot->buffer, bytes,
                            rq->plan.op == SPR_AVG ? (float)size : 1);
    return true;
}

bool spr_union_has_room(const spr_request *rq) { return spr_union_buffer(rq, 0) != NULL; }

size_t spr_union_encode(const spr_request *rq, struct spr_chunk_writer *w, char *buffer)
{
    const struct spr_sparse_state *s = rq->state;
    bool last = w->first_window + w->windows == s->windows;

    w->coding = &s->sum_coding;
    return spr_chunk_writer_finish(w, s->sum_vtype, -1, last ? SPR_CHUNK_LAST : 0, buffer,
                                   s->chunk_bytes);
}

bool spr_union_close(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->union_writer;
    char *buffer = spr_union_buffer(rq, 0);

    assert(buffer); /* the caller has looked */
    spr_union_make_room(rq, 1);
    if (!spr_union_send(rq, w, spr_union_encode(rq, w, buffer)))
        return false;
    spr_chunk_writer_begin(w, s->merged);
    return true;
}

bool spr_union_window(spr_request *rq, size_t n)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk_writer *w = &s->union_writer;
    bool last = s->merged + 1 == s->windows;

    s->union_entries += n;
    spr_chunk_writer_window(w, n);
    s->merged++;
    if (last || spr_sparse_is_long(w->count) || !spr_chunk_writer_room(w, s->span))
        return spr_union_close(rq);
    return true;
}

/* Everybody's unions -----------------------------------------------------------------------------
 */

/* For us and, once it is checked, for those that we pass it on to. */
bool spr_union_take_chunk(spr_request *rq, int owner, struct spr_in *in)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_stream *u = &s->unions[owner];
    int from = spr_sparse_source(rq, owner, rq->comm->rank);
    struct spr_chunk c;
    const void *data;
    size_t bytes;
    bool held, unpacked;

    if (!spr_stream_plain(rq, u, in, from, &data, &bytes) ||
        spr_sparse_check(rq, &c, data, bytes, from, (uint32_t)owner, u->window,
                         spr_sparse_sum_coding(rq)))
        return false;
    held = spr_sparse_pass_on(rq, owner, u->taken, in, spr_union_step(s, owner) + u->taken);
    u->last = c.flags & SPR_CHUNK_LAST;
    u->window += c.windows;
    s->union_entries += c.count;
    u->taken++;
    unpacked = data != in->recv.data; /* ... to where the next one will be, too */
    if (spr_sparse_take_soon(rq, &c, data, bytes, held ? NULL : in) != SPR_OK)
        return false;
    if (unpacked)
        spr_sparse_write(rq);
    return true;
}

/* Messages that were passed on, and have left. */
static void release_passed_on(spr_request *rq, int owner)
{
    struct spr_stream *u = &((struct spr_sparse_state *)rq->state)->unions[owner];

    for (; u->passed_on < u->taken && spr_sparse_passed_on(rq, owner, u->passed_on); u->passed_on++)
        spr_in_release(&u->in[u->passed_on % u->ahead]);
}

/* The next one of an owner, for which there is room. */
static struct spr_in *next_chunk(const struct spr_sparse_state *s, int owner)
{
    struct spr_stream *u = &s->unions[owner];

    return owner != s->own && !u->last && s->batch.count < SPR_SPARSE_BATCH ? spr_stream_next(u)
                                                                            : NULL;
}

/* As many as there is room for. False: the communicator has failed. */
static bool take_chunks(spr_request *rq, int first)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s), i;

    spr_marks_for_each(i, &s->stirred_unions, first)
    {
        int owner = (first + i) % owners;
        struct spr_in *in;
        while ((in = next_chunk(s, owner)) != NULL) {
            if (!s->way->take(rq, owner, in))
                return false;
            s->missing -= s->unions[owner].last;
        }
    }
    return true;
}

/* What was taken is written: buffers may be filled again. */
static void ask_for_more(spr_request *rq, int first)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s), i;

    spr_marks_for_each(i, &s->stirred_unions, first)
    {
        int owner = (first + i) % owners;
        struct spr_stream *u = &s->unions[owner];
        if (next_chunk(s, owner))
            continue;
        spr_marks_clear(&s->stirred_unions, owner);
        if (owner == s->own)
            continue;
        if (s->relays && s->relays[owner])
            release_passed_on(rq, owner);
        spr_stream_ask(rq, u, spr_sparse_source(rq, owner, rq->comm->rank),
                       spr_union_step(s, owner));
        if (u->passed_on < u->taken && s->relays && s->relays[owner])
            spr_marks_set(&s->stirred_unions, owner); /* nothing else tells when it has left */
    }
}

bool spr_union_take(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int first = ((s->own < 0 ? rq->comm->rank : s->own) + 1) % spr_sparse_owners(s);
    uint64_t begin = spr_now_ns(rq->comm->clock);
    bool full;

    do {
        if (!take_chunks(rq, first))
            return false;
        full = s->batch.count == SPR_SPARSE_BATCH;
        spr_sparse_write(rq);
        ask_for_more(rq, first);
    } while (full);
    rq->comm->counters.decode_ns += spr_now_ns(rq->comm->clock) - begin;
    return s->missing == 0;
}
