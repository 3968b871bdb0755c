/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The threshold by counting, for data of which a sample says too little or which is full of ties:
 * magnitudes against up to seven thresholds per pass, those of the sample first, until T is certain
 * or so few elements are left that they can be collected.
 */
#include <string.h>

#include "base/util.h"
#include "compress/select/topk_internal.h"

#define PIECE 65536u /* elements per call of the counting kernel */

void spr_topk_learn(struct spr_topk *t, uint32_t threshold, unsigned which)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < t->slices; i++)
        all += t->slice[i].counts[which];
    bool under = t->aim.floor > 0 && threshold == t->aim.floor && all <= t->aim.k;
    bool low = all >= t->aim.k && threshold > t->low;
    bool high = all < t->aim.k && threshold < t->high;
    if (low || under) {
        t->low = threshold;
        t->at_least_low = all;
    }
    if (high) {
        t->high = threshold;
        t->at_least_high = all;
    }
    t->under_floor |= under;
    for (unsigned i = 0; i < t->slices; i++) {
        struct spr_topk_slice *s = &t->slice[i];

        if (low || under)
            s->at_least_low = s->counts[which];
        if (high)
            s->at_least_high = s->counts[which];
    }
}

void spr_topk_count_slice(struct spr_topk *t, struct spr_topk_slice *s)
{
    size_t piece = t->absorb ? SPR_TOPK_CHUNK : PIECE;

    memset(s->counts, 0, sizeof(s->counts));
    for (size_t at = s->begin; at < s->end; at += piece) {
        size_t len = spr_min_size(piece, s->end - at);

        if (t->absorb)
            spr_feedback_absorb(t->feedback, at, len);
        t->kernels->count(t->x + at, len, t->thresholds, t->threshold_count, s->counts);
    }
}

/* T is known: `quota` elements equal to it belong to the result, the first ones. */
static void finish(struct spr_topk *t, uint32_t T, uint64_t quota)
{
    size_t out = 0;

    for (unsigned i = 0; i < t->slices; i++) {
        struct spr_topk_slice *s = &t->slice[i];

        s->quota = (size_t)spr_min_u64(s->at_least_low - s->at_least_high, quota);
        quota -= s->quota;
        s->kept = (size_t)s->at_least_high + s->quota;
        s->out = out;
        out += s->kept;
    }
    t->threshold = T;
    t->exact = true;
    t->phase = SPR_TOPK_ALL;
}

static void choose_thresholds(struct spr_topk *t)
{
    size_t m = 0;

    if (!t->counted) {
        t->counted = true;
        if (!t->sampled)
            spr_topk_sample(t);
        spr_topk_sample_thresholds(t);
        for (size_t i = 0; i < t->threshold_count; i++)
            if (t->thresholds[i] > t->low && t->thresholds[i] < t->high)
                t->thresholds[m++] = t->thresholds[i];
    }
    if (m == 0) { /* equal parts; first a tie at low, which came from data */
        uint64_t width = t->high - t->low;

        t->thresholds[m++] = t->low + 1;
        for (; m < SPR_COUNT_THRESHOLDS; m++)
            t->thresholds[m] = t->low + (uint32_t)(width * m / SPR_COUNT_THRESHOLDS);
    }
    t->threshold_count = m;
}

bool spr_topk_locate(struct spr_topk *t)
{
    if (t->under_floor) {
        for (unsigned i = 0; i < t->slices; i++)
            t->slice[i].at_least_high = 0;
        finish(t, t->aim.floor, t->at_least_low);
        return true;
    }
    if (t->high - t->low == 1) {
        finish(t, t->low, t->aim.k - t->at_least_high);
        return true;
    }
    if (t->at_least_low <= t->room && t->at_least_low - t->at_least_high <= t->block_room) {
        t->lo = t->low > t->aim.floor ? t->low : t->aim.floor;
        t->hi = t->high > t->lo ? t->high : t->lo + 1;
        spr_topk_reset(t);
        t->phase = SPR_TOPK_COLLECT;
    } else {
        choose_thresholds(t);
        t->phase = SPR_TOPK_COUNT;
    }
    return false;
}

void spr_topk_emit_all(struct spr_topk *t, struct spr_topk_slice *s)
{
    uint32_t T = t->threshold;
    size_t done = 0, quota = s->quota;
    bool dense = t->dense;

    for (size_t at = s->begin; at < s->end && done < s->kept; at += SPR_TOPK_CHUNK) {
        size_t len = spr_min_size(SPR_TOPK_CHUNK, s->end - at), m;

        if (quota == 0 && done + len + SPR_KERNEL_SLACK <= s->kept) {
            m = t->kernels->select(t->x + at, len, T + 1, (uint32_t)at, dense,
                                   t->index + s->out + done, t->value + s->out + done);
            done += m;
        } else {
            m = t->kernels->select(t->x + at, len, quota > 0 ? T : T + 1, (uint32_t)at, dense,
                                   s->some_index, s->some_value);
            done += spr_topk_put(t, s, done, s->some_index, s->some_value, m, &quota, T, NULL);
        }
        dense = m > SPR_TOPK_CHUNK / SPR_TOPK_DENSE;
    }
}
