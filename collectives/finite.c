/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/finite.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "compress/value.h"

/* Elements that are looked at together, without a branch. */
#define BLOCK 1024

/* An exponent of all ones: the magnitude is at least that of infinity. */
#define FIND(name, type, magnitude, infinity)                                                      \
    static size_t name(const char *x, size_t n)                                                    \
    {                                                                                              \
        for (size_t from = 0; from < n; from += BLOCK) {                                           \
            size_t m = spr_min_size(BLOCK, n - from);                                              \
            type worst = 0;                                                                        \
            for (size_t i = 0; i < m; i++) {                                                       \
                type bits;                                                                         \
                memcpy(&bits, x + (from + i) * sizeof bits, sizeof bits);                          \
                bits = (type)(bits & magnitude);                                                   \
                worst = bits > worst ? bits : worst;                                               \
            }                                                                                      \
            for (size_t i = 0; worst >= infinity && i < m; i++) {                                  \
                type bits;                                                                         \
                memcpy(&bits, x + (from + i) * sizeof bits, sizeof bits);                          \
                if ((bits & magnitude) >= infinity)                                                \
                    return from + i;                                                               \
            }                                                                                      \
        }                                                                                          \
        return n;                                                                                  \
    }

FIND(find_fp32, uint32_t, 0x7fffffffu, 0x7f800000u)
FIND(find_fp64, uint64_t, 0x7fffffffffffffffull, 0x7ff0000000000000ull)
FIND(find_fp16, uint16_t, 0x7fffu, 0x7c00u)
FIND(find_bf16, uint16_t, 0x7fffu, 0x7f80u)

size_t spr_find_nonfinite(spr_dtype dtype, const void *x, size_t n)
{
    switch (dtype) {
    case SPR_FP32:
        return find_fp32(x, n);
    case SPR_FP64:
        return find_fp64(x, n);
    case SPR_FP16:
        return find_fp16(x, n);
    case SPR_BF16:
        return find_bf16(x, n);
    default:
        return n;
    }
}

static double value_of(spr_dtype dtype, const void *x, size_t i)
{
    const char *at = (const char *)x + i * spr_dtype_size(dtype);
    uint16_t half;
    double wide;
    float f = 0;

    if (dtype == SPR_FP64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&half, at, sizeof half);
    if (dtype == SPR_FP16)
        spr_fp16_decode(&half, &f, 1);
    else if (dtype == SPR_BF16)
        spr_bf16_decode(&half, &f, 1);
    else
        memcpy(&f, at, sizeof f);
    return (double)f;
}

/* What this rank puts in: elements of plan->send, or entries of the sparse list. */
static size_t input_count(const spr_comm *comm, const struct spr_plan *plan)
{
    switch (plan->collective) {
    case SPR_C_SPARSE_ALLREDUCE:
        return plan->entries;
    case SPR_C_REDUCE_SCATTER:
        return plan->count * (size_t)comm->size;
    case SPR_C_BROADCAST:
        return comm->rank == plan->root ? plan->count : 0;
    case SPR_C_BARRIER:
        return 0;
    default:
        return plan->count;
    }
}

spr_status spr_check_finite(spr_comm *comm, const struct spr_plan *plan,
                            const spr_call_options *options, const float *gradient)
{
    bool sparse = plan->collective == SPR_C_SPARSE_ALLREDUCE;
    const void *x = gradient ? gradient : sparse ? plan->value : plan->send;
    spr_dtype dtype = gradient || sparse ? SPR_FP32 : plan->dtype;
    size_t n = gradient ? plan->count : input_count(comm, plan), i;
    const char *name = options && options->name ? options->name : NULL;
    char text[240];

    if (!comm->options.check_finite)
        return SPR_OK;
    i = spr_find_nonfinite(dtype, x, n);
    if (i == n)
        return SPR_OK;
    snprintf(text, sizeof text, "element %zu of the input of %s%s%.64s%s is %g",
             sparse && !gradient ? (size_t)plan->index[i] : i,
             gradient ? "compressed_allreduce" : spr_collective_names[plan->collective],
             name ? " '" : "", name ? name : "", name ? "'" : "", value_of(dtype, x, i));
    spr_comm_lock(comm);
    spr_comm_fail(comm, SPR_ERR_INVALID, comm->rank, -1, text);
    spr_comm_tell(comm);
    spr_comm_unlock(comm);
    return SPR_ERR_INVALID;
}
