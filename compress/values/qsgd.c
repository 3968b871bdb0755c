/* SPDX-License-Identifier: BSD-2-Clause
 *
 * QSGD (Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and
 * encoding"), section 3: in a bucket of d elements, Q(v_i) = |v| * sign(v_i) * xi_i, where xi_i is
 * one of the two multiples of 1/s next to |v_i| / |v|, at random so that the mean is right; s =
 * levels, |v| the L2 norm or, as in the paper's experiments, the largest magnitude (norm=max).
 * Unbiased; variance at most min(d / s^2, sqrt(d) / s) * |v|^2 with the L2 norm.
 *
 * coding=fixed: image as in levels.h, 1 + bits of `levels` per element. coding=elias, sparse: per
 * bucket
 *
 *    0          4
 *   +----------+-------------------------+---------+
 *   | scale    | elias.h: dense, sparse  | zeros   |    scale = |v| / s. Nothing follows a scale of
 *   | fp32     | code                    | up to 4 |    0 (all zero) and of NaN (all is NaN).
 *   +----------+-------------------------+---------+
 */
#include "compress/values/elias.h"
#include "compress/values/group.h"
#include "compress/values/levels.h"

enum norm { L2, MAX };
enum coding { FIXED, ELIAS, SPARSE };

struct qsgd_options {
    size_t group;
    int levels, norm, coding;
};

static const char *const norms[] = {"l2", "max", NULL};
static const char *const codings[] = {"fixed", "elias", "sparse", NULL};

static const struct spr_opt qsgd_table[] = {
    {
        .name = "levels",
        .default_value = "16",
        .doc = "levels of magnitude above zero",
        .type = SPR_OPT_INT,
        .offset = offsetof(struct qsgd_options, levels),
        .min = 1,
        .max = SPR_VALUES_LEVELS_MAX,
    },
    SPR_VALUES_GROUP_OPTION(struct qsgd_options, "bucket", "512"),
    {
        .name = "norm",
        .default_value = "l2",
        .doc = "what the outermost level stands for: the L2 norm or the largest magnitude",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct qsgd_options, norm),
        .choices = norms,
    },
    {
        .name = "coding",
        .default_value = "fixed",
        .doc = "bits of a level: fixed, Elias codes, or these of the levels that are not zero",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct qsgd_options, coding),
        .choices = codings,
    },
};

static const struct qsgd_options *options_of(const void *options) { return options; }

static struct spr_levels levels_of(const void *options)
{
    const struct qsgd_options *o = options;

    return (struct spr_levels){
        .group = o->group, .levels = o->levels, .random = true, .l2 = o->norm == L2};
}

static unsigned qsgd_traits(const void *options)
{
    return SPR_VALUES_UNBIASED | SPR_VALUES_RANDOM |
           (options_of(options)->coding == FIXED ? SPR_VALUES_FIXED : 0u);
}

static size_t qsgd_group(const void *options) { return options_of(options)->group; }

static size_t bucket_bound(const struct qsgd_options *o, size_t n)
{
    return sizeof(float) + spr_elias_bound(n, o->levels, o->coding == SPARSE);
}

static size_t qsgd_bound(const void *options, size_t n)
{
    const struct qsgd_options *o = options;
    struct spr_levels l = levels_of(options);
    size_t rest = n % o->group;

    if (o->coding == FIXED)
        return spr_levels_bound(&l, n);
    return n / o->group * bucket_bound(o, o->group) + (rest ? bucket_bound(o, rest) : 0);
}

static size_t qsgd_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                          void *out)
{
    const struct qsgd_options *o = options;
    struct spr_levels l = levels_of(options);
    int8_t code[SPR_VALUES_GROUP_MAX];
    uint8_t *to = out;

    if (o->coding == FIXED)
        return spr_levels_encode(&l, draw, in, n, out);
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);
        float scale = spr_levels_codes(&l, spr_draw_after(draw, at), in + at, m, code);

        spr_store_float(to, scale);
        to += sizeof(float);
        if (scale > 0)
            to += spr_elias_encode(code, m, o->coding == SPARSE, to);
    }
    return (size_t)(to - (uint8_t *)out);
}

/* Bytes of the codes of a bucket, 0 if they are wrong. */
static size_t read_codes(const struct qsgd_options *o, const uint8_t *from, size_t size, size_t n,
                         int8_t *code)
{
    return spr_elias_decode(from, size, n, o->levels, o->coding == SPARSE, code);
}

static spr_status qsgd_check(const void *options, const void *bytes, size_t size, size_t n,
                             const char **why)
{
    const struct qsgd_options *o = options;
    struct spr_levels l = levels_of(options);
    const uint8_t *from = bytes, *end = from + size;
    int8_t code[SPR_VALUES_GROUP_MAX];

    if (o->coding == FIXED)
        return spr_levels_check(&l, bytes, size, n, why);
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at), used;
        uint32_t scale;

        if ((size_t)(end - from) < sizeof(scale)) {
            *why = "values: a bucket is missing";
            return SPR_ERR_PROTO;
        }
        scale = spr_load_u32(from);
        from += sizeof(scale);
        if (!spr_scale_is_valid(scale, o->levels)) {
            *why = "values: a scale is negative or too large";
            return SPR_ERR_PROTO;
        }
        if (scale == 0 || scale == SPR_NAN_BITS)
            continue;
        used = read_codes(o, from, (size_t)(end - from), m, code);
        if (used == 0) {
            *why = "values: Elias codes end early or are out of range";
            return SPR_ERR_PROTO;
        }
        from += used;
    }
    if (from == end)
        return SPR_OK;
    *why = "values: bytes behind the last bucket";
    return SPR_ERR_PROTO;
}

static size_t qsgd_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                          float *out)
{
    const struct qsgd_options *o = options;
    struct spr_levels l = levels_of(options);
    int8_t code[SPR_VALUES_GROUP_MAX];
    const uint8_t *from = bytes;

    if (o->coding == FIXED)
        return spr_levels_decode(&l, bytes, n, how, out);
    for (size_t at = 0; at < n; at += o->group) {
        size_t m = spr_min_size(o->group, n - at);
        float scale = spr_load_float(from);

        from += sizeof(float);
        if (isnan(scale)) {
            spr_group_decode_nan(m, how, out + at);
        } else if (scale == 0) {
            spr_group_decode_zero(m, how, out + at);
        } else {
            from += read_codes(o, from, SIZE_MAX, m, code); /* as check() did */
            spr_values_kernels()->decode8(code, m, scale, how, out + at);
        }
    }
    return (size_t)(from - (const uint8_t *)bytes);
}

const struct spr_value_coder spr_value_qsgd = {
    .name = "qsgd",
    .doc = "one of s levels each way of the bucket's norm, at random and unbiased",
    .paper = "Alistarh et al. 2017, QSGD: communication-efficient SGD via gradient quantization",
    .options = qsgd_table,
    .option_count = SPR_ARRAY_LEN(qsgd_table),
    .traits = qsgd_traits,
    .group = qsgd_group,
    .bound = qsgd_bound,
    .encode = qsgd_encode,
    .check = qsgd_check,
    .decode = qsgd_decode,
    .feed = spr_value_feed,
};
