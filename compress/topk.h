/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Exact top-k by magnitude, fused with error feedback. Pure: no allocation, no threads.
 *
 * Order: |x| as integer bits (so NaN > Inf > finite; NaNs are always selected first), ties by lower
 * index. Result in ascending index order. Scalar and SIMD versions give the same bits, but for the
 * payload of a NaN that is the sum of two NaNs.
 *
 * Time: one pass over memory, for nearly all data; at most fifteen, for the worst.
 */
#ifndef SPR_COMPRESS_TOPK_H
#define SPR_COMPRESS_TOPK_H

#include <stddef.h>
#include <stdint.h>

/* What one call learns for the next one; zero = nothing known. Only affects speed. */
struct spr_topk_hint {
    uint32_t threshold_bits; /* magnitude bits of the last k-th largest */
};

/* k = ceil(ratio * n), at least 1, at most n. */
size_t spr_topk_count(double ratio, size_t n);
/* Scratch bytes for the two functions below. */
size_t spr_topk_scratch(size_t n, size_t k);

/* Select the k largest of x[0..n). index and value have room for k + 16. */
void spr_topk_select(const float *x, size_t n, size_t k, struct spr_topk_hint *hint,
                     uint32_t *index, float *value, void *scratch);
/*
 * residual += gradient (gradient NULL: nothing is added); select the k largest of residual; set
 * them to zero there. 12 bytes of memory traffic per element.
 */
void spr_topk_feedback(float *residual, const float *gradient, size_t n, size_t k,
                       struct spr_topk_hint *hint, uint32_t *index, float *value, void *scratch);

#endif
