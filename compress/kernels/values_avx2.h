/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the AVX2 files of the value coders share. Only for files that are compiled for AVX2.
 */
#ifndef SPR_COMPRESS_KERNELS_VALUES_AVX2_H
#define SPR_COMPRESS_KERNELS_VALUES_AVX2_H

#include <stdbool.h>

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx2.h"
#include "compress/kernels/values.h"

/* What a vector has left for the scalar kernels, and tables that both files fill. */
extern const struct spr_values_kernels spr_values_kernels_scalar;

/* `how` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void spr_apply8(float *out, __m256 v,
                                                             enum spr_decode how)
{
    if (how == SPR_DECODE_ADD)
        v = _mm256_add_ps(_mm256_loadu_ps(out), v);
    else if (how == SPR_DECODE_TAKE)
        v = _mm256_sub_ps(_mm256_loadu_ps(out), v);
    _mm256_storeu_ps(out, v);
}

/* All ones in the lanes whose magnitude is that of Inf or NaN. */
static inline __m256i spr_not_finite8(__m256i x)
{
    return _mm256_cmpgt_epi32(spr_magnitude8(x), _mm256_set1_epi32(0x7f7fffff));
}

/* The same where out may hold what is not finite. */
static inline __attribute__((always_inline)) void spr_apply_finite8(float *out, __m256 v,
                                                                    enum spr_decode how)
{
    if (how != SPR_DECODE_TAKE) {
        spr_apply8(out, v, how);
        return;
    }
    __m256 r = _mm256_loadu_ps(out), odd = _mm256_castsi256_ps(spr_not_finite8(spr_load8(out)));
    _mm256_storeu_ps(out, _mm256_andnot_ps(odd, _mm256_sub_ps(r, v)));
}

/* spr_draw_bits() of 16 elements from a multiple of 16 on: those of the first eight are the lower
 * halves of the lanes. */
static inline __m256i spr_draw16(struct spr_draw draw, uint64_t i)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i x = _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)(i >> 1)), lanes);

    x = _mm256_xor_si256(x, _mm256_set1_epi32((int)draw.key[0]));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7feb352d));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    x = _mm256_add_epi32(x, _mm256_set1_epi32((int)draw.key[1]));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)0x846ca68bu));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}
static inline __m256i spr_draw_lower(__m256i draws)
{
    return _mm256_and_si256(draws, _mm256_set1_epi32(0xffff));
}
static inline __m256i spr_draw_upper(__m256i draws) { return _mm256_srli_epi32(draws, 16); }

/* Top bits of 32 lanes. */
static inline uint32_t spr_mask32(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return (uint32_t)spr_mask8(a) | (uint32_t)spr_mask8(b) << 8 | (uint32_t)spr_mask8(c) << 16 |
           (uint32_t)spr_mask8(d) << 24;
}

static inline uint32_t spr_largest_lane(__m256i a)
{
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

static inline __m256i spr_nearest8(__m256 x, float inverse, float limit)
{
    __m256 y = _mm256_min_ps(_mm256_mul_ps(x, _mm256_set1_ps(inverse)), _mm256_set1_ps(limit));

    return _mm256_cvtps_epi32(_mm256_max_ps(y, _mm256_set1_ps(-limit)));
}

/* Four vectors of codes as 32 bytes in order. */
static inline __m256i spr_bytes32(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));

    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#endif
