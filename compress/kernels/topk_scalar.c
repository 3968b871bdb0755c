/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

size_t spr_scalar_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                         uint32_t *index, float *value)
{
    size_t m = 0;

    (void)dense;
    for (size_t i = 0; i < n; i++) {
        index[m] = base + (uint32_t)i;
        value[m] = x[i];
        m += spr_magnitude(x[i]) >= lo;
    }
    return m;
}

size_t spr_scalar_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                           _Bool dense, uint32_t *index, float *value)
{
    size_t m = 0;

    (void)dense;
    for (size_t i = 0; i < n; i++) {
        float x = r[i] + g[i];
        _Bool take = spr_magnitude(x) >= lo;

        index[m] = base + (uint32_t)i;
        value[m] = x;
        r[i] = take ? 0.0f : x;
        m += take;
    }
    return m;
}

void spr_scalar_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            counts[j] += spr_magnitude(x[i]) >= t[j];
}

size_t spr_scalar_split(const float *value, size_t n, uint32_t hi, uint32_t *below)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        below[m] = spr_key(value[i]);
        m += below[m] < hi;
    }
    return m;
}

size_t spr_scalar_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                         size_t *quota, uint32_t *index_out, float *value_out, float *back)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t key = spr_key(value[i]);

        if (key > t || (key == t && *quota > 0)) {
            *quota -= key == t;
            index_out[m] = index[i];
            value_out[m] = value[i];
            m++;
        } else if (back) {
            back[index[i]] = value[i];
        }
    }
    return m;
}
