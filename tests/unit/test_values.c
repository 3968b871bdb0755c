/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every value coder, with options: the image, the way back, what is refused. What each of them
 * means is in test_values_meaning.c.
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

#include "base/cpu.h"
#include "base/crc32c.h"
#include "tools/codec/data.h"
#include "tests/unit/simd.h"
#include "tests/unit/value_cases.h"

#define N 5000
#define ROOM (N + 8)
#define BYTES (8 * ROOM)
#define GUARD 0x5a

static struct spr_rng rng;
static float vector[ROOM], gradient[ROOM], back[3][ROOM];
static _Alignas(16) uint8_t image[2][BYTES];

/* A vector of a random kind at a random alignment; every length up to 140 comes often. */
static float *random_vector(size_t *n)
{
    float *x = vector + spr_rng_below(&rng, 8);

    *n = spr_rng_below(&rng, spr_rng_below(&rng, 3) ? 140 : N);
    data_fill((enum data)spr_rng_below(&rng, DATA_KINDS), x, *n, &rng);
    return x;
}

/* Encodes with a seed of its own, and checks what holds for every image. */
static size_t encode(const struct value_case *c, uint64_t seed, const float *x, size_t n,
                     uint8_t *out)
{
    size_t bound = c->coder->bound(c->options, n), bytes;
    const char *why = NULL;

    assert_true(bound + 4 <= BYTES && bound % 4 == 0);
    memset(out, GUARD, BYTES);
    bytes = value_encode(c, seed, 0, x, n, out);
    assert_true(bytes <= bound && bytes % 4 == 0);
    if (c->traits & SPR_VALUES_FIXED)
        assert_int_equal(bytes, bound);
    for (size_t i = bytes; i < bytes + 4; i++)
        assert_int_equal(out[i], GUARD);
    if (c->coder->check(c->options, out, bytes, n, &why) != SPR_OK)
        fail_msg("%s: %s", c->spec, why);
    return bytes;
}

static void decode(const struct value_case *c, const uint8_t *bytes, size_t n, enum spr_decode how,
                   float *out)
{
    float behind = 12.5f;

    memcpy(out + n, &behind, sizeof(behind));
    c->coder->decode(c->options, bytes, n, how, out);
    assert_memory_equal(out + n, &behind, sizeof(behind));
}

static bool same_bits_or_nan(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (data_bits(a[i]) != data_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* ---- For every case ---- */

static void all_instruction_sets_agree(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        for (int round = 0; round < 150; round++) {
            uint64_t seed = spr_rng_next(&rng), first = spr_rng_next(&rng);
            size_t n, bytes;
            const float *x = random_vector(&n);
            struct spr_draw draw = spr_draw(seed, first);

            spr_cpu_override(0);
            bytes = encode(&c, seed, x, n, image[0]);
            spr_cpu_override(simd_features);
            assert_int_equal(encode(&c, seed, x, n, image[1]), bytes);
            assert_memory_equal(image[0], image[1], bytes);
            /* An odd start, and an image that is aligned to 4 only. */
            spr_cpu_override(0);
            bytes = c.coder->encode(c.options, draw, x, n, image[0] + 4);
            spr_cpu_override(simd_features);
            c.coder->encode(c.options, draw, x, n, image[1] + 4);
            assert_memory_equal(image[0] + 4, image[1] + 4, bytes);

            data_fill(DATA_NORMAL, gradient, n, &rng);
            for (enum spr_decode how = SPR_DECODE_SET; how <= SPR_DECODE_TAKE; how++) {
                const float *old = how == SPR_DECODE_TAKE ? x : gradient;

                for (int simd = 0; simd < 2; simd++) {
                    memcpy(back[simd], old, n * sizeof(float));
                    spr_cpu_override(simd ? simd_features : 0);
                    decode(&c, image[1] + 4, n, how, back[simd]);
                }
                assert_true(same_bits_or_nan(back[0], back[1], n));
            }
        }
    }
}

static void an_image_may_be_cut_between_groups(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        for (int round = 0; round < 20; round++) {
            uint64_t seed = spr_rng_next(&rng);
            size_t n, cut, bytes, front;
            const float *x = random_vector(&n);

            cut = spr_rng_below(&rng, n / c.group + 1) * c.group;
            bytes = encode(&c, seed, x, n, image[0]);
            /* Decoded in two parts. */
            c.coder->decode(c.options, image[0], n, SPR_DECODE_SET, back[0]);
            front = c.coder->decode(c.options, image[0], cut, SPR_DECODE_SET, back[1]);
            assert_int_equal(c.coder->decode(c.options, image[0] + front, n - cut, SPR_DECODE_SET,
                                             back[1] + cut),
                             bytes - front);
            assert_memory_equal(back[0], back[1], n * sizeof(float));
            if (c.traits & SPR_VALUES_FIXED)
                assert_int_equal(c.coder->bound(c.options, cut), front);
            if (c.traits & SPR_VALUES_TOGETHER)
                continue;
            /* And encoded. */
            assert_int_equal(value_encode(&c, seed, 0, x, cut, image[1]), front);
            assert_int_equal(value_encode(&c, seed, cut, x + cut, n - cut, image[1] + front),
                             bytes - front);
            assert_memory_equal(image[0], image[1], bytes);
        }
    }
}

