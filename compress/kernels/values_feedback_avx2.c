/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Error feedback: what is done to a residual in one pass.
 */
#include "compress/kernels/values_avx2.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Four vectors of r += g. */
INLINE void add32(float *r, const float *g, __m256 sum[4])
{
    for (size_t k = 0; k < 4; k++) {
        sum[k] = _mm256_add_ps(_mm256_loadu_ps(r + k * 8), _mm256_loadu_ps(g + k * 8));
        _mm256_storeu_ps(r + k * 8, sum[k]);
    }
}

uint32_t spr_avx2_add_largest(float *r, const float *g, size_t n)
{
    const size_t ahead = spr_ahead_in_order();
    __m256i most[4] = {0};
    uint32_t a, b;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m256 sum[4];

        spr_ahead32(r + i, ahead);
        spr_ahead32(g + i, ahead);
        add32(r + i, g + i, sum);
        for (size_t k = 0; k < 4; k++)
            most[k] = _mm256_max_epu32(most[k], spr_magnitude8(_mm256_castps_si256(sum[k])));
    }
    a = spr_largest_lane(
        _mm256_max_epu32(_mm256_max_epu32(most[0], most[1]), _mm256_max_epu32(most[2], most[3])));
    b = spr_values_kernels_scalar.add_largest(r + i, g + i, n - i);
    return a > b ? a : b;
}

INLINE __m256i nearest_take(float *x, struct spr_quantiser q)
{
    __m256 v = _mm256_loadu_ps(x);
    __m256i code = spr_nearest8(v, q.inverse, q.limit);
    __m256 sent = _mm256_mul_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(q.scale));

    _mm256_storeu_ps(x, _mm256_sub_ps(v, sent));
    return code;
}

void spr_avx2_nearest8_take(float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m256i lanes[4];

        spr_ahead32(x + i, SPR_AHEAD_BYTES);
        for (size_t k = 0; k < 4; k++)
            lanes[k] = nearest_take(x + i + k * 8, q);
        spr_store8(code + i, spr_bytes32(lanes[0], lanes[1], lanes[2], lanes[3]));
    }
    spr_values_kernels_scalar.nearest8_take(x + i, n - i, q, code + i);
}

float spr_avx2_add_signs(float *r, const float *g, size_t n, uint8_t *out)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const size_t ahead = spr_ahead_in_order();
    __m256 total[4] = {0};
    float lane[SPR_SUM_LANES];
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m256 sum[4];

        spr_ahead32(r + i, ahead);
        spr_ahead32(g + i, ahead);
        add32(r + i, g + i, sum);
        for (size_t k = 0; k < 4; k++)
            total[k] = _mm256_add_ps(total[k], _mm256_andnot_ps(sign, sum[k]));
        uint32_t bits = spr_mask32(_mm256_castps_si256(sum[0]), _mm256_castps_si256(sum[1]),
                                   _mm256_castps_si256(sum[2]), _mm256_castps_si256(sum[3]));
        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    for (size_t k = 0; k < 4; k++)
        _mm256_storeu_ps(lane + k * 8, total[k]);
    spr_values_kernels_scalar.add(r + i, g + i, n - i);
    spr_values_kernels_scalar.signs(r + i, n - i, out + i / 8);
    return spr_sum_with(lane, r + i, n - i);
}
