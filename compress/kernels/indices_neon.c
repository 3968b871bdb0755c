/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Four positions at a time; what is left of a block is for the scalar kernels. A shift by a
 * register takes any width: by 32 and more it leaves nothing, by less than 0 it goes to the right.
 */
#include "compress/kernels/indices.h"

#include "compress/kernels/lanes_neon.h"

#define ROWS (SPR_INDEX_BLOCK / 8)

static inline uint32x4_t splat(uint32_t v) { return vdupq_n_u32(v); }
static inline uint32x4_t ramp(uint32_t from) { return vaddq_u32(splat(from), spr_ramp4()); }
static inline uint32x4_t left(uint32x4_t v, unsigned by)
{
    return vshlq_u32(v, vdupq_n_s32((int)by));
}
static inline uint32x4_t right(uint32x4_t v, unsigned by)
{
    return vshlq_u32(v, vdupq_n_s32(-(int)by));
}

/* The lanes moved up by so many; the last ones of `before` come in. */
#define SHIFT_IN(before, lanes, by) vextq_u32(before, lanes, 4 - (by))

static inline uint32_t any_bits(uint32x4_t v)
{
    uint64x2_t half = vreinterpretq_u64_u32(v);
    uint64_t both = vgetq_lane_u64(half, 0) | vgetq_lane_u64(half, 1);

    return (uint32_t)(both | both >> 32);
}

static uint32_t gaps(const uint32_t *x, size_t n, uint32_t first, uint32_t *gap)
{
    uint32x4_t before = splat(first - 1), any = splat(0);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t now = vld1q_u32(x + i);
        uint32x4_t g = vsubq_u32(vsubq_u32(now, SHIFT_IN(before, now, 1)), splat(1));

        vst1q_u32(gap + i, g);
        any = vorrq_u32(any, g);
        before = now;
    }
    if (i > 0)
        first = x[i - 1] + 1;
    return any_bits(any) | spr_indices_scalar.gaps(x + i, n - i, first, gap + i);
}

static uint32_t sums(const uint32_t *gap, size_t n, uint32_t first, uint32_t *x)
{
    uint32x4_t sum = splat(first - 1), any = splat(0);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t g = vld1q_u32(gap + i);

        any = vorrq_u32(any, g);
        g = vaddq_u32(g, splat(1));
        g = vaddq_u32(g, SHIFT_IN(splat(0), g, 1));
        g = vaddq_u32(g, SHIFT_IN(splat(0), g, 2));
        g = vaddq_u32(g, sum);
        vst1q_u32(x + i, g);
        sum = vdupq_laneq_u32(g, 3);
    }
    if (i > 0)
        first = x[i - 1] + 1;
    return any_bits(any) | spr_indices_scalar.sums(gap + i, n - i, first, x + i);
}

/* ---- Packing: four of the eight lanes, then the others ---- */

static void pack_half(const uint32_t *value, unsigned width, uint8_t *out)
{
    uint32x4_t word = splat(0);
    unsigned have = 0;

    for (unsigned row = 0; row < ROWS; row++) {
        uint32x4_t v = vld1q_u32(value + 8 * row);

        word = vorrq_u32(word, left(v, have));
        have += width;
        if (have >= 32) {
            vst1q_u8(out, vreinterpretq_u8_u32(word));
            out += 32;
            have -= 32;
            word = right(v, width - have);
        }
    }
}

static void unpack_half(const uint8_t *in, unsigned width, uint32_t *value)
{
    const uint32x4_t mask = splat((uint32_t)((UINT64_C(1) << width) - 1));
    uint32x4_t word = splat(0);
    unsigned have = 0;

    for (unsigned row = 0; row < ROWS; row++) {
        uint32x4_t v = right(word, 32 - have);

        if (have < width) {
            word = vreinterpretq_u32_u8(vld1q_u8(in));
            in += 32;
            v = vorrq_u32(v, left(word, have));
            have += 32;
        }
        have -= width;
        vst1q_u32(value + 8 * row, vandq_u32(v, mask));
    }
}

static void pack(const uint32_t *value, unsigned width, uint8_t *out)
{
    pack_half(value, width, out);
    pack_half(value + 4, width, out + 16);
}

static void unpack(const uint8_t *in, unsigned width, uint32_t *value)
{
    unpack_half(in, width, value);
    unpack_half(in + 16, width, value + 4);
}

/* ---- Elias-Fano ---- */

static void split(const uint32_t *x, size_t n, uint32_t first, unsigned width, uint32_t *low,
                  uint32_t *one)
{
    const uint32x4_t mask = splat((UINT32_C(1) << width) - 1);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t i4 = ramp((uint32_t)i);
        uint32x4_t y = vsubq_u32(vsubq_u32(vld1q_u32(x + i), splat(first)), i4);

        vst1q_u32(low + i, vandq_u32(y, mask));
        vst1q_u32(one + i, vaddq_u32(right(y, width), i4));
    }
    /* The rest counts from 0 again, i further on. */
    spr_indices_scalar.split(x + i, n - i, first + (uint32_t)i, width, low + i, one + i);
    for (size_t j = i; j < n; j++)
        one[j] += (uint32_t)i;
}

static _Bool join(const uint32_t *low, const uint32_t *one, size_t n, uint32_t first,
                  unsigned width, uint32_t *x)
{
    uint32x4_t before = splat(0), rising = splat(~0u);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t i4 = ramp((uint32_t)i);
        uint32x4_t high = left(vsubq_u32(vld1q_u32(one + i), i4), width);
        uint32x4_t y = vorrq_u32(high, vld1q_u32(low + i));

        rising = vandq_u32(rising, vcgeq_u32(y, SHIFT_IN(before, y, 1)));
        before = y;
        vst1q_u32(x + i, vaddq_u32(vaddq_u32(y, splat(first)), i4));
    }
    _Bool good = vminvq_u32(rising) != 0;
    uint32_t y = vgetq_lane_u32(before, 3);
    for (; i < n; i++) {
        uint32_t now = (one[i] - (uint32_t)i) << width | low[i];

        good &= now >= y;
        y = now;
        x[i] = first + y + (uint32_t)i;
    }
    return good;
}

static size_t ones(const uint8_t *bits, size_t bytes, uint32_t first, uint32_t *x)
{
    size_t n = 0, i = 0;

    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;

        memcpy(&word, bits + i, sizeof(word));
        for (uint32_t at = first + 8 * (uint32_t)i; word; word >>= 4, at += 4) {
            vst1q_u32(x + n, spr_compress4(ramp(at), word & 15));
            n += spr_count4(word & 15);
        }
    }
    return n + spr_indices_scalar.ones(bits + i, bytes - i, first + 8 * (uint32_t)i, x + n);
}

/* The scalar kernel: NEON has no gain here. */
static void set(const uint32_t *x, size_t n, uint8_t *bits) { spr_indices_scalar.set(x, n, bits); }

const struct spr_indices_kernels spr_indices_neon = {
    .name = "neon",
    .gaps = gaps,
    .sums = sums,
    .pack = pack,
    .unpack = unpack,
    .split = split,
    .join = join,
    .ones = ones,
    .set = set,
};
