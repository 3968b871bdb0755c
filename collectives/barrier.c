/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dissemination barrier (Hensgen, Finkel, Manber 1988): in step s rank r tells r + 2^s and hears
 * from r - 2^s; after ceil(log2 P) steps everybody has heard of everybody.
 *
 * Cost: ceil(log2 P) steps, one empty message each.
 *
 *            rank 0     rank 1     rank 2     rank 3
 *   step 0   to 1       to 2       to 3       to 0
 *   step 1   to 2       to 3       to 0       to 1
 *
 * A collective of no elements is one, too ("empty"): its messages let the ranks that called it with
 * some know that they disagree.
 */
#include "collectives/barrier.h"

spr_status spr_barrier_init(spr_request *rq, struct spr_barrier *b, uint32_t first_step)
{
    uint32_t steps = 0;

    while ((uint64_t)1 << steps < (uint64_t)rq->comm->size)
        steps++;
    b->in = spr_arena_alloc(&rq->arena, steps * sizeof *b->in);
    b->out = spr_arena_alloc(&rq->arena, steps * sizeof *b->out);
    if (!b->in || !b->out)
        return SPR_ERR_NOMEM;
    b->first_step = first_step;
    b->steps = steps;
    return SPR_OK;
}

bool spr_barrier_advance(spr_request *rq, struct spr_barrier *b)
{
    uint32_t size = (uint32_t)rq->comm->size, rank = (uint32_t)rq->comm->rank;

    for (; b->step < b->steps; b->step++, b->posted = false) {
        uint32_t distance = 1u << b->step, step = b->first_step + b->step;
        if (!b->posted) {
            b->posted = true;
            spr_post_receive(rq, &b->in[b->step], (int)((rank + size - distance) % size), step, b,
                             0, true);
            spr_post_send(rq, &b->out[b->step], (int)((rank + distance) % size), step, NULL, 0,
                          true);
        }
        if (b->in[b->step].state != SPR_IN_ARRIVED)
            return false;
        spr_in_release(&b->in[b->step]);
    }
    return true;
}

void spr_barrier_cleanup(struct spr_barrier *b) { spr_in_release_all(b->in, b->steps); }

static spr_status start(spr_request *rq)
{
    struct spr_barrier *b = spr_arena_alloc(&rq->arena, sizeof *b);

    if (!b)
        return SPR_ERR_NOMEM;
    rq->state = b;
    return spr_barrier_init(rq, b, 0);
}

static bool advance(spr_request *rq) { return spr_barrier_advance(rq, rq->state); }

/* Nothing to move: only the list that is the result has to be told so. */
static bool advance_empty(spr_request *rq)
{
    if (!spr_barrier_advance(rq, rq->state))
        return false;
    if (rq->plan.list)
        rq->plan.list->count = 0;
    return true;
}

static void cleanup(spr_request *rq) { spr_barrier_cleanup(rq->state); }

const struct spr_algorithm spr_barrier_dissemination = {.collective = SPR_C_BARRIER,
                                                        .name = "dissemination",
                                                        .cost =
                                                            "ceil(log2 P) steps of empty messages",
                                                        .start = start,
                                                        .advance = advance,
                                                        .cleanup = cleanup};
const struct spr_algorithm spr_empty = {.collective = SPR_C_COUNT,
                                        .name = "empty",
                                        .cost = "as a barrier",
                                        .start = start,
                                        .advance = advance_empty,
                                        .cleanup = cleanup};
