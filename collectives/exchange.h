/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Exchanges: algorithms in which each rank sends one range of the vector and takes another one in
 * each of a fixed list of steps. halving.c, doubling.c and bruck.c write the list, exchange.c plays
 * it.
 *
 * Ranges are cut into chunks, alike by who sends and who takes one. A chunk is sent as soon as what
 * earlier steps bring to its place has been taken, so that steps overlap; it is taken as soon as
 * what this rank sends from its place, in this step or an earlier one, has left.
 */
#ifndef SPR_COLLECTIVES_EXCHANGE_H
#define SPR_COLLECTIVES_EXCHANGE_H

#include "collectives/collective.h"

/* Chunks that are waited for at most. Grants are given early: they may queue behind chunks. */
#define SPR_EXCHANGE_AHEAD 8
/* Chunks that are under way at most. */
#define SPR_EXCHANGE_OUT 2

struct spr_range {
    size_t start, end; /* elements of the result */
    bool falling;      /* its last chunk goes first; alike for who sends and who takes it */
};

/* One step of one rank; step i of all ranks belongs together. What is taken from a rank is what
 * that one sends. An empty range: nothing is sent, or taken. */
struct spr_exchange {
    int to, from;
    struct spr_range send, take;
    enum {
        SPR_TAKE_COPY,
        SPR_TAKE_ABOVE, /* a sum of higher ranks than those in the sum that is here: here + there */
        SPR_TAKE_BELOW  /* ... lower ranks: there + here */
    } how;
    bool last; /* this makes the sum complete: AVG divides */
};

/* How far a list has been worked off. */
struct spr_exchange_place {
    uint32_t step, chunk; /* ... of this step */
    uint32_t passed;      /* chunks, of all steps */
};

struct spr_exchanges {
    uint32_t steps;
    uint32_t first; /* step that takes something first: until then the input is what is sent */
    struct spr_exchange *step;
    const char *input; /* of this rank; result of an allgather, where it is already */
    size_t element;
    struct spr_exchange_place sent, asked, taken;
    struct spr_in in[SPR_EXCHANGE_AHEAD];
    char *staging[SPR_EXCHANGE_AHEAD]; /* where one is received into, or NULL */
    struct spr_out out[SPR_EXCHANGE_OUT];
    struct spr_range leaving[SPR_EXCHANGE_OUT]; /* what is read for `out` from the result */
};

/* A list of so many steps, all empty, for rq->state, to be filled; NULL: no memory. */
struct spr_exchanges *spr_exchanges_make(spr_request *rq, uint32_t steps);
/* ... it is filled. A rank alone has the result. */
void spr_exchanges_filled(spr_request *rq);
/* All but fp16 and bf16, whose partial sums would be rounded at every hop. */
bool spr_exchanges_usable(const struct spr_plan *plan, int size);
/* As an algorithm's. */
bool spr_exchanges_advance(spr_request *rq);
void spr_exchanges_cleanup(spr_request *rq);

/* A number of ranks that is no power of two: 2^k of them or of pairs, k as large as it can be. The
 * first 2 * pairs ranks are in pairs, of neighbours. */
struct spr_pairing {
    int k, pairs;
};

static inline struct spr_pairing spr_pairing_of(int size)
{
    int k = 0;

    while (2u << k <= (unsigned)size)
        k++;
    return (struct spr_pairing){k, size - (1 << k)};
}

/* Which rank or pair of the 2^k it is, or is in. */
static inline int spr_pairing_unit(const struct spr_pairing *h, int rank)
{
    return rank < 2 * h->pairs ? rank / 2 : rank - h->pairs;
}

/* The rank, or the lower (0) or higher (1) one of a pair. */
static inline int spr_pairing_rank(const struct spr_pairing *h, int unit, int member)
{
    return unit < h->pairs ? 2 * unit + member : unit + h->pairs;
}

#endif
