/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Outcome: which operations are complete, here and on all ranks that are left.
 *
 * Success is provisional: a rank can have the result of an operation during which another rank was
 * lost before a third one had it. After a failure the ranks that are left compare what they have
 * completed (membership.h); what one of them lacks, none has. So a codec's commit lags: the step
 * that it committed last can be taken back (compress/codec.h). It never needs more than that one,
 * since to complete the next step of a codec, all ranks must have completed the one before.
 *
 *   a rank completes #7, whose codec commits  -> spr_outcome_add, spr_outcome_committed
 *   a failure; all tell their outcomes        -> spr_outcome_intersect
 *   #7 is not in what is common               -> spr_outcome_revoke, and spr_shrink_info.redo
 */
#ifndef SPR_COLLECTIVES_OUTCOME_H
#define SPR_COLLECTIVES_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/codec.h>

struct spr_comm;

/* Operations may complete out of order; one that is further ahead of the oldest that is not
 * complete counts as not complete, and is not completed before that one has caught up. */
#define SPR_OUTCOME_AHEAD 256u

/* A set of operations: all up to `completed`, and completed + 1 + k for each bit k. Also part of
 * VIEW frames. */
struct spr_outcome {
    uint32_t completed;
    uint32_t zero;
    uint64_t later[SPR_OUTCOME_AHEAD / 64]; /* bit 0 is clear */
};
_Static_assert(sizeof(struct spr_outcome) == 40, "outcome layout");

bool spr_outcome_has(const struct spr_outcome *o, uint32_t operation);
/* Can it be added? */
bool spr_outcome_reaches(const struct spr_outcome *o, uint32_t operation);
void spr_outcome_add(struct spr_outcome *o, uint32_t operation);
void spr_outcome_intersect(struct spr_outcome *o, const struct spr_outcome *other);
/* How many are in `own` and not in `common`, which is a subset of it. */
int spr_outcome_surplus(const struct spr_outcome *own, const struct spr_outcome *common);
/* How many of these are at least `first` and less than `end`. */
int spr_outcome_surplus_between(const struct spr_outcome *own, const struct spr_outcome *common,
                                uint32_t first, uint32_t end);

/* A step of this codec was committed with `operation`. Under the lock, like those below. */
void spr_outcome_committed(struct spr_comm *comm, spr_codec *codec, uint32_t operation);
/* A new epoch: steps that are not common are taken back, the others are final. */
void spr_outcome_revoke(struct spr_comm *comm, const struct spr_outcome *common);
/* The communicator ends. */
void spr_outcome_close(struct spr_comm *comm);
/* This codec is about to be used with `comm`: no other communicator remembers it. Without any lock.
 */
void spr_outcome_claim(struct spr_comm *comm, spr_codec *codec);

#endif
