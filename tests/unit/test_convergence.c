/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What docs/convergence.md claims of single steps and of residuals: each claim is a test here, of
 * codecs made from their strings. What it claims of descent is in test_convergence_descent.c.
 */
#include "tests/unit/codec_ranks.h"

#define FALSE_ALARM 1e-6 /* of each test that draws */

/* ---- Unbiased ---- */

/* Each rounds |x| to one of two values, which are `width` apart: a multiple of reach / levels (the
 * largest magnitude of a group, or its norm), a power of two, 0 or |x| / ratio. */
enum grid { BY_MAX, BY_NORM, POWERS, STRATA };

struct rounding {
    const char *spec;
    enum grid grid;
    size_t group; /* STRATA: the inverse of the ratio */
    double levels;
    double omega;  /* the worst */
    double normal; /* of normal data, in the mean */
};

static const struct rounding unbiased[] = {
    {"qsgd", BY_NORM, 512, 16, 0.5, 0.333},
    {"qsgd:levels=7", BY_NORM, 512, 7, 2.2325, 1.58},
    {"qsgd:levels=7,norm=max", BY_MAX, 512, 7, 1.1906, 0.036},
    {"terngrad:clip=0", BY_MAX, 1024, 1, 15.5, 1.75},
    {"natural", POWERS, 1, 1, 0.125, 0.0817},
    {"int8:rounding=stochastic", BY_MAX, 1024, 127, 0.015616, 0.000123},
    {"int4:rounding=stochastic", BY_MAX, 1024, 7, 1.8387, 0.0405},
    {"random:ratio=12.5%,scale=on,feedback=off", STRATA, 8, 1, 7, 7},
};
static const struct rounding biased[] = {
    {"none:feedback=off+int8", BY_MAX, 1024, 127, 0, 0},
    {"none:feedback=off+sign", BY_MAX, 1024, 1, 0, 0},
    {"terngrad", BY_MAX, 1024, 1, 0, 0},
    {"random:ratio=12.5%,feedback=off", STRATA, 8, 1, 0, 0},
    {"topk:ratio=12.5%,feedback=off", STRATA, 8, 1, 0, 0},
};

enum { NORMAL, LAYERS, WORST, KINDS };
#define DRAWS 1500
#define CASES (KINDS * SPR_ARRAY_LEN(unbiased))

static float x[N];
static double low[N], width[N]; /* of the grid, next to |x| */

/* WORST has the largest variance for its square: for BY_MAX, one element on the outermost level and
 * the others where the derivative is zero; else equal elements. */
static void fill(const struct rounding *r, int kind)
{
    double others = (double)r->group - 1, levels = r->levels, equal = 4.0 / 3;

    if (kind == WORST && r->grid == BY_MAX)
        equal = levels / others * (sqrt(1 + others / (levels * levels)) - 1);
    if (kind != WORST)
        data_fill(kind == NORMAL ? DATA_NORMAL : DATA_LAYERS, x, N, &rng);
    for (size_t i = 0; i < N && kind == WORST; i++)
        x[i] = r->grid == BY_MAX && i % r->group == 0 ? 1 : (float)equal;
    for (size_t i = 0; i < N; i++) {
        const float *group = x + i / r->group * r->group;
        double reach = r->grid == BY_NORM ? sqrt(square(group, NULL, r->group)) : 0;
        double magnitude = fabs((double)x[i]);

        for (size_t j = 0; j < r->group && r->grid == BY_MAX; j++)
            reach = data_larger(reach, fabs((double)group[j]));
        width[i] = r->grid == POWERS   ? exp2(floor(log2(magnitude)))
                   : r->grid == STRATA ? magnitude * (double)r->group
                                       : reach / levels;
        low[i] = r->grid == STRATA ? 0 : width[i] * floor(magnitude / width[i]);
    }
}

static double variance(size_t i)
{
    return fmax(0, (fabs((double)x[i]) - low[i]) * (low[i] + width[i] - fabs((double)x[i])));
}

