/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What each selector is for: small cases by hand, naive references, bands and statistics.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "compress/select/random.h"
#include "compress/select/select.h"
#include "compress/select/threshold.h"
#include "tests/unit/select_call.h"
#include "tools/codec/data.h"

static struct spr_rng rng;

static void expect_indices(const struct call *c, const uint32_t *index, size_t count)
{
    assert_int_equal(c->s.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(c->index[i], index[i]);
}

/* One call without feedback; the caller frees. */
static void select_from(struct call *c, const char *selector, const char *options, const float *x,
                        size_t n)
{
    call_make(c, selector, options, n, 2, NULL);
    call_run(c, x, 0);
}

/* ---- topk, accumulate ---- */

static void topk_takes_the_largest_and_of_equal_ones_the_first(void **state)
{
    static const float x[] = {1, -3, 2, 3, -3, 0, 3};
    struct call c;

    (void)state;
    select_from(&c, "topk", "count=2", x, SPR_ARRAY_LEN(x));
    expect_indices(&c, (const uint32_t[]){1, 3}, 2);
    assert_true(c.value[0] == -3 && c.value[1] == 3);
    call_free(&c);
    select_from(&c, "topk", "ratio=70%", x, SPR_ARRAY_LEN(x)); /* ceil(4.9) */
    expect_indices(&c, (const uint32_t[]){1, 2, 3, 4, 6}, 5);
    call_free(&c);
}

static void accumulate_keeps_small_entries_until_they_have_grown(void **state)
{
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    static const float g[] = {0.5f, 0.03f, -0.04f, 0};
    struct call c;

    (void)state;
    call_make(&c, "accumulate", "ratio=100%,threshold=0.1", 4, 1, &plain);
    call_run(&c, g, 0);
    expect_indices(&c, (const uint32_t[]){0}, 1);
    call_run(&c, g, 1);
    expect_indices(&c, (const uint32_t[]){0}, 1);
    call_run(&c, g, 2); /* -0.12 */
    expect_indices(&c, (const uint32_t[]){0, 2}, 2);
    call_run(&c, g, 3); /* 0.12 */
    expect_indices(&c, (const uint32_t[]){0, 1}, 2);
    call_run(&c, g, 4);
    expect_indices(&c, (const uint32_t[]){0}, 1);
    assert_true(c.residual[1] == 0.03f && c.residual[2] == -0.04f + -0.04f);
    spr_feedback_clear(&c.feedback, c.n);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(data_bits(c.residual[i]), 0);
    call_free(&c);
}

/* Of what has grown, at most k; against a naive reference, at all ratios of large to small. */
static void accumulate_is_topk_of_what_exceeds_the_threshold(void **state)
{
    enum { N = 20000 };
    static float x[N];
    struct call top, grown;

    (void)state;
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        data_fill((enum data)kind, x, N, &rng);
        for (int i = 0; i < 6; i++) {
            double threshold = i < 3 ? pow(10, i - 3) : i - 1.5;
            uint32_t bits = spr_threshold_bits(threshold);
            char options[64];
            size_t expected = 0;

            snprintf(options, sizeof(options), "ratio=5%%,threshold=%g", threshold);
            select_from(&top, "topk", "ratio=5%", x, N);
            select_from(&grown, "accumulate", options, x, N);
            for (size_t j = 0; j < top.s.count; j++)
                if ((data_bits(top.value[j]) & 0x7fffffff) >= bits) {
                    assert_true(expected < grown.s.count);
                    assert_int_equal(grown.index[expected++], top.index[j]);
                }
            assert_int_equal(grown.s.count, expected);
            call_free(&top);
            call_free(&grown);
        }
    }
}

/* ---- threshold ---- */

static void threshold_takes_what_is_not_below_it(void **state)
{
    static const float x[] = {1, -2, 1.9999999f, 2, 0, -1e9f};
    struct call c;

    (void)state;
    select_from(&c, "threshold", "by=absolute,value=2,most=100%", x, SPR_ARRAY_LEN(x));
    expect_indices(&c, (const uint32_t[]){1, 3, 5}, 3);
    call_free(&c);
    select_from(&c, "threshold", "by=absolute,value=2e9,most=100%", x, SPR_ARRAY_LEN(x));
    expect_indices(&c, NULL, 0);
    call_free(&c);
    select_from(&c, "threshold", "by=absolute,value=1,most=30%", x, SPR_ARRAY_LEN(x));
    expect_indices(&c, (const uint32_t[]){1, 5}, 2); /* the largest, when there are too many */
    call_free(&c);
}

