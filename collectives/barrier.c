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
 */
#include "collectives/collective.h"

#define MAX_STEPS 32

struct barrier {
    uint32_t step, steps;
    bool posted;
    struct spr_in in[MAX_STEPS];
    struct spr_out out[MAX_STEPS];
};

static bool always(const struct spr_plan *plan, int size)
{
    (void)plan;
    (void)size;
    return true;
}

static spr_status start(spr_request *rq)
{
    struct barrier *b = spr_arena_alloc(&rq->arena, sizeof *b);

    if (!b)
        return SPR_ERR_NOMEM;
    rq->state = b;
    while ((uint64_t)1 << b->steps < (uint64_t)rq->comm->size)
        b->steps++;
    return SPR_OK;
}

static bool advance(spr_request *rq)
{
    struct barrier *b = rq->state;
    uint32_t size = (uint32_t)rq->comm->size, rank = (uint32_t)rq->comm->rank;

    for (; b->step < b->steps; b->step++, b->posted = false) {
        uint32_t distance = 1u << b->step;
        if (!b->posted) {
            b->posted = true;
            spr_post_receive(rq, &b->in[b->step], (int)((rank + size - distance) % size), b->step,
                             b, 0, true);
            spr_post_send(rq, &b->out[b->step], (int)((rank + distance) % size), b->step, NULL, 0,
                          true);
        }
        if (b->in[b->step].state != SPR_IN_ARRIVED)
            return false;
        spr_in_release(&b->in[b->step]);
    }
    return true;
}

static void cleanup(spr_request *rq)
{
    struct barrier *b = rq->state;

    spr_in_release_all(b->in, b->steps);
}

const struct spr_algorithm spr_barrier_dissemination = {
    SPR_C_BARRIER, "dissemination", "ceil(log2 P) steps of empty messages", always, start,
    advance,       cleanup};