static void adding_and_taking_are_what_they_say(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        for (int round = 0; round < 20; round++) {
            size_t n;
            const float *x = random_vector(&n);

            encode(&c, 7, x, n, image[0]);
            decode(&c, image[0], n, SPR_DECODE_SET, back[0]);
            data_fill(DATA_NORMAL, gradient, n, &rng);
            memcpy(back[1], gradient, n * sizeof(float));
            decode(&c, image[0], n, SPR_DECODE_ADD, back[1]);
            memcpy(back[2], x, n * sizeof(float));
            decode(&c, image[0], n, SPR_DECODE_TAKE, back[2]);
            for (size_t i = 0; i < n; i++) {
                float sum = gradient[i] + back[0][i], rest = x[i] - back[0][i];

                if (!isfinite(x[i]))
                    rest = 0; /* it was sent */
                else if (!isfinite(back[0][i]))
                    rest = x[i]; /* a neighbour was not finite: it was not */
                assert_true(sum == back[1][i] || (isnan(sum) && isnan(back[1][i])));
                assert_true(rest == back[2][i]);
                /* What is finite stays so; what is not is seen. */
                assert_true(!isfinite(back[0][i]) || isfinite(x[i]));
                assert_false(isinf(back[0][i]) && !isinf(x[i]));
            }
        }
    }
}

/* Sent and kept are, together, what came in. */
static void feedback_keeps_what_was_not_sent(void **state)
{
    static float residual[2][ROOM];

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        struct spr_draw draw = spr_draw(spr_rng_next(&rng), 0);

        for (int round = 0; round < 20; round++) {
            size_t n, bytes;
            const float *x = random_vector(&n);

            data_fill(DATA_NORMAL, residual[0], n, &rng);
            for (size_t i = 0; i < n; i++)
                residual[1][i] = residual[0][i] + x[i];
            bytes = spr_value_feedback(c.coder, c.options, draw, residual[0], x, n, image[0]);
            assert_int_equal(c.coder->encode(c.options, draw, residual[1], n, image[1]), bytes);
            assert_memory_equal(image[0], image[1], bytes);
            c.coder->decode(c.options, image[1], n, SPR_DECODE_TAKE, residual[1]);
            assert_memory_equal(residual[0], residual[1], n * sizeof(float));
        }
    }
}

static void values_go_to_positions(void **state)
{
    static float acc[65536], expected[65536];
    static uint64_t touched[1024];
    static uint16_t pos[N];

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        size_t n = 3000, bytes;

        data_fill(DATA_LAYERS, vector, n, &rng);
        bytes = encode(&c, 1, vector, n, image[0]);
        c.coder->decode(c.options, image[0], n, SPR_DECODE_SET, back[0]);
        memset(touched, 0, sizeof(touched));
        for (size_t i = 0; i < SPR_ARRAY_LEN(acc); i++)
            acc[i] = expected[i] = 1;
        for (size_t i = 0; i < n; i++) {
            pos[i] = (uint16_t)(21 * i + 13);
            expected[pos[i]] += back[0][i];
        }
        assert_int_equal(spr_value_add_at(c.coder, c.options, image[0], pos, n, acc, touched),
                         bytes);
        assert_memory_equal(acc, expected, sizeof(acc));
        for (size_t i = 0; i < n; i++)
            assert_true(touched[pos[i] / 64] >> pos[i] % 64 & 1);
    }
}

