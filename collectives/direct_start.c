/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which collective takes which steps of direct.c, in what segments and chunks.
 */
#include <assert.h>
#include <string.h>

#include "collectives/direct.h"
#include "collectives/reduce.h"
#include "collectives/shares.h"

/* Staging memory for contributions, all windows together: bounds the chunk when ranks are many. */
#define STAGING_BYTES ((size_t)24 << 20)

/* How long chunks are at most, and how many messages are posted ahead. */
struct pace {
    size_t chunk;
    uint32_t ahead;
};
static const struct pace paces[] = {
    /* With four ahead 102 MB between 8 hosts at 1 Gbit/s took 1600 ms, not 1612, but 4 MiB 80, not
     * 74. Over loopback 7 of 12 runs took twice as long, with two ahead 2 of 12; that was with BBR,
     * this machine's default; of 4 each with four ahead 1 did with it, none with cubic. */
    [SPR_MEDIUM_ANY] = {SPR_CHUNK_BYTES, 2},
    /* With four, not two, 102 MB take 16.1 ms, not 18.1, between 2 ranks, 7 % less between 4. */
    [SPR_MEDIUM_MEMORY] = {SPR_CHUNK_BYTES, 4},
    /* Over soft-RoCE 16 MiB take 2 ranks 155 ms with this, 162 with four ahead, and 186 as any. */
    [SPR_MEDIUM_PLACES] = {2 * SPR_CHUNK_BYTES, 8},
};
/* Any, to hosts whose links are not alike, the slowest of them at most so fast: both its directions
 * are to be busy all the time, and what comes to it from all at once is not to be dropped. 102 MB
 * between 8 hosts, 7 at 1 Gbit/s and one at 250 Mbit/s, take 3.48 s, with chunks as of any 3.53,
 * with two ahead, of twice this length, 4.10, with both as of any 4.19. Faster ones were not
 * measured: there CPUs count, for which messages are to be long. */
static const struct pace to_slow = {SPR_CHUNK_BYTES / 4, 4};
#define SLOW_KBIT 2500000u

static const struct pace *pace_of(const spr_request *rq, const struct spr_direct *d)
{
    enum spr_medium medium = spr_comm_medium(rq->comm, &d->group);

    if (d->cuts && medium == SPR_MEDIUM_ANY && rq->comm->topology.slowest <= SLOW_KBIT)
        return &to_slow;
    return &paces[medium];
}

static void choose_chunk(struct spr_direct *d, const spr_comm *comm)
{
    size_t element = spr_max_size(d->in_element, d->out_element);
    size_t peers = (size_t)spr_max_size((size_t)d->group.size - 1, 1);
    size_t most = spr_min_size(d->most_bytes, STAGING_BYTES / (SPR_DIRECT_WINDOWS * peers));
    size_t bytes = spr_div_ceil(d->segment * element, SPR_DIRECT_CHUNKS);

    bytes = spr_min_size(spr_max_size(bytes, SPR_DIRECT_LEAST_BYTES),
                         spr_max_size(most, SPR_DIRECT_LEAST_BYTES));
    d->chunk = spr_max_size(bytes / element & ~(size_t)63, 64);
    /* A broadcast waits for grants: so its root hears from all ranks, and of those who disagree. */
    d->eager =
        !d->scatter && spr_min_size(d->chunk, d->segment) * element <= comm->options.eager_bytes;
}

void spr_direct_begin(spr_request *rq, struct spr_direct *d)
{
    d->in_element = spr_dtype_size(d->in);
    d->out_element = spr_dtype_size(d->out);
    choose_chunk(d, rq->comm);
    assert(!d->peers || d->chunk <= d->chunk_room);
    d->own = spr_direct_segment_chunks(d, d->group.rank);
    d->finished = d->reduce || d->scatter ? 0 : d->own;
    d->added = 0;
    if (d->taken)
        memset(d->taken, 0, (size_t)d->group.size * sizeof *d->taken);
    d->wanted_chunk = d->wanted_peer = 0;
    assert(!d->crc || d->own <= d->crc_room);
    d->unsent = 0;
    d->missing = 0;
    for (int r = 0; r < d->group.size; r++) {
        uint32_t chunks = r != d->group.rank ? spr_direct_segment_chunks(d, r) : 0;
        d->unsent += spr_direct_contributes(d, r) ? chunks : 0;
        d->unsent += r != d->group.rank && spr_direct_gathers(d, r) ? d->own : 0;
        d->missing += chunks > 0 && spr_direct_gathers(d, d->group.rank);
    }
    if (!d->peers)
        return;
    memset(d->peers, 0, (size_t)d->group.size * sizeof *d->peers);
    spr_marks_set_all(&d->may_contribute);
    spr_marks_set_all(&d->may_spread);
    spr_marks_set_all(&d->came);
}

