/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who lives: ranks that are killed, stopped, woken up again, or leave, as real processes on every
 * transport.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 60
#define GIB ((size_t)1 << 30)

static void pause_scaled(double seconds)
{
    job_pause_ms((long)(seconds * 1e3 * spr_time_factor()));
}

/* Warnings of a rank's own log. */
static _Atomic int warnings;
static void count_warnings(void *ctx, enum spr_log_level level, const char *line)
{
    (void)ctx;
    if (level <= SPR_LOG_WARN && strstr(line, "watch"))
        atomic_fetch_add(&warnings, 1);
}

static _Noreturn void fail_with(spr_comm *comm, spr_status status)
{
    fprintf(stderr, "process %d: %s: '%s'\n", (int)getpid(), spr_status_name(status),
            spr_last_error(comm));
    _exit(97);
}

/* Killed --------------------------------------------------------------------------------------- */

struct death {
    int victim;
    size_t ballast_bytes;  /* that the victim has in memory */
    bool orphan;           /* a child of the victim keeps all its descriptors open */
    const char *must_name; /* part of the error */
};

static void run_until_lost(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 20000 };
    const struct death *death = job->arg;
    float *x = calloc(N, sizeof *x);
    spr_status status = SPR_OK;
    char name[32];

    if (rank == death->victim && death->ballast_bytes) {
        char *ballast = mmap(NULL, death->ballast_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RANK_CHECK(ballast != MAP_FAILED);
        memset(ballast, 1, death->ballast_bytes);
    }
    if (rank == death->victim && death->orphan && fork() == 0) {
        job_await(job_counter(job, 1), 1);
        _exit(0);
    }
    atomic_fetch_add(job_counter(job, 0), 1);
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);
    snprintf(name, sizeof name, "rank %d", death->victim);
    if (status != SPR_ERR_RANK_LOST || !strstr(spr_last_error(comm), name) ||
        !strstr(spr_last_error(comm), death->must_name))
        fail_with(comm, status);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_ERR_REVOKED);
    free(x);
}

static void kill_one(const char *transport, int size, const struct death *death)
{
    struct job job;

    job_start(&job, size, transport, run_until_lost, (void *)(uintptr_t)death);
    job_await(job_counter(&job, 0), size);
    job_pause_ms(5);
    kill(job.pids[death->victim], SIGKILL);
    assert_true(job_wait(&job, SECONDS));
    atomic_store(job_counter(&job, 1), 1); /* now the orphan may end */
    for (int r = 0; r < size; r++)
        assert_int_equal(job.codes[r], r == death->victim ? 128 + SIGKILL : 0);
}

static void a_killed_rank_is_named_whatever_its_size(void **state)
{
    /* Sanitizers multiply memory. */
    const size_t sizes[] = {0, spr_time_factor() > 1 ? GIB / 16 : GIB};

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++) {
            struct death death = {.victim = (int)(t + s) % 4,
                                  .ballast_bytes = sizes[s],
                                  .must_name = sizes[s] == GIB ? "robust futex" : ""};
            kill_one(job_transports[t], 4, &death);
        }
    }
}

/* Data loaders are forked; one that outlives its parent keeps the parent's connections open. */
static void a_child_that_lives_on_does_not_hide_its_parents_death(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct death death = {.victim = (int)t % 2, .orphan = true, .must_name = "rank"};
        kill_one(job_transports[t], 2, &death);
    }
}

/* Stopped -------------------------------------------------------------------------------------- */

static void run_stopped_for_a_while(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 20000 };
    float *x = calloc(N, sizeof *x);

    atomic_fetch_add(job_counter(job, 0), 1);
    for (int done = 0, all = 0; !all; done++) {
        x[0] = (float)done;
        x[1] = atomic_load(job_counter(job, 1)) ? 1 : 0;
        RANK_CHECK(spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        RANK_CHECK(x[0] == (float)(done * job->size));
        all = x[1] == (float)job->size;
    }
    (void)rank;
    free(x);
}

static void a_rank_that_was_stopped_below_the_limit_goes_on(void **state)
{
    (void)state;
    setenv("SPARRING_LOG", "error", 1); /* that it is suspected is right */
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 3, job_transports[t], run_stopped_for_a_while, NULL);
        job_await(job_counter(&job, 0), 3);
        kill(job.pids[1], SIGSTOP);
        job_pause_ms(500);
        kill(job.pids[1], SIGCONT);
        atomic_store(job_counter(&job, 1), 1);
        job_expect_success(&job, SECONDS);
    }
    unsetenv("SPARRING_LOG");
}

static void run_expelled(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 20000 };
    float *x = calloc(N, sizeof *x);
    spr_status status = SPR_OK;

    atomic_fetch_add(job_counter(job, 0), 1);
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);
    if (rank == 1) {
        if (status != SPR_ERR_EXPELLED || !strstr(spr_last_error(comm), "heartbeat"))
            fail_with(comm, status);
        RANK_CHECK(spr_barrier(comm, NULL) == SPR_ERR_EXPELLED);
    } else {
        if (status != SPR_ERR_RANK_LOST || !strstr(spr_last_error(comm), "rank 1") ||
            !strstr(spr_last_error(comm), "expelled: no heartbeat for "))
            fail_with(comm, status);
        atomic_fetch_add(job_counter(job, 1), 1);
    }
    free(x);
}

