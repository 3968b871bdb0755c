/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/value.h"

#include "compress/kernels/kernels.h"

void spr_fp16_encode(const float *in, uint16_t *out, size_t n)
{
    spr_kernels()->fp16_encode(in, out, n);
}

void spr_fp16_decode(const uint16_t *in, float *out, size_t n)
{
    spr_kernels()->fp16_decode(in, out, n);
}

void spr_bf16_encode(const float *in, uint16_t *out, size_t n)
{
    spr_kernels()->bf16_encode(in, out, n);
}

void spr_bf16_decode(const uint16_t *in, float *out, size_t n)
{
    spr_kernels()->bf16_decode(in, out, n);
}
