/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Allgather (Bruck et al. 1997): each rank sends everything it has to partners 1, 2, 4 ... ranks
 * below, and has twice as much after each step. For small contributions of many ranks.
 *
 * Cost, P contributions of n elements of v bytes: ceil(lg P) steps, (P-1) n v bytes sent per rank.
 * What goes round the end of the vector makes a second message.
 *
 * Data movement, 4 ranks; r is the contribution of rank r:
 *
 *            rank 0         rank 1         rank 2         rank 3
 *   step 0   0 to 3         1 to 0         2 to 1         3 to 2
 *   step 1   0 1 to 2       1 2 to 3       2 3 to 0       3 0 to 1
 *   has      0 1 + 2 3      1 2 + 3 0      2 3 + 0 1      3 0 + 1 2
 *
 * Contributions lie where they belong from the start, and are not moved at the end.
 */
#include <string.h>

#include "collectives/exchange.h"

/* Contributions from rank `first` on, up to the end of the vector (0), or from its begin (1). */
static struct spr_range part(const spr_request *rq, int first, int ranks, int which)
{
    size_t size = (size_t)rq->comm->size, n = rq->plan.count;
    size_t from = (size_t)first, to = from + (size_t)ranks;

    if (which == 0)
        return (struct spr_range){from * n, spr_min_size(to, size) * n, false};
    return (struct spr_range){0, to > size ? (to - size) * n : 0, false};
}

static spr_status start(spr_request *rq)
{
    const struct spr_plan *plan = &rq->plan;
    int size = rq->comm->size, rank = rq->comm->rank, steps = 0;
    size_t bytes = plan->count * spr_dtype_size(plan->dtype);
    char *own = (char *)plan->recv + (size_t)rank * bytes;
    struct spr_exchanges *x;

    while ((int64_t)1 << steps < size)
        steps++;
    x = spr_exchanges_make(rq, 2 * (uint32_t)steps);
    if (!x)
        return SPR_ERR_NOMEM;
    if (own != plan->send)
        memcpy(own, plan->send, bytes);
    x->input = plan->recv;
    for (int i = 0; i < 2 * steps; i++) {
        int have = 1 << i / 2, above = (int)(((int64_t)rank + have) % size);
        int ranks = have < size - have ? have : size - have;
        x->step[i] = (struct spr_exchange){.to = (rank + size - have) % size,
                                           .from = above,
                                           .send = part(rq, rank, ranks, i % 2),
                                           .take = part(rq, above, ranks, i % 2)};
    }
    spr_exchanges_filled(rq);
    return SPR_OK;
}

const struct spr_algorithm spr_allgather_bruck = {.collective = SPR_C_ALLGATHER,
                                                  .name = "bruck",
                                                  .cost = "ceil(lg P) steps, (P-1) n bytes",
                                                  .start = start,
                                                  .advance = spr_exchanges_advance,
                                                  .cleanup = spr_exchanges_cleanup};
