/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The thread "spr-watch": beats, and looks at the boards of the peers on this host. It sleeps on
 * the futex words of all of them at once (futex_waitv, Linux 5.16); where that is missing it looks
 * at them every POLL_NS.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/watch/private.h"

#define POLL_NS 10000000ull
#define MOST_WORDS (FUTEX_WAITV_MAX - 1) /* one is for waking up the thread */

void spr_watch_ring(struct spr_watch *w)
{
    atomic_fetch_add(&w->bell, 1);
    (void)syscall(SYS_futex, &w->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

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

/* A count that stands still. */
static void look_at_beats(struct spr_watch *w, int rank, uint64_t beats, uint64_t now)
{
    struct spr_watch_peer *p = &w->peers[rank];
    uint64_t silence = spr_watch_age(&p->since_ns, now), progress;

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
    struct spr_watch_peer *p = &w->peers[rank];
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
        struct spr_watch_peer *p = &w->peers[r];
        if (!atomic_load(&p->watched))
            continue;
        if (late >= w->interval_ns)
            p->since_ns = spr_min_u64(p->since_ns + late, now);
        if (p->board)
            look_at(w, r, now);
        else if (atomic_load(&p->heard))
            look_at_beats(w, r, atomic_load(&p->heard), now);
        else if (spr_watch_age(&p->since_ns, now) >= w->expel_ns)
            give_up(w, r);
    }
}

void spr_watch_on_heard(void *ctx, int rank, uint64_t progress)
{
    struct spr_watch *w = ctx;

    if (atomic_exchange(&w->peers[rank].progress, progress) != progress)
        atomic_store(&w->peers[rank].moved_ns, spr_monotonic_ns());
    atomic_fetch_add(&w->peers[rank].heard, 1);
}

void spr_watch_on_left(void *ctx, int rank)
{
    struct spr_watch *w = ctx;

    atomic_store(&w->peers[rank].watched, false);
}

void spr_watch_on_lost(void *ctx, int rank, const char *text, bool death)
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

void *spr_watch_main(void *arg)
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