static void zeros_and_single_elements_come_back(void **state)
{
    static const float ones[] = {0, -0.0f, 1, -3.5f, 1e-20f, FLT_MAX, -FLT_MAX, 1e-44f, FLT_MIN};

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        memset(vector, 0, sizeof(vector));
        for (size_t n = 0; n < 70; n++) {
            encode(&c, n, vector, n, image[0]);
            decode(&c, image[0], n, SPR_DECODE_SET, back[0]);
            for (size_t i = 0; i < n; i++)
                assert_true(back[0][i] == 0);
        }
        for (size_t i = 0; i < SPR_ARRAY_LEN(ones); i++) {
            encode(&c, i, &ones[i], 1, image[0]);
            decode(&c, image[0], 1, SPR_DECODE_SET, back[0]);
            assert_true(isfinite(back[0][0]));
            assert_true(back[0][0] == 0 || signbit(back[0][0]) == signbit(ones[i]));
        }
    }
}

static void every_other_size_is_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);

        for (int round = 0; round < 20; round++) {
            size_t n, bytes;
            const float *x = random_vector(&n);
            const char *why;

            bytes = encode(&c, 3, x, n, image[0]);
            memset(image[0] + bytes, 0, 16);
            for (size_t size = bytes > 40 ? bytes - 40 : 0; size < bytes + 16; size++) {
                if (size == bytes)
                    continue;
                why = NULL;
                assert_int_equal(c.coder->check(c.options, image[0], size, n, &why), SPR_ERR_PROTO);
                assert_non_null(why);
            }
        }
    }
}

/* The first word of an image that has scales. */
static void bad_scales_are_refused(void **state)
{
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000,
                                   0x7f800001, 0xbf800000, 0x80000001};

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        const char *why = NULL;
        size_t bytes;

        if (c.group == 1 || c.group == 2 || !strcmp(c.coder->name, "natural"))
            continue;
        data_fill(DATA_NORMAL, vector, 200, &rng);
        bytes = encode(&c, 3, vector, 200, image[0]);
        for (size_t i = 0; i < SPR_ARRAY_LEN(bad); i++) {
            memcpy(image[0], &bad[i], 4);
            assert_int_equal(c.coder->check(c.options, image[0], bytes, 200, &why), SPR_ERR_PROTO);
        }
    }
}

static void padding_must_be_zero(void **state)
{
    static const float x[5] = {1, 0, 0, 0, 0}; /* no coder fills words with these */

    (void)state;
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        bool elias = strstr(c.spec, "coding=") != NULL;
        const char *why = NULL;
        size_t bytes;

        if (c.group == 1 || strstr(c.spec, "error=1e-6")) /* floats as they are */
            continue;
        bytes = encode(&c, 3, x, 5, image[0]);
        image[0][bytes - 1] ^= elias ? 1 : 0x80;
        assert_int_equal(c.coder->check(c.options, image[0], bytes, 5, &why), SPR_ERR_PROTO);
    }
}

/* 66 groups of 1000 are the least that hold 65536 values. */
static void every_window_has_a_budget_of_its_own(void **state)
{
    enum { SPAN = 66000, ALL = 2 * SPAN + 500 };
    static float x[ALL];
    static _Alignas(4) uint8_t whole[ALL], parts[ALL];
    struct value_case c = value_case("bounded:error=0,bits=6,group=1000");
    size_t bytes, used = 0;

    (void)state;
    data_fill(DATA_LAYERS, x, ALL, &rng);
    bytes = value_encode(&c, 0, 0, x, ALL, whole);
    for (size_t at = 0; at < ALL; at += SPAN) {
        size_t n = spr_min_size(SPAN, ALL - at), part = value_encode(&c, 0, 0, x + at, n, parts);

        assert_true(8 * part <= 6 * n);
        assert_memory_equal(parts, whole + used, part);
        used += part;
    }
    assert_int_equal(used, bytes);
}

