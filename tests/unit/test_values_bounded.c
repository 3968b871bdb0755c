/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Value coder "bounded": the bits that an error needs, and those that a budget allows.
 */
#include "compress/values/values.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compress/values/group.h"
#include "tools/codec/data.h"
#include "tests/unit/value_cases.h"

#define N 5000

static struct spr_rng rng;
static float x[N], back[N];
static _Alignas(4) uint8_t image[8 * N];

static void bounded_takes_the_bits_that_the_error_needs(void **state)
{
    struct value_case c = value_case("bounded:error=0.5,mode=absolute,group=32");

    (void)state;
    for (size_t i = 0; i < 32; i++) {
        x[i] = 0.5f;              /* off by the error: nothing is sent */
        x[32 + i] = i ? 0 : 3;    /* 3 / 0.984 -> 3: 3 bits */
        x[64 + i] = i ? 1 : 100;  /* 102: 8 bits */
        x[96 + i] = i ? 1 : 1e6f; /* does not fit 16 bits */
        x[128 + i] = i ? 1 : NAN;
    }
    assert_int_equal(value_round_trip(&c, 0, x, 160, image, back),
                     5 * 8 + 0 + 32 * 3 / 8 + 32 * 8 / 8 + 32 * 4 + 32 * 4);
    assert_int_equal(spr_load_u32(image + 4), 0);
    assert_int_equal(spr_load_u32(image + 8 + 4), 3);
    assert_int_equal(spr_load_u32(image + 8 + 8 + 12 + 4), 102);
    assert_int_equal(spr_load_u32(image + 8 + 8 + 12 + 8 + 32 + 4), UINT32_MAX);
    for (size_t i = 96; i < 160; i++)
        assert_true(back[i] == x[i] || (isnan(back[i]) && isnan(x[i])));
}

/* The largest code of the g-th of four groups of 32 in the image. */
static uint32_t top_of(int g)
{
    size_t at = 0;

    for (; g > 0; g--) {
        uint32_t top = spr_load_u32(image + at + 4);
        at += 8 + (top ? 4 * spr_width_of((int)top) : 0);
    }
    return spr_load_u32(image + at + 4);
}

/* Four groups of 32, of largest magnitudes M and mean squares v; what a bit more gains, per value
 * and bit, from v, (M / 1)^2 / 12, (M / 3)^2 / 12, (M / 7)^2 / 12 and so on for 0, 2, 3, 4 bits:
 *
 *   M = 6     v = 36      2 bits 16.5    the 3rd 2.67   the 4th 0.272
 *   M = 6     v = 1.125   4 bits 0.266 (2 of them nothing, 3 of them 0.264)
 *   M = 60    v = 112.5   4 bits 26.6    the 5th 4.79   the 6th 1.02   the 7th 0.236
 *   M = 0.01              hardly anything
 *
 * Heads take 2 bits per value. */
static void bounded_divides_bits_by_range_and_variance(void **state)
{
    static const struct {
        const char *codec;
        uint32_t tops[4];
    } cases[] = {
        {"bounded:error=0,group=32,bits=3.0", {0, 0, 7, 0}},
        {"bounded:error=0,group=32,bits=4.25", {3, 0, 31, 0}}, /* 3 + 6 bits */
        {"bounded:error=0,group=32,bits=4.5", {7, 0, 31, 0}},  /* 4 + 6 */
        {"bounded:error=0,group=32,bits=5.0", {7, 0, 31, 0}},  /* 2 bits would be lost on the 2nd */
        {"bounded:error=0,group=32,bits=5.25", {7, 3, 31, 0}}, /* 3 of the 4 that it would take */
        {"bounded:error=0,group=32,bits=5.5", {7, 7, 31, 0}},
        {"bounded:error=0,group=32,bits=5.75", {7, 7, 63, 0}},
        {"bounded:error=1,mode=absolute,group=32,bits=4.25", {3, 0, 30, 0}},
    };

    (void)state;
    for (size_t i = 0; i < 128; i++)
        x[i] = i < 32 ? (i % 2 ? 6 : -6) : i == 32 ? 6 : i == 64 ? 60 : i == 96 ? 0.01f : 0;
    for (size_t k = 0; k < SPR_ARRAY_LEN(cases); k++) {
        struct value_case c = value_case(cases[k].codec);

        value_round_trip(&c, 0, x, 128, image, back);
        for (int g = 0; g < 4; g++)
            if (top_of(g) != cases[k].tops[g])
                fail_msg("%s: group %d has codes up to %u", cases[k].codec, g, top_of(g));
    }
}

/* Of the values that were finite. */
static double sum_of_squares_of_errors(const struct value_case *c, size_t n)
{
    double sum = 0;

    value_round_trip(c, 0, x, n, image, back);
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)back[i]) * ((double)x[i] - (double)back[i]);
    return sum;
}

/* int4 and int8 have 32 / 64 bits for heads. */
static void bits_go_further_where_ranges_differ(void **state)
{
    static const char *const pairs[][2] = {{"int4:group=64", "bounded:error=0,group=64,bits=4.5"},
                                           {"int8:group=64", "bounded:error=0,group=64,bits=8.5"}};

    (void)state;
    for (size_t k = 0; k < SPR_ARRAY_LEN(pairs); k++) {
        struct value_case equal = value_case(pairs[k][0]), divided = value_case(pairs[k][1]);
        size_t n = 64 * 64;
        double squares;

        data_fill(DATA_NORMAL, x, n, &rng);
        for (size_t i = 0; i < n; i++)
            x[i] = ldexpf(x[i], -(int)(i / 64 % 8));
        squares = sum_of_squares_of_errors(&equal, n);
        assert_true(squares > 4 * sum_of_squares_of_errors(&divided, n));
        assert_true(value_encode(&divided, 0, 0, x, n, image) <=
                    value_encode(&equal, 0, 0, x, n, image));
    }
}

