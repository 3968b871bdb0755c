/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture while a communicator is split: in one of three ranks the n-th allocation fails, or the
 * n-th socket, mmap, epoll_create1 ..., for every n. All ranks have the same outcome, soon; parts
 * work, and so does the parent, with those that are left; nothing crashes, hangs or leaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "collectives/comm.h"
#include "tests/multi/failing.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 240
#define RANKS 3
/* Who cannot make a link leaves the others waiting for so long. */
#define WAIT_S 0.5
#define LONGEST_S 6.0

/* In shared memory. */
struct control {
    struct fault_meeting meeting;
    _Atomic int go_on;
    _Atomic int outcome[RANKS];
    uint64_t n, sites, split;
};

struct torture {
    const char *call;
    int victim;
};

static spr_comm *make(const struct job *job, int rank, uint64_t n)
{
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;
    char root[64];

    snprintf(root, sizeof root, "unix:test_split_torture.%d.%d", (int)getppid(), (int)n);
    create.transports = job->transports;
    create.interface_name = job_interface;
    create.secret = job_secret;
    create.secret_bytes = strlen(job_secret) + 1;
    create.root = root;
    create.rank = rank;
    create.size = RANKS;
    RANK_CHECK(spr_comm_create(&create, &comm) == SPR_OK);
    comm->options.init_timeout_s = WAIT_S;
    return comm;
}

/* Sum with all that are left; shrink as often as it takes. */
static void go_on(spr_comm *comm)
{
    float x = 1, sum = 0;

    for (int i = 0; spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) != SPR_OK; i++) {
        RANK_CHECK(i < 5);
        RANK_CHECK(spr_comm_shrink(comm, 3, NULL) == SPR_OK);
    }
    RANK_CHECK(sum == RANKS && spr_comm_size(comm) == RANKS);
}

static bool one_life(struct job *job, int rank, uint64_t n, int *times)
{
    const struct torture *t = job->arg;
    struct control *c = (void *)job->shared;
    bool fails = n > 0 && rank == t->victim, hit = false;
    spr_comm *comm = make(job, rank, n), *part = comm;
    const char *text;
    spr_status status;
    uint64_t begin;
    double took;

    fault_meet(&c->meeting, RANKS, rank, times);
    begin = spr_monotonic_ns();
    if (fails)
        failing_arm(t->call, n);
    status = spr_comm_split(comm, rank > 0, 0, &part); /* rank 0 alone */
    if (fails)
        hit = failing_disarm(t->call, n);
    took = (double)(spr_monotonic_ns() - begin) * 1e-9;
    text = spr_last_error(NULL);
    if (took > LONGEST_S * spr_time_factor())
        fprintf(stderr, "%s %d in %d: rank %d: took %.1f s: %s: %s\n", t->call, (int)n, t->victim,
                rank, took, spr_status_name(status), text);
    RANK_CHECK(took < LONGEST_S * spr_time_factor());
    RANK_CHECK((status == SPR_OK) == (part != comm));
    RANK_CHECK(status == SPR_OK || (*text && !strchr(text, '\n')));
    atomic_store(&c->outcome[rank], status);
    fault_meet(&c->meeting, RANKS, rank, times);
    for (int r = 0; r < RANKS; r++)
        RANK_CHECK(!atomic_load(&c->outcome[r]) == !status);
    if (status == SPR_OK) {
        float x = 1, sum = 0;
        RANK_CHECK(spr_allreduce(part, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        RANK_CHECK(sum == (rank > 0 ? 2 : 1));
        spr_comm_destroy(part);
        c->split += rank == 0;
    }
    go_on(comm);
    spr_comm_destroy(comm);
    return hit;
}

/* For n = 1, 2, ... until nothing fails any more. */
static void torture(struct job *job, int rank)
{
    const struct torture *t = job->arg;
    struct control *c = (void *)job->shared;
    struct fault_census before = {0};
    int times = 0;

    atomic_store(&c->go_on, 1);
    for (uint64_t n = 0; atomic_load(&c->go_on); n++) {
        bool hit;
        if (rank == 0)
            c->n = n;
        hit = one_life(job, rank, n, &times);
        if (n == 0) /* what is made once is there now */
            before = fault_census_take();
        RANK_CHECK(spr_mem_live() == 0);
        RANK_CHECK(fault_census_take().descriptors == before.descriptors);
        RANK_CHECK(fault_census_take().memfds == before.memfds);
        fault_meet(&c->meeting, RANKS, rank, &times);
        if (n > 0 && rank == t->victim && !hit) {
            c->sites = n - 1;
            atomic_store(&c->go_on, 0);
        }
        fault_meet(&c->meeting, RANKS, rank, &times);
    }
    RANK_CHECK(rank > 0 || c->split > 0);
    _exit(0);
}

static void torture_one(const char *transport, struct torture *t)
{
    uint64_t begin = spr_monotonic_ns();
    const struct control *c;
    struct job job;

    job_prepare = torture;
    job_start(&job, RANKS, transport, NULL, t);
    c = (void *)job.shared;
    if (!job_wait(&job, SECONDS) || job.codes[0] || job.codes[1] || job.codes[2])
        fail_msg("over %s, %s number %d fails in rank %d: they ended with %d, %d and %d", transport,
                 t->call, (int)c->n, t->victim, job.codes[0], job.codes[1], job.codes[2]);
    assert_true(c->sites > 10 || strcmp(t->call, "allocation") != 0); /* it does fail */
    printf("%-6s %-28s rank %d: %4d sites, %d split, %.1f s\n", transport, t->call, t->victim,
           (int)c->sites, (int)c->split, (double)(spr_monotonic_ns() - begin) * 1e-9);
    fflush(stdout);
    munmap(job.shared, JOB_SHARED_BYTES);
}

static void torture_over(const char *transport)
{
    /* What the others add to this are their sockets. */
    bool all = !strcmp(transport, "shm") || getenv("SPARRING_SOAK");

    for (size_t i = 0; i < (all ? failing_calls_count : 2); i++)
        for (int victim = 0; victim < 2; victim++)
            torture_one(transport, &(struct torture){failing_calls[i], victim});
}

static void splitting_over_shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("shm");
}

static void splitting_over_epoll_survives_what_fails_once(void **state)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");

    (void)state;
    if (scale && strtod(scale, NULL) < 1) /* as under sanitizers */
        skip();
    torture_over("epoll");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitting_over_shared_memory_survives_what_fails_once),
        cmocka_unit_test(splitting_over_epoll_survives_what_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
