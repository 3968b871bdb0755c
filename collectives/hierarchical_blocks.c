/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hierarchical allgather and reduce_scatter, between hosts of equally many ranks: a gathered block
 * enters each other host once, at the rank there with the same number, which passes it on; of a
 * block that is summed each other host sends once what all of its ranks have for it. Where hosts
 * are uneven it is the direct algorithm. The allgather is canonical; of a reduce_scatter a host's
 * ranks are added first: same bits in every run of the same world on the same hosts and racks.
 *
 * Cost, blocks of n elements of v bytes, N hosts of G ranks: 2 steps; sent per host to others (N-1)
 * G n v bytes, where the direct algorithm sends G times that; per rank inside its host (G-1) N n v.
 * Sums of halves (fp16, bf16) are floats until they are those of all ranks: twice v between hosts.
 * A reduce_scatter has room for the sums of 3 pieces, of up to 8 MiB of these each, or one of 64
 * KiB for each host.
 *
 * Data movement, 4 ranks, 2 hosts; b2 is rank 2's block, x0(2) what rank 0 has for it, A(2) the sum
 * over host A, S(2) over all:
 *
 *   allgather         rank 0 (A)      rank 1 (A)      rank 2 (B)      rank 3 (B)
 *     between         b0 to 2         b1 to 3         b2 to 0         b3 to 1
 *     inside          b0 b2 to 1      b1 b3 to 0      b0 b2 to 3      b1 b3 to 2
 *   reduce_scatter
 *     inside          x0(1,3) to 1    x1(0,2) to 0    x2(1,3) to 3    x3(0,2) to 2
 *     between         A(2) to 2       A(3) to 3       B(0) to 0       B(1) to 1
 *
 * Each step is the direct algorithm, in a group: that between hosts takes a piece of all blocks at
 * once, that inside the blocks of one host after the other, which are as many works. While a piece
 * is between hosts, the next one is summed, or the last one handed out. The two have no link in
 * common.
 */
#include <string.h>

#include "collectives/direct.h"
#include "collectives/reduce.h"

/* Of a piece: of the blocks of one rank of each host together, but at least of one. */
#define PIECE_BYTES ((size_t)8 << 20)
#define LEAST_PIECE_BYTES ((size_t)64 << 10)
#define SUMS 3         /* pieces whose sums of this host are there */
#define STEPS_LOG2 30u /* that messages may have, but for second rounds and what is spread */

struct blocks {
    size_t piece, pieces; /* elements; how many */
    unsigned steps_log2;  /* that each may have */
    size_t hosts, local;  /* ranks of each */
    size_t host;          /* of this rank */
    size_t *starts;       /* [hosts][local] where that rank's block is, in all of them */
    size_t *alike;        /* [hosts] ... of those with the number of this one */
    char *sums;           /* reduce_scatter: [SUMS][hosts][piece], of the accumulator's type */
    struct spr_direct_stage inside, between;
};

static size_t length_of(const spr_request *rq, size_t piece)
{
    const struct blocks *b = rq->state;

    return spr_min_size(b->piece, rq->plan.count - piece * b->piece);
}

/* Where the sums of a piece are. */
static char *sums_of(const spr_request *rq, size_t piece)
{
    const struct blocks *b = rq->state;

    return b->sums + piece % SUMS * b->hosts * b->piece * spr_reduce_acc_size(rq->plan.dtype);
}

/* What both steps of both collectives have in common; segments as long as the piece. */
static void set_up(const spr_request *rq, struct spr_direct *d, size_t piece, size_t work)
{
    const struct blocks *b = rq->state;
    size_t begin = piece * b->piece * spr_dtype_size(rq->plan.dtype);

    d->in = d->out = rq->plan.dtype;
    d->send = (const char *)rq->plan.send + begin;
    d->recv = (char *)rq->plan.recv + begin;
    d->op = rq->plan.op;
    d->divisor = rq->comm->size;
    d->step = (uint32_t)work << b->steps_log2;
    d->reduce = rq->plan.collective == SPR_C_REDUCE_SCATTER;
    d->gather = !d->reduce;
    d->own_alone = d->reduce;
    d->segment = length_of(rq, piece);
    d->total = d->segment * (size_t)d->group.size;
}

static void set_up_between(const spr_request *rq, struct spr_direct *d, size_t piece)
{
    const struct blocks *b = rq->state;

    set_up(rq, d, piece, piece);
    d->starts = d->reduce ? NULL : b->alike;
    if (!d->reduce)
        return;
    d->in = spr_reduce_acc(rq->plan.dtype);
    d->send = sums_of(rq, piece);
}

/* The own host's blocks come first, and then those of the others, in the same order on all of its
 * ranks. */
static void set_up_inside(const spr_request *rq, struct spr_direct *d, size_t work)
{
    const struct blocks *b = rq->state;
    size_t piece = work / b->hosts, host = (b->host + work % b->hosts) % b->hosts;

    set_up(rq, d, piece, work);
    d->starts = b->starts + host * b->local;
    if (!d->reduce)
        return;
    d->out = spr_reduce_acc(rq->plan.dtype);
    d->recv = sums_of(rq, piece) + host * d->segment * spr_dtype_size(d->out);
    if (d->op == SPR_AVG)
        d->op = SPR_SUM;
}

/* Works inside the host that may have begun. Sums of a piece lie where those of an earlier one did,
 * which may still be on their way from there. Blocks are passed on when they have come; those of
 * this host are there. */
static size_t may_go_inside(const struct blocks *b, bool sums)
{
    if (sums)
        return spr_min_size(b->pieces, spr_direct_gone(&b->between) + SUMS) * b->hosts;
    return b->between.done * b->hosts + (b->between.done < b->pieces);
}