/* What is there whatever the budget: heads, groups that are not finite, and one that is, with the
 * fewest bits that bring steps below what is there. */
static size_t least_bytes(size_t n, size_t group)
{
    size_t bytes = 0, most = 0;

    for (size_t at = 0; at < n; at += group) {
        size_t m = spr_min_size(group, n - at), width = 2;
        double largest = 0, squares = 0;

        for (size_t i = at; i < at + m; i++) {
            if (isfinite(largest) && !((double)fabsf(x[i]) <= largest))
                largest = (double)fabsf(x[i]);
            squares += (double)x[i] * (double)x[i];
        }
        while (width < 16 && largest * largest / 12 * 1.000001 / squares * (double)m >=
                                 pow(ldexp(1, (int)width - 1) - 1, 2))
            width++;
        bytes += 8 + (isfinite(largest) ? 0 : m * sizeof(float));
        if (isfinite(largest) && spr_padded(width * m) > most)
            most = spr_padded(width * m);
    }
    return bytes + most;
}

static void images_keep_to_their_budget(void **state)
{
    static const size_t groups[] = {8, 33, 64, 500, 1024, 4096};
    static const char *const errors[] = {"0", "0.001", "0.2", "1e-5,mode=absolute",
                                         "0.1,mode=absolute"};

    (void)state;
    for (int round = 0; round < 4000; round++) {
        size_t n = 1 + spr_rng_below(&rng, spr_rng_below(&rng, 2) ? N : 100), plain, bytes;
        size_t group = groups[spr_rng_below(&rng, SPR_ARRAY_LEN(groups))];
        const char *error = errors[spr_rng_below(&rng, SPR_ARRAY_LEN(errors))];
        enum data kind = (enum data)spr_rng_below(&rng, DATA_KINDS);
        double bits = 0.5 + 20 * spr_rng_double(&rng);
        static _Alignas(4) uint8_t without[8 * N];
        struct value_case c, free;
        char spec[80];

        data_fill(kind, x, n, &rng);
        snprintf(spec, sizeof(spec), "bounded:error=%s,group=%zu", error, group);
        free = value_case(spec);
        plain = value_encode(&free, 0, 0, x, n, without);
        snprintf(spec, sizeof(spec), "bounded:error=%s,group=%zu,bits=%.17g", error, group, bits);
        c = value_case(spec);
        bytes = value_round_trip(&c, 0, x, n, image, back);
        if ((double)(8 * plain) <= bits * (double)n) {
            assert_int_equal(bytes, plain);
            assert_memory_equal(image, without, bytes);
        } else if ((double)(8 * bytes) > bits * (double)n && bytes > least_bytes(n, group)) {
            fail_msg("%s, %s: %zu bytes of %zu values", spec, data_names[kind], bytes, n);
        }
        for (size_t i = 0; i < n; i++)
            assert_true(!isfinite(x[i]) || fabsf(x[i] - back[i]) <= fabsf(x[i]) * 1.02f);
    }
}

/* 64 groups alike: 3 bits for some leave less than 2 bits for all. */
static void few_bits_go_to_few_groups(void **state)
{
    enum { GROUP = 128, ALL = 64 * GROUP };
    static float many[ALL], decoded[ALL];
    static _Alignas(4) uint8_t coded[8 * ALL];
    const char *const codecs[] = {"bounded:error=0.499,group=128",       /* 2 bits, and heads */
                                  "bounded:error=0,group=128,bits=2.5"}; /* the same */
    double squares[2] = {0, 0};

    (void)state;
    data_fill(DATA_NORMAL, many, ALL, &rng);
    for (int k = 0; k < 2; k++) {
        struct value_case c = value_case(codecs[k]);
        size_t bytes = value_round_trip(&c, 0, many, ALL, coded, decoded);

        assert_true(bytes <= 64 * 8 + ALL / 4);
        for (size_t i = 0; i < ALL; i++)
            squares[k] += pow((double)many[i] - (double)decoded[i], 2);
    }
    assert_true(squares[1] < 0.9 * squares[0]);
}

/* However few bits there are, something that is finite is sent. */
static void a_budget_leaves_something(void **state)
{
    static const char *const few[] = {"bounded:bits=0.01", "bounded:bits=0.5,group=16"};

    (void)state;
    for (size_t k = 0; k < SPR_ARRAY_LEN(few); k++) {
        struct value_case c = value_case(few[k]);

        for (int round = 0; round < 100; round++) {
            size_t n = 2 + spr_rng_below(&rng, N - 1), sent = 0;

            data_fill(DATA_LAYERS, x, n, &rng);
            if (round & 1)
                x[n - 1] = -INFINITY;
            value_round_trip(&c, 0, x, n, image, back);
            for (size_t i = 0; i < n; i++)
                sent += isfinite(x[i]) && fabsf(back[i]) > 0;
            if (!sent)
                fail_msg("%s: %zu values, none of them sent", few[k], n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_takes_the_bits_that_the_error_needs),
        cmocka_unit_test(bounded_divides_bits_by_range_and_variance),
        cmocka_unit_test(bits_go_further_where_ranges_differ),
        cmocka_unit_test(few_bits_go_to_few_groups),
        cmocka_unit_test(images_keep_to_their_budget),
        cmocka_unit_test(a_budget_leaves_something),
    };

    rng.seed = spr_rng_test_seed();
    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_values_kernels()->name,
           (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
