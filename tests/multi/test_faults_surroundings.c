/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hostile surroundings: ranks that are stopped and continued, a storm of signals, little lockable
 * memory, no /dev/shm. The results are the right ones all the same.
 */
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 100
#define NOBODY 65534

static uint64_t seed;

/* Integers, so that every order of summing has one right result. */
static void check_round(spr_comm *comm, unsigned round)
{
    enum { N = 60000, ENTRIES = 500 };
    static float x[N], value[ENTRIES];
    static uint32_t index[ENTRIES];
    spr_sparse list = {index, value, ENTRIES, 0};
    int size = spr_comm_size(comm), rank = spr_comm_rank(comm);
    float sum = (float)(size * (size + 1) / 2);

    for (size_t i = 0; i < N; i++)
        x[i] = (float)((rank + 1) * (int)(i % 100 + round % 7));
    RANK_CHECK(spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    for (size_t i = 0; i < N; i++)
        RANK_CHECK(x[i] == sum * (float)(i % 100 + round % 7));
    for (uint32_t i = 0; i < ENTRIES; i++) {
        index[i] = i * (N / ENTRIES) + round % (N / ENTRIES);
        value[i] = (float)(rank + 1);
    }
    RANK_CHECK(spr_sparse_allreduce(comm, &list, N, x, NULL, SPR_SUM, NULL) == SPR_OK);
    for (uint32_t i = 0; i < ENTRIES; i++)
        RANK_CHECK(x[index[i]] == sum);
}

/* Until the test says enough, which rank 0 passes on so that all do the same number of rounds. */
static void run_rounds(struct job *job, int rank, spr_comm *comm)
{
    _Atomic int *ready = (void *)job->shared, *enough = ready + 1;
    int32_t go_on = 1;

    (void)rank;
    atomic_fetch_add(ready, 1);
    for (unsigned round = 0; go_on; round++) {
        check_round(comm, round);
        go_on = !atomic_load(enough);
        RANK_CHECK(spr_broadcast(comm, &go_on, 1, SPR_INT32, 0, NULL) == SPR_OK);
    }
}

/* Stopped and continued ------------------------------------------------------------------------ */

static void a_rank_that_was_stopped_goes_on_with_right_results(void **state)
{
    struct fault_census before = fault_census_take();
    struct spr_rng rng = {seed, 1};
    int pauses = fault_repeats(8, 500);

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 3, job_transports[t], run_rounds, NULL);
        while (atomic_load((_Atomic int *)(void *)job.shared) < 3)
            fault_pause_us(1000);
        for (int i = 0; i < pauses; i++) {
            pid_t pid = job.pids[spr_rng_below(&rng, 3)];
            fault_pause_us((long)spr_rng_below(&rng, 10000));
            kill(pid, SIGSTOP);
            fault_pause_us((long)spr_rng_below(&rng, 60000));
            kill(pid, SIGCONT);
        }
        atomic_store((_Atomic int *)(void *)job.shared + 1, 1);
        job_expect_success(&job, SECONDS);
    }
    fault_census_expect(&before);
}

/* Signals -------------------------------------------------------------------------------------- */

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

/* A thousand per second, in whatever thread takes them; system calls are not restarted. */
static void storm(struct job *job, int rank)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval every = {{0, 1000}, {0, 1000}};

    (void)job, (void)rank;
    RANK_CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    RANK_CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void run_in_the_storm(struct job *job, int rank, spr_comm *comm)
{
    unsigned rounds = (unsigned)fault_repeats(100, 20000);

    (void)job, (void)rank;
    for (unsigned round = 0; round < rounds; round++)
        check_round(comm, round);
    RANK_CHECK(alarms > 0);
}

static void signals_change_nothing(void **state)
{
    (void)state;
    job_prepare = storm;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int caller = 0; caller < 2; caller++) {
            struct job job;
            setenv("SPARRING_PROGRESS", caller ? "caller" : "thread", 1);
            job_start(&job, 2, job_transports[t], run_in_the_storm, NULL);
            unsetenv("SPARRING_PROGRESS");
            job_expect_success(&job, SECONDS);
        }
    }
    job_prepare = NULL;
}

/* Rights and limits ---------------------------------------------------------------------------- */

/* Root is not bound by the limit of locked memory. */
static void become_nobody(void)
{
    if (geteuid() != 0)
        return;
    RANK_CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void lock_little(struct job *job, int rank)
{
    struct rlimit limit = {(rlim_t)(rank * 65536), 65536};

    (void)job;
    RANK_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    become_nobody();
}

static void run_with_memory(struct job *job, int rank, spr_comm *comm)
{
    enum { BYTES = 8 << 20 };
    float *x = NULL;

    (void)job, (void)rank;
    RANK_CHECK(spr_mem_alloc(comm, BYTES, (void **)&x) == SPR_OK);
    memset(x, 0, BYTES);
    for (unsigned round = 0; round < 5; round++) {
        check_round(comm, round);
        RANK_CHECK(spr_allreduce(comm, x, x, BYTES / 4, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    }
    spr_mem_free(comm, x);
}

static void little_lockable_memory_is_enough(void **state)
{
    (void)state;
    job_prepare = lock_little;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        char list[32];
        /* Without any lockable memory io_uring may be refused, RDMA is; then epoll takes over. */
        bool locks = !strcmp(job_transports[t], "uring") || !strcmp(job_transports[t], "verbs");
        snprintf(list, sizeof list, "%s%s", job_transports[t], locks ? ",epoll" : "");
        job_start(&job, 2, list, run_with_memory, NULL);
        job_expect_success(&job, SECONDS);
    }
    job_prepare = NULL;
}

/* An empty folder that nobody may write to hides /dev/shm. */
static void hide_dev_shm(struct job *job, int rank)
{
    (void)job, (void)rank;
    RANK_CHECK(unshare(CLONE_NEWNS) == 0);
    RANK_CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    RANK_CHECK(mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=4k") == 0);
    become_nobody();
}

static void shared_memory_needs_no_dev_shm(void **state)
{
    struct job job;

    (void)state;
    if (geteuid() != 0) {
        print_message("needs root, to hide /dev/shm in a mount namespace\n");
        skip();
    }
    job_prepare = hide_dev_shm;
    job_start(&job, 3, "shm", run_with_memory, NULL);
    job_expect_success(&job, SECONDS);
    job_prepare = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_was_stopped_goes_on_with_right_results),
        cmocka_unit_test(signals_change_nothing),
        cmocka_unit_test(little_lockable_memory_is_enough),
        cmocka_unit_test(shared_memory_needs_no_dev_shm),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
