/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Callers with an event loop, who move the bytes themselves: what wakes their poll().
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 30
#define FAR_TOO_LONG_MS 5000

static double seconds_since(uint64_t ns) { return (double)(spr_monotonic_ns() - ns) * 1e-9; }

static void count(void *ctx, spr_status status)
{
    atomic_store((_Atomic int *)ctx, status == SPR_OK ? 1 : -1);
}

/* As a program with poll() would wait; a sleep that nothing ends is a failure. */
static spr_status poll_until_done(spr_comm *comm, spr_request **request)
{
    spr_status status;

    while ((status = spr_test(request)) == SPR_IN_PROGRESS) {
        struct pollfd fd = {spr_comm_fd(comm), POLLIN, 0};
        if (spr_comm_arm(comm) == SPR_OK)
            RANK_CHECK(poll(&fd, 1, (int)(FAR_TOO_LONG_MS * spr_time_factor())) == 1);
    }
    return status;
}

static void run_poll_deadline(struct job *job, int rank, spr_comm *comm)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *request;
    float x[1000] = {0};
    uint64_t begin = spr_monotonic_ns();

    if (rank == 0) {
        options.timeout_s = 0.3;
        RANK_CHECK(spr_iallreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, &options, &request) ==
                   SPR_OK);
        RANK_CHECK(poll_until_done(comm, &request) == SPR_ERR_DEADLINE);
        RANK_CHECK(seconds_since(begin) < 2 * spr_time_factor());
    }
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), job->size);
}

static void a_deadline_wakes_the_poller(void **state)
{
    (void)state;
    job_on_all_transports(2, run_poll_deadline, NULL, SECONDS);
}

static void *abort_soon(void *comm)
{
    job_pause_ms(100);
    spr_comm_abort(comm, "another thread");
    return NULL;
}

static void run_poll_abort(struct job *job, int rank, spr_comm *comm)
{
    spr_request *request;
    float x[1000] = {0};
    pthread_t thread;

    if (rank == 0) {
        RANK_CHECK(spr_iallreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL, &request) == SPR_OK);
        RANK_CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        RANK_CHECK(poll_until_done(comm, &request) == SPR_ERR_REVOKED);
        pthread_join(thread, NULL);
    }
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), job->size);
}

static void an_abort_by_another_thread_wakes_the_poller(void **state)
{
    (void)state;
    job_on_all_transports(2, run_poll_abort, NULL, SECONDS);
}

static float posted[300000];

static void *post_soon(void *comm)
{
    static spr_request *request;

    job_pause_ms(100);
    RANK_CHECK(spr_iallreduce(comm, posted, posted, SPR_ARRAY_LEN(posted), SPR_FP32, SPR_SUM, NULL,
                              &request) == SPR_OK);
    return request;
}

/* One thread posts, the other one sleeps on the descriptor and moves the bytes. */
static void run_poll_post(struct job *job, int rank, spr_comm *comm)
{
    struct pollfd fd = {spr_comm_fd(comm), POLLIN, 0};
    spr_request *request;
    _Atomic int done = 0;
    pthread_t thread;
    void *result;

    (void)job;
    (void)rank;
    RANK_CHECK(pthread_create(&thread, NULL, post_soon, comm) == 0);
    while (spr_comm_arm(comm) != SPR_OK)
        RANK_CHECK(spr_comm_progress(comm) >= 0);
    RANK_CHECK(poll(&fd, 1, (int)(FAR_TOO_LONG_MS * spr_time_factor())) == 1);
    pthread_join(thread, &result);
    request = result;
    spr_on_complete(request, count, &done);
    RANK_CHECK(poll_until_done(comm, &request) == SPR_OK);
    RANK_CHECK(atomic_load(&done) == 1);
}

static void a_post_by_another_thread_wakes_the_poller(void **state)
{
    (void)state;
    job_on_all_transports(2, run_poll_post, NULL, SECONDS);
}

static void run_poll_broadcast(struct job *job, int rank, spr_comm *comm)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *request;
    float x[1000] = {0};

    options.algorithm = "direct";
    x[999] = rank == 0 ? 7 : 0;
    for (int i = 0; rank == job->size - 1 && i < 300; i++) {
        RANK_CHECK(spr_comm_progress(comm) >= 0);
        job_pause_ms(1);
    }
    RANK_CHECK(spr_ibroadcast(comm, x, 1000, SPR_FP32, 0, &options, &request) == SPR_OK);
    RANK_CHECK(poll_until_done(comm, &request) == SPR_OK);
    RANK_CHECK(x[999] == 7);
}

static void a_broadcast_to_a_late_poller_does_not_stall(void **state)
{
    (void)state;
    job_on_all_transports(2, run_poll_broadcast, NULL, SECONDS);
    job_on_all_transports(3, run_poll_broadcast, NULL, SECONDS);
}

/* What has woken it once does not keep it awake: rank 1 is late, each time. */
static void run_poll_again(struct job *job, int rank, spr_comm *comm)
{
    enum { ROUNDS = 5, SOME = 200 };

    for (int round = 0; round < ROUNDS; round++) {
        struct pollfd fd = {spr_comm_fd(comm), POLLIN, 0};
        spr_request *request;
        float x[1000] = {0};
        int polls = 0;

        if (rank == 1)
            job_pause_ms(60);
        RANK_CHECK(spr_iallreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL, &request) == SPR_OK);
        while (spr_test(&request) == SPR_IN_PROGRESS)
            if (spr_comm_arm(comm) == SPR_OK) {
                RANK_CHECK(poll(&fd, 1, (int)(FAR_TOO_LONG_MS * spr_time_factor())) == 1);
                polls++;
            }
        RANK_CHECK(polls < SOME);
    }
    (void)job;
}

static void a_poller_sleeps_again(void **state)
{
    (void)state;
    job_on_all_transports(2, run_poll_again, NULL, SECONDS);
}

static void run_test_loop(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 100000 };
    float *x = calloc(N, sizeof *x);
    uint64_t begin = spr_monotonic_ns();

    (void)rank;
    for (int i = 0; i < 20; i++) {
        spr_request *request;
        spr_status status;
        RANK_CHECK(spr_iallreduce(comm, x, x, i % 2 ? N : 10, SPR_FP32, SPR_MAX, NULL, &request) ==
                   SPR_OK);
        while ((status = spr_test(&request)) == SPR_IN_PROGRESS)
            RANK_CHECK(seconds_since(begin) < 20 * spr_time_factor());
        RANK_CHECK(status == SPR_OK);
    }
    (void)job;
    free(x);
}

static void a_loop_around_spr_test_is_enough(void **state)
{
    (void)state;
    job_on_all_transports(2, run_test_loop, NULL, SECONDS);
    setenv("SPARRING_PROGRESS", "thread", 1);
    job_on_all_transports(2, run_test_loop, NULL, SECONDS);
    setenv("SPARRING_PROGRESS", "caller", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_wakes_the_poller),
        cmocka_unit_test(an_abort_by_another_thread_wakes_the_poller),
        cmocka_unit_test(a_post_by_another_thread_wakes_the_poller),
        cmocka_unit_test(a_broadcast_to_a_late_poller_does_not_stall),
        cmocka_unit_test(a_poller_sleeps_again),
        cmocka_unit_test(a_loop_around_spr_test_is_enough),
    };

    setenv("SPARRING_PROGRESS", "caller", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
