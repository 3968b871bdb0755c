/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "u16": the universe in windows of 2^16 positions.
 *
 *   u32 positions in the window [windows], u16 position in its window [count]
 */
#include "compress/indices/coder.h"

#include "compress/kernels/kernels.h"

#define WINDOW_LOG2 16

static uint64_t windows_of(uint64_t universe)
{
    return (universe >> WINDOW_LOG2) + ((universe & ((1u << WINDOW_LOG2) - 1)) != 0);
}

static uint64_t u16_bytes(uint64_t universe, size_t count)
{
    return 4 * windows_of(universe) + 2 * (uint64_t)count;
}

static size_t u16_bound(uint64_t universe, size_t count)
{
    return (size_t)u16_bytes(universe, count);
}

static size_t u16_encode(const struct spr_index_options *options, const uint32_t *index,
                         size_t count, uint64_t universe, uint8_t *out)
{
    uint64_t windows = windows_of(universe);
    uint8_t *at = out + 4 * windows;
    size_t i = 0;

    (void)options;
    for (uint64_t w = 0; w < windows; w++) {
        size_t begin = i;

        for (; i < count && index[i] >> WINDOW_LOG2 == w; i++) {
            uint16_t low = (uint16_t)index[i];
            memcpy(at + 2 * i, &low, sizeof(low));
        }
        uint32_t n = (uint32_t)(i - begin);
        memcpy(out + 4 * w, &n, sizeof(n));
    }
    return (size_t)u16_bytes(universe, count);
}

static uint32_t next_count(struct spr_index_cursor *c)
{
    uint32_t n;

    memcpy(&n, c->counts, sizeof(n));
    c->counts += sizeof(n);
    return n;
}

static void u16_open(struct spr_index_cursor *c)
{
    uint64_t windows = windows_of(c->universe), sum = 0;

    if (spr_index_bytes_left(c) != u16_bytes(c->universe, (size_t)c->left)) {
        c->why = "u16 indices: length differs from what the count needs";
        return;
    }
    c->counts = c->at;
    c->at += 4 * windows;
    while (c->counts < c->at)
        sum += next_count(c);
    if (sum != c->left)
        c->why = "u16 indices: windows do not add up to the count";
    c->counts = c->at - 4 * windows;
    c->window = UINT64_C(0) - (1u << WINDOW_LOG2); /* the one before the first; it is empty */
    c->in_window = 0;
}

/* n positions of this window. They ascend where they are below the next window. */
static bool widen(struct spr_index_cursor *c, uint32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t low;
        memcpy(&low, c->at + 2 * i, sizeof(low));
        x[i] = (uint32_t)c->window | low;
    }
    c->at += 2 * n;
    if (x[0] < c->next || !spr_kernels()->ascending32(x, n))
        return spr_index_fail(c, "u16 indices: not ascending");
    if (x[n - 1] >= c->universe)
        return spr_index_fail(c, "u16 indices: out of range");
    c->next = (uint64_t)x[n - 1] + 1;
    return true;
}

static size_t u16_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    size_t most = spr_min_size(room, (size_t)c->left), n = 0;

    while (n < most) {
        while (c->in_window == 0) {
            c->window += 1u << WINDOW_LOG2;
            c->in_window = next_count(c);
        }
        size_t some = spr_min_size(c->in_window, most - n);
        if (!widen(c, index + n, some))
            return 0;
        c->in_window -= (uint32_t)some;
        n += some;
    }
    return n;
}

const struct spr_index_coder spr_index_u16 = {
    .id = SPR_INDEX_U16,
    .name = "u16",
    .doc = "16 bits per index, and 32 per 65536 positions",
    .bound = u16_bound,
    .encode = u16_encode,
    .fixed_bytes = u16_bytes,
    .block_bytes = spr_index_no_block_bytes,
    .open = u16_open,
    .decode = u16_decode,
};