/* ---- The format ---- */

/* CRC-32C of the image of 1500 values made from integers: what is on the wire does not change
 * unseen. In the order of value_specs. */
static const uint32_t golden[VALUE_CASES] = {
    0x59fb400a, /* fp32 */
    0x2974bab2, /* fp16 */
    0x10641730, /* bf16 */
    0x6ae3a42d, /* int8 */
    0x6fa627ee, /* int8:rounding=stochastic */
    0x349b11d6, /* int8:group=8,rounding=stochastic */
    0xbae27fdb, /* int8:group=4096 */
    0x11554808, /* int4 */
    0xf8537fb0, /* int4:rounding=stochastic,group=77 */
    0x42cc9c45, /* sign */
    0x8546ead3, /* sign:group=100 */
    0xe8c56d2f, /* sign:means=two */
    0x58d2224f, /* sign:means=two,group=33 */
    0x88653648, /* qsgd */
    0x6890760e, /* qsgd:levels=1,bucket=64 */
    0x38162fe9, /* qsgd:levels=4,norm=max */
    0xd3b911d1, /* qsgd:levels=127,bucket=4096 */
    0x8c94bd1f, /* qsgd:coding=elias */
    0x1fbd2f07, /* qsgd:coding=elias,levels=127,norm=max */
    0xc59e2c75, /* qsgd:coding=sparse,levels=1 */
    0x801b1a22, /* qsgd:coding=sparse,levels=100,norm=max,bucket=50 */
    0x247478a6, /* terngrad */
    0x24e7b8db, /* terngrad:clip=0 */
    0x05f743c7, /* terngrad:group=9 */
    0x3758f2a7, /* natural */
    0x23cf85f2, /* bounded */
    0x08c2e7b7, /* bounded:error=0.0001 */
    0x2aec9e9c, /* bounded:error=0.3,group=41 */
    0x52c004f9, /* bounded:error=0.01,mode=absolute */
    0xf59e010f, /* bounded:error=1e-6,mode=absolute */
    0x321a3d97, /* bounded:error=0,bits=4 */
    0x0c804c68, /* bounded:bits=5,group=64 */
    0x4953b7f9, /* bounded:error=0.0001,mode=absolute,bits=9.5,group=33 */
};

static void images_are_what_they_were(void **state)
{
    bool all = true;

    (void)state;
    for (size_t i = 0; i < 1500; i++) {
        int32_t a = (int32_t)spr_hash_u32(i), b = (int32_t)spr_hash_u32(i + 5000);
        vector[i] = (float)a * 0x1p-31f * (float)(b >> 16) * 0x1p-15f;
    }
    for (size_t k = 0; k < VALUE_CASES; k++) {
        struct value_case c = value_case(value_specs[k]);
        size_t bytes = encode(&c, 2026, vector, 1500, image[0]);
        uint32_t crc = spr_crc32c(0, image[0], bytes);

        if (crc != golden[k])
            print_message("0x%08x, /* %s */\n", crc, c.spec);
        all = all && crc == golden[k];
    }
    assert_true(all);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_instruction_sets_agree),
        cmocka_unit_test(an_image_may_be_cut_between_groups),
        cmocka_unit_test(adding_and_taking_are_what_they_say),
        cmocka_unit_test(feedback_keeps_what_was_not_sent),
        cmocka_unit_test(values_go_to_positions),
        cmocka_unit_test(zeros_and_single_elements_come_back),
        cmocka_unit_test(every_other_size_is_refused),
        cmocka_unit_test(bad_scales_are_refused),
        cmocka_unit_test(padding_must_be_zero),
        cmocka_unit_test(every_window_has_a_budget_of_its_own),
        cmocka_unit_test(images_are_what_they_were),
    };

    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_values_kernels()->name,
           (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    rng.seed = spr_rng_test_seed();
    return simd_for_each(run);
}
