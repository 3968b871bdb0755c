/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Guardian: a small process beside a rank that has peers on other hosts. It sleeps on the rank's
 * robust futex and shares its control connections; when the rank dies it writes one frame to each,
 * long before the kernel has taken down the memory of the rank and closes them. It has none of the
 * rank's memory and no secret, and ends with the rank.
 *
 * Started with posix_spawn, so that no threaded process is forked; it makes itself an orphan, so
 * that the program never finds it among its children.
 */
#ifndef SPR_TRANSPORT_WATCH_GUARDIAN_H
#define SPR_TRANSPORT_WATCH_GUARDIAN_H

#include <stdbool.h>

#include "base/error.h"
#include "transport/frame.h"

/* What the program finds open: the board, and a socket on which come the connections. */
enum { SPR_GUARDIAN_BOARD = 3, SPR_GUARDIAN_SOCKET = 4, SPR_GUARDIAN_MOST = 1024 };

/* Start `path` for the rank that owns the board. *fd: where spr_guardian_give sends to; close it
 * when it has them all. NOT_FOUND, SYSTEM. */
spr_status spr_guardian_start(const char *path, int rank, int board_fd, int *fd,
                              struct spr_error *error);
/* Share a connection; `last_words` is what is written to it. False: it has gone. */
bool spr_guardian_give(int fd, int connection, const struct spr_frame *last_words);

#endif
