/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sums have lost by rounding (compress/codec_sums.c), in one codec: when it enters the
 * residual, and how it leaves it again. tests/sim/test_sums.c has the sums.
 */
#include "tests/unit/codec_steps.h"

#define RANKS 3
#define RANK 1

static const char *const specs[] = {"topk:ratio=10%+fp16", "int8"};
static const struct spr_codec_place place = {.blocks = {CODEC_N, RANKS, 6}, .rank = RANK};
static struct spr_rng rng;
static float gradient[CODEC_N];

/* Begin a step of the gradient, and lose `amount` of each sum, or of every tenth. */
static void begin(spr_codec *codec, float amount)
{
    struct spr_codec_step step;

    assert_int_equal(spr_codec_begin_at(codec, gradient, &place, &step), SPR_OK);
    assert_true(step.sum_vtype != SPR_V_FP32);
    for (uint32_t w = 0; w < spr_blocks_windows(&place.blocks, RANK); w++) {
        static float rest[SPR_WINDOW];
        static uint16_t pos[SPR_WINDOW];
        struct spr_codec_rest r = {
            .blocks = &place.blocks, .owner = RANK, .window = w, .pos = pos, .rest = rest};
        uint32_t len = spr_blocks_window_len(&place.blocks, RANK, w);

        for (uint32_t p = 0; p < len; p += step.dense ? 1 : 10) {
            pos[r.count] = (uint16_t)p;
            rest[r.count++] = amount / 2;
        }
        spr_codec_keep_rest(codec, &r, 2);
    }
}

static void new_gradient(void) { data_fill(DATA_NORMAL, gradient, CODEC_N, &rng); }

static void done(spr_codec *codec, float amount)
{
    begin(codec, amount);
    spr_codec_commit(codec);
}

static double total(const spr_codec *codec)
{
    const float *residual = spr_codec_residual(codec);
    double sum = 0;

    for (size_t i = 0; i < CODEC_N; i++)
        sum += (double)residual[i];
    return sum;
}

/* Sums that this rank makes, of those that lose something. */
static double losers(const char *spec)
{
    double n = (double)spr_blocks_local(&place.blocks, RANK);

    return strchr(spec, '+') ? ceil(n / 10) : n;
}

static void expect_total(const spr_codec *codec, double wanted)
{
    assert_true(fabs(total(codec) - wanted) <= 1e-2);
}

/* Two codecs: one loses nothing. */
static void pair(const char *spec, spr_codec *codec[2])
{
    new_gradient();
    for (int i = 0; i < 2; i++) {
        codec[i] = codec_make(spec);
        done(codec[i], i ? 0 : 0.25f);
    }
}

static void unpair(spr_codec *codec[2])
{
    spr_codec_destroy(codec[0]);
    spr_codec_destroy(codec[1]);
}

static void it_is_in_the_residual_after_a_commit_and_sent_later(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        static float before[CODEC_N], sent[2][CODEC_N];
        spr_codec *codec[2];

        pair(specs[s], codec);
        expect_total(codec[0], total(codec[1]) + 0.25 * losers(specs[s]));
        memcpy(before, spr_codec_residual(codec[0]), sizeof(before));
        memset(gradient, 0, sizeof(gradient));
        codec_step_of(codec[0], gradient, sent[0]);
        spr_codec_commit(codec[0]);
        for (size_t i = 0; i < CODEC_N; i++)
            assert_true(fabs((double)(sent[0][i] + spr_codec_residual(codec[0])[i] - before[i])) <=
                        1e-6);
        unpair(codec);
    }
}

/* Looking at the residual changes no step. */
static void whether_somebody_looks_makes_no_difference(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec[2] = {codec_make(specs[s]), codec_make(specs[s])};

        for (int k = 0; k < 6; k++) {
            new_gradient();
            for (int i = 0; i < 2; i++) {
                done(codec[i], 0.125f);
                if (i == 0 && k % 2)
                    (void)spr_codec_residual(codec[i]);
                if (k == 3) {
                    spr_codec_revoke(codec[i]);
                    done(codec[i], 0.0625f);
                }
                if (k == 4) {
                    begin(codec[i], 3);
                    spr_codec_abort(codec[i]);
                }
            }
        }
        assert_memory_equal(spr_codec_residual(codec[0]), spr_codec_residual(codec[1]),
                            sizeof(gradient));
        unpair(codec);
    }
}

