/* SPDX-License-Identifier: BSD-2-Clause
 *
 * State of the sparse allreduce by unions of supports, shared by sparse_supports_start.c (how it
 * begins and ends), sparse_supports.c (entries on their way to their owners, who sum them) and
 * sparse_supports_sums.c (sums on their way back).
 */
#ifndef SPR_COLLECTIVES_SPARSE_SUPPORTS_H
#define SPR_COLLECTIVES_SPARSE_SUPPORTS_H

#include "collectives/sparse.h"

/* Windows in a message of sums, at most: an owner remembers the positions of every rank in them. */
#define SPR_UNION_WINDOWS 16

/* A word that tells supports apart: which positions a rank has in the blocks of an owner. */
struct spr_supports {
    uint64_t there; /* of the sender, in the receiver's blocks */
    uint64_t here;  /* of the sender, in its own */
};

/* What this rank has to do with another one. [rank] itself: the messages for those who have the
 * same positions. */
struct spr_supports_peer {
    struct spr_supports mine, theirs;
    struct spr_out told;
    struct spr_in heard;
    bool known;      /* theirs is there, and so are: */
    bool same_there; /* we have the positions in its blocks that it has itself */
    bool same_here;  /* ... and it has those in ours */
    size_t used;     /* values of its message that is open, where they come alone */
    uint64_t
        *support; /* where its entries in our blocks are, by window, modulo SPR_UNION_WINDOWS */
    struct spr_out union_out[SPR_SPARSE_AHEAD]; /* our sums */
    char *union_buffer[SPR_SPARSE_AHEAD];
};

struct spr_supports_state {
    struct spr_sparse_state s;
    struct spr_supports_peer *peers; /* [size] */
    uint32_t memory;                 /* windows that `support` holds */
    struct spr_chunk_writer lack;    /* what a rank does not have, of the union in s.union_writer */
    char *whole;                     /* chunk_bytes: a chunk of all sums, for our own result */
    uint16_t *own_pos;               /* our entries in the window that is summed */
    float *own_val;
    size_t own_entries;
    uint32_t own_window;  /* whose they are */
    uint32_t *lack_index; /* entries of a window that came with positions */
    float *lack_value;
};

/* Window w is in s.union_writer's chunk or will be: where a rank has entries, s.span bits. */
static inline uint64_t *spr_supports_support(const struct spr_supports_state *u, int rank,
                                             uint32_t w)
{
    return u->peers[rank].support + (size_t)(w % u->memory) * (u->s.span / 64);
}

/* The slots of struct spr_algorithm. */
spr_status spr_supports_start(spr_request *rq);
void spr_supports_cleanup(spr_request *rq);
/* What others have told about their supports. */
void spr_supports_hear(spr_request *rq);

/* Is there memory for the next message of sums to each rank? */
bool spr_supports_can_send(const spr_request *rq);
/* Send the sums in s.union_writer, and take them into our own result. False: the communicator
 * fails. */
bool spr_supports_send(spr_request *rq, bool last);
/* A slot of struct spr_sparse_way. */
bool spr_supports_take(spr_request *rq, int owner, struct spr_in *in);
extern const struct spr_sparse_way spr_supports_way;

#endif
