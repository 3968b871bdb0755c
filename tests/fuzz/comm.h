/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of the target comm share: what happened so far, and what a script can do.
 */
#ifndef TESTS_FUZZ_COMM_H
#define TESTS_FUZZ_COMM_H

#include <sparring/sparring.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

#define MOST_OPERATIONS 6

/* What a rank calls; all ranks call the same in the same order, but for an odd one. */
enum kind {
    ALLREDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    BROADCAST,
    SENDRECV,
    BARRIER,
    SPARSE,
    COMPRESSED,
    KINDS
};

struct operation {
    enum kind kind;
    spr_dtype dtype;
    spr_op op;
    int root;
    bool in_place, odd; /* odd: the last rank calls something else */
    const char *algorithm;
    size_t count, in_count, out_count;
    char *in[WIRE_RANKS], *out[WIRE_RANKS]; /* of just their size, until the request ends */
    spr_sparse list[WIRE_RANKS];
    spr_codec *codec[WIRE_RANKS];
    spr_request *request[WIRE_RANKS];
};

/* All of one script. */
extern struct comm_play {
    struct wire wire;
    int ranks;
    spr_comm *comms[WIRE_RANKS];
    int next[WIRE_RANKS]; /* operation */
    bool gone[WIRE_RANKS];
    int count;
    struct operation ops[MOST_OPERATIONS];
    /* What happened so far: frames were lost or damaged, ranks gave up; or frames lied. */
    bool fault, lied;
    bool renumber[WIRE_RANKS][WIRE_RANKS];
    uint32_t sequence[WIRE_RANKS][WIRE_RANKS];
} g;

/* ---- Operations (comm_operations.c) ---- */

/* A rank calls its next operation, which the script defines if no rank has called it yet. */
void comm_post(int rank, struct fuzz_in *in);
/* Take the results that are there, and check them. Returns the requests that still run. */
int comm_collect(void);

/* ---- Frames (comm_frames.c) ---- */

/* The oldest frame that `from` has queued leaves for `to`. */
void comm_transmit(int from, int to);
/* The last frame that is on its way is damaged, changed, lost or repeated. */
void comm_tamper(int from, int to, struct fuzz_in *in);
/* A frame that `from` never sent. */
void comm_inject(int from, int to, struct fuzz_in *in);

#endif
