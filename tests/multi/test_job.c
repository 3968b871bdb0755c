/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Real processes on every transport: right results, the same bits everywhere, a killed rank named
 * by all survivors.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

#define SECONDS 60

static uint64_t seed;

static float input(int rank, size_t i, unsigned salt)
{
    return (float)((double)spr_hash_u32(seed ^ (uint64_t)rank << 40 ^ (uint64_t)salt << 50 ^ i) *
                       0x1p-31 -
                   1.0);
}

/* n sums, of the elements from `first` on. */
static void check_sum(const float *out, size_t first, size_t n, int size, unsigned salt)
{
    for (size_t i = 0; i < n; i++) {
        double want = 0, magnitude = 0;
        for (int r = 0; r < size; r++) {
            want += (double)input(r, first + i, salt);
            magnitude += fabs((double)input(r, first + i, salt));
        }
        RANK_CHECK(fabs((double)out[i] - want) <= magnitude * 0x1p-24 * (size + 1));
    }
}

static void fill(float *x, size_t n, int rank, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        x[i] = input(rank, i, salt);
}

/* Those that leave a rank a part, or the elements of one. */
static void run_parts(spr_comm *comm, size_t n, unsigned salt)
{
    int rank = spr_comm_rank(comm), size = spr_comm_size(comm), root = (int)salt % size;
    size_t part = n / (size_t)size + 1, all = part * (size_t)size;
    float *in = malloc(all * 4), *out = calloc(all, 4);

    fill(in, all, rank, salt);
    RANK_CHECK(spr_reduce_scatter(comm, in, out, part, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    check_sum(out, (size_t)rank * part, part, size, salt);
    RANK_CHECK(spr_allgather(comm, in, out, part, SPR_FP32, NULL) == SPR_OK);
    for (size_t i = 0; i < all; i++)
        RANK_CHECK(out[i] == input((int)(i / part), i % part, salt));
    RANK_CHECK(spr_broadcast(comm, in, n, SPR_FP32, root, NULL) == SPR_OK);
    for (size_t i = 0; i < n; i++)
        RANK_CHECK(in[i] == input(root, i, salt));
    free(in);
    free(out);
}

/* All collectives at several sizes; the last result's checksum goes to shared memory. */
static void run_everything(struct job *job, int rank, spr_comm *comm)
{
    static const size_t sizes[] = {1, 100, 5000, 70000, 300000};
    uint32_t *sums = (uint32_t *)job->shared;
    uint32_t crc = 0;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        float *in = malloc(n * 4), *out = malloc(n * 4);
        for (int a = -1; a < 0 || spr_algorithm_name("allreduce", a); a++) {
            spr_call_options options = SPR_CALL_OPTIONS_INIT;
            options.algorithm = a < 0 ? "auto" : spr_algorithm_name("allreduce", a);
            if (a >= 0 && !reference_allreduce_takes(options.algorithm, SPR_FP32, n))
                continue;
            fill(in, n, rank, (unsigned)s);
            RANK_CHECK(spr_allreduce(comm, in, out, n, SPR_FP32, SPR_SUM, &options) == SPR_OK);
            check_sum(out, 0, n, job->size, (unsigned)s);
            crc = spr_crc32c(crc, out, n * 4);
            RANK_CHECK(spr_allreduce(comm, in, in, n, SPR_FP32, SPR_SUM, &options) == SPR_OK);
            RANK_CHECK(!memcmp(in, out, n * 4));
        }
        run_parts(comm, n, (unsigned)s);
        RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
        free(in);
        free(out);
    }
    sums[rank] = crc;
}

static void all_collectives_are_right_on_every_transport(void **state)
{
    static const int worlds[] = {2, 3, 5, 1, 4, 7, 9};
    size_t most = reference_small_scale() ? 3 : sizeof worlds / sizeof *worlds;

    (void)state;
    for (size_t w = 0; w < most; w++) {
        uint32_t first = 0;
        for (size_t t = 0; t < job_transport_count; t++) {
            struct job job;
            uint32_t sums[JOB_MAX];
            job_start(&job, worlds[w], job_transports[t], run_everything, NULL);
            assert_true(job_wait(&job, SECONDS));
            memcpy(sums, job.shared, sizeof sums);
            job_expect_success(&job, 1);
            for (int r = 0; r < worlds[w]; r++) {
                first = first ? first : sums[r];
                assert_int_equal(sums[r], first);
            }
        }
    }
}

static void fill_vector(float *full, size_t n, const spr_sparse *list)
{
    memset(full, 0, n * sizeof *full);
    for (size_t i = 0; i < list->count; i++)
        full[list->index[i]] = list->value[i];
}

/* Evenly spread over n positions, somewhere else on each rank. */
static void draw_list(spr_sparse *list, size_t count, size_t n, int rank)
{
    size_t gap = n / (count + 1);

    list->count = count;
    for (size_t i = 0; i < count; i++) {
        list->index[i] = (uint32_t)(i * gap + spr_hash_u32((uint64_t)rank << 32 ^ i) % gap);
        list->value[i] = input(rank, i, 7);
    }
}

/* The union's positions in order, all of them, with the values of the dense result. */
static void check_list(const spr_sparse *list, const float *dense, size_t n)
{
    size_t listed = 0, there = 0;

    for (size_t i = 0; i < n; i++)
        there += dense[i] != 0;
    for (size_t i = 0; i < list->count; i++) {
        RANK_CHECK(i == 0 || list->index[i] > list->index[i - 1]);
        RANK_CHECK(!memcmp(&list->value[i], &dense[list->index[i]], sizeof(float)));
        listed += list->value[i] != 0;
    }
    RANK_CHECK(listed == there);
}

/* Every algorithm gives the same to all; those that add in rank order, the bits of a dense one. */
static void run_sparse(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 400000, MOST = N / 4 };
    const size_t counts[] = {4000, 4000, (size_t)(rank % 2), 400, MOST, (size_t)rank * 3000};
    uint32_t crc = 0;
    float *dense = malloc(N * 4), *full = malloc(N * 4);
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_sparse in = {malloc(MOST * 4), malloc(MOST * 4), 0, 0};
    spr_sparse sum = {malloc(N * 4), malloc(N * 4), 0, N};

    for (int a = 0; (options.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
        bool canonical = spr_algorithm_is_canonical("sparse_allreduce", options.algorithm);
        for (size_t step = 0; step < sizeof counts / sizeof *counts; step++) {
            bool list = step % 2 && reference_sparse_lists(options.algorithm);
            draw_list(&in, counts[step], N, rank);
            memset(dense, 0xff, N * 4); /* not the result of the algorithm before */
            sum.count = 0;
            RANK_CHECK(spr_sparse_allreduce(comm, &in, N, dense, list ? &sum : NULL, SPR_AVG,
                                            &options) == SPR_OK);
            if (list)
                check_list(&sum, dense, N);
            fill_vector(full, N, &in);
            RANK_CHECK(spr_allreduce(comm, full, full, N, SPR_FP32, SPR_AVG, NULL) == SPR_OK);
            for (size_t i = 0; i < N; i++)
                RANK_CHECK(fabsf(dense[i] - full[i]) <= 1e-5f);
            RANK_CHECK(!canonical || !memcmp(dense, full, N * 4));
        }
        crc = spr_crc32c(crc, dense, N * 4);
    }
    ((uint32_t *)job->shared)[rank] = crc;
    free(in.index);
    free(in.value);
    free(sum.index);
    free(sum.value);
    free(dense);
    free(full);
}

static void sparse_has_the_same_bits_on_every_transport(void **state)
{
    uint32_t first = 0;

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 5, job_transports[t], run_sparse, NULL);
        assert_true(job_wait(&job, SECONDS));
        for (int r = 0; r < 5; r++) {
            first = first ? first : ((uint32_t *)job.shared)[r];
            assert_int_equal(((uint32_t *)job.shared)[r], first);
        }
        job_expect_success(&job, 1);
    }
}

