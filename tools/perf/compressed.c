/* SPDX-License-Identifier: BSD-2-Clause
 *
 * compressed_allreduce: error feedback, selection, rounding, communication and average are all in
 * the time. The gradient is the same in every iteration, or the next step of a trace.
 *
 * The check needs nothing but what a caller has: the residual before and after a step says exactly
 * what this rank sent, sent = fl(residual + gradient) - residual', and the result has to be the sum
 * of that over ranks, up to the rounding of P - 1 additions and of the division of an average.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "tools/codec/data.h"
#include "tools/perf/buckets.h"
#include "tools/perf/dense_check.h"
#include "tools/perf/sample.h"

enum { PACK_RUNS = 128, PACK = PACK_RUNS * SAMPLE_RUN };

static bool prepare(struct trial *trial)
{
    struct input *input = trial->input;

    if (input->support.pattern != PATTERN_TRACE) {
        memcpy(trial->gradient, trial->master, trial->elements * sizeof *trial->gradient);
        return true;
    }
    if (!input_advance(input))
        return false;
    input_gradient(input, trial->job->rank, 0, trial->elements, trial->gradient);
    return true;
}

/* What is summed over ranks for one element: sent, its magnitude, the gradient, the magnitude of
 * what has stayed. */
enum { SENT, SIZE, GRADIENT, REST, SUMS };

/* Coded values have as many bits as a float, and so has what sums lose, or leave out: what stays of
 * them, all of it in the residual, is rounded. */
static bool rounds_what_stays(const struct trial *trial)
{
    struct spr_codec_kind kind = codec_kind(trial->codec_spec);

    return kind.coded || kind.round_sums || kind.bound_hosts;
}

/* Runs of elements that are summed together. */
struct pack {
    size_t first[PACK_RUNS], count[PACK_RUNS], runs, elements;
    double (*sum)[SUMS]; /* [PACK] */
};

static void pack_run(const struct trial *trial, const float *before, size_t first, size_t count,
                     bool rounds, struct pack *pack)
{
    double(*sum)[SUMS] = pack->sum + pack->elements;
    float gradient[SAMPLE_RUN], after[SAMPLE_RUN];
    double largest = 0;

    input_gradient(trial->input, trial->job->rank, first, count, gradient);
    buckets_residual(trial, first, count, after);
    for (size_t i = 0; i < count; i++) {
        float accumulated = before[first + i] + gradient[i]; /* rounded as the codec does */
        sum[i][SENT] = (double)accumulated - (double)after[i];
        sum[i][SIZE] = fabs(sum[i][SENT]);
        sum[i][GRADIENT] = (double)gradient[i];
        sum[i][REST] = fabs((double)after[i]);
        largest = data_larger(largest, fabs((double)accumulated) + sum[i][REST]);
    }
    /* What was sent and what its sum has lost cancel out in that difference, and may be as large as
     * the values with which these share a scale. */
    for (size_t i = 0; rounds && i < count; i++)
        sum[i][SIZE] = sum[i][REST] = largest;
    pack->elements += count;
    pack->first[pack->runs] = first;
    pack->count[pack->runs++] = count;
}

/* Unit roundoff of a result that travels in 16 bits, which sums of vectors do. */
static double last_rounding(const struct trial *trial)
{
    if (codec_kind(trial->codec_spec).lists)
        return 0;
    if (strstr(trial->codec_spec, "bf16") != NULL)
        return 0x1p-8;
    return strstr(trial->codec_spec, "fp16") != NULL ? 0x1p-11 : 0;
}

static void compare(const struct trial *trial, const struct pack *pack, bool exact,
                    struct tally *tally)
{
    bool average = trial->op == SPR_AVG;
    double divisor = average ? trial->job->size : 1;
    /* The fp64 sums of this check are not exact either. */
    double bound = rounding_bound(SPR_FP32, trial->job->size - 1 + average) + 0x1p-40;
    double last = last_rounding(trial), least = last > 0 ? 0x1p-25 : 0;
    double rest = rounds_what_stays(trial) ? 0x1p-23 : 0;
    size_t k = 0;

