/* SPDX-License-Identifier: BSD-2-Clause
 *
 * As window_avx2.c, with compressions and expansions in place of its tables.
 */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_avx512.h"

/* Set bits per 64-bit word from which on it is faster to look at all of the bitmap than to look for
 * the bits. */
#define DENSE_WORD 3

/* See spr_add(); the other lanes stay. */
static inline __m512 add16_at(__m512 a, __mmask16 lanes, __m512 b)
{
    __asm__("vaddps %2, %0, %0%{%1%}" : "+v"(a) : "Yk"(lanes), "v"(b));
    return a;
}

size_t spr_avx512_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                           const float *value, size_t readable)
{
    size_t n = 0, w = 0;

    for (; w < words && n + 64 <= readable; w++) {
        uint64_t bits;

        memcpy(&bits, (const char *)bitmap + w * sizeof(bits), sizeof(bits));
        touched[w] |= bits;
        for (float *at = acc + w * 64; at < acc + (w + 1) * 64; at += 16, bits >>= 16) {
            __mmask16 lanes = (__mmask16)bits;
            __m512 v = _mm512_maskz_expand_ps(lanes, _mm512_loadu_ps(value + n));

            _mm512_storeu_ps(at, add16_at(_mm512_loadu_ps(at), lanes, v));
            n += spr_lanes(lanes);
        }
    }
    return n + spr_scalar_add_bits(acc + w * 64, touched + w, (const char *)bitmap + w * 8,
                                   words - w, value + n, readable - n);
}

size_t spr_avx512_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    __m512i at = spr_ramp16();
    size_t n = 0;

    if (spr_avx2_popcount(touched, words) < DENSE_WORD * words)
        return spr_avx2_harvest_sparse(acc, touched, words, pos, val);
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = touched[w];

        for (float *from = acc + w * 64; from < acc + (w + 1) * 64; from += 16, bits >>= 16) {
            __mmask16 lanes = (__mmask16)bits;

            spr_store16(val + n, _mm512_maskz_compress_epi32(lanes, spr_load16(from)));
            _mm256_storeu_si256((__m256i *)(void *)(pos + n),
                                _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(lanes, at)));
            spr_store16(from, _mm512_setzero_si512());
            at = _mm512_add_epi32(at, spr_splat16(16));
            n += spr_lanes(lanes);
        }
        touched[w] = 0;
    }
    return n;
}
