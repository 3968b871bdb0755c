/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_neon.h"

/* Set bits per 64-bit word from which on every byte of the bitmap is looked at, rather than looked
 * for the bits: the border of window_avx2.c. */
#define DENSE_WORD 4

static inline uint64_t load64(const void *bitmap, size_t word)
{
    uint64_t bits;
    memcpy(&bits, (const char *)bitmap + word * sizeof(bits), sizeof(bits));
    return bits;
}

size_t spr_neon_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                         const float *value, size_t readable)
{
    size_t n = 0, w = 0;

    for (; w < words && n + 64 <= readable; w++) {
        uint64_t bits = load64(bitmap, w);

        touched[w] |= bits;
        for (size_t k = 0; k < 64; k += 4, bits >>= 4) {
            unsigned mask = bits & 15;
            float *at = acc + w * 64 + k;
            float32x4_t old = vld1q_f32(at);
            float32x4_t add = vreinterpretq_f32_u32(spr_expand4(spr_bits4(value + n), mask));

            /* Selected, since even adding 0 would change -0. */
            vst1q_f32(at, vbslq_f32(spr_lanes4(mask), vaddq_f32(old, add), old));
            n += spr_count4(mask);
        }
    }
    return n + spr_scalar_add_bits(acc + w * 64, touched + w, (const char *)bitmap + w * 8,
                                   words - w, value + n, readable - n);
}

size_t spr_neon_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                       float *out)
{
    size_t k = 0, at = 0;

    for (; at + 64 <= n && k + 64 <= readable; at += 64) {
        uint64_t bits = load64(bitmap, at / 64);

        for (size_t i = 0; i < 64; i += 4, bits >>= 4) {
            spr_store4(out + at + i, spr_expand4(spr_bits4(value + k), bits & 15));
            k += spr_count4(bits & 15);
        }
    }
    return k + spr_scalar_expand((const char *)bitmap + at / 8, n - at, value + k, readable - k,
                                 out + at);
}

/* The positions of the set bits of a byte, from `first` on. */
static inline void put_positions(uint16_t *pos, unsigned byte, size_t first)
{
    uint16x8_t lanes = vmovl_u8(vcreate_u8(spr_lut_compress[byte]));

    vst1q_u16(pos, vaddq_u16(lanes, vdupq_n_u16((uint16_t)first)));
}

size_t spr_neon_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos)
{
    size_t n = 0;

    for (size_t w = 0; w < words; w++) {
        uint64_t bits = load64(bitmap, w);

        for (size_t k = 0; k < 64; k += 8, bits >>= 8) {
            put_positions(pos + n, bits & 0xff, first + w * 64 + k);
            n += spr_count4(bits & 15) + spr_count4(bits >> 4 & 15);
        }
    }
    return n;
}

static size_t harvest_dense(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    size_t n = 0;

    for (size_t w = 0; w < words; w++) {
        uint64_t bits = touched[w];

        touched[w] = 0;
        for (size_t k = 0; k < 64; k += 8, bits >>= 8) {
            float *from = acc + w * 64 + k;

            put_positions(pos + n, bits & 0xff, w * 64 + k);
            for (unsigned half = 0; half < 8; half += 4) {
                unsigned mask = bits >> half & 15;

                spr_store4(val + n, spr_compress4(spr_bits4(from + half), mask));
                vst1q_f32(from + half, vdupq_n_f32(0));
                n += spr_count4(mask);
            }
        }
    }
    return n;
}

size_t spr_neon_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    if (spr_neon_popcount(touched, words) >= DENSE_WORD * words)
        return harvest_dense(acc, touched, words, pos, val);
    return spr_scalar_harvest(acc, touched, words, pos, val);
}

uint64_t spr_neon_popcount(const void *bitmap, size_t words)
{
    uint64x2_t sum = vdupq_n_u64(0);
    size_t w = 0;

    for (; w + 2 <= words; w += 2) {
        uint8x16_t bytes = vcntq_u8(vld1q_u8((const uint8_t *)bitmap + w * 8));

        sum = vpadalq_u32(sum, vpaddlq_u16(vpaddlq_u8(bytes)));
    }
    return vaddvq_u64(sum) + spr_scalar_popcount((const char *)bitmap + w * 8, words - w);
}

_Bool spr_neon_ascending16(const uint16_t *pos, size_t n)
{
    uint16x8_t bad = vdupq_n_u16(0);
    size_t i = 0;

    for (; i + 9 <= n; i += 8)
        bad = vorrq_u16(bad, vcgeq_u16(vld1q_u16(pos + i), vld1q_u16(pos + i + 1)));
    return vmaxvq_u16(bad) == 0 && spr_scalar_ascending16(pos + i, n - i);
}

_Bool spr_neon_ascending32(const uint32_t *pos, size_t n)
{
    uint32x4_t bad = vdupq_n_u32(0);
    size_t i = 0;

    for (; i + 5 <= n; i += 4)
        bad = vorrq_u32(bad, vcgeq_u32(vld1q_u32(pos + i), vld1q_u32(pos + i + 1)));
    return vmaxvq_u32(bad) == 0 && spr_scalar_ascending32(pos + i, n - i);
}
