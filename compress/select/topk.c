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
 * or shows mass ties (constant data, zeros, small integers), magnitudes are counted until T or a
 * good bracket is certain: at most twelve passes, usually one. A threshold estimated from a sample
 * is the idea of Lin et al. 2018 ("Deep Gradient Compression", section 5), where the result is
 * approximate.
 *
 *   begin    sample                          once
 *   scan     collect, or count               per slice
 *   decide   refine; scan again if need be   once
 *   emit     filter or copy the candidates   per slice
 */
#include "compress/select/topk.h"

#include <string.h>

#include "base/util.h"
#include "compress/select/topk_internal.h"

/* ---- Workspace ---- */

/* The next array, at a multiple of 64 from the start. */
static void *carve(uintptr_t *at, size_t bytes)
{
    void *p = (void *)*at;

    *at += spr_align_up(bytes, 64);
    return p;
}

/* Candidates beyond `most` that are put up with. */
static size_t spill_of(size_t n, size_t most) { return most / 8 + n / 128 + 3 * SPR_TOPK_CHUNK; }

/*
 * Stores for candidates. One slice: the result itself, then one for what does not fit there. More:
 * a pool that slices take from; each leaves one unfinished, and up to a chunk unused in others.
 */
static size_t run_room(const struct spr_topk *t, size_t spill)
{
    size_t part = (t->aim.most + spill) / (4 * t->slices);

    if (t->slices == 1)
        return spill;
    return spr_min_size(spr_max_size(part, 3 * SPR_TOPK_CHUNK), 16 * SPR_TOPK_CHUNK);
}

static size_t runs_of(const struct spr_topk *t, size_t spill)
{
    size_t useful = run_room(t, spill) - SPR_TOPK_CHUNK - SPR_KERNEL_SLACK;

    return t->slices == 1 ? 2 : spr_div_ceil(t->aim.most + spill, useful) + t->slices;
}

static void lay_out_runs(struct spr_topk *t, uintptr_t *at, size_t spill, bool only_count)
{
    size_t room = run_room(t, spill), first = t->slices == 1;

    t->runs = runs_of(t, spill);
    t->run = carve(at, t->runs * sizeof(*t->run));
    uint32_t *index = carve(at, (t->runs - first) * room * sizeof(*index));
    float *value = carve(at, (t->runs - first) * room * sizeof(*value));
    if (only_count)
        return;
    if (first)
        t->run[0] = (struct spr_topk_run){
            .index = t->index,
            .value = t->value,
            .room = t->aim.most + SPR_SELECT_SLACK,
        };
    for (size_t i = first; i < t->runs; i++)
        t->run[i] = (struct spr_topk_run){
            .index = index + (i - first) * room,
            .value = value + (i - first) * room,
            .room = room,
        };
}

static void lay_out_slices(struct spr_topk *t, uintptr_t *at, bool only_count)
{
    const size_t room = SPR_TOPK_CHUNK + SPR_KERNEL_SLACK;

    t->slice = carve(at, t->slices * sizeof(*t->slice));
    for (unsigned i = 0; i < t->slices; i++) {
        uint32_t *some_index = carve(at, room * sizeof(*some_index));
        float *some_value = carve(at, room * sizeof(*some_value));

        if (only_count)
            continue;
        struct spr_topk_slice *s = &t->slice[i];
        *s = (struct spr_topk_slice){.some_index = some_index, .some_value = some_value};
        spr_select_slice(t->n, t->slices, i, &s->begin, &s->end);
        s->at_least_low = s->end - s->begin;
    }
}

