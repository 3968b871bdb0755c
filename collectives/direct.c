/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Direct reduce-scatter and allgather: allreduce, reduce_scatter, allgather and broadcast of large
 * vectors. Canonical: one owner per element adds the contributions in rank order and its bytes are
 * forwarded unchanged, so the bits depend on nothing but inputs and world.
 *
 * Cost, n elements of v bytes, P ranks: 2 steps, 2 (P-1) messages per chunk and rank;
 *   sent and received per rank 2 (P-1)/P n v bytes (the lower bound of an allreduce; half of it for
 * the others); (P-1)/P n additions per rank.
 *
 * Data movement, 4 ranks; the vector is cut into 4 segments, segment s belongs to rank s; xr(s) is
 * rank r's input of segment s, S(s) the sum:
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   send     x0(1..3)      x1(0,2,3)     x2(0,1,3)     x3(0..2)      to the segment's owner
 *   sum      S(0)          S(1)          S(2)          S(3)          x0 + x1 + x2 + x3, in order
 *   send     S(0) to all   S(1) to all   S(2) to all   S(3) to all
 *
 * Segments are cut into chunks, and both steps run at the same time, each link busy in both
 * directions from start to end: while a chunk is summed, the next one is on its way in and the last
 * one on its way out. Receives are posted (granted) a few chunks ahead, rotated over the senders,
 * rank r beginning with r + 1, so that at any time each rank sends to another one: no incast.
 */
#include <string.h>

#include "base/crc32c.h"
#include "collectives/collective.h"
#include "collectives/reduce.h"

/* Chunks of the own segment whose contributions may be on their way or waiting for their turn. Only
 * the oldest operation lets them wait in the transport's memory; a later one might hold it for as
 * long as a slow rank takes to post that operation, while the oldest one needs it. Later ones use
 * buffers of their own, for one chunk at a time. */
#define WINDOWS 3
/* Messages posted ahead per peer, in each direction and step. */
#define AHEAD 2
/* Chunks: at least this many per segment (pipelining), within these bytes. */
#define CHUNKS_PER_SEGMENT 4
#define MIN_CHUNK_BYTES ((size_t)16 << 10)
/* Staging memory for contributions, all windows together: bounds the chunk when ranks are many. */
#define STAGING_BYTES ((size_t)24 << 20)

#define SPREAD_STEP 0x80000000u

struct peer {
    uint32_t contributed; /* chunks of its segment that were posted to it */
    uint32_t spread;      /* chunks of our segment that were posted to it */
    uint32_t expected;    /* chunks of its segment whose receive was posted */
    uint32_t gathered;    /* ... and that have arrived */
};

struct direct {
    bool reduce, scatter, gather; /* scatter: broadcast's first step, from the root */
    size_t segment, total;        /* elements; all segments but the last are equally long */
    size_t chunk, element;        /* elements; bytes */
    bool eager;
    uint32_t own;      /* chunks of our segment */
    uint32_t finished; /* of these, summed and stored */
    int next_rank;     /* whose contribution to chunk `finished` is added next, from rank 1 on */
    uint32_t wanted_chunk, wanted_peer; /* next contribution to ask for */
    void *accumulator;
    struct peer *peers;
    struct spr_in *contributions; /* [WINDOWS][size] */
    char **staging;               /* [WINDOWS][size]: where one was received into, or NULL */
    struct spr_out *to_owner;     /* [AHEAD][size] */
    struct spr_out *to_all;       /* [AHEAD][size] */
    uint32_t *crc;                /* of the own segment's chunks, for several peers; or NULL */
    struct spr_in *from_owner;    /* [AHEAD][size] */
};

/* Geometry ------------------------------------------------------------------------------------- */

static size_t segment_start(const struct direct *d, int owner)
{
    return spr_min_size((size_t)owner * d->segment, d->total);
}

static size_t segment_length(const struct direct *d, int owner)
{
    return segment_start(d, owner + 1) - segment_start(d, owner);
}

static uint32_t segment_chunks(const struct direct *d, int owner)
{
    return (uint32_t)spr_div_ceil(segment_length(d, owner), d->chunk);
}

