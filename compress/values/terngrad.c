/* SPDX-License-Identifier: BSD-2-Clause
 *
 * TernGrad (Wen et al. 2017, "TernGrad: ternary gradients to reduce communication in distributed
 * deep learning"): every element becomes s * sign(x) with the probability |x| / s, else 0, where s
 * is the largest magnitude of the group. Before that, elements beyond `clip` standard deviations
 * sigma of the group are clipped to there (section 3.3 there, with 2.5), so that one large element
 * does not silence the others; that makes it biased. The paper has a scale and a sigma per layer,
 * this one per group. sigma is of the sums in single precision; a group without spread is not
 * clipped.
 *
 * Image: levels.h with one level, 2 bits per element and 4 bytes per group.
 */
#include "compress/values/group.h"
#include "compress/values/levels.h"

struct terngrad_options {
    size_t group;
    double clip;
};

static const struct spr_opt terngrad_table[] = {
    SPR_VALUES_GROUP_OPTION(struct terngrad_options, "group", "1024"),
    {
        .name = "clip",
        .default_value = "2.5",
        .doc = "clip the group to so many standard deviations first, 0 for none",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct terngrad_options, clip),
        .min = 0,
        .max = 1e6,
    },
};

static struct spr_levels levels_of(const void *options)
{
    const struct terngrad_options *o = options;

    return (struct spr_levels){.group = o->group, .levels = 1, .random = true, .clip = o->clip};
}

static unsigned terngrad_traits(const void *options)
{
    const struct terngrad_options *o = options;

    return SPR_VALUES_FIXED | SPR_VALUES_RANDOM | (o->clip > 0 ? 0u : SPR_VALUES_UNBIASED);
}

static size_t terngrad_group(const void *options)
{
    return ((const struct terngrad_options *)options)->group;
}

static size_t terngrad_bound(const void *options, size_t n)
{
    struct spr_levels l = levels_of(options);
    return spr_levels_bound(&l, n);
}

static size_t terngrad_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                              void *out)
{
    struct spr_levels l = levels_of(options);
    return spr_levels_encode(&l, draw, in, n, out);
}

static spr_status terngrad_check(const void *options, const void *bytes, size_t size, size_t n,
                                 const char **why)
{
    struct spr_levels l = levels_of(options);
    return spr_levels_check(&l, bytes, size, n, why);
}

static size_t terngrad_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                              float *out)
{
    struct spr_levels l = levels_of(options);
    return spr_levels_decode(&l, bytes, n, how, out);
}

const struct spr_value_coder spr_value_terngrad = {
    .name = "terngrad",
    .doc = "2 bits: -s, 0 or s at random, s the largest magnitude of the group after clipping",
    .paper = "Wen et al. 2017, TernGrad: ternary gradients to reduce communication",
    .options = terngrad_table,
    .option_count = SPR_ARRAY_LEN(terngrad_table),
    .traits = terngrad_traits,
    .group = terngrad_group,
    .bound = terngrad_bound,
    .encode = terngrad_encode,
    .check = terngrad_check,
    .decode = terngrad_decode,
    .feed = spr_value_feed,
};
