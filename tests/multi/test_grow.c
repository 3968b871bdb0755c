/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Real processes that join a communicator: who comes, and what they get; after deaths, again and
 * again.
 */
#include <dirent.h>
#include <malloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "tests/multi/grow.h"

/* ---- Taking in ---- */

struct intake {
    int newcomers, at_least;
    double wait_s;
    size_t state_bytes;
    int state_rank;
    int size; /* afterwards */
};

static void take_in(struct job *job, int rank, spr_comm *comm)
{
    const struct intake *intake = job->arg;
    spr_grow_options options = grow_options();
    unsigned char *state = NULL;
    spr_comm *grown;

    options.newcomers = intake->newcomers;
    options.at_least = intake->at_least;
    options.state_rank = intake->state_rank;
    if (intake->wait_s > 0)
        options.wait_s = intake->wait_s;
    if (rank == intake->state_rank && intake->state_bytes > 0) {
        options.state = state = grow_state(intake->state_bytes);
        options.state_bytes = intake->state_bytes;
    }
    grow_check_sums(comm);
    grown = grow_members(comm, &options);
    free(state);
    RANK_CHECK(spr_comm_rank(grown) == rank && spr_comm_size(grown) == intake->size);
    grow_leave(comm, grown);
}

static void expect_intake(const char *transport, int members, struct intake intake, int start)
{
    struct newcomer how = {
        .transports = transport, .expected_size = intake.size, .state_bytes = intake.state_bytes};
    pid_t pids[8];
    struct job job;

    grow_choose_place();
    job_start(&job, members, transport, take_in, &intake);
    for (int i = 0; i < start; i++)
        pids[i] = grow_start(&how);
    for (int i = 0; i < start; i++)
        assert_int_equal(grow_end_of(pids[i]), 0);
    job_expect_success(&job, GROW_SECONDS);
}

static void newcomers_are_taken_in(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        expect_intake(job_transports[t], 3, (struct intake){1, 0, 0, 0, 0, 4}, 1);
        expect_intake(job_transports[t], 1, (struct intake){3, 0, 0, 1000001, 0, 4}, 3);
    }
}

static void a_large_state_is_handed_over(void **state)
{
    (void)state;
    expect_intake("shm", 2, (struct intake){1, 0, 0, (size_t)100 << 20, 1, 3}, 1);
    expect_intake("auto", 3, (struct intake){2, 0, 0, ((size_t)100 << 20) + 3, 2, 5}, 2);
    expect_intake("epoll", 2, (struct intake){1, 0, 0, 3, 0, 3}, 1);
}

/* At the deadline those who came are enough. */
static void fewer_may_do(void **state)
{
    (void)state;
    expect_intake("epoll", 2, (struct intake){3, 1, 2, 8, 0, 4}, 2);
}

/* Of two newcomers one goes away before both are there, and comes again. */
static void a_newcomer_dies_while_it_waits(void **state)
{
    struct intake intake = {2, 0, 0, 0, 0, 4};
    struct newcomer how = {.transports = "epoll", .expected_size = 4};
    struct job job;
    pid_t pids[2];

    (void)state;
    grow_choose_place();
    job_start(&job, 2, "epoll", take_in, &intake);
    pids[0] = grow_start(&how);
    job_pause_ms(300);
    kill(pids[0], SIGKILL);
    assert_int_equal(grow_end_of(pids[0]), 128 + SIGKILL);
    for (int i = 0; i < 2; i++)
        pids[i] = grow_start(&how);
    for (int i = 0; i < 2; i++)
        assert_int_equal(grow_end_of(pids[i]), 0);
    job_expect_success(&job, GROW_SECONDS);
}

/* ---- Members that have to compute yet ---- */

struct lateness {
    long ms; /* of the members above 0 */
    bool comes_to_nothing;
};

static void come_late(struct job *job, int rank, spr_comm *comm)
{
    const struct lateness *late = job->arg;
    spr_grow_options options = grow_options();
    spr_comm *grown = NULL;

    grow_check_sums(comm);
    grow_meet(job, 0, 3);
    if (rank > 0)
        job_pause_ms((long)((double)late->ms * spr_time_factor()));
    if (!late->comes_to_nothing) {
        grow_leave(comm, grow_members(comm, &options));
    } else {
        options.wait_s = 0.2;
        RANK_CHECK(spr_comm_grow(comm, &options, &grown) != SPR_OK);
        grow_check_sums(comm);
    }
}

static void wait_in_vain(void *arg)
{
    spr_grow_options options = grow_options();
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;

    (void)arg;
    create.transports = "epoll";
    create.secret = job_secret;
    create.secret_bytes = job_secret ? strlen(job_secret) + 1 : 0;
    options.create = &create;
    options.wait_s = 2;
    RANK_CHECK(spr_comm_grow(NULL, &options, &comm) == SPR_ERR_BOOTSTRAP && !comm);
    if (!strstr(spr_last_error(NULL), "still waits") ||
        !strstr(spr_last_error(NULL), "for rank 1 to call spr_comm_grow")) {
        fprintf(stderr, "newcomer: %s\n", spr_last_error(NULL));
        _exit(1);
    }
}

