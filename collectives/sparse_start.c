/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A sparse allreduce begins: blocks of the vector, memory for chunks in both directions, scratch.
 * And it ends: memory goes back.
 */
#include "collectives/indices.h"
#include "collectives/sparse.h"

#include "compress/select/topk.h"

bool spr_sparse_make_streams(spr_request *rq, struct spr_stream **streams, int n, int own,
                             int owner, uint32_t ahead, struct spr_marks *stirred)
{
    const struct spr_sparse_state *state = rq->state;

    *streams = spr_arena_alloc(&rq->arena, (size_t)n * sizeof **streams);
    if (!*streams || (stirred && !spr_request_marks(rq, stirred, n)))
        return false;
    for (int i = 0; i < n; i++) {
        struct spr_stream *s = &(*streams)[i];
        if (i == own)
            continue;
        if (!spr_stream_open_ahead(
                rq, s, spr_blocks_windows(&state->blocks, (uint32_t)(owner < 0 ? i : owner)),
                ahead))
            return false;
        s->stirred = stirred;
        s->number = (uint32_t)i;
        for (uint32_t k = 0; k < s->ahead; k++) {
            s->in[k].marks = stirred;
            s->in[k].number = (uint32_t)i;
        }
    }
    return true;
}

void spr_sparse_free_streams(spr_request *rq, struct spr_stream *streams, int n)
{
    for (int i = 0; streams && i < n; i++)
        spr_stream_free(rq, &streams[i]);
}

static bool make_senders(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    size_t owners = s->blocks.ranks;

    s->sent_windows = spr_arena_alloc(&rq->arena, owners * sizeof *s->sent_windows);
    s->sent_chunks = spr_arena_alloc(&rq->arena, owners * sizeof *s->sent_chunks);
    s->to_owner = spr_arena_alloc(&rq->arena, owners * sizeof *s->to_owner);
    s->to_owner_buffer = spr_arena_alloc(&rq->arena, owners * sizeof *s->to_owner_buffer);
    s->to_owner_wire = spr_arena_alloc(&rq->arena, owners * sizeof *s->to_owner_wire);
    if (!s->sent_windows || !s->sent_chunks || !s->to_owner || !s->to_owner_buffer ||
        !s->to_owner_wire || !spr_request_marks(rq, &s->may_send, (int)owners))
        return false;
    for (int o = 0; o < spr_sparse_owners(s); o++) {
        /* An owner of no windows (a very short vector) takes no part. */
        bool none = spr_sparse_collector(s, o) == rq->comm->rank ||
                    spr_blocks_windows(&s->blocks, (uint32_t)o) == 0;
        if (none) {
            spr_marks_clear(&s->may_send, o);
            continue;
        }
        s->unsent++;
        s->to_owner[o].marks = &s->may_send;
        s->to_owner[o].number = (uint32_t)o;
        if (!(s->to_owner_buffer[o] = spr_sparse_buffer_get(rq)) ||
            !spr_wire_open(rq, &s->to_owner_wire[o]))
            return false;
    }
    return true;
}

static bool make_work_space(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    /* A vector of one window per owner is sent in one chunk. */
    size_t max_entries =
        s->most_windows == 1 ? s->span : SPR_WINDOW + SPR_SPARSE_TARGET_BYTES / 6 + 64;
    size_t owners = s->blocks.ranks;

    s->writer_bytes = spr_chunk_writer_scratch(s->most_windows, max_entries);
    /* Scratch of writers is written before it is read: not cleared, which takes longer than to
     * encode a short list. */
    s->writer_scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);
    s->accumulator = spr_arena_alloc(&rq->arena, s->span * sizeof(float));
    s->touched = spr_arena_alloc(&rq->arena, s->span / 8);
    s->kept = spr_arena_alloc(&rq->arena, owners * sizeof(struct spr_kept *));
    s->kept_tail = spr_arena_alloc(&rq->arena, owners * sizeof(struct spr_kept *));
    if (!s->writer_scratch || !s->accumulator || !s->touched || !s->kept || !s->kept_tail)
        return false;
    spr_chunk_writer_init(&s->writer, &s->blocks, 0, s->most_windows, max_entries,
                          s->writer_scratch);
    return true;
}

