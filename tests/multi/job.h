/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A job of real processes on this machine, forked from the test. Each rank runs a function and
 * reports by its exit code; a hang is a failed test with a line per rank, never a stuck run.
 */
#ifndef TESTS_MULTI_JOB_H
#define TESTS_MULTI_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <sparring/sparring.h>

#define JOB_MAX 64

/* Fail the rank with a line that says where. */
#define RANK_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            job_rank_failed(__FILE__, __LINE__, #condition);                                       \
    } while (0)

struct job {
    int size;
    const char *transports;
    void *arg;    /* for the rank function */
    char *shared; /* memory that all ranks and the test see; JOB_SHARED_BYTES */
    pid_t pids[JOB_MAX];
    int codes[JOB_MAX]; /* exit code, or 128 + signal */
    /* Private: the allgather in shared memory. */
    struct job_exchange *exchange;
};
#define JOB_SHARED_BYTES 65536

/* Called in each rank before its communicator is made; NULL: nothing. Stays set. */
extern void (*job_prepare)(struct job *job, int rank);
/* Where the ranks listen; stays set. */
extern const char *job_interface; /* "lo" */
/* What they share, with its final NUL; NULL: nothing. Stays set. */
extern const char *job_secret;
/* Start `size` ranks that run rank_main(job, rank, comm) over the given transports; comm is made
 * and destroyed around it. */
void job_start(struct job *job, int size, const char *transports,
               void (*rank_main)(struct job *job, int rank, spr_comm *comm), void *arg);
/* Wait for all, at most this many seconds (times the time factor); kills and reports what is left.
 * Returns false when a rank had to be killed by us. */
bool job_wait(struct job *job, double seconds);
/* job_wait, and every rank must have exited with 0. */
void job_expect_success(struct job *job, double seconds);
/* In a rank: the options the communicator is made with, for tests that make their own. */
void job_options(struct job *job, int rank, spr_comm_options *options, spr_bootstrap *bootstrap);
/* In a process that was forked from a test: it ends with the test, and faults end it. */
void job_alone(void);
/* In a rank: nobody shall wait for it in an allgather of the bootstrap. */
void job_break(struct job *job);
/* In one rank while no other is in spr_comm_create: another communicator can be made. */
void job_renew(struct job *job);

/* The transports, by the names that options.transports takes: io_uring where it is not refused,
 * verbs where there is an RDMA device, a line for each of them that is left out;
 * SPARRING_TEST_TRANSPORTS, a list, leaves the others out. At least one: otherwise the program ends
 * before main(), as skipped, or as failed where the list names none. */
extern const char *job_transports[];
extern size_t job_transport_count;
bool job_has_transport(const char *name);
/* job_start and job_expect_success over each of them. */
void job_on_all_transports(int size, void (*rank_main)(struct job *job, int rank, spr_comm *comm),
                           void *arg, double seconds);
/* The seed of a test program's random numbers; printed, and taken from SPARRING_SEED. */
uint64_t job_seed(void);

void job_pause_ms(long ms);
/* Number i of the counters at the beginning of job->shared. */
_Atomic int *job_counter(struct job *job, int i);
/* Wait until another process has counted so far. */
void job_await(_Atomic int *count, int value);
_Noreturn void job_rank_failed(const char *file, int line, const char *condition);

#endif
