/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What becomes of the union: each owner's chunks, as they come, into the dense result; or all
 * together, at the end, into one sorted list.
 */
#include <string.h>

#include "collectives/sparse.h"

/* Positions from which on it pays to wake threads: some 100 us of work. */
#define WORTH_HELP ((uint64_t)256 << 10)

static spr_status keep(spr_request *rq, int owner, const void *data, size_t bytes)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_kept *k = spr_arena_buffer(&rq->arena, sizeof *k + bytes);

    if (!k) {
        spr_comm_fail(rq->comm, SPR_ERR_NOMEM, rq->comm->rank, -1, "no memory for the list result");
        return SPR_ERR_NOMEM;
    }
    k->next = NULL;
    k->bytes = bytes;
    memcpy(k->data, data, bytes);
    if (s->kept_tail[owner])
        s->kept_tail[owner]->next = k;
    else
        s->kept[owner] = k;
    s->kept_tail[owner] = k;
    return SPR_OK;
}

static void fill(struct spr_chunk *c, float *dense)
{
    for (uint32_t i = 0; i < c->windows; i++)
        spr_chunk_fill(c, dense);
}

spr_status spr_sparse_take(spr_request *rq, struct spr_chunk *c, const void *data, size_t bytes)
{
    if (rq->plan.dense)
        fill(c, rq->plan.dense);
    return rq->plan.list ? keep(rq, (int)c->owner, data, bytes) : SPR_OK;
}

static void write_chunk(void *ctx, unsigned i)
{
    const spr_request *rq = ctx;
    struct spr_sparse_state *s = rq->state;

    fill(&s->batch.of[i].chunk, rq->plan.dense);
}

/* That the chunks of the batch write: no two of them the same ones. */
static uint64_t batch_positions(const struct spr_sparse_state *s)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < s->batch.count; i++)
        sum += (uint64_t)s->batch.of[i].chunk.windows * s->span;
    return sum;
}

void spr_sparse_write(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_sparse_batch *b = &s->batch;
    struct spr_workers *workers = batch_positions(s) < WORTH_HELP ? NULL : s->workers;

    if (rq->plan.dense)
        spr_workers_run(workers, b->count, write_chunk, rq);
    for (unsigned i = 0; i < b->count; i++)
        if (b->of[i].in)
            spr_in_release(b->of[i].in);
    b->count = 0;
}

spr_status spr_sparse_take_soon(spr_request *rq, const struct spr_chunk *c, const void *data,
                                size_t bytes, struct spr_in *in)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_sparse_batch *b = &s->batch;

    b->of[b->count].chunk = *c;
    b->of[b->count++].in = in;
    if (rq->plan.list && keep(rq, (int)c->owner, data, bytes) != SPR_OK)
        return SPR_ERR_NOMEM;
    if (!s->workers) /* now, while its bytes are in the cache */
        spr_sparse_write(rq);
    return SPR_OK;
}

/* One owner's kept chunks, read window by window. */
struct reader {
    struct spr_kept *kept;
    struct spr_chunk chunk;
    bool open;
    size_t at, count; /* in the window's entries below */
    uint32_t *index;  /* span */
    float *value;
};

static void read_window(const spr_request *rq, struct reader *r, uint32_t owner, uint32_t w)
{
    const struct spr_sparse_state *s = rq->state;
    const char *why;

    r->at = r->count = 0;
    if (w >= spr_blocks_windows(&s->blocks, owner))
        return;
    if (!r->open) { /* checked before; cannot fail */
        (void)spr_chunk_open(&r->chunk, r->kept->data, r->kept->bytes, &s->blocks, owner, w, NULL,
                             &why);
        r->open = true;
    }
    r->count = spr_chunk_list(&r->chunk, r->index, r->value, s->span);
    if (w + 1 == r->chunk.first_window + r->chunk.windows) {
        r->open = false;
        r->kept = r->kept->next;
    }
}

/* Entries of all owners in one window: block by block, since blocks are dealt out to the owners. */
static void merge_window(const spr_request *rq, struct reader *readers, uint32_t w)
{
    const struct spr_sparse_state *s = rq->state;
    uint32_t log2 = s->blocks.block_log2, per_window = SPR_WINDOW >> log2;
    spr_sparse *list = rq->plan.list;

    for (uint32_t b = 0; b < per_window; b++) {
        for (int o = 0; o < spr_sparse_owners(s); o++) {
            struct reader *r = &readers[o];
            uint64_t block = ((uint64_t)w * per_window + b) * s->blocks.ranks + (uint32_t)o;
            for (; r->at < r->count && r->index[r->at] >> log2 == block; r->at++) {
                if (list->count < list->capacity) {
                    list->index[list->count] = r->index[r->at];
                    list->value[list->count] = r->value[r->at];
                }
                list->count++;
            }
        }
    }
}

spr_status spr_sparse_list(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    size_t owners = s->blocks.ranks;
    struct reader *readers;

    if (!rq->plan.list)
        return SPR_OK;
    readers = spr_arena_alloc(&rq->arena, owners * sizeof *readers);
    for (size_t o = 0; readers && o < owners; o++) {
        readers[o].kept = s->kept[o];
        readers[o].index = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof(uint32_t));
        readers[o].value = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof(float));
        if (!readers[o].index || !readers[o].value)
            readers = NULL;
    }
    if (!readers)
        return SPR_ERR_NOMEM;
    rq->plan.list->count = 0;
    for (uint32_t w = 0; w < spr_blocks_windows(&s->blocks, 0); w++) {
        for (size_t o = 0; o < owners; o++)
            read_window(rq, &readers[o], (uint32_t)o, w);
        merge_window(rq, readers, w);
    }
    return rq->plan.list->count <= rq->plan.list->capacity ? SPR_OK : SPR_ERR_TOO_SMALL;
}

void spr_sparse_summed(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;

    if (s->reduce_scatter_ns == 0)
        s->reduce_scatter_ns = spr_now_ns(rq->comm->clock) - rq->posted_ns;
}

bool spr_sparse_end(spr_request *rq, spr_status (*list)(spr_request *rq))
{
    const struct spr_sparse_state *s = rq->state;
    struct spr_counters *counters = &rq->comm->counters;

    if (rq->outstanding > 0 || rq->comm->error.status)
        return false;
    rq->result = list(rq);
    counters->last_total_ns = spr_now_ns(rq->comm->clock) - rq->posted_ns;
    counters->last_reduce_scatter_ns = s->reduce_scatter_ns;
    counters->last_allgather_ns = counters->last_total_ns - s->reduce_scatter_ns;
    counters->last_union = rq->union_entries = s->union_entries;
    return true;
}
