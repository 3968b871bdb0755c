/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The rules of error feedback: DGC against steps computed by hand, clipping, warm-up, conservation
 * over ranks, and that a step can be undone to the bit.
 */
#include "compress/select/feedback.h"

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
#include "compress/select/select.h"
#include "tests/unit/select_call.h"
#include "tools/codec/data.h"

static struct spr_rng rng;

/*
 * Lin et al. 2018, algorithm 4, three elements of which one is sent, m = 1/2 (all numbers exact):
 *
 *   step  g           u = m u + g      v = v + u        sent   u, v afterwards
 *   0     4  1  2     4    1    2      4    1    2      0: 4   0 1 2            0 1   2
 *   1     0  1  2     0    1.5  3      0    2.5  5      2: 5   0 1.5 0          0 2.5 0
 *   2     0  0  1     0    .75  1      0    3.25 1      1: 3.25  0 0 1          0 0   1
 *   3     0  0  0     0    0    .5     0    0    1.5    2: 1.5  0 0 0           0 0   0
 */
static void momentum_correction_and_masking_are_those_of_the_paper(void **state)
{
    static const struct spr_feedback_options dgc = {
        .rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.5, .masking = true};
    static const float g[4][3] = {{4, 1, 2}, {0, 1, 2}, {0, 0, 1}, {0, 0, 0}};
    static const uint32_t sent[4] = {0, 2, 1, 2};
    static const float value[4] = {4, 5, 3.25f, 1.5f};
    static const float u[4][3] = {{0, 1, 2}, {0, 1.5f, 0}, {0, 0, 1}, {0, 0, 0}};
    static const float v[4][3] = {{0, 1, 2}, {0, 2.5f, 0}, {0, 0, 1}, {0, 0, 0}};
    struct call c;

    (void)state;
    call_make(&c, "topk", "count=1", 3, 1, &dgc);
    for (size_t step = 0; step < 4; step++) {
        call_run(&c, g[step], step);
        assert_int_equal(c.s.count, 1);
        assert_int_equal(c.index[0], sent[step]);
        assert_true(c.value[0] == value[step]);
        for (size_t i = 0; i < 3; i++)
            assert_true(c.velocity[i] == u[step][i] && c.residual[i] == v[step][i]);
    }
    call_free(&c);
}

/* u = m (u + g), v = v + u + g. */
static void nesterov_looks_ahead(void **state)
{
    static const struct spr_feedback_options rule = {
        .rule = SPR_FEEDBACK_NESTEROV, .momentum = 0.5, .masking = true};
    static const float g[2] = {1, 100};
    struct call c;

    (void)state;
    call_make(&c, "topk", "count=1", 2, 1, &rule);
    call_run(&c, g, 0);
    assert_true(c.value[0] == 150 && c.residual[0] == 1.5f && c.velocity[0] == 0.5f);
    call_run(&c, g, 1); /* u = (0.5 + 1) / 2, v = 1.5 + 0.75 + 1 */
    assert_true(c.residual[0] == 3.25f && c.velocity[0] == 0.75f);
    call_free(&c);
}

static void decay_forgets(void **state)
{
    static const struct spr_feedback_options rule = {.rule = SPR_FEEDBACK_DECAY, .decay = 0.5};
    static const float g[2] = {1, 100}, nothing[2] = {0, 1};
    struct call c;

    (void)state;
    call_make(&c, "topk", "count=1", 2, 1, &rule);
    call_run(&c, g, 0);
    call_run(&c, g, 1);
    assert_true(c.residual[0] == 1.5f);
    call_run(&c, nothing, 2);
    assert_true(c.residual[0] == 0.75f);
    call_run(&c, NULL, 3); /* no gradient: nothing decays; 0.75 is the largest */
    assert_true(c.index[0] == 0 && c.value[0] == 0.75f);
    call_free(&c);
}

/* clip = 10 over 4 ranks: 5 for each. */
static void a_gradient_is_clipped_to_the_share_of_its_rank(void **state)
{
    static const struct spr_feedback_options rule = {.rule = SPR_FEEDBACK_PLAIN, .clip = 10};
    static const float long_one[2] = {30, 40}, short_one[2] = {3, 4}, bad[2] = {1, INFINITY};
    struct call c;

    (void)state;
    call_make(&c, "topk", "count=1", 2, 1, &rule);
    call_run(&c, long_one, 0);
    assert_true(c.residual[0] == 0.1f * 30 && c.value[0] == 0.1f * 40);
    spr_feedback_clear(&c.feedback, 2);
    call_run(&c, short_one, 1);
    assert_true(c.residual[0] == 3 && c.value[0] == 4);
    spr_feedback_clear(&c.feedback, 2);
    call_run(&c, bad, 2); /* what is wrong shows, the rest stays what it is */
    assert_true(c.residual[0] == 1 && c.value[0] == INFINITY);
    call_free(&c);
}

