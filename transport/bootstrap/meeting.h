/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A meeting: the members of a communicator take in processes that have no number yet. Rank 0 of the
 * members is at a place that the newcomers know; it speaks for all members, who do not come here.
 *
 *   members' rank 0                        newcomers
 *   spr_meeting_open                       spr_meeting_join, again and again until they get in
 *   allgather of 0 bytes:  waits for all   <-  prove that they know the secret
 *                          numbers them    ->  learn their rank, and how many there will be
 *   further allgathers: rank 0's part is that of all members
 *
 * Until the newcomers are numbered each of them may die, or be sent away, and another may come in
 * its place. From then on a loss is a failure, which is told to all that are left.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_MEETING_H
#define SPR_TRANSPORT_BOOTSTRAP_MEETING_H

#include "transport/bootstrap/bootstrap.h"

#define SPR_MEETING_PLACE_BYTES 310

/*
 * Where the meeting is: the first of `place` (the caller's, may be NULL), SPARRING_MEET, the root
 * or file of `options` (may be NULL), SPARRING_ROOT, SPARRING_FILE, `otherwise` (may be ""), where
 * the launcher lets the ranks meet. "host:port", "unix:name" or "file:path". INVALID: nowhere.
 */
spr_status spr_meeting_place(const char *place, const spr_comm_options *options,
                             const char *otherwise, char text[SPR_MEETING_PLACE_BYTES],
                             struct spr_error *error);

/* How many are awaited. */
struct spr_meeting_terms {
    int members;
    int newcomers, at_least; /* at the deadline: go on when that many have come */
};

/*
 * As rank 0, or as a newcomer. Of the key secret and config_hash are used; it is copied. A newcomer
 * whose config_hash or version differs is sent away, its join ends with MISMATCH. Errors: as
 * spr_bootstrap_tcp.
 */
spr_status spr_meeting_open(const char *place, const struct spr_auth_key *key,
                            const struct spr_meeting_terms *terms, bool loopback_only,
                            uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);
spr_status spr_meeting_join(const char *place, const struct spr_auth_key *key, bool loopback_only,
                            uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);
/* After the first allgather: boot->rank and boot->size are true. */
void spr_meeting_seated(spr_bootstrap *boot, uint64_t deadline_ns);
/* Between the exchanges, while links are made: an error when rank 0 has given up or is gone, or,
 * at rank 0, a newcomer is. */
spr_status spr_meeting_look(const spr_bootstrap *boot, struct spr_error *error);
/* Rank 0, while it waits for members, now and then: newcomers are let in, and those who are there
 * are told for whom. */
void spr_meeting_tend(spr_bootstrap *boot, const char *whom);
/* Rank 0: when it is closed, the newcomers are told this. The first text stays. */
void spr_meeting_refuse(spr_bootstrap *boot, spr_status status, int rank, const char *text);

#endif
