/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/sweep.h"

#include <math.h>
#include <string.h>

#include "collectives/collective.h"

/* `flat` sends the whole vector to everybody, which is meant for short ones only: to each rank, and
 * in all. */
#define FLAT_BYTES ((size_t)64 << 10)
#define FLAT_BYTES_ALL ((size_t)1 << 30)

static bool is_too_long(const struct options *options, int ranks, const char *algorithm)
{
    size_t bytes = options->elements * sizeof(float);

    return strcmp(algorithm, "flat") == 0 &&
           (bytes > FLAT_BYTES || bytes * (size_t)ranks * (size_t)ranks > FLAT_BYTES_ALL);
}

/* The dense algorithm that takes least time; of equal ones the last, since those that levels of the
 * network need come first. time_us NAN: none can be used. */
static bool best_dense(const struct options *options, int ranks, double link, struct run *best)
{
    const char *name;

    best->figures.time_us = NAN;
    for (int i = 0; (name = spr_algorithm_name("allreduce", i)) != NULL; i++) {
        struct run run = {.options = options,
                          .ranks = ranks,
                          .link = link,
                          .kind = KIND_ALLREDUCE,
                          .algorithm = name,
                          .density = NAN};
        if (is_too_long(options, ranks, name))
            continue;
        if (!run_once(&run, true))
            return false;
        if (!run.refused && !(run.figures.time_us > best->figures.time_us))
            *best = run;
    }
    return true;
}

/* Where gain passes 1, between the measured densities: both on logarithmic scales. */
static struct crossover find_crossover(const struct run *run, const double *density,
                                       const double *gain, size_t count)
{
    struct crossover c = {.run = run, .lowest = INFINITY, .highest = 0, .density = NAN};
    size_t low = 0;

    for (size_t i = 0; i < count; i++) {
        if (density[i] < density[low])
            low = i;
        c.lowest = fmin(c.lowest, density[i]);
        c.highest = fmax(c.highest, density[i]);
    }
    c.pays = gain[low] > 1;
    for (size_t above = low; c.pays && isnan(c.density);) {
        size_t next = count;
        for (size_t i = 0; i < count; i++)
            if (density[i] > density[above] && (next == count || density[i] < density[next]))
                next = i;
        if (next == count)
            break;
        if (gain[next] <= 1) {
            double part = log(gain[above]) / (log(gain[above]) - log(gain[next]));
            c.density = density[above] * pow(density[next] / density[above], part);
        }
        above = next;
    }
    return c;
}

/* One algorithm at all densities. */
static bool run_densities(struct report *report, const struct run *base, const struct run *dense)
{
    const struct options *options = report->options;
    double gain[MAX_DENSITIES], density[MAX_DENSITIES];
    bool has_density = base->kind == KIND_SPARSE ||
                       (base->kind == KIND_COMPRESSED && codec_goes_by_ratio(options->codec));
    size_t count = has_density ? options->density_count : 1;
    struct run run = *base;

    for (size_t i = 0; i < count; i++) {
        run = *base;
        density[i] = options->densities[i];
        run.density = has_density ? density[i] : NAN;
        if (run.kind == KIND_COMPRESSED)
            codec_complete(options->codec, density[i], run.codec, sizeof run.codec);
        if (!run_once(&run, strcmp(options->algorithm, "all") == 0))
            return false;
        if (run.refused)
            return true;
        if (!report_row(report, &run, dense))
            return false;
        gain[i] = dense != NULL ? dense->figures.time_us / run.figures.time_us : NAN;
    }
    if (dense == NULL || count < 2)
        return true;
    run.algorithm = base->algorithm; /* what was asked for, not what auto took last */
    struct crossover crossover = find_crossover(&run, density, gain, count);
    return report_crossover(report, &crossover);
}

static bool run_world(struct report *report, int ranks, double link)
{
    const struct options *options = report->options;
    struct run dense, run = {.options = options,
                             .ranks = ranks,
                             .link = link,
                             .kind = options->kind,
                             .algorithm = options->algorithm};
    const char *name;
    bool compared = options->kind != KIND_ALLREDUCE;

    if (compared) {
        if (!best_dense(options, ranks, link, &dense))
            return false;
        compared = isfinite(dense.figures.time_us);
        if (compared && !report_row(report, &dense, NULL))
            return false;
    }
    if (strcmp(options->algorithm, "all") != 0)
        return run_densities(report, &run, compared ? &dense : NULL);
    for (int i = 0; (name = spr_algorithm_name(kind_algorithms(options), i)) != NULL; i++) {
        run.algorithm = name;
        if (!is_too_long(options, ranks, name) &&
            !run_densities(report, &run, compared ? &dense : NULL))
            return false;
    }
    return true;
}

bool sweep(struct report *report)
{
    const struct options *options = report->options;

    for (size_t l = 0; l < options->link_count; l++)
        for (size_t r = 0; r < options->rank_count; r++)
            if (!run_world(report, options->ranks[r], options->links[l]))
                return false;
    return true;
}
