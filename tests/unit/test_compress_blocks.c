/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"

static struct spr_rng rng;

static const struct spr_blocks shapes[] = {
    {1, 1, 10},     {1, 8, 10},     {1023, 2, 10},   {1024, 2, 10},  {1025, 2, 10},
    {200000, 1, 0}, {200000, 3, 1}, {200000, 2, 16}, {131072, 1, 4}, {131073, 1, 16},
    {65536, 3, 12}, {77, 100, 0},   {300001, 5, 10}, {4096, 4, 10},
};

/* A sorted list with about one entry in `every` positions. */
static size_t random_list(const struct spr_blocks *b, uint64_t every, uint32_t *index)
{
    size_t k = 0;

    for (uint64_t g = 0; g < b->elements; g++)
        if (spr_rng_below(&rng, every) == 0)
            index[k++] = (uint32_t)g;
    return k;
}

static void every_position_has_one_owner_and_one_place(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(shapes); s++) {
        const struct spr_blocks *b = &shapes[s];
        bool *seen = calloc(b->elements, sizeof(bool));
        uint64_t total = 0;

        for (uint32_t owner = 0; owner < b->ranks; owner++) {
            uint64_t local = spr_blocks_local(b, owner), in_windows = 0, last = 0;

            for (uint64_t l = 0; l < local; l++) {
                uint64_t g = spr_blocks_global(b, owner, l);

                assert_true(g < b->elements && !seen[g] && (l == 0 || g > last));
                assert_int_equal((g >> b->block_log2) % b->ranks, owner);
                seen[g] = true;
                last = g;
            }
            for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++) {
                assert_true(spr_blocks_window_len(b, owner, w) > 0);
                in_windows += spr_blocks_window_len(b, owner, w);
            }
            assert_int_equal(in_windows, local);
            total += local;
        }
        assert_int_equal(total, b->elements);
        free(seen);
    }
}

static void a_vector_of_2_to_the_32_positions_is_split_evenly(void **state)
{
    struct spr_blocks b = {UINT64_C(1) << 32, 3, 12};
    uint64_t total = 0;

    (void)state;
    for (uint32_t owner = 0; owner < 3; owner++)
        total += spr_blocks_local(&b, owner);
    assert_int_equal(total, b.elements);
    assert_int_equal(spr_blocks_global(&b, (uint32_t)(((1u << 20) - 1) % 3),
                                       spr_blocks_local(&b, (uint32_t)(((1u << 20) - 1) % 3)) - 1),
                     UINT32_MAX);
}

static void gathered_windows_hold_the_whole_list_in_order(void **state)
{
    static uint16_t pos[SPR_WINDOW + 16];
    static float val[SPR_WINDOW + 16];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(shapes) * 3; s++) {
        const struct spr_blocks *b = &shapes[s / 3];
        static const uint64_t every[] = {1, 7, 500};
        uint32_t *index = malloc(b->elements * sizeof(uint32_t));
        size_t k = random_list(b, every[s % 3], index), found = 0;
        /* Exactly as long as the list, so that a sanitizer sees reads beyond it. */
        uint32_t *list = malloc(k * sizeof(uint32_t) + 1);
        float *value = malloc(k * sizeof(float) + 1);
        uint32_t *offsets = malloc((spr_blocks_count(b) + 1) * sizeof(uint32_t));

        memcpy(list, index, k * sizeof(uint32_t));
        for (size_t i = 0; i < k; i++)
            value[i] = (float)i;
        assert_true(spr_blocks_offsets(b, list, k, offsets));
        assert_int_equal(offsets[spr_blocks_count(b)], k);
        for (uint32_t owner = 0; owner < b->ranks; owner++)
            for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++) {
                size_t n = spr_blocks_gather(b, offsets, list, value, owner, w, pos, val);

                assert_int_equal(n, spr_blocks_gather_count(b, offsets, owner, w));
                for (size_t i = 0; i < n; i++) {
                    uint64_t g = spr_blocks_global(b, owner, (uint64_t)w * SPR_WINDOW + pos[i]);

                    assert_true(i == 0 || pos[i] > pos[i - 1]);
                    assert_int_equal(list[(size_t)val[i]], g);
                }
                found += n;
            }
        assert_int_equal(found, k);
        free(index);
        free(list);
        free(value);
        free(offsets);
    }
}

static void lists_that_are_not_sorted_unique_or_in_range_are_refused(void **state)
{
    struct spr_blocks b = {5000, 3, 10};
    uint32_t offsets[6];
    uint32_t sorted[] = {0, 1023, 1024, 4999}, repeat[] = {1, 5, 5}, back[] = {1, 3000, 2};
    uint32_t outside[] = {1, 5000}, far[] = {1, UINT32_MAX}, far_first[] = {UINT32_MAX, 1};

    (void)state;
    assert_true(spr_blocks_offsets(&b, sorted, 4, offsets));
    assert_true(spr_blocks_offsets(&b, NULL, 0, offsets));
    assert_int_equal(offsets[5], 0);
    assert_false(spr_blocks_offsets(&b, repeat, 3, offsets));
    assert_false(spr_blocks_offsets(&b, back, 3, offsets));
    assert_false(spr_blocks_offsets(&b, outside, 2, offsets));
    assert_false(spr_blocks_offsets(&b, far, 2, offsets));
    assert_false(spr_blocks_offsets(&b, far_first, 2, offsets));
}

/* Which offsets, of 32 bits, could not tell from an empty one. The list is not looked at. */
static void a_list_of_2_to_the_32_entries_is_refused(void **state)
{
    const struct spr_blocks b = {UINT64_C(1) << 32, 1, SPR_WINDOW_LOG2};

    (void)state;
    assert_false(spr_blocks_offsets(&b, NULL, (size_t)1 << 32, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_position_has_one_owner_and_one_place),
        cmocka_unit_test(a_vector_of_2_to_the_32_positions_is_split_evenly),
        cmocka_unit_test(gathered_windows_hold_the_whole_list_in_order),
        cmocka_unit_test(lists_that_are_not_sorted_unique_or_in_range_are_refused),
        cmocka_unit_test(a_list_of_2_to_the_32_entries_is_refused),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
