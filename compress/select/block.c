/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selector "block": whole blocks of 256 neighbours, those of largest norm; of equal ones those with
 * the lower index. One pass over memory for the norms, and the selected blocks once more. Positions
 * cost 1/256 of those of single elements (Fei et al. 2021, OmniReduce, "Block top-k").
 */
#include <string.h>

#include "base/util.h"
#include "compress/kernels/select.h"
#include "compress/select/selectors.h"
#include "compress/select/topk_internal.h"

struct options {
    double ratio;
    int norm; /* enum spr_norm */
};

static const char *const norm_names[] = {"l1", "l2", "max", NULL};

static const struct spr_opt table[] = {
    SPR_OPT_RATIO_ROW(struct options, "0.01", "part of the blocks that is selected"),
    {
        .name = "norm",
        .default_value = "l2",
        .doc = "what blocks are compared by",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct options, norm),
        .choices = norm_names,
    },
};

/* Scratch memory. */
struct block {
    size_t blocks, k;
    uint32_t *norm; /* of every block */
    uint32_t *work; /* a copy, for radix selection */
    uint32_t *radix;
    uint32_t *chosen; /* ascending */
};

static size_t blocks_of(size_t n) { return spr_div_ceil(n, SPR_NORM_BLOCK); }

static size_t most(const void *options, size_t n)
{
    const struct options *o = options;

    return spr_min_size(n, spr_select_count(o->ratio, blocks_of(n)) * SPR_NORM_BLOCK);
}

static size_t workspace(const void *options, size_t n, unsigned slices)
{
    const struct options *o = options;
    size_t blocks = blocks_of(n);

    (void)slices;
    return sizeof(struct block) +
           (2 * blocks + spr_select_count(o->ratio, blocks)) * sizeof(uint32_t) +
           (sizeof(uint32_t) << SPR_TOPK_RADIX_LOG2);
}

static void begin(struct spr_select *s)
{
    const struct options *o = s->options;
    struct block *b = s->scratch;

    b->blocks = blocks_of(s->n);
    b->k = spr_select_count(o->ratio, b->blocks);
    b->norm = (uint32_t *)(b + 1);
    b->work = b->norm + b->blocks;
    b->chosen = b->work + b->blocks;
    b->radix = b->chosen + b->k;
}

static void scan(struct spr_select *s, unsigned slice)
{
    const struct options *o = s->options;
    const struct block *b = s->scratch;
    const float *x = spr_select_from(s);
    size_t begin, end;

    spr_select_slice(s->n, s->slices, slice, &begin, &end);
    for (size_t at = begin; at < end; at += SPR_SELECT_SLICE_UNIT) {
        size_t len = spr_min_size(SPR_SELECT_SLICE_UNIT, end - at);

        if (s->feedback && s->feedback->gradient)
            spr_feedback_absorb(s->feedback, at, len);
        spr_select_kernels()->norms(x + at, len, (enum spr_norm)o->norm,
                                    b->norm + at / SPR_NORM_BLOCK);
    }
}

static bool decide(struct spr_select *s)
{
    struct block *b = s->scratch;
    size_t greater, m = 0;

    memcpy(b->work, b->norm, b->blocks * sizeof(*b->work));
    uint32_t T = spr_topk_kth(b->work, b->blocks, b->k, 0, SPR_TOPK_NO_LIMIT, b->radix, &greater);
    size_t quota = b->k - greater;
    for (size_t i = 0; i < b->blocks && m < b->k; i++)
        if (b->norm[i] > T || (b->norm[i] == T && quota > 0)) {
            quota -= b->norm[i] == T;
            b->chosen[m++] = (uint32_t)i;
        }
    s->count = (b->k - 1) * SPR_NORM_BLOCK +
               spr_min_size(s->n - (size_t)b->chosen[b->k - 1] * SPR_NORM_BLOCK, SPR_NORM_BLOCK);
    return true;
}

static void emit(struct spr_select *s, unsigned slice)
{
    const struct block *b = s->scratch;
    const float *x = spr_select_from(s);
    size_t begin, end;

    spr_select_slice(s->n, s->slices, slice, &begin, &end);
    for (size_t j = 0; j < b->k; j++) {
        size_t at = (size_t)b->chosen[j] * SPR_NORM_BLOCK, out = j * SPR_NORM_BLOCK;
        size_t len = spr_min_size(SPR_NORM_BLOCK, s->n - at);

        if (at < begin || at >= end)
            continue;
        for (size_t i = 0; i < len; i++)
            s->index[out + i] = (uint32_t)(at + i);
        memcpy(s->value + out, x + at, len * sizeof(*x));
        if (s->feedback)
            spr_feedback_take(s->feedback, s->index + out, len,
                              s->velocity ? s->velocity + out : NULL);
    }
}

const struct spr_selector spr_selector_block = {
    .name = "block",
    .doc = "the blocks of 256 neighbours with the largest norm",
    .paper = "Fei et al. 2021, Efficient sparse collective communication and its application to "
             "accelerate distributed deep learning",
    .flags = SPR_SELECT_BLOCKS,
    .options = table,
    .option_count = SPR_ARRAY_LEN(table),
    .option_bytes = sizeof(struct options),
    .most = most,
    .workspace = workspace,
    .begin = begin,
    .scan = scan,
    .decide = decide,
    .emit = emit,
};
