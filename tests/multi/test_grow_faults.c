/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What can go wrong while processes join a communicator: nobody comes, or who does not fit, and
 * deaths on either side at any moment. The members go on, and all have the same outcome.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/faults.h"
#include "tests/multi/grow.h"

static uint64_t seed;

/* ---- Nobody comes, or not the right one ---- */

/* How a first attempt fails. */
struct failure {
    double wait_s; /* of the members */
    const char *text;
};

/* It fails, the old communicator works; then it succeeds. */
static void try_twice(struct job *job, int rank, spr_comm *comm)
{
    const struct failure *expected = job->arg;
    spr_grow_options options = grow_options();
    spr_comm *grown = (spr_comm *)(void *)job;
    unsigned char *state = grow_state(1001);
    spr_status status;

    if (rank == 0) {
        options.state = state;
        options.state_bytes = 1001;
    }
    options.wait_s = expected->wait_s;
    status = spr_comm_grow(comm, &options, &grown);
    if (status == SPR_OK || grown != (spr_comm *)(void *)job ||
        !strstr(spr_last_error(NULL), expected->text)) {
        fprintf(stderr, "member %d: %s, not '%s': %s\n", rank, spr_status_name(status),
                expected->text, spr_last_error(NULL));
        _exit(1);
    }
    grow_check_sums(comm);
    grow_meet(job, 0, job->size + 1); /* the test starts the one that comes */
    options.wait_s = 30;
    grown = grow_members(comm, &options);
    free(state);
    grow_leave(comm, grown);
}

static void expect_second_try(const char *transport, const struct newcomer *first, int code,
                              struct failure expected)
{
    struct newcomer good = {.transports = transport, .expected_size = 4, .state_bytes = 1001};
    struct job job;
    pid_t pid;

    grow_choose_place();
    job_start(&job, 3, transport, try_twice, &expected);
    if (first)
        assert_int_equal(grow_end_of(grow_start(first)), code);
    grow_meet(&job, 0, 4);
    pid = grow_start(&good);
    assert_int_equal(grow_end_of(pid), 0);
    job_expect_success(&job, GROW_SECONDS);
}

static void nobody_comes(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        expect_second_try(job_transports[t], NULL, 0,
                          (struct failure){0.5, "0 of 1 newcomers came"});
}

static void a_newcomer_without_the_secret(void **state)
{
    struct newcomer stranger = {.transports = "shm", .secret = "some secret or other", .wait_s = 2};

    (void)state;
    expect_second_try("shm", &stranger, -SPR_ERR_AUTH, (struct failure){2, "turned away"});
}

static void a_newcomer_that_does_not_take_the_state(void **state)
{
    struct newcomer how = {.transports = "epoll", .no_take = true};

    (void)state;
    expect_second_try("epoll", &how, -SPR_ERR_INVALID,
                      (struct failure){30, "does not take the state"});
}

/* Dies at once when it is to make room for the state: links are up, the vote is still to come. */
static void *die(void *ctx, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    raise(SIGKILL);
    return NULL;
}

static void a_newcomer_dies_in_the_middle(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct newcomer how = {.transports = job_transports[t], .take = die};
        expect_second_try(job_transports[t], &how, 128 + SIGKILL, (struct failure){30, "was lost"});
    }
}

/* A member dies while the others wait for a newcomer: they hear of it, shrink, and take in two. */
static void lose_a_member(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = grow_options();
    int victim = *(const int *)job->arg;
    spr_shrink_info info = SPR_SHRINK_INFO_INIT;
    spr_comm *grown = NULL;
    spr_status status;

    grow_check_sums(comm);
    if (rank == victim)
        grow_die_later(300000);
    status = spr_comm_grow(comm, &options, &grown);
    if ((status != SPR_ERR_RANK_LOST && status != SPR_ERR_REVOKED) ||
        !strstr(spr_last_error(NULL), "was lost")) {
        fprintf(stderr, "member %d: %s: %s\n", rank, spr_status_name(status), spr_last_error(NULL));
        _exit(1);
    }
    RANK_CHECK(spr_comm_shrink(comm, 5, &info) == SPR_OK && spr_comm_size(comm) == 2);
    RANK_CHECK(info.redo == 0);
    grow_meet(job, 0, 3);
    options.newcomers = 2;
    grown = grow_members(comm, &options);
    RANK_CHECK(spr_comm_size(grown) == 4);
    grow_leave(comm, grown);
}

