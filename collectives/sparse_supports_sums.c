/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The sums of an owner, on their way to the others and into their results. To each rank go those at
 * positions that it lacks as a chunk, and the others alone, in the order of its entries. Where only
 * a dense vector is wanted, they go straight there: those that came with positions as any chunk,
 * the others to the positions of this rank's own list. For a list both are put in order and kept as
 * one chunk.
 */
#include <string.h>

#include "collectives/sparse_supports.h"
#include "compress/chunk_layout.h"

/* Encode what a writer holds as one chunk of its owner, for our own result: it is not sent, so its
 * positions need not be short. */
static bool take_whole(spr_request *rq, struct spr_chunk_writer *w, unsigned flags)
{
    struct spr_supports_state *u = rq->state;
    const char *why;
    struct spr_chunk c;
    size_t bytes;

    w->indices = NULL;
    bytes = spr_chunk_writer_finish(w, SPR_V_FP32, -1, flags, u->whole, u->s.chunk_bytes);
    (void)spr_chunk_open(&c, u->whole, bytes, &u->s.blocks, w->owner, w->first_window, NULL,
                         &why); /* our own: cannot fail */
    return spr_sparse_take(rq, &c, u->whole, bytes) == SPR_OK;
}

/* From an owner -------------------------------------------------------------------------------- */

/* Of the next message to each rank. */
static uint32_t slot_of(const struct spr_supports_state *u)
{
    return u->s.union_chunks % SPR_SPARSE_AHEAD;
}

bool spr_supports_can_send(const spr_request *rq)
{
    const struct spr_supports_state *u = rq->state;

    for (int r = 0; r < rq->comm->size; r++)
        if (u->peers[r].union_out[slot_of(u)].busy)
            return false;
    return true;
}

/* Entries of a window of the union, in two: those that a rank lacks, and the values of those that
 * it has. Returns how many it lacks. */
static size_t split(const uint64_t *support, const uint16_t *pos, const float *val, size_t n,
                    uint16_t *lack_pos, float *lack_val, float *has)
{
    size_t lacks = 0;

    for (size_t e = 0; e < n; e++) {
        size_t bit = support[pos[e] >> 6] >> (pos[e] & 63) & 1;
        lack_pos[lacks] = pos[e];
        lack_val[lacks] = val[e];
        has[e - lacks] = val[e];
        lacks += bit ^ 1;
    }
    return lacks;
}

/* What is in the writer, for one that has the positions of `who`. Returns the bytes. */
static size_t encode_sums(spr_request *rq, int who, bool last, char *out)
{
    struct spr_supports_state *u = rq->state;
    const struct spr_chunk_writer *sums = &u->s.union_writer;
    struct spr_chunk_writer *lack = &u->lack;
    float *has = u->s.writer.val; /* which is scratch between two chunks */
    size_t done = 0, held = 0, bytes;

    lack->owner = (uint32_t)rq->comm->rank;
    lack->indices = u->s.indices;
    spr_chunk_writer_begin(lack, sums->first_window);
    for (uint32_t i = 0; i < sums->windows; done += sums->per_window[i++]) {
        size_t n = sums->per_window[i];
        size_t lacks = split(spr_supports_support(u, who, sums->first_window + i), sums->pos + done,
                             sums->val + done, n, lack->pos + lack->count, lack->val + lack->count,
                             has + held);
        held += n - lacks;
        spr_chunk_writer_window(lack, lacks);
    }
    bytes = spr_chunk_writer_finish(lack, SPR_V_FP32, -1, last ? SPR_CHUNK_LAST : 0, out,
                                    u->s.chunk_bytes);
    memcpy(out + bytes, has, held * sizeof *has);
    return bytes + held * sizeof *has;
}

/* To all others; those who have the positions that we have get the same bytes. */
bool spr_supports_send(spr_request *rq, bool last)
{
    struct spr_supports_state *u = rq->state;
    int size = rq->comm->size, rank = rq->comm->rank;
    uint32_t slot = slot_of(u);
    size_t same = 0;

    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size;
        struct spr_supports_peer *p = &u->peers[to];
        int who = p->same_here ? rank : to;
        char *out = u->peers[who].union_buffer[slot];
        size_t bytes = who == rank && same ? same : encode_sums(rq, who, last, out);
        if (who == rank)
            same = bytes;
        spr_post_send(rq, &p->union_out[slot], to, spr_union_step(&u->s, rank) + u->s.union_chunks,
                      out, bytes, false);
    }
    u->s.union_chunks++;
    return take_whole(rq, &u->s.union_writer, last ? SPR_CHUNK_LAST : 0);
}

/* At the others -------------------------------------------------------------------------------- */

static bool refuse(spr_request *rq, int owner, const char *why)
{
    spr_comm_fail(rq->comm, SPR_ERR_PROTO, owner, -1, why);
    return false;
}

/* This rank's entries in the windows of a chunk. */
static size_t own_entries(const struct spr_sparse_state *s, const struct spr_chunk *c)
{
    size_t n = 0;

    for (uint32_t i = 0; i < c->windows; i++)
        n += spr_blocks_gather_count(&s->blocks, s->offsets, c->owner, c->first_window + i);
    return n;
}

/* Into the dense result: where a window had been cleared and written, the sums of our own entries.
 * False: one of them has been written already. */
