/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of the watch share: watch.c (its life, and what it answers) and look.c (its
 * thread).
 */
#ifndef SPR_TRANSPORT_WATCH_PRIVATE_H
#define SPR_TRANSPORT_WATCH_PRIVATE_H

#include <pthread.h>

#include "transport/watch/board.h"
#include "transport/watch/mesh.h"
#include "transport/watch/watch.h"

struct spr_watch_peer {
    const struct spr_board *board; /* NULL: not on this host, or cannot be seen */
    _Atomic bool watched;
    _Atomic uint64_t heard;              /* over the mesh: how often */
    _Atomic uint64_t progress, moved_ns; /* what it showed last, and since when */
    bool suspected;
    char host[64];
    uint64_t beats;            /* the last count ... */
    _Atomic uint64_t since_ns; /* ... and when it was new */
};

struct spr_watch {
    struct spr_watch_params params;
    struct spr_board_own own;
    struct robust_list_head head;
    struct robust_list *nodes;
    uint64_t interval_ns, suspect_ns, expel_ns;
    uint64_t pid_namespace;
    struct spr_mesh *mesh; /* NULL: none */

    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t bell; /* a futex: the thread sleeps on it, too */
    _Atomic uint32_t tid;  /* of the thread; 0: not started */
    _Atomic bool stop, begun;

    struct spr_watch_peer *peers; /* size entries */
    _Atomic uint64_t awake_ns;    /* when the thread last ran */
    _Atomic uint64_t silent_ns;   /* its longest recent silence ... */
    _Atomic uint64_t silent_till; /* ... and when that ended */
    _Atomic int judge;            /* who has expelled this rank; -1 = nobody */

    /* The thread's own. */
    struct futex_waitv words[FUTEX_WAITV_MAX];
    unsigned word_count;
    bool no_waitv;
};

/* A thread may begin to watch a rank while another one, with an older time, looks. */
static inline uint64_t spr_watch_age(const _Atomic uint64_t *since_ns, uint64_t now)
{
    uint64_t since = atomic_load(since_ns);

    return now > since ? now - since : 0;
}

/* The thread; arg: the watch. */
void *spr_watch_main(void *arg);
/* Wake it up. */
void spr_watch_ring(struct spr_watch *w);
/* From the mesh, see mesh.h; ctx: the watch. The last one is called without the mesh's lock. */
void spr_watch_on_heard(void *ctx, int rank, uint64_t progress);
void spr_watch_on_left(void *ctx, int rank);
void spr_watch_on_lost(void *ctx, int rank, const char *text, bool death);

#endif
