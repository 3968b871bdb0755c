/* SPDX-License-Identifier: BSD-2-Clause
 *
 * After its first calls a job allocates and registers nothing more, on every transport; and each
 * level of determinism gives the bits that it promises, on all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

#define SECONDS 60

enum { N = 20000, K = 200, WORLD = 3, INPUTS = 1021 };

static const char *const codecs[] = {
    "topk:ratio=1%", "topk:ratio=5%+int8",   "onebit",
    "qsgd",          "dgc:ratio=1%",         "reuse:ratio=1%,period=3+fp16",
    "block",         "random:ratio=1%+int8", "threshold:ratio=1%",
    "powersgd",      "random:ratio=1%",      "random:ratio=10%,warmup=1+fp16",
    "adaptive",
};
#define CODECS SPR_ARRAY_LEN(codecs)

static uint64_t seed;

/* ---- All kinds of collectives ---------------------------------------------------------------- */

struct work {
    spr_comm *comm;
    int rank, size;
    void *in, *out; /* buckets of N doubles */
    spr_sparse list;
    spr_codec *codec[CODECS];
    double inputs[INPUTS];
    bool in_order;    /* SPARRING_DETERMINISM=canonical */
    uint32_t crc;     /* of all results that all ranks have */
    uint32_t own_crc; /* of the others */
};

static const struct {
    const char *name;
    spr_dtype dtype;
} dense[] = {{"fp32", SPR_FP32}, {"bf16", SPR_BF16}};

static void fill(struct work *w, spr_dtype dtype, size_t count, uint64_t salt)
{
    for (size_t i = 0; i < count; i++)
        reference_store(dtype, w->in, i, w->inputs[(i + salt) % INPUTS]);
}

static void add_to_crc(struct work *w, const void *data, size_t bytes)
{
    w->crc = spr_crc32c(w->crc, data, bytes);
}

static void run_dense(struct work *w, spr_dtype dtype, size_t count)
{
    size_t bytes = count * spr_dtype_size(dtype);
    size_t part = count / (size_t)w->size;

    for (int a = 0; spr_algorithm_name("allreduce", a); a++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        options.algorithm = spr_algorithm_name("allreduce", a);
        if (!reference_allreduce_takes(options.algorithm, dtype, count) ||
            (w->in_order && !spr_algorithm_is_canonical("allreduce", options.algorithm)))
            continue;
        fill(w, dtype, count, count);
        RANK_CHECK(!spr_allreduce(w->comm, w->in, w->out, count, dtype, SPR_SUM, &options));
        add_to_crc(w, w->out, bytes);
    }
    fill(w, dtype, count, count + 1);
    RANK_CHECK(!spr_allreduce(w->comm, w->in, w->in, count, dtype, SPR_AVG, NULL));
    add_to_crc(w, w->in, bytes);
    fill(w, dtype, count, count + 2);
    RANK_CHECK(!spr_reduce_scatter(w->comm, w->in, w->out, part, dtype, SPR_MAX, NULL));
    RANK_CHECK(!spr_allgather(w->comm, w->out, w->in, part, dtype, NULL));
    add_to_crc(w, w->in, part * (size_t)w->size * spr_dtype_size(dtype));
    fill(w, dtype, count, count + 3);
    RANK_CHECK(!spr_broadcast(w->comm, w->in, count, dtype, w->size - 1, NULL));
    add_to_crc(w, w->in, bytes);
    fill(w, dtype, count, count + 4);
    RANK_CHECK(!spr_sendrecv(w->comm, w->in, w->out, count, dtype, 1, NULL));
    w->own_crc = spr_crc32c(w->own_crc, w->out, bytes);
}

static void run_round(void *ctx)
{
    struct work *w = ctx;

    w->crc = w->own_crc = 0;
    for (size_t i = 0; i < SPR_ARRAY_LEN(dense); i++) {
        run_dense(w, dense[i].dtype, 100);
        run_dense(w, dense[i].dtype, N);
    }
    RANK_CHECK(!spr_sparse_allreduce(w->comm, &w->list, N, w->out, NULL, SPR_SUM, NULL));
    add_to_crc(w, w->out, N * sizeof(float));
    for (size_t i = 0; i < CODECS; i++) {
        fill(w, SPR_FP32, N, i + 1);
        RANK_CHECK(!spr_compressed_allreduce(w->comm, w->codec[i], w->in, SPR_AVG, NULL));
        add_to_crc(w, w->in, N * sizeof(float));
    }
    RANK_CHECK(!spr_barrier(w->comm, NULL));
}