/* What is done is marked. */
static void number_messages(struct spr_direct *d)
{
    size_t size = (size_t)d->group.size;

    for (size_t i = 0; i < d->ahead * size; i++) {
        uint32_t behind = (uint32_t)((i + size - (size_t)d->group.rank) % size);
        uint32_t before = behind ? (uint32_t)size - behind : 0;
        d->to_owner[i].marks = &d->may_contribute;
        d->to_all[i].marks = &d->may_spread;
        d->from_owner[i].marks = &d->came;
        d->to_owner[i].number = d->to_all[i].number = before;
        d->from_owner[i].number = behind;
        d->to_owner[i].under_way = d->to_all[i].under_way = &d->under_way;
    }
}

bool spr_direct_make(spr_request *rq, struct spr_direct *d)
{
    const struct pace *pace = pace_of(rq, d);
    size_t size = (size_t)d->group.size;
    size_t accumulator_size = spr_reduce_acc_size(rq->plan.dtype);

    d->most_bytes = pace->chunk;
    d->ahead = pace->ahead;
    spr_direct_begin(rq, d);
    d->chunk_room = d->chunk;
    d->peers = spr_arena_alloc(&rq->arena, size * sizeof *d->peers);
    d->contributions =
        spr_arena_alloc(&rq->arena, SPR_DIRECT_WINDOWS * size * sizeof *d->contributions);
    d->staging = spr_arena_alloc(&rq->arena, SPR_DIRECT_WINDOWS * size * sizeof *d->staging);
    d->to_owner = spr_arena_alloc(&rq->arena, d->ahead * size * sizeof *d->to_owner);
    d->to_all = spr_arena_alloc(&rq->arena, d->ahead * size * sizeof *d->to_all);
    d->from_owner = spr_arena_alloc(&rq->arena, d->ahead * size * sizeof *d->from_owner);
    if (d->reduce && rq->comm->options.determinism == SPR_DETERMINISM_OFF &&
        !(d->taken = spr_arena_alloc(&rq->arena, size * sizeof *d->taken)))
        return false;
    d->accumulator = d->reduce ? spr_arena_buffer(&rq->arena, d->chunk * accumulator_size) : d;
    if (d->reduce && d->gather && spr_channel_checksums(&rq->comm->channel)) {
        /* A shorter segment may fall into one more than asked for. The own one is at times not as
         * long as others, and then is in the next work. */
        d->crc_room =
            (uint32_t)spr_max_size(spr_div_ceil(d->segment, d->chunk), SPR_DIRECT_CHUNKS + 1);
        d->crc = spr_arena_alloc(&rq->arena, d->crc_room * sizeof *d->crc);
        if (!d->crc)
            return false;
    }
    if (!d->peers || !d->contributions || !d->staging || !d->to_owner || !d->to_all ||
        !d->from_owner || !d->accumulator ||
        !spr_request_marks(rq, &d->may_contribute, d->group.size) ||
        !spr_request_marks(rq, &d->may_spread, d->group.size) ||
        !spr_request_marks(rq, &d->came, d->group.size))
        return false;
    number_messages(d);
    return true;
}

void spr_direct_end(spr_request *rq, struct spr_direct *d)
{
    size_t size = (size_t)d->group.size;

    spr_in_release_all(d->contributions, SPR_DIRECT_WINDOWS * size);
    for (size_t i = 0; i < SPR_DIRECT_WINDOWS * size; i++)
        spr_comm_buffer_put(rq->comm, d->staging[i]);
    spr_in_release_all(d->from_owner, d->ahead * size);
}

/* All ranks of the communicator, as one group. */
static spr_status start(spr_request *rq, bool reduce, bool scatter, bool gather_results,
                        size_t total, size_t segment, const size_t *cuts)
{
    const struct spr_plan *plan = &rq->plan;
    struct spr_direct *d = spr_arena_alloc(&rq->arena, sizeof *d);

    if (!d)
        return SPR_ERR_NOMEM;
    rq->state = d;
    *d = (struct spr_direct){.group = {NULL, rq->comm->size, rq->comm->rank},
                             .send = plan->send,
                             .recv = plan->recv,
                             .in = plan->dtype,
                             .out = plan->dtype,
                             .op = plan->op,
                             .divisor = rq->comm->size,
                             .root = plan->root,
                             .reduce = reduce,
                             .scatter = scatter,
                             .gather = gather_results,
                             .own_alone = !gather_results,
                             .total = total,
                             .segment = segment,
                             .cuts = cuts};
    return spr_direct_make(rq, d) ? SPR_OK : SPR_ERR_NOMEM;
}

