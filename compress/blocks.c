/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/blocks.h"

#include <string.h>

#include "base/util.h"

struct spr_blocks spr_blocks_choose(uint64_t elements, uint32_t ranks)
{
    struct spr_blocks b = {.elements = elements, .ranks = ranks};

    b.block_log2 = ranks <= 16 ? 12 : ranks <= 64 ? 11 : 10;
    while ((1u << b.block_log2) > SPR_LEAST_BLOCK && (elements >> b.block_log2) / ranks < 4)
        b.block_log2--;
    return b;
}

size_t spr_blocks_count(const struct spr_blocks *b)
{
    return (size_t)((b->elements + (UINT64_C(1) << b->block_log2) - 1) >> b->block_log2);
}

uint64_t spr_blocks_local(const struct spr_blocks *b, uint32_t owner)
{
    uint64_t blocks = spr_blocks_count(b);

    if (blocks <= owner)
        return 0;
    uint64_t mine = (blocks - owner - 1) / b->ranks + 1;
    uint64_t local = mine << b->block_log2;
    if ((blocks - 1) % b->ranks == owner)
        local -= (blocks << b->block_log2) - b->elements;
    return local;
}

uint32_t spr_blocks_windows(const struct spr_blocks *b, uint32_t owner)
{
    return (uint32_t)((spr_blocks_local(b, owner) + SPR_WINDOW - 1) >> SPR_WINDOW_LOG2);
}

uint32_t spr_blocks_window_len(const struct spr_blocks *b, uint32_t owner, uint32_t w)
{
    uint64_t start = (uint64_t)w << SPR_WINDOW_LOG2;
    uint64_t local = spr_blocks_local(b, owner);

    return start >= local ? 0 : (uint32_t)spr_min_u64(local - start, SPR_WINDOW);
}

uint64_t spr_blocks_global(const struct spr_blocks *b, uint32_t owner, uint64_t local)
{
    uint64_t block = (local >> b->block_log2) * b->ranks + owner;

    return (block << b->block_log2) + (local & ((UINT64_C(1) << b->block_log2) - 1));
}

_Bool spr_blocks_offsets(const struct spr_blocks *b, const uint32_t *index, size_t k,
                         uint32_t *offsets)
{
    size_t count = spr_blocks_count(b);
    _Bool sorted = 1;
    uint32_t prev = 0;

    if (k > b->elements || k > UINT32_MAX) /* offsets are u32 */
        return 0;
    memset(offsets, 0, (count + 1) * sizeof(*offsets));
    if (k == 0)
        return 1;
    /* The last entry of a block leaves its end in the slot of the next block: no branch per entry.
     * Clamped, since an unsorted list could lead anywhere. */
    for (size_t i = 0; i < k; i++) {
        size_t next = spr_min_size((size_t)(index[i] >> b->block_log2) + 1, count);

        sorted &= i == 0 || index[i] > prev;
        prev = index[i];
        offsets[next] = (uint32_t)(i + 1);
    }
    if (!sorted || prev >= b->elements)
        return 0;
    for (size_t i = 1; i <= count; i++)
        if (offsets[i] == 0) /* a block without entries ends where the one before it ends */
            offsets[i] = offsets[i - 1];
    return 1;
}

/* First and one past the last local block of window w of owner. */
static void window_blocks(const struct spr_blocks *b, uint32_t owner, uint32_t w, uint64_t *first,
                          uint64_t *end)
{
    uint32_t len = spr_blocks_window_len(b, owner, w);
    uint32_t log2 = b->block_log2;

    *first = (uint64_t)w << (SPR_WINDOW_LOG2 - log2);
    *end = *first + ((len + (1u << log2) - 1) >> log2);
}

struct spr_blocks_runs spr_blocks_runs(const struct spr_blocks *b, const uint32_t *offsets,
                                       uint32_t owner, uint32_t w)
{
    struct spr_blocks_runs r = {.blocks = b, .offsets = offsets, .owner = owner};

    window_blocks(b, owner, w, &r.next, &r.end);
    return r;
}

_Bool spr_blocks_run(struct spr_blocks_runs *r, size_t *first, size_t *end)
{
    const struct spr_blocks *b = r->blocks;
    uint64_t block = r->next * b->ranks + r->owner;

    if (r->next == r->end)
        return 0;
    r->next++;
    *first = r->offsets ? r->offsets[block] : (size_t)(block << b->block_log2);
    *end = r->offsets ? r->offsets[block + 1]
                      : (size_t)spr_min_u64((block + 1) << b->block_log2, b->elements);
    return 1;
}

static size_t gather_dense(const struct spr_blocks *b, const float *value, uint32_t owner,
                           uint32_t w, uint16_t *pos, float *val)
{
    struct spr_blocks_runs runs = spr_blocks_runs(b, NULL, owner, w);
    size_t first, end, n = 0;

    for (; spr_blocks_run(&runs, &first, &end); n += end - first)
        memcpy(val + n, value + first, (end - first) * sizeof(*val));
    for (size_t i = 0; pos && i < n; i++)
        pos[i] = (uint16_t)i;
    return n;
}

void spr_blocks_scatter(const struct spr_blocks *b, uint32_t owner, uint32_t w, const float *val,
                        float *vector)
{
    struct spr_blocks_runs runs = spr_blocks_runs(b, NULL, owner, w);

    for (size_t first, end; spr_blocks_run(&runs, &first, &end); val += end - first)
        memcpy(vector + first, val, (end - first) * sizeof(*val));
}

size_t spr_blocks_gather(const struct spr_blocks *b, const uint32_t *offsets, const uint32_t *index,
                         const float *value, uint32_t owner, uint32_t w, uint16_t *pos, float *val)
{
    uint32_t log2 = b->block_log2, mask = (1u << log2) - 1;
    size_t total, n = 0;
    uint64_t first, end;

    if (!offsets)
        return gather_dense(b, value, owner, w, pos, val);
    total = offsets[spr_blocks_count(b)];
    window_blocks(b, owner, w, &first, &end);
    for (uint64_t j = first; j < end; j++) {
        size_t block = (size_t)(j * b->ranks + owner);
        uint32_t base = (uint32_t)(j - first) << log2;
        size_t i = offsets[block], stop = offsets[block + 1];
        size_t m = stop - i;

        /* Eight at a time into the slack of the output, as long as the input has eight. */
        for (; i < stop && i + 8 <= total; i += 8, n += 8) {
            for (size_t l = 0; l < 8; l++)
                pos[n + l] = (uint16_t)(base + (index[i + l] & mask));
            memcpy(val + n, value + i, 8 * sizeof(*val));
        }
        for (; i < stop; i++, n++) {
            pos[n] = (uint16_t)(base + (index[i] & mask));
            val[n] = value[i];
        }
        n = n - (i - offsets[block]) + m; /* without the overrun */
    }
    return n;
}

size_t spr_blocks_gather_count(const struct spr_blocks *b, const uint32_t *offsets, uint32_t owner,
                               uint32_t w)
{
    struct spr_blocks_runs runs = spr_blocks_runs(b, offsets, owner, w);
    size_t first, end, n = 0;

    while (spr_blocks_run(&runs, &first, &end))
        n += end - first;
    return n;
}