static void run_compressed(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 100000, BUCKETS = 3 };
    static const char *const specs[BUCKETS] = {"topk:ratio=1%", "powersgd:rank=3", "qsgd"};
    spr_layout layout = {1, "w", 0, 200, N / 200};
    spr_codec *codec[BUCKETS];
    spr_request *requests[BUCKETS];
    float *gradient[BUCKETS];

    for (int b = 0; b < BUCKETS; b++) {
        RANK_CHECK(spr_codec_create(specs[b], &layout, 1, &codec[b]) == SPR_OK);
        RANK_CHECK(spr_mem_alloc(comm, N * 4, (void **)&gradient[b]) == SPR_OK);
    }
    for (int step = 0; step < 5; step++) {
        for (int b = 0; b < BUCKETS; b++) {
            for (size_t i = 0; i < N; i++)
                gradient[b][i] = input(rank, i, (unsigned)(step * BUCKETS + b));
            RANK_CHECK(spr_icompressed_allreduce(comm, codec[b], gradient[b], SPR_AVG, NULL,
                                                 &requests[b]) == SPR_OK);
        }
        for (int b = 0; b < BUCKETS; b++)
            RANK_CHECK(spr_wait(&requests[b], 30) == SPR_OK);
    }
    ((uint32_t *)job->shared)[rank] = 0;
    for (int b = 0; b < BUCKETS; b++) {
        ((uint32_t *)job->shared)[rank] =
            spr_crc32c(((uint32_t *)job->shared)[rank], gradient[b], N * 4);
        spr_mem_free(comm, gradient[b]);
        spr_codec_destroy(codec[b]);
    }
}

