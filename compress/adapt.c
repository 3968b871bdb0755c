/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/adapt.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/select.h"

enum {
    KEYS = 1 << 10,      /* exponent and two bits of the mantissa */
    KEY_SHIFT = 21,      /* of a magnitude */
    BISECTIONS = 30,     /* of the error */
    CRITICAL_CHANGE = 2, /* 1 / so much of the norm */
    SMOOTHED = 4,        /* gradients in the mean norm, about */
};

void spr_adapt_reset(struct spr_adapt *a, size_t part)
{
    a->parts[part] = (struct spr_adapt_part){
        .offset = a->parts[part].offset,
        .elements = a->parts[part].elements,
    };
    a->again = false;
}

bool spr_adapt_is_for(const struct spr_adapt *a, double ratio)
{
    float wanted = (float)ratio;

    for (size_t i = 0; i < a->count; i++) {
        float budget = a->parts[i].memory.budget;

        if (a->parts[i].elements > 0 && !(budget >= wanted && budget <= wanted))
            return false;
    }
    return true;
}

size_t spr_adapt_most(const struct spr_adapt *a, double ratio)
{
    size_t parts = 0, elements = 0;

    for (size_t i = 0; i < a->count; i++) {
        parts += a->parts[i].elements > 0;
        elements += a->parts[i].elements;
    }
    return spr_max_size(parts, spr_select_count(ratio, elements));
}

void spr_adapt_forget_norms(struct spr_adapt *a)
{
    for (size_t i = 0; i < a->count; i++)
        a->parts[i].memory.norm = 0;
    a->again = true;
}

/* ---- Samples ---- */

/* By magnitude. */
struct table {
    uint32_t count[KEYS];
    double energy[KEYS];
    double gradient; /* energy */
    size_t sampled;
};

static void take_line(struct table *t, const float *x, const float *gradient, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(gradient[i]))
            continue;
        uint32_t key = spr_magnitude(x[i]) >> KEY_SHIFT;

        t->count[key]++;
        t->energy[key] += (double)x[i] * (double)x[i];
        t->gradient += (double)gradient[i] * (double)gradient[i];
        t->sampled++;
    }
}

/* Keep what is in the bins below the largest magnitude; the last one takes all that is smaller. */
static void keep(struct spr_adapt_part *p, const struct table *t)
{
    size_t top = KEYS - 1;

    memset(p->count, 0, sizeof(p->count));
    memset(p->energy, 0, sizeof(p->energy));
    p->sampled = (double)t->sampled;
    p->total = 0;
    while (top > 0 && t->count[top] == 0)
        top--;
    for (size_t key = 0; key <= top; key++) {
        size_t bin = spr_min_size(top - key, SPR_ADAPT_BINS - 1);

        p->count[bin] += (float)t->count[key];
        p->energy[bin] += t->energy[key];
        p->total += t->energy[key];
    }
}

/* Is this norm out of line with those before? */
static void learn_norm(struct spr_adapt_part *p, double norm)
{
    double mean = (double)p->memory.norm;

    /* Zero after zero is in line. */
    p->critical = !(fabs(norm - mean) * CRITICAL_CHANGE <= mean);
    p->memory.norm = (float)(p->critical ? norm : mean + (norm - mean) / SMOOTHED);
}

static void look_at(struct spr_adapt_part *p, const struct spr_feedback *f, const float *gradient,
                    const struct spr_strata *strata, size_t lines)
{
    enum { AHEAD = 32 };
    size_t where[AHEAD]; /* lines whose data are on their way */
    struct table table;

    memset(&table, 0, sizeof(table));
    for (size_t i = 0; i < lines + AHEAD; i++) {
        if (i >= AHEAD) {
            size_t at = where[i % AHEAD];
            size_t n = spr_min_size(SPR_ADAPT_LINE, p->offset + p->elements - at);
            float x[SPR_ADAPT_LINE];

            if (f)
                spr_feedback_peek(f, at, n, x);
            take_line(&table, f ? x : gradient + at, gradient + at, n);
        }
        if (i < lines) {
            size_t at =
                p->offset + (size_t)spr_strata_position(strata, (uint32_t)i) * SPR_ADAPT_LINE;

            where[i % AHEAD] = at;
            if (f)
                spr_feedback_prefetch(f, at);
            else
                __builtin_prefetch(gradient + at);
        }
    }
    keep(p, &table);
    if (table.sampled > 0)
        learn_norm(p, sqrt(table.gradient * (double)p->elements / (double)table.sampled));
}

