/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Each value coder does what its paper says: cases worked out by hand, bounds of the error, and
 * means that are right.
 */
#include "compress/values/values.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compress/values/elias.h"
#include "compress/values/group.h"
#include "tools/codec/data.h"
#include "tests/unit/value_cases.h"

#define N 5000

static struct spr_rng rng;
static float x[N], back[N];
static _Alignas(4) uint8_t image[8 * N];

static float float_at(size_t byte) { return spr_load_float(image + byte); }

/* ---- By hand ---- */

static void integers_are_nearest_and_even_in_the_middle(void **state)
{
    struct value_case int8 = value_case("int8"), int4 = value_case("int4");
    static const float in8[] = {127, -127, 0.5f, 1.5f, -2.5f, 63.49f, -0.51f};
    static const int8_t out8[] = {127, -127, 0, 2, -2, 63, -1, 0};
    static const float in4[] = {-14, 1, 3, 5, 13.1f};
    static const uint8_t out4[] = {0x09, 0x22, 0x07, 0x00};

    (void)state;
    assert_int_equal(value_round_trip(&int8, 0, in8, 7, image, back), 12);
    assert_true(float_at(0) == 1.0f);
    assert_memory_equal(image + 4, out8, 8);
    assert_true(back[0] == 127 && back[4] == -2 && back[6] == -1);

    /* A scale of 2: -7, 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, 6.55 -> 7; the first in the lower bits. */
    assert_int_equal(value_round_trip(&int4, 0, in4, 5, image, back), 8);
    assert_true(float_at(0) == 2.0f);
    assert_memory_equal(image + 4, out4, 4);
    assert_true(back[0] == -14 && back[1] == 0 && back[2] == 4 && back[3] == 4 && back[4] == 14);
}

static void signs_have_one_mean_or_two(void **state)
{
    struct value_case one = value_case("sign"), two = value_case("sign:means=two");
    static const float in[] = {1, -2, 3, -4, 8, 0};

    (void)state;
    assert_int_equal(value_round_trip(&one, 0, in, 6, image, back), 8);
    assert_true(float_at(0) == 3.0f && image[4] == 0x0a);
    assert_true(back[0] == 3 && back[1] == -3 && back[3] == -3 && back[5] == 3);

    assert_int_equal(value_round_trip(&two, 0, in, 6, image, back), 12);
    assert_true(float_at(0) == 3.0f && float_at(4) == -3.0f && image[8] == 0x0a);
    assert_int_equal(value_round_trip(&two, 0, in + 2, 3, image, back), 12);
    assert_true(float_at(0) == 5.5f && float_at(4) == -4.0f);
    assert_int_equal(value_round_trip(&two, 0, in, 1, image, back), 12);
    assert_true(float_at(0) == 1.0f && float_at(4) == 0.0f && back[0] == 1);
}

static void signs_of_huge_values_have_a_mean(void **state)
{
    struct value_case one = value_case("sign"), two = value_case("sign:means=two");

    (void)state;
    for (size_t i = 0; i < 100; i++)
        x[i] = i & 1 ? -FLT_MAX : FLT_MAX / 2;
    value_round_trip(&one, 0, x, 100, image, back);
    assert_true(back[0] == FLT_MAX * 0.75f && back[1] == -back[0]);
    value_round_trip(&two, 0, x, 100, image, back);
    assert_true(back[0] == FLT_MAX / 2 && back[1] == -FLT_MAX);
}

/* |v| = 5, 4 levels: 3/5 and 4/5 of 4 are 2.4 and 3.2. */
static void qsgd_takes_the_levels_next_to_it(void **state)
{
    struct value_case fixed = value_case("qsgd:levels=4");
    struct value_case max = value_case("qsgd:levels=4,norm=max");
    static const float in[] = {3, -4, 0};
    unsigned seen = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        assert_int_equal(value_round_trip(&fixed, seed, in, 3, image, back),
                         8); /* 3 codes of 4 bits */
        assert_true(float_at(0) == 1.25f);
        assert_true(back[0] == 2.5f || back[0] == 3.75f);
        assert_true(back[1] == -3.75f || back[1] == -5.0f);
        assert_true(back[2] == 0);
        seen |= (back[0] == 2.5f ? 1u : 2u) | (back[1] == -3.75f ? 4u : 8u);
        value_round_trip(&max, seed, in, 3, image, back);
        assert_true(float_at(0) == 1.0f && back[0] == 3 && back[1] == -4);
    }
    assert_int_equal(seen, 15);
}

