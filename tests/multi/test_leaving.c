/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ends: a communicator destroyed under running requests, a goodbye, forked children, ranks that
 * call different things; on every transport.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/multi/job.h"

#define SECONDS 30

static double seconds_since(uint64_t ns) { return (double)(spr_monotonic_ns() - ns) * 1e-9; }

/* Destroying under way ------------------------------------------------------------------------- */

static void count_failure(void *ctx, spr_status status)
{
    RANK_CHECK(status < 0);
    atomic_fetch_add((_Atomic int *)ctx, 1);
}

static void *wait_and_fail(void *request)
{
    RANK_CHECK(spr_wait(request, -1) < 0);
    return NULL;
}

/* Until another thread is in spr_wait(): one that came after the end would find nothing there. On a
 * loaded machine it may take longer than any pause. */
static void await_a_waiter(spr_comm *comm)
{
    for (bool waits = false; !waits; job_pause_ms(1)) {
        spr_comm_lock(comm);
        waits = comm->inside > 0;
        spr_comm_unlock(comm);
    }
}

/* Rank 1 is stopped by the test while rank 0 leaves in the middle of everything. */
static void run_destroy(struct job *job, int rank, spr_comm *comm)
{
    enum { OPERATIONS = 8, N = 1000000 };
    spr_request *requests[OPERATIONS];
    float *x[OPERATIONS];
    _Atomic int failures = 0;
    pthread_t thread;
    uint64_t begin;

    atomic_fetch_add(job_counter(job, 0), 1);
    if (rank == 1) {
        job_await(job_counter(job, 1), 1);
        _exit(0);
    }
    job_await(job_counter(job, 0), 3); /* two ranks, and the test: rank 1 is stopped */
    for (int i = 0; i < OPERATIONS; i++) {
        x[i] = calloc(N, sizeof **x);
        RANK_CHECK(spr_iallreduce(comm, x[i], x[i], N, SPR_FP32, SPR_SUM, NULL, &requests[i]) ==
                   SPR_OK);
        spr_on_complete(requests[i], count_failure, &failures);
    }
    RANK_CHECK(pthread_create(&thread, NULL, wait_and_fail, &requests[0]) == 0);
    await_a_waiter(comm);
    job_pause_ms(50);
    begin = spr_monotonic_ns();
    spr_comm_destroy(comm);
    RANK_CHECK(seconds_since(begin) < 2 * spr_time_factor());
    RANK_CHECK(atomic_load(&failures) == OPERATIONS);
    pthread_join(thread, NULL);
    RANK_CHECK(spr_mem_live() == 0);
    atomic_store(job_counter(job, 1), 1);
    for (int i = 0; i < OPERATIONS; i++)
        free(x[i]);
    _exit(0);
}

static void destroy_ends_what_runs_whatever_the_peer_does(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int caller = 0; caller < 2; caller++) {
            struct job job;
            setenv("SPARRING_PROGRESS", caller ? "caller" : "thread", 1);
            job_start(&job, 2, job_transports[t], run_destroy, NULL);
            unsetenv("SPARRING_PROGRESS");
            job_await(job_counter(&job, 0), 2);
            kill(job.pids[1], SIGSTOP);
            atomic_fetch_add(job_counter(&job, 0), 1);
            job_await(job_counter(&job, 1), 1);
            kill(job.pids[1], SIGCONT);
            job_expect_success(&job, SECONDS);
        }
    }
}

/* Goodbye -------------------------------------------------------------------------------------- */

/* Rank 1 says goodbye and calls nothing of the communicator after it, as a member of one that has
 * grown. */
static void run_goodbye(struct job *job, int rank, spr_comm *comm)
{
    uint64_t deadline = spr_monotonic_ns() + spr_seconds_ns(10 * spr_time_factor());
    bool heard = false;

    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    if (rank == 1) {
        spr_comm_lock(comm);
        RANK_CHECK(spr_comm_leave(comm));
        spr_comm_unlock(comm);
        job_await(job_counter(job, 0), 1);
        _exit(0);
    }
    while (!heard && spr_monotonic_ns() < deadline) {
        RANK_CHECK(spr_comm_progress(comm) >= 0);
        spr_comm_lock(comm);
        heard = comm->channel.peers[1].bye;
        spr_comm_unlock(comm);
    }
    atomic_store(job_counter(job, 0), 1);
    RANK_CHECK(heard);
    _exit(0);
}

static void a_goodbye_is_heard_before_the_end(void **state)
{
    (void)state;
    for (int caller = 0; caller < 2; caller++) {
        setenv("SPARRING_PROGRESS", caller ? "caller" : "thread", 1);
        job_on_all_transports(2, run_goodbye, NULL, SECONDS);
        unsetenv("SPARRING_PROGRESS");
    }
}