/* Bernstein: the mean of DRAWS numbers of this variance, none further from x than `width`, is
 * further off with a probability of at most FALSE_ALARM / (2 CASES N). Random numbers of 16 bits
 * are off by 2^-17 of a step. */
static double allowed(size_t i)
{
    double l = log(4 * (double)(CASES * N) / FALSE_ALARM), b = l * width[i] * 2 / 3;

    return (b + sqrt(b * b + 8 * DRAWS * l * variance(i))) / (2 * DRAWS) + width[i] * 0x1p-16 +
           1e-6 * fabs((double)x[i]);
}

/* Hoeffding, of the mean of <C(x), x>, which sees what single elements are too noisy for:
 * FALSE_ALARM / (2 CASES). */
static double allowed_along_x(void)
{
    double widths = 0, magnitudes = 0;

    for (size_t i = 0; i < N; i++) {
        widths += pow(width[i] * (double)x[i], 2);
        magnitudes += width[i] * fabs((double)x[i]);
    }
    return sqrt(log(4 * (double)CASES / FALSE_ALARM) * widths / (2 * DRAWS)) +
           magnitudes * 0x1p-16 + 1e-6 * square(x, NULL, N);
}

/* The average over `ranks` that have the same x, DRAWS times. Returns the largest deviation of a
 * mean from x, or along x, in units of what is allowed; *squares: the mean of |C(x) - x|^2. */
static double draw(const struct rounding *r, unsigned ranks, double *squares)
{
    static float sent[N], average[N];
    static double sum[N];
    spr_codec *codec[RANKS];
    double worst = 0, along = 0;

    *squares = 0;
    memset(sum, 0, sizeof sum);
    for (unsigned rank = 0; rank < ranks; rank++)
        codec[rank] = make(r->spec, N, 1);
    for (int d = 0; d < DRAWS; d++) {
        memset(average, 0, sizeof average);
        for (unsigned rank = 0; rank < ranks; rank++) {
            step_of(codec[rank], rank, x, sent);
            for (size_t i = 0; i < N; i++)
                average[i] += sent[i] / (float)ranks;
        }
        for (size_t i = 0; i < N; i++)
            sum[i] += (double)average[i];
        *squares += square(average, x, N) / DRAWS;
    }
    for (size_t i = 0; i < N; i++) {
        worst = data_larger(worst, fabs(sum[i] / DRAWS - (double)x[i]) / allowed(i));
        along += (sum[i] / DRAWS - (double)x[i]) * (double)x[i];
    }
    worst = data_larger(worst, fabs(along) / allowed_along_x());
    for (unsigned rank = 0; rank < ranks; rank++)
        spr_codec_destroy(codec[rank]);
    return worst;
}

static void means_are_right(void **state)
{
    double squares;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(unbiased); c++)
        for (int kind = 0; kind < KINDS; kind++) {
            fill(&unbiased[c], kind);
            double off = draw(&unbiased[c], 1, &squares);
            if (!(off <= 1))
                fail_msg("%s, kind %d: %g of what is allowed", unbiased[c].spec, kind, off);
        }
}

/* ... and so the test above would see it. */
static void means_of_the_others_are_wrong(void **state)
{
    double squares;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(biased); c++) {
        fill(&biased[c], NORMAL);
        double off = draw(&biased[c], 1, &squares);
        if (!(off > 1.5))
            fail_msg("%s: %g of what is allowed", biased[c].spec, off);
    }
}

/* Hoeffding: the mean of DRAWS sums of independent numbers, the i-th between 0 and width^2, is
 * further off with a probability of at most FALSE_ALARM / CASES. */
static void expect_variance(const struct rounding *r, double squares, double expected)
{
    double widths = 0;

    for (size_t i = 0; i < N; i++)
        widths += pow(width[i], 4);
    double off = sqrt(log(2 * (double)CASES / FALSE_ALARM) * widths / (2 * DRAWS));
    if (!(fabs(squares - expected) <= off + 1e-3 * expected))
        fail_msg("%s: variance %g, not %g +- %g", r->spec, squares, expected, off);
}