static void threshold_in_root_mean_squares_is_that(void **state)
{
    static const float x[] = {3, -4, 0, 0, 12, -5, 0, 0}; /* squares: 194, root of the mean: 4.92 */
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    struct call c;

    (void)state;
    select_from(&c, "threshold", "by=rms,value=1,most=100%", x, SPR_ARRAY_LEN(x));
    expect_indices(&c, (const uint32_t[]){4, 5}, 2);
    call_free(&c);
    call_make(&c, "threshold", "by=rms,value=1.02,most=100%", SPR_ARRAY_LEN(x), 1, &plain);
    call_run(&c, x, 0);
    expect_indices(&c, (const uint32_t[]){4}, 1);
    call_run(&c, x, 1); /* 6 -8 0 0 12 -10 0 0: 6.56 */
    expect_indices(&c, (const uint32_t[]){1, 4, 5}, 3);
    call_free(&c);
}

static void zeros_do_not_exceed_a_threshold(void **state)
{
    static const float zero[100];
    struct call c;

    (void)state;
    select_from(&c, "threshold", "by=rms,value=1", zero, 100);
    assert_int_equal(c.s.count, 0);
    call_free(&c);
}

/* Gradients whose scale drifts by `drift` per step; returns how many counts are off the target by
 * more than `band`, of the last 30 of 60. */
static size_t off_target(const char *selector, const char *options, double drift, double band)
{
    enum { N = 50000, K = 500 };
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    float *g = malloc(N * sizeof(float));
    struct call c;
    size_t off = 0;

    call_make(&c, selector, options, N, 1, &plain);
    for (uint64_t step = 0; step < 60; step++) {
        double scale = pow(drift, (double)step);

        data_fill(DATA_LAPLACE, g, N, &rng);
        for (size_t i = 0; i < N; i++)
            g[i] = (float)(scale * g[i]);
        call_run(&c, g, step);
        off += step >= 30 && fabs((double)c.s.count / K - 1) > band;
    }
    call_free(&c);
    free(g);
    return off;
}

/* The band is wide, so that control alone is what keeps the count; in twelve runs it was never off
 * by more than 40 % (50 % with growing gradients). */
static void density_follows_its_target(void **state)
{
    (void)state;
    assert_true(off_target("threshold", "by=density,ratio=1%,low=0,high=3", 1, 0.5) <= 1);
    assert_true(off_target("threshold", "by=density,ratio=1%,low=0,high=3", 1.02, 0.6) <= 1);
}

/* ---- sampled, reuse ---- */

static void approximate_counts_stay_in_their_band(void **state)
{
    static const char *const selectors[] = {"sampled", "reuse", "threshold"};
    enum { N = 40000 };
    static float x[N];
    struct call c;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(selectors); i++)
        for (int kind = 0; kind < DATA_KINDS; kind++) {
            call_make(&c, selectors[i], "ratio=2%,low=0.9,high=1.1", N, 3, NULL);
            for (uint64_t step = 0; step < 4; step++) {
                /* The scale jumps: a threshold of before is of no use. */
                data_fill((enum data)kind, x, N, &rng);
                for (size_t j = 0; j < N && step == 2; j++)
                    x[j] *= 100;
                call_run(&c, x, step);
                assert_in_range(c.s.count, 720, 880);
            }
            call_free(&c);
        }
}

static void a_reused_threshold_is_found_again_after_its_period(void **state)
{
    enum { N = 40000 };
    static float x[N];
    struct call c;

    (void)state;
    call_make(&c, "reuse", "ratio=2%,period=4", N, 1, NULL);
    for (uint64_t step = 0; step < 9; step++) {
        data_fill(DATA_NORMAL, x, N, &rng);
        uint32_t before = c.state.threshold_bits;
        call_run(&c, x, step);
        if (step % 4 == 0)
            assert_int_equal(c.s.count, 800);
        else
            assert_int_equal(c.state.threshold_bits, before);
        assert_int_equal(c.state.age, step % 4);
    }
    call_free(&c);
}

/* The second call on the same data. */
static unsigned scans_of_second(const char *selector, const char *options, enum data kind)
{
    enum { N = 200000 };
    float *x = malloc(N * sizeof(float));
    struct call c;

    data_fill(kind, x, N, &rng);
    call_make(&c, selector, options, N, 2, NULL);
    call_run(&c, x, 0);
    call_run(&c, x, 1);
    unsigned scans = c.scans;
    call_free(&c);
    free(x);
    return scans;
}

static void a_good_guess_takes_one_pass_at_every_density(void **state)
{
    static const char *const options[] = {"ratio=0.1%", "ratio=1%", "ratio=10%", "ratio=40%"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(options); i++) {
        assert_int_equal(scans_of_second("reuse", options[i], DATA_LAPLACE), 1);
        assert_int_equal(scans_of_second("threshold", options[i], DATA_LAPLACE), 1);
    }
}