static bool make_owner(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    size_t size = (size_t)rq->comm->size;
    void *scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);

    if (rq->plan.bound_union)
        s->largest =
            spr_arena_alloc(&rq->arena, spr_topk_keep_scratch(s->span) * sizeof *s->largest);
    if ((rq->plan.bound_union && !s->largest) || !scratch)
        return false;
    spr_sparse_writer_init(s, &s->union_writer, (uint32_t)s->own, scratch);
    spr_chunk_writer_begin(&s->union_writer, 0);
    for (uint32_t i = 0; i < s->slot_count; i++) {
        s->slots[i].buffer = spr_sparse_buffer_get(rq);
        s->slots[i].out = spr_arena_alloc(&rq->arena, size * sizeof *s->slots[i].out);
        if (!s->slots[i].buffer || !s->slots[i].out || !spr_wire_open(rq, &s->slots[i].wire))
            return false;
        for (size_t r = 0; r < size; r++)
            s->slots[i].out[r].under_way = &s->slots[i].under_way;
    }
    return true;
}

void spr_sparse_cleanup(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s);

    spr_sparse_free_streams(rq, s->contributions, s->sources.size);
    spr_sparse_free_streams(rq, s->unions, owners);
    for (int o = 0; s->to_owner_buffer && o < owners; o++)
        spr_sparse_buffer_put(rq, s->to_owner_buffer[o]);
    for (int o = 0; s->to_owner_wire && o < owners; o++)
        spr_wire_free(rq, &s->to_owner_wire[o]);
    for (uint32_t i = 0; i < s->slot_count; i++) {
        spr_sparse_buffer_put(rq, s->slots[i].buffer);
        spr_wire_free(rq, &s->slots[i].wire);
    }
}

_Static_assert(SPR_CHUNK_HEADER_BYTES + SPR_WINDOW / 8 + SPR_CHUNK_IMAGE_BYTES + 4 <=
                   SPR_FRAME_MAX_PAYLOAD,
               "a window fits a message, however its values are coded");

/* The longest image of n values or sums; 0: none are coded. */
static size_t image_bytes(const spr_request *rq, size_t n)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_coding *sums = spr_sparse_sum_coding(rq);

    return spr_max_size(rq->plan.vtype == SPR_V_CODED ? spr_coding_bound(&s->coding, n) : 0,
                        sums ? spr_coding_bound(sums, n) : 0);
}

/* Of the largest chunk. A vector of one window per owner is sent in one. */
static size_t chunk_bytes(const spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;
    size_t plain, coded;

    if (s->most_windows > 1)
        return SPR_FRAME_MAX_PAYLOAD;
    plain = spr_chunk_bytes(SPR_CHUNK_BITMAP, SPR_V_FP32, 1, s->span, s->span / 64, s->span);
    coded = image_bytes(rq, s->span);
    if (coded == 0)
        return plain;
    coded += spr_chunk_bytes(SPR_CHUNK_BITMAP, SPR_V_CODED, 1, s->span, s->span / 64, s->span) + 4;
    return spr_max_size(plain, coded);
}

/* What is sent: a list, whose blocks are found, or a vector. */
static spr_status take_input(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    const struct spr_plan *plan = &rq->plan;
    size_t blocks = spr_blocks_count(&s->blocks);

    if (!plan->index && plan->vtype == SPR_V_CODED)
        return SPR_OK;
    s->offsets = spr_arena_alloc(&rq->arena, (blocks + 1) * sizeof *s->offsets);
    if (!s->offsets)
        return SPR_ERR_NOMEM;
    if (!spr_blocks_offsets(&s->blocks, plan->index, plan->entries, s->offsets))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, rq->comm->rank,
                             "rank %d: sparse indices must be sorted, unique and below %zu",
                             rq->comm->rank, plan->count);
    return SPR_OK;
}

