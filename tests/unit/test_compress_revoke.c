/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs: a step that has failed is taken back: aborted before its commit, revoked when it was
 * committed here and has failed elsewhere.
 */
#include "compress/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/codec_steps.h"
#include "tools/codec/data.h"

#define N CODEC_N

static struct spr_rng rng;

/* Whole numbers whose sums are exact, but too long for fp16 and bf16. */
static void fill(float *gradient)
{
    data_fill(DATA_SMALL_INTEGERS, gradient, N, &rng);
    for (size_t i = 0; i < N; i++)
        gradient[i] *= 1001;
}

/* Some steps fail once or twice; a twin's do not. */
static void expect_retries(const char *spec, bool revoke)
{
    static float gradient[N], sent[N], twin_sent[N], before[N];
    spr_codec *codec = codec_make(spec), *twin = codec_make(spec);

    for (int step = 0; step < 12; step++) {
        data_fill(step == 5 ? DATA_NOT_FINITE : DATA_LAYERS, gradient, N, &rng);
        memcpy(before, spr_codec_residual(codec), sizeof(before));
        codec_step_of(twin, gradient, twin_sent);
        spr_codec_commit(twin);
        for (int failures = step % 3;; failures--) {
            codec_step_of(codec, gradient, sent);
            assert_memory_equal(sent, twin_sent, sizeof(sent));
            if (failures == 0)
                break;
            if (revoke) {
                spr_codec_commit(codec);
                spr_codec_revoke(codec);
            } else {
                spr_codec_abort(codec);
            }
            /* All of the gradient is in the residual, to the bit. */
            for (size_t i = 0; i < N; i++)
                if (!revoke || isfinite(gradient[i]))
                    assert_int_equal(data_bits(spr_codec_residual(codec)[i]),
                                     data_bits(before[i] + gradient[i]));
        }
        spr_codec_commit(codec);
        assert_memory_equal(spr_codec_residual(codec), spr_codec_residual(twin), sizeof(sent));
    }
    spr_codec_destroy(codec);
    spr_codec_destroy(twin);
}

static void a_step_that_failed_is_retried_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++) {
        expect_retries(codec_specs[s], false);
        expect_retries(codec_specs[s], true);
    }
    for (size_t s = 0; s < SPR_ARRAY_LEN(coded_specs); s++) {
        expect_retries(coded_specs[s], false);
        expect_retries(coded_specs[s], true);
    }
}

/* All rounds of a step of a rank alone, which is the sum of what it sends. */
static void all_rounds(spr_codec *codec, float *gradient)
{
    struct spr_codec_step step;

    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    do
        memmove(step.sum, step.vector, step.count * sizeof(float));
    while (spr_codec_next(codec, gradient, &step));
}

/* An operation whose last round is over waits for those before it, and may fail still. */
static void a_step_that_fails_behind_its_last_round_is_retried_with_the_same_bits(void **state)
{
    static const char *const specs[] = {"powersgd:rank=2", "powersgd:rank=1", "random:ratio=5%",
                                        "random:ratio=5%+int8"};
    static float gradient[N], result[N], twin_result[N], before[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]), *twin = codec_make(specs[s]);
        for (int step = 0; step < 6; step++) {
            data_fill(DATA_LAYERS, gradient, N, &rng);
            memcpy(before, spr_codec_residual(codec), sizeof(before));
            memcpy(twin_result, gradient, sizeof(gradient));
            all_rounds(twin, twin_result);
            spr_codec_commit(twin);
            for (int failures = step % 3; failures >= 0; failures--) {
                memcpy(result, gradient, sizeof(gradient));
                all_rounds(codec, result);
                assert_memory_equal(result, twin_result, sizeof(result));
                if (failures == 0)
                    break;
                spr_codec_abort(codec);
                for (size_t i = 0; i < N; i++)
                    assert_int_equal(data_bits(spr_codec_residual(codec)[i]),
                                     data_bits(before[i] + gradient[i]));
            }
            spr_codec_commit(codec);
            assert_memory_equal(spr_codec_residual(codec), spr_codec_residual(twin),
                                sizeof(before));
        }
        spr_codec_destroy(codec);
        spr_codec_destroy(twin);
    }
}

static void with_a_later_step_begun_both_stay_in_the_residual(void **state)
{
    static float first[N], second[N], sent[N], again[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++) {
        spr_codec *codec = codec_make(codec_specs[s]);

        fill(first);
        fill(second);
        codec_step_of(codec, first, sent);
        spr_codec_commit(codec);
        codec_step_of(codec, second, again);
        spr_codec_abort(codec);
        spr_codec_revoke(codec);
        for (size_t i = 0; i < N; i++)
            assert_true(spr_codec_residual(codec)[i] == first[i] + second[i]);
        /* The older one is retried, as often as it takes. */
        for (int aborts = 0; aborts < 2; aborts++) {
            codec_step_of(codec, second, again);
            assert_memory_equal(again, sent, sizeof(sent));
            spr_codec_abort(codec);
            for (size_t i = 0; i < N; i++)
                assert_true(spr_codec_residual(codec)[i] == first[i] + second[i]);
        }
        codec_step_of(codec, second, again);
        assert_memory_equal(again, sent, sizeof(sent));
        spr_codec_commit(codec);
        for (size_t i = 0; i < N; i++)
            assert_true(spr_codec_residual(codec)[i] == first[i] + second[i] - sent[i]);
        spr_codec_destroy(codec);
    }
}

/* Whatever happens to its steps: what went in was sent, or is there, in units of the parameters:
 * times the learning rate. Rates are powers of two, and gradients whole numbers, so that all sums
 * are exact. */
