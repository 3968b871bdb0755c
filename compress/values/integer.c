/* SPDX-License-Identifier: BSD-2-Clause
 *
 * int8 and int4: 127 and 7 levels each way, the largest magnitude of the group on the outermost
 * (8-bit: Dettmers 2016, "8-bit approximations for parallelism in deep learning", and the ByteGrad
 * algorithm of Bagua, Gan et al. 2021, with one scale per group). Image: levels.h; 1 and 1/2 byte
 * per element, and 4 per group.
 *
 * Error: at most half a step, largest / (2 * levels), to the nearest; less than a step and unbiased
 * with rounding=stochastic.
 */
#include "compress/values/group.h"
#include "compress/values/levels.h"

enum rounding { NEAREST, STOCHASTIC };

struct integer_options {
    size_t group;
    int rounding;
};

static const char *const roundings[] = {"nearest", "stochastic", NULL};

static const struct spr_opt integer_table[] = {
    SPR_VALUES_GROUP_OPTION(struct integer_options, "group", "1024"),
    {
        .name = "rounding",
        .default_value = "nearest",
        .doc = "nearest, or up or down at random so that the mean is right",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct integer_options, rounding),
        .choices = roundings,
    },
};

static struct spr_levels levels_of(const void *options, int levels)
{
    const struct integer_options *o = options;

    return (struct spr_levels){
        .group = o->group, .levels = levels, .random = o->rounding == STOCHASTIC};
}

static unsigned integer_traits(const void *options)
{
    const struct integer_options *o = options;

    return SPR_VALUES_FIXED |
           (o->rounding == STOCHASTIC ? SPR_VALUES_RANDOM | SPR_VALUES_UNBIASED : 0u);
}

static size_t integer_group(const void *options)
{
    return ((const struct integer_options *)options)->group;
}

/* The slots of one of them. */
#define INTEGER(name, levels)                                                                      \
    static size_t name##_bound(const void *options, size_t n)                                      \
    {                                                                                              \
        struct spr_levels l = levels_of(options, levels);                                          \
        return spr_levels_bound(&l, n);                                                            \
    }                                                                                              \
    static size_t name##_encode(const void *options, struct spr_draw draw, const float *in,        \
                                size_t n, void *out)                                               \
    {                                                                                              \
        struct spr_levels l = levels_of(options, levels);                                          \
        return spr_levels_encode(&l, draw, in, n, out);                                            \
    }                                                                                              \
    static size_t name##_feed(const struct spr_value_coder *coder, const void *options,            \
                              struct spr_draw draw, float *residual, const float *gradient,        \
                              size_t n, void *out)                                                 \
    {                                                                                              \
        struct spr_levels l = levels_of(options, levels);                                          \
        (void)coder;                                                                               \
        return spr_levels_feed(&l, draw, residual, gradient, n, out);                              \
    }                                                                                              \
    static spr_status name##_check(const void *options, const void *bytes, size_t size, size_t n,  \
                                   const char **why)                                               \
    {                                                                                              \
        struct spr_levels l = levels_of(options, levels);                                          \
        return spr_levels_check(&l, bytes, size, n, why);                                          \
    }                                                                                              \
    static size_t name##_decode(const void *options, const void *bytes, size_t n,                  \
                                enum spr_decode how, float *out)                                   \
    {                                                                                              \
        struct spr_levels l = levels_of(options, levels);                                          \
        return spr_levels_decode(&l, bytes, n, how, out);                                          \
    }

INTEGER(int8, 127)
INTEGER(int4, 7)

const struct spr_value_coder spr_value_int8 = {
    .name = "int8",
    .doc = "8 bits, -127..127 times a scale per group",
    .paper = "Dettmers 2016, 8-bit approximations for parallelism in deep learning",
    .options = integer_table,
    .option_count = SPR_ARRAY_LEN(integer_table),
    .traits = integer_traits,
    .group = integer_group,
    .bound = int8_bound,
    .encode = int8_encode,
    .check = int8_check,
    .decode = int8_decode,
    .feed = int8_feed,
};

const struct spr_value_coder spr_value_int4 = {
    .name = "int4",
    .doc = "4 bits, -7..7 times a scale per group",
    .paper = "as int8, with 7 levels",
    .options = integer_table,
    .option_count = SPR_ARRAY_LEN(integer_table),
    .traits = integer_traits,
    .group = integer_group,
    .bound = int4_bound,
    .encode = int4_encode,
    .check = int4_check,
    .decode = int4_decode,
    .feed = int4_feed,
};