/* How rank 2 hears that all is over, before it ends. */
enum last_call { REFUSED, PROGRESS, NOT_FINITE, LAST_CALLS };

static const char *const reasons[LAST_CALLS] = {"the loss is no number", "the disk is full",
                                                "element 7 of the input"};

/* Its reason is heard, not its death. */
static void run_last_words(struct job *job, int rank, spr_comm *comm)
{
    enum last_call last = *(const enum last_call *)job->arg;
    spr_status status = SPR_OK;
    float x[1000] = {0};
    const char *text;

    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), job->size);
    if (rank == 2) {
        x[7] = NAN;
        if (last != NOT_FINITE)
            spr_comm_abort(comm, reasons[last]);
        if (last == PROGRESS)
            while (spr_comm_progress(comm) >= 0)
                job_pause_ms(1);
        else
            RANK_CHECK(spr_allreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL) ==
                       (last == REFUSED ? SPR_ERR_REVOKED : SPR_ERR_INVALID));
        _exit(0);
    }
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL);
    text = spr_last_error(comm);
    if (!strstr(text, reasons[last]))
        fprintf(stderr, "rank %d: %s: %s\n", rank, spr_status_name(status), text);
    RANK_CHECK(strstr(text, reasons[last]));
    _exit(0);
}

static void last_words_are_heard_before_a_death(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int trial = 0; trial < 4 * LAST_CALLS; trial++) {
            enum last_call last = (enum last_call)(trial % LAST_CALLS);
            struct job job;
            setenv("SPARRING_PROGRESS", trial % 2 ? "caller" : "thread", 1);
            setenv("SPARRING_CHECK_FINITE", last == NOT_FINITE ? "yes" : "no", 1);
            job_start(&job, 4, job_transports[t], run_last_words, &last);
            unsetenv("SPARRING_PROGRESS");
            unsetenv("SPARRING_CHECK_FINITE");
            job_expect_success(&job, SECONDS);
        }
}

/* Fork ----------------------------------------------------------------------------------------- */

static void never(void *ctx, spr_status status)
{
    (void)ctx;
    (void)status;
    _exit(8);
}

/* Everything a child may try on its parent's communicator ends at once. */
static _Noreturn void child_main(spr_comm *comm, spr_request *running, spr_codec *codec)
{
    spr_stats stats = {.struct_size = sizeof stats};
    spr_request *request = NULL;
    float x[10] = {0};
    void *memory = x;

    alarm(10);
    if (spr_allreduce(comm, x, x, 10, SPR_FP32, SPR_SUM, NULL) != SPR_ERR_FORKED)
        _exit(1);
    if (spr_ibarrier(comm, NULL, &request) != SPR_ERR_FORKED || request)
        _exit(2);
    if (spr_wait(&running, -1) != SPR_ERR_FORKED || spr_test(&running) != SPR_ERR_FORKED)
        _exit(3);
    if (spr_comm_progress(comm) != SPR_ERR_FORKED)
        _exit(4);
    if (spr_comm_arm(comm) != SPR_ERR_FORKED || spr_comm_stats(comm, &stats) != SPR_ERR_FORKED)
        _exit(6);
    if (spr_mem_alloc(comm, 1, &memory) != SPR_ERR_FORKED || memory != x ||
        spr_mem_register(comm, x, sizeof x) != SPR_ERR_FORKED ||
        spr_mem_deregister(comm, x) != SPR_ERR_FORKED)
        _exit(7);
    spr_mem_free(comm, x);
    spr_on_complete(running, never, NULL);
    spr_cancel(running);
    spr_codec_destroy(codec);
    spr_comm_abort(comm, "a child has no say");
    spr_comm_destroy(comm);
    _exit(*spr_last_error(comm) ? 0 : 5);
}

/* Forks while the library's thread is at work, at any of its steps. */
static void run_fork(struct job *job, int rank, spr_comm *comm)
{
    enum { FORKS = 20, N = 500000 };
    float *x = calloc(N, sizeof *x);
    const spr_layout layout = {1, "w", 0, 100, 1};
    spr_codec *codec = NULL;

    (void)job;
    RANK_CHECK(spr_codec_create("topk:ratio=10%", &layout, 1, &codec) == SPR_OK &&
               spr_compressed_allreduce(comm, codec, x, SPR_SUM, NULL) == SPR_OK);
    for (int i = 0; i < FORKS; i++) {
        spr_request *request;
        int status = 0;
        x[0] = 1;
        RANK_CHECK(spr_iallreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL, &request) == SPR_OK);
        if (rank == 0) {
            pid_t child;
            nanosleep(&(struct timespec){0, i * 40000}, NULL);
            child = fork();
            if (child == 0)
                child_main(comm, request, codec);
            RANK_CHECK(child > 0 && waitpid(child, &status, 0) == child);
            if (status)
                fprintf(stderr, "child: status 0x%x\n", (unsigned)status);
            RANK_CHECK(status == 0);
        }
        RANK_CHECK(spr_wait(&request, -1) == SPR_OK);
        RANK_CHECK(x[0] == 2);
    }
    spr_codec_destroy(codec);
    free(x);
}

