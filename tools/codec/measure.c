/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/measure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

/* Fewer triples than this say nothing. */
#define FEWEST 5
/* Taken at most, for one that is wanted. */
#define ATTEMPTS 5
#define MOST_TRIPLES (ATTEMPTS * MOST_WANTED_TRIPLES)

static void run_phase(void *ctx, int slice, int slices)
{
    struct trial *trial = ctx;

    trial->operation->run(trial, slice, slices);
}

uint64_t run_once(struct pool *pool, struct trial *trial)
{
    trial->operation->prepare(trial);
    uint64_t begin = spr_monotonic_ns();
    for (int phase = 0; trial->operation->next(trial, phase); phase++)
        if (trial->operation->sliced)
            pool_run(pool, run_phase, trial);
        else
            trial->operation->run(trial, 0, 1);
    trial->runs++;
    return spr_monotonic_ns() - begin;
}

/* Tasks that are runnable, ourselves included: the fourth field of /proc/loadavg. -1: not known. */
static int runnable(void)
{
    char text[128];
    int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC), tasks = -1;
    ssize_t length;

    if (file < 0)
        return -1;
    length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return sscanf(text, "%*s %*s %*s %d/", &tasks) == 1 ? tasks : -1;
}

/* How often threads of this process lost their CPU to others. */
static long preemptions(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* How little a triple was disturbed. */
enum calm {
    PREEMPTED, /* a thread of ours lost its CPU */
    CROWDED,   /* others were runnable */
    CALM,
};

struct triple {
    double us, reference_us, ratio;
    enum calm calm;
};

static struct triple take(struct pool *pool, struct trial *trial, struct trial *reference)
{
    int own = pool_threads(pool), before = runnable();
    long lost = preemptions();
    double first = (double)run_once(pool, reference);
    double us = (double)run_once(pool, trial) * 1e-3;
    double mean = (first + (double)run_once(pool, reference)) * 0.5e-3;

    bool crowded = before > own || runnable() > own;
    return (struct triple){
        .us = us,
        .reference_us = mean,
        .ratio = us / fmax(mean, 1e-3),
        .calm = preemptions() != lost ? PREEMPTED
                : crowded             ? CROWDED
                                      : CALM,
    };
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The value at `part` of those that count, by nearest rank. */
static double quantile(const struct triple *triples, int n, enum calm least, size_t field,
                       double part)
{
    double values[MOST_TRIPLES] = {0};
    int count = 0;

    for (int i = 0; i < n; i++)
        if (triples[i].calm >= least)
            memcpy(&values[count++], (const char *)&triples[i] + field, sizeof(double));
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return values[(int)(part * (count - 1) + 0.5)];
}

void measure(struct pool *pool, struct trial *trial, struct trial *reference,
             const struct effort *effort, struct figures *f)
{
    static struct triple triples[MOST_TRIPLES];
    uint64_t end = spr_monotonic_ns() + spr_seconds_ns(effort->seconds);
    int most = ATTEMPTS * effort->triples > FEWEST ? ATTEMPTS * effort->triples : FEWEST;
    int taken = 0, count[CALM + 1] = {0};
    enum calm least = CALM;

    for (int warm = 0; warm < 2; warm++)
        take(pool, trial, reference);
    while (count[CALM] < effort->triples && taken < most &&
           (taken < FEWEST || spr_monotonic_ns() < end)) {
        triples[taken] = take(pool, trial, reference);
        for (enum calm calm = 0; calm <= triples[taken].calm; calm++)
            count[calm]++;
        taken++;
    }
    while (least > PREEMPTED && count[least] < FEWEST && count[least] < effort->triples)
        least--;
    *f = (struct figures){
        .us = quantile(triples, taken, least, offsetof(struct triple, us), 0.5),
        .reference_us = quantile(triples, taken, least, offsetof(struct triple, reference_us), 0.5),
        .ratio = quantile(triples, taken, least, offsetof(struct triple, ratio), 0.5),
        .ratio_low = quantile(triples, taken, least, offsetof(struct triple, ratio), 0.25),
        .ratio_high = quantile(triples, taken, least, offsetof(struct triple, ratio), 0.75),
        .triples = count[least],
        .dropped = taken - count[least],
        .noisy = least < CALM,
    };
}
