/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The life of a watch, and what it answers.
 */
#include "transport/watch/watch.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "transport/watch/private.h"

#define BEATS_PER_LIMIT 3 /* one may be lost, and one be late */
/* After a silence that should have cost us our place, how long a failure is explained by it. */
#define EXCUSE_NS 2000000000ull

static spr_status start(struct spr_watch *w, struct spr_error *error)
{
    sigset_t all, old;
    int rc;

    /* Signals are the program's business: none is taken on our thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, spr_watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, rc, "cannot start the watch thread");
    w->has_thread = true;
    while (!atomic_load(&w->tid))
        (void)syscall(SYS_futex, &w->tid, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return SPR_OK;
}

static void open_mesh(struct spr_watch *w)
{
    struct spr_mesh_params params = {.rank = w->params.rank,
                                     .size = w->params.size,
                                     .options = w->params.options,
                                     .key = w->params.key,
                                     .loopback_only = w->params.loopback_only,
                                     .interval_ns = w->interval_ns,
                                     .board_fd = w->own.fd,
                                     .progress = &w->own.board->progress,
                                     .ctx = w,
                                     .heard = spr_watch_on_heard,
                                     .left = spr_watch_on_left,
                                     .lost = spr_watch_on_lost};
    struct spr_error reason = {0};

    if (spr_mesh_open(&params, &w->mesh, &reason))
        spr_warn(SPR_SUB_WATCH, "no heartbeats to other hosts: %s", reason.text);
}

spr_status spr_watch_open(const struct spr_watch_params *params, struct spr_watch **watch,
                          struct spr_error *error)
{
    size_t size = (size_t)params->size;
    double factor = spr_time_factor();
    struct spr_watch *w = spr_calloc(1, sizeof *w);
    struct stat st;
    spr_status status;

    if (!w)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the watch");
    w->params = *params;
    w->own.fd = -1;
    atomic_store(&w->judge, -1);
    w->suspect_ns = spr_seconds_ns(params->options->suspect_s * factor);
    w->expel_ns = spr_seconds_ns(params->options->expel_s * factor);
    w->interval_ns = spr_min_u64(w->suspect_ns, w->expel_ns) / BEATS_PER_LIMIT;
    w->pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
    w->nodes = spr_calloc(size, sizeof *w->nodes);
    w->peers = spr_calloc(size, sizeof *w->peers);
    status = w->nodes && w->peers
                 ? spr_board_create(&w->own, (uint32_t)params->rank, (uint32_t)params->size, error)
                 : spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the watch");
    if (status == SPR_OK && params->mesh)
        open_mesh(w);
    if (status == SPR_OK)
        status = start(w, error);
    if (status) {
        spr_watch_close(w);
        return status;
    }
    *watch = w;
    return SPR_OK;
}

void spr_watch_describe(const struct spr_watch *w, struct spr_watch_card *card)
{
    *card = (struct spr_watch_card){.thread = atomic_load(&w->tid),
                                    .descriptor = (uint32_t)w->own.fd,
                                    .pid_namespace = w->pid_namespace};
    memcpy(card->nonce, w->own.board->nonce, sizeof card->nonce);
    if (w->mesh)
        spr_mesh_address(w->mesh, card->address);
}

/* Returns how many ranks are out of sight for want of a thread. */
static int start_mesh(struct spr_watch *w, int distant)
{
    struct spr_error why = {0};

    if (distant && w->mesh && spr_mesh_start(w->mesh, &why) == SPR_OK)
        return 0;
    if (distant)
        spr_warn(SPR_SUB_WATCH, "no heartbeats to other hosts: %s", why.text);
    spr_mesh_close(w->mesh); /* all are here */
    w->mesh = NULL;
    return distant;
}

/* Both sides come to the same answer. */
static bool in_sight(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    return spr_peer_same_host(mine, peer) && mine->watch.pid_namespace == peer->watch.pid_namespace;
}

/* False: *why says why not. */
static bool begin_one(struct spr_watch *w, int rank, const struct spr_peer_info *mine,
                      const struct spr_peer_info *info, struct spr_error *why)
{
    const struct spr_watch_card *card = &info->watch;
    const char *text = "it has no control mesh";
    struct spr_watch_peer *p = &w->peers[rank];

    memcpy(p->host, info->host, sizeof p->host);
    if (in_sight(mine, info))
        p->board = spr_board_map(card->thread, card->descriptor, (uint32_t)rank,
                                 (uint32_t)w->params.size, card->nonce, &text);
    else if (w->mesh && spr_mesh_connect(w->mesh, rank, mine, info, why) == SPR_OK)
        return true;
    if (!p->board && !why->status)
        spr_error_set(why, SPR_ERR_UNSUPPORTED, rank, "%s", text);
    return p->board;
}

int spr_watch_begin(struct spr_watch *w, const struct spr_peer_info *peers)
{
    int unseen = 0, distant = 0;

    for (int r = 0; r < w->params.size; r++) {
        struct spr_error why = {0};
        if (r == w->params.rank || !peers[r].watch.thread)
            continue;
        if (!begin_one(w, r, &peers[w->params.rank], &peers[r], &why)) {
            unseen++;
            spr_info(SPR_SUB_WATCH, "no heartbeats from rank %d (host %s): %s", r, peers[r].host,
                     why.text);
            continue;
        }
        distant += !w->peers[r].board;
        w->peers[r].since_ns = spr_monotonic_ns();
        atomic_store(&w->peers[r].moved_ns, w->peers[r].since_ns);
        atomic_store(&w->peers[r].watched, true);
    }
    unseen += start_mesh(w, distant);
    atomic_store(&w->begun, true);
    spr_watch_ring(w);
    return unseen;
}

void spr_watch_forget(struct spr_watch *w, int rank)
{
    atomic_store(&w->peers[rank].watched, false);
    if (w->mesh)
        spr_mesh_forget(w->mesh, rank);
}

void spr_watch_advance(struct spr_watch *w, int events, uint32_t posted)
{
    _Atomic uint64_t *progress = &w->own.board->progress;
    uint32_t moved = (uint32_t)atomic_load_explicit(progress, memory_order_relaxed);

    /* One writer at a time: the communicator's lock is held. */
    atomic_store_explicit(progress, (uint64_t)posted << 32 | (uint32_t)(moved + (uint32_t)events),
                          memory_order_relaxed);
}

bool spr_watch_standing(const struct spr_watch *w, int rank, struct spr_standing *standing)
{
    const struct spr_watch_peer *p = &w->peers[rank];
    uint64_t progress = p->board ? atomic_load(&p->board->progress) : atomic_load(&p->progress);
    uint64_t now = spr_monotonic_ns();

    if (!atomic_load(&p->watched) || (!p->board && !atomic_load(&p->heard)))
        return false;
    standing->posted = (uint32_t)(progress >> 32);
    standing->still_ns = spr_watch_age(&p->moved_ns, now);
    standing->silent_ns = spr_watch_age(&p->since_ns, now);
    if (standing->silent_ns < w->suspect_ns)
        standing->silent_ns = 0;
    return true;
}

/* By what the others say, or by our own clock, where they may have ended meanwhile. */
bool spr_watch_expelled(const struct spr_watch *w, char *text, size_t bytes)
{
    uint64_t awake = atomic_load(&w->awake_ns), now = spr_monotonic_ns();
    uint64_t silence = now - awake, till = atomic_load(&w->silent_till);
    bool excused = till && now - till < EXCUSE_NS && atomic_load(&w->silent_ns) >= w->expel_ns;
    bool judged = atomic_load(&w->judge) >= 0;

    for (int r = 0; r < w->params.size && !judged; r++)
        judged =
            w->peers[r].board &&
            atomic_load(&w->peers[r].board->slots[w->params.rank].verdict) == SPR_VERDICT_EXPELLED;
    if (excused || (till && now - till < EXCUSE_NS && judged))
        silence = atomic_load(&w->silent_ns);
    if (!judged && !excused && silence < w->expel_ns)
        return false;
    if (silence < w->expel_ns) {
        snprintf(text, bytes,
                 "the others go on without it: its heartbeats did not arrive, or a "
                 "connection broke");
        return true;
    }
    snprintf(text, bytes,
             "it gave no heartbeat for %.3g s (the limit is %.3g s): stopped, or its "
             "host was overloaded",
             (double)silence * 1e-9, (double)w->expel_ns * 1e-9);
    return true;
}

void spr_watch_close(struct spr_watch *w)
{
    if (!w)
        return;
    if (w->has_thread) {
        atomic_store(&w->stop, true);
        spr_watch_ring(w);
        pthread_join(w->thread, NULL);
    }
    spr_mesh_close(w->mesh);
    for (int r = 0; w->peers && r < w->params.size; r++)
        spr_board_unmap(w->peers[r].board, (uint32_t)w->params.size);
    spr_board_destroy(&w->own);
    spr_free(w->peers);
    spr_free(w->nodes);
    spr_free(w);
}
