/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Block-cyclic ownership: which rank sums which positions of a sparse vector.
 *
 * The vector is cut into blocks of B = 2^block_log2 positions; block b belongs to rank b mod P. The
 * blocks of one owner, put side by side, are its local positions 0..spr_blocks_local()-1:
 *
 *   global position g:  block b = g / B, owner = b mod P, local = (b / P) * B + g mod B
 *
 * Local positions are cut into windows of 2^16, so that a position within a window fits a u16, and
 * a window of float accumulators (256 KiB) fits the L2 cache. Balanced within 2-5 % on clustered
 * supports for B = 1024..4096, with no tables and no exchange.
 */
#ifndef SPR_COMPRESS_BLOCKS_H
#define SPR_COMPRESS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define SPR_WINDOW_LOG2 16
#define SPR_WINDOW (1u << SPR_WINDOW_LOG2) /* positions */

struct spr_blocks {
    uint64_t elements;   /* positions of the whole vector, at most 2^32 */
    uint32_t ranks;      /* P */
    uint32_t block_log2; /* B = 1 << block_log2; at most SPR_WINDOW_LOG2 */
};

/* As collectives deal out a vector: blocks small enough that every owner has some, large enough
 * that an entry's block is cheap; at least of SPR_LEAST_BLOCK positions. */
#define SPR_LEAST_BLOCK 64
struct spr_blocks spr_blocks_choose(uint64_t elements, uint32_t ranks);
/* Blocks in the whole vector. */
size_t spr_blocks_count(const struct spr_blocks *b);
/* Local positions of `owner` (its last block may be short). */
uint64_t spr_blocks_local(const struct spr_blocks *b, uint32_t owner);
/* Windows of `owner`: ceil(local / SPR_WINDOW). */
uint32_t spr_blocks_windows(const struct spr_blocks *b, uint32_t owner);
/* Positions in window w of owner (SPR_WINDOW but for the last). */
uint32_t spr_blocks_window_len(const struct spr_blocks *b, uint32_t owner, uint32_t w);
/* Global position of a local one. */
uint64_t spr_blocks_global(const struct spr_blocks *b, uint32_t owner, uint64_t local);

/* offsets[0..count]: offsets[i] = first list entry with index >= i * B. `index` sorted. One pass.
 * Returns false when the list is not sorted, has repeats, an index is out of range, or there are
 * 2^32 of them. */
_Bool spr_blocks_offsets(const struct spr_blocks *b, const uint32_t *index, size_t k,
                         uint32_t *offsets);
/* The blocks of window w of owner, one after the other: entries [*first, *end) of the list that has
 * these offsets, or of a dense vector (NULL). False: there are no more. */
struct spr_blocks_runs {
    const struct spr_blocks *blocks;
    const uint32_t *offsets;
    uint32_t owner;
    uint64_t next, end; /* local blocks */
};
struct spr_blocks_runs spr_blocks_runs(const struct spr_blocks *b, const uint32_t *offsets,
                                       uint32_t owner, uint32_t w);
_Bool spr_blocks_run(struct spr_blocks_runs *r, size_t *first, size_t *end);
/* Entries of window w of owner, in local order: pos (u16 in the window) and value. Returns how
 * many. pos and val have room for SPR_WINDOW entries plus 16 of slack (SIMD stores). offsets and
 * index NULL: of a dense vector, and pos may be NULL. */
size_t spr_blocks_gather(const struct spr_blocks *b, const uint32_t *offsets, const uint32_t *index,
                         const float *value, uint32_t owner, uint32_t w, uint16_t *pos, float *val);
/* The way back, of a dense vector: val goes to the positions of the window. */
void spr_blocks_scatter(const struct spr_blocks *b, uint32_t owner, uint32_t w, const float *val,
                        float *vector);
/* How many entries spr_blocks_gather would return. */
size_t spr_blocks_gather_count(const struct spr_blocks *b, const uint32_t *offsets, uint32_t owner,
                               uint32_t w);

#endif
