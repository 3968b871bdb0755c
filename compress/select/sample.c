/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A sample of whole cache lines, one out of each of equal strata: 0.1 to 0.15 ms for the most, 64
 * Ki elements. It decides nothing but speed, unless an aim asks for the threshold of the sample
 * itself.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "compress/select/topk_internal.h"

#define SAMPLE_MIN 2048u
#define SAMPLE_MAX 65536u
#define SIGMAS 3.0 /* half width of the bracket, in standard deviations of the sample's rank */
/* The threshold of the last call less 3 to 5 %: drift between steps of training is below that. */
#define HINT_SLACK 0x60000u

size_t spr_topk_samples(size_t n)
{
    size_t s = n / 32 / SPR_TOPK_LINE * SPR_TOPK_LINE;

    return s < SAMPLE_MIN ? SAMPLE_MIN : spr_min_size(s, SAMPLE_MAX);
}

static void look_at_line(struct spr_topk *t, size_t at, uint32_t *out)
{
    float sum[SPR_TOPK_LINE];
    const float *line = t->x + at;

    if (t->absorb) {
        spr_feedback_peek(t->feedback, at, SPR_TOPK_LINE, sum);
        line = sum;
    }
    for (size_t i = 0; i < SPR_TOPK_LINE; i++) {
        out[i] = spr_key(line[i]);
        t->histogram[out[i] >> SPR_TOPK_SAMPLE_SHIFT]++;
        t->sample_max = out[i] > t->sample_max ? out[i] : t->sample_max;
    }
}

static void prefetch_line(const struct spr_topk *t, size_t at)
{
    if (t->absorb)
        spr_feedback_prefetch(t->feedback, at);
    else
        __builtin_prefetch(t->x + at);
}

static void take_sample(struct spr_topk *t)
{
    size_t lines = t->samples / SPR_TOPK_LINE, all = t->n / SPR_TOPK_LINE;
    enum { AHEAD = 32 };
    size_t where[AHEAD]; /* lines whose data are on their way */

    memset(t->histogram, 0, SPR_TOPK_SAMPLE_BINS * sizeof(*t->histogram));
    t->sample_max = 0;
    for (size_t j = 0; j < lines + AHEAD; j++) {
        if (j >= AHEAD)
            look_at_line(t, where[j % AHEAD], t->sample + (j - AHEAD) * SPR_TOPK_LINE);
        if (j < lines) {
            /* One line out of each of `lines` equal strata, at a place that no period can meet. */
            uint64_t in = (uint64_t)spr_hash_u32(j + 1) * all >> 32;
            size_t at = (size_t)((j * (uint64_t)all + in) / lines) * SPR_TOPK_LINE;

            where[j % AHEAD] = at;
            prefetch_line(t, at);
        }
    }
}

/* The bin that holds the sample of this rank (1 = the largest); *above: samples in higher bins.
 */
static uint32_t sample_bin(const struct spr_topk *t, size_t rank, size_t *above)
{
    uint32_t bin = t->sample_max >> SPR_TOPK_SAMPLE_SHIFT;
    size_t sum = 0;

    while (bin > 0 && sum + t->histogram[bin] < rank)
        sum += t->histogram[bin--];
    *above = sum;
    return bin;
}

/* Variance of the number of samples >= lo, as a sum over independent lines: neighbours tend to
 * be large together, which makes it up to SPR_TOPK_LINE times that of independent elements. */
static double sample_variance(const struct spr_topk *t, uint32_t lo)
{
    size_t whole = t->samples / SPR_TOPK_LINE;
    double lines = (double)whole;
    uint64_t sum = 0, squares = 0;

    for (size_t l = 0; l < t->samples; l += SPR_TOPK_LINE) {
        uint32_t c = 0;
        for (size_t i = 0; i < SPR_TOPK_LINE; i++)
            c += t->sample[l + i] >= lo;
        sum += c;
        squares += (uint64_t)c * c;
    }
    return (double)squares - (double)sum * (double)sum / lines;
}

/* The sample of this rank, to the bit. No candidates are in use. */
static uint32_t sample_value(struct spr_topk *t, size_t rank)
{
    size_t above, n = 0, greater;
    uint32_t bin = sample_bin(t, rank, &above);
    uint32_t low = bin << SPR_TOPK_SAMPLE_SHIFT, width = 1u << SPR_TOPK_SAMPLE_SHIFT;

    for (size_t i = 0; i < t->samples; i++) {
        t->magnitudes[n] = t->sample[i];
        n += t->sample[i] - low < width;
    }
    return spr_topk_kth(t->magnitudes, n, rank - above, low, low + width, t->radix, &greater);
}