static double sum_of_variances(void)
{
    double sum = 0;

    for (size_t i = 0; i < N; i++)
        sum += variance(i);
    return sum;
}

static void variances_keep_within_omega_and_reach_it(void **state)
{
    double squares;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(unbiased); c++)
        for (int kind = 0; kind < KINDS; kind++) {
            const struct rounding *r = &unbiased[c];

            fill(r, kind);
            (void)draw(r, 1, &squares);
            expect_variance(r, squares, sum_of_variances());
            double omega = sum_of_variances() / square(x, NULL, N);
            if (!(omega <= r->omega * 1.0001 && (kind != WORST || omega >= 0.8 * r->omega)))
                fail_msg("%s, kind %d: omega %g, not %g", r->spec, kind, omega, r->omega);
        }
}

/* Those of docs/convergence.md. */
static void variances_of_normal_data_are_those_of_the_page(void **state)
{
    enum { VECTORS = 400 };

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(unbiased); c++) {
        const struct rounding *r = &unbiased[c];
        double omega = 0;

        for (int i = 0; i < VECTORS; i++) {
            fill(r, NORMAL);
            omega += sum_of_variances() / square(x, NULL, N) / VECTORS;
        }
        printf("%s: omega %.4g of normal data\n", r->spec, omega);
        if (!(fabs(omega / r->normal - 1) < 0.05))
            fail_msg("%s: omega %g of normal data, not %g", r->spec, omega, r->normal);
    }
}

static void ranks_divide_the_variance_but_of_random_positions(void **state)
{
    double squares;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(unbiased); c++) {
        const struct rounding *r = &unbiased[c];

        fill(r, NORMAL);
        (void)draw(r, RANKS, &squares);
        expect_variance(r, squares, sum_of_variances() / (r->grid == STRATA ? 1 : RANKS));
    }
}

/* ---- Contractive ---- */

/* Not those that are not finite, nor what is too small for a scale. */
static bool is_ordinary(enum data kind)
{
    return kind != DATA_NOT_FINITE && kind != DATA_ANY_BITS && kind != DATA_DENORMAL;
}

/* `rest`: 1 - delta, at most, of any vector. */
static const struct {
    const char *spec;
    double rest;
} contractive[] = {
    {"topk:ratio=1%", 1 - 21.0 / N},
    {"topk:ratio=12.5%", 0.875},
    {"block:ratio=25%", 0.75},
    {"sign:group=8", 0.875},
    {"sign:group=8,means=two", 0.875},
    {"int8", 1023.0 / (4 * 127 * 127 + 1023)},
    {"int4", 1023.0 / (4 * 7 * 7 + 1023)},
    {"topk:ratio=12.5%+int4", 1 - 0.125 * (1 - 255.0 / (4 * 7 * 7 + 255))},
    {"adaptive:ratio=12.5%", 0.875 + 1.0 / N}, /* rounded down */
};

/* One element on the outermost level of int4 (or all the same), the others just below the middle of
 * the lowest step: nothing of them is sent. */
static void fill_with_halves(float *g, size_t n, size_t group)
{
    for (size_t i = 0; i < n; i++)
        g[i] = i % group == 0 ? 7 : 0.4999f;
}

static void contractions_keep_within_delta(void **state)
{
    static float sent[N];
    double most[SPR_ARRAY_LEN(contractive)] = {0};

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(contractive); c++)
        for (int kind = 0; kind <= DATA_KINDS; kind++) {
            spr_codec *codec = make(contractive[c].spec, N, 1);

            if (kind < DATA_KINDS)
                data_fill((enum data)kind, x, N, &rng);
            else
                fill_with_halves(x, N, 1024);
            if (kind == DATA_KINDS || is_ordinary((enum data)kind)) {
                double all = square(x, NULL, N);
                step_of(codec, 0, x, sent);
                double rest = square(x, sent, N);
                if (!(rest <= contractive[c].rest * all * (1 + 1e-6)))
                    fail_msg("%s, kind %d: %g of the square stays", contractive[c].spec, kind,
                             rest / all);
                most[c] = data_larger(most[c], all > 0 ? rest / all : 0);
            }
            spr_codec_destroy(codec);
        }
    /* Equal elements are the worst for a selection, halves for integers. */
    assert_true(most[0] > contractive[0].rest * (1 - 1e-6));
    assert_true(most[1] > contractive[1].rest * (1 - 1e-6));
    assert_true(most[2] > contractive[2].rest * (1 - 1e-6));
    assert_true(most[6] > contractive[6].rest * 0.999);
}

