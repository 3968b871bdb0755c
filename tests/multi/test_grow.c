/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Real processes that join a communicator: after deaths, several at once, again and again; and what
 * can go wrong while they do.
 */
#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 40
#define COUNT 100000

static const char *const transports[] = {"shm", "epoll", "uring"};
static char place[64]; /* where members and newcomers meet */
static const char secret[] = "a secret of the test";
static uint64_t seed;

/* What a test's newcomers are like; they are told apart by their index. */
struct newcomer {
    const char *transports;
    const char *secret;
    double wait_s;
    int expected_size;
    size_t state_bytes; /* that it shall get */
    bool no_take;       /* does not want the state */
};

struct taken {
    unsigned char *bytes;
    size_t count;
};

static void *take(void *ctx, size_t bytes)
{
    struct taken *t = ctx;

    t->bytes = malloc(bytes);
    t->count = bytes;
    return t->bytes;
}

static unsigned char state_byte(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

static unsigned char *make_state(size_t bytes)
{
    unsigned char *state = malloc(bytes + 1);

    RANK_CHECK(state != NULL);
    for (size_t i = 0; i < bytes; i++)
        state[i] = state_byte(i);
    return state;
}

/* The sum over all is the sum of (rank + 1); the same bits on all ranks. */
static void check_sums(spr_comm *comm)
{
    static float in[COUNT], out[COUNT];
    int rank = spr_comm_rank(comm), size = spr_comm_size(comm);
    float expected = (float)(size * (size + 1) / 2);

    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(rank + 1);
    for (int k = 0; k < 3; k++) {
        if (spr_allreduce(comm, in, out, COUNT, SPR_FP32, SPR_SUM, NULL) != SPR_OK) {
            fprintf(stderr, "rank %d of %d: %s\n", rank, size, spr_last_error(comm));
            _exit(97);
        }
        for (size_t i = 0; i < COUNT; i++)
            RANK_CHECK(out[i] == expected);
    }
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

static spr_comm *join(const struct newcomer *how, struct taken *taken)
{
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_grow_options options = SPR_GROW_OPTIONS_INIT;
    spr_comm *comm = NULL;
    spr_status status;

    create.transports = how->transports;
    create.interface_name = "lo";
    create.secret = how->secret ? how->secret : secret;
    create.secret_bytes = sizeof secret;
    options.meet = place;
    options.wait_s = how->wait_s > 0 ? how->wait_s : 30;
    options.create = &create;
    options.ctx = taken;
    options.take = how->no_take ? NULL : take;
    status = spr_comm_grow(NULL, &options, &comm);
    if (status) {
        RANK_CHECK(comm == NULL);
        fprintf(stderr, "newcomer %d: %s\n", (int)getpid(), spr_last_error(NULL));
        _exit(-status);
    }
    return comm;
}

/* A process that joins, sums and leaves with the others. */
static void newcomer_main(const struct newcomer *how)
{
    struct taken taken = {NULL, 0};
    spr_comm *comm = join(how, &taken);

    RANK_CHECK(spr_comm_size(comm) == how->expected_size);
    RANK_CHECK(taken.count == how->state_bytes);
    for (size_t i = 0; i < taken.count; i++)
        RANK_CHECK(taken.bytes[i] == state_byte(i));
    free(taken.bytes);
    check_sums(comm);
    spr_comm_destroy(comm);
    _exit(0);
}

static pid_t start_newcomer(const struct newcomer *how)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGSEGV, SIG_DFL);
        newcomer_main(how);
    }
    return pid;
}

