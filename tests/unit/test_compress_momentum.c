/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs with momentum: Deep Gradient Compression against a plain reference, warm-up, and steps
 * that fail; and saved state, with a velocity or without, that continues.
 */
#include "tests/unit/codec_steps.h"

#include <math.h>
#include <stdlib.h>

#include "compress/codec_internal.h"
#include "tools/codec/data.h"

#define N CODEC_N
#define DGC_MOMENTUM 0.5 /* products are exact */

static struct spr_rng rng;

/* Whole numbers, not larger than `most`. */
static void fill_whole(float *gradient, uint32_t most)
{
    for (size_t i = 0; i < N; i++)
        gradient[i] = (float)spr_rng_below(&rng, 2 * most + 1) - (float)most;
}

/* ---- Deep Gradient Compression ---- */

struct reference {
    double u[N], v[N], sent[N];
};

static const double *sorted_by;

static int by_magnitude(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double x = fabs(sorted_by[i]), y = fabs(sorted_by[j]);

    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

/* Lin et al. 2018, algorithm 4, as it is written there. */
static void reference_step(struct reference *r, const float *gradient, size_t k, bool nesterov,
                           bool masking)
{
    static size_t order[N];

    for (size_t i = 0; i < N; i++) {
        double g = (double)gradient[i];

        r->u[i] = nesterov ? DGC_MOMENTUM * (r->u[i] + g) : DGC_MOMENTUM * r->u[i] + g;
        r->v[i] += nesterov ? r->u[i] + g : r->u[i];
        r->sent[i] = 0;
        order[i] = i;
    }
    sorted_by = r->v;
    qsort(order, N, sizeof *order, by_magnitude);
    for (size_t j = 0; j < k; j++) {
        r->sent[order[j]] = r->v[order[j]];
        r->v[order[j]] = 0;
        r->u[order[j]] *= !masking;
    }
}

static void dgc_is_the_algorithm_of_its_paper(void **state)
{
    static const struct {
        const char *spec;
        bool nesterov, masking;
    } cases[] = {
        {"dgc:ratio=1%,momentum=0.5", false, true},
        {"dgc:ratio=1%,momentum=0.5,masking=off", false, false},
        {"dgc:ratio=1%,momentum=0.5,feedback=nesterov", true, true},
    };
    static struct reference r;
    static float gradient[N], sent[N];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        spr_codec *codec = codec_make(cases[c].spec);

        memset(&r, 0, sizeof r);
        for (int step = 0; step < 10; step++) {
            fill_whole(gradient, 50);
            reference_step(&r, gradient, N / 100, cases[c].nesterov, cases[c].masking);
            codec_step_of(codec, gradient, sent);
            spr_codec_commit(codec);
            for (size_t i = 0; i < N; i++)
                if ((double)sent[i] != r.sent[i] || (double)codec->residual[i] != r.v[i] ||
                    (double)codec->velocity[i] != r.u[i])
                    fail_msg("%s, step %d, element %zu", cases[c].spec, step, i);
        }
        spr_codec_destroy(codec);
    }
}

/* 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %, each for two steps; a retry is no step. */
static void warmup_begins_with_many(void **state)
{
    static const double ratio[] = {0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001};
    static float gradient[N];
    struct spr_codec_step step;
    spr_codec *codec = codec_make("dgc:ratio=0.1%,warmup=2");

    (void)state;
    for (size_t i = 0; i < 2 * SPR_ARRAY_LEN(ratio); i++) {
        for (int retry = 0; retry < 2; retry++) {
            data_fill(DATA_NORMAL, gradient, N, &rng);
            spr_codec_abort(codec);
            assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
            assert_int_equal(step.count, (size_t)ceil(ratio[i / 2] * N));
        }
        spr_codec_commit(codec);
    }
    spr_codec_destroy(codec);
}

