/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Four lanes, by mask and in order. Only for arm64, whose base architecture has NEON.
 */
#ifndef SPR_COMPRESS_KERNELS_LANES_NEON_H
#define SPR_COMPRESS_KERNELS_LANES_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "compress/kernels/kernels.h"

/* For a mask of four lanes, the bytes of its lanes in order, and where they are again: a byte from
 * beyond the vector is zero. lut_neon.c */
extern const uint32_t spr_lut_compress4[16][4];
extern const uint32_t spr_lut_expand4[16][4];

static inline uint32x4_t spr_bits4(const float *x) { return vreinterpretq_u32_f32(vld1q_f32(x)); }
static inline void spr_store4(float *x, uint32x4_t bits)
{
    vst1q_f32(x, vreinterpretq_f32_u32(bits));
}

static inline uint32x4_t spr_magnitude4(uint32x4_t x)
{
    return vbicq_u32(x, vdupq_n_u32(1u << 31));
}

static inline uint32x4_t spr_key4(uint32x4_t x)
{
    return vminq_u32(spr_magnitude4(x), vdupq_n_u32(SPR_NAN_KEY));
}

/* 0, 1, 2, 3 */
static inline uint32x4_t spr_ramp4(void)
{
    static const uint32_t lanes[4] = {0, 1, 2, 3};

    return vld1q_u32(lanes);
}

/* Bit l of the mask is lane l of `lanes`, which are all ones or zero; and the inverse. */
static inline unsigned spr_mask4(uint32x4_t lanes)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};

    return vaddvq_u32(vandq_u32(lanes, vld1q_u32(bit)));
}
static inline uint32x4_t spr_lanes4(unsigned mask)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};

    return vtstq_u32(vdupq_n_u32(mask), vld1q_u32(bit));
}

static inline uint32x4_t spr_permute4(uint32x4_t v, const uint32_t row[4])
{
    return vreinterpretq_u32_u8(
        vqtbl1q_u8(vreinterpretq_u8_u32(v), vreinterpretq_u8_u32(vld1q_u32(row))));
}
/* The lanes of a mask side by side; what follows them is of no use. */
static inline uint32x4_t spr_compress4(uint32x4_t v, unsigned mask)
{
    return spr_permute4(v, spr_lut_compress4[mask]);
}
/* The inverse, zero in the other lanes. */
static inline uint32x4_t spr_expand4(uint32x4_t v, unsigned mask)
{
    return spr_permute4(v, spr_lut_expand4[mask]);
}

/* Set bits. */
static inline size_t spr_count4(unsigned mask)
{
    return (size_t)(0x4332322132212110u >> 4 * mask & 15);
}

#endif
