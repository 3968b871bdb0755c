/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "adaptive": exact top-k of each parameter for itself, with as many entries as
 * compress/adapt.h has decided.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "compress/select/selectors.h"

const struct spr_opt spr_codec_adapt_table[SPR_CODEC_ADAPT_OPTIONS] = {
    SPR_OPT_RATIO_ROW(struct spr_adapt_options, "0.01",
                      "part of all elements that is sent at most, each parameter its share"),
    {
        .name = "calm",
        .default_value = "1",
        .doc = "the same outside of critical phases, in which norms of gradients change by half",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct spr_adapt_options, calm),
        .min = 1e-9,
        .max = 1,
    },
    {
        .name = "error",
        .default_value = "0",
        .doc = "relative error of a parameter below which no more of it is sent",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct spr_adapt_options, error),
        .min = 0,
        .max = 1,
    },
    {
        .name = "every",
        .default_value = "16",
        .doc = "steps from one decision to the next",
        .type = SPR_OPT_INT,
        .offset = offsetof(struct spr_adapt_options, every),
        .min = 1,
        .max = 1e9,
    },
};

spr_status spr_codec_adapt_open(spr_codec *codec)
{
    if (codec->selection->options != spr_codec_adapt_table)
        return SPR_OK;
    codec->adapt.parts = spr_calloc(codec->parameter_count, sizeof(*codec->adapt.parts));
    if (!codec->adapt.parts)
        return SPR_ERR_NOMEM;
    codec->adapt.count = codec->parameter_count;
    for (size_t i = 0; i < codec->parameter_count; i++) {
        const struct spr_codec_parameter *p = &codec->parameters[i];
        codec->adapt.parts[p->place] =
            (struct spr_adapt_part){.offset = (size_t)p->offset, .elements = (size_t)p->elements};
    }
    return SPR_OK;
}

void spr_codec_adapt_close(spr_codec *codec) { spr_free(codec->adapt.parts); }

/* Options of top-k, of which the count is set for each part. */
struct topk {
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    size_t *count;
};

static void topk_init(struct topk *t)
{
    const struct spr_selector *topk = &spr_selector_topk;
    const struct spr_opt *count = spr_opt_find(topk->options, topk->option_count, "count");

    memset(t->options, 0, sizeof(t->options)); /* it has fields that are no options */
    spr_opt_defaults(topk->options, topk->option_count, t->options, NULL);
    t->count = (size_t *)(void *)(t->options + count->offset);
}

/* Slices of a part, of those that the whole vector has. */
static unsigned slices_of(size_t n, unsigned slices)
{
    return (unsigned)spr_max_size(1, spr_min_size(n / SPR_SELECT_SLICE_WORTH, slices));
}

size_t spr_codec_adapt_workspace(const spr_codec *codec, double ratio, unsigned slices)
{
    size_t most = spr_adapt_most(&codec->adapt, ratio), bytes = 0;
    struct topk topk;

    topk_init(&topk);
    for (size_t i = 0; i < codec->adapt.count; i++) {
        size_t n = codec->adapt.parts[i].elements;

        *topk.count = spr_max_size(1, spr_min_size(most, n));
        bytes = spr_max_size(
            bytes, spr_select_workspace(&spr_selector_topk, topk.options, n, slices_of(n, slices)));
    }
    return bytes;
}

/* Another ratio, by schedule, warm-up or a state of another codec, is another budget. */
static void decide(spr_codec *codec, const struct spr_select *s, double ratio)
{
    struct spr_adapt_options o = *(const struct spr_adapt_options *)(const void *)codec->options;
    struct spr_adapt *a = &codec->adapt;

    if (s->step % (uint64_t)o.every != 0 && !a->again && spr_adapt_is_for(a, ratio))
        return;
    o.ratio = ratio;
    spr_adapt_look(a, s->feedback, s->x, s->seed, s->step);
    spr_adapt_decide(a, &o);
    spr_debug(SPR_SUB_CODEC, "codec %s, step %llu: a relative error of %.4g for each parameter",
              codec->spec, (unsigned long long)s->step, a->error);
}

/* Shift a call to one part, behind the entries of those before. */
static struct spr_select of_part(const struct spr_select *all, struct spr_adapt_part *p,
                                 struct spr_feedback *f)
{
    struct spr_select s = *all;

    s.x += p->offset;
    s.n = p->elements;
    s.state = &p->select;
    s.leave = NULL; /* it would have to be done for all parts */
    s.index += all->count;
    s.value += all->count;
    if (s.velocity)
        s.velocity += all->count;
    if (!s.feedback)
        return s;
    *f = *s.feedback;
    f->residual += p->offset;
    f->gradient += p->offset;
    if (f->velocity)
        f->velocity += p->offset;
    s.feedback = f;
    return s;
}

void spr_codec_adapt_run(spr_codec *codec, struct spr_select *all, double ratio)
{
    struct spr_adapt *a = &codec->adapt;
    size_t left = spr_adapt_most(a, ratio), behind = 0, room = codec->sliced_bytes;
    struct topk topk;

    decide(codec, all, ratio);
    for (size_t i = 0; i < a->count; i++)
        behind += a->parts[i].elements > 0;
    topk_init(&topk);
    all->options = topk.options;
    all->count = 0;
    for (size_t i = 0; i < a->count; i++) {
        struct spr_adapt_part *p = &a->parts[i];
        struct spr_feedback f;

        if (p->elements == 0)
            continue;
        *topk.count = spr_adapt_entries(p, ratio, left, --behind);
        struct spr_select s = of_part(all, p, &f);
        s.slices = slices_of(s.n, all->slices);
        /* Slices may need more for fewer entries. */
        if (s.slices > 1 && spr_select_workspace(s.selector, s.options, s.n, s.slices) > room)
            s.slices = 1;
        spr_select_run(&s, codec->workers);
        for (size_t j = 0; j < s.count; j++)
            s.index[j] += (uint32_t)p->offset;
        all->count += s.count;
        left -= s.count;
    }
}
