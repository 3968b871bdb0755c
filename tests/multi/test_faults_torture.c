/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture: the n-th allocation fails, the n-th call of mmap, socket, epoll_create ... fails, for
 * every n, and there are only n descriptors. Two ranks make a communicator and use it; in one of
 * them something fails once. Each call then either works or gives an error with a text; nothing
 * crashes, hangs or leaks, and the next communicator of the same processes works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/multi/torture.h"

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
    torture_check_text(status, text);
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
    if (status == SPR_OK)
        status = spr_comm_tune_for(comm, "sparse_allreduce", N, SPR_FP32, ENTRIES);
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

static spr_status make_and_use(struct job *job, int rank, double timeout_s)
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

/* Another communicator can be made. */
static void renew(struct job *job, int rank, int *times)
{
    torture_meet(job, rank, times);
    if (rank == 0)
        job_renew(job);
    torture_meet(job, rank, times);
}

static bool one_life(struct job *job, int rank, uint64_t n, int *times)
{
    spr_status status;
    bool hit;

    if (n > 0)
        renew(job, rank, times);
    torture_arm(job, rank, n);
    status = make_and_use(job, rank, n > 0 ? INIT_TIMEOUT_S : 30);
    hit = torture_disarm(job, rank, n);
    RANK_CHECK(n > 0 || status == SPR_OK);
    torture_tell(job, rank, status);
    return hit;
}

static void last_life(struct job *job, int rank, int *times)
{
    renew(job, rank, times);
    RANK_CHECK(make_and_use(job, rank, 30) == SPR_OK);
}

/* Rank 1 connects, rank 0 is connected to. */
static void torture(const char *transport)
{
    const struct torture t = {.processes = 2, .life = one_life, .after = last_life};

    torture_over(transport, &t, failing_calls_count, 2);
}

static void shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture("shm");
}

static void epoll_survives_what_fails_once(void **state)
{
    (void)state;
    torture("epoll");
}

static void io_uring_survives_what_fails_once(void **state)
{
    (void)state;
    if (!job_has_transport("uring"))
        skip();
    torture("uring");
}

/* After the others. */
static void every_call_has_failed_somewhere(void **state)
{
    (void)state;
    torture_expect_sites();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_survives_what_fails_once),
        cmocka_unit_test(epoll_survives_what_fails_once),
        cmocka_unit_test(io_uring_survives_what_fails_once),
        cmocka_unit_test(every_call_has_failed_somewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
