/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD over simulated ranks.
 */
#ifndef TESTS_UNIT_LOWRANK_WORLD_H
#define TESTS_UNIT_LOWRANK_WORLD_H

#include "compress/lowrank/lowrank.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/codec/data.h"

static struct spr_rng rng;

static inline void *zeros(size_t n, size_t bytes)
{
    void *p = calloc(n + 1, bytes); /* never nothing */

    assert_non_null(p);
    return p;
}

static inline void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)data_normal(&rng);
}

static inline double norm(const float *x, const float *minus, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Ranks of one process. The sums over them are plain additions, in rank order. */
struct world {
    unsigned ranks;
    size_t elements; /* of the bucket */
    struct spr_lowrank *rank;
    float *p, *q, *out, *sum;
    double *workspace;
};

static inline void world_open(struct world *w, unsigned ranks,
                              const struct spr_lowrank_tensor *tensors, size_t count, unsigned r)
{
    *w = (struct world){.ranks = ranks, .rank = zeros(ranks, sizeof(*w->rank))};
    for (size_t t = 0; t < count; t++)
        w->elements =
            spr_max_size(w->elements, tensors[t].offset + tensors[t].rows * tensors[t].columns);
    for (unsigned i = 0; i < ranks; i++) {
        struct spr_lowrank *l = &w->rank[i];
        *l = (struct spr_lowrank){.tensors = tensors, .count = count, .rank = r, .seed = 7};
        l->residual = zeros(w->elements, sizeof(float));
        l->state = zeros(spr_lowrank_state_floats(l), sizeof(float));
        spr_lowrank_reset(l);
    }
    w->p = zeros(ranks * spr_lowrank_p_floats(w->rank), sizeof(float));
    w->q = zeros(ranks * spr_lowrank_q_floats(w->rank), sizeof(float));
    w->sum = zeros(spr_lowrank_p_floats(w->rank) + spr_lowrank_q_floats(w->rank), sizeof(float));
    w->out = zeros(ranks * w->elements, sizeof(float));
    w->workspace = zeros(spr_lowrank_workspace(w->rank), 1);
}

static inline void world_close(struct world *w)
{
    for (unsigned i = 0; i < w->ranks; i++) {
        free(w->rank[i].residual);
        free(w->rank[i].state);
    }
    free(w->rank);
    free(w->p);
    free(w->q);
    free(w->out);
    free(w->sum);
    free(w->workspace);
}

static inline void allreduce(struct world *w, float *x, size_t n)
{
    memcpy(w->sum, x, n * sizeof(float));
    for (unsigned i = 1; i < w->ranks; i++)
        for (size_t j = 0; j < n; j++)
            w->sum[j] += x[i * n + j];
    for (unsigned i = 0; i < w->ranks; i++)
        memcpy(x + i * n, w->sum, n * sizeof(float));
}

/* gradient: ranks x elements, or NULL. `until`: 1, 2: aborted after that sum; 3: all of it. */
static inline void world_step(struct world *w, const float *gradient, float scale, int until)
{
    size_t np = spr_lowrank_p_floats(w->rank), nq = spr_lowrank_q_floats(w->rank);

    for (unsigned i = 0; i < w->ranks; i++)
        spr_lowrank_project(&w->rank[i], gradient ? gradient + i * w->elements : NULL,
                            w->p + i * np);
    allreduce(w, w->p, np);
    for (unsigned i = 0; until > 1 && i < w->ranks; i++)
        spr_lowrank_correlate(&w->rank[i], w->p + i * np, w->q + i * nq, w->workspace);
    if (until > 1)
        allreduce(w, w->q, nq);
    for (unsigned i = 0; until > 2 && i < w->ranks; i++)
        spr_lowrank_commit(&w->rank[i], w->p + i * np, w->q + i * nq, scale,
                           w->out + i * w->elements);
    for (unsigned i = 1; until > 2 && i < w->ranks; i++)
        assert_memory_equal(w->out, w->out + i * w->elements, w->elements * sizeof(float));
}

/* What a rank keeps. */
static inline void residual_of(struct world *w, unsigned rank, float *x)
{
    spr_lowrank_settle(&w->rank[rank]);
    memcpy(x, w->rank[rank].residual, w->elements * sizeof(float));
}

/* x = sum of `r` outer products, with factors of about 1, decay, decay^2, ... */
static inline void low_rank(float *x, size_t m, size_t n, unsigned r, double decay)
{
    float *a = zeros(m, sizeof(float)), *b = zeros(n, sizeof(float));

    memset(x, 0, m * n * sizeof(float));
    for (unsigned k = 0; k < r; k++) {
        fill(a, m);
        fill(b, n);
        for (size_t i = 0; i < m * n; i++)
            x[i] += (float)(pow(decay, k) * (double)a[i / n] * (double)b[i % n]);
    }
    free(a);
    free(b);
}

#endif
