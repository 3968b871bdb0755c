/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What selecting kernels share whatever their vectors are: where the entries go, and how a call is
 * cut into whole vectors, in two stages where little is expected, and a rest for the scalar kernel.
 */
#ifndef SPR_COMPRESS_KERNELS_TOPK_EMIT_H
#define SPR_COMPRESS_KERNELS_TOPK_EMIT_H

#include "compress/kernels/kernels.h"

#define SPR_EMIT_BLOCK 2048 /* elements between the two stages of "sparse" */

struct spr_sink {
    uint32_t *index;
    float *value;
    size_t count;
};

/* Emits from x. With feedback (g is not NULL) it emits from x + g instead, and what remains of that
 * goes to r, which is x. n is a multiple of 16. */
typedef void spr_emitter(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                         uint32_t base, struct spr_sink *s);

/* A kernel made of two emitters, constants where this is called; that of "sparse" takes at most
 * SPR_EMIT_BLOCK elements. */
static inline __attribute__((always_inline)) size_t
spr_emit(const float *x, float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
         _Bool dense, uint32_t *index, float *value, spr_emitter *emit_dense,
         spr_emitter *emit_sparse)
{
    struct spr_sink s = {.index = index, .value = value};
    size_t done = n & ~(size_t)15, left = n - done;
    uint32_t last = base + (uint32_t)done;

    if (dense)
        emit_dense(x, r, g, done, lo, base, &s);
    else
        for (size_t i = 0; i < done; i += SPR_EMIT_BLOCK)
            emit_sparse(x + i, g ? r + i : NULL, g ? g + i : NULL,
                        done - i < SPR_EMIT_BLOCK ? done - i : SPR_EMIT_BLOCK, lo,
                        base + (uint32_t)i, &s);
    index += s.count;
    value += s.count;
    return s.count +
           (g ? spr_scalar_feedback(r + done, g + done, left, lo, last, dense, index, value)
              : spr_scalar_select(x + done, left, lo, last, dense, index, value));
}

#endif
