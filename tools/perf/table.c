/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table, in the manner of nccl-tests: lines with a number first are data, '#' is comment.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "tools/perf/report.h"

struct rates rates_of(const struct trial *trial)
{
    const struct figures *f = &trial->figures;
    double bytes = (double)trial_bytes(trial), ranks = trial->job->size;
    double factor = 2 * (ranks - 1) / ranks;
    double wire = fmax(f->sent_bytes, f->received_bytes);
    struct rates rates = {NAN, NAN, NAN, NAN};

    if (trial->kind == KIND_REDUCE_SCATTER || trial->kind == KIND_ALLGATHER)
        factor = (ranks - 1) / ranks;
    if (trial->kind == KIND_BROADCAST || trial->kind == KIND_SENDRECV)
        factor = 1;
    if (!(f->p50_us > 0))
        return rates;
    if (trial->kind != KIND_BARRIER) {
        rates.algbw = bytes / f->p50_us * 1e-3;
        rates.busbw = rates.algbw * factor;
        rates.wirebw = wire / f->p50_us * 1e-3;
    }
    if (f->sent_bytes > 0)
        rates.ratio = trial_ring_bytes(trial) / f->sent_bytes;
    return rates;
}

static const char *number(char text[32], const char *format, double value)
{
    if (isfinite(value))
        snprintf(text, 32, format, value);
    else
        snprintf(text, 32, "-");
    return text;
}

static const char *percent(char text[32], double ratio)
{
    return number(text, "%.4g%%", 100 * ratio);
}

bool report_open(struct report *report, struct job *job)
{
    const char *json = job->options->json;

    *report = (struct report){0};
    if (job->rank != 0 || json == NULL)
        return true;
    /* What is in the file stays until there is something better. */
    report->file = strcmp(json, "-") == 0 ? stdout : fopen(json, "ae");
    if (report->file == NULL)
        return job_fail(job, "--json %s: %s", json, strerror(errno));
    return json_open(report) || job_fail(job, "out of memory");
}

/* What the columns mean. */
static void explain(struct job *job)
{
    const struct options *options = job->options;

    job_comment(job, "time(us), p50, p99: mean, median, 99th percentile of the iterations; each "
                     "counts from a");
    job_comment(job, "  barrier to its slowest rank");
    job_comment(job, "algbw = size / p50, busbw = algbw x 2(P-1)/P (reduce_scatter, allgather: "
                     "(P-1)/P, broadcast, sendrecv: 1):");
    job_comment(job, "  GB/s of the dense vector, which may exceed the line rate");
    job_comment(job, "wirebw = max(bytes sent, bytes received) of the busiest rank, headers "
                     "included, / p50: GB/s,");
    job_comment(job, "  which cannot exceed the line rate");
    job_comment(job, "ratio = bytes that a dense ring sends / bytes really sent by the busiest "
                     "rank");
    if (options->check)
        job_comment(job, "#wrong = elements outside the error bound, over all ranks; all are "
                         "checked up to 4 Mi, above a");
    if (options->check)
        job_comment(job, "  sample of 1 Mi with both ends; the bits of all ranks have to be equal");
    else
        job_comment(job, "#wrong: not checked (-c 0)");
    job_comment(job, "relerr = ||out - exact|| / ||exact||%s",
                options->kind == KIND_COMPRESSED
                    ? ", exact = the dense result: what this step leaves to later ones"
                    : "");
    if (options->kind == KIND_SPARSE)
        job_comment(job, "sparse: the input is a list already, the time is communication and "
                         "summing only");
    if (options->kind == KIND_COMPRESSED)
        job_comment(job, "compressed: feedback, selection, communication, sum and decoding are all "
                         "in the time");
    if (options->buckets > 0) {
        job_comment(job, "buckets: all are posted before the first is waited for; beside it one at "
                         "a time;");
        job_comment(job, "  overlap = 1 - (time - max(wire, computing)) / min(wire, computing), "
                         "medians of one run");
    }
    if (options->baseline)
        job_comment(job, "rows without a density are dense allreduces, measured in turn with the "
                         "row above");
}

void report_header(struct job *job)
{
    const struct options *options = job->options;

    if (job->table == NULL)
        return;
    job_comment(job, "sparring-perf %s: %s, %d rank%s on %d host%s, transport %s, seed %" PRIu64,
                spr_version(), kind_names[options->kind], job->size,
                spr_plural((uint64_t)job->size), job->hosts, spr_plural((uint64_t)job->hosts),
                job->transport, options->seed);
    if (options->kind == KIND_SPARSE || options->kind == KIND_COMPRESSED)
        job_comment(job, "pattern %s, overlap %.4g%%%s%s", pattern_name(options),
                    100 * options->overlap, options->kind == KIND_COMPRESSED ? ", codec " : "",
                    options->kind == KIND_COMPRESSED ? options->codec : "");
    explain(job);
    fprintf(job->table, "#\n# %9s %10s %5s %5s %13s %7s %8s %10s %10s %10s %7s %7s %7s %6s %8s\n",
            "size(B)", "count", "type", "redop", "algo", "density", "ratio", "time(us)", "p50",
            "p99", "algbw", "busbw", "wirebw", "#wrong", "relerr");
    fflush(job->table);
}

