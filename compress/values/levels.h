/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Uniform quantising in groups, the common part of int8, int4, qsgd and terngrad: codes in
 * -levels..levels, code = round(x * levels / reach), decoded as code * (reach / levels).
 *
 * A group of m elements, w = 1 + bits of `levels` (2 for 1, 4 for 7, 8 for 127):
 *
 *    0          4
 *   +----------+------------------------------+---------+
 *   | scale    | m codes of w bits, two's     | zeros   |
 *   | fp32     | complement, from bit 0 on    | up to 4 |
 *   +----------+------------------------------+---------+
 *
 * scale = reach / levels; 0: all codes are zero; NaN: something was not finite, all of the group
 * decodes to NaN, codes are zero. Codes beyond `levels`, which w bits may have room for, are not
 * written, and read as they stand.
 */
#ifndef SPR_COMPRESS_VALUES_LEVELS_H
#define SPR_COMPRESS_VALUES_LEVELS_H

#include <stdbool.h>

#include "compress/values/values.h"

/* Made anew for every batch: what is loaded next is of one store, hence the order. */
struct spr_levels {
    size_t group;
    double clip; /* reach is at most `clip` standard deviations; 0: any */
    int levels;  /* at most SPR_VALUES_LEVELS_MAX */
    bool random; /* else to the nearest */
    bool l2;     /* reach is the L2 norm of the group, else its largest magnitude */
};

size_t spr_levels_bound(const struct spr_levels *l, size_t n);
size_t spr_levels_encode(const struct spr_levels *l, struct spr_draw draw, const float *in,
                         size_t n, void *out);
size_t spr_levels_feed(const struct spr_levels *l, struct spr_draw draw, float *residual,
                       const float *gradient, size_t n, void *out);
spr_status spr_levels_check(const struct spr_levels *l, const void *bytes, size_t size, size_t n,
                            const char **why);
size_t spr_levels_decode(const struct spr_levels *l, const void *bytes, size_t n,
                         enum spr_decode how, float *out);

/* The codes of one group, and its scale (NaN, 0 or positive); they are zero but for a positive one.
 */
float spr_levels_codes(const struct spr_levels *l, struct spr_draw draw, const float *in, size_t n,
                       int8_t *code);

#endif
