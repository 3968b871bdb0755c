/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Adding two vectors in one pass gives the bits of loading, adding and storing one after the other.
 */
#include "collectives/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define MOST 3000
#define VECTOR_BYTES (MOST * sizeof(double))

static _Alignas(8) char a[VECTOR_BYTES], b[VECTOR_BYTES], c[VECTOR_BYTES], wide[VECTOR_BYTES],
    expected[VECTOR_BYTES], got[VECTOR_BYTES];

/* Any bits, NaN and infinity among them; integers as they come. */
static void fill(struct spr_rng *rng, char *to)
{
    for (size_t i = 0; i < VECTOR_BYTES; i += sizeof(uint64_t)) {
        uint64_t x = spr_rng_next(rng);
        memcpy(to + i, &x, sizeof x);
    }
}

static void check(spr_dtype dtype, spr_op op, size_t n)
{
    const size_t bytes = n * spr_dtype_size(dtype);
    const struct spr_reduce_two only = {dtype, dtype, op, true, true, 2};
    const struct spr_reduce_two first = {dtype, dtype, op, true, false, 3},
                                last = {dtype, dtype, op, false, true, 3};

    /* Two ranks, into a third vector and in place. */
    spr_reduce_load(dtype, wide, a, n);
    spr_reduce_add(dtype, op, wide, b, n);
    spr_reduce_store(dtype, op, expected, wide, n, 2);
    spr_reduce_two(&only, got, a, b, n);
    assert_memory_equal(got, expected, bytes);
    memcpy(got, a, bytes);
    spr_reduce_two(&only, got, got, b, n);
    assert_memory_equal(got, expected, bytes);
    memcpy(got, b, bytes);
    spr_reduce_two(&only, got, a, got, n);
    assert_memory_equal(got, expected, bytes);
    /* Three. */
    spr_reduce_load(dtype, wide, a, n);
    spr_reduce_add(dtype, op, wide, b, n);
    spr_reduce_add(dtype, op, wide, c, n);
    spr_reduce_store(dtype, op, expected, wide, n, 3);
    spr_reduce_two(&first, wide, a, b, n);
    memcpy(got, c, bytes);
    spr_reduce_two(&last, got, wide, got, n);
    assert_memory_equal(got, expected, bytes);
}

/* Sums of two that stay as wide as they are, and are the elements of the next call. */
static void check_wide(spr_dtype dtype, spr_op op, size_t n)
{
    static _Alignas(8) char left[VECTOR_BYTES], right[VECTOR_BYTES];
    const spr_dtype acc = spr_reduce_acc(dtype);
    const spr_op part = op == SPR_AVG ? SPR_SUM : op;
    const struct spr_reduce_two widen = {dtype, acc, part, true, true, 3},
                                next = {dtype, acc, part, false, true, 3},
                                only = {acc, dtype, op, true, true, 3},
                                last = {acc, dtype, op, false, true, 3};

    spr_reduce_load(dtype, wide, a, n);
    spr_reduce_add(dtype, part, wide, b, n);
    spr_reduce_two(&widen, left, a, b, n);
    assert_memory_equal(left, wide, n * spr_dtype_size(acc));
    spr_reduce_add(dtype, part, wide, c, n);
    memcpy(right, left, n * spr_dtype_size(acc));
    spr_reduce_two(&next, right, right, c, n);
    assert_memory_equal(right, wide, n * spr_dtype_size(acc));
    /* One pass over the two wide ones. */
    spr_reduce_add(acc, part, wide, left, n);
    spr_reduce_store(dtype, op, expected, wide, n, 3);
    spr_reduce_two(&only, got, right, left, n);
    assert_memory_equal(got, expected, n * spr_dtype_size(dtype));
    memset(got, 0, sizeof got);
    spr_reduce_two(&last, got, right, left, n);
    assert_memory_equal(got, expected, n * spr_dtype_size(dtype));
}

static void one_pass_gives_the_bits_of_three(void **state)
{
    struct spr_rng rng = {.seed = spr_rng_test_seed()};

    (void)state;
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    for (int dtype = SPR_FP32; dtype <= SPR_INT64; dtype++) {
        for (int op = SPR_SUM; op <= SPR_MAX; op++) {
            fill(&rng, a);
            fill(&rng, b);
            fill(&rng, c);
            for (size_t n = 0; n < 20; n++)
                check((spr_dtype)dtype, (spr_op)op, n);
            for (size_t n = 0; n < 20; n++)
                check_wide((spr_dtype)dtype, (spr_op)op, n);
            check((spr_dtype)dtype, (spr_op)op, 1024);
            check((spr_dtype)dtype, (spr_op)op, 1 + (size_t)spr_rng_below(&rng, MOST - 1));
            check((spr_dtype)dtype, (spr_op)op, MOST);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pass_gives_the_bits_of_three),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
