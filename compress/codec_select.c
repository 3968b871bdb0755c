/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selections by any selector (compress/select/) with any rule of error feedback. The number of the
 * step is what random positions and the warm-up go by.
 *
 * A list of indices and values is sent, or, where the positions are the same on all ranks, their
 * values alone, as a vector, whose sum `next` puts where they belong.
 *
 * The values before rounding are kept until the next step is committed, and so are the velocities
 * that were cleared: an abort and a revoke put exactly these back. Where a later step is in the
 * residual by then, what was sent is added, and the velocity is left as that step has made it.
 *
 * With union=bounded most of what is sent may not be sent on, and nobody knows before the sums are
 * there: it stays in the residual until then, and what was sent on is taken out (take_back()). To
 * take out all, and put back the rest, would be a miss for each of that rest: seven eighths, where
 * 8 ranks choose independently.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/select/select.h"

_Static_assert(sizeof(struct spr_feedback_options) <= SPR_SELECT_OPTION_BYTES, "options fit");

/* Entries whose elements are asked for before their turn, each a miss; and that are settled
 * together. */
#define TAKE_BACK_AHEAD 24
#define TAKE_BACK_BATCH 64

/* What a step sends. */
struct list {
    uint32_t *index;
    float *exact;    /* before rounding */
    float *sent;     /* after it; the same array when rounding changes nothing */
    float *velocity; /* what was cleared; NULL: there is none */
    bool *back;      /* with union=bounded: it is in the residual, not sent on or not known to be */
    bool unsettled;  /* ... none is known to be */
    size_t count;
};

/* Workspace: this, then the arrays it points to. */
struct select {
    struct list list[2]; /* by slot */
    float *sum;          /* of the values, over ranks; NULL: lists are sent */
    void *scratch;
};

static bool has_feedback(const spr_codec *codec)
{
    return spr_codec_feedback(codec)->rule != SPR_FEEDBACK_OFF;
}

static bool conserves(const spr_codec *codec)
{
    return spr_codec_feedback(codec)->rule == SPR_FEEDBACK_PLAIN &&
           spr_codec_feedback(codec)->clip == 0;
}

/* Where among the options the ratio is. */
static size_t ratio_at(const spr_codec *codec)
{
    struct spr_opt rows[SPR_CODEC_OPTIONS_MAX];
    size_t count = spr_codec_selection_options(codec->selection, rows);

    return spr_opt_find(rows, count, "ratio")->offset; /* every selection has one */
}

static double select_ratio(const spr_codec *codec)
{
    const struct spr_selector *s = codec->selection->selector;
    double ratio;

    if (!codec->selection->options && s->by_ratio && !s->by_ratio(codec->options))
        return 0;
    memcpy(&ratio, codec->options + ratio_at(codec), sizeof(ratio));
    return ratio;
}

/* Those of the selection with this ratio, or with that of the warm-up at a step. Returns it. 0: it
 * does not go by one. */
static double options_of(const spr_codec *codec, uint64_t step, double ratio,
                         unsigned char *options)
{
    const struct spr_feedback_options *f = spr_codec_feedback(codec);

    memcpy(options, codec->options, SPR_SELECT_OPTION_BYTES);
    if (ratio <= 0)
        return 0;
    if (f->warmup > 0)
        ratio = spr_feedback_warmup(step / (uint64_t)f->warmup, ratio);
    memcpy(options + ratio_at(codec), &ratio, sizeof(ratio));
    return ratio;
}

/* Of a new step, before its warm-up. */
static double ratio_now(const spr_codec *codec)
{
    return codec->ratio > 0 ? codec->ratio : select_ratio(codec);
}

/* Entries of a step at most. */
static size_t most_of(const spr_codec *codec, uint64_t step, double ratio)
{
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];

    ratio = options_of(codec, step, ratio, options);
    return codec->adapt.count > 0
               ? spr_adapt_most(&codec->adapt, ratio)
               : spr_select_most(codec->selection->selector, options, codec->elements);
}

/* The first step has the largest ratio. */
static size_t most_ever(const spr_codec *codec) { return most_of(codec, 0, select_ratio(codec)); }

