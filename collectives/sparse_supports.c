/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact, by unions of supports: ranks first tell each other which positions they
 * have, and no position travels to a rank that has it. Canonical: owners add in rank order, and
 * give the same sums to all.
 *
 * A support is told by a 64-bit word, a hash. A rank with the positions that an owner has itself
 * sends it values alone, in their order; others send chunks as in the direct way. The owner knows
 * then who has what, and sends each rank the sums at positions which that rank lacks as a chunk,
 * and the others alone, in the order of the rank's entries.
 *
 * Cost, k entries per rank, U entries in the union of P ranks, i bytes per position as encoded, v
 * per value: 3 steps, the first of 16 bytes; sent per rank (P-1)/P (U i + (k + U) v), and where all
 * have the same positions (P-1)/P 2 k v; the direct way sends (P-1)/P (k + U) (i + v). Additions as
 * there. Other orders send more: a union that is told before the values makes it (P-1)/P times (k +
 * U) (i + v) again, and (k + U) i + 2 U v with zeros where a rank has no entry.
 *
 * It pays where the positions are the same on all ranks, or on many: a third less with U16's i = 2
 * and v = 4. With nothing in common it saves one part in P of the union's positions, for another
 * step and for encoding sums once for each rank. Different supports with the same word would give a
 * wrong sum: by chance, one case in 2^64.
 *
 * Data movement, 4 ranks; block i of the vector belongs to rank i mod 4; pr(s) = rank r's positions
 * in the blocks of rank s, xr(s) = its values, S(s) = the sums there; - what the receiver has:
 *
 *            rank 0            rank 1            rank 2            rank 3
 *   tell     hash of p0        hash of p1        hash of p2        hash of p3
 *   send     p0, x0(1..3)      p1, x1(0,2,3)     p2, x2(0,1,3)     p3, x3(0..2)      p if others
 *   merge    S(0)              S(1)              S(2)              S(3)              by window
 *   send     U(0) -, S(0)      U(1) -, S(1)      U(2) -, S(2)      U(3) -, S(3)      to all
 *
 * Memory is bounded: SPR_SPARSE_AHEAD messages per peer and direction. Windows are merged as soon
 * as they are there, as in sparse.c.
 */
#include "collectives/sparse_supports.h"

#include <string.h>

#include "compress/kernels/kernels.h"

/* Where a message of values alone, of the entries from window `first` of an owner on, ends. Both
 * sides have the same entries there. */
static uint32_t values_end(const struct spr_sparse_state *s, uint32_t owner, uint32_t first,
                           size_t *entries)
{
    uint32_t windows = spr_blocks_windows(&s->blocks, owner), w = first;
    size_t n;

    for (*entries = 0; w < windows; *entries += n, w++) {
        n = spr_blocks_gather_count(&s->blocks, s->offsets, owner, w);
        if (w > first && (*entries + n) * sizeof(float) > SPR_SPARSE_TARGET_BYTES)
            break;
    }
    return w;
}

/* Sender: our entries to the owners ------------------------------------------------------------
 */

/* Values alone. Returns their bytes. */
static size_t copy_values(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out)
{
    const struct spr_sparse_state *s = rq->state;
    size_t entries, first, end, bytes = 0;
    uint32_t stop = values_end(s, owner, *next_window, &entries);

    for (uint32_t w = *next_window; w < stop; w++) {
        struct spr_blocks_runs runs = spr_blocks_runs(&s->blocks, s->offsets, owner, w);
        while (spr_blocks_run(&runs, &first, &end)) {
            if (end > first)
                memcpy(out + bytes, rq->plan.value + first, (end - first) * sizeof(float));
            bytes += (end - first) * sizeof(float);
        }
    }
    *next_window = stop;
    return bytes;
}

/* Has the owner told which positions it has? */
static bool is_ready(const spr_request *rq, int owner)
{
    return ((const struct spr_supports_state *)rq->state)->peers[owner].known;
}

static size_t encode(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out)
{
    const struct spr_supports_state *u = rq->state;

    return (u->peers[owner].same_there ? copy_values : spr_sparse_encode)(rq, owner, next_window,
                                                                          out);
}

/* Owner: merge ----------------------------------------------------------------------------------
 */

/* Our entries of the window, and the bits of their positions: those of all who have the same. */
static void gather_own(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;
    struct spr_sparse_state *s = &u->s;
    uint64_t *bits = spr_supports_support(u, rq->comm->rank, s->merged);

    if (u->own_window == s->merged)
        return;
    u->own_window = s->merged;
    u->own_entries = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value,
                                       (uint32_t)rq->comm->rank, s->merged, u->own_pos, u->own_val);
    memset(bits, 0, s->span / 8);
    for (size_t i = 0; i < u->own_entries; i++)
        bits[u->own_pos[i] >> 6] |= UINT64_C(1) << (u->own_pos[i] & 63);
}

