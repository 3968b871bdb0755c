/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "none": everything is sent. The residual holds the accumulated values until commit, so
 * an abort has nothing to put back. With a rounding the residual afterwards is what rounding lost
 * (error feedback for quantisers: Seide et al. 2014, "1-bit stochastic gradient descent").
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "compress/kernels/kernels.h"

/* Workspace: the rounded vector; none when rounding changes nothing. */
static size_t none_workspace(const spr_codec *codec)
{
    return codec->rounding->lossless ? 0 : codec->elements * sizeof(float);
}

static void none_init(spr_codec *codec) { (void)codec; }

static void none_replay(spr_codec *codec, struct spr_codec_step *step)
{
    step->dense = true;
    step->vector = codec->rounding->lossless ? codec->residual : codec->workspace;
}

static void none_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    /* Copied when there is nothing to add to: 0 + -0 would lose a sign. */
    if (codec->residual_zero)
        memcpy(codec->residual, gradient, codec->elements * sizeof(float));
    else
        spr_kernels()->accumulate(codec->residual, gradient, codec->elements);
    codec->residual_zero = false;
    if (!codec->rounding->lossless)
        codec->rounding->round(codec->residual, codec->workspace, codec->elements);
    none_replay(codec, step);
}

static void none_commit(spr_codec *codec)
{
    const float *sent = codec->workspace;

    if (codec->rounding->lossless) {
        memset(codec->residual, 0, codec->elements * sizeof(float));
        codec->residual_zero = true;
        return;
    }
    for (size_t i = 0; i < codec->elements; i++)
        codec->residual[i] = spr_codec_rest(codec->residual[i], sent[i]);
}

static void none_abort(spr_codec *codec) { (void)codec; }

const struct spr_codec_selection spr_codec_none = {
    .name = "none",
    .doc = "every element, as a dense vector",
    .workspace = none_workspace,
    .init = none_init,
    .begin = none_begin,
    .replay = none_replay,
    .commit = none_commit,
    .abort = none_abort,
};
