/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "adaptive": the same relative error for all parameters, within a budget.
 */
#include <stdlib.h>

#include "compress/codec_internal.h"
#include "tests/unit/codec_steps.h"

#define SMALL 4000 /* elements of a parameter that is looked at as a whole */
#define LARGE 300000
#define PARAMETERS 7
#define N (4 * SMALL + 1 + LARGE)

static struct spr_rng rng;

static const spr_layout layout[PARAMETERS] = {
    {.id = 5, .name = "normal", .offset = 0, .rows = 40, .columns = 100},
    {.id = 4, .name = "laplace", .offset = SMALL, .rows = SMALL, .columns = 1},
    {.id = 9, .name = "one", .offset = 2 * SMALL, .rows = 1, .columns = 1},
    {.id = 1, .name = "sparse", .offset = 2 * SMALL + 1, .rows = SMALL, .columns = 1},
    {.id = 7, .name = "none", .offset = 3 * SMALL + 1, .rows = 0, .columns = 0},
    {.id = 3, .name = "hot", .offset = 3 * SMALL + 1, .rows = SMALL, .columns = 1},
    {.id = 2, .name = "large", .offset = 4 * SMALL + 1, .rows = LARGE, .columns = 1},
};

static spr_codec *make(const char *spec)
{
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create(spec, layout, PARAMETERS, &codec), SPR_OK);
    assert_int_equal(spr_codec_watch(codec, 1, 0, -1), SPR_OK);
    return codec;
}

static spr_codec *make_with(const char *options, double last)
{
    char spec[64];

    snprintf(spec, sizeof(spec), "%s%g", options, last);
    return make(spec);
}

/* Parameters whose scales differ by a million, and times `scale`. */
static void fill(float *gradient, float scale)
{
    static const struct {
        enum data kind;
        float scale;
    } of[PARAMETERS] = {
        {DATA_NORMAL, 1e-3f}, {DATA_LAPLACE, 1e3f},   {DATA_NORMAL, 1},       {DATA_MOSTLY_ZERO, 1},
        {DATA_NORMAL, 1},     {DATA_HOT_BLOCK, 0.1f}, {DATA_LAPLACE, 0.001f},
    };

    for (size_t p = 0; p < PARAMETERS; p++) {
        float *x = gradient + layout[p].offset;
        size_t n = layout[p].rows * layout[p].columns;

        data_fill(of[p].kind, x, n, &rng);
        for (size_t i = 0; i < n; i++)
            x[i] *= of[p].scale * scale;
    }
}

static spr_codec_quality quality_of(const spr_codec *codec, size_t parameter)
{
    spr_codec_quality q = {.struct_size = sizeof(q)};

    assert_int_equal(spr_codec_measured(codec, parameter, &q), SPR_OK);
    return q;
}

/* Returns how many entries were sent; at least one of each parameter, in order. */
static size_t step_of(spr_codec *codec, const float *gradient)
{
    struct spr_codec_step step;
    size_t p = 0, of_parameter = 0;

    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    for (size_t i = 0; i < step.count; i++) {
        assert_true(step.index[i] < N && (i == 0 || step.index[i] > step.index[i - 1]));
        for (; step.index[i] >= layout[p].offset + layout[p].rows * layout[p].columns; p++) {
            assert_true(of_parameter > 0 || layout[p].rows == 0);
            of_parameter = 0;
        }
        of_parameter++;
    }
    assert_true(p == PARAMETERS - 1 && of_parameter > 0);
    spr_codec_commit(codec);
    return step.count;
}

static int descending(const void *a, const void *b)
{
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);

    return (x < y) - (x > y);
}

/* The fewest elements of a parameter that leave no larger relative error. */
static double fewest(const float *x, size_t n, double error)
{
    float *sorted = malloc(n * sizeof(*sorted));
    double energy = 0, left;
    size_t k = 0;

    memcpy(sorted, x, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), descending);
    for (size_t i = 0; i < n; i++)
        energy += (double)sorted[i] * (double)sorted[i];
    for (left = energy; k < n && left > error * error * energy; k++)
        left -= (double)sorted[k] * (double)sorted[k];
    free(sorted);
    return (double)k;
}

