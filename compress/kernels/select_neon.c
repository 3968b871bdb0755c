/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/select.h"

#include <math.h>

#include "compress/kernels/lanes_neon.h"

static const struct spr_select_kernels *const scalar = &spr_select_kernels_scalar;

static void decay(float *v, const float *g, float d, float c, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        float32x4_t old = vmulq_n_f32(vld1q_f32(v + i), d);
        float32x4_t added = vmulq_n_f32(vld1q_f32(g + i), c);

        vst1q_f32(v + i, vaddq_f32(old, added));
    }
    scalar->decay(v + i, g + i, d, c, n - i);
}

static void momentum(float *v, float *u, const float *g, float m, float c, _Bool nesterov, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        float32x4_t w = vmulq_n_f32(vld1q_f32(g + i), c);
        float32x4_t uu = vld1q_f32(u + i), vv = vld1q_f32(v + i);

        if (nesterov) {
            uu = vmulq_n_f32(vaddq_f32(uu, w), m);
            vv = vaddq_f32(vaddq_f32(vv, uu), w);
        } else {
            uu = vaddq_f32(vmulq_n_f32(uu, m), w);
            vv = vaddq_f32(vv, uu);
        }
        vst1q_f32(u + i, uu);
        vst1q_f32(v + i, vv);
    }
    scalar->momentum(v + i, u + i, g + i, m, c, nesterov, n - i);
}

/* Lanes 0 and 1, 2 and 3, 4 and 5, 6 and 7. */
static inline double tree(const float64x2_t lane[4])
{
    float64x2_t quarter =
        vaddq_f64(vaddq_f64(lane[0], lane[2]), vaddq_f64(lane[1], lane[3])); /* 0+4+2+6, 1+5+3+7 */

    return vgetq_lane_f64(quarter, 0) + vgetq_lane_f64(quarter, 1);
}

static double squares(const float *x, size_t n)
{
    float64x2_t sum[4] = {0};
    double lane[8];
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 4; k++) {
            float64x2_t wide = vcvt_f64_f32(vld1_f32(x + i + 2 * k));

            sum[k] = vaddq_f64(sum[k], vmulq_f64(wide, wide));
        }
    for (size_t k = 0; k < 4; k++)
        vst1q_f64(lane + 2 * k, sum[k]);
    for (; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    for (size_t k = 0; k < 4; k++)
        sum[k] = vld1q_f64(lane + 2 * k);
    return tree(sum);
}

static float l1_block(const float *x)
{
    float32x4_t sum[4] = {0};

    for (size_t i = 0; i < SPR_NORM_BLOCK; i += 16)
        for (size_t k = 0; k < 4; k++)
            sum[k] = vaddq_f32(sum[k], vabsq_f32(vld1q_f32(x + i + 4 * k)));
    float32x4_t half = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    float32x2_t quarter = vadd_f32(vget_low_f32(half), vget_high_f32(half)); /* 0+2, 1+3 */

    return vget_lane_f32(quarter, 0) + vget_lane_f32(quarter, 1);
}

static uint32_t max_block(const float *x)
{
    uint32x4_t most = vdupq_n_u32(0);

    for (size_t i = 0; i < SPR_NORM_BLOCK; i += 4)
        most = vmaxq_u32(most, spr_magnitude4(spr_bits4(x + i)));
    uint32_t bits = vmaxvq_u32(most);

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
    scalar->norms(x + at, n - at, norm, bits);
}

/* The scalar kernel, a plain loop: the compiler makes vectors of it. */
static void strata(const struct spr_strata *s, uint32_t first, size_t n, uint32_t *index)
{
    scalar->strata(s, first, n, index);
}

const struct spr_select_kernels spr_select_kernels_neon = {
    .name = "neon",
    .decay = decay,
    .momentum = momentum,
    .squares = squares,
    .norms = norms,
    .strata = strata,
};
