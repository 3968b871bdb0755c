/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Statistics and quantising; the rest, and the table, are in values_bits_avx2.c.
 *
 * What quantises a group comes to it for the second time and finds it in L1, while memory is idle:
 * there the next one is asked for (ahead.h).
 */
#include "compress/kernels/values_avx2.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- Statistics ---- */

void spr_avx2_add(float *r, const float *g, size_t n)
{
    const size_t ahead = spr_ahead_in_order();
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        spr_ahead32(r + i, ahead);
        spr_ahead32(g + i, ahead);
        for (size_t k = 0; k < 32; k += 8)
            _mm256_storeu_ps(r + i + k,
                             _mm256_add_ps(_mm256_loadu_ps(r + i + k), _mm256_loadu_ps(g + i + k)));
    }
    spr_values_kernels_scalar.add(r + i, g + i, n - i);
}

uint32_t spr_avx2_largest(const float *x, size_t n)
{
    __m256i most[4] = {0};
    uint32_t a, b;
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 4; k++)
            most[k] = _mm256_max_epu32(most[k], spr_magnitude8(spr_load8(x + i + k * 8)));
    a = spr_largest_lane(
        _mm256_max_epu32(_mm256_max_epu32(most[0], most[1]), _mm256_max_epu32(most[2], most[3])));
    b = spr_values_kernels_scalar.largest(x + i, n - i);
    return a > b ? a : b;
}

/* The rest of a vector goes to the lanes one by one, as everything does in the scalar kernel. */
static void store_lanes(const __m256 sum[4], float lane[SPR_SUM_LANES])
{
    for (size_t k = 0; k < 4; k++)
        _mm256_storeu_ps(lane + k * 8, sum[k]);
}

void spr_avx2_sum_sides(const float *x, size_t n, float sum[2])
{
    __m256 plus[4] = {0}, minus[4] = {0};
    float lane[2][SPR_SUM_LANES];
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 4; k++) {
            __m256 v = _mm256_loadu_ps(x + i + k * 8);
            __m256 side = _mm256_castsi256_ps(_mm256_srai_epi32(_mm256_castps_si256(v), 31));

            plus[k] = _mm256_add_ps(plus[k], _mm256_andnot_ps(side, v));
            minus[k] = _mm256_add_ps(minus[k], _mm256_and_ps(side, v));
        }
    store_lanes(plus, lane[0]);
    store_lanes(minus, lane[1]);
    for (; i < n; i++)
        lane[__builtin_signbit(x[i]) != 0][i % SPR_SUM_LANES] += x[i];
    sum[0] = spr_sum_lanes(lane[0]);
    sum[1] = spr_sum_lanes(lane[1]);
}

void spr_avx2_sum_squares(const float *x, size_t n, float sum[2])
{
    __m256 plain[4] = {0}, square[4] = {0};
    float lane[2][SPR_SUM_LANES];
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        for (size_t k = 0; k < 4; k++) {
            __m256 v = _mm256_loadu_ps(x + i + k * 8);

            plain[k] = _mm256_add_ps(plain[k], v);
            square[k] = _mm256_add_ps(square[k], _mm256_mul_ps(v, v));
        }
    }
    store_lanes(plain, lane[0]);
    store_lanes(square, lane[1]);
    for (; i < n; i++) {
        lane[0][i % SPR_SUM_LANES] += x[i];
        lane[1][i % SPR_SUM_LANES] += x[i] * x[i];
    }
    sum[0] = spr_sum_lanes(lane[0]);
    sum[1] = spr_sum_lanes(lane[1]);
}

/* ---- Quantising ---- */

INLINE __m256i nearest(const float *x, float inverse, float limit)
{
    return spr_nearest8(_mm256_loadu_ps(x), inverse, limit);
}

void spr_avx2_nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    const size_t ahead = spr_ahead_next(n);
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        spr_ahead32(x + i, ahead);
        spr_store8(code + i, spr_bytes32(nearest(x + i, q.inverse, q.limit),
                                         nearest(x + i + 8, q.inverse, q.limit),
                                         nearest(x + i + 16, q.inverse, q.limit),
                                         nearest(x + i + 24, q.inverse, q.limit)));
    }
    spr_values_kernels_scalar.nearest8(x + i, n - i, q, code + i);
}

void spr_avx2_nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m256i pair = _mm256_packs_epi32(nearest(x + i, q.inverse, q.limit),
                                          nearest(x + i + 8, q.inverse, q.limit));
        spr_store8(code + i, _mm256_permute4x64_epi64(pair, 0xd8));
    }
    spr_values_kernels_scalar.nearest16(x + i, n - i, q, code + i);
}

INLINE __m256i up_by(const float *x, float inverse, float limit, __m256i draw)
{
    return _mm256_srai_epi32(_mm256_add_epi32(nearest(x, inverse, limit), draw), 16);
}

void spr_avx2_random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                      int8_t *code)
{
    const float inverse = q.inverse * 0x1p16f, limit = q.limit * 0x1p16f;
    const size_t ahead = spr_ahead_next(n);
    size_t i = spr_draw_head(draw, n);

    spr_values_kernels_scalar.random8(x, i, q, draw, code);
    for (; i + 32 <= n; i += 32) {
        __m256i a = spr_draw16(draw, draw.first + i), b = spr_draw16(draw, draw.first + i + 16);

        spr_ahead32(x + i, ahead);
        spr_store8(code + i, spr_bytes32(up_by(x + i, inverse, limit, spr_draw_lower(a)),
                                         up_by(x + i + 8, inverse, limit, spr_draw_upper(a)),
                                         up_by(x + i + 16, inverse, limit, spr_draw_lower(b)),
                                         up_by(x + i + 24, inverse, limit, spr_draw_upper(b))));
    }
    spr_values_kernels_scalar.random8(x + i, n - i, q, spr_draw_after(draw, i), code + i);
}

INLINE void decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const size_t ahead = spr_ahead_of_two();
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        spr_ahead32(out + i, ahead);
        for (size_t k = 0; k < 32; k += 8) {
            __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(code + i + k));
            __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
            spr_apply8(out + i + k, _mm256_mul_ps(v, factor), how);
        }
    }
    spr_values_kernels_scalar.decode8(code + i, n - i, scale, how, out + i);
}

void spr_avx2_decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        decode8(code, n, scale, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        decode8(code, n, scale, SPR_DECODE_ADD, out);
    else
        decode8(code, n, scale, SPR_DECODE_TAKE, out);
}

INLINE void decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    const __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i words = _mm_loadu_si128((const __m128i *)(const void *)(code + i));
        __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words));
        spr_apply8(out + i, _mm256_mul_ps(v, factor), how);
    }
    spr_values_kernels_scalar.decode16(code + i, n - i, scale, how, out + i);
}

void spr_avx2_decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        decode16(code, n, scale, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        decode16(code, n, scale, SPR_DECODE_ADD, out);
    else
        decode16(code, n, scale, SPR_DECODE_TAKE, out);
}
