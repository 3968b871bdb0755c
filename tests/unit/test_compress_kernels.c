/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every kernel gives the bits of the scalar one, at every length and alignment; and the scalar
 * value coders are right.
 */
#include "compress/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/util.h"
#include "compress/chunk.h"
#include "compress/kernels/indices.h"
#include "compress/kernels/lowrank.h"
#include "compress/kernels/select.h"
#include "compress/kernels/values.h"
#include "compress/value.h"
#include "tools/codec/data.h"
#include "tests/unit/simd.h"

#define N 700 /* the longest vector of a round */
#define ROUNDS 2000

static struct spr_rng rng;
static const struct spr_kernels *const scalar = &spr_kernels_scalar;
static const struct spr_kernels *simd; /* under test */

/* A vector of a random kind at a random alignment. */
static float *random_vector(float *room, size_t *n)
{
    float *x = room + spr_rng_below(&rng, 8);

    *n = spr_rng_below(&rng, N);
    data_fill((enum data)spr_rng_below(&rng, DATA_KINDS), x, *n, &rng);
    return x;
}

static void every_fp16_survives_the_way_through_fp32(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t back = spr_fp16_from_float(spr_fp16_to_float((uint16_t)h));
        bool nan = (h & 0x7fff) > 0x7c00;

        assert_int_equal(back, nan ? h | 0x200 : h);
        back = spr_bf16_from_float(spr_bf16_to_float((uint16_t)h));
        nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(back, nan ? h | 0x40 : h);
    }
}

/* Nearest, and even in the middle: checked against the two neighbours in double. */
static void rounding_goes_to_the_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = spr_fp16_to_float((uint16_t)h), b = spr_fp16_to_float((uint16_t)(h + 1));
        float middle = (a + b) / 2; /* exact: fp32 has 13 bits more */

        assert_int_equal(spr_fp16_from_float(middle), h & 1 ? h + 1 : h);
        assert_int_equal(spr_fp16_from_float(data_float(data_bits(middle) - 1)), h);
        assert_int_equal(spr_fp16_from_float(data_float(data_bits(middle) + 1)), h + 1);
        assert_int_equal(spr_fp16_from_float(-middle), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(spr_fp16_from_float(65519.996f), 0x7bff);
    assert_int_equal(spr_fp16_from_float(65520), 0x7c00);
    assert_int_equal(spr_bf16_from_float(data_float(0x3f808000)), 0x3f80);
    assert_int_equal(spr_bf16_from_float(data_float(0x3f818000)), 0x3f82);
    assert_int_equal(spr_bf16_from_float(data_float(0x7f7fffff)), 0x7f80);
    assert_int_equal(spr_bf16_from_float(data_float(0x7f800001)), 0x7fc0);
}

static void value_coders_agree(void **state)
{
    float room[N + 8], out[2][N];
    uint16_t half[2][N];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        float *x = random_vector(room, &n);

        if (round & 1) /* NaN of all payloads */
            for (size_t i = 0; i < n; i++)
                x[i] = data_float((uint32_t)spr_rng_next(&rng));
        scalar->fp16_encode(x, half[0], n);
        simd->fp16_encode(x, half[1], n);
        assert_memory_equal(half[0], half[1], n * 2);
        scalar->fp16_decode(half[0], out[0], n);
        simd->fp16_decode(half[0], out[1], n);
        assert_memory_equal(out[0], out[1], n * 4);
        scalar->bf16_encode(x, half[0], n);
        simd->bf16_encode(x, half[1], n);
        assert_memory_equal(half[0], half[1], n * 2);
        scalar->bf16_decode(half[0], out[0], n);
        simd->bf16_decode(half[0], out[1], n);
        assert_memory_equal(out[0], out[1], n * 4);
    }
}

static uint32_t random_threshold(const float *x, size_t n)
{
    static const uint32_t edges[] = {0, 1, 0x7f800000, 0x7fffffff, 0x80000000};

    if (n == 0 || spr_rng_below(&rng, 4) == 0)
        return edges[spr_rng_below(&rng, SPR_ARRAY_LEN(edges))];
    return spr_magnitude(x[spr_rng_below(&rng, n)]);
}

static void emitting_kernels_agree(void **state)
{
    float room[N + 8], g[N], r[2][N], value[2][N + SPR_KERNEL_SLACK];
    uint32_t index[2][N + SPR_KERNEL_SLACK];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        float *x = random_vector(room, &n);
        uint32_t lo = random_threshold(x, n), base = (uint32_t)spr_rng_next(&rng);
        size_t m = scalar->select(x, n, lo, base, false, index[0], value[0]);

        assert_int_equal(simd->select(x, n, lo, base, round & 1, index[1], value[1]), m);
        assert_memory_equal(index[0], index[1], m * 4);
        assert_memory_equal(value[0], value[1], m * 4);

        data_fill(DATA_NORMAL, g, n, &rng);
        memcpy(r[0], x, n * 4);
        memcpy(r[1], x, n * 4);
        m = scalar->feedback(r[0], g, n, lo, base, false, index[0], value[0]);
        assert_int_equal(simd->feedback(r[1], g, n, lo, base, round & 1, index[1], value[1]), m);
        assert_memory_equal(index[0], index[1], m * 4);
        assert_memory_equal(value[0], value[1], m * 4);
        assert_memory_equal(r[0], r[1], n * 4);

        scalar->sum(r[0], r[0], g, n);
        simd->sum(r[1], r[1], g, n);
        assert_memory_equal(r[0], r[1], n * 4);
        if (n > 0) { /* from where it is not aligned */
            scalar->sum(value[0], x, g + 1, n - 1);
            simd->sum(value[1], x, g + 1, n - 1);
            assert_memory_equal(value[0], value[1], (n - 1) * 4);
        }
        simd->sum(value[1], x, g, n);
        simd->sum(g, x, g, n);
        assert_memory_equal(value[1], g, n * 4);
    }
}

