/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_avx2.h"

/* Set bits per 64-bit word from which on it is faster to look at every byte of the bitmap than to
 * look for the bits. */
#define DENSE_WORD 4
#define LISTED 256 /* words */

static inline uint64_t load64(const void *bitmap, size_t word)
{
    uint64_t bits;
    memcpy(&bits, (const char *)bitmap + word * sizeof(bits), sizeof(bits));
    return bits;
}

size_t spr_avx2_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                         const float *value, size_t readable)
{
    size_t n = 0, w = 0;

    for (; w < words && n + 64 <= readable; w++) {
        uint64_t bits = load64(bitmap, w);

        touched[w] |= bits;
        for (size_t b = 0; b < 8; b++, bits >>= 8) {
            unsigned mask = bits & 0xff;
            float *at = acc + w * 64 + b * 8;
            __m256 old = _mm256_loadu_ps(at);
            __m256i lanes = _mm256_cvtepi8_epi32(spr_row(spr_lut_expand, mask));
            __m256 add = _mm256_permutevar8x32_ps(_mm256_loadu_ps(value + n), lanes);

            /* Blended by the signs of the lanes, since even adding 0 would change -0. */
            _mm256_storeu_ps(at,
                             _mm256_blendv_ps(spr_add8(old, add), old, _mm256_castsi256_ps(lanes)));
            n += (size_t)__builtin_popcount(mask);
        }
    }
    return n + spr_scalar_add_bits(acc + w * 64, touched + w, (const char *)bitmap + w * 8,
                                   words - w, value + n, readable - n);
}

size_t spr_avx2_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                       float *out)
{
    size_t k = 0, at = 0;

    for (; at + 64 <= n && k + 64 <= readable; at += 64) {
        uint64_t bits = load64(bitmap, at / 64);

        for (size_t b = 0; b < 8; b++, bits >>= 8) {
            unsigned mask = bits & 0xff;
            __m256i lanes = _mm256_cvtepi8_epi32(spr_row(spr_lut_expand, mask));
            __m256 v = _mm256_permutevar8x32_ps(_mm256_loadu_ps(value + k), lanes);

            v = _mm256_blendv_ps(v, _mm256_setzero_ps(), _mm256_castsi256_ps(lanes));
            _mm256_storeu_ps(out + at + b * 8, v);
            k += (size_t)__builtin_popcount(mask);
        }
    }
    return k + spr_scalar_expand((const char *)bitmap + at / 8, n - at, value + k, readable - k,
                                 out + at);
}

/* Faster than the string instructions that memset() takes for as much. */
void spr_avx2_clear(float *out, size_t n)
{
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 32; k += 8)
            _mm256_storeu_ps(out + i + k, _mm256_setzero_ps());
    for (; i < n; i++)
        out[i] = 0;
}

size_t spr_avx2_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos)
{
    __m128i at = _mm_set1_epi16((short)first);
    size_t n = 0;

    for (size_t w = 0; w < words; w++) {
        uint64_t bits = load64(bitmap, w);

        for (size_t b = 0; b < 8; b++, bits >>= 8) {
            __m128i lanes = _mm_cvtepu8_epi16(spr_row(spr_lut_compress, bits & 0xff));

            _mm_storeu_si128((__m128i *)(void *)(pos + n), _mm_add_epi16(lanes, at));
            at = _mm_add_epi16(at, _mm_set1_epi16(8));
            n += (size_t)__builtin_popcount(bits & 0xff);
        }
    }
    return n;
}

static size_t harvest_dense(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    __m128i at = _mm_setzero_si128();
    size_t n = 0;

    for (size_t w = 0; w < words; w++) {
        uint64_t bits = touched[w];

        for (size_t b = 0; b < 8; b++, bits >>= 8) {
            float *from = acc + w * 64 + b * 8;
            __m128i row = spr_row(spr_lut_compress, bits & 0xff);
            __m256 v = _mm256_loadu_ps(from);

            _mm256_storeu_ps(val + n, _mm256_permutevar8x32_ps(v, _mm256_cvtepu8_epi32(row)));
            _mm_storeu_si128((__m128i *)(void *)(pos + n),
                             _mm_add_epi16(_mm_cvtepu8_epi16(row), at));
            _mm256_storeu_ps(from, _mm256_setzero_ps());
            at = _mm_add_epi16(at, _mm_set1_epi16(8));
            n += (size_t)__builtin_popcount(bits & 0xff);
        }
        touched[w] = 0;
    }
    return n;
}

/* Words that hold something are listed first, without a branch: half of them do not. */
size_t spr_avx2_harvest_sparse(float *acc, uint64_t *touched, size_t words, uint16_t *pos,
                               float *val)
{
    uint32_t list[LISTED + 1];
    size_t n = 0;

    for (size_t start = 0; start < words; start += LISTED) {
        size_t end = start + LISTED < words ? start + LISTED : words, found = 0;

        for (size_t w = start; w < end; w++) {
            list[found] = (uint32_t)w;
            found += touched[w] != 0;
        }
        for (const uint32_t *w = list; w < list + found; w++) {
            uint64_t bits = touched[*w];

            touched[*w] = 0;
            do {
                size_t p = *w * (size_t)64 + (size_t)__builtin_ctzll(bits);

                pos[n] = (uint16_t)p;
                val[n] = acc[p];
                n++;
                acc[p] = 0;
                bits &= bits - 1;
            } while (bits);
        }
    }
    return n;
}

size_t spr_avx2_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    if (spr_avx2_popcount(touched, words) >= DENSE_WORD * words)
        return harvest_dense(acc, touched, words, pos, val);
    return spr_avx2_harvest_sparse(acc, touched, words, pos, val);
}

uint64_t spr_avx2_popcount(const void *bitmap, size_t words)
{
    uint64_t n = 0;

    for (size_t w = 0; w < words; w++)
        n += (uint64_t)__builtin_popcountll(load64(bitmap, w));
    return n;
}

_Bool spr_avx2_ascending16(const uint16_t *pos, size_t n)
{
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 17 <= n; i += 16) {
        /* Saturating: zero when the later one is not greater. */
        __m256i step = _mm256_subs_epu16(spr_load8(pos + i + 1), spr_load8(pos + i));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi16(step, _mm256_setzero_si256()));
    }
    return _mm256_testz_si256(bad, bad) && spr_scalar_ascending16(pos + i, n - i);
}

_Bool spr_avx2_ascending32(const uint32_t *pos, size_t n)
{
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 9 <= n; i += 8) {
        __m256i a = spr_load8(pos + i), b = spr_load8(pos + i + 1);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a));
    }
    return _mm256_testz_si256(bad, bad) && spr_scalar_ascending32(pos + i, n - i);
}