size_t spr_codec_most_entries(const spr_codec *codec)
{
    return spr_codec_sends_lists(codec) ? most_ever(codec) : 0;
}

static size_t list_bytes(const spr_codec *codec)
{
    return spr_align_up((most_ever(codec) + SPR_SELECT_SLACK) * sizeof(float), 64);
}

static size_t scratch_bytes(const spr_codec *codec, unsigned slices)
{
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    double ratio = options_of(codec, 0, select_ratio(codec), options);

    return codec->adapt.count > 0
               ? spr_codec_adapt_workspace(codec, ratio, slices)
               : spr_select_workspace(codec->selection->selector, options, codec->elements, slices);
}

static size_t select_workspace(const spr_codec *codec)
{
    size_t arrays = 2 * (2u + !spr_codec_is_lossless(codec) + spr_codec_has_velocity(codec) +
                         spr_codec_bounds_union(codec)) +
                    !spr_codec_sends_lists(codec);

    return spr_align_up(sizeof(struct select), 64) + arrays * list_bytes(codec) +
           scratch_bytes(codec, 1);
}

/* Slices for the workers of a step with these options, and the selector's workspace for them: made
 * when it is first needed, and without memory for it the selector has one slice. A step of fewer
 * entries may need more than one before it. */
static unsigned cut(spr_codec *codec, const void *options, void **scratch)
{
    unsigned slices = spr_select_slices(codec->elements, spr_workers_width(codec->workers));
    size_t bytes = 0;

    if (slices > 1 && codec->adapt.count > 0)
        bytes = spr_max_size(scratch_bytes(codec, slices), scratch_bytes(codec, 1));
    else if (slices > 1)
        bytes = spr_select_workspace(codec->selection->selector, options, codec->elements, slices);
    *scratch = ((struct select *)codec->workspace)->scratch;
    if (bytes > codec->sliced_bytes) {
        spr_pages_free(codec->sliced, codec->sliced_bytes);
        codec->sliced = spr_pages_alloc(bytes);
        codec->sliced_bytes = codec->sliced ? bytes : 0;
    }
    if (bytes == 0 || !codec->sliced)
        return 1;
    *scratch = codec->sliced;
    return slices;
}

static void select_init(spr_codec *codec)
{
    struct select *s = codec->workspace;
    char *at = (char *)codec->workspace + spr_align_up(sizeof(*s), 64);
    size_t bytes = list_bytes(codec);

    for (int slot = 0; slot < 2; slot++) {
        struct list *list = &s->list[slot];

        list->index = (uint32_t *)(void *)at;
        at += bytes;
        list->exact = list->sent = (float *)(void *)at;
        at += bytes;
        if (!spr_codec_is_lossless(codec)) {
            list->sent = (float *)(void *)at;
            at += bytes;
        }
        if (spr_codec_has_velocity(codec)) {
            list->velocity = (float *)(void *)at;
            at += bytes;
        }
        if (spr_codec_bounds_union(codec)) {
            list->back = (bool *)at;
            at += bytes;
        }
    }
    if (!spr_codec_sends_lists(codec)) {
        s->sum = (float *)(void *)at;
        at += bytes;
    }
    s->scratch = at;
}

static struct list *list_of(const spr_codec *codec)
{
    return &((struct select *)codec->workspace)->list[codec->slot];
}

/* Does all of it stay in the residual for now? */
static bool is_settled_later(const spr_codec *codec, const struct spr_codec_step *step)
{
    return step->bound_union && has_feedback(codec);
}

/* What rounding lost goes back, where selection has left zeros and not put it there itself. */
static void keep_rest(spr_codec *codec)
{
    const struct list *list = list_of(codec);

    for (size_t i = 0; i < list->count; i++) {
        float *r = &codec->residual[list->index[i]];
        *r = spr_codec_rest(codec->beneath ? *r : list->exact[i], list->sent[i]);
    }
}

/* Without masking, what is not finite would stay for ever. */
static void clear_bad_velocity(const struct spr_feedback *f, const struct list *list)
{
    for (size_t i = 0; i < list->count && f->velocity; i++)
        if (!isfinite(list->exact[i]))
            f->velocity[list->index[i]] = 0;
}

