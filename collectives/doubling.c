/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Allreduce by recursive doubling (Thakur, Rabenseifner and Gropp 2005): the whole vector in each
 * step, to partners 1, 2, 4 ... ranks away. Not canonical: sums of neighbours are added to sums of
 * neighbours, the lower ranks' on the left, so both partners compute the same bits.
 *
 * Cost, n elements of v bytes, P = 2^k + p ranks: k steps, k n v bytes sent per rank, k n
 * additions; with p > 0 two steps more, in which the lower ones of p pairs of neighbours hand in
 * their vector first, and get the result at the end.
 *
 * Data movement, 4 ranks; (a..b) is the sum over ranks a..b:
 *
 *            rank 0         rank 1         rank 2         rank 3
 *   step 0   x0 to 1        x1 to 0        x2 to 3        x3 to 2
 *   step 1   (0..1) to 2    (0..1) to 3    (2..3) to 0    (2..3) to 1
 *   sum      (0..1)+(2..3)  (0..1)+(2..3)  (0..1)+(2..3)  (0..1)+(2..3)
 */
#include "collectives/exchange.h"

static void give(struct spr_exchange *e, int to, size_t count)
{
    e->to = to;
    e->send.end = count;
}

static void get(struct spr_exchange *e, int from, size_t count)
{
    e->from = from;
    e->take.end = count;
}

static spr_status start(spr_request *rq)
{
    const struct spr_pairing h = spr_pairing_of(rq->comm->size);
    int rank = rq->comm->rank, unit = spr_pairing_unit(&h, rank), around = h.pairs > 0;
    bool paired = rank < 2 * h.pairs, lower = paired && rank % 2 == 0;
    struct spr_exchanges *x = spr_exchanges_make(rq, (uint32_t)(h.k + 2 * around));
    struct spr_exchange *e;

    if (!x)
        return SPR_ERR_NOMEM;
    e = x->step;
    if (lower)
        give(e, rank + 1, rq->plan.count);
    else if (paired)
        get(e, rank - 1, rq->plan.count);
    e->how = SPR_TAKE_BELOW;
    e += around;
    for (int i = 0; i < h.k && !lower; i++) {
        int partner = spr_pairing_rank(&h, unit ^ 1 << i, 1);
        give(&e[i], partner, rq->plan.count);
        get(&e[i], partner, rq->plan.count);
        e[i].how = unit >> i & 1 ? SPR_TAKE_BELOW : SPR_TAKE_ABOVE;
        e[i].last = i == h.k - 1;
    }
    e += h.k;
    if (lower)
        get(e, rank + 1, rq->plan.count);
    else if (paired)
        give(e, rank - 1, rq->plan.count);
    spr_exchanges_filled(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_allreduce_doubling = {.collective = SPR_C_ALLREDUCE,
                                                     .name = "doubling",
                                                     .cost = "lg P steps, lg P n bytes",
                                                     .usable = spr_exchanges_usable,
                                                     .start = start,
                                                     .advance = spr_exchanges_advance,
                                                     .cleanup = spr_exchanges_cleanup,
                                                     .reorders = true,
                                                     .predict = spr_cost_doubling};
