/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every index coder: what was encoded comes back, at every size and density, in the same bytes from
 * every instruction set. What is refused: test_indices_refused.c.
 */
#include "compress/indices/indices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/util.h"
#include "tests/unit/index_lists.h"
#include "tests/unit/index_reader.h"

#define MOST (1u << 20) /* positions of a list */
#define FOUR_G (UINT64_C(1) << 32)

static struct spr_rng rng;
static const struct spr_index_options options = {.rate = 1e10};
static uint32_t list[MOST + SPR_INDEX_SLACK], again[MOST + SPR_INDEX_SLACK];
static uint8_t *encoded[2];
static size_t room;

static uint8_t *bytes_for(const struct spr_index_coder *coder, uint64_t universe, size_t n, int i)
{
    size_t bound = spr_index_bound(coder, universe, n);

    if (bound + 1 > room) {
        room = 2 * bound;
        encoded[0] = realloc(encoded[0], room);
        encoded[1] = realloc(encoded[1], room);
    }
    assert_non_null(encoded[i]);
    return encoded[i];
}

static void windows_come_back(const uint8_t *bytes, size_t size, const uint32_t *x, size_t n,
                              uint64_t universe, uint32_t window)
{
    struct spr_index_cursor c;
    const uint32_t *some;
    const char *why = NULL;
    size_t done = 0, m;

    assert_int_equal(spr_index_open(&c, bytes, size, universe, n, &why), SPR_OK);
    for (uint64_t limit = window; limit < universe + window; limit += window) {
        while ((m = spr_index_next(&c, limit, &some)) > 0) {
            assert_true(m <= SPR_INDEX_BLOCK && done + m <= n && some[m - 1] < limit);
            assert_memory_equal(some, x + done, 4 * m);
            done += m;
        }
        assert_null(c.why);
        assert_true(done == n || x[done] >= limit);
    }
    assert_int_equal(done, n);
    assert_int_equal(c.left, 0);
}

/* In parts, by windows, as long as the whole. */
static void parts_are_the_whole(const struct spr_index_coder *coder, const uint32_t *x, size_t n,
                                uint64_t universe, const uint8_t *bytes, size_t size)
{
    uint8_t *out = malloc(spr_index_bound(coder, universe, n));
    uint16_t pos[1000];
    struct spr_index_writer w;

    spr_index_begin(&w, coder, out);
    for (size_t i = 0, m; i < n; i += m) {
        for (m = 0; m < SPR_ARRAY_LEN(pos) && i + m < n && x[i + m] >> 16 == x[i] >> 16; m++)
            pos[m] = (uint16_t)x[i + m];
        spr_index_put(&w, pos, m, x[i] & 0xffff0000u);
    }
    assert_int_equal(spr_index_end(&w) - out, size);
    assert_memory_equal(out, bytes, size);
    free(out);
}

