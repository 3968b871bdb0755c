/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Error-bounded quantisation: no element is off by more than the error that was asked for, and
 * every group takes the bits that this needs (the absolute and the range-relative bound of SZ, Di
 * and Cappello 2016, "Fast error-bounded lossy HPC data compression with SZ", without its
 * prediction, for which gradients are too rough). mode=relative: error * largest magnitude of the
 * group.
 *
 * A group of m elements, w = 1 + bits of `top`:
 *
 *    0        4        8
 *   +--------+--------+-----------------------------+---------+
 *   | step   | top    | m codes of w bits, two's    | zeros   |   top: largest code, at most 32767;
 *   | fp32   | u32    | complement, from bit 0 on   | up to 4 |   0: nothing follows, all are zero
 *   +--------+--------+-----------------------------+---------+
 *   | 0      | 2^32-1 | m values, fp32              |             where 16 bits do not do, or
 *   +--------+--------+-----------------------------+             something is not finite
 *
 * bits: what the groups of a window may take, bits per value, heads included. Where the errors that
 * were asked for take more, each is raised to one level, the least that fits: with mode=relative,
 * too, since one error for all, and nothing for groups whose values are smaller, has about the
 * least sum of squares for its bits (reverse water-filling: Cover and Thomas, "Elements of
 * Information Theory", theorem 10.3.3). The width that the level needs is then used to the full.
 * The level has 8 significant bits and is below the largest magnitude, so that something is sent in
 * every step. Beyond the budget are only heads, groups next to the largest magnitude, and what is
 * not finite.
 *
 * step is 2 * error less 1/64 of it, since the scaled value, the code times the step and the step
 * itself are rounded: codes are below 2^15, so this is off by at most 2^15 * 3 * 2^-24 of a step,
 * 0.006 of one, and (0.5 + 0.006) * 63/64 < 0.5.
 */
#include "compress/values/group.h"

#define TOP_MAX 32767
#define RAW UINT32_MAX
#define HEAD_BYTES 8
#define SPAN 65536u /* values that share a budget: a window (compress/blocks.h) */
#define SPAN_GROUPS (SPAN / SPR_VALUES_GROUP_MIN) /* at most */

enum mode { RELATIVE, ABSOLUTE };

struct bounded_options {
    size_t group;
    double error;
    int mode;
    double bits;
};

static const char *const modes[] = {"relative", "absolute", NULL};

static const struct spr_opt bounded_table[] = {
    {
        .name = "error",
        .default_value = "0.01",
        .doc = "the most by which a value may be off, as far as bits allow",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct bounded_options, error),
        .min = 0,
        .max = 1e30,
    },
    {
        .name = "mode",
        .default_value = "relative",
        .doc = "what the error is relative to: the group's largest magnitude, or nothing",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct bounded_options, mode),
        .choices = modes,
    },
    SPR_VALUES_GROUP_OPTION(struct bounded_options, "group", "1024"),
    {
        .name = "bits",
        .default_value = "0",
        .doc = "the most bits per value, 64 / group of them for heads; 0: what the error takes",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct bounded_options, bits),
        .min = 0,
        .max = 64,
    },
};

static const struct bounded_options *options_of(const void *options) { return options; }

static unsigned bounded_traits(const void *options)
{
    return options_of(options)->bits > 0 ? SPR_VALUES_TOGETHER : 0;
}

static const char *bounded_refuse(const void *options)
{
    const struct bounded_options *o = options;

    return o->bits > 0 && o->bits * (double)o->group <= 8 * HEAD_BYTES
               ? "bits must be 0 or above 64 / group, which heads take"
               : NULL;
}

static size_t bounded_group(const void *options) { return options_of(options)->group; }

static size_t bounded_bound(const void *options, size_t n)
{
    return spr_div_ceil(n, options_of(options)->group) * HEAD_BYTES + n * sizeof(float);
}

static double bounded_bits(const void *options) { return options_of(options)->bits; }

/* Bytes of a group behind its head. */
static size_t body_bytes(uint32_t top, size_t n)
{
    if (top == RAW)
        return n * sizeof(float);
    return top ? spr_padded(n * spr_width_of((int)top)) : 0;
}

static double step_of(double error) { return error * 2 * 63 / 64; }

/* As many codes as fit the width that a step for `error` needs; largest > error. */
static uint32_t plan_full(float largest, double error, struct spr_quantiser *q)
{
    double codes = ceil((double)largest / step_of(error));
    int top;

    if (codes > TOP_MAX)
        return RAW;
    top = (1 << (spr_width_of((int)codes) - 1)) - 1;
    *q = spr_quantiser_of(largest, top);
    return (uint32_t)top;
}

/* How a group is coded: returns its top, and the quantiser if that is neither 0 nor RAW. */
static uint32_t plan(const struct bounded_options *o, float largest, double level,
                     struct spr_quantiser *q)
{
    double error = o->mode == RELATIVE ? o->error * (double)largest : o->error;
    int16_t top;

    if (!(largest <= FLT_MAX))
        return RAW;
    if ((double)largest <= error || (double)largest <= level)
        return 0;
    if (error < level)
        return plan_full(largest, level, q);
    q->scale = (float)step_of(error);
    if (q->scale < SPR_VALUES_TINY || largest / q->scale >= TOP_MAX)
        return RAW;
    q->inverse = 1 / q->scale;
    q->limit = TOP_MAX;
    spr_values_kernels()->nearest16(&largest, 1, *q, &top);
    q->limit = (float)top;
    return (float)top * q->scale <= FLT_MAX ? (uint32_t)top : RAW;
}

