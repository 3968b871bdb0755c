/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/values/levels.h"

#include "compress/values/group.h"

static size_t group_bytes(const struct spr_levels *l, size_t n)
{
    return sizeof(float) + spr_padded(n * spr_width_of(l->levels));
}

size_t spr_levels_bound(const struct spr_levels *l, size_t n)
{
    size_t rest = n % l->group;

    return n / l->group * group_bytes(l, l->group) + (rest ? group_bytes(l, rest) : 0);
}

/* What is rounded in sums of equal elements, as a part of the mean's square, is below that: 2^-24
 * of it in each of the additions behind one another. */
#define NO_SPREAD 0x1p-16

/* `clip` standard deviations; infinite where that is no bound: no spread, or too much of it for
 * squares in single precision. */
static float clip_of(const struct spr_levels *l, const float *in, size_t n)
{
    float sum[2];
    double mean, variance;

    spr_values_kernels()->sum_squares(in, n, sum);
    mean = (double)sum[0] / (double)n;
    variance = (double)sum[1] / (double)n - mean * mean;
    if (!isfinite(variance) || variance <= mean * mean * NO_SPREAD)
        return INFINITY;
    return (float)(l->clip * sqrt(variance));
}

/* What the levels reach to; not finite when an element is not. */
static float reach_of(const struct spr_levels *l, const float *in, size_t n, float largest)
{
    if (!(largest <= FLT_MAX))
        return largest;
    if (l->l2)
        return spr_group_norm(in, n, largest);
    return l->clip > 0 ? fminf(largest, clip_of(l, in, n)) : largest;
}

/* What is sent is taken from `residual`, which is `in` or NULL. */
static float codes_of(const struct spr_levels *l, struct spr_draw draw, const float *in,
                      float *residual, size_t n, uint32_t largest, int8_t *code)
{
    const struct spr_values_kernels *kernels = spr_values_kernels();
    float reach = reach_of(l, in, n, spr_float_of(largest));
    struct spr_quantiser q;

    if (!(reach <= FLT_MAX) || reach < SPR_VALUES_TINY) {
        memset(code, 0, n);
        if (reach <= FLT_MAX)
            return 0;
        if (residual)
            spr_group_decode_nan(n, SPR_DECODE_TAKE, residual);
        return spr_float_of(SPR_NAN_BITS);
    }
    q = spr_quantiser_of(reach, l->levels);
    if (residual && !l->random) {
        kernels->nearest8_take(residual, n, q, code);
        return q.scale;
    }
    if (l->random)
        kernels->random8(in, n, q, draw, code);
    else
        kernels->nearest8(in, n, q, code);
    if (residual)
        kernels->decode8(code, n, q.scale, SPR_DECODE_TAKE, residual);
    return q.scale;
}

float spr_levels_codes(const struct spr_levels *l, struct spr_draw draw, const float *in, size_t n,
                       int8_t *code)
{
    return codes_of(l, draw, in, NULL, n, spr_values_kernels()->largest(in, n), code);
}

/* `gradient` and `residual` (which is `in`) are NULL without feedback. */
static size_t encode(const struct spr_levels *l, struct spr_draw draw, const float *in,
                     float *residual, const float *gradient, size_t n, void *out)
{
    const struct spr_values_kernels *kernels = spr_values_kernels();
    unsigned width = spr_width_of(l->levels);
    int8_t code[SPR_VALUES_GROUP_MAX];
    uint8_t *to = out;

    for (size_t at = 0; at < n; at += l->group) {
        size_t m = spr_min_size(l->group, n - at);
        uint8_t *packed = to + sizeof(float);
        float *rest = residual ? residual + at : NULL;
        uint32_t largest =
            rest ? kernels->add_largest(rest, gradient + at, m) : kernels->largest(in + at, m);
        int8_t *codes = width == 8 ? (int8_t *)packed : code;

        spr_store_float(to,
                        codes_of(l, spr_draw_after(draw, at), in + at, rest, m, largest, codes));
        if (width < 8)
            kernels->pack8(code, m, width, packed);
        spr_pad(packed, m * width);
        to += group_bytes(l, m);
    }
    return (size_t)(to - (uint8_t *)out);
}

size_t spr_levels_encode(const struct spr_levels *l, struct spr_draw draw, const float *in,
                         size_t n, void *out)
{
    return encode(l, draw, in, NULL, NULL, n, out);
}

size_t spr_levels_feed(const struct spr_levels *l, struct spr_draw draw, float *residual,
                       const float *gradient, size_t n, void *out)
{
    return encode(l, draw, residual, residual, gradient, n, out);
}

spr_status spr_levels_check(const struct spr_levels *l, const void *bytes, size_t size, size_t n,
                            const char **why)
{
    const uint8_t *from = bytes;

    if (size != spr_levels_bound(l, n)) {
        *why = "values: not the bytes that their number needs";
        return SPR_ERR_PROTO;
    }
    for (size_t at = 0; at < n; at += l->group) {
        size_t m = spr_min_size(l->group, n - at);

        if (!spr_scale_is_valid(spr_load_u32(from), l->levels)) {
            *why = "values: a scale is negative or too large";
            return SPR_ERR_PROTO;
        }
        if (!spr_padding_is_zero(from + sizeof(float), m * spr_width_of(l->levels))) {
            *why = "values: bits behind the last one of a group";
            return SPR_ERR_PROTO;
        }
        from += group_bytes(l, m);
    }
    return SPR_OK;
}

size_t spr_levels_decode(const struct spr_levels *l, const void *bytes, size_t n,
                         enum spr_decode how, float *out)
{
    const struct spr_values_kernels *kernels = spr_values_kernels();
    unsigned width = spr_width_of(l->levels);
    int8_t code[SPR_VALUES_GROUP_MAX];
    const uint8_t *from = bytes;

    for (size_t at = 0; at < n; at += l->group) {
        size_t m = spr_min_size(l->group, n - at);
        float scale = spr_load_float(from);
        const uint8_t *packed = from + sizeof(float);

        if (isnan(scale)) {
            spr_group_decode_nan(m, how, out + at);
        } else if (scale == 0) {
            spr_group_decode_zero(m, how, out + at);
        } else if (width == 8) {
            kernels->decode8((const int8_t *)packed, m, scale, how, out + at);
        } else {
            kernels->unpack8(packed, m, width, code);
            kernels->decode8(code, m, scale, how, out + at);
        }
        from += group_bytes(l, m);
    }
    return (size_t)(from - (const uint8_t *)bytes);
}