/* Those with many elements; bins and samples round. */
static void every_parameter_has_the_same_error_within_the_budget(void **state)
{
    static float gradient[N];
    static const double ratios[] = {0.003, 0.01, 0.1, 0.5};

    (void)state;
    for (size_t r = 0; r < SPR_ARRAY_LEN(ratios); r++) {
        spr_codec *codec = make_with("adaptive:ratio=", ratios[r]);

        fill(gradient, 1);
        size_t count = step_of(codec, gradient), budget = spr_select_count(ratios[r], N);
        spr_codec_quality all = quality_of(codec, SPR_ALL_PARAMETERS);
        double error = codec->adapt.error;

        assert_true(count <= budget && (double)count >= 0.97 * (double)budget);
        assert_true(fabs(all.target_density - ratios[r]) < 1e-12);
        for (size_t p = 0; p < PARAMETERS; p++) {
            spr_codec_quality q = quality_of(codec, p);
            double n = (double)(layout[p].rows * layout[p].columns);

            if (n < SMALL)
                continue;
            assert_true(fabs(q.relative_error - error) <= 0.05 * error + 0.01);
            assert_true(fabs(q.density - q.target_density) <= PARAMETERS / n);
        }
        spr_codec_destroy(codec);
    }
}

static void no_more_is_sent_than_an_error_takes(void **state)
{
    static float gradient[N];
    static const double errors[] = {0.9, 0.5, 0.1};

    (void)state;
    for (size_t e = 0; e < SPR_ARRAY_LEN(errors); e++) {
        spr_codec *codec = make_with("adaptive:ratio=100%,error=", errors[e]);

        fill(gradient, 1);
        assert_true(step_of(codec, gradient) < N);
        for (size_t p = 0; p < PARAMETERS; p++) {
            size_t n = layout[p].rows * layout[p].columns;
            double sent = quality_of(codec, p).density * (double)n;
            double least = fewest(gradient + layout[p].offset, n, errors[e]);
            double more = n > SMALL ? 1.3 : 1.1; /* the error of an estimate */

            if (n == 0)
                continue;
            assert_true(quality_of(codec, p).relative_error <= 1.05 * errors[e]);
            if (sent > more * least + 4)
                fail_msg("%s, error %g: %g sent, %g are enough", layout[p].name, errors[e], sent,
                         least);
        }
        spr_codec_destroy(codec);
    }
}

/* With one threshold for all, that of large elements, others send nothing. */
static void no_parameter_starves(void **state)
{
    static float gradient[N];
    spr_codec *one = make("topk:ratio=1%"), *adaptive = make("adaptive:ratio=1%");
    double worst[2] = {0, 0};

    (void)state;
    fill(gradient, 1);
    for (size_t c = 0; c < 2; c++) {
        struct spr_codec_step step;
        spr_codec *codec = c ? adaptive : one;

        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        for (size_t p = 0; p < PARAMETERS; p++)
            worst[c] = data_larger(worst[c], quality_of(codec, p).relative_error);
        spr_codec_commit(codec);
        spr_codec_destroy(codec);
    }
    assert_true(worst[0] == 1 && worst[1] < 0.95);
}

/* Squares of very small or large elements are no floats. */
static void the_scale_of_a_parameter_does_not_matter(void **state)
{
    enum { EACH = 4000, COUNT = 4, ALL = COUNT * EACH };
    static const float scales[COUNT] = {1e-30f, 1e-24f, 1, 1e25f};
    static float gradient[ALL];
    spr_layout scaled[COUNT];
    spr_codec *codec = NULL;
    struct spr_codec_step step;

    (void)state;
    data_fill(DATA_NORMAL, gradient, EACH, &rng);
    for (size_t p = COUNT; p-- > 0;) {
        scaled[p] = (spr_layout){.id = p, .offset = p * EACH, .rows = EACH, .columns = 1};
        for (size_t i = 0; i < EACH; i++)
            gradient[p * EACH + i] = gradient[i] * scales[p];
    }
    assert_int_equal(spr_codec_create("adaptive:ratio=5%", scaled, COUNT, &codec), SPR_OK);
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    spr_codec_commit(codec);
    for (size_t p = 0; p < COUNT; p++)
        assert_true(fabs((double)codec->adapt.parts[p].memory.ratio - 0.05) < 0.005);
    spr_codec_destroy(codec);
}

/* Of its norm of zero there is nothing to learn. */
static void a_frozen_parameter_is_calm(void **state)
{
    static float gradient[N];
    spr_codec *codec = make("adaptive:ratio=4%,calm=1%,every=2");

    (void)state;
    for (int step = 0; step < 4; step++) {
        fill(gradient, 1);
        memset(gradient + layout[6].offset, 0, LARGE * sizeof(float));
        size_t count = step_of(codec, gradient);
        double others = step < 2 ? 0.04 : 0.01;
        assert_true((double)count < others * (N - LARGE) + 0.01 * LARGE + PARAMETERS);
    }
    spr_codec_destroy(codec);
}

