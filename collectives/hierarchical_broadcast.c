/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hierarchical broadcast, between hosts of equally many ranks: each byte enters a host once. The
 * root's host shares the vector out among its ranks; each of them is the root of its share for the
 * ranks of the same number on other hosts, who pass on there what they have. Where hosts are uneven
 * it is the direct algorithm. Canonical.
 *
 * Cost, n elements of v bytes, N hosts of G ranks, P in all: 5 steps; each host but the root's
 * receives n v bytes from others, by the direct algorithm G (P-G+1)/P times that; the root's sends
 * 2 (N-1)/N n v; per rank inside its host n v.
 *
 * Data movement, 4 ranks, 2 hosts, root 0; the vector has a half for each rank of a host, and each
 * half a quarter for each host:
 *
 *               rank 0 (A)       rank 1 (A)       rank 2 (B)       rank 3 (B)
 *   inside A    x(0..3) to 1
 *   between     x(0,1) to 2      x(2,3) to 3
 *   inside B                                      x(0,1) to 3      x(2,3) to 2
 *
 * Each step is a direct one, in a group: scatter and allgather by the root's host and between the
 * hosts, allgather in the others. Piece by piece: while one is between hosts, the next is shared
 * out, or the last one passed on. A root ends when all have told it that they have called, so that
 * it knows of those who disagree: the ranks of a host to the one with the root's number, which
 * tells the root.
 */
#include "collectives/direct.h"
#include "collectives/words.h"

/* Of a piece: a quarter of the vector, within these. */
#define PIECES 4
#define LEAST_PIECE_BYTES ((size_t)512 << 10)
#define PIECE_BYTES ((size_t)8 << 20)
#define STEPS_LOG2 29u        /* that messages may have, but for word, and for what is spread */
#define WORD_STEP 0x20000000u /* the sender has called, and all from whom it hears */

struct broadcast {
    size_t piece, pieces; /* elements; how many */
    unsigned steps_log2;  /* that each may have */
    struct spr_direct_stage inside, between;
    struct spr_words words; /* the ranks of a host tell the one of the root's number there */
};

static size_t even_part(size_t n, int parts)
{
    return spr_align_up(spr_div_ceil(n, (size_t)parts), SPR_CACHE_LINE);
}

/* What both steps have in common: `count` elements from `first` on. */
static void set_up(const spr_request *rq, struct spr_direct *d, size_t first, size_t count)
{
    d->in = d->out = rq->plan.dtype;
    d->recv = (char *)rq->plan.recv + first * spr_dtype_size(rq->plan.dtype);
    d->send = d->recv;
    d->gather = true;
    d->segment = even_part(count, d->group.size);
    d->total = count;
}

static void set_up_inside(const spr_request *rq, struct spr_direct *d, size_t work)
{
    const struct broadcast *b = rq->state;
    size_t first = work * b->piece;

    set_up(rq, d, first, spr_min_size(b->piece, rq->plan.count - first));
    d->step = (uint32_t)work << b->steps_log2;
}

/* The share of this rank's number. */
static void set_up_between(const spr_request *rq, struct spr_direct *d, size_t work)
{
    const struct broadcast *b = rq->state;
    const struct spr_group *host = &b->inside.direct.group;
    size_t first = work * b->piece, count = spr_min_size(b->piece, rq->plan.count - first);
    size_t share = even_part(count, host->size);
    size_t begin = spr_min_size((size_t)host->rank * share, count);

    set_up(rq, d, first + begin, spr_min_size(share, count - begin));
    d->step = (uint32_t)work << b->steps_log2;
}

static bool advance(spr_request *rq)
{
    struct broadcast *b = rq->state;
    bool shares_out = b->inside.direct.scatter, told = spr_words_pass(rq, &b->words), again;

    do {
        again = false;
        while (!rq->comm->error.status &&
               spr_direct_step(rq, &b->inside, shares_out ? b->pieces : b->between.done,
                               set_up_inside))
            again = true;
        while (!rq->comm->error.status &&
               spr_direct_step(rq, &b->between, shares_out ? b->inside.done : b->pieces,
                               set_up_between))
            again = true;
    } while (again);
    return !rq->comm->error.status && told && b->inside.done == b->pieces &&
           b->between.done == b->pieces;
}

static void cleanup(spr_request *rq)
{
    struct broadcast *b = rq->state;

    spr_words_end(&b->words);
    spr_direct_end(rq, &b->inside.direct);
    spr_direct_end(rq, &b->between.direct);
}

