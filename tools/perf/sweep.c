/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/sweep.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "tools/perf/buckets.h"
#include "tools/perf/explain.h"

enum { MAX_TRIALS = 64 };

/* The trials of one size and density, and what they share. */
struct group {
    struct job *job;
    struct input input;
    struct vectors vectors, gradients; /* of dense ones; of compressed ones */
    struct trial trials[MAX_TRIALS];
    size_t count, sparse_count; /* sparse ones come first */
};

/* Of several: does the algorithm work at this size? It says INVALID on all ranks, or on none. */
static bool try_out(struct trial *trial, bool *usable)
{
    struct job *job = trial->job;

    *usable = true;
    if (!options_several_algorithms(job->options))
        return true;
    if (!trial->ops->prepare(trial))
        return false;
    spr_status status = trial->ops->run(trial);
    *usable = status != SPR_ERR_INVALID;
    return !*usable || job_ok(job, status);
}

/* The trial that was opened last stays, or goes. */
static bool keep(struct group *group)
{
    struct trial *trial = &group->trials[group->count];
    bool usable;

    group->count++;
    if (!try_out(trial, &usable))
        return false;
    if (!usable) {
        job_comment(group->job, "%zu bytes: algorithm %s is not for this", trial_bytes(trial),
                    trial->algorithm);
        trial->ops->close(trial);
        group->count--;
    }
    return true;
}

static bool add_dense(struct group *group, enum kind kind, const char *wanted, size_t elements)
{
    const char *name;

    if (!dense_vectors(group->job, kind, elements, &group->vectors))
        return false;
    for (int i = 0; group->count < MAX_TRIALS &&
                    (name = options_algorithm(kind_names[kind], wanted, i)) != NULL;
         i++) {
        dense_open(&group->trials[group->count], group->job, kind, name, elements, &group->vectors);
        if (!keep(group))
            return false;
    }
    return true;
}

/* What tells how much of a trial's communication is hidden. */
static void add_beside(struct group *group, struct trial *trial)
{
    struct trial *free = &group->trials[group->count];

    if (group->job->options->buckets == 0 || trial == free) /* it was not for this size */
        return;
    buckets_beside(trial, &free[0], &free[1]);
    group->count += 2;
}

static bool add_sparse(struct group *group, double density)
{
    const struct options *options = group->job->options;
    const char *name;

    for (int i = 0;
         group->count < MAX_TRIALS / 2 &&
         (name = options_algorithm(kind_algorithms(options), options->algorithm, i)) != NULL;
         i++) {
        struct trial *trial = &group->trials[group->count];
        bool sparse = options->kind == KIND_SPARSE;
        bool open = sparse ? sparse_open(trial, group->job, name, &group->input, density)
                           : compressed_open(trial, group->job, name, &group->input, density,
                                             &group->gradients);
        if (!open) {
            trial->ops->close(trial);
            return false;
        }
        if (!keep(group))
            return false;
        add_beside(group, trial);
    }
    group->sparse_count = group->count;
    return true;
}

static bool report_group(struct group *group, struct report *report)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->trials[i].in_turn != NULL)
            buckets_conclude(&group->trials[i]);
        if (!group->trials[i].beside && !report_row(report, &group->trials[i]))
            return false;
    }
    size_t dense = group->count - group->sparse_count;
    for (size_t i = 0; dense > 0 && i < group->sparse_count; i++)
        if (!group->trials[i].beside)
            report_verdict(&group->trials[i], &group->trials[group->sparse_count], dense);
    explain_group(group->trials, group->count);
    return true;
}

static void close_group(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        group->trials[i].ops->close(&group->trials[i]);
    spr_mem_free(group->job->comm, group->vectors.send);
    spr_mem_free(group->job->comm, group->vectors.recv);
    spr_mem_free(group->job->comm, group->gradients.send);
    spr_mem_free(group->job->comm, group->gradients.recv);
    input_close(&group->input);
}

/* All trials of one size, for a sparse collective at one density. */
static bool run_group(struct job *job, struct report *report, const struct trace *trace,
                      size_t elements, double density)
{
    const struct options *options = job->options;
    struct group group = {.job = job};
    bool done;

    if (options->kind == KIND_SPARSE || options->kind == KIND_COMPRESSED) {
        const char *dense = strcmp(options->algorithm, "all") == 0 ? "all" : "auto";
        done = input_open(&group.input, job, trace, elements, density) &&
               add_sparse(&group, density) &&
               (!options->baseline || add_dense(&group, KIND_ALLREDUCE, dense, elements));
    } else {
        done = add_dense(&group, options->kind, options->algorithm, elements);
    }
    for (size_t i = 0; done && i < group.count; i++)
        done = tune_trial(&group.trials[i]);
    done = done && (group.count == 0 || measure(job, group.trials, group.count)) &&
           report_group(&group, report);
    close_group(&group);
    return done;
}

static bool run_size(struct job *job, struct report *report, const struct trace *trace,
                     size_t elements)
{
    const struct options *options = job->options;
    bool sparse = options->kind == KIND_SPARSE || options->kind == KIND_COMPRESSED;
    size_t densities = sparse ? options->density_count : 1;

    if (sparse && elements > (uint64_t)1 << 32)
        return job_fail(job, "a sparse vector has at most 2^32 elements, not %zu", elements);
    for (size_t i = 0; i < densities; i++)
        if (!run_group(job, report, trace, elements, sparse ? options->densities[i] : NAN))
            return false;
    return true;
}

static bool run_sizes(struct job *job, struct report *report, const struct trace *trace)
{
    const struct options *options = job->options;
    double bytes = (double)options->begin_bytes;
    size_t last = 0;

    if (options->kind == KIND_BARRIER)
        return run_size(job, report, trace, 0);
    if (options->elements > 0 || options->begin_bytes == 0)
        return run_size(job, report, trace,
                        options->elements > 0
                            ? dense_elements(job, options->kind,
                                             options->elements * spr_dtype_size(options->dtype))
                            : trace->elements);
    while (bytes <= (double)options->end_bytes) {
        size_t elements = dense_elements(job, options->kind, (size_t)bytes);
        if (elements != last && !run_size(job, report, trace, elements))
            return false;
        last = elements;
        bytes = options->factor > 0 ? bytes * options->factor
                                    : bytes + (double)options->increment_bytes;
    }
    return true;
}

/* For other jobs, as a line of their sparring.conf. */
static void tell_trials(struct job *job)
{
    char text[SPR_TRIALS_BYTES];

    if (*spr_comm_trials(job->comm, text, sizeof text))
        job_comment(job, "TRIALS=%s", text);
}

bool sweep(struct job *job, struct report *report)
{
    const struct options *options = job->options;
    struct trace trace = {0};
    struct spr_error error = {0};
    bool done = true;

    if (options->pattern == PATTERN_TRACE) {
        size_t most = options->elements > 0 ? options->elements
                                            : options->end_bytes / spr_dtype_size(options->dtype);
        if (trace_open(&trace, options->trace_directory, &error) != SPR_OK)
            done = job_fail(job, "%s", error.text);
        else if (trace.ranks < (uint32_t)job->size)
            done = job_fail(job, "%s is a trace of %u rank%s, not of %d", trace.directory,
                            trace.ranks, spr_plural(trace.ranks), job->size);
        else if (most > trace.elements)
            done = job_fail(job, "%s has %zu element%s, not %zu", trace.directory, trace.elements,
                            spr_plural(trace.elements), most);
    }
    if (done) {
        report_header(job);
        done = run_sizes(job, report, &trace);
    }
    if (done && options->tune)
        tell_trials(job);
    trace_close(&trace);
    return done;
}