/* Lay the arrays out behind *t, which is at address `start` (0: only count). Returns the bytes. */
static size_t lay_out(struct spr_topk *t, uintptr_t start)
{
    bool small = t->n <= SPR_TOPK_SMALL, only_count = start == 0;
    size_t spill = spill_of(t->n, t->aim.most), samples = t->aim.samples;
    uintptr_t at = start;

    carve(&at, sizeof(*t));
    /* A run is full when a chunk may not fit. */
    t->room = t->aim.most + spill - 2 * (SPR_TOPK_CHUNK + SPR_KERNEL_SLACK);
    t->samples = small     ? 0
                 : samples ? samples / SPR_TOPK_LINE * SPR_TOPK_LINE
                           : spr_topk_samples(t->n);
    t->block_room = spr_max_size(2 * spill, t->samples); /* as many on both sides of T */
    if (small) {
        spill = spr_max_size(spill, t->n + SPR_TOPK_CHUNK + SPR_KERNEL_SLACK);
        t->room = t->block_room = t->n;
    }
    t->work_room = spr_max_size(t->samples, 2048);
    t->blocks = spr_div_ceil(t->block_room, SPR_TOPK_BLOCK) + t->slices;
    t->block = carve(&at, t->blocks * sizeof(*t->block));
    t->magnitudes = carve(&at, t->blocks * SPR_TOPK_BLOCK * sizeof(*t->magnitudes));
    t->histogram = carve(&at, small ? 0 : SPR_TOPK_SAMPLE_BINS * sizeof(*t->histogram));
    t->radix = carve(&at, sizeof(*t->radix) << SPR_TOPK_RADIX_LOG2);
    t->sample = carve(&at, t->work_room * sizeof(*t->sample));
    lay_out_slices(t, &at, only_count);
    lay_out_runs(t, &at, spill, only_count);
    for (size_t i = 0; i < t->blocks && !only_count; i++)
        t->block[i].magnitude = t->magnitudes + i * SPR_TOPK_BLOCK;
    return (size_t)(at - start);
}

size_t spr_topk_workspace(const struct spr_topk_aim *aim, size_t n, unsigned slices)
{
    struct spr_topk t = {.aim = *aim, .n = n, .slices = slices};

    return lay_out(&t, 0) + 63; /* aligned by the user */
}

static struct spr_topk *in_workspace(const struct spr_select *s)
{
    return (struct spr_topk *)spr_align_up((uintptr_t)s->scratch, 64);
}

/* ---- Phases ---- */

/* Where to collect. False: count first. */
static bool choose_bracket(struct spr_topk *t)
{
    uint32_t guess = (uint32_t)spr_min_u64(t->aim.guess, SPR_NAN_KEY);

    t->hi = SPR_TOPK_NO_LIMIT;
    if (t->aim.from_sample && t->samples > 0) {
        spr_topk_sample(t);
        guess = spr_topk_sample_threshold(t);
    }
    t->guessing = guess > 0;
    if (t->guessing) {
        t->lo = guess;
        return true;
    }
    t->lo = t->aim.floor;
    if (t->n <= SPR_TOPK_SMALL)
        return true;
    spr_topk_sample(t);
    return spr_topk_bracket(t);
}

void spr_topk_begin(struct spr_select *s, const struct spr_topk_aim *aim)
{
    struct spr_topk *t = in_workspace(s);
    const struct spr_feedback *f = s->feedback;

    *t = (struct spr_topk){
        .kernels = spr_kernels(),
        .aim = *aim,
        .x = spr_select_from(s),
        .feedback = f,
        .leave = s->leave,
        .n = s->n,
        .slices = s->slices,
        .index = s->index,
        .value = s->value,
        .velocity = s->velocity,
        .absorb = f && f->gradient && !s->absorbed,
        .dense = aim->k > s->n / SPR_TOPK_DENSE,
        .high = SPR_TOPK_NO_LIMIT,
        .at_least_low = s->n,
    };
    lay_out(t, (uintptr_t)t);
    if (choose_bracket(t)) {
        t->phase = SPR_TOPK_COLLECT;
        t->take = f && t->absorb && spr_feedback_is_sum(f) && t->n > SPR_TOPK_SMALL;
    } else {
        spr_topk_locate(t);
    }
}

void spr_topk_scan(struct spr_select *s, unsigned slice)
{
    struct spr_topk *t = in_workspace(s);

    if (t->phase == SPR_TOPK_COLLECT)
        spr_topk_collect(t, &t->slice[slice]);
    else if (t->phase == SPR_TOPK_UNDO)
        spr_topk_undo(t, &t->slice[slice]);
    else
        spr_topk_count_slice(t, &t->slice[slice]);
}

