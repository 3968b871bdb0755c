/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Second stage for slow links: an encoding of compress/indices/indices.h, compressed without loss.
 *
 *    0            1
 *   +------------+------------------------------------------+
 *   | coder|0x80 | one zstd frame that tells its content size: the bytes behind the first one |
 *   +------------+------------------------------------------+
 *
 * Cost: at level 1, 0.2 to 3 ns per byte to encode and up to 1 to decode; at level 9, 4 to 20 to
 * encode. For lists with a pattern, such as runs (8.6 bits per index become 0.8), on links of some
 * Gbit/s and below. Of a uniform random list bitpack loses 7 %, eliasfano and golomb nothing.
 *
 * Which bytes the encoder makes depends on the version of libzstd (not what they decode to). A
 * build without libzstd has these functions too; they say SPR_ERR_UNSUPPORTED.
 */
#ifndef SPR_COMPRESS_INDICES_ZSTD_H
#define SPR_COMPRESS_INDICES_ZSTD_H

#include "compress/indices/indices.h"

/* State of both directions, for one thread at a time. It is made once, at set-up; libzstd then
 * allocates at the first encoding of a size, not with each. */
struct spr_index_zstd;

/* For encodings of up to `bytes`. UNSUPPORTED or NOMEM. */
spr_status spr_index_zstd_create(size_t bytes, struct spr_index_zstd **z);
void spr_index_zstd_free(struct spr_index_zstd *z); /* or NULL */

/* Is the second stage on these bytes? */
static inline bool spr_index_is_zstd(const void *bytes, size_t size)
{
    return size > 0 && (*(const uint8_t *)bytes & SPR_INDEX_ZSTD) != 0;
}

/* Returns the bytes at `out`, which has room for size - 1; 0 when they would not be fewer than
 * `size`: then what there is is sent. level 1 to 19. */
size_t spr_index_zstd_encode(struct spr_index_zstd *z, int level, const void *bytes, size_t size,
                             void *out);
/* Undo it: *plain, until the next call, is for spr_index_open(). Nothing is decompressed unless the
 * result is as short as an encoding by that coder can be (and as z was made for): PROTO and *why.
 */
spr_status spr_index_zstd_decode(struct spr_index_zstd *z, const void *bytes, size_t size,
                                 uint64_t universe, size_t count, const void **plain,
                                 size_t *plain_size, const char **why);

#endif