static size_t chunk_length(const struct direct *d, int owner, uint32_t c)
{
    return spr_min_size(d->chunk, segment_length(d, owner) - c * d->chunk);
}

static const char *source(const spr_request *rq, int owner, uint32_t c)
{
    const struct direct *d = rq->state;

    return (const char *)rq->plan.send + (segment_start(d, owner) + c * d->chunk) * d->element;
}

/* A reduce_scatter's result is the own segment alone. */
static char *target(const spr_request *rq, int owner, uint32_t c)
{
    const struct direct *d = rq->state;
    size_t start = d->gather ? segment_start(d, owner) : 0;

    return (char *)rq->plan.recv + (start + c * d->chunk) * d->element;
}

static void choose_chunk(struct direct *d, const spr_comm *comm)
{
    size_t peers = (size_t)spr_max_size((size_t)comm->size - 1, 1);
    size_t most = spr_min_size(SPR_CHUNK_BYTES, STAGING_BYTES / (WINDOWS * peers));
    size_t bytes = spr_div_ceil(d->segment * d->element, CHUNKS_PER_SEGMENT);

    bytes = spr_min_size(spr_max_size(bytes, MIN_CHUNK_BYTES), spr_max_size(most, MIN_CHUNK_BYTES));
    d->chunk = spr_max_size(bytes / d->element & ~(size_t)63, 64);
    /* A broadcast waits for grants: so its root hears from all ranks, and of those who disagree. */
    d->eager =
        !d->scatter && spr_min_size(d->chunk, d->segment) * d->element <= comm->options.eager_bytes;
}

/* Step 1: contributions to the owners -----------------------------------------------------------
 */

/* Does this rank send its part of the owner's segment? */
static bool contributes(const spr_request *rq, int owner)
{
    const struct direct *d = rq->state;

    return owner != rq->comm->rank &&
           (d->reduce || (d->scatter && rq->comm->rank == rq->plan.root));
}

static void contribute(spr_request *rq)
{
    struct direct *d = rq->state;
    int size = rq->comm->size;

    for (int i = 1; i < size; i++) {
        int owner = (rq->comm->rank + size - i) % size;
        struct peer *p = &d->peers[owner];
        uint32_t chunks = contributes(rq, owner) ? segment_chunks(d, owner) : 0;
        while (p->contributed < chunks) {
            uint32_t c = p->contributed;
            struct spr_out *out = &d->to_owner[(c % AHEAD) * (uint32_t)size + (uint32_t)owner];
            if (out->busy)
                break;
            p->contributed++;
            spr_post_send(rq, out, owner, c, source(rq, owner, c),
                          chunk_length(d, owner, c) * d->element, d->eager);
        }
    }
}

/* Ask for contributions: all of one chunk, then of the next, WINDOWS chunks ahead. */
static void ask(spr_request *rq)
{
    struct direct *d = rq->state;
    uint32_t size = (uint32_t)rq->comm->size, rank = (uint32_t)rq->comm->rank;
    bool oldest = rq->comm->running.next == &rq->node;

    if (!d->reduce && (!d->scatter || rq->comm->rank == rq->plan.root))
        return;
    while (d->wanted_chunk < d->own && d->wanted_chunk < d->finished + (oldest ? WINDOWS : 1)) {
        uint32_t c = d->wanted_chunk;
        uint32_t peer = d->reduce ? (rank + 1 + d->wanted_peer) % size : (uint32_t)rq->plan.root;
        uint32_t slot = (c % WINDOWS) * size + peer;
        char *into = d->reduce ? NULL : target(rq, (int)rank, c);
        if (d->reduce && !oldest && size > 1) {
            into = d->staging[slot] = spr_comm_buffer_get(rq->comm);
            if (!into)
                return; /* when it is the oldest it needs none */
        }
        if (size > 1)
            spr_post_receive(rq, &d->contributions[slot], (int)peer, c, into,
                             chunk_length(d, (int)rank, c) * d->element, d->eager);
        if (++d->wanted_peer >= (d->reduce ? size - 1 : 1)) {
            d->wanted_peer = 0;
            d->wanted_chunk++;
        }
    }
}

