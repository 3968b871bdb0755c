/* SPDX-License-Identifier: BSD-2-Clause
 *
 * NaN and infinities: what comes out is defined, and the same bits on all ranks and transports;
 * SPARRING_CHECK_FINITE stops the job with the rank and the index.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "base/util.h"
#include "compress/codec.h"
#include "compress/value.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

#define SECONDS 60
#define RANKS 3
enum { N = 50000 };

/* What each rank puts in at the first indices; elsewhere it is 1. */
static const float special[][RANKS] = {
    {NAN, 1, 1},
    {1, 1, -NAN},
    {INFINITY, 1, 1},
    {1, -INFINITY, 1},
    {INFINITY, -INFINITY, 1},
    {NAN, INFINITY, 1},
    {3e38f, 3e38f, 3e38f},
    {INFINITY, INFINITY, 1},
};
#define SPECIAL SPR_ARRAY_LEN(special)

static void fill(float *x, int rank)
{
    for (size_t i = 0; i < N; i++)
        x[i] = i < SPECIAL ? special[i][rank] : 1;
}

static bool same(double a, double b) { return isnan(a) ? isnan(b) : a == b; }

static double expected(size_t i, spr_op op)
{
    double sum = 0, least = INFINITY, most = -INFINITY;
    bool nan = false;

    for (int r = 0; r < RANKS; r++) {
        double v = i < SPECIAL ? (double)special[i][r] : 1;
        sum += v;
        nan |= isnan(v);
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    if (op == SPR_SUM || op == SPR_AVG)
        return (double)(float)sum / (op == SPR_AVG ? RANKS : 1);
    return nan ? (double)NAN : op == SPR_MIN ? least : most;
}

static void run_dense(spr_comm *comm, int rank, uint32_t *crc)
{
    static float x[N];
    static double wide[N];
    static uint16_t half[N];

    for (spr_op op = SPR_SUM; op < SPR_OP_COUNT; op++) {
        fill(x, rank);
        RANK_CHECK(spr_allreduce(comm, x, x, N, SPR_FP32, op, NULL) == SPR_OK);
        for (size_t i = 0; i < N; i++)
            RANK_CHECK(same((double)x[i], expected(i, op)));
        *crc = spr_crc32c(*crc, x, sizeof x);
        fill(x, rank);
        for (size_t i = 0; i < N; i++)
            wide[i] = (double)x[i];
        RANK_CHECK(spr_allreduce(comm, wide, wide, N, SPR_FP64, op, NULL) == SPR_OK);
        for (size_t i = 0; i < N; i++)
            RANK_CHECK(i == 6 || same(wide[i], expected(i, op))); /* 9e38 is finite here */
        *crc = spr_crc32c(*crc, wide, sizeof wide);
        fill(x, rank);
        spr_fp16_encode(x, half, N);
        RANK_CHECK(spr_allreduce(comm, half, half, N, SPR_FP16, op, NULL) == SPR_OK);
        spr_fp16_decode(half, x, N);
        for (size_t i = 0; i < N; i++) /* 3e38 is infinite there */
            RANK_CHECK(i == 6 ? isinf(x[i]) : same((double)x[i], expected(i, op)));
        *crc = spr_crc32c(*crc, half, sizeof half);
    }
}

/* NaN and infinities are selected first, sent as they are, and nothing of them stays behind. */
static void run_topk(spr_comm *comm, int rank, uint32_t *crc)
{
    spr_layout layout = {1, "w", 0, N, 1};
    static float x[N];
    spr_codec *codec;

    RANK_CHECK(spr_codec_create("topk:ratio=1%", &layout, 1, &codec) == SPR_OK);
    for (int step = 0; step < 3; step++) {
        fill(x, rank);
        for (size_t i = 0; step > 0 && i < SPECIAL; i++)
            x[i] = 1;
        RANK_CHECK(spr_compressed_allreduce(comm, codec, x, SPR_SUM, NULL) == SPR_OK);
        for (size_t i = 0; i < N; i++) {
            bool finite = step > 0 || i >= SPECIAL || i == 6;
            RANK_CHECK(finite ? i == 6 || isfinite(x[i]) : !isfinite(x[i]));
        }
        for (size_t i = 0; step == 0 && i < SPECIAL; i++)
            RANK_CHECK(i == 6 || isnan(x[i]) == isnan(expected(i, SPR_SUM)));
        *crc = spr_crc32c(*crc, x, sizeof x);
    }
    spr_codec_destroy(codec);
}

static void run_policy(struct job *job, int rank, spr_comm *comm)
{
    uint32_t *crc = (uint32_t *)(void *)job->shared + rank;

    run_dense(comm, rank, crc);
    run_topk(comm, rank, crc);
}

static void nan_and_infinities_come_out_the_same_everywhere(void **state)
{
    uint32_t first = 0;

    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        uint32_t crc[RANKS];
        struct job job;
        job_start(&job, RANKS, job_transports[t], run_policy, NULL);
        assert_true(job_wait(&job, SECONDS));
        memcpy(crc, job.shared, sizeof crc);
        job_expect_success(&job, 1);
        for (int r = 0; r < RANKS; r++) {
            first = first ? first : crc[r];
            assert_int_equal(crc[r], first);
        }
    }
}

