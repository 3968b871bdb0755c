/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "eliasfano": Elias-Fano codes of blocks of 256 (Elias 1974, "Efficient storage and
 * retrieval by content and address of static files"; Vigna 2013, "Quasi-succinct indices";
 * Ottaviano and Venturini 2014, "Partitioned Elias-Fano indexes").
 *
 * With y[i] = the gaps up to index i added up, which never falls, and U = the last of n:
 *
 *   block:  w (u8), bytes of ones (u8), low, ones
 *   low:    the lower w bits of each y, as bitpack lays out gaps
 *   ones:   a string of bits, low ones first, with bit (y[i] >> w) + i set for each i; the last
 *           byte is the one with the last bit
 *
 * w is the least with U <= n * 2^(w + 1) or so, see spr_index_low_width: w + 1 + U / (n * 2^w)
 * bits per index, between w + 2 and w + 3, within 10 % of the entropy of a random set up to a
 * density of several per cent.
 */
#include "compress/indices/bits.h"
#include "compress/indices/coder.h"

#define PART 128 /* of 256: U <= 2 * n * 2^w (+ 1) */
/* U >> w <= 2 * n + 1, so there are up to 3 * 256 + 1 bits of ones. */
#define MOST_ONES_BYTES 97

static size_t eliasfano_block_bytes(const struct spr_index_block *block)
{
    unsigned width = spr_index_low_width(block->spread, block->n, PART);

    return 2 + spr_bits_bytes(block->n * width) +
           spr_bits_bytes((block->spread >> width) + block->n);
}

static uint8_t *encode_block(const uint32_t *x, size_t n, uint32_t first, uint8_t *out)
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    uint32_t low[SPR_INDEX_BLOCK], one[SPR_INDEX_BLOCK];
    uint32_t spread = x[n - 1] - first - (uint32_t)(n - 1);
    unsigned width = spr_index_low_width(spread, n, PART);
    size_t bytes = spr_bits_bytes((spread >> width) + n);

    kernels->split(x, n, first, width, low, one);
    *out++ = (uint8_t)width;
    *out++ = (uint8_t)bytes;
    if (n < SPR_INDEX_BLOCK) {
        out = spr_bits_put(low, n, width, out);
    } else {
        kernels->pack(low, width, out);
        out += 32 * (size_t)width;
    }
    memset(out, 0, bytes);
    kernels->set(one, n, out);
    return out + bytes;
}

static bool decode_block(struct spr_index_cursor *c, uint32_t *x, size_t n)
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    uint32_t low[SPR_INDEX_BLOCK], one[8 * MOST_ONES_BYTES + SPR_INDEX_SLACK];

    if (spr_index_bytes_left(c) < 2)
        return spr_index_fail(c, "Elias-Fano indices: truncated");
    unsigned width = c->at[0];
    size_t ones_bytes = c->at[1], low_bytes = spr_bits_bytes(n * width);
    if (width > 31 || ones_bytes > MOST_ONES_BYTES)
        return spr_index_fail(c, "Elias-Fano indices: no such block");
    c->at += 2;
    if (low_bytes + ones_bytes > spr_index_bytes_left(c))
        return spr_index_fail(c, "Elias-Fano indices: truncated");
    if (n == SPR_INDEX_BLOCK)
        kernels->unpack(c->at, width, low);
    else if (!spr_bits_get(c->at, n, width, low))
        return spr_index_fail(c, "Elias-Fano indices: padding is not zero");
    c->at += low_bytes;
    if (kernels->ones(c->at, ones_bytes, 0, one) != n || one[n - 1] / 8 != ones_bytes - 1)
        return spr_index_fail(c, "Elias-Fano indices: wrong number of ones");
    c->at += ones_bytes;

    uint64_t spread = (uint64_t)(one[n - 1] - (uint32_t)(n - 1)) << width | low[n - 1];
    if (c->next + spread + n > c->universe)
        return spr_index_fail(c, "Elias-Fano indices: out of range");
    /* Every sum is up to `spread` if they rise, so nothing overflows unless join() sees that they
     * do not. */
    if (!kernels->join(low, one, n, (uint32_t)c->next, width, x))
        return spr_index_fail(c, "Elias-Fano indices: not ascending");
    if (width != spr_index_low_width(spread, n, PART))
        return spr_index_fail(c, "Elias-Fano indices: not the width for this block");
    c->next += spread + n;
    return true;
}

static size_t eliasfano_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    return spr_index_decode_blocks(c, index, room, decode_block);
}

const struct spr_index_coder spr_index_eliasfano = {
    .id = SPR_INDEX_ELIASFANO,
    .name = "eliasfano",
    .doc = "Elias-Fano codes in blocks of 256: short at any density, and fast",
    .paper = "Elias 1974, Efficient storage and retrieval by content and address of static files; "
             "in blocks: Ottaviano and Venturini 2014, Partitioned Elias-Fano indexes",
    .bound = spr_index_unary_bound,
    .encode_block = encode_block,
    .fixed_bytes = spr_index_no_fixed_bytes,
    .block_bytes = eliasfano_block_bytes,
    .open = spr_index_no_header,
    .decode = eliasfano_decode,
};
