/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Value coders: fp32 <-> fp16 (IEEE binary16) and bf16, round to nearest even, NaN stays a (quiet)
 * NaN, overflow gives infinity. Scalar and SIMD versions give the same bits.
 */
#ifndef SPR_COMPRESS_VALUE_H
#define SPR_COMPRESS_VALUE_H

#include <stddef.h>
#include <stdint.h>

void spr_fp16_encode(const float *in, uint16_t *out, size_t n);
void spr_fp16_decode(const uint16_t *in, float *out, size_t n);
void spr_bf16_encode(const float *in, uint16_t *out, size_t n);
void spr_bf16_decode(const uint16_t *in, float *out, size_t n);

/* One value: the specification. */
uint16_t spr_fp16_from_float(float x);
float spr_fp16_to_float(uint16_t h);
uint16_t spr_bf16_from_float(float x);
float spr_bf16_to_float(uint16_t h);

#endif