/* Its exit code, or 128 + signal; a hang ends the test. */
static int end_of(pid_t pid)
{
    uint64_t deadline = spr_monotonic_ns() + spr_seconds_ns(SECONDS * spr_time_factor());
    int status;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (spr_monotonic_ns() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(1000);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void choose_place(const char *transport)
{
    static int number;

    snprintf(place, sizeof place, "unix:test_grow.%d.%d.%s", (int)getpid(), number++, transport);
}

static spr_grow_options members_options(void)
{
    spr_grow_options options = SPR_GROW_OPTIONS_INIT;

    options.meet = place;
    options.wait_s = 30;
    return options;
}

static spr_comm *grow(spr_comm *comm, const spr_grow_options *options)
{
    spr_comm *grown = NULL;

    if (spr_comm_grow(comm, options, &grown) != SPR_OK) {
        fprintf(stderr, "member %d: %s\n", spr_comm_rank(comm), spr_last_error(NULL));
        _exit(96);
    }
    return grown;
}

/* Wait until `ranks` of them are here; without the communicator. */
static void meet(struct job *job, int where, int ranks)
{
    _Atomic int *here = (_Atomic int *)(void *)job->shared + where;
    uint64_t deadline = spr_monotonic_ns() + spr_seconds_ns(SECONDS * spr_time_factor());

    atomic_fetch_add(here, 1);
    while (atomic_load(here) < ranks && spr_monotonic_ns() < deadline)
        usleep(100);
}

/* The job's own communicator goes; run_rank destroys what is left of it. */
static _Noreturn void leave(spr_comm *old, spr_comm *grown)
{
    spr_comm_destroy(old);
    check_sums(grown);
    spr_comm_destroy(grown);
    _exit(0);
}

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
    spr_grow_options options = members_options();
    unsigned char *state = NULL;
    spr_comm *grown;

    options.newcomers = intake->newcomers;
    options.at_least = intake->at_least;
    options.state_rank = intake->state_rank;
    if (intake->wait_s > 0)
        options.wait_s = intake->wait_s;
    if (rank == intake->state_rank && intake->state_bytes > 0) {
        options.state = state = make_state(intake->state_bytes);
        options.state_bytes = intake->state_bytes;
    }
    check_sums(comm);
    grown = grow(comm, &options);
    free(state);
    RANK_CHECK(spr_comm_rank(grown) == rank && spr_comm_size(grown) == intake->size);
    leave(comm, grown);
}

static void expect_intake(const char *transport, int members, struct intake intake, int start)
{
    struct newcomer how = {
        .transports = transport, .expected_size = intake.size, .state_bytes = intake.state_bytes};
    pid_t pids[8];
    struct job job;

    choose_place(transport);
    job_start(&job, members, transport, take_in, &intake);
    for (int i = 0; i < start; i++)
        pids[i] = start_newcomer(&how);
    for (int i = 0; i < start; i++)
        assert_int_equal(end_of(pids[i]), 0);
    job_expect_success(&job, SECONDS);
}

static void newcomers_are_taken_in(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPR_ARRAY_LEN(transports); t++) {
        expect_intake(transports[t], 3, (struct intake){1, 0, 0, 0, 0, 4}, 1);
        expect_intake(transports[t], 1, (struct intake){3, 0, 0, 1000001, 0, 4}, 3);
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
    struct holdings now = holdings();

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
    spr_grow_options options = members_options();
    struct holdings before = {0};

    for (int round = 0;; round++) {
        spr_shrink_info info = SPR_SHRINK_INFO_INIT;
        float x = 1, sum;
        spr_comm *grown;

        check_sums(comm);
        meet(job, round, 3);
        if (rank == 2)
            raise(SIGKILL);
        while (spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK)
            ;
        RANK_CHECK(spr_comm_shrink(comm, 5, &info) == SPR_OK && info.lost == 1);
        grown = grow(comm, &options);
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
    check_sums(comm);
    spr_comm_destroy(comm);
    _exit(0);
}

/* A newcomer that dies in the next round, but the last. */
static void replacement(struct job *job, int round, const char *transport)
{
    struct newcomer how = {.transports = transport};
    spr_comm *comm = join(&how, &(struct taken){NULL, 0});

    RANK_CHECK(spr_comm_rank(comm) == 2 && spr_comm_size(comm) == 3);
    check_sums(comm);
    if (round < ROUNDS - 1) {
        meet(job, round + 1, 3);
        raise(SIGKILL);
    }
    spr_comm_destroy(comm);
    _exit(0);
}

static void the_dead_are_replaced(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPR_ARRAY_LEN(transports); t++) {
        struct job job;
        choose_place(transports[t]);
        job_start(&job, 3, transports[t], lose_and_take_in, NULL);
        for (int round = 0; round < ROUNDS; round++) {
            int code;
            pid_t pid;
            fflush(NULL);
            pid = fork();
            if (pid == 0)
                replacement(&job, round, transports[t]);
            code = end_of(pid);
            assert_int_equal(code, round < ROUNDS - 1 ? 128 + SIGKILL : 0);
        }
        assert_true(job_wait(&job, SECONDS));
        assert_int_equal(job.codes[0], 0);
        assert_int_equal(job.codes[1], 0);
        assert_int_equal(job.codes[2], 128 + SIGKILL);
    }
}

/* ---- What can go wrong ---- */

/* It fails, the old communicator works; then it succeeds. */
static void try_twice(struct job *job, int rank, spr_comm *comm)
{
    const char *expected = job->arg;
    spr_grow_options options = members_options();
    spr_comm *grown = (spr_comm *)(void *)job;
    unsigned char *state = make_state(1001);
    spr_status status;

    if (rank == 0) {
        options.state = state;
        options.state_bytes = 1001;
    }
    options.wait_s = 1;
    status = spr_comm_grow(comm, &options, &grown);
    if (status == SPR_OK || grown != (spr_comm *)(void *)job ||
        !strstr(spr_last_error(NULL), expected)) {
        fprintf(stderr, "member %d: %s, not '%s': %s\n", rank, spr_status_name(status), expected,
                spr_last_error(NULL));
        _exit(1);
    }
    check_sums(comm);
    meet(job, 0, job->size + 1); /* the test starts the one that comes */
    options.wait_s = 30;
    grown = grow(comm, &options);
    free(state);
    leave(comm, grown);
}

static void expect_second_try(const char *transport, const struct newcomer *first, int code,
                              const char *expected)
{
    struct newcomer good = {.transports = transport, .expected_size = 4, .state_bytes = 1001};
    union {
        const char *in;
        void *out;
    } text = {.in = expected};
    struct job job;
    pid_t pid;

    choose_place(transport);
    job_start(&job, 3, transport, try_twice, text.out);
    if (first)
        assert_int_equal(end_of(start_newcomer(first)), code);
    meet(&job, 0, 4);
    pid = start_newcomer(&good);
    assert_int_equal(end_of(pid), 0);
    job_expect_success(&job, SECONDS);
}

static void nobody_comes(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPR_ARRAY_LEN(transports); t++)
        expect_second_try(transports[t], NULL, 0, "0 of 1 newcomers came");
}

