/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/quality.h"

#include <stdlib.h>

#include "base/clock.h"
#include "tools/codec/operations.h"

enum { STEPS = 7, MOST_SUBJECTS = 4 };

static double cosine_of(const float *x, const float *y, size_t n)
{
    double xx = 0, yy = 0, xy = 0;

    for (size_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        if (!isfinite(a) || !isfinite(b))
            continue;
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : (double)NAN;
}

spr_status quality_of(struct subject *subject, const float *x, float *decoded,
                      struct quality *quality, struct spr_error *error)
{
    size_t n = subject->n, bytes = subject_encode(subject, x);
    spr_status status = subject_decode(subject, decoded, error);

    if (status != SPR_OK)
        return status;
    *quality = (struct quality){
        .bytes = bytes,
        .ratio = (double)bytes / (double)(n * sizeof(float)),
        .bits = 8 * (double)bytes / (double)n,
        .error = relative_error(x, decoded, n),
        .cosine = cosine_of(x, decoded, n),
    };
    return SPR_OK;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

spr_status quality_times(struct subject *const *subjects, int count, const float *x, float *decoded,
                         struct quality *qualities, struct spr_error *error)
{
    double encode[MOST_SUBJECTS][STEPS], decode[MOST_SUBJECTS][STEPS];

    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < count; i++) {
            uint64_t begin = spr_monotonic_ns();
            subject_encode(subjects[i], x);
            uint64_t middle = spr_monotonic_ns();
            spr_status status = subject_decode(subjects[i], decoded, error);
            if (status != SPR_OK)
                return status;
            encode[i][step] = (double)(middle - begin) * 1e-3;
            decode[i][step] = (double)(spr_monotonic_ns() - middle) * 1e-3;
        }
    for (int i = 0; i < count; i++) {
        qsort(encode[i], STEPS, sizeof(double), ascending);
        qsort(decode[i], STEPS, sizeof(double), ascending);
        qualities[i].encode_us = encode[i][STEPS / 2];
        qualities[i].decode_us = decode[i][STEPS / 2];
    }
    return SPR_OK;
}
