/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selector "random": one element, at random, out of each of k strata, which are neighbours and of
 * the same size but for one element. The positions are a function of seed, step, n and k, so that
 * all ranks have the same ones.
 *
 * Without feedback, an element multiplied by the size of its stratum is an unbiased estimate of
 * that part of the vector (scale=on); with feedback, scaling would send what is not there, and is
 * not done. Cost: k cache misses, not a pass over memory; with feedback that of r += g.
 */
#include "compress/select/random.h"

#include "base/rng.h"
#include "base/util.h"
#include "compress/select/selectors.h"

struct options {
    double ratio;
    bool scale;
};

static const struct spr_opt table[] = {
    SPR_OPT_RATIO_ROW(struct options, "0.01", "part of the elements that is selected"),
    {
        .name = "scale",
        .default_value = "off",
        .doc = "without error feedback: multiply by the inverse of the ratio, so that the mean is "
               "right",
        .type = SPR_OPT_BOOL,
        .offset = offsetof(struct options, scale),
    },
};

struct spr_strata spr_random_strata(size_t n, size_t k, uint64_t seed, uint64_t step)
{
    uint64_t key = spr_rng_u64(seed, step);

    return (struct spr_strata){
        .length = (uint32_t)(n / k),
        .longer = (uint32_t)(n % k),
        .key = {(uint32_t)key, (uint32_t)(key >> 32)},
    };
}

void spr_random_indices(const struct spr_strata *s, size_t first, size_t count, uint32_t *index)
{
    spr_select_kernels()->strata(s, (uint32_t)first, count, index);
}

size_t spr_random_find(const struct spr_strata *s, size_t k, size_t position)
{
    size_t in_longer = (size_t)s->longer * (s->length + 1);
    size_t j = position < in_longer ? position / (s->length + 1)
                                    : s->longer + (position - in_longer) / s->length;

    if (j < k && spr_strata_position(s, (uint32_t)j) < position)
        j++;
    return spr_min_size(j, k);
}

static size_t most(const void *options, size_t n)
{
    return spr_select_count(((const struct options *)options)->ratio, n);
}

static size_t workspace(const void *options, size_t n, unsigned slices)
{
    (void)options, (void)n, (void)slices;
    return sizeof(struct spr_strata);
}

static void begin(struct spr_select *s)
{
    s->count = most(s->options, s->n);
    *(struct spr_strata *)s->scratch = spr_random_strata(s->n, s->count, s->seed, s->step);
}

/* Elements [j, end) of the result, whose positions are known. */
static void gather(struct spr_select *s, size_t j, size_t end)
{
    const struct options *o = s->options;
    const struct spr_strata *strata = s->scratch;
    const float *x = spr_select_from(s);

    for (size_t i = j; i < end; i++)
        s->value[i] = x[s->index[i]];
    if (s->feedback && j < end)
        spr_feedback_take(s->feedback, s->index + j, end - j, s->velocity ? s->velocity + j : NULL);
    else if (!s->feedback && o->scale)
        for (size_t i = j; i < end; i++)
            s->value[i] *= (float)(strata->length + (i < strata->longer));
}

static void scan(struct spr_select *s, unsigned slice)
{
    const struct spr_strata *strata = s->scratch;
    size_t begin, end;

    spr_select_slice(s->n, s->slices, slice, &begin, &end);
    size_t j = spr_random_find(strata, s->count, begin);
    size_t last = spr_random_find(strata, s->count, end);
    spr_random_indices(strata, j, last - j, s->index + j);
    if (!s->feedback || !s->feedback->gradient) {
        gather(s, j, last);
        return;
    }
    for (size_t at = begin; at < end; at += SPR_SELECT_SLICE_UNIT) {
        size_t len = spr_min_size(SPR_SELECT_SLICE_UNIT, end - at), first = j;

        spr_feedback_absorb(s->feedback, at, len);
        while (j < last && s->index[j] < at + len)
            j++;
        gather(s, first, j); /* while it is in L1 */
    }
}

static bool decide(struct spr_select *s)
{
    (void)s;
    return true;
}

static void emit(struct spr_select *s, unsigned slice)
{
    (void)s;
    (void)slice;
}

const struct spr_selector spr_selector_random = {
    .name = "random",
    .doc = "one random element of each of equal parts, the same ones on all ranks: no indices",
    .paper = "Stich et al. 2018, Sparsified SGD with memory; Wangni et al. 2018, Gradient "
             "sparsification for communication-efficient distributed optimization",
    .flags = SPR_SELECT_NO_INDICES | SPR_SELECT_EXACT_COUNT | SPR_SELECT_UNBIASED | SPR_SELECT_SEED,
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
