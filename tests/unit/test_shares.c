/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What hosts with unlike links own: of any rates, nobody could own less and all be done sooner.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/shares.h"

#define MOST 40

static struct spr_rng rng;

static double most_of(int hosts) { return fmin(1, (double)SPR_MOST_SHARES / hosts); }

/* The time of a host's link, for one vector at rate 1. */
static double link_time(const uint32_t *rate, int hosts, int h, double part)
{
    return (1 + (hosts - 2) * part) / rate[h];
}

/* The least time in which all together could own a whole, none of them more than it may: by
 * bisection, of what each could own. */
static double least_time(const uint32_t *rate, int hosts)
{
    double low = 0, high = 0;

    for (int h = 0; h < hosts; h++) {
        low = fmax(low, 1.0 / rate[h]);
        high = fmax(high, link_time(rate, hosts, h, 1));
    }
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2, owned = 0;

        for (int h = 0; h < hosts; h++)
            owned += fmin(fmax(0, (middle * rate[h] - 1) / (hosts - 2)), most_of(hosts));
        *(owned < 1 ? &low : &high) = middle;
    }
    return high;
}

static int draw_rates(uint32_t *rate)
{
    static const uint32_t usual[] = {100, 1000, 2500, 10000, 25000, 100000, 400000};
    int hosts = 3 + (int)spr_rng_below(&rng, MOST - 2);
    uint64_t kind = spr_rng_below(&rng, 3);

    for (int h = 0; h < hosts; h++)
        rate[h] = kind == 0   ? usual[spr_rng_below(&rng, SPR_ARRAY_LEN(usual))]
                  : kind == 1 ? 900 + (uint32_t)spr_rng_below(&rng, 200)
                              : 1 + (uint32_t)spr_rng_below(&rng, 1000000);
    return hosts;
}

/* Rates as they are counted: in 65536ths of the fastest. */
static void count_rates(const uint32_t *rate, int hosts, uint32_t *counted)
{
    uint64_t most = 0;

    for (int h = 0; h < hosts; h++)
        most = rate[h] > most ? rate[h] : most;
    for (int h = 0; h < hosts; h++) {
        counted[h] = (uint32_t)(((uint64_t)rate[h] << 16) / most);
        counted[h] = counted[h] > 0 ? counted[h] : 1;
    }
}

static double longest_time(const uint32_t *rate, int hosts, const uint32_t *cuts)
{
    double longest = 0;

    for (int h = 0; h < hosts; h++)
        longest =
            fmax(longest, link_time(rate, hosts, h, (double)(cuts[h + 1] - cuts[h]) / SPR_WHOLE));
    return longest;
}

/* With equal parts the slowest takes longest. */
static double even_time(const uint32_t *rate, int hosts)
{
    uint32_t slowest = rate[0];

    for (int h = 1; h < hosts; h++)
        slowest = rate[h] < slowest ? rate[h] : slowest;
    return 2.0 * (hosts - 1) / hosts / slowest;
}

/* But for a step of what is counted of a link's load, of 4096 over a vector, and of a part. */
static void no_parts_take_less_time(void **state)
{
    uint32_t rate[MOST], counted[MOST], cuts[MOST + 1];

    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        int hosts = draw_rates(rate);
        double longest, best, even;

        spr_shares_by_rate(rate, hosts, cuts);
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[hosts], SPR_WHOLE);
        for (int h = 0; h < hosts; h++) {
            assert_true(cuts[h] <= cuts[h + 1]);
            assert_true(cuts[h + 1] - cuts[h] <= most_of(hosts) * SPR_WHOLE * 1.001 + 2);
        }
        count_rates(rate, hosts, counted);
        longest = longest_time(counted, hosts, cuts);
        best = least_time(counted, hosts);
        even = even_time(counted, hosts);
        if (longest > best * 1.001 || longest > even * 1.001)
            fail_msg("%d hosts: %.6g, not %.6g; equal parts %.6g", hosts, longest, best, even);
        assert_true(fabs(spr_shares_gain(rate, hosts, cuts) -
                         longest_time(rate, hosts, cuts) / even_time(rate, hosts)) < 1e-9);
        assert_true(spr_shares_most(cuts, hosts) <= SPR_MOST_SHARES + 0.01);
    }
}

static void assert_near(uint32_t cut, double part)
{
    if (!(fabs((double)cut / SPR_WHOLE - part) <= 3e-4))
        fail_msg("%.6f, not %.6f", (double)cut / SPR_WHOLE, part);
}

/* By hand: 7 of 8 hosts have 1000, one has 500, which could carry less than one vector in the time
 * of the others; of 4 hosts one has 900: T = 6 / 3900, of which it owns (1.38 - 1) / 2; and one of
 * 8 is so fast that it would own all, which nobody may. */
static void small_cases_are_as_by_hand(void **state)
{
    uint32_t cuts[9];

    (void)state;
    spr_shares_by_rate((uint32_t[]){1000, 1000, 500, 1000, 1000, 1000, 1000, 1000}, 8, cuts);
    assert_int_equal(cuts[2], cuts[3]);
    assert_near(cuts[1], 1.0 / 7);
    spr_shares_by_rate((uint32_t[]){900, 1000, 1000, 1000}, 4, cuts);
    assert_near(cuts[1], (6 * 0.9 / 3.9 - 1) / 2);
    spr_shares_by_rate((uint32_t[]){1, 1, 1, 4000000, 1, 1, 1, 1}, 8, cuts);
    assert_near(cuts[4] - cuts[3], 0.25);
    assert_near(cuts[1], 0.75 / 7);
    spr_shares_by_rate((uint32_t[]){1, 1, 4000000000, 1}, 4, cuts);
    assert_near(cuts[3] - cuts[2], 0.5);
    spr_shares_by_rate((uint32_t[]){7, 7, 7, 7}, 4, cuts);
    assert_memory_equal(cuts, ((uint32_t[]){0, 1 << 18, 2 << 18, 3 << 18, 4 << 18}), 20);
    spr_shares_by_rate((uint32_t[]){10, 1000}, 2, cuts);
    assert_memory_equal(cuts, ((uint32_t[]){0, 1 << 19, 1 << 20}), 12);
    spr_shares_by_rate((uint32_t[]){5}, 1, cuts);
    assert_memory_equal(cuts, ((uint32_t[]){0, 1 << 20}), 8);
}

/* ... whose bound does not shrink with more elements: memory is taken for the most. */
static void elements_are_cut_at_whole_lines(void **state)
{
    uint32_t rate[MOST], cuts[MOST + 1];
    size_t at[MOST + 1];

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        int hosts = draw_rates(rate);
        size_t bound = 0, elements = spr_rng_below(&rng, 3) ? 0 : spr_rng_below(&rng, 1ull << 40);

        spr_shares_by_rate(rate, hosts, cuts);
        for (int i = 0; i < 300; i++, elements += spr_rng_below(&rng, 100)) {
            size_t now = spr_shares_longest(cuts, hosts, elements);

            spr_shares_cut(cuts, hosts, elements, at);
            assert_true(now >= bound);
            bound = now;
            assert_int_equal(at[0], 0);
            assert_int_equal(at[hosts], elements);
            for (int h = 0; h < hosts; h++) {
                assert_true(at[h] <= at[h + 1] && at[h + 1] - at[h] <= bound);
                assert_int_equal(at[h] % 64, 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_parts_take_less_time),
        cmocka_unit_test(small_cases_are_as_by_hand),
        cmocka_unit_test(elements_are_cut_at_whole_lines),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
