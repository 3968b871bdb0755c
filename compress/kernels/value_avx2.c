/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_avx2.h"

void spr_avx2_fp16_encode(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(out + i), half);
    }
    spr_scalar_fp16_encode(in + i, out + i, n - i);
}

void spr_avx2_fp16_decode(const uint16_t *in, float *out, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
    spr_scalar_fp16_decode(in + i, out + i, n - i);
}

/* Eight bf16 in the low halves of the lanes. */
static inline __m256i bf16_of(__m256i x)
{
    __m256i upper = _mm256_srli_epi32(x, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(x, bias), 16);
    __m256i nan = _mm256_cmpgt_epi32(spr_magnitude8(x), _mm256_set1_epi32(0x7f800000));
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));

    return _mm256_blendv_epi8(rounded, quiet, nan);
}

void spr_avx2_bf16_encode(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        /* The pack works within 128-bit halves; the permutation puts its quarters in order. */
        __m256i pair =
            _mm256_packus_epi32(bf16_of(spr_load8(in + i)), bf16_of(spr_load8(in + i + 8)));
        spr_store8(out + i, _mm256_permute4x64_epi64(pair, 0xd8));
    }
    spr_scalar_bf16_encode(in + i, out + i, n - i);
}

void spr_avx2_bf16_decode(const uint16_t *in, float *out, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        spr_store8(out + i, _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
    spr_scalar_bf16_decode(in + i, out + i, n - i);
}
