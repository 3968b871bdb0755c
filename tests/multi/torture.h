/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture: processes live the same life again and again, and in one of them the n-th allocation
 * fails, or the n-th socket, mmap, epoll_create1 ... (failing.h), for n = 1, 2, ... until nothing
 * fails any more. Nothing crashes, hangs or leaks. Where that is slow (torture_is_brief()), each
 * third n behind the first few, as many as the seed says.
 */
#ifndef TESTS_MULTI_TORTURE_H
#define TESTS_MULTI_TORTURE_H

#include "tests/multi/failing.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define TORTURE_MOST 3

struct torture {
    int processes; /* at most TORTURE_MOST */
    /* One life of process `who`; of n = 0 nothing fails in any. What may fail stands between
     * torture_arm() and torture_disarm(), whose result is returned. */
    bool (*life)(struct job *job, int who, uint64_t n, int *times);
    void (*before)(void);                                /* the processes start; or NULL */
    void (*after)(struct job *job, int who, int *times); /* nothing fails any more; or NULL */
    /* Of torture_over(): */
    const char *call;
    int victim;
    uint64_t each, step; /* n = 1, 2, ... each, each + step, each + 2 step, ... */
};

/* Does it fail here now? */
void torture_arm(const struct job *job, int who, uint64_t n);
bool torture_disarm(const struct job *job, int who, uint64_t n);
/* All have come here. */
void torture_meet(struct job *job, int who, int *times);
/* This process has ended what is tortured with that, and which is known to all after the next
 * torture_meet(). */
void torture_tell(struct job *job, int who, spr_status status);
spr_status torture_told(const struct job *job, int who);

/* A communicator of the first `size` processes, where nothing fails yet. */
spr_comm *torture_communicator(const struct job *job, int who, int size, uint64_t n);
/* An error has a text of one line. */
void torture_check_text(spr_status status, const char *text);
/* Sum with all that are left, at least so many; shrink as often as it takes. */
void torture_go_on(spr_comm *comm, int at_least);
/* Begun at that time of spr_monotonic_ns(), it has not taken longer than it may. */
void torture_check_time(const struct job *job, int who, uint64_t n, uint64_t begin, double most_s,
                        spr_status status);

/* By SPARRING_TEST_SCALE, as under sanitizers: shared memory is enough. */
bool torture_is_brief(void);
/* Fails the test, or prints a line for each of the first `calls` of failing_calls and each of the
 * first `victims` processes. */
void torture_over(const char *transport, const struct torture *torture, size_t calls, int victims);
/* Fails the test unless each of failing_calls has failed somewhere by now. */
void torture_expect_sites(void);

#endif
