/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a codec makes of a vector in its first step: bytes on the wire, and how much of the vector
 * the others see.
 */
#ifndef SPR_TOOLS_CODEC_QUALITY_H
#define SPR_TOOLS_CODEC_QUALITY_H

#include "tools/codec/subject.h"

struct quality {
    size_t bytes;
    double ratio;                /* of the bytes of the vector as fp32 */
    double bits;                 /* per element */
    double error;                /* |x - decoded| / |x| */
    double cosine;               /* of the angle between the two; NAN: one of them is zero */
    double encode_us, decode_us; /* medians of some steps */
};

/* `decoded` has room for the vector. PROTO: what was encoded cannot be decoded. */
spr_status quality_of(struct subject *subject, const float *x, float *decoded,
                      struct quality *quality, struct spr_error *error);
/* Medians of encode_us and decode_us of several codecs, in turns. */
spr_status quality_times(struct subject *const *subjects, int count, const float *x, float *decoded,
                         struct quality *qualities, struct spr_error *error);

/* What comes back of the step that was encoded last: the sum over ranks, if each one selects as
 * many elements as this one, independently and uniformly. */
struct quality_sum {
    size_t bytes;
    double encode_us, decode_us; /* of all of it; medians */
};
/* Forgets the step: to be called after the others. NOMEM. */
spr_status quality_sum(struct subject *subject, int ranks, struct quality_sum *sum,
                       struct spr_error *error);

#endif