    for (size_t r = 0; r < pack->runs; r++)
        for (size_t i = 0; i < pack->count[r]; i++, k++) {
            const double *sum = pack->sum[k];
            double out = (double)trial->gradient[pack->first[r] + i];
            double reference = sum[GRADIENT] / divisor, lost = out - reference;
            double error = fabs(out - sum[SENT] / divisor);
            double allowed = bound * sum[SIZE] / divisor;
            allowed += last * (fabs(sum[SENT]) / divisor + allowed) + least;
            allowed += rest * sum[REST] / divisor;
            tally->wrong += exact && !(error <= allowed);
            tally->error2 += lost * lost;
            tally->reference2 += reference * reference;
        }
}

static bool compare_all(struct trial *trial, const float *before, struct pack *pack,
                        struct tally *tally)
{
    /* Otherwise the residual does not tell what was sent. */
    bool exact = codec_kind(trial->codec_spec).conserves, more = true;
    bool rounds = rounds_what_stays(trial);
    struct sample sample = sample_of(trial->elements);
    size_t first, count;

    if (!exact)
        job_comment(
            trial->job,
            "the residual does not tell what was sent: only the equality of ranks is checked");
    while (more) {
        while (pack->runs < PACK_RUNS && (more = sample_next(&sample, &first, &count)))
            pack_run(trial, before, first, count, rounds, pack);
        if (pack->elements > 0 && !job_sum(trial->job, pack->sum[0], SUMS * pack->elements))
            return false;
        compare(trial, pack, exact, tally);
        pack->runs = pack->elements = 0;
    }
    return true;
}

static bool check(struct trial *trial, struct tally *tally)
{
    size_t bytes = trial->elements * sizeof(float);
    float *before = malloc(bytes);
    struct pack *pack = calloc(1, sizeof *pack);
    double(*sums)[SUMS] = malloc(PACK * sizeof *sums);
    bool done = false;

    if (before == NULL || pack == NULL || sums == NULL) {
        job_fail(trial->job, "out of memory");
        goto end;
    }
    pack->sum = sums;
    buckets_residual(trial, 0, trial->elements, before);
    done = job_ok(trial->job, trial->ops->run(trial)) && compare_all(trial, before, pack, tally) &&
           job_same(trial->job, spr_crc32c(0, trial->gradient, bytes), &tally->same);
end:
    free(sums);
    free(pack);
    free(before);
    return done;
}

static void close_nothing(struct trial *trial) { (void)trial; }

static const struct trial_ops whole_ops = {prepare, buckets_run_in_turn, check, buckets_close};
static const struct trial_ops buckets_ops = {prepare, buckets_run, check, buckets_close};
static const struct trial_ops in_turn_ops = {prepare, buckets_run_in_turn, check, close_nothing};

void compressed_in_turn(struct trial *trial, const struct trial *row)
{
    *trial = *row;
    trial->ops = &in_turn_ops;
    trial->beside = true;
}

/* Vectors of a gradient, as they are needed: a trace has its own master. */
static bool open_vectors(struct job *job, const struct input *input, struct vectors *vectors)
{
    size_t n = input->support.elements;

    if (vectors->recv != NULL)
        return true;
    if (!job_memory(job, n * sizeof(float), &vectors->recv))
        return false;
    if (input->support.pattern == PATTERN_TRACE)
        return true;
    if (!job_memory(job, n * sizeof(float), &vectors->send))
        return false;
    input_gradient(input, job->rank, 0, n, vectors->send);
    return true;
}

bool compressed_open(struct trial *trial, struct job *job, const char *algorithm,
                     struct input *input, double density, struct vectors *vectors)
{
    const char *codec = job->options->codec;

    *trial = (struct trial){.ops = job->options->buckets > 0 ? &buckets_ops : &whole_ops,
                            .job = job,
                            .kind = KIND_COMPRESSED,
                            .algorithm = algorithm,
                            .call = SPR_CALL_OPTIONS_INIT,
                            .dtype = SPR_FP32,
                            .op = job->options->op,
                            .elements = input->support.elements,
                            .count = input->support.elements,
                            .density = codec_kind(codec).dense      ? 1
                                       : codec_goes_by_ratio(codec) ? density
                                                                    : (double)NAN,
                            .input = input};
    trial->call.algorithm = algorithm;
    codec_complete(codec, density, trial->codec_spec, sizeof trial->codec_spec);
    if (!buckets_open(trial) || !open_vectors(job, input, vectors))
        return false;
    trial->gradient = vectors->recv;
    trial->master = vectors->send;
    return true;
}
