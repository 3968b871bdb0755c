/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dense input: a pure function of (seed, rank, position), so that every rank can recompute what any
 * rank puts in.
 *
 * Integers take all values of their type. Floating point numbers are k * 2^-p, |k| <= 2^p, with p
 * the precision of the type (53, 24, 11, 8 bits), so they are exact, and their sums are not.
 */
#ifndef SPR_TOOLS_PERF_DATA_H
#define SPR_TOOLS_PERF_DATA_H

#include <stdint.h>

#include <sparring/types.h>

#include "base/rng.h"

/* Key of a stream of numbers: `rank` is any number that tells streams apart. */
uint64_t data_key(uint64_t seed, uint64_t stream);
/* The i-th 32 random bits of a stream. */
static inline uint32_t data_bits(uint64_t key, uint64_t i)
{
    return spr_hash_u32(key + i * 0x9e3779b97f4a7c15u);
}
/* The i-th number of a stream of fp32: in [-1, 1), never 0. */
static inline float data_float(uint64_t key, uint64_t i)
{
    return (float)((int32_t)(data_bits(key, i) >> 7 | 1) - (1 << 24)) * 0x1p-24f;
}

/* Elements first .. first + count - 1 of a rank's input. */
void data_fill(spr_dtype dtype, uint64_t seed, int rank, size_t first, size_t count, void *out);
/* in as doubles. Not for int64. */
void data_to_double(spr_dtype dtype, const void *in, size_t count, double *out);
/* in as 64-bit integers: int32 and int64 only. */
void data_to_int64(spr_dtype dtype, const void *in, size_t count, int64_t *out);

#endif
