/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "bitpack": gaps in as many bits as the largest of a block of 256 needs (Lemire and
 * Boytsov 2015, "Decoding billions of integers per second through vectorization").
 *
 *   block:  width (u8), gaps
 *   gaps:   of 256 as spr_indices_kernels.pack lays them out; of fewer, which only the last block
 *           has, one after the other, low bits first, the rest of the last byte zero
 *
 * A gap is the number of positions left out before an index, so whatever the bits are, positions
 * ascend.
 */
#include <math.h>

#include "compress/indices/bits.h"
#include "compress/indices/coder.h"

/* Sums of a block's gaps of this width are below 2^31. */
#define SUMS_FIT 23

static size_t bitpack_bound(uint64_t universe, size_t count)
{
    size_t blocks = spr_div_ceil(count, SPR_INDEX_BLOCK);

    /* The largest gaps of the blocks add up to less than the universe; the sum of their logarithms
     * is largest when they are equal. */
    size_t width = spr_index_log2(universe / blocks + 2) + 1;
    return blocks * (1 + 32 * spr_min_size(width, 32)) + SPR_INDEX_OVERRUN;
}

static size_t block_bytes(size_t n, uint32_t any)
{
    return 1 + spr_bits_bytes(n * spr_index_width(any));
}

static size_t bitpack_block_bytes(const struct spr_index_block *block)
{
    return block_bytes(block->n, block->any);
}

size_t spr_index_bitpack_bytes(const uint32_t *index, size_t n, uint32_t first)
{
    uint32_t gap[SPR_INDEX_BLOCK];

    return block_bytes(n, spr_indices_kernels()->gaps(index, n, first, gap));
}

static uint8_t *encode_block(const uint32_t *x, size_t n, uint32_t first, uint8_t *out)
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    uint32_t gap[SPR_INDEX_BLOCK];
    unsigned width = spr_index_width(kernels->gaps(x, n, first, gap));

    *out++ = (uint8_t)width;
    if (n < SPR_INDEX_BLOCK)
        return spr_bits_put(gap, n, width, out);
    kernels->pack(gap, width, out);
    return out + 32 * (size_t)width;
}

/* Positions of gaps whose sum may not fit 32 bits. Returns the gaps or'ed, and one above the last
 * position in *next. */
static uint32_t sums_wide(const uint32_t *gap, size_t n, uint64_t *next, uint32_t *x)
{
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t at = *next + gap[i];

        x[i] = (uint32_t)at;
        any |= gap[i];
        *next = at + 1;
    }
    return any;
}

static bool decode_block(struct spr_index_cursor *c, uint32_t *x, size_t n)
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    uint32_t gap[SPR_INDEX_BLOCK], any;
    unsigned width = c->at < c->end ? *c->at++ : 0xff;

    if (width > 32)
        return spr_index_fail(c, "packed indices: no width, or more than 32 bits");
    size_t bytes = spr_bits_bytes(n * width);
    if (bytes > spr_index_bytes_left(c))
        return spr_index_fail(c, "packed indices: truncated");
    if (n == SPR_INDEX_BLOCK)
        kernels->unpack(c->at, width, gap);
    else if (!spr_bits_get(c->at, n, width, gap))
        return spr_index_fail(c, "packed indices: padding is not zero");
    c->at += bytes;

    if (width <= SUMS_FIT) {
        uint32_t first = (uint32_t)c->next;

        any = kernels->sums(gap, n, first, x);
        c->next += (uint64_t)(uint32_t)(x[n - 1] - first) + 1;
    } else {
        any = sums_wide(gap, n, &c->next, x);
    }
    if (c->next > c->universe)
        return spr_index_fail(c, "packed indices: out of range");
    if (spr_index_width(any) != width)
        return spr_index_fail(c, "packed indices: more bits than needed");
    return true;
}

static size_t bitpack_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    return spr_index_decode_blocks(c, index, room, decode_block);
}

/* The mean of the largest of n gaps that are distributed geometrically, over their mean: the n-th
 * harmonic number. */
#define LARGEST_OF_256 6.12

double spr_index_bitpack_bits(double every)
{
    double gap = fmax(every - 1, 0);

    /* A width is a whole number: on average half a bit too wide. */
    return fmax(log2(LARGEST_OF_256 * gap) + 0.5, 0) + 8.0 / SPR_INDEX_BLOCK;
}

const struct spr_index_coder spr_index_bitpack = {
    .id = SPR_INDEX_BITPACK,
    .name = "bitpack",
    .doc = "gaps in blocks of 256 with a width each: the fastest of the short ones",
    .paper = "Lemire and Boytsov 2015, Decoding billions of integers per second through "
             "vectorization",
    .bound = bitpack_bound,
    .encode_block = encode_block,
    .fixed_bytes = spr_index_no_fixed_bytes,
    .block_bytes = bitpack_block_bytes,
    .open = spr_index_no_header,
    .decode = bitpack_decode,
};
