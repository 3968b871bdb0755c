/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What coders with a scale per group share.
 */
#ifndef SPR_COMPRESS_VALUES_GROUP_H
#define SPR_COMPRESS_VALUES_GROUP_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/values/values.h"

#define SPR_NAN_BITS 0x7fc00000u /* the one NaN that is sent as a scale */
#define SPR_INFINITY_BITS 0x7f800000u
#define SPR_VALUES_LEVELS_MAX 127
#define SPR_VALUES_GROUP_MIN 8u

/* The option of every coder that has groups. */
#define SPR_VALUES_GROUP_OPTION(fields, title, elements)                                           \
    {                                                                                              \
        .name = title, .default_value = elements, .doc = "elements that share a scale",            \
        .type = SPR_OPT_SIZE, .offset = offsetof(fields, group), .min = SPR_VALUES_GROUP_MIN,      \
        .max = SPR_VALUES_GROUP_MAX,                                                               \
    }

static inline float spr_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t spr_load_u32(const void *from)
{
    uint32_t v;
    memcpy(&v, from, sizeof(v));
    return v;
}
static inline float spr_load_float(const void *from) { return spr_float_of(spr_load_u32(from)); }
static inline void spr_store_u32(void *to, uint32_t v) { memcpy(to, &v, sizeof(v)); }
static inline void spr_store_float(void *to, float v) { memcpy(to, &v, sizeof(v)); }

/* Bytes of `bits` bits, with the padding to 4. */
static inline size_t spr_padded(size_t bits) { return (bits + 31) / 32 * 4; }
/* Zeros from `bits` bits on up to the end of the padding; the last byte's own are zero already. */
static inline void spr_pad(uint8_t *at, size_t bits)
{
    size_t used = (bits + 7) / 8;
    memset(at + used, 0, spr_padded(bits) - used);
}
static inline bool spr_padding_is_zero(const uint8_t *at, size_t bits)
{
    for (size_t i = (bits + 7) / 8; i < spr_padded(bits); i++)
        if (at[i] != 0)
            return false;
    return bits % 8 == 0 || at[bits / 8] >> bits % 8 == 0;
}

/* A scale as it is sent: the one NaN, or not negative, with scale * levels finite. */
static inline bool spr_scale_is_valid(uint32_t bits, int levels)
{
    return bits == SPR_NAN_BITS ||
           (bits < SPR_INFINITY_BITS && spr_float_of(bits) * (float)levels <= FLT_MAX);
}

/* Bits of a code in -levels..levels. */
static inline unsigned spr_width_of(int levels)
{
    return 33u - (unsigned)__builtin_clz((unsigned)levels);
}

/* For codes in -levels..levels, and magnitudes up to `reach`, a finite number. A scale of zero:
 * all codes are zero. */
static inline struct spr_quantiser spr_quantiser_of(float reach, int levels)
{
    struct spr_quantiser q = {.limit = (float)levels};

    if (reach < SPR_VALUES_TINY)
        return q;
    q.inverse = (float)levels / reach;
    q.scale = reach / (float)levels;
    if (q.scale * (float)levels > FLT_MAX) /* rounded up, at the very end of the range */
        q.scale = nextafterf(q.scale, 0);
    return q;
}

/* A group that was sent as NaN; and one that was sent as zeros. */
void spr_group_decode_nan(size_t n, enum spr_decode how, float *out);
void spr_group_decode_zero(size_t n, enum spr_decode how, float *out);
/* Sums for when those of the kernels, in single precision, overflow: of |x| and x * x, in order. */
double spr_group_sum_abs(const float *x, size_t n);
double spr_group_sum_squares(const float *x, size_t n);
/* L2 norm: at least the largest magnitude and at most FLT_MAX. */
float spr_group_norm(const float *x, size_t n, float largest);

#endif
