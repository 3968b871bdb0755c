/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selections of codecs: each with every value coder, Deep Gradient Compression against a plain
 * reference, warm-up, and state that continues.
 */
#include "tests/unit/codec_steps.h"

#include <math.h>
#include <stdio.h>
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

static void every_selector_is_a_selection_of_its_name(void **state)
{
    (void)state;
    for (size_t i = 0; spr_selectors[i]; i++) {
        const struct spr_codec_selection *s = spr_codec_selections;

        while (s->name && strcmp(s->name, spr_selectors[i]->name) != 0)
            s++;
        assert_non_null(s->name);
        assert_ptr_equal(s->selector, spr_selectors[i]);
        assert_true(s->selector->option_count + SPR_FEEDBACK_OPTIONS <= SPR_CODEC_OPTIONS_MAX);
    }
}

/* residual' + sent = residual + gradient, but for one rounding of the difference; as often as the
 * rule of the selection keeps that. */
static void expect_conservation(spr_codec *codec, bool conserves)
{
    static float gradient[N], before[N], sent[N];

    for (int step = 0; step < 3; step++) {
        memcpy(before, codec->residual, sizeof before);
        data_fill(step % 2 ? DATA_LAYERS : DATA_NORMAL, gradient, N, &rng);
        codec_step_of(codec, gradient, sent);
        spr_codec_commit(codec);
        for (size_t i = 0; i < N && conserves; i++) {
            float sum = before[i] + gradient[i];
            double error = (double)codec->residual[i] + (double)sent[i] - (double)sum;
            if (fabs(error) > 0x1p-23 * fmax(fabs((double)sum), fabs((double)sent[i])))
                fail_msg("%s, element %zu: %g", spr_codec_spec(codec), i, error);
        }
    }
}

static void every_selection_goes_with_every_value_coder(void **state)
{
    char spec[128];

    (void)state;
    for (const struct spr_codec_selection *s = spr_codec_selections; s->name; s++)
        for (size_t v = 0; v < spr_value_coder_count && s->selector; v++) {
            snprintf(spec, sizeof spec, "%s:ratio=2%%+%s", s->name, spr_value_coders[v]->name);
            spr_codec *codec = codec_make(spec);

            assert_int_equal(codec->velocity != NULL, strcmp(s->name, "dgc") == 0);
            expect_conservation(codec, !codec->velocity);
            spr_codec_destroy(codec);
        }
}

/* What fails on one rank and others have not even begun. */
static void disturb(spr_codec *codec, const float *gradient, int how)
{
    struct spr_codec_step step;

    if (how == 0)
        return;
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    if (how == 2)
        spr_codec_commit(codec);
    spr_codec_abort(codec);
    if (how == 3) /* the step before, and the others have not begun this one */
        spr_codec_revoke(codec);
    if (how == 2) {
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        spr_codec_abort(codec);
        spr_codec_revoke(codec);
    }
    spr_codec_drop(codec);
}

static void random_positions_are_those_of_all_ranks(void **state)
{
    static float gradient[N];
    struct spr_codec_step a, b;
    spr_codec *one = codec_make("random:ratio=1%"), *other = codec_make("randomk:ratio=1%");
    uint32_t last[N / 100];

    (void)state;
    for (int step = 0; step < 12; step++) {
        data_fill(DATA_NORMAL, gradient, N, &rng);
        if (step % 4 == 3)
            spr_codec_revoke(other), spr_codec_drop(other);
        disturb(one, gradient, step % 4);
        assert_int_equal(spr_codec_begin(one, gradient, &a), SPR_OK);
        data_fill(DATA_LAYERS, gradient, N, &rng);
        assert_int_equal(spr_codec_begin(other, gradient, &b), SPR_OK);
        assert_int_equal(a.count, N / 100);
        assert_int_equal(b.count, N / 100);
        assert_memory_equal(a.index, b.index, sizeof last);
        if (step > 0 && step % 4 != 3)
            assert_memory_not_equal(a.index, last, sizeof last);
        memcpy(last, a.index, sizeof last);
        spr_codec_commit(one);
        spr_codec_commit(other);
    }
    spr_codec_destroy(one);
    spr_codec_destroy(other);
}