static void warmup_quarters_the_ratio_per_epoch(void **state)
{
    static const double ratio[] = {0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001};

    (void)state;
    for (uint64_t epoch = 0; epoch < SPR_ARRAY_LEN(ratio); epoch++)
        assert_true(spr_feedback_warmup(epoch, 0.001) == ratio[epoch]);
    assert_true(spr_feedback_warmup(0, 0.5) == 0.5);
    assert_true(spr_feedback_warmup(2, 0.03) == 0.03);
    assert_true(spr_feedback_warmup(UINT64_MAX, 0.0001) == 0.0001);
}

static void options_describe_the_rule(void **state)
{
    struct spr_feedback_options o;
    struct spr_feedback f = {.scale = 0};
    struct spr_error error;

    (void)state;
    memset(&o, 0, sizeof(o));
    assert_int_equal(spr_opt_defaults(spr_feedback_table, SPR_FEEDBACK_OPTIONS, &o, &error),
                     SPR_OK);
    spr_feedback_init(&f, &o, 16);
    assert_true(spr_feedback_is_sum(&f) && f.norm == 0 && f.factor == 1 && !f.masking);
    o.rule = SPR_FEEDBACK_MOMENTUM;
    o.clip = 2;
    spr_feedback_init(&f, &o, 16);
    assert_true(!spr_feedback_is_sum(&f) && f.norm == 0.5f && f.factor == 0.9f && f.masking);
}

/* A step that is aborted leaves the accumulated state; one more, without a gradient, sends the
 * same. */
static void an_undone_step_is_sent_again_to_the_bit(void **state)
{
    enum { N = 30000 };
    static const struct spr_feedback_options rules[] = {
        {.rule = SPR_FEEDBACK_PLAIN},
        {.rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.9, .masking = true},
    };
    float *g = malloc(N * sizeof(float)), *v = malloc(N * sizeof(float));
    float *u = malloc(N * sizeof(float)), *value = malloc(N * sizeof(float));

    (void)state;
    for (size_t r = 0; r < SPR_ARRAY_LEN(rules); r++) {
        struct call c;

        call_make(&c, "topk", "ratio=3%", N, 2, &rules[r]);
        for (uint64_t step = 0; step < 4; step++) {
            data_fill(DATA_LAYERS, g, N, &rng);
            call_run(&c, g, step);
            memcpy(v, c.residual, N * sizeof(float));
            memcpy(u, c.velocity, N * sizeof(float));
            memcpy(value, c.value, c.s.count * sizeof(float));
            spr_feedback_put_back(&c.feedback, c.index, c.value, c.s.velocity, c.s.count);
            assert_memory_not_equal(v, c.residual, N * sizeof(float));
            call_run(&c, NULL, step);
            assert_memory_equal(v, c.residual, N * sizeof(float));
            assert_memory_equal(u, c.velocity, N * sizeof(float));
            assert_memory_equal(value, c.value, c.s.count * sizeof(float));
        }
        call_free(&c);
    }
    free(g);
    free(v);
    free(u);
    free(value);
}

/* ---- What stays of an element that is taken ---- */

static void leave_quarter(const float *value, size_t n, float *rest)
{
    for (size_t i = 0; i < n; i++)
        rest[i] = value[i] / 4;
}

/* Where it was left, all that was taken has its rest and all else is the sum; where it was not,
 * what was taken is zero. Returns whether it was. */
static bool check_left(const struct call *c, const float *v)
{
    size_t j = 0;

    for (size_t i = 0; i < c->n; i++) {
        bool taken = j < c->s.count && c->index[j] == i;

        if (taken)
            assert_true(data_bits(c->value[j++]) == data_bits(v[i]));
        assert_true(c->residual[i] == (!taken ? v[i] : c->s.left ? v[i] / 4 : 0));
    }
    assert_int_equal(j, c->s.count);
    return c->s.left;
}