/* omega(1) = 0, (2) = 100, (3) = 110, (4) = 101000, (7) = 101110, (8) = 1110000, (15) = 1111110,
 * (16) = 10100100000. */
static void elias_codes_are_those_of_the_paper(void **state)
{
    static const int8_t code[] = {0, 3, -1, 0, 0, 15, 0, -7};
    /* 0 | 101000 0 | 100 1 | 0 | 0 | 10100100000 0 | 0 | 1110000 1 */
    static const uint8_t dense[] = {0x50, 0x92, 0x90, 0x1c, 0x20, 0, 0, 0};
    /* 100 0 110 | 0 1 0 | 110 0 1111110 | 100 1 101110 | 0: distances 2, 1, 3, 2, and 1 to the end
     */
    static const uint8_t sparse[] = {0x8c, 0xb3, 0xf4, 0xdc};
    int8_t out[9];

    (void)state;
    memset(image, 0xff, 16);
    assert_int_equal(spr_elias_encode(code, 8, false, image), 8);
    assert_memory_equal(image, dense, 8);
    assert_int_equal(spr_elias_decode(image, 8, 8, 15, false, out), 8);
    assert_memory_equal(out, code, 8);
    assert_int_equal(spr_elias_decode(image, 8, 8, 14, false, out), 0);
    assert_int_equal(spr_elias_decode(image, 4, 8, 15, false, out), 0);

    assert_int_equal(spr_elias_encode(code, 8, true, image), 4);
    assert_memory_equal(image, sparse, 4);
    assert_int_equal(spr_elias_decode(image, 4, 8, 15, true, out), 4);
    assert_memory_equal(out, code, 8);
    assert_int_equal(spr_elias_decode(image, 4, 7, 15, true, out), 0);
    assert_int_equal(spr_elias_decode(image, 4, 9, 15, true, out), 0);
    assert_int_equal(spr_elias_decode(image, 4, 8, 14, true, out), 0);
}

static void elias_codes_keep_within_their_bound(void **state)
{
    int8_t code[600], out[600];

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + spr_rng_below(&rng, 600);
        int levels = 1 + (int)spr_rng_below(&rng, 127);
        unsigned every = 1 + (unsigned)spr_rng_below(&rng, 20);
        bool sparse = round & 1, most = spr_rng_below(&rng, 3) == 0;
        size_t bytes;

        for (size_t i = 0; i < n; i++) {
            int level = most ? levels : (int)spr_rng_below(&rng, (uint64_t)levels + 1);
            code[i] = (int8_t)(i % every ? 0 : i & 1 ? -level : level);
        }
        bytes = spr_elias_encode(code, n, sparse, image);
        assert_true(bytes <= spr_elias_bound(n, levels, sparse));
        assert_int_equal(spr_elias_decode(image, bytes, n, levels, sparse, out), bytes);
        assert_memory_equal(code, out, n);
    }
}

/* Section 3.3: sigma of {1, -1, ... , 9} and 2.5 of it. */
static void terngrad_clips_and_then_takes_the_largest(void **state)
{
    struct value_case clipped = value_case("terngrad"), plain = value_case("terngrad:clip=0");
    double sum = 0, squares = 0, sigma;

    (void)state;
    for (size_t i = 0; i < 64; i++) {
        x[i] = i == 40 ? 9 : i & 1 ? -1 : 1;
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    sigma = sqrt(squares / 64 - sum / 64 * (sum / 64));
    value_round_trip(&clipped, 1, x, 64, image, back);
    assert_true(fabs((double)float_at(0) - 2.5 * sigma) < 1e-5);
    assert_true(back[40] == float_at(0)); /* what is clipped is as large as s: certain */
    value_round_trip(&plain, 1, x, 64, image, back);
    assert_true(float_at(0) == 9.0f && back[40] == 9);
    for (size_t i = 0; i < 64; i++)
        assert_true(back[i] == 0 || back[i] == copysignf(9, x[i]));
}

/* Whatever is rounded in sums over equal elements is no spread. */
static void terngrad_clips_no_group_without_spread(void **state)
{
    struct value_case c = value_case("terngrad:group=4096");

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + spr_rng_below(&rng, round % 2 ? 4 : 4096);
        float value = (float)(spr_rng_double(&rng) - 0.5);

        for (size_t i = 0; i < n; i++)
            x[i] = value;
        value_round_trip(&c, (uint64_t)round, x, n, image, back);
        if (float_at(0) != fabsf(value))
            fail_msg("%zu times %.9g have the scale %.9g", n, (double)value, (double)float_at(0));
    }
}

