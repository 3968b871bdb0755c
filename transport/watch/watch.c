/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The thread "spr-watch": beats, and looks at the boards of the peers on this host. It sleeps on
 * the futex words of all of them at once (futex_waitv, Linux 5.16); where that is missing it looks
 * at them every POLL_NS.
 */
#include "transport/watch/watch.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "transport/watch/board.h"
#include "transport/watch/mesh.h"

#define POLL_NS 10000000ull
#define BEATS_PER_LIMIT 3 /* one may be lost, and one be late */
/* After a silence that should have cost us our place, how long a failure is explained by it. */
#define EXCUSE_NS 2000000000ull
#define MOST_WORDS (FUTEX_WAITV_MAX - 1) /* one is for waking up the thread */

struct peer {
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

    struct peer *peers;           /* size entries */
    _Atomic uint64_t awake_ns;    /* when the thread last ran */
    _Atomic uint64_t silent_ns;   /* its longest recent silence ... */
    _Atomic uint64_t silent_till; /* ... and when that ended */
    _Atomic int judge;            /* who has expelled this rank; -1 = nobody */

    /* The thread's own. */
    struct futex_waitv words[FUTEX_WAITV_MAX];
    unsigned word_count;
    bool no_waitv;
};

static void ring(struct spr_watch *w)
{
    atomic_fetch_add(&w->bell, 1);
    (void)syscall(SYS_futex, &w->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Looking -------------------------------------------------------------------------------------- */

/* Whichever thread sees it first. */
static void lose(struct spr_watch *w, int rank, bool death, const char *text)
{
    if (!atomic_exchange(&w->peers[rank].watched, false))
        return;
    if (w->mesh && w->peers[rank].board && death)
        spr_mesh_tell(w->mesh, -1, SPR_MESH_DIED, rank);
    w->params.lost(w->params.ctx, rank, text, death);
}

static void be_expelled(struct spr_watch *w, int judge)
{
    if (atomic_exchange(&w->judge, judge) < 0)
        w->params.lost(w->params.ctx, w->params.rank, "expelled by the others", false);
}

static void expel(struct spr_watch *w, int rank)
{
    char text[64];

    atomic_store(&w->own.board->slots[rank].verdict, SPR_VERDICT_EXPELLED);
    if (w->mesh)
        spr_mesh_tell(w->mesh, rank, SPR_MESH_EXPELLED, rank);
    snprintf(text, sizeof text, "expelled: no heartbeat for %.3g s", (double)w->expel_ns * 1e-9);
    lose(w, rank, false, text);
}

/* A thread may begin to watch a rank while another one, with an older time, looks. */
static uint64_t age_of(const _Atomic uint64_t *since_ns, uint64_t now)
{
    uint64_t since = atomic_load(since_ns);

    return now > since ? now - since : 0;
}

/* A count that stands still. */
static void look_at_beats(struct spr_watch *w, int rank, uint64_t beats, uint64_t now)
{
    struct peer *p = &w->peers[rank];
    uint64_t silence = age_of(&p->since_ns, now), progress;

    if (p->board) {
        progress = atomic_load_explicit(&p->board->progress, memory_order_relaxed);
        if (atomic_exchange(&p->progress, progress) != progress)
            atomic_store(&p->moved_ns, now);
    }
    if (beats != p->beats) {
        if (p->suspected)
            spr_info(SPR_SUB_WATCH, "rank %d gives heartbeats again, after %.3g s", rank,
                     (double)silence * 1e-9);
        p->beats = beats;
        p->since_ns = now;
        p->suspected = false;
        return;
    }
    if (silence >= w->expel_ns) {
        expel(w, rank);
    } else if (silence >= w->suspect_ns && !p->suspected) {
        p->suspected = true;
        spr_warn(SPR_SUB_WATCH,
                 "rank %d (host %s) gives no heartbeat for %.0f ms: stopped, or its "
                 "host is overloaded; it is expelled after %.3g s",
                 rank, p->host, (double)silence * 1e-6, (double)w->expel_ns * 1e-9);
    }
}

static void look_at(struct spr_watch *w, int rank, uint64_t now)
{
    struct peer *p = &w->peers[rank];
    const struct spr_board_slot *slot = &p->board->slots[w->params.rank];
    uint32_t word = atomic_load_explicit(&slot->word, memory_order_acquire);

    if (atomic_load_explicit(&p->board->state, memory_order_acquire) == SPR_BOARD_LEFT) {
        atomic_store(&p->watched, false);
        return;
    }
    if (word & FUTEX_OWNER_DIED) {
        lose(w, rank, true, "its process died (robust futex)");
        return;
    }
    if (atomic_load(&slot->verdict) == SPR_VERDICT_EXPELLED)
        be_expelled(w, rank);
    look_at_beats(w, rank, atomic_load_explicit(&p->board->beats, memory_order_relaxed), now);
    if (w->word_count <= MOST_WORDS && !w->no_waitv)
        w->words[w->word_count++] =
            (struct futex_waitv){.val = word, .uaddr = (uintptr_t)&slot->word, .flags = FUTEX_32};
}

/* Whoever cannot be heard at all may be alive and well behind a firewall. */
static void give_up(struct spr_watch *w, int rank)
{
    atomic_store(&w->peers[rank].watched, false);
    spr_warn(SPR_SUB_WATCH,
             "no control connection to rank %d (host %s): it will not be noticed "
             "when it stands still",
             rank, w->peers[rank].host);
}

/* `late`: how long this thread did not get to run although it should have. What it did not see
 * then counts for nobody. */
static void look(struct spr_watch *w, uint64_t now, uint64_t late)
{
    w->word_count = 1;
    if (!atomic_load(&w->begun))
        return;
    for (int r = 0; r < w->params.size; r++) {
        struct peer *p = &w->peers[r];
        if (!atomic_load(&p->watched))
            continue;
        if (late >= w->interval_ns)
            p->since_ns = spr_min_u64(p->since_ns + late, now);
        if (p->board)
            look_at(w, r, now);
        else if (atomic_load(&p->heard))
            look_at_beats(w, r, atomic_load(&p->heard), now);
        else if (age_of(&p->since_ns, now) >= w->expel_ns)
            give_up(w, r);
    }
}

/* From the mesh: under its lock ... */
static void on_heard(void *ctx, int rank, uint64_t progress)
{
    struct spr_watch *w = ctx;

    if (atomic_exchange(&w->peers[rank].progress, progress) != progress)
        atomic_store(&w->peers[rank].moved_ns, spr_monotonic_ns());
    atomic_fetch_add(&w->peers[rank].heard, 1);
}

static void on_left(void *ctx, int rank)
{
    struct spr_watch *w = ctx;

    atomic_store(&w->peers[rank].watched, false);
}

/* ... and without. */
static void on_lost(void *ctx, int rank, const char *text, bool death)
{
    struct spr_watch *w = ctx;

    if (rank == w->params.rank)
        be_expelled(w, rank);
    else
        lose(w, rank, death, text);
}

/* The thread ----------------------------------------------------------------------------------- */

static void sleep_until(struct spr_watch *w, uint32_t bell, uint64_t until_ns)
{
    struct timespec t;
    long rc;

    if (!w->no_waitv) {
        t = (struct timespec){(time_t)(until_ns / 1000000000ull), (long)(until_ns % 1000000000ull)};
        w->words[0] = (struct futex_waitv){
            .val = bell, .uaddr = (uintptr_t)&w->bell, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
        rc = syscall(SYS_futex_waitv, w->words, w->word_count, 0, &t, CLOCK_MONOTONIC);
        if (rc >= 0 || (errno != ENOSYS && errno != EPERM))
            return;
        w->no_waitv = true;
        spr_info(SPR_SUB_WATCH,
                 "futex_waitv: %m (Linux 5.16 has it); a rank's death is seen within "
                 "%llu ms",
                 POLL_NS / 1000000);
    }
    until_ns = spr_min_u64(until_ns, spr_monotonic_ns() + POLL_NS);
    t = (struct timespec){(time_t)(until_ns / 1000000000ull), (long)(until_ns % 1000000000ull)};
    (void)syscall(SYS_futex, &w->bell, FUTEX_WAIT_BITSET_PRIVATE, bell, &t, NULL,
                  FUTEX_BITSET_MATCH_ANY);
}

static void note_silence(struct spr_watch *w, uint64_t now)
{
    uint64_t before = atomic_exchange(&w->awake_ns, now);

    if (now - before < w->suspect_ns)
        return;
    atomic_store(&w->silent_ns, now - before);
    atomic_store(&w->silent_till, now);
}

static void *watch_main(void *arg)
{
    struct spr_watch *w = arg;
    uint64_t due = spr_monotonic_ns();

    pthread_setname_np(pthread_self(), "spr-watch");
    atomic_store(&w->awake_ns, due);
    spr_board_hold(w->own.board, &w->head, w->nodes);
    atomic_store(&w->tid, (uint32_t)syscall(SYS_gettid));
    (void)syscall(SYS_futex, &w->tid, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    while (!atomic_load(&w->stop)) {
        uint32_t bell = atomic_load(&w->bell);
        uint64_t now = spr_monotonic_ns(), late = now > due ? now - due : 0;
        note_silence(w, now);
        if (now >= due) {
            atomic_fetch_add_explicit(&w->own.board->beats, 1, memory_order_relaxed);
            due = now + w->interval_ns;
        }
        look(w, now, late);
        sleep_until(w, bell, due);
    }
    spr_board_release(w->own.board, &w->head);
    return NULL;
}

static spr_status start(struct spr_watch *w, struct spr_error *error)
{
    sigset_t all, old;
    int rc;

    /* Signals are the program's business: none is taken on our thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, rc, "cannot start the watch thread");
    w->has_thread = true;
    while (!atomic_load(&w->tid))
        (void)syscall(SYS_futex, &w->tid, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return SPR_OK;
}

/* Life ----------------------------------------------------------------------------------------- */

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
                                     .heard = on_heard,
                                     .left = on_left,
                                     .lost = on_lost};
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
    struct peer *p = &w->peers[rank];

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
    ring(w);
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
    const struct peer *p = &w->peers[rank];
    uint64_t progress = p->board ? atomic_load(&p->board->progress) : atomic_load(&p->progress);
    uint64_t now = spr_monotonic_ns();

    if (!atomic_load(&p->watched) || (!p->board && !atomic_load(&p->heard)))
        return false;
    standing->posted = (uint32_t)(progress >> 32);
    standing->still_ns = age_of(&p->moved_ns, now);
    standing->silent_ns = age_of(&p->since_ns, now);
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
        ring(w);
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
