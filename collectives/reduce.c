/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/reduce.h"

#include <string.h>

#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/value.h"

/* fp16 and bf16 are converted in pieces that stay in the L1 cache. */
#define PIECE 1024

/* NaN propagates: a comparison with NaN is false, so it must be asked for. */
#define MIN_FLOAT(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (b) < (a) ? (b) : (a))
#define MAX_FLOAT(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (b) > (a) ? (b) : (a))
#define MIN_INT(a, b) ((b) < (a) ? (b) : (a))
#define MAX_INT(a, b) ((b) > (a) ? (b) : (a))
#define ADD(a, b) ((a) + (b))
/* Unsigned, so that overflow wraps instead of being undefined. */
#define ADD_INT32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define ADD_INT64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

/* The vectors are the same or do not overlap. */
#define LOOP(name, type, expression)                                                               \
    static void name(type *out, const type *a, const type *b, size_t n)                            \
    {                                                                                              \
        SPR_INDEPENDENT                                                                            \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = expression(a[i], b[i]);                                                       \
    }

LOOP(min_float, float, MIN_FLOAT)
LOOP(max_float, float, MAX_FLOAT)
LOOP(add_double, double, ADD)
LOOP(min_double, double, MIN_FLOAT)
LOOP(max_double, double, MAX_FLOAT)
LOOP(add_int32, int32_t, ADD_INT32)
LOOP(min_int32, int32_t, MIN_INT)
LOOP(max_int32, int32_t, MAX_INT)
LOOP(add_int64, int64_t, ADD_INT64)
LOOP(min_int64, int64_t, MIN_INT)
LOOP(max_int64, int64_t, MAX_INT)

static void combine(spr_dtype dtype, spr_op op, void *out, const void *a, const void *b, size_t n)
{
    switch (dtype) {
    case SPR_FP64:
        (op == SPR_MIN ? min_double : op == SPR_MAX ? max_double : add_double)(out, a, b, n);
        break;
    case SPR_INT32:
        (op == SPR_MIN ? min_int32 : op == SPR_MAX ? max_int32 : add_int32)(out, a, b, n);
        break;
    case SPR_INT64:
        (op == SPR_MIN ? min_int64 : op == SPR_MAX ? max_int64 : add_int64)(out, a, b, n);
        break;
    default: /* fp32, and the accumulators of fp16 and bf16 */
        (op == SPR_MIN ? min_float : op == SPR_MAX ? max_float : spr_kernels()->sum)(out, a, b, n);
        break;
    }
}

static bool is_half(spr_dtype dtype) { return dtype == SPR_FP16 || dtype == SPR_BF16; }

spr_dtype spr_reduce_acc(spr_dtype dtype) { return is_half(dtype) ? SPR_FP32 : dtype; }

size_t spr_reduce_acc_size(spr_dtype dtype) { return spr_dtype_size(spr_reduce_acc(dtype)); }

void spr_reduce_load(spr_dtype dtype, void *acc, const void *x, size_t n)
{
    if (dtype == SPR_FP16)
        spr_fp16_decode(x, acc, n);
    else if (dtype == SPR_BF16)
        spr_bf16_decode(x, acc, n);
    else if (n > 0)
        memcpy(acc, x, n * spr_dtype_size(dtype));
}

void spr_reduce_add(spr_dtype dtype, spr_op op, void *acc, const void *x, size_t n)
{
    float piece[PIECE], *sum = acc;
    const uint16_t *halves = x;

    if (!is_half(dtype)) {
        combine(dtype, op, acc, acc, x, n);
        return;
    }
    for (size_t i = 0; i < n; i += PIECE) {
        size_t m = spr_min_size(PIECE, n - i);
        spr_reduce_load(dtype, piece, halves + i, m);
        combine(dtype, op, sum + i, sum + i, piece, m);
    }
}

#define DIVIDE(type)                                                                               \
    do {                                                                                           \
        const type *a = acc;                                                                       \
        type *o = out, d = (type)ranks;                                                            \
        for (size_t i = 0; i < n; i++)                                                             \
            o[i] = a[i] / d;                                                                       \
    } while (0)

static void divide(spr_dtype dtype, void *out, const void *acc, size_t n, int ranks)
{
    if (dtype == SPR_FP32)
        DIVIDE(float);
    else if (dtype == SPR_FP64)
        DIVIDE(double);
    else if (dtype == SPR_INT32)
        DIVIDE(int32_t);
    else
        DIVIDE(int64_t);
}

static void store_half(spr_dtype dtype, spr_op op, uint16_t *out, const float *acc, size_t n,
                       int ranks)
{
    float piece[PIECE];

    for (size_t i = 0; i < n; i += PIECE) {
        size_t m = spr_min_size(PIECE, n - i);
        const float *from = acc + i;
        if (op == SPR_AVG) {
            divide(SPR_FP32, piece, from, m, ranks);
            from = piece;
        }
        (dtype == SPR_FP16 ? spr_fp16_encode : spr_bf16_encode)(from, out + i, m);
    }
}

void spr_reduce_store(spr_dtype dtype, spr_op op, void *out, const void *acc, size_t n, int ranks)
{
    if (is_half(dtype))
        store_half(dtype, op, out, acc, n, ranks);
    else if (op == SPR_AVG)
        divide(dtype, out, acc, n, ranks);
    else if (out != acc && n > 0)
        memcpy(out, acc, n * spr_dtype_size(dtype));
}

/* One piece of spr_reduce_two; the vectors begin there. */
static void two_piece(const struct spr_reduce_two *r, void *out, const void *a, const void *b,
                      size_t n)
{
    float x[PIECE], y[PIECE];
    void *sum = out;

    if (is_half(r->dtype)) {
        spr_reduce_load(r->dtype, y, b, n);
        b = y;
        if (r->first)
            spr_reduce_load(r->dtype, x, a, n);
        if (r->first)
            a = x;
    }
    if (r->last && is_half(r->out))
        sum = x;
    combine(r->dtype, r->op, sum, a, b, n);
    if (r->last)
        spr_reduce_store(r->out, r->op, out, sum, n, r->ranks);
}

void spr_reduce_two(const struct spr_reduce_two *r, void *out, const void *a, const void *b,
                    size_t n)
{
    size_t element = spr_dtype_size(r->dtype), wide = spr_reduce_acc_size(r->dtype);
    size_t out_element = r->last ? spr_dtype_size(r->out) : wide;
    size_t a_element = r->first ? element : wide;

    for (size_t i = 0; i < n; i += PIECE)
        two_piece(r, (char *)out + i * out_element, (const char *)a + i * a_element,
                  (const char *)b + i * element, spr_min_size(PIECE, n - i));
}
