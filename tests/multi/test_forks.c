/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Thousands of forks while collectives run: a child is told that the communicator is not its own,
 * writes over all it has inherited, goes in several ways, or lives on while its parent goes on with
 * memory that was shared at the fork. The parent's results are the right ones, to the bit: what a
 * device or the kernel writes to its buckets arrives there and not in a page that the child kept.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 240
#define FORKS 3000
#define SOAK_FORKS 100000
#define LINGERING 4 /* children of a rank that live on */

/* Behind exit() LeakSanitizer looks for leaks, without the stacks of the parent's other threads. */
#ifdef __SANITIZE_ADDRESS__
#define MAY_EXIT false
#else
#define MAY_EXIT true
#endif

/* Several slots of any transport, and a bit. */
enum { ELEMENTS = 70003 };

struct forks {
    spr_comm *comm;
    float *bucket, *heap;
    pid_t lingering[LINGERING];
    int lingered;
};

static float value(int rank, int round, size_t i)
{
    return (float)((rank + 1) * (int)((i + (size_t)round) % 251));
}

static void fill(float *x, int rank, int round)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        x[i] = value(rank, round, i);
}

static void check_sum(const float *x, int round)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        RANK_CHECK(x[i] == value(0, round, i) + value(1, round, i));
}

/* Each page of it. */
static void scribble(float *x)
{
    for (size_t i = 0; i < ELEMENTS; i += 1024)
        x[i] = -1;
    x[ELEMENTS - 1] = -1;
}

/* Everything that it may try ends at once; what it writes is its own. */
static _Noreturn void be_a_child(struct forks *f, spr_request *request, int number)
{
    bool told = spr_barrier(f->comm, NULL) == SPR_ERR_FORKED &&
                spr_wait(&request, -1) == SPR_ERR_FORKED &&
                spr_comm_progress(f->comm) == SPR_ERR_FORKED &&
                spr_mem_register(f->comm, f->heap, 4096) == SPR_ERR_FORKED;

    scribble(f->bucket);
    scribble(f->heap);
    spr_comm_abort(f->comm, "a child has no say");
    spr_comm_destroy(f->comm);
    if (number % 8 == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause(); /* its parent kills it, some rounds later */
    }
    if (number % 16 == 6)
        execl("/bin/true", "true", (char *)NULL);
    if (MAY_EXIT && number % 16 == 10)
        exit(told ? 0 : 1); /* with all that the library has registered for the end */
    _exit(told ? 0 : 1);
}

static void bury(pid_t pid, int expected)
{
    int status;

    RANK_CHECK(waitpid(pid, &status, 0) == pid);
    if (expected)
        RANK_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == expected);
    else
        RANK_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void let_linger(struct forks *f, pid_t pid)
{
    pid_t *place = &f->lingering[f->lingered++ % LINGERING];

    if (*place) {
        kill(*place, SIGKILL);
        bury(*place, SIGKILL);
    }
    *place = pid;
}

static void fork_once(struct forks *f, spr_request *request, int number)
{
    pid_t pid = fork();

    if (pid == 0)
        be_a_child(f, request, number);
    RANK_CHECK(pid > 0);
    if (number % 8 == 1)
        let_linger(f, pid);
    else
        bury(pid, 0);
}

/* Ranks fork in turn: the other one's chunks are on their way. */
static void run_forks(struct job *job, int rank, spr_comm *comm)
{
    struct forks f = {.comm = comm, .heap = malloc(ELEMENTS * sizeof(float))};
    int forks = *(const int *)job->arg;

    RANK_CHECK(f.heap &&
               spr_mem_alloc(comm, ELEMENTS * sizeof(float), (void **)&f.bucket) == SPR_OK);
    for (int i = 0; i < forks; i++) {
        float *x = i / 2 % 2 ? f.heap : f.bucket;
        spr_request *request = NULL;
        fill(x, rank, i);
        RANK_CHECK(spr_iallreduce(comm, x, x, ELEMENTS, SPR_FP32, SPR_SUM, NULL, &request) ==
                   SPR_OK);
        if (rank == i % 2)
            fork_once(&f, request, i / 2);
        RANK_CHECK(spr_wait(&request, -1) == SPR_OK);
        check_sum(x, i);
    }
    for (int k = 0; k < LINGERING; k++)
        if (f.lingering[k]) {
            kill(f.lingering[k], SIGKILL);
            bury(f.lingering[k], SIGKILL);
        }
    spr_mem_free(comm, f.bucket);
    free(f.heap);
}

static void children_change_nothing(void **state)
{
    struct fault_census before = fault_census_take();
    int all = fault_repeats(FORKS, SOAK_FORKS), done = 0;

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        uint64_t begin = spr_monotonic_ns();
        int forks = (all - done) / (int)(job_transport_count - t);
        struct job job;
        job_start(&job, 2, job_transports[t], run_forks, &forks);
        job_expect_success(&job, SECONDS);
        done += forks;
        print_message("%s: %d forks, %.3g s\n", job_transports[t], forks,
                      (double)(spr_monotonic_ns() - begin) * 1e-9);
    }
    fault_census_expect(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_change_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
