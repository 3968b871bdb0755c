/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A simulated job: a communicator per rank, in one thread, over transport/sim. Two ranks are linked
 * when one of them first has something for the other, so that memory grows with the pairs that
 * talk.
 */
#ifndef SPR_TOOLS_SIM_WORLD_H
#define SPR_TOOLS_SIM_WORLD_H

#include <sparring/sparring.h>

#include "base/error.h"
#include "collectives/collective.h"
#include "tools/sim/options.h"
#include "transport/sim/sim.h"

struct world;

/* What a rank knows when it wants a link. */
struct member {
    struct world *world;
    int rank;
};

struct world {
    int ranks;
    struct member *members; /* [ranks] */
    struct spr_sim *sim;
    spr_comm **comms;
    spr_request **requests;
    int running;       /* requests that are not done */
    uint64_t begin_ns; /* when they were posted, and when the last one was done */
    uint64_t end_ns;
    int64_t base_bytes, peak_bytes; /* what the library held before, and at most */
};

/* On failure there is nothing to close. `error` says why. */
spr_status world_open(struct world *world, const struct options *options, int ranks, double link,
                      struct spr_error *error);
void world_close(struct world *world);

/* The algorithm that ranks of such a world take when they are asked for `name`, which may be
 * "auto"; NULL: there is none, and `error` says which there are. */
spr_status world_choose(const struct options *options, int ranks, double link,
                        const struct spr_plan *plan, const char *name, const char **algorithm,
                        struct spr_error *error);

typedef spr_status post_fn(void *ctx, int rank, spr_comm *comm, spr_request **request);
/* Post a collective on all ranks at the same time, and let the network run until it is over. */
spr_status world_run(struct world *world, post_fn *post, void *ctx, struct spr_error *error);

#endif
