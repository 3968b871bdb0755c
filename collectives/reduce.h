/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reduction kernels. The accumulator has the element type itself, but float for fp16 and bf16,
 * which are therefore rounded only once, in spr_reduce_store.
 */
#ifndef SPR_COLLECTIVES_REDUCE_H
#define SPR_COLLECTIVES_REDUCE_H

#include <stdbool.h>

#include <sparring/types.h>

/* The type of one accumulator element, and its bytes. */
spr_dtype spr_reduce_acc(spr_dtype dtype);
size_t spr_reduce_acc_size(spr_dtype dtype);
/* acc[i] = x[i]. */
void spr_reduce_load(spr_dtype dtype, void *acc, const void *x, size_t n);
/* acc[i] = acc[i] op x[i]. */
void spr_reduce_add(spr_dtype dtype, spr_op op, void *acc, const void *x, size_t n);
/* out[i] = a[i] op b[i], in one pass. out may be a or b when the types are equal. */
struct spr_reduce_two {
    spr_dtype dtype; /* of b; and of a, if it is the first: else that has accumulator elements */
    spr_dtype out;   /* of the last result: the same type, or that of its accumulator or of which
                      * that is one */
    spr_op op;
    bool first;
    bool last; /* the result is of type `out`, for AVG divided by `ranks`; else an accumulator */
    int ranks;
};
void spr_reduce_two(const struct spr_reduce_two *r, void *out, const void *a, const void *b,
                    size_t n);
/* out[i] = acc[i], for AVG divided by `ranks`. out may be acc when the types are equal. */
void spr_reduce_store(spr_dtype dtype, spr_op op, void *out, const void *acc, size_t n, int ranks);

#endif
