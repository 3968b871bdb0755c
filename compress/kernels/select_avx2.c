/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/select.h"

#include <math.h>

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx2.h"

static void decay(float *v, const float *g, float d, float c, size_t n)
{
    const __m256 dd = _mm256_set1_ps(d), cc = _mm256_set1_ps(c);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        spr_ahead(v + i, SPR_AHEAD_BYTES);
        spr_ahead(g + i, SPR_AHEAD_BYTES);
        __m256 old = _mm256_mul_ps(dd, _mm256_loadu_ps(v + i));
        __m256 added = _mm256_mul_ps(cc, _mm256_loadu_ps(g + i));

        _mm256_storeu_ps(v + i, _mm256_add_ps(old, added));
    }
    spr_select_kernels_scalar.decay(v + i, g + i, d, c, n - i);
}

static void momentum(float *v, float *u, const float *g, float m, float c, _Bool nesterov, size_t n)
{
    const __m256 mm = _mm256_set1_ps(m), cc = _mm256_set1_ps(c);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        spr_ahead(g + i, SPR_AHEAD_BYTES);
        spr_ahead(u + i, SPR_AHEAD_BYTES);
        spr_ahead(v + i, SPR_AHEAD_BYTES);
        __m256 w = _mm256_mul_ps(cc, _mm256_loadu_ps(g + i));
        __m256 uu = _mm256_loadu_ps(u + i), vv = _mm256_loadu_ps(v + i);

        if (nesterov) {
            uu = _mm256_mul_ps(mm, _mm256_add_ps(uu, w));
            vv = _mm256_add_ps(_mm256_add_ps(vv, uu), w);
        } else {
            uu = _mm256_add_ps(_mm256_mul_ps(mm, uu), w);
            vv = _mm256_add_ps(vv, uu);
        }
        _mm256_storeu_ps(u + i, uu);
        _mm256_storeu_ps(v + i, vv);
    }
    spr_select_kernels_scalar.momentum(v + i, u + i, g + i, m, c, nesterov, n - i);
}

/* Lanes 0 to 3 in a, 4 to 7 in b. */
static inline double tree_pd(__m256d a, __m256d b)
{
    __m256d half = _mm256_add_pd(a, b); /* 0+4, 1+5, 2+6, 3+7 */
    __m128d quarter = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));

    return _mm_cvtsd_f64(_mm_add_sd(quarter, _mm_unpackhi_pd(quarter, quarter)));
}

static inline __m256d square4(const float *x)
{
    __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(x));

    return _mm256_mul_pd(wide, wide);
}

static double squares(const float *x, size_t n)
{
    __m256d a = _mm256_setzero_pd(), b = a;
    double lane[8];
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        a = _mm256_add_pd(a, square4(x + i));
        b = _mm256_add_pd(b, square4(x + i + 4));
    }
    if (i == n)
        return tree_pd(a, b);
    _mm256_storeu_pd(lane, a);
    _mm256_storeu_pd(lane + 4, b);
    for (; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    return tree_pd(_mm256_loadu_pd(lane), _mm256_loadu_pd(lane + 4));
}

static float l1_block(const float *x)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 a = _mm256_setzero_ps(), b = a;

    for (size_t i = 0; i < SPR_NORM_BLOCK; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        a = _mm256_add_ps(a, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i)));
        b = _mm256_add_ps(b, _mm256_and_ps(magnitude, _mm256_loadu_ps(x + i + 8)));
    }
    a = _mm256_add_ps(a, b);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half)); /* lanes 0+2, 1+3 */

    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
}

static uint32_t max_block(const float *x)
{
    __m256i most = _mm256_setzero_si256();

    for (size_t i = 0; i < SPR_NORM_BLOCK; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        most = _mm256_max_epi32(most, spr_magnitude8(spr_load8(x + i)));
        most = _mm256_max_epi32(most, spr_magnitude8(spr_load8(x + i + 8)));
    }
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    uint32_t bits = (uint32_t)_mm_cvtsi128_si32(half);

    return bits < SPR_NAN_KEY ? bits : SPR_NAN_KEY;
}

static void norms(const float *x, size_t n, enum spr_norm norm, uint32_t *bits)
{
    size_t at = 0;

    for (; at + SPR_NORM_BLOCK <= n; at += SPR_NORM_BLOCK)
        if (norm == SPR_NORM_L1)
            *bits++ = spr_key(l1_block(x + at));
        else if (norm == SPR_NORM_L2)
            *bits++ = spr_key((float)sqrt(squares(x + at, SPR_NORM_BLOCK)));
        else
            *bits++ = max_block(x + at);
    spr_select_kernels_scalar.norms(x + at, n - at, norm, bits);
}

static inline __m256i mix8(__m256i x)
{
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7feb352d));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)0x846ca68bu));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

static void strata(const struct spr_strata *s, uint32_t first, size_t n, uint32_t *index)
{
    const __m256i length = _mm256_set1_epi32((int)s->length);
    const __m256i longer = _mm256_set1_epi32((int)s->longer);
    const __m256i key0 = _mm256_set1_epi32((int)s->key[0]);
    const __m256i key1 = _mm256_set1_epi32((int)s->key[1]);
    const __m256i eight = _mm256_set1_epi32(8);
    __m256i j =
        _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    size_t i = 0;

    for (; i + 8 <= n; i += 8, j = _mm256_add_epi32(j, eight)) {
        __m256i random = mix8(_mm256_xor_si256(mix8(_mm256_xor_si256(j, key0)), key1));
        __m256i extra = _mm256_min_epu32(j, longer);
        __m256i start = _mm256_add_epi32(_mm256_mullo_epi32(j, length), extra);
        /* j >= longer: 0, else -1 */
        __m256i has_one =
            _mm256_xor_si256(_mm256_cmpeq_epi32(extra, longer), _mm256_set1_epi32(-1));
        __m256i len = _mm256_sub_epi32(length, has_one);
        __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(random, len), 32);
        __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(random, 32), _mm256_srli_epi64(len, 32));

        spr_store8(index + i, _mm256_add_epi32(start, _mm256_blend_epi32(even, odd, 0xaa)));
    }
    spr_select_kernels_scalar.strata(s, first + (uint32_t)i, n - i, index + i);
}

const struct spr_select_kernels spr_select_kernels_avx2 = {
    .name = "avx2",
    .decay = decay,
    .momentum = momentum,
    .squares = squares,
    .norms = norms,
    .strata = strata,
};
