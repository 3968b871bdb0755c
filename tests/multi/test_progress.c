/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who moves the bytes, and who is woken: real processes and waiting threads. Callers with an event
 * loop: test_poller.c.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/multi/job.h"

#define SECONDS 30
#define FAR_TOO_LONG_MS 5000

static double seconds_since(uint64_t ns) { return (double)(spr_monotonic_ns() - ns) * 1e-9; }

/* Elements, fewer where everything is slower. */
static size_t scaled(size_t n)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");
    double factor = scale ? strtod(scale, NULL) : 1;

    return (size_t)((double)n * (factor < 1 ? factor : 1)) + 64;
}

/* All ranks of the job meet; `round` counts from 0, each used once. */
static void meet(struct job *job, int round)
{
    _Atomic int *count = job_counter(job, round);

    atomic_fetch_add(count, 1);
    job_await(count, job->size);
}

/* A time that one rank tells the others. */
static _Atomic uint64_t *shared_time(struct job *job)
{
    return (_Atomic uint64_t *)(void *)(job->shared + 4096);
}

static void on_all_transports(int size, const char *progress,
                              void (*rank_main)(struct job *job, int rank, spr_comm *comm))
{
    setenv("SPARRING_PROGRESS", progress, 1);
    job_on_all_transports(size, rank_main, NULL, SECONDS);
    unsetenv("SPARRING_PROGRESS");
}

/* Many in flight ------------------------------------------------------------------------------- */

static void run_late_and_one_by_one(struct job *job, int rank, spr_comm *comm)
{
    enum { OPERATIONS = 14 };
    const size_t n = scaled(3000000);
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *requests[OPERATIONS];
    float *x[OPERATIONS];

    options.timeout_s = SECONDS / 2;
    for (int i = 0; i < OPERATIONS; i++) {
        x[i] = calloc(n, sizeof **x);
        x[i][i] = x[i][n - 1] = (float)(rank + 1);
    }
    if (rank == job->size - 1)
        job_pause_ms(500);
    for (int i = 0; i < OPERATIONS; i++) {
        RANK_CHECK(spr_iallreduce(comm, x[i], x[i], n, SPR_FP32, SPR_SUM, &options, &requests[i]) ==
                   SPR_OK);
        if (rank == job->size - 1)
            RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (requests[i])
            RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
        RANK_CHECK(x[i][i] == 6 && x[i][n - 1] == 6);
        free(x[i]);
    }
}

static void a_late_rank_that_waits_for_each_is_served(void **state)
{
    (void)state;
    on_all_transports(3, "thread", run_late_and_one_by_one);
}

/* How often rank 0's waits for the last of several operations gave up. */
static int wait_shortly(int rank, spr_comm *comm)
{
    enum { OPERATIONS = 16 };
    const size_t n = scaled(2000000);
    spr_request *requests[OPERATIONS], **last = &requests[OPERATIONS - 1];
    float *x[OPERATIONS];
    int gave_up = 0;

    for (int i = 0; i < OPERATIONS; i++) {
        x[i] = calloc(n, sizeof **x);
        RANK_CHECK(spr_iallreduce(comm, x[i], x[i], n, SPR_FP32, SPR_SUM, NULL, &requests[i]) ==
                   SPR_OK);
    }
    while (rank == 0 && *last) {
        spr_status status = spr_wait(last, 0.001);
        RANK_CHECK(status == SPR_OK || status == SPR_ERR_TIMEOUT);
        gave_up += status == SPR_ERR_TIMEOUT;
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (requests[i])
            RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
        free(x[i]);
    }
    return gave_up;
}

static void run_short_waits(struct job *job, int rank, spr_comm *comm)
{
    int gave_up = 0;

    (void)job;
    /* Rank 0 may not get a CPU until all is done; but not every time. */
    for (int i = 0; i < 5; i++)
        gave_up += wait_shortly(rank, comm);
    /* A wait that ignored its limit would come back once, with everything done. */
    RANK_CHECK(rank != 0 || gave_up > 0);
}

static void a_wait_gives_up_in_time_however_much_moves(void **state)
{
    (void)state;
    on_all_transports(2, "thread", run_short_waits);
}

