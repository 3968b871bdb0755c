/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture: the n-th allocation fails, the n-th call of mmap, socket, epoll_create ... fails, for
 * every n, and there are only n descriptors. Two ranks make a communicator and use it; in one of
 * them something fails once. Each call then either works or gives an error with a text; nothing
 * crashes, hangs or leaks, and the next communicator of the same processes works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "tests/multi/failing.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 240
/* A rank that fails during start-up leaves the other one waiting. */
#define INIT_TIMEOUT_S 0.3

/* What the ranks do ---------------------------------------------------------------------------- */

enum { N = 30000, ENTRIES = 300 };

/* An error has a text of one line; want of memory is not another rank's fault. */
static void explain(int rank, spr_status status, const char *text)
{
    char other[24];

    if (status == SPR_OK)
        return;
    snprintf(other, sizeof other, "rank %d ", 1 - rank);
    if (failing_armed() && (strstr(text, "no memory") || strstr(text, "allocate") ||
                            strstr(text, "open files") || strstr(text, "no descriptors")))
        RANK_CHECK(strncmp(text, other, strlen(other)) != 0);
    RANK_CHECK(status < 0 && strcmp(spr_status_name(status), "SPR_ERR_UNKNOWN") != 0);
    if (!*text || strchr(text, '\n'))
        fprintf(stderr, "%s has the text '%s'\n", spr_status_name(status), text);
    RANK_CHECK(*text && strchr(text, '\n') == NULL);
}

/* Returns the first error. */
static spr_status use(spr_comm *comm)
{
    static uint32_t index[ENTRIES];
    static float value[ENTRIES], x[N];
    spr_sparse list = {index, value, ENTRIES, 0};
    static const char *const specs[] = {"topk:ratio=1%", "powersgd:rank=2", "random:ratio=1%"};
    spr_layout layout = {1, "w", 0, N / 40, 40};
    spr_codec *codec = NULL;
    void *memory = NULL;
    spr_status status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);

    for (uint32_t i = 0; i < ENTRIES; i++)
        index[i] = i * (N / ENTRIES);
    if (status == SPR_OK)
        status = spr_sparse_allreduce(comm, &list, N, x, NULL, SPR_SUM, NULL);
    for (size_t i = 0; status == SPR_OK && i < SPR_ARRAY_LEN(specs); i++) {
        status = spr_codec_create(specs[i], &layout, 1, &codec);
        if (status == SPR_OK)
            status = spr_compressed_allreduce(comm, codec, x, SPR_SUM, NULL);
        spr_codec_destroy(codec);
        codec = NULL;
    }
    if (status == SPR_OK)
        status = spr_mem_alloc(comm, sizeof x, &memory);
    if (status == SPR_OK)
        status = spr_barrier(comm, NULL);
    explain(spr_comm_rank(comm), status, spr_last_error(comm));
    spr_mem_free(comm, memory);
    return status;
}

static spr_status one_life(struct job *job, int rank, double timeout_s)
{
    spr_comm_options options;
    spr_bootstrap bootstrap;
    spr_comm *comm = NULL;
    spr_status status;

    job_options(job, rank, &options, &bootstrap);
    options.init_timeout_s = timeout_s;
    status = spr_comm_create(&options, &comm);
    explain(rank, status, spr_last_error(NULL));
    RANK_CHECK((status == SPR_OK) == (comm != NULL));
    if (status != SPR_OK)
        job_break(job);
    else
        status = use(comm);
    spr_comm_destroy(comm);
    return status;
}

/* In shared memory. */
struct control {
    struct fault_meeting meeting;
    _Atomic int go_on;
    _Atomic uint64_t n; /* for the test that reports a hang */
    uint64_t sites;
};

struct torture {
    const char *call;
    int rank; /* where it fails: rank 1 connects, rank 0 is connected to */
};

/* For n = 1, 2, ... until nothing fails any more. Never returns to the caller's communicator. */
static void torture(struct job *job, int rank)
{
    const struct torture *t = job->arg;
    const char *call = t->call;
    struct control *c = (void *)job->shared;
    struct fault_census before;
    int times = 0;

    atomic_store(&c->go_on, 1);
    spr_mem_fail_nth(0);
    RANK_CHECK(one_life(job, rank, 30) == SPR_OK); /* what is made once is there then */
    before = fault_census_take();
    for (uint64_t n = 1; atomic_load(&c->go_on); n++) {
        bool hit = false;
        fault_meet(&c->meeting, 2, rank, &times);
        if (rank == t->rank) {
            job_renew(job);
            atomic_store(&c->n, n);
        }
        fault_meet(&c->meeting, 2, rank, &times);
        if (rank == t->rank)
            failing_arm(call, n);
        one_life(job, rank, INIT_TIMEOUT_S);
        if (rank == t->rank)
            hit = failing_disarm(call, n);
        RANK_CHECK(spr_mem_live() == 0);
        RANK_CHECK(fault_census_take().descriptors == before.descriptors);
        RANK_CHECK(fault_census_take().memfds == before.memfds);
        if (rank == t->rank && !hit) {
            c->sites = n - 1;
            atomic_store(&c->go_on, 0);
        }
        fault_meet(&c->meeting, 2, rank, &times);
    }
    if (rank == 0)
        job_renew(job);
    fault_meet(&c->meeting, 2, rank, &times);
    RANK_CHECK(one_life(job, rank, 30) == SPR_OK);
    _exit(0);
}

static void torture_one(const char *transport, struct torture *t)
{
    uint64_t begin = spr_monotonic_ns();
    const struct control *c;
    struct job job;

    job_prepare = torture;
    job_start(&job, 2, transport, NULL, t);
    c = (void *)job.shared;
    if (!job_wait(&job, SECONDS) || job.codes[0] || job.codes[1])
        fail_msg("over %s, %s number %d fails in rank %d: ranks ended with %d and %d", transport,
                 t->call, (int)c->n, t->rank, job.codes[0], job.codes[1]);
    assert_true(c->sites > 10 || strcmp(t->call, "allocation") != 0); /* it does fail */
    printf("%-6s %-28s rank %d: %4d sites, %.1f s\n", transport, t->call, t->rank, (int)c->sites,
           (double)(spr_monotonic_ns() - begin) * 1e-9);
    fflush(stdout);
    munmap(job.shared, JOB_SHARED_BYTES);
}

static void torture_over(const char *transport)
{
    for (size_t i = 0; i < failing_calls_count; i++)
        for (int rank = 0; rank < 2; rank++)
            torture_one(transport, &(struct torture){failing_calls[i], rank});
}

static void shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("shm");
}

static void epoll_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("epoll");
}

static void io_uring_survives_what_fails_once(void **state)
{
    (void)state;
#ifdef HAVE_URING
    torture_over("uring");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_survives_what_fails_once),
        cmocka_unit_test(epoll_survives_what_fails_once),
        cmocka_unit_test(io_uring_survives_what_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