static void mass_ties_and_denormals_take_few_passes(void **state)
{
    static const char *const options[] = {"ratio=0.1%", "ratio=1%", "ratio=10%", "ratio=40%"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(options); i++) {
        assert_int_equal(scans_of_second("topk", options[i], DATA_EQUAL), 1);
        assert_int_equal(scans_of_second("topk", options[i], DATA_ZERO), 1);
        assert_in_range(scans_of_second("topk", options[i], DATA_SMALL_INTEGERS), 1, 3);
        assert_in_range(scans_of_second("topk", options[i], DATA_MOSTLY_ZERO), 1, 2);
        assert_in_range(scans_of_second("topk", options[i], DATA_DENORMAL), 1, 3);
    }
}

/* ---- block ---- */

static double norm_of(const float *x, size_t n, int norm)
{
    double sum = 0, most = 0;

    for (size_t i = 0; i < n; i++) {
        sum += norm == 1 ? (double)x[i] * (double)x[i] : fabs((double)x[i]);
        most = fmax(most, fabs((double)x[i]));
    }
    return norm == 2 ? most : sum;
}

static void block_takes_the_blocks_of_largest_norm(void **state)
{
    static const char *const options[] = {"ratio=10%,norm=l1", "ratio=10%,norm=l2",
                                          "ratio=10%,norm=max"};
    enum { N = 256 * 40 + 100, BLOCKS = 41, K = 5 };
    static float x[N];
    struct call c;

    (void)state;
    for (int norm = 0; norm < 3; norm++) {
        bool chosen[BLOCKS] = {false};
        double least = INFINITY, most = 0; /* norm of the chosen ones; of the others */

        data_fill(DATA_LAYERS, x, N, &rng);
        select_from(&c, "block", options[norm], x, N);
        for (size_t i = 0; i < c.s.count; i++) {
            chosen[c.index[i] / 256] = true;
            assert_int_equal(data_bits(c.value[i]), data_bits(x[c.index[i]]));
        }
        size_t blocks = 0, elements = 0;
        for (size_t b = 0; b < BLOCKS; b++) {
            size_t len = spr_min_size(256, N - 256 * b);
            double size = norm_of(x + 256 * b, len, norm);

            blocks += chosen[b];
            elements += chosen[b] ? len : 0;
            least = chosen[b] ? fmin(least, size) : least;
            most = chosen[b] ? most : fmax(most, size);
        }
        assert_int_equal(blocks, K);
        assert_int_equal(c.s.count, elements);
        assert_true(least >= most * (1 - 1e-5));
        call_free(&c);
    }
}

static void equal_blocks_go_in_order_and_the_short_one_counts(void **state)
{
    enum { N = 256 * 3 + 10 };
    static float x[N];
    struct call c;

    (void)state;
    for (size_t i = 0; i < N; i++)
        x[i] = 1;
    select_from(&c, "block", "ratio=50%,norm=l1", x, N);
    assert_int_equal(c.s.count, 512);
    assert_int_equal(c.index[511], 511);
    call_free(&c);
    x[N - 1] = 1e9f;
    select_from(&c, "block", "ratio=50%,norm=l1", x, N);
    assert_int_equal(c.s.count, 256 + 10);
    assert_int_equal(c.index[256], 768);
    call_free(&c);
}

/* ---- random ---- */

static void random_positions_are_one_per_stratum_and_known_to_all(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t n = 1 + spr_rng_below(&rng, 3000), k = 1 + spr_rng_below(&rng, n);
        struct spr_strata s = spr_random_strata(n, k, 42, (uint64_t)round);
        uint32_t index[3000], part[3000];
        size_t start = 0;

        spr_random_indices(&s, 0, k, index);
        for (size_t j = 0; j < k; j++) {
            size_t length = n / k + (j < n % k);

            assert_true(index[j] >= start && index[j] < start + length);
            start += length;
        }
        assert_int_equal(start, n);
        size_t first = spr_rng_below(&rng, k), at = spr_rng_below(&rng, n + 1), below = 0;
        spr_random_indices(&s, first, k - first, part);
        assert_memory_equal(part, index + first, (k - first) * sizeof(*part));
        while (below < k && index[below] < at)
            below++;
        assert_int_equal(spr_random_find(&s, k, at), below);
    }
}