static void comes_back(const struct spr_index_coder *coder, const uint32_t *x, size_t n,
                       uint64_t universe)
{
    uint64_t sizes[SPR_INDEX_IDS];
    const char *why = NULL;
    size_t size[2];

    for (int scalar = 0; scalar < 2; scalar++) {
        uint8_t *out = bytes_for(coder, universe, n, scalar) + 1;
        size_t bound = spr_index_bound(coder, universe, n);

        out[bound - 1] = 0x5a; /* the last byte that may be written; where nothing was, it stays */
        spr_cpu_override(scalar ? 0 : UINT32_MAX);
        size[scalar] = spr_index_encode(coder, &options, x, n, universe, out);
        assert_true(size[scalar] <= bound);
        spr_index_sizes(x, n, universe, sizes);
        assert_int_equal(out[0] < SPR_INDEX_IDS, 1);
        assert_int_equal(sizes[out[0]], size[scalar]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(encoded[0] + 1, encoded[1] + 1, size[0]);

    uint8_t *copy = list_bytes_copy(encoded[0] + 1, size[0]);
    for (int scalar = 0; scalar < 2; scalar++) {
        spr_cpu_override(scalar ? 0 : UINT32_MAX);
        memset(again, 0xee, 4 * (n + SPR_INDEX_SLACK));
        spr_status status = spr_index_decode(copy + 1, size[0], universe, n, again, &why);
        if (status != SPR_OK)
            print_error("%s, %zu of %llu: %s\n", spr_index_coder_name(coder), n,
                        (unsigned long long)universe, why);
        assert_int_equal(status, SPR_OK);
        assert_memory_equal(again, x, 4 * n);
        assert_int_equal(spr_index_check(copy + 1, size[0], universe, n, &why), SPR_OK);
    }
    spr_cpu_override(UINT32_MAX);
    reader_list(copy + 1, n, universe, again);
    assert_memory_equal(again, x, 4 * n);
    if (spr_index_has_blocks(coder))
        parts_are_the_whole(coder, x, n, universe, copy + 1, size[0]);
    if (universe <= 1 << 22) {
        windows_come_back(copy + 1, size[0], x, n, universe, 65536);
        windows_come_back(copy + 1, size[0], x, n, universe, 1000);
    }
    free(copy);
}

static void all_come_back(const uint32_t *x, size_t n, uint64_t universe)
{
    const struct spr_index_coder *coder;
    for (size_t c = 0; (coder = spr_index_coder_at(c)) != NULL; c++) {
        /* A bitmap of 2^32 positions takes as long as all other tests. */
        if (universe <= 1u << 27 || strcmp(spr_index_coder_name(coder), "bitmap") != 0)
            comes_back(coder, x, n, universe);
    }
}

static void the_first_byte_names_the_coder(void **state)
{
    (void)state;
    for (size_t id = 0; id < SPR_INDEX_IDS; id++) {
        const struct spr_index_coder *coder = spr_index_coder_at(id);

        assert_ptr_equal(spr_index_coder_find(spr_index_coder_name(coder)), coder);
        spr_index_encode(coder, &options, (const uint32_t[]){3}, 1, 10, bytes_for(coder, 10, 1, 0));
        assert_int_equal(encoded[0][0], id);
    }
    assert_null(spr_index_coder_at(SPR_INDEX_IDS + 1));
    assert_null(spr_index_coder_find("nothing"));
}

static void options_have_defaults(void **state)
{
    struct spr_index_options fields;
    size_t n;

    (void)state;
    const struct spr_index_coder *coder;
    for (size_t c = 0; (coder = spr_index_coder_at(c)) != NULL; c++) {
        const struct spr_opt *table = spr_index_coder_options(coder, &n);

        memset(&fields, 0xff, sizeof(fields));
        assert_int_equal(spr_opt_defaults(table, n, &fields, NULL), SPR_OK);
        assert_true(strlen(spr_index_coder_doc(coder)) > 0);
    }
    assert_true(fields.rate > 1e6);
}

static void lists_of_every_length_come_back(void **state)
{
    static const uint32_t most[] = {0, 1, 9, 99, 999, 70000};

    (void)state;
    for (size_t n = 0; n < 800; n += n < 20 || n % 256 > 250 || n % 256 < 5 ? 1 : 7) {
        uint32_t gap = most[spr_rng_below(&rng, SPR_ARRAY_LEN(most))];
        size_t count = list_random(&rng, n, 1u << 26, gap, list);
        uint64_t end = count ? (uint64_t)list[count - 1] + 1 : 0;

        all_come_back(list, count, end);
        all_come_back(list, count, end + spr_rng_below(&rng, 100));
    }
}

static void lists_of_every_kind_come_back(void **state)
{
    static const uint32_t ppm[] = {100, 1000, 10000, 100000, 500000, 990000};

    (void)state;
    for (int kind = 0; kind < LIST_KINDS; kind++)
        for (size_t i = 0; i < SPR_ARRAY_LEN(ppm); i++) {
            uint32_t universe = 300000 + (uint32_t)spr_rng_below(&rng, 1000);
            size_t n = list_fill((enum list)kind, universe, ppm[i], spr_rng_next(&rng), list);

            all_come_back(list, n, universe);
        }
}

static void long_lists_come_back(void **state)
{
    (void)state;
    all_come_back(list, list_random(&rng, MOST, UINT64_C(1) << 27, 60, list), UINT64_C(1) << 27);
    all_come_back(list, list_random(&rng, MOST, FOUR_G, 3900, list), FOUR_G);
    for (uint32_t i = 0; i < MOST; i++)
        list[i] = i;
    all_come_back(list, MOST, MOST);
}

static void lists_at_the_end_of_the_universe_come_back(void **state)
{
    (void)state;
    for (size_t n = 1; n < 600; n += 37) {
        for (size_t i = 0; i < n; i++)
            list[i] = (uint32_t)(FOUR_G - n + i);
        all_come_back(list, n, FOUR_G);
        list[0] = 0;
        all_come_back(list, n, FOUR_G);
        for (size_t i = 0; i < n; i++) /* one gap that takes all */
            list[i] = i < n / 2 ? (uint32_t)i : (uint32_t)(FOUR_G - n + i);
        all_come_back(list, n, FOUR_G);
        for (size_t i = 0; i < n; i++)
            list[i] = (uint32_t)(i * (FOUR_G / n));
        all_come_back(list, n, FOUR_G);
    }
}

/* ---- The format, by hand ---- */

static void bytes_are_those_of_the_format(void **state)
{
    static const struct {
        const char *coder;
        uint32_t index[4];
        size_t count, universe, size;
        uint8_t bytes[24];
    } cases[] = {
        {"u32", {1, 258}, 2, 300, 9, {0, 1, 0, 0, 0, 2, 1, 0, 0}},
        {"u16", {1, 258, 0x10003}, 3, 0x10004, 15, {1, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 1, 3, 0}},
        {"bitmap", {0, 1, 5, 9}, 4, 10, 3, {2, 0x23, 0x02}},
        /* gaps 0 0 3 3 in 2 bits each */
        {"bitpack", {0, 1, 5, 9}, 4, 16, 3, {3, 2, 0xf0}},
        {"bitpack", {0, 1, 2, 3}, 4, 4, 2, {3, 0}},
        /* y = 0 0 3 6: w = 0, ones at 0 1 5 9 */
        {"eliasfano", {0, 1, 5, 9}, 4, 16, 5, {4, 0, 2, 0x23, 0x02}},
        /* y = 10 99: w = 5, low 10 3, ones at 0 and 3 + 1 */
        {"eliasfano", {10, 100}, 2, 128, 6, {4, 5, 1, 0x6a, 0, 0x11}},
        /* gaps 0 0 3 3: w = 0, 1 1 0001 0001 */
        {"golomb", {0, 1, 5, 9}, 4, 16, 4, {5, 0, 0x23, 0x02}},
        /* gaps 10 89: w = 5, 1 01010 001 10011 (10, and 89 = 2 * 32 + 25, low bits first) */
        {"golomb", {10, 100}, 2, 128, 4, {5, 5, 0x15, 0x33}},
        {"u32", {0}, 0, 7, 1, {0}},
        {"golomb", {0}, 0, 0, 1, {5}},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        const struct spr_index_coder *coder = spr_index_coder_find(cases[i].coder);
        uint8_t *out = bytes_for(coder, cases[i].universe, cases[i].count, 0);

        assert_int_equal(spr_index_encode(coder, &options, cases[i].index, cases[i].count,
                                          cases[i].universe, out),
                         cases[i].size);
        assert_memory_equal(out, cases[i].bytes, cases[i].size);
    }
}

/* A block of 256: lane j of 8 has the values j, 8 + j, ... */
static void packed_blocks_are_vertical(void **state)
{
    const struct spr_index_coder *coder = spr_index_coder_find("bitpack");

    (void)state;
    for (uint32_t i = 0, at = 0; i < 256; i++, at++) {
        at += i % 8 == 3 && i / 8 < 4 ? i / 8 + 1 : 0; /* lane 3: 1 2 3 4 0 0 ... */
        list[i] = at;
    }
    uint8_t *out = bytes_for(coder, 1000, 256, 0), want[2 + 32 * 3] = {SPR_INDEX_BITPACK, 3};
    want[2 + 4 * 3] = 1 | 2 << 3 | (3 & 3) << 6;
    want[2 + 4 * 3 + 1] = 3 >> 2 | 4 << 1;
    assert_int_equal(spr_index_encode(coder, &options, list, 256, 1000, out), sizeof(want));
    assert_memory_equal(out, want, sizeof(want));
}

/* ---- Choice ---- */

static void auto_takes_the_least_time(void **state)
{
    uint64_t bytes[SPR_INDEX_IDS];
    size_t n = list_fill(LIST_UNIFORM, MOST, 10000, 1, list), least = 0;

    (void)state;
    spr_index_sizes(list, n, MOST, bytes);
    for (size_t id = 1; id < SPR_INDEX_IDS; id++)
        least = bytes[id] < bytes[least] ? id : least;
    /* Over a very slow link only bytes count, over a very fast one only the processor. */
    assert_int_equal(spr_index_choose(bytes, n, MOST, 1e3, UINT64_MAX), least);
    enum spr_index_id fast = spr_index_choose(bytes, n, MOST, 1e15, UINT64_MAX);
    assert_int_equal(fast, SPR_INDEX_U32);
    /* What does not fit is not taken, and a slower link never takes more bytes. */
    assert_int_not_equal(spr_index_choose(bytes, n, MOST, 1e15, bytes[fast] - 1), fast);
    uint64_t before = UINT64_MAX;
    for (double rate = 1e14; rate > 1e4; rate /= 3) {
        uint64_t now = bytes[spr_index_choose(bytes, n, MOST, rate, UINT64_MAX)];
        assert_true(now <= before);
        before = now;
    }
}

static void auto_sends_what_the_chosen_coder_would(void **state)
{
    static const double rates[] = {1e5, 1e8, 1e9, 1e10, 1e11, 1e14};
    const struct spr_index_coder *coder = spr_index_coder_find("auto");
    uint32_t chosen = 0;

    (void)state;
    for (size_t r = 0; r < SPR_ARRAY_LEN(rates); r++) {
        struct spr_index_options at_rate = {.rate = rates[r]};

        for (uint32_t ppm = 100; ppm < 1000000; ppm *= 3) {
            size_t n = list_fill(LIST_UNIFORM, 200000, ppm, spr_rng_next(&rng), list);
            uint8_t *out = bytes_for(coder, 200000, n, 0), *same;
            size_t size = spr_index_encode(coder, &at_rate, list, n, 200000, out);
            const struct spr_index_coder *taken = spr_index_coder_at(out[0]);

            assert_true(size <= spr_index_bound(coder, 200000, n));
            chosen |= 1u << out[0];
            same = bytes_for(taken, 200000, n, 1);
            assert_int_equal(spr_index_encode(taken, &options, list, n, 200000, same), size);
            assert_memory_equal(encoded[0], same, size);
        }
    }
    assert_true(__builtin_popcount(chosen) > 2);
}

/* Bits that tell which n of `universe` positions a uniform random list has: log2 of the binomial
 * coefficient. */
static double entropy(double universe, double n)
{
    return (lgamma(universe + 1) - lgamma(n + 1) - lgamma(universe - n + 1)) / log(2);
}

static void uniform_lists_take_little_more_than_their_entropy(void **state)
{
    static const struct {
        uint32_t ppm;
        double eliasfano, golomb;
    } cases[] = {{1000, 1.10, 1.02}, {10000, 1.10, 1.02}, {100000, 1.14, 1.03}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        uint64_t bytes[SPR_INDEX_IDS];
        size_t n = list_fill(LIST_UNIFORM, MOST, cases[i].ppm, 7, list);
        double least = entropy(MOST, (double)n) / 8;

        spr_index_sizes(list, n, MOST, bytes);
        assert_true((double)bytes[SPR_INDEX_ELIASFANO] < cases[i].eliasfano * least);
        assert_true((double)bytes[SPR_INDEX_GOLOMB] < cases[i].golomb * least);
        for (int id = 0; id < SPR_INDEX_IDS; id++)
            assert_true((double)bytes[id] > 0.98 * least);
    }
}

/* ---- Kernels ---- */

static void kernels_agree_on_any_numbers(void **state)
{
    const struct spr_indices_kernels *scalar = &spr_indices_scalar, *simd = spr_indices_kernels();
    uint32_t in[2][SPR_INDEX_BLOCK], out[2][2][2 * SPR_INDEX_BLOCK + SPR_INDEX_SLACK];
    uint8_t bytes[2][32 * 32];

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = spr_rng_below(&rng, SPR_INDEX_BLOCK + 1);
        unsigned width = (unsigned)spr_rng_below(&rng, 33);
        uint32_t first = (uint32_t)spr_rng_next(&rng), any;
        uint32_t mask = (uint32_t)((UINT64_C(1) << width) - 1);

        for (size_t i = 0; i < SPR_INDEX_BLOCK; i++) {
            in[0][i] = (uint32_t)spr_rng_next(&rng) & mask;
            in[1][i] = (uint32_t)(i + spr_rng_below(&rng, 1 + (round & 1)));
        }
        memset(out, 0, sizeof(out));
        any = scalar->gaps(in[0], n, first, out[0][0]);
        assert_int_equal(simd->gaps(in[0], n, first, out[1][0]), any);
        any = scalar->sums(in[0], n, first, out[0][1]);
        assert_int_equal(simd->sums(in[0], n, first, out[1][1]), any);
        assert_memory_equal(out[0], out[1], sizeof(out[0]));

        scalar->pack(in[0], width, bytes[0]);
        simd->pack(in[0], width, bytes[1]);
        assert_memory_equal(bytes[0], bytes[1], 32 * width);
        scalar->unpack(bytes[0], width, out[0][0]);
        simd->unpack(bytes[0], width, out[1][0]);
        assert_memory_equal(out[0][0], in[0], sizeof(in[0]));
        assert_memory_equal(out[1][0], in[0], sizeof(in[0]));

        width %= 32;
        scalar->split(in[0], n, first, width, out[0][0], out[0][1]);
        simd->split(in[0], n, first, width, out[1][0], out[1][1]);
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        _Bool rises = scalar->join(in[0], in[1], n, first, width, out[0][0]);
        assert_int_equal(simd->join(in[0], in[1], n, first, width, out[1][0]), rises);
        assert_memory_equal(out[0][0], out[1][0], 4 * n);

        for (size_t i = 0; i < 64; i++) /* up to 512 ones */
            bytes[0][i] = (uint8_t)(round & 1 ? spr_rng_next(&rng) : spr_rng_next(&rng) & 17);
        size_t ones = scalar->ones(bytes[0], n % 65, first % 4096, out[0][0]);
        assert_int_equal(simd->ones(bytes[0], n % 65, first % 4096, out[1][0]), ones);
        assert_memory_equal(out[0][0], out[1][0], 4 * ones);
        for (size_t i = 0; i < 2; i++) {
            memset(bytes[i], 0, sizeof(bytes[i]));
            (i ? simd : scalar)->set(out[0][0], ones, bytes[i]);
        }
        assert_memory_equal(bytes[0], bytes[1], sizeof(bytes[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_byte_names_the_coder),
        cmocka_unit_test(options_have_defaults),
        cmocka_unit_test(lists_of_every_length_come_back),
        cmocka_unit_test(lists_of_every_kind_come_back),
        cmocka_unit_test(long_lists_come_back),
        cmocka_unit_test(lists_at_the_end_of_the_universe_come_back),
        cmocka_unit_test(bytes_are_those_of_the_format),
        cmocka_unit_test(packed_blocks_are_vertical),
        cmocka_unit_test(auto_takes_the_least_time),
        cmocka_unit_test(auto_sends_what_the_chosen_coder_would),
        cmocka_unit_test(uniform_lists_take_little_more_than_their_entropy),
        cmocka_unit_test(kernels_agree_on_any_numbers),
    };

    rng.seed = spr_rng_test_seed();
    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_indices_kernels()->name,
           (unsigned long long)rng.seed);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(encoded[0]);
    free(encoded[1]);
    return failed;
}