/* The contribution of `from` to chunk c, or NULL when it has not arrived. */
static const void *contribution(spr_request *rq, int from, uint32_t c, struct spr_in **in)
{
    struct direct *d = rq->state;
    size_t bytes = chunk_length(d, rq->comm->rank, c) * d->element;

    *in = NULL;
    if (from == rq->comm->rank)
        return source(rq, from, c);
    *in = &d->contributions[(c % WINDOWS) * (uint32_t)rq->comm->size + (uint32_t)from];
    if ((*in)->state != SPR_IN_ARRIVED)
        return NULL;
    if ((*in)->recv.bytes != bytes) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, from, -1, "sent a chunk of another size");
        return NULL;
    }
    return (*in)->recv.data;
}

static void release(spr_request *rq, struct spr_in *in)
{
    struct direct *d = rq->state;
    size_t slot = (size_t)(in - d->contributions);

    spr_in_release(in);
    spr_comm_buffer_put(rq->comm, d->staging[slot]);
    d->staging[slot] = NULL;
}

/* Add the next contribution to chunk `finished`, the first two at once: each byte is read once, and
 * the last sum goes to its place. False: one has not arrived. */
static bool add_next(spr_request *rq)
{
    struct direct *d = rq->state;
    const struct spr_plan *plan = &rq->plan;
    int size = rq->comm->size, rank = d->next_rank;
    const struct spr_reduce_two two = {plan->dtype, plan->op, rank == 1, rank == size - 1, size};
    size_t n = chunk_length(d, rq->comm->rank, d->finished);
    void *out = two.last ? target(rq, rq->comm->rank, d->finished) : d->accumulator;
    const void *a = d->accumulator, *b;
    struct spr_in *in_a = NULL, *in_b;

    b = contribution(rq, rank, d->finished, &in_b);
    if (b && two.first)
        a = contribution(rq, 0, d->finished, &in_a);
    if (!a || !b)
        return false;
    spr_reduce_two(&two, out, a, b, n);
    if (in_a)
        release(rq, in_a);
    if (in_b)
        release(rq, in_b);
    return true;
}

/* Add what has arrived, strictly in rank order. */
static void sum(spr_request *rq)
{
    struct direct *d = rq->state;
    const struct spr_plan *plan = &rq->plan;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (d->finished < d->own) {
        for (; d->next_rank < rq->comm->size; d->next_rank++)
            if (!add_next(rq))
                goto out;
        if (rq->comm->size == 1) {
            size_t n = chunk_length(d, 0, d->finished);
            spr_reduce_load(plan->dtype, d->accumulator, source(rq, 0, d->finished), n);
            spr_reduce_store(plan->dtype, plan->op, target(rq, 0, d->finished), d->accumulator, n,
                             1);
        }
        if (d->crc) /* while it is in the cache */
            d->crc[d->finished] =
                spr_crc32c(0, target(rq, rq->comm->rank, d->finished),
                           chunk_length(d, rq->comm->rank, d->finished) * d->element);
        d->next_rank = 1;
        d->finished++;
    }
out:
    rq->comm->counters.reduce_ns += spr_now_ns(rq->comm->clock) - begin;
}

/* Broadcast's first step: our segment arrives from the root, into place. */
static void take_from_root(spr_request *rq)
{
    struct direct *d = rq->state;

    while (d->finished < d->own) {
        struct spr_in *in;
        if (rq->comm->rank != rq->plan.root) {
            if (!contribution(rq, rq->plan.root, d->finished, &in))
                return;
            spr_in_release(in);
        }
        d->finished++;
    }
}

/* Step 2: results to everybody ------------------------------------------------------------------
 */

/* A broadcast's root has everything already. */
static bool gathers(const spr_request *rq, int rank)
{
    const struct direct *d = rq->state;

    return d->gather && !(d->scatter && rank == rq->plan.root);
}

