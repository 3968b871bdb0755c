/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the NEON files of the value coders share.
 */
#ifndef SPR_COMPRESS_KERNELS_VALUES_NEON_H
#define SPR_COMPRESS_KERNELS_VALUES_NEON_H

#include "compress/kernels/lanes_neon.h"
#include "compress/kernels/values.h"

/* DECODE(how, ...) with a constant `how`. */
#define SPR_BY_HOW(DECODE, how, ...)                                                               \
    do {                                                                                           \
        if ((how) == SPR_DECODE_SET)                                                               \
            DECODE(SPR_DECODE_SET, __VA_ARGS__);                                                   \
        else if ((how) == SPR_DECODE_ADD)                                                          \
            DECODE(SPR_DECODE_ADD, __VA_ARGS__);                                                   \
        else                                                                                       \
            DECODE(SPR_DECODE_TAKE, __VA_ARGS__);                                                  \
    } while (0)

/* `how` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void spr_apply4(enum spr_decode how, float *out,
                                                             float32x4_t v)
{
    if (how == SPR_DECODE_ADD)
        v = vaddq_f32(vld1q_f32(out), v);
    else if (how == SPR_DECODE_TAKE)
        v = vsubq_f32(vld1q_f32(out), v);
    vst1q_f32(out, v);
}

/* All ones in the lanes whose magnitude is that of Inf or NaN. */
static inline uint32x4_t spr_not_finite4(uint32x4_t x)
{
    return vcgeq_u32(spr_magnitude4(x), vdupq_n_u32(0x7f800000));
}

/* The same where out may hold what is not finite. */
static inline __attribute__((always_inline)) void spr_apply_finite4(enum spr_decode how, float *out,
                                                                    float32x4_t v)
{
    uint32x4_t old = spr_bits4(out);

    if (how == SPR_DECODE_TAKE) {
        uint32x4_t left = vreinterpretq_u32_f32(vsubq_f32(vld1q_f32(out), v));
        spr_store4(out, vbicq_u32(left, spr_not_finite4(old)));
    } else {
        spr_apply4(how, out, v);
    }
}

/* spr_draw_bits() of the elements i to i + 3 in the lower halves of the lanes, of i + 8 to i + 11
 * in the upper ones; i modulo 16 is 0 or 4. */
static inline uint32x4_t spr_draw4(struct spr_draw draw, uint64_t i)
{
    uint32_t start = ((uint32_t)(i >> 1) & ~7u) | ((uint32_t)i & 7u);
    uint32x4_t x = vaddq_u32(vdupq_n_u32(start), spr_ramp4());

    x = veorq_u32(x, vdupq_n_u32(draw.key[0]));
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    x = vmulq_u32(x, vdupq_n_u32(0x7feb352d));
    x = veorq_u32(x, vshrq_n_u32(x, 15));
    x = vaddq_u32(x, vdupq_n_u32(draw.key[1]));
    x = vmulq_u32(x, vdupq_n_u32(0x846ca68b));
    return veorq_u32(x, vshrq_n_u32(x, 16));
}
/* draw[k]: of the elements i + 4 k to i + 4 k + 3, for 16 elements from a multiple of 16 on. */
static inline void spr_draw16(struct spr_draw draws, uint64_t i, uint32x4_t draw[4])
{
    for (size_t k = 0; k < 2; k++) {
        uint32x4_t both = spr_draw4(draws, i + 4 * k);

        draw[k] = vandq_u32(both, vdupq_n_u32(0xffff));
        draw[k + 2] = vshrq_n_u32(both, 16);
    }
}

/* The low bytes of 16 lanes, in order. */
static inline uint8x16_t spr_bytes16(const uint32x4_t lanes[4])
{
    return vcombine_u8(vmovn_u16(vcombine_u16(vmovn_u32(lanes[0]), vmovn_u32(lanes[1]))),
                       vmovn_u16(vcombine_u16(vmovn_u32(lanes[2]), vmovn_u32(lanes[3]))));
}

/* values_neon.c */
void spr_neon_add(float *r, const float *g, size_t n);
uint32_t spr_neon_largest(const float *x, size_t n);
void spr_neon_sum_sides(const float *x, size_t n, float sum[2]);
void spr_neon_sum_squares(const float *x, size_t n, float sum[2]);
void spr_neon_nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code);
void spr_neon_nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code);
void spr_neon_random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                      int8_t *code);
void spr_neon_decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out);
void spr_neon_decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out);
void spr_neon_natural(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent);

#endif
