/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <string.h>

#include "compress/lowrank/lowrank.h"

#define LANES SPR_LOWRANK_LANES
/* Less than this part of a column left over is rounding: sums in float are good to about 2^-20. */
#define DEPENDENT 0x1p-18

/* Sums go by lane, then as in the kernels. */
static double dot(const double *a, const double *b, size_t groups, size_t stride)
{
    double lane[LANES] = {0};

    for (size_t g = 0; g < groups; g++)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += a[g * stride + l] * b[g * stride + l];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void take_away(double *a, const double *b, double part, size_t groups, size_t stride)
{
    for (size_t g = 0; g < groups; g++)
        for (size_t l = 0; l < LANES; l++)
            a[g * stride + l] -= part * b[g * stride + l];
}

static void multiply(double *a, double factor, size_t groups, size_t stride)
{
    for (size_t g = 0; g < groups; g++)
        for (size_t l = 0; l < LANES; l++)
            a[g * stride + l] *= factor;
}

void spr_lowrank_orthogonalise(float *p, size_t rows, unsigned rank, double *workspace)
{
    size_t floats = spr_skinny_floats(rows, rank), stride = (size_t)rank * LANES;
    size_t groups = floats / stride;
    bool finite = true;

    for (size_t i = 0; i < floats; i++)
        workspace[i] = (double)p[i];
    for (unsigned k = 0; finite && k < rank; k++) {
        double *column = workspace + k * LANES;
        double before = sqrt(dot(column, column, groups, stride)), after;

        finite = isfinite(before); /* squares of floats do not overflow */
        for (int round = 0; round < 2; round++)
            for (unsigned other = 0; other < k; other++) {
                const double *b = workspace + other * LANES;
                take_away(column, b, dot(column, b, groups, stride), groups, stride);
            }
        after = sqrt(dot(column, column, groups, stride));
        multiply(column, after > DEPENDENT * before ? 1 / after : 0, groups, stride);
    }
    for (size_t i = 0; finite && i < floats; i++)
        p[i] = (float)workspace[i];
    for (size_t i = 0; !finite && i < rows; i++)
        for (unsigned k = 0; k < rank; k++)
            p[spr_skinny_at(i, k, rank)] = NAN;
}