/* |x|^2 - |x|_1^2 / n of each group, exactly. */
static void signs_leave_what_their_mean_does_not_explain(void **state)
{
    static float sent[N];

    (void)state;
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        spr_codec *codec = make("sign", N, 1);
        double expected = 0;

        data_fill((enum data)kind, x, N, &rng);
        step_of(codec, 0, x, sent);
        for (size_t at = 0; at < N; at += 1024) {
            double sum = 0;
            for (size_t i = at; i < at + 1024; i++)
                sum += fabs((double)x[i]);
            expected += square(x + at, NULL, 1024) - sum * sum / 1024;
        }
        if (is_ordinary((enum data)kind) &&
            !(fabs(square(x, sent, N) - expected) <= 1e-5 * square(x, NULL, N)))
            fail_msg("%s: %g stays, not %g", data_names[kind], square(x, sent, N), expected);
        spr_codec_destroy(codec);
    }
}

/* The part 1 / 8 of the square, in the mean: Hoeffding, each part of 8 elements by itself. */
static void random_positions_contract_in_the_mean(void **state)
{
    static float sent[N];
    spr_codec *codec = make("random:ratio=12.5%,feedback=off", N, 1);
    double rest = 0, fourths = 0;

    (void)state;
    data_fill(DATA_NORMAL, x, N, &rng);
    for (int d = 0; d < DRAWS; d++) {
        step_of(codec, 0, x, sent);
        rest += square(x, sent, N) / DRAWS;
    }
    for (size_t i = 0; i < N; i++)
        fourths += pow((double)x[i], 4);
    double off = sqrt(log(2 / FALSE_ALARM) * fourths / (2 * DRAWS));
    if (!(fabs(rest - 0.875 * square(x, NULL, N)) <= off))
        fail_msg("%g of the square stays, +- %g", rest / square(x, NULL, N),
                 off / square(x, NULL, N));
    spr_codec_destroy(codec);
}

/* Pythagoras: |M|^2 = |P P^T M|^2 + |M - P P^T M|^2. */
static void powersgd_projects(void **state)
{
    static float out[N];

    (void)state;
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        spr_codec *codec = make("powersgd:rank=2", 64, N / 64);
        struct spr_codec_step step;

        data_fill((enum data)kind, x, N, &rng);
        assert_int_equal(spr_codec_begin(codec, x, &step), SPR_OK);
        do
            memcpy(step.sum, step.vector, step.count * sizeof(float));
        while (spr_codec_next(codec, out, &step));
        spr_codec_commit(codec);
        double all = square(x, NULL, N), parts = square(out, NULL, N) + square(out, x, N);
        if (is_ordinary((enum data)kind) &&
            !(fabs(parts - all) <= 1e-4 * all && (all == 0 || square(out, NULL, N) > 0)))
            fail_msg("%s: %g, not %g", data_names[kind], parts, all);
        spr_codec_destroy(codec);
    }
}

/* ---- Error feedback ---- */

static const char *const with_feedback[] = {
    "topk:ratio=1%",
    "topk:ratio=10%+int4",
    "block:ratio=25%+fp16",
    "random:ratio=10%",
    "sign",
    "int4",
    "bf16",
    "threshold:ratio=5%",
};

