/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs whose ratio and learning rate change from step to step.
 */
#include <stdlib.h>

#include "compress/codec_internal.h"
#include "tests/unit/codec_steps.h"

#define N CODEC_N

static struct spr_rng rng;

static void a_ratio_holds_from_the_next_new_step_on(void **state)
{
    static const char *const specs[] = {"topk:ratio=10%", "random:ratio=10%",
                                        "random:ratio=10%+int8", "adaptive:ratio=10%",
                                        "sampled:ratio=10%,low=1,high=1"};
    static const double ratios[] = {0.1, 0.01, 0.03, 0.0001, 0.1};
    static float gradient[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);
        int64_t live = spr_mem_live();

        for (size_t r = 0; r < SPR_ARRAY_LEN(ratios); r++) {
            struct spr_codec_step step;
            size_t wanted = spr_select_count(ratios[r], N), count;

            wanted = wanted < 3 ? 3 : wanted; /* adaptive: parameters with elements */
            data_fill(DATA_NORMAL, gradient, N, &rng);
            assert_int_equal(spr_codec_set_ratio(codec, ratios[r]), SPR_OK);
            assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
            count = step.count;
            assert_true(count <= wanted && (double)count >= 0.97 * (double)wanted - 2);
            assert_true(!step.sum || spr_codec_vector(codec) == count);
            spr_codec_abort(codec);
            assert_int_equal(spr_codec_set_ratio(codec, 0.05), SPR_OK);
            assert_true(!step.sum || spr_codec_vector(codec) == count);
            assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
            assert_int_equal(step.count, count);
            spr_codec_commit(codec);
        }
        assert_int_equal(spr_mem_live(), live);
        spr_codec_destroy(codec);
    }
}

/* So a rank that joins later draws as many positions as the others, and a run that goes on from a
 * checkpoint sends what it would have sent. */
static void a_checkpoint_knows_the_ratio(void **state)
{
    static const struct {
        const char *loads;
        size_t count;
    } cases[] = {
        {"random:ratio=10%", N / 50}, {"topk:ratio=2%", N / 50}, {"topk:ratio=1%", N / 100}};
    static float gradient[N];
    spr_codec *codec = codec_make("random:ratio=10%");
    size_t bytes = 0;

    (void)state;
    data_fill(DATA_NORMAL, gradient, N, &rng);
    assert_int_equal(spr_codec_set_ratio(codec, 0.02), SPR_OK);
    assert_int_equal(spr_codec_save(codec, NULL, &bytes), SPR_ERR_TOO_SMALL);
    char *saved = malloc(bytes);
    assert_int_equal(spr_codec_save(codec, saved, &bytes), SPR_OK);
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        for (int merges = 0; merges < 2; merges++) {
            spr_codec *other = codec_make(cases[c].loads);
            struct spr_codec_step step;

            assert_int_equal(merges ? spr_codec_merge(other, saved, bytes)
                                    : spr_codec_load(other, saved, bytes),
                             SPR_OK);
            assert_int_equal(spr_codec_begin(other, gradient, &step), SPR_OK);
            assert_int_equal(step.count, cases[c].count);
            spr_codec_commit(other);
            spr_codec_destroy(other);
        }
    }
    free(saved);
    spr_codec_destroy(codec);
}

static void a_warmup_goes_on_to_the_ratio_that_was_set(void **state)
{
    static float gradient[N];
    static const size_t counts[] = {N / 4, N / 16, N / 50, N / 50};
    spr_codec *codec = codec_make("dgc:ratio=10%,warmup=1");

    (void)state;
    assert_int_equal(spr_codec_set_ratio(codec, 0.02), SPR_OK);
    for (size_t i = 0; i < SPR_ARRAY_LEN(counts); i++) {
        struct spr_codec_step step;

        data_fill(DATA_NORMAL, gradient, N, &rng);
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        assert_int_equal(step.count, counts[i]);
        spr_codec_commit(codec);
    }
    spr_codec_destroy(codec);
}

