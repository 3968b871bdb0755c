/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Exact top-k in one pass over memory:
 *
 *   sample   estimate from a few thousand cache lines a bracket [lo, hi) of magnitudes that
 *            holds the k-th largest, T
 *   collect  one pass: every element with magnitude >= lo becomes a candidate (a few per cent
 *            more than k); with feedback this pass also adds the gradient and zeroes what it takes
 *   refine   T exactly, from the candidates inside the bracket; surplus candidates go back
 *
 * The sample decides nothing but speed. Where it misled (fewer than k candidates, or more than fit)
 * or shows mass ties (constant data, zeros, small integers), `locate` counts magnitudes against
 * seven thresholds per pass until T or a good bracket is certain: at most twelve passes, usually
 * one. A threshold estimated from a sample is the idea of Lin et al. 2018 ("Deep Gradient
 * Compression", section 5), where the result is approximate.
 */
#include "compress/topk.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"

#define NO_LIMIT 0x80000000u /* above every magnitude */
#define CHUNK 2048u          /* elements per kernel call: residual and gradient stay in L1 */
#define SMALL 8192u          /* up to here all elements are looked at to find T */
#define DENSE 48u            /* more than one in so many: emit densely */
#define LINE 16u             /* floats per cache line, the unit of sampling */
#define SAMPLE_MIN 2048u
#define SAMPLE_MAX 65536u
#define SAMPLE_SHIFT 17 /* a bin of the sample's histogram: 1/64 of an octave, 1.1 to 1.6 % */
#define SAMPLE_BINS (NO_LIMIT >> SAMPLE_SHIFT)
#define RADIX_LOG2 11
#define SIGMAS 3.0 /* half width of the bracket, in standard deviations of the sample's rank */
/* The threshold of the last call less 3 to 5 %: drift between steps of training is below that. */
#define HINT_SLACK 0x60000u

struct topk {
    const struct spr_kernels *kernels;
    const float *x;        /* where to select; the residual when there is feedback */
    float *residual;       /* NULL: no feedback */
    const float *gradient; /* not NULL: still to be added to residual */
    size_t n, k;

    uint32_t *index; /* the result, and the first candidates */
    float *value;
    size_t taken;          /* candidates in index/value; at most k + 16 */
    uint32_t *spill_index; /* the candidates after those */
    float *spill_value;
    size_t spilled, spill_room;

    uint32_t *temp; /* magnitudes inside the bracket */
    size_t temp_room;
    uint32_t *histogram;
    uint32_t *sample; /* magnitudes, line by line */
    size_t samples;
    uint32_t sample_max;
    size_t rank, margin;  /* of T in the sample, and its uncertainty */
    uint32_t *some_index; /* candidates of one chunk */
    float *some_value;

    uint32_t lo, hi;    /* bracket */
    uint32_t threshold; /* T, when done */
};

size_t spr_topk_count(double ratio, size_t n)
{
    double k = ceil(ratio * (double)n);

    if (!(k >= 1))
        k = 1;
    return k >= (double)n ? n : (size_t)k;
}

/* ---- Scratch memory ---- */

static size_t samples_of(size_t n)
{
    size_t s = n / 32 / LINE * LINE;

    return s < SAMPLE_MIN ? SAMPLE_MIN : spr_min_size(s, SAMPLE_MAX);
}

/* Candidates beyond k that are put up with. */
static size_t spill_of(size_t n, size_t k) { return k / 8 + n / 128 + 3 * CHUNK; }

/* The next array, at a multiple of 64 from the start. */
static void *carve(uintptr_t *at, size_t bytes)
{
    void *p = (void *)*at;

    *at += spr_align_up(bytes, 64);
    return p;
}

/* Lay the arrays out from address `start` (0: only count); returns the bytes used. */
static size_t lay_out(struct topk *t, uintptr_t start)
{
    bool small = t->n <= SMALL;
    uintptr_t at = start;

    t->samples = small ? 0 : samples_of(t->n);
    t->spill_room = small ? 0 : spill_of(t->n, t->k);
    t->temp_room = t->n + SPR_KERNEL_SLACK;
    if (!small) /* as many on both sides of T */
        t->temp_room = spr_max_size(2 * t->spill_room, t->samples);
    t->histogram = carve(&at, (small ? 1u << RADIX_LOG2 : SAMPLE_BINS) * sizeof(uint32_t));
    t->sample = carve(&at, t->samples * sizeof(uint32_t));
    t->spill_index = carve(&at, t->spill_room * sizeof(uint32_t));
    t->spill_value = carve(&at, t->spill_room * sizeof(float));
    t->temp = carve(&at, t->temp_room * sizeof(uint32_t));
    t->some_index = carve(&at, (CHUNK + SPR_KERNEL_SLACK) * sizeof(uint32_t));
    t->some_value = carve(&at, (CHUNK + SPR_KERNEL_SLACK) * sizeof(float));
    return (size_t)(at - start);
}

size_t spr_topk_scratch(size_t n, size_t k)
{
    struct topk t = {.n = n, .k = k};

    return lay_out(&t, 0) + 63; /* aligned by the user */
}

/* ---- Radix selection on magnitudes ---- */

/*
 * The k-th largest of m[0..n), all in [lo, hi); *greater = how many are larger. Destroys m.
 * Histograms over an ever smaller range: at most three rounds.
 */
static uint32_t kth_largest(uint32_t *m, size_t n, size_t k, uint32_t lo, uint32_t hi,
                            uint32_t *histogram, size_t *greater)
{
    *greater = 0;
    while (hi - lo > 1) {
        unsigned shift = 0;
        while ((hi - lo - 1) >> shift >> RADIX_LOG2)
            shift++;
        memset(histogram, 0, sizeof(*histogram) << RADIX_LOG2);
        for (size_t i = 0; i < n; i++)
            histogram[(m[i] - lo) >> shift]++;
        uint32_t bin = (hi - lo - 1) >> shift;
        for (; histogram[bin] < k; bin--) {
            k -= histogram[bin];
            *greater += histogram[bin];
        }
        lo += bin << shift;
        uint32_t width = 1u << shift;
        size_t left = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t mag = m[i];
            m[left] = mag;
            left += mag - lo < width;
        }
        n = left;
        hi = lo + width;
    }
    return lo;
}

