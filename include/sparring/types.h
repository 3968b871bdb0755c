/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Element types, reductions and the handles that all other headers use.
 */
#ifndef SPARRING_TYPES_H
#define SPARRING_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <sparring/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. fp16 is IEEE 754 binary16, bf16 the upper half of binary32. */
enum { SPR_FP32 = 0, SPR_FP64, SPR_FP16, SPR_BF16, SPR_INT32, SPR_INT64, SPR_DTYPE_COUNT };
typedef int spr_dtype;

/*
 * Reductions. AVG divides once, after the sum, by the number of ranks (integers truncate towards
 * zero). fp16 and bf16 are summed in fp32 and rounded once. Integer sums wrap around (two's
 * complement).
 *
 * NaN and infinities are treated as IEEE 754 has it, with the same bits on all ranks: a sum with a
 * NaN, or with infinities of both signs, is NaN; MIN and MAX propagate NaN. SPARRING_CHECK_FINITE
 * makes them errors.
 */
enum { SPR_SUM = 0, SPR_AVG, SPR_MIN, SPR_MAX, SPR_OP_COUNT };
typedef int spr_op;

typedef struct spr_comm spr_comm;       /* a group of ranks; see comm.h */
typedef struct spr_request spr_request; /* a collective under way; see request.h */

/* Bytes of one element; 0 for an unknown type. */
size_t spr_dtype_size(spr_dtype dtype);
/* "fp32", ...; "unknown" for an unknown type. */
const char *spr_dtype_name(spr_dtype dtype);
/* "sum", ...; "unknown" for an unknown reduction. */
const char *spr_op_name(spr_op op);
/* Parse a name as printed by spr_dtype_name (also "float", "half", ...). SPR_ERR_INVALID. */
spr_status spr_dtype_parse(const char *text, spr_dtype *dtype);
/* Parse a name as printed by spr_op_name. SPR_ERR_INVALID. */
spr_status spr_op_parse(const char *text, spr_op *op);

#ifdef __cplusplus
}
#endif
#endif
