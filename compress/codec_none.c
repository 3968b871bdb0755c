/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "none": everything is sent. With a value coder the residual is what the coder lost
 * (error feedback for quantisers: Seide et al. 2014, "1-bit stochastic gradient descent"), and
 * after an abort the accumulated values, which the vector of the step holds meanwhile. Whoever
 * codes these writes the residual, or the commit does. Without a coder it is zero, but after an
 * abort. Where the ranks of a host sum their vectors before they are coded, too, but for what the
 * rank that coded a sum has lost of it (codec_sums.c).
 *
 * With feedback=momentum the velocity is what is sent, so that the coder sees a smoother vector and
 * the optimizer does not amplify what it loses. A velocity is never cleared, and so needs no
 * undoing: what an abort leaves in the residual has it in already.
 *
 * A coder that rounds at random has no error feedback, as in its paper: what it loses averages out,
 * and as it may lose more than there is (qsgd with few levels, terngrad), that would come back ever
 * larger. A dropped step is lost then.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/util.h"
#include "compress/kernels/kernels.h"

/* Workspace: the vector of a step, by slot: coded values before they are coded, others after. */
static size_t none_workspace(const spr_codec *codec) { return 2 * codec->elements * sizeof(float); }

static void none_init(spr_codec *codec) { (void)codec; }

static float *vector_of(const spr_codec *codec, int slot)
{
    return (float *)codec->workspace + (size_t)slot * codec->elements;
}

/* What the coder loses stays in the residual, and so does a step that is dropped. */
static bool has_feedback(const spr_codec *codec)
{
    return spr_codec_feedback(codec)->rule != SPR_FEEDBACK_OFF &&
           (spr_codec_is_lossless(codec) || !(codec->traits & SPR_VALUES_RANDOM));
}

static bool conserves(const spr_codec *codec)
{
    return has_feedback(codec) && spr_codec_feedback(codec)->rule == SPR_FEEDBACK_PLAIN;
}

bool spr_codec_may_sum_first(const spr_codec *codec)
{
    return codec->selection->steps == &spr_codec_whole && codec->vtype == SPR_V_CODED &&
           has_feedback(codec);
}

void spr_codec_sums_first(spr_codec *codec) { codec->sent_as[codec->slot].exact = true; }

static void clear_residual(spr_codec *codec)
{
    if (!codec->residual_zero)
        memset(codec->residual, 0, codec->elements * sizeof(float));
    codec->residual_zero = true;
}

/* What halves have lost is what stays of the residual, which they were made of. They are encoded
 * once more, without loss. */
static void leave_rest(spr_codec *codec)
{
    enum { BATCH = 512 };
    const float *vector = vector_of(codec, codec->slot);
    struct spr_draw none = {{0}, 0};
    float image[BATCH];

    for (size_t i = 0; i < codec->elements; i += BATCH) {
        size_t m = spr_min_size(BATCH, codec->elements - i);

        codec->coder->encode(codec->coder_options, none, vector + i, m, image);
        codec->coder->decode(codec->coder_options, image, m, SPR_DECODE_TAKE, codec->residual + i);
    }
}

/* What the step of the slot sends leaves the residual, or comes back. */
static void settle(spr_codec *codec, enum spr_decode how)
{
    const float *vector = vector_of(codec, codec->slot);

    if (codec->vtype == SPR_V_CODED && !codec->sent_as[codec->slot].exact) {
        spr_codec_quantise(codec, codec->slot, NULL, vector, codec->elements, how, codec->residual);
        return;
    }
    for (size_t i = 0; i < codec->elements; i++)
        codec->residual[i] = how == SPR_DECODE_TAKE ? spr_codec_rest(codec->residual[i], vector[i])
                                                    : codec->residual[i] + vector[i];
}

/* What is not finite would stay in the velocity for ever. */
static void stop_not_finite(const float *residual, float *velocity, size_t n)
{
    if (spr_all_finite(residual, n))
        return;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(residual[i]))
            velocity[i] = 0;
}

/* sum = residual + gradient, by the rule of the feedback; the residual is left as it is, or it is
 * that sum, too. Copied when there is nothing to add to: 0 + -0 would lose a sign. */