static bool advance(spr_request *rq)
{
    struct blocks *b = rq->state;
    bool sums = rq->plan.collective == SPR_C_REDUCE_SCATTER, again;

    do {
        again = false;
        while (!rq->comm->error.status &&
               spr_direct_step(rq, &b->inside, may_go_inside(b, sums), set_up_inside))
            again = true;
        while (!rq->comm->error.status &&
               spr_direct_step(rq, &b->between, sums ? b->inside.done / b->hosts : b->pieces,
                               set_up_between))
            again = true;
    } while (again);
    return !rq->comm->error.status && b->between.done == b->pieces &&
           b->inside.done == b->pieces * b->hosts;
}

static void cleanup(spr_request *rq)
{
    struct blocks *b = rq->state;

    spr_direct_end(rq, &b->inside.direct);
    spr_direct_end(rq, &b->between.direct);
}

/* False: no memory. */
static bool find_places(spr_request *rq)
{
    struct blocks *b = rq->state;
    const struct spr_topology *t = &rq->comm->topology;
    size_t ranks = (size_t)rq->comm->size, own = (size_t)t->local[rq->comm->rank];
    int *alike = spr_arena_alloc(&rq->arena, b->hosts * sizeof *alike);

    b->starts = spr_arena_alloc(&rq->arena, ranks * sizeof *b->starts);
    b->alike = spr_arena_alloc(&rq->arena, b->hosts * sizeof *b->alike);
    if (!alike || !b->starts || !b->alike)
        return false;
    for (size_t i = 0; i < ranks; i++) /* host by host */
        b->starts[i] = (size_t)t->ranks[i] * rq->plan.count;
    for (size_t h = 0; h < b->hosts; h++) {
        alike[h] = t->ranks[h * b->local + own];
        b->alike[h] = b->starts[h * b->local + own];
    }
    b->inside.direct.group = spr_topology_neighbours(t, rq->comm->rank);
    b->between.direct.group = (struct spr_group){alike, (int)b->hosts, (int)b->host};
    return true;
}

/* False: no memory. */
static bool make(spr_request *rq)
{
    struct blocks *b = rq->state;
    const struct spr_plan *plan = &rq->plan;

    if (!find_places(rq))
        return false;
    if (plan->collective == SPR_C_REDUCE_SCATTER &&
        !(b->sums = spr_arena_buffer(&rq->arena, spr_min_size(b->pieces, SUMS) * b->hosts *
                                                     b->piece * spr_reduce_acc_size(plan->dtype))))
        return false;
    set_up_inside(rq, &b->inside.direct, 0); /* the first piece is the longest */
    set_up_between(rq, &b->between.direct, 0);
    return spr_direct_make(rq, &b->inside.direct) && spr_direct_make(rq, &b->between.direct);
}

/* False: there are more steps than messages have numbers. */
static bool cut(const spr_request *rq, struct blocks *b)
{
    size_t element = spr_reduce_acc_size(rq->plan.dtype), chunks;

    b->piece = spr_max_size(PIECE_BYTES / b->hosts, LEAST_PIECE_BYTES) / element;
    b->piece = spr_align_up(spr_min_size(b->piece, rq->plan.count), 64);
    b->pieces = spr_div_ceil(rq->plan.count, b->piece);
    chunks = spr_div_ceil(b->piece * element, SPR_DIRECT_LEAST_BYTES);
    while ((size_t)1 << b->steps_log2 < chunks)
        b->steps_log2++;
    return b->pieces * b->hosts <= (size_t)1 << (STEPS_LOG2 - b->steps_log2);
}

static spr_status start(spr_request *rq, const struct spr_algorithm *direct)
{
    const struct spr_topology *t = &rq->comm->topology;
    struct blocks *b = spr_arena_alloc(&rq->arena, sizeof *b);

    if (!b)
        return SPR_ERR_NOMEM;
    b->hosts = (size_t)t->hosts;
    b->local = (size_t)rq->comm->size / b->hosts; /* if they are even */
    b->host = (size_t)t->host[rq->comm->rank];
    if (!spr_topology_hosts_are_even(t) || !cut(rq, b)) {
        rq->algorithm = direct;
        return direct->start(rq);
    }
    rq->state = b;
    return make(rq) ? SPR_OK : SPR_ERR_NOMEM;
}

static spr_status start_reduce_scatter(spr_request *rq)
{
    return start(rq, &spr_reduce_scatter_direct);
}

static spr_status start_allgather(spr_request *rq)
{
    const struct spr_plan *plan = &rq->plan;
    size_t bytes = plan->count * spr_dtype_size(plan->dtype);
    char *own = (char *)plan->recv + (size_t)rq->comm->rank * bytes;
    spr_status status = start(rq, &spr_allgather_direct);

    if (status == SPR_OK && rq->algorithm != &spr_allgather_direct && own != plan->send)
        memcpy(own, plan->send, bytes);
    return status;
}

const struct spr_algorithm spr_reduce_scatter_hierarchical = {
    .collective = SPR_C_REDUCE_SCATTER,
    .name = "hierarchical",
    .cost = "2 steps, (N-1) G n bytes per host of N",
    .start = start_reduce_scatter,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true};
const struct spr_algorithm spr_allgather_hierarchical = {
    .collective = SPR_C_ALLGATHER,
    .name = "hierarchical",
    .cost = "2 steps, (N-1) G n bytes per host of N",
    .start = start_allgather,
    .advance = advance,
    .cleanup = cleanup};