/* Wake-ups ------------------------------------------------------------------------------------- */

static void note(void *ctx, spr_status status)
{
    atomic_store((_Atomic int *)ctx, status == SPR_OK ? 1 : -1);
}

static void *wait_for(void *request)
{
    RANK_CHECK(spr_wait(request, -1) == SPR_OK);
    return NULL;
}

/* X and Z are waited for by two threads; nobody waits for Y. */
static void run_callback_only(struct job *job, int rank, spr_comm *comm)
{
    enum { LOOPS = 50, SMALL = 64, LARGE = 300000 };
    static float x[SMALL], z[SMALL], y[LARGE];

    (void)job;
    for (int i = 0; i < LOOPS; i++) {
        spr_request *rx, *ry, *rz;
        _Atomic int done = 0;
        pthread_t thread;
        uint64_t begin;
        RANK_CHECK(spr_iallreduce(comm, x, x, SMALL, SPR_FP32, SPR_SUM, NULL, &rx) == SPR_OK);
        RANK_CHECK(spr_iallreduce(comm, z, z, SMALL, SPR_FP32, SPR_SUM, NULL, &rz) == SPR_OK);
        RANK_CHECK(spr_iallreduce(comm, y, y, LARGE, SPR_FP32, SPR_SUM, NULL, &ry) == SPR_OK);
        spr_on_complete(ry, note, &done);
        if (rank == 1 && i % 2)
            job_pause_ms(1);
        RANK_CHECK(pthread_create(&thread, NULL, wait_for, &rx) == 0);
        wait_for(&rz);
        pthread_join(thread, NULL);
        begin = spr_monotonic_ns();
        while (rank == 0 && !atomic_load(&done)) {
            RANK_CHECK(seconds_since(begin) < 5 * spr_time_factor());
            nanosleep(&(struct timespec){0, 50000}, NULL);
        }
        wait_for(&ry);
        RANK_CHECK(atomic_load(&done) == 1);
    }
}

static void a_request_with_only_a_callback_completes(void **state)
{
    (void)state;
    on_all_transports(2, "thread", run_callback_only);
}

/* Rank 1 gives up between two operations and never calls again. */
static void run_quiet_abort(struct job *job, int rank, spr_comm *comm)
{
    spr_request *request = NULL;
    float x[1000] = {0};
    spr_status status;

    meet(job, 0);
    if (rank == 1) {
        job_pause_ms(50);
        atomic_store(shared_time(job), spr_monotonic_ns());
        spr_comm_abort(comm, "nothing left to do");
        meet(job, 1);
        return;
    }
    RANK_CHECK(spr_iallreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL, &request) == SPR_OK);
    while ((status = spr_test(&request)) == SPR_IN_PROGRESS)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    RANK_CHECK(status == SPR_ERR_REVOKED);
    RANK_CHECK(seconds_since(atomic_load(shared_time(job))) < 1.0 * spr_time_factor());
    RANK_CHECK(strstr(spr_last_error(comm), "nothing left to do"));
    meet(job, 1);
}

static void an_abort_leaves_even_when_nothing_runs(void **state)
{
    (void)state;
    on_all_transports(3, "thread", run_quiet_abort);
    on_all_transports(3, "caller", run_quiet_abort);
}

/* Waiting
 * ------------------------------------------------------------------------------------------ */

static void run_endless(struct job *job, int rank, spr_comm *comm)
{
    static const double endless[] = {(double)INFINITY, 1e300};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    (void)job;
    for (size_t i = 0; i < SPR_ARRAY_LEN(endless); i++) {
        spr_request *request;
        options.timeout_s = endless[i];
        if (rank == 1)
            job_pause_ms(100);
        RANK_CHECK(spr_barrier(comm, &options) == SPR_OK);
        if (rank == 1)
            job_pause_ms(100);
        RANK_CHECK(spr_ibarrier(comm, &options, &request) == SPR_OK);
        RANK_CHECK(spr_wait(&request, endless[i]) == SPR_OK);
    }
}

static void endless_timeouts_work(void **state)
{
    (void)state;
    on_all_transports(2, "thread", run_endless);
    on_all_transports(2, "caller", run_endless);
}

