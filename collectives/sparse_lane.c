/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/sparse_lane.h"

#include <string.h>

bool spr_lane_open(spr_request *rq, struct spr_lane *lane)
{
    for (int i = 0; i < SPR_SPARSE_UNIONS; i++) {
        lane->slots[i].buffer = spr_sparse_buffer_get(rq);
        lane->slots[i].out =
            spr_arena_alloc(&rq->arena, ((size_t)lane->peers + 1) * sizeof *lane->slots[i].out);
        if (!lane->slots[i].buffer || !lane->slots[i].out ||
            (lane->peers > 0 && !spr_wire_open(rq, &lane->slots[i].wire)))
            return false;
    }
    return true;
}

void spr_lane_free(spr_request *rq, struct spr_lane *lane)
{
    for (int i = 0; i < SPR_SPARSE_UNIONS; i++) {
        spr_sparse_buffer_put(rq, lane->slots[i].buffer);
        spr_wire_free(rq, &lane->slots[i].wire);
    }
}

/* The one for this chunk. */
static char *buffer_for(struct spr_lane *lane, uint32_t chunk)
{
    uint32_t i = chunk % SPR_SPARSE_UNIONS;

    if (lane->adds && chunk - lane->added >= SPR_SPARSE_UNIONS)
        return NULL;
    for (int k = 0; k < lane->peers; k++)
        if (lane->slots[i].out[k].busy)
            return NULL;
    return lane->slots[i].buffer;
}

char *spr_lane_buffer(struct spr_lane *lane) { return buffer_for(lane, lane->made); }

bool spr_lane_has_two(struct spr_lane *lane)
{
    return buffer_for(lane, lane->made) && buffer_for(lane, lane->made + 1);
}

void spr_lane_send(spr_request *rq, struct spr_lane *lane, size_t bytes, uint32_t step)
{
    uint32_t i = lane->made % SPR_SPARSE_UNIONS;

    lane->slots[i].bytes = bytes;
    spr_wire_begin(&lane->slots[i].wire);
    for (int k = 0; k < lane->peers; k++)
        spr_wire_send(rq, &lane->slots[i].wire, &lane->slots[i].out[k],
                      (lane->first_peer + k) % rq->comm->size, step + lane->made,
                      lane->slots[i].buffer, bytes);
    lane->made++;
}

bool spr_lane_covers(spr_request *rq, struct spr_lane *lane, uint32_t window)
{
    const struct spr_sparse_state *s = rq->state;
    uint32_t i = lane->added % SPR_SPARSE_UNIONS;
    const char *why;

    if (lane->open)
        return true;
    if (lane->added == lane->made)
        return false;
    (void)spr_chunk_open(&lane->chunk, lane->slots[i].buffer, lane->slots[i].bytes, &s->blocks, 0,
                         window, NULL, &why); /* our own: cannot fail */
    lane->open = true;
    return true;
}

static size_t add(spr_request *rq, struct spr_chunk *c, bool *end)
{
    const struct spr_sparse_state *s = rq->state;
    size_t n = spr_chunk_add(c, s->accumulator, s->touched);

    *end = c->next_window == c->first_window + c->windows;
    return n;
}

size_t spr_lane_add(spr_request *rq, struct spr_lane *lane)
{
    bool end;
    size_t n = add(rq, &lane->chunk, &end);

    lane->added += end;
    lane->open = !end;
    return n;
}

size_t spr_stream_add(spr_request *rq, struct spr_stream *stream)
{
    bool end;
    size_t n = add(rq, &stream->chunk, &end);

    if (end)
        spr_stream_close(stream);
    return n;
}

bool spr_lane_give(spr_request *rq, struct spr_lane *lane, uint32_t *encoded, uint32_t step)
{
    const struct spr_sparse_state *s = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    bool moved = false;
    char *buffer;

    while (*encoded < s->windows && (buffer = spr_lane_buffer(lane)) != NULL) {
        size_t bytes = spr_sparse_encode(rq, 0, encoded, buffer);
        spr_lane_send(rq, lane, bytes, step);
        moved = true;
    }
    rq->comm->counters.encode_ns += spr_now_ns(rq->comm->clock) - begin;
    return moved;
}

bool spr_lane_add_all(spr_request *rq, struct spr_lane *lane, struct spr_stream *streams)
{
    struct spr_sparse_state *s = rq->state;

    for (; s->next_rank < rq->comm->size; s->next_rank++) {
        struct spr_stream *stream = &streams[s->next_rank];
        if (s->next_rank == rq->comm->rank) {
            if (!spr_lane_covers(rq, lane, s->merged))
                return false;
            s->contributed += spr_lane_add(rq, lane);
        } else {
            if (!spr_stream_covers(rq, stream, s->next_rank, 0, s->merged))
                return false;
            s->contributed += spr_stream_add(rq, stream);
        }
    }
    return true;
}

/* Results -------------------------------------------------------------------------------------- */

void spr_sparse_put(spr_request *rq, uint32_t w, const uint16_t *pos, const float *val, size_t n)
{
    struct spr_sparse_state *s = rq->state;
    const spr_sparse *list = rq->plan.list;

    if (rq->plan.dense)
        spr_dense_fill(rq->plan.dense, rq->plan.count, w, pos, val, n);
    if (list) {
        size_t base = (size_t)w << SPR_WINDOW_LOG2;
        size_t at = s->union_entries;
        for (size_t i = 0; i < n && at < list->capacity; i++, at++) {
            list->index[at] = (uint32_t)(base + pos[i]);
            list->value[at] = val[i];
        }
    }
    s->union_entries += n;
}

/* Append the window that the chunk is at; what does not fit is counted. */
static void append(spr_sparse *list, size_t *entries, struct spr_chunk *chunk)
{
    size_t at = spr_min_size(*entries, list->capacity), room = list->capacity - at;

    *entries +=
        spr_chunk_list(chunk, room ? list->index + at : NULL, room ? list->value + at : NULL, room);
}

void spr_sparse_put_chunk(spr_request *rq, const struct spr_chunk *chunk)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_chunk dense = *chunk, sparse = *chunk;
    size_t entries = s->union_entries;

    for (uint32_t i = 0; i < chunk->windows; i++) {
        if (rq->plan.dense)
            spr_chunk_fill(&dense, rq->plan.dense);
        if (rq->plan.list)
            append(rq->plan.list, &entries, &sparse);
    }
    s->union_entries += chunk->count;
}

spr_status spr_sparse_put_end(spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;
    spr_sparse *list = rq->plan.list;

    if (!list)
        return SPR_OK;
    list->count = s->union_entries;
    return list->count <= list->capacity ? SPR_OK : SPR_ERR_TOO_SMALL;
}