static void fill_step(const spr_codec *codec, struct spr_codec_step *step)
{
    struct list *list = list_of(codec);

    list->unsettled = is_settled_later(codec, step);
    if (list->back)
        memset(list->back, list->unsettled, list->count * sizeof(*list->back));
    step->index = list->index;
    step->value = step->vector = codec->vtype == SPR_V_CODED ? list->exact : list->sent;
    step->count = list->count;
    step->dense = !spr_codec_sends_lists(codec);
    step->sum = ((const struct select *)codec->workspace)->sum;
}

bool spr_codec_last_list(const spr_codec *codec, const uint32_t **index, const float **value,
                         size_t *count)
{
    const struct list *list;

    if (!spr_codec_sends_lists(codec) || codec->committed < 0)
        return false;
    list = &((const struct select *)codec->workspace)->list[codec->committed];
    *index = list->index;
    *value = list->exact;
    *count = list->count;
    return true;
}

static void quantise(const spr_codec *codec)
{
    const struct list *list = list_of(codec);

    spr_codec_quantise(codec, codec->slot, spr_codec_sends_lists(codec) ? list->index : NULL,
                       list->exact, list->count, SPR_DECODE_SET, list->sent);
}

/* What a coder that rounds each value by itself leaves of them. */
static void leave_rest(const struct spr_value_coder *coder, const float *value, size_t n,
                       float *rest)
{
    _Alignas(4) uint16_t image[SPR_SELECT_SLICE_UNIT];

    memcpy(rest, value, n * sizeof(*rest));
    (void)coder->encode(NULL, (struct spr_draw){0}, value, n, image);
    (void)coder->decode(NULL, image, n, SPR_DECODE_TAKE, rest);
}

static void leave_all(const float *value, size_t n, float *rest)
{
    memcpy(rest, value, n * sizeof(*rest));
}

static void leave_fp16(const float *value, size_t n, float *rest)
{
    leave_rest(&spr_value_fp16, value, n, rest);
}

static void leave_bf16(const float *value, size_t n, float *rest)
{
    leave_rest(&spr_value_bf16, value, n, rest);
}

static void select_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    struct list *list = list_of(codec);
    uint64_t number = codec->sent_as[codec->slot].step;
    bool feedback = has_feedback(codec), later = is_settled_later(codec, step);
    struct spr_feedback f = spr_codec_feedback_of(codec, gradient);
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    struct spr_select s = {
        .selector = codec->selection->selector,
        .options = options,
        .x = gradient,
        .feedback = feedback ? &f : NULL,
        .n = codec->elements,
        .seed = codec->hash,
        .step = number,
        .state = &codec->select,
        .index = list->index,
        .value = list->exact,
        .velocity = list->velocity,
        .leave = later                        ? leave_all
                 : codec->vtype == SPR_V_FP16 ? leave_fp16
                 : codec->vtype == SPR_V_BF16 ? leave_bf16
                                              : NULL,
    };

    double ratio = codec->target = options_of(codec, number, ratio_now(codec), options);
    s.slices = cut(codec, options, &s.workspace);
    if (codec->adapt.count > 0)
        spr_codec_adapt_run(codec, &s, ratio);
    else
        spr_select_run(&s, codec->workers);
    list->count = s.count;
    if (!spr_codec_is_lossless(codec))
        quantise(codec);
    if (feedback) {
        codec->residual_zero = false;
        clear_bad_velocity(&f, list);
        if (later && !s.left)
            spr_feedback_put_back(&f, list->index, list->exact, NULL, list->count);
        else if (!later && !spr_codec_is_lossless(codec) && !s.left)
            keep_rest(codec);
    }
    fill_step(codec, step);
}

static void select_replay(spr_codec *codec, struct spr_codec_step *step)
{
    const struct list *list = list_of(codec);

    if (codec->vtype == SPR_V_CODED)
        quantise(codec); /* the place may be another */
    if (has_feedback(codec)) {
        struct spr_feedback f = spr_codec_feedback_of(codec, NULL);
        bool later = is_settled_later(codec, step);

        if (!codec->beneath) {
            spr_feedback_take(&f, list->index, list->count, NULL);
            clear_bad_velocity(&f, list);
        }
        if (!later)
            keep_rest(codec);
        else if (!codec->beneath)
            spr_feedback_put_back(&f, list->index, list->exact, NULL, list->count);
    }
    fill_step(codec, step);
}

