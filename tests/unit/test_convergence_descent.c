/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What docs/convergence.md claims of descent: each claim is a test here, of several ranks with data
 * of their own and codecs made from their strings.
 */
#include "tests/unit/codec_ranks.h"

/* ---- Descent ---- */

/* Least squares: rank r has x'Hx / 2 - c'x, so that ranks have optima of their own. */
#define DIMENSIONS 100
static double hessian[RANKS][DIMENSIONS][DIMENSIONS], linear[RANKS][DIMENSIONS];

static void make_problem(void)
{
    memset(hessian, 0, sizeof hessian);
    memset(linear, 0, sizeof linear);
    for (size_t r = 0; r < RANKS; r++)
        for (size_t row = 0; row < DIMENSIONS; row++) {
            double a[DIMENSIONS], y = 5 * data_normal(&rng);

            for (size_t i = 0; i < DIMENSIONS; i++)
                a[i] = data_normal(&rng);
            for (size_t i = 0; i < DIMENSIONS; i++) {
                linear[r][i] += a[i] * y / DIMENSIONS;
                for (size_t j = 0; j < DIMENSIONS; j++)
                    hessian[r][i][j] += a[i] * a[j] / DIMENSIONS;
            }
        }
}

static void gradient_at(const double *at, size_t r, float *gradient)
{
    double g[DIMENSIONS];

    for (size_t i = 0; i < DIMENSIONS; i++)
        g[i] = -linear[r][i];
    for (size_t j = 0; j < DIMENSIONS; j++)
        for (size_t i = 0; i < DIMENSIONS; i++)
            g[i] += hessian[r][j][i] * at[j];
    for (size_t i = 0; i < DIMENSIONS; i++)
        gradient[i] = (float)g[i];
}

struct run {
    const char *spec;
    double rate;
    int steps;
    bool constant;   /* the rate; else it falls as 1 / step */
    double momentum; /* of the optimizer */
    double noise;    /* standard deviation of what is added to an element of a gradient */
};

/* The average of what the ranks send, at this point. */
static void average_of(const struct run *run, spr_codec *const *codec, const double *at,
                       double *average)
{
    float gradient[DIMENSIONS], sent[DIMENSIONS];

    memset(average, 0, DIMENSIONS * sizeof(*average));
    for (uint32_t r = 0; r < RANKS; r++) {
        gradient_at(at, r, gradient);
        for (size_t i = 0; i < DIMENSIONS && run->noise > 0; i++)
            gradient[i] += (float)(run->noise * data_normal(&rng));
        step_of(codec[r], r, gradient, sent);
        for (size_t i = 0; i < DIMENSIONS; i++)
            average[i] += (double)sent[i] / RANKS;
    }
}

/* From 0. */
static void descend(const struct run *run, double *at)
{
    spr_codec *codec[RANKS];
    double velocity[DIMENSIONS] = {0}, average[DIMENSIONS];

    memset(at, 0, DIMENSIONS * sizeof(*at));
    for (uint32_t r = 0; r < RANKS; r++)
        codec[r] = make(run->spec, DIMENSIONS, 1);
    for (int s = 0; s < run->steps; s++) {
        double rate = run->constant ? run->rate : run->rate / (1 + s * run->rate / 10);

        average_of(run, codec, at, average);
        for (size_t i = 0; i < DIMENSIONS; i++) {
            velocity[i] = run->momentum * velocity[i] + average[i];
            at[i] -= rate * velocity[i];
        }
    }
    for (uint32_t r = 0; r < RANKS; r++)
        spr_codec_destroy(codec[r]);
}

/* Where a run ends: the distance from the optimum of exact descent, relative to its norm. */
static double distance_of(const struct run *run, const double *optimum)
{
    double at[DIMENSIONS], sum = 0, all = 0;

    descend(run, at);
    for (size_t i = 0; i < DIMENSIONS; i++) {
        sum += pow(at[i] - optimum[i], 2);
        all += pow(optimum[i], 2);
    }
    return sqrt(sum / all);
}

