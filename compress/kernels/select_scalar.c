/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/select.h"

#include <math.h>

#include "base/cpu.h"
#include "compress/kernels/kernels.h"

static void decay(float *v, const float *g, float d, float c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float old = d * v[i], added = c * g[i];

        v[i] = old + added;
    }
}

static void momentum(float *v, float *u, const float *g, float m, float c, _Bool nesterov, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float w = c * g[i];

        if (nesterov) {
            float ahead = u[i] + w;

            u[i] = m * ahead;
            v[i] = (v[i] + u[i]) + w;
        } else {
            float old = m * u[i];

            u[i] = old + w;
            v[i] = v[i] + u[i];
        }
    }
}

static double tree(const double l[8])
{
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static double squares(const float *x, size_t n)
{
    double lane[8] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    return tree(lane);
}

static float l1(const float *x, size_t n)
{
    float lane[16] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 16] += fabsf(x[i]);
    for (size_t l = 0; l < 8; l++)
        lane[l] += lane[l + 8];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static uint32_t max(const float *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = spr_key(x[i]) > most ? spr_key(x[i]) : most;
    return most;
}

static void norms(const float *x, size_t n, enum spr_norm norm, uint32_t *bits)
{
    for (size_t at = 0; at < n; at += SPR_NORM_BLOCK) {
        size_t len = n - at < SPR_NORM_BLOCK ? n - at : SPR_NORM_BLOCK;

        if (norm == SPR_NORM_L1)
            *bits++ = spr_key(l1(x + at, len));
        else if (norm == SPR_NORM_L2)
            *bits++ = spr_key((float)sqrt(squares(x + at, len)));
        else
            *bits++ = max(x + at, len);
    }
}

static void strata(const struct spr_strata *s, uint32_t first, size_t n, uint32_t *index)
{
    for (size_t i = 0; i < n; i++)
        index[i] = spr_strata_position(s, first + (uint32_t)i);
}

const struct spr_select_kernels spr_select_kernels_scalar = {
    .name = "scalar",
    .decay = decay,
    .momentum = momentum,
    .squares = squares,
    .norms = norms,
    .strata = strata,
};

const struct spr_select_kernels *spr_select_kernels(void)
{
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return &spr_select_kernels_avx2;
#endif
#ifdef HAVE_ARM64
    if (spr_cpu_features() & SPR_CPU_NEON)
        return &spr_select_kernels_neon;
#endif
    return &spr_select_kernels_scalar;
}
