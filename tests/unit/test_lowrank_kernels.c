/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What PowerSGD is made of: orthonormal bases, and every kernel against the scalar one.
 */
#include "compress/lowrank/lowrank.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/codec/data.h"

static struct spr_rng rng;

static void *zeros(size_t n, size_t bytes)
{
    void *p = calloc(n + 1, bytes); /* never nothing */

    assert_non_null(p);
    return p;
}

static void bases_are_orthonormal_or_zero(void **state)
{
    static float p[300 * SPR_LOWRANK_RANK_MAX];
    static double workspace[300 * SPR_LOWRANK_RANK_MAX];

    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t rows = 1 + spr_rng_below(&rng, 290);
        unsigned rank = 1 + (unsigned)spr_rng_below(&rng, SPR_LOWRANK_RANK_MAX), found = 0;
        memset(p, 0, sizeof(p));
        for (unsigned k = 0; k < rank; k++) { /* some depend on the one before, nearly or quite */
            int kind = (int)spr_rng_below(&rng, 4);
            for (size_t i = 0; i < rows; i++) {
                float random = (float)data_normal(&rng), *to = &p[spr_skinny_at(i, k, rank)];
                float before = k > 0 ? p[spr_skinny_at(i, k - 1, rank)] : 1;
                *to = kind == 0   ? before + 1e-4f * random
                      : kind == 1 ? 3 * before
                                  : ldexpf(random, 9 * (int)(k % 7) - 30);
            }
        }
        spr_lowrank_orthogonalise(p, rows, rank, workspace);
        for (unsigned a = 0; a < rank; a++)
            for (unsigned b = 0; b <= a; b++) {
                double dot = 0;
                for (size_t i = 0; i < rows; i++)
                    dot +=
                        (double)p[spr_skinny_at(i, a, rank)] * (double)p[spr_skinny_at(i, b, rank)];
                found += a == b && dot > 0.5;
                if (a == b && dot > 0)
                    assert_true(fabs(dot - 1) < 1e-6);
                else
                    assert_true(fabs(dot) < 1e-6);
            }
        assert_true(found >= 1 && found <= spr_min_size(rows, rank));
    }
}

/* ---- kernels ---- */

/* Equal bits; NaN where the other has one. */
static void assert_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (data_bits(a[i]) != data_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("element %zu of %zu: %a and %a", i, n, (double)a[i], (double)b[i]);
}

/* A skinny matrix of random data with zeros after its end, at an odd address. */
static float *random_skinny(float *room, size_t rows, unsigned rank, enum data kind)
{
    float *x = room + spr_rng_below(&rng, 8);

    data_fill(kind, x, spr_skinny_floats(rows, rank), &rng);
    for (size_t i = rows; i % SPR_LOWRANK_LANES; i++)
        for (unsigned k = 0; k < rank; k++)
            x[spr_skinny_at(i, k, rank)] = 0;
    return x;
}

static void every_kernel_gives_the_bits_of_the_scalar_one(void **state)
{
    enum { ROUNDS = 400, ROWS = 40, COLUMNS = 1300, GUARD = 8 };
    const struct spr_lowrank_kernels *k[2] = {&spr_lowrank_kernels_scalar, spr_lowrank_kernels()};
    size_t most = (size_t)ROWS * COLUMNS + 16, skinny = 1320 * SPR_LOWRANK_RANK_MAX;
    float *m[2], *out[2], *g = zeros(most, sizeof(float)), *room[3];

    (void)state;
    for (int i = 0; i < 2; i++) {
        m[i] = zeros(most, sizeof(float));
        out[i] = zeros(skinny, sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        room[i] = zeros(skinny, sizeof(float));
    for (int round = 0; round < ROUNDS; round++) {
        unsigned rank = 1 + (unsigned)spr_rng_below(&rng, round % 8 ? 9 : SPR_LOWRANK_RANK_MAX);
        size_t rows = 1 + spr_rng_below(&rng, ROWS);
        size_t columns = 1 + spr_rng_below(&rng, round % 4 ? 70 : COLUMNS), n = rows * columns;
        size_t shift = spr_rng_below(&rng, 8);
        enum data kind = round % 2 ? DATA_NORMAL : (enum data)spr_rng_below(&rng, DATA_KINDS);
        const float *p = random_skinny(room[0], rows, rank, kind);
        const float *q = random_skinny(room[1], columns, rank, kind);
        const float *from = random_skinny(room[2], columns, rank, DATA_NORMAL);
        int what = (int)spr_rng_below(&rng, 8);

        data_fill(kind, g + shift, n, &rng);
        data_fill(kind, m[0] + shift, n + GUARD, &rng);
        memcpy(m[1] + shift, m[0] + shift, (n + GUARD) * sizeof(float));
        for (int i = 0; i < 2; i++)
            k[i]->project(m[i] + shift, rows, columns, rank, what & 1 ? p : NULL,
                          what & 1 ? q : NULL, what & 2 ? g + shift : NULL, what & 4 ? from : NULL,
                          what & 4 ? out[i] + shift : NULL);
        assert_same(m[0] + shift, m[1] + shift, n + GUARD);
        if (what & 4)
            assert_same(out[0] + shift, out[1] + shift, spr_skinny_floats(rows, rank));
        for (int i = 0; i < 2; i++)
            k[i]->correlate(m[0] + shift, rows, columns, rank, p, out[i] + shift);
        assert_same(out[0] + shift, out[1] + shift, spr_skinny_floats(columns, rank));
        for (int i = 0; i < 2; i++)
            k[i]->expand(m[i] + shift, rows, columns, rank, p, q, 0.25f);
        assert_same(m[0] + shift, m[1] + shift, n + GUARD);
    }
    for (int i = 0; i < 2; i++) {
        free(m[i]);
        free(out[i]);
    }
    for (int i = 0; i < 3; i++)
        free(room[i]);
    free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bases_are_orthonormal_or_zero),
        cmocka_unit_test(every_kernel_gives_the_bits_of_the_scalar_one),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