/* The smallest magnitudes that have a scale, and zeros among them. */
static void nothing_is_made_of_zeros_at_random(void **state)
{
    static const char *const specs[] = {"int8:rounding=stochastic", "int4:rounding=stochastic",
                                        "qsgd:levels=16,norm=max", "qsgd:levels=127,norm=max"};

    (void)state;
    for (size_t k = 0; k < SPR_ARRAY_LEN(specs); k++) {
        struct value_case c = value_case(specs[k]);

        for (int e = -112; e < -96; e++) {
            for (size_t i = 0; i < 64; i++)
                x[i] = i % 4 ? 0 : ldexpf(1.3f, e) / (float)(1 + i);
            value_round_trip(&c, 1, x, 64, image, back);
            for (size_t i = 0; i < 64; i++)
                assert_true(i % 4 == 0 || back[i] == 0);
        }
    }
}

static void natural_takes_the_powers_of_two_next_to_it(void **state)
{
    struct value_case c = value_case("natural");
    static const float in[] = {2.5f, -0.75f, 4, 0, 0x1p-127f, FLT_MAX, NAN, -INFINITY, 1e-45f};
    unsigned seen = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        assert_int_equal(value_round_trip(&c, seed, in, 9, image, back),
                         16); /* 9 exponents and 9 signs, padded */
        assert_true(back[0] == 2 || back[0] == 4);
        assert_true(back[1] == -0.5f || back[1] == -1);
        assert_true(back[2] == 4 && back[3] == 0);
        assert_true(back[4] == 0 || back[4] == 0x1p-126f);
        assert_true(back[5] == 0x1p127f && isnan(back[6]) && isnan(back[7]) && back[8] == 0);
        seen |= (back[0] == 2 ? 1u : 2u) | (back[1] == -1 ? 4u : 8u) | (back[4] == 0 ? 16u : 32u);
    }
    assert_int_equal(seen, 63);
}

static void halves_stay_finite(void **state)
{
    struct value_case fp16 = value_case("fp16"), bf16 = value_case("bf16");
    static const float in[] = {65504,     65520, -1e30f,     FLT_MAX, INFINITY,
                               -INFINITY, NAN,   65519.996f, 1};

    (void)state;
    for (size_t i = 0; i < 18; i++)
        x[i] = in[i / 2]; /* in vectors of eight and behind them */
    value_round_trip(&fp16, 0, x, 18, image, back);
    assert_true(back[0] == 65504 && back[2] == 65504 && back[4] == -65504 && back[7] == 65504);
    assert_true(back[8] == INFINITY && back[10] == -INFINITY && isnan(back[12]));
    assert_true(back[14] == 65504 && back[16] == 1 && back[17] == 1);
    value_round_trip(&bf16, 0, x, 18, image, back);
    assert_true(back[6] == 0x1.fep127f && back[8] == INFINITY && isnan(back[13]));
}

static void something_not_finite_shows_in_its_group_only(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        size_t n = spr_min_size(3 * c.group, N), at = n / 2;

        for (size_t j = 0; j < SPR_ARRAY_LEN(odd); j++) {
            data_fill(DATA_NORMAL, x, n, &rng);
            x[at] = odd[j];
            value_round_trip(&c, j, x, n, image, back);
            assert_true(!isfinite(back[at]));
            for (size_t i = 0; i < n; i++)
                assert_true(isfinite(back[i]) || i / c.group == at / c.group);
        }
    }
}

/* ---- Errors ---- */

/* The most by which in[i] may be off, where there is a bound and all are finite. `largest` is that
 * of the group. Reciprocals and products are rounded: 2^-20. */