/* ---- Sample ---- */

static void take_sample(struct topk *t)
{
    const float *g = t->gradient;
    size_t lines = t->samples / LINE, all = t->n / LINE;
    enum { AHEAD = 32 };
    size_t where[AHEAD]; /* lines whose data are on their way */

    memset(t->histogram, 0, SAMPLE_BINS * sizeof(*t->histogram));
    t->sample_max = 0;
    for (size_t j = 0; j < lines + AHEAD; j++) {
        if (j >= AHEAD) {
            size_t at = where[j % AHEAD];
            uint32_t *out = t->sample + (j - AHEAD) * LINE;

            for (size_t i = 0; i < LINE; i++) {
                out[i] = spr_magnitude(g ? t->x[at + i] + g[at + i] : t->x[at + i]);
                t->histogram[out[i] >> SAMPLE_SHIFT]++;
                t->sample_max = out[i] > t->sample_max ? out[i] : t->sample_max;
            }
        }
        if (j < lines) {
            /* One line out of each of `lines` equal strata, at a place that no period can meet. */
            uint64_t in = (uint64_t)spr_hash_u32(j + 1) * all >> 32;
            size_t at = (size_t)((j * (uint64_t)all + in) / lines) * LINE;

            where[j % AHEAD] = at;
            __builtin_prefetch(t->x + at);
            if (g)
                __builtin_prefetch(g + at);
        }
    }
}

/* The bin that holds the sample of this rank (1 = the largest); *above: samples in higher bins. */
static uint32_t sample_bin(const struct topk *t, size_t rank, size_t *above)
{
    uint32_t bin = t->sample_max >> SAMPLE_SHIFT;
    size_t sum = 0;

    while (bin > 0 && sum + t->histogram[bin] < rank)
        sum += t->histogram[bin--];
    *above = sum;
    return bin;
}

/* Variance of the number of samples >= lo, as a sum over independent lines: neighbours tend to be
 * large together, which makes it up to LINE times that of independent elements. */
static double sample_variance(const struct topk *t, uint32_t lo)
{
    size_t whole = t->samples / LINE;
    double lines = (double)whole;
    uint64_t sum = 0, squares = 0;

    for (size_t l = 0; l < t->samples; l += LINE) {
        uint32_t c = 0;
        for (size_t i = 0; i < LINE; i++)
            c += t->sample[l + i] >= lo;
        sum += c;
        squares += (uint64_t)c * c;
    }
    return (double)squares - (double)sum * (double)sum / lines;
}

