/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selectors "topk" and "accumulate": exact top-k, and the same without what is still small.
 */
#include "base/util.h"
#include "compress/select/selectors.h"
#include "compress/select/topk.h"
#include "compress/select/threshold.h"

struct options {
    double ratio;
    size_t count;
    double floor;
};

static const struct spr_opt topk_table[] = {
    SPR_OPT_RATIO_ROW(struct options, "0.01", "part of the elements that is selected"),
    {
        .name = "count",
        .default_value = "0",
        .doc = "how many elements are selected; 0 = by the ratio",
        .type = SPR_OPT_SIZE,
        .offset = offsetof(struct options, count),
    },
};

static const struct spr_opt accumulate_table[] = {
    SPR_OPT_RATIO_ROW(struct options, "0.001", "part of the elements that is selected at most"),
    {
        .name = "threshold",
        .default_value = "0.0001",
        .doc = "elements of a smaller magnitude stay until they have grown",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct options, floor),
        .min = 1e-45,
        .max = 1e38,
    },
};
_Static_assert(sizeof(struct options) <= SPR_SELECT_OPTION_BYTES, "options fit");

static size_t most(const void *options, size_t n)
{
    const struct options *o = options;

    return o->count > 0 ? spr_min_size(o->count, n) : spr_select_count(o->ratio, n);
}

static bool by_ratio(const void *options) { return ((const struct options *)options)->count == 0; }

static struct spr_topk_aim aim(const void *options, size_t n)
{
    const struct options *o = options;
    size_t k = most(options, n);

    return (struct spr_topk_aim){
        .k = k, .least = k, .most = k, .floor = spr_threshold_bits(o->floor)};
}

static size_t workspace(const void *options, size_t n, unsigned slices)
{
    struct spr_topk_aim a = aim(options, n);

    return spr_topk_workspace(&a, n, slices);
}

static void begin(struct spr_select *s)
{
    struct spr_topk_aim a = aim(s->options, s->n);

    a.hint = s->state->threshold_bits;
    spr_topk_begin(s, &a);
}

const struct spr_selector spr_selector_topk = {
    .name = "topk",
    .doc = "the elements of largest magnitude, exactly; of equal ones those with the lower index",
    .paper = "Aji and Heafield 2017, Sparse communication for distributed gradient descent",
    .flags = SPR_SELECT_EXACT_COUNT,
    .by_ratio = by_ratio,
    SPR_TOPK_SLOTS(topk_table),
};

const struct spr_selector spr_selector_accumulate = {
    .name = "accumulate",
    .doc = "local gradient accumulation: the elements of largest magnitude, once they have grown",
    .paper = "Strom 2015, Scalable distributed DNN training using commodity GPU cloud computing",
    SPR_TOPK_SLOTS(accumulate_table),
};