void spr_adapt_look(struct spr_adapt *a, const struct spr_feedback *f, const float *gradient,
                    uint64_t seed, uint64_t step)
{
    for (size_t i = 0; i < a->count; i++) {
        struct spr_adapt_part *p = &a->parts[i];
        size_t all = spr_div_ceil(p->elements, SPR_ADAPT_LINE);
        size_t lines = spr_max_size(SPR_ADAPT_LEAST, all / SPR_ADAPT_ONE_IN);
        uint64_t key = spr_rng_u64(seed ^ i, step);

        if (all == 0)
            continue;
        lines = spr_min_size(all, spr_min_size(lines, SPR_ADAPT_MOST));
        const struct spr_strata strata = {
            .length = (uint32_t)(all / lines),
            .longer = (uint32_t)(all % lines),
            .key = {(uint32_t)key, (uint32_t)(key >> 32)},
        };
        look_at(p, f, gradient, &strata, lines);
    }
}

/* ---- Decisions ---- */

/* Part of the elements that leaves no larger error. */
static double needed(const struct spr_adapt_part *p, double error)
{
    double left = p->total, allowed = error * error * p->total, entries = 0;

    for (size_t b = 0; b < SPR_ADAPT_BINS && left > allowed; b++) {
        double energy = p->energy[b], part = 1;

        if (energy > 0)
            part = fmin(1, (left - allowed) / energy);
        entries += part * (double)p->count[b];
        left -= energy;
    }
    return p->sampled > 0 ? entries / p->sampled : 0;
}

static double entries_of(const struct spr_adapt *a, double error)
{
    double sum = 0;

    for (size_t i = 0; i < a->count; i++) {
        const struct spr_adapt_part *p = &a->parts[i];
        if (p->elements > 0)
            sum += fmax(1, needed(p, error) * (double)p->elements);
    }
    return sum;
}

static double budget_of(const struct spr_adapt *a, const struct spr_adapt_options *o)
{
    double sum = 0;

    for (size_t i = 0; i < a->count; i++)
        sum += (double)a->parts[i].elements *
               (a->parts[i].critical ? o->ratio : fmin(o->ratio, o->calm));
    return sum;
}

void spr_adapt_decide(struct spr_adapt *a, const struct spr_adapt_options *o)
{
    double low = o->error, high = 1, budget = budget_of(a, o);

    if (entries_of(a, low) <= budget)
        high = low;
    for (int i = 0; i < BISECTIONS && high > low; i++) {
        double middle = (low + high) / 2;
        if (entries_of(a, middle) <= budget)
            high = middle;
        else
            low = middle;
    }
    a->error = high;
    a->again = false;
    for (size_t i = 0; i < a->count; i++) {
        struct spr_adapt_part *p = &a->parts[i];
        double least = p->elements > 0 ? 1 / (double)p->elements : 1;
        p->memory.ratio = (float)fmax(least, needed(p, high));
        p->memory.budget = (float)o->ratio;
    }
}

size_t spr_adapt_entries(const struct spr_adapt_part *p, double otherwise, size_t left,
                         size_t behind)
{
    double ratio = p->memory.ratio > 0 ? (double)p->memory.ratio : otherwise;
    size_t k = (size_t)fmax(1, fmin(ratio, 1) * (double)p->elements + 0.5);

    return p->elements > 0 ? spr_min_size(spr_min_size(k, p->elements), left - behind) : 0;
}