static double error_bound(const struct value_case *c, double value, double largest)
{
    const char *name = c->coder->name;
    bool random = c->traits & SPR_VALUES_RANDOM;

    if (largest < (double)SPR_VALUES_TINY && strcmp(name, "natural") && c->group > 2)
        return largest;
    if (!strcmp(name, "fp32"))
        return 0;
    if (!strcmp(name, "fp16") && fabs(value) <= 65504)
        return fmax(fabs(value) * 0x1p-11, 0x1p-25);
    if (!strcmp(name, "bf16") && fabs(value) <= 0x1.fep127)
        return fmax(fabs(value) * 0x1p-8, 0x1p-133);
    if (!strcmp(name, "int8"))
        return largest / 127 * (random ? 1 : 0.5) * (1 + 0x1p-15);
    if (!strcmp(name, "int4"))
        return largest / 7 * (random ? 1 : 0.5) * (1 + 0x1p-15);
    if (!strcmp(name, "natural") && fabs(value) <= 0x1p127)
        return fmax(fabs(value), 0x1p-126);
    if (strstr(c->spec, "bits="))
        return largest;
    if (!strcmp(name, "bounded"))
        return strstr(c->spec, "0.01,mode=absolute") ? 0.01
               : strstr(c->spec, "absolute")         ? 1e-6
               : strstr(c->spec, "0.0001")           ? 0.0001 * largest
               : strstr(c->spec, "0.3")              ? 0.3 * largest
                                                     : 0.01 * largest;
    return INFINITY;
}

static void errors_keep_within_their_bounds(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        for (enum data kind = 0; kind < DATA_KINDS; kind++) {
            size_t n = spr_rng_below(&rng, N);

            data_fill(kind, x, n, &rng);
            value_round_trip(&c, spr_rng_next(&rng), x, n, image, back);
            for (size_t at = 0; at < n; at += c.group) {
                size_t end = spr_min_size(n, at + c.group);
                double largest = 0;

                for (size_t i = at; i < end; i++)
                    largest = fmax(largest, isnan(x[i]) ? INFINITY : fabs((double)x[i]));
                for (size_t i = at; i < end && !isinf(largest); i++)
                    if (!(fabs((double)x[i] - (double)back[i]) <=
                          error_bound(&c, (double)x[i], largest)))
                        fail_msg("%s, %s: %a became %a, largest %a", c.spec, data_names[kind],
                                 (double)x[i], (double)back[i], largest);
            }
        }
    }
}

/* Means over DRAWS seeds. By Hoeffding, a mean of DRAWS draws between two values a step apart is
 * off by more than 0.027 of the step with a probability of at most 2 exp(-2 * 40000 * 0.027^2) =
 * 1e-25: for all elements and cases together below 1e-21. A rounding to the nearest is off by up to
 * 0.5. */
#define DRAWS 40000
#define OFF 0.027
#define ELEMENTS 48

static void means_of_the_unbiased_are_right(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        double sum[ELEMENTS] = {0}, low[ELEMENTS], high[ELEMENTS];
        uint64_t seed = spr_rng_next(&rng);

        if (!(c.traits & SPR_VALUES_UNBIASED))
            continue;
        data_fill(DATA_NORMAL, x, ELEMENTS, &rng);
        for (size_t i = 0; i < ELEMENTS; i++) {
            low[i] = INFINITY;
            high[i] = -INFINITY;
        }
        for (int draw = 0; draw < DRAWS; draw++) {
            value_round_trip(&c, seed + (uint64_t)draw, x, ELEMENTS, image, back);
            for (size_t i = 0; i < ELEMENTS; i++) {
                sum[i] += (double)back[i];
                low[i] = fmin(low[i], (double)back[i]);
                high[i] = fmax(high[i], (double)back[i]);
            }
        }
        for (size_t i = 0; i < ELEMENTS; i++) {
            double step = high[i] - low[i];

            /* One of the two was never drawn. */
            if (step == 0 && !(c.traits & SPR_VALUES_LOSSLESS))
                step = !strcmp(c.coder->name, "natural") ? fabs((double)x[i]) : (double)float_at(0);
            double allowed = OFF * step + 1e-6 * fabs((double)x[i]);
            if (!(fabs(sum[i] / DRAWS - (double)x[i]) <= allowed))
                fail_msg("%s, seed %llu: %g on average for %g", c.spec, (unsigned long long)seed,
                         sum[i] / DRAWS, (double)x[i]);
        }
    }
}

