/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/data.h"

#include <math.h>
#include <string.h>

uint64_t data_key(uint64_t seed, uint64_t stream) { return spr_rng_u64(seed, stream); }

/* Exact for 0 and for numbers of 11 bits in [2^-14, 2^16). */
static uint16_t exact_fp16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffff;
    return (uint16_t)(bits >> 16 & 0x8000) |
           (uint16_t)(magnitude == 0 ? 0 : (magnitude - ((127u - 15) << 23)) >> 13);
}

static uint16_t exact_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double fp16_value(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double mantissa = half & 1023, value;
    if (exponent == 31)
        value = mantissa > 0 ? NAN : INFINITY;
    else
        value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static double bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* A number of `precision` bits. */
static float short_float(uint64_t key, uint64_t i, int precision)
{
    int32_t k = (int32_t)(data_bits(key, i) >> (31 - precision)) - (1 << precision);
    return (float)k / (float)(1 << precision);
}

static double long_double(uint64_t key, uint64_t i)
{
    uint64_t bits = (uint64_t)data_bits(key, 2 * i) << 32 | data_bits(key, 2 * i + 1);
    return (double)((int64_t)(bits >> 10) - ((int64_t)1 << 53)) * 0x1p-53;
}

void data_fill(spr_dtype dtype, uint64_t seed, int rank, size_t first, size_t count, void *out)
{
    uint64_t key = data_key(seed, (uint64_t)rank);
    for (size_t k = 0; k < count; k++) {
        uint64_t i = first + k;
        switch (dtype) {
        case SPR_FP32:
            ((float *)out)[k] = data_float(key, i);
            break;
        case SPR_FP64:
            ((double *)out)[k] = long_double(key, i);
            break;
        case SPR_FP16:
            ((uint16_t *)out)[k] = exact_fp16(short_float(key, i, 11));
            break;
        case SPR_BF16:
            ((uint16_t *)out)[k] = exact_bf16(short_float(key, i, 8));
            break;
        case SPR_INT32:
            ((uint32_t *)out)[k] = data_bits(key, i);
            break;
        default:
            ((uint64_t *)out)[k] =
                (uint64_t)data_bits(key, 2 * i) << 32 | data_bits(key, 2 * i + 1);
            break;
        }
    }
}

void data_to_double(spr_dtype dtype, const void *in, size_t count, double *out)
{
    for (size_t k = 0; k < count; k++)
        switch (dtype) {
        case SPR_FP32:
            out[k] = (double)((const float *)in)[k];
            break;
        case SPR_FP64:
            out[k] = ((const double *)in)[k];
            break;
        case SPR_FP16:
            out[k] = fp16_value(((const uint16_t *)in)[k]);
            break;
        default:
            out[k] = bf16_value(((const uint16_t *)in)[k]);
            break;
        }
}

void data_to_int64(spr_dtype dtype, const void *in, size_t count, int64_t *out)
{
    for (size_t k = 0; k < count; k++)
        out[k] = dtype == SPR_INT32 ? ((const int32_t *)in)[k] : ((const int64_t *)in)[k];
}
