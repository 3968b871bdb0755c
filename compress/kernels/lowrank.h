/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inner loops of compress/lowrank/, one implementation per instruction set; see
 * compress/kernels/kernels.h for the rules. Sums are in float, in the order that is told here;
 * products are rounded before they are added. Where a result is NaN, its payload is not specified.
 *
 * A matrix is rows x columns, row-major. P (rows x rank) and Q (columns x rank) are skinny, and
 * stored in groups of eight rows, with zeros after the last one:
 *
 *     row i, column k  at  (i / 8 * rank + k) * 8 + i mod 8
 *
 * so that eight neighbours are one vector, and all that belongs to them is in one place.
 */
#ifndef SPR_COMPRESS_KERNELS_LOWRANK_H
#define SPR_COMPRESS_KERNELS_LOWRANK_H

#include <stddef.h>

#define SPR_LOWRANK_LANES 8
#define SPR_LOWRANK_RANK_MAX 32

struct spr_lowrank_kernels {
    const char *name;
    /* M = (M - P Q^T) + G, the products taken away one after the other; p and q, or g, may be NULL:
     * not done. Then, unless `from` is NULL, out = M From: lane j mod 8 sums over the columns j,
     * zeros after the last one, then ((0+4)+(2+6)) + ((1+5)+(3+7)). */
    void (*project)(float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                    const float *q, const float *g, const float *from, float *out);
    /* Q = M^T P: (row 0 + row 1) + (row 2 + row 3), then to that the same of the next four rows;
     * zeros after the last one. */
    void (*correlate)(const float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                      float *q);
    /* out = scale (P Q^T), the products added one after the other. */
    void (*expand)(float *out, size_t rows, size_t columns, unsigned rank, const float *p,
                   const float *q, float scale);
};

extern const struct spr_lowrank_kernels spr_lowrank_kernels_scalar;
extern const struct spr_lowrank_kernels spr_lowrank_kernels_avx2; /* where HAVE_X86 is defined */
extern const struct spr_lowrank_kernels spr_lowrank_kernels_neon; /* where HAVE_ARM64 is */

/* The best table for this CPU (spr_cpu_features()). */
const struct spr_lowrank_kernels *spr_lowrank_kernels(void);

/* Floats of a skinny matrix. */
static inline size_t spr_skinny_floats(size_t rows, unsigned rank)
{
    return (rows + SPR_LOWRANK_LANES - 1) / SPR_LOWRANK_LANES * SPR_LOWRANK_LANES * rank;
}
static inline size_t spr_skinny_at(size_t row, unsigned column, unsigned rank)
{
    return (row / SPR_LOWRANK_LANES * rank + column) * SPR_LOWRANK_LANES + row % SPR_LOWRANK_LANES;
}

#endif