/* Unlike CPUs ---------------------------------------------------------------------------------- */

/* Odd ranks have an old one. */
static void grow_old(struct job *job, int rank)
{
    (void)job;
    if (rank % 2)
        spr_cpu_override(0);
}

/* NaNs of many kinds, other ones on each rank. */
static void fill_with_nans(uint32_t *bits, size_t n, struct spr_rng *rng)
{
    for (size_t i = 0; i < n; i++)
        bits[i] = (uint32_t)spr_rng_next(rng) | 0x7fc00000u;
}

/* What a sum came to on each rank. */
struct sum {
    char name[32];
    uint32_t crc[5];
};

static void note(struct sum *sum, int rank, const char *algorithm, const char *what,
                 const void *result, size_t bytes)
{
    if (rank == 0)
        (void)snprintf(sum->name, sizeof sum->name, "%s %s", algorithm, what);
    sum->crc[rank] = spr_crc32c(0, result, bytes);
}

static struct sum *sum_nans(spr_comm *comm, const char *algorithm, size_t n, struct spr_rng *rng,
                            struct sum *sum)
{
    static const spr_dtype dtypes[] = {SPR_FP32, SPR_FP16, SPR_BF16};
    static const char *const names[] = {"fp32", "fp16", "bf16"};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static float x[N];

    options.algorithm = algorithm;
    for (size_t t = 0; t < SPR_ARRAY_LEN(dtypes); t++) {
        uint16_t *half = (uint16_t *)(void *)x, nan = dtypes[t] == SPR_FP16 ? 0x7e00 : 0x7fc0;
        if (!reference_allreduce_takes(algorithm, dtypes[t], n))
            continue;
        fill_with_nans((uint32_t *)(void *)x, N, rng);
        for (size_t i = 0; dtypes[t] != SPR_FP32 && i < N; i++)
            half[i] = nan | (uint16_t)(spr_rng_next(rng) & 0x803f);
        RANK_CHECK(spr_allreduce(comm, x, x, n, dtypes[t], SPR_SUM, &options) == SPR_OK);
        note(sum++, spr_comm_rank(comm), algorithm, names[t], x, n * spr_dtype_size(dtypes[t]));
    }
    return sum;
}