static bool make_coding(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    size_t values = s->span + 16, image = image_bytes(rq, values);

    if (image == 0)
        return true;
    s->coding.values = s->sum_coding.values =
        spr_arena_buffer(&rq->arena, values * sizeof *s->coding.values);
    s->coding.image = s->sum_coding.image = spr_arena_buffer(&rq->arena, image);
    return s->coding.values && s->coding.image;
}

spr_status spr_sparse_prepare(spr_request *rq, size_t state_bytes, int owners)
{
    struct spr_sparse_state *s = spr_arena_alloc(&rq->arena, state_bytes);
    const struct spr_plan *plan = &rq->plan;
    spr_status status;
    uint32_t most;

    if (!s)
        return SPR_ERR_NOMEM;
    rq->state = s;
    s->way = &spr_sparse_chunks;
    s->blocks = spr_blocks_choose(plan->count, (uint32_t)owners);
    /* Owner 0 has the most and the longest. */
    most = spr_blocks_windows(&s->blocks, 0);
    s->most_windows = (uint32_t)spr_min_size(spr_max_size(most, 1), SPR_SPARSE_MAX_WINDOWS);
    s->span = most ? spr_blocks_window_len(&s->blocks, 0, 0) : 1;
    s->span = (uint32_t)spr_align_up(s->span, 64);
    s->coding = plan->coding;
    s->sum_coding = plan->sum_coding;
    s->indices = spr_indices_coder(spr_indices_of(rq->comm));
    s->packs = rq->comm->zstd != NULL;
    s->vtype = plan->vtype;
    s->sum_vtype = plan->sum_vtype;
    s->chunk_bytes = chunk_bytes(rq);
    status = take_input(rq);
    if (status)
        return status;
    return make_coding(rq) && make_work_space(rq) ? SPR_OK : SPR_ERR_NOMEM;
}

void spr_sparse_each_owns(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;

    s->own = rq->comm->rank;
    s->sources = (struct spr_group){NULL, rq->comm->size, rq->comm->rank};
    s->add_own = spr_sparse_add_own;
}

bool spr_sparse_make_links(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    int owners = spr_sparse_owners(s);

    if (s->own >= 0) {
        s->windows = spr_blocks_windows(&s->blocks, (uint32_t)s->own);
        if (!spr_sparse_make_streams(rq, &s->contributions, s->sources.size, s->sources.rank,
                                     s->own, spr_sparse_together_ahead(s), &s->stirred_sources))
            return false;
        if (rq->comm->options.determinism == SPR_DETERMINISM_OFF &&
            !(s->taken = spr_arena_alloc(&rq->arena, (size_t)s->sources.size * sizeof *s->taken)))
            return false;
    }
    if (!make_senders(rq) || !spr_sparse_make_streams(rq, &s->unions, owners, s->own, -1,
                                                      SPR_SPARSE_AHEAD, &s->stirred_unions))
        return false;
    for (int o = 0; o < owners; o++) {
        s->unions[o].last = spr_blocks_windows(&s->blocks, (uint32_t)o) == 0;
        s->missing += o != s->own && !s->unions[o].last;
    }
    return true;
}

bool spr_sparse_make(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;

    if (rq->plan.sum_vtype != SPR_V_CODED) /* which go through common scratch */
        s->workers = spr_comm_workers(rq->comm, rq->plan.count);
    s->slot_count = SPR_SPARSE_UNIONS;
    return spr_sparse_together_open(rq) && (s->own < 0 || make_owner(rq)) &&
           spr_sparse_make_links(rq) && spr_sparse_relay_start(rq);
}

spr_status spr_sparse_start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct spr_sparse_state), rq->comm->size);
    struct spr_sparse_state *s = rq->state;

    if (status)
        return status;
    spr_sparse_each_owns(rq);
    if (rq->algorithm == &spr_sparse_hierarchical &&
        spr_topology_has_levels(&rq->comm->topology, rq->comm->size))
        s->route = SPR_ROUTE_HOSTS;
    else if (rq->algorithm == &spr_sparse_relay)
        s->route = SPR_ROUTE_RING;
    if (!spr_sparse_make(rq)) {
        spr_sparse_cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}
