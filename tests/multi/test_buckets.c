/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Buckets of a gradient in flight together: what is posted moves while the next one is compressed,
 * and nothing but the time depends on that.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/util.h"
#include "compress/codec_internal.h"
#include "tests/multi/job.h"

#define SECONDS 30

static spr_codec *make_codec(const char *spec, size_t elements)
{
    const spr_layout layout = {.id = 1, .rows = elements, .columns = 1};
    spr_codec *codec;

    RANK_CHECK(spr_codec_create(spec, &layout, 1, &codec) == SPR_OK);
    return codec;
}

static void fill(float *x, size_t count, int rank, int step)
{
    struct spr_rng rng = {.seed = spr_rng_u64((uint64_t)rank, (uint64_t)step)};

    for (size_t i = 0; i < count; i++)
        x[i] = (float)spr_rng_double(&rng) - 0.5f;
}

/* One at a time is compressed --------------------------------------------------------------------
 */

static _Atomic int earlier; /* the bucket before is complete: 1, or has failed: -1 */
static const struct spr_codec_steps *real_steps;

static void note(void *ctx, spr_status status)
{
    atomic_store((_Atomic int *)ctx, status == SPR_OK ? 1 : -1);
}

/* A selection that takes as long as the bucket before is on its way. */
static void begin_late(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    uint64_t begin = spr_monotonic_ns();

    while (!atomic_load(&earlier)) {
        RANK_CHECK((double)(spr_monotonic_ns() - begin) * 1e-9 < SECONDS / 2 * spr_time_factor());
        job_pause_ms(1);
    }
    real_steps->begin(codec, gradient, step);
}

static void run_late_selection(struct job *job, int rank, spr_comm *comm)
{
    enum { ELEMENTS = 400000 };
    static float first[ELEMENTS], second[ELEMENTS];
    spr_codec *codecs[] = {make_codec("topk:ratio=20%", ELEMENTS),
                           make_codec("topk:ratio=1%", ELEMENTS)};
    struct spr_codec_selection selection = *codecs[1]->selection;
    struct spr_codec_steps steps = *selection.steps;
    spr_request *requests[2];

    (void)job;
    fill(first, ELEMENTS, rank, 0);
    fill(second, ELEMENTS, rank, 1);
    real_steps = codecs[1]->selection->steps;
    steps.begin = begin_late;
    selection.steps = &steps;
    codecs[1]->selection = &selection;
    RANK_CHECK(spr_icompressed_allreduce(comm, codecs[0], first, SPR_AVG, NULL, &requests[0]) ==
               SPR_OK);
    spr_on_complete(requests[0], note, &earlier);
    RANK_CHECK(spr_icompressed_allreduce(comm, codecs[1], second, SPR_AVG, NULL, &requests[1]) ==
               SPR_OK);
    RANK_CHECK(atomic_load(&earlier) == 1);
    for (int i = 0; i < 2; i++) {
        RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
        spr_codec_destroy(codecs[i]);
    }
}

static void a_bucket_completes_while_the_next_is_selected(void **state)
{
    (void)state;
    job_on_all_transports(2, run_late_selection, NULL, SECONDS);
}

/* All at once, or one at a time ------------------------------------------------------------------
 */

enum { BUCKETS = 9, BUCKET_ELEMENTS = 70001, STEPS = 3 };

/* STEPS steps of BUCKETS buckets, each more urgent than those before it; the last sums are left in
 * x. */
static void run_steps(spr_comm *comm, const char *spec, bool at_once, float *x)
{
    const size_t n = BUCKET_ELEMENTS;
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_codec *codecs[BUCKETS];
    spr_request *requests[BUCKETS];

    for (int i = 0; i < BUCKETS; i++)
        codecs[i] = make_codec(spec, n);
    for (int step = 0; step < STEPS; step++) {
        fill(x, BUCKETS * n, spr_comm_rank(comm), step);
        for (size_t i = 0; i < BUCKETS; i++) {
            options.priority = (int)i;
            RANK_CHECK(spr_icompressed_allreduce(comm, codecs[i], x + i * n, SPR_AVG, &options,
                                                 &requests[i]) == SPR_OK);
            if (!at_once)
                RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
        }
        /* In an order of its own: who waits for a later one first moves the earlier ones, too. */
        for (int i = BUCKETS - 1; at_once && i >= 0; i--)
            RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
    }
    for (int i = 0; i < BUCKETS; i++)
        spr_codec_destroy(codecs[i]);
}

static void run_both_ways(struct job *job, int rank, spr_comm *comm)
{
    static const char *const specs[] = {"topk:ratio=5%", "topk:ratio=5%+int8", "random:ratio=5%",
                                        "fp16", "powersgd:rank=2"};
    static float at_once[BUCKETS * BUCKET_ELEMENTS], in_turn[BUCKETS * BUCKET_ELEMENTS];

    (void)job;
    (void)rank;
    for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++) {
        run_steps(comm, specs[i], true, at_once);
        run_steps(comm, specs[i], false, in_turn);
        RANK_CHECK(memcmp(at_once, in_turn, sizeof at_once) == 0);
    }
}

