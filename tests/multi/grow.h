/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the tests of growing share: newcomers are processes forked from the test, members the ranks
 * of a job; they meet at a place that each part of a test chooses anew.
 */
#ifndef TESTS_MULTI_GROW_H
#define TESTS_MULTI_GROW_H

#include "tests/multi/job.h"

#define GROW_SECONDS 40 /* a member or newcomer that takes longer hangs */

/* What a test's newcomers are like. */
struct newcomer {
    const char *transports;
    const char *secret; /* NULL: the job's */
    double wait_s;      /* 0: 30 */
    int expected_size;
    size_t state_bytes;                     /* that it shall get */
    bool no_take;                           /* does not want the state */
    void *(*take)(void *ctx, size_t bytes); /* NULL: it is kept */
    const char *setting, *value;            /* of its environment */
};

/* The state that a newcomer was given; with `bytes` for free(). */
struct taken {
    unsigned char *bytes;
    size_t count;
};

/* Before each job: a place that nobody else uses. */
void grow_choose_place(void);
/* What a member gives to spr_comm_grow: the place, and 30 s. */
spr_grow_options grow_options(void);
/* In a member: it must succeed. */
spr_comm *grow_members(spr_comm *comm, const spr_grow_options *options);
/* `bytes` bytes of a state that newcomers know, for free(). */
unsigned char *grow_state(size_t bytes);

/* Fork a process that runs main(arg), and ends with 0 when that returns. */
pid_t grow_fork(void (*main)(void *arg), void *arg);
/* In such a process: join, or exit with -status. */
spr_comm *grow_join(const struct newcomer *how, struct taken *taken);
/* Fork one that joins, sums and leaves with the others. */
pid_t grow_start(const struct newcomer *how);
/* Its exit code, or 128 + signal; -1: it hung, and was killed. */
int grow_end_of(pid_t pid);

/* In a rank: three sums of (rank + 1) over all, and a barrier. */
void grow_check_sums(spr_comm *comm);
/* In a member, at its end: it leaves the grown communicator together with the others. */
_Noreturn void grow_leave(spr_comm *old, spr_comm *grown);
/* Wait until so many are here (the test may be one of them); without a communicator. */
void grow_meet(struct job *job, int where, int how_many);
/* This process is killed then. */
void grow_die_later(long us);

#endif
