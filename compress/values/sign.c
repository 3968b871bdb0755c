/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One bit per element: its sign, with a mean per group. means=one: +-mean of |x| (Karimireddy et
 * al. 2019, "Error feedback fixes SignSGD"). means=two: the mean of the positive and of the
 * negative elements, as in Seide et al. 2014, "1-bit stochastic gradient descent", which puts the
 * threshold at 0, too, and has a pair of values per column where this has one per group. Both need
 * error feedback to converge.
 *
 *    0        4        (8)
 *   +--------+--------+-----------------------+---------+
 *   | value  | value  | m bits, from bit 0    | zeros   |     value: fp32, 0 or above; below 0 for
 *   | of a 0 | of a 1 | on; 1 = sign bit set  | up to 4 |     a 1, and only there with means=two
 *   +--------+--------+-----------------------+---------+
 *
 * NaN as a value: something was not finite, all of the group decodes to NaN, and all bits are zero.
 * Sums: kernels/values.h; in double where they overflow.
 */
#include "compress/values/group.h"

enum means { ONE, TWO };

struct sign_options {
    size_t group;
    int means;
};

static const char *const means_choices[] = {"one", "two", NULL};

static const struct spr_opt sign_table[] = {
    SPR_VALUES_GROUP_OPTION(struct sign_options, "group", "1024"),
    {
        .name = "means",
        .default_value = "one",
        .doc = "one mean of magnitudes, or one of the positive and one of the negative elements",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct sign_options, means),
        .choices = means_choices,
    },
};

static const struct sign_options *options_of(const void *options) { return options; }

static unsigned sign_traits(const void *options)
{
    (void)options;
    return SPR_VALUES_FIXED;
}

static size_t sign_group(const void *options) { return options_of(options)->group; }

static size_t head_bytes(const struct sign_options *o)
{
    return o->means == TWO ? 2 * sizeof(float) : sizeof(float);
}

static size_t sign_bound(const void *options, size_t n)
{
    const struct sign_options *o = options;
    size_t rest = n % o->group;

    return n / o->group * (head_bytes(o) + spr_padded(o->group)) +
           (rest ? head_bytes(o) + spr_padded(rest) : 0);
}

/* A mean of finite values, from its sum as far as that did not overflow. */
static float mean_of(float sum, double exact, size_t n)
{
    return isfinite(sum) ? sum / (float)n : (float)(exact / (double)n);
}

static size_t count_bits(const uint8_t *bits, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < spr_padded(n); i += 4)
        count += (size_t)__builtin_popcount(spr_load_u32(bits + i));
    return count;
}

static void two_means(const float *in, size_t n, const uint8_t *bits, float value[2])
{
    size_t count[2];
    double exact[2] = {0, 0};
    float sum[2];

    count[1] = count_bits(bits, n);
    count[0] = n - count[1];
    spr_values_kernels()->sum_sides(in, n, sum);
    if (!isfinite(sum[0]) || !isfinite(sum[1]))
        for (size_t i = 0; i < n; i++)
            exact[bits[i / 8] >> i % 8 & 1] += (double)in[i];
    for (int side = 0; side < 2; side++)
        value[side] = count[side] ? mean_of(sum[side], exact[side], count[side]) : 0;
}

static void one_mean(const float *in, size_t n, float sum, float value[2])
{
    value[0] = mean_of(sum, isfinite(sum) ? 0 : spr_group_sum_abs(in, n), n);
    value[1] = -value[0];
}

/* `gradient` and `residual` (which is `in`) are NULL without feedback. */
static void encode_group(const struct sign_options *o, const float *in, float *residual,
                         const float *gradient, size_t n, uint8_t *to)
{
    const struct spr_values_kernels *kernels = spr_values_kernels();
    uint8_t *bits = to + head_bytes(o);
    float sum =
        residual ? kernels->add_signs(residual, gradient, n, bits) : kernels->signs(in, n, bits);
    float value[2];

    spr_pad(bits, n);
    if (o->means == TWO)
        two_means(in, n, bits, value);
    else
        one_mean(in, n, sum, value);
    if (!isfinite(value[0]) || !isfinite(value[1])) {
        value[0] = value[1] = spr_float_of(SPR_NAN_BITS);
        memset(bits, 0, spr_padded(n));
    }
    spr_store_float(to, value[0]);
    if (o->means == TWO)
        spr_store_float(to + sizeof(float), value[1]);
}

/* Two NaN or none; the second one not above zero. */
static bool values_are_valid(const struct sign_options *o, const uint8_t *from)
{
    uint32_t a = spr_load_u32(from), b;

    if (!spr_scale_is_valid(a, 1))
        return false;
    if (o->means == ONE)
        return true;
    b = spr_load_u32(from + sizeof(float));
    if (a == SPR_NAN_BITS || b == SPR_NAN_BITS)
        return a == b;
    return b == 0 || (b >= 0x80000000u && spr_scale_is_valid(b & 0x7fffffffu, 1));
}

static spr_status sign_check(const void *options, const void *bytes, size_t size, size_t n,
                             const char **why)
{
    const struct sign_options *o = options;
    const uint8_t *from = bytes;

    if (size != sign_bound(options, n)) {
        *why = "values: not the bytes that their number needs";
        return SPR_ERR_PROTO;
    }
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);

        if (!values_are_valid(o, from)) {
            *why = "values: a mean is not finite or has the wrong sign";
            return SPR_ERR_PROTO;
        }
        if (!spr_padding_is_zero(from + head_bytes(o), m)) {
            *why = "values: bits behind the last one of a group";
            return SPR_ERR_PROTO;
        }
        from += head_bytes(o) + spr_padded(m);
    }
    return SPR_OK;
}

static size_t sign_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                          float *out)
{
    const struct sign_options *o = options;
    const uint8_t *from = bytes;

    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);
        float value[2] = {spr_load_float(from), -spr_load_float(from)};

        if (o->means == TWO)
            value[1] = spr_load_float(from + sizeof(float));
        if (isnan(value[0]))
            spr_group_decode_nan(m, how, out + at);
        else
            spr_values_kernels()->decode_signs(from + head_bytes(o), m, value, how, out + at);
        from += head_bytes(o) + spr_padded(m);
    }
    return (size_t)(from - (const uint8_t *)bytes);
}

static size_t sign_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                          void *out)
{
    const struct sign_options *o = options;
    uint8_t *to = out;

    (void)draw;
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);

        encode_group(o, in + at, NULL, NULL, m, to);
        to += head_bytes(o) + spr_padded(m);
    }
    return (size_t)(to - (uint8_t *)out);
}

static size_t sign_feed(const struct spr_value_coder *coder, const void *options,
                        struct spr_draw draw, float *residual, const float *gradient, size_t n,
                        void *out)
{
    const struct sign_options *o = options;
    uint8_t *to = out;

    (void)coder;
    (void)draw;
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);

        encode_group(o, residual + at, residual + at, gradient + at, m, to);
        to += sign_decode(o, to, m, SPR_DECODE_TAKE, residual + at);
    }
    return (size_t)(to - (uint8_t *)out);
}

const struct spr_value_coder spr_value_sign = {
    .name = "sign",
    .doc = "1 bit: the sign, with the mean magnitude of the group",
    .paper = "Seide et al. 2014, 1-bit stochastic gradient descent",
    .options = sign_table,
    .option_count = SPR_ARRAY_LEN(sign_table),
    .traits = sign_traits,
    .group = sign_group,
    .bound = sign_bound,
    .encode = sign_encode,
    .check = sign_check,
    .decode = sign_decode,
    .feed = sign_feed,
};
