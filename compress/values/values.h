/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Value coders: a vector of floats becomes an image of fewer bytes, and comes back, more or less.
 *
 * One const struct per coder, all of them in spr_value_coders[]. Pure functions: no state, no
 * allocation, no thread; the same bits on every instruction set. One pass over memory: a group is
 * measured, quantised and packed while it is in the L1 cache.
 *
 * An image is the images of the groups, one behind the other, each a multiple of 4 bytes, little-
 * endian; every file has its diagram. So a vector may be cut where it likes at multiples of
 * group(): the parts have, put together, the image of the whole. Where FIXED is set, each part's
 * place follows from bound(). Where TOGETHER is set, groups share what they may take: an image may
 * be cut like that to be decoded, but what is encoded in parts has another one.
 *
 * What is not finite is never lost and never spreads into a residual. fp32, fp16, bf16, natural and
 * bounded keep NaN (the first three and bounded also Inf) where it is; the others, which have one
 * scale for a group, send a NaN as the scale, and all of the group decodes to NaN. A finite value
 * never becomes infinite. A group whose scale would be too small for its reciprocal
 * (SPR_VALUES_TINY) is sent as zeros.
 *
 * Random rounding takes a number per element that depends on seed and index alone.
 */
#ifndef SPR_COMPRESS_VALUES_VALUES_H
#define SPR_COMPRESS_VALUES_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"
#include "compress/kernels/values.h"

#define SPR_VALUE_OPTION_BYTES 64
/* Largest magnitudes below this are sent as zeros by the coders that need a reciprocal: of 127
 * levels, and with 16 more bits to round at random. */
#define SPR_VALUES_TINY 0x1p-104f

enum {
    SPR_VALUES_LOSSLESS = 1,
    SPR_VALUES_UNBIASED = 2, /* the mean over all seeds is the input, but for 2^-17 of a step */
    SPR_VALUES_RANDOM = 4,   /* uses the seed */
    SPR_VALUES_FIXED = 8,    /* the size depends on n only: bound() is exact */
    SPR_VALUES_TOGETHER = 16 /* how a group is coded depends on its neighbours */
};

/* `options` are the fields of the table, set by spr_opt_defaults() and spr_opt_set(). `bytes` and
 * `out` are aligned to 4. All slots are filled. */
struct spr_value_coder {
    const char *name;
    const char *doc; /* one sentence, no trailing dot */
    const char *paper;
    const struct spr_opt *options; /* of at most SPR_VALUE_OPTION_BYTES; no strings */
    size_t option_count;
    const char *(*refuse)(const void *options); /* why they make no sense together, or NULL */
    unsigned (*traits)(const void *options);
    size_t (*group)(const void *options); /* at most SPR_VALUES_GROUP_MAX */
    /* The most bytes of an image of n values; additive where a vector may be cut. */
    size_t (*bound)(const void *options, size_t n);
    /* Where the size is not FIXED: bits per value that there are about; 0: that depends on the
     * values. NULL: it always does. */
    double (*bits)(const void *options);
    /* Returns the bytes written. in[i] draws as element draw.first + i. */
    size_t (*encode)(const void *options, struct spr_draw draw, const float *in, size_t n,
                     void *out);
    /* Is this an image of n values, of just that size? OK or PROTO, with a sentence in *why. */
    spr_status (*check)(const void *options, const void *bytes, size_t size, size_t n,
                        const char **why);
    /* Of an image that check() has passed. Returns the bytes read, so that the n values at its
     * front can be taken first (n a multiple of group()). With SPR_DECODE_TAKE `out` is what was
     * encoded, and becomes what stays of it: nothing of what is not finite; all that is finite of a
     * group that was sent as NaN. */
    size_t (*decode)(const void *options, const void *bytes, size_t n, enum spr_decode how,
                     float *out);
    /* residual += gradient; encode(residual); residual -= decode(image), with the bits of doing so
     * step by step, as spr_value_feed() does. Of a batch that stays in L1. */
    size_t (*feed)(const struct spr_value_coder *coder, const void *options, struct spr_draw draw,
                   float *residual, const float *gradient, size_t n, void *out);
};

extern const struct spr_value_coder *const spr_value_coders[];
extern const size_t spr_value_coder_count;
/* NULL: there is none of that name. */
const struct spr_value_coder *spr_value_coder_find(const char *name);

/* Random numbers of a seed (Philox makes the key of it), from element `first` on. */
struct spr_draw spr_draw(uint64_t seed, uint64_t first);

/* encode() of a vector of any length: where the image is large, it goes past the caches. */
size_t spr_value_encode(const struct spr_value_coder *coder, const void *options,
                        struct spr_draw draw, const float *in, size_t n, void *out);

/* Error feedback (Seide et al. 2014): residual += gradient; image = encode(residual); residual -=
 * decode(image), in one pass over memory. Returns the bytes written. */
size_t spr_value_feedback(const struct spr_value_coder *coder, const void *options,
                          struct spr_draw draw, float *residual, const float *gradient, size_t n,
                          void *out);

/* Step by step: for coders that have no shorter way. */
size_t spr_value_feed(const struct spr_value_coder *coder, const void *options,
                      struct spr_draw draw, float *residual, const float *gradient, size_t n,
                      void *out);

/* Decode and add at positions of a window: acc[pos[i]] += value i, touched bit pos[i] set; pos
 * ascending. Of an image that check() has passed. Returns the bytes read. */
size_t spr_value_add_at(const struct spr_value_coder *coder, const void *options, const void *bytes,
                        const uint16_t *pos, size_t n, float *acc, uint64_t *touched);

extern const struct spr_value_coder spr_value_fp32, spr_value_fp16, spr_value_bf16, spr_value_int8,
    spr_value_int4, spr_value_sign, spr_value_qsgd, spr_value_terngrad, spr_value_natural,
    spr_value_bounded;

#endif
