/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "topk": the k elements of largest magnitude, k = ceil(ratio * elements) over the whole
 * vector, with error feedback (Stich et al. 2018, "Sparsified SGD with memory"; Aji and Heafield
 * 2017, "Sparse communication for distributed gradient descent").
 *
 * The values before rounding are kept until the next step is committed: an abort and a revoke put
 * exactly these back.
 */
#include "compress/codec_internal.h"

#include "base/util.h"
#include "compress/topk.h"

struct topk_options {
    double ratio;
    bool feedback;
};

static const struct spr_opt topk_table[] = {
    {
        .name = "ratio",
        .default_value = "0.01",
        .doc = "part of the elements that is sent",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct topk_options, ratio),
        .min = 1e-9,
        .max = 1,
    },
    {
        .name = "feedback",
        .default_value = "on",
        .doc = "keep what is not sent and add it to the next gradient",
        .type = SPR_OPT_BOOL,
        .offset = offsetof(struct topk_options, feedback),
    },
};
_Static_assert(sizeof(struct topk_options) <= SPR_CODEC_OPTION_BYTES, "options fit");

/* What a step sends. */
struct topk_list {
    uint32_t *index;
    float *exact; /* before rounding */
    float *sent;  /* after it; the same array when rounding changes nothing */
};

/* Workspace: this, then the arrays it points to. */
struct topk_state {
    size_t k;
    struct spr_topk_hint hint;
    struct topk_list list[2]; /* by slot */
    void *scratch;
};

static const struct topk_options *options_of(const spr_codec *codec)
{
    return (const struct topk_options *)(const void *)codec->options;
}

static size_t list_bytes(size_t k) { return spr_align_up((k + 16) * sizeof(float), 64); }

static size_t topk_workspace(const spr_codec *codec)
{
    size_t k = spr_topk_count(options_of(codec)->ratio, codec->elements);
    size_t arrays = codec->rounding->lossless ? 2 : 3;

    return spr_align_up(sizeof(struct topk_state), 64) + 2 * arrays * list_bytes(k) +
           spr_topk_scratch(codec->elements, k);
}

static void topk_init(spr_codec *codec)
{
    struct topk_state *s = codec->workspace;
    char *at = (char *)codec->workspace + spr_align_up(sizeof(*s), 64);

    s->k = spr_topk_count(options_of(codec)->ratio, codec->elements);
    for (int slot = 0; slot < 2; slot++) {
        struct topk_list *list = &s->list[slot];
        list->index = (uint32_t *)(void *)at;
        at += list_bytes(s->k);
        list->exact = list->sent = (float *)(void *)at;
        at += list_bytes(s->k);
        if (!codec->rounding->lossless) {
            list->sent = (float *)(void *)at;
            at += list_bytes(s->k);
        }
    }
    s->scratch = at;
}

static const struct topk_list *list_of(const spr_codec *codec)
{
    const struct topk_state *s = codec->workspace;

    return &s->list[codec->slot];
}

/* Take the list out of the residual. Selection has left zeros there. */
static void take_out(spr_codec *codec)
{
    const struct topk_state *s = codec->workspace;
    const struct topk_list *list = list_of(codec);

    for (size_t i = 0; i < s->k; i++) {
        float *r = &codec->residual[list->index[i]];
        *r = spr_codec_rest(codec->beneath ? *r : list->exact[i], list->sent[i]);
    }
}

static void fill_step(const spr_codec *codec, struct spr_codec_step *step)
{
    const struct topk_state *s = codec->workspace;
    const struct topk_list *list = list_of(codec);

    step->index = list->index;
    step->value = list->sent;
    step->count = s->k;
}

static void topk_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    struct topk_state *s = codec->workspace;
    const struct topk_list *list = list_of(codec);
    bool feedback = options_of(codec)->feedback;

    if (feedback) {
        codec->residual_zero = false;
        spr_topk_feedback(codec->residual, gradient, codec->elements, s->k, &s->hint, list->index,
                          list->exact, s->scratch);
    } else {
        spr_topk_select(gradient, codec->elements, s->k, &s->hint, list->index, list->exact,
                        s->scratch);
    }
    if (!codec->rounding->lossless) {
        codec->rounding->round(list->exact, list->sent, s->k);
        if (feedback)
            take_out(codec);
    }
    fill_step(codec, step);
}

static void topk_replay(spr_codec *codec, struct spr_codec_step *step)
{
    if (options_of(codec)->feedback)
        take_out(codec);
    fill_step(codec, step);
}

static void topk_commit(spr_codec *codec) { (void)codec; }

/* Of a step that is committed, too: its list has been out of the residual since it began. */
static void put_back(spr_codec *codec)
{
    const struct topk_state *s = codec->workspace;
    const struct topk_list *list = list_of(codec);

    for (size_t i = 0; i < s->k && options_of(codec)->feedback; i++) {
        float *r = &codec->residual[list->index[i]];
        *r = codec->beneath ? *r + list->sent[i] : list->exact[i];
    }
}

const struct spr_codec_selection spr_codec_topk = {
    .name = "topk",
    .doc = "the elements of largest magnitude, exactly; of equal ones those with the lower index",
    .options = topk_table,
    .option_count = SPR_ARRAY_LEN(topk_table),
    .option_bytes = sizeof(struct topk_options),
    .workspace = topk_workspace,
    .init = topk_init,
    .begin = topk_begin,
    .replay = topk_replay,
    .commit = topk_commit,
    .abort = put_back,
    .revoke = put_back,
};