static void compressed_buckets_overlap_and_agree(void **state)
{
    uint32_t first = 0;

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 4, job_transports[t], run_compressed, NULL);
        assert_true(job_wait(&job, SECONDS));
        for (int r = 0; r < 4; r++) {
            first = first ? first : ((uint32_t *)job.shared)[r];
            assert_int_equal(((uint32_t *)job.shared)[r], first);
        }
        job_expect_success(&job, 1);
    }
}

/* Runs until a collective fails; the exit code says whether the error names the victim. */
static void run_until_failure(struct job *job, int rank, spr_comm *comm)
{
    enum { N = 200000 };
    float *x = calloc(N, 4);
    char name[32];
    spr_status status = SPR_OK;

    snprintf(name, sizeof name, "rank %d", *(int *)job->arg);
    atomic_fetch_add((_Atomic int *)job->shared, 1);
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);
    /* REVOKED: it was noticed between two calls. */
    if (status != SPR_ERR_RANK_LOST && status != SPR_ERR_REVOKED)
        fprintf(stderr, "rank %d: %s\n", rank, spr_status_name(status));
    RANK_CHECK(status == SPR_ERR_RANK_LOST || status == SPR_ERR_REVOKED);
    if (!strstr(spr_last_error(comm), name))
        fprintf(stderr, "rank %d: '%s' does not name %s\n", rank, spr_last_error(comm), name);
    RANK_CHECK(strstr(spr_last_error(comm), name));
    status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);
    RANK_CHECK(status == SPR_ERR_REVOKED);
}

static void a_killed_rank_is_named_by_all_survivors(void **state)
{
    struct spr_rng rng = {seed, 3};

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int trial = reference_small_scale() ? 4 : 0; trial < 6; trial++) {
            int size = 2 + (int)spr_rng_below(&rng, 4),
                victim = (int)spr_rng_below(&rng, (uint64_t)size);
            struct timespec pause = {0, 1000000 + (long)spr_rng_below(&rng, 30000000)};
            struct job job;
            job_start(&job, size, job_transports[t], run_until_failure, &victim);
            while (atomic_load((_Atomic int *)job.shared) < size)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
            nanosleep(&pause, NULL);
            kill(job.pids[victim], SIGKILL);
            assert_true(job_wait(&job, 20));
            for (int r = 0; r < size; r++)
                assert_int_equal(job.codes[r], r == victim ? 128 + SIGKILL : 0);
        }
    }
}

static void run_abort(struct job *job, int rank, spr_comm *comm)
{
    float x[1000] = {0};
    spr_status status = SPR_OK;

    /* Not before everybody is out of spr_comm_create. */
    atomic_fetch_add((_Atomic int *)job->shared, 1);
    if (rank == 1) {
        while (atomic_load((_Atomic int *)job->shared) < job->size)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        uint64_t begin = spr_monotonic_ns();
        spr_comm_abort(comm, "the loss is not a number");
        RANK_CHECK(spr_monotonic_ns() - begin < 1000000000);
        RANK_CHECK(spr_barrier(comm, NULL) == SPR_ERR_REVOKED);
        return;
    }
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, 1000, SPR_FP32, SPR_SUM, NULL);
    RANK_CHECK(status == SPR_ERR_REVOKED);
    RANK_CHECK(strstr(spr_last_error(comm), "the loss is not a number"));
    RANK_CHECK(strstr(spr_last_error(comm), "rank 1"));
}

