/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which codec suits a gradient, from how its energy (sum of squares) is spread.
 */
#ifndef SPR_TOOLS_CODEC_ADVICE_H
#define SPR_TOOLS_CODEC_ADVICE_H

#include "base/error.h"

enum { TRAIT_DENSITIES = 3 };
extern const double trait_densities[TRAIT_DENSITIES];

struct traits {
    double largest, rms; /* of the finite elements */
    size_t zeros, not_finite;
    double energy[TRAIT_DENSITIES]; /* part of it that so many of the largest elements have */
    double tiny;                    /* part of the energy that fp16 has no full precision for */
};

struct advice {
    char codec[64];
    char reason[256];
};

/* NOMEM. */
spr_status traits_of(struct traits *traits, const float *x, size_t n, struct spr_error *error);
void advise(struct advice *advice, const struct traits *traits, size_t n);

#endif
