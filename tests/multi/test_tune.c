/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Models that real processes measure: all ranks have the same one, choose alike by it, and sum
 * right; and what becomes of those that are given.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "tests/multi/job.h"

#define SECONDS 60

static const char given[] =
    "latency=1e-05,grant=1e-05,message=1e-06,byte=1e-09,copy=2e-10,"
    "reduce=1e-10,encode=2e-09,merge=4e-09,take=1e-09,clear=1e-10,stream=1e-10,"
    "exposed=0.5,load=2,"
    "allreduce.ring=-5e-06,sparse_allreduce.hosts=0.25";

/* The largest were sent, `count` of them, and are no longer in the residual; others are 0. */
static void check_sent(const float *sum, float *residual, int n, int size, int count)
{
    float least = INFINITY, most = 0; /* that was sent, and that was not */
    int sent = 0;

    for (int i = 0; i < n; i++) {
        if (sum[i] == 0) {
            most = fmaxf(most, residual[i]);
            continue;
        }
        RANK_CHECK(sum[i] == (float)size * residual[i]);
        least = fminf(least, residual[i]);
        residual[i] = 0;
        sent++;
    }
    RANK_CHECK(least >= most);
    RANK_CHECK(count ? sent == count : sent > 0);
}

static void sum_all_ways(spr_comm *comm)
{
    enum { N = 30000 };
    static const struct {
        const char *codec;
        int sent; /* of each gradient; 0: at least one */
    } cases[] = {{"topk:ratio=0.1%", N / 1000},
                 {"topk:ratio=10%", N / 10},
                 {"topk:ratio=60%", N / 10 * 6},
                 {"topk:ratio=60%+fp16", N / 10 * 6},
                 {"threshold:by=absolute,value=50,most=1", 0},
                 {"none", N}};
    static float gradient[N], residual[N], dense[N];
    spr_layout layout = {1, "w", 0, N, 1};
    int rank = spr_comm_rank(comm), size = spr_comm_size(comm);

    for (size_t n = 1; n <= N; n *= 30) {
        for (size_t i = 0; i < n; i++)
            dense[i] = (float)(rank + 1);
        RANK_CHECK(spr_allreduce(comm, dense, dense, n, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        for (size_t i = 0; i < n; i++)
            RANK_CHECK(dense[i] == (float)(size * (size + 1) / 2));
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        spr_codec *codec;
        RANK_CHECK(spr_codec_create(cases[c].codec, &layout, 1, &codec) == SPR_OK);
        memset(residual, 0, sizeof residual);
        for (int step = 0; step < 4; step++) {
            /* The same on all ranks, so that any order of adding gives the same sums. */
            for (int i = 0; i < N; i++) {
                gradient[i] = (float)((i * 7919) % 101 + step + 1);
                residual[i] += gradient[i];
            }
            RANK_CHECK(spr_compressed_allreduce(comm, codec, gradient, SPR_SUM, NULL) == SPR_OK);
            check_sent(gradient, residual, N, size, cases[c].sent);
        }
        spr_codec_destroy(codec);
    }
}

static void run_measured(struct job *job, int rank, spr_comm *comm)
{
    spr_prediction predictions[24];
    char text[SPR_MODEL_BYTES], again[SPR_MODEL_BYTES];
    int n, chosen = 0;

    spr_comm_model(comm, text, sizeof text);
    RANK_CHECK(!strncmp(text, "latency=", 8));
    RANK_CHECK(spr_comm_tune(comm) == SPR_OK);
    spr_comm_model(comm, again, sizeof again);
    RANK_CHECK(strcmp(text, again) != 0);
    RANK_CHECK(strstr(again, ",allreduce.ring=") && strstr(again, ",sparse_allreduce.server="));
    n = spr_comm_predict(comm, "sparse_allreduce", 100000, SPR_FP32, 1000, 0, predictions, 24);
    RANK_CHECK(n > 3);
    for (int i = 0; i < n; i++)
        chosen += predictions[i].chosen;
    RANK_CHECK(chosen == 1);
    RANK_CHECK(spr_comm_predict(comm, "barrier", 1, SPR_FP32, 0, 0, predictions, 24) < 0);
    ((uint32_t *)job->shared)[rank] = spr_crc32c(0, again, strlen(again));
    sum_all_ways(comm);
}

static void run_given(struct job *job, int rank, spr_comm *comm)
{
    char text[SPR_MODEL_BYTES];

    RANK_CHECK(!strcmp(spr_comm_model(comm, text, sizeof text), given));
    ((uint32_t *)job->shared)[rank] = 1;
    sum_all_ways(comm);
}

static const char *model;

static void set_model(struct job *job, int rank)
{
    (void)job;
    (void)rank;
    setenv("SPARRING_MODEL", model, 1);
}

static void run_everywhere(void (*run)(struct job *job, int rank, spr_comm *comm))
{
    job_prepare = set_model;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 3, job_transports[t], run, NULL);
        assert_true(job_wait(&job, SECONDS));
        for (int r = 0; r < 3; r++)
            assert_int_equal(job.codes[r], 0);
        for (int r = 1; r < 3; r++)
            assert_int_equal(((uint32_t *)job.shared)[r], ((uint32_t *)job.shared)[0]);
    }
    job_prepare = NULL;
}

