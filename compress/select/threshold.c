/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selector "threshold": everything of at least a magnitude, in one pass and without refinement.
 *
 *   by=absolute  the magnitude itself (Strom 2015)
 *   by=rms       so many times the root mean square of the vector, at the price of one more pass
 *                (Dryden et al. 2016 take such a threshold from the distribution, too)
 *   by=density   the one of the call before, corrected by how many it selected: feedback control
 *                towards the target, T' = T (1 + gain (count / k - 1)). The first call, and one
 * whose count is not within [low, high] times k, select k exactly instead.
 *
 * absolute and rms select the largest `most` elements where more exceed the threshold, so that the
 * result has a bound; and nothing, where none does.
 */
#include "compress/select/threshold.h"

#include "base/util.h"
#include "compress/select/selectors.h"
#include "compress/select/topk.h"

enum by { BY_ABSOLUTE, BY_RMS, BY_DENSITY };

struct options {
    int by;
    double value;
    double most;
    double ratio;
    double gain;
    double low, high;
};

static const char *const by_names[] = {"absolute", "rms", "density", NULL};

static const struct spr_opt table[] = {
    {
        .name = "by",
        .default_value = "density",
        .doc = "what the threshold follows",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct options, by),
        .choices = by_names,
    },
    {
        .name = "value",
        .default_value = "2.5",
        .doc = "by=absolute: the threshold; by=rms: in root mean squares of the vector",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct options, value),
        .min = 1e-45,
        .max = 1e38,
    },
    {
        .name = "most",
        .default_value = "0.1",
        .doc = "by=absolute, rms: part of the elements that is selected at most",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct options, most),
        .min = 1e-9,
        .max = 1,
    },
    {
        .name = "ratio",
        .default_value = "0.01",
        .doc = "by=density: part of the elements that is to be selected",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct options, ratio),
        .min = 1e-9,
        .max = 1,
    },
    {
        .name = "gain",
        .default_value = "0.1",
        .doc = "by=density: how fast the threshold follows",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct options, gain),
        .min = 0,
        .max = 1,
    },
    {
        .name = "low",
        .default_value = "0.5",
        .doc = "by=density: least part of the target that is accepted",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct options, low),
        .min = 0,
        .max = 1,
    },
    {
        .name = "high",
        .default_value = "1.5",
        .doc = "by=density: multiple of the target that is accepted",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct options, high),
        .min = 1,
        .max = 10,
    },
};
_Static_assert(sizeof(struct options) <= SPR_SELECT_OPTION_BYTES, "options fit");

static struct spr_topk_aim aim(const void *options, size_t n)
{
    const struct options *o = options;
    struct spr_topk_aim a = {.k = spr_select_count(o->by == BY_DENSITY ? o->ratio : o->most, n)};

    a.most = a.k;
    if (o->by == BY_DENSITY) {
        a.least = (size_t)ceil(o->low * (double)a.k);
        a.most = spr_max_size(a.k, spr_min_size(n, (size_t)(o->high * (double)a.k)));
    }
    return a;
}

static size_t most(const void *options, size_t n) { return aim(options, n).most; }

static size_t workspace(const void *options, size_t n, unsigned slices)
{
    struct spr_topk_aim a = aim(options, n);

    return spr_topk_workspace(&a, n, slices);
}

static bool by_ratio(const void *options)
{
    return ((const struct options *)options)->by == BY_DENSITY;
}

static bool needs_rms(const void *options)
{
    return ((const struct options *)options)->by == BY_RMS;
}

static void begin(struct spr_select *s)
{
    const struct options *o = s->options;
    struct spr_topk_aim a = aim(s->options, s->n);

    if (o->by == BY_DENSITY) {
        a.guess = s->state->threshold_bits;
    } else {
        double value = o->by == BY_RMS ? o->value * s->rms : o->value;

        /* Zeros carry nothing; and a mean square that is not finite leaves what made it so. */
        a.floor = spr_threshold_bits(isfinite(value) ? value : INFINITY);
        a.floor = a.floor > 0 ? a.floor : 1;
        a.guess = a.floor;
    }
    spr_topk_begin(s, &a);
}

static bool decide(struct spr_select *s)
{
    const struct options *o = s->options;
    bool exact;

    if (!spr_topk_decide(s))
        return false;
    uint32_t bits = spr_topk_threshold(s, &exact);
    double value = spr_threshold_value(bits);
    s->state->threshold_bits = bits;
    if (o->by == BY_DENSITY) {
        double k = (double)aim(s->options, s->n).k;

        value *= 1 + o->gain * ((double)s->count / k - 1);
        /* Of a threshold that is not a number to multiply, nothing is left to learn. */
        s->state->threshold_bits = isfinite(value) ? spr_threshold_bits(value) : 0;
    }
    return true;
}

const struct spr_selector spr_selector_threshold = {
    .name = "threshold",
    .doc = "the elements whose magnitude is not below a threshold",
    .paper = "Strom 2015, Scalable distributed DNN training using commodity GPU cloud computing; "
             "Dryden et al. 2016, Communication quantization for data-parallel training",
    .flags = SPR_SELECT_STATEFUL,
    .options = table,
    .option_count = SPR_ARRAY_LEN(table),
    .option_bytes = sizeof(struct options),
    .most = most,
    .workspace = workspace,
    .needs_rms = needs_rms,
    .by_ratio = by_ratio,
    .begin = begin,
    .scan = spr_topk_scan,
    .decide = decide,
    .emit = spr_topk_emit,
};