static void what_stays_is_left_in_the_one_pass(void **state)
{
    enum { N = 50021 };
    static const enum data kinds[] = {DATA_NORMAL, DATA_LAYERS, DATA_EQUAL, DATA_SMALL_INTEGERS,
                                      DATA_ZERO};
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    static const char *const options[] = {"ratio=0.1%", "ratio=1%", "ratio=5%", "ratio=10%",
                                          "count=1"};
    float *g = malloc(N * sizeof(float)), *v = malloc(N * sizeof(float));
    unsigned left = 0, calls = 0;

    (void)state;
    for (size_t o = 0; o < SPR_ARRAY_LEN(options); o++)
        for (unsigned slices = 1; slices <= 4; slices += 3) {
            struct call c;

            call_make(&c, "topk", options[o], N, slices, &plain);
            c.s.leave = leave_quarter;
            for (uint64_t step = 0; step < 2 * SPR_ARRAY_LEN(kinds); step++, calls++) {
                data_fill(kinds[step % SPR_ARRAY_LEN(kinds)], g, N, &rng);
                for (size_t i = 0; i < N; i++)
                    v[i] = c.residual[i] + g[i];
                call_run(&c, g, step);
                left += check_left(&c, v);
            }
            call_free(&c);
        }
    print_message("left in %u of %u calls\n", left, calls);
    assert_true(left > 0 && left < calls);
    free(g);
    free(v);
}

/*
 * Four ranks, integers (so that sums are exact): what all have sent and keep is what all were
 * given. By the wrong rule a rank's residual is its accumulated vector minus the mean of what all
 * sent, and the same check has to see that something is lost or made up.
 */
enum { RANKS = 4, ELEMENTS = 600, STEPS = 20 };

static bool conserves(bool own_rule)
{
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    struct call c[RANKS];
    double given[ELEMENTS] = {0}, sent[ELEMENTS] = {0};
    float g[ELEMENTS];
    bool equal = true;

    for (size_t r = 0; r < RANKS; r++)
        call_make(&c[r], "topk", "ratio=5%", ELEMENTS, 1, &plain);
    for (uint64_t step = 0; step < STEPS; step++) {
        double mean[ELEMENTS] = {0};

        for (size_t r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < ELEMENTS; i++) {
                g[i] = (float)(int)spr_rng_below(&rng, 2001) - 1000;
                given[i] += (double)g[i];
            }
            call_run(&c[r], g, step);
            for (size_t j = 0; j < c[r].s.count; j++)
                mean[c[r].index[j]] += (double)c[r].value[j] / RANKS;
        }
        for (size_t i = 0; i < ELEMENTS; i++)
            sent[i] += RANKS * mean[i];
        for (size_t r = 0; r < RANKS && !own_rule; r++) {
            for (size_t j = 0; j < c[r].s.count; j++) /* not minus its own, */
                c[r].residual[c[r].index[j]] += c[r].value[j];
            for (size_t j = 0; j < c[r].s.count; j++) /* but minus the mean */
                c[r].residual[c[r].index[j]] -= (float)mean[c[r].index[j]];
        }
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        double kept = 0;

        for (size_t r = 0; r < RANKS; r++)
            kept += (double)c[r].residual[i];
        equal &= sent[i] + kept == given[i];
    }
    for (size_t r = 0; r < RANKS; r++)
        call_free(&c[r]);
    return equal;
}

static void a_rank_keeps_what_it_did_not_send_itself(void **state)
{
    (void)state;
    assert_true(conserves(true));
    assert_false(conserves(false));
}

/* What is not sent now stays and is sent later: one gradient, all of it, in some 50 steps. */
static void everything_is_sent_in_the_end(void **state)
{
    enum { N = 1000 };
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};
    float g[N];
    double sent[N] = {0};
    struct call c;

    (void)state;
    data_fill(DATA_LAYERS, g, N, &rng);
    call_make(&c, "topk", "ratio=2%", N, 1, &plain);
    for (uint64_t step = 0; step < 60; step++) {
        call_run(&c, step == 0 ? g : NULL, step);
        for (size_t j = 0; j < c.s.count; j++)
            sent[c.index[j]] += (double)c.value[j];
    }
    for (size_t i = 0; i < N; i++)
        assert_true(sent[i] == (double)g[i]);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(momentum_correction_and_masking_are_those_of_the_paper),
        cmocka_unit_test(nesterov_looks_ahead),
        cmocka_unit_test(decay_forgets),
        cmocka_unit_test(a_gradient_is_clipped_to_the_share_of_its_rank),
        cmocka_unit_test(warmup_quarters_the_ratio_per_epoch),
        cmocka_unit_test(options_describe_the_rule),
        cmocka_unit_test(an_undone_step_is_sent_again_to_the_bit),
        cmocka_unit_test(what_stays_is_left_in_the_one_pass),
        cmocka_unit_test(a_rank_keeps_what_it_did_not_send_itself),
        cmocka_unit_test(everything_is_sent_in_the_end),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
