/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A communicator's heart: progress, sleeping and waking, who drives.
 */
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cpu.h"
#include "collectives/collective.h"
#include "collectives/comm.h"
#include "collectives/watch.h"

#define TIMER_NS 1000000ull
#define POLITE_NS 20000000u /* so long is a quiet link looked at while somebody waits */
#define LOOKS 15            /* between two of a polling driver that read a clock */
#define ASIDE 100           /* times that a driver yields for who wants the lock */

/* Progress ------------------------------------------------------------------------------------- */

static void check_timers(spr_comm *comm)
{
    uint64_t now = spr_now_ns(comm->clock);

    if (now < comm->next_timer_ns)
        return;
    comm->next_timer_ns = now + TIMER_NS;
    if (!comm->error.status)
        spr_comm_check_deadlines(comm, now);
    else if (now >= comm->grace_ns && !comm->channel.settled && !comm->channel.dead)
        spr_channel_settle(&comm->channel);
    if (comm->error.status && now >= comm->recall_ns)
        spr_channel_cut_silent(&comm->channel);
    if (comm->leave_ns && now >= comm->leave_ns) {
        comm->leave_ns = 0;
        spr_channel_cut_gone(&comm->channel);
    }
}

/* After a failure: complete what has nothing under way any more. Returns how many. */
static int end_all(spr_comm *comm)
{
    struct spr_list *it, *next;
    int ended = 0;

    spr_list_for_each_safe(it, next, &comm->running)
    {
        spr_request *rq = spr_list_entry(it, spr_request, node);
        spr_collective_step(rq);
        ended += rq->done;
    }
    return ended;
}

static int look(spr_comm *comm)
{
    int events = 0;

    for (int i = 0; i < comm->transport_count; i++)
        events += comm->transports[i]->ops->progress(comm->transports[i]);
    while (!spr_list_empty(&comm->ready)) {
        spr_request *rq = spr_list_entry(comm->ready.next, spr_request, ready_node);
        spr_list_remove(&rq->ready_node);
        spr_collective_step(rq);
        events++;
    }
    spr_channel_send_held(&comm->channel);
    spr_comm_take_loss(comm, events);
    comm->channel.recent_ns = 0;
    return events;
}

int spr_comm_progress_locked(spr_comm *comm)
{
    int events = look(comm);

    check_timers(comm);
    if (comm->error.status && spr_channel_told(&comm->channel))
        events += end_all(comm);
    return events;
}

/* Sleeping and waking -------------------------------------------------------------------------- */

void spr_comm_kick(spr_comm *comm)
{
    uint64_t one = 1;

    if ((comm->sleeping || comm->armed) && comm->wake_fd >= 0) {
        comm->armed = false;
        if (write(comm->wake_fd, &one, sizeof one) < 0)
            return; /* the counter is full: it is awake */
    } else if (comm->has_thread && !comm->driving) {
        pthread_cond_signal(&comm->thread_wake);
    }
}

/* The next deadline, or the end of the grace time; UINT64_MAX: none. */
static uint64_t next_timer(const spr_comm *comm)
{
    uint64_t wake = UINT64_MAX;
    struct spr_list *it;
    int waiting = 0;

    /* Nothing wakes us when the others have been told. */
    if (comm->error.status && !spr_channel_told(&comm->channel))
        wake = spr_min_u64(comm->grace_ns, spr_now_ns(comm->clock) + TIMER_NS);
    else if (comm->error.status && !comm->channel.dead && !comm->channel.settled)
        wake = comm->grace_ns;
    if (comm->error.status && spr_channel_recalls(&comm->channel))
        wake = spr_min_u64(wake, comm->recall_ns);
    if (comm->leave_ns)
        wake = spr_min_u64(wake, comm->leave_ns);
    spr_list_for_each(it, &comm->running)
    {
        const spr_request *rq = spr_list_entry(it, spr_request, node);
        if (rq->ended)
            continue;
        wake = spr_min_u64(wake, rq->deadline_ns);
        if (rq->dispute_ns && !rq->rejected)
            wake = spr_min_u64(wake, rq->dispute_ns);
        if (waiting++ >= SPR_LATE_MOST)
            continue;
        wake = spr_min_u64(wake, spr_max_u64(rq->warn_ns, comm->calm_ns));
        if (rq->describe_ns && !rq->rejected)
            wake = spr_min_u64(wake, rq->describe_ns);
    }
    return wake;
}

