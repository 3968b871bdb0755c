/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compress/value.h"

double reference_scale(void)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");

    return scale ? strtod(scale, NULL) : 1;
}

bool reference_small_scale(void) { return reference_scale() < 1; }

double reference_load(spr_dtype t, const void *p, size_t i)
{
    switch (t) {
    case SPR_FP32:
        return (double)((const float *)p)[i];
    case SPR_FP64:
        return ((const double *)p)[i];
    case SPR_FP16:
        return (double)spr_fp16_to_float(((const uint16_t *)p)[i]);
    case SPR_BF16:
        return (double)spr_bf16_to_float(((const uint16_t *)p)[i]);
    case SPR_INT32:
        return (double)((const int32_t *)p)[i];
    default:
        return (double)((const int64_t *)p)[i];
    }
}

void reference_store(spr_dtype t, void *p, size_t i, double x)
{
    switch (t) {
    case SPR_FP32:
        ((float *)p)[i] = (float)x;
        break;
    case SPR_FP64:
        ((double *)p)[i] = x;
        break;
    case SPR_FP16:
        ((uint16_t *)p)[i] = spr_fp16_from_float((float)x);
        break;
    case SPR_BF16:
        ((uint16_t *)p)[i] = spr_bf16_from_float((float)x);
        break;
    case SPR_INT32:
        ((int32_t *)p)[i] = (int32_t)x;
        break;
    default:
        ((int64_t *)p)[i] = (int64_t)x;
    }
}

double reference_unit(spr_dtype t)
{
    return t == SPR_FP32   ? 0x1p-24
           : t == SPR_FP64 ? 0x1p-53
           : t == SPR_FP16 ? 0x1p-11
           : t == SPR_BF16 ? 0x1p-8
                           : 0;
}

double reference_input(uint64_t seed, spr_dtype t, uint64_t salt, int rank, size_t i)
{
    uint32_t h = spr_hash_u32(seed ^ salt << 48 ^ (uint64_t)rank << 40 ^ i);

    if (t == SPR_INT32 || t == SPR_INT64)
        return (double)(int32_t)h / 64;
    return ((double)h - 0x1p31) * 0x1p-31;
}

double reference_reduce(const double *x, int ranks, spr_dtype t, spr_op op, double *bound)
{
    double sum = x[0], magnitude = fabs(x[0]);
    bool half = t == SPR_FP16 || t == SPR_BF16;

    for (int r = 1; r < ranks; r++) {
        magnitude += fabs(x[r]);
        sum = op == SPR_MIN ? fmin(sum, x[r]) : op == SPR_MAX ? fmax(sum, x[r]) : sum + x[r];
    }
    *bound = 0;
    if (op == SPR_MIN || op == SPR_MAX)
        return sum;
    if (op == SPR_AVG) {
        sum /= ranks;
        magnitude /= ranks;
    }
    /* ranks - 1 roundings of partial sums, and that of a division. */
    *bound = magnitude * reference_unit(half ? SPR_FP32 : t) * (ranks + 1);
    if (half)
        *bound += (fabs(sum) + *bound) * reference_unit(t) + (t == SPR_FP16 ? 0x1p-25 : 0);
    return t == SPR_INT32 || t == SPR_INT64 ? trunc(sum) : sum;
}

bool reference_allreduce_takes(const char *algorithm, spr_dtype t, size_t count)
{
    if (!strcmp(algorithm, "flat"))
        return count * spr_dtype_size(t) <= 65536;
    return !strcmp(algorithm, "direct") || !strcmp(algorithm, "hierarchical") ||
           (t != SPR_FP16 && t != SPR_BF16);
}

bool reference_sparse_lists(const char *algorithm) { return strcmp(algorithm, "dense") != 0; }
