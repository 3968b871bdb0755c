/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks of a simulated world, each with a codec and a gradient: for tests of codecs whose results
 * are made of sums.
 */
#ifndef TESTS_SIM_CODEC_WORLD_H
#define TESTS_SIM_CODEC_WORLD_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "collectives/collective.h"
#include "compress/codec_internal.h"
#include "compress/coding.h"
#include "tests/reference.h"
#include "tests/sim/world.h"
#include "tools/codec/data.h"

/* Of calls without options. */
#ifndef CODEC_WORLD_ALGORITHM
#define CODEC_WORLD_ALGORITHM "auto"
#endif
#define MS 1000000ull
#define SECOND (1000 * MS)
#define RANKS_MAX 6

/* Matrices, vectors, and some of a shape that is not worth a low rank: up to 24 kB of P in a first
 * round; the second fits a message. */
enum { N = 700 * 40 + 100 + 6 * 5 + 16 * 90 };
static const spr_layout layout[] = {
    {4, "tall", 0, 700, 40},
    {2, "bias", 28000, 100, 1},
    {3, "small", 28100, 6, 5},
    {1, "wide", 28130, 16, 90},
};

static uint64_t seed;
static struct spr_rng rng;
/* before: of each rank, what there is altogether before a step. */
static float gradient[RANKS_MAX][N], buffer[RANKS_MAX][N], before[RANKS_MAX][N];
static spr_codec *codec[RANKS_MAX];

static spr_codec *make_codec(const char *spec)
{
    spr_codec *c = NULL;

    assert_int_equal(spr_codec_create(spec, layout, SPR_ARRAY_LEN(layout), &c), SPR_OK);
    return c;
}

/* In half of the trials ranks share hosts. */
static void make(struct world *w, int ranks, const char *spec)
{
    static const double jitters[] = {0, 50e-6, 500e-6};
    struct spr_sim_options options = {.ranks = ranks,
                                      .seed = spr_rng_below(&rng, UINT32_MAX),
                                      .latency_s = 10e-6,
                                      .jitter_s = jitters[spr_rng_below(&rng, 3)],
                                      .bandwidth = 1e9};

    world_create(w, &options);
    if (spr_rng_below(&rng, 2))
        world_draw_hosts(w, &rng);
    for (int r = 0; r < ranks; r++) {
        w->comms[r]->options.timeout_s = 20;
        /* All of it eager, or nothing; both rounds, or one of them. */
        w->comms[r]->options.eager_bytes = options.seed % 3 == 0 ? 0 : 8192;
        codec[r] = make_codec(spec);
    }
}

/* Also where ranks share hosts. */
static inline void add_in_rank_order(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        w->comms[r]->options.determinism = SPR_DETERMINISM_CANONICAL;
}

static void unmake(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        spr_codec_destroy(codec[r]);
    world_destroy(w);
}

static void draw(int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < N; i++)
            buffer[r][i] = gradient[r][i] = (float)data_normal(&rng);
}

static spr_status post(struct world *w, int r, spr_op op, const spr_call_options *options)
{
    spr_call_options any = SPR_CALL_OPTIONS_INIT;

    any.algorithm = CODEC_WORLD_ALGORITHM;
    w->requests[r] = NULL;
    return spr_icompressed_allreduce(w->comms[r], codec[r], buffer[r], op, options ? options : &any,
                                     &w->requests[r]);
}

static uint64_t now(const struct world *w) { return spr_now_ns(spr_sim_clock(w->sim)); }

static void run(struct world *w) { assert_true(world_run(w, now(w) + 100 * SECOND)); }

/* All that live succeed, with the same bits; returns one of them. */
static int step(struct world *w, spr_op op, const spr_call_options *options)
{
    int first = -1;

    for (int r = 0; r < w->ranks; r++)
        if (spr_sim_runs(w->sim, r))
            assert_int_equal(post(w, r, op, options), SPR_OK);
    run(w);
    for (int r = 0; r < w->ranks; r++) {
        if (!spr_sim_runs(w->sim, r))
            continue;
        first = first < 0 ? r : first;
        assert_int_equal(w->results[r], SPR_OK);
        assert_memory_equal(buffer[r], buffer[first], sizeof(buffer[r]));
    }
    return first;
}