static void random_depends_on_seed_and_step(void **state)
{
    uint32_t index[3][1000];
    size_t same[2] = {0, 0};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct spr_strata s = spr_random_strata(100000, 1000, i == 1 ? 8 : 7, i == 2);
        spr_random_indices(&s, 0, 1000, index[i]);
    }
    for (size_t j = 0; j < 1000; j++) {
        same[0] += index[0][j] == index[1][j];
        same[1] += index[0][j] == index[2][j];
    }
    assert_true(same[0] < 40 && same[1] < 40); /* 10 are expected; more than 40: 1e-12 */
}

/*
 * Chi-squared over the 64 places of a stratum, 64 * 2000 draws: 63 degrees of freedom. Above 150 or
 * below 15 by chance: less than 1e-8. The seed varies from run to run, so that this is one in 10^8
 * runs.
 */
static void random_is_uniform_within_a_stratum(void **state)
{
    enum { STRATA = 2000, LENGTH = 64, STEPS = 64 };
    static uint32_t index[STRATA];
    double count[LENGTH] = {0}, chi = 0, expected = (double)STRATA * STEPS / LENGTH;
    uint64_t seed = spr_rng_next(&rng);

    (void)state;
    for (uint64_t step = 0; step < STEPS; step++) {
        struct spr_strata s = spr_random_strata(STRATA * LENGTH, STRATA, seed, step);
        spr_random_indices(&s, 0, STRATA, index);
        for (size_t j = 0; j < STRATA; j++)
            count[index[j] % LENGTH]++;
    }
    for (size_t i = 0; i < LENGTH; i++)
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi > 15 && chi < 150);
}

/* Strata of 4 and 3 elements. */
static void scaling_is_by_the_size_of_the_stratum(void **state)
{
    static const float x[] = {1, 1, 1, 1, 1, 1, 1};
    struct call c;

    (void)state;
    select_from(&c, "random", "ratio=25%,scale=on", x, SPR_ARRAY_LEN(x));
    assert_int_equal(c.s.count, 2);
    assert_true(c.value[0] == 4 && c.value[1] == 3);
    call_free(&c);
}

/*
 * The mean of T scaled selections is the vector: the sum over elements of the squared error has the
 * mean sum x_i^2 (L - 1) / T. The error along a fixed direction is tested: it is normal with that
 * variance at most, six standard deviations are one false alarm in 5 * 10^8 runs.
 */
static void scaled_random_selection_is_unbiased(void **state)
{
    enum { N = 1003, STEPS = 4000 };
    float x[N];
    double direction[N], sum = 0, expected = 0, variance = 0;
    struct call c;

    (void)state;
    data_fill(DATA_NORMAL, x, N, &rng);
    for (size_t i = 0; i < N; i++) {
        direction[i] = data_normal(&rng);
        expected += direction[i] * (double)x[i];
    }
    call_make(&c, "random", "ratio=10%,scale=on", N, 1, NULL);
    c.s.seed = spr_rng_next(&rng);
    for (uint64_t step = 0; step < STEPS; step++) {
        call_run(&c, x, step);
        for (size_t j = 0; j < c.s.count; j++)
            sum += direction[c.index[j]] * (double)c.value[j];
    }
    for (size_t i = 0; i < N; i++)
        variance += 10 * direction[i] * direction[i] * (double)x[i] * (double)x[i];
    assert_true(fabs(sum / STEPS - expected) < 6 * sqrt(variance / STEPS));
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_takes_the_largest_and_of_equal_ones_the_first),
        cmocka_unit_test(accumulate_keeps_small_entries_until_they_have_grown),
        cmocka_unit_test(accumulate_is_topk_of_what_exceeds_the_threshold),
        cmocka_unit_test(threshold_takes_what_is_not_below_it),
        cmocka_unit_test(threshold_in_root_mean_squares_is_that),
        cmocka_unit_test(zeros_do_not_exceed_a_threshold),
        cmocka_unit_test(density_follows_its_target),
        cmocka_unit_test(approximate_counts_stay_in_their_band),
        cmocka_unit_test(a_reused_threshold_is_found_again_after_its_period),
        cmocka_unit_test(a_good_guess_takes_one_pass_at_every_density),
        cmocka_unit_test(mass_ties_and_denormals_take_few_passes),
        cmocka_unit_test(block_takes_the_blocks_of_largest_norm),
        cmocka_unit_test(equal_blocks_go_in_order_and_the_short_one_counts),
        cmocka_unit_test(random_positions_are_one_per_stratum_and_known_to_all),
        cmocka_unit_test(random_depends_on_seed_and_step),
        cmocka_unit_test(random_is_uniform_within_a_stratum),
        cmocka_unit_test(scaling_is_by_the_size_of_the_stratum),
        cmocka_unit_test(scaled_random_selection_is_unbiased),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
