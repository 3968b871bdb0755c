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

static float float_at(size_t byte) { return spr_load_float(image + byte); }

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

/* 64 bytes for 128 values: 32 for heads, 5 bits for the first group, 3 for the second, whose step
 * is at most that of the first. */
static void bounded_divides_bits_by_range(void **state)
{
    struct value_case c = value_case("bounded:error=0,bits=4,group=32");
    static const float largest[] = {60, -7, 1, 0.01f};

    (void)state;
    for (size_t i = 0; i < 128; i++)
        x[i] = i % 32 ? 0 : largest[i / 32];
    x[1] = 21;
    assert_int_equal(value_round_trip(&c, 0, x, 128, image, back), 64);
    assert_int_equal(spr_load_u32(image + 4), 15);
    assert_true(float_at(0) == 4.0f && back[0] == 60 && back[1] == 20);
    assert_int_equal(spr_load_u32(image + 8 + 20 + 4), 3);
    assert_true(float_at(8 + 20) == 7.0f / 3 && back[32] == -7);
    assert_int_equal(spr_load_u32(image + 8 + 20 + 8 + 12 + 4), 0);
    assert_int_equal(spr_load_u32(image + 8 + 20 + 8 + 12 + 8 + 4), 0);
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

/* The groups that are there whatever the budget: not finite, or, within 1/64, the largest. */
static size_t least_bytes(size_t n, size_t group)
{
    float most = 0, largest[N / 8 + 1] = {0};
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= largest[i / group]))
            largest[i / group] = isfinite(x[i]) && isfinite(largest[i / group]) ? fabsf(x[i]) : NAN;
    for (size_t g = 0; g * group < n; g++)
        most = fmaxf(most, largest[g]); /* not NaN */
    for (size_t g = 0; g * group < n; g++) {
        size_t m = spr_min_size(group, n - g * group);

        bytes += 8;
        if (isnan(largest[g]))
            bytes += m * sizeof(float);
        else if (largest[g] > most * (1 - 1 / 64.0f))
            bytes += spr_padded(2 * m);
    }
    return bytes;
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

/* However few bits there are, the largest finite magnitude is sent. */
static void a_budget_leaves_something(void **state)
{
    static const char *const few[] = {"bounded:bits=0.01", "bounded:bits=0.5,group=16"};

    (void)state;
    for (size_t k = 0; k < SPR_ARRAY_LEN(few); k++) {
        struct value_case c = value_case(few[k]);

        for (int round = 0; round < 100; round++) {
            size_t n = 2 + spr_rng_below(&rng, N - 1), at = 0;

            data_fill(DATA_LAYERS, x, n, &rng);
            if (round & 1)
                x[n - 1] = -INFINITY;
            for (size_t i = 0; i < n; i++)
                at = fabsf(x[i]) > fabsf(x[at]) && isfinite(x[i]) ? i : at;
            value_round_trip(&c, 0, x, n, image, back);
            assert_true(fabsf(back[at] - x[at]) <= fabsf(x[at]) * 0x1p-20f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_takes_the_bits_that_the_error_needs),
        cmocka_unit_test(bounded_divides_bits_by_range),
        cmocka_unit_test(bits_go_further_where_ranges_differ),
        cmocka_unit_test(images_keep_to_their_budget),
        cmocka_unit_test(a_budget_leaves_something),
    };

    rng.seed = spr_rng_test_seed();
    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_values_kernels()->name,
           (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
