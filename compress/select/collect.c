/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one pass: everything of at least the magnitude lo becomes a candidate, a few per cent more
 * than k. With plain feedback the kernel also adds the gradient and clears what it takes, and what
 * rounding leaves of that is put there; with other rules the gradient enters a chunk first, which
 * is in L1 then.
 */
#include <string.h>

#include "base/util.h"
#include "compress/select/topk_internal.h"

#define LEAVE 128u /* candidates at a time */

static void absorb(const struct spr_topk *t, size_t at, size_t n)
{
    if (t->absorb)
        spr_feedback_absorb(t->feedback, at, n);
}

/* The next store for candidates, or NULL. */
static struct spr_topk_run *next_run(struct spr_topk *t, struct spr_topk_slice *s)
{
    size_t which = atomic_fetch_add_explicit(&t->runs_used, 1, memory_order_relaxed);

    if (which >= t->runs)
        return NULL;
    struct spr_topk_run *run = &t->run[which];
    run->count = 0;
    run->next = NULL;
    *(s->last ? &s->last->next : &s->first) = run;
    s->last = run;
    return run;
}

static bool full(const struct spr_topk_run *run)
{
    return run->count + SPR_TOPK_CHUNK + SPR_KERNEL_SLACK > run->room;
}

static size_t look_at_chunk(struct spr_topk *t, size_t at, size_t n, bool dense, uint32_t *index,
                            float *value)
{
    if (t->take)
        return t->kernels->feedback(t->feedback->residual + at, t->feedback->gradient + at, n,
                                    t->lo, (uint32_t)at, dense, index, value);
    absorb(t, at, n);
    return t->kernels->select(t->x + at, n, t->lo, (uint32_t)at, dense, index, value);
}

/* What stays of the candidates since *done goes to where they were cleared, while that is in a
 * cache: later each would be a miss. Those that turn out to be none are put back as they were. */
static void leave_rest(const struct spr_topk *t, const struct spr_topk_slice *s,
                       const struct spr_topk_run *run, size_t *done)
{
    for (size_t n; run && t->take && t->leave && *done < run->count; *done += n) {
        n = spr_min_size(SPR_TOPK_CHUNK, run->count - *done);
        t->leave(run->value + *done, n, s->some_value);
        for (size_t i = 0; i < n; i++)
            t->feedback->residual[run->index[*done + i]] = s->some_value[i];
    }
}

/* Magnitudes of this slice inside the bracket. False: no room. */
static bool keep(struct spr_topk *t, struct spr_topk_slice *s, const uint32_t *magnitude, size_t n)
{
    while (n > 0) {
        if (!s->block || s->block->count == SPR_TOPK_BLOCK) {
            size_t which = atomic_fetch_add_explicit(&t->blocks_used, 1, memory_order_relaxed);
            if (which >= t->blocks)
                return false;
            s->block = &t->block[which];
            s->block->count = 0;
            s->block->slice = (uint32_t)(s - t->slice);
        }
        size_t m = spr_min_size(n, SPR_TOPK_BLOCK - s->block->count);
        memcpy(s->block->magnitude + s->block->count, magnitude, m * sizeof(*magnitude));
        s->block->count += (uint32_t)m;
        magnitude += m;
        n -= m;
    }
    return true;
}

/* Which of the candidates since *done are surely among the k largest, and which are inside the
 * bracket? A guess is right or wrong, but not refined. */
static void split(struct spr_topk *t, struct spr_topk_slice *s, const struct spr_topk_run *run,
                  size_t *done)
{
    for (size_t n; run && !t->guessing && *done < run->count; *done += n) {
        n = spr_min_size(SPR_TOPK_CHUNK, run->count - *done);
        size_t below = t->kernels->split(run->value + *done, n, t->hi, s->some_index);

        s->above += n - below;
        if (!keep(t, s, s->some_index, below))
            atomic_store(&t->no_room, true);
    }
}

void spr_topk_reset(struct spr_topk *t)
{
    atomic_store(&t->runs_used, 0);
    atomic_store(&t->blocks_used, 0);
    atomic_store(&t->no_room, false);
    for (unsigned i = 0; i < t->slices; i++) {
        struct spr_topk_slice *s = &t->slice[i];

        s->first = s->last = NULL;
        s->block = NULL;
        s->taken = s->above = 0;
    }
}

void spr_topk_collect(struct spr_topk *t, struct spr_topk_slice *s)
{
    struct spr_topk_run *run = NULL;
    size_t at = s->begin;
    size_t done = 0, left = 0; /* candidates of the run that are split, that have a rest */
    bool dense = t->dense;

    while (at < s->end && !atomic_load_explicit(&t->no_room, memory_order_relaxed)) {
        size_t len = spr_min_size(SPR_TOPK_CHUNK, s->end - at);

        if (!run || full(run)) {
            split(t, s, run, &done);
            leave_rest(t, s, run, &left);
            do {
                run = next_run(t, s);
            } while (run && full(run)); /* the result itself may be too short to be of use */
            done = left = 0;
        }
        if (!run) {
            atomic_store(&t->no_room, true);
            break;
        }
        size_t m =
            look_at_chunk(t, at, len, dense, run->index + run->count, run->value + run->count);
        run->count += m;
        s->taken += m;
        dense = m > SPR_TOPK_CHUNK / SPR_TOPK_DENSE; /* neighbours are alike */
        at += len;
        if (run->count - done > SPR_TOPK_CHUNK / 2) /* not too few, and still in L1 */
            split(t, s, run, &done);
        if (run->count - left >= LEAVE)
            leave_rest(t, s, run, &left);
    }
    split(t, s, run, &done);
    leave_rest(t, s, run, &left);
    absorb(t, at, s->end - at);
}

void spr_topk_undo(struct spr_topk *t, struct spr_topk_slice *s)
{
    for (const struct spr_topk_run *run = s->first; run; run = run->next)
        for (size_t i = 0; i < run->count; i++)
            t->feedback->residual[run->index[i]] = run->value[i];
}
