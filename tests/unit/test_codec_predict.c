/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/predict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka's own comparison is of floats. */
static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b))))
        fail_msg("%.17g, not %.17g", a, b);
}

/* 16 MB dense, and lists of 1 MB whose union of 8 has 4 MB. */
static const struct work dense = {1, 16e6, 16e6, 0, 1000, 0, 1000};
static const struct work lists = {1, 1e6, 4e6, 5000, 800, 1600, 2000};
static const struct network gigabit = {8, 1e9, 50, 1};

static void a_dense_sum_sends_what_the_ring_does(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 64; ranks *= 2) {
        struct network n = {ranks, 1e9, 0, 1};
        struct prediction p = predict(&dense, &n);
        assert_near(p.sent_bytes, 2.0 * (ranks - 1) / ranks * 16e6);
        assert_near(p.wire_us, p.sent_bytes * 8 / 1e9 * 1e6);
    }
}

static void the_total_is_that_of_a_calculation_by_hand(void **state)
{
    struct prediction p = predict(&lists, &gigabit);

    (void)state;
    assert_near(p.sent_bytes, 4375000); /* 7/8 of 5 MB */
    assert_near(p.encode_us, 5000);
    assert_near(p.wire_us, 35000 + 100);
    assert_near(p.decode_us, 800 + 200 + 2000);
    assert_near(p.total_us, 43100);
}

static void rounds_cost_latency_and_shared_cpus_time(void **state)
{
    struct work rounds = lists;
    struct network crowded = gigabit;

    (void)state;
    rounds.rounds = 2;
    crowded.share = 3;
    struct prediction p = predict(&rounds, &crowded);
    assert_near(p.wire_us, 35000 + 200);
    assert_near(p.encode_us, 15000);
    assert_near(p.decode_us, 9000);
}

static void the_union_grows_as_supports_are_independent(void **state)
{
    (void)state;
    assert_near(union_entries(1000, 100, 1), 100);
    assert_near(union_entries(1000, 100, 2), 190);
    assert_near(union_entries(1e6, 1e5, 8), 1e6 * (1 - pow(0.9, 8)));
    assert_near(union_entries(1e9, 1, 8), 8 - 28e-9); /* small densities keep their digits */
    assert_near(union_entries(1000, 1000, 8), 1000);
    assert_near(union_entries(1000, 0, 8), 0);
}

static void at_the_rate_where_it_turns_both_take_the_same_time(void **state)
{
    struct network n = gigabit;

    (void)state;
    n.link_bps = faster_below_bps(&lists, &dense, &n);
    assert_near(predict(&lists, &n).total_us, predict(&dense, &n).total_us);
    n.link_bps *= 0.9;
    assert_true(predict(&lists, &n).total_us < predict(&dense, &n).total_us);
}

static void there_may_be_no_rate_where_it_turns(void **state)
{
    struct work quick = lists, large = lists;

    (void)state;
    quick.encode_us = quick.merge_us = quick.sum_encode_us = quick.sum_decode_us = 0;
    assert_true(isinf(faster_below_bps(&quick, &dense, &gigabit)));
    large.bytes = 40e6;
    assert_near(faster_below_bps(&large, &dense, &gigabit), 0);
    assert_near(faster_below_bps(&dense, &dense, &gigabit), 0);
    quick.bytes = 40e6;
    assert_true(isnan(faster_below_bps(&quick, &dense, &gigabit)));
    /* A rank alone sends nothing. */
    const struct network alone = {1, 1e9, 0, 1};
    assert_near(predict(&lists, &alone).wire_us, 0);
    assert_near(faster_below_bps(&lists, &dense, &alone), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_sum_sends_what_the_ring_does),
        cmocka_unit_test(the_total_is_that_of_a_calculation_by_hand),
        cmocka_unit_test(rounds_cost_latency_and_shared_cpus_time),
        cmocka_unit_test(the_union_grows_as_supports_are_independent),
        cmocka_unit_test(at_the_rate_where_it_turns_both_take_the_same_time),
        cmocka_unit_test(there_may_be_no_rate_where_it_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