/* The message of values alone that covers the window is there, as long as it has to be. */
static bool has_values(spr_request *rq, int from)
{
    struct spr_supports_state *u = rq->state;
    struct spr_supports_peer *p = &u->peers[from];
    struct spr_stream *c = &u->s.contributions[from];
    const struct spr_in *in;
    size_t entries;

    if (c->open)
        return true;
    in = spr_stream_next(c);
    if (!in)
        return false;
    c->window = values_end(&u->s, (uint32_t)rq->comm->rank, u->s.merged, &entries);
    if (in->recv.bytes != entries * sizeof(float)) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, from, -1,
                      "sent other than one value for each position that it has");
        return false;
    }
    p->used = 0;
    c->last = c->window == u->s.windows;
    c->open = true;
    return true;
}

static void add_values(struct spr_supports_state *u, int from)
{
    struct spr_supports_peer *p = &u->peers[from];
    struct spr_stream *c = &u->s.contributions[from];
    const float *values = spr_stream_next(c)->recv.data;

    spr_kernels()->add_at(u->s.accumulator, u->s.touched, u->own_pos, values + p->used,
                          u->own_entries);
    p->used += u->own_entries;
    u->s.contributed += u->own_entries;
    if (u->s.merged + 1 == c->window)
        spr_stream_close(c);
}

/* Where they are stays known: bits of its own, which are then added to those of all. */
static void add_chunk(struct spr_supports_state *u, int from)
{
    struct spr_sparse_state *s = &u->s;
    struct spr_stream *stream = &s->contributions[from];
    struct spr_chunk *c = &stream->chunk;
    uint64_t *bits = spr_supports_support(u, from, s->merged);

    memset(bits, 0, s->span / 8);
    s->contributed += spr_chunk_add(c, s->accumulator, bits);
    for (uint32_t i = 0; i < s->span / 64; i++)
        s->touched[i] |= bits[i];
    if (s->merged + 1 == c->first_window + c->windows)
        spr_stream_close(stream);
}

/* The entries of one rank. False: they are not there. */
static bool add(spr_request *rq, int from)
{
    struct spr_supports_state *u = rq->state;
    struct spr_supports_peer *p = &u->peers[from];

    gather_own(rq);
    if (from == rq->comm->rank) {
        spr_kernels()->add_at(u->s.accumulator, u->s.touched, u->own_pos, u->own_val,
                              u->own_entries);
        u->s.contributed += u->own_entries;
        return true;
    }
    if (!p->known)
        return false;
    if (p->same_here) {
        if (!has_values(rq, from))
            return false;
        add_values(u, from);
        return true;
    }
    if (!spr_stream_covers(rq, &u->s.contributions[from], from, (uint32_t)rq->comm->rank,
                           u->s.merged))
        return false;
    add_chunk(u, from);
    return true;
}

/* Owner: sums -----------------------------------------------------------------------------------
 */

/* The window is complete: move its sums into the writer, which sends full messages. */
static bool harvest(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;
    struct spr_sparse_state *s = &u->s;
    struct spr_chunk_writer *w = &s->union_writer;
    uint32_t len = spr_blocks_window_len(&s->blocks, (uint32_t)rq->comm->rank, s->merged);
    bool last = s->merged + 1 == s->windows;
    float *val = w->val + w->count;
    size_t n;

    if (!spr_sparse_fits(w, s->touched, s->span, s->contributed)) {
        if (!spr_supports_send(rq, false))
            return false;
        spr_chunk_writer_begin(w, s->merged);
        return true; /* again, when there is a slot */
    }
    n = spr_window_harvest(s->accumulator, s->touched, len, w->pos + w->count, val);
    spr_sparse_average(rq, val, n);
    spr_chunk_writer_window(w, n);
    s->union_entries += n;
    s->contributed = 0;
    s->next_rank = 0;
    s->merged++;
    if (last || spr_sparse_is_long(w->count) || !spr_chunk_writer_room(w, s->span)) {
        if (!spr_supports_send(rq, last))
            return false;
        spr_chunk_writer_begin(w, s->merged);
    }
    return true;
}

const struct spr_sparse_way spr_supports_way = {.is_ready = is_ready,
                                                .encode = encode,
                                                .has_room = spr_supports_can_send,
                                                .add = add,
                                                .harvest = harvest,
                                                .take = spr_supports_take};

static bool advance(spr_request *rq)
{
    spr_supports_hear(rq);
    return !rq->comm->error.status && spr_sparse_go_on(rq, spr_sparse_contribute(rq));
}

const struct spr_algorithm spr_sparse_union = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "union",
    .cost = "3 steps, (P-1)/P (U positions and k + U values), canonical",
    .usable = spr_sparse_is_uncoded,
    .start = spr_supports_start,
    .advance = advance,
    .cleanup = spr_supports_cleanup,
    .predict = spr_cost_sparse_union};
