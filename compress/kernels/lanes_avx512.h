/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sixteen lanes by mask. Only for files that are compiled for AVX-512.
 *
 * Lanes are compressed in a register and stored whole: Zen 4 takes a hundred cycles and more for a
 * compression into memory.
 */
#ifndef SPR_COMPRESS_KERNELS_LANES_AVX512_H
#define SPR_COMPRESS_KERNELS_LANES_AVX512_H

#include <immintrin.h>

#include "compress/kernels/kernels.h"

static inline __m512i spr_load16(const void *p) { return _mm512_loadu_si512(p); }
static inline void spr_store16(void *p, __m512i v) { _mm512_storeu_si512(p, v); }
static inline __m512i spr_splat16(uint32_t v) { return _mm512_set1_epi32((int)v); }
static inline __m512i spr_ramp16(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline __m512i spr_magnitude16(__m512i x)
{
    return _mm512_and_si512(x, spr_splat16(0x7fffffff));
}

static inline __m512i spr_key16(__m512i x)
{
    return _mm512_min_epu32(spr_magnitude16(x), spr_splat16(SPR_NAN_KEY));
}

/* Lanes with a magnitude of at least the unsigned t. */
static inline __mmask16 spr_at_least16(__m512i x, __m512i t)
{
    return _mm512_cmpge_epu32_mask(spr_magnitude16(x), t);
}

/* In assembly, since of a mask that it has put on the stack gcc 12 counts 16 bits too many (at -O1
 * for ThreadSanitizer): it stores the lower half of a word, and takes the upper one for zero. */
static inline size_t spr_lanes(__mmask16 lanes)
{
    unsigned bits;

    __asm__("kmovw %1, %0" : "=r"(bits) : "Yk"(lanes));
    return (size_t)__builtin_popcount(bits);
}

#endif
