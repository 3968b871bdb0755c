/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Exact top-k by magnitude, and what is built of its parts: everything that takes the elements
 * above a threshold. Fused with error feedback. Pure: no allocation, no threads.
 *
 * Order: |x|, with NaN above infinity and all NaNs equal (spr_key()); ties by lower index. Result
 * in ascending index order. Scalar and SIMD versions give the same bits, but for the payload of a
 * NaN that is the sum of two NaNs.
 *
 * Time: one pass over memory, for nearly all data; at most fifteen, for the worst.
 */
#ifndef SPR_COMPRESS_SELECT_TOPK_H
#define SPR_COMPRESS_SELECT_TOPK_H

#include <stddef.h>
#include <stdint.h>

#include "compress/select/select.h"

/* ---- In slices, within a spr_select ---- */

/*
 * What to take. First come all elements of at least the magnitude `guess`; where these are least to
 * most, they are the result. Otherwise it is the k largest, without those below `floor`.
 * Exact top-k: k = least = most, no floor, no guess.
 */
struct spr_topk_aim {
    size_t k, least, most; /* 1 <= k <= most */
    uint32_t floor;        /* magnitude bits */
    uint32_t guess;        /* magnitude bits; 0: the sample says where to begin */
    uint32_t hint;         /* magnitude bits of a recent threshold, for speed; 0: unknown */
    size_t samples;        /* elements to sample; 0: as many as an exact selection needs */
    bool from_sample;      /* guess: the threshold of the sample itself (Lin et al. 2018) */
};

size_t spr_topk_workspace(const struct spr_topk_aim *aim, size_t n, unsigned slices);
void spr_topk_begin(struct spr_select *s, const struct spr_topk_aim *aim);
void spr_topk_scan(struct spr_select *s, unsigned slice);
bool spr_topk_decide(struct spr_select *s);
void spr_topk_emit(struct spr_select *s, unsigned slice);
/* After the last spr_topk_decide(): magnitude bits of the threshold, and whether it is that of the
 * exact selection (false: the guess was good enough). */
uint32_t spr_topk_threshold(const struct spr_select *s, bool *exact);
/* decide() of selectors whose state is the threshold, and how many steps ago that was exact. */
bool spr_topk_decide_and_learn(struct spr_select *s);
/* Their slots: `table` of options, the functions of topk.c, and of the selectors' own file `struct
 * options`, most(), workspace() and begin(). */
#define SPR_TOPK_SLOTS(table)                                                                      \
    .options = (table), .option_count = SPR_ARRAY_LEN(table),                                      \
    .option_bytes = sizeof(struct options), .most = most, .workspace = workspace, .begin = begin,  \
    .scan = spr_topk_scan, .decide = spr_topk_decide_and_learn, .emit = spr_topk_emit

/* ---- In one call ---- */

/* What one call learns for the next one; zero = nothing known. Only affects speed. */
struct spr_topk_hint {
    uint32_t threshold_bits; /* magnitude bits of the last k-th largest */
};

/* Scratch bytes for the function below. */
size_t spr_topk_scratch(size_t n, size_t k);

/* Select the k largest of x[0..n). index and value have room for k + 16. */
void spr_topk_select(const float *x, size_t n, size_t k, struct spr_topk_hint *hint,
                     uint32_t *index, float *value, void *scratch);

/* Entries of a list, in its order. */
struct spr_topk_entries {
    uint16_t *pos;
    float *value;
    size_t count;
};
/* Keep the k >= 1 largest of the n entries of a list, in their order; ties by what comes first.
 * Returns how many those are; the others go to the end of `rest`, which has room, unless it is
 * NULL. scratch: so many u32. */
size_t spr_topk_keep_scratch(size_t n);
size_t spr_topk_keep(uint16_t *pos, float *value, size_t n, size_t k, struct spr_topk_entries *rest,
                     uint32_t *scratch);

#endif