static void make_problem_and_solve(double *optimum)
{
    const struct run exact = {.spec = "none", .rate = 0.5, .steps = 500, .constant = true};

    make_problem();
    descend(&exact, optimum);
}

/* With feedback, twice the steps halve the distance, as the rate falls; without, it stays. */
static void descent_ends_at_the_optimum_with_feedback_only(void **state)
{
    static const struct {
        const char *with, *without;
        double most;
    } cases[] = {
        {"topk:ratio=1%", "topk:ratio=1%,feedback=off", 0.1},
        {"topk:ratio=10%", "topk:ratio=10%,feedback=off", 0.02},
        {"sign", "none:feedback=off+sign", 0.02},
        {"int4", "none:feedback=off+int4", 0.002},
    };
    double optimum[DIMENSIONS];

    (void)state;
    make_problem_and_solve(optimum);
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        struct run with = {.spec = cases[c].with, .rate = 0.1, .steps = 2000};
        struct run without = {.spec = cases[c].without, .rate = 0.1, .steps = 4000};
        double half = distance_of(&with, optimum), stays = distance_of(&without, optimum);

        with.steps = 4000;
        double end = distance_of(&with, optimum);
        printf("%s: %.3g, %.3g from the optimum; without feedback %.3g\n", with.spec, half, end,
               stays);
        if (!(end < cases[c].most && end < 0.85 * half && stays > 8 * end))
            fail_msg("%s", with.spec);
    }
}

static void descent_needs_no_feedback_where_the_mean_is_right(void **state)
{
    static const char *const specs[] = {"qsgd:levels=7", "natural", "terngrad:clip=0",
                                        "int4:rounding=stochastic"};
    double optimum[DIMENSIONS];

    (void)state;
    make_problem_and_solve(optimum);
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        struct run run = {.spec = specs[c], .rate = 0.1, .steps = 500};
        double half = distance_of(&run, optimum);

        run.steps = 4000;
        double end = distance_of(&run, optimum);
        printf("%s: %.3g, %.3g from the optimum\n", specs[c], half, end);
        if (!(end < 0.1 && end < 0.8 * half))
            fail_msg("%s", specs[c]);
    }
}

/* ---- Counterexamples ---- */

/* Karimireddy et al. 2019, section 3: f = <a, x>^2 + <b, x>^2, one term drawn per step, a and b =
 * +-(1, -1) + e (1, 1): signs of both are those of (1, -1), so that x never leaves the line
 * x0 + x1 = 2, and the optimum is 0. */
static double signs_of_two(const char *spec)
{
    spr_codec *codec = make(spec, 2, 1);
    double at[2] = {1, 1};

    for (int s = 0; s < 4000; s++) {
        double a = spr_rng_below(&rng, 2) ? 1 : -1, e = 0.5, row[] = {a + e, -a + e};
        double dot = row[0] * at[0] + row[1] * at[1];
        float gradient[] = {(float)(2 * dot * row[0]), (float)(2 * dot * row[1])}, sent[2];

        step_of(codec, 0, gradient, sent);
        at[0] -= 0.02 * (double)sent[0];
        at[1] -= 0.02 * (double)sent[1];
    }
    spr_codec_destroy(codec);
    return fabs(at[0]) + fabs(at[1]);
}

static void signs_without_feedback_stay_on_a_line(void **state)
{
    (void)state;
    assert_true(signs_of_two("none:feedback=off+sign") > 2 - 1e-9);
    assert_true(signs_of_two("sign") < 1e-3);
}

/* Beznosikov et al. 2020, example 1: three ranks, f = <a, x>^2 + |x|^2 / 4 with a = (-3, 2, 2) and
 * its rotations. From (1, 1, 1) on, the largest element of each gradient is the one of the wrong
 * sign: 6 t (-3) + t / 2 ... of 2 t a + x / 2 it is -5.5 t, and every step multiplies x by
 * 1 + rate 5.5 / 3. */
