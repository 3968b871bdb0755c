/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Disputes: ranks that call different things at the same point of their sequence.
 *
 *   X finds a frame of Y whose descriptor hash differs --DESCRIBE(operation, X's descriptor)--> Y
 *   Y compares the two, names the field and both values --REJECT(operation, text)--> all ranks
 *   everybody: the operation ends with MISMATCH and that text, its frames that are still under way
 *   are dropped, and the communicator works on with the next operation.
 *
 * One round trip more than the operation, or a second where Y is done with the operation and busy
 * with something else; then X rejects it and cannot name the field. A rank that is told before it
 * has posted the operation keeps the news until then. Where no frame passes between ranks that
 * disagree - each waits for the other - whoever waits for longer than a second describes what it
 * called to those that it waits for. A rank on which the operation was complete
 * already (the root of a small broadcast) can only log it.
 */
#ifndef SPR_COLLECTIVES_DISPUTE_H
#define SPR_COLLECTIVES_DISPUTE_H

#include "collectives/collective.h"

/* When a rank that waits describes what it called, and how long one that disagrees may take to
 * compare. */
#define SPR_DISPUTE_S 1.0
/* Operations whose descriptors are remembered after they were posted. */
#define SPR_PAST 64

/* An operation that was posted here. */
struct spr_past {
    bool posted; /* false: none; operation 0 comes after 2^32 others */
    bool rejected;
    uint32_t operation;
    uint64_t hash;
    struct spr_descriptor descriptor;
};

/* NULL: not posted yet, or too long ago. */
struct spr_past *spr_past_find(spr_comm *comm, uint32_t operation);
void spr_past_add(spr_comm *comm, const spr_request *rq, const struct spr_descriptor *d);

/* Tell a rank what this rank calls, before it has asked: it may be waiting for others, and this
 * rank be done. `rq` is being started. */
void spr_dispute_describe(const spr_request *rq, int rank);

/* rq->describe_ns is over: tell all that are waited for. */
void spr_dispute_describe_late(spr_request *rq);

/* `peer` is an index of the channel's peers. A frame of it contradicts what this rank posted as
 * `operation`. */
void spr_dispute_found(spr_comm *comm, int peer, uint32_t operation);
/* rq->dispute_ns is over: the rank that disagrees is done with the operation and busy elsewhere. It
 * is rejected without its description. */
void spr_dispute_decide(spr_request *rq);
/* A DESCRIBE or REJECT frame arrived. `data` has f->bytes bytes and ends with this call. */
void spr_dispute_note(spr_comm *comm, int peer, const struct spr_frame *f, const void *data);
/* A request was started: is there news of it? */
void spr_dispute_posted(spr_comm *comm, spr_request *rq);
void spr_dispute_clear(spr_comm *comm);

#endif
