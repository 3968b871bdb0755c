/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Chunk: the wire format of sparse data. One chunk holds the entries of a range of windows of one
 * owner, in ascending position, in the format that takes the fewest bytes.
 *
 *    0        1        2                 4                                   8
 *   +--------+--------+-----------------+-----------------------------------+
 *   | format | vtype  | flags           | first window                      |
 *   +--------+--------+-----------------+-----------------------------------+
 *   | windows                           | count (entries)                   |  8
 *   +-----------------------------------+-----------------------------------+
 *   | payload bytes                     | bytes of packed positions         | 16
 *   +-----------------------------------+-----------------------------------+
 *   | 0                                                                     | 24
 *   +-----------------------------------------------------------------------+
 *   payload, by format (little-endian, each part padded with zeros to 4 bytes):
 *     U16     u32 entries per window [windows], u16 position in window [count], values [count]
 *     BITMAP  bit per position of the range (window by window, each ceil(len/64) u64),
 *             values [count]
 *     U32     u32 position from the start of the range [count], values [count]
 *     DENSE   values, one per position of the range (only when every position has an entry)
 *     PACKED  positions from the start of the range, as a coder of compress/indices/ makes them in
 *             blocks (bitpack, eliasfano, golomb), values [count]; before them, where values are
 *             coded, u32 entries per window [windows]. At least one entry. The header says how long
 *             the positions are, and 0 elsewhere
 *   values: fp32, fp16 or bf16; or coded: of each window the image that the operation's value coder
 *   makes of its entries (compress/coding.h). When the size of an image does not follow from the
 *   number of entries, u32 bytes of image per window [windows] come first. Not with U32.
 */
#ifndef SPR_COMPRESS_CHUNK_H
#define SPR_COMPRESS_CHUNK_H

#include <sparring/status.h>

#include "compress/blocks.h"
#include "compress/coding.h"
#include "compress/indices/indices.h"

#define SPR_CHUNK_HEADER_BYTES 32

enum spr_chunk_format {
    SPR_CHUNK_U16,
    SPR_CHUNK_BITMAP,
    SPR_CHUNK_U32,
    SPR_CHUNK_DENSE,
    SPR_CHUNK_PACKED,
    SPR_CHUNK_FORMATS
};
/* Those of one size each, and their number; and coded. */
enum spr_vtype { SPR_V_FP32, SPR_V_FP16, SPR_V_BF16, SPR_V_COUNT, SPR_V_CODED = SPR_V_COUNT };
enum { SPR_CHUNK_LAST = 1 }; /* flags: the last chunk of this owner's stream */
/* Or'ed to the format on the wire: the payload is compressed (compress/zstd.h). */
#define SPR_CHUNK_ZSTD 0x80u

const char *spr_chunk_format_name(enum spr_chunk_format f);
size_t spr_vtype_bytes(enum spr_vtype v); /* 0: coded */

/* Bytes of a chunk in one format, header included, without coded values and packed positions;
 * bitmap_words: sum over windows ceil(len/64). */
size_t spr_chunk_bytes(enum spr_chunk_format f, enum spr_vtype v, size_t windows, size_t positions,
                       size_t bitmap_words, size_t count);
/* Coded values of a window have at most so many, that a chunk of it, with a bitmap, fits a frame
 * (transport/frame.h). */
#define SPR_CHUNK_IMAGE_BYTES (((size_t)264 << 10) - 64)
/* Upper bound for a chunk of `windows` windows: the cheapest format never takes more. */
size_t spr_chunk_bound(enum spr_vtype v, size_t windows);

/*
 * Writer: collects the entries of consecutive windows, then encodes. The caller appends the next
 * window's entries at w->pos + w->count and w->val + w->count (room for one more full window plus
 * 16 of slack is guaranteed before each spr_chunk_writer_window) and then calls _window with their
 * number.
 */
struct spr_chunk_writer {
    const struct spr_blocks *blocks;
    /* Set by the caller after _init: for SPR_V_CODED; and of blocks, for PACKED, or NULL: that is
     * not used. */
    const struct spr_coding *coding;
    const struct spr_index_coder *indices;
    uint32_t owner;
    uint32_t first_window, windows;
    uint32_t max_windows;
    size_t count, max_entries; /* max_entries >= the owner's longest window */
    size_t positions, bitmap_words;
    uint16_t *pos;
    float *val;
    uint32_t *per_window;
};
size_t spr_chunk_writer_scratch(uint32_t max_windows, size_t max_entries);
/* scratch: spr_chunk_writer_scratch() bytes, 64-byte aligned, owned by the caller. */
void spr_chunk_writer_init(struct spr_chunk_writer *w, const struct spr_blocks *blocks,
                           uint32_t owner, uint32_t max_windows, size_t max_entries, void *scratch);