static void a_rank_that_was_stopped_too_long_is_expelled_and_told(void **state)
{
    (void)state;
    setenv("SPARRING_LOG", "error", 1);
    setenv("SPARRING_EXPEL", "1s", 1);
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int wait = 0; wait < 2; wait++) {
            struct job job;
            job_start(&job, 3, job_transports[t], run_expelled, NULL);
            job_await(job_counter(&job, 0), 3);
            kill(job.pids[1], SIGSTOP);
            job_await(job_counter(&job, 1), 2);
            job_pause_ms(wait * 500); /* the others have ended by then */
            kill(job.pids[1], SIGCONT);
            job_expect_success(&job, SECONDS);
        }
    }
    unsetenv("SPARRING_EXPEL");
    unsetenv("SPARRING_LOG");
}

/* All at once: a suspended job, a laptop that slept. */
static void a_job_that_was_stopped_as_a_whole_goes_on(void **state)
{
    (void)state;
    setenv("SPARRING_LOG", "error", 1);
    setenv("SPARRING_EXPEL", "300ms", 1);
    setenv("SPARRING_SUSPECT", "150ms", 1);
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 3, job_transports[t], run_stopped_for_a_while, NULL);
        job_await(job_counter(&job, 0), 3);
        for (int r = 0; r < 3; r++)
            kill(job.pids[r], SIGSTOP);
        pause_scaled(1);
        for (int r = 0; r < 3; r++)
            kill(job.pids[r], SIGCONT);
        atomic_store(job_counter(&job, 1), 1);
        job_expect_success(&job, SECONDS);
    }
    unsetenv("SPARRING_SUSPECT");
    unsetenv("SPARRING_EXPEL");
    unsetenv("SPARRING_LOG");
}

/* Leaving -------------------------------------------------------------------------------------- */

/* Rank 0 destroys its communicator and lives on; rank 1 destroys it and ends. */
static void run_leave(struct job *job, int rank, spr_comm *comm)
{
    spr_log_set_sink(count_warnings, NULL);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    if (rank < 2) {
        spr_comm_destroy(comm);
        atomic_fetch_add(job_counter(job, 0), 1);
        if (rank == 0)
            job_await(job_counter(job, 1), job->size - 2);
        RANK_CHECK(atomic_load(&warnings) == 0);
        _exit(0);
    }
    job_await(job_counter(job, 0), 2);
    pause_scaled(0.5);
    RANK_CHECK(spr_comm_progress(comm) >= 0);
    if (*spr_last_error(comm))
        fail_with(comm, SPR_OK);
    RANK_CHECK(atomic_load(&warnings) == 0);
    atomic_fetch_add(job_counter(job, 1), 1);
}

static void who_leaves_in_order_is_not_missed(void **state)
{
    (void)state;
    setenv("SPARRING_EXPEL", "300ms", 1);
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int caller = 0; caller < 2; caller++) {
            struct job job;
            setenv("SPARRING_PROGRESS", caller ? "caller" : "thread", 1);
            job_start(&job, 4, job_transports[t], run_leave, NULL);
            unsetenv("SPARRING_PROGRESS");
            job_expect_success(&job, SECONDS);
        }
    }
    unsetenv("SPARRING_EXPEL");
}

/* In a ring every rank waits for its neighbour, which waits for another one. */
static void miss_a_call(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 100000 };
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    float *x = calloc(N, sizeof *x);

    options.algorithm = "ring";
    options.timeout_s = 1;
    RANK_CHECK(x && spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, &options) == SPR_OK);
    if (rank == 2) {
        job_await(job_counter(job, 0), job->size - 1);
    } else {
        spr_status status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, &options);
        if (status != SPR_ERR_DEADLINE ||
            !strstr(spr_last_error(comm), "; rank 2 has not called it: its last was #1"))
            fail_with(comm, status);
        atomic_fetch_add(job_counter(job, 0), 1);
    }
    free(x);
}

static void a_deadline_names_who_did_not_come(void **state)
{
    (void)state;
    job_on_all_transports(5, miss_a_call, NULL, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_names_who_did_not_come),
        cmocka_unit_test(a_killed_rank_is_named_whatever_its_size),
        cmocka_unit_test(a_child_that_lives_on_does_not_hide_its_parents_death),
        cmocka_unit_test(a_rank_that_was_stopped_below_the_limit_goes_on),
        cmocka_unit_test(a_rank_that_was_stopped_too_long_is_expelled_and_told),
        cmocka_unit_test(a_job_that_was_stopped_as_a_whole_goes_on),
        cmocka_unit_test(who_leaves_in_order_is_not_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