static void spread(spr_request *rq)
{
    struct direct *d = rq->state;
    int size = rq->comm->size;

    for (int i = 1; i < size; i++) {
        int peer = (rq->comm->rank + size - i) % size;
        struct peer *p = &d->peers[peer];
        uint32_t ready = gathers(rq, peer) ? d->finished : 0;
        while (p->spread < ready) {
            uint32_t c = p->spread;
            struct spr_out *out = &d->to_all[(c % AHEAD) * (uint32_t)size + (uint32_t)peer];
            if (out->busy)
                break;
            p->spread++;
            out->send.crc_known = d->crc;
            out->send.crc = d->crc ? d->crc[c] : 0;
            spr_post_send(rq, out, peer, SPREAD_STEP | c, target(rq, rq->comm->rank, c),
                          chunk_length(d, rq->comm->rank, c) * d->element, d->eager);
        }
    }
}

/* Take arrived chunks of one owner off its slots. False: it sent something else. */
static bool gather_arrived(spr_request *rq, int owner)
{
    struct direct *d = rq->state;
    struct peer *p = &d->peers[owner];

    while (p->gathered < p->expected) {
        uint32_t c = p->gathered;
        struct spr_in *in =
            &d->from_owner[(c % AHEAD) * (uint32_t)rq->comm->size + (uint32_t)owner];
        if (in->state != SPR_IN_ARRIVED)
            break;
        if (in->recv.bytes != chunk_length(d, owner, c) * d->element) {
            spr_comm_fail(rq->comm, SPR_ERR_PROTO, owner, -1, "sent a chunk of another size");
            return false;
        }
        spr_in_release(in);
        p->gathered++;
    }
    return true;
}

static bool gather(spr_request *rq)
{
    struct direct *d = rq->state;
    int size = rq->comm->size;
    bool all = true;

    if (!gathers(rq, rq->comm->rank))
        return true;
    for (int i = 1; i < size; i++) {
        int owner = (rq->comm->rank + i) % size;
        struct peer *p = &d->peers[owner];
        uint32_t chunks = segment_chunks(d, owner);
        if (!gather_arrived(rq, owner))
            return false;
        while (p->expected < chunks && p->expected < p->gathered + AHEAD) {
            uint32_t c = p->expected++;
            spr_post_receive(rq, &d->from_owner[(c % AHEAD) * (uint32_t)size + (uint32_t)owner],
                             owner, SPREAD_STEP | c, target(rq, owner, c),
                             chunk_length(d, owner, c) * d->element, d->eager);
        }
        all &= p->gathered == chunks;
    }
    return all;
}

/* -----------------------------------------------------------------------------------------------
 */

static bool all_sent(const spr_request *rq)
{
    const struct direct *d = rq->state;

    for (int r = 0; r < rq->comm->size; r++) {
        if (r == rq->comm->rank)
            continue;
        if (contributes(rq, r) && d->peers[r].contributed < segment_chunks(d, r))
            return false;
        if (gathers(rq, r) && d->peers[r].spread < d->own)
            return false;
    }
    return true;
}

static bool advance(spr_request *rq)
{
    struct direct *d = rq->state;
    bool gathered;

    if (d->reduce)
        sum(rq);
    else if (d->scatter)
        take_from_root(rq);
    ask(rq);
    spread(rq);
    contribute(rq);
    gathered = gather(rq);
    return gathered && d->finished == d->own && all_sent(rq);
}

