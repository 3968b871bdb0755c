/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Membership: after a failure the ranks that are left agree on who they are, and go on.
 *
 * Every rank that calls spr_comm_shrink() tells all others, in VIEW frames over the links that are
 * still up, whom it has lost. Whom a member has lost, all lose: the sets are merged until they are
 * equal. The lowest rank that is left is the coordinator: when all that are left have told it the
 * same set, it begins the next epoch, and its VIEW makes the others follow. The call is over when a
 * rank has heard from all others that they are in the new epoch.
 *
 *   rank 0            rank 1            rank 2 dies       rank 3
 *   VIEW lost {2} --> all                                 VIEW lost {2} --> all
 *                     VIEW lost {2} --> all
 *   equal: epoch 2, VIEW ------------------------------>  follows
 *                     follows
 *   VIEW ready -----> all <---------- VIEW ready -------- VIEW ready
 *
 * Cost: 2 steps, P-1 small messages per rank in each.
 *
 * Why two coordinators never begin different epochs: one that begins epoch e+1 has heard the same
 * set from all its members; whoever has a coordinator in its set ignores that coordinator's frames
 * from then on, and whoever is in e+1 already says so instead of telling a set. So a second
 * coordinator either learns of e+1 from one of its members, and follows, or no member of it is in
 * e+1. A group is only formed when it outnumbers those who are gone without proof of death (no
 * heartbeat, no answer): of two halves of a cut network at most one goes on.
 *
 * Ranks are named here by their index at the job's start ("peer"), which is for life: who is gone
 * never returns.
 */
#ifndef SPR_COLLECTIVES_MEMBERSHIP_H
#define SPR_COLLECTIVES_MEMBERSHIP_H

#include "collectives/comm.h"

#define SPR_MEMBERSHIP_MAX 1024 /* ranks; three bitmaps of them fit a frame of the channel */

struct spr_membership;

spr_status spr_membership_new(spr_comm *comm);
void spr_membership_free(spr_comm *comm);
/* Before there is a link: the first epoch is this one. */
void spr_membership_start_at(spr_comm *comm, uint32_t epoch);

/* Enter: the communicator is revoked if it is not yet, and this rank tells what it knows. The rank
 * that does not answer within `patience_ns` is given up. Under the lock, like all of these. */
void spr_membership_begin(spr_comm *comm, uint64_t patience_ns);
/* Go on. SPR_IN_PROGRESS; SPR_OK: a new epoch with all its members; EXPELLED: not with this rank.
 */
spr_status spr_membership_step(spr_comm *comm);
/* Give up (the deadline passed): the communicator stays revoked. */
void spr_membership_end(spr_comm *comm);
/* A VIEW frame arrived. */
void spr_membership_view(spr_comm *comm, int peer, const void *data, size_t bytes);
/* Since begin(): how many of the caller's operations were completed here and are not complete
 * everywhere. */
int spr_membership_redo(const spr_comm *comm);
/* The operations that are complete on all members, when the last epoch ended in which there were
 * any. */
const struct spr_outcome *spr_membership_common(const spr_comm *comm);

#endif