static void a_member_dies_while_it_waits(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        struct newcomer how = {.transports = "auto", .expected_size = 4};
        struct job job;
        pid_t pids[2];
        grow_choose_place();
        job_start(&job, 3, "auto", lose_a_member, &victim);
        grow_meet(&job, 0, 3);
        for (int i = 0; i < 2; i++)
            pids[i] = grow_start(&how);
        for (int i = 0; i < 2; i++)
            assert_int_equal(grow_end_of(pids[i]), 0);
        assert_true(job_wait(&job, GROW_SECONDS));
        for (int r = 0; r < 3; r++)
            assert_int_equal(job.codes[r], r == victim ? 128 + SIGKILL : 0);
    }
}

static void a_newcomer_with_other_settings(void **state)
{
    struct newcomer how = {
        .transports = "epoll", .setting = "SPARRING_EAGER", .value = "4096", .wait_s = 5};

    (void)state;
    expect_second_try("epoll", &how, -SPR_ERR_MISMATCH, (struct failure){3, "settings differ"});
}

static void a_job_without_a_secret(void **state)
{
    const char *secret = job_secret;

    (void)state;
    job_secret = NULL;
    expect_second_try("shm", NULL, 0, (struct failure){0.5, "0 of 1 newcomers came"});
    job_secret = secret;
}

/* ---- A member calls something else ---- */

static void call_something_else(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = grow_options();
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_comm *grown = NULL;
    float x = 1;

    options.wait_s = 30; /* of which it needs a pulse */
    if (rank == 1)
        job_pause_ms(700); /* the others have heard of one, if they can */
    if (rank == 1)
        RANK_CHECK(spr_allreduce(comm, &x, &x, 1, SPR_FP32, SPR_SUM, NULL) == SPR_ERR_MISMATCH);
    else
        RANK_CHECK(spr_comm_grow(comm, &options, &grown) == SPR_ERR_MISMATCH && !grown);
    call.timeout_s = 10;
    for (int step = 1; step < 4; step++) {
        x = (float)(step * (rank + 1));
        RANK_CHECK(spr_allreduce(comm, &x, &x, 1, SPR_FP32, SPR_SUM, &call) == SPR_OK);
        RANK_CHECK(x == (float)(step * job->size * (job->size + 1) / 2));
    }
}

static void the_operations_stay_paired_after_a_member_called_something_else(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        struct job job;
        grow_choose_place();
        job_start(&job, size, "shm", call_something_else, NULL);
        job_expect_success(&job, GROW_SECONDS);
    }
}

/* ---- Rank 0 is not to be trusted ---- */

/* As collectives/grow_members.c has it. */
struct word {
    int32_t status, rank;
    uint64_t job;
    uint32_t epoch;
    int32_t members, size, state_rank;
    char text[480];
};

static void hear_nonsense(struct job *job, int rank, spr_comm *comm)
{
    static const struct word words[] = {
        {.status = 7, .rank = 99, .text = "seven"},
        {.status = -9999, .rank = -5, .text = "unknown"},
        {.epoch = 2, .members = 2, .size = -3},
        {.epoch = 2, .members = 2, .size = 1 << 30},
        {.epoch = 2, .members = 3, .size = 4},
        {.epoch = 2, .members = 2, .size = 3, .state_rank = 5},
        {.epoch = 7, .members = 2, .size = 3},
    };
    spr_grow_options options = grow_options();
    spr_call_options call = SPR_CALL_OPTIONS_INIT;

    (void)job;
    call.name = "grow";
    for (size_t i = 0; i < SPR_ARRAY_LEN(words); i++) {
        struct word word = words[i];
        spr_comm *grown = NULL;
        if (rank == 0)
            RANK_CHECK(spr_barrier(comm, &call) == SPR_OK &&
                       spr_broadcast(comm, &word, sizeof word / 4, SPR_INT32, 0, &call) == SPR_OK);
        else
            RANK_CHECK(spr_comm_grow(comm, &options, &grown) == SPR_ERR_PROTO && !grown);
        grow_check_sums(comm);
    }
}

static void rank_0_sends_nonsense(void **state)
{
    struct job job;

    (void)state;
    grow_choose_place();
    job_start(&job, 2, "shm", hear_nonsense, NULL);
    job_expect_success(&job, GROW_SECONDS);
}

