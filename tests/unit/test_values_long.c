/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Value coders of long vectors, whose images go past the caches.
 */
#include "compress/values/values.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "tests/unit/simd.h"
#include "tests/unit/value_cases.h"

#define GUARD 0x5a

/* Where an index does not fit a float, and images that go past the caches. */
static void vectors_are_long(void **state)
{
    size_t n = ((size_t)1 << 24) + 77, group = 1024, tail = n / group * group;
    struct value_case c = value_case("int8:rounding=stochastic");
    struct spr_draw draw = spr_draw(5, 0);
    size_t bytes = c.coder->bound(c.options, n), front = c.coder->bound(c.options, tail);
    float *x = malloc(n * sizeof(*x)), *residual = calloc(n, sizeof(*residual));
    uint8_t *plain = malloc(bytes), *streamed = malloc(bytes + 8), end[1024];

    (void)state;
    assert_true(x && residual && plain && streamed && bytes - front <= sizeof(end));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)spr_hash_u32(i);
    assert_int_equal(c.coder->encode(c.options, draw, x, n, plain), bytes);
    assert_int_equal(value_encode(&c, 5, tail, x + tail, n - tail, end), bytes - front);
    assert_memory_equal(end, plain + front, bytes - front);

    streamed[bytes + 4] = GUARD;
    assert_int_equal(spr_value_encode(c.coder, c.options, draw, x, n, streamed + 4), bytes);
    assert_memory_equal(streamed + 4, plain, bytes);
    memset(streamed, 0, bytes);
    assert_int_equal(spr_value_feedback(c.coder, c.options, draw, residual, x, n, streamed + 4),
                     bytes);
    assert_memory_equal(streamed + 4, plain, bytes);
    assert_int_equal(streamed[bytes + 4], GUARD);

    c.coder->decode(c.options, plain, n, SPR_DECODE_TAKE, x);
    assert_memory_equal(x, residual, n * sizeof(*x));
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(x[i]) <= 0x1p31f / 127 * 1.0001f);
    free(streamed);
    free(plain);
    free(residual);
    free(x);
}

/* Past the caches go whole lines; what lies in the first one, before an image, and behind it,
 * stays. Elias images of a batch of zeros are shorter than a line. */
static void images_past_the_caches_are_the_same(void **state)
{
    static const char *const specs[] = {"int8", "fp16", "bf16", "qsgd:coding=elias"};
    static const size_t offsets[] = {0, 4, 60, 64};
    size_t n = ((size_t)1 << 23) + 77;
    float *x = calloc(n, sizeof(*x));

    (void)state;
    assert_non_null(x);
    for (size_t i = 70000; i < n; i++)
        x[i] = (float)(int32_t)spr_hash_u32(i);
    for (size_t k = 0; k < SPR_ARRAY_LEN(specs); k++) {
        struct value_case c = value_case(specs[k]);
        size_t bound = c.coder->bound(c.options, n), bytes;
        uint8_t *plain = malloc(bound), *streamed = malloc(bound + 256), *out = streamed + 64;

        assert_true(plain && streamed && bound >= (size_t)8 << 20);
        out += -(uintptr_t)out & 63;
        bytes = c.coder->encode(c.options, spr_draw(5, 0), x, n, plain);
        for (size_t o = 0; o < SPR_ARRAY_LEN(offsets); o++) {
            uint8_t *at = out + offsets[o];

            memset(at - 64, GUARD, 64);
            memset(at + bytes, GUARD, 8);
            assert_int_equal(spr_value_encode(c.coder, c.options, spr_draw(5, 0), x, n, at), bytes);
            assert_memory_equal(at, plain, bytes);
            for (size_t i = 1; i <= 64; i++)
                assert_int_equal(at[-(ptrdiff_t)i], GUARD);
            for (size_t i = 0; i < 8; i++)
                assert_int_equal(at[bytes + i], GUARD);
        }
        free(streamed);
        free(plain);
    }
    free(x);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_are_long),
        cmocka_unit_test(images_past_the_caches_are_the_same),
    };

    printf("kernels: %s\n", spr_values_kernels()->name);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return simd_for_each(run); }
