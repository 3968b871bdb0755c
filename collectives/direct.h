/* SPDX-License-Identifier: BSD-2-Clause
 *
 * State of the direct algorithms, shared by direct.c (the two steps) and direct_start.c (which
 * collective takes which of them).
 */
#ifndef SPR_COLLECTIVES_DIRECT_H
#define SPR_COLLECTIVES_DIRECT_H

#include "collectives/collective.h"

/* Chunks of the own segment whose contributions may be on their way or waiting for their turn. Only
 * the oldest operation lets them wait in the transport's memory; a later one might hold it for as
 * long as a slow rank takes to post that operation, while the oldest one needs it. Later ones use
 * buffers of their own, for one chunk at a time. */
#define SPR_DIRECT_WINDOWS 3
/* Messages posted ahead per peer, in each direction and step. */
#define SPR_DIRECT_AHEAD 2

struct spr_direct_peer {
    uint32_t contributed; /* chunks of its segment that were posted to it */
    uint32_t spread;      /* chunks of our segment that were posted to it */
    uint32_t expected;    /* chunks of its segment whose receive was posted */
    uint32_t gathered;    /* ... and that have arrived */
};

struct spr_direct {
    bool reduce, scatter, gather; /* scatter: broadcast's first step, from the root */
    size_t segment, total;        /* elements; all segments but the last are equally long */
    size_t chunk, element;        /* elements; bytes */
    bool eager;
    uint32_t own;      /* chunks of our segment */
    uint32_t finished; /* of these, summed and stored */
    int next_rank;     /* whose contribution to chunk `finished` is added next, from rank 1 on */
    uint32_t wanted_chunk, wanted_peer; /* next contribution to ask for */
    void *accumulator;
    struct spr_direct_peer *peers;
    struct spr_in *contributions; /* [SPR_DIRECT_WINDOWS][size] */
    char **staging;           /* [SPR_DIRECT_WINDOWS][size]: where one was received into, or NULL */
    struct spr_out *to_owner; /* [SPR_DIRECT_AHEAD][size] */
    struct spr_out *to_all;   /* [SPR_DIRECT_AHEAD][size] */
    uint32_t *crc;            /* of the own segment's chunks, for several peers; or NULL */
    struct spr_in *from_owner; /* [SPR_DIRECT_AHEAD][size] */
};

static inline size_t spr_direct_segment_start(const struct spr_direct *d, int owner)
{
    return spr_min_size((size_t)owner * d->segment, d->total);
}

static inline size_t spr_direct_segment_length(const struct spr_direct *d, int owner)
{
    return spr_direct_segment_start(d, owner + 1) - spr_direct_segment_start(d, owner);
}

static inline uint32_t spr_direct_segment_chunks(const struct spr_direct *d, int owner)
{
    return (uint32_t)spr_div_ceil(spr_direct_segment_length(d, owner), d->chunk);
}

/* As the algorithm's. */
bool spr_direct_advance(spr_request *rq);

#endif