static void accumulate(spr_codec *codec, const float *gradient, float *sum)
{
    enum { BATCH = 1024 }; /* of four arrays, in L1 */
    struct spr_feedback f = spr_codec_feedback_of(codec, gradient);
    size_t n = codec->elements;

    if (spr_feedback_is_sum(&f)) {
        if (codec->residual_zero)
            memcpy(sum, gradient, n * sizeof(float));
        else
            spr_kernels()->sum(sum, codec->residual, gradient, n);
        return;
    }
    if (!f.velocity && sum != codec->residual) {
        for (size_t i = 0; i < n; i += BATCH)
            spr_feedback_peek(&f, i, spr_min_size(BATCH, n - i), sum + i);
        return;
    }
    for (size_t i = 0; i < n; i += BATCH) {
        size_t m = spr_min_size(BATCH, n - i);

        spr_feedback_absorb(&f, i, m);
        if (f.velocity)
            stop_not_finite(codec->residual + i, f.velocity + i, m);
        if (sum != codec->residual)
            memcpy(sum + i, codec->residual + i, m * sizeof(float));
    }
    codec->residual_zero = false;
}

static void fill_step(const spr_codec *codec, struct spr_codec_step *step)
{
    bool coded = codec->vtype == SPR_V_CODED && has_feedback(codec);

    step->dense = true;
    step->vector = vector_of(codec, codec->slot);
    /* Beneath a later step, the residual has that in it, too. */
    if (coded && codec->sent_as[codec->slot].place.leaves_rest && !codec->beneath)
        step->rest = codec->residual;
}

static void none_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    float *vector = vector_of(codec, codec->slot);
    size_t n = codec->elements;

    if (!has_feedback(codec) && !codec->velocity) {
        if (codec->vtype == SPR_V_FP16 || codec->vtype == SPR_V_BF16)
            spr_codec_quantise(codec, codec->slot, NULL, gradient, n, SPR_DECODE_SET, vector);
        else
            memcpy(vector, gradient, n * sizeof(float));
    } else if (!has_feedback(codec) || spr_codec_is_lossless(codec)) {
        accumulate(codec, gradient, vector);
        clear_residual(codec);
    } else if (codec->vtype == SPR_V_CODED) {
        accumulate(codec, gradient, vector);
    } else {
        accumulate(codec, gradient, codec->residual);
        codec->residual_zero = false;
        spr_codec_quantise(codec, codec->slot, NULL, codec->residual, n, SPR_DECODE_SET, vector);
    }
    fill_step(codec, step);
}

static void none_replay(spr_codec *codec, struct spr_codec_step *step)
{
    if (has_feedback(codec) && spr_codec_is_lossless(codec)) {
        if (codec->beneath)
            settle(codec, SPR_DECODE_TAKE);
        else
            clear_residual(codec);
    }
    fill_step(codec, step);
}

/* All of what was sent is back in the residual. */
static void restore(spr_codec *codec)
{
    memcpy(codec->residual, vector_of(codec, codec->slot), codec->elements * sizeof(float));
    codec->residual_zero = false;
}

static void none_commit(spr_codec *codec)
{
    bool coded = codec->vtype == SPR_V_CODED;

    if (!has_feedback(codec) || spr_codec_is_lossless(codec))
        return;
    if (codec->sent_as[codec->slot].exact && !codec->beneath) {
        clear_residual(codec);
        return;
    }
    codec->residual_zero = false;
    if (coded && !codec->beneath) {
        if (codec->sent_as[codec->slot].place.leaves_rest)
            return;
        restore(codec);
    }
    if (coded || codec->beneath)
        settle(codec, SPR_DECODE_TAKE);
    else
        leave_rest(codec);
}

/* With fp16 and bf16 this gives the accumulated values to the bit, but for what was clamped and is
 * larger than 2^29; with coded values, too, unless a later step is in the residual. */
static void none_revoke(spr_codec *codec)
{
    if (!has_feedback(codec))
        return;
    if (codec->vtype == SPR_V_CODED ? !codec->beneath : codec->residual_zero)
        restore(codec);
    else
        settle(codec, SPR_DECODE_ADD);
    codec->residual_zero = false;
}

/* Halves have not left the residual before the commit. */
static void none_abort(spr_codec *codec)
{
    if (spr_codec_is_lossless(codec))
        none_revoke(codec);
    else if (codec->vtype == SPR_V_CODED && has_feedback(codec) && !codec->beneath)
        restore(codec);
}

const struct spr_codec_steps spr_codec_whole = {
    .workspace = none_workspace,
    .conserves = conserves,
    .init = none_init,
    .begin = none_begin,
    .replay = none_replay,
    .commit = none_commit,
    .abort = none_abort,
    .revoke = none_revoke,
};