void spr_chunk_writer_begin(struct spr_chunk_writer *w, uint32_t first_window);
void spr_chunk_writer_window(struct spr_chunk_writer *w, size_t entries);
/* Can another window with up to `entries` entries be appended? */
_Bool spr_chunk_writer_room(const struct spr_chunk_writer *w, size_t entries);
/* Bytes of the cheapest format now; coded: at most. PACKED is not among them: it is taken only
 * where it makes them fewer. */
size_t spr_chunk_writer_bytes(const struct spr_chunk_writer *w, enum spr_vtype v);
/* Encode with the cheapest format, or `force` (an enum spr_chunk_format; -1 = cheapest; a format
 * that cannot hold the entries, or would not fit cap, falls back to the cheapest). Returns the
 * bytes written (out has cap bytes, at least spr_chunk_writer_bytes()). fp16/bf16: round to nearest
 * even. */
size_t spr_chunk_writer_finish(struct spr_chunk_writer *w, enum spr_vtype v, int force,
                               unsigned flags, void *out, size_t cap);

/* A validated chunk; points into the caller's bytes. */
struct spr_chunk {
    enum spr_chunk_format format;
    enum spr_vtype vtype;
    unsigned flags;
    uint32_t owner, first_window, windows, count;
    const struct spr_blocks *blocks;
    const struct spr_coding *coding;
    const uint32_t *per_window; /* U16; PACKED, coded */
    const uint16_t *pos16;      /* U16 */
    const uint32_t *pos32;      /* U32 */
    const uint64_t *bitmap;     /* BITMAP */
    const void *values;
    const void *image_bytes; /* coded, u32 per window; NULL: as the number of entries says */
    /* Cursor: windows must be visited in order, first to last. */
    uint32_t next_window; /* absolute */
    size_t next_entry, next_word;
    const uint8_t *next_image;
    struct spr_index_cursor positions; /* PACKED */
    uint32_t packed_bytes;
};

/*
 * Check everything (lengths against bytes, counts, positions sorted and in range, window range
 * inside the owner's windows and first_window == expected_first) before anything is used; the bytes
 * must be 4-byte aligned (8 for BITMAP's words: unaligned loads are used) and not writable by a
 * peer meanwhile. coding: of coded values, whose scratch holds those of the window that is visited;
 * NULL: there must be none. Errors: PROTO with a reason in *why (a static string).
 */
spr_status spr_chunk_open(struct spr_chunk *c, const void *data, size_t bytes,
                          const struct spr_blocks *blocks, uint32_t owner, uint32_t expected_first,
                          const struct spr_coding *coding, const char **why);
/* Visit the next window: acc[pos] += value for each entry, touched bit set. acc: SPR_WINDOW floats,
 * touched: SPR_WINDOW / 64 words; of a shorter window its length, rounded up to 64. Returns the
 * number of entries. */
size_t spr_chunk_add(struct spr_chunk *c, float *acc, uint64_t *touched);
/* Pass over the next window, of values that are not coded. Returns the number of entries. */
size_t spr_chunk_skip(struct spr_chunk *c);
/* Visit the next window: its values alone, in order, go to `out` or into it. Returns how many. TAKE
 * leaves 0 where out is not finite, and takes nothing of what is coded with something that is not.
 */
size_t spr_chunk_values(struct spr_chunk *c, enum spr_decode how, float *out);
/* A result of so many bytes is written past the caches. Written and read once by two threads on Zen
 * with 32 MiB of L3, in ms, in place and past the caches: 8 MiB 0.54 and 0.91, 16 MiB 2.4 and 2.2,
 * 97 MiB 16 and 11. */
#define SPR_STREAM_BYTES ((size_t)16 << 20)
/* Visit the next window: dense[global position] = value, +0 where there is none. */
void spr_chunk_fill(struct spr_chunk *c, float *dense);
/* The same from positions and values: a window of a vector of so many elements. */
void spr_dense_fill(float *dense, uint64_t elements, uint32_t window, const uint16_t *pos,
                    const float *val, size_t n);
/* out[i] = +0, for n positions that are a whole result, written as those between entries are. */
void spr_dense_clear(float *out, size_t n);
/* Visit the next window: append its entries as (global index, value) to index/value, which have
 * room for `room`; returns the entries in the window (nothing is written past room). */
size_t spr_chunk_list(struct spr_chunk *c, uint32_t *index, float *value, size_t room);

/* The values that are still in the writer of a chunk become what encoding has lost of them. coding:
 * as for spr_chunk_open(). */
void spr_chunk_leave_rest(const struct spr_chunk_writer *w, const struct spr_coding *coding,
                          const void *encoded, size_t bytes);
/* ... and, of a dense vector, go to their places in it. */
void spr_chunk_scatter(const struct spr_chunk_writer *w, float *vector);

/* Union of a window: emit the touched entries in order, clear acc and touched behind. Returns the
 * number. pos/val have room for SPR_WINDOW + 16 entries. len: positions in the window. */
size_t spr_window_harvest(float *acc, uint64_t *touched, uint32_t len, uint16_t *pos, float *val);

#endif