static void a_newcomer_without_the_secret(void **state)
{
    struct newcomer stranger = {.transports = "shm", .secret = "some secret or other", .wait_s = 2};

    (void)state;
    expect_second_try("shm", &stranger, -SPR_ERR_AUTH, "turned away");
}

static void a_newcomer_that_does_not_take_the_state(void **state)
{
    struct newcomer how = {.transports = "epoll", .no_take = true};

    (void)state;
    expect_second_try("epoll", &how, -SPR_ERR_INVALID, "does not take the state");
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
    for (size_t t = 0; t < SPR_ARRAY_LEN(transports); t++) {
        struct newcomer good = {
            .transports = transports[t], .expected_size = 4, .state_bytes = 1001};
        struct job job;
        pid_t pid;
        choose_place(transports[t]);
        job_start(&job, 3, transports[t], try_twice, (void *)(uintptr_t) "was lost");
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            spr_comm_options create = SPR_COMM_OPTIONS_INIT;
            spr_grow_options options = SPR_GROW_OPTIONS_INIT;
            spr_comm *comm = NULL;
            create.transports = transports[t];
            create.interface_name = "lo";
            create.secret = secret;
            create.secret_bytes = sizeof secret;
            options.meet = place;
            options.create = &create;
            options.take = die;
            spr_comm_grow(NULL, &options, &comm);
            _exit(1);
        }
        assert_int_equal(end_of(pid), 128 + SIGKILL);
        meet(&job, 0, 4);
        assert_int_equal(end_of(start_newcomer(&good)), 0);
        job_expect_success(&job, SECONDS);
    }
}

