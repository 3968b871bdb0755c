/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A simulated job: many communicators in one thread, over transport/sim.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <sparring/sparring.h>

#include "transport/sim/sim.h"

#define WORLD_MAX 64

struct world {
    struct spr_sim *sim;
    int ranks;
    spr_comm *comms[WORLD_MAX];
    spr_request *requests[WORLD_MAX];
    spr_status results[WORLD_MAX]; /* of the last world_run */
};

/* All links up. Aborts the test on failure. */
void world_create(struct world *w, const struct spr_sim_options *options);
void world_destroy(struct world *w);
/* Progress all ranks until every request posted in w->requests (of ranks that live) is done; results go
 * to w->results (SPR_IN_PROGRESS for killed ranks). False: nothing moves any more before limit_ns of
 * virtual time. */
bool world_run(struct world *w, uint64_t limit_ns);

#endif
