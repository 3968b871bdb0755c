/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Roundings: fp32 (none), fp16, bf16.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/util.h"
#include "compress/kernels/kernels.h"

#define BATCH 512 /* values */

static void round_fp32(const float *in, float *out, size_t n)
{
    if (in != out)
        memcpy(out, in, n * sizeof(*out));
}

/* What became infinite without being it goes back to the largest finite value. */
static void clamp(const float *in, uint16_t *half, size_t n, uint16_t infinity)
{
    for (size_t i = 0; i < n; i++) {
        bool over = (half[i] & 0x7fffu) == infinity && spr_magnitude(in[i]) < 0x7f800000u;
        half[i] = (uint16_t)(half[i] - over);
    }
}

static void round_fp16(const float *in, float *out, size_t n)
{
    const struct spr_kernels *kernels = spr_kernels();
    uint16_t half[BATCH];

    for (size_t at = 0; at < n; at += BATCH) {
        size_t m = spr_min_size(BATCH, n - at);

        kernels->fp16_encode(in + at, half, m);
        clamp(in + at, half, m, 0x7c00);
        kernels->fp16_decode(half, out + at, m);
    }
}

static void round_bf16(const float *in, float *out, size_t n)
{
    const struct spr_kernels *kernels = spr_kernels();
    uint16_t half[BATCH];

    for (size_t at = 0; at < n; at += BATCH) {
        size_t m = spr_min_size(BATCH, n - at);

        kernels->bf16_encode(in + at, half, m);
        clamp(in + at, half, m, 0x7f80);
        kernels->bf16_decode(half, out + at, m);
    }
}

const struct spr_codec_rounding spr_codec_fp32 = {
    .name = "fp32",
    .doc = "values as they are (the default)",
    .vtype = SPR_V_FP32,
    .lossless = true,
    .round = round_fp32,
};

const struct spr_codec_rounding spr_codec_fp16 = {
    .name = "fp16",
    .doc = "values as IEEE binary16; what rounding loses stays in the residual",
    .vtype = SPR_V_FP16,
    .lossless = false,
    .round = round_fp16,
};

const struct spr_codec_rounding spr_codec_bf16 = {
    .name = "bf16",
    .doc = "values as bfloat16; what rounding loses stays in the residual",
    .vtype = SPR_V_BF16,
    .lossless = false,
    .round = round_bf16,
};
