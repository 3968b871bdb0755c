/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A lane: chunks that this rank makes, sends to one or several peers and adds itself, from the same
 * bytes. And the end of a sparse allreduce whose windows are final in ascending order, in blocks of
 * one owner.
 */
#ifndef SPR_COLLECTIVES_SPARSE_LANE_H
#define SPR_COLLECTIVES_SPARSE_LANE_H

#include "collectives/sparse.h"

struct spr_lane {
    struct {
        char *buffer; /* chunk_bytes */
        size_t bytes;
        struct spr_wire wire;
        struct spr_out *out; /* [peers] */
    } slots[SPR_SPARSE_UNIONS];
    int first_peer, peers; /* first_peer and those behind it, modulo the number of ranks */
    bool adds;             /* they are added here, too, not only sent */
    uint32_t made, added;  /* chunks */
    bool open;             /* chunk is valid */
    struct spr_chunk chunk;
};

/* Memory of a lane whose peers and `adds` are set, otherwise zeros. False: there is none. */
bool spr_lane_open(spr_request *rq, struct spr_lane *lane);
void spr_lane_free(spr_request *rq, struct spr_lane *lane);
/* Where the next chunk goes, chunk_bytes; NULL: chunks before it are still in use. */
char *spr_lane_buffer(struct spr_lane *lane);
/* There are buffers for the next two chunks. */
bool spr_lane_has_two(struct spr_lane *lane);
/* The chunk there is complete: send it; `step` plus its number is its step. */
void spr_lane_send(spr_request *rq, struct spr_lane *lane, size_t bytes, uint32_t step);
/* Make the chunk that covers this window available as lane->chunk. False: it is not made. */
bool spr_lane_covers(spr_request *rq, struct spr_lane *lane, uint32_t window);

/* Add the window that the chunk of a lane or a stream is at; close it behind its last one. Returns
 * the entries. */
size_t spr_lane_add(spr_request *rq, struct spr_lane *lane);
size_t spr_stream_add(spr_request *rq, struct spr_stream *stream);

/* Encode this rank's list, for the one owner of all blocks, from window *encoded on, and send what
 * there are buffers for. False: nothing. */
bool spr_lane_give(spr_request *rq, struct spr_lane *lane, uint32_t *encoded, uint32_t step);
/* Add window `merged` of one rank after the other: our own from the lane, others' from their
 * streams, by rank. Counts `contributed`. False: that of next_rank is not there. */
bool spr_lane_add_all(spr_request *rq, struct spr_lane *lane, struct spr_stream *streams);

/* n entries of window w of the only owner are final: into the dense result, and into the list. */
void spr_sparse_put(spr_request *rq, uint32_t w, const uint16_t *pos, const float *val, size_t n);
/* All windows of a chunk of it are. */
void spr_sparse_put_chunk(spr_request *rq, const struct spr_chunk *chunk);
/* All are there. Returns SPR_OK or TOO_SMALL, of the list. */
spr_status spr_sparse_put_end(spr_request *rq);

#endif