/* Draws of neighbours, and of one element under neighbouring seeds, have nothing to do with one
 * another: of 2^16 pairs as many agree in a bit as not, within 8 standard deviations (128), which
 * 16 bits x 11 relations miss with a probability below 1e-12. */
static void draws_are_independent(void **state)
{
    static const uint64_t apart[] = {1, 2, 7, 8, 9, 15, 16, 32, 512, 1024};
    uint64_t base = spr_rng_next(&rng) >> 32;

    (void)state;
    for (size_t r = 0; r <= SPR_ARRAY_LEN(apart); r++) {
        int agree[16] = {0};

        for (uint64_t i = 0; i < 0x10000; i++) {
            bool seeds = r == SPR_ARRAY_LEN(apart);
            struct spr_draw a = spr_draw(seeds ? i : 9, 0), b = spr_draw(seeds ? i + 1 : 9, 0);
            uint32_t differ = spr_draw_bits(a, base + (seeds ? 0 : i)) ^
                              spr_draw_bits(b, base + (seeds ? 0 : i + apart[r]));

            for (unsigned bit = 0; bit < 16; bit++)
                agree[bit] += !(differ >> bit & 1);
        }
        for (unsigned bit = 0; bit < 16; bit++)
            assert_true(abs(agree[bit] - 0x8000) < 8 * 128);
    }
}

/* Of so long a vector the end is what it would be by itself. Of a few coders, others in each run.
 */
static void elements_beyond_2_to_the_24_are_coded_as_others(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        struct value_case c = value_case(value_specs[spr_rng_below(&rng, VALUE_CASES)]);
        size_t cut = spr_div_ceil((size_t)1 << 24, c.group) * c.group, n = cut + N - 3;
        uint8_t *bytes = malloc(c.coder->bound(c.options, n));
        float *in = malloc(n * sizeof(float)), *out = malloc(n * sizeof(float));
        size_t size, front;
        const char *why;

        assert_true(bytes && in && out);
        for (size_t i = 0; i < n; i++)
            in[i] = (float)(int32_t)spr_hash_u32(i ^ rng.seed) * 1e-9f;
        size = value_encode(&c, 5, 0, in, n, bytes);
        assert_int_equal(c.coder->check(c.options, bytes, size, n, &why), SPR_OK);
        front = c.coder->decode(c.options, bytes, cut, SPR_DECODE_SET, out);
        assert_int_equal(
            c.coder->decode(c.options, bytes + front, n - cut, SPR_DECODE_SET, out + cut),
            size - front);
        for (size_t i = 0; i < n; i++)
            if (!(fabsf(out[i]) < 100))
                fail_msg("%s: element %zu becomes %g", c.spec, i, (double)out[i]);
        if (!(c.traits & SPR_VALUES_TOGETHER)) {
            assert_int_equal(value_encode(&c, 5, cut, in + cut, n - cut, image), size - front);
            assert_memory_equal(image, bytes + front, size - front);
        }
        free(bytes);
        free(in);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_nearest_and_even_in_the_middle),
        cmocka_unit_test(signs_have_one_mean_or_two),
        cmocka_unit_test(signs_of_huge_values_have_a_mean),
        cmocka_unit_test(qsgd_takes_the_levels_next_to_it),
        cmocka_unit_test(elias_codes_are_those_of_the_paper),
        cmocka_unit_test(elias_codes_keep_within_their_bound),
        cmocka_unit_test(terngrad_clips_and_then_takes_the_largest),
        cmocka_unit_test(terngrad_clips_no_group_without_spread),
        cmocka_unit_test(nothing_is_made_of_zeros_at_random),
        cmocka_unit_test(natural_takes_the_powers_of_two_next_to_it),
        cmocka_unit_test(halves_stay_finite),
        cmocka_unit_test(something_not_finite_shows_in_its_group_only),
        cmocka_unit_test(errors_keep_within_their_bounds),
        cmocka_unit_test(means_of_the_unbiased_are_right),
        cmocka_unit_test(draws_are_independent),
        cmocka_unit_test(elements_beyond_2_to_the_24_are_coded_as_others),
    };

    rng.seed = spr_rng_test_seed();
    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_values_kernels()->name,
           (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
