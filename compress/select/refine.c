/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The exact threshold among the candidates, by radix selection over those inside the bracket.
 */
#include <string.h>

#include "base/util.h"
#include "compress/select/topk_internal.h"

#define BINS (1u << SPR_TOPK_RADIX_LOG2)

/* Bins of [lo, hi) are 1 << shift wide. */
static unsigned bin_shift(uint32_t lo, uint32_t hi)
{
    unsigned shift = 0;

    while ((hi - lo - 1) >> shift >> SPR_TOPK_RADIX_LOG2)
        shift++;
    return shift;
}

/* The bin of the *k-th largest; *k becomes its rank there, *greater grows by those above. */
static uint32_t find_bin(const uint32_t *histogram, uint32_t last, size_t *k, size_t *greater)
{
    uint32_t bin = last;

    for (; histogram[bin] < *k; bin--) {
        *k -= histogram[bin];
        *greater += histogram[bin];
    }
    return bin;
}

/* Histograms over an ever smaller range: at most three rounds. */
uint32_t spr_topk_kth(uint32_t *m, size_t n, size_t k, uint32_t lo, uint32_t hi,
                      uint32_t *histogram, size_t *greater)
{
    *greater = 0;
    while (hi - lo > 1) {
        unsigned shift = bin_shift(lo, hi);

        memset(histogram, 0, BINS * sizeof(*histogram));
        for (size_t i = 0; i < n; i++)
            histogram[(m[i] - lo) >> shift]++;
        lo += find_bin(histogram, (hi - lo - 1) >> shift, &k, greater) << shift;
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

/* The same on the blocks, which do not change. */
static uint32_t kth_of_blocks(struct spr_topk *t, size_t k, size_t *greater)
{
    size_t used = spr_min_size(atomic_load(&t->blocks_used), t->blocks), left, larger;
    uint32_t lo = t->lo, hi = t->hi;

    *greater = 0;
    while (hi - lo > 1) {
        unsigned shift = bin_shift(lo, hi);

        memset(t->radix, 0, BINS * sizeof(*t->radix));
        for (size_t b = 0; b < used; b++)
            for (size_t i = 0; i < t->block[b].count; i++) {
                uint32_t at = t->block[b].magnitude[i] - lo;
                if (at < hi - lo)
                    t->radix[at >> shift]++;
            }
        uint32_t bin = find_bin(t->radix, (hi - lo - 1) >> shift, &k, greater);
        lo += bin << shift;
        hi = lo + (1u << shift);
        if (t->radix[bin] >= t->work_room) /* mass ties: once more, closer */
            continue;
        left = 0;
        for (size_t b = 0; b < used; b++)
            for (size_t i = 0; i < t->block[b].count; i++) {
                uint32_t mag = t->block[b].magnitude[i];
                t->sample[left] = mag;
                left += mag - lo < hi - lo;
            }
        lo = spr_topk_kth(t->sample, left, k, lo, hi, t->radix, &larger);
        *greater += larger;
        break;
    }
    return lo;
}

/* How much of the result comes from each slice. Ties go to the slices in their order. */
static void deal(struct spr_topk *t, uint32_t T, size_t quota)
{
    size_t used = spr_min_size(atomic_load(&t->blocks_used), t->blocks), out = 0;

    for (unsigned i = 0; i < t->slices; i++) {
        t->slice[i].kept = t->slice[i].above;
        t->slice[i].quota = 0;
    }
    for (size_t b = 0; b < used; b++) {
        struct spr_topk_slice *s = &t->slice[t->block[b].slice];
        for (size_t i = 0; i < t->block[b].count; i++) {
            s->kept += t->block[b].magnitude[i] > T;
            s->quota += t->block[b].magnitude[i] == T;
        }
    }
    for (unsigned i = 0; i < t->slices; i++) {
        struct spr_topk_slice *s = &t->slice[i];

        s->quota = spr_min_size(s->quota, quota);
        quota -= s->quota;
        s->kept += s->quota;
        s->out = out;
        out += s->kept;
    }
}

bool spr_topk_refine(struct spr_topk *t, size_t taken, size_t above)
{
    size_t greater;

    if (taken < t->aim.k || above >= t->aim.k)
        return false;
    t->threshold = kth_of_blocks(t, t->aim.k - above, &greater);
    if (t->slices > 1) {
        deal(t, t->threshold, t->aim.k - above - greater);
    } else {
        t->slice->out = 0;
        t->slice->kept = t->aim.k;
        t->slice->quota = t->aim.k - above - greater;
    }
    t->exact = true;
    return true;
}

size_t spr_topk_put(struct spr_topk *t, const struct spr_topk_slice *s, size_t done,
                    const uint32_t *index, const float *value, size_t m, size_t *quota,
                    uint32_t threshold, float *back)
{
    uint32_t *index_out = t->index + s->out + done;
    float *value_out = t->value + s->out + done;
    size_t room = s->kept - done + (s + 1 == t->slice + t->slices ? SPR_SELECT_SLACK : 0);

    if (m + SPR_KERNEL_SLACK <= room)
        return t->kernels->filter(index, value, m, threshold, quota, index_out, value_out, back);
    /* What the kernel writes past its result would be another slice's. */
    size_t kept =
        t->kernels->filter(index, value, m, threshold, quota, s->some_index, s->some_value, back);
    memcpy(index_out, s->some_index, kept * sizeof(*index_out));
    memcpy(value_out, s->some_value, kept * sizeof(*value_out));
    return kept;
}

void spr_topk_emit_candidates(struct spr_topk *t, struct spr_topk_slice *s)
{
    float *back = t->take ? t->feedback->residual : NULL;
    size_t done = 0, quota = s->quota;

    if (s->kept == s->taken) { /* one slice has them in the result, where they belong */
        for (const struct spr_topk_run *run = s->first; run; done += run->count, run = run->next)
            if (run->index != t->index + s->out + done) {
                memcpy(t->index + s->out + done, run->index, run->count * sizeof(*t->index));
                memcpy(t->value + s->out + done, run->value, run->count * sizeof(*t->value));
            }
        return;
    }
    for (const struct spr_topk_run *run = s->first; run; run = run->next)
        for (size_t at = 0; at < run->count; at += SPR_TOPK_CHUNK) {
            size_t len = spr_min_size(SPR_TOPK_CHUNK, run->count - at);

            done += spr_topk_put(t, s, done, run->index + at, run->value + at, len, &quota,
                                 t->threshold, back);
        }
}
