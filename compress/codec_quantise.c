/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What values become on their way: the codec has to know, since the residual keeps the rest.
 * fp16 and bf16 are rounded one by one. Coded values are coded window by window, as in the chunks
 * that carry them (compress/coding.h): which window an entry is in depends on the place.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"

#define BATCH 512 /* values */

spr_status spr_codec_quantise_open(spr_codec *codec)
{
    struct spr_coding *c = &codec->coding;
    size_t span = spr_min_size(codec->elements, SPR_WINDOW) + 16;
    size_t values = spr_align_up(span * sizeof(float), 64);
    size_t offsets = (codec->elements / SPR_LEAST_BLOCK + 2) * sizeof(uint32_t);

    if (codec->vtype != SPR_V_CODED)
        return SPR_OK;
    c->coder = codec->coder;
    c->options = codec->coder_options;
    codec->scratch_bytes = values + spr_align_up(spr_coding_bound(c, span), 64) + offsets;
    codec->scratch = spr_pages_alloc(codec->scratch_bytes);
    if (!codec->scratch)
        return SPR_ERR_NOMEM;
    c->values = codec->scratch;
    codec->offsets = (uint32_t *)(void *)((char *)codec->scratch + values);
    c->image = (char *)codec->scratch + values + spr_align_up(offsets, 64);
    return SPR_OK;
}

static size_t each_one(const spr_codec *codec, const float *exact, size_t n, spr_codec_taker *take,
                       void *context)
{
    struct spr_draw none = {{0}, 0};
    float sent[BATCH], image[BATCH];
    size_t bytes = 0;

    for (size_t at = 0; at < n; at += BATCH) {
        size_t m = spr_min_size(BATCH, n - at);

        bytes += codec->coder->encode(codec->coder_options, none, exact + at, m, image);
        codec->coder->decode(codec->coder_options, image, m, SPR_DECODE_SET, sent);
        take(context, at, at + m, sent);
    }
    return bytes;
}

/* A window of `owner`; c->values is scratch. */
static size_t each_of_window(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                             uint32_t w, const uint32_t *offsets, const float *exact,
                             spr_codec_taker *take, void *context)
{
    struct spr_blocks_runs runs = spr_blocks_runs(b, offsets, owner, w), again = runs;
    size_t first, end, bytes, n = 0;

    for (; spr_blocks_run(&runs, &first, &end); n += end - first)
        memcpy(c->values + n, exact + first, (end - first) * sizeof(*exact));
    bytes = spr_coding_round(c, b, owner, w, c->values, n);
    for (n = 0; spr_blocks_run(&again, &first, &end); n += end - first)
        take(context, first, end, c->values + n);
    return bytes;
}

size_t spr_codec_each_sent(const spr_codec *codec, int slot, const uint32_t *index,
                           const float *exact, size_t n, spr_codec_taker *take, void *context)
{
    const struct spr_blocks *b = &codec->sent_as[slot].place.blocks;
    struct spr_coding c = codec->coding;
    size_t bytes = 0;

    if (codec->vtype != SPR_V_CODED)
        return each_one(codec, exact, n, take, context);
    if (index)
        (void)spr_blocks_offsets(b, index, n, codec->offsets);
    c.seed = codec->sent_as[slot].seed;
    for (uint32_t owner = 0; owner < b->ranks; owner++)
        for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++)
            bytes += each_of_window(&c, b, owner, w, index ? codec->offsets : NULL, exact, take,
                                    context);
    return bytes;
}

struct settlement {
    enum spr_decode how;
    const float *exact;
    float *out;
};

static void settle(void *context, size_t first, size_t end, const float *sent)
{
    const struct settlement *s = context;
    float *restrict out = s->out + first;
    size_t n = end - first;

    if (s->how == SPR_DECODE_SET) {
        memcpy(out, sent, n * sizeof(*sent));
        return;
    }
    if (s->how == SPR_DECODE_TAKE && spr_all_finite(out, n) && spr_all_finite(sent, n)) {
        for (size_t i = 0; i < n; i++)
            out[i] -= sent[i];
        return;
    }
    for (size_t i = first; i < end; i++) {
        float one = sent[i - first];

        if (s->how == SPR_DECODE_TAKE)
            s->out[i] = spr_codec_rest(s->out[i], one);
        else if (!isnan(one) || !isfinite(s->exact[i])) /* else nothing was taken */
            s->out[i] += one;
    }
}

void spr_codec_quantise(const spr_codec *codec, int slot, const uint32_t *index, const float *exact,
                        size_t n, enum spr_decode how, float *out)
{
    struct settlement settlement = {how, exact, out};

    if (spr_codec_codes_later(codec, slot))
        settle(&settlement, 0, n, exact);
    else
        (void)spr_codec_each_sent(codec, slot, index, exact, n, settle, &settlement);
}
