/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Top-k, coded: the complete image of a sparse step, indices by one coder and values as int8. The
 * threshold of the last step is known (see op_select.c).
 */
#include "tools/codec/operations.h"

#include "compress/indices/indices.h"
#include "compress/select/select.h"
#include "compress/values/values.h"
#include "tools/codec/pool.h"

/* What a slice encodes: its share of the list, whole groups of values. */
struct part {
    size_t begin, end, index_bytes;
    void *index_image;
};

struct hybrid {
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    struct spr_select call;
    struct spr_select_state state, known;
    size_t k, group;
    const struct spr_index_coder *index_coder;
    struct spr_index_options index_options;
    _Alignas(16) unsigned char value_options[SPR_VALUE_OPTION_BYTES];
    uint32_t *index_back;
    float *value_back;
    char *value_image;
    struct part part[POOL_THREADS_MAX];
    bool emitting, encoding;
};

static bool hybrid_next(struct trial *trial, int phase)
{
    struct hybrid *s = trial->state;

    if (phase > 0 && s->encoding)
        return false;
    s->encoding = !select_phase(&s->call, &s->emitting, phase);
    return true;
}

static void encode_part(const struct hybrid *s, const struct vector *v, struct part *part)
{
    size_t n = part->end - part->begin;
    struct spr_draw draw = spr_draw(v->seed, part->begin);

    part->index_bytes = spr_index_encode(s->index_coder, &s->index_options,
                                         s->call.index + part->begin, n, v->n, part->index_image);
    spr_value_int8.encode(s->value_options, draw, s->call.value + part->begin, n,
                          s->value_image + spr_value_int8.bound(s->value_options, part->begin));
}

static void hybrid_run(struct trial *trial, int slice, int slices)
{
    struct hybrid *s = trial->state;

    (void)slices;
    if (s->encoding)
        encode_part(s, trial->vector, &s->part[slice]);
    else
        select_slice(&s->call, s->emitting, slice);
}

static void hybrid_prepare(struct trial *trial)
{
    struct hybrid *s = trial->state;

    s->state = s->known;
    s->state.threshold_bits = hint_near(s->known.threshold_bits, trial->runs);
}

static bool hybrid_allocate(struct trial *trial, struct hybrid *s, struct spr_error *error)
{
    size_t n = trial->vector->n, list = (s->k + SPR_INDEX_SLACK + SPR_SELECT_SLACK) * sizeof(float);
    size_t space = spr_max_size(
        spr_select_workspace(s->call.selector, s->options, n, 1),
        spr_select_workspace(s->call.selector, s->options, n, (unsigned)trial->slices));
    size_t groups = spr_div_ceil(s->k, s->group), slices = (size_t)trial->slices;
    size_t most = spr_min_size(s->k, spr_div_ceil(groups, slices) * s->group);
    size_t image = spr_align_up(spr_index_bound(s->index_coder, n, most), 64);
    char *index_images = trial_pages(trial, slices * image, error);

    for (size_t i = 0; index_images && i < slices; i++)
        s->part[i] = (struct part){
            .begin = spr_min_size(s->k, groups * i / slices * s->group),
            .end = spr_min_size(s->k, groups * (i + 1) / slices * s->group),
            .index_image = index_images + i * image,
        };
    return index_images && (s->call.index = trial_pages(trial, list, error)) &&
           (s->call.value = trial_pages(trial, list, error)) &&
           (s->call.workspace = trial_pages(trial, space, error)) &&
           (s->index_back = trial_pages(trial, list, error)) &&
           (s->value_back = trial_pages(trial, list, error)) &&
           (s->value_image =
                trial_pages(trial, spr_value_int8.bound(s->value_options, s->k), error));
}

