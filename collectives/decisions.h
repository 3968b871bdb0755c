/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Decisions: which algorithm `auto` took, as a file that another run can follow, so that it sends
 * the same messages and has the same bits although its model measures other times. Only news are
 * written: a kind of call that had not been met, or one that goes by another algorithm from now on.
 *
 *   COMMUNICATOR DECISION KIND=ALGORITHM   # by whom
 *   0 0 allreduce:8/4:1024x4=flat          # rules
 *   0 7 allreduce:8/4:1024x4=hierarchical  # model
 *
 * COMMUNICATOR: how many spr_comm_create() had made in that process before; those made of others,
 * by shrinking, growing or splitting, are not among them. DECISION: how many choices it had made
 * before; a call that names its algorithm is none. KIND: see collectives/kind.h.
 */
#ifndef SPR_COLLECTIVES_DECISIONS_H
#define SPR_COLLECTIVES_DECISIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct spr_comm;
struct spr_plan;
struct spr_decisions; /* of one communicator, used under its lock */

/* Is this a value of SPARRING_DECISIONS: "", or a file of decisions? INVALID, with the line. */
spr_status spr_decisions_check_option(const char *path, struct spr_error *error);
/* Of what is in it, all of which has to be equal on all ranks; 0: "". */
uint64_t spr_decisions_hash(const char *path);

/* Get ready to follow options.decisions, and on rank 0 to write options.decisions_log, for a
 * communicator of spr_comm_create(). SYSTEM: it cannot be written. */
spr_status spr_decisions_open(struct spr_comm *comm, struct spr_error *error);
/* From now on; what the library calls before, to measure, is no decision. */
void spr_decisions_begin(struct spr_comm *comm);
void spr_decisions_close(struct spr_comm *comm);

/* Place in the table of the algorithm that is to be followed for this call, the next one; -1: there
 * is none. */
int spr_decisions_recall(const struct spr_comm *comm, const struct spr_plan *plan);
/* It has been chosen. */
void spr_decisions_note(struct spr_comm *comm, const struct spr_plan *plan, size_t place,
                        const char *by);
/* The number of the next one; and: those from `next` on were for nothing, since their call failed
 * before it was posted. */
uint64_t spr_decisions_next(const struct spr_comm *comm);
void spr_decisions_take_back(struct spr_comm *comm, uint64_t next);

#endif
