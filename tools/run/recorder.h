/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The directory in which the ranks keep their flight recorders (SPARRING_TRACE_DIR), and what
 * becomes of it: removed after a job that went well, else kept and named, with the verdict.
 */
#ifndef TOOLS_RUN_RECORDER_H
#define TOOLS_RUN_RECORDER_H

#include <stdbool.h>

struct options;
struct job;
struct rank;

/* Before the keeper is started: finds or makes the directory. */
void recorder_open(const struct options *options);
/* Its name; NULL: there is none. */
const char *recorder_directory(void);
/* How far the ranks have come with their communicator, as their recorders say. */
enum recorder_state {
    RECORDER_UNKNOWN, /* there are no recorders */
    RECORDER_NONE,    /* nobody who is gone has begun, nobody has finished */
    RECORDER_LOST,    /* one is gone without which some of the first ranks, or all that live, cannot
                       * have it complete; nothing has been summed yet, or nobody is left */
    RECORDER_READY,   /* the first ranks have it complete, as far as they live, or had it to its end
                       */
    RECORDER_OVER     /* ... but nobody lives who has it */
};
enum recorder_state recorder_state(const struct job *job);
/* All ranks are gone and start again: what they left is removed. */
void recorder_clear(const struct job *job);
/* How the ranks are at the first failure or, `ending`, when the job is ended from outside, so that
 * later failures are our doing: the first call counts. */
void recorder_look(const struct job *job, bool ending);
/* A rank ended by itself. */
void recorder_ended(const struct rank *rank, int wait_status);
/* Nobody knows how the ranks ended: what they have left is kept and named. */
void recorder_abandon(void);
/* All processes are gone. */
void recorder_close(const struct job *job);

#endif