/* False: no memory. */
static bool find_groups(spr_request *rq)
{
    struct broadcast *b = rq->state;
    const struct spr_topology *t = &rq->comm->topology;
    int rank = rq->comm->rank, root = rq->plan.root;
    int *alike = spr_arena_alloc(&rq->arena, (size_t)t->hosts * sizeof *alike);
    struct spr_direct *inside = &b->inside.direct, *between = &b->between.direct;

    if (!alike)
        return false;
    for (int h = 0; h < t->hosts; h++)
        alike[h] = t->ranks[t->first[h] + t->local[rank]];
    inside->group = spr_topology_neighbours(t, rank);
    inside->root = t->local[root];
    inside->scatter = t->host[rank] == t->host[root];
    between->group = (struct spr_group){alike, t->hosts, t->host[rank]};
    between->root = t->host[root];
    between->scatter = true;
    return true;
}

/* Whom this rank tells, and who tell it. False: no memory. */
static bool find_words(spr_request *rq)
{
    struct broadcast *b = rq->state;
    struct spr_words *w = &b->words;
    const struct spr_topology *t = &rq->comm->topology;
    const struct spr_group *host = &b->inside.direct.group, *alike = &b->between.direct.group;
    int rank = rq->comm->rank, root = rq->plan.root;

    w->step = WORD_STEP;
    w->tells = spr_group_rank(host, t->local[root]);
    if (w->tells != rank)
        return true;
    w->tells = rank == root ? -1 : root;
    w->heard = spr_arena_alloc(&rq->arena, (size_t)(host->size + alike->size) * sizeof *w->heard);
    if (!w->heard)
        return false;
    for (int i = 0; i < host->size; i++)
        if (i != host->rank)
            w->heard[w->hears++].from = spr_group_rank(host, i);
    for (int i = 0; rank == root && i < alike->size; i++)
        if (i != alike->rank)
            w->heard[w->hears++].from = spr_group_rank(alike, i);
    return true;
}

/* Two ranks that both believe to be the root would wait for each other. */
static void begin_words(spr_request *rq)
{
    struct broadcast *b = rq->state;
    spr_comm *comm = rq->comm;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && comm->rank == rq->plan.root)
            spr_channel_announce(&comm->channel, comm->ids[r], rq->operation, rq->descriptor);
    spr_words_begin(rq, &b->words);
}

/* False: there are more steps than messages have numbers. */
static bool cut(const spr_request *rq, struct broadcast *b)
{
    size_t element = spr_dtype_size(rq->plan.dtype);
    size_t bytes = spr_div_ceil(rq->plan.count * element, PIECES), chunks;

    bytes = spr_min_size(spr_max_size(bytes, LEAST_PIECE_BYTES), PIECE_BYTES);
    b->piece = spr_align_up(spr_min_size(bytes / element, rq->plan.count), SPR_CACHE_LINE);
    b->pieces = spr_div_ceil(rq->plan.count, b->piece);
    chunks = spr_div_ceil(b->piece * element, SPR_DIRECT_LEAST_BYTES);
    while ((size_t)1 << b->steps_log2 < chunks)
        b->steps_log2++;
    return b->pieces <= (size_t)1 << (STEPS_LOG2 - b->steps_log2);
}

static spr_status start(spr_request *rq)
{
    struct broadcast *b = spr_arena_alloc(&rq->arena, sizeof *b);

    if (!b)
        return SPR_ERR_NOMEM;
    if (!spr_topology_hosts_are_even(&rq->comm->topology) || !cut(rq, b)) {
        rq->algorithm = &spr_broadcast_direct;
        return spr_broadcast_direct.start(rq);
    }
    rq->state = b;
    if (!find_groups(rq) || !find_words(rq))
        return SPR_ERR_NOMEM;
    set_up_inside(rq, &b->inside.direct, 0); /* the first piece is the longest */
    set_up_between(rq, &b->between.direct, 0);
    if (!spr_direct_make(rq, &b->inside.direct) || !spr_direct_make(rq, &b->between.direct))
        return SPR_ERR_NOMEM;
    begin_words(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_broadcast_hierarchical = {.collective = SPR_C_BROADCAST,
                                                         .name = "hierarchical",
                                                         .cost = "5 steps, n bytes into each host",
                                                         .start = start,
                                                         .advance = advance,
                                                         .cleanup = cleanup};
