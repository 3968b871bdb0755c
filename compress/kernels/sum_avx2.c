/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/lanes_avx2.h"

#define AHEAD 512 /* elements: see topk_avx2.c */

void spr_avx2_sum(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 16 + AHEAD <= n; i += 16) {
        _mm_prefetch((const char *)(a + i + AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + i + AHEAD), _MM_HINT_T0);
        for (size_t k = i; k < i + 16; k += 8)
            _mm256_storeu_ps(out + k, spr_add8(_mm256_loadu_ps(a + k), _mm256_loadu_ps(b + k)));
    }
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, spr_add8(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++)
        out[i] = spr_add(a[i], b[i]);
}
