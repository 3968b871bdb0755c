/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Approximate top-k: all elements above a threshold that is nearly right, in one pass without
 * refinement. The count is between low and high times k = ceil(ratio * n); where it would not be,
 * the k largest are selected exactly instead.
 *
 *   sampled  the threshold of a random sample (Lin et al. 2018, "Deep Gradient Compression",
 *            section 5, which samples 0.1 to 1 %, and adapts up to ten times)
 *   reuse    the one of an earlier call; found exactly in every `period`-th (Li and Hoefler 2022,
 *            "Near-optimal sparse allreduce for distributed deep learning", Ok-Topk)
 */
#include <math.h>

#include "base/util.h"
#include "compress/select/selectors.h"
#include "compress/select/topk.h"

struct options {
    double ratio;
    double low, high;
    double sample;
    int period;
};

#define RATIO_AND_BAND                                                                             \
    SPR_OPT_RATIO_ROW(struct options, "0.01", "part of the elements that is to be selected"),      \
        {                                                                                          \
            .name = "low",                                                                         \
            .default_value = "0.8",                                                                \
            .doc = "least part of the target that is accepted",                                    \
            .type = SPR_OPT_RATIO,                                                                 \
            .offset = offsetof(struct options, low),                                               \
            .min = 0,                                                                              \
            .max = 1,                                                                              \
        },                                                                                         \
    {                                                                                              \
        .name = "high", .default_value = "1.3", .doc = "multiple of the target that is accepted",  \
        .type = SPR_OPT_DOUBLE, .offset = offsetof(struct options, high), .min = 1, .max = 10,     \
    }

static const struct spr_opt sampled_table[] = {
    RATIO_AND_BAND,
    {
        .name = "sample",
        .default_value = "0.005",
        .doc = "part of the elements that is looked at for a threshold",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct options, sample),
        .min = 0.0001,
        .max = 0.1,
    },
};

static const struct spr_opt reuse_table[] = {
    RATIO_AND_BAND,
    {
        .name = "period",
        .default_value = "32",
        .doc = "steps after which the threshold is found exactly again",
        .type = SPR_OPT_INT,
        .offset = offsetof(struct options, period),
        .min = 1,
        .max = 1e9,
    },
};
_Static_assert(sizeof(struct options) <= SPR_SELECT_OPTION_BYTES, "options fit");

static struct spr_topk_aim aim(const void *options, size_t n)
{
    const struct options *o = options;
    size_t k = spr_select_count(o->ratio, n);

    return (struct spr_topk_aim){
        .k = k,
        .least = (size_t)ceil(o->low * (double)k),
        .most = spr_max_size(k, spr_min_size(n, (size_t)(o->high * (double)k))),
        .samples = o->sample > 0
                       ? spr_max_size((size_t)(o->sample * (double)n), SPR_SELECT_SLICE_UNIT)
                       : 0,
        .from_sample = o->sample > 0,
    };
}

static size_t most(const void *options, size_t n) { return aim(options, n).most; }

static size_t workspace(const void *options, size_t n, unsigned slices)
{
    struct spr_topk_aim a = aim(options, n);

    return spr_topk_workspace(&a, n, slices);
}

static void begin(struct spr_select *s)
{
    const struct options *o = s->options;
    struct spr_topk_aim a = aim(s->options, s->n);

    if (!a.from_sample) {
        bool recent = s->state->age + 1 < (uint32_t)o->period;

        if (recent)
            a.guess = s->state->threshold_bits;
        else
            a.hint = s->state->threshold_bits;
    }
    spr_topk_begin(s, &a);
}

const struct spr_selector spr_selector_sampled = {
    .name = "sampled",
    .doc = "about the elements of largest magnitude, by the threshold of a sample",
    .paper = "Lin et al. 2018, Deep Gradient Compression",
    SPR_TOPK_SLOTS(sampled_table),
};

const struct spr_selector spr_selector_reuse = {
    .name = "reuse",
    .doc = "about the elements of largest magnitude, by the threshold of an earlier step",
    .paper = "Li and Hoefler 2022, Near-optimal sparse allreduce for distributed deep learning",
    .flags = SPR_SELECT_STATEFUL,
    SPR_TOPK_SLOTS(reuse_table),
};
