/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Quality of compression: what a step sends of each parameter, against this rank's gradient and
 * what it had accumulated, and warnings when that goes wrong (spr_codec_measured() in
 * include/sparring/codec.h). Every so many steps, when the step has begun: the gradient is still
 * the caller's, the accumulated vector and what is sent are known. A sample reads both vectors
 * once; other steps cost two readings of the clock. Nothing is allocated after the opening.
 *
 * Sums are in double, over finite elements.
 */
#ifndef SPR_COMPRESS_QUALITY_H
#define SPR_COMPRESS_QUALITY_H

#include <stdbool.h>

#include <sparring/codec.h>

struct spr_codec_step;

/* Of elements: squares of the gradient, what was accumulated, what is sent, and their difference;
 * products of gradient and what is sent. */
struct spr_quality_sums {
    double gg, aa, ss, ee, gs;
    double packed; /* bytes of the positions in blocks of bitpack */
    uint64_t sent, not_finite;
};

struct spr_quality_parameter {
    char *name; /* or NULL */
    uint64_t id;
    size_t offset, elements, rows, columns;
    struct spr_quality_sums sums;
    double bits;   /* per element */
    double target; /* density that was asked for */
    double largest_gradient, cosine;
    uint32_t cosines; /* so many are in the smoothed one */
    unsigned alerts;
};

struct spr_quality {
    struct spr_quality_parameter *parameters; /* in the order of the layout, then all of it */
    size_t count;                             /* without the last */
    float *rows;                              /* of a low-rank product: a group of them */
    unsigned every;
    double residual_limit, cosine_floor;
    uint64_t steps, encode_ns;
    uint64_t samples, last_step, last_ns;
    bool due; /* the step that runs is to be measured when its factors are known */
};

/* NOMEM. */
spr_status spr_quality_open(spr_codec *codec, const spr_layout *layout, size_t parameters);
void spr_quality_close(spr_codec *codec);
/* A new step has begun, and took this long. */
void spr_quality_begun(spr_codec *codec, const float *gradient, const struct spr_codec_step *step,
                       uint64_t ns);
/* The factors of a low-rank step are known; the gradient is still there. */
void spr_quality_factors(spr_codec *codec, const float *gradient);

#endif
