/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A communicator and its watch (transport/watch/): what it notices becomes a failure of the
 * communicator. Never under simulation, where there is no watch.
 *
 * The watch's thread only notes the loss, under the lock, and wakes the driver. The driver takes in
 * what the dead rank still sent - an operation that is complete that way succeeds - and fails then.
 */
#ifndef SPR_COLLECTIVES_WATCH_H
#define SPR_COLLECTIVES_WATCH_H

#include "collectives/comm.h"

/* Before the ranks know each other: be seen. Not SPR_OK is no failure of the communicator: a line
 * in the log says what is missing. */
void spr_comm_watch_open(spr_comm *comm);
/* All are known: watch them, also while links are made. */
void spr_comm_watch_begin(spr_comm *comm);
/* For comm->standing: what the watch knows, `ctx` is the communicator. */
bool spr_comm_watch_standing(void *ctx, int peer, struct spr_standing *standing);
/* Without the lock, which the watch's thread may want. */
void spr_comm_watch_close(spr_comm *comm);
/* The watch has given up a rank (its number at the start); this rank's own: the others have
 * expelled it. death: its process has ended. Under the lock. */
void spr_comm_note_loss(spr_comm *comm, int peer, const char *text, bool death);
/* A pass of progress is over, with so many events: fail when there is a loss and no news, and cut
 * the links of the dead. Under the lock. */
void spr_comm_take_loss(spr_comm *comm, int events);
/* A rank that was expelled finds its links cut: what it is told is why. Changes the cause. Under
 * the lock; text has room for SPR_LOSS_TEXT bytes. */
void spr_comm_judge(const spr_comm *comm, spr_status *status, int *blamed, int *told_by,
                    const char **cause, char *text);

#endif
