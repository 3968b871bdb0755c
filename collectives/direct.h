/* SPDX-License-Identifier: BSD-2-Clause
 *
 * State of the direct algorithms, shared by direct.c (the two steps), direct_start.c (which
 * collective takes which of them), and hierarchical.c and hierarchical_blocks.c (which do so host
 * by host).
 */
#ifndef SPR_COLLECTIVES_DIRECT_H
#define SPR_COLLECTIVES_DIRECT_H

#include "collectives/collective.h"
#include "collectives/topology.h"

/* Chunks of the own segment whose contributions may be on their way or waiting for their turn. Only
 * the oldest operation lets them wait in the transport's memory; a later one might hold it for as
 * long as a slow rank takes to post that operation, while the oldest one needs it. Later ones use
 * buffers of their own, for one chunk at a time. */
#define SPR_DIRECT_WINDOWS 3

/* Chunks of a segment, at least: one is summed while others are on their way. */
#define SPR_DIRECT_CHUNKS 4
#define SPR_DIRECT_LEAST_BYTES ((size_t)16 << 10) /* of a chunk, but the last */

struct spr_direct_peer {
    uint32_t contributed; /* chunks of its segment that were posted to it */
    uint32_t spread;      /* chunks of our segment that were posted to it */
    uint32_t expected;    /* chunks of its segment whose receive was posted */
    uint32_t gathered;    /* ... and that have arrived */
};

struct spr_direct {
    /* Set by the caller: */
    struct spr_group group;
    const char *send;
    char *recv;
    /* Of what is contributed, and of results: the same, but for sums of halves. Those that others
     * will sum are of the type of their accumulator, so that they are rounded once, at the end. */
    spr_dtype in, out;
    spr_op op;
    int divisor;                  /* of an average */
    int root;                     /* in the group */
    uint32_t step;                /* the number of its first message */
    bool reduce, scatter, gather; /* scatter: broadcast's first step, from the root */
    bool own_alone;               /* recv has room for the own segment only */
    size_t segment, total; /* elements; all segments but the last are equally long, or `cuts` */
    const size_t *starts;  /* [group.size] of segments, all equally long, and `total` does
                            * not count; NULL: they are one behind the other */
    const size_t *cuts;    /* [group.size + 1] where segments begin and end which are not
                            * equally long, none longer than `segment`; or NULL */
    /* Its own: */
    size_t chunk, chunk_room;       /* elements */
    size_t in_element, out_element; /* bytes */
    bool eager;
    size_t most_bytes; /* of a chunk; the same on all ranks */
    uint32_t ahead;    /* messages posted ahead per peer, in each direction and step */
    uint32_t own;      /* chunks of our segment */
    uint32_t finished; /* of these, summed and stored */
    int added;         /* contributions to chunk `finished` */
    bool *taken;       /* [size] whose; NULL: they are added in rank order, not as they come */
    uint32_t wanted_chunk, wanted_peer; /* next contribution to ask for */
    void *accumulator;
    struct spr_direct_peer *peers;
    /* Ranks that may be sent a contribution, or a result; whose results may have come: */
    struct spr_marks may_contribute, may_spread, came;
    size_t unsent;                /* messages of both steps that were not posted yet */
    uint32_t under_way;           /* ... that were, and have not left */
    int missing;                  /* ranks whose results are not complete */
    struct spr_in *contributions; /* [SPR_DIRECT_WINDOWS][size] */
    char **staging;           /* [SPR_DIRECT_WINDOWS][size]: where one was received into, or NULL */
    struct spr_out *to_owner; /* [ahead][size] */
    struct spr_out *to_all;   /* [ahead][size] */
    uint32_t *crc;            /* of the own segment's chunks, for several peers; or NULL */
    uint32_t crc_room;
    struct spr_in *from_owner; /* [ahead][size] */
};

/* The rank so many before this one, in a circle: in that order it sends. And so many behind it: in
 * that order it receives. Marks are set by that number. */
static inline int spr_direct_before(const struct spr_direct *d, int i)
{
    return (d->group.rank + d->group.size - i) % d->group.size;
}
static inline int spr_direct_behind(const struct spr_direct *d, int i)
{
    return (d->group.rank + i) % d->group.size;
}

/* Does this rank send its part of an owner's segment? */
static inline bool spr_direct_contributes(const struct spr_direct *d, int owner)
{
    return owner != d->group.rank && (d->reduce || (d->scatter && d->group.rank == d->root));
}

/* Does a rank get results? A broadcast's root has everything already. */
static inline bool spr_direct_gathers(const struct spr_direct *d, int rank)
{
    return d->gather && !(d->scatter && rank == d->root);
}

static inline size_t spr_direct_segment_start(const struct spr_direct *d, int owner)
{
    if (d->starts || d->cuts)
        return d->starts ? d->starts[owner] : d->cuts[owner];
    return spr_min_size((size_t)owner * d->segment, d->total);
}

static inline size_t spr_direct_segment_length(const struct spr_direct *d, int owner)
{
    if (d->starts)
        return d->segment;
    return spr_direct_segment_start(d, owner + 1) - spr_direct_segment_start(d, owner);
}

static inline uint32_t spr_direct_segment_chunks(const struct spr_direct *d, int owner)
{
    return (uint32_t)spr_div_ceil(spr_direct_segment_length(d, owner), d->chunk);
}

/*
 * For an algorithm that consists of such: it fills in what is set by the caller, takes memory for
 * it once, and begins. It may set up the next work, for the same group and no longer segments, and
 * begin again when nothing of the last one is under way.
 */
/* False: no memory. */
bool spr_direct_make(spr_request *rq, struct spr_direct *d);
void spr_direct_begin(spr_request *rq, struct spr_direct *d);
/* True: all results are in place, nothing more will be posted. */
bool spr_direct_go_on(spr_request *rq, struct spr_direct *d);
/* All that it has sent has left. */
bool spr_direct_is_idle(const struct spr_direct *d);
/* Gives back what has arrived. */
void spr_direct_end(spr_request *rq, struct spr_direct *d);

/* Such works, one after the other. */
struct spr_direct_stage {
    struct spr_direct direct;
    size_t begun, done; /* works */
};
/* One step, where the first `ready` works may have begun; `set_up` fills in what the caller has to
 * set. True: something is different. */
bool spr_direct_step(spr_request *rq, struct spr_direct_stage *s, size_t ready,
                     void (*set_up)(const spr_request *rq, struct spr_direct *d, size_t work));
/* Works that are done, and nothing of them is on its way from where it was sent. */
size_t spr_direct_gone(const struct spr_direct_stage *s);

#endif