static void a_forked_child_is_told_so_and_the_parent_goes_on(void **state)
{
    (void)state;
    job_on_all_transports(2, run_fork, NULL, SECONDS);
}

/* Ranks that disagree -------------------------------------------------------------------------- */

enum { LARGE = 1000000 };
static float buffer[2 * LARGE];

static spr_status counts(spr_comm *comm, bool odd)
{
    return spr_allreduce(comm, buffer, buffer, odd ? 100 : LARGE, SPR_FP32, SPR_SUM, NULL);
}

static spr_status collectives(spr_comm *comm, bool odd)
{
    return odd ? spr_allgather(comm, buffer, buffer, LARGE / 4, SPR_FP32, NULL)
               : spr_reduce_scatter(comm, buffer, buffer, LARGE / 4, SPR_FP32, SPR_SUM, NULL);
}

static spr_status barrier(spr_comm *comm, bool odd)
{
    return odd ? spr_barrier(comm, NULL)
               : spr_allreduce(comm, buffer, buffer, LARGE, SPR_FP32, SPR_SUM, NULL);
}

static spr_status roots(spr_comm *comm, bool odd)
{
    return spr_broadcast(comm, buffer, LARGE, SPR_FP32, odd ? 1 : 0, NULL);
}

static spr_status types(spr_comm *comm, bool odd)
{
    return spr_allreduce(comm, buffer, buffer, 1000, odd ? SPR_INT32 : SPR_FP32, SPR_SUM, NULL);
}

static spr_status operations(spr_comm *comm, bool odd)
{
    return spr_allreduce(comm, buffer, buffer, LARGE, SPR_FP32, odd ? SPR_MAX : SPR_SUM, NULL);
}

static spr_status sparse(spr_comm *comm, bool odd)
{
    uint32_t index[] = {5, 7};
    float value[] = {1, 2};
    spr_sparse list = {index, value, 2, 0};

    return odd ? spr_sparse_allreduce(comm, &list, LARGE, buffer, NULL, SPR_SUM, NULL)
               : spr_allreduce(comm, buffer, buffer, LARGE, SPR_FP32, SPR_SUM, NULL);
}

static const struct {
    const char *what;
    spr_status (*call)(spr_comm *comm, bool odd);
} disagreements[] = {
    {"counts", counts}, {"collectives", collectives}, {"barrier", barrier}, {"roots", roots},
    {"types", types},   {"operations", operations},   {"sparse", sparse},
};

static void run_disagreement(struct job *job, int rank, spr_comm *comm)
{
    int which = *(int *)job->arg;
    spr_status status;

    /* Not before everybody is out of spr_comm_create. */
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), job->size);
    if (rank == which % job->size)
        job_pause_ms(20);
    status = disagreements[which].call(comm, rank == 1);
    if (status != SPR_ERR_MISMATCH || !strstr(spr_last_error(comm), "the ranks disagree: ") ||
        !strstr(spr_last_error(comm), " on rank 1")) {
        fprintf(stderr, "rank %d: %s: %s: %s\n", rank, disagreements[which].what,
                spr_status_name(status), spr_last_error(comm));
        _exit(1);
    }
    /* The communicator works on. */
    buffer[0] = buffer[LARGE - 1] = 1;
    status = spr_allreduce(comm, buffer, buffer, LARGE, SPR_FP32, SPR_SUM, NULL);
    if (status || buffer[0] != (float)job->size || buffer[LARGE - 1] != (float)job->size) {
        fprintf(stderr, "rank %d after %s: %s: %s\n", rank, disagreements[which].what,
                spr_status_name(status), spr_last_error(comm));
        _exit(1);
    }
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int ranks = 2; ranks <= 3; ranks++) {
            for (int i = 0; i < (int)SPR_ARRAY_LEN(disagreements); i++) {
                struct job job;
                job_start(&job, ranks, job_transports[t], run_disagreement, &i);
                job_expect_success(&job, SECONDS);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroy_ends_what_runs_whatever_the_peer_does),
        cmocka_unit_test(a_goodbye_is_heard_before_the_end),
        cmocka_unit_test(last_words_are_heard_before_a_death),
        cmocka_unit_test(a_forked_child_is_told_so_and_the_parent_goes_on),
        cmocka_unit_test(ranks_that_disagree_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
