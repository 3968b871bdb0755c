/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a trainer's schedules change in a codec between steps: how much is sent, and what a residual
 * is worth when the learning rate changes.
 */
#include "compress/codec_internal.h"

#include "base/util.h"

static spr_status fail(const char *call, const spr_codec *codec, const char *why)
{
    return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "%s: codec %s: %s", call,
                         codec->spec, why);
}

double spr_codec_ratio(const spr_codec *codec)
{
    return codec->selection->steps->ratio ? codec->selection->steps->ratio(codec) : 0;
}

spr_status spr_codec_set_ratio(spr_codec *codec, double ratio)
{
    double most;

    spr_error_clear(spr_thread_error());
    if (!codec)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_codec_set_ratio: a codec must be given");
    most = spr_codec_ratio(codec);
    if (codec->phase == SPR_CODEC_RUNNING)
        return fail("spr_codec_set_ratio", codec, "a request is running");
    if (most <= 0)
        return fail("spr_codec_set_ratio", codec, "it sends by no ratio");
    if (!(ratio > 0 && ratio <= most))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_codec_set_ratio: codec %s: a ratio of %g is out of range; its "
                             "string sets the most, %g",
                             codec->spec, ratio, most);
    codec->ratio = ratio;
    return SPR_OK;
}

spr_status spr_codec_set_learning_rate(spr_codec *codec, double rate)
{
    spr_error_clear(spr_thread_error());
    if (!codec || !(rate >= 1 / SPR_CODEC_RATE_MAX && rate <= SPR_CODEC_RATE_MAX))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_codec_set_learning_rate: a codec and a learning rate in [%g, %g] "
                             "(got %g) must be given",
                             1 / SPR_CODEC_RATE_MAX, SPR_CODEC_RATE_MAX, rate);
    if (codec->phase == SPR_CODEC_RUNNING)
        return fail("spr_codec_set_learning_rate", codec, "a request is running");
    codec->rate = rate;
    return SPR_OK;
}

/* The residual has what was left over at its rate; make it worth the same at another. */
static void convert(spr_codec *codec, double rate)
{
    double from = codec->residual_rate;
    float factor = from > 0 ? (float)(from / rate) : 1;

    codec->residual_rate = rate;
    if ((factor >= 1 && factor <= 1) || codec->residual_zero)
        return;
    spr_codec_settle(codec);
    for (size_t i = 0; i < codec->elements; i++)
        codec->residual[i] *= factor;
}

void spr_codec_change_rate(spr_codec *codec, double rate)
{
    bool known = codec->residual_rate > 0;

    if (rate > 0 && (rate < codec->residual_rate || rate > codec->residual_rate)) {
        convert(codec, rate);
        if (known)
            spr_adapt_forget_norms(&codec->adapt);
    }
}

void spr_codec_take_rate(spr_codec *codec)
{
    spr_codec_change_rate(codec, codec->rate);
    codec->sent_as[codec->slot].rate = codec->residual_rate;
}

void spr_codec_return_rate(spr_codec *codec)
{
    double rate = codec->sent_as[codec->committed].rate;

    if (rate > 0)
        convert(codec, rate);
}
