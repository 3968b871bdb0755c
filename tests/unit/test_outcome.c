/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sets of operations that are complete, against plain arrays of flags.
 */
#include "collectives/outcome.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"

#define OPERATIONS 600u /* more than a set can be ahead */

static uint64_t seed;

/* Operations first + 1 ... complete in some order, in flight at most `depth` at once. */
static void fill(struct spr_rng *rng, uint32_t first, uint32_t depth, struct spr_outcome *set,
                 bool *flags)
{
    uint32_t oldest = 0, n = (uint32_t)spr_rng_below(rng, OPERATIONS);

    *set = (struct spr_outcome){.completed = first};
    memset(flags, 0, OPERATIONS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at;
        while (flags[oldest])
            oldest++;
        at = oldest + (uint32_t)spr_rng_below(rng, depth);
        if (at >= OPERATIONS)
            continue;
        flags[at] = true;
        spr_outcome_add(set, first + 1 + at);
    }
}

static void check(const struct spr_outcome *set, uint32_t first, const bool *flags)
{
    assert_int_equal(set->later[0] & 1, 0);
    for (uint32_t i = 0; i < OPERATIONS; i++)
        if (spr_outcome_has(set, first + 1 + i) != flags[i])
            fail_msg("operation %u of SPARRING_SEED=%llu", i, (unsigned long long)seed);
}

static void a_set_has_what_was_added(void **state)
{
    static const uint32_t firsts[] = {0, 7, UINT32_MAX - 300}; /* numbers wrap around */
    static bool a_flags[OPERATIONS], b_flags[OPERATIONS], both[OPERATIONS];
    struct spr_rng rng = {seed, 1};
    struct spr_outcome a, b, common;

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        uint32_t first = firsts[trial % 3];
        uint32_t depth = trial % 2 ? SPR_OUTCOME_AHEAD : 1 + (uint32_t)spr_rng_below(&rng, 9);
        int surplus = 0;
        fill(&rng, first, depth, &a, a_flags);
        fill(&rng, first, depth, &b, b_flags);
        check(&a, first, a_flags);
        common = a;
        spr_outcome_intersect(&common, &b);
        for (uint32_t i = 0; i < OPERATIONS; i++) {
            both[i] = a_flags[i] && b_flags[i] && i < common.completed - first + SPR_OUTCOME_AHEAD;
            surplus += a_flags[i] && !both[i];
        }
        check(&common, first, both);
        assert_int_equal(spr_outcome_surplus(&a, &common), surplus);
    }
}

static void what_is_too_far_ahead_does_not_count(void **state)
{
    struct spr_outcome a = {.completed = 10};

    (void)state;
    spr_outcome_add(&a, 11 + SPR_OUTCOME_AHEAD);
    assert_false(spr_outcome_has(&a, 11 + SPR_OUTCOME_AHEAD));
    spr_outcome_add(&a, 10 + SPR_OUTCOME_AHEAD);
    assert_true(spr_outcome_has(&a, 10 + SPR_OUTCOME_AHEAD));
    for (uint32_t i = 0; i < SPR_OUTCOME_AHEAD; i++)
        spr_outcome_add(&a, 11 + i);
    assert_int_equal(a.completed, 10 + SPR_OUTCOME_AHEAD);
    assert_false(spr_outcome_has(&a, 11 + SPR_OUTCOME_AHEAD));
}

/* Sets come from the wire. */
static void any_bits_are_harmless(void **state)
{
    struct spr_outcome mine = {.completed = 100}, theirs, common;

    (void)state;
    memset(&theirs, 0xff, sizeof theirs);
    common = mine;
    spr_outcome_intersect(&common, &theirs);
    assert_int_equal(spr_outcome_surplus(&mine, &theirs), 0);
    theirs.completed = 1u << 31;
    common = mine;
    spr_outcome_intersect(&common, &theirs);
    assert_true(spr_outcome_surplus(&mine, &common) >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_has_what_was_added),
        cmocka_unit_test(what_is_too_far_ahead_does_not_count),
        cmocka_unit_test(any_bits_are_harmless),
    };

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
