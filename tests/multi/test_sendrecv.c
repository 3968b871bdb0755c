/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sendrecv between real processes on every transport, and of a rank with itself.
 */
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

#define SECONDS 120
#define LARGE ((size_t)4 << 20) /* bytes */

static uint64_t seed;

static uint32_t word(int rank, uint64_t salt, size_t i)
{
    return spr_hash_u32(seed ^ (uint64_t)rank << 40 ^ salt << 48 ^ i);
}

static int source_of(int rank, int shift, int size)
{
    int64_t from = ((int64_t)rank - shift) % size;

    return (int)(from < 0 ? from + size : from);
}

static void run_once(spr_comm *comm, uint32_t *in, uint32_t *out, size_t bytes, int shift)
{
    int size = spr_comm_size(comm), rank = spr_comm_rank(comm);
    int from = source_of(rank, shift, size);
    uint64_t salt = (uint64_t)(shift & 0xff);
    size_t n = bytes / 4;

    for (size_t i = 0; i < n; i++)
        in[i] = word(rank, salt, i);
    memset(out, 0xee, bytes + 4);
    RANK_CHECK(spr_sendrecv(comm, in, out, n, SPR_INT32, shift, NULL) == SPR_OK);
    for (size_t i = 0; i < n; i++)
        RANK_CHECK(out[i] == word(from, salt, i));
    RANK_CHECK(out[n] == 0xeeeeeeeeu);
}

static void run_all(struct job *job, int rank, spr_comm *comm)
{
    static const size_t sizes[] = {
        0, 4, 8192, 8196, SPR_CHUNK_BYTES - 4, SPR_CHUNK_BYTES, SPR_CHUNK_BYTES + 4, LARGE};
    const int shifts[] = {0, 1, -1, 2, job->size, -3 * job->size - 2, INT_MAX, INT_MIN};
    uint32_t *in = malloc(LARGE + 4), *out = malloc(LARGE + 4);

    (void)rank;
    for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++)
        for (size_t i = 0; i < SPR_ARRAY_LEN(shifts); i++)
            if (sizes[s] < LARGE || i < 3)
                run_once(comm, in, out, sizes[s], shifts[i]);
    free(in);
    free(out);
}

static void every_shift_and_size_is_right_on_every_transport(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int size = 1; size <= (reference_small_scale() ? 3 : 9); size++) {
            struct job job;
            job_start(&job, size, job_transports[t], run_all, NULL);
            job_expect_success(&job, SECONDS);
        }
}

/* What goes to oneself is moved by whoever moves the rest ------------------------------------- */

static void count(void *done, spr_status status)
{
    RANK_CHECK(status == SPR_OK);
    atomic_fetch_add((_Atomic int *)done, 1);
}

/* Nobody waits: the library's thread moves it, or the caller's calls of progress do. */
static void run_callback(struct job *job, int rank, spr_comm *comm)
{
    bool poll_fd = *(const bool *)job->arg;
    uint32_t *in = malloc(LARGE), *out = malloc(LARGE);
    _Atomic int done = 0;
    spr_request *rq;

    (void)rank;
    for (int i = 1; i <= 50; i++) {
        size_t bytes = i % 2 ? 4000 : LARGE / 4;
        memset(in, i, bytes);
        RANK_CHECK(spr_isendrecv(comm, in, out, bytes / 4, SPR_FP32, job->size, NULL, &rq) ==
                   SPR_OK);
        spr_on_complete(rq, count, &done);
        while (atomic_load(&done) < i) {
            struct pollfd p = {.fd = spr_comm_fd(comm), .events = POLLIN};
            if (!poll_fd)
                poll(NULL, 0, 1);
            else if (spr_comm_progress(comm) == 0 && spr_comm_arm(comm) == SPR_OK)
                poll(&p, 1, 100);
        }
        RANK_CHECK(spr_test(&rq) == SPR_OK);
        RANK_CHECK(!memcmp(in, out, bytes));
    }
    free(in);
    free(out);
}

static void nobody_has_to_wait_for_what_goes_to_oneself(void **state)
{
    static const bool polled[] = {false, true};

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int size = 1; size <= 2; size++)
            for (size_t i = 0; i < 2; i++) {
                struct job job;
                setenv("SPARRING_PROGRESS", polled[i] ? "caller" : "thread", 1);
                job_start(&job, size, job_transports[t], run_callback,
                          (void *)(uintptr_t)&polled[i]);
                unsetenv("SPARRING_PROGRESS");
                job_expect_success(&job, SECONDS);
            }
}

