/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coders: the positions of the largest elements are encoded, or decoded and validated.
 */
#include "tools/codec/operations.h"

#include "base/cpu.h"
#include "compress/indices/indices.h"
#include "compress/select/topk.h"

struct index {
    const struct spr_index_coder *coder;
    struct spr_index_options options;
    size_t k, size;
    uint32_t *list, *decoded;
    void *bytes, *scalar;
    const char *why;
};

static bool select_list(struct trial *trial, struct index *s, struct spr_error *error)
{
    const struct vector *v = trial->vector;
    struct spr_topk_hint hint = {0};
    float *value = trial_pages(trial, (s->k + 16) * sizeof(*value), error);
    void *scratch = trial_pages(trial, spr_topk_scratch(v->n, s->k), error);

    if (!value || !scratch)
        return false;
    spr_topk_select(v->x, v->n, s->k, &hint, s->list, value, scratch);
    return true;
}

static bool index_setup(struct trial *trial, struct spr_error *error)
{
    struct index *s = trial_pages(trial, sizeof(*s), error);
    size_t n = trial->vector->n, options;

    if (!s)
        return false;
    trial->state = s;
    s->coder = trial->operation->what;
    s->k = spr_select_count(trial->density, n);
    const struct spr_opt *table = spr_index_coder_options(s->coder, &options);
    size_t bound = spr_index_bound(s->coder, n, s->k), list = (s->k + SPR_INDEX_SLACK) * 4;
    if (!trial_options(trial, table, options, &s->options, error) ||
        !(s->list = trial_pages(trial, list + 64, error)) ||
        !(s->decoded = trial_pages(trial, list, error)) ||
        !(s->bytes = trial_pages(trial, bound, error)) ||
        !(s->scalar = trial_pages(trial, bound, error)) || !select_list(trial, s, error))
        return false;
    s->size = spr_index_encode(s->coder, &s->options, s->list, s->k, n, s->bytes);
    return true;
}

static void encode_run(struct trial *trial, int slice, int slices)
{
    struct index *s = trial->state;

    (void)slice;
    (void)slices;
    s->size = spr_index_encode(s->coder, &s->options, s->list, s->k, trial->vector->n, s->bytes);
}

static void decode_run(struct trial *trial, int slice, int slices)
{
    struct index *s = trial->state;

    (void)slice;
    (void)slices;
    s->why = NULL;
    spr_index_decode(s->bytes, s->size, trial->vector->n, s->k, s->decoded, &s->why);
}

/* The list comes back, and scalar code writes the same bytes. */
static bool index_check(struct trial *trial, struct spr_error *error)
{
    struct index *s = trial->state;
    size_t n = trial->vector->n;

    if (trial->operation->run == encode_run)
        decode_run(trial, 0, 1);
    trial->bits = 8 * (double)s->size / (double)s->k;
    trial->items = (double)s->k;
    if (s->why || memcmp(s->list, s->decoded, s->k * sizeof(*s->list)) != 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the list does not come back: %s",
                             s->why ? s->why : "wrong positions") == SPR_OK;
    spr_cpu_override(0);
    size_t size = spr_index_encode(s->coder, &s->options, s->list, s->k, n, s->scalar);
    spr_cpu_override(UINT32_MAX);
    if (size != s->size || memcmp(s->bytes, s->scalar, size) != 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "scalar code writes other bytes") ==
               SPR_OK;
    return true;
}

void op_index_add(struct operations *list)
{
    struct operation row = {.reference = REFERENCE_READ,
                            .by_density = true,
                            .setup = index_setup,
                            .prepare = no_prepare,
                            .next = one_phase,
                            .check = index_check,
                            .close = no_close};
    size_t options;

    for (size_t i = 0; spr_index_coder_at(i); i++) {
        const struct spr_index_coder *coder = row.what = spr_index_coder_at(i);
        const struct spr_opt *table = spr_index_coder_options(coder, &options);
        const char *name = spr_index_coder_name(coder);
        row.run = encode_run;
        operations_add_variants(list, &row, "encode indices", name, table, options);
        row.run = decode_run;
        operations_add_variants(list, &row, "decode indices", name, table, options);
    }
}
