/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reduction kernels. The accumulator has the element type itself, but float for fp16 and bf16,
 * which are therefore rounded only once, in spr_reduce_store.
 */
#ifndef SPR_COLLECTIVES_REDUCE_H
#define SPR_COLLECTIVES_REDUCE_H

#include <sparring/types.h>

/* Bytes of one accumulator element. */
size_t spr_reduce_acc_size(spr_dtype dtype);
/* acc[i] = x[i]. */
void spr_reduce_load(spr_dtype dtype, void *acc, const void *x, size_t n);
/* acc[i] = acc[i] op x[i]. */
void spr_reduce_add(spr_dtype dtype, spr_op op, void *acc, const void *x, size_t n);
/* out[i] = acc[i], for AVG divided by `ranks`. out may be acc when the types are equal. */
void spr_reduce_store(spr_dtype dtype, spr_op op, void *out, const void *acc, size_t n, int ranks);

#endif