static bool write_own(spr_request *rq, const struct spr_chunk *c, uint32_t w, const float **values)
{
    const struct spr_sparse_state *s = rq->state;
    struct spr_blocks_runs runs = spr_blocks_runs(&s->blocks, s->offsets, c->owner, w);
    const uint32_t *index = rq->plan.index;
    float *dense = rq->plan.dense;
    const float *value = *values;
    bool clear = true;
    size_t i, end;

    while (spr_blocks_run(&runs, &i, &end))
        for (; i < end; i++) {
            clear &= dense[index[i]] == 0;
            dense[index[i]] = *value++;
        }
    *values = value;
    return clear;
}

/* One block of a window: ours are entries i to end of the list, the others those before `limit`. */
struct block {
    size_t i, end, lack, lacks;
    uint64_t limit;
    uint32_t base; /* position in the window */
};

/* Entries of both kinds in order, behind those in the writer. Returns how many; -1: a position has
 * one of each. */
static ptrdiff_t merge_block(spr_request *rq, struct block *b, const float **values, size_t at)
{
    struct spr_supports_state *u = rq->state;
    struct spr_chunk_writer *out = &u->lack;
    const uint32_t *index = rq->plan.index, *lack = u->lack_index;
    uint32_t mask = (1u << u->s.blocks.block_log2) - 1;
    size_t before = at;

    for (;;) {
        bool theirs = b->lack < b->lacks && lack[b->lack] < b->limit, ours = b->i < b->end;
        if (!ours && !theirs)
            return (ptrdiff_t)(at - before);
        if (ours && theirs && index[b->i] == lack[b->lack])
            return -1;
        ours = ours && (!theirs || index[b->i] < lack[b->lack]);
        out->pos[at] = (uint16_t)(b->base + ((ours ? index[b->i] : lack[b->lack]) & mask));
        out->val[at++] = ours ? *(*values)++ : u->lack_value[b->lack];
        b->i += ours;
        b->lack += !ours;
    }
}

/* The next window of the chunk goes to the writer, with the sums of our own entries. */
static bool merge_window(spr_request *rq, struct spr_chunk *c, uint32_t w, const float **values)
{
    struct spr_supports_state *u = rq->state;
    const struct spr_blocks *blocks = &u->s.blocks;
    struct spr_blocks_runs runs = spr_blocks_runs(blocks, u->s.offsets, c->owner, w);
    uint64_t local = (uint64_t)w << SPR_WINDOW_LOG2;
    size_t at = u->lack.count;
    struct block b = {.lacks = spr_chunk_list(c, u->lack_index, u->lack_value, u->s.span)};

    for (; spr_blocks_run(&runs, &b.i, &b.end); b.base += 1u << blocks->block_log2) {
        uint64_t first = spr_blocks_global(blocks, c->owner, local + b.base);
        ptrdiff_t n;
        b.limit = first + (UINT64_C(1) << blocks->block_log2);
        n = merge_block(rq, &b, values, at);
        if (n < 0)
            return false;
        at += (size_t)n;
    }
    spr_chunk_writer_window(&u->lack, at - u->lack.count);
    return true;
}

static bool take_windows(spr_request *rq, struct spr_chunk *c, const float *values)
{
    static const char twice[] = "sent a sum with a position that is in this rank's list";
    struct spr_supports_state *u = rq->state;

    u->lack.owner = c->owner;
    spr_chunk_writer_begin(&u->lack, c->first_window);
    for (uint32_t i = 0; i < c->windows; i++) {
        uint32_t w = c->first_window + i;
        bool good = true;
        if (rq->plan.list) {
            good = merge_window(rq, c, w, &values);
        } else if (rq->plan.dense) {
            spr_chunk_fill(c, rq->plan.dense);
            good = write_own(rq, c, w, &values);
        }
        if (!good)
            return refuse(rq, (int)c->owner, twice);
    }
    return !rq->plan.list || take_whole(rq, &u->lack, c->flags);
}

/* How many bytes of the message are its chunk. */
static size_t chunk_part(const struct spr_recv *recv)
{
    struct spr_chunk_header h;
    size_t bytes = recv->bytes;

    if (bytes < sizeof h)
        return bytes;
    memcpy(&h, recv->data, sizeof h);
    return spr_min_size(bytes, sizeof h + h.payload_bytes);
}

bool spr_supports_take(spr_request *rq, int owner, struct spr_in *in)
{
    struct spr_supports_state *u = rq->state;
    struct spr_stream *sums = &u->s.unions[owner];
    const struct spr_recv *recv = &in->recv;
    size_t front = chunk_part(recv), own;
    struct spr_chunk c;

    if (spr_sparse_check(rq, &c, recv->data, front, owner, (uint32_t)owner, sums->window, NULL) !=
        SPR_OK)
        return false;
    own = own_entries(&u->s, &c);
    if (recv->bytes - front != own * sizeof(float))
        return refuse(rq, owner, "sent other than one sum for each entry of this rank's list");
    /* As spr_sparse_fits() has it. More would not fit a chunk when they are put together. */
    if (c.windows > SPR_UNION_WINDOWS || (c.windows > 1 && c.count + own > SPR_SPARSE_MOST_JOINED))
        return refuse(rq, owner, "sent more sums than a message may have");
    if (!take_windows(rq, &c, (const float *)(const void *)((const char *)recv->data + front)))
        return false;
    sums->last = c.flags & SPR_CHUNK_LAST;
    sums->window += c.windows;
    u->s.union_entries += c.count + own;
    spr_stream_close(sums);
    return true;
}