/* Choose the bracket. False: it would catch more candidates than there is room for. */
static bool choose_bracket(struct topk *t, const struct spr_topk_hint *hint)
{
    double scale = (double)t->samples / (double)t->n;
    size_t above, rank = (size_t)((double)t->k * scale);

    take_sample(t);
    t->rank = rank = rank < 1 ? 1 : rank;
    uint32_t bin = sample_bin(t, rank, &above);
    double margin = SIGMAS * sqrt(sample_variance(t, bin << SAMPLE_SHIFT)) + 8;
    double most = 0.75 * (double)t->spill_room * scale;
    t->margin = (size_t)(margin < most ? margin : most);

    bin = sample_bin(t, rank + t->margin, &above);
    size_t caught = above + t->histogram[bin];
    t->lo = rank + t->margin > t->samples ? 0 : bin << SAMPLE_SHIFT;
    if (hint->threshold_bits > HINT_SLACK && hint->threshold_bits - HINT_SLACK > t->lo) {
        uint32_t near = hint->threshold_bits - HINT_SLACK;
        size_t larger = 0;
        for (uint32_t b = t->sample_max >> SAMPLE_SHIFT; b > near >> SAMPLE_SHIFT; b--)
            larger += t->histogram[b];
        if (larger >= rank) { /* the sample agrees that this is low enough */
            t->lo = near;
            caught = larger;
        }
    }
    t->hi = NO_LIMIT;
    if (rank > t->margin)
        t->hi = (sample_bin(t, rank - t->margin, &above) + 1) << SAMPLE_SHIFT;
    if (t->hi <= t->lo)
        t->hi = t->lo + 1;
    return (double)caught / scale < (double)(t->k + t->spill_room - 2 * CHUNK);
}

/* ---- Collect and refine ---- */

/* All magnitudes >= t->lo, in order. Returns how many elements were looked at: less than n when the
 * room for candidates ran out. */
static size_t collect(struct topk *t)
{
    bool dense = t->k > t->n / DENSE;
    size_t at = 0;

    t->taken = t->spilled = 0;
    while (at < t->n) {
        size_t len = spr_min_size(CHUNK, t->n - at), m;
        uint32_t *index = t->index + t->taken;
        float *value = t->value + t->taken;
        bool spill = t->taken + CHUNK + SPR_KERNEL_SLACK > t->k + 16;

        if (spill) {
            if (t->spilled + CHUNK + SPR_KERNEL_SLACK > t->spill_room)
                break;
            index = t->spill_index + t->spilled;
            value = t->spill_value + t->spilled;
        }
        if (t->gradient)
            m = t->kernels->feedback(t->residual + at, t->gradient + at, len, t->lo, (uint32_t)at,
                                     dense, index, value);
        else
            m = t->kernels->select(t->x + at, len, t->lo, (uint32_t)at, dense, index, value);
        *(spill ? &t->spilled : &t->taken) += m;
        dense = m > CHUNK / DENSE; /* neighbours are alike */
        at += len;
    }
    return at;
}

/* Magnitudes below hi of one array of candidates, appended to temp. */
static bool split(struct topk *t, const float *value, size_t n, size_t *below)
{
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t len = spr_min_size(CHUNK, n - at);

        if (*below + len + SPR_KERNEL_SLACK > t->temp_room)
            return false;
        *below += t->kernels->split(value + at, len, t->hi, t->temp + *below);
    }
    return true;
}

/* The k largest of the candidates. False, and nothing is changed: T is not inside the bracket, or
 * too much else is. */
static bool refine(struct topk *t)
{
    size_t all = t->taken + t->spilled, below = 0, greater;

    if (all < t->k || !split(t, t->value, t->taken, &below) ||
        !split(t, t->spill_value, t->spilled, &below))
        return false;
    size_t above = all - below; /* surely among the k largest */
    if (above >= t->k)
        return false;
    uint32_t T = kth_largest(t->temp, below, t->k - above, t->lo, t->hi, t->histogram, &greater);
    size_t quota = t->k - above - greater;
    float *back = t->gradient ? t->residual : NULL;
    size_t kept =
        t->kernels->filter(t->index, t->value, t->taken, T, &quota, t->index, t->value, back);
    t->kernels->filter(t->spill_index, t->spill_value, t->spilled, T, &quota, t->index + kept,
                       t->value + kept, back);
    t->threshold = T;
    return true;
}

/* ---- Without a usable sample ---- */

/* The result when T is known and `quota` elements equal to it belong to it. */
static void emit(struct topk *t, uint32_t T, size_t quota)
{
    bool dense = t->k > t->n / DENSE;
    size_t out = 0;

    for (size_t at = 0; at < t->n; at += CHUNK) {
        size_t len = spr_min_size(CHUNK, t->n - at);

        if (quota > 0) {
            size_t m = t->kernels->select(t->x + at, len, T, (uint32_t)at, dense, t->some_index,
                                          t->some_value);
            out += t->kernels->filter(t->some_index, t->some_value, m, T, &quota, t->index + out,
                                      t->value + out, NULL);
        } else {
            out += t->kernels->select(t->x + at, len, T + 1, (uint32_t)at, dense, t->index + out,
                                      t->value + out);
        }
    }
    t->threshold = T;
}

/* Thresholds worth counting first: the sample's values around the rank of T, and one above each,
 * since a tie is found when T and T + 1 have been counted. */
