/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/lowrank.h"

#include <string.h>

#include "base/cpu.h"

#define LANES SPR_LOWRANK_LANES

static float sum_of_lanes(const float lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void update_row(float *m, size_t i, size_t columns, unsigned rank, const float *p,
                       const float *q, const float *g)
{
    for (size_t j = 0; j < columns; j++) {
        for (unsigned k = 0; p && k < rank; k++)
            m[j] -= p[spr_skinny_at(i, k, rank)] * q[spr_skinny_at(j, k, rank)];
        if (g)
            m[j] += g[j];
    }
}

static void project(float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                    const float *q, const float *g, const float *from, float *out)
{
    if (from)
        memset(out, 0, spr_skinny_floats(rows, rank) * sizeof(*out));
    for (size_t i = 0; i < rows; i++) {
        float *row = m + i * columns;

        if (p || g)
            update_row(row, i, columns, rank, p, q, g ? g + i * columns : NULL);
        for (unsigned k = 0; from && k < rank; k++) {
            float lane[LANES] = {0};
            for (size_t j = 0; j < spr_skinny_floats(columns, 1); j++)
                lane[j % LANES] += (j < columns ? row[j] : 0) * from[spr_skinny_at(j, k, rank)];
            out[spr_skinny_at(i, k, rank)] = sum_of_lanes(lane);
        }
    }
}

static void correlate(const float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                      float *q)
{
    memset(q, 0, spr_skinny_floats(columns, rank) * sizeof(*q));
    for (size_t i = 0; i < rows; i += 4)
        for (size_t j = 0; j < columns; j++)
            for (unsigned k = 0; k < rank; k++) {
                float a[4] = {0};
                for (size_t x = 0; x < 4 && i + x < rows; x++)
                    a[x] = m[(i + x) * columns + j] * p[spr_skinny_at(i + x, k, rank)];
                q[spr_skinny_at(j, k, rank)] += (a[0] + a[1]) + (a[2] + a[3]);
            }
}

static void expand(float *out, size_t rows, size_t columns, unsigned rank, const float *p,
                   const float *q, float scale)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            float sum = 0;
            for (unsigned k = 0; k < rank; k++)
                sum += p[spr_skinny_at(i, k, rank)] * q[spr_skinny_at(j, k, rank)];
            out[i * columns + j] = scale * sum;
        }
}

const struct spr_lowrank_kernels spr_lowrank_kernels_scalar = {
    .name = "scalar",
    .project = project,
    .correlate = correlate,
    .expand = expand,
};

const struct spr_lowrank_kernels *spr_lowrank_kernels(void)
{
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return &spr_lowrank_kernels_avx2;
#endif
#ifdef HAVE_ARM64
    if (spr_cpu_features() & SPR_CPU_NEON)
        return &spr_lowrank_kernels_neon;
#endif
    return &spr_lowrank_kernels_scalar;
}