/* Where everything is sent: residual' + sent = residual + velocity, and the velocity goes on. */
static void momentum_comes_before_the_coder(void **state)
{
    static const char *const specs[] = {"none:feedback=momentum,momentum=0.5",
                                        "none:feedback=momentum,momentum=0.5+int8",
                                        "onebit:momentum=0.5"};
    static float gradient[N], sent[N], before[N];
    double velocity[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);

        memset(velocity, 0, sizeof velocity);
        for (int step = 0; step < 6; step++) {
            data_fill(DATA_NORMAL, gradient, N, &rng);
            memcpy(before, codec->residual, sizeof before);
            codec_step_of(codec, gradient, sent);
            spr_codec_commit(codec);
            for (size_t i = 0; i < N; i++) {
                velocity[i] = 0.5 * velocity[i] + (double)gradient[i];
                double in = (double)before[i] + velocity[i];
                double out = (double)codec->residual[i] + (double)sent[i];
                if (!(fabs(in - out) <= 1e-5 &&
                      fabs((double)codec->velocity[i] - velocity[i]) <= 1e-5))
                    fail_msg("%s, step %d, element %zu: %g, not %g", specs[s], step, i, out, in);
                assert_true(codec->residual[i] == 0 || s > 0);
            }
        }
        spr_codec_destroy(codec);
    }
}

static const char *const momentum_specs[] = {
    "dgc:ratio=1%",
    "dgc:ratio=2%,clip=1e30+fp16",
    "dgc:ratio=5%,masking=off+bf16",
    "dgc:ratio=1%,feedback=nesterov,warmup=3+int8",
    "none:feedback=momentum",
    "none:feedback=nesterov+int8",
    "onebit:momentum=0.5",
};

static void expect_same(const spr_codec *a, const spr_codec *b)
{
    assert_memory_equal(a->residual, b->residual, N * sizeof(float));
    if (a->velocity)
        assert_memory_equal(a->velocity, b->velocity, N * sizeof(float));
}

/* What both are when the gradient is in there and nothing has been selected. Nothing is clipped. */
static void absorb(const spr_codec *codec, const float *gradient, float vector[2][N])
{
    struct spr_feedback f = {.residual = vector[0], .velocity = vector[1], .gradient = gradient};

    memcpy(vector[0], codec->residual, sizeof vector[0]);
    memcpy(vector[1], codec->velocity, sizeof vector[1]);
    spr_feedback_init(&f, spr_codec_feedback(codec), 1);
    spr_feedback_absorb(&f, 0, N);
}

/* Where everything is sent, what is not finite leaves the velocity at once. */
static void expect_absorbed(const spr_codec *codec, float vector[2][N])
{
    for (size_t i = 0; i < N && !codec->selection->selector; i++)
        if (!isfinite(vector[0][i]))
            vector[1][i] = 0;
    assert_memory_equal(codec->residual, vector[0], N * sizeof(float));
    assert_memory_equal(codec->velocity, vector[1], N * sizeof(float));
}

static void a_step_that_failed_gives_its_velocity_back(void **state)
{
    static float gradient[N], sent[N], twin_sent[N], absorbed[2][N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(momentum_specs); s++) {
        spr_codec *codec = codec_make(momentum_specs[s]), *twin = codec_make(momentum_specs[s]);

        for (int step = 0; step < 9; step++) {
            data_fill(step == 5 ? DATA_NOT_FINITE : DATA_LAYERS, gradient, N, &rng);
            absorb(codec, gradient, absorbed);
            codec_step_of(twin, gradient, twin_sent);
            spr_codec_commit(twin);
            for (int failures = 0; failures < 3; failures++) {
                codec_step_of(codec, gradient, sent);
                assert_memory_equal(sent, twin_sent, sizeof sent);
                if (failures == 1)
                    spr_codec_commit(codec), spr_codec_revoke(codec);
                else
                    spr_codec_abort(codec);
                expect_absorbed(codec, absorbed);
            }
            codec_step_of(codec, gradient, sent);
            spr_codec_commit(codec);
            expect_same(codec, twin);
            for (size_t i = 0; i < N; i++)
                assert_true(isfinite(codec->residual[i]) && isfinite(codec->velocity[i]));
        }
        spr_codec_destroy(codec);
        spr_codec_destroy(twin);
    }
}

/* The later step is in residual and velocity as if the first had been sent; what the first sent is
 * added to the residual, until it is sent again. */
