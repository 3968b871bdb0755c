/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A network that goes away: for a while, which changes nothing, and for good, which ends with an
 * error that names who is waited for, in time. In a namespace whose only link the test takes down.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 60
#define RANKS 3
#define DEADLINE_S 2.0

/* In shared memory. */
struct scene {
    _Atomic int ready, enough;
};

static spr_status one_round(spr_comm *comm)
{
    enum { N = 200000 };
    static float x[N];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_status status;

    options.name = "layer3";
    options.timeout_s = DEADLINE_S;
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(spr_comm_rank(comm) + 1) * (float)(i % 100);
    status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, &options);
    for (size_t i = 0; status == SPR_OK && i < N; i++)
        RANK_CHECK(x[i] == (float)(RANKS * (RANKS + 1) / 2) * (float)(i % 100));
    return status;
}

static void run_rank(struct job *job, int rank, spr_comm *comm)
{
    struct scene *scene = (void *)job->shared;
    bool lasting = *(const bool *)job->arg; /* the link stays down */
    spr_status status = SPR_OK;
    int32_t go_on = 1;

    (void)rank;
    atomic_fetch_add(&scene->ready, 1);
    while (go_on && status == SPR_OK) {
        status = one_round(comm);
        go_on = !atomic_load(&scene->enough);
        if (status == SPR_OK && !lasting)
            RANK_CHECK(spr_broadcast(comm, &go_on, 1, SPR_INT32, 0, NULL) == SPR_OK);
    }
    if (!lasting) {
        RANK_CHECK(status == SPR_OK);
        return;
    }
    RANK_CHECK(status == SPR_ERR_DEADLINE);
    RANK_CHECK(strstr(spr_last_error(comm), "'layer3'"));
    RANK_CHECK(strstr(spr_last_error(comm), "waiting for rank"));
}

static void start(struct job *job, const char *transport, bool lasting)
{
    struct scene *scene;

    job_start(job, RANKS, transport, run_rank, &lasting);
    scene = (void *)job->shared;
    while (atomic_load(&scene->ready) < RANKS)
        fault_pause_us(1000);
    fault_pause_us(20000);
}

static void need_network(void **state)
{
    if (*(bool *)*state)
        return;
    print_message("needs a network namespace of its own\n");
    skip();
}

static void a_link_that_is_down_for_a_while_is_waited_for(void **state)
{
    need_network(state);
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        if (!fault_is_inside(job_transports[t]))
            continue;
        start(&job, job_transports[t], false);
        for (int i = 0; i < fault_repeats(3, 300); i++) {
            assert_true(fault_loopback(false));
            fault_pause_us(100000);
            assert_true(fault_loopback(true));
            fault_pause_us(300000); /* TCP tries again after 200 ms, then 400 ms */
        }
        atomic_store(&((struct scene *)(void *)job.shared)->enough, 1);
        job_expect_success(&job, SECONDS);
    }
}

static void one_that_stays_down_ends_with_the_deadline(void **state)
{
    need_network(state);
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        if (!fault_is_inside(job_transports[t]))
            continue;
        start(&job, job_transports[t], true);
        assert_true(fault_loopback(false));
        job_expect_success(&job, SECONDS);
        assert_true(fault_loopback(true));
    }
}

int main(void)
{
    static bool network;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_link_that_is_down_for_a_while_is_waited_for, &network),
        cmocka_unit_test_prestate(one_that_stays_down_ends_with_the_deadline, &network),
    };

    network = fault_own_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