static bool reduces(const struct trial *trial)
{
    return trial->kind != KIND_ALLGATHER && trial->kind != KIND_BROADCAST &&
           trial->kind != KIND_SENDRECV && trial->kind != KIND_BARRIER;
}

/* Of a row of buckets. */
static void say_overlap(const struct trial *trial)
{
    double in_turn_us = trial->in_turn->figures.p50_us, total_us = trial->figures.p50_us;
    char overlap[32];

    job_comment(trial->job,
                "%zu bucket%s: %.1f ms, one at a time %.1f ms (%.2fx); overlap %s of %.1f ms on "
                "the wire and %.1f ms of computing",
                trial->bucket_count, spr_plural(trial->bucket_count), total_us * 1e-3,
                in_turn_us * 1e-3, in_turn_us / total_us,
                number(overlap, "%.2f", trial->figures.overlap), trial->wire->figures.p50_us * 1e-3,
                trial->in_turn->figures.compute_us * 1e-3);
}

bool report_row(struct report *report, const struct trial *trial)
{
    FILE *table = trial->job->table;
    const struct figures *f = &trial->figures;
    struct rates rates = rates_of(trial);
    char density[32], ratio[32], algbw[32], busbw[32], wirebw[32], wrong[32], relerr[32];

    if (trial->kind == trial->job->options->kind && isfinite(rates.busbw)) {
        report->rows++;
        report->busbw += rates.busbw;
    }
    report->wrong += isfinite(f->wrong) ? f->wrong : 0;
    if (table == NULL)
        return true;
    fprintf(table, "%11zu %10zu %5s %5s %13s %7s %8s %10.1f %10.1f %10.1f %7s %7s %7s %6s %8s\n",
            trial_bytes(trial), trial->count, spr_dtype_name(trial->dtype),
            reduces(trial) ? spr_op_name(trial->op) : "none", trial->algorithm,
            percent(density, trial->density), number(ratio, "%.2f", rates.ratio), f->mean_us,
            f->p50_us, f->p99_us, number(algbw, "%.3f", rates.algbw),
            number(busbw, "%.3f", rates.busbw), number(wirebw, "%.3f", rates.wirebw),
            number(wrong, "%.0f", f->wrong), number(relerr, "%.2e", f->relerr));
    if (trial->in_turn != NULL)
        say_overlap(trial);
    fflush(table);
    return report->json == NULL || json_add_row(report, trial) ||
           job_fail(trial->job, "out of memory");
}

void report_verdict(const struct trial *sparse, const struct trial *dense, size_t dense_count)
{
    const struct trial *best = dense;
    bool compressed = sparse->kind == KIND_COMPRESSED;
    bool lossy = compressed && !(sparse->figures.relerr < 1e-6);
    char at[64] = "", loss[64] = "", density[32];

    for (size_t i = 1; i < dense_count; i++)
        if (dense[i].figures.p50_us < best->figures.p50_us)
            best = &dense[i];
    double gain = best->figures.p50_us / sparse->figures.p50_us;
    if (isfinite(sparse->density))
        snprintf(at, sizeof at, " at density %.4g %%", 100 * sparse->density);
    if (lossy && isfinite(sparse->figures.relerr))
        snprintf(loss, sizeof loss, ", lossy (relerr %s)",
                 number(density, "%.2g", sparse->figures.relerr));
    else if (lossy)
        snprintf(loss, sizeof loss, ", lossy");
    const char *name = compressed ? "compressed" : "sparse";
    if (gain >= 1)
        job_comment(sparse->job, "%s is %.1fx faster than the best dense (%s)%s%s", name, gain,
                    best->algorithm, at, loss);
    else
        job_comment(sparse->job, "%s LOSES: %.2gx of dense (%s)%s%s", name, gain, best->algorithm,
                    at, loss);
}

bool report_close(struct report *report, struct job *job, bool complete)
{
    bool written = true;

    if (complete) {
        if (job->options->check)
            job_comment(job, "Out of bounds values : %.0f %s", report->wrong,
                        report->wrong > 0 ? "FAILED" : "OK");
        if (report->rows > 0)
            job_comment(job, "Avg bus bandwidth    : %.3f", report->busbw / report->rows);
        if (report->json != NULL)
            written = json_write(report, job);
    }
    json_drop(report);
    if (report->file != NULL && report->file != stdout && fclose(report->file) != 0)
        written = false;
    if (!written && report->file != NULL)
        fprintf(stderr, "sparring-perf: rank 0: --json %s: %s\n", job->options->json,
                strerror(errno));
    report->file = NULL;
    return written;
}