/* Values alone, as a vector; what they add up to goes where they come from. */
static void sums_go_to_known_positions(void **state)
{
    static const char *const specs[] = {"random:ratio=1%,warmup=2", "random:ratio=3%+bf16",
                                        "random:ratio=2%,feedback=off+int8"};
    static float gradient[N], out[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);

        for (int step = 0; step < 8; step++) {
            size_t count = spr_codec_vector(codec), zeros = 0;
            struct spr_codec_step a;

            data_fill(DATA_NORMAL, gradient, N, &rng);
            assert_int_equal(spr_codec_begin(codec, gradient, &a), SPR_OK);
            assert_true(a.dense && a.count == count && a.number == (uint64_t)step);
            for (size_t i = 0; i < count; i++)
                a.sum[i] = (float)(i + 1);
            memset(out, 0xff, sizeof out);
            assert_false(spr_codec_next(codec, out, &a));
            for (size_t i = 0; i < count; i++)
                assert_true(out[a.index[i]] == (float)(i + 1));
            for (size_t i = 0; i < N; i++)
                zeros += data_bits(out[i]) == 0;
            assert_int_equal(zeros, N - count);
            spr_codec_commit(codec);
        }
        spr_codec_destroy(codec);
    }
}

static void a_list_may_be_empty(void **state)
{
    static float gradient[N], sent[N], nothing[N];
    struct spr_codec_step step;
    spr_codec *codec = codec_make("accumulate:ratio=1%,threshold=3+int8");

    (void)state;
    for (size_t i = 0; i < N; i++)
        gradient[i] = 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        assert_int_equal(step.count, 0);
        codec_sent_of(codec, &step, sent);
        assert_memory_equal(sent, nothing, sizeof sent);
        spr_codec_commit(codec);
    }
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK); /* 1 + 1 + 1 */
    assert_int_equal(step.count, N / 100);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
}

static void decay_and_a_clipped_norm_are_part_of_any_selection(void **state)
{
    static float gradient[N], sent[N];
    const struct spr_codec_place four = {{N, 4, 10}, 2};
    struct spr_codec_step step;
    spr_codec *codec = codec_make("block:ratio=1%,feedback=decay,decay=50%");

    (void)state;
    gradient[0] = 1;
    gradient[300] = 4;
    gradient[600] = 2;
    gradient[900] = 1;
    codec_step_of(codec, gradient, sent);
    spr_codec_commit(codec);
    assert_true(sent[300] == 4 && codec->residual[900] == 1);
    memset(gradient, 0, sizeof gradient);
    codec_step_of(codec, gradient, sent);
    spr_codec_commit(codec);
    assert_true(codec->residual[600] + sent[600] == 1 && codec->residual[900] + sent[900] == 0.5f);
    spr_codec_destroy(codec);

    codec = codec_make("topk:count=1,clip=10"); /* 5 for each of four ranks */
    gradient[0] = 30;
    gradient[1] = 40;
    assert_int_equal(spr_codec_begin_at(codec, gradient, &four, &step), SPR_OK);
    assert_true(step.count == 1 && step.index[0] == 1 && step.value[0] == 0.1f * 40);
    assert_true(codec->residual[0] == 0.1f * 30);
    spr_codec_destroy(codec);
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
                if (fabs(in - out) > 1e-5 || fabs((double)codec->velocity[i] - velocity[i]) > 1e-5)
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
        cmocka_unit_test(every_selector_is_a_selection_of_its_name),
        cmocka_unit_test(every_selection_goes_with_every_value_coder),
        cmocka_unit_test(random_positions_are_those_of_all_ranks),
        cmocka_unit_test(sums_go_to_known_positions),
        cmocka_unit_test(a_list_may_be_empty),
        cmocka_unit_test(decay_and_a_clipped_norm_are_part_of_any_selection),
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