static void ranks_that_measure_agree(void **state)
{
    (void)state;
    model = "measure";
    run_everywhere(run_measured);
}

static void ranks_take_the_model_that_is_given(void **state)
{
    (void)state;
    model = given;
    run_everywhere(run_given);
}

/* The one that "auto" takes is the fastest that was measured; "": nothing was. */
static const char *fastest(spr_comm *comm, const char *collective, size_t count, size_t entries)
{
    spr_prediction p[24];
    int n = spr_comm_predict(comm, collective, count, SPR_FP32, entries, 0, p, 24), tried = 0;
    const char *name = "";

    RANK_CHECK(n > 0);
    for (int i = 0; i < n; i++)
        tried += isfinite(p[i].measured);
    for (int i = 0; tried && i < n; i++)
        if (p[i].chosen)
            name = p[i].algorithm;
    for (int i = 0; *name && i < n; i++)
        for (int k = 0; k < n; k++)
            RANK_CHECK(!p[i].chosen || isnan(p[k].measured) || p[k].measured >= p[i].measured);
    return name;
}

static bool is_tuned(spr_comm *comm, spr_codec *codec)
{
    spr_prediction p[24];
    bool tuned = false;

    for (int i = 0, n = spr_codec_predict(comm, codec, p, 24); i < n; i++)
        tuned |= p[i].chosen && isfinite(p[i].measured);
    return tuned;
}

/* With lists of the ranks' own, one of which may be none; and with the last step of a codec. */
static void tune_own_lists(spr_comm *comm)
{
    enum { COUNT = 77777, ENTRIES = 500 };
    int rank = spr_comm_rank(comm);
    uint32_t index[ENTRIES];
    float value[ENTRIES] = {1}, *gradient = calloc(60000, sizeof *gradient);
    spr_sparse list = {index, value, rank == 1 ? 0 : ENTRIES - (size_t)rank, ENTRIES};
    spr_layout layout = {1, "w", 0, 60000, 1};
    spr_stats stats = {.struct_size = sizeof stats};
    spr_codec *codec;

    RANK_CHECK(gradient);
    for (uint32_t i = 0; i < ENTRIES; i++)
        index[i] = 3 * i;
    for (size_t i = 0; i < 60000; i++)
        gradient[i] = (float)((i * 2654435761u) % 1000);
    RANK_CHECK(spr_comm_tune_list(comm, &list, COUNT, ENTRIES) == SPR_OK);
    RANK_CHECK(*fastest(comm, "sparse_allreduce", COUNT, ENTRIES));
    /* Lists are alike, as drawn ones are not; 0: the last call was a dense one. */
    RANK_CHECK(spr_comm_stats(comm, &stats) == SPR_OK);
    RANK_CHECK(stats.last_union == ENTRIES || stats.last_union == 0);
    RANK_CHECK(spr_comm_tune_list(comm, &list, COUNT, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_list(comm, rank ? &list : NULL, COUNT, ENTRIES) == SPR_ERR_INVALID);
    index[rank ? 0 : 7] = index[rank ? 0 : 6];
    RANK_CHECK(spr_comm_tune_list(comm, &list, COUNT, ENTRIES) == SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), rank ? "another rank" : "this rank"));
    RANK_CHECK(spr_codec_create("topk:ratio=1%", &layout, 1, &codec) == SPR_OK);
    RANK_CHECK(spr_compressed_allreduce(comm, codec, gradient, SPR_AVG, NULL) == SPR_OK);
    RANK_CHECK(spr_codec_tune(comm, codec) == SPR_OK);
    RANK_CHECK(is_tuned(comm, codec));
    RANK_CHECK(spr_comm_stats(comm, &stats) == SPR_OK);
    RANK_CHECK(stats.last_union == 600 || stats.last_union == 0);
    spr_codec_destroy(codec);
    free(gradient);
}

