/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Random schedules over simulated links; see schedules.h for what is drawn and schedule_check.c for
 * what must hold.
 *
 *   SPARRING_SEED=...           play the schedule of this seed alone, and print it
 *   SPARRING_TEST_SCHEDULES=N        play N schedules, of consecutive seeds
 *   SPARRING_TEST_JOBS=N   in N processes
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/sim/schedules.h"

#define SCHEDULES 50000
#define SOAK 1000000 /* make soak */
#define JOBS 2
#define JOBS_MAX 64

/* What the processes tell the one that started them. */
struct share {
    uint64_t seed; /* being played */
    uint64_t failures, deadlines, right_deadlines, revoked;
};

static bool play_one(uint64_t seed, bool print, struct share *share)
{
    static struct schedule schedule;
    static struct schedule_play play;

    schedule_draw(&schedule, seed);
    if (print)
        schedule_print(&schedule, stdout);
    share->seed = seed;
    if (schedule_play(&play, &schedule)) {
        share->deadlines += (uint64_t)play.deadlines;
        share->right_deadlines += (uint64_t)play.right_deadlines;
        share->failures += play.failed;
        share->revoked += (uint64_t)play.revoked;
        return true;
    }
    schedule_print(&schedule, stderr);
    fprintf(stderr, "FAILED: SPARRING_SEED=%llu: %s\n", (unsigned long long)seed, play.failure);
    return false;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t n;
    char *end;

    if (!text || !*text)
        return otherwise;
    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || n == 0)
        fail_msg("%s='%s': not a number above 0", name, text);
    return n;
}

/* The seeds that begin + job, begin + job + jobs, ... */
static _Noreturn void play_share(uint64_t begin, uint64_t n, uint64_t job, uint64_t jobs,
                                 struct share *share)
{
    static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

    for (size_t i = 0; i < SPR_ARRAY_LEN(crashes); i++)
        signal(crashes[i], SIG_DFL); /* cmocka's handlers are for the one that waits */
    for (uint64_t i = job; i < n; i += jobs)
        if (!play_one(begin + i, false, share))
            _exit(1);
    _exit(0);
}

/* Wait for all. Returns how many did not end well. */
static int reap(const pid_t *pids, uint64_t jobs, const struct share *shares)
{
    int bad = 0;

    for (uint64_t i = 0; i < jobs; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        bad += status != 0;
        if (WIFSIGNALED(status))
            print_error("SPARRING_SEED=%llu: signal %d\n", (unsigned long long)shares[i].seed,
                        WTERMSIG(status));
    }
    return bad;
}

static void play_many(uint64_t seed, uint64_t n, uint64_t jobs)
{
    struct share *shares = mmap(NULL, JOBS_MAX * sizeof *shares, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct share sum = {0};
    pid_t pids[JOBS_MAX];
    int bad;

    assert_true(shares != MAP_FAILED && jobs >= 1 && jobs <= JOBS_MAX);
    fflush(NULL);
    for (uint64_t i = 0; i < jobs; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            play_share(seed, n, i, jobs, &shares[i]);
    }
    bad = reap(pids, jobs, shares);
    for (uint64_t i = 0; i < jobs; i++) {
        sum.failures += shares[i].failures;
        sum.deadlines += shares[i].deadlines;
        sum.right_deadlines += shares[i].right_deadlines;
        sum.revoked += shares[i].revoked;
    }
    munmap(shares, JOBS_MAX * sizeof *shares);
    printf("%llu jobs failed; %llu of %llu deadlines name a rank at fault; %llu steps taken back\n",
           (unsigned long long)sum.failures, (unsigned long long)sum.right_deadlines,
           (unsigned long long)sum.deadlines, (unsigned long long)sum.revoked);
    assert_int_equal(bad, 0);
}

static void schedules_end_well(void **state)
{
    uint64_t seed = spr_rng_test_seed();
    bool one = getenv("SPARRING_SEED") && !getenv("SPARRING_TEST_SCHEDULES");
    uint64_t n = number("SPARRING_TEST_SCHEDULES", getenv("SPARRING_SOAK") ? SOAK : SCHEDULES);
    struct share share = {0};

    (void)state;
    if (one) {
        assert_true(play_one(seed, true, &share));
        return;
    }
    printf("%llu schedules from SPARRING_SEED=%llu\n", (unsigned long long)n,
           (unsigned long long)seed);
    play_many(seed, n, number("SPARRING_TEST_JOBS", JOBS));
}

/* Each of these was found by chance, and went wrong once. */
static void schedules_that_failed_once_end_well(void **state)
{
    static const uint64_t seeds[] = {
        15296449597298812523u, /* a coordinator that was expelled was waited for, for ever */
        8934525885762838484u,  /* an epoch that nobody followed into, and another of that number */
        1759347350226434551u,  /* those who were left out were told by the coordinator alone */
        14854559640270737556u, /* a link that was cut behind one who is left out is no death */
        14854559640270781943u, /* ... and neither is one of a rank that was given up before */
        1798126583242065709u,  /* ... nor one whose last word was damaged */
        9503130284617509103u,  /* a frame that is damaged and comes twice */
        10958400017479534237u, /* ... whose length is damaged, and that is cut */
        17762003930971740626u, /* a step that is taken back: what that rounds was not expected */
        16965447038552561846u, /* those who took part in a step that failed forgot, another did not
                                */
        5154128789949195001u,  /* (v + u) + g was expected to be v + (u + g) */
        7718887663188031823u,  /* memory to compress what is sent to nobody */
    };
    struct share share = {0};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(seeds); i++)
        assert_true(play_one(seeds[i], false, &share));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_that_failed_once_end_well),
        cmocka_unit_test(schedules_end_well),
    };

    if (!getenv("SPARRING_LOG"))
        spr_log_configure("off"); /* mismatches, by the thousand */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
