/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/perf/data.h"

enum { CELL_LOG2 = 6 }; /* positions of a cluster */

/* Streams of random numbers besides those of the ranks' values. */
#define STREAM_SHARED ((uint64_t)1 << 40)
#define STREAM_LAYERS ((uint64_t)2 << 40)
#define STREAM_SUPPORT ((uint64_t)3 << 40)

const char *const pattern_names[PATTERN_TRACE] = {"uniform", "layers", "cluster", "zipf"};

bool pattern_parse(const char *name, enum pattern *pattern)
{
    for (int i = 0; i < PATTERN_TRACE; i++)
        if (strcmp(name, pattern_names[i]) == 0) {
            *pattern = (enum pattern)i;
            return true;
        }
    return false;
}

/* Consecutive positions of one probability. */
struct segment {
    size_t end;
    double weight;
};

/* The segment that position i is in. */
static struct segment segment_at(const struct support *support, size_t i)
{
    struct segment segment = {.end = support->elements, .weight = 1};
    if (support->pattern == PATTERN_LAYERS) {
        size_t low = 0, high = support->layer_count - 1;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (support->layer_end[middle] > i)
                high = middle;
            else
                low = middle + 1;
        }
        segment = (struct segment){support->layer_end[low], support->layer_weight[low]};
    } else if (support->pattern == PATTERN_ZIPF) {
        /* Steps of at most 1/64 of the position: the exact curve costs a division per element. */
        int log2 = 63 - __builtin_clzll((unsigned long long)i + 1);
        size_t width = log2 > 6 ? (size_t)1 << (log2 - 6) : 1;
        size_t first = (i + 1) & ~(width - 1);
        segment.end = spr_min_size(first + width - 1, support->elements);
        segment.weight = 1 / ((double)first + (double)(width - 1) / 2);
    }
    return segment;
}

/* Expected entries at a scale. */
static double expected(const struct support *support, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < support->elements;) {
        struct segment segment = segment_at(support, i);
        sum += (double)(segment.end - i) * fmin(1, scale * segment.weight);
        i = segment.end;
    }
    return sum;
}

/* The scale that gives the density. */
static double find_scale(const struct support *support)
{
    double wanted = support->density * (double)support->elements, low = 0, high = 1;
    while (high < 1e18 && expected(support, high) < wanted)
        high *= 16;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (expected(support, middle) < wanted)
            low = middle;
        else
            high = middle;
    }
    return high;
}

static bool make_layers(struct support *support)
{
    const double smallest = 1024;
    const double largest = fmin(2.5 * 0x1p20, fmax(smallest, (double)support->elements / 8));
    uint64_t key = data_key(support->seed, STREAM_LAYERS);
    size_t most = support->elements / (size_t)smallest + 1, end = 0;

    support->layer_end = calloc(most, sizeof *support->layer_end);
    support->layer_weight = calloc(most, sizeof *support->layer_weight);
    if (support->layer_end == NULL || support->layer_weight == NULL)
        return false;
    while (end < support->elements) {
        size_t k = support->layer_count++;
        double u = data_bits(key, 3 * k) * 0x1p-32, v = (data_bits(key, 3 * k + 1) + 1.0) * 0x1p-32;
        double angle = 2 * M_PI * data_bits(key, 3 * k + 2) * 0x1p-32;
        end += (size_t)(smallest * pow(largest / smallest, u));
        end = spr_min_size(end, support->elements);
        support->layer_end[k] = end;
        support->layer_weight[k] = exp(1.5 * sqrt(-2 * log(v)) * cos(angle));
    }
    return true;
}

bool support_open(struct support *support)
{
    support->layer_end = NULL;
    support->layer_weight = NULL;
    support->layer_count = 0;
    if (support->pattern == PATTERN_LAYERS && !make_layers(support)) {
        support_close(support);
        return false;
    }
    support->scale = find_scale(support);
    return true;
}

void support_close(struct support *support)
{
    free(support->layer_end);
    free(support->layer_weight);
    *support = (struct support){0};
}

void support_sparse(const struct support *support, int rank, size_t first, size_t count,
                    uint8_t *mask, float *value)
{
    uint64_t shared_key = data_key(support->seed, STREAM_SHARED);
    uint64_t own_key = data_key(support->seed, STREAM_SUPPORT + (uint64_t)rank);
    uint64_t value_key = data_key(support->seed, (uint64_t)rank);
    int shift = support->pattern == PATTERN_CLUSTER ? CELL_LOG2 : 0;

    for (size_t i = first; i < first + count;) {
        struct segment segment = segment_at(support, i);
        size_t end = spr_min_size(segment.end, first + count);
        /* P(shared or own) = p, P(shared) = p * overlap. */
        double p = fmin(1, support->scale * segment.weight), both = p * support->overlap;
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

void support_gradient(const struct support *support, int rank, size_t first, size_t count,
                      float *value)
{
    const float small = 0x1p-7f;
    uint64_t key = data_key(support->seed, (uint64_t)rank);

    support_sparse(support, rank, first, count, NULL, value);
    for (size_t k = 0; k < count; k++)
        if (value[k] == 0)
            value[k] = data_float(key, first + k) * small;
}
