/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Decisions: which algorithm `auto` took, as a file that another run can follow, so that it has the
 * same bits although its model measures other times. Only news are written: a kind of call that had
 * not been met, or one that goes by another algorithm from now on.
 *
 *   COMMUNICATOR OPERATION KIND=ALGORITHM  # by whom
 *   0 0 allreduce:8/4:1024x4=flat          # rules
 *   0 7 allreduce:8/4:1024x4=hierarchical  # model
 *
 * COMMUNICATOR: how many spr_comm_create() had made in the process of rank 0 before; those made of
 * others, by growing or splitting, are not among them; one that has shrunk is the same still.
 * OPERATION: of that communicator, from 0 on; those by which the library measures before it is the
 * caller's do not count. Its number is the same on all ranks, in whatever order they choose
 * algorithms: for the second round of a codec each does so when the first is over. KIND: see
 * collectives/kind.h; it tells no types of equal length apart.
 */
#ifndef SPR_COLLECTIVES_DECISIONS_H
#define SPR_COLLECTIVES_DECISIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/options.h"

struct spr_algorithm;
struct spr_comm;
struct spr_plan;
struct spr_decisions; /* of one communicator of spr_comm_create() */

/* Read options->decisions, if it is given; *hash, of what is in it, has to be equal on all ranks.
 * INVALID, with the line. *decisions is to be freed in any case. */
spr_status spr_decisions_load(const struct spr_options *options, struct spr_decisions **decisions,
                              uint64_t *hash, struct spr_error *error);
void spr_decisions_free(struct spr_decisions *d);

/* For comm->decisions, on all ranks. open(): rank 0 can write options.decisions_log from now on;
 * SYSTEM: it cannot. begin(): the next operation is the first one. */
spr_status spr_decisions_open(struct spr_comm *comm, struct spr_error *error);
spr_status spr_decisions_begin(struct spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                               struct spr_error *error);

/* The algorithm that the file has for this call; NULL: none. */
const struct spr_algorithm *spr_decisions_recall(const struct spr_comm *comm,
                                                 const struct spr_plan *plan);
/* It has been chosen. Under the lock. */
void spr_decisions_note(struct spr_comm *comm, const struct spr_plan *plan,
                        const struct spr_algorithm *algorithm, const char *by);

#endif