static bool hybrid_setup(struct trial *trial, struct spr_error *error)
{
    struct hybrid *s = trial_pages(trial, sizeof(*s), error);
    const struct spr_selector *topk = spr_selector_find("topk");
    const struct spr_index_coder *coder = spr_index_coder_find(trial->operation->what);
    size_t options;

    if (!s)
        return false;
    trial->state = s;
    const struct spr_opt *table = spr_index_coder_options(coder, &options), *ratio;
    if (spr_opt_defaults(table, options, &s->index_options, error) != SPR_OK ||
        spr_opt_defaults(spr_value_int8.options, spr_value_int8.option_count, s->value_options,
                         error) != SPR_OK ||
        spr_opt_defaults(topk->options, topk->option_count, s->options, error) != SPR_OK)
        return false;
    ratio = spr_opt_find(topk->options, topk->option_count, "ratio");
    memcpy(s->options + ratio->offset, &trial->density, sizeof(trial->density));
    s->index_coder = coder;
    s->group = spr_value_int8.group(s->value_options);
    s->k = spr_select_most(topk, s->options, trial->vector->n);
    s->call = select_call(trial, topk, s->options, &s->state);
    if (!hybrid_allocate(trial, s, error))
        return false;
    for (int step = 0; step < 2; step++)
        spr_select_run(&s->call, NULL);
    s->known = s->state;
    return true;
}

/* int8 is off by half a step at most, a group's largest magnitude over 127; groups that are tiny or
 * not finite apart. */
static bool values_come_back(const struct hybrid *s)
{
    const float *value = s->call.value;

    for (size_t begin = 0; begin < s->k; begin += s->group) {
        size_t end = spr_min_size(s->k, begin + s->group);
        float largest = 0, off = 0;
        bool finite = true;
        for (size_t i = begin; i < end; i++) {
            finite &= isfinite(value[i]) != 0;
            largest = fmaxf(largest, fabsf(value[i]));
            off = fmaxf(off, fabsf(value[i] - s->value_back[i]));
        }
        if (finite && largest >= SPR_VALUES_TINY && !(off <= largest * (0.5001f / 127)))
            return false;
    }
    return true;
}

static bool part_comes_back(const struct hybrid *s, size_t n, const struct part *part,
                            const char **why)
{
    size_t count = part->end - part->begin;
    uint32_t *back = s->index_back + part->begin;

    *why = "other indices";
    return spr_index_decode(part->index_image, part->index_bytes, n, count, back, why) == SPR_OK &&
           memcmp(s->call.index + part->begin, back, count * sizeof(*back)) == 0;
}

/* Selection is checked by itself (op_select.c); here, that the list comes back. */
static bool hybrid_check(struct trial *trial, struct spr_error *error)
{
    struct hybrid *s = trial->state;
    size_t n = trial->vector->n, bytes = spr_value_int8.bound(s->value_options, s->k);
    const char *why;

    if (spr_value_int8.check(s->value_options, s->value_image, bytes, s->k, &why) != SPR_OK)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "values: %s", why) == SPR_OK;
    spr_value_int8.decode(s->value_options, s->value_image, s->k, SPR_DECODE_SET, s->value_back);
    for (int i = 0; i < trial->slices; i++) {
        if (!part_comes_back(s, n, &s->part[i], &why))
            return spr_error_set(error, SPR_ERR_INVALID, -1, "the list does not come back: %s",
                                 why) == SPR_OK;
        bytes += s->part[i].index_bytes;
    }
    trial->bits = 8 * (double)bytes / (double)n;
    for (size_t i = 0; i < s->k; i++)
        if (trial->vector->x[s->call.index[i]] != s->call.value[i] && !isnan(s->call.value[i]))
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
                                .sliced = true,
                                .what = coders[i],
                                .setup = hybrid_setup,
                                .prepare = hybrid_prepare,
                                .next = hybrid_next,
                                .run = hybrid_run,
                                .check = hybrid_check,
                                .close = no_close};
        operations_add(list, &row, "image topk+int8+%s", coders[i]);
    }
}
