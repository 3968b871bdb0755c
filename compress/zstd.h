/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Second stage for slow links: a chunk (compress/chunk.h) whose payload is compressed without loss.
 *
 *    0                     32
 *   +---------------------+--------------------------------------------------------+
 *   | header, format|0x80 | one zstd frame that tells its content size: the payload |
 *   +---------------------+--------------------------------------------------------+
 *
 * What it saves at level 1, of 10 to 64 KiB: of normal values as int8 9 %, as bf16 22 %; of the
 * largest percent of them as fp32 15 %, fp16 26 %, int8 30 %; of random positions that are packed
 * in bits 7 %, of Elias-Fano codes nothing; of what has a pattern more. It costs 1.1 to 2.1 ns per
 * byte to encode and 0.8 to 1.4 to decode: for links of some hundred Mbit/s and CPUs with time to
 * spare.
 *
 * Which bytes the encoder makes depends on the version of libzstd, not what they decode to. A build
 * without libzstd has these functions, too; they say SPR_ERR_UNSUPPORTED.
 */
#ifndef SPR_COMPRESS_ZSTD_H
#define SPR_COMPRESS_ZSTD_H

#include "compress/chunk.h"

#define SPR_ZSTD_LEVEL_MAX 19

/* State of both directions, for one thread at a time. libzstd allocates at the first chunk of a
 * size, not with each. */
struct spr_zstd;

_Bool spr_zstd_is_built_in(void);
/* level 1 to SPR_ZSTD_LEVEL_MAX. UNSUPPORTED or NOMEM. */
spr_status spr_zstd_create(int level, struct spr_zstd **z);
void spr_zstd_free(struct spr_zstd *z); /* or NULL */

/* Is the payload compressed? Of any bytes. */
static inline _Bool spr_zstd_is(const void *bytes, size_t size)
{
    return size >= SPR_CHUNK_HEADER_BYTES && (*(const uint8_t *)bytes & SPR_CHUNK_ZSTD) != 0;
}

/* Compress a chunk that spr_chunk_writer_finish() made. Returns the bytes at `out`, which has room
 * for size - 1; 0 when they would not be fewer than `size`: then the chunk is sent as it is. */
size_t spr_zstd_pack(struct spr_zstd *z, const void *chunk, size_t size, void *out);
/* Undo it: *plain bytes at `out`, for spr_chunk_open(). Nothing is decompressed that does not fit
 * `room`, or is not as long as the header says: PROTO and *why. */
spr_status spr_zstd_unpack(struct spr_zstd *z, const void *bytes, size_t size, void *out,
                           size_t room, size_t *plain, const char **why);

#endif
