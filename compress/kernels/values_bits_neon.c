/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Packing, signs, powers of two and half precision; and the table.
 */
#include "compress/kernels/values_neon.h"

#include <stdbool.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static const struct spr_values_kernels *const scalar = &spr_values_kernels_scalar;

static inline uint64_t load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline void store64(void *p, uint64_t v) { memcpy(p, &v, sizeof(v)); }

/* ---- Packing ----
 *
 * There is no instruction that gathers bits, so neighbours are put side by side, then pairs of
 * them, and so on.
 */

#define EVEN_BYTES 0x00ff00ff00ff00ffu
#define EVEN_WORDS 0x0000ffff0000ffffu
#define EVERY_OTHER 0x0000000100000001u
#define EACH_WORD 0x0001000100010001u
#define EACH_BYTE 0x0101010101010101u

/* Four words, or eight bytes, that are below 2^width, side by side; width < 16, or 8. */
static inline uint64_t join_words(uint64_t v, unsigned width)
{
    v = (v & EVEN_WORDS) | (v >> 16 & EVEN_WORDS) << width;
    return (uint32_t)v | v >> 32 << 2 * width;
}
static inline uint64_t join_bytes(uint64_t v, unsigned width)
{
    return join_words((v & EVEN_BYTES) | (v >> 8 & EVEN_BYTES) << width, 2 * width);
}

/* The inverse; what is above them in v is ignored. */
static inline uint64_t part_words(uint64_t v, unsigned width)
{
    uint64_t pair = (UINT64_C(1) << 2 * width) - 1, each = EVERY_OTHER * ((1u << width) - 1);

    v = (v & pair) | (v >> 2 * width & pair) << 32;
    return (v & each) | (v >> width & each) << 16;
}
static inline uint64_t part_bytes(uint64_t v, unsigned width)
{
    uint64_t each = EACH_WORD * ((1u << width) - 1);

    v = part_words(v, 2 * width);
    return (v & each) | (v >> width & each) << 8;
}

static void pack8(const int8_t *code, size_t n, unsigned width, uint8_t *out)
{
    const uint64_t mask = EACH_BYTE * ((1u << width) - 1);
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 8) {
        memcpy(out, code, n);
        return;
    }
    /* Eight bytes are stored, of which `width` count. */
    for (; i + 8 <= n && i / 8 * width + 8 <= bytes; i += 8)
        store64(out + i / 8 * width, join_bytes(load64(code + i) & mask, width));
    scalar->pack8(code + i, n - i, width, out + i / 8 * width);
}

static void pack16(const int16_t *code, size_t n, unsigned width, uint8_t *out)
{
    const uint64_t mask = EACH_WORD * ((1u << width) - 1);
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 16) {
        memcpy(out, code, 2 * n);
        return;
    }
    for (; i + 8 <= n && i / 8 * width + 16 <= bytes; i += 8) {
        uint64_t a = join_words(load64(code + i) & mask, width);
        uint64_t b = join_words(load64(code + i + 4) & mask, width);
        unsigned __int128 both = (unsigned __int128)b << 4 * width | a;

        memcpy(out + i / 8 * width, &both, sizeof(both));
    }
    scalar->pack16(code + i, n - i, width, out + i / 8 * width);
}

static void unpack8(const uint8_t *in, size_t n, unsigned width, int8_t *code)
{
    const uint8x8_t sign = vdup_n_u8((uint8_t)(1u << (width - 1)));
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 8) {
        memcpy(code, in, n);
        return;
    }
    for (; i + 8 <= n && i / 8 * width + 8 <= bytes; i += 8) {
        uint8x8_t v = vcreate_u8(part_bytes(load64(in + i / 8 * width), width));

        vst1_s8(code + i, vreinterpret_s8_u8(vsub_u8(veor_u8(v, sign), sign)));
    }
    scalar->unpack8(in + i / 8 * width, n - i, width, code + i);
}

