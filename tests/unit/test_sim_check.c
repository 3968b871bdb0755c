/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sparring-sim calls wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tools/sim/input.h"

enum { RANKS = 3, ELEMENTS = 1000 };

static const struct options options = {.elements = ELEMENTS, .seed = 7};

/* With the right sums as results. */
static void open_summed(struct input *input, enum kind kind)
{
    float value[ELEMENTS], sum[ELEMENTS] = {0};

    assert_true(input_open(input, &options, kind, RANKS, 0.3));
    for (int r = 0; r < RANKS; r++) {
        input_values(input, r, 0, ELEMENTS, value);
        for (int i = 0; i < ELEMENTS; i++)
            sum[i] += value[i];
    }
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < ELEMENTS; i++)
            input->vectors[r][i] = sum[i];
}

static void a_sum_that_is_right_is_not_wrong(void **state)
{
    struct input input;

    (void)state;
    for (int kind = KIND_ALLREDUCE; kind <= KIND_SPARSE; kind++) {
        open_summed(&input, (enum kind)kind);
        struct verdict verdict = input_check(&input, "");
        assert_true(verdict.wrong == 0 && verdict.same);
        input_close(&input);
    }
}

static void each_element_that_is_off_counts(void **state)
{
    struct input input;
    int zero = 0;

    (void)state;
    open_summed(&input, KIND_SPARSE);
    while (input.vectors[0][zero] != 0)
        zero++;
    for (int r = 0; r < RANKS; r++) {
        input.vectors[r][zero] = 1e-6f; /* nobody has sent it */
        input.vectors[r][zero + 1] += 1e-5f;
        input.vectors[r][ELEMENTS - 1] = NAN;
    }
    struct verdict verdict = input_check(&input, "");
    assert_true(verdict.wrong == 3);
    assert_true(verdict.same);
    input_close(&input);
}

static void ranks_that_differ_are_seen(void **state)
{
    struct input input;

    (void)state;
    open_summed(&input, KIND_ALLREDUCE);
    input.vectors[RANKS - 1][17] = nextafterf(input.vectors[RANKS - 1][17], 2);
    struct verdict verdict = input_check(&input, "");
    assert_true(verdict.wrong == 0);
    assert_false(verdict.same);
    input_close(&input);
}

/* A residual tells what was sent; before the first step that is all of the gradient. */
static void a_residual_tells_what_was_sent(void **state)
{
    struct input input;

    (void)state;
    assert_true(input_open(&input, &options, KIND_COMPRESSED, RANKS, 0.3));
    assert_int_equal(input_codecs(&input, "topk:ratio=1%"), SPR_OK);
    float value[ELEMENTS];
    double sum[ELEMENTS] = {0};
    for (int r = 0; r < RANKS; r++) {
        input_values(&input, r, 0, ELEMENTS, value);
        for (int i = 0; i < ELEMENTS; i++)
            sum[i] += (double)value[i];
    }
    for (int i = 0; i < ELEMENTS; i++)
        input.vectors[0][i] = (float)(sum[i] / RANKS);
    assert_true(input_check(&input, "topk:ratio=1%").wrong == 0);
    input.vectors[0][5] *= 1.001f;
    assert_true(input_check(&input, "topk:ratio=1%").wrong == 1);
    assert_true(isnan(input_check(&input, "powersgd:rank=2").wrong));
    input_close(&input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_that_is_right_is_not_wrong),
        cmocka_unit_test(each_element_that_is_off_counts),
        cmocka_unit_test(ranks_that_differ_are_seen),
        cmocka_unit_test(a_residual_tells_what_was_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
