/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/predict.h"

#include <math.h>

#include "collectives/model.h"
#include "tools/sim/world.h"

bool predict_is_needed(const struct run *run)
{
    return !is_simulated(run->options, run->kind, run->algorithm, run->ranks);
}

/* The network of the options: a grant takes as long as what it is for. */
static struct spr_model model_of(const struct run *run)
{
    return (struct spr_model){.known = true,
                              .latency = run->options->latency_s,
                              .grant = run->options->latency_s,
                              .byte = 8 / run->link,
                              .copy = 8 / run->options->local_link};
}

static double seconds_of(const struct run *run, double entries, double union_entries)
{
    const struct options *o = run->options;
    struct spr_model model = model_of(run);
    struct spr_estimate e = spr_estimate_even(
        &model, run->ranks, fmin(o->ranks_per_host, run->ranks), (double)o->elements, entries);
    const char *collective = run->kind == KIND_ALLREDUCE ? "allreduce" : "sparse_allreduce";

    if (o->hosts_per_rack > 0 || o->slow > 1)
        return NAN;
    if (union_entries > 0)
        e.u = union_entries;
    return spr_algorithm_seconds(collective, run->algorithm, &e);
}

double predict_time_us(const struct run *run)
{
    double n = (double)run->options->elements;

    if (run->kind == KIND_COMPRESSED)
        return NAN;
    return 1e6 * seconds_of(run, run->kind == KIND_SPARSE ? ceil(run->density * n) : 0,
                            run->kind == KIND_SPARSE ? run->figures.union_density * n : 0);
}

static struct level unknown(int count)
{
    const double nan = NAN;

    return (struct level){.count = count,
                          .sent = nan,
                          .most_sent = nan,
                          .most_received = nan,
                          .frames = nan,
                          .of_one = nan};
}

bool predict_run(struct run *run, struct spr_error *error)
{
    const struct options *o = run->options;
    struct spr_plan plan = {.collective = run->kind == KIND_ALLREDUCE ? SPR_C_ALLREDUCE
                                                                      : SPR_C_SPARSE_ALLREDUCE,
                            .count = o->elements,
                            .dtype = SPR_FP32,
                            .op = SPR_SUM};
    int hosts = (run->ranks + o->ranks_per_host - 1) / o->ranks_per_host;
    double n = (double)o->elements, k = run->kind == KIND_SPARSE ? ceil(run->density * n) : 0;
    struct spr_model model = model_of(run);
    struct spr_estimate e = spr_estimate_even(&model, run->ranks, 1, n, k);
    const char *algorithm;

    if (world_choose(o, run->ranks, run->link, &plan, run->algorithm, &algorithm, error) != SPR_OK)
        return false;
    run->refused = algorithm == NULL;
    if (run->refused)
        return false;
    run->algorithm = algorithm;
    run->figures = (struct figures){
        .levels = {[SPR_SIM_RANKS] = unknown(run->ranks), [SPR_SIM_HOSTS] = unknown(hosts)},
        .time_us = 1e6 * seconds_of(run, k, 0),
        .memory = NAN,
        .union_density = k > 0 ? e.u / n : NAN,
        .predicted_us = NAN,
        .wrong = NAN,
        .same = true,
        .by_model = true};
    run->refused = !isfinite(run->figures.time_us);
    if (run->refused)
        spr_error_set(error, SPR_ERR_INVALID, -1, "the model has no formula for this");
    return !run->refused;
}