/* Of every rank by itself: what it has sent in all and what it keeps is what came in. */
static void what_came_in_was_sent_or_is_kept(void **state)
{
    static float gradient[N], sent[N];
    static double balance[N];
    const int steps = 50;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(with_feedback); c++)
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            spr_codec *codec = make(with_feedback[c], N, 1);
            double largest = 0;

            memset(balance, 0, sizeof balance);
            for (int s = 0; s < steps; s++) {
                data_fill(rank % 2 ? DATA_NORMAL : DATA_LAYERS, gradient, N, &rng);
                step_of(codec, rank, gradient, sent);
                for (size_t i = 0; i < N; i++) {
                    balance[i] += (double)gradient[i] - (double)sent[i];
                    largest = data_larger(largest, fabs((double)spr_codec_residual(codec)[i]));
                    largest = data_larger(largest, fabs((double)sent[i]));
                }
            }
            for (size_t i = 0; i < N; i++)
                if (!(fabs(balance[i] - (double)spr_codec_residual(codec)[i]) <=
                      steps * 0x1p-23 * largest))
                    fail_msg("%s, rank %u: %g is missing", with_feedback[c], rank,
                             balance[i] - (double)spr_codec_residual(codec)[i]);
            spr_codec_destroy(codec);
        }
}

/* Karimireddy et al. 2019, lemma 3, with a rate of 1 and gradients of norm 1. Equal elements, all
 * the time, are the worst for a selection. Returns the largest |residual|^2. */
static double largest_residual(const char *spec, enum data kind, int steps)
{
    static float gradient[N], sent[N];
    spr_codec *codec = make(spec, N, 1);
    double largest = 0;

    for (int s = 0; s < steps; s++) {
        data_fill(kind, gradient, N, &rng);
        float norm = (float)sqrt(square(gradient, NULL, N));
        for (size_t i = 0; i < N; i++)
            gradient[i] = (kind == DATA_EQUAL ? fabsf(gradient[i]) : gradient[i]) / norm;
        step_of(codec, 0, gradient, sent);
        largest = data_larger(largest, square(spr_codec_residual(codec), NULL, N));
    }
    spr_codec_destroy(codec);
    return largest;
}

static void residuals_keep_within_their_bound(void **state)
{
    static const enum data kinds[] = {DATA_NORMAL, DATA_LAYERS, DATA_EQUAL, DATA_HOT_BLOCK,
                                      DATA_COMB};

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(contractive); c++)
        for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++) {
            double rest = contractive[c].rest, bound = 4 * rest / pow(1 - rest, 2);
            double e = largest_residual(contractive[c].spec, kinds[k], 200);

            if (!(e <= bound * (1 + 1e-6)))
                fail_msg("%s, %s: |e|^2 = %g, not %g", contractive[c].spec, data_names[kinds[k]], e,
                         bound);
            if (c == 1 && kinds[k] == DATA_EQUAL && !(e >= bound / 16))
                fail_msg("%g is little of %g", e, bound);
        }
}

/* A coder whose omega exceeds 1 expands, and then feedback gives back more than there was. */
static void feedback_around_a_coder_that_expands_diverges(void **state)
{
    double narrow = largest_residual("topk:ratio=12.5%+qsgd:levels=16", DATA_NORMAL, 200);
    double wide = largest_residual("topk:ratio=12.5%+qsgd:levels=1", DATA_NORMAL, 200);

    (void)state;
    printf("|e|^2: %g, and %g with qsgd:levels=1\n", narrow, wide);
    assert_true(narrow < 100 && wide > 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_right),
        cmocka_unit_test(means_of_the_others_are_wrong),
        cmocka_unit_test(variances_keep_within_omega_and_reach_it),
        cmocka_unit_test(variances_of_normal_data_are_those_of_the_page),
        cmocka_unit_test(ranks_divide_the_variance_but_of_random_positions),
        cmocka_unit_test(contractions_keep_within_delta),
        cmocka_unit_test(signs_leave_what_their_mean_does_not_explain),
        cmocka_unit_test(random_positions_contract_in_the_mean),
        cmocka_unit_test(powersgd_projects),
        cmocka_unit_test(what_came_in_was_sent_or_is_kept),
        cmocka_unit_test(residuals_keep_within_their_bound),
        cmocka_unit_test(feedback_around_a_coder_that_expands_diverges),
    };

    seed_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