static void refuse_to_tune_for(spr_comm *comm)
{
    RANK_CHECK(spr_comm_tune_for(comm, "barrier", 1, SPR_FP32, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "allreduce", 0, SPR_FP32, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "allreduce", 1, SPR_FP32, 1) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "sparse_allreduce", 9, SPR_FP32, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "sparse_allreduce", 9, SPR_FP32, 10) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "sparse_allreduce", 9, SPR_INT32, 9) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "sparse_allreduce", (size_t)1 << 33, SPR_FP32, 1) ==
               SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(comm, "allreduce", SIZE_MAX / 4, SPR_FP32, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_tune_for(NULL, "allreduce", 9, SPR_FP32, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_codec_tune(comm, NULL) == SPR_ERR_INVALID);
}

static void run_tuned_for(struct job *job, int rank, spr_comm *comm)
{
    static const struct {
        const char *collective;
        size_t count, entries;
    } calls[] = {{"allreduce", 30000, 0},
                 {"allreduce", 3, 0},
                 {"sparse_allreduce", 100000, 100},
                 {"sparse_allreduce", 100000, 70000},
                 {"sparse_allreduce", 1, 1}};
    static const char *const coders[] = {"topk:ratio=2%+fp16", "topk:ratio=2%+int8",
                                         "topk:ratio=2%,sums=int4"};
    bool canonical = getenv("SPARRING_DETERMINISM") != NULL;
    uint32_t names = 0;
    spr_layout layout = {1, "w", 0, 50000, 1};
    spr_codec *codec;

    refuse_to_tune_for(comm);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        size_t n = calls[i].count, k = calls[i].entries;
        const char *name;
        RANK_CHECK(!*fastest(comm, calls[i].collective, n, k));
        RANK_CHECK(spr_comm_tune_for(comm, calls[i].collective, n, SPR_FP32, k) == SPR_OK);
        name = fastest(comm, calls[i].collective, n, k);
        RANK_CHECK(*name);
        /* A dense one is the canonical dense sum then. */
        RANK_CHECK(!canonical || !strcmp(name, "dense") ||
                   spr_algorithm_is_canonical(calls[i].collective, name));
        RANK_CHECK(!strcmp(fastest(comm, calls[i].collective, n + n / 10, k), name));
        RANK_CHECK(!*fastest(comm, calls[i].collective, n + n / 5 + 1, k));
        /* Once more, in the place of that. */
        RANK_CHECK(spr_comm_tune_for(comm, calls[i].collective, n, SPR_FP32, k) == SPR_OK);
        name = fastest(comm, calls[i].collective, n, k);
        RANK_CHECK(*name);
        names = spr_crc32c(names, name, strlen(name));
        RANK_CHECK(!k || n < 2 || !*fastest(comm, calls[i].collective, n, k + k / 5 + 1));
    }
    tune_own_lists(comm);
    RANK_CHECK(spr_codec_create("topk:ratio=2%", &layout, 1, &codec) == SPR_OK);
    RANK_CHECK(spr_codec_tune(comm, codec) == SPR_OK);
    RANK_CHECK(*fastest(comm, "sparse_allreduce", 50000, 1000));
    spr_codec_destroy(codec);
    /* Who can sum such values, and its steps find what was measured. */
    for (size_t i = 0; i < sizeof coders / sizeof *coders; i++) {
        RANK_CHECK(spr_codec_create(coders[i], &layout, 1, &codec) == SPR_OK);
        RANK_CHECK(!is_tuned(comm, codec));
        RANK_CHECK(spr_codec_tune(comm, codec) == SPR_OK);
        RANK_CHECK(is_tuned(comm, codec));
        spr_codec_destroy(codec);
    }
    /* Coded vectors: nothing to do. */
    RANK_CHECK(spr_codec_create("onebit", &layout, 1, &codec) == SPR_OK);
    RANK_CHECK(spr_codec_tune(comm, codec) == SPR_OK);
    spr_codec_destroy(codec);
    ((uint32_t *)job->shared)[rank] = names + 1;
    sum_all_ways(comm);
    /* The oldest are forgotten. */
    for (size_t i = 0, n = 10; i < 32; i++, n += n / 5)
        RANK_CHECK(spr_comm_tune_for(comm, "allreduce", n, SPR_FP32, 0) == SPR_OK);
    RANK_CHECK(!*fastest(comm, "allreduce", 30000, 0));
    RANK_CHECK(*fastest(comm, "allreduce", 10, 0));
}

