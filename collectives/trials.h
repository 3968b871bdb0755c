/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Trials: what calls of one kind took by each algorithm, on ranks that may share CPUs, caches and
 * uplinks in ways that no constant of a model holds. Measured by spr_comm_tune_for(), or given as
 * text by SPARRING_TRIALS, so that another job need not measure again; the same on all ranks.
 *
 *   KIND=ALGORITHM@SECONDS,...   KIND: see collectives/kind.h
 *   allreduce:8/4:1024x4=flat@1.2e-05
 */
#ifndef SPR_COLLECTIVES_TRIALS_H
#define SPR_COLLECTIVES_TRIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "collectives/kind.h"
#include "collectives/model.h"

struct spr_tried {
    struct spr_kind kind;
    double seconds[SPR_ALGORITHMS]; /* by place in the table; infinite: it was left out */
};
/* So many kinds are remembered; then the oldest one is forgotten. */
#define SPR_TRIED 32

/* Under the lock: what is known of such calls, NULL: nothing. Their count and most_entries are
 * those measured or else, within a tenth, near them. */
const struct spr_tried *spr_tried_find(const struct spr_comm *comm, const struct spr_plan *plan);
void spr_tried_add(struct spr_comm *comm, const struct spr_tried *tried);

/* One trial as text. False: it is none. */
bool spr_tried_parse(const char *word, struct spr_tried *tried);
#define SPR_TRIED_BYTES 160
void spr_tried_print(const struct spr_tried *tried, char *text, size_t bytes);

/* Is this a value of SPARRING_TRIALS? INVALID. */
spr_status spr_trials_check_option(const char *value, struct spr_error *error);
/* Only what SPARRING_TRIALS says is known from now on. */
void spr_trials_new_era(struct spr_comm *comm);

#endif
