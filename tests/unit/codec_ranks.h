/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks of one process, each with a codec of its own, for the tests of docs/convergence.md.
 */
#ifndef TESTS_UNIT_CODEC_RANKS_H
#define TESTS_UNIT_CODEC_RANKS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "compress/codec.h"
#include "tools/codec/data.h"

#define N 2048 /* elements of a vector, at most */
#define RANKS 4

static struct spr_rng rng;
static uint32_t first_rank; /* random rounding depends on the rank: by the seed, too */

static inline void seed_all(void)
{
    rng.seed = spr_rng_test_seed();
    first_rank = (uint32_t)spr_rng_u64(rng.seed, UINT64_MAX);
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
}

static inline spr_codec *make(const char *spec, size_t rows, size_t columns)
{
    const spr_layout layout = {.id = rng.seed, .rows = rows, .columns = columns};
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create(spec, &layout, 1, &codec), SPR_OK);
    return codec;
}

/* A step of a rank: what others make of it, as a dense vector. */
static inline void step_of(spr_codec *codec, uint32_t rank, const float *gradient, float *sent)
{
    size_t n = spr_codec_elements(codec);
    const struct spr_codec_place place = {.blocks = {spr_codec_vector(codec), 1, 12},
                                          .rank = first_rank + rank};
    struct spr_codec_step step;
    float value[N];

    assert_int_equal(spr_codec_begin_at(codec, gradient, &place, &step), SPR_OK);
    spr_codec_sent(codec, &step, step.index ? value : sent);
    if (step.index) {
        memset(sent, 0, n * sizeof(*sent));
        for (size_t i = 0; i < step.count; i++)
            sent[step.index[i]] = value[i];
    }
    spr_codec_commit(codec);
}

/* |a - b|^2; b may be NULL. */
static inline double square(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sum;
}

#endif