/* The list of transports ----------------------------------------------------------------------- */

static void run_self(struct job *job, int rank, spr_comm *comm)
{
    (void)job;
    RANK_CHECK(!strcmp(spr_comm_transport(comm, rank), "self"));
    run_all(job, rank, comm);
}

static void a_rank_alone_may_name_self_only(void **state)
{
    static const char *const lists[] = {"self", "auto", "self,shm"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        struct job job;
        job_start(&job, 1, lists[i], run_self, NULL);
        job_expect_success(&job, SECONDS);
    }
}

static void self_may_be_named_beside_others(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, 2, "self,epoll", run_self, NULL);
    job_expect_success(&job, SECONDS);
}

static void no_rank_may_be_here(struct job *job, int rank, spr_comm *comm)
{
    (void)job;
    (void)rank;
    (void)comm;
    _Exit(0);
}

/* Also parts of a name, and empty ones. */
static void lists_that_lead_nowhere_are_refused(void **state)
{
    static const char *const lists[] = {"s", "sh", "self,", "", "pigeon"};
    struct job job;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        spr_comm_options options = SPR_COMM_OPTIONS_INIT;
        spr_comm *comm = NULL;
        options.rank = 0;
        options.size = 1;
        options.file = "/nowhere/needed";
        options.transports = lists[i];
        assert_int_equal(spr_comm_create(&options, &comm), SPR_ERR_INVALID);
        assert_non_null(strstr(spr_last_error(NULL), "there is auto,self,shm,"));
        assert_null(comm);
    }
    /* Two ranks do not reach each other over it. */
    job_start(&job, 2, "self", no_rank_may_be_here, NULL);
    assert_true(job_wait(&job, SECONDS));
    assert_true(job.codes[0] == 98 && job.codes[1] == 98);
    munmap(job.shared, JOB_SHARED_BYTES);
}

/* Ranks that disagree -------------------------------------------------------------------------- */

static void run_disagreement(struct job *job, int rank, spr_comm *comm)
{
    const int *shifts = job->arg;
    uint32_t *in = calloc(1, LARGE), *out = malloc(LARGE);
    spr_status status;

    /* Not before everybody is out of spr_comm_create. */
    atomic_fetch_add((_Atomic int *)job->shared, 1);
    while (atomic_load((_Atomic int *)job->shared) < job->size)
        poll(NULL, 0, 1);
    status = spr_sendrecv(comm, in, out, (size_t)shifts[2] / 4, SPR_FP32, shifts[rank == 1], NULL);
    /* A rank whose neighbours agree with it may be done before it could know. */
    RANK_CHECK(status == SPR_OK || status == SPR_ERR_MISMATCH);
    if (status)
        RANK_CHECK(strstr(spr_last_error(comm), "the ranks disagree: root or shift "));
    if (status)
        atomic_fetch_add((_Atomic int *)job->shared + 1, 1);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK); /* the communicator works on */
    RANK_CHECK(atomic_load((_Atomic int *)job->shared + 1) > 0);
    free(in);
    free(out);
}

static void ranks_that_disagree_on_the_shift_are_told(void **state)
{
    static int cases[][3] = {
        {1, 0, 4000}, {1, 0, LARGE}, {0, 1, 4000}, {0, 1, LARGE}, {1, -1, 0}, {1, 4, LARGE},
    };
    int least = reference_small_scale() ? 3 : 2, most = reference_small_scale() ? 3 : 4;

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int size = least; size <= most; size++)
            for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
                struct job job;
                job_start(&job, size, job_transports[t], run_disagreement, cases[i]);
                job_expect_success(&job, SECONDS);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shift_and_size_is_right_on_every_transport),
        cmocka_unit_test(nobody_has_to_wait_for_what_goes_to_oneself),
        cmocka_unit_test(a_rank_alone_may_name_self_only),
        cmocka_unit_test(self_may_be_named_beside_others),
        cmocka_unit_test(lists_that_lead_nowhere_are_refused),
        cmocka_unit_test(ranks_that_disagree_on_the_shift_are_told),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