static void outside_of_critical_phases_calm_is_the_budget(void **state)
{
    static float gradient[N];
    spr_codec *codec = make("adaptive:ratio=4%,calm=1%,every=2");
    double ratio[12];

    (void)state;
    assert_int_equal(spr_codec_set_learning_rate(codec, 0.1), SPR_OK);
    for (int step = 0; step < 12; step++) {
        if (step == 9)
            assert_int_equal(spr_codec_set_learning_rate(codec, 0.01), SPR_OK);
        fill(gradient, step < 6 ? 1 : 4);
        ratio[step] = (double)step_of(codec, gradient) / N;
    }
    for (int step = 0; step < 12; step++) {
        /* Two steps from the first norm, from a fourfold one, and from a new rate on. */
        bool critical = step < 2 || step == 6 || step == 7 || step == 9;
        assert_true(fabs(ratio[step] - (critical ? 0.04 : 0.01)) < 0.001);
    }
    spr_codec_destroy(codec);
}

static void a_warmup_is_a_budget_that_falls(void **state)
{
    static float gradient[N];
    spr_codec *codec = make("adaptive:ratio=1%,feedback=momentum,warmup=3");
    static const double budget[] = {0.25, 0.0625, 0.015625, 0.01};

    (void)state;
    for (int step = 0; step < 12; step++) {
        fill(gradient, 1);
        double sent = (double)step_of(codec, gradient), most = budget[step / 3] * N;
        assert_true(sent <= most + 1 && sent >= 0.95 * most);
    }
    spr_codec_destroy(codec);
}

static void what_is_not_finite_is_sent(void **state)
{
    static float gradient[N];
    spr_codec *codec = make("adaptive:ratio=1%,every=1");
    struct spr_codec_step step;

    (void)state;
    fill(gradient, 1);
    gradient[3] = NAN;
    gradient[N - 1] = -INFINITY;
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    assert_true(step.index[0] == 3 || step.index[1] == 3 || isnan(step.value[0]));
    assert_true(step.index[step.count - 1] == N - 1 && isinf(step.value[step.count - 1]));
    spr_codec_commit(codec);
    memset(gradient, 0, sizeof(gradient));
    step_of(codec, gradient);
    assert_true(isfinite(codec->adapt.error));
    spr_codec_destroy(codec);
}

/* What stays was learned at another rate: its norm says nothing any more, and that is looked into.
 */