static void sample_thresholds(struct topk *t, uint32_t thresholds[SPR_COUNT_THRESHOLDS])
{
    size_t ranks[3] = {
        t->rank > t->margin ? t->rank - t->margin : 1,
        t->rank,
        spr_min_size(t->rank + t->margin, t->samples),
    };
    size_t greater;

    for (size_t i = 0; i < 3; i++) {
        memcpy(t->temp, t->sample, t->samples * sizeof(*t->temp));
        thresholds[2 * i] =
            kth_largest(t->temp, t->samples, ranks[i], 0, NO_LIMIT, t->histogram, &greater);
        thresholds[2 * i + 1] = thresholds[2 * i] + 1;
    }
    thresholds[6] = 1; /* is T zero? */
}

/* T by counting. t->x does not change; the sample has been taken. */
static void locate(struct topk *t)
{
    uint32_t L = 0, H = NO_LIMIT;               /* T is in [L, H) */
    uint64_t at_least_L = t->n, at_least_H = 0; /* elements with a magnitude >= L, >= H */
    uint32_t thresholds[SPR_COUNT_THRESHOLDS];

    sample_thresholds(t, thresholds);
    while (H - L > 1) {
        uint64_t counts[SPR_COUNT_THRESHOLDS] = {0};

        t->kernels->count(t->x, t->n, thresholds, counts);
        for (size_t j = 0; j < SPR_COUNT_THRESHOLDS; j++) {
            if (counts[j] >= t->k && thresholds[j] > L) {
                L = thresholds[j];
                at_least_L = counts[j];
            } else if (counts[j] < t->k && thresholds[j] < H) {
                H = thresholds[j];
                at_least_H = counts[j];
            }
        }
        if (H - L == 1)
            break;
        t->lo = L;
        t->hi = H;
        if (at_least_L <= t->k + t->spill_room - 2 * CHUNK &&
            at_least_L - at_least_H <= t->temp_room - CHUNK && collect(t) == t->n && refine(t))
            return;
        for (uint32_t j = 0; j < SPR_COUNT_THRESHOLDS; j++) {
            uint32_t step = (uint32_t)((uint64_t)(H - L) * (j + 1) / (SPR_COUNT_THRESHOLDS + 1));
            thresholds[j] = L + (step > 0 ? step : 1);
        }
    }
    emit(t, L, t->k - (size_t)at_least_H);
}

/* ---- The two calls ---- */

/* Select from t->x, which does not change. */
static void select_stable(struct topk *t)
{
    if (t->n <= SMALL) {
        size_t greater;

        t->kernels->split(t->x, t->n, NO_LIMIT, t->temp);
        uint32_t T = kth_largest(t->temp, t->n, t->k, 0, NO_LIMIT, t->histogram, &greater);
        emit(t, T, t->k - greater);
    } else {
        locate(t);
    }
}

/* One pass over residual and gradient. False: the gradient is added, nothing is selected. */
static bool select_fused(struct topk *t)
{
    size_t done = collect(t);

    if (done == t->n && refine(t))
        return true;
    t->kernels->accumulate(t->residual + done, t->gradient + done, t->n - done);
    for (size_t i = 0; i < t->taken; i++)
        t->residual[t->index[i]] = t->value[i];
    for (size_t i = 0; i < t->spilled; i++)
        t->residual[t->spill_index[i]] = t->spill_value[i];
    return false;
}

static void run(struct topk *t, struct spr_topk_hint *hint, void *scratch)
{
    bool good = false;

    if (t->k == 0)
        return;
    t->kernels = spr_kernels();
    lay_out(t, spr_align_up((uintptr_t)scratch, 64));
    if (t->n > SMALL)
        good = choose_bracket(t, hint);
    if (good && t->gradient) {
        good = select_fused(t);
        if (good)
            goto done;
        t->gradient = NULL;
    } else if (t->gradient) {
        t->kernels->accumulate(t->residual, t->gradient, t->n);
        t->gradient = NULL;
    } else if (good) {
        good = collect(t) == t->n && refine(t);
    }
    if (!good)
        select_stable(t);
    if (t->residual)
        for (size_t i = 0; i < t->k; i++)
            t->residual[t->index[i]] = 0;
done:
    hint->threshold_bits = t->threshold;
}

void spr_topk_select(const float *x, size_t n, size_t k, struct spr_topk_hint *hint,
                     uint32_t *index, float *value, void *scratch)
{
    struct topk t = {.x = x, .n = n, .k = k, .index = index, .value = value};

    run(&t, hint, scratch);
}

void spr_topk_feedback(float *residual, const float *gradient, size_t n, size_t k,
                       struct spr_topk_hint *hint, uint32_t *index, float *value, void *scratch)
{
    struct topk t = {
        .x = residual,
        .residual = residual,
        .gradient = gradient,
        .n = n,
        .k = k,
        .index = index,
        .value = value,
    };

    run(&t, hint, scratch);
}