static void expect_nothing_lost(const char *spec, bool rates)
{
    static float gradient[N], sent[N], last_sent[N];
    static double in[N], out[N];
    spr_codec *codec = codec_make(spec);
    bool absorbed = false, revocable = false;
    double rate = 1, last_rate = 1; /* of the step that began last, and was committed last */

    memset(in, 0, sizeof(in));
    memset(out, 0, sizeof(out));
    for (int step = 0; step < 60; step++) {
        double set = rates ? ldexp(1, (int)spr_rng_below(&rng, 3)) : 1;

        if (rates)
            assert_int_equal(spr_codec_set_learning_rate(codec, set), SPR_OK);
        rate = absorbed ? rate : set;
        fill(gradient);
        for (size_t i = 0; i < N && !absorbed; i++)
            in[i] += (double)gradient[i] * rate;
        codec_step_of(codec, gradient, sent);
        absorbed = spr_rng_below(&rng, 3) == 0;
        if (absorbed) {
            spr_codec_abort(codec);
        } else {
            spr_codec_commit(codec);
            memcpy(last_sent, sent, sizeof(sent));
            last_rate = rate;
            revocable = true;
            for (size_t i = 0; i < N; i++)
                out[i] += (double)sent[i] * rate;
        }
        if (absorbed && spr_rng_below(&rng, 3) == 0) {
            spr_codec_drop(codec);
            absorbed = false;
        }
        if (revocable && spr_rng_below(&rng, 3) == 0) {
            spr_codec_revoke(codec);
            absorbed = true;
            revocable = false;
            rate = last_rate;
            for (size_t i = 0; i < N; i++)
                out[i] -= (double)last_sent[i] * rate;
        }
        for (size_t i = 0; i < N; i++)
            if (in[i] != out[i] + (double)spr_codec_residual(codec)[i] * rate)
                fail_msg("%s, %s, step %d, element %zu", spec,
                         rates ? "rates that change" : "no rate", step, i);
    }
    spr_codec_destroy(codec);
}

static void nothing_is_lost_or_sent_twice_in_any_order_of_events(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++) {
        expect_nothing_lost(codec_specs[s], false);
        expect_nothing_lost(codec_specs[s], true);
    }
}

static void only_what_was_committed_can_be_revoked(void **state)
{
    static float gradient[N], sent[N], again[N], saved[N + 1000];
    size_t bytes = sizeof(saved);
    spr_codec *codec = codec_make("topk:ratio=1%+fp16");

    (void)state;
    fill(gradient);
    spr_codec_revoke(codec);
    codec_step_of(codec, gradient, sent);
    spr_codec_revoke(codec); /* it runs */
    spr_codec_commit(codec);
    assert_int_equal(spr_codec_save(codec, saved, &bytes), SPR_OK);
    assert_int_equal(spr_codec_load(codec, saved, bytes), SPR_OK);
    memcpy(again, spr_codec_residual(codec), sizeof(again));
    spr_codec_revoke(codec); /* a step of a state that is gone */
    assert_memory_equal(again, spr_codec_residual(codec), sizeof(again));
    spr_codec_destroy(codec);
}

static void a_revoked_step_that_was_not_finite_leaves_no_nan_when_it_is_retried(void **state)
{
    static float gradient[N], next[N], sent[N];

    (void)state;
    for (size_t s = 0; s < CODEC_STATELESS; s++) {
        spr_codec *codec = codec_make(codec_specs[s]);

        fill(gradient);
        fill(next);
        gradient[3] = NAN;
        gradient[4] = INFINITY;
        codec_step_of(codec, gradient, sent);
        spr_codec_commit(codec);
        codec_step_of(codec, next, sent);
        spr_codec_abort(codec);
        spr_codec_revoke(codec);
        codec_step_of(codec, next, sent);
        assert_true(isnan(sent[3]) && isinf(sent[4]));
        spr_codec_commit(codec);
        for (size_t i = 0; i < N; i++)
            assert_true(isfinite(spr_codec_residual(codec)[i]));
        spr_codec_destroy(codec);
    }
}

/* Nor does it where a later step is in the residual: what others in a group have made a NaN was not
 * taken, and so is not to come back. */
static void a_revoke_beneath_a_later_step_makes_no_nan(void **state)
{
    static const char *const specs[] = {"topk:ratio=100%+int8:group=64", "int8:group=64"};
    static float zero[CODEC_N], gradient[CODEC_N];

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    gradient[3] = NAN;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);
        static float sent[CODEC_N];

        codec_step_of(codec, gradient, sent);
        assert_true(isnan(sent[2]) && isnan(sent[63]) && !isnan(sent[64]));
        spr_codec_commit(codec);
        codec_step_of(codec, zero, sent);
        spr_codec_abort(codec);
        spr_codec_revoke(codec);
        for (size_t i = 0; i < CODEC_N; i++)
            assert_true(i == 3 || fabsf(spr_codec_residual(codec)[i] - gradient[i]) <= 1e-5f);
        spr_codec_destroy(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_failed_is_retried_with_the_same_bits),
        cmocka_unit_test(a_step_that_fails_behind_its_last_round_is_retried_with_the_same_bits),
        cmocka_unit_test(with_a_later_step_begun_both_stay_in_the_residual),
        cmocka_unit_test(nothing_is_lost_or_sent_twice_in_any_order_of_events),
        cmocka_unit_test(only_what_was_committed_can_be_revoked),
        cmocka_unit_test(a_revoked_step_that_was_not_finite_leaves_no_nan_when_it_is_retried),
        cmocka_unit_test(a_revoke_beneath_a_later_step_makes_no_nan),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
