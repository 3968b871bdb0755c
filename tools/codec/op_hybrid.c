/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Top-k, coded: the complete image of a sparse step, indices by one coder and values as int8. The
 * threshold of the last step is known (see op_select.c).
 */
#include "tools/codec/operations.h"

#include "compress/indices/indices.h"
#include "compress/select/topk.h"
#include "compress/values/values.h"

struct hybrid {
    size_t k, index_bytes, value_bytes;
    struct spr_topk_hint hint, known;
    const struct spr_index_coder *index_coder;
    struct spr_index_options index_options;
    _Alignas(16) unsigned char value_options[SPR_VALUE_OPTION_BYTES];
    uint32_t *index, *index_back;
    float *value, *value_back;
    void *scratch, *index_image, *value_image;
};

static void hybrid_run(struct trial *trial, int slice, int slices)
{
    struct hybrid *s = trial->state;
    const struct vector *v = trial->vector;
    struct spr_draw draw = spr_draw(v->seed, 0);

    (void)slice;
    (void)slices;
    spr_topk_select(v->x, v->n, s->k, &s->hint, s->index, s->value, s->scratch);
    s->known = s->hint;
    s->index_bytes =
        spr_index_encode(s->index_coder, &s->index_options, s->index, s->k, v->n, s->index_image);
    s->value_bytes = spr_value_int8.encode(s->value_options, &draw, s->value, s->k, s->value_image);
}

static void hybrid_prepare(struct trial *trial)
{
    struct hybrid *s = trial->state;

    s->hint.threshold_bits = hint_near(s->known.threshold_bits, trial->runs);
}

static bool hybrid_setup(struct trial *trial, struct spr_error *error)
{
    struct hybrid *s = trial_pages(trial, sizeof(*s), error);
    size_t n = trial->vector->n, options;

    if (!s)
        return false;
    trial->state = s;
    s->k = spr_select_count(trial->density, n);
    s->index_coder = spr_index_coder_find(trial->operation->what);
    const struct spr_opt *table = spr_index_coder_options(s->index_coder, &options);
    size_t list = (s->k + SPR_INDEX_SLACK + 16) * sizeof(float);
    return spr_opt_defaults(table, options, &s->index_options, error) == SPR_OK &&
           spr_opt_defaults(spr_value_int8.options, spr_value_int8.option_count, s->value_options,
                            error) == SPR_OK &&
           (s->index = trial_pages(trial, list, error)) &&
           (s->index_back = trial_pages(trial, list, error)) &&
           (s->value = trial_pages(trial, list, error)) &&
           (s->value_back = trial_pages(trial, list, error)) &&
           (s->scratch = trial_pages(trial, spr_topk_scratch(n, s->k), error)) &&
           (s->index_image = trial_pages(trial, spr_index_bound(s->index_coder, n, s->k), error)) &&
           (s->value_image =
                trial_pages(trial, spr_value_int8.bound(s->value_options, s->k), error));
}

/* int8 is off by half a step at most, a group's largest magnitude over 127; groups that are tiny or
 * not finite apart. */
static bool values_come_back(const struct hybrid *s)
{
    size_t group = spr_value_int8.group(s->value_options);

    for (size_t begin = 0; begin < s->k; begin += group) {
        size_t end = spr_min_size(s->k, begin + group);
        float largest = 0, off = 0;
        bool finite = true;
        for (size_t i = begin; i < end; i++) {
            finite &= isfinite(s->value[i]) != 0;
            largest = fmaxf(largest, fabsf(s->value[i]));
            off = fmaxf(off, fabsf(s->value[i] - s->value_back[i]));
        }
        if (finite && largest >= SPR_VALUES_TINY && !(off <= largest * (0.5001f / 127)))
            return false;
    }
    return true;
}

/* Selection is checked by itself (op_select.c); here, that the list comes back. */
static bool hybrid_check(struct trial *trial, struct spr_error *error)
{
    struct hybrid *s = trial->state;
    size_t n = trial->vector->n;
    const char *why = "other indices";

    trial->bits = 8 * (double)(s->index_bytes + s->value_bytes) / (double)n;
    if (spr_index_decode(s->index_image, s->index_bytes, n, s->k, s->index_back, &why) != SPR_OK ||
        memcmp(s->index, s->index_back, s->k * sizeof(*s->index)) != 0 ||
        spr_value_int8.check(s->value_options, s->value_image, s->value_bytes, s->k, &why) !=
            SPR_OK)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the list does not come back: %s", why) ==
               SPR_OK;
    spr_value_int8.decode(s->value_options, s->value_image, s->k, SPR_DECODE_SET, s->value_back);
    for (size_t i = 0; i < s->k; i++)
        if (trial->vector->x[s->index[i]] != s->value[i] && !isnan(s->value[i]))
            return spr_error_set(error, SPR_ERR_INVALID, -1, "a value of another index") == SPR_OK;
    if (!values_come_back(s))
        return spr_error_set(error, SPR_ERR_INVALID, -1, "a value is off") == SPR_OK;
    return true;
}

void op_hybrid_add(struct operations *list)
{
    static const char *const coders[] = {"bitpack", "eliasfano"};

    for (size_t i = 0; i < SPR_ARRAY_LEN(coders); i++) {
        struct operation row = {.reference = REFERENCE_READ,
                                .by_density = true,
                                .what = coders[i],
                                .setup = hybrid_setup,
                                .prepare = hybrid_prepare,
                                .next = one_phase,
                                .run = hybrid_run,
                                .check = hybrid_check,
                                .close = no_close};
        operations_add(list, &row, "image topk+int8+%s", coders[i]);
    }
}
