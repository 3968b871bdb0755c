/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/value.h"

#include <string.h>

#include "compress/kernels/kernels.h"

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* IEEE 754-2019, 3.6: binary16 has 5 exponent bits (bias 15) and 10 fraction bits. */
uint16_t spr_fp16_from_float(float x)
{
    uint32_t bits = float_bits(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t mag = bits & 0x7fffffffu;

    if (mag > 0x7f800000u) /* NaN: the upper payload bits, made quiet, as VCVTPS2PH does */
        return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u) /* from 65520 on, halfway to the next power: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x38800000u) {
        /* Below 2^-14 the result is a multiple of 2^-24: shift the fraction with its hidden bit. */
        uint32_t shift = 126u - (mag >> 23);
        if (shift > 24) /* below 2^-25, half of the smallest subnormal */
            return (uint16_t)sign;
        uint32_t frac = (mag & 0x7fffffu) | 0x800000u;
        uint32_t half = frac >> shift;
        uint32_t rest = frac & ((1u << shift) - 1);
        uint32_t tie = 1u << (shift - 1);
        half += rest > tie || (rest == tie && (half & 1));
        return (uint16_t)(sign | half);
    }
    /* Re-bias by 127 - 15 = 112; the carry of the rounding may go into the exponent. */
    uint32_t half = (mag - (112u << 23)) + 0xfffu + (mag >> 13 & 1);
    return (uint16_t)(sign | half >> 13);
}

float spr_fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t mag = h & 0x7fffu;

    if (mag > 0x7c00u)
        return bits_float(sign | 0x7fc00000u | mag << 13);
    if (mag == 0x7c00u)
        return bits_float(sign | 0x7f800000u);
    if (mag < 0x400u) /* subnormal: mag * 2^-24, exact in fp32 */
        return bits_float(sign | float_bits((float)mag * 0x1p-24f));
    return bits_float(sign | ((mag << 13) + (112u << 23)));
}

uint16_t spr_bf16_from_float(float x)
{
    uint32_t bits = float_bits(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float spr_bf16_to_float(uint16_t h) { return bits_float((uint32_t)h << 16); }

void spr_scalar_fp16_encode(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = spr_fp16_from_float(in[i]);
}

void spr_scalar_fp16_decode(const uint16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = spr_fp16_to_float(in[i]);
}

void spr_scalar_bf16_encode(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = spr_bf16_from_float(in[i]);
}

void spr_scalar_bf16_decode(const uint16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = spr_bf16_to_float(in[i]);
}
