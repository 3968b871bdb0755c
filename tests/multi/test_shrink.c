/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Real processes that are killed one after the other; those that are left go on.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 60
#define COUNT 300000
#define RANKS 5

static uint64_t seed;

struct order {
    int victims[RANKS - 1]; /* in this order */
    long after_us[RANKS - 1];
};

static float in[COUNT], out[COUNT];

/* Wait until `ranks` of them are here; without the communicator. */
static void meet(struct job *job, int where, int ranks)
{
    _Atomic int *here = (_Atomic int *)(void *)job->shared + where;

    atomic_fetch_add(here, 1);
    while (atomic_load(here) < ranks)
        usleep(100);
}

/* Sum until something fails. */
static spr_status sum(spr_comm *comm, float expected)
{
    spr_status status;

    do {
        status = spr_allreduce(comm, in, out, COUNT, SPR_FP32, SPR_SUM, NULL);
        RANK_CHECK(status || (out[0] == expected && out[COUNT - 1] == expected));
    } while (status == SPR_OK);
    return status;
}

static void die_later(long us)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {{0, 0}, {us / 1000000, us % 1000000 * 1000}};
    timer_t timer;

    RANK_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    RANK_CHECK(timer_settime(timer, 0, &when, NULL) == 0);
}

static void survive(struct job *job, int rank, spr_comm *comm)
{
    const struct order *order = job->arg;
    float expected = 0;
    bool dead[RANKS] = {false};

    /* Nobody dies while others are still on their way into the communicator. */
    meet(job, 0, RANKS);
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(1 << rank);
    for (int round = 0; round < RANKS - 1; round++) {
        spr_shrink_info info = SPR_SHRINK_INFO_INIT;
        int victim = order->victims[round], left = 0, mine = 0;
        expected = 0;
        for (int r = 0; r < RANKS; r++)
            expected += dead[r] ? 0 : (float)(1 << r);
        if (rank == victim)
            die_later(order->after_us[round]);
        /* REVOKED: told between two sums. */
        spr_status status = sum(comm, expected);
        if ((status != SPR_ERR_RANK_LOST && status != SPR_ERR_REVOKED) ||
            !strstr(spr_last_error(comm), "was lost")) {
            fprintf(stderr, "rank %d, round %d: %s\n", rank, round, spr_last_error(comm));
            _exit(1);
        }
        dead[victim] = true;
        for (int r = 0; r < RANKS; r++) {
            mine += !dead[r] && r < rank;
            left += !dead[r];
        }
        if (spr_comm_shrink(comm, 5, &info) != SPR_OK || spr_comm_size(comm) != left ||
            spr_comm_rank(comm) != mine || info.lost != 1 || info.epoch != (uint32_t)round + 2 ||
            info.redo < 0 || info.redo > 1 || spr_comm_initial_rank(comm, mine) != rank) {
            fprintf(stderr, "rank %d, round %d: is %d of %d in epoch %u, redo %d: %s\n", rank,
                    round, spr_comm_rank(comm), spr_comm_size(comm), info.epoch, info.redo,
                    spr_last_error(comm));
            _exit(1);
        }
        meet(job, round + 1, left);
    }
    /* The last one is alone. */
    RANK_CHECK(spr_comm_size(comm) == 1);
    RANK_CHECK(spr_allreduce(comm, in, out, COUNT, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    RANK_CHECK(out[COUNT / 2] == (float)(1 << rank));
}

static void draw(struct order *order, struct spr_rng *rng)
{
    bool dead[RANKS] = {false};

    for (int i = 0; i < RANKS - 1; i++) {
        int victim;
        do
            victim = (int)spr_rng_below(rng, RANKS);
        while (dead[victim]);
        dead[victim] = true;
        order->victims[i] = victim;
        order->after_us[i] = 1000 + (long)spr_rng_below(rng, 30000);
    }
}

static void those_that_are_left_go_on(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (uint64_t trial = 0; trial < 4; trial++) {
            struct spr_rng rng = {seed, trial << 8 | t};
            struct order order;
            struct job job;
            draw(&order, &rng);
            job_start(&job, RANKS, job_transports[t], survive, &order);
            if (!job_wait(&job, SECONDS))
                fail_msg("%s, trial %llu: hangs", job_transports[t], (unsigned long long)trial);
            for (int r = 0; r < RANKS; r++) {
                bool victim = false;
                for (int i = 0; i < RANKS - 1; i++)
                    victim |= order.victims[i] == r;
                if (job.codes[r] != (victim ? 128 + SIGKILL : 0))
                    fail_msg("%s, trial %llu: rank %d ended with %d", job_transports[t],
                             (unsigned long long)trial, r, job.codes[r]);
            }
        }
    }
}

static void abort_and_go_on(struct job *job, int rank, spr_comm *comm)
{
    float ones[100], sums[100];
    for (size_t i = 0; i < SPR_ARRAY_LEN(ones); i++)
        ones[i] = 1;
    for (int round = 0; round < 10; round++) {
        spr_status status;
        /* The abort must not hit a rank that has not completed the last sum. */
        meet(job, round, job->size);
        if (rank == round % job->size)
            spr_comm_abort(comm, "loss is NaN");
        status = spr_allreduce(comm, ones, sums, 100, SPR_FP32, SPR_SUM, NULL);
        RANK_CHECK(status == SPR_ERR_REVOKED); /* one takes no part in it */
        RANK_CHECK(spr_comm_shrink(comm, 5, NULL) == SPR_OK);
        RANK_CHECK(spr_comm_size(comm) == job->size && spr_comm_rank(comm) == rank);
        RANK_CHECK(spr_allreduce(comm, ones, sums, 100, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        RANK_CHECK(sums[99] == (float)job->size);
    }
}

static void an_abort_is_repaired(void **state)
{
    (void)state;
    job_on_all_transports(3, abort_and_go_on, NULL, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_are_left_go_on),
        cmocka_unit_test(an_abort_is_repaired),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
