/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Random numbers and the intrusive list.
 */
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sparring/status.h>

#include "base/list.h"

/* The first is the known answer of the Random123 distribution; the others pin our bits. */
static void values_are_a_function_of_seed_and_counter(void **state)
{
    (void)state;
    assert_true(spr_rng_u64(0, 0) == 0xca00a0459843d731ull);
    assert_true(spr_rng_u64(1, 2) == 0x5fdaab05679bbb56ull);
    assert_true(spr_rng_u64(UINT64_MAX, UINT64_MAX) == 0xc4b6e253b2042f02ull);
}

static void a_stream_counts_up(void **state)
{
    struct spr_rng rng = {.seed = 9, .counter = 100};

    (void)state;
    assert_true(spr_rng_next(&rng) == spr_rng_u64(9, 100));
    assert_true(spr_rng_next(&rng) == spr_rng_u64(9, 101));
    assert_int_equal(rng.counter, 102);
}

/* Each bit of the output flips for about half of all one-bit changes of seed or counter. */
static void every_input_bit_reaches_every_output_bit(void **state)
{
    int flips[64] = {0}, samples = 0;

    (void)state;
    for (uint64_t base = 0; base < 20; base++) {
        for (int bit = 0; bit < 64; bit++) {
            uint64_t here = spr_rng_u64(base, base * 7);
            uint64_t by_counter = here ^ spr_rng_u64(base, (base * 7) ^ (1ull << bit));
            uint64_t by_seed = here ^ spr_rng_u64(base ^ (1ull << bit), base * 7);

            for (int out = 0; out < 64; out++)
                flips[out] += (int)((by_counter >> out) & 1) + (int)((by_seed >> out) & 1);
            samples += 2;
        }
    }
    for (int out = 0; out < 64; out++) {
        assert_true(flips[out] > samples * 4 / 10);
        assert_true(flips[out] < samples * 6 / 10);
    }
}

static void ranges_are_kept_and_filled_evenly(void **state)
{
    struct spr_rng rng = {.seed = 3};
    int counts[10] = {0};
    double sum = 0;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        double d = spr_rng_double(&rng);

        assert_true(d >= 0 && d < 1);
        sum += d;
        counts[spr_rng_below(&rng, 10)]++;
        assert_int_equal(spr_rng_below(&rng, 1), 0);
    }
    assert_true(sum > 49500 && sum < 50500);
    for (int i = 0; i < 10; i++)
        assert_true(counts[i] > 9600 && counts[i] < 10400);
}

static void orders_are_alike_in_number(void **state)
{
    struct spr_rng rng = {.seed = 5};
    int counts[3][3][3] = {0};
    size_t order[3] = {7, 7, 7};

    (void)state;
    spr_rng_order(&rng, order, 0);
    assert_int_equal(order[0], 7);
    spr_rng_order(&rng, order, 1);
    assert_int_equal(order[0], 0);
    for (int i = 0; i < 60000; i++) {
        spr_rng_order(&rng, order, 3);
        assert_true(order[0] < 3 && order[1] < 3 && order[2] < 3);
        counts[order[0]][order[1]][order[2]]++;
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++) {
                bool all = a != b && a != c && b != c;
                assert_in_range(counts[a][b][c], all ? 9600 : 0, all ? 10400 : 0);
            }
}

static void the_seed_of_a_test_can_be_given(void **state)
{
    (void)state;
    setenv("SPARRING_SEED", "12345", 1);
    assert_true(spr_rng_test_seed() == 12345);
    setenv("SPARRING_SEED", "0xffffffffffffffff", 1);
    assert_true(spr_rng_test_seed() == UINT64_MAX);
    unsetenv("SPARRING_SEED");
    assert_true(spr_rng_test_seed() != spr_rng_test_seed());
}

struct item {
    int number;
    struct spr_list link;
};

static void a_list_keeps_order_and_forgives_removing_twice(void **state)
{
    struct item items[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    struct spr_list head, *it, *next;
    int expected = 0;

    (void)state;
    spr_list_init(&head);
    assert_true(spr_list_empty(&head));
    spr_list_push_back(&head, &items[1].link);
    spr_list_push_back(&head, &items[3].link);
    spr_list_push_front(&head, &items[0].link);
    spr_list_insert_before(&items[3].link, &items[2].link);
    spr_list_for_each(it, &head)
        assert_int_equal(spr_list_entry(it, struct item, link)->number, expected++);
    assert_int_equal(expected, 4);
    spr_list_remove(&items[2].link);
    spr_list_remove(&items[2].link);
    spr_list_for_each_safe(it, next, &head) spr_list_remove(it);
    assert_true(spr_list_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_a_function_of_seed_and_counter),
        cmocka_unit_test(a_stream_counts_up),
        cmocka_unit_test(every_input_bit_reaches_every_output_bit),
        cmocka_unit_test(ranges_are_kept_and_filled_evenly),
        cmocka_unit_test(orders_are_alike_in_number),
        cmocka_unit_test(the_seed_of_a_test_can_be_given),
        cmocka_unit_test(a_list_keeps_order_and_forgives_removing_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
