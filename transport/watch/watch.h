/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Watch: notices that a rank has died or stands still, from threads of its own, so that neither a
 * long computation nor a busy data path hides anything. Channels:
 *
 *   robust futex   inside a host, the kernel marks a word in the peer's board (board.h) when its
 *                  process ends, before it takes down its memory: long before end of file
 *   control mesh   those on other hosts are told of it at once (mesh.h)
 *   heartbeat      each rank counts up in its board and sends beats over the mesh; one that stands
 *                  still is first suspected (one line in the log), then expelled
 *
 * A rank is told of once. Ranks are the numbers of the job's start; one that is gone never returns.
 *
 * Threads and locks: `lost` comes from a thread of the watch, which holds no lock then; it may take
 * the communicator's lock and call back. All functions but open and close may be called with the
 * communicator's lock held; close waits for the threads, so it must not be held there. After a
 * fork the child may only leave it alone.
 */
#ifndef SPR_TRANSPORT_WATCH_WATCH_H
#define SPR_TRANSPORT_WATCH_WATCH_H

#include "transport/transport.h"

struct spr_watch;

struct spr_watch_params {
    int rank, size;
    const struct spr_options *options; /* suspect_s, expel_s, interface */
    const struct spr_auth_key *key;
    bool mesh;          /* there may be ranks on other hosts */
    bool loopback_only; /* no secret: listen on loopback */
    /* A rank is lost; rank == params.rank: the others have expelled this one. `text` says what was
     * seen, and by which channel. death: its process has ended; else it may yet wake up. */
    void (*lost)(void *ctx, int rank, const char *text, bool death);
    void *ctx;
};

/* Make the board and start to give heartbeats. SYSTEM, NOMEM, UNSUPPORTED; text in *error. */
spr_status spr_watch_open(const struct spr_watch_params *params, struct spr_watch **watch,
                          struct spr_error *error);
/* What the peers need to find the board. */
void spr_watch_describe(const struct spr_watch *w, struct spr_watch_card *card);
/* Begin to watch: `peers` has one entry per rank. Those whose board or mesh cannot be reached are
 * left to other means: a line in the log says so, and how many is returned. */
int spr_watch_begin(struct spr_watch *w, const struct spr_peer_info *peers);
/* Do not watch this rank any more: it has left. */
void spr_watch_forget(struct spr_watch *w, int rank);
/* The data path has moved, and `posted` is the operation that was posted last: shown to the peers.
 */
void spr_watch_advance(struct spr_watch *w, int events, uint32_t posted);
/* What a peer shows: the operation that it posted last, for how long it has given no heartbeat (0:
 * it does), and for how long its data path has not moved; as seen about every third of suspect_s.
 * False: nothing is known of it. */
struct spr_standing {
    uint32_t posted;
    uint64_t silent_ns, still_ns;
};
bool spr_watch_standing(const struct spr_watch *w, int rank, struct spr_standing *standing);
/* Was this rank expelled, as far as can be seen, or has it been silent for so long that it must
 * have been? Then text says so. */
bool spr_watch_expelled(const struct spr_watch *w, char *text, size_t bytes);
/* Leave in order: the peers see no death. w may be NULL. */
void spr_watch_close(struct spr_watch *w);

#endif