/* ---- Only the caller's operations count ---- */

/* Sum with those who are there; shrink as often as it takes. */
static void go_on(spr_comm *comm)
{
    float x = 1, sum;

    while (spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) != SPR_OK)
        RANK_CHECK(spr_comm_shrink(comm, 5, NULL) == SPR_OK);
    RANK_CHECK(sum == (float)spr_comm_size(comm));
}

/* Rank 0 has said "go", others may not have heard it. */
static void shrink_at_once(struct job *job, int rank, spr_comm *comm)
{
    spr_shrink_info info = SPR_SHRINK_INFO_INIT;
    spr_grow_options options = grow_options();
    spr_comm *grown = grow_members(comm, &options);
    float x = 1, sum;

    (void)job;
    RANK_CHECK(spr_comm_shrink(grown, 5, &info) == SPR_OK);
    if (info.redo != 0 || info.last_operation != 0 || info.lost != 0) {
        fprintf(stderr, "rank %d: redo %d, last operation %u, %d lost\n", rank, info.redo,
                info.last_operation, info.lost);
        _exit(1);
    }
    for (int i = 0; i < 3; i++)
        RANK_CHECK(spr_allreduce(grown, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK &&
                   sum == 4);
    grow_leave(comm, grown);
}

static void join_and_go_on(void *arg)
{
    struct newcomer how = {.transports = arg};
    spr_comm *comm = grow_join(&how, &(struct taken){NULL, 0});
    float x = 1, sum;

    go_on(comm);
    for (int i = 0; i < 2; i++)
        RANK_CHECK(spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    grow_check_sums(comm);
    spr_comm_destroy(comm);
}

static void a_grown_communicator_counts_from_its_first_operation(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        char transport[16];
        struct job job;
        snprintf(transport, sizeof transport, "%s", job_transports[t]);
        grow_choose_place();
        job_start(&job, 3, transport, shrink_at_once, NULL);
        assert_int_equal(grow_end_of(grow_fork(join_and_go_on, transport)), 0);
        job_expect_success(&job, GROW_SECONDS);
    }
}

/* ---- Who was expelled stays out ---- */

static void sleep_through_it(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = grow_options();
    spr_comm *grown = NULL;
    float x = 1, sum;
    spr_status status;

    grow_check_sums(comm);
    grow_meet(job, 0, 3);
    if (rank == 2) {
        raise(SIGSTOP);
        status = spr_comm_grow(comm, &options, &grown);
        if (status != SPR_ERR_EXPELLED || grown) {
            fprintf(stderr, "the expelled: %s: %s\n", spr_status_name(status),
                    spr_last_error(NULL));
            _exit(1);
        }
        _exit(0);
    }
    while (spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK)
        ;
    RANK_CHECK(spr_comm_shrink(comm, 2, NULL) == SPR_OK);
    grown = grow_members(comm, &options);
    grow_check_sums(grown);
    grow_meet(job, 1,
              4); /* two members, the newcomer, the test: wakes the expelled, and waits for it */
    grow_meet(job, 2, 4);
    grow_leave(comm, grown);
}

static void impatient(struct job *job, int rank)
{
    (void)job;
    (void)rank;
    setenv("SPARRING_EXPEL", "1", 1);
}

static void join_and_wait(void *arg)
{
    struct job *job = arg;
    struct newcomer how = {.transports = job->transports};
    spr_comm *comm = grow_join(&how, &(struct taken){NULL, 0});

    grow_check_sums(comm);
    grow_meet(job, 1, 4);
    grow_meet(job, 2, 4);
    grow_check_sums(comm);
    spr_comm_destroy(comm);
}

static void who_was_expelled_stays_out(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        pid_t pid;
        grow_choose_place();
        job_prepare = impatient;
        job_start(&job, 3, job_transports[t], sleep_through_it, NULL);
        job_prepare = NULL;
        pid = grow_fork(join_and_wait, &job);
        grow_meet(&job, 1, 4);
        kill(job.pids[2], SIGCONT);
        assert_int_equal(grow_end_of(job.pids[2]), 0);
        job.pids[2] = 0;
        grow_meet(&job, 2, 4);
        assert_int_equal(grow_end_of(pid), 0);
        job_expect_success(&job, GROW_SECONDS);
    }
}

