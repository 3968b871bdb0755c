/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Data that gradients are like, and data that they should better not be: of sparring-codec, and of
 * the tests of compress/. A function of the kind, the length and the seed of `rng`.
 */
#ifndef SPR_TOOLS_CODEC_DATA_H
#define SPR_TOOLS_CODEC_DATA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

enum data {
    DATA_NORMAL,
    DATA_LAPLACE,
    DATA_LAYERS,
    DATA_EQUAL,
    DATA_ZERO,
    DATA_MOSTLY_ZERO,
    DATA_NOT_FINITE,
    DATA_DENORMAL,
    DATA_SMALL_INTEGERS,
    DATA_FALLING,
    DATA_HOT_BLOCK,
    DATA_COMB,
    DATA_BF16,
    DATA_ANY_BITS,
    DATA_KINDS
};

static const char *const data_names[DATA_KINDS] = {
    "normal",   "laplace",        "layers",  "equal",     "zero", "mostly-zero", "not-finite",
    "denormal", "small-integers", "falling", "hot-block", "comb", "bf16",        "any-bits",
};

static inline uint32_t data_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float data_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* In a loop in the place of fmax(), which gcc 12 for arm64 vectorises into an internal error. A NaN
 * is larger than all, so that what is compared with a bound afterwards does not pass. */
static inline double data_larger(double a, double b) { return a >= b || isnan(a) ? a : b; }

/* Box and Muller 1958. */
static inline double data_normal(struct spr_rng *rng)
{
    double u = 1 - spr_rng_double(rng), v = spr_rng_double(rng);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static inline float data_not_finite(struct spr_rng *rng, double z)
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7fc12345};
    uint64_t which = spr_rng_below(rng, 2000);

    return which < 5 ? data_float(odd[which]) : (float)z;
}

/* Laplace's distribution of scale 1. */
static inline double data_laplace(struct spr_rng *rng)
{
    double magnitude = -log(1 - spr_rng_double(rng));

    return spr_rng_below(rng, 2) ? magnitude : -magnitude;
}

/* The tensor that a position of DATA_LAYERS is in: sizes log-uniform from 1 Ki to 2.5 Mi elements,
 * or less where the vector has few, normal with a scale that is log-normal (sigma 2). */
struct data_layer {
    size_t left;
    double scale;
};

static inline double data_in_layer(struct data_layer *layer, size_t n, struct spr_rng *rng)
{
    if (layer->left == 0) {
        double small = fmin(1024, fmax(1, (double)n / 64)), large = fmin(2.5e6, (double)n / 4);
        layer->left = 1 + (size_t)(small * pow(fmax(1, large / small), spr_rng_double(rng)));
        layer->scale = exp(2 * data_normal(rng));
    }
    layer->left--;
    return layer->scale * data_normal(rng);
}

static inline float data_one(enum data kind, size_t i, size_t n, struct spr_rng *rng)
{
    double z = data_normal(rng);

    switch (kind) {
    case DATA_LAPLACE:
        return (float)data_laplace(rng);
    case DATA_EQUAL:
        return z < 0 ? -0.25f : 0.25f;
    case DATA_ZERO:
        return z < 0 ? -0.0f : 0.0f;
    case DATA_MOSTLY_ZERO:
        return spr_rng_below(rng, 10) ? 0.0f : (float)z;
    case DATA_NOT_FINITE:
        return data_not_finite(rng, z);
    case DATA_DENORMAL:
        return (float)(z * 1e-40);
    case DATA_SMALL_INTEGERS:
        return (float)rint(3 * z);
    case DATA_FALLING:
        return (float)(n - i);
    case DATA_HOT_BLOCK:
        return (float)(i / 64 % 50 == 7 ? 100 * z : 0.01 * z);
    case DATA_COMB:
        return (float)(i % 4096 == 17 ? 100 * z : z);
    case DATA_BF16:
        return data_float(data_bits((float)z) & 0xffff0000u);
    case DATA_ANY_BITS: {
        /* A signalling NaN becomes quiet when it is added to; one NaN is enough here. */
        float x = data_float((uint32_t)spr_rng_next(rng));
        return isnan(x) ? data_float(0x7fc00000u) : x;
    }
    default:
        return (float)z;
    }
}

static inline void data_fill(enum data kind, float *x, size_t n, struct spr_rng *rng)
{
    struct data_layer layer = {0};

    for (size_t i = 0; i < n; i++)
        x[i] =
            kind == DATA_LAYERS ? (float)data_in_layer(&layer, n, rng) : data_one(kind, i, n, rng);
}

#endif