/* Of two newcomers one goes away before both are there, and comes again. */
static void a_newcomer_dies_while_it_waits(void **state)
{
    struct intake intake = {2, 0, 0, 0, 0, 4};
    struct newcomer how = {.transports = "epoll", .expected_size = 4};
    struct job job;
    pid_t pids[2];

    (void)state;
    choose_place("epoll");
    job_start(&job, 2, "epoll", take_in, &intake);
    pids[0] = start_newcomer(&how);
    usleep(300000);
    kill(pids[0], SIGKILL);
    assert_int_equal(end_of(pids[0]), 128 + SIGKILL);
    for (int i = 0; i < 2; i++)
        pids[i] = start_newcomer(&how);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_of(pids[i]), 0);
    job_expect_success(&job, SECONDS);
}

/* A member dies while the others wait for a newcomer: they hear of it, shrink, and take in two. */
static void lose_a_member(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = members_options();
    int victim = *(const int *)job->arg;
    spr_comm *grown = NULL;
    spr_status status;

    check_sums(comm);
    if (rank == victim) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        struct itimerspec when = {{0, 0}, {0, 300000000}};
        timer_t timer;
        RANK_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        RANK_CHECK(timer_settime(timer, 0, &when, NULL) == 0);
    }
    status = spr_comm_grow(comm, &options, &grown);
    if ((status != SPR_ERR_RANK_LOST && status != SPR_ERR_REVOKED) ||
        !strstr(spr_last_error(NULL), "was lost")) {
        fprintf(stderr, "member %d: %s: %s\n", rank, spr_status_name(status), spr_last_error(NULL));
        _exit(1);
    }
    RANK_CHECK(spr_comm_shrink(comm, 5, NULL) == SPR_OK && spr_comm_size(comm) == 2);
    meet(job, 0, 3);
    options.newcomers = 2;
    grown = grow(comm, &options);
    RANK_CHECK(spr_comm_size(grown) == 4);
    leave(comm, grown);
}

static void a_member_dies_while_it_waits(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        struct newcomer how = {.transports = "auto", .expected_size = 4};
        struct job job;
        pid_t pids[2];
        choose_place("auto");
        job_start(&job, 3, "auto", lose_a_member, &victim);
        meet(&job, 0, 3);
        for (int i = 0; i < 2; i++)
            pids[i] = start_newcomer(&how);
        for (int i = 0; i < 2; i++)
            assert_int_equal(end_of(pids[i]), 0);
        assert_true(job_wait(&job, SECONDS));
        for (int r = 0; r < 3; r++)
            assert_int_equal(job.codes[r], r == victim ? 128 + SIGKILL : 0);
    }
}

/* ---- Who was expelled stays out ---- */

static void sleep_through_it(struct job *job, int rank, spr_comm *comm)
{
    spr_grow_options options = members_options();
    spr_comm *grown = NULL;
    float x = 1, sum;
    spr_status status;

    check_sums(comm);
    meet(job, 0, 3);
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
    grown = grow(comm, &options);
    check_sums(grown);
    meet(job, 1, 4); /* two members, the newcomer, the test: wakes the expelled, and waits for it */
    meet(job, 2, 4);
    leave(comm, grown);
}

static void impatient(struct job *job, int rank)
{
    (void)job;
    (void)rank;
    setenv("SPARRING_EXPEL", "1", 1);
}

static void who_was_expelled_stays_out(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPR_ARRAY_LEN(transports); t++) {
        struct newcomer how = {.transports = transports[t]};
        struct job job;
        pid_t pid;
        choose_place(transports[t]);
        job_prepare = impatient;
        job_start(&job, 3, transports[t], sleep_through_it, NULL);
        job_prepare = NULL;
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            spr_comm *comm = join(&how, &(struct taken){NULL, 0});
            check_sums(comm);
            meet(&job, 1, 4);
            meet(&job, 2, 4);
            check_sums(comm);
            spr_comm_destroy(comm);
            _exit(0);
        }
        meet(&job, 1, 4);
        kill(job.pids[2], SIGCONT);
        assert_int_equal(end_of(job.pids[2]), 0);
        job.pids[2] = 0;
        meet(&job, 2, 4);
        assert_int_equal(end_of(pid), 0);
        job_expect_success(&job, SECONDS);
    }
}