static double top_of_three(const char *spec, int steps, double rate)
{
    spr_codec *codec[3];
    double at[3] = {1, 1, 1};

    for (int r = 0; r < 3; r++)
        codec[r] = make(spec, 3, 1);
    for (int s = 0; s < steps; s++) {
        double sum[3] = {0};

        for (int r = 0; r < 3; r++) {
            double dot = 2 * (at[0] + at[1] + at[2]) - 5 * at[r];
            float gradient[3], sent[3];

            for (int i = 0; i < 3; i++)
                gradient[i] = (float)(2 * dot * (i == r ? -3 : 2) + at[i] / 2);
            step_of(codec[r], (uint32_t)r, gradient, sent);
            for (int i = 0; i < 3; i++)
                sum[i] += (double)sent[i] / 3;
        }
        for (int i = 0; i < 3; i++)
            at[i] -= rate * sum[i];
    }
    for (int r = 0; r < 3; r++)
        spr_codec_destroy(codec[r]);
    return fabs(at[0]) + fabs(at[1]) + fabs(at[2]);
}

static void topk_without_feedback_climbs(void **state)
{
    double climbed = top_of_three("topk:count=1,feedback=off", 100, 0.02);

    (void)state;
    assert_true(fabs(climbed / (3 * pow(1 + 0.02 * 5.5 / 3, 100)) - 1) < 1e-4);
    assert_true(top_of_three("topk:count=1", 2000, 0.02) < 1e-3);
}

/* ---- Momentum and decay ---- */

enum rates { CONSTANT, FALLING, FALLING_UNTOLD /* to the codec */ };

/* The same gradients for a codec and for SGD: what the weights differ by is rate x residual, to the
 * part of them that is returned. */
static double beyond_the_residual(const char *spec, double momentum, enum rates rates)
{
    static float gradient[N], sent[N];
    static double velocity[N], exact[N], weights[N];
    spr_codec *codec = make(spec, N, 1);
    double beyond = 0, all = 0, rate = 1;

    memset(velocity, 0, sizeof velocity);
    memset(exact, 0, sizeof exact);
    memset(weights, 0, sizeof weights);
    for (int s = 0; s < 200; s++) {
        if (rates != CONSTANT)
            rate = 1 / (1 + s / 20.0);
        if (rates == FALLING)
            assert_int_equal(spr_codec_set_learning_rate(codec, rate), SPR_OK);
        data_fill(DATA_NORMAL, gradient, N, &rng);
        step_of(codec, 0, gradient, sent);
        for (size_t i = 0; i < N; i++) {
            velocity[i] = momentum * velocity[i] + (double)gradient[i];
            exact[i] += rate * velocity[i];
            weights[i] += rate * (double)sent[i];
        }
    }
    for (size_t i = 0; i < N; i++) {
        beyond += pow(exact[i] - weights[i] - rate * (double)spr_codec_residual(codec)[i], 2);
        all += pow(exact[i], 2);
    }
    spr_codec_destroy(codec);
    return sqrt(beyond / all);
}

static void momentum_before_the_codec_is_that_of_sgd_but_for_the_residual(void **state)
{
    static const char *const specs[] = {"onebit", "dgc:ratio=10%,masking=off",
                                        "none:feedback=momentum+int4"};

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++)
        if (!(beyond_the_residual(specs[c], 0.9, CONSTANT) < 1e-5))
            fail_msg("%s: %g", specs[c], beyond_the_residual(specs[c], 0.9, CONSTANT));
    assert_true(beyond_the_residual("dgc:ratio=10%", 0.9, CONSTANT) > 0.05); /* masking forgets */
}

