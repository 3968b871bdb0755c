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

/* b from memory that is aligned to 16 bytes. */
static inline __m128 add4_of(__m128 a, const float *b)
{
    __asm__("addps %1, %0" : "+x"(a) : "m"(*(const __m128 *)b));
    return a;
}

/* Four at a time, whose results are written after the last of them, for QEMU: 4.4 ns per float, one
 * after the other 7.5, most likely since its registers are memory, of which 8 bytes that were just
 * written as two floats come late. On Emerald Rapids itself both take 0.12 ns. */
static size_t sum_aligned(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m128 w = add4_of(_mm_loadu_ps(a + i), b + i);
        __m128 x = add4_of(_mm_loadu_ps(a + i + 4), b + i + 4);
        __m128 y = add4_of(_mm_loadu_ps(a + i + 8), b + i + 8);
        __m128 z = add4_of(_mm_loadu_ps(a + i + 12), b + i + 12);

        _mm_storeu_ps(out + i, w);
        _mm_storeu_ps(out + i + 4, x);
        _mm_storeu_ps(out + i + 8, y);
        _mm_storeu_ps(out + i + 12, z);
    }
    return i;
}

void spr_scalar_sum(float *out, const float *a, const float *b, size_t n)
{
    size_t i = (uintptr_t)b % sizeof(__m128) == 0 ? sum_aligned(out, a, b, n) : 0;

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
