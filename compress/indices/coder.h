/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the index coders share. Each is one const struct in a file of its own; their table is in
 * indices.c.
 */
#ifndef SPR_COMPRESS_INDICES_CODER_H
#define SPR_COMPRESS_INDICES_CODER_H

#include <string.h>

#include "base/util.h"
#include "compress/indices/indices.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "encodings are little-endian");

/* Bytes behind an encoding that storing words may write: bounds include them. */
#define SPR_INDEX_OVERRUN 8

/* What the size of a block's encoding depends on. */
struct spr_index_block {
    const uint32_t *gap; /* see spr_indices_kernels.gaps */
    size_t n;
    uint32_t any;    /* the gaps or'ed */
    uint32_t spread; /* their sum */
};

/* All slots are filled but for one. Bytes are those behind the first one, and there is at least one
 * position.
 */
struct spr_index_coder {
    enum spr_index_id id; /* the first byte */
    const char *name;
    const char *doc;   /* one sentence, no trailing dot */
    const char *paper; /* NULL: there is none */
    const struct spr_opt *options;
    size_t option_count;
    size_t (*bound)(uint64_t universe, size_t count);
    /* One of these two. out[-1] is the first byte, set to `id`. */
    size_t (*encode)(const struct spr_index_options *options, const uint32_t *index, size_t count,
                     uint64_t universe, uint8_t *out);
    /* n of SPR_INDEX_BLOCK positions, or the last ones; `first` as for the kernels. Returns the end
     * of what it wrote. */
    uint8_t *(*encode_block)(const uint32_t *x, size_t n, uint32_t first, uint8_t *out);
    /* The bytes are the sum of those that depend on two numbers only, and those of each block. */
    uint64_t (*fixed_bytes)(uint64_t universe, size_t count);
    size_t (*block_bytes)(const struct spr_index_block *block);
    /* Lengths and what precedes the positions; sets c->why. */
    void (*open)(struct spr_index_cursor *c);
    /* Decodes what fits: `room` is SPR_INDEX_BLOCK or more, or c->left, without the slack. Moves
     * c->at and c->next; returns how many, at least one. Else sets c->why. */
    size_t (*decode)(struct spr_index_cursor *c, uint32_t *index, size_t room);
};

extern const struct spr_index_coder spr_index_u32, spr_index_u16, spr_index_bitmap,
    spr_index_bitpack, spr_index_eliasfano, spr_index_golomb, spr_index_auto;

/* The positions, at least one, behind the first byte. Returns their bytes. */
size_t spr_index_encode_positions(const struct spr_index_coder *coder,
                                  const struct spr_index_options *options, const uint32_t *index,
                                  size_t count, uint64_t universe, uint8_t *out);

/* Null objects. */
uint64_t spr_index_no_fixed_bytes(uint64_t universe, size_t count);
size_t spr_index_no_block_bytes(const struct spr_index_block *block);
void spr_index_no_header(struct spr_index_cursor *c);

static inline size_t spr_index_fail(struct spr_index_cursor *c, const char *why)
{
    c->why = why;
    return 0;
}

static inline size_t spr_index_bytes_left(const struct spr_index_cursor *c)
{
    return (size_t)(c->end - c->at);
}

/* Positions in the block at the cursor. */
static inline size_t spr_index_block_length(const struct spr_index_cursor *c)
{
    return c->left < SPR_INDEX_BLOCK ? (size_t)c->left : SPR_INDEX_BLOCK;
}

/* The decode slot of coders that know blocks: `block` decodes n positions, false = c->why is set.
 */
static inline size_t
spr_index_decode_blocks(struct spr_index_cursor *c, uint32_t *index, size_t room,
                        bool (*block)(struct spr_index_cursor *c, uint32_t *x, size_t n))
{
    uint64_t left = c->left;
    size_t done = 0;

    while (left > 0) {
        size_t n = left < SPR_INDEX_BLOCK ? (size_t)left : SPR_INDEX_BLOCK;

        if (n > room - done)
            break;
        if (!block(c, index + done, n))
            return 0;
        done += n;
        left -= n;
    }
    return done;
}

/* ceil(log2(x)), x > 0 */
static inline unsigned spr_index_log2(uint64_t x)
{
    return x > 1 ? 64 - (unsigned)__builtin_clzll(x - 1) : 0;
}

/* Bits of x: 0 for 0. */
static inline unsigned spr_index_width(uint32_t x)
{
    return x ? 32 - (unsigned)__builtin_clz(x) : 0;
}

/* The lower bits that are written as they are when the gaps of n positions add up to `spread`: the
 * least w with spread * part / 256 <= n * 2^w. */
static inline unsigned spr_index_low_width(uint64_t spread, size_t n, unsigned part)
{
    uint64_t most = spread * part >> 8;
    unsigned w = 0;

    while ((uint64_t)n << w < most)
        w++;
    return w;
}

/* Bound on the bytes of coders with the above: per position the lower bits and 3 (4 with rounding)
 * of a unary number, and per block what its header takes. Sum over blocks of n log2(spread / n) is
 * largest when all are alike, since the logarithm is concave. */
static inline size_t spr_index_unary_bound(uint64_t universe, size_t count)
{
    size_t bits = spr_index_log2(universe / count + 2) + 4;

    return (count * bits + 7) / 8 + 5 * spr_div_ceil(count, SPR_INDEX_BLOCK) + SPR_INDEX_OVERRUN;
}

#endif