static void set_canonical(struct job *job, int rank)
{
    (void)job;
    (void)rank;
    setenv("SPARRING_DETERMINISM", "canonical", 1);
}

static void ranks_measure_calls_and_agree(void **state)
{
    struct job job;

    (void)state;
    model = "";
    run_everywhere(run_tuned_for);
    model = given;
    run_everywhere(run_tuned_for);
    job_prepare = set_canonical;
    job_start(&job, 3, "auto", run_tuned_for, NULL);
    job_prepare = NULL;
    job_expect_success(&job, SECONDS);
}

static void run_lost(struct job *job, int rank, spr_comm *comm)
{
    char text[SPR_MODEL_BYTES];

    /* All have their communicator. */
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), 3);
    if (rank == 1)
        _exit(0);
    /* Measuring ends with the rank's name, and leaves what there was. */
    RANK_CHECK(spr_comm_tune_for(comm, "allreduce", 1 << 20, SPR_FP32, 0) != SPR_OK);
    RANK_CHECK(strstr(spr_last_error(comm), "rank 1") != NULL);
    RANK_CHECK(!*fastest(comm, "allreduce", 1 << 20, 0));
    RANK_CHECK(spr_comm_tune(comm) != SPR_OK);
    RANK_CHECK(strstr(spr_last_error(comm), "rank 1") != NULL);
    RANK_CHECK(spr_comm_shrink(comm, 0, NULL) == SPR_OK);
    RANK_CHECK(!*spr_comm_model(comm, text, sizeof text));
    RANK_CHECK(spr_comm_tune(comm) == SPR_OK);
    RANK_CHECK(*spr_comm_model(comm, text, sizeof text));
    sum_all_ways(comm);
}

static void a_rank_that_dies_meanwhile_is_named(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, 3, "auto", run_lost, NULL);
    job_expect_success(&job, SECONDS);
}

/* Its memory fails at some place: nobody waits for it until a deadline, and all fail, or none. */
static void run_without_memory(struct job *job, int rank, spr_comm *comm)
{
    const uint64_t *nth = job->arg;
    spr_status status;

    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    if (rank == 1)
        spr_mem_fail_nth(*nth);
    status = spr_comm_tune(comm);
    spr_mem_fail_nth(0);
    *job_counter(job, rank) = status == SPR_OK ? 1 : -1;
    job_await(job_counter(job, 2), 1); /* not before both know: a rank that leaves would tell */
}

static void a_rank_without_memory_leaves_nobody_waiting(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 19; nth += 3) {
        struct job job;
        job_start(&job, 2, "shm", run_without_memory, &nth);
        for (int ms = 0; ms < 60000 && !(*job_counter(&job, 0) && *job_counter(&job, 1)); ms++)
            job_pause_ms(1);
        assert_true(*job_counter(&job, 0) && *job_counter(&job, 1));
        assert_int_equal(*job_counter(&job, 0), *job_counter(&job, 1));
        *job_counter(&job, 2) = 1;
        job_expect_success(&job, SECONDS);
    }
}

static void a_model_that_is_wrong_is_refused(void **state)
{
    spr_comm *comm;

    (void)state;
    setenv("SPARRING_MODEL", "latency=1", 1);
    assert_int_equal(spr_comm_create(NULL, &comm), SPR_ERR_INVALID);
    assert_non_null(strstr(spr_last_error(NULL), "SPARRING_MODEL: 'grant' is missing"));
    unsetenv("SPARRING_MODEL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_measure_agree),
        cmocka_unit_test(ranks_take_the_model_that_is_given),
        cmocka_unit_test(ranks_measure_calls_and_agree),
        cmocka_unit_test(a_rank_that_dies_meanwhile_is_named),
        cmocka_unit_test(a_rank_without_memory_leaves_nobody_waiting),
        cmocka_unit_test(a_model_that_is_wrong_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
