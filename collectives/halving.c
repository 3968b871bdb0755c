/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Allreduce by recursive halving, then doubling (Rabenseifner 2004): a reduce-scatter in which
 * partners 1, 2, 4 ... ranks away exchange halves of what they still have, and the same steps
 * backwards with sums. Not canonical, but the bits are those of doubling.c: sums of neighbours are
 * added to sums of neighbours, the lower ranks' on the left.
 *
 * Cost, n elements of v bytes, P = 2^k ranks: 2 k steps, 2 (P-1)/P n v bytes sent per rank,
 * (P-1)/P n additions. P = 2^k + p: two steps and at most n v bytes more. Each of the first p pairs
 * of neighbours takes the part of one rank: the lower one of a pair begins with the lower half of
 * the vector, the higher one with the other half, and the first exchange leaves the pair one of
 * them.
 *
 * Data movement, 4 ranks; the vector is cut into 4 segments, s(a..b) is segment s summed over ranks
 * a..b, S(s) the sum:
 *
 *            rank 0             rank 1             rank 2             rank 3
 *   step 0   2(0) 3(0) to 1     0(1) 1(1) to 0     2(2) 3(2) to 3     0(3) 1(3) to 2
 *   step 1   1(0..1) to 2       3(0..1) to 3       0(2..3) to 0       2(2..3) to 1
 *   step 2   S(0) to 2          S(2) to 3          S(1) to 0          S(3) to 1
 *   step 3   S(0) S(1) to 1     S(2) S(3) to 0     S(0) S(1) to 3     S(2) S(3) to 2
 *
 * 3 ranks, where ranks 0 and 1 are a pair, and the vector is cut into 2 segments:
 *
 *            rank 0             rank 1             rank 2
 *   step 0   1(0) to 1          0(1) to 0
 *   step 1                      1(0..1) to 2       0(2) to 0
 *   step 2   S(0) to 2                             S(1) to 1
 *   step 3   S(0) to 1          S(1) to 0
 *
 * Largest exchanges are between neighbours, which are often on one host.
 */
#include "collectives/exchange.h"

/* Segments a to b of 2^k of equal length, whole cache lines. */
static struct spr_range segments(const spr_request *rq, int k, size_t a, size_t b)
{
    size_t n = rq->plan.count, length = spr_align_up(spr_div_ceil(n, (size_t)1 << k), 64);

    return (struct spr_range){spr_min_size(a * length, n), spr_min_size(b * length, n), false};
}

/* Give one half of the vector and get the other one. */
static void meet_in_pair(spr_request *rq, const struct spr_pairing *h, struct spr_exchange *e)
{
    int rank = rq->comm->rank;
    size_t middle = (size_t)1 << h->k >> 1;
    const struct spr_range low = segments(rq, h->k, 0, middle),
                           high = segments(rq, h->k, middle, 2 * middle);

    *e = (struct spr_exchange){.to = rank ^ 1,
                               .from = rank ^ 1,
                               .send = rank & 1 ? low : high,
                               .take = rank & 1 ? high : low,
                               .how = rank & 1 ? SPR_TAKE_BELOW : SPR_TAKE_ABOVE};
}

/* Exchange halves of what is left, k times. In the first step both ranks of a pair have a half;
 * later only that one which has the half that the pair keeps. What is passed on in the next step
 * comes first, so that it is there when what this step sends has left. */
static void halve(spr_request *rq, const struct spr_pairing *h, struct spr_exchange *e)
{
    int rank = rq->comm->rank, unit = spr_pairing_unit(h, rank), mine = unit & 1;
    size_t low = 0, high = (size_t)1 << h->k;

    for (int i = 0; i < h->k; i++, e++) {
        int partner = unit ^ 1 << i, theirs = partner & 1;
        bool upper = unit >> i & 1; /* the half that is kept */
        size_t middle = (low + high) / 2;
        const struct spr_range lower_half = segments(rq, h->k, low, middle),
                               upper_half = segments(rq, h->k, middle, high);
        if (rank == spr_pairing_rank(h, unit, theirs)) {
            e->to = spr_pairing_rank(h, partner, theirs);
            e->send = upper ? lower_half : upper_half;
            e->send.falling = !(partner >> (i + 1) & 1);
        }
        if (rank == spr_pairing_rank(h, unit, mine)) {
            e->from = spr_pairing_rank(h, partner, mine);
            e->take = upper ? upper_half : lower_half;
            e->take.falling = !(unit >> (i + 1) & 1);
        }
        e->how = upper ? SPR_TAKE_BELOW : SPR_TAKE_ABOVE;
        e->last = i == h->k - 1;
        *(upper ? &low : &high) = middle;
    }
}

static spr_status start(spr_request *rq)
{
    const struct spr_pairing h = spr_pairing_of(rq->comm->size);
    uint32_t around = h.pairs > 0, half = (uint32_t)h.k + around;
    struct spr_exchanges *x = spr_exchanges_make(rq, 2 * half);

    if (!x)
        return SPR_ERR_NOMEM;
    if (rq->comm->rank < 2 * h.pairs)
        meet_in_pair(rq, &h, x->step);
    halve(rq, &h, x->step + around);
    /* Sums go back the way that parts have come: those that come last are passed on last. */
    for (uint32_t i = 0; i < half; i++) {
        const struct spr_exchange *e = &x->step[i];
        struct spr_exchange *back = &x->step[2 * half - 1 - i];
        *back =
            (struct spr_exchange){.to = e->from, .from = e->to, .send = e->take, .take = e->send};
        back->send.falling ^= true;
        back->take.falling ^= true;
    }
    spr_exchanges_filled(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_allreduce_halving = {.collective = SPR_C_ALLREDUCE,
                                                    .name = "halving",
                                                    .cost = "2 lg P steps, 2(P-1)/P n bytes",
                                                    .usable = spr_exchanges_usable,
                                                    .start = start,
                                                    .advance = spr_exchanges_advance,
                                                    .cleanup = spr_exchanges_cleanup,
                                                    .reorders = true,
                                                    .predict = spr_cost_halving};