static void a_merge_at_another_rate_forgets_norms(void **state)
{
    static const spr_layout parts[] = {{.id = 1, .offset = 0, .rows = 1, .columns = N / 2},
                                       {.id = 2, .offset = 0, .rows = 1, .columns = N / 2}};
    static const spr_layout both[] = {{.id = 1, .offset = 0, .rows = 1, .columns = N / 2},
                                      {.id = 2, .offset = N / 2, .rows = 1, .columns = N / 2}};
    static float gradient[N];
    spr_codec *merged = NULL;

    (void)state;
    assert_int_equal(spr_codec_create("adaptive:ratio=1%", both, 2, &merged), SPR_OK);
    for (int i = 0; i < 2; i++) {
        static char saved[4 * N + 4096];
        size_t bytes = sizeof(saved);
        struct spr_codec_step step;
        spr_codec *part = NULL;

        assert_int_equal(spr_codec_create("adaptive:ratio=1%", &parts[i], 1, &part), SPR_OK);
        assert_int_equal(spr_codec_set_learning_rate(part, i ? 0.01 : 0.1), SPR_OK);
        fill(gradient, 1);
        assert_int_equal(spr_codec_begin(part, gradient, &step), SPR_OK);
        spr_codec_commit(part);
        assert_int_equal(spr_codec_save(part, saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_merge(merged, saved, bytes), SPR_OK);
        assert_true(merged->adapt.parts[i].memory.norm > 0);
        spr_codec_destroy(part);
    }
    assert_true(merged->adapt.parts[0].memory.norm <= 0);
    assert_true(merged->adapt.again);
    spr_codec_destroy(merged);
}

/* Also one that asks for more than there may be, of parameters that both know. */
static void a_state_of_another_budget_stays_within_this_one(void **state)
{
    static float gradient[N];
    spr_codec *large = make("adaptive:ratio=80%"), *small = make("adaptive:ratio=0.1%");
    size_t bytes = 0, budget = spr_select_count(0.001, N);

    (void)state;
    fill(gradient, 1);
    step_of(large, gradient);
    assert_int_equal(spr_codec_save(large, NULL, &bytes), SPR_ERR_TOO_SMALL);
    char *saved = malloc(bytes);
    assert_int_equal(spr_codec_save(large, saved, &bytes), SPR_OK);
    assert_int_equal(spr_codec_load(small, saved, bytes), SPR_OK);
    for (int step = 1; step < 20; step++) {
        fill(gradient, 1);
        assert_true(step_of(small, gradient) <= budget);
    }
    free(saved);
    spr_codec_destroy(large);
    spr_codec_destroy(small);
}

/* At any step: at the first one of another ratio, and where the rate is not told again, too. */
static void a_saved_state_goes_on_as_if_nothing_had_happened(void **state)
{
    static float gradient[N];
    struct spr_codec_step step, again;

    (void)state;
    for (int cut = 1; cut < 12; cut++) {
        const char *spec = "adaptive:ratio=2%,calm=0.5%,every=5,warmup=3";
        spr_codec *codec = make(spec), *other = make(spec);
        size_t bytes = 0;

        assert_int_equal(spr_codec_set_learning_rate(codec, 0.1), SPR_OK);
        for (int i = 0; i < cut; i++) {
            fill(gradient, 1);
            step_of(codec, gradient);
        }
        assert_int_equal(spr_codec_save(codec, NULL, &bytes), SPR_ERR_TOO_SMALL);
        char *saved = malloc(bytes);
        assert_int_equal(spr_codec_save(codec, saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_load(other, saved, bytes), SPR_OK);
        for (int i = cut; i < 15; i++) {
            fill(gradient, 1);
            assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
            assert_int_equal(spr_codec_begin(other, gradient, &again), SPR_OK);
            if (step.count != again.count)
                fail_msg("saved before step %d, step %d: %zu entries, not %zu", cut, i, again.count,
                         step.count);
            assert_memory_equal(step.index, again.index, step.count * sizeof(*step.index));
            assert_memory_equal(step.value, again.value, step.count * sizeof(*step.value));
            spr_codec_commit(codec);
            spr_codec_commit(other);
        }
        free(saved);
        spr_codec_destroy(codec);
        spr_codec_destroy(other);
    }
}

/* Budgets below the number of parameters, parameters of one element, and of none. */
static void any_layout_works(void **state)
{
    enum { MOST = 60 };
    static float gradient[20000];

    (void)state;
    for (int trial = 0; trial < 60; trial++) {
        spr_layout any[MOST];
        size_t count = 1 + spr_rng_below(&rng, MOST), n = 0;
        double ratio = pow(10, -4 * spr_rng_double(&rng));
        spr_codec *codec = NULL;
        char spec[96];

        for (size_t p = 0; p < count; p++) {
            size_t rows = spr_rng_below(&rng, 4) ? spr_rng_below(&rng, 300) : p == 0;
            any[p] = (spr_layout){.id = 1000 - p, .offset = n, .rows = rows, .columns = 1};
            n += rows;
        }
        if (n == 0)
            continue;
        snprintf(spec, sizeof(spec), "adaptive:ratio=%.17g,error=%g,every=%d", ratio,
                 trial % 3 ? 0 : spr_rng_double(&rng), 1 + trial % 4);
        assert_int_equal(spr_codec_create(spec, any, count, &codec), SPR_OK);
        size_t most = spr_adapt_most(&codec->adapt, ratio);
        for (int step = 0; step < 6; step++) {
            struct spr_codec_step sends;

            data_fill((enum data)spr_rng_below(&rng, DATA_KINDS), gradient, n, &rng);
            assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
            if (sends.count == 0 || sends.count > most)
                fail_msg("%s: %zu entries, at most %zu", spr_codec_spec(codec), sends.count, most);
            for (size_t i = 1; i < sends.count; i++)
                assert_true(sends.index[i] > sends.index[i - 1] && sends.index[i] < n);
            spr_codec_commit(codec);
        }
        spr_codec_destroy(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_has_the_same_error_within_the_budget),
        cmocka_unit_test(no_more_is_sent_than_an_error_takes),
        cmocka_unit_test(no_parameter_starves),
        cmocka_unit_test(the_scale_of_a_parameter_does_not_matter),
        cmocka_unit_test(a_frozen_parameter_is_calm),
        cmocka_unit_test(outside_of_critical_phases_calm_is_the_budget),
        cmocka_unit_test(a_warmup_is_a_budget_that_falls),
        cmocka_unit_test(what_is_not_finite_is_sent),
        cmocka_unit_test(a_merge_at_another_rate_forgets_norms),
        cmocka_unit_test(a_state_of_another_budget_stays_within_this_one),
        cmocka_unit_test(a_saved_state_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(any_layout_works),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
