/* SPDX-License-Identifier: BSD-2-Clause
 *
 * fp32 as it is; fp16 (IEEE binary16) and bf16, to the nearest, even in the middle; what is finite
 * stays finite: the largest finite value stands in, and error feedback keeps the rest.
 *
 *    0                    fp32: 4 n          fp16, bf16: 2 n, and 2 zeros if n is odd
 *   +--------------------+                  +--------------------+-------+
 *   | n values           |                  | n values           | zeros |
 *   +--------------------+                  +--------------------+-------+
 */
#include "compress/values/group.h"

static spr_status wrong_size(const char **why)
{
    *why = "values: not the bytes that their number needs";
    return SPR_ERR_PROTO;
}

static unsigned fp32_traits(const void *options)
{
    (void)options;
    return SPR_VALUES_FIXED | SPR_VALUES_LOSSLESS | SPR_VALUES_UNBIASED;
}

static size_t fp32_group(const void *options)
{
    (void)options;
    return 1;
}

static size_t fp32_bound(const void *options, size_t n)
{
    (void)options;
    return n * sizeof(float);
}

static size_t fp32_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                          void *out)
{
    (void)options;
    (void)draw;
    if (n > 0)
        memcpy(out, in, n * sizeof(float));
    return n * sizeof(float);
}

static spr_status fp32_check(const void *options, const void *bytes, size_t size, size_t n,
                             const char **why)
{
    (void)options;
    (void)bytes;
    return size == n * sizeof(float) ? SPR_OK : wrong_size(why);
}

/* What was taken was all of it. */
static size_t fp32_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                          float *out)
{
    (void)options;
    if (how == SPR_DECODE_ADD)
        spr_kernels()->sum(out, out, bytes, n);
    else if (how == SPR_DECODE_TAKE)
        spr_kernels()->clear(out, n);
    else if (n > 0)
        memcpy(out, bytes, n * sizeof(float));
    return n * sizeof(float);
}

const struct spr_value_coder spr_value_fp32 = {
    .name = "fp32",
    .doc = "values as they are",
    .paper = "",
    .traits = fp32_traits,
    .group = fp32_group,
    .bound = fp32_bound,
    .encode = fp32_encode,
    .check = fp32_check,
    .decode = fp32_decode,
    .feed = spr_value_feed,
};

static unsigned half_traits(const void *options)
{
    (void)options;
    return SPR_VALUES_FIXED;
}

static size_t half_group(const void *options)
{
    (void)options;
    return 2;
}

static size_t half_bound(const void *options, size_t n)
{
    (void)options;
    return spr_padded(16 * n);
}

static spr_status half_check(const void *options, const void *bytes, size_t size, size_t n,
                             const char **why)
{
    if (size != half_bound(options, n))
        return wrong_size(why);
    if (!spr_padding_is_zero(bytes, 16 * n)) {
        *why = "values: bits behind the last one";
        return SPR_ERR_PROTO;
    }
    return SPR_OK;
}

static size_t fp16_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                          void *out)
{
    (void)draw;
    spr_values_kernels()->fp16_encode(in, n, out);
    spr_pad(out, 16 * n);
    return half_bound(options, n);
}

static size_t fp16_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                          float *out)
{
    spr_values_kernels()->fp16_decode(bytes, n, how, out);
    return half_bound(options, n);
}

const struct spr_value_coder spr_value_fp16 = {
    .name = "fp16",
    .doc = "IEEE binary16",
    .paper = "IEEE 754-2019",
    .traits = half_traits,
    .group = half_group,
    .bound = half_bound,
    .encode = fp16_encode,
    .check = half_check,
    .decode = fp16_decode,
    .feed = spr_value_feed,
};

static size_t bf16_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                          void *out)
{
    (void)draw;
    spr_values_kernels()->bf16_encode(in, n, out);
    spr_pad(out, 16 * n);
    return half_bound(options, n);
}

static size_t bf16_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                          float *out)
{
    spr_values_kernels()->bf16_decode(bytes, n, how, out);
    return half_bound(options, n);
}

const struct spr_value_coder spr_value_bf16 = {
    .name = "bf16",
    .doc = "bfloat16",
    .paper = "Kalamkar et al. 2019, A study of BFLOAT16 for deep learning training",
    .traits = half_traits,
    .group = half_group,
    .bound = half_bound,
    .encode = bf16_encode,
    .check = half_check,
    .decode = bf16_decode,
    .feed = spr_value_feed,
};
