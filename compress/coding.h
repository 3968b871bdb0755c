/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Values of a chunk as a value coder makes them (compress/values/). The unit is a window: its
 * entries, in order, are coded together, and their groups do not reach into the next window. So a
 * rank that knows which windows there are knows what others will make of its values.
 *
 * Coder and options are the same on all ranks; the seed is the sender's own, new in every step.
 */
#ifndef SPR_COMPRESS_CODING_H
#define SPR_COMPRESS_CODING_H

#include "compress/blocks.h"
#include "compress/values/values.h"

struct spr_coding {
    const struct spr_value_coder *coder;
    const void *options; /* of the coder */
    uint64_t seed;
    float *values; /* scratch: SPR_WINDOW + 16, or as many as the longest window has */
    void *image;   /* scratch: spr_coding_bound() of them */
};

/* Bytes at most of the image of a window with n entries. */
size_t spr_coding_bound(const struct spr_coding *c, size_t n);
/* Does the size of an image follow from n? */
_Bool spr_coding_is_fixed(const struct spr_coding *c);
/* Bytes of a value, on average; 0: that depends on the values. */
double spr_coding_value_bytes(const struct spr_coding *c);
/* The image of the n values of a window; returns its bytes. out: aligned to 4. */
size_t spr_coding_encode(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                         uint32_t w, const float *val, size_t n, void *out);
/* out = or += what becomes of the n values of a window. Uses c->image. */
void spr_coding_pass(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                     uint32_t w, const float *val, size_t n, enum spr_decode how, float *out);
/* What becomes of the n values of a window: val = decode(encode(val)). Uses c->image; returns its
 * bytes. */
size_t spr_coding_round(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                        uint32_t w, float *val, size_t n);

#endif
