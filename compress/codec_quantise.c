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

static void settle(enum spr_decode how, float exact, float sent, float *out)
{
    if (how == SPR_DECODE_SET)
        *out = sent;
    else if (how == SPR_DECODE_TAKE)
        *out = spr_codec_rest(*out, sent);
    else if (!isnan(sent) || !isfinite(exact)) /* else nothing was taken */
        *out += sent;
}

static void quantise_each(const spr_codec *codec, const float *exact, size_t n, enum spr_decode how,
                          float *out)
{
    struct spr_draw none = {{0}, 0};
    float sent[BATCH], image[BATCH];

    for (size_t at = 0; at < n; at += BATCH) {
        size_t m = spr_min_size(BATCH, n - at);

        codec->coder->encode(codec->coder_options, &none, exact + at, m, image);
        codec->coder->decode(codec->coder_options, image, m, SPR_DECODE_SET, sent);
        for (size_t i = 0; i < m; i++)
            settle(how, exact[at + i], sent[i], &out[at + i]);
    }
}

/* A window of `owner`; c->values is scratch. */
static void quantise_window(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                            uint32_t w, const uint32_t *offsets, const float *exact,
                            enum spr_decode how, float *out)
{
    struct spr_blocks_runs runs = spr_blocks_runs(b, offsets, owner, w), again = runs;
    size_t first, end, n = 0;

    for (; spr_blocks_run(&runs, &first, &end); n += end - first)
        memcpy(c->values + n, exact + first, (end - first) * sizeof(*exact));
    spr_coding_round(c, b, owner, w, c->values, n);
    n = 0;
    while (spr_blocks_run(&again, &first, &end))
        for (size_t i = first; i < end; i++)
            settle(how, exact[i], c->values[n++], &out[i]);
}

static void quantise_windows(const spr_codec *codec, int slot, const uint32_t *offsets,
                             const float *exact, enum spr_decode how, float *out)
{
    const struct spr_blocks *b = &codec->sent_as[slot].place.blocks;
    struct spr_coding c = codec->coding;

    c.seed = codec->sent_as[slot].seed;
    for (uint32_t owner = 0; owner < b->ranks; owner++)
        for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++)
            quantise_window(&c, b, owner, w, offsets, exact, how, out);
}

void spr_codec_quantise(const spr_codec *codec, int slot, const uint32_t *index, const float *exact,
                        size_t n, enum spr_decode how, float *out)
{
    if (codec->vtype != SPR_V_CODED) {
        quantise_each(codec, exact, n, how, out);
        return;
    }
    if (index)
        (void)spr_blocks_offsets(&codec->sent_as[slot].place.blocks, index, n, codec->offsets);
    quantise_windows(codec, slot, index ? codec->offsets : NULL, exact, how, out);
}