static struct sum *sum_sparse_nans(spr_comm *comm, const char *algorithm, struct spr_rng *rng,
                                   struct sum *sum)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static uint32_t index[N];
    static float value[N], x[N];
    spr_sparse list = {index, value, 0, 0};

    options.algorithm = algorithm;
    for (uint32_t part = 2; part < 200; part *= 5) {
        list.count = 0;
        fill_with_nans((uint32_t *)(void *)value, N, rng);
        for (uint32_t i = 0; i < N; i++)
            if (spr_rng_below(rng, part) == 0)
                index[list.count++] = i;
        RANK_CHECK(spr_sparse_allreduce(comm, &list, N, x, NULL, SPR_SUM, &options) == SPR_OK);
        note(sum++, spr_comm_rank(comm), algorithm, "sparse", x, sizeof x);
    }
    return sum;
}

static struct sum *sum_compressed_nans(spr_comm *comm, const char *codec, struct spr_rng *rng,
                                       struct sum *sum)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_layout layout = {1, "w", 0, N, 1};
    static float x[N];
    spr_codec *c;

    /* All ranks add the lists of all; owners alone what is coded. */
    if (!strchr(codec, '+'))
        options.algorithm = "allgather";
    fill_with_nans((uint32_t *)(void *)x, N, rng);
    for (size_t i = 0; i < N; i++)
        if (spr_rng_below(rng, 50) > 0)
            x[i] = (float)(spr_rng_below(rng, 2000)) - 1000;
    RANK_CHECK(spr_codec_create(codec, &layout, 1, &c) == SPR_OK);
    RANK_CHECK(spr_compressed_allreduce(comm, c, x, SPR_SUM, &options) == SPR_OK);
    note(sum++, spr_comm_rank(comm), "compressed", codec, x, sizeof x);
    spr_codec_destroy(c);
    return sum;
}

static void run_unlike(struct job *job, int rank, spr_comm *comm)
{
    struct sum *sum = (struct sum *)(void *)job->shared;
    struct spr_rng rng = {*(const uint64_t *)job->arg + (uint64_t)rank, 0};
    static const char *const codecs[] = {"topk:ratio=10%", "block:ratio=10%", "topk:ratio=10%+fp16",
                                         "topk:ratio=10%+bf16", "topk:ratio=10%+int8"};
    const char *name;

    for (int a = 0; (name = spr_algorithm_name("allreduce", a)); a++) {
        sum = sum_nans(comm, name, 1001, &rng, sum);
        sum = sum_nans(comm, name, N, &rng, sum);
    }
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)); a++)
        sum = sum_sparse_nans(comm, name, &rng, sum);
    for (size_t c = 0; c < SPR_ARRAY_LEN(codecs); c++)
        sum = sum_compressed_nans(comm, codecs[c], &rng, sum);
}

static void ranks_with_unlike_cpus_have_the_same_nans(void **state)
{
    uint64_t seed = job_seed();
    int wrong = 0;

    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) {
        struct sum *sum;
        struct job job;
        job_prepare = grow_old;
        job_start(&job, ranks, "shm", run_unlike, &seed);
        job_prepare = NULL;
        assert_true(job_wait(&job, SECONDS));
        sum = malloc(JOB_SHARED_BYTES);
        assert_non_null(sum);
        memcpy(sum, job.shared, JOB_SHARED_BYTES);
        job_expect_success(&job, 1);
        assert_true(sum[0].name[0]);
        for (const struct sum *s = sum; s->name[0]; s++)
            for (int r = 1; r < ranks; r++)
                if (s->crc[r] != s->crc[0]) {
                    print_error("%s, %d ranks: rank %d has other bits than rank 0\n", s->name,
                                ranks, r);
                    wrong++;
                }
        free(sum);
    }
    assert_int_equal(wrong, 0);
}

/* The option ----------------------------------------------------------------------------------- */

#define CULPRIT 1
enum { PLACE = 1234, BAD_STEP = 3 };