static void an_abort_reaches_everybody_with_its_reason(void **state)
{
    (void)state;
    job_on_all_transports(4, run_abort, NULL, 20);
}

static void run_late(struct job *job, int rank, spr_comm *comm)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    float x[100000] = {0};
    spr_status status;

    (void)job;
    options.timeout_s = 0.3;
    options.name = "late";
    if (rank == 2) /* never takes part, but lives */
        while (spr_comm_progress(comm) >= 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    else {
        status = spr_allreduce(comm, x, x, 100000, SPR_FP32, SPR_SUM, &options);
        RANK_CHECK(status == SPR_ERR_DEADLINE);
        RANK_CHECK(strstr(spr_last_error(comm), "late"));
        RANK_CHECK(strstr(spr_last_error(comm), "waiting for rank 2"));
    }
}

static void a_deadline_names_who_is_late(void **state)
{
    (void)state;
    job_on_all_transports(3, run_late, NULL, 20);
}

static void run_two_apart(struct job *job, int rank, spr_comm *comm)
{
    spr_request *a = NULL, *b = NULL;
    enum { N = 150000 };
    float *x = calloc(N, 4), *y = calloc(N, 4);

    /* Many in flight, waited for in the other order; a wait that gives up leaves the request
     * running. */
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < N; k++)
            x[k] = y[k] = input(rank, k, 1);
        RANK_CHECK(spr_iallreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL, &a) == SPR_OK);
        RANK_CHECK(spr_iallreduce(comm, y, y, N, SPR_FP32, SPR_MAX, NULL, &b) == SPR_OK);
        if (rank == i % job->size) {
            spr_status status = spr_wait(&b, 0);
            RANK_CHECK(status == SPR_ERR_TIMEOUT || status == SPR_OK);
        }
        if (b)
            RANK_CHECK(spr_wait(&b, -1) == SPR_OK);
        RANK_CHECK(spr_wait(&a, -1) == SPR_OK);
        check_sum(x, 0, N / 100, job->size, 1);
    }
}

static void requests_may_be_waited_for_in_any_order(void **state)
{
    (void)state;
    job_on_all_transports(3, run_two_apart, NULL, SECONDS);
}

/* The error of the last call, not of an earlier one. */
static void run_misuse(struct job *job, int rank, spr_comm *comm)
{
    static char bytes[8192];
    void *memory = NULL;

    (void)job, (void)rank;
    RANK_CHECK(spr_mem_alloc(comm, 0, &memory) == SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), "0 bytes"));
    RANK_CHECK(spr_mem_register(comm, bytes, sizeof bytes) == SPR_OK);
    RANK_CHECK(!*spr_last_error(NULL));
    RANK_CHECK(spr_mem_alloc(comm, 0, &memory) == SPR_ERR_INVALID);
    RANK_CHECK(spr_mem_register(comm, bytes + 1, 1) == SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), "overlaps"));
    RANK_CHECK(spr_mem_deregister(comm, bytes + 1) == SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), "not registered here"));
    RANK_CHECK(spr_mem_alloc(comm, 1, &memory) == SPR_OK && !*spr_last_error(NULL));
    RANK_CHECK(spr_mem_alloc(comm, 1, NULL) == SPR_ERR_INVALID && *spr_last_error(NULL));
    RANK_CHECK(spr_mem_deregister(comm, bytes) == SPR_OK && !*spr_last_error(NULL));
    spr_mem_free(comm, bytes);
    RANK_CHECK(!*spr_last_error(NULL));
    spr_mem_free(comm, memory);
}

static void misuse_of_memory_is_explained_each_time(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, 1, "shm", run_misuse, NULL);
    job_expect_success(&job, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives_are_right_on_every_transport),
        cmocka_unit_test(sparse_has_the_same_bits_on_every_transport),
        cmocka_unit_test(compressed_buckets_overlap_and_agree),
        cmocka_unit_test(a_killed_rank_is_named_by_all_survivors),
        cmocka_unit_test(an_abort_reaches_everybody_with_its_reason),
        cmocka_unit_test(a_deadline_names_who_is_late),
        cmocka_unit_test(misuse_of_memory_is_explained_each_time),
        cmocka_unit_test(requests_may_be_waited_for_in_any_order),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