static float largest_of(const float *in, size_t n)
{
    return spr_float_of(spr_values_kernels()->largest(in, n));
}

/* Do groups of these magnitudes keep to the budget? */
static bool fits(const struct bounded_options *o, const float *largest, size_t n, double level)
{
    struct spr_quantiser q;
    size_t bytes = 0;

    for (size_t at = 0; at < n; at += o->group)
        bytes +=
            HEAD_BYTES + body_bytes(plan(o, *largest++, level, &q), spr_min_size(o->group, n - at));
    return (double)(8 * bytes) <= o->bits * (double)n;
}

/* The error that n values, at most a span, have at least: 0, or by bisection, over the upper 16
 * bits of floats, one above SPR_VALUES_TINY and below the largest magnitude. */
static double level_of(const struct bounded_options *o, const float *in, size_t n)
{
    float largest[SPAN_GROUPS], tiny = SPR_VALUES_TINY, most = 2 * tiny;
    uint32_t low = spr_load_u32(&tiny) >> 16, high;
    size_t groups = 0;

    for (size_t at = 0; at < n; at += o->group) {
        float here = largest_of(in + at, spr_min_size(o->group, n - at));

        if (here <= FLT_MAX && here > most)
            most = here;
        largest[groups++] = here;
    }
    if (fits(o, largest, n, 0))
        return 0;
    high = (spr_load_u32(&most) - 1) >> 16;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (fits(o, largest, n, (double)spr_float_of(middle << 16)))
            high = middle;
        else
            low = middle;
    }
    return (double)spr_float_of(high << 16);
}

static size_t bounded_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                             void *out)
{
    const struct bounded_options *o = options;
    size_t span = spr_div_ceil(SPAN, o->group) * o->group;
    int16_t code[SPR_VALUES_GROUP_MAX];
    uint8_t *to = out;
    double level = 0;

    (void)draw;
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);
        struct spr_quantiser q = {0};
        uint32_t top;

        if (o->bits > 0 && at % span == 0)
            level = level_of(o, in + at, spr_min_size(span, n - at));
        top = plan(o, largest_of(in + at, m), level, &q);
        spr_store_float(to, top == 0 || top == RAW ? 0 : q.scale);
        spr_store_u32(to + 4, top);
        to += HEAD_BYTES;
        if (top == RAW) {
            memcpy(to, in + at, m * sizeof(float));
        } else if (top) {
            spr_values_kernels()->nearest16(in + at, m, q, code);
            spr_values_kernels()->pack16(code, m, spr_width_of((int)top), to);
            spr_pad(to, m * spr_width_of((int)top));
        }
        to += body_bytes(top, m);
    }
    return (size_t)(to - (uint8_t *)out);
}

static bool head_is_valid(uint32_t step, uint32_t top)
{
    if (top == 0 || top == RAW)
        return step == 0;
    return top <= TOP_MAX && step != 0 && step < SPR_INFINITY_BITS &&
           spr_scale_is_valid(step, (int)top);
}

static spr_status bounded_check(const void *options, const void *bytes, size_t size, size_t n,
                                const char **why)
{
    const struct bounded_options *o = options;
    const uint8_t *from = bytes;
    size_t left = size;

    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at), body;
        uint32_t top;

        if (left < HEAD_BYTES || !head_is_valid(spr_load_u32(from), spr_load_u32(from + 4))) {
            *why = "values: the head of a group is missing or wrong";
            return SPR_ERR_PROTO;
        }
        top = spr_load_u32(from + 4);
        body = body_bytes(top, m);
        if (left - HEAD_BYTES < body) {
            *why = "values: a group ends early";
            return SPR_ERR_PROTO;
        }
        from += HEAD_BYTES;
        if (top != 0 && top != RAW && !spr_padding_is_zero(from, m * spr_width_of((int)top))) {
            *why = "values: bits behind the last one of a group";
            return SPR_ERR_PROTO;
        }
        from += body;
        left -= HEAD_BYTES + body;
    }
    if (left == 0)
        return SPR_OK;
    *why = "values: bytes behind the last group";
    return SPR_ERR_PROTO;
}

static void decode_raw(const uint8_t *from, size_t n, enum spr_decode how, float *out)
{
    spr_value_fp32.decode(NULL, from, n, how, out);
}

static size_t bounded_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                             float *out)
{
    const struct bounded_options *o = options;
    int16_t code[SPR_VALUES_GROUP_MAX];
    const uint8_t *from = bytes;

    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);
        float step = spr_load_float(from);
        uint32_t top = spr_load_u32(from + 4);

        from += HEAD_BYTES;
        if (top == RAW) {
            decode_raw(from, m, how, out + at);
        } else if (top == 0) {
            spr_group_decode_zero(m, how, out + at);
        } else {
            spr_values_kernels()->unpack16(from, m, spr_width_of((int)top), code);
            spr_values_kernels()->decode16(code, m, step, how, out + at);
        }
        from += body_bytes(top, m);
    }
    return (size_t)(from - (const uint8_t *)bytes);
}

const struct spr_value_coder spr_value_bounded = {
    .name = "bounded",
    .doc = "as many bits per group as a maximum error needs, or a budget leaves",
    .paper = "Di and Cappello 2016, Fast error-bounded lossy HPC data compression with SZ",
    .options = bounded_table,
    .option_count = SPR_ARRAY_LEN(bounded_table),
    .refuse = bounded_refuse,
    .traits = bounded_traits,
    .group = bounded_group,
    .bound = bounded_bound,
    .bits = bounded_bits,
    .encode = bounded_encode,
    .check = bounded_check,
    .decode = bounded_decode,
    .feed = spr_value_feed,
};
