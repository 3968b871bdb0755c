/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/values.h"

#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"
#include "compress/kernels/kernels.h"
#include "compress/value.h"

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void apply(float *out, float v, enum spr_decode how)
{
    if (how == SPR_DECODE_SET)
        *out = v;
    else if (how == SPR_DECODE_ADD)
        *out += v;
    else
        *out -= v;
}

/* The same where out may hold what is not finite. */
static void apply_finite(float *out, float v, enum spr_decode how)
{
    if (how == SPR_DECODE_TAKE && spr_magnitude(*out) >= 0x7f800000u)
        *out = 0;
    else
        apply(out, v, how);
}

/* ---- Statistics ---- */

static void add(float *r, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        r[i] += g[i];
}

static uint32_t largest(const float *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = spr_magnitude(x[i]) > most ? spr_magnitude(x[i]) : most;
    return most;
}

static void sum_sides(const float *x, size_t n, float sum[2])
{
    float lane[2][SPR_SUM_LANES] = {{0}};

    for (size_t i = 0; i < n; i++)
        lane[to_bits(x[i]) >> 31][i % SPR_SUM_LANES] += x[i];
    sum[0] = spr_sum_lanes(lane[0]);
    sum[1] = spr_sum_lanes(lane[1]);
}

static void sum_squares(const float *x, size_t n, float sum[2])
{
    float lane[2][SPR_SUM_LANES] = {{0}};

    for (size_t i = 0; i < n; i++) {
        lane[0][i % SPR_SUM_LANES] += x[i];
        lane[1][i % SPR_SUM_LANES] += x[i] * x[i];
    }
    sum[0] = spr_sum_lanes(lane[0]);
    sum[1] = spr_sum_lanes(lane[1]);
}

/* ---- Quantising ---- */

/* Rounded as an integer: adding this leaves no bits for a fraction, to the nearest even. */
static int32_t nearest(float x, float inverse, float limit)
{
    float y = x * inverse;

    y = y < limit ? y : limit;
    y = y > -limit ? y : -limit;
    return (int32_t)(((double)y + 0x1.8p52) - 0x1.8p52);
}

static void nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    for (size_t i = 0; i < n; i++)
        code[i] = (int8_t)nearest(x[i], q.inverse, q.limit);
}

static void nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code)
{
    for (size_t i = 0; i < n; i++)
        code[i] = (int16_t)nearest(x[i], q.inverse, q.limit);
}

static void random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                    int8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        int32_t y = nearest(x[i], q.inverse * 0x1p16f, q.limit * 0x1p16f);

        y += (int32_t)spr_draw_bits(draw, draw.first + i);
        code[i] = (int8_t)((y - (y & 0xffff)) / 0x10000);
    }
}

static void decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++)
        apply(&out[i], (float)code[i] * scale, how);
}

static void decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++)
        apply(&out[i], (float)code[i] * scale, how);
}

/* ---- Packing ---- */

struct packer {
    uint64_t bits;
    unsigned held;
    uint8_t *out;
};

static void put(struct packer *p, uint32_t code, unsigned width)
{
    p->bits |= (uint64_t)(code & ((1u << width) - 1)) << p->held;
    for (p->held += width; p->held >= 8; p->held -= 8, p->bits >>= 8)
        *p->out++ = (uint8_t)p->bits;
}

static void flush(struct packer *p)
{
    if (p->held)
        *p->out = (uint8_t)p->bits;
}

static void pack8(const int8_t *code, size_t n, unsigned width, uint8_t *out)
{
    struct packer p = {.out = out};

    for (size_t i = 0; i < n; i++)
        put(&p, (uint32_t)code[i], width);
    flush(&p);
}

static void pack16(const int16_t *code, size_t n, unsigned width, uint8_t *out)
{
    struct packer p = {.out = out};

    for (size_t i = 0; i < n; i++)
        put(&p, (uint32_t)code[i], width);
    flush(&p);
}

struct unpacker {
    uint64_t bits;
    unsigned held;
    const uint8_t *in;
};

static int32_t get(struct unpacker *u, unsigned width)
{
    uint32_t code, sign = 1u << (width - 1);

    for (; u->held < width; u->held += 8)
        u->bits |= (uint64_t)*u->in++ << u->held;
    code = (uint32_t)u->bits & ((sign << 1) - 1);
    u->bits >>= width;
    u->held -= width;
    return (int32_t)(code ^ sign) - (int32_t)sign;
}

