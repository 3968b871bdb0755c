/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Growing: a communicator of members and newcomers is made, without the old one being touched
 * before it is certain that the new one works.
 *
 *   members, over the old communicator        newcomers, at the meeting (transport/bootstrap)
 *   rank 0 meets the newcomers                look for the members until they are let in
 *   ticket: job, epoch, size                  ticket
 *   addresses of all (allgather)              addresses of all
 *   links, over the new communicator          links
 *   state (broadcast, new communicator)       state
 *   vote, and a barrier after it              .
 *   go (broadcast, new communicator)          go
 *
 * While rank 0 waits for newcomers it says so to the other members once a PULSE: so they know of
 * its death, and it of theirs, as in any collective.
 *
 * Whether the new communicator counts is decided by the vote, which is an operation of the old one:
 * nobody has its result before all members have said yes. When a member dies between then and the
 * barrier's end, those who have voted shrink the old communicator, which tells each of them whether
 * all that are left have the vote's result. Who completes the barrier knows that all have it, and
 * says goodbye to the old communicator: the shrink of the others does not wait for it.
 *
 *   grow.c          the call; the newcomer's side
 *   grow_members.c  the members' side until all addresses are known
 *   grow_state.c    state, vote, go
 */
#ifndef SPR_COLLECTIVES_GROW_H
#define SPR_COLLECTIVES_GROW_H

#include "collectives/comm.h"

#define SPR_MOST_NEWCOMERS (1 << 16)

/* What makes the new communicator: from rank 0 to all. */
struct spr_ticket {
    uint64_t job;
    uint32_t epoch;
    int32_t members, size;
    int32_t state_rank;
};

struct spr_growth {
    spr_comm *old; /* NULL: a newcomer */
    spr_comm *comm;
    const spr_grow_options *options;
    struct spr_ticket ticket;
    spr_bootstrap meeting; /* rank 0 and newcomers */
    bool met;              /* ... is open */
    bool gathered;         /* all members are here */
    bool apart;            /* ... or not: one has called something else, and all know it */
    bool exchanged;        /* this member has said whether it can take part */
    bool addressed;        /* ... and knows where all others are */
    uint64_t deadline_ns;
    struct spr_error *error;
    char line[SPR_ERROR_TEXT_BYTES]; /* for the bootstrap that spr_growth_bootstrap makes */
};

/* Blocking, over either communicator; the error is that communicator's. */
spr_status spr_growth_broadcast(struct spr_growth *g, spr_comm *comm, void *data, size_t words,
                                int root);
/* Wait for an operation of the old communicator; rank 0 goes on with the meeting meanwhile. */
spr_status spr_growth_wait(struct spr_growth *g, spr_request **request);
/* How long either side waits for the other, in seconds before the time factor: the caller's time,
 * or the one of the start. */
double spr_growth_wait_s(const struct spr_growth *g, const struct spr_options *options);
/* When whoever is in must have a link to all: as long again, but not less than at the start. */
uint64_t spr_growth_way_in(const struct spr_growth *g, const struct spr_options *options);

/* grow_members.c. Rank 0: meet the newcomers; the others: wait for that. */
spr_status spr_growth_meet(struct spr_growth *g);
/* Members: an allgather for spr_comm_build. */
void spr_growth_bootstrap(struct spr_growth *g, spr_bootstrap *boot);
/* Members: whoever cannot take part says so in place of the first allgather. */
void spr_growth_refuse(struct spr_growth *g, spr_status status);

/* grow_state.c. From the state rank to the newcomers. */
spr_status spr_growth_hand_over(struct spr_growth *g);
/* Members: the new communicator counts if all say SPR_OK. Returns what counts. */
spr_status spr_growth_vote(struct spr_growth *g, spr_status mine);
/* Newcomers wait until the members have voted. Members may pass over its result. */
spr_status spr_growth_go(struct spr_growth *g);

#endif
