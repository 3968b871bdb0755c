/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/coding.h"

size_t spr_coding_bound(const struct spr_coding *c, size_t n)
{
    return n > 0 ? c->coder->bound(c->options, n) : 0;
}

_Bool spr_coding_is_fixed(const struct spr_coding *c)
{
    return (c->coder->traits(c->options) & SPR_VALUES_FIXED) != 0;
}

double spr_coding_value_bytes(const struct spr_coding *c)
{
    if (spr_coding_is_fixed(c))
        return (double)spr_coding_bound(c, SPR_WINDOW) / SPR_WINDOW;
    return c->coder->bits ? c->coder->bits(c->options) / 8 : 0;
}

/* Every position of every owner has a number of its own, so no two entries of a step draw the same.
 */
static struct spr_draw draw_of(const struct spr_coding *c, const struct spr_blocks *b,
                               uint32_t owner, uint32_t w)
{
    uint64_t window = (uint64_t)owner * spr_blocks_windows(b, 0) + w;

    return spr_draw(c->seed, window << SPR_WINDOW_LOG2);
}

size_t spr_coding_encode(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                         uint32_t w, const float *val, size_t n, void *out)
{
    struct spr_draw draw = draw_of(c, b, owner, w);

    return n > 0 ? c->coder->encode(c->options, draw, val, n, out) : 0;
}

void spr_coding_pass(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                     uint32_t w, const float *val, size_t n, enum spr_decode how, float *out)
{
    (void)spr_coding_encode(c, b, owner, w, val, n, c->image);
    if (n > 0)
        c->coder->decode(c->options, c->image, n, how, out);
}

size_t spr_coding_round(const struct spr_coding *c, const struct spr_blocks *b, uint32_t owner,
                        uint32_t w, float *val, size_t n)
{
    size_t bytes = spr_coding_encode(c, b, owner, w, val, n, c->image);

    if (n > 0)
        c->coder->decode(c->options, c->image, n, SPR_DECODE_SET, val);
    return bytes;
}
