/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: grant, exposed, copy and start, by which predictions fit what was measured.
 */
#include <math.h>

#include "collectives/tune.h"
#include "compress/chunk.h"

/* Chunks stream, so a little of either is never hidden; and ranks that are in each other's way can
 * look as if more than all of it were exposed. */
#define LEAST_EXPOSED 0.1
#define MOST_EXPOSED 1.0
#define MOST_COPY 1e-6
/* A negative start takes off at most this part of what next to nothing is predicted to take. */
#define EARLIEST 0.75
/* Floats that are cleared before each call, as a job computes between its own. More (see
 * tune_for.c) made predictions no better. */
#define BETWEEN ((size_t)64 << 10)

static size_t candidates_for(struct spr_tuning *t, const struct spr_plan *plan,
                             struct spr_candidate *candidates)
{
    size_t n;

    spr_comm_lock(t->comm);
    n = spr_algorithm_candidates(t->comm, plan, candidates);
    spr_comm_unlock(t->comm);
    return n;
}

/* What a short and a long list took, beyond what is known so far. */
static void fit_lists(struct spr_tuning *t)
{
    struct spr_model *m = &t->model;
    double hidden[2], shown[2];

    m->grant = 0;
    for (int i = 0; i < 2; i++) {
        struct spr_plan plan = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                .dtype = SPR_FP32,
                                .count = SPR_TUNING_POSITIONS,
                                .most_entries = i ? SPR_TUNING_LONG_LIST : SPR_TUNING_SHORT_LIST};
        struct spr_estimate e = spr_estimate_of(t->comm, &plan);
        e.model = m;
        e.u = t->unions[i];
        m->exposed = 0;
        hidden[i] = spr_cost_sparse_direct(&e);
        m->exposed = 1;
        shown[i] = spr_cost_sparse_direct(&e);
    }
    m->exposed = (t->seconds[1] - t->seconds[0] - (hidden[1] - hidden[0])) /
                 fmax(shown[1] - hidden[1] - (shown[0] - hidden[0]), 1e-9);
    m->exposed = fmin(fmax(m->exposed, LEAST_EXPOSED), MOST_EXPOSED);
    m->grant = fmax(t->seconds[0] - hidden[0] - m->exposed * (shown[0] - hidden[0]), 0);
}

/* The largest by which a hierarchical sum is predicted to take less than it did. */
static void fit_copies(struct spr_tuning *t, const struct spr_estimate *e, double seconds)
{
    double low = 0, high = MOST_COPY;

    for (int i = 0; i < 40; i++) {
        t->model.copy = (low + high) / 2;
        if (spr_cost_hierarchical(e) < seconds)
            low = t->model.copy;
        else
            high = t->model.copy;
    }
    t->model.copy = low;
}

/* Lists move inside hosts, too: what they took is fitted without that before, and with it after. */
spr_status spr_tuning_copies(struct spr_tuning *t)
{
    const struct spr_plan plan = {
        .collective = SPR_C_ALLREDUCE, .dtype = SPR_FP32, .count = t->long_bytes / sizeof(float)};
    struct spr_candidate candidates[SPR_CANDIDATES];
    struct spr_estimate e = spr_estimate_of(t->comm, &plan);
    size_t n = candidates_for(t, &plan, candidates);
    double seconds;
    spr_status status;

    t->algorithm = NULL;
    for (size_t i = 0; i < n; i++)
        if (candidates[i].algorithm->predict == spr_cost_hierarchical)
            t->algorithm = candidates[i].algorithm->name;
    fit_lists(t);
    e.model = &t->model;
    /* No host has several ranks, or one has all; or ranks may not be summed out of their order. */
    if (!t->algorithm || isinf(spr_cost_hierarchical(&e)))
        return SPR_OK;
    status = spr_tuning_time_of(t, spr_tuning_allreduce, plan.count, SPR_TUNING_LONG_RUNS, 0.5,
                                &seconds);
    if (status)
        return status;
    fit_copies(t, &e, seconds);
    fit_lists(t);
    return SPR_OK;
}

/* What is predicted for next to nothing can be no start: a shaper, say, lets a short vector pass
 * faster than by its rate, and still shorter ones would take less than no time. */
static double start_of(const struct spr_algorithm *algorithm, const struct spr_estimate *e,
                       double seconds)
{
    struct spr_estimate nothing = *e;
    double start = seconds - algorithm->predict(e);

    if (!isfinite(start)) /* racks make levels of which the model knows nothing */
        return 0;
    nothing.n = nothing.bytes = 1;
    nothing.k = fmin(e->k, 1);
    nothing.u = fmin(e->u, 1);
    start = fmax(start, -EARLIEST * algorithm->predict(&nothing));
    return round(start * 1e7) / 1e7; /* in tenths of microseconds */
}

/* One algorithm after the other, again and again, and some work between them: ranks come to the
 * next one from a barrier after they were busy, as those of a program do. */
spr_status spr_tuning_starts(struct spr_tuning *t, const struct spr_plan *plan)
{
    bool sparse = plan->collective == SPR_C_SPARSE_ALLREDUCE;
    struct spr_candidate candidates[SPR_CANDIDATES];
    double all[SPR_CANDIDATES][SPR_TUNING_SHORT_RUNS];
    struct spr_estimate e = spr_estimate_of(t->comm, plan);
    size_t n = candidates_for(t, plan, candidates);
    spr_status status = SPR_OK;

    e.model = &t->model;
    t->positions = plan->count;
    for (int run = -1; run < SPR_TUNING_SHORT_RUNS; run++) /* the first one does not count */
        for (size_t i = 0; status == SPR_OK && i < n; i++) {
            t->algorithm = candidates[i].algorithm->name;
            spr_dense_clear(t->b, BETWEEN);
            status = spr_tuning_once(t, sparse ? spr_tuning_sparse : spr_tuning_allreduce,
                                     sparse ? plan->most_entries : plan->count,
                                     &all[i][run < 0 ? 0 : run]);
        }
    if (status == SPR_OK)
        status = spr_tuning_agree(t->comm, all[0], n * SPR_TUNING_SHORT_RUNS);
    for (size_t i = 0; status == SPR_OK && i < n; i++)
        if (candidates[i].algorithm->predict)
            t->model.start[candidates[i].place] = start_of(
                candidates[i].algorithm, &e, spr_tuning_median(all[i], SPR_TUNING_SHORT_RUNS));
    return status;
}