static void buckets_have_the_bits_of_one_at_a_time(void **state)
{
    static const char *const progress[] = {"thread", "caller"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(progress); i++) {
        setenv("SPARRING_PROGRESS", progress[i], 1);
        setenv("SPARRING_PRIORITY_BYTES", "20K", 1);
        job_on_all_transports(3, run_both_ways, NULL, SECONDS);
        unsetenv("SPARRING_PRIORITY_BYTES");
        unsetenv("SPARRING_PROGRESS");
    }
}

/* Threads that help ------------------------------------------------------------------------------
 */

static int threads_here(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    RANK_CHECK(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* As another codec that compresses the same alone; what is left of them. */
static void compress_beside_another(spr_comm *comm, size_t n)
{
    spr_codec *codec = make_codec("topk:ratio=5%", n), *alone = make_codec("topk:ratio=5%", n);
    float *x = malloc(n * sizeof *x);

    RANK_CHECK(x);
    for (int step = 0; step < STEPS; step++) {
        struct spr_codec_step ignored;
        fill(x, n, spr_comm_rank(comm), step);
        RANK_CHECK(spr_codec_begin(alone, x, &ignored) == SPR_OK);
        spr_codec_commit(alone);
        RANK_CHECK(spr_compressed_allreduce(comm, codec, x, SPR_AVG, NULL) == SPR_OK);
    }
    RANK_CHECK(!memcmp(spr_codec_residual(codec), spr_codec_residual(alone), n * sizeof *x));
    spr_codec_destroy(codec);
    spr_codec_destroy(alone);
    free(x);
}

static void run_with_helpers(struct job *job, int rank, spr_comm *comm)
{
    int before = threads_here();

    (void)rank;
    compress_beside_another(comm, 10000);
    RANK_CHECK(threads_here() == before);
    compress_beside_another(comm, 600001);
    RANK_CHECK(threads_here() == before + *(const int *)job->arg);
    compress_beside_another(comm, 600001);
    RANK_CHECK(threads_here() == before + *(const int *)job->arg);
}

/* What a rank has at a position; 0: no entry. */
static float value_at(uint64_t seed, int rank, size_t position)
{
    uint32_t bits = spr_hash_u32(seed ^ (uint64_t)rank << 48 ^ position);

    return bits % 64 < 2 + (unsigned)rank ? (float)(1 + bits / 64 % 16) : 0;
}

/* A sum whose result is written by several threads, chunk by chunk, and kept as a list, too. */
static void sum_and_check(spr_comm *comm, size_t n, uint64_t seed, const char *algorithm)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    float *dense = malloc(n * sizeof *dense);
    uint32_t *index = malloc(2 * n * sizeof *index);
    float *value = malloc(2 * n * sizeof *value);
    spr_sparse mine = {index, value, 0, n}, sum = {index + n, value + n, 0, n};
    size_t entries = 0;

    RANK_CHECK(dense && index && value);
    for (size_t p = 0; p < n; p++) {
        mine.index[mine.count] = (uint32_t)p;
        mine.value[mine.count] = value_at(seed, spr_comm_rank(comm), p);
        mine.count += mine.value[mine.count] != 0;
    }
    memset(dense, 0xff, n * sizeof *dense);
    call.algorithm = algorithm;
    RANK_CHECK(spr_sparse_allreduce(comm, &mine, n, dense, &sum, SPR_SUM, &call) == SPR_OK);
    for (size_t p = 0; p < n; p++) {
        float expected = 0;
        for (int r = 0; r < spr_comm_size(comm); r++)
            expected += value_at(seed, r, p);
        RANK_CHECK(dense[p] == expected);
        if (expected == 0)
            continue;
        RANK_CHECK(sum.index[entries] == p && sum.value[entries] == expected);
        entries++;
    }
    RANK_CHECK(sum.count == entries);
    free(dense);
    free(index);
    free(value);
}

static void run_sums_with_helpers(struct job *job, int rank, spr_comm *comm)
{
    static const char *const algorithms[] = {"direct", "hierarchical", "hosts", "union"};
    int before = threads_here();

    (void)rank;
    sum_and_check(comm, 10000, 1, "direct");
    RANK_CHECK(threads_here() == before);
    for (size_t i = 0; i < SPR_ARRAY_LEN(algorithms); i++)
        sum_and_check(comm, (1 << 21) + 77, 2 + i, algorithms[i]);
    RANK_CHECK(threads_here() == before + *(const int *)job->arg);
}

static void on_all_transports_with(int helpers, int ranks,
                                   void (*run)(struct job *job, int rank, spr_comm *comm))
{
    char text[16];

    snprintf(text, sizeof text, "%d", helpers);
    setenv("SPARRING_WORKERS", text, 1);
    job_on_all_transports(ranks, run, &helpers, SECONDS);
    unsetenv("SPARRING_WORKERS");
}

static void threads_help_where_there_is_use_for_them(void **state)
{
    (void)state;
    for (int helpers = 0; helpers <= 3; helpers += 3)
        on_all_transports_with(helpers, 2, run_with_helpers);
}

static void threads_write_what_one_would(void **state)
{
    (void)state;
    for (int helpers = 0; helpers <= 3; helpers += 3)
        on_all_transports_with(helpers, 3, run_sums_with_helpers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_completes_while_the_next_is_selected),
        cmocka_unit_test(buckets_have_the_bits_of_one_at_a_time),
        cmocka_unit_test(threads_help_where_there_is_use_for_them),
        cmocka_unit_test(threads_write_what_one_would),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