static void unpack8(const uint8_t *in, size_t n, unsigned width, int8_t *code)
{
    struct unpacker u = {.in = in};

    for (size_t i = 0; i < n; i++)
        code[i] = (int8_t)get(&u, width);
}

static void unpack16(const uint8_t *in, size_t n, unsigned width, int16_t *code)
{
    struct unpacker u = {.in = in};

    for (size_t i = 0; i < n; i++)
        code[i] = (int16_t)get(&u, width);
}

/* ---- Signs and powers of two ---- */

static float signs(const float *x, size_t n, uint8_t *out)
{
    float lane[SPR_SUM_LANES] = {0};

    for (size_t i = 0; i < n; i++) {
        if (i % 8 == 0)
            out[i / 8] = 0;
        out[i / 8] |= (uint8_t)(to_bits(x[i]) >> 31 << i % 8);
        lane[i % SPR_SUM_LANES] += from_bits(spr_magnitude(x[i]));
    }
    return spr_sum_lanes(lane);
}

static void decode_signs(const uint8_t *bits, size_t n, const float value[2], enum spr_decode how,
                         float *out)
{
    for (size_t i = 0; i < n; i++)
        apply(&out[i], value[bits[i / 8] >> i % 8 & 1], how);
}

static void natural(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = spr_magnitude(x[i]);
        /* The carry out of the 23 fraction bits has the probability of the fraction. */
        uint32_t up = (mag + (spr_draw_bits(draw, draw.first + i) << 7 | 0x40)) >> 23;

        exponent[i] = (uint8_t)(mag >= 0x7f800000u ? 255 : up < 254 ? up : 254);
    }
}

static void decode_natural(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                           enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(sign_bits[i / 8] >> i % 8 & 1) << 31;
        uint32_t bits = exponent[i] == 255 ? 0x7fc00000u : sign | (uint32_t)exponent[i] << 23;

        apply_finite(&out[i], from_bits(bits), how);
    }
}

/* ---- Half precision ---- */

static uint16_t finite_half(float x, uint16_t half, uint32_t infinity)
{
    bool over = (half & 0x7fffu) == infinity && spr_magnitude(x) < 0x7f800000u;

    return (uint16_t)(half - over);
}

static void fp16_encode(const float *x, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = finite_half(x[i], spr_fp16_from_float(x[i]), 0x7c00);
}

static void bf16_encode(const float *x, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = finite_half(x[i], spr_bf16_from_float(x[i]), 0x7f80);
}

static void fp16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++)
        apply_finite(&out[i], spr_fp16_to_float(in[i]), how);
}

static void bf16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++)
        apply_finite(&out[i], spr_bf16_to_float(in[i]), how);
}

/* ---- Error feedback ---- */

SPR_VALUES_STEP_BY_STEP(add, largest, nearest8, decode8, signs)

static void stream(const void *in, size_t bytes, void *out) { memcpy(out, in, bytes); }

static void fence(void) {}

const struct spr_values_kernels spr_values_kernels_scalar = {
    .name = "scalar",
    .add = add,
    .largest = largest,
    .sum_sides = sum_sides,
    .sum_squares = sum_squares,
    .nearest8 = nearest8,
    .nearest16 = nearest16,
    .random8 = random8,
    .decode8 = decode8,
    .decode16 = decode16,
    .pack8 = pack8,
    .pack16 = pack16,
    .unpack8 = unpack8,
    .unpack16 = unpack16,
    .signs = signs,
    .decode_signs = decode_signs,
    .natural = natural,
    .decode_natural = decode_natural,
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

const struct spr_values_kernels *spr_values_kernels(void)
{
#ifdef HAVE_AVX512
    if (spr_cpu_features() & SPR_CPU_AVX512)
        return &spr_values_kernels_avx512;
#endif
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return &spr_values_kernels_avx2;
#endif
#ifdef HAVE_ARM64
    if (spr_cpu_features() & SPR_CPU_NEON)
        return &spr_values_kernels_neon;
#endif
    return &spr_values_kernels_scalar;
}