/* Not beneath a later step: to the bit. */
static void a_revoke_takes_it_out_again(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int look = 0; look < 2; look++) {
            static float before[CODEC_N];
            spr_codec *codec[2];

            pair(specs[s], codec);
            memcpy(before, spr_codec_residual(codec[0]), sizeof(before));
            new_gradient();
            for (size_t i = 0; i < CODEC_N; i++)
                before[i] += gradient[i];
            done(codec[0], 1e3f);
            if (look)
                (void)spr_codec_residual(codec[0]);
            spr_codec_revoke(codec[0]);
            assert_memory_equal(spr_codec_residual(codec[0]), before, sizeof(before));
            unpair(codec);
        }
}

static void a_revoke_beneath_a_later_step_takes_it_off(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int look = 0; look < 2; look++) {
            spr_codec *codec[2];

            pair(specs[s], codec);
            for (int i = 0; i < 2; i++) {
                if (look)
                    (void)spr_codec_residual(codec[i]);
                begin(codec[i], 7);
                spr_codec_abort(codec[i]);
                spr_codec_revoke(codec[i]);
                done(codec[i], 0); /* the one that was revoked */
            }
            expect_total(codec[0], total(codec[1]));
            unpair(codec);
        }
}

/* It is worth what the residual of its step is worth. */
static void it_is_converted_to_a_new_learning_rate(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int revoked = 0; revoked < 2; revoked++) {
            spr_codec *codec[2] = {codec_make(specs[s]), codec_make(specs[s])};

            memset(gradient, 0, sizeof(gradient));
            for (int i = 0; i < 2; i++) {
                assert_int_equal(spr_codec_set_learning_rate(codec[i], 0.5), SPR_OK);
                done(codec[i], i ? 0 : 0.25f);
                assert_int_equal(spr_codec_set_learning_rate(codec[i], 0.25), SPR_OK);
                begin(codec[i], 0);
                spr_codec_abort(codec[i]);
                if (revoked)
                    spr_codec_revoke(codec[i]);
            }
            expect_total(codec[0], total(codec[1]) + (revoked ? 0 : 2 * 0.25 * losers(specs[s])));
            unpair(codec);
        }
}

/* A rank that is left alone retries a step of which it had made some sums. */
static void a_step_that_ends_alone_has_lost_nothing(void **state)
{
    static const struct spr_codec_place alone = {.blocks = {CODEC_N, 1, 6}};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int looked = 0; looked < 2; looked++) {
            spr_codec *codec[2] = {codec_make(specs[s]), codec_make(specs[s])};

            new_gradient();
            for (int i = 0; i < 2; i++) {
                struct spr_codec_step step;

                begin(codec[i], i ? 0 : 0.25f);
                spr_codec_abort(codec[i]);
                assert_int_equal(spr_codec_begin_at(codec[i], gradient, &alone, &step), SPR_OK);
                assert_true(step.sum_vtype == SPR_V_FP32);
                spr_codec_commit(codec[i]);
                if (looked)
                    (void)spr_codec_residual(codec[i]);
                assert_int_equal(spr_codec_begin_at(codec[i], gradient, &alone, &step), SPR_OK);
                spr_codec_commit(codec[i]);
            }
            assert_memory_equal(spr_codec_residual(codec[0]), spr_codec_residual(codec[1]),
                                sizeof(gradient));
            unpair(codec);
        }
}

/* Nor does it take off again what an older step had lost, when it is revoked. */
static void a_revoke_of_a_step_alone_takes_off_nothing(void **state)
{
    static const struct spr_codec_place alone = {.blocks = {CODEC_N, 1, 6}};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        static float before[CODEC_N];
        spr_codec *codec = codec_make(specs[s]);
        struct spr_codec_step step;

        for (int k = 0; k < 2; k++) {
            new_gradient();
            done(codec, 0.25f);
        }
        memcpy(before, spr_codec_residual(codec), sizeof(before));
        for (size_t i = 0; i < CODEC_N; i++)
            before[i] += gradient[i];
        assert_int_equal(spr_codec_begin_at(codec, gradient, &alone, &step), SPR_OK);
        spr_codec_commit(codec);
        spr_codec_revoke(codec);
        assert_memory_equal(spr_codec_residual(codec), before, sizeof(before));
        spr_codec_destroy(codec);
    }
}

