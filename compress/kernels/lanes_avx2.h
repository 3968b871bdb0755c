/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Eight lanes by mask. Only for files that are compiled for AVX2.
 */
#ifndef SPR_COMPRESS_KERNELS_LANES_AVX2_H
#define SPR_COMPRESS_KERNELS_LANES_AVX2_H

#include <immintrin.h>

#include "compress/kernels/kernels.h"

static inline __m256i spr_load8(const void *p) { return _mm256_loadu_si256(p); }
static inline void spr_store8(void *p, __m256i v) { _mm256_storeu_si256(p, v); }

/* See spr_add(). */
static inline __m256 spr_add8(__m256 a, __m256 b)
{
    __asm__("vaddps %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
}

static inline __m256i spr_magnitude8(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
}

static inline __m256i spr_key8(__m256i x)
{
    return _mm256_min_epu32(spr_magnitude8(x), _mm256_set1_epi32((int)SPR_NAN_KEY));
}

/* Top bits of the lanes. */
static inline unsigned spr_mask8(__m256i lanes)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* A row of a table as bytes, and widened to lanes. */
static inline __m128i spr_row(const uint64_t lut[256], unsigned mask)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)&lut[mask]);
}
static inline __m256i spr_row8(const uint64_t lut[256], unsigned mask)
{
    return _mm256_cvtepu8_epi32(spr_row(lut, mask));
}

/* Threshold for _mm256_cmpgt_epi32 that means ">= t": signed compares serve, since magnitudes have
 * no sign bit; t = 0 becomes -1, and t = 2^31 a number that no magnitude exceeds. */
static inline __m256i spr_at_least8(uint32_t t) { return _mm256_set1_epi32((int)(t - 1)); }

#endif
