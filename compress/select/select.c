/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The registry of selectors, and what their calls have in common: passes that measure a norm before
 * selection can begin.
 */
#include "compress/select/select.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "compress/kernels/select.h"
#include "compress/select/selectors.h"

enum stage {
    MEASURE_GRADIENT, /* its norm, for clipping */
    MEASURE_RESIDUAL, /* its root mean square, after the gradient has been added */
    SELECT,
};

const struct spr_selector *const spr_selectors[] = {
    &spr_selector_topk,  &spr_selector_accumulate, &spr_selector_threshold, &spr_selector_sampled,
    &spr_selector_reuse, &spr_selector_block,      &spr_selector_random,    NULL,
};

const struct spr_selector *spr_selector_find(const char *name)
{
    for (const struct spr_selector *const *s = spr_selectors; *s; s++)
        if (strcmp((*s)->name, name) == 0)
            return *s;
    return NULL;
}

size_t spr_select_count(double ratio, size_t n)
{
    double k = ceil(ratio * (double)n);

    if (!(k >= 1))
        k = 1;
    return k >= (double)n ? n : (size_t)k;
}

unsigned spr_select_slices(size_t n, unsigned threads)
{
    size_t slices = spr_min_size(n / SPR_SELECT_SLICE_WORTH, (size_t)threads * 2);

    if (threads < 2 || slices < 2)
        return 1;
    return (unsigned)spr_min_size(slices, SPR_SELECT_SLICES_MAX);
}

void spr_select_slice(size_t n, unsigned slices, unsigned slice, size_t *begin, size_t *end)
{
    size_t units = spr_div_ceil(n, SPR_SELECT_SLICE_UNIT);

    *begin = spr_min_size(n, units * slice / slices * SPR_SELECT_SLICE_UNIT);
    *end = spr_min_size(n, units * (slice + 1) / slices * SPR_SELECT_SLICE_UNIT);
}

size_t spr_select_most(const struct spr_selector *selector, const void *options, size_t n)
{
    return n > 0 ? selector->most(options, n) : 0;
}

static size_t squares_bytes(size_t n)
{
    return spr_align_up(spr_div_ceil(n, SPR_SELECT_SLICE_UNIT) * sizeof(double), 64);
}

size_t spr_select_workspace(const struct spr_selector *selector, const void *options, size_t n,
                            unsigned slices)
{
    return 63 + squares_bytes(n) + (n > 0 ? selector->workspace(options, n, slices) : 0);
}

/* Pass over the stages that are not needed. */
static void enter(struct spr_select *s, enum stage stage)
{
    const struct spr_feedback *f = s->feedback;
    bool clip = f && f->gradient && f->norm > 0;
    bool rms = s->selector->needs_rms && s->selector->needs_rms(s->options);

    s->stage = SELECT;
    if (stage <= MEASURE_GRADIENT && clip)
        s->stage = MEASURE_GRADIENT;
    else if (stage <= MEASURE_RESIDUAL && rms)
        s->stage = MEASURE_RESIDUAL;
    else
        s->selector->begin(s);
}

void spr_select_begin(struct spr_select *s)
{
    s->squares = (double *)spr_align_up((uintptr_t)s->workspace, 64);
    s->scratch = (char *)s->squares + squares_bytes(s->n);
    s->count = 0;
    s->absorbed = s->left = false;
    s->rms = 0;
    if (s->feedback)
        s->feedback->scale = 1;
    s->stage = SELECT;
    if (s->n > 0)
        enter(s, MEASURE_GRADIENT);
}

static void measure(struct spr_select *s, const float *x, unsigned slice, bool absorb)
{
    size_t begin, end;

    spr_select_slice(s->n, s->slices, slice, &begin, &end);
    for (size_t at = begin; at < end; at += SPR_SELECT_SLICE_UNIT) {
        size_t len = spr_min_size(SPR_SELECT_SLICE_UNIT, end - at);

        if (absorb)
            spr_feedback_absorb(s->feedback, at, len);
        s->squares[at / SPR_SELECT_SLICE_UNIT] = spr_select_kernels()->squares(x + at, len);
    }
}

void spr_select_scan(struct spr_select *s, unsigned slice)
{
    bool absorb = s->feedback && s->feedback->gradient;

    if (s->n == 0)
        return;
    if (s->stage == MEASURE_GRADIENT)
        measure(s, s->feedback->gradient, slice, false);
    else if (s->stage == MEASURE_RESIDUAL)
        measure(s, spr_select_from(s), slice, absorb);
    else
        s->selector->scan(s, slice);
}

static double sum_of_squares(const struct spr_select *s)
{
    double sum = 0;

    for (size_t i = 0; i < spr_div_ceil(s->n, SPR_SELECT_SLICE_UNIT); i++)
        sum += s->squares[i];
    return sum;
}

bool spr_select_decide(struct spr_select *s)
{
    if (s->n == 0)
        return true;
    if (s->stage == MEASURE_GRADIENT) {
        double norm = sqrt(sum_of_squares(s));

        /* A norm that is not finite clips nothing: what is wrong with the gradient shall show. */
        if (isfinite(norm) && norm > s->feedback->norm)
            s->feedback->scale = (float)(s->feedback->norm / norm);
        enter(s, MEASURE_RESIDUAL);
        return false;
    }
    if (s->stage == MEASURE_RESIDUAL) {
        s->rms = sqrt(sum_of_squares(s) / (double)s->n);
        s->absorbed = true;
        enter(s, SELECT);
        return false;
    }
    return s->selector->decide(s);
}

void spr_select_emit(struct spr_select *s, unsigned slice)
{
    if (s->n > 0)
        s->selector->emit(s, slice);
}

static void scan_part(void *s, unsigned slice) { spr_select_scan(s, slice); }
static void emit_part(void *s, unsigned slice) { spr_select_emit(s, slice); }

void spr_select_run(struct spr_select *s, struct spr_workers *workers)
{
    spr_select_begin(s);
    do
        spr_workers_run(workers, s->slices, scan_part, s);
    while (!spr_select_decide(s));
    spr_workers_run(workers, s->slices, emit_part, s);
}
