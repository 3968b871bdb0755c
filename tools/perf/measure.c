/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Times, bytes and phases of a group of trials.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "tools/perf/buckets.h"
#include "tools/perf/explain.h"
#include "tools/perf/links.h"
#include "tools/perf/trial.h"

const char *const phase_names[PHASE_COUNT] = {"select", "encode",    "reduce_scatter",
                                              "merge",  "allgather", "decode"};

/* A row should not take longer, and the warm-up of a group not either. */
static const double row_s = 5, warmup_s = 2;
enum { ITERATIONS = 20, FEWEST = 3 };
/* So many times as long as the one behind it is much longer. */
static const double much = 5;

/* Sums over the iterations of one trial, on this rank. */
struct sums {
    double sent, received, cpu_us, phase_us[PHASE_COUNT];
    struct links links;
    double last_union;
    double typical_us;                /* of one in the warm-up; 0: there was none */
    double *duration_us, *compute_us; /* [iterations] */
    int done;
};

static double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* On a terminal, a line that is overwritten. */
static void progress(const struct job *job, const struct trial *trial, int iteration, int of)
{
    static uint64_t last_ns;
    uint64_t now = spr_monotonic_ns();

    if (job->rank != 0 || now - last_ns < 200000000)
        return;
    last_ns = now;
    if (!isatty(STDERR_FILENO))
        return;
    if (of > 0)
        fprintf(stderr, "%zu bytes, %s: %d of %d \r", trial_bytes(trial), trial->algorithm,
                iteration, of);
    else
        fprintf(stderr, "%zu bytes, %s: warm-up \r", trial_bytes(trial), trial->algorithm);
}

/* barrier, then the operation; its duration on this rank, and what it cost, into sums (or NULL). */
static bool iterate(struct trial *trial, struct sums *sums)
{
    struct job *job = trial->job;
    spr_stats before = {.struct_size = sizeof before}, after = before;

    if (!trial->ops->prepare(trial) || !job_ok(job, spr_comm_stats(job->comm, &before)))
        return false;
    /* What takes time on this rank only is done before the barrier. */
    struct links links_before = job_links(job);
    if (!job_barrier(job))
        return false;
    double cpu = cpu_us();
    uint64_t begin = spr_monotonic_ns();
    spr_status status = trial->ops->run(trial);
    double duration_us = (double)(spr_monotonic_ns() - begin) * 1e-3;
    cpu = cpu_us() - cpu;
    if (!job_ok(job, status) || !job_ok(job, spr_comm_stats(job->comm, &after)))
        return false;
    double sent = (double)(after.sent_bytes - before.sent_bytes) - job->barrier_bytes[0];
    double received =
        (double)(after.received_bytes - before.received_bytes) - job->barrier_bytes[1];
    trial->moved_bytes = fmax(sent, received);
    trial->last_us = duration_us;
    if (sums == NULL)
        return true;
    struct links links_after = job_links(job);
    sums->links.sent += links_after.sent - links_before.sent - job->barrier_links.sent;
    sums->links.received +=
        links_after.received - links_before.received - job->barrier_links.received;
    const double phase_ns[PHASE_COUNT] = {(double)(after.select_ns - before.select_ns),
                                          (double)(after.encode_ns - before.encode_ns),
                                          (double)after.last_reduce_scatter_ns,
                                          (double)(after.merge_ns - before.merge_ns),
                                          (double)after.last_allgather_ns,
                                          (double)(after.decode_ns - before.decode_ns)};
    for (int i = 0; i < PHASE_COUNT; i++)
        sums->phase_us[i] += phase_ns[i] * 1e-3;
    sums->sent += sent;
    sums->received += received;
    sums->cpu_us += cpu;
    sums->last_union = (double)after.last_union;
    sums->duration_us[sums->done] = duration_us;
    sums->compute_us[sums->done++] =
        (phase_ns[PHASE_SELECT] + phase_ns[PHASE_ENCODE] + phase_ns[PHASE_MERGE] +
         phase_ns[PHASE_DECODE] + (double)(after.reduce_ns - before.reduce_ns)) *
        1e-3;
    return true;
}

