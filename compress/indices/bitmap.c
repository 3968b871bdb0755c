/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "bitmap": a bit per position of the universe, low ones first; the rest of the last
 * byte is zero. The shortest above a density of about 30 %.
 */
#include "compress/indices/bits.h"
#include "compress/indices/coder.h"

#define GROUP (SPR_INDEX_BLOCK / 8) /* bytes: no more positions than a block */

static uint64_t bitmap_bytes(uint64_t universe, size_t count)
{
    (void)count;
    return universe / 8 + (universe % 8 != 0);
}

static size_t bitmap_bound(uint64_t universe, size_t count)
{
    return (size_t)bitmap_bytes(universe, count) + SPR_INDEX_OVERRUN;
}

static size_t bitmap_encode(const struct spr_index_options *options, const uint32_t *index,
                            size_t count, uint64_t universe, uint8_t *out)
{
    size_t bytes = (size_t)bitmap_bytes(universe, count);

    (void)options;
    memset(out, 0, bytes);
    spr_indices_kernels()->set(index, count, out);
    return bytes;
}

static void bitmap_open(struct spr_index_cursor *c)
{
    if (spr_index_bytes_left(c) != bitmap_bytes(c->universe, 0))
        c->why = "bitmap of indices: length differs from what the universe needs";
    else if (c->universe % 8 && c->end[-1] >> c->universe % 8)
        c->why = "bitmap of indices: a bit is out of range";
}

static size_t count_ones(const uint8_t *at, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i += 8)
        n += (size_t)__builtin_popcountll(spr_bits_load_until(at + i, at + bytes));
    return n;
}

/* c->next is where the bytes at c->at begin. */
static size_t bitmap_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    size_t n = 0;

    while (c->at < c->end) {
        size_t bytes = spr_min_size(GROUP, spr_index_bytes_left(c));
        size_t ones = count_ones(c->at, bytes);

        if (ones > c->left - n)
            return spr_index_fail(c, "bitmap of indices: more bits than the count");
        if (ones > room - n)
            break;
        if (ones > 0)
            kernels->ones(c->at, bytes, (uint32_t)c->next, index + n);
        n += ones;
        c->at += bytes;
        c->next += SPR_INDEX_BLOCK;
    }
    return n > 0 ? n : spr_index_fail(c, "bitmap of indices: fewer bits than the count");
}

const struct spr_index_coder spr_index_bitmap = {
    .id = SPR_INDEX_BITMAP,
    .name = "bitmap",
    .doc = "one bit per position",
    .bound = bitmap_bound,
    .encode = bitmap_encode,
    .fixed_bytes = bitmap_bytes,
    .block_bytes = spr_index_no_block_bytes,
    .open = bitmap_open,
    .decode = bitmap_decode,
};
