/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where an input is not finite: for SPARRING_CHECK_FINITE.
 */
#ifndef SPR_COLLECTIVES_FINITE_H
#define SPR_COLLECTIVES_FINITE_H

#include "collectives/collective.h"

/* The first of n elements that is NaN or an infinity; n: none. Integers are finite. */
size_t spr_find_nonfinite(spr_dtype dtype, const void *x, size_t n);
/* When the option is on, what this rank contributes to the plan has to be finite. If it is not, the
 * communicator fails with INVALID and a text that has rank, index and value, on all ranks, before
 * anything is sent. `gradient`: of a compressed allreduce, instead of the plan's input. Without the
 * lock. */
spr_status spr_check_finite(spr_comm *comm, const struct spr_plan *plan,
                            const spr_call_options *options, const float *gradient);

#endif
