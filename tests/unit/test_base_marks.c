/* SPDX-License-Identifier: BSD-2-Clause
 *
 * base/marks.h against an array of flags.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/marks.h"
#include "base/rng.h"

enum { MOST = 300 };

static void all_marked_ones_are_met_once_in_a_circle(void **state)
{
    uint64_t seed = spr_rng_test_seed();
    struct spr_rng rng = {0};

    (void)state;
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    rng.seed = seed;
    for (int trial = 0; trial < 2000; trial++) {
        uint64_t words[(MOST + 63) / 64] = {0};
        bool flags[MOST] = {false};
        struct spr_marks m = {words, 1 + (int)spr_rng_below(&rng, MOST)};
        int first = (int)spr_rng_below(&rng, (uint64_t)m.n), step, expected = 0;
        uint64_t part = 1 + spr_rng_below(&rng, 100);
        for (int i = 0; i < m.n; i++)
            if (spr_rng_below(&rng, part) == 0) {
                spr_marks_set(&m, i);
                flags[i] = true;
            }
        for (int i = 0; i < m.n / 4; i++) {
            int cleared = (int)spr_rng_below(&rng, (uint64_t)m.n);
            spr_marks_clear(&m, cleared);
            flags[cleared] = false;
        }
        spr_marks_for_each(step, &m, first)
        {
            while (!flags[(first + expected) % m.n])
                expected++;
            assert_int_equal(step, expected);
            expected++;
        }
        for (; expected < m.n; expected++)
            assert_false(flags[(first + expected) % m.n]);
    }
}

static void what_is_marked_meanwhile_is_met_ahead_only(void **state)
{
    uint64_t words[2] = {0};
    struct spr_marks m = {words, 100};
    int step, met = 0;

    (void)state;
    spr_marks_set_all(&m);
    spr_marks_for_each(step, &m, 99)
    {
        int number = (99 + step) % 100;
        assert_int_equal(step, met++);
        spr_marks_clear(&m, number);
        spr_marks_set(&m, 99);
    }
    assert_int_equal(met, 100);
    assert_int_equal(spr_marks_next(&m, 0, 0), 99);
    assert_int_equal(spr_marks_next(&m, 99, 1), 100);
    spr_marks_clear(&m, 99);
    assert_int_equal(spr_marks_next(&m, 50, 0), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_marked_ones_are_met_once_in_a_circle),
        cmocka_unit_test(what_is_marked_meanwhile_is_met_ahead_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
