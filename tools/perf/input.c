/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_BLOCK = 4096 };

/* Traces ----------------------------------------------------------------------------------------
 */

static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

/* The k-th largest magnitude, in two passes over 16 and 15 bits, and where its ties end. */
static void find_threshold(const float *x, size_t n, size_t k, size_t *counts, int64_t out[2])
{
    uint32_t high = 0xffff, low = 0x7fff;

    memset(counts, 0, 65536 * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        counts[magnitude(x[i]) >> 15]++;
    while (counts[high] < k)
        k -= counts[high--];
    memset(counts, 0, 65536 * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        if (magnitude(x[i]) >> 15 == high)
            counts[magnitude(x[i]) & 0x7fff]++;
    while (counts[low] < k)
        k -= counts[low--];
    out[0] = (int64_t)(high << 15 | low);
    for (size_t i = 0; i < n; i++)
        if (magnitude(x[i]) == out[0] && --k == 0) {
            out[1] = (int64_t)i + 1;
            break;
        }
}

static void unmap(struct input *input)
{
    for (int rank = 0; input->mapped != NULL && rank < input->job->size; rank++) {
        trace_unmap(input->trace, input->mapped[rank]);
        input->mapped[rank] = NULL;
    }
}

static bool load_step(struct input *input)
{
    struct job *job = input->job;
    struct spr_error error = {0};
    int64_t mine[2] = {0, 0};
    size_t kept = (size_t)ceil(input->support.density * (double)input->support.elements);

    unmap(input);
    for (int rank = 0; rank < job->size; rank++)
        if ((rank == job->rank || job->options->check) &&
            trace_map(input->trace, input->step, rank, &input->mapped[rank], &error) != SPR_OK)
            return job_fail(job, "%s", error.text);
    if (job->options->kind != KIND_SPARSE)
        return true;
    size_t *counts = malloc(65536 * sizeof *counts);
    if (counts == NULL)
        return job_fail(job, "out of memory");
    find_threshold(input->mapped[job->rank], input->support.elements, kept, counts, mine);
    free(counts);
    return job_ok(job, spr_allgather(job->comm, mine, input->threshold, 2, SPR_INT64, NULL));
}

bool input_advance(struct input *input)
{
    if (input->support.pattern != PATTERN_TRACE)
        return true;
    input->step = (input->step + 1) % input->trace->step_count;
    return load_step(input);
}

/* All --------------------------------------------------------------------------------------------
 */

bool input_open(struct input *input, struct job *job, const struct trace *trace, size_t elements,
                double density)
{
    *input = (struct input){.job = job,
                            .support = {.pattern = job->options->pattern,
                                        .elements = elements,
                                        .density = density,
                                        .overlap = job->options->overlap,
                                        .seed = job->options->seed},
                            .trace = trace};
    if (input->support.pattern == PATTERN_TRACE) {
        input->mapped = calloc((size_t)job->size, sizeof *input->mapped);
        input->threshold = calloc(2 * (size_t)job->size, sizeof *input->threshold);
        if (input->mapped == NULL || input->threshold == NULL)
            return job_fail(job, "out of memory");
        return load_step(input);
    }
    return support_open(&input->support) || job_fail(job, "out of memory");
}

void input_close(struct input *input)
{
    unmap(input);
    free(input->mapped);
    free(input->threshold);
    support_close(&input->support);
    *input = (struct input){0};
}

static void trace_sparse(const struct input *input, int rank, size_t first, size_t count,
                         uint8_t *mask, float *value)
{
    const float *x = input->mapped[rank] + first;
    int64_t threshold = input->threshold[2 * rank], ties_end = input->threshold[2 * rank + 1];
    for (size_t k = 0; k < count; k++) {
        int64_t m = magnitude(x[k]);
        bool in = m > threshold || (m == threshold && (int64_t)(first + k) < ties_end);
        if (mask != NULL)
            mask[k] = in;
        if (value != NULL)
            value[k] = in ? x[k] : 0;
    }
}

void input_sparse(const struct input *input, int rank, size_t first, size_t count, uint8_t *mask,
                  float *value)
{
    if (input->support.pattern == PATTERN_TRACE)
        trace_sparse(input, rank, first, count, mask, value);
    else
        support_sparse(&input->support, rank, first, count, mask, value);
}

void input_gradient(const struct input *input, int rank, size_t first, size_t count, float *value)
{
    if (input->support.pattern == PATTERN_TRACE)
        memcpy(value, input->mapped[rank] + first, count * sizeof *value);
    else
        support_gradient(&input->support, rank, first, count, value);
}

size_t input_count(const struct input *input)
{
    uint8_t mask[LIST_BLOCK];
    size_t entries = 0;
    for (size_t first = 0; first < input->support.elements; first += LIST_BLOCK) {
        size_t count = spr_min_size(LIST_BLOCK, input->support.elements - first);
        input_sparse(input, input->job->rank, first, count, mask, NULL);
        for (size_t k = 0; k < count; k++)
            entries += mask[k];
    }
    return entries;
}

void input_list(const struct input *input, spr_sparse *list)
{
    uint8_t mask[LIST_BLOCK];
    float value[LIST_BLOCK];
    list->count = 0;
    for (size_t first = 0; first < input->support.elements; first += LIST_BLOCK) {
        size_t count = spr_min_size(LIST_BLOCK, input->support.elements - first);
        input_sparse(input, input->job->rank, first, count, mask, value);
        for (size_t k = 0; k < count; k++)
            if (mask[k]) {
                list->index[list->count] = (uint32_t)(first + k);
                list->value[list->count++] = value[k];
            }
    }
}
