/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_neon.h"

void spr_neon_fp16_encode(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
    spr_scalar_fp16_encode(in + i, out + i, n - i);
}

void spr_neon_fp16_decode(const uint16_t *in, float *out, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
    spr_scalar_fp16_decode(in + i, out + i, n - i);
}