/* Whoever drives lets the others in, also while there is no reason to sleep. */
static spr_status never(struct spr_transport *t)
{
    (void)t;
    return SPR_IN_PROGRESS;
}

static void run_restless(struct job *job, int rank, spr_comm *comm)
{
    static struct spr_transport_ops ops[SPR_MAX_TRANSPORTS];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    float x = 1;

    (void)job;
    options.timeout_s = SECONDS / 2;
    spr_comm_lock(comm);
    comm->may_spin = false; /* which lets them in, too */
    for (int i = 0; i < comm->transport_count; i++) {
        ops[i] = *comm->transports[i]->ops;
        ops[i].arm = never;
        comm->transports[i]->ops = &ops[i];
    }
    spr_comm_kick(comm);
    spr_comm_unlock(comm);
    for (int i = 0; i < 100; i++)
        RANK_CHECK(spr_allreduce(comm, &x, &x, 1, SPR_FP32, SPR_MAX, &options) == SPR_OK);
    RANK_CHECK(rank >= 0 && x == 1);
}

static void a_driver_that_never_sleeps_lets_others_in(void **state)
{
    (void)state;
    on_all_transports(2, "thread", run_restless);
}

/* Rank 1 is late; rank 0 waits, in slices of so many seconds. Who waits long must leave the CPU to
 * others, however often it asks. */
static void wait_for_the_late(struct job *job, int rank, spr_comm *comm, double slice_s)
{
    enum { LATE_MS = 500 };
    spr_stats before = {.struct_size = sizeof before}, after = before;
    spr_request *request;
    float x = 1;
    clock_t cpu;

    (void)job;
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    if (rank == 1)
        job_pause_ms(LATE_MS);
    RANK_CHECK(spr_comm_stats(comm, &before) == SPR_OK);
    cpu = clock();
    RANK_CHECK(spr_iallreduce(comm, &x, &x, 1, SPR_FP32, SPR_SUM, NULL, &request) == SPR_OK);
    while (request) {
        spr_status status = spr_wait(&request, slice_s);
        RANK_CHECK(status == SPR_OK || (status == SPR_ERR_TIMEOUT && slice_s > 0));
    }
    cpu = clock() - cpu;
    RANK_CHECK(spr_comm_stats(comm, &after) == SPR_OK);
    if (rank == 0) {
        RANK_CHECK(after.sleeps > before.sleeps);
        RANK_CHECK((double)cpu * 1e3 / CLOCKS_PER_SEC < LATE_MS / 2);
    }
    RANK_CHECK(x == 2);
}

static void run_patient(struct job *job, int rank, spr_comm *comm)
{
    wait_for_the_late(job, rank, comm, -1);
    wait_for_the_late(job, rank, comm, 0.01);
}

static void who_waits_long_sleeps(void **state)
{
    (void)state;
    on_all_transports(2, "thread", run_patient);
    on_all_transports(2, "caller", run_patient);
}

/* Otherwise a ring that nothing goes over would leave progress to one thread. */
static void run_nearby(struct job *job, int rank, spr_comm *comm)
{
    (void)job;
    RANK_CHECK(!strcmp(spr_comm_transport(comm, 1 - rank), "shm"));
    RANK_CHECK(comm->transport_count == 2); /* the other one is to itself */
    RANK_CHECK(!comm->thread_only);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

static void transports_that_lead_to_nobody_are_closed(void **state)
{
    static const char *const lists[] = {
        "auto",
        "shm,epoll",
#ifdef HAVE_URING
        "auto,uring",
#endif
    };
    struct job job;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        job_start(&job, 2, lists[i], run_nearby, NULL);
        job_expect_success(&job, SECONDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_that_waits_for_each_is_served),
        cmocka_unit_test(a_wait_gives_up_in_time_however_much_moves),
        cmocka_unit_test(a_request_with_only_a_callback_completes),
        cmocka_unit_test(an_abort_leaves_even_when_nothing_runs),
        cmocka_unit_test(endless_timeouts_work),
        cmocka_unit_test(a_driver_that_never_sleeps_lets_others_in),
        cmocka_unit_test(who_waits_long_sleeps),
        cmocka_unit_test(transports_that_lead_to_nobody_are_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