/* Nothing is taken of what is finite where others in its group have made it a NaN. */
static bool was_taken(const struct list *list, size_t i)
{
    return !isnan(list->sent[i]) || !isfinite(list->exact[i]);
}

/* What was taken out for the step; of one that is committed, too. */
static void put_back(spr_codec *codec)
{
    struct list *list = list_of(codec);
    struct spr_feedback f = spr_codec_feedback_of(codec, NULL);

    list->unsettled = false;
    if (!has_feedback(codec))
        return;
    if (!codec->beneath)
        spr_feedback_put_back(&f, list->index, list->exact, list->velocity, list->count);
    else
        for (size_t i = 0; i < list->count; i++)
            if ((!list->back || !list->back[i]) && was_taken(list, i))
                codec->residual[list->index[i]] += list->sent[i];
}

/* Which of the entries [first, end) were sent on? What is not finite was, whatever others were kept
 * instead; result NULL: all were. Returns how many. */
static size_t find_sent_on(const struct list *list, const float *result, size_t first, size_t end,
                           size_t *sent_on)
{
    size_t n = 0;

    for (size_t i = first; i < end; i++) {
        if (result)
            __builtin_prefetch(
                &result[list->index[spr_min_size(i + TAKE_BACK_AHEAD, list->count - 1)]]);
        sent_on[n] = i;
        n += !result || spr_magnitude(result[list->index[i]]) != 0 || !isfinite(list->exact[i]);
    }
    return n;
}

/* What was not sent on stays, and was selected in vain: its velocity is put back. */
static void unmask(const struct list *list, float *velocity, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (list->back[i])
            velocity[list->index[i]] = list->velocity[i];
}

static void take_back(spr_codec *codec, const float *result)
{
    struct list *list = list_of(codec);
    size_t sent_on[TAKE_BACK_BATCH];

    for (size_t at = 0, end; list->unsettled && at < list->count; at = end) {
        end = spr_min_size(at + TAKE_BACK_BATCH, list->count);
        size_t n = find_sent_on(list, result, at, end, sent_on);

        for (size_t j = 0; j < n; j++)
            __builtin_prefetch(&codec->residual[list->index[sent_on[j]]], 1);
        for (size_t j = 0; j < n; j++) {
            size_t i = sent_on[j];
            float *r = &codec->residual[list->index[i]];

            *r = spr_codec_rest(codec->beneath ? *r : list->exact[i], list->sent[i]);
            list->back[i] = false;
        }
        if (list->velocity && !codec->beneath)
            unmask(list, codec->velocity, at, end);
    }
    list->unsettled = false;
}

/* Of sums that nobody has bounded all were sent on. */
static void select_commit(spr_codec *codec) { take_back(codec, NULL); }

/* Where the positions are known, so is how many there are. */
static size_t select_vector(const spr_codec *codec)
{
    if (spr_codec_sends_lists(codec))
        return codec->elements;
    return codec->phase == SPR_CODEC_ABSORBED ? list_of(codec)->count
                                              : most_of(codec, codec->steps, ratio_now(codec));
}

static bool select_next(spr_codec *codec, float *gradient, struct spr_codec_step *step)
{
    const struct list *list = list_of(codec);
    const float *sum = ((const struct select *)codec->workspace)->sum;

    (void)step;
    memset(gradient, 0, codec->elements * sizeof(*gradient));
    for (size_t i = 0; i < list->count; i++)
        gradient[list->index[i]] = sum[i];
    return false;
}

const struct spr_codec_steps spr_codec_select = {
    .workspace = select_workspace,
    .conserves = conserves,
    .init = select_init,
    .begin = select_begin,
    .replay = select_replay,
    .commit = select_commit,
    .abort = put_back,
    .revoke = put_back,
    .take_back = take_back,
    .vector = select_vector,
    .next = select_next,
    .ratio = select_ratio,
};
