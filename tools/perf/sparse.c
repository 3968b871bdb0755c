/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparse_allreduce: the input is a list already. The result has to be exact to the bit: values are
 * added in fp32, in the order of ranks, but by some algorithms that have to be asked for.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "tools/perf/sample.h"
#include "tools/perf/trial.h"

static bool prepare(struct trial *trial)
{
    if (trial->input->support.pattern != PATTERN_TRACE)
        return true;
    if (!input_advance(trial->input))
        return false;
    input_list(trial->input, &trial->list);
    return true;
}

static spr_status run(struct trial *trial)
{
    bool list = trial->job->options->list_result;
    return spr_sparse_allreduce(trial->job->comm, &trial->list, trial->elements, trial->dense,
                                list ? &trial->result : NULL, trial->op, &trial->call);
}

/* Where the list continues from `position` on. */
static size_t find(const spr_sparse *list, size_t position)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->index[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sums are those in rank order, to the bit, but where an algorithm has another order: two such sums
 * of P terms differ by no more than this part of the sum of magnitudes (Higham 2002, section 4.2).
 */
static double bound_of(const struct trial *trial)
{
    const char *name = trial->figures.taken ? trial->figures.taken : trial->algorithm;
    bool reorders = !spr_algorithm_is_canonical("sparse_allreduce", name);

    return reorders ? 2.0 * trial->job->size * (double)FLT_EPSILON / 2 : 0;
}

/* One value of the result; `there`: it was found at all. */
static void compare(bool there, float value, bool expected, float sum, double allowed,
                    struct tally *tally)
{
    double error = (there ? (double)value : 0) - (expected ? (double)sum : 0);
    tally->wrong += there != expected || (expected && !(fabs(error) <= allowed));
    tally->error2 += error * error;
    tally->reference2 += (double)sum * (double)sum;
}

static void compare_run(const struct trial *trial, size_t first, size_t count, struct tally *tally)
{
    float sum[SAMPLE_RUN] = {0}, size[SAMPLE_RUN] = {0}, value[SAMPLE_RUN];
    double bound = bound_of(trial);
    uint8_t any[SAMPLE_RUN] = {0}, mask[SAMPLE_RUN];
    const spr_sparse *list = &trial->result;
    int ranks = trial->job->size;

    for (int rank = 0; rank < ranks; rank++) {
        input_sparse(trial->input, rank, first, count, mask, value);
        for (size_t i = 0; i < count; i++) {
            sum[i] += value[i];
            size[i] += fabsf(value[i]);
            any[i] |= mask[i];
        }
    }
    for (size_t i = 0; trial->op == SPR_AVG && i < count; i++) {
        sum[i] /= (float)ranks;
        size[i] /= (float)ranks;
    }
    for (size_t i = 0; trial->dense != NULL && i < count; i++)
        compare(true, trial->dense[first + i], true, sum[i], bound * (double)size[i], tally);
    if (!trial->job->options->list_result)
        return;
    size_t at = find(list, first);
    for (size_t i = 0; i < count; i++) {
        bool there = at < list->count && list->index[at] == first + i;
        compare(there, there ? list->value[at] : 0, any[i], sum[i], bound * (double)size[i], tally);
        at += there;
    }
}

static bool check(struct trial *trial, struct tally *tally)
{
    spr_sparse *list = &trial->result;
    struct sample sample = sample_of(trial->elements);
    size_t first, count;
    uint32_t crc = 0;

    if (trial->dense != NULL)
        memset(trial->dense, 0xff, trial->elements * sizeof *trial->dense);
    if (list->capacity > 0) {
        memset(list->index, 0xff, list->capacity * sizeof *list->index);
        memset(list->value, 0xff, list->capacity * sizeof *list->value);
        list->count = 0;
    }
    if (!job_barrier(trial->job) || !job_ok(trial->job, run(trial)))
        return false;
    while (sample_next(&sample, &first, &count))
        compare_run(trial, first, count, tally);
    for (size_t i = 1; i < list->count; i++)
        tally->wrong += list->index[i - 1] >= list->index[i];
    if (trial->dense != NULL)
        crc = spr_crc32c(crc, trial->dense, trial->elements * sizeof *trial->dense);
    if (list->capacity > 0) {
        crc = spr_crc32c(crc, list->index, list->count * sizeof *list->index);
        crc = spr_crc32c(crc, list->value, list->count * sizeof *list->value);
    }
    return job_same(trial->job, crc, &tally->same);
}

static void close_lists(struct trial *trial)
{
    void *memory[] = {trial->list.index, trial->list.value, trial->result.index,
                      trial->result.value, trial->dense};
    for (size_t i = 0; i < SPR_ARRAY_LEN(memory); i++)
        spr_mem_free(trial->job->comm, memory[i]);
}

static const struct trial_ops sparse_ops = {prepare, run, check, close_lists};

static bool make_list(struct job *job, spr_sparse *list, size_t capacity)
{
    list->count = 0;
    list->capacity = capacity;
    return job_memory(job, capacity * sizeof *list->index, &list->index) &&
           job_memory(job, capacity * sizeof *list->value, &list->value);
}

bool sparse_open(struct trial *trial, struct job *job, const char *algorithm, struct input *input,
                 double density)
{
    *trial = (struct trial){.ops = &sparse_ops,
                            .job = job,
                            .kind = KIND_SPARSE,
                            .algorithm = algorithm,
                            .call = SPR_CALL_OPTIONS_INIT,
                            .dtype = SPR_FP32,
                            .op = job->options->op,
                            .elements = input->support.elements,
                            .count = input->support.elements,
                            .density = density,
                            .input = input};
    trial->call.algorithm = algorithm;
    size_t entries = input_count(input);
    int64_t all = (int64_t)entries;
    double most = (double)entries;
    if (!job_sum_int(job, &all, 1) || !job_max(job, &most, 1) ||
        !make_list(job, &trial->list, entries))
        return false;
    trial->entries = (size_t)all;
    trial->call.most_entries = (size_t)most;
    input_list(input, &trial->list);
    if (job->options->list_result &&
        !make_list(job, &trial->result, spr_min_size(trial->entries, input->support.elements)))
        return false;
    return !job->options->dense_result ||
           job_memory(job, input->support.elements * sizeof(float), &trial->dense);
}
