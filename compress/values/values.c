/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/values/values.h"

#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"

#define BATCH 1024u /* elements that are in L1 at a time, if groups allow */
#define BATCH_IMAGE (SPR_VALUES_GROUP_MAX * 5u) /* at least the bound of any batch */
/* Images from this size on would only drive other things out of the caches, and be read into them
 * before they are written. */
#define STREAM_BYTES ((size_t)8 << 20)

const struct spr_value_coder *const spr_value_coders[] = {
    &spr_value_fp32, &spr_value_fp16, &spr_value_bf16,     &spr_value_int8,    &spr_value_int4,
    &spr_value_sign, &spr_value_qsgd, &spr_value_terngrad, &spr_value_natural, &spr_value_bounded,
};
const size_t spr_value_coder_count = SPR_ARRAY_LEN(spr_value_coders);

const struct spr_value_coder *spr_value_coder_find(const char *name)
{
    for (size_t i = 0; i < spr_value_coder_count; i++)
        if (strcmp(spr_value_coders[i]->name, name) == 0)
            return spr_value_coders[i];
    return NULL;
}

struct spr_draw spr_draw(uint64_t seed, uint64_t first)
{
    uint64_t key = spr_rng_u64(seed, 0);

    return (struct spr_draw){{(uint32_t)key, (uint32_t)(key >> 32)}, first};
}

/* Whole groups, about BATCH elements of them. */
static size_t batch_of(const struct spr_value_coder *coder, const void *options)
{
    size_t group = coder->group(options);

    return group < BATCH ? BATCH / group * group : group;
}

/* Images on their way to memory, past the caches: whole lines, aligned here as they are there. */
struct lines {
    _Alignas(SPR_VALUES_LINE) char image[SPR_VALUES_LINE + BATCH_IMAGE];
    char *to;    /* where the first line of the image goes */
    size_t held; /* bytes of it that are in the image */
};

/* From `out` on, before which at least a line was written by the caller. */
static void lines_begin(struct lines *l, char *out)
{
    l->held = (uintptr_t)out % SPR_VALUES_LINE;
    l->to = out - l->held;
    memcpy(l->image, l->to, l->held);
}

static void lines_put(struct lines *l, size_t bytes)
{
    size_t all = l->held + bytes, whole = all / SPR_VALUES_LINE * SPR_VALUES_LINE;

    spr_values_kernels()->stream(l->image, whole, l->to);
    if (whole > 0)
        memcpy(l->image, l->image + whole, SPR_VALUES_LINE);
    l->to += whole;
    l->held = all - whole;
}

static void lines_end(struct lines *l)
{
    memcpy(l->to, l->image, l->held);
    spr_values_kernels()->fence();
}

/* Batch by batch, or all at once where groups belong together; past the caches when the image is
 * large. `gradient` and `residual` (which is `in`) are NULL without feedback. */
static size_t encode(const struct spr_value_coder *coder, const void *options, struct spr_draw draw,
                     const float *in, float *residual, const float *gradient, size_t n, void *out)
{
    bool together = coder->traits(options) & SPR_VALUES_TOGETHER;
    size_t batch = together ? n : batch_of(coder, options), bytes = 0;
    bool stream =
        coder->bound(options, n) >= STREAM_BYTES && coder->bound(options, batch) <= BATCH_IMAGE;
    struct lines lines;

    lines.to = NULL;
    for (size_t at = 0; at < n; at += batch) {
        size_t m = spr_min_size(batch, n - at), used;
        struct spr_draw here = spr_draw_after(draw, at);
        char *to = lines.to ? lines.image + lines.held : (char *)out + bytes;

        used = residual ? coder->feed(coder, options, here, residual + at, gradient + at, m, to)
                        : coder->encode(options, here, in + at, m, to);
        bytes += used;
        if (lines.to)
            lines_put(&lines, used);
        else if (stream && bytes >= SPR_VALUES_LINE)
            lines_begin(&lines, (char *)out + bytes);
    }
    if (lines.to)
        lines_end(&lines);
    return bytes;
}

size_t spr_value_feed(const struct spr_value_coder *coder, const void *options,
                      struct spr_draw draw, float *residual, const float *gradient, size_t n,
                      void *out)
{
    size_t bytes;

    spr_values_kernels()->add(residual, gradient, n);
    bytes = coder->encode(options, draw, residual, n, out);
    coder->decode(options, out, n, SPR_DECODE_TAKE, residual);
    return bytes;
}

size_t spr_value_encode(const struct spr_value_coder *coder, const void *options,
                        struct spr_draw draw, const float *in, size_t n, void *out)
{
    return encode(coder, options, draw, in, NULL, NULL, n, out);
}

size_t spr_value_feedback(const struct spr_value_coder *coder, const void *options,
                          struct spr_draw draw, float *residual, const float *gradient, size_t n,
                          void *out)
{
    return encode(coder, options, draw, residual, residual, gradient, n, out);
}

size_t spr_value_add_at(const struct spr_value_coder *coder, const void *options, const void *bytes,
                        const uint16_t *pos, size_t n, float *acc, uint64_t *touched)
{
    size_t batch = batch_of(coder, options), used = 0;
    float value[SPR_VALUES_GROUP_MAX];

    for (size_t at = 0; at < n; at += batch) {
        size_t m = spr_min_size(batch, n - at);

        used += coder->decode(options, (const char *)bytes + used, m, SPR_DECODE_SET, value);
        spr_kernels()->add_at(acc, touched, pos + at, value, m);
    }
    return used;
}
