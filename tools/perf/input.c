/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/data.h"

enum {
    CELL_LOG2 = 6, /* positions of a cluster */
    LIST_BLOCK = 4096
};

/* Streams of random numbers besides those of the ranks' values. */
#define STREAM_SHARED ((uint64_t)1 << 40)
#define STREAM_LAYERS ((uint64_t)2 << 40)
#define STREAM_SUPPORT ((uint64_t)3 << 40)

/* Consecutive positions of one probability. */
struct segment {
    size_t end;
    double weight;
};

/* The segment that position i is in. */
static struct segment segment_at(const struct input *input, size_t i)
{
    struct segment segment = {.end = input->elements, .weight = 1};
    if (input->pattern == PATTERN_LAYERS) {
        size_t low = 0, high = input->layer_count - 1;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (input->layer_end[middle] > i)
                high = middle;
            else
                low = middle + 1;
        }
        segment = (struct segment){input->layer_end[low], input->layer_weight[low]};
    } else if (input->pattern == PATTERN_ZIPF) {
        /* Steps of at most 1/64 of the position: the exact curve costs a division per element. */
        int log2 = 63 - __builtin_clzll((unsigned long long)i + 1);
        size_t width = log2 > 6 ? (size_t)1 << (log2 - 6) : 1;
        size_t first = (i + 1) & ~(width - 1);
        segment.end = spr_min_size(first + width - 1, input->elements);
        segment.weight = 1 / ((double)first + (double)(width - 1) / 2);
    }
    return segment;
}

/* Expected entries at a scale. */
static double expected(const struct input *input, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < input->elements;) {
        struct segment segment = segment_at(input, i);
        sum += (double)(segment.end - i) * fmin(1, scale * segment.weight);
        i = segment.end;
    }
    return sum;
}

/* The scale that gives the density. */
static double find_scale(const struct input *input)
{
    double wanted = input->density * (double)input->elements, low = 0, high = 1;
    while (high < 1e18 && expected(input, high) < wanted)
        high *= 16;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (expected(input, middle) < wanted)
            low = middle;
        else
            high = middle;
    }
    return high;
}

static bool make_layers(struct input *input)
{
    const double smallest = 1024;
    const double largest = fmin(2.5 * 0x1p20, fmax(smallest, (double)input->elements / 8));
    uint64_t key = data_key(input->seed, STREAM_LAYERS);
    size_t most = input->elements / (size_t)smallest + 1, end = 0;

    input->layer_end = calloc(most, sizeof *input->layer_end);
    input->layer_weight = calloc(most, sizeof *input->layer_weight);
    if (input->layer_end == NULL || input->layer_weight == NULL)
        return job_fail(input->job, "out of memory");
    while (end < input->elements) {
        size_t k = input->layer_count++;
        double u = data_bits(key, 3 * k) * 0x1p-32, v = (data_bits(key, 3 * k + 1) + 1.0) * 0x1p-32;
        double angle = 2 * M_PI * data_bits(key, 3 * k + 2) * 0x1p-32;
        end += (size_t)(smallest * pow(largest / smallest, u));
        end = spr_min_size(end, input->elements);
        input->layer_end[k] = end;
        input->layer_weight[k] = exp(1.5 * sqrt(-2 * log(v)) * cos(angle));
    }
    return true;
}

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
    size_t kept = (size_t)ceil(input->density * (double)input->elements);

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
    find_threshold(input->mapped[job->rank], input->elements, kept, counts, mine);
    free(counts);
    return job_ok(job, spr_allgather(job->comm, mine, input->threshold, 2, SPR_INT64, NULL));
}

bool input_advance(struct input *input)
{
    if (input->pattern != PATTERN_TRACE)
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
                            .pattern = job->options->pattern,
                            .elements = elements,
                            .density = density,
                            .overlap = job->options->overlap,
                            .seed = job->options->seed,
                            .trace = trace};
    if (input->pattern == PATTERN_TRACE) {
        input->mapped = calloc((size_t)job->size, sizeof *input->mapped);
        input->threshold = calloc(2 * (size_t)job->size, sizeof *input->threshold);
        if (input->mapped == NULL || input->threshold == NULL)
            return job_fail(job, "out of memory");
        return load_step(input);
    }
    if (input->pattern == PATTERN_LAYERS && !make_layers(input))
        return false;
    input->scale = find_scale(input);
    return true;
}

void input_close(struct input *input)
{
    unmap(input);
    free(input->mapped);
    free(input->threshold);
    free(input->layer_end);
    free(input->layer_weight);
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
    uint64_t shared_key = data_key(input->seed, STREAM_SHARED);
    uint64_t own_key = data_key(input->seed, STREAM_SUPPORT + (uint64_t)rank);
    uint64_t value_key = data_key(input->seed, (uint64_t)rank);
    int shift = input->pattern == PATTERN_CLUSTER ? CELL_LOG2 : 0;

    if (input->pattern == PATTERN_TRACE) {
        trace_sparse(input, rank, first, count, mask, value);
        return;
    }
    for (size_t i = first; i < first + count;) {
        struct segment segment = segment_at(input, i);
        size_t end = spr_min_size(segment.end, first + count);
        /* P(shared or own) = p, P(shared) = p * overlap. */
        double p = fmin(1, input->scale * segment.weight), both = p * input->overlap;
        double own = both < 1 ? (p - both) / (1 - both) : 1;
        uint64_t shared_odds = (uint64_t)(both * 0x1p32), own_odds = (uint64_t)(own * 0x1p32);
        for (; i < end; i++) {
            uint64_t key = i >> shift;
            bool in = data_bits(own_key, key) < own_odds ||
                      (shared_odds > 0 && data_bits(shared_key, key) < shared_odds);
            if (mask != NULL)
                mask[i - first] = in;
            if (value != NULL)
                value[i - first] = in ? data_float(value_key, i) : 0;
        }
    }
}

void input_gradient(const struct input *input, int rank, size_t first, size_t count, float *value)
{
    const float small = 0x1p-7f;

    if (input->pattern == PATTERN_TRACE) {
        memcpy(value, input->mapped[rank] + first, count * sizeof *value);
        return;
    }
    uint64_t key = data_key(input->seed, (uint64_t)rank);
    input_sparse(input, rank, first, count, NULL, value);
    for (size_t k = 0; k < count; k++)
        if (value[k] == 0)
            value[k] = data_float(key, first + k) * small;
}

size_t input_count(const struct input *input)
{
    uint8_t mask[LIST_BLOCK];
    size_t entries = 0;
    for (size_t first = 0; first < input->elements; first += LIST_BLOCK) {
        size_t count = spr_min_size(LIST_BLOCK, input->elements - first);
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
    for (size_t first = 0; first < input->elements; first += LIST_BLOCK) {
        size_t count = spr_min_size(LIST_BLOCK, input->elements - first);
        input_sparse(input, input->job->rank, first, count, mask, value);
        for (size_t k = 0; k < count; k++)
            if (mask[k]) {
                list->index[list->count] = (uint32_t)(first + k);
                list->value[list->count++] = value[k];
            }
    }
}