static bool advance(spr_request *rq) { return spr_direct_go_on(rq, rq->state); }

static void cleanup(spr_request *rq) { spr_direct_end(rq, rq->state); }

/* Segments of equal length, whole cache lines. */
static size_t even_segment(const spr_request *rq)
{
    return spr_align_up(spr_div_ceil(rq->plan.count, (size_t)rq->comm->size), 64);
}

/* Where links are not alike and each rank has one for itself, of a length that its link is worth.
 */
static spr_status start_allreduce(spr_request *rq)
{
    const struct spr_topology *t = &rq->comm->topology;
    size_t count = rq->plan.count, *cuts;

    if (!t->uneven || t->hosts < rq->comm->size)
        return start(rq, true, false, true, count, even_segment(rq), NULL);
    cuts = spr_arena_alloc(&rq->arena, ((size_t)t->hosts + 1) * sizeof *cuts);
    if (!cuts)
        return SPR_ERR_NOMEM;
    spr_shares_cut(t->cuts, t->hosts, count, cuts);
    return start(rq, true, false, true, count, spr_shares_longest(t->cuts, t->hosts, count), cuts);
}

static spr_status start_reduce_scatter(spr_request *rq)
{
    return start(rq, true, false, false, rq->plan.count * (size_t)rq->comm->size, rq->plan.count,
                 NULL);
}

static spr_status start_allgather(spr_request *rq)
{
    const struct spr_plan *plan = &rq->plan;
    size_t bytes = plan->count * spr_dtype_size(plan->dtype);
    char *own = (char *)plan->recv + (size_t)rq->comm->rank * bytes;

    if (own != plan->send && bytes)
        memcpy(own, plan->send, bytes);
    return start(rq, false, false, true, plan->count * (size_t)rq->comm->size, plan->count, NULL);
}

/* A root hears from whoever gets a part of the vector. Who gets none, as the vector is short, tells
 * it that it has called: a root knows of those who disagree. */
static void tell_root(spr_request *rq)
{
    struct spr_direct *d = rq->state;
    int rank = rq->comm->rank, root = rq->plan.root;

    if (rank != root && d->own == 0)
        spr_post_send(rq, &d->to_owner[root], root, 0, NULL, 0, true);
    for (int r = 0; rank == root && r < rq->comm->size; r++)
        if (r != root && spr_direct_segment_chunks(d, r) == 0)
            spr_post_receive(rq, &d->contributions[r], r, 0, d, 0, true);
}

static spr_status start_broadcast(spr_request *rq)
{
    spr_status status = start(rq, false, true, true, rq->plan.count, even_segment(rq), NULL);

    if (status != SPR_OK)
        return status;
    /* A root asks for nothing: two that both believe to be it would wait for each other. */
    for (int r = 0; r < rq->comm->size; r++)
        if (r != rq->comm->rank && rq->comm->rank == rq->plan.root)
            spr_channel_announce(&rq->comm->channel, rq->comm->ids[r], rq->operation,
                                 rq->descriptor);
    tell_root(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_allreduce_direct = {.collective = SPR_C_ALLREDUCE,
                                                   .name = "direct",
                                                   .cost = "2 steps, 2(P-1)/P n bytes, canonical",
                                                   .start = start_allreduce,
                                                   .advance = advance,
                                                   .cleanup = cleanup,
                                                   .predict = spr_cost_direct};
const struct spr_algorithm spr_reduce_scatter_direct = {.collective = SPR_C_REDUCE_SCATTER,
                                                        .name = "direct",
                                                        .cost = "1 step, (P-1) n bytes, canonical",
                                                        .start = start_reduce_scatter,
                                                        .advance = advance,
                                                        .cleanup = cleanup};
const struct spr_algorithm spr_allgather_direct = {.collective = SPR_C_ALLGATHER,
                                                   .name = "direct",
                                                   .cost = "1 step, (P-1) n bytes",
                                                   .start = start_allgather,
                                                   .advance = advance,
                                                   .cleanup = cleanup};
const struct spr_algorithm spr_broadcast_direct = {
    .collective = SPR_C_BROADCAST,
    .name = "direct",
    .cost = "2 steps, scatter and allgather, 2(P-1)/P n bytes",
    .start = start_broadcast,
    .advance = advance,
    .cleanup = cleanup};
