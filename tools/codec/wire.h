/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a step of a codec is on the wire: the chunks for all owners (compress/chunk.h), as sparse
 * collectives send them, or all values of a dense step whose values are not coded. And back.
 */
#ifndef SPR_TOOLS_CODEC_WIRE_H
#define SPR_TOOLS_CODEC_WIRE_H

#include "compress/codec.h"

/* Ranks of the job that is imagined. */
#define WIRE_RANKS 8

struct wire {
    struct spr_blocks blocks; /* of the step that was placed last */
    uint32_t *offsets;
    void *scratch;
    unsigned char *bytes;   /* the image */
    size_t room;            /* of it */
    size_t end[WIRE_RANKS]; /* in bytes, of each owner's chunks; 0 after a dense step */
    enum spr_vtype vtype;
    struct spr_coding coding; /* of the step, with scratch */
    float *values;
    const struct spr_index_coder *indices; /* of positions; NULL: as they are */
};

/* Where a step goes whose vector has `count` elements, at most n: as rank 0 of WIRE_RANKS. */
struct spr_codec_place wire_place(struct wire *wire, size_t count);

/* For steps of at most `count` entries of n elements. NOMEM. */
spr_status wire_open(struct wire *wire, size_t n, size_t count, struct spr_error *error);
void wire_close(struct wire *wire);
/* Returns the bytes of the image. */
size_t wire_encode(struct wire *wire, const struct spr_codec_step *step);
/* For spr_chunk_open(). */
const struct spr_coding *wire_coding(const struct wire *wire);
/* Of the chunk at a place, as it says itself. */
size_t wire_chunk_bytes(const struct wire *wire, size_t at);
/* The image as a vector of as many elements as were placed, checked like a peer's. PROTO. */
spr_status wire_decode(const struct wire *wire, float *out, struct spr_error *error);

#endif
