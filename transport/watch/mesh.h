/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Control mesh: connections of the watch's own to the ranks on other hosts, for heartbeats and for
 * what is known of the dead. Plain sockets, moved by a thread of their own: never behind the data,
 * and never in an io_uring, whose sockets are closed late when their process dies.
 *
 * It is one more instance of the epoll transport: the same listening, authentication and limits.
 * What travels is a frame header without payload: type DATA, operation = what is said, argument =
 * the rank that it is about, or in a BEAT the progress that the board shows, in arg64.
 */
#ifndef SPR_TRANSPORT_WATCH_MESH_H
#define SPR_TRANSPORT_WATCH_MESH_H

#include "transport/transport.h"

/* What is said. The first sign of a rank is its first BEAT. */
enum spr_mesh_word {
    SPR_MESH_BEAT = 1,
    SPR_MESH_LEFT,    /* the sender leaves in order */
    SPR_MESH_DIED,    /* the process of that rank has ended */
    SPR_MESH_EXPELLED /* the sender does without that rank, which is the receiver */
};

struct spr_mesh_params {
    int rank, size;
    const struct spr_options *options;
    const struct spr_auth_key *key;
    bool loopback_only;
    uint64_t interval_ns;             /* of heartbeats */
    int board_fd;                     /* for the guardian, which shares the connections; -1: none */
    const _Atomic uint64_t *progress; /* of this rank, for its beats; NULL: 0 */
    void *ctx;
    /* A beat came from a rank; it left in order. From the thread, under the mesh's lock: must
     * not call back. */
    void (*heard)(void *ctx, int rank, uint64_t progress);
    void (*left)(void *ctx, int rank);
    /* As in struct spr_watch_params; without a lock. */
    void (*lost)(void *ctx, int rank, const char *text, bool death);
};

struct spr_mesh;

/* Listen. Errors: as the epoll transport's open; text in *error. */
spr_status spr_mesh_open(const struct spr_mesh_params *params, struct spr_mesh **mesh,
                         struct spr_error *error);
/* Where: at most SPR_ADDRESS_BYTES. */
void spr_mesh_address(struct spr_mesh *m, uint8_t *address);
/* Begin a connection to a rank, before spr_mesh_start. */
spr_status spr_mesh_connect(struct spr_mesh *m, int peer, const struct spr_peer_info *mine,
                            const struct spr_peer_info *theirs, struct spr_error *error);
/* Start the thread. SYSTEM. */
spr_status spr_mesh_start(struct spr_mesh *m, struct spr_error *error);
/* Say it to one rank, or to all (to = -1). Any thread; queued, never waits for a peer. */
void spr_mesh_tell(struct spr_mesh *m, int to, enum spr_mesh_word word, int about);
/* No connection to this rank any more; if it lives, it is told that it is expelled. */
void spr_mesh_forget(struct spr_mesh *m, int rank);
/* Say LEFT to all and close; waits for its own thread only. m may be NULL. */
void spr_mesh_close(struct spr_mesh *m);

#endif