spr_status spr_comm_arm_locked(spr_comm *comm)
{
    uint64_t rung;

    if (!spr_list_empty(&comm->ready))
        return SPR_IN_PROGRESS;
    for (int i = 0; i < comm->transport_count; i++)
        if (comm->transports[i]->ops->arm(comm->transports[i]) != SPR_OK)
            return SPR_IN_PROGRESS;
    if (comm->timer_fd >= 0) {
        uint64_t wake = next_timer(comm);
        struct itimerspec t = {0};
        if (wake != UINT64_MAX) {
            t.it_value.tv_sec = (time_t)(wake / 1000000000ull);
            t.it_value.tv_nsec = (long)(wake % 1000000000ull);
        }
        timerfd_settime(comm->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
        /* What has been rung before: to the caller's poll() it would be there for ever. */
        (void)!read(comm->wake_fd, &rung, sizeof rung);
        comm->armed = true;
    }
    return SPR_OK;
}

/* Until when to sleep: the caller's limit or the next timer. */
static int sleep_ms(const spr_comm *comm, uint64_t until_ns)
{
    uint64_t now = spr_now_ns(comm->clock), wake = spr_min_u64(until_ns, next_timer(comm));

    if (wake == UINT64_MAX)
        return -1;
    return wake <= now ? 0 : (int)spr_min_u64((wake - now) / 1000000 + 1, 3600000);
}

static void sleep_unlocked(spr_comm *comm, uint64_t until_ns)
{
    struct epoll_event events[SPR_MAX_TRANSPORTS + 2];
    int ms = sleep_ms(comm, until_ns);

    comm->sleeping = true;
    comm->counters.sleeps++;
    pthread_mutex_unlock(&comm->lock);
    (void)epoll_wait(comm->epoll_fd, events, SPR_MAX_TRANSPORTS + 2, ms);
    pthread_mutex_lock(&comm->lock);
    comm->sleeping = comm->armed = false;
}

/* Another thread drives: wait until something changed. */
static void wait_for_driver(spr_comm *comm, uint64_t until_ns)
{
    comm->waiters++;
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(&comm->changed, &comm->lock);
    } else {
        struct timespec t = {(time_t)(until_ns / 1000000000ull), (long)(until_ns % 1000000000ull)};
        pthread_cond_timedwait(&comm->changed, &comm->lock, &t);
    }
    comm->waiters--;
}

/* Another thread waits for the lock. */
static bool is_wanted(const spr_comm *comm)
{
    return atomic_load_explicit(&comm->callers, memory_order_relaxed) > 0;
}

/* Others look and post meanwhile. A mutex is not fair: who has waited for it gets it from who takes
 * it again at once only if that one steps aside; for a while, they may have no CPU. */
static void step_aside(spr_comm *comm, bool idle)
{
    pthread_mutex_unlock(&comm->lock);
    if (idle)
        sched_yield();
    for (int i = 0; i < ASIDE && is_wanted(comm); i++)
        sched_yield();
    pthread_mutex_lock(&comm->lock);
}

static void make_way(spr_comm *comm, bool idle)
{
    if (comm->waiters || is_wanted(comm))
        step_aside(comm, idle);
}

/* progress for who polls: a clock costs as much as a look, so only some of the looks have one. */
static int look_often(spr_comm *comm)
{
    for (int i = 0; i < LOOKS && !is_wanted(comm); i++) {
        int events = look(comm);
        if (events)
            return events;
        spr_cpu_relax();
    }
    return spr_comm_progress_locked(comm);
}

/* How to look again when there was nothing to do for a while. */
enum patience { SLEEP, YIELD, SPIN };

/* Who has a CPU keeps it for SPARRING_SPIN; while somebody waits, and something has happened within
 * POLITE_NS, it lets go of it after each look then: asleep, this host would have an idle CPU, and
 * the peer would wait for it to wake. A caller who has none does so at once, for SPARRING_SPIN. */
static enum patience patience(const spr_comm *comm, uint64_t now, uint64_t idle_since,
                              bool is_caller)
{
    double spin_ns = comm->options.spin_s * 1e9;
    bool soon = (double)(now - idle_since) < spin_ns;

    if (!comm->may_spin)
        return is_caller && soon ? YIELD : SLEEP;
    if (soon)
        return SPIN;
    if (spin_ns == 0 || !(is_caller || comm->waiters > 0))
        return SLEEP;
    return (double)(now - comm->quiet_since) < spin_ns + POLITE_NS ? YIELD : SLEEP;
}