static void unpack16(const uint8_t *in, size_t n, unsigned width, int16_t *code)
{
    const uint16x8_t sign = vdupq_n_u16((uint16_t)(1u << (width - 1)));
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 16) {
        memcpy(code, in, 2 * n);
        return;
    }
    for (; i + 8 <= n && i / 8 * width + 16 <= bytes; i += 8) {
        unsigned __int128 both;

        memcpy(&both, in + i / 8 * width, sizeof(both));
        uint16x8_t v = vcombine_u16(vcreate_u16(part_words((uint64_t)both, width)),
                                    vcreate_u16(part_words((uint64_t)(both >> 4 * width), width)));
        vst1q_s16(code + i, vreinterpretq_s16_u16(vsubq_u16(veorq_u16(v, sign), sign)));
    }
    scalar->unpack16(in + i / 8 * width, n - i, width, code + i);
}

/* ---- Signs and powers of two ---- */

/* Top bits of the lanes. */
static inline unsigned signs4(const float *x)
{
    return spr_mask4(vcltzq_s32(vreinterpretq_s32_u32(spr_bits4(x))));
}

static float signs(const float *x, size_t n, uint8_t *out)
{
    float32x4_t sum[SPR_SUM_LANES / 4] = {0};
    float lane[SPR_SUM_LANES];
    size_t i = 0;

    for (; i + SPR_SUM_LANES <= n; i += SPR_SUM_LANES)
        for (size_t k = 0; k < SPR_SUM_LANES; k += 8) {
            const float *at = x + i + k;

            out[(i + k) / 8] = (uint8_t)(signs4(at) | signs4(at + 4) << 4);
            sum[k / 4] = vaddq_f32(sum[k / 4], vabsq_f32(vld1q_f32(at)));
            sum[k / 4 + 1] = vaddq_f32(sum[k / 4 + 1], vabsq_f32(vld1q_f32(at + 4)));
        }
    for (size_t k = 0; k < SPR_SUM_LANES; k += 4)
        vst1q_f32(lane + k, sum[k / 4]);
    scalar->signs(x + i, n - i, out + i / 8);
    return spr_sum_with(lane, x + i, n - i);
}

INLINE void decode_signs(enum spr_decode how, const uint8_t *bits, size_t n, const float value[2],
                         float *out)
{
    const float32x4_t plus = vdupq_n_f32(value[0]), minus = vdupq_n_f32(value[1]);
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (unsigned k = 0; k < 8; k += 4) {
            uint32x4_t sign = spr_lanes4((unsigned)bits[i / 8] >> k);
            spr_apply4(how, out + i + k, vbslq_f32(sign, minus, plus));
        }
    scalar->decode_signs(bits + i / 8, n - i, value, how, out + i);
}

static void decode_signs_how(const uint8_t *bits, size_t n, const float value[2],
                             enum spr_decode how, float *out)
{
    SPR_BY_HOW(decode_signs, how, bits, n, value, out);
}

INLINE void decode_natural(enum spr_decode how, const uint8_t *exponent, const uint8_t *sign_bits,
                           size_t n, float *out)
{
    const uint32x4_t odd = vdupq_n_u32(255), nan = vdupq_n_u32(0x7fc00000);
    const uint32x4_t top = vdupq_n_u32(1u << 31);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint16x8_t words = vmovl_u8(vld1_u8(exponent + i));
        uint32x4_t half[2] = {vmovl_u16(vget_low_u16(words)), vmovl_u16(vget_high_u16(words))};

        for (unsigned k = 0; k < 2; k++) {
            uint32x4_t sign = vandq_u32(spr_lanes4((unsigned)sign_bits[i / 8] >> 4 * k), top);
            uint32x4_t v = vorrq_u32(vshlq_n_u32(half[k], 23), sign);

            v = vbslq_u32(vceqq_u32(half[k], odd), nan, v);
            spr_apply_finite4(how, out + i + 4 * k, vreinterpretq_f32_u32(v));
        }
    }
    scalar->decode_natural(exponent + i, sign_bits + i / 8, n - i, how, out + i);
}

static void decode_natural_how(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                               enum spr_decode how, float *out)
{
    SPR_BY_HOW(decode_natural, how, exponent, sign_bits, n, out);
}

