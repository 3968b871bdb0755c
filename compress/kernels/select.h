/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Inner loops of compress/select/, one implementation per instruction set; see
 * compress/kernels/kernels.h for the rules, and for those of top-k.
 */
#ifndef SPR_COMPRESS_KERNELS_SELECT_H
#define SPR_COMPRESS_KERNELS_SELECT_H

#include <stddef.h>
#include <stdint.h>

#define SPR_NORM_BLOCK 256 /* elements */

enum spr_norm { SPR_NORM_L1, SPR_NORM_L2, SPR_NORM_MAX };

/* Strata: [0, n) in k parts whose sizes differ by at most one; the first `longer` have one more
 * than `length`. */
struct spr_strata {
    uint32_t length, longer;
    uint32_t key[2];
};

struct spr_select_kernels {
    const char *name;
    /* v = d v + c g; products are rounded first, here and below */
    void (*decay)(float *v, const float *g, float d, float c, size_t n);
    /* w = c g;  u = m u + w, v = v + u;  with nesterov: u = m (u + w), v = (v + u) + w */
    void (*momentum)(float *v, float *u, const float *g, float m, float c, _Bool nesterov,
                     size_t n);
    /* Sum of squares in double: lane i mod 8, then ((0+4)+(2+6)) + ((1+5)+(3+7)). */
    double (*squares)(const float *x, size_t n);
    /* Norms of blocks of SPR_NORM_BLOCK elements, the last one may be short, as keys
     * (kernels.h). L1: in float, lane i mod 16, lane l + 8 added to lane l, then as squares. L2:
     * root of the sum of squares, rounded to float. */
    void (*norms)(const float *x, size_t n, enum spr_norm norm, uint32_t *bits);
    /* A pseudo-random position in each of the strata [first, first + n). */
    void (*strata)(const struct spr_strata *s, uint32_t first, size_t n, uint32_t *index);
};

extern const struct spr_select_kernels spr_select_kernels_scalar;
extern const struct spr_select_kernels spr_select_kernels_avx2; /* only where HAVE_X86 is defined */
extern const struct spr_select_kernels spr_select_kernels_neon; /* only where HAVE_ARM64 is */

/* The best table for this CPU (spr_cpu_features()). */
const struct spr_select_kernels *spr_select_kernels(void);

/* 32 well-mixed bits: lowbias32 (C. Wellons 2018), twice with a key in between. */
static inline uint32_t spr_hash_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
static inline uint32_t spr_strata_position(const struct spr_strata *s, uint32_t j)
{
    uint32_t random = spr_hash_mix(spr_hash_mix(j ^ s->key[0]) ^ s->key[1]);
    uint32_t start = j * s->length + (j < s->longer ? j : s->longer);

    return start + (uint32_t)((uint64_t)random * (s->length + (j < s->longer)) >> 32);
}

#endif
