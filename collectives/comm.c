/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A communicator's heart: progress, sleeping and waking, who drives.
 */
#include "collectives/comm.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fork.h"
#include "collectives/collective.h"
#include "collectives/dispute.h"
#include "collectives/membership.h"
#include "collectives/watch.h"

#define TIMER_NS 1000000ull
/* Of the pool: few registrations, and no more than 2 MiB that nobody may need. */
#define BUFFERS_PER_BLOCK 7

static void on_failed(void *ctx, spr_status status, int rank, int told_by, const char *text)
{
    const spr_comm *comm = ctx;

    /* Who is blamed comes from the wire. */
    spr_comm_fail(ctx, status, rank < comm->size ? rank : told_by, told_by, text);
}

static enum spr_operation_state state_of(void *ctx, uint32_t operation, uint64_t *descriptor)
{
    spr_comm *comm = ctx;
    const struct spr_past *past;
    struct spr_list *it;

    if ((int32_t)(operation - comm->next_operation) >= 0)
        return SPR_OPERATION_FUTURE;
    spr_list_for_each(it, &comm->running)
    {
        const spr_request *rq = spr_list_entry(it, spr_request, node);
        if (rq->operation != operation)
            continue;
        *descriptor = rq->descriptor;
        return rq->rejected ? SPR_OPERATION_REJECTED : SPR_OPERATION_RUNNING;
    }
    past = spr_past_find(comm, operation);
    if (past)
        *descriptor = past->hash;
    return past && past->rejected ? SPR_OPERATION_REJECTED : SPR_OPERATION_OVER;
}

static void on_mismatch(void *ctx, int peer, uint32_t operation)
{
    spr_dispute_found(ctx, peer, operation);
}

static void on_note(void *ctx, int peer, const struct spr_frame *f, const void *data)
{
    if (f->type == SPR_FRAME_VIEW)
        spr_membership_view(ctx, peer, data, f->bytes);
    else
        spr_dispute_note(ctx, peer, f, data);
}

/* Encoders write where the transports send from. What is received there is checked, and then used:
 * it is no place for peers to write. */
static void on_buffers(void *ctx, void *memory, size_t bytes)
{
    spr_comm_offer_memory(ctx, memory, bytes, false);
}

struct spr_transport_params spr_comm_transport_params(spr_comm *comm)
{
    return (struct spr_transport_params){
        .rank = comm->rank,
        .size = comm->size,
        .epoch = comm->channel.epoch,
        .options = &comm->options,
        .events = &spr_channel_link_events,
        .up = &comm->channel,
        .clock = comm->clock,
        .counters = &comm->counters,
        .trace = comm->trace,
    };
}

static spr_status link_to_self(spr_comm *comm)
{
    const struct spr_transport_params params = spr_comm_transport_params(comm);
    const struct spr_transport_ops *ops = &spr_transport_self;
    struct spr_transport **self = &comm->transports[0];
    struct spr_error error = {0};
    struct spr_link *link;
    spr_status status = ops->open(&params, self, &error);

    if (status)
        return status;
    comm->transport_count = 1;
    status = ops->connect(*self, comm->rank, NULL, &link, &error);
    if (status == SPR_OK)
        spr_channel_attach(&comm->channel, link, false);
    return status;
}

spr_status spr_comm_new(int rank, int size, const struct spr_options *options,
                        const struct spr_clock *clock, spr_comm **out)
{
    spr_comm *comm = spr_calloc(1, sizeof *comm);
    spr_status status;

    if (!comm)
        return SPR_ERR_NOMEM;
    comm->rank = rank;
    comm->size = comm->world = size;
    comm->options = *options;
    comm->clock = clock;
    comm->epoll_fd = comm->wake_fd = comm->timer_fd = -1;
    comm->process = spr_process();
    comm->next_operation = 1;
    comm->standing = spr_comm_watch_standing;
    comm->standing_ctx = comm;
    spr_list_init(&comm->running);
    spr_list_init(&comm->ready);
    spr_list_init(&comm->finished);
    spr_list_init(&comm->spare);
    spr_list_init(&comm->news);
    spr_list_init(&comm->codecs);
    spr_memory_init(&comm->memory);
    spr_pool_init(&comm->buffers, SPR_FRAME_MAX_PAYLOAD, BUFFERS_PER_BLOCK, 0);
    comm->buffers.grown = on_buffers;
    comm->buffers.grown_ctx = comm;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->thread_wake, NULL);
    {
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&comm->changed, &attr);
        pthread_condattr_destroy(&attr);
    }
    comm->trace = spr_trace_new(rank, size);
    comm->past = spr_calloc(SPR_PAST, sizeof *comm->past);
    comm->ids = spr_calloc((size_t)size, sizeof *comm->ids);
    comm->loss.noted = spr_calloc((size_t)size, sizeof *comm->loss.noted);
    for (int r = 0; comm->ids && r < size; r++)
        comm->ids[r] = r;
    status = comm->trace && comm->past && comm->ids && comm->loss.noted
                 ? spr_channel_init(&comm->channel, rank, size, 1, &comm->options, clock,
                                    &comm->counters, comm->trace)
                 : SPR_ERR_NOMEM;
    if (status == SPR_OK)
        status = link_to_self(comm);
    if (status == SPR_OK)
        status = spr_membership_new(comm);
    if (status) {
        memset(&comm->options, 0, sizeof comm->options); /* still the caller's */
        spr_comm_free(comm);
        return status;
    }
    comm->channel.events =
        (struct spr_channel_events){on_failed, on_mismatch, on_note, state_of, comm};
    *out = comm;
    return SPR_OK;
}

