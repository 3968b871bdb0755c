/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The messages of a barrier, for operations in which a rank might need nobody else: they tell it of
 * those who called something else, and those of it.
 */
#ifndef SPR_COLLECTIVES_BARRIER_H
#define SPR_COLLECTIVES_BARRIER_H

#include "collectives/collective.h"

struct spr_barrier {
    uint32_t step, steps, first_step;
    bool posted;
    struct spr_in *in; /* [steps] */
    struct spr_out *out;
};

/* *b is zeroed; its steps, 31 at most, are numbered from first_step on. SPR_OK or NOMEM. */
spr_status spr_barrier_init(spr_request *rq, struct spr_barrier *b, uint32_t first_step);
/* As the algorithm's advance(). */
bool spr_barrier_advance(spr_request *rq, struct spr_barrier *b);
void spr_barrier_cleanup(struct spr_barrier *b);

#endif
