/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tiles: windows of one owner in tiles of 256 positions, of which a tile with an entry travels
 * whole: what algorithm `blocks` sends (the blocks that a vector is dealt out in are others).
 * Values are added side by side, without a position for each.
 *
 *    0                                   4
 *   +-----------------------------------+-----------------------------------+
 *   | first window                      | windows                           |
 *   +-----------------------------------+-----------------------------------+
 *   | 1: the last of the owner          | 0                                 |  8
 *   +-----------------------------------+-----------------------------------+
 *   of each window:
 *     u64 [4]    a bit for each tile that has an entry
 *     of each such tile:
 *       u64 [4]      a bit for each position that has an entry
 *       float [256]  values, +0 where there is no entry
 */
#ifndef SPR_COLLECTIVES_SPARSE_TILES_H
#define SPR_COLLECTIVES_SPARSE_TILES_H

#include <stdbool.h>

#include "compress/blocks.h"

#define SPR_TILE 256
#define SPR_TILE_WORDS (SPR_TILE / 64)

struct spr_tile {
    uint64_t present[SPR_TILE_WORDS];
    float value[SPR_TILE];
};
struct spr_tiles_header {
    uint32_t first_window, windows, last, zero;
};
struct spr_tiles_map {
    uint64_t tile[SPR_WINDOW / SPR_TILE / 64];
};
_Static_assert(sizeof(struct spr_tile) == 1056, "tiles have no gaps");
_Static_assert(sizeof(struct spr_tiles_header) == 16, "tiles header layout");
_Static_assert(sizeof(struct spr_tiles_map) == 32, "a bit for each tile");

/* Bytes of one window with so many tiles, without the header. */
static inline size_t spr_tiles_window_bytes(size_t tiles)
{
    return sizeof(struct spr_tiles_map) + tiles * sizeof(struct spr_tile);
}

/* A message that is made: windows one after the other, tiles in ascending order. */
struct spr_tiles_writer {
    char *out;
    size_t bytes;
    struct spr_tiles_header header;
    struct spr_tiles_map *map; /* of the window that is being written */
};
void spr_tiles_begin(struct spr_tiles_writer *w, char *out, uint32_t first_window);
void spr_tiles_window(struct spr_tiles_writer *w);
/* The next tile of the window, to be written whole. */
struct spr_tile *spr_tiles_add(struct spr_tiles_writer *w, uint32_t number);
/* Returns the bytes. */
size_t spr_tiles_end(struct spr_tiles_writer *w, bool last);

/* A message that was checked; its windows are visited in order. */
struct spr_tiles {
    uint32_t first_window, windows;
    bool last;
    const char *at;
};
/* Check everything before anything is used; data: aligned to 8. Returns NULL, or why not. */
const char *spr_tiles_open(struct spr_tiles *t, const void *data, size_t bytes,
                           const struct spr_blocks *blocks, uint32_t owner,
                           uint32_t expected_first);
/* The next window: which tiles there are, and the first of them, which the others follow. */
const struct spr_tile *spr_tiles_next(struct spr_tiles *t, const struct spr_tiles_map **map);
/* The number of the first tile in a map, which is taken out of it; -1: there are no more. */
int spr_tiles_take(struct spr_tiles_map *map);

#endif
