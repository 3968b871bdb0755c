/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Chunk header as bytes: the diagram is in compress/chunk.h.
 */
#ifndef SPR_COMPRESS_CHUNK_LAYOUT_H
#define SPR_COMPRESS_CHUNK_LAYOUT_H

#include <stdint.h>

#include "compress/chunk.h"

struct spr_chunk_header {
    uint8_t format; /* enum spr_chunk_format */
    uint8_t vtype;  /* enum spr_vtype */
    uint16_t flags;
    uint32_t first_window;
    uint32_t windows;
    uint32_t count;         /* entries */
    uint32_t payload_bytes; /* after the header */
    uint32_t packed_bytes;  /* of positions, without padding */
    uint32_t zero[2];
};
_Static_assert(sizeof(struct spr_chunk_header) == SPR_CHUNK_HEADER_BYTES, "chunk header layout");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "chunks are little-endian");

/* Entries per window come before packed positions only for coded values, which need them. */
static inline _Bool spr_chunk_has_table(enum spr_chunk_format f, enum spr_vtype v)
{
    return f == SPR_CHUNK_U16 || (f == SPR_CHUNK_PACKED && v == SPR_V_CODED);
}

/* Bytes between the header and the values, without packed positions. */
size_t spr_chunk_front_bytes(enum spr_chunk_format f, enum spr_vtype v, size_t windows,
                             size_t bitmap_words, size_t count);

/* Of a chunk whose positions have been checked: entries of its i-th window, and the bytes of their
 * image. */
uint32_t spr_chunk_window_entries(const struct spr_chunk *c, uint32_t i);
size_t spr_chunk_image_bytes(const struct spr_chunk *c, uint32_t i, size_t entries);

#endif
