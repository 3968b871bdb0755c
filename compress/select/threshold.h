/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Magnitude bits of a threshold that a user or a statistic gives.
 */
#ifndef SPR_COMPRESS_SELECT_THRESHOLD_H
#define SPR_COMPRESS_SELECT_THRESHOLD_H

#include <math.h>
#include <stdint.h>

#include "compress/kernels/kernels.h"

/* The bits of the smallest float that is not below `threshold`; negative and NaN: 0. At most those
 * of infinity, so that NaN and infinity are selected always. */
static inline uint32_t spr_threshold_bits(double threshold)
{
    float nearest = (float)threshold;

    if (!(threshold > 0))
        return 0;
    if ((double)nearest < threshold)
        nearest = nextafterf(nearest, INFINITY);
    return spr_magnitude(nearest);
}

static inline float spr_threshold_value(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

#endif