/* ---- At any moment ---- */

struct moment {
    int victim; /* 3: the newcomer */
    long after_us;
};

enum { OUTCOME = 100 }; /* in the shared memory: of each member */

static void grow_or_not(struct job *job, int rank, spr_comm *comm)
{
    const struct moment *moment = job->arg;
    _Atomic int *outcome = job_counter(job, OUTCOME + rank);
    spr_grow_options options = grow_options();
    static char state[4 << 20];
    spr_comm *grown = NULL;

    options.state = state;
    options.state_bytes = sizeof state;
    options.wait_s = 1;
    grow_meet(job, 0, 4);
    if (rank == moment->victim)
        grow_die_later(moment->after_us);
    atomic_store(outcome, spr_comm_grow(comm, &options, &grown) == SPR_OK ? 1 : 2);
    if (rank == moment->victim)
        for (;;)
            pause();
    go_on(grown ? grown : comm);
    spr_comm_destroy(comm);
    spr_comm_destroy(grown);
    _exit(0);
}

static void grow_or_not_as_newcomer(void *arg)
{
    struct job *job = arg;
    const struct moment *moment = job->arg;
    struct newcomer how = {.transports = job->transports, .wait_s = 1};
    struct taken taken = {NULL, 0};
    spr_comm *comm;

    grow_meet(job, 0, 4);
    if (moment->victim == 3)
        grow_die_later(moment->after_us);
    comm = grow_join(&how, &taken);
    if (moment->victim == 3)
        for (;;)
            pause();
    go_on(comm);
    spr_comm_destroy(comm);
    free(taken.bytes);
}

static void one_trial(const char *transport, struct moment moment)
{
    struct job job;
    int outcomes[3], seen = 0, code;

    grow_choose_place();
    job_start(&job, 3, transport, grow_or_not, &moment);
    code = grow_end_of(grow_fork(grow_or_not_as_newcomer, &job));
    if (!job_wait(&job, GROW_SECONDS))
        fail_msg("%s, rank %d dies after %ld us: hangs", transport, moment.victim, moment.after_us);
    for (int r = 0; r < 3; r++) {
        outcomes[r] = atomic_load(job_counter(&job, OUTCOME + r));
        if (r != moment.victim && job.codes[r] != 0)
            fail_msg("%s, rank %d dies after %ld us: rank %d ends with %d", transport,
                     moment.victim, moment.after_us, r, job.codes[r]);
        if (r != moment.victim && seen != 0 && outcomes[r] != seen)
            fail_msg("%s, rank %d dies after %ld us: not the same outcome on all", transport,
                     moment.victim, moment.after_us);
        seen = r != moment.victim ? outcomes[r] : seen;
    }
    /* It enters with the members, or not at all. */
    if (moment.victim != 3 && (seen == 1) != (code == 0))
        fail_msg("%s, rank %d dies after %ld us: members %s, newcomer %d", transport, moment.victim,
                 moment.after_us, seen == 1 ? "grow" : "do not", code);
}

static void all_members_have_the_same_outcome(void **state)
{
    uint64_t repeats = (uint64_t)fault_repeats(24, 2000);

    (void)state;
    for (uint64_t trial = 0; trial < repeats; trial++) {
        struct spr_rng rng = {seed, trial};
        const char *transport = job_transports[trial % job_transport_count];
        struct moment moment = {(int)spr_rng_below(&rng, 4), (long)spr_rng_below(&rng, 60000)};
        one_trial(transport, moment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_comes),
        cmocka_unit_test(a_newcomer_without_the_secret),
        cmocka_unit_test(a_newcomer_that_does_not_take_the_state),
        cmocka_unit_test(a_newcomer_with_other_settings),
        cmocka_unit_test(a_job_without_a_secret),
        cmocka_unit_test(the_operations_stay_paired_after_a_member_called_something_else),
        cmocka_unit_test(rank_0_sends_nonsense),
        cmocka_unit_test(a_newcomer_dies_in_the_middle),
        cmocka_unit_test(a_member_dies_while_it_waits),
        cmocka_unit_test(a_grown_communicator_counts_from_its_first_operation),
        cmocka_unit_test(who_was_expelled_stays_out),
        cmocka_unit_test(all_members_have_the_same_outcome),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
