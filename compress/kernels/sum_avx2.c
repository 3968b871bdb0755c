/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx2.h"

void spr_avx2_sum(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    /* Not behind the end: there, another rank may be writing. */
    for (; i + 16 + SPR_AHEAD_BYTES / sizeof(float) <= n; i += 16) {
        spr_ahead(a + i, SPR_AHEAD_BYTES);
        spr_ahead(b + i, SPR_AHEAD_BYTES);
        for (size_t k = i; k < i + 16; k += 8)
            _mm256_storeu_ps(out + k, spr_add8(_mm256_loadu_ps(a + k), _mm256_loadu_ps(b + k)));
    }
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, spr_add8(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++)
        out[i] = spr_add(a[i], b[i]);
}