/* ---- At any moment ---- */

struct moment {
    int victim; /* 3: the newcomer */
    long after_us;
};

enum { OUTCOME = 100 }; /* in the shared memory: of each member */

static void die_later(long us)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {{0, 0}, {us / 1000000, us % 1000000 * 1000 + 1}};
    timer_t timer;

    RANK_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    RANK_CHECK(timer_settime(timer, 0, &when, NULL) == 0);
}

/* Sum with those who are there; shrink as often as it takes. */
static void go_on(spr_comm *comm)
{
    float x = 1, sum;

    while (spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) != SPR_OK)
        RANK_CHECK(spr_comm_shrink(comm, 5, NULL) == SPR_OK);
}

static void grow_or_not(struct job *job, int rank, spr_comm *comm)
{
    const struct moment *moment = job->arg;
    _Atomic int *outcome = (_Atomic int *)(void *)job->shared + OUTCOME + rank;
    spr_grow_options options = members_options();
    static char state[4 << 20];
    spr_comm *grown = NULL;

    options.state = state;
    options.state_bytes = sizeof state;
    options.wait_s = 1;
    meet(job, 0, 4);
    if (rank == moment->victim)
        die_later(moment->after_us);
    atomic_store(outcome, spr_comm_grow(comm, &options, &grown) == SPR_OK ? 1 : 2);
    if (rank == moment->victim)
        for (;;)
            pause();
    go_on(grown ? grown : comm);
    spr_comm_destroy(comm);
    spr_comm_destroy(grown);
    _exit(0);
}

static void grow_or_not_as_newcomer(struct job *job)
{
    const struct moment *moment = job->arg;
    struct newcomer how = {.transports = job->transports, .wait_s = 1};
    struct taken taken = {NULL, 0};
    spr_comm *comm;

    meet(job, 0, 4);
    if (moment->victim == 3)
        die_later(moment->after_us);
    comm = join(&how, &taken);
    if (moment->victim == 3)
        for (;;)
            pause();
    go_on(comm);
    spr_comm_destroy(comm);
    free(taken.bytes);
    _exit(0);
}

static void one_trial(const char *transport, struct moment moment)
{
    struct job job;
    int outcomes[3], seen = 0, code;
    pid_t pid;

    choose_place(transport);
    job_start(&job, 3, transport, grow_or_not, &moment);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        grow_or_not_as_newcomer(&job);
    code = end_of(pid);
    if (!job_wait(&job, SECONDS))
        fail_msg("%s, rank %d dies after %ld us: hangs", transport, moment.victim, moment.after_us);
    for (int r = 0; r < 3; r++) {
        outcomes[r] = atomic_load((_Atomic int *)(void *)job.shared + OUTCOME + r);
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
    (void)state;
    for (uint64_t trial = 0; trial < 24; trial++) {
        struct spr_rng rng = {seed, trial};
        const char *transport = transports[trial % SPR_ARRAY_LEN(transports)];
        struct moment moment = {(int)spr_rng_below(&rng, 4), (long)spr_rng_below(&rng, 60000)};
        one_trial(transport, moment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newcomers_are_taken_in),
        cmocka_unit_test(a_large_state_is_handed_over),
        cmocka_unit_test(fewer_may_do),
        cmocka_unit_test(the_dead_are_replaced),
        cmocka_unit_test(nobody_comes),
        cmocka_unit_test(a_newcomer_without_the_secret),
        cmocka_unit_test(a_newcomer_that_does_not_take_the_state),
        cmocka_unit_test(a_newcomer_dies_in_the_middle),
        cmocka_unit_test(a_newcomer_dies_while_it_waits),
        cmocka_unit_test(a_member_dies_while_it_waits),
        cmocka_unit_test(who_was_expelled_stays_out),
        cmocka_unit_test(all_members_have_the_same_outcome),
    };

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