/* The next gradients, and what there is altogether. */
static void draw_on(const struct world *w)
{
    draw(w->ranks);
    for (int r = 0; r < w->ranks; r++)
        for (size_t i = 0; spr_sim_runs(w->sim, r) && i < N; i++)
            before[r][i] = spr_codec_residual(codec[r])[i] + gradient[r][i];
}

/* What went in, of those that live, was sent, or is there; but for the rounding of floats, which in
 * a product of factors is that of its larger entries. */
static void expect_conserved(const struct world *w, int first, uint64_t trial)
{
    for (size_t i = 0; i < N; i++) {
        double sent = 0, size = 1, out = (double)buffer[first][i];
        for (int r = 0; r < w->ranks; r++) {
            if (!spr_sim_runs(w->sim, r))
                continue;
            sent += (double)before[r][i] - (double)spr_codec_residual(codec[r])[i];
            size += fabs((double)before[r][i]);
        }
        if (!(fabs(out - sent) <= 1e-5 * size))
            fail_msg("trial %llu of seed %llu, element %zu: %g, and %g was sent",
                     (unsigned long long)trial, (unsigned long long)seed, i, out, sent);
    }
}

/* A rank dies at any moment of a step, which some of the others may not have begun yet. These are
 * at the same step afterwards, with all that they had before, whether they do it again or drop it,
 * and whether or not somebody has looked at a residual meanwhile. */
static inline void expect_nothing_lost_by_deaths(const char *const *specs, size_t count)
{
    int redone = 0, dropped = 0, kept = 0;
    spr_status statuses[WORLD_MAX];

    for (uint64_t trial = 0; trial < (reference_small_scale() ? 80 : 240); trial++) {
        int ranks = 2 + (int)spr_rng_below(&rng, RANKS_MAX - 1);
        int victim = (int)spr_rng_below(&rng, (uint64_t)ranks);
        int late = (int)spr_rng_below(&rng, 2 * (uint64_t)ranks); /* most often nobody */
        bool drop = spr_rng_below(&rng, 2), look = spr_rng_below(&rng, 2), redo = false;
        struct world w;

        make(&w, ranks, specs[trial % count]);
        for (int k = 0; k < 2; k++) {
            draw(ranks);
            step(&w, SPR_SUM, NULL);
        }
        draw_on(&w);
        for (int r = 0; r < ranks; r++)
            if (r != late)
                assert_int_equal(post(&w, r, SPR_SUM, NULL), SPR_OK);
        spr_sim_kill(w.sim, victim, now(&w) + spr_rng_below(&rng, MS));
        run(&w);
        for (int r = 0; r < ranks && look; r++) /* brings what is provisional into the residual */
            (void)spr_codec_residual(codec[r]);
        world_settle(&w, 3); /* it may die later */
        assert_true(world_shrink(&w, NULL, 2 * SECOND, now(&w) + 100 * SECOND, statuses));
        for (int r = 0; r < ranks; r++)
            redo |= r != victim && codec[r]->phase == SPR_CODEC_ABSORBED;
        for (int r = 0; r < ranks; r++) {
            if (r == victim)
                continue;
            assert_int_equal(statuses[r], SPR_OK);
            assert_int_equal(codec[r]->steps, redo || late < ranks ? 2 : 3);
            if (codec[r]->phase == SPR_CODEC_ABSORBED) /* as before the step, to the bit */
                assert_memory_equal(spr_codec_residual(codec[r]), before[r], sizeof(before[r]));
            if (drop)
                spr_codec_drop(codec[r]);
        }
        redone += redo && !drop;
        dropped += redo && drop;
        kept += !redo;
        for (int k = 0; k < 3; k++) {
            if (!redo || drop || k > 0)
                draw_on(&w);
            expect_conserved(&w, step(&w, SPR_SUM, NULL), trial);
        }
        unmake(&w);
    }
    printf("%d steps done again, %d dropped, %d were done\n", redone, dropped, kept);
    assert_true(redone > 10 && dropped > 10 && kept > 10);
}

/* ---- Sums: a naive reference and what it is compared with ---- */