static void a_residual_moves_parameters_as_far_at_any_rate(void **state)
{
    static const char *const specs[] = {"topk:ratio=1%", "dgc:ratio=1%", "int8", "powersgd:rank=2"};
    static float gradient[N], sent[N], before[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]), *other = codec_make("topk:ratio=1%");
        struct spr_codec_step step;
        size_t bytes = 0;

        data_fill(DATA_NORMAL, gradient, N, &rng);
        assert_int_equal(spr_codec_set_learning_rate(codec, 0.4), SPR_OK);
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        while (step.sum && spr_codec_next(codec, gradient, &step))
            ;
        spr_codec_commit(codec);
        memcpy(before, spr_codec_residual(codec), sizeof(before));
        assert_int_equal(spr_codec_set_learning_rate(codec, 0.1), SPR_OK);
        assert_memory_equal(before, spr_codec_residual(codec), sizeof(before)); /* not yet */
        memset(gradient, 0, sizeof(gradient));
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        if (!step.sum) {
            codec_sent_of(codec, &step, sent);
            spr_codec_commit(codec);
            for (size_t i = 0; i < N && !codec->velocity; i++) {
                float all = sent[i] + spr_codec_residual(codec)[i], wanted = 4 * before[i];
                assert_true(fabsf(all - wanted) <= 1e-6f * fabsf(wanted));
            }
        } else {
            spr_codec_abort(codec);
            for (size_t i = 0; i < N; i++)
                assert_true(fabsf(spr_codec_residual(codec)[i] - 4 * before[i]) <=
                            1e-5f * (1 + fabsf(before[i])));
        }
        /* A checkpoint knows for which rate it is. */
        spr_codec_drop(codec);
        memcpy(before, spr_codec_residual(codec), sizeof(before));
        assert_int_equal(spr_codec_save(codec, NULL, &bytes), SPR_ERR_TOO_SMALL);
        char *saved = malloc(bytes);
        assert_int_equal(spr_codec_save(codec, saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_load(other, saved, bytes), SPR_OK);
        assert_int_equal(spr_codec_set_learning_rate(other, 0.05), SPR_OK);
        codec_step_of(other, gradient, sent);
        spr_codec_abort(other);
        for (size_t i = 0; i < N; i++)
            assert_true(spr_codec_residual(other)[i] == 2 * before[i]);
        free(saved);
        spr_codec_destroy(codec);
        spr_codec_destroy(other);
    }
}

static void bad_arguments_are_refused(void **state)
{
    static float gradient[N];
    spr_codec *codec = codec_make("topk:ratio=1%"), *whole = codec_make("int8");
    struct spr_codec_step step;

    (void)state;
    assert_int_equal(spr_codec_set_ratio(NULL, 0.01), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_ratio(whole, 0.01), SPR_ERR_INVALID);
    assert_non_null(strstr(spr_thread_error()->text, "by no ratio"));
    static const char *const others[] = {"topk:count=100", "threshold:by=rms",
                                         "threshold:by=absolute"};
    for (size_t s = 0; s < SPR_ARRAY_LEN(others); s++) {
        spr_codec *other = codec_make(others[s]);
        spr_codec_quality q = {.struct_size = sizeof(q)};

        assert_int_equal(spr_codec_set_ratio(other, 0.001), SPR_ERR_INVALID);
        assert_int_equal(spr_codec_begin(other, gradient, &step), SPR_OK);
        assert_int_equal(spr_codec_measured(other, SPR_ALL_PARAMETERS, &q), SPR_OK);
        assert_true(q.samples == 1 && q.target_density == 0);
        spr_codec_commit(other);
        spr_codec_destroy(other);
    }
    assert_int_equal(spr_codec_set_ratio(codec, 0.02), SPR_ERR_INVALID);
    assert_non_null(strstr(spr_thread_error()->text, "0.02 is out of range"));
    assert_int_equal(spr_codec_set_ratio(codec, 0), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_ratio(codec, (double)NAN), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_learning_rate(codec, 0), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_learning_rate(codec, -1), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_learning_rate(codec, (double)INFINITY), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    assert_int_equal(spr_codec_set_ratio(codec, 0.01), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_set_learning_rate(codec, 1), SPR_ERR_INVALID);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
    spr_codec_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ratio_holds_from_the_next_new_step_on),
        cmocka_unit_test(a_checkpoint_knows_the_ratio),
        cmocka_unit_test(a_warmup_goes_on_to_the_ratio_that_was_set),
        cmocka_unit_test(a_residual_moves_parameters_as_far_at_any_rate),
        cmocka_unit_test(bad_arguments_are_refused),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