/* All candidates belong to the result. */
static void accept(struct spr_topk *t)
{
    size_t out = 0;

    for (unsigned i = 0; i < t->slices; i++) {
        struct spr_topk_slice *s = &t->slice[i];

        s->out = out;
        s->kept = s->quota = s->taken;
        out += s->kept;
    }
    t->threshold = t->lo;
    t->exact = !t->guessing;
}

static bool after_collect(struct spr_topk *t)
{
    bool complete = !atomic_load(&t->no_room), done = false;
    size_t taken = 0, above = 0;

    for (unsigned i = 0; i < t->slices; i++) {
        taken += t->slice[i].taken;
        above += t->slice[i].above;
    }
    bool good_guess = t->guessing && taken >= t->aim.least && taken <= t->aim.most;
    bool all_above_floor = t->aim.floor > 0 && t->lo <= t->aim.floor && taken <= t->aim.k;
    if (complete && (good_guess || all_above_floor)) {
        accept(t);
        done = true;
    } else if (complete && !t->guessing) {
        done = spr_topk_refine(t, taken, above);
    }
    if (!done && complete) {
        for (unsigned i = 0; i < t->slices; i++) {
            t->slice[i].counts[0] = t->slice[i].taken;
            t->slice[i].counts[1] = t->slice[i].above;
        }
        spr_topk_learn(t, t->lo, 0);
        spr_topk_learn(t, t->hi, 1);
    }
    return done;
}

bool spr_topk_decide(struct spr_select *s)
{
    struct spr_topk *t = in_workspace(s);

    t->absorb = false;
    if (t->phase == SPR_TOPK_COLLECT && after_collect(t)) {
        t->phase = SPR_TOPK_CANDIDATES;
    } else if (t->phase == SPR_TOPK_COLLECT && t->take) {
        t->phase = SPR_TOPK_UNDO;
        return false;
    } else {
        if (t->phase == SPR_TOPK_COUNT)
            for (unsigned j = 0; j < t->threshold_count; j++)
                spr_topk_learn(t, t->thresholds[j], j);
        t->take = t->guessing = false;
        if (!spr_topk_locate(t))
            return false;
    }
    s->left = t->take && t->leave;
    s->count = 0;
    for (unsigned i = 0; i < t->slices; i++)
        s->count += t->slice[i].kept;
    return true;
}

void spr_topk_emit(struct spr_select *s, unsigned slice)
{
    struct spr_topk *t = in_workspace(s);
    struct spr_topk_slice *own = &t->slice[slice];

    if (t->phase == SPR_TOPK_CANDIDATES)
        spr_topk_emit_candidates(t, own);
    else
        spr_topk_emit_all(t, own);
    if (t->feedback && !t->take)
        spr_feedback_take(t->feedback, t->index + own->out, own->kept,
                          t->velocity ? t->velocity + own->out : NULL);
}

uint32_t spr_topk_threshold(const struct spr_select *s, bool *exact)
{
    const struct spr_topk *t = in_workspace(s);

    *exact = t->exact;
    return t->threshold;
}

bool spr_topk_decide_and_learn(struct spr_select *s)
{
    bool exact;

    if (!spr_topk_decide(s))
        return false;
    s->state->threshold_bits = spr_topk_threshold(s, &exact);
    s->state->age = exact ? 0 : s->state->age + 1;
    return true;
}

/* ---- In one call ---- */

static struct spr_topk_aim exactly(size_t k)
{
    return (struct spr_topk_aim){.k = k, .least = k, .most = k};
}

size_t spr_topk_scratch(size_t n, size_t k)
{
    struct spr_topk_aim aim = exactly(k);

    return spr_topk_workspace(&aim, n, 1);
}

void spr_topk_select(const float *x, size_t n, size_t k, struct spr_topk_hint *hint,
                     uint32_t *index, float *value, void *scratch)
{
    struct spr_select s = {
        .x = x, .n = n, .slices = 1, .index = index, .value = value, .scratch = scratch};
    struct spr_topk_aim aim = exactly(k);
    bool exact;

    if (k == 0)
        return;
    aim.hint = hint->threshold_bits;
    spr_topk_begin(&s, &aim);
    do
        spr_topk_scan(&s, 0);
    while (!spr_topk_decide(&s));
    spr_topk_emit(&s, 0);
    hint->threshold_bits = spr_topk_threshold(&s, &exact);
}