static void the_sum_of_two_nans_is_the_first_one(void **state)
{
    enum { M = 37 };
    float a[M], b[M], sum[2][M];

    (void)state;
    for (uint32_t i = 0; i < M; i++) {
        uint32_t first = 0x7fc00001u + i, second = 0xffc10000u + i;
        memcpy(&a[i], &first, 4);
        memcpy(&b[i], &second, 4);
    }
    scalar->sum(sum[0], a, b, M);
    simd->sum(sum[1], a, b, M);
    assert_memory_equal(sum[0], a, sizeof a);
    assert_memory_equal(sum[1], a, sizeof a);
}

/* As of an empty bucket, without an address; UBSan looks. */
static void the_sum_of_nothing_touches_nothing(void **state)
{
    (void)state;
    scalar->sum(NULL, NULL, NULL, 0);
    simd->sum(NULL, NULL, NULL, 0);
}

static void counting_kernels_agree(void **state)
{
    float room[N + 8];
    uint32_t below[2][N + SPR_KERNEL_SLACK];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        float *x = random_vector(room, &n);
        uint64_t counts[2][SPR_COUNT_THRESHOLDS] = {{1}, {1}};
        uint32_t t[SPR_COUNT_THRESHOLDS];
        size_t thresholds = 1 + spr_rng_below(&rng, SPR_COUNT_THRESHOLDS);

        for (size_t j = 0; j < SPR_COUNT_THRESHOLDS; j++)
            t[j] = random_threshold(x, n);
        scalar->count(x, n, t, thresholds, counts[0]);
        simd->count(x, n, t, thresholds, counts[1]);
        assert_memory_equal(counts[0], counts[1], sizeof(counts[0]));

        size_t m = scalar->split(x, n, t[0], below[0]);
        assert_int_equal(simd->split(x, n, t[0], below[1]), m);
        assert_memory_equal(below[0], below[1], m * 4);
    }
}

static void filter_agrees_in_place_and_out_of_place(void **state)
{
    float room[N + 8], value[3][N + SPR_KERNEL_SLACK], back[2][N];
    uint32_t index[3][N + SPR_KERNEL_SLACK];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        float *x = random_vector(room, &n);
        uint32_t t = random_threshold(x, n) & 0x7fffffff;
        size_t quota = spr_rng_below(&rng, 20), quotas[2] = {quota, quota};

        for (uint32_t i = 0; i < n; i++)
            index[0][i] = index[2][i] = i;
        memcpy(value[0], x, n * 4);
        memset(back, 0, sizeof(back));
        bool put_back = round & 1;
        size_t m = scalar->filter(index[2], x, n, t, &quotas[0], index[1], value[1],
                                  put_back ? back[0] : NULL);
        assert_int_equal(simd->filter(index[0], value[0], n, t, &quotas[1], index[0], value[0],
                                      put_back ? back[1] : NULL),
                         m);
        assert_int_equal(quotas[0], quotas[1]);
        assert_memory_equal(index[0], index[1], m * 4);
        assert_memory_equal(value[0], value[1], m * 4);
        assert_memory_equal(back[0], back[1], sizeof(back[0]));
    }
}

#define WORDS 12

static uint64_t random_word(void)
{
    uint64_t a = spr_rng_next(&rng), b = spr_rng_next(&rng), c = spr_rng_next(&rng);
    uint64_t kinds[] = {0, a & b & c & (c >> 7), a & b & c, a, a | b, UINT64_MAX};

    return kinds[spr_rng_below(&rng, SPR_ARRAY_LEN(kinds))];
}

