/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Levels as Elias codes, the two codings of Alistarh et al. 2017, "QSGD: communication-efficient
 * SGD via gradient quantization and encoding":
 *
 *   dense   per element Elias(|level| + 1), then, unless the level is 0, its sign bit: about 2.8
 * bits per element with sqrt(m) levels in a bucket of m (the paper's Code') sparse  per level that
 * is not 0 Elias(distance to the one before), sign bit, Elias(|level|), and Elias(distance to
 * position m) as the end: for few levels (the paper's Code)
 *
 * Elias is the recursive (omega) code, P. Elias 1975: N >= 1 is written as a 0; and while N > 1, in
 * front of it, N in binary, after which N becomes the number of these bits less one. Bits go from
 * bit 7 of a byte to bit 0. A sign bit is 1 for negative.
 */
#ifndef SPR_COMPRESS_VALUES_ELIAS_H
#define SPR_COMPRESS_VALUES_ELIAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes for n codes in -levels..levels at the most, padded to 4. */
size_t spr_elias_bound(size_t n, int levels, bool sparse);
/* Returns the bytes written, padded with zeros to 4. */
size_t spr_elias_encode(const int8_t *code, size_t n, bool sparse, uint8_t *out);
/* Reads `size` bytes at most. Returns the bytes of the n codes, padding included; 0: these are not
 * n codes in -levels..levels, or the padding is not zero. */
size_t spr_elias_decode(const uint8_t *in, size_t size, size_t n, int levels, bool sparse,
                        int8_t *code);

#endif
