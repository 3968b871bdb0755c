/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "u32": u32 per position, little-endian. Costs a copy and nothing else.
 */
#include "compress/indices/coder.h"

#include "compress/kernels/kernels.h"

static uint64_t u32_bytes(uint64_t universe, size_t count)
{
    (void)universe;
    return 4 * (uint64_t)count;
}

static size_t u32_bound(uint64_t universe, size_t count)
{
    (void)universe;
    return 4 * count;
}

static size_t u32_encode(const struct spr_index_options *options, const uint32_t *index,
                         size_t count, uint64_t universe, uint8_t *out)
{
    (void)options;
    (void)universe;
    memcpy(out, index, 4 * count);
    return 4 * count;
}

static void u32_open(struct spr_index_cursor *c)
{
    if (spr_index_bytes_left(c) != 4 * c->left)
        c->why = "u32 indices: length differs from what the count needs";
}

static size_t u32_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    size_t n = spr_min_size(room, (size_t)c->left);

    memcpy(index, c->at, 4 * n);
    c->at += 4 * n;
    if (index[0] < c->next || !spr_kernels()->ascending32(index, n))
        return spr_index_fail(c, "u32 indices: not ascending");
    if (index[n - 1] >= c->universe)
        return spr_index_fail(c, "u32 indices: out of range");
    c->next = (uint64_t)index[n - 1] + 1;
    return n;
}

const struct spr_index_coder spr_index_u32 = {
    .id = SPR_INDEX_U32,
    .name = "u32",
    .doc = "32 bits per index",
    .bound = u32_bound,
    .encode = u32_encode,
    .fixed_bytes = u32_bytes,
    .block_bytes = spr_index_no_block_bytes,
    .open = u32_open,
    .decode = u32_decode,
};