static void window_kernels_agree(void **state)
{
    static float acc[2][WORDS * 64], value[WORDS * 64], out[2][WORDS * 64 + 16];
    uint64_t touched[2][WORDS], bitmap[WORDS];
    uint16_t pos[2][WORDS * 64 + 16];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t words = spr_rng_below(&rng, WORDS + 1), n[2];
        size_t readable = (size_t)spr_rng_below(&rng, 100);

        for (size_t w = 0; w < words; w++)
            bitmap[w] = random_word();
        memset(acc, 0, sizeof(acc));
        memset(touched, 0, sizeof(touched));
        /* Twice, so that something is there to be added to; -0 too. */
        for (int add = 0; add < 2; add++) {
            data_fill(DATA_SMALL_INTEGERS, value, WORDS * 64, &rng);
#ifdef __x86_64__ /* which of two NaNs comes out: see spr_add() */
            for (size_t i = spr_rng_below(&rng, 2 * WORDS * 64); i < WORDS * 64; i += 2)
                value[i] = data_float(0x7f800001u + (uint32_t)spr_rng_below(&rng, 0x7fffff));
#endif
            n[0] = scalar->add_bits(acc[0], touched[0], bitmap, words, value, 0);
            readable = spr_min_size(n[0] + readable, WORDS * 64);
            n[1] = simd->add_bits(acc[1], touched[1], bitmap, words, value, readable);
            assert_int_equal(n[0], n[1]);
            assert_memory_equal(acc[0], acc[1], sizeof(acc[0]));
            assert_memory_equal(touched[0], touched[1], sizeof(touched[0]));
            for (size_t w = 0; w < words; w++)
                bitmap[w] ^= random_word();
        }
        assert_int_equal(scalar->popcount(bitmap, words), simd->popcount(bitmap, words));
        size_t length = words ? words * 64 - spr_rng_below(&rng, 64) : 0;
        if (length % 64)
            bitmap[words - 1] &= (UINT64_C(1) << length % 64) - 1;
        memset(out, 0xff, sizeof(out));
        n[0] = scalar->expand(bitmap, length, value, 0, out[0]);
        assert_int_equal(n[0], scalar->popcount(bitmap, words));
        readable = spr_min_size(n[0] + spr_rng_below(&rng, 100), WORDS * 64);
        assert_int_equal(simd->expand(bitmap, length, value, readable, out[1]), n[0]);
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_int_equal(data_bits(out[0][length]), UINT32_MAX);
        simd->clear(out[1], length);
        scalar->clear(out[0], length);
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        n[0] = scalar->positions(bitmap, words, 64, pos[0]);
        assert_int_equal(simd->positions(bitmap, words, 64, pos[1]), n[0]);
        assert_memory_equal(pos[0], pos[1], n[0] * 2);
        n[0] = scalar->harvest(acc[0], touched[0], words, pos[0], out[0]);
        assert_int_equal(simd->harvest(acc[1], touched[1], words, pos[1], out[1]), n[0]);
        assert_memory_equal(pos[0], pos[1], n[0] * 2);
        assert_memory_equal(out[0], out[1], n[0] * 4);
        assert_memory_equal(acc[0], acc[1], sizeof(acc[0]));
        assert_memory_equal(touched[0], touched[1], sizeof(touched[0]));
    }
}

static void ascending_sees_every_step_back(void **state)
{
    uint16_t p16[N];
    uint32_t p32[N];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = spr_rng_below(&rng, N), bad = 1 + spr_rng_below(&rng, N);

        for (size_t i = 0; i < n; i++) {
            p16[i] = (uint16_t)(i * 91 + 3);
            p32[i] = (uint32_t)i * 6000000 + 3; /* beyond 2^31 too */
        }
        assert_true(simd->ascending16(p16, n) && scalar->ascending16(p16, n));
        assert_true(simd->ascending32(p32, n) && scalar->ascending32(p32, n));
        if (bad >= n)
            continue;
        p16[bad] = (uint16_t)(p16[bad - 1] - (round & 1));
        p32[bad] = p32[bad - 1] - (round & 1);
        assert_false(simd->ascending16(p16, n) || scalar->ascending16(p16, n));
        assert_false(simd->ascending32(p32, n) || scalar->ascending32(p32, n));
    }
}

/* Else nothing above was compared with anything. */
static void arm64_has_tables_of_its_own(void **state)
{
    (void)state;
    if (!(spr_cpu_features() & SPR_CPU_NEON))
        return;
    assert_string_equal(spr_kernels()->name, "neon");
    assert_string_equal(spr_values_kernels()->name, "neon");
    assert_string_equal(spr_select_kernels()->name, "neon");
    assert_string_equal(spr_indices_kernels()->name, "neon");
    assert_string_equal(spr_lowrank_kernels()->name, "neon");
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fp16_survives_the_way_through_fp32),
        cmocka_unit_test(rounding_goes_to_the_nearest_even),
        cmocka_unit_test(value_coders_agree),
        cmocka_unit_test(emitting_kernels_agree),
        cmocka_unit_test(the_sum_of_two_nans_is_the_first_one),
        cmocka_unit_test(the_sum_of_nothing_touches_nothing),
        cmocka_unit_test(counting_kernels_agree),
        cmocka_unit_test(filter_agrees_in_place_and_out_of_place),
        cmocka_unit_test(window_kernels_agree),
        cmocka_unit_test(ascending_sees_every_step_back),
        cmocka_unit_test(arm64_has_tables_of_its_own),
    };

    simd = spr_kernels();
    printf("kernels: %s, SPARRING_SEED=%llu\n", simd->name, (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    rng.seed = spr_rng_test_seed();
    return simd_for_each(run);
}
