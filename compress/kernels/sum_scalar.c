/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/util.h"
#include "compress/kernels/kernels.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#ifdef __x86_64__
/* See spr_add(). */
static inline __m128 add4(__m128 a, __m128 b)
{
    __asm__("addps %1, %0" : "+x"(a) : "x"(b));
    return a;
}

void spr_scalar_sum(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(out + i, add4(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
    for (; i < n; i++)
        out[i] = spr_add(a[i], b[i]);
}
#else
void spr_scalar_sum(float *out, const float *a, const float *b, size_t n)
{
    SPR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}
#endif
