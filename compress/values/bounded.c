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
 * were asked for take more, groups get fewer bits, mode=relative or not, so that the sum of squares
 * of errors is about the least for the bits. That of w bits is taken to be, per value,
 *
 *    d(w) = min(v, (M / T)^2 / 12)    M the largest magnitude of the group, v its mean square,
 *    d(0) = v                         T = 2^(w-1) - 1 the largest code: steps of M / T
 *
 * so range and variance decide. A bit has the same price everywhere, and a group takes those that
 * make d(w) + price * w least (Shoham and Gersho 1988, "Efficient bit allocation for an arbitrary
 * set of quantizers"): 2 bits have hardly less error than none where values are about normal, and
 * are passed over for 3 of fewer groups. The price is found by bisection; a price has a root of 8
 * significant bits, and what that leaves of the budget goes to the first groups that would take
 * more at the next lower one. The width that a group gets is used to the full. Something is sent in
 * every step: beyond the budget are only heads, one group, and what is not finite.
 *
 * step is 2 * error less 1/64 of it, since the scaled value, the code times the step and the step
 * itself are rounded: codes are below 2^15, so this is off by at most 2^15 * 3 * 2^-24 of a step,
 * 0.006 of one, and (0.5 + 0.006) * 63/64 < 0.5.
 */
#include "compress/kernels/select.h"
#include "compress/values/group.h"

#define TOP_MAX 32767
#define WIDTH_MIN 2u /* bits of a code */
#define WIDTH_MAX 16u
#define RAW UINT32_MAX
#define WIDTH_RAW 32u
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

static unsigned width_of(uint32_t top)
{
    return top == RAW ? WIDTH_RAW : top ? spr_width_of((int)top) : 0;
}

/* Bytes of a group behind its head. */
static size_t body_bytes(unsigned width, size_t n) { return spr_padded(n * width); }

static double step_of(double error) { return error * 2 * 63 / 64; }

/* How a group is coded for the error that was asked for: returns its top, and the quantiser if that
 * is neither 0 nor RAW. */
static uint32_t plan(const struct bounded_options *o, float largest, struct spr_quantiser *q)
{
    double error = o->mode == RELATIVE ? o->error * (double)largest : o->error;
    int16_t top;

    if (!(largest <= FLT_MAX))
        return RAW;
    if ((double)largest <= error)
        return 0;
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

/* Head and codes. Returns where the next group begins. */
static uint8_t *encode_group(const float *in, size_t n, uint32_t top, struct spr_quantiser q,
                             uint8_t *to)
{
    int16_t code[SPR_VALUES_GROUP_MAX];

    spr_store_float(to, top == 0 || top == RAW ? 0 : q.scale);
    spr_store_u32(to + 4, top);
    to += HEAD_BYTES;
    if (top == RAW) {
        memcpy(to, in, n * sizeof(float));
    } else if (top) {
        spr_values_kernels()->nearest16(in, n, q, code);
        spr_values_kernels()->pack16(code, n, spr_width_of((int)top), to);
        spr_pad(to, n * spr_width_of((int)top));
    }
    return to + body_bytes(width_of(top), n);
}

/* ---- A budget ---- */

/* The groups that share one. */
struct span {
    const struct bounded_options *o;
    size_t n, groups;
    float largest[SPAN_GROUPS], rms[SPAN_GROUPS];
    uint8_t asked[SPAN_GROUPS]; /* widths, for the error that was asked for */
    double low, high;           /* levels: what groups take at the lower one is too much */
    bool sent;                  /* a group that has a choice has been sent, or will be */
};

static uint32_t full(unsigned width) { return (UINT32_C(1) << (width - 1)) - 1; }

/* Mean square of what so many bits leave, unless that is more than what is there. */
static double noise(const struct span *s, size_t g, unsigned width)
{
#define NOISE(w) 1.0 / (12.0 * ((1 << ((w)-1)) - 1) * ((1 << ((w)-1)) - 1))
    static const double of_one[WIDTH_MAX + 1] = {
        0,         0,         NOISE(2),  NOISE(3),  NOISE(4),  NOISE(5),
        NOISE(6),  NOISE(7),  NOISE(8),  NOISE(9),  NOISE(10), NOISE(11),
        NOISE(12), NOISE(13), NOISE(14), NOISE(15), NOISE(16),
    };

    return (double)s->largest[g] * (double)s->largest[g] * of_one[width];
}

static double variance(const struct span *s, size_t g)
{
    return (double)s->rms[g] * (double)s->rms[g];
}

static bool has_choice(const struct span *s, size_t g)
{
    return s->largest[g] <= FLT_MAX && s->asked[g] > 0;
}

/* The least bits that are better than none. */
static unsigned least_width(const struct span *s, size_t g)
{
    unsigned width = WIDTH_MIN;

    while (width < WIDTH_MAX && noise(s, g, width) >= variance(s, g))
        width++;
    return width < s->asked[g] ? width : s->asked[g];
}

/* The bits that a group takes when one costs level^2. */
static unsigned width_at(const struct span *s, size_t g, double level)
{
    double price = level * level, least = variance(s, g);
    unsigned width = 0;

    if (level <= 0 || !has_choice(s, g))
        return s->asked[g];
    if (s->largest[g] < SPR_VALUES_TINY)
        return 0;
    for (unsigned w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
        double cost = noise(s, g, w) + price * w;

        if (cost < least) {
            least = cost;
            width = w;
        } else if (width) {
            break; /* convex from there on */
        }
    }
    return width < s->asked[g] ? width : s->asked[g];
}

/* The level from which on it takes none. */
static double worth(const struct span *s, size_t g)
{
    double most = 0;

    if (!has_choice(s, g) || s->largest[g] < SPR_VALUES_TINY)
        return 0;
    for (unsigned w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
        double gain = (variance(s, g) - noise(s, g, w)) / w;

        if (gain > most)
            most = gain;
    }
    return sqrt(most);
}

static size_t group_len(const struct span *s, size_t g)
{
    return spr_min_size(s->o->group, s->n - g * s->o->group);
}

/* What is left of the budget, in bytes. */
static double spare_at(const struct span *s, double level)
{
    double spare = s->o->bits * (double)s->n / 8;

    for (size_t g = 0; g < s->groups; g++)
        spare -= (double)(HEAD_BYTES + body_bytes(width_at(s, g, level), group_len(s, g)));
    return spare;
}

static void look_at(struct span *s, const struct bounded_options *o, const float *in, size_t n)
{
    s->o = o;
    s->n = n;
    s->low = s->high = 0;
    s->sent = true;
    s->groups = spr_div_ceil(n, o->group);
    for (size_t g = 0; g < s->groups; g++) {
        const float *from = in + g * o->group;
        size_t m = group_len(s, g);
        struct spr_quantiser q;

        s->largest[g] = largest_of(from, m);
        s->rms[g] = (float)sqrt(spr_select_kernels()->squares(from, m) / (double)m);
        s->asked[g] = (uint8_t)width_of(plan(o, s->largest[g], &q));
    }
}

/* Neighbours among the upper 16 bits of normal floats: what groups take at `high` fits, or is
 * nothing; at `low` it does not, or that is the least level. Where nothing is sent at `high`,
 * something is at `low`. */
static void find_levels(struct span *s)
{
    double most = 2 * (double)FLT_MIN;
    uint32_t below = spr_magnitude(FLT_MIN) >> 16, above, top;

    for (size_t g = 0; g < s->groups; g++)
        if (worth(s, g) > most)
            most = worth(s, g);
    top = spr_magnitude((float)most);
    above = ((top + 2) >> 16) + 1; /* more than `most`, which is rounded */
    while (above - below > 1) {
        uint32_t middle = (below + above) / 2;

        if (spare_at(s, (double)spr_float_of(middle << 16)) >= 0)
            above = middle;
        else
            below = middle;
    }
    s->high = (double)spr_float_of(above << 16);
    s->sent = false;
    for (size_t g = 0; g < s->groups && !s->sent; g++)
        s->sent = has_choice(s, g) && width_at(s, g, s->high) > 0;
    if (!s->sent)
        below = (top - 2) >> 16;
    s->low = (double)spr_float_of(below << 16);
}

/* Bits of a group: what it takes at `high`, and up to what it would at `low` if *spare bytes, which
 * are left, allow; the first one of all whether they do or not. */
static unsigned fill(struct span *s, size_t g, double *spare)
{
    unsigned width = width_at(s, g, s->high), more = width_at(s, g, s->low);
    unsigned least = width ? width : least_width(s, g);
    size_t m = group_len(s, g), has = body_bytes(width, m);

    if (more <= width)
        return width;
    while (more > least && (double)(body_bytes(more, m) - has) > *spare)
        more--;
    if ((double)(body_bytes(more, m) - has) > *spare && s->sent)
        return width;
    *spare -= (double)(body_bytes(more, m) - has);
    s->sent = true;
    return more;
}

static uint8_t *encode_within(const struct bounded_options *o, const float *in, size_t n,
                              uint8_t *to)
{
    struct span s;
    double spare;

    look_at(&s, o, in, n);
    if (spare_at(&s, 0) < 0)
        find_levels(&s);
    spare = spare_at(&s, s.high);
    for (size_t g = 0; g < s.groups; g++) {
        struct spr_quantiser q = {0};
        uint32_t top = plan(o, s.largest[g], &q);
        unsigned width = fill(&s, g, &spare);

        if (width < s.asked[g]) {
            top = width ? full(width) : 0;
            q = spr_quantiser_of(width ? s.largest[g] : 0, (int)top);
        }
        to = encode_group(in + g * o->group, group_len(&s, g), top, q, to);
    }
    return to;
}

static size_t bounded_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                             void *out)
{
    const struct bounded_options *o = options;
    size_t span = spr_div_ceil(SPAN, o->group) * o->group;
    size_t stride = o->bits > 0 ? span : o->group;
    uint8_t *to = out;

    (void)draw;
    for (size_t at = 0; at < n; at += stride) {
        size_t m = spr_min_size(stride, n - at);
        struct spr_quantiser q = {0};

        if (o->bits > 0)
            to = encode_within(o, in + at, m, to);
        else
            to = encode_group(in + at, m, plan(o, largest_of(in + at, m), &q), q, to);
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
        body = body_bytes(width_of(top), m);
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
        from += body_bytes(width_of(top), m);
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