/* No memory for the list of a step: it has not begun, and a revoke of the last one is as before. */
static void a_step_without_memory_has_not_begun(void **state)
{
    static const char *const inexact[] = {"topk:ratio=10%+sign:group=64", "sign"};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(inexact); s++) {
        static float before[CODEC_N];
        spr_codec *codec = codec_make(inexact[s]);
        struct spr_codec_step step;

        new_gradient();
        memcpy(before, gradient, sizeof(before));
        done(codec, 0.25f);
        spr_mem_fail_nth(1);
        assert_int_equal(spr_codec_begin_at(codec, gradient, &place, &step), SPR_ERR_NOMEM);
        assert_int_equal(spr_mem_fail_nth(0), 0);
        spr_codec_revoke(codec);
        assert_memory_equal(spr_codec_residual(codec), before, sizeof(before));
        spr_codec_destroy(codec);
    }
}

static void a_state_has_it_and_forgets_it(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        static char saved[2 * sizeof(gradient)];
        static float zero[CODEC_N];
        size_t bytes = sizeof(saved);
        spr_codec *codec[2];

        pair(specs[s], codec);
        assert_int_equal(spr_codec_save(codec[0], saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_load(codec[1], saved, bytes), SPR_OK);
        assert_memory_equal(spr_codec_residual(codec[0]), spr_codec_residual(codec[1]),
                            sizeof(gradient));
        done(codec[1], 5);
        assert_int_equal(spr_codec_load(codec[1], saved, bytes), SPR_OK);
        assert_memory_equal(spr_codec_residual(codec[0]), spr_codec_residual(codec[1]),
                            sizeof(gradient));
        done(codec[0], 5);
        assert_int_equal(spr_codec_clear(codec[0]), SPR_OK);
        assert_memory_equal(spr_codec_residual(codec[0]), zero, sizeof(zero));
        unpair(codec);
    }
}

/* Which steps round sums at all. */
static void not_all_codecs_round_sums(void **state)
{
    static const struct {
        const char *spec;
        bool rounds;
    } cases[] = {
        {"topk+fp16", true},
        {"topk", false},
        {"topk:feedback=off+fp16", false},
        {"topk:sums=exact+fp16", false},
        {"topk+qsgd", false},
        {"int8", true},
        {"int8:rounding=stochastic", false},
        {"none:feedback=off+int8", false},
        {"fp16", false},
        {"random+int8", false},
        {"onebit", true},
        {"powersgd", false},
        {"dgc+bf16", true},
        {"topk:sums=int8", true},
        {"topk:sums=fp16+qsgd", true},
        {"topk:feedback=off,sums=int8", false},
        {"none:sums=int8+qsgd", false},
        {"none:sums=int8+fp16", false},
    };

    (void)state;
    new_gradient();
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++)
        for (uint32_t ranks = 1; ranks <= RANKS; ranks += RANKS - 1) {
            spr_codec *codec = codec_make(cases[c].spec);
            const struct spr_codec_place here = {.blocks = {spr_codec_vector(codec), ranks, 6}};
            struct spr_codec_step step;

            assert_int_equal(spr_codec_begin_at(codec, gradient, &here, &step), SPR_OK);
            assert_int_equal(step.sum_vtype != SPR_V_FP32, cases[c].rounds && ranks > 1);
            spr_codec_commit(codec);
            spr_codec_destroy(codec);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_in_the_residual_after_a_commit_and_sent_later),
        cmocka_unit_test(whether_somebody_looks_makes_no_difference),
        cmocka_unit_test(a_revoke_takes_it_out_again),
        cmocka_unit_test(a_revoke_beneath_a_later_step_takes_it_off),
        cmocka_unit_test(it_is_converted_to_a_new_learning_rate),
        cmocka_unit_test(a_step_that_ends_alone_has_lost_nothing),
        cmocka_unit_test(a_revoke_of_a_step_alone_takes_off_nothing),
        cmocka_unit_test(a_step_without_memory_has_not_begun),
        cmocka_unit_test(a_state_has_it_and_forgets_it),
        cmocka_unit_test(not_all_codecs_round_sums),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