/* `is_caller`: somebody waits in a call; else it is the library's thread. */
static bool drive_alone(spr_comm *comm, bool (*done)(void *arg), void *arg, uint64_t until_ns,
                        bool is_caller)
{
    uint64_t idle_since = 0; /* 0: not polling */
    enum patience how = SLEEP;

    while (!done(arg)) {
        uint64_t now;
        if (how == SPIN ? look_often(comm) : spr_comm_progress_locked(comm)) {
            idle_since = comm->quiet_since = 0;
            how = SLEEP;
            if (comm->background)
                pthread_cond_broadcast(&comm->changed);
            make_way(comm, false);
            if (until_ns != UINT64_MAX && spr_monotonic_ns() >= until_ns)
                return done(arg);
            continue;
        }
        now = spr_monotonic_ns();
        if (now >= until_ns)
            return done(arg);
        idle_since = idle_since ? idle_since : now;
        comm->quiet_since = comm->quiet_since ? comm->quiet_since : now;
        how = patience(comm, now, idle_since, is_caller);
        if (how == SPIN)
            make_way(comm, false);
        else if (how == YIELD)
            step_aside(comm, true);
        else if (spr_comm_arm_locked(comm) == SPR_OK)
            sleep_unlocked(comm, until_ns);
        else
            make_way(comm, true);
    }
    return true;
}

static bool drive(spr_comm *comm, bool (*done)(void *arg), void *arg, uint64_t until_ns)
{
    bool ok;

    while (!done(arg) && (comm->driving || (comm->thread_only && comm->has_thread))) {
        if (spr_monotonic_ns() >= until_ns)
            return false;
        spr_comm_kick(comm); /* the library's thread makes way, or begins */
        wait_for_driver(comm, until_ns);
    }
    if (done(arg))
        return true;
    comm->driving = true;
    ok = drive_alone(comm, done, arg, until_ns, true);
    comm->driving = false;
    pthread_cond_broadcast(&comm->changed);
    return ok;
}

/* The library's thread drives while collectives run and nobody waits; always, when nobody else may.
 */
static bool thread_done(void *arg)
{
    spr_comm *comm = arg;

    if (comm->thread_stop || (comm->waiters > 0 && !comm->thread_only))
        return true;
    if (comm->thread_only || comm->loss.pending)
        return false;
    /* After a failure the others still have to be told. */
    if (comm->error.status && !spr_channel_told(&comm->channel))
        return false;
    /* ... or what this rank has said last, such as that it has left: nobody else may see to that.
     */
    if (!comm->error.status && comm->channel.frames_out > 0)
        return false;
    return spr_list_empty(&comm->running) && comm->background == 0;
}

bool spr_comm_drive(spr_comm *comm, bool (*done)(void *arg), void *arg, uint64_t until_ns)
{
    bool ok;

    comm->inside++;
    ok = drive(comm, done, arg, until_ns);
    comm->inside--;
    /* Whoever leaves hands over: to another waiter, and when there is none to the library's thread.
     * That one is not woken for nothing: it would take a CPU from a rank that polls. */
    if (comm->has_thread && !comm->driving && !thread_done(comm))
        pthread_cond_signal(&comm->thread_wake);
    if (comm->closing)
        pthread_cond_broadcast(&comm->changed);
    return ok;
}

/* The library's thread ------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    spr_comm *comm = arg;

    spr_comm_lock(comm);
    while (!comm->thread_stop) {
        if (comm->driving || thread_done(comm)) {
            pthread_cond_wait(&comm->thread_wake, &comm->lock);
            continue;
        }
        comm->driving = true;
        drive_alone(comm, thread_done, comm, UINT64_MAX, false);
        comm->driving = false;
        pthread_cond_broadcast(&comm->changed);
    }
    spr_comm_unlock(comm);
    return NULL;
}

spr_status spr_comm_start_thread(spr_comm *comm)
{
    sigset_t all, old;
    int rc;

    /* Signals are the program's business: none is taken on our thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&comm->thread, NULL, thread_main, comm);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return spr_error_errno(spr_thread_error(), SPR_ERR_SYSTEM, -1, rc,
                               "cannot start the progress thread");
    comm->has_thread = true;
    return SPR_OK;
}

void spr_comm_stop_thread(spr_comm *comm)
{
    if (!comm->has_thread)
        return;
    spr_comm_lock(comm);
    comm->thread_stop = true;
    spr_comm_kick(comm);
    pthread_cond_broadcast(&comm->thread_wake);
    spr_comm_unlock(comm);
    pthread_join(comm->thread, NULL);
    comm->has_thread = false;
    comm->thread_stop = false;
}
