/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the library's model (collectives/cost.c) says of a run: beside the simulated time, and alone
 * for more ranks than can be simulated. It knows hosts and links, and no racks; computing takes no
 * time here, as in the simulation.
 */
#ifndef SPR_TOOLS_SIM_PREDICT_H
#define SPR_TOOLS_SIM_PREDICT_H

#include "tools/sim/run.h"

/* Does the run have too many ranks to be simulated? */
bool predict_is_needed(const struct run *run);
/* Microseconds of a run that was simulated; NAN: the model cannot say. */
double predict_time_us(const struct run *run);
/* A run of which there is the time alone. False: it failed, or is refused: there is no such
 * algorithm, or the model knows nothing of it. */
bool predict_run(struct run *run, struct spr_error *error);

#endif