static spr_status start(spr_request *rq, bool reduce, bool scatter, bool gather_results,
                        size_t total, size_t segment)
{
    size_t size = (size_t)rq->comm->size;
    size_t accumulator_size = spr_reduce_acc_size(rq->plan.dtype);
    struct direct *d = spr_arena_alloc(&rq->arena, sizeof *d);

    if (!d)
        return SPR_ERR_NOMEM;
    rq->state = d;
    d->reduce = reduce;
    d->scatter = scatter;
    d->gather = gather_results;
    d->total = total;
    d->segment = segment;
    d->element = spr_dtype_size(rq->plan.dtype);
    choose_chunk(d, rq->comm);
    d->own = segment_chunks(d, rq->comm->rank);
    d->finished = reduce || scatter ? 0 : d->own;
    d->next_rank = 1;
    d->peers = spr_arena_alloc(&rq->arena, size * sizeof *d->peers);
    d->contributions = spr_arena_alloc(&rq->arena, WINDOWS * size * sizeof *d->contributions);
    d->staging = spr_arena_alloc(&rq->arena, WINDOWS * size * sizeof *d->staging);
    d->to_owner = spr_arena_alloc(&rq->arena, AHEAD * size * sizeof *d->to_owner);
    d->to_all = spr_arena_alloc(&rq->arena, AHEAD * size * sizeof *d->to_all);
    d->from_owner = spr_arena_alloc(&rq->arena, AHEAD * size * sizeof *d->from_owner);
    d->accumulator = reduce ? spr_arena_buffer(&rq->arena, d->chunk * accumulator_size) : d;
    if (reduce && gather_results && spr_channel_checksums(&rq->comm->channel)) {
        d->crc = spr_arena_alloc(&rq->arena, spr_max_size(d->own, 1) * sizeof *d->crc);
        if (!d->crc)
            return SPR_ERR_NOMEM;
    }
    if (!d->peers || !d->contributions || !d->staging || !d->to_owner || !d->to_all ||
        !d->from_owner || !d->accumulator)
        return SPR_ERR_NOMEM;
    return SPR_OK;
}

static void cleanup(spr_request *rq)
{
    struct direct *d = rq->state;
    size_t size = (size_t)rq->comm->size;

    spr_in_release_all(d->contributions, WINDOWS * size);
    for (size_t i = 0; i < WINDOWS * size; i++)
        spr_comm_buffer_put(rq->comm, d->staging[i]);
    spr_in_release_all(d->from_owner, AHEAD * size);
}

static bool always(const struct spr_plan *plan, int size)
{
    (void)plan;
    (void)size;
    return true;
}

/* Segments of equal length, whole cache lines. */
static size_t even_segment(const spr_request *rq)
{
    return spr_align_up(spr_div_ceil(rq->plan.count, (size_t)rq->comm->size), 64);
}

static spr_status start_allreduce(spr_request *rq)
{
    return start(rq, true, false, true, rq->plan.count, even_segment(rq));
}

static spr_status start_reduce_scatter(spr_request *rq)
{
    return start(rq, true, false, false, rq->plan.count * (size_t)rq->comm->size, rq->plan.count);
}

static spr_status start_allgather(spr_request *rq)
{
    const struct spr_plan *plan = &rq->plan;
    size_t bytes = plan->count * spr_dtype_size(plan->dtype);
    char *own = (char *)plan->recv + (size_t)rq->comm->rank * bytes;

    if (own != plan->send && bytes)
        memcpy(own, plan->send, bytes);
    return start(rq, false, false, true, plan->count * (size_t)rq->comm->size, plan->count);
}

static spr_status start_broadcast(spr_request *rq)
{
    spr_status status = start(rq, false, true, true, rq->plan.count, even_segment(rq));

    /* A root asks for nothing: two that both believe to be it would wait for each other. */
    for (int r = 0; status == SPR_OK && r < rq->comm->size; r++)
        if (r != rq->comm->rank && rq->comm->rank == rq->plan.root)
            spr_channel_announce(&rq->comm->channel, rq->comm->ids[r], rq->operation,
                                 rq->descriptor);
    return status;
}

const struct spr_algorithm spr_allreduce_direct = {
    SPR_C_ALLREDUCE, "direct", "2 steps, 2(P-1)/P n bytes, canonical", always, start_allreduce,
    advance,         cleanup};
const struct spr_algorithm spr_reduce_scatter_direct = {SPR_C_REDUCE_SCATTER,
                                                        "direct",
                                                        "1 step, (P-1) n bytes, canonical",
                                                        always,
                                                        start_reduce_scatter,
                                                        advance,
                                                        cleanup};
const struct spr_algorithm spr_allgather_direct = {
    SPR_C_ALLGATHER, "direct", "1 step, (P-1) n bytes", always, start_allgather, advance, cleanup};
const struct spr_algorithm spr_broadcast_direct = {
    SPR_C_BROADCAST, "direct",        "2 steps, scatter and allgather, 2(P-1)/P n bytes",
    always,          start_broadcast, advance,
    cleanup};