/* ---- Half precision ---- */

/* Is one of 8 infinite? Then one of them may have to be made finite again. */
INLINE bool any_infinite(uint16x8_t half, uint16_t infinity)
{
    uint16x8_t mag = vbicq_u16(half, vdupq_n_u16(0x8000));

    return vmaxvq_u16(vceqq_u16(mag, vdupq_n_u16(infinity))) != 0;
}

static void fp16_encode(const float *x, size_t n, uint16_t *out)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        float16x4_t low = vcvt_f16_f32(vld1q_f32(x + i)), high = vcvt_f16_f32(vld1q_f32(x + i + 4));
        uint16x8_t half = vcombine_u16(vreinterpret_u16_f16(low), vreinterpret_u16_f16(high));

        vst1q_u16(out + i, half);
        if (any_infinite(half, 0x7c00))
            scalar->fp16_encode(x + i, 8, out + i);
    }
    scalar->fp16_encode(x + i, n - i, out + i);
}

static inline uint16x4_t bf16_of(uint32x4_t x)
{
    uint32x4_t upper = vshrq_n_u32(x, 16), odd = vandq_u32(upper, vdupq_n_u32(1));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(x, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    uint32x4_t nan = vcgtq_u32(spr_magnitude4(x), vdupq_n_u32(0x7f800000));

    return vmovn_u32(vbslq_u32(nan, vorrq_u32(upper, vdupq_n_u32(0x40)), rounded));
}

static void bf16_encode(const float *x, size_t n, uint16_t *out)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint16x8_t half = vcombine_u16(bf16_of(spr_bits4(x + i)), bf16_of(spr_bits4(x + i + 4)));

        vst1q_u16(out + i, half);
        if (any_infinite(half, 0x7f80))
            scalar->bf16_encode(x + i, 8, out + i);
    }
    scalar->bf16_encode(x + i, n - i, out + i);
}

INLINE void half_decode(enum spr_decode how, bool brain, const uint16_t *in, size_t n, float *out)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint16x4_t half = vld1_u16(in + i);
        float32x4_t v = brain ? vreinterpretq_f32_u32(vshll_n_u16(half, 16))
                              : vcvt_f32_f16(vreinterpret_f16_u16(half));
        spr_apply_finite4(how, out + i, v);
    }
    (brain ? scalar->bf16_decode : scalar->fp16_decode)(in + i, n - i, how, out + i);
}

static void fp16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    SPR_BY_HOW(half_decode, how, false, in, n, out);
}

static void bf16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    SPR_BY_HOW(half_decode, how, true, in, n, out);
}

static void stream(const void *in, size_t bytes, void *out) { memcpy(out, in, bytes); }

static void fence(void) {}

SPR_VALUES_STEP_BY_STEP(spr_neon_add, spr_neon_largest, spr_neon_nearest8, spr_neon_decode8, signs)

const struct spr_values_kernels spr_values_kernels_neon = {
    .name = "neon",
    .add = spr_neon_add,
    .largest = spr_neon_largest,
    .sum_sides = spr_neon_sum_sides,
    .sum_squares = spr_neon_sum_squares,
    .nearest8 = spr_neon_nearest8,
    .nearest16 = spr_neon_nearest16,
    .random8 = spr_neon_random8,
    .decode8 = spr_neon_decode8,
    .decode16 = spr_neon_decode16,
    .pack8 = pack8,
    .pack16 = pack16,
    .unpack8 = unpack8,
    .unpack16 = unpack16,
    .signs = signs,
    .decode_signs = decode_signs_how,
    .natural = spr_neon_natural,
    .decode_natural = decode_natural_how,
    .fp16_encode = fp16_encode,
    .bf16_encode = bf16_encode,
    .fp16_decode = fp16_decode,
    .bf16_decode = bf16_decode,
    .add_largest = add_largest,
    .nearest8_take = nearest8_take,
    .add_signs = add_signs,
    .stream = stream,
    .fence = fence,
};