/* Once through all trials; the seconds of the slowest rank. */
static bool round_of(struct job *job, struct trial *trials, size_t count, double *seconds)
{
    uint64_t begin = spr_monotonic_ns();
    for (size_t i = 0; i < count; i++) {
        progress(job, &trials[i], 0, 0);
        if (!iterate(&trials[i], NULL))
            return false;
    }
    *seconds = (double)(spr_monotonic_ns() - begin) * 1e-9;
    return job_max(job, seconds, 1);
}

/* Warm up, and choose the number of iterations where none was asked for. */
static bool warm_up(struct job *job, struct trial *trials, size_t count, int *iterations)
{
    int rounds = job->options->warmup, done = 0;
    double seconds = 0, all = 0;

    *iterations = job->options->iterations;
    if (*iterations == 0 && rounds == 0)
        rounds = 1; /* to know how long it takes */
    while (done < rounds) {
        if (!round_of(job, trials, count, &seconds))
            return false;
        done++;
        all += seconds;
        if (*iterations == 0 && all > warmup_s * (double)count)
            break;
    }
    if (*iterations > 0)
        return true;
    double fit = row_s * (double)count / fmax(seconds, 1e-9);
    *iterations = fit >= ITERATIONS ? ITERATIONS : (int)fmax(fit, FEWEST);
    if (*iterations < ITERATIONS)
        job_comment(job, "%zu bytes take long: %d iterations after %d to warm up",
                    trial_bytes(&trials[0]), *iterations, done);
    return true;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Nearest rank: the smallest value that so many of n are not above. */
static double percentile(const double *sorted, int n, double part)
{
    int k = (int)ceil(part * n) - 1;
    return sorted[k < 0 ? 0 : k];
}

/* Is the last result all of the union? */
static bool has_union(const struct trial *trial)
{
    const spr_codec *codec = trial->bucket_count > 0 ? trial->buckets[0].codec : NULL;
    return codec == NULL || !(spr_codec_bounds_union(codec) || spr_codec_bounds_hosts(codec));
}

/* 0 when no two ranks have an entry in common, 1 when all have the same ones. */
static double overlap_of(const struct trial *trial, double entries, double together)
{
    double ranks = trial->job->size;
    if (trial->job->size == 1 || !(entries > 0) || !has_union(trial))
        return NAN;
    return (entries - together) / (entries - entries / ranks);
}

/* Without the barrier's bytes, less than none may be left. NAN stays. */
static double at_least_0(double bytes) { return bytes < 0 ? 0 : bytes; }

static bool agree(struct trial *trial, struct sums *sums, int iterations)
{
    struct job *job = trial->job;
    struct figures *f = &trial->figures;
    double *us = sums->duration_us, *compute_us = sums->compute_us, n = iterations;
    double cpu_sum = sums->cpu_us / n;
    int64_t entries = (int64_t)buckets_entries(trial);
    double most[6 + PHASE_COUNT] = {sums->sent / n,       sums->received / n,
                                    sums->cpu_us / n,     sums->last_union,
                                    sums->links.sent / n, sums->links.received / n};

    for (int i = 0; i < PHASE_COUNT; i++)
        most[6 + i] = sums->phase_us[i] / n;
    if (!job_max(job, us, (size_t)iterations) || !job_max(job, compute_us, (size_t)iterations) ||
        !job_max(job, most, SPR_ARRAY_LEN(most)) || !job_sum(job, &cpu_sum, 1) ||
        !job_sum_int(job, &entries, 1))
        return false;
    *f = (struct figures){.iterations = iterations,
                          .sent_bytes = at_least_0(round(most[0])),
                          .received_bytes = at_least_0(round(most[1])),
                          .cpu_us = most[2],
                          .cpu_sum_us = cpu_sum,
                          .link_sent_bytes = at_least_0(most[4]),
                          .link_received_bytes = at_least_0(most[5]),
                          .overlap = NAN,
                          .union_entries = most[3] > 0 ? most[3] : (double)NAN,
                          .predicted_us = NAN,
                          .tuned_us = NAN,
                          .wrong = NAN,
                          .relerr = NAN};
    for (int i = 0; i < iterations; i++)
        f->mean_us += us[i] / n;
    qsort(us, (size_t)iterations, sizeof *us, ascending);
    qsort(compute_us, (size_t)iterations, sizeof *compute_us, ascending);
    f->compute_us = percentile(compute_us, iterations, 0.5);
    f->min_us = us[0];
    f->p50_us = percentile(us, iterations, 0.5);
    f->p99_us = percentile(us, iterations, 0.99);
    f->max_us = us[iterations - 1];
    for (int i = 0; i < PHASE_COUNT; i++)
        f->phase_us[i] = most[6 + i];
    if (trial->kind == KIND_COMPRESSED)
        trial->entries = (size_t)entries;
    if (trial->entries > 0 && isnan(trial->density))
        trial->density = (double)entries / (double)trial->elements / job->size;
    /* Dense: what marks there are come from an earlier operation; buckets: from one of them. */
    if (trial->entries == 0 || trial->bucket_count > 1)
        f->phase_us[PHASE_REDUCE_SCATTER] = f->phase_us[PHASE_ALLGATHER] = NAN;
    else
        f->overlap = overlap_of(trial, (double)trial->entries, f->union_entries);
    return true;
}

static bool check(struct trial *trial)
{
    struct tally tally = {.same = true};
    double squares[2];

    if (!trial->ops->prepare(trial) || !trial->ops->check(trial, &tally))
        return false;
    squares[0] = tally.error2;
    squares[1] = tally.reference2;
    if (!job_sum_int(trial->job, &tally.wrong, 1) || !job_sum(trial->job, squares, 2))
        return false;
    if (!tally.same && tally.wrong == 0)
        tally.wrong = 1;
    if (!tally.same)
        job_comment(trial->job, "the result of %s differs between ranks", trial->algorithm);
    trial->figures.wrong = (double)tally.wrong;
    trial->figures.relerr = squares[1] > 0 ? sqrt(squares[0] / squares[1]) : squares[0] > 0;
    return true;
}

/* What each took last, in sums[].typical_us, the same on all ranks. */
static bool note_typical(struct job *job, const struct trial *trials, size_t count,
                         struct sums *sums)
{
    for (size_t i = 0; i < count; i++) {
        sums[i].typical_us = trials[i].last_us;
        if (!job_max(job, &sums[i].typical_us, 1))
            return false;
    }
    return true;
}

/* All take turns, in an order that is another one each time, and the same on all ranks, so that no
 * trial has the same one in front of it always. Behind a much longer one, which leaves caches and
 * links in another state, it is called once more, before it counts. */
static bool measure_group(struct job *job, struct trial *trials, size_t count, struct sums *sums,
                          size_t *order)
{
    int iterations;

    if (!warm_up(job, trials, count, &iterations) || !note_typical(job, trials, count, sums))
        return false;
    for (size_t i = 0; i < count; i++)
        if ((sums[i].duration_us = calloc((size_t)iterations, sizeof(double))) == NULL ||
            (sums[i].compute_us = calloc((size_t)iterations, sizeof(double))) == NULL)
            return job_fail(job, "out of memory");
    struct spr_rng turns = {.seed = job->options->seed};
    double before_us = 0;
    for (int n = 0; n < iterations; n++) {
        spr_rng_order(&turns, order, count);
        for (size_t k = 0; k < count; k++) {
            size_t i = order[k];
            bool behind_long = before_us > much * sums[i].typical_us;
            progress(job, &trials[i], n, iterations);
            if ((behind_long && !iterate(&trials[i], NULL)) || !iterate(&trials[i], &sums[i]))
                return false;
            before_us = sums[i].typical_us;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (!agree(&trials[i], &sums[i], iterations) || !explain_trial(&trials[i]) ||
            (job->options->check && !check(&trials[i])))
            return false;
    return true;
}

bool measure(struct job *job, struct trial *trials, size_t count)
{
    struct sums *sums = calloc(count, sizeof *sums);
    size_t *order = calloc(count, sizeof *order);
    bool done;

    if (sums == NULL || order == NULL)
        done = job_fail(job, "out of memory");
    else
        done = measure_group(job, trials, count, sums, order);
    for (size_t i = 0; sums != NULL && i < count; i++) {
        free(sums[i].duration_us);
        free(sums[i].compute_us);
    }
    free(sums);
    free(order);
    return done;
}