/* Round values of a window of an owner, those that some ranks have touched, in place. */
static inline void round_window(const struct spr_value_coder *coder, const void *options,
                                const struct spr_blocks *b, uint32_t owner, uint32_t w,
                                const int *touched, float *vector)
{
    static float val[SPR_WINDOW + 16];
    static char image[8 * SPR_WINDOW];
    static size_t at[SPR_WINDOW];
    struct spr_draw none = {{0}, 0};
    size_t n = 0;

    for (uint32_t p = 0; p < spr_blocks_window_len(b, owner, w); p++) {
        size_t global = (size_t)spr_blocks_global(b, owner, ((uint64_t)w << SPR_WINDOW_LOG2) + p);
        if (touched[global]) {
            val[n] = vector[global];
            at[n++] = global;
        }
    }
    if (n == 0)
        return;
    assert_true(coder->bound(options, n) <= sizeof(image));
    coder->encode(options, none, val, n, image);
    coder->decode(options, image, n, SPR_DECODE_SET, val);
    for (size_t i = 0; i < n; i++)
        vector[at[i]] = val[i];
}

/* All windows of an owner. */
static inline void round_blocks(const struct spr_value_coder *coder, const void *options,
                                const struct spr_blocks *b, uint32_t owner, const int *touched,
                                float *vector)
{
    for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++)
        round_window(coder, options, b, owner, w, touched, vector);
}

/* The twins' residuals become those of the codecs: what sums have lost is in these. */
static inline void follow(int ranks, spr_codec *const *twins)
{
    for (int r = 0; r < ranks; r++) {
        spr_codec_commit(twins[r]);
        memcpy(twins[r]->residual, spr_codec_residual(codec[r]), sizeof(gradient[r]));
        twins[r]->residual_zero = false;
    }
}

/* Some steps: the result of each, bit by bit, and that nothing is lost. make_sum: what the step of
 * the twins, which begins there, is to come to; NULL: it does not know, and never does there. */
static inline void expect_steps(const char *spec, int ranks, spr_op op,
                                const float *(*make_sum)(const struct world *w,
                                                         spr_codec *const *twins, spr_op op))
{
    spr_codec *twins[RANKS_MAX];
    struct world w;

    make(&w, ranks, spec);
    for (int r = 0; r < ranks; r++)
        twins[r] = make_codec(spec);
    for (uint64_t k = 0; k < 4; k++) {
        const float *sum;

        draw_on(&w);
        sum = make_sum(&w, twins, op);
        step(&w, op, NULL);
        for (size_t i = 0; sum && i < N; i++)
            if (!(buffer[0][i] >= sum[i] && buffer[0][i] <= sum[i]))
                fail_msg("%s, %d ranks on %d hosts, step %llu, element %zu: %.9g, not %.9g "
                         "(SPARRING_SEED=%llu)",
                         spec, ranks, w.comms[0]->topology.hosts, (unsigned long long)k, i,
                         (double)buffer[0][i], (double)sum[i], (unsigned long long)seed);
        for (size_t i = 0; i < N && op == SPR_AVG; i++)
            buffer[0][i] *= (float)ranks;
        if (codec[0]->selection->steps->conserves(codec[0]))
            expect_conserved(&w, 0, k);
        if (sum)
            follow(ranks, twins);
    }
    for (int r = 0; r < ranks; r++)
        spr_codec_destroy(twins[r]);
    unmake(&w);
}

/* NaN and Inf are sent, once, so that the failure shows; nothing of them stays anywhere. */
static inline void expect_what_is_not_finite_to_go(const char *const *specs, size_t count,
                                                   int ranks)
{
    for (size_t s = 0; s < count; s++) {
        struct world w;
        size_t bad = 0;

        make(&w, ranks, specs[s]);
        for (int k = 0; k < 3; k++) {
            draw(ranks);
            for (int i = 0; i < 4 && k == 1; i++)
                buffer[i % ranks][spr_rng_below(&rng, N)] = i % 2 ? NAN : -INFINITY;
            step(&w, SPR_AVG, NULL);
            for (size_t i = 0; i < N && k == 1; i++)
                bad += isfinite(buffer[0][i]) ? 0 : 1;
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0; i < N; i++)
                    if (!isfinite(spr_codec_residual(codec[r])[i]))
                        fail_msg("%s, step %d, rank %d: element %zu stays %g (SPARRING_SEED=%llu)",
                                 specs[s], k, r, i, (double)spr_codec_residual(codec[r])[i],
                                 (unsigned long long)seed);
        }
        assert_true(bad > 0);
        unmake(&w);
    }
}

#define CODEC_WORLD_MAIN(...)                                                                      \
    int main(void)                                                                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
                                                                                                   \
        rng.seed = seed = spr_rng_test_seed();                                                     \
        printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);                                  \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