static void with_a_rate_that_falls_the_residual_keeps_its_weight(void **state)
{
    static const struct {
        const char *spec;
        double momentum;
    } cases[] = {{"topk:ratio=1%", 0}, {"adaptive:ratio=1%", 0},
                 {"sign", 0},          {"block:ratio=5%+int8", 0},
                 {"onebit", 0.9},      {"dgc:ratio=10%,masking=off", 0.9}};

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        double told = beyond_the_residual(cases[c].spec, cases[c].momentum, FALLING);
        double untold = beyond_the_residual(cases[c].spec, cases[c].momentum, FALLING_UNTOLD);

        if (!(told < 1e-5 && untold > 1e3 * told))
            fail_msg("%s: %g when it is told the rate, %g when not", cases[c].spec, told, untold);
    }
}

/* Noise of the standard deviation 1, a constant rate. */
#define PROBLEMS 5
static void momentum_before_the_codec_bears_a_higher_rate(void **state)
{
    static const struct run before[] = {
        {"onebit", 0.13, 2000, true, 0, 1},
        {"dgc:ratio=10%", 0.1, 1000, true, 0, 1},
    };
    static const struct run after[] = {
        {"sign", 0.13, 2000, true, 0.9, 1},
        {"topk:ratio=10%", 0.1, 1000, true, 0.9, 1},
    };

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(before); c++) {
        int bears = 0, diverges = 0;

        /* There are problems, one in fifty, that onebit does not bear either. */
        for (int i = 0; i < PROBLEMS; i++) {
            double optimum[DIMENSIONS], b, a;
            make_problem_and_solve(optimum);
            b = distance_of(&before[c], optimum);
            a = distance_of(&after[c], optimum);
            printf("rate %g, noise: %s %.3g, %s with momentum after it %.3g\n", before[c].rate,
                   before[c].spec, b, after[c].spec, a);
            bears += b < 20;
            diverges += !(a < 1000); /* it may be NaN */
        }
        assert_true(bears > PROBLEMS / 2 && diverges > PROBLEMS / 2);
    }
}

/* ... but where it is stable without it, and nothing is noisy, it costs accuracy. */
static void momentum_before_the_codec_holds_more_back(void **state)
{
    static const struct run before = {"onebit", 0.02, 1000, true, 0, 0};
    static const struct run after = {"sign", 0.02, 1000, true, 0.9, 0};
    double optimum[DIMENSIONS];

    (void)state;
    make_problem_and_solve(optimum);
    double b = distance_of(&before, optimum), a = distance_of(&after, optimum);
    printf("rate 0.02: onebit %.3g, sign with momentum after it %.3g\n", b, a);
    assert_true(b > 2 * a);
}

/* A small element beside large ones, again and again. */
static void decay_forgets_what_feedback_sends_late(void **state)
{
    static const char *const specs[] = {"topk:count=1", "topk:count=1,feedback=decay,decay=90%"};
    float gradient[] = {1, 0.05f}, sent[2];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        spr_codec *codec = make(specs[c], 2, 1);
        double sum = 0;

        for (int s = 0; s < 400; s++) {
            step_of(codec, 0, gradient, sent);
            sum += (double)sent[1];
        }
        double kept = (double)spr_codec_residual(codec)[1];
        if (c == 0)
            assert_true(fabs(sum + kept - 20) < 1e-3 && kept < 2);
        else
            assert_true(sum == 0 && fabs(kept - 0.5) < 1e-3);
        spr_codec_destroy(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descent_ends_at_the_optimum_with_feedback_only),
        cmocka_unit_test(descent_needs_no_feedback_where_the_mean_is_right),
        cmocka_unit_test(signs_without_feedback_stay_on_a_line),
        cmocka_unit_test(topk_without_feedback_climbs),
        cmocka_unit_test(momentum_before_the_codec_is_that_of_sgd_but_for_the_residual),
        cmocka_unit_test(with_a_rate_that_falls_the_residual_keeps_its_weight),
        cmocka_unit_test(momentum_before_the_codec_bears_a_higher_rate),
        cmocka_unit_test(momentum_before_the_codec_holds_more_back),
        cmocka_unit_test(decay_forgets_what_feedback_sends_late),
    };

    seed_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
