/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bytes that are not the encoding of an index list are refused, whatever is wrong with them; what
 * is accepted is what the encoder makes of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "compress/indices/indices.h"
#include "tests/unit/index_lists.h"

#define MOST 600 /* positions of a list */
#define UNIVERSE (1u << 20)

static struct spr_rng rng;
static const struct spr_index_options options = {.rate = 1e10};
static uint32_t list[MOST], again[UNIVERSE + 1 + SPR_INDEX_SLACK];
static uint8_t encoded[UNIVERSE], encoded_again[UNIVERSE]; /* more than any bound */

static void refused(const uint8_t *bytes, size_t size, uint64_t universe, size_t count)
{
    uint8_t *copy = list_bytes_copy(bytes, size);
    const char *why = NULL, *why_checked = NULL;

    assert_int_equal(spr_index_decode(copy + 1, size, universe, count, again, &why), SPR_ERR_PROTO);
    assert_non_null(why);
    assert_int_equal(spr_index_check(copy + 1, size, universe, count, &why_checked), SPR_ERR_PROTO);
    assert_non_null(why_checked);
    free(copy);
}

static void shorter_and_longer_bytes_are_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        size_t n =
            list_random(&rng, 1 + spr_rng_below(&rng, MOST), UNIVERSE, round & 1 ? 5 : 700, list);

        const struct spr_index_coder *coder;
        for (size_t c = 0; (coder = spr_index_coder_at(c)) != NULL; c++) {
            uint8_t *out = encoded;
            size_t size = spr_index_encode(coder, &options, list, n, UNIVERSE, out);

            if (size > 4000)
                continue;
            for (size_t less = 0; less < size; less++)
                refused(out, less, UNIVERSE, n);
            out[size] = 0;
            refused(out, size + 1, UNIVERSE, n);
            out[size] = (uint8_t)(1 + spr_rng_below(&rng, 255));
            refused(out, size + 1, UNIVERSE, n);
        }
    }
}

/* Whatever is accepted is what the encoder makes of it. Returns whether it was. */
static bool refused_or_canonical(const uint8_t *bytes, size_t size, uint64_t universe, size_t n)
{
    uint8_t *copy = list_bytes_copy(bytes, size);
    const char *why = NULL;
    bool accepted = spr_index_decode(copy + 1, size, universe, n, again, &why) == SPR_OK;

    if (accepted) {
        const struct spr_index_coder *same = spr_index_coder_at(copy[1]);
        uint8_t *second = encoded_again;

        assert_int_equal(spr_index_encode(same, &options, again, n, universe, second), size);
        assert_memory_equal(copy + 1, second, size);
    } else {
        assert_non_null(why);
    }
    free(copy);
    return accepted;
}

static void other_counts_and_universes_are_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        size_t n =
            list_random(&rng, 1 + spr_rng_below(&rng, MOST), UNIVERSE, round % 4 ? 3 : 700, list);
        uint64_t universe = (uint64_t)list[n - 1] + 1;

        const struct spr_index_coder *coder;
        for (size_t c = 0; (coder = spr_index_coder_at(c)) != NULL; c++) {
            uint8_t *out = encoded;
            size_t size = spr_index_encode(coder, &options, list, n, universe, out);

            refused(out, size, universe - 1, n);
            /* Gaps of 0 may take no bytes, and blocks of 255 as many as those of 256. */
            refused_or_canonical(out, size, universe, n - 1);
            refused_or_canonical(out, size, universe, n + 1);
            refused(out, size, universe, (size_t)universe + 1);
        }
    }
}

static void changed_bytes_are_refused_or_another_list(void **state)
{
    unsigned accepted = 0, refusals = 0;

    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t n =
            list_random(&rng, 1 + spr_rng_below(&rng, MOST), 1u << 18, round % 4 ? 3 : 300, list);
        uint64_t universe = (uint64_t)list[n - 1] + 1 + spr_rng_below(&rng, 100);

        const struct spr_index_coder *coder;
        for (size_t c = 0; (coder = spr_index_coder_at(c)) != NULL; c++) {
            uint8_t *out = encoded;
            size_t size = spr_index_encode(coder, &options, list, n, universe, out);
            size_t at = 1 + spr_rng_below(&rng, size - 1);

            out[at] ^= (uint8_t)(1u << spr_rng_below(&rng, 8));
            if (round & 1)
                out[1 + spr_rng_below(&rng, size - 1)] = (uint8_t)spr_rng_next(&rng);
            if (refused_or_canonical(out, size, universe, n))
                accepted++;
            else
                refusals++;
        }
    }
    assert_true(accepted > 0 && refusals > 0);
}

static void a_row_of_zeros_has_an_end(void **state)
{
    uint8_t bytes[200] = {SPR_INDEX_GOLOMB};
    const char *why = "nothing";

    (void)state;
    bytes[sizeof(bytes) - 1] = 1;
    assert_int_equal(spr_index_decode(bytes, sizeof(bytes), UINT64_C(1) << 32, 1, again, &why),
                     SPR_ERR_PROTO);
    assert_string_equal(why, "Golomb codes of indices: too many zeros");
}

