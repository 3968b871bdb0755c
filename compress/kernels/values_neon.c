/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Statistics and quantising; the rest, and the table, are in values_bits_neon.c.
 */
#include "compress/kernels/values_neon.h"

#define INLINE static inline __attribute__((always_inline))
#define VECTORS (SPR_SUM_LANES / 4)

/* ---- Statistics ---- */

void spr_neon_add(float *r, const float *g, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(r + i, vaddq_f32(vld1q_f32(r + i), vld1q_f32(g + i)));
    spr_values_kernels_scalar.add(r + i, g + i, n - i);
}

uint32_t spr_neon_largest(const float *x, size_t n)
{
    uint32x4_t most[4] = {0};
    uint32_t a, b;
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 4; k++)
            most[k] = vmaxq_u32(most[k], spr_magnitude4(spr_bits4(x + i + 4 * k)));
    a = vmaxvq_u32(vmaxq_u32(vmaxq_u32(most[0], most[1]), vmaxq_u32(most[2], most[3])));
    b = spr_values_kernels_scalar.largest(x + i, n - i);
    return a > b ? a : b;
}

/* The rest of a vector goes to the lanes one by one, as everything does in the scalar kernel. */
static void store_lanes(const float32x4_t sum[VECTORS], float lane[SPR_SUM_LANES])
{
    for (size_t k = 0; k < VECTORS; k++)
        vst1q_f32(lane + k * 4, sum[k]);
}

void spr_neon_sum_sides(const float *x, size_t n, float sum[2])
{
    float32x4_t plus[VECTORS] = {0}, minus[VECTORS] = {0};
    float lane[2][SPR_SUM_LANES];
    size_t i = 0;

    for (; i + SPR_SUM_LANES <= n; i += SPR_SUM_LANES)
        for (size_t k = 0; k < VECTORS; k++) {
            uint32x4_t v = spr_bits4(x + i + k * 4);
            uint32x4_t side = vcltzq_s32(vreinterpretq_s32_u32(v));

            plus[k] = vaddq_f32(plus[k], vreinterpretq_f32_u32(vbicq_u32(v, side)));
            minus[k] = vaddq_f32(minus[k], vreinterpretq_f32_u32(vandq_u32(v, side)));
        }
    store_lanes(plus, lane[0]);
    store_lanes(minus, lane[1]);
    for (; i < n; i++)
        lane[__builtin_signbit(x[i]) != 0][i % SPR_SUM_LANES] += x[i];
    sum[0] = spr_sum_lanes(lane[0]);
    sum[1] = spr_sum_lanes(lane[1]);
}

void spr_neon_sum_squares(const float *x, size_t n, float sum[2])
{
    float32x4_t plain[VECTORS] = {0}, square[VECTORS] = {0};
    float lane[2][SPR_SUM_LANES];
    size_t i = 0;

    for (; i + SPR_SUM_LANES <= n; i += SPR_SUM_LANES)
        for (size_t k = 0; k < VECTORS; k++) {
            float32x4_t v = vld1q_f32(x + i + k * 4);

            plain[k] = vaddq_f32(plain[k], v);
            square[k] = vaddq_f32(square[k], vmulq_f32(v, v));
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

/* The minimum and the maximum of a NaN and a number are the number, as in the scalar kernel. */
static inline int32x4_t nearest4(const float *x, float inverse, float limit)
{
    float32x4_t y = vmulq_f32(vld1q_f32(x), vdupq_n_f32(inverse));

    y = vminnmq_f32(y, vdupq_n_f32(limit));
    return vcvtnq_s32_f32(vmaxnmq_f32(y, vdupq_n_f32(-limit)));
}

void spr_neon_nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    const float inverse = q.inverse, limit = q.limit;
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        uint32x4_t codes[4];

        for (size_t k = 0; k < 4; k++)
            codes[k] = vreinterpretq_u32_s32(nearest4(x + i + 4 * k, inverse, limit));
        vst1q_s8(code + i, vreinterpretq_s8_u8(spr_bytes16(codes)));
    }
    spr_values_kernels_scalar.nearest8(x + i, n - i, q, code + i);
}

void spr_neon_nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1_s16(code + i, vmovn_s32(nearest4(x + i, q.inverse, q.limit)));
    spr_values_kernels_scalar.nearest16(x + i, n - i, q, code + i);
}

void spr_neon_random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                      int8_t *code)
{
    const float inverse = q.inverse * 0x1p16f, limit = q.limit * 0x1p16f;
    size_t i = spr_draw_head(draw, n);

    spr_values_kernels_scalar.random8(x, i, q, draw, code);
    for (; i + 16 <= n; i += 16) {
        uint32x4_t codes[4];

        spr_draw16(draw, draw.first + i, codes);
        for (size_t k = 0; k < 4; k++) {
            int32x4_t y = nearest4(x + i + 4 * k, inverse, limit);

            y = vshrq_n_s32(vaddq_s32(y, vreinterpretq_s32_u32(codes[k])), 16);
            codes[k] = vreinterpretq_u32_s32(y);
        }
        vst1q_s8(code + i, vreinterpretq_s8_u8(spr_bytes16(codes)));
    }
    spr_values_kernels_scalar.random8(x + i, n - i, q, spr_draw_after(draw, i), code + i);
}

INLINE void scaled(enum spr_decode how, float *out, int16x4_t code, float scale)
{
    spr_apply4(how, out, vmulq_f32(vcvtq_f32_s32(vmovl_s16(code)), vdupq_n_f32(scale)));
}

INLINE void decode8(enum spr_decode how, const int8_t *code, size_t n, float scale, float *out)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        int16x8_t words = vmovl_s8(vld1_s8(code + i));

        scaled(how, out + i, vget_low_s16(words), scale);
        scaled(how, out + i + 4, vget_high_s16(words), scale);
    }
    spr_values_kernels_scalar.decode8(code + i, n - i, scale, how, out + i);
}

void spr_neon_decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    SPR_BY_HOW(decode8, how, code, n, scale, out);
}

INLINE void decode16(enum spr_decode how, const int16_t *code, size_t n, float scale, float *out)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        scaled(how, out + i, vld1_s16(code + i), scale);
    spr_values_kernels_scalar.decode16(code + i, n - i, scale, how, out + i);
}

void spr_neon_decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    SPR_BY_HOW(decode16, how, code, n, scale, out);
}

/* ---- Powers of two ---- */

static inline uint32x4_t exponent_of(const float *x, uint32x4_t draw)
{
    uint32x4_t mag = spr_magnitude4(spr_bits4(x));
    uint32x4_t add = vorrq_u32(vshlq_n_u32(draw, 7), vdupq_n_u32(0x40));
    uint32x4_t up = vshrq_n_u32(vaddq_u32(mag, add), 23);

    return vbslq_u32(spr_not_finite4(mag), vdupq_n_u32(255), vminq_u32(up, vdupq_n_u32(254)));
}

void spr_neon_natural(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent)
{
    size_t i = spr_draw_head(draw, n);

    spr_values_kernels_scalar.natural(x, i, draw, exponent);
    for (; i + 16 <= n; i += 16) {
        uint32x4_t codes[4];

        spr_draw16(draw, draw.first + i, codes);
        for (size_t k = 0; k < 4; k++)
            codes[k] = exponent_of(x + i + 4 * k, codes[k]);
        vst1q_u8(exponent + i, spr_bytes16(codes));
    }
    spr_values_kernels_scalar.natural(x + i, n - i, spr_draw_after(draw, i), exponent + i);
}