void spr_comm_free(spr_comm *comm)
{
    struct spr_list *lists[] = {&comm->running, &comm->finished, &comm->spare};

    spr_outcome_close(comm);
    /* First, since their queues hold frames of requests. */
    for (int i = 0; i < comm->transport_count; i++)
        comm->transports[i]->ops->close(comm->transports[i]);
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        while (!spr_list_empty(lists[i])) {
            spr_request *rq = spr_list_entry(lists[i]->next, spr_request, node);
            spr_list_remove(&rq->node);
            spr_arena_free(&rq->arena);
            spr_free(rq);
        }
    }
    spr_channel_destroy(&comm->channel);
    spr_memory_destroy(&comm->memory);
    spr_pool_destroy(&comm->buffers);
    if (comm->epoll_fd >= 0)
        close(comm->epoll_fd);
    if (comm->wake_fd >= 0)
        close(comm->wake_fd);
    if (comm->timer_fd >= 0)
        close(comm->timer_fd);
    spr_free(comm->peers);
    spr_dispute_clear(comm);
    spr_membership_free(comm);
    spr_free(comm->ids);
    spr_free(comm->past);
    spr_free(comm->loss.noted);
    spr_trace_free(comm->trace);
    spr_opt_free(spr_options_table, spr_options_count, &comm->options);
    explicit_bzero(&comm->key, sizeof comm->key);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    pthread_cond_destroy(&comm->thread_wake);
    spr_free(comm);
}

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
    if (comm->error.status && now >= comm->recall_ns && spr_channel_recalls(&comm->channel))
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

int spr_comm_progress_locked(spr_comm *comm)
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
    spr_comm_take_loss(comm, events);
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
        wake = spr_min_u64(wake, spr_min_u64(rq->deadline_ns, rq->warn_ns));
        if (rq->rejected)
            continue;
        wake = spr_min_u64(wake, rq->describe_ns ? rq->describe_ns : UINT64_MAX);
        wake = spr_min_u64(wake, rq->dispute_ns ? rq->dispute_ns : UINT64_MAX);
    }
    return wake;
}

spr_status spr_comm_arm_locked(spr_comm *comm)
{
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

static bool drive_alone(spr_comm *comm, bool (*done)(void *arg), void *arg, uint64_t until_ns)
{
    uint64_t idle_since = 0;

    while (!done(arg)) {
        uint64_t now;
        if (spr_comm_progress_locked(comm)) {
            idle_since = 0;
            if (comm->background)
                pthread_cond_broadcast(&comm->changed);
            if (comm->waiters) { /* let others look and post */
                pthread_mutex_unlock(&comm->lock);
                pthread_mutex_lock(&comm->lock);
            }
            if (until_ns != UINT64_MAX && spr_monotonic_ns() >= until_ns)
                return done(arg);
            continue;
        }
        now = spr_monotonic_ns();
        if (now >= until_ns)
            return done(arg);
        if (comm->may_spin) {
            idle_since = idle_since ? idle_since : now;
            if ((double)(now - idle_since) < comm->options.spin_s * 1e9) {
                pthread_mutex_unlock(&comm->lock);
                spr_cpu_relax();
                pthread_mutex_lock(&comm->lock);
                continue;
            }
        }
        if (spr_comm_arm_locked(comm) == SPR_OK)
            sleep_unlocked(comm, until_ns);
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
    ok = drive_alone(comm, done, arg, until_ns);
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
    /* ... or that this rank has left. */
    if (comm->left && !comm->error.status && comm->channel.frames_out > 0)
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

    pthread_mutex_lock(&comm->lock);
    while (!comm->thread_stop) {
        if (comm->driving || thread_done(comm)) {
            pthread_cond_wait(&comm->thread_wake, &comm->lock);
            continue;
        }
        comm->driving = true;
        drive_alone(comm, thread_done, comm, UINT64_MAX);
        comm->driving = false;
        pthread_cond_broadcast(&comm->changed);
    }
    pthread_mutex_unlock(&comm->lock);
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
    pthread_mutex_lock(&comm->lock);
    comm->thread_stop = true;
    spr_comm_kick(comm);
    pthread_cond_broadcast(&comm->thread_wake);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    comm->has_thread = false;
    comm->thread_stop = false;
}
