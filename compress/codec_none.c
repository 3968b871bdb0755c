/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "none": everything is sent. With a rounding the residual holds the accumulated values
 * until commit, and afterwards what rounding lost (error feedback for quantisers: Seide et al.
 * 2014, "1-bit stochastic gradient descent"). Without one it is zero, but after an abort.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "compress/kernels/kernels.h"

/* Workspace: the vector that is sent, by slot. */
static size_t none_workspace(const spr_codec *codec) { return 2 * codec->elements * sizeof(float); }

static void none_init(spr_codec *codec) { (void)codec; }

static float *sent_by(const spr_codec *codec)
{
    return (float *)codec->workspace + (size_t)codec->slot * codec->elements;
}

static void clear_residual(spr_codec *codec)
{
    if (!codec->residual_zero)
        memset(codec->residual, 0, codec->elements * sizeof(float));
    codec->residual_zero = true;
}

/* What was sent leaves the residual. */
static void subtract(spr_codec *codec)
{
    const float *sent = sent_by(codec);

    for (size_t i = 0; i < codec->elements; i++)
        codec->residual[i] = spr_codec_rest(codec->residual[i], sent[i]);
}

static void send_it(const spr_codec *codec, struct spr_codec_step *step)
{
    step->dense = true;
    step->vector = sent_by(codec);
}

static void none_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    float *sent = sent_by(codec), *sum = codec->rounding->lossless ? sent : codec->residual;
    size_t bytes = codec->elements * sizeof(float);

    /* Copied when there is nothing to add to: 0 + -0 would lose a sign. */
    if (codec->residual_zero) {
        memcpy(sum, gradient, bytes);
    } else {
        spr_kernels()->accumulate(codec->residual, gradient, codec->elements);
        if (sum != codec->residual)
            memcpy(sum, codec->residual, bytes);
    }
    if (codec->rounding->lossless) {
        clear_residual(codec);
    } else {
        codec->residual_zero = false;
        codec->rounding->round(sum, sent, codec->elements);
    }
    send_it(codec, step);
}

static void none_replay(spr_codec *codec, struct spr_codec_step *step)
{
    if (codec->rounding->lossless && codec->beneath)
        subtract(codec);
    else if (codec->rounding->lossless)
        clear_residual(codec);
    send_it(codec, step);
}

static void none_commit(spr_codec *codec)
{
    if (!codec->rounding->lossless)
        subtract(codec);
}

/* With a rounding this gives the accumulated values to the bit, but for what was clamped and is
 * larger than 2^29. */
static void none_revoke(spr_codec *codec)
{
    if (codec->residual_zero)
        memcpy(codec->residual, sent_by(codec), codec->elements * sizeof(float));
    else
        spr_kernels()->accumulate(codec->residual, sent_by(codec), codec->elements);
    codec->residual_zero = false;
}

static void none_abort(spr_codec *codec)
{
    if (codec->rounding->lossless)
        none_revoke(codec);
}

const struct spr_codec_selection spr_codec_none = {
    .name = "none",
    .doc = "every element, as a dense vector",
    .workspace = none_workspace,
    .init = none_init,
    .begin = none_begin,
    .replay = none_replay,
    .commit = none_commit,
    .abort = none_abort,
    .revoke = none_revoke,
};