static void with_a_later_step_begun_the_first_is_added(void **state)
{
    static float first[N], second[N], sent[N], again[N];
    static struct reference r;
    spr_codec *codec = codec_make("dgc:ratio=1%,momentum=0.5");

    (void)state;
    fill_whole(first, 50);
    fill_whole(second, 50);
    reference_step(&r, first, N / 100, false, true);
    reference_step(&r, second, 0, false, true);
    codec_step_of(codec, first, sent);
    spr_codec_commit(codec);
    codec_step_of(codec, second, again);
    spr_codec_abort(codec);
    spr_codec_revoke(codec);
    for (int aborts = 0; aborts < 2; aborts++) {
        for (size_t i = 0; i < N; i++)
            assert_true((double)codec->residual[i] == r.v[i] + (double)sent[i] &&
                        (double)codec->velocity[i] == r.u[i]);
        codec_step_of(codec, second, again);
        assert_memory_equal(again, sent, sizeof sent);
        if (aborts == 0)
            spr_codec_abort(codec);
    }
    spr_codec_commit(codec);
    for (size_t i = 0; i < N; i++)
        assert_true((double)codec->residual[i] == r.v[i] && (double)codec->velocity[i] == r.u[i]);
    spr_codec_destroy(codec);
}

/* ---- State ---- */

static void expect_to_continue(const char *spec)
{
    static float gradient[N], sent[N], other_sent[N];
    static char saved[2 * N * sizeof(float) + 1000];
    spr_codec *codec = codec_make(spec), *other = NULL;
    size_t bytes = sizeof saved;

    for (int step = 0; step < 10; step++) {
        if (step == 5) {
            assert_int_equal(spr_codec_save(codec, saved, &bytes), SPR_OK);
            other = codec_make(spec);
            assert_int_equal(spr_codec_load(other, saved, bytes), SPR_OK);
            expect_same(codec, other);
        }
        data_fill(DATA_LAYERS, gradient, N, &rng);
        codec_step_of(codec, gradient, sent);
        spr_codec_commit(codec);
        if (step < 5)
            continue;
        codec_step_of(other, gradient, other_sent);
        spr_codec_commit(other);
        assert_memory_equal(sent, other_sent, sizeof sent);
        expect_same(codec, other);
    }
    spr_codec_destroy(codec);
    spr_codec_destroy(other);
}

static void a_loaded_state_goes_on_to_the_bit(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++)
        expect_to_continue(codec_specs[s]);
    for (size_t s = 0; s < SPR_ARRAY_LEN(coded_specs); s++)
        expect_to_continue(coded_specs[s]);
    for (size_t s = 0; s < SPR_ARRAY_LEN(momentum_specs); s++)
        expect_to_continue(momentum_specs[s]);
    /* Of a threshold that is not known yet, these would make another list. */
    expect_to_continue("reuse:ratio=1%,period=7,low=0,high=10");
    expect_to_continue("threshold:ratio=1%,low=0,high=10");
    expect_to_continue("none:feedback=momentum+qsgd");
}

static void a_velocity_is_kept_only_where_there_is_use_for_it(void **state)
{
    static float gradient[N], sent[N];
    static const float nothing[N];
    static char saved[2 * N * sizeof(float) + 1000];
    spr_codec *dgc = codec_make("dgc"), *topk = codec_make("topk");
    size_t bytes = sizeof saved;

    (void)state;
    data_fill(DATA_LAYERS, gradient, N, &rng);
    codec_step_of(dgc, gradient, sent);
    spr_codec_commit(dgc);
    assert_int_equal(spr_codec_save(dgc, saved, &bytes), SPR_OK);
    assert_int_equal(spr_codec_load(topk, saved, bytes), SPR_OK);
    assert_memory_equal(topk->residual, dgc->residual, sizeof gradient);
    bytes = sizeof saved;
    assert_int_equal(spr_codec_save(topk, saved, &bytes), SPR_OK);
    assert_int_equal(spr_codec_load(dgc, saved, bytes), SPR_OK);
    assert_memory_equal(topk->residual, dgc->residual, sizeof gradient);
    assert_memory_equal(dgc->velocity, nothing, sizeof nothing);
    spr_codec_destroy(dgc);
    spr_codec_destroy(topk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dgc_is_the_algorithm_of_its_paper),
        cmocka_unit_test(warmup_begins_with_many),
        cmocka_unit_test(momentum_comes_before_the_coder),
        cmocka_unit_test(a_step_that_failed_gives_its_velocity_back),
        cmocka_unit_test(with_a_later_step_begun_the_first_is_added),
        cmocka_unit_test(a_loaded_state_goes_on_to_the_bit),
        cmocka_unit_test(a_velocity_is_kept_only_where_there_is_use_for_it),
    };

    rng.seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