void spr_topk_sample(struct spr_topk *t)
{
    size_t above, rank = (size_t)((double)t->aim.k * (double)t->samples / (double)t->n);

    take_sample(t);
    t->sampled = true;
    t->rank = rank < 1 ? 1 : rank;
    uint32_t lo = sample_bin(t, t->rank, &above) << SPR_TOPK_SAMPLE_SHIFT;
    if (lo == 0) /* denormal, too coarse a bin */
        lo = sample_value(t, spr_min_size(t->rank, t->samples));
    t->margin = (size_t)(SIGMAS * sqrt(sample_variance(t, lo))) + 8;
}

/* Samples in bins above that of a magnitude. */
static size_t samples_above(const struct spr_topk *t, uint32_t magnitude)
{
    size_t larger = 0;

    for (uint32_t b = t->sample_max >> SPR_TOPK_SAMPLE_SHIFT;
         b > magnitude >> SPR_TOPK_SAMPLE_SHIFT; b--)
        larger += t->histogram[b];
    return larger;
}

bool spr_topk_bracket(struct spr_topk *t)
{
    double scale = (double)t->samples / (double)t->n;
    size_t above, rank = t->rank;
    uint32_t near = t->aim.hint > HINT_SLACK ? t->aim.hint - HINT_SLACK : 0;
    double most = 0.75 * (double)t->block_room / 2 * scale;
    size_t margin = spr_min_size(t->margin, (size_t)most);
    uint32_t bin = sample_bin(t, rank + margin, &above);
    size_t caught = above + t->histogram[bin];

    t->lo = rank + margin > t->samples ? 0 : bin << SPR_TOPK_SAMPLE_SHIFT;
    if (near > t->lo && samples_above(t, near) >= rank) { /* the sample agrees: low enough */
        t->lo = near;
        caught = samples_above(t, near);
    }
    if (t->lo == 0 || (double)caught / scale >= 0.8 * (double)t->room) {
        /* Too coarse a bin: at the edge of a bulk one holds more than there is room for. Zeros need
         * none: where they belong to the result, T is zero. */
        uint32_t value = sample_value(t, spr_min_size(rank + margin, t->samples));
        value = value > 0 ? value : 1;
        t->lo = value > t->lo ? value : t->lo;
        caught = 0;
        for (size_t i = 0; i < t->samples; i++)
            caught += t->sample[i] >= t->lo;
    }
    t->hi = SPR_TOPK_NO_LIMIT;
    if (rank > margin) {
        t->hi = (sample_bin(t, rank - margin, &above) + 1) << SPR_TOPK_SAMPLE_SHIFT;
        if (t->hi >> SPR_TOPK_SAMPLE_SHIFT == 1)
            t->hi = sample_value(t, rank - margin) + 1;
    }
    if (t->lo < t->aim.floor) {
        t->lo = t->aim.floor;
        caught = spr_min_size(caught, samples_above(t, t->lo));
    }
    if (t->hi <= t->lo)
        t->hi = t->lo + 1;
    return (double)caught / scale < (double)t->room;
}

uint32_t spr_topk_sample_threshold(struct spr_topk *t)
{
    return sample_value(t, spr_min_size(t->rank, t->samples));
}

/*
 * The sample's values around the rank of T; and one above where mass ties may be, since a tie is
 * found when T and T + 1 have been counted: at the lowest of these values, and where two are equal.
 */
void spr_topk_sample_thresholds(struct spr_topk *t)
{
    const uint32_t value[] = {
        sample_value(t, t->rank > t->margin ? t->rank - t->margin : 1),
        sample_value(t, spr_min_size(t->rank, t->samples)),
        sample_value(t, spr_min_size(t->rank + t->margin, t->samples)),
    };
    size_t m = 0;

    for (size_t i = 0; i < 3; i++) {
        if (i > 0 && value[i] == value[i - 1])
            continue;
        if (i == 2 || value[i] == value[i + 1])
            t->thresholds[m++] = value[i] + 1;
        t->thresholds[m++] = value[i];
    }
    if (t->aim.floor > 0)
        t->thresholds[m++] = t->aim.floor;
    t->threshold_count = m;
}
