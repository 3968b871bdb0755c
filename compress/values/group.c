/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/values/group.h"

void spr_group_decode_nan(size_t n, enum spr_decode how, float *out)
{
    for (size_t i = 0; i < n; i++)
        if (how != SPR_DECODE_TAKE)
            out[i] = spr_float_of(SPR_NAN_BITS);
        else if (spr_magnitude(out[i]) >= SPR_INFINITY_BITS)
            out[i] = 0;
}

void spr_group_decode_zero(size_t n, enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        memset(out, 0, n * sizeof(*out));
}

double spr_group_sum_abs(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum;
}

double spr_group_sum_squares(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

float spr_group_norm(const float *x, size_t n, float largest)
{
    float sum[2];
    double norm;

    spr_values_kernels()->sum_squares(x, n, sum);
    /* Outside of these bounds squares may have overflowed, or lost bits to denormals. */
    if (sum[1] > 0x1p-80f && sum[1] < 0x1p120f)
        norm = sqrt((double)sum[1]);
    else
        norm = sqrt(spr_group_sum_squares(x, n));
    if (norm > (double)FLT_MAX)
        return FLT_MAX;
    return (float)norm > largest ? (float)norm : largest;
}