static void each_rule_has_its_refusal(void **state)
{
    static const struct {
        const char *why;
        size_t universe, count, size;
        uint8_t bytes[16];
    } cases[] = {
        {"no bytes", 10, 0, 0, {0}},
        {"unknown coder", 10, 1, 2, {6, 0}},
        {"unknown coder", 10, 1, 2, {0x80, 0}},
        {"more than there are positions", 10, 11, 3, {2, 0xff, 0xff}},
        {"bytes for none", 10, 0, 2, {3, 0}},
        {"u32 indices: length", 10, 1, 6, {0, 1, 0, 0, 0, 0}},
        {"u32 indices: not ascending", 10, 2, 9, {0, 1, 0, 0, 0, 1, 0, 0, 0}},
        {"u32 indices: out of range", 10, 1, 5, {0, 10, 0, 0, 0}},
        {"u16 indices: length", 10, 1, 6, {1, 1, 0, 0, 0, 1}},
        {"u16 indices: windows", 10, 1, 7, {1, 2, 0, 0, 0, 1, 0}},
        {"u16 indices: not ascending", 10, 2, 9, {1, 2, 0, 0, 0, 2, 0, 1, 0}},
        {"u16 indices: out of range", 10, 1, 7, {1, 1, 0, 0, 0, 10, 0}},
        {"bitmap of indices: length", 10, 1, 2, {2, 1}},
        {"bitmap of indices: a bit", 10, 1, 3, {2, 0, 4}},
        {"bitmap of indices: more", 10, 1, 3, {2, 3, 0}},
        {"bitmap of indices: fewer", 10, 1, 3, {2, 0, 0}},
        {"packed indices: no width", 10, 1, 2, {3, 33}},
        {"packed indices: no width", 10, 1, 1, {3}},
        {"packed indices: truncated", 10, 2, 2, {3, 1}},
        {"packed indices: padding", 10, 2, 3, {3, 1, 0x05}},
        {"packed indices: more bits", 10, 2, 3, {3, 2, 0x05}},
        {"packed indices: out of range", 10, 1, 3, {3, 4, 10}},
        {"packed indices: out of range", 10, 2, 10, {3, 32, 1, 0, 0, 0, 255, 255, 255, 255}},
        {"left over", 10, 1, 3, {3, 0, 0}},
        {"Elias-Fano indices: truncated", 10, 1, 2, {4, 0}},
        {"Elias-Fano indices: truncated", 10, 1, 3, {4, 0, 1}},
        {"Elias-Fano indices: no such block", 10, 1, 4, {4, 32, 1, 1}},
        {"Elias-Fano indices: no such block", 10, 1, 4, {4, 0, 98, 1}},
        {"Elias-Fano indices: padding", 100, 1, 5, {4, 5, 1, 0x2a, 1}},
        {"Elias-Fano indices: wrong number", 10, 2, 4, {4, 0, 1, 1}},
        {"Elias-Fano indices: wrong number", 10, 2, 5, {4, 0, 2, 3, 0}},
        {"Elias-Fano indices: wrong number", 10, 2, 3, {4, 0, 0}},
        {"Elias-Fano indices: out of range", 10, 1, 5, {4, 3, 1, 2, 2}},
        {"Elias-Fano indices: not ascending", 128, 2, 6, {4, 5, 1, 0x6a, 0, 3}},
        {"Elias-Fano indices: not the width", 128, 1, 5, {4, 5, 1, 2, 1}},
        {"Golomb codes of indices: no such", 10, 1, 3, {5, 32, 1}},
        {"Golomb codes of indices: no such", 10, 1, 1, {5}},
        {"Golomb codes of indices: out of range", 10, 1, 4, {5, 0, 0, 4}},
        {"Golomb codes of indices: truncated", 100, 1, 3, {5, 5, 0x08}},
        {"Golomb codes of indices: truncated", 10, 1, 3, {5, 0, 0}},
        {"Golomb codes of indices: padding", 10, 1, 3, {5, 0, 3}},
        {"Golomb codes of indices: not the parameter", 10, 1, 3, {5, 5, 3}},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        uint8_t *copy = list_bytes_copy(cases[i].bytes, cases[i].size);
        const char *why = "nothing";

        spr_status status = spr_index_decode(copy + 1, cases[i].size, cases[i].universe,
                                             cases[i].count, again, &why);
        if (status != SPR_ERR_PROTO || !strstr(why, cases[i].why))
            fail_msg("case %zu: \"%s\" instead of \"%s\"", i, why, cases[i].why);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_and_longer_bytes_are_refused),
        cmocka_unit_test(other_counts_and_universes_are_refused),
        cmocka_unit_test(changed_bytes_are_refused_or_another_list),
        cmocka_unit_test(a_row_of_zeros_has_an_end),
        cmocka_unit_test(each_rule_has_its_refusal),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
