/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/sparse_tiles.h"

#include <string.h>

#include "base/util.h"

void spr_tiles_begin(struct spr_tiles_writer *w, char *out, uint32_t first_window)
{
    *w = (struct spr_tiles_writer){
        .out = out,
        .bytes = sizeof w->header,
        .header = {.first_window = first_window},
    };
}

void spr_tiles_window(struct spr_tiles_writer *w)
{
    w->map = (struct spr_tiles_map *)(void *)(w->out + w->bytes);
    memset(w->map, 0, sizeof *w->map);
    w->bytes += sizeof *w->map;
    w->header.windows++;
}

struct spr_tile *spr_tiles_add(struct spr_tiles_writer *w, uint32_t number)
{
    struct spr_tile *tile = (struct spr_tile *)(void *)(w->out + w->bytes);

    w->map->tile[number / 64] |= UINT64_C(1) << number % 64;
    w->bytes += sizeof *tile;
    return tile;
}

size_t spr_tiles_end(struct spr_tiles_writer *w, bool last)
{
    w->header.last = last;
    memcpy(w->out, &w->header, sizeof w->header);
    return w->bytes;
}

int spr_tiles_take(struct spr_tiles_map *map)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(map->tile); i++)
        if (map->tile[i]) {
            int bit = __builtin_ctzll(map->tile[i]);
            map->tile[i] &= map->tile[i] - 1;
            return (int)i * 64 + bit;
        }
    return -1;
}

static size_t tiles_in(const struct spr_tiles_map *map)
{
    size_t n = 0;

    for (size_t i = 0; i < SPR_ARRAY_LEN(map->tile); i++)
        n += (size_t)__builtin_popcountll(map->tile[i]);
    return n;
}

/* 64 values, +0 where there is no entry. */
static bool is_clear(uint64_t present, const float *value)
{
    uint32_t wrong = 0;

    for (unsigned i = 0; i < 64; i++) {
        uint32_t bits;
        memcpy(&bits, &value[i], sizeof bits);
        wrong |= bits & ((uint32_t)(present >> i & 1) - 1);
    }
    return wrong == 0;
}

/* A tile with `len` positions of the window. */
static const char *check_tile(const struct spr_tile *tile, uint32_t len)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < SPR_TILE_WORDS; i++) {
        uint64_t present = tile->present[i];
        uint32_t here = len > 64 * i ? len - 64 * i : 0;
        if (here < 64 && present >> here)
            return "a position is out of range";
        if (present != UINT64_MAX && !is_clear(present, tile->value + (size_t)i * 64))
            return "a value where there is no entry";
        any |= present;
    }
    return any ? NULL : "a tile without entries";
}

/* One window; *at moves behind it. */
static const char *check_window(const char **at, size_t *left, uint32_t len)
{
    struct spr_tiles_map map;
    int number;

    if (*left < sizeof map)
        return "a window is missing";
    memcpy(&map, *at, sizeof map);
    *at += sizeof map;
    *left -= sizeof map;
    if (tiles_in(&map) * sizeof(struct spr_tile) > *left)
        return "a tile is missing";
    while ((number = spr_tiles_take(&map)) >= 0) {
        const struct spr_tile *tile = (const struct spr_tile *)(const void *)*at;
        uint32_t first = (uint32_t)number * SPR_TILE;
        const char *why = first >= len ? "a tile is out of range" : check_tile(tile, len - first);
        if (why)
            return why;
        *at += sizeof *tile;
        *left -= sizeof *tile;
    }
    return NULL;
}

const char *spr_tiles_open(struct spr_tiles *t, const void *data, size_t bytes,
                           const struct spr_blocks *blocks, uint32_t owner, uint32_t expected_first)
{
    uint32_t windows = spr_blocks_windows(blocks, owner);
    struct spr_tiles_header h;
    const char *at = (const char *)data + sizeof h, *why = NULL;
    size_t left;

    if (bytes < sizeof h)
        return "shorter than a header of tiles";
    memcpy(&h, data, sizeof h);
    if (h.first_window != expected_first || h.zero)
        return "not the expected window";
    if (h.windows == 0 || h.windows > windows - h.first_window)
        return "no windows, or more than the owner has";
    if (h.last != (h.first_window + h.windows == windows))
        return "a stream of tiles ends at the wrong place";
    left = bytes - sizeof h;
    for (uint32_t i = 0; !why && i < h.windows; i++)
        why = check_window(&at, &left, spr_blocks_window_len(blocks, owner, h.first_window + i));
    if (why || left)
        return why ? why : "bytes behind the last tile";
    *t = (struct spr_tiles){h.first_window, h.windows, h.last, (const char *)data + sizeof h};
    return NULL;
}

const struct spr_tile *spr_tiles_next(struct spr_tiles *t, const struct spr_tiles_map **map)
{
    const char *tiles = t->at + sizeof **map;

    *map = (const struct spr_tiles_map *)(const void *)t->at;
    t->at = tiles + tiles_in(*map) * sizeof(struct spr_tile);
    return (const struct spr_tile *)(const void *)tiles;
}