static void open_work(struct work *w, spr_comm *comm)
{
    static uint32_t index[K];
    static float value[K];
    spr_layout layout = {1, "w", 0, 100, N / 100};

    *w = (struct work){.comm = comm, .rank = spr_comm_rank(comm), .size = spr_comm_size(comm)};
    for (size_t i = 0; i < INPUTS; i++)
        w->inputs[i] = reference_input(seed, SPR_FP64, 1, w->rank, i);
    for (size_t i = 0; i < K; i++) {
        index[i] = (uint32_t)(i * (N / K) + spr_hash_u32((uint64_t)w->rank << 32 ^ i) % (N / K));
        value[i] = (float)reference_input(seed, SPR_FP32, 2, w->rank, i);
    }
    w->list = (spr_sparse){index, value, K, 0};
    w->in_order =
        getenv("SPARRING_DETERMINISM") && !strcmp(getenv("SPARRING_DETERMINISM"), "canonical");
    RANK_CHECK(!spr_mem_alloc(comm, N * sizeof(double), &w->in));
    RANK_CHECK(!spr_mem_alloc(comm, N * sizeof(double), &w->out));
    for (size_t i = 0; i < CODECS; i++)
        RANK_CHECK(!spr_codec_create(codecs[i], &layout, 1, &w->codec[i]));
}