static spr_status call(spr_comm *comm, int kind, float *x)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static uint32_t index[N / 100];
    static float value[N / 100];
    spr_sparse list = {index, value, N / 100, 0};
    spr_layout layout = {1, "w", 0, N, 1};
    spr_codec *codec;
    spr_status status;

    options.name = "layer3";
    if (kind == 0)
        return spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, &options);
    if (kind == 1) {
        for (uint32_t i = 0; i < N / 100; i++) {
            index[i] = i * 100 + PLACE % 100;
            value[i] = x[index[i]];
        }
        return spr_sparse_allreduce(comm, &list, N, x, NULL, SPR_SUM, &options);
    }
    RANK_CHECK(spr_codec_create("topk:ratio=1%", &layout, 1, &codec) == SPR_OK);
    status = spr_compressed_allreduce(comm, codec, x, SPR_SUM, &options);
    spr_codec_destroy(codec);
    return status;
}

static void run_checked(struct job *job, int rank, spr_comm *comm)
{
    int kind = *(const int *)job->arg;
    spr_status status = SPR_OK;
    static float x[N];

    for (int step = 0; status == SPR_OK; step++) {
        RANK_CHECK(step <= BAD_STEP);
        for (size_t i = 0; i < N; i++)
            x[i] = 1;
        if (rank == CULPRIT && step == BAD_STEP)
            x[PLACE] = kind % 2 ? -INFINITY : NAN;
        status = call(comm, kind, x);
    }
    if (rank == CULPRIT)
        RANK_CHECK(status == SPR_ERR_INVALID);
    else /* REVOKED: it knew before it called */
        RANK_CHECK(status == SPR_ERR_INVALID || status == SPR_ERR_REVOKED);
    RANK_CHECK(!strncmp(spr_last_error(comm), "rank 1 ", 7));
    RANK_CHECK(strstr(spr_last_error(comm), "element 1234 of the input of"));
    RANK_CHECK(strstr(spr_last_error(comm), "'layer3' is"));
}

static void a_checked_input_that_is_not_finite_is_named_on_all_ranks(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        for (int kind = 0; kind < 3; kind++) {
            struct job job;
            setenv("SPARRING_CHECK_FINITE", "yes", 1);
            setenv("SPARRING_PROGRESS", kind == 2 ? "caller" : "thread", 1);
            job_start(&job, RANKS, job_transports[t], run_checked, &kind);
            unsetenv("SPARRING_CHECK_FINITE");
            unsetenv("SPARRING_PROGRESS");
            job_expect_success(&job, SECONDS);
        }
    }
}

/* ... which is not read again after an abort, whatever it holds by then. */
static void run_again(struct job *job, int rank, spr_comm *comm)
{
    spr_layout layout = {1, "w", 0, N, 1};
    struct spr_codec_step step;
    static float x[N];
    spr_codec *codec;

    (void)job;
    fill(x, 0);
    memset(x, 0, SPECIAL * sizeof *x);
    RANK_CHECK(spr_codec_create("topk:ratio=1%", &layout, 1, &codec) == SPR_OK);
    RANK_CHECK(spr_codec_begin(codec, x, &step) == SPR_OK);
    spr_codec_abort(codec);
    x[PLACE] = rank == CULPRIT ? NAN : 1;
    RANK_CHECK(spr_compressed_allreduce(comm, codec, x, SPR_SUM, NULL) == SPR_OK);
    for (size_t i = 0; i < N; i++)
        RANK_CHECK(x[i] == 0 || x[i] == RANKS);
    spr_codec_destroy(codec);
}

static void what_a_retry_does_not_read_is_not_checked(void **state)
{
    struct job job;

    (void)state;
    setenv("SPARRING_CHECK_FINITE", "yes", 1);
    job_start(&job, RANKS, job_transports[0], run_again, NULL);
    unsetenv("SPARRING_CHECK_FINITE");
    job_expect_success(&job, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_and_infinities_come_out_the_same_everywhere),
        cmocka_unit_test(ranks_with_unlike_cpus_have_the_same_nans),
        cmocka_unit_test(a_checked_input_that_is_not_finite_is_named_on_all_ranks),
        cmocka_unit_test(what_a_retry_does_not_read_is_not_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