/* A newcomer that waits in vain, or as `how` says. */
static void meet_late(struct lateness *late, const struct newcomer *how)
{
    struct job job;
    pid_t pid;

    setenv("SPARRING_INIT_TIMEOUT", "2s", 1);
    grow_choose_place();
    job_start(&job, 2, "epoll", come_late, late);
    pid = how ? grow_start(how) : grow_fork(wait_in_vain, NULL);
    grow_meet(&job, 0, 3);
    assert_int_equal(grow_end_of(pid), 0);
    job_expect_success(&job, GROW_SECONDS);
    unsetenv("SPARRING_INIT_TIMEOUT");
}

/* The time that the caller gives counts, also where the job's own is shorter. */
static void a_newcomer_waits_as_long_as_it_is_told(void **state)
{
    struct newcomer how = {.transports = "epoll", .expected_size = 3, .wait_s = 20};
    struct lateness late = {.ms = 3500};

    (void)state;
    meet_late(&late, &how);
}

static void a_newcomer_says_for_which_member_it_has_waited(void **state)
{
    struct lateness late = {.ms = 6000, .comes_to_nothing = true};

    (void)state;
    meet_late(&late, NULL);
}

/* ---- Deaths, and restarts ---- */

#define ROUNDS 20
#define FIRST_ROUNDS 4 /* until everything has been allocated that is kept */

/* What a process holds. */
struct holdings {
    int descriptors, threads;
    size_t heap;
};

static int entries(const char *path)
{
    DIR *directory = opendir(path);
    int n = 0;

    RANK_CHECK(directory != NULL);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static struct holdings holdings(void)
{
    return (struct holdings){entries("/proc/self/fd"), entries("/proc/self/task"),
                             mallinfo2().uordblks + mallinfo2().hblkhd};
}

static void check_holdings(const struct holdings *before)
{
    const uint64_t limit = spr_monotonic_ns() + spr_seconds_ns(10 * spr_time_factor());
    struct holdings now = holdings();

    /* A thread that has been joined is there until the kernel has put it away. */
    while (now.threads > before->threads && spr_monotonic_ns() < limit) {
        sched_yield();
        now = holdings();
    }
    if (now.descriptors != before->descriptors || now.threads != before->threads ||
        now.heap > before->heap + 100000) {
        fprintf(stderr, "leaks: %d descriptors, %d threads, %zu bytes; before %d, %d, %zu\n",
                now.descriptors, now.threads, now.heap, before->descriptors, before->threads,
                before->heap);
        _exit(95);
    }
}

/* In each round the last rank dies, the others shrink, and a new process takes its place. */
static void lose_and_take_in(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = grow_options();
    struct holdings before = {0};

    for (int round = 0;; round++) {
        spr_shrink_info info = SPR_SHRINK_INFO_INIT;
        float x = 1, sum;
        spr_comm *grown;

        grow_check_sums(comm);
        grow_meet(job, round, 3);
        if (rank == 2)
            raise(SIGKILL);
        while (spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK)
            ;
        RANK_CHECK(spr_comm_shrink(comm, 5, &info) == SPR_OK && info.lost == 1);
        grown = grow_members(comm, &options);
        spr_comm_destroy(comm);
        comm = grown;
        if (round == FIRST_ROUNDS)
            before = holdings();
        else if (round > FIRST_ROUNDS)
            check_holdings(&before);
        RANK_CHECK(spr_comm_rank(comm) == rank && spr_comm_size(comm) == 3);
        RANK_CHECK(spr_comm_initial_rank(comm, 2) == 2);
        if (round == ROUNDS - 1)
            break;
    }
    grow_check_sums(comm);
    spr_comm_destroy(comm);
    _exit(0);
}

struct replacement {
    struct job *job;
    int round;
};

/* A newcomer that dies in the next round, but the last. */
static void replace(void *arg)
{
    const struct replacement *r = arg;
    struct newcomer how = {.transports = r->job->transports};
    spr_comm *comm = grow_join(&how, &(struct taken){NULL, 0});

    RANK_CHECK(spr_comm_rank(comm) == 2 && spr_comm_size(comm) == 3);
    grow_check_sums(comm);
    if (r->round < ROUNDS - 1) {
        grow_meet(r->job, r->round + 1, 3);
        raise(SIGKILL);
    }
    spr_comm_destroy(comm);
}

static void the_dead_are_replaced(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        grow_choose_place();
        job_start(&job, 3, job_transports[t], lose_and_take_in, NULL);
        for (int round = 0; round < ROUNDS; round++) {
            int code = grow_end_of(grow_fork(replace, &(struct replacement){&job, round}));
            assert_int_equal(code, round < ROUNDS - 1 ? 128 + SIGKILL : 0);
        }
        assert_true(job_wait(&job, GROW_SECONDS));
        assert_int_equal(job.codes[0], 0);
        assert_int_equal(job.codes[1], 0);
        assert_int_equal(job.codes[2], 128 + SIGKILL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newcomers_are_taken_in),
        cmocka_unit_test(a_large_state_is_handed_over),
        cmocka_unit_test(fewer_may_do),
        cmocka_unit_test(a_newcomer_dies_while_it_waits),
        cmocka_unit_test(a_newcomer_waits_as_long_as_it_is_told),
        cmocka_unit_test(a_newcomer_says_for_which_member_it_has_waited),
        cmocka_unit_test(the_dead_are_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
