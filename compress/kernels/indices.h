/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Kernels of the index coders (compress/indices/): what is done to a block of up to 256 ascending
 * positions. The scalar table is the specification; the others give the same bits.
 *
 * `first` is the least position that the block may begin with: one above the end of the block
 * before it. Arithmetic is modulo 2^32; callers check what could overflow.
 */
#ifndef SPR_COMPRESS_KERNELS_INDICES_H
#define SPR_COMPRESS_KERNELS_INDICES_H

#include <stddef.h>
#include <stdint.h>

#define SPR_INDEX_BLOCK 256
/* Entries that an emitting kernel may write past its result. */
#define SPR_INDEX_SLACK 8

struct spr_indices_kernels {
    const char *name;

    /* gap[i] = positions that are left out before x[i]: x[i] - x[i - 1] - 1, of the first
     * x[0] - first. Returns the gaps or'ed. */
    uint32_t (*gaps)(const uint32_t *x, size_t n, uint32_t first, uint32_t *gap);
    /* The inverse; returns the gaps or'ed, too. */
    uint32_t (*sums)(const uint32_t *gap, size_t n, uint32_t first, uint32_t *x);

    /* SPR_INDEX_BLOCK values below 2^width, width <= 32, to 32 * width bytes and back. Vertical:
     * lane j of 8 holds the values j, 8 + j, 16 + j, ... one after the other, low bits first, in
     * words of 32 bits; word k of lane j is word 8 * k + j of the bytes (little-endian). */
    void (*pack)(const uint32_t *value, unsigned width, uint8_t *out);
    void (*unpack)(const uint8_t *in, unsigned width, uint32_t *value);

    /* Elias-Fano, with y[i] = x[i] - first - i, which never falls: low[i] = the lower `width` bits
     * of y[i], one[i] = (y[i] >> width) + i, which rises. width <= 31 */
    void (*split)(const uint32_t *x, size_t n, uint32_t first, unsigned width, uint32_t *low,
                  uint32_t *one);
    /* The inverse; returns whether y never falls (else x is of no use). */
    _Bool (*join)(const uint32_t *low, const uint32_t *one, size_t n, uint32_t first,
                  unsigned width, uint32_t *x);

    /* Positions of the set bits of a bitmap, plus `first`; returns how many. Room for them plus
     * SPR_INDEX_SLACK. */
    size_t (*ones)(const uint8_t *bits, size_t bytes, uint32_t first, uint32_t *x);
    /* The inverse, into bytes that are zero up to the last bit; up to 7 behind it become zero. */
    void (*set)(const uint32_t *x, size_t n, uint8_t *bits);
};

extern const struct spr_indices_kernels spr_indices_scalar;
extern const struct spr_indices_kernels spr_indices_avx2; /* only where HAVE_X86 is defined */
extern const struct spr_indices_kernels spr_indices_neon; /* only where HAVE_ARM64 is */

/* The best table for this CPU (spr_cpu_features()). */
const struct spr_indices_kernels *spr_indices_kernels(void);

#endif