static void close_work(struct work *w)
{
    for (size_t i = 0; i < CODECS; i++)
        spr_codec_destroy(w->codec[i]);
    spr_mem_free(w->comm, w->in);
    spr_mem_free(w->comm, w->out);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Of memory, so far. */
static uint64_t registrations(spr_comm *comm)
{
    spr_stats stats = {.struct_size = sizeof stats};

    RANK_CHECK(!spr_comm_stats(comm, &stats));
    return stats.registrations;
}

/* Rounds in which memory was allocated, among those after the first WARM, and the longest row of
 * rounds in which none was. Nothing is registered after the first two. */
struct steadiness {
    int late, longest;
};
enum { WARM = 10 };

static struct steadiness watch_rounds(spr_comm *comm, void (*round)(void *ctx), void *ctx)
{
    const uint64_t many = UINT64_C(1) << 40;
    int steady = 0, rounds = reference_small_scale() ? 8 : 40;
    struct steadiness s = {0, 0};
    uint64_t registered = 0;

    for (int i = 0; i < rounds; i++) {
        (void)spr_mem_fail_nth(many);
        round(ctx);
        steady = spr_mem_fail_nth(0) == many ? steady + 1 : 0;
        s.late += i >= WARM && steady == 0;
        s.longest = steady > s.longest ? steady : s.longest;
        if (i == 1)
            registered = registrations(comm);
    }
    RANK_CHECK(registrations(comm) == registered);
    return s;
}

/* How many messages come before this rank asks for them depends on chance: as many as never before
 * take another buffer. That becomes rarer; after ten rounds it was two of thirty at most. */
enum { MOST_LATE = 5 };

static void run_steadily(struct job *job, int rank, spr_comm *comm)
{
    struct work w;
    struct steadiness s;
    int wanted = reference_small_scale() ? 2 : 10;

    open_work(&w, comm);
    s = watch_rounds(comm, run_round, &w);
    if (s.longest < wanted || s.late > MOST_LATE)
        fprintf(stderr,
                "rank %d over %s: %d rounds without an allocation, %d with one after the first "
                "%d\n",
                rank, job->transports, s.longest, s.late, WARM);
    RANK_CHECK(s.longest >= wanted && s.late <= MOST_LATE);
    /* Over verbs, memory of the job was registered at all. */
    RANK_CHECK(strcmp(job->transports, "verbs") != 0 || registrations(comm) > 0);
    close_work(&w);
}

static void nothing_is_allocated_or_registered_after_the_first_calls(void **state)
{
    (void)state;
    job_on_all_transports(WORLD, run_steadily, NULL, SECONDS);
}

/* A long list of 2 ranks: a ring keeps more than 8 MiB that its neighbour does not take yet, and
 * threads that sum together have megabytes each. */

enum { LONG_N = 8 << 20, LONG_K = LONG_N / 4 };

struct long_sum {
    const char *algorithm;
    spr_comm *comm;
    spr_sparse list;
    float *out;
};

static void run_long_sum(void *ctx)
{
    struct long_sum *g = ctx;
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = g->algorithm;
    RANK_CHECK(!spr_sparse_allreduce(g->comm, &g->list, LONG_N, g->out, NULL, SPR_SUM, &options));
}

static void run_long_sums_steadily(struct job *job, int rank, spr_comm *comm)
{
    uint32_t *index = malloc(LONG_K * sizeof *index);
    float *value = malloc(LONG_K * sizeof *value), *out = malloc(LONG_N * sizeof *out);
    struct long_sum g = {*(const char *const *)job->arg, comm, {index, value, LONG_K, 0}, out};
    spr_stats stats = {.struct_size = sizeof stats};
    struct steadiness s;

    RANK_CHECK(index && value && out);
    for (size_t i = 0; i < LONG_K; i++) {
        index[i] = (uint32_t)(4 * i + spr_hash_u32((uint64_t)rank << 32 ^ i) % 4);
        value[i] = 1;
    }
    s = watch_rounds(comm, run_long_sum, &g);
    if (s.longest < 2)
        fprintf(stderr, "rank %d: %d sums by %s without an allocation\n", rank, s.longest,
                g.algorithm);
    RANK_CHECK(s.longest >= 2);
    RANK_CHECK(!spr_comm_stats(comm, &stats));
    RANK_CHECK((stats.shared_windows > 0) == !strcmp(g.algorithm, "direct"));
    free(index);
    free(value);
    free(out);
}

static void run_long_sums(const char *algorithm, const char *workers)
{
    struct job job;

    setenv("SPARRING_WORKERS", workers, 1);
    job_start(&job, 2, "epoll", run_long_sums_steadily, &algorithm);
    assert_true(job_wait(&job, SECONDS));
    job_expect_success(&job, 1);
    unsetenv("SPARRING_WORKERS");
}

static void what_a_ring_keeps_is_there_for_the_next_one(void **state)
{
    (void)state;
    run_long_sums("ring", "0");
}

static void what_threads_sum_in_is_there_for_the_next_sum(void **state)
{
    (void)state;
    run_long_sums("direct", "1");
}

static void run_once(struct job *job, int rank, spr_comm *comm)
{
    struct work w;

    open_work(&w, comm);
    run_round(&w);
    run_round(&w); /* the codec has something left from the first */
    ((uint32_t *)job->shared)[rank] = w.crc;
    ((uint32_t *)job->shared)[WORLD + rank] = w.own_crc;
    close_work(&w);
}

/* The level "off" alone gives other bits in each run; but all ranks have the same. */
static void bits_are_as_the_level_of_determinism_says_on_all_transports(void **state)
{
    static const char *const levels[] = {"run", "canonical", "off"};

    (void)state;
    for (size_t l = 0; l < SPR_ARRAY_LEN(levels); l++) {
        uint32_t first[2 * WORLD];
        assert_int_equal(setenv("SPARRING_DETERMINISM", levels[l], 1), 0);
        for (size_t t = 0; t < job_transport_count; t++) {
            struct job job;
            uint32_t *crc;
            job_start(&job, WORLD, job_transports[t], run_once, NULL);
            crc = (uint32_t *)job.shared;
            assert_true(job_wait(&job, SECONDS));
            print_message("%s, %s: %08x\n", levels[l], job_transports[t], crc[0]);
            for (int r = 1; r < WORLD; r++)
                assert_int_equal(crc[r], crc[0]);
            if (t == 0)
                memcpy(first, crc, sizeof first);
            if (strcmp(levels[l], "off") != 0)
                assert_memory_equal(crc, first, sizeof first);
            job_expect_success(&job, 1);
        }
    }
    assert_int_equal(unsetenv("SPARRING_DETERMINISM"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_allocated_or_registered_after_the_first_calls),
        cmocka_unit_test(what_a_ring_keeps_is_there_for_the_next_one),
        cmocka_unit_test(what_threads_sum_in_is_there_for_the_next_sum),
        cmocka_unit_test(bits_are_as_the_level_of_determinism_says_on_all_transports),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
