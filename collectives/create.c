/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making and ending a communicator.
 */
#include "collectives/create.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/choice.h"
#include "collectives/decisions.h"
#include "collectives/watch.h"

/* How long destroy() waits for the others' goodbye. */
#define LINGER_NS 100000000ull

static spr_status open_epoll(spr_comm *comm, struct spr_error *error)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

    comm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->epoll_fd < 0 || comm->wake_fd < 0 ||
        epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, comm->wake_fd, &ev) ||
        (comm->options.progress == 1 &&
         ((comm->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0 ||
          epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, comm->timer_fd, &ev))))
        return spr_error_errno(error, SPR_ERR_SYSTEM, comm->rank, errno,
                               "rank %d: cannot create epoll and event descriptors", comm->rank);
    ev.events = EPOLLIN;
    for (int i = 0; i < comm->transport_count; i++) {
        int fd = comm->transports[i]->ops->fd(comm->transports[i]);
        if (fd >= 0 && epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
            return spr_error_errno(error, SPR_ERR_SYSTEM, comm->rank, errno,
                                   "rank %d: cannot watch transport %s", comm->rank,
                                   comm->transports[i]->ops->name);
    }
    return SPR_OK;
}

spr_status spr_comm_build(spr_comm *comm, spr_bootstrap *boot, const spr_bootstrap *meeting,
                          uint64_t deadline_ns, struct spr_error *error)
{
    spr_status status;

    status = spr_comm_check_transports(comm->options.transports, error);
    if (status == SPR_OK && comm->size > 1)
        status = spr_comm_open_transports(comm, NULL, error);
    if (status == SPR_OK && comm->size > 1)
        spr_comm_watch_open(comm);
    if (status == SPR_OK)
        status = spr_comm_exchange(comm, boot, deadline_ns, error);
    if (status == SPR_OK) {
        spr_comm_close_unused(comm);
        status = open_epoll(comm, error);
    }
    /* The library's thread only helps when there is somebody to talk to. */
    if (status == SPR_OK && comm->options.progress == 0 && comm->size > 1)
        status = spr_comm_start_thread(comm);
    if (status == SPR_OK && comm->size > 1) {
        /* From here on: who dies now would be waited for until the deadline. */
        spr_comm_watch_begin(comm);
        status = spr_comm_connect(comm, meeting, deadline_ns, error);
    }
    if (status == SPR_OK)
        spr_trace_ready(comm->trace);
    return status;
}

/* The others would not come; the state they hand over would go nowhere. */
static spr_status refuse_to_restart(const spr_comm_options *user, struct spr_error *error)
{
    const char *join = getenv("SPARRING_JOIN");
    bool by_environment = !user || (!user->bootstrap && user->size == 0);

    if (!by_environment || !join || !*join || !strcmp(join, "0"))
        return SPR_OK;
    return spr_error_set(error, SPR_ERR_INVALID, -1,
                         "SPARRING_JOIN=%s: this process is to join a job that is running, with "
                         "spr_comm_grow(NULL, ...)",
                         join);
}

spr_status spr_comm_create(const spr_comm_options *user, spr_comm **out)
{
    struct spr_error *error = spr_thread_error();
    struct spr_options options = {0};
    struct spr_identity id = {0};
    struct spr_auth_key key = {0};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    struct spr_decisions *decisions = NULL;
    spr_comm *comm = NULL;
    uint64_t deadline, decisions_hash;
    spr_status status;

    spr_error_clear(error);
    if (!out || (user && user->struct_size != sizeof *user))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "options not set up with "
                             "SPR_COMM_OPTIONS_INIT");
    /* Whatever happens, it is closed. */
    if (user && user->bootstrap && user->bootstrap->struct_size == sizeof boot)
        boot = *user->bootstrap;
    status = refuse_to_restart(user, error);
    if (status == SPR_OK)
        status = spr_comm_load_options(user, &options, error);
    if (status == SPR_OK)
        status = spr_decisions_load(&options, &decisions, &decisions_hash, error);
    if (status)
        goto undo_boot;
    deadline = spr_monotonic_ns() + spr_seconds_ns(options.init_timeout_s * spr_time_factor());
    key.epoch = 1;
    key.config_hash = spr_comm_config_hash(&options, decisions_hash);
    status = spr_bootstrap_open(user, &options, deadline, &id, &key, &boot, error);
    if (status)
        goto undo_boot;
    spr_log_set_rank(id.rank);
    status = spr_comm_new(id.rank, id.size, &options, &spr_clock_monotonic, &comm);
    if (status)
        goto undo_boot;
    memset(&options, 0, sizeof options); /* moved */
    comm->key = key;
    comm->decisions = decisions;
    decisions = NULL;
    if (id.root[0])
        snprintf(comm->meet, sizeof comm->meet, "%s", id.root);
    else if (id.file[0])
        snprintf(comm->meet, sizeof comm->meet, "file:%s", id.file);
    spr_record_open(comm);
    status = spr_decisions_open(comm, error);
    if (status == SPR_OK)
        status = spr_comm_build(comm, &boot, NULL, deadline, error);
    if (status)
        goto undo_boot;
    spr_comm_announce(comm);
    if (!strcmp(comm->options.model, "measure"))
        status = spr_comm_tune(comm);
    if (status == SPR_OK)
        status = spr_decisions_begin(comm, &boot, deadline, error);
    if (status)
        goto undo_boot;
    *out = comm;
undo_boot:
    if (boot.close)
        boot.close(boot.ctx);
    if (status)
        spr_comm_discard(comm);
    spr_decisions_free(decisions);
    spr_opt_free(spr_options_table, spr_options_count, &options);
    explicit_bzero(&key, sizeof key);
    if (status && !error->status)
        spr_error_set(error, status, -1, "%s", spr_status_string(status));
    return status;
}

/* Ending --------------------------------------------------------------------------------------- */

static bool everybody_left(void *arg)
{
    const spr_comm *comm = arg;
    bool idle = comm->channel.frames_out == 0;

    if (comm->error.status)
        idle = spr_channel_told(&comm->channel);
    for (int i = 0; i < comm->transport_count && idle; i++)
        idle = comm->transports[i]->ops->idle(comm->transports[i]);
    return idle && spr_list_empty(&comm->running) &&
           (comm->error.status || spr_channel_all_left(&comm->channel));
}

static bool nobody_runs(void *arg) { return spr_list_empty(&((spr_comm *)arg)->running); }

bool spr_comm_leave(spr_comm *comm)
{
    if (comm->error.status)
        return false;
    if (!comm->left)
        spr_channel_bye(&comm->channel, comm->next_operation);
    comm->left = !comm->error.status; /* there may be no memory for a frame */
    /* Without a thread of the library, nobody else may move it. */
    if (!comm->has_thread && !comm->driving)
        spr_comm_progress_locked(comm);
    spr_comm_kick(comm);
    return comm->left;
}

/* Say goodbye, and give the others LINGER_NS for theirs; what still runs then is cut off. */
static void finish(spr_comm *comm)
{
    uint64_t linger = (uint64_t)((double)LINGER_NS * spr_time_factor());

    comm->closing = true;
    if (!spr_list_empty(&comm->running))
        spr_comm_fail(comm, SPR_ERR_CANCELED, comm->rank, -1, "the communicator was destroyed");
    else
        spr_comm_leave(comm);
    comm->background++;
    spr_comm_kick(comm);
    spr_comm_drive(comm, everybody_left, comm, spr_monotonic_ns() + linger);
    if (!spr_list_empty(&comm->running)) {
        /* Whoever drives cuts what is stuck: the operations of a ring are one thread's. */
        comm->grace_ns = comm->next_timer_ns = 0;
        spr_comm_kick(comm);
        spr_comm_drive(comm, nobody_runs, comm, spr_monotonic_ns() + linger / 2);
    }
    if (!spr_list_empty(&comm->running)) {
        spr_channel_kill(&comm->channel);
        spr_comm_kick(comm);
        spr_comm_drive(comm, nobody_runs, comm, spr_monotonic_ns() + linger / 2);
    }
    comm->background--;
    /* Threads that were waiting have their results now. */
    while (comm->inside > 0)
        pthread_cond_wait(&comm->changed, &comm->lock);
}

void spr_comm_destroy(spr_comm *comm)
{
    if (!comm || comm->process != spr_process()) /* a forked child leaves its parent's alone */
        return;
    spr_comm_lock(comm);
    if (comm->size > 1)
        finish(comm);
    spr_comm_unlock(comm);
    spr_comm_watch_close(comm);
    spr_comm_stop_thread(comm);
    spr_comm_free(comm);
}

void spr_comm_discard(spr_comm *comm)
{
    if (!comm)
        return;
    spr_comm_stop_thread(comm);
    spr_comm_watch_close(comm);
    spr_comm_free(comm);
}

void spr_comm_withdraw(spr_comm *comm, const char *why)
{
    if (comm && comm->peers && comm->epoll_fd >= 0) {
        spr_comm_abort(comm, why);
        spr_comm_destroy(comm);
    } else {
        spr_comm_discard(comm);
    }
}

void spr_comm_abort(spr_comm *comm, const char *reason)
{
    if (!comm || comm->process != spr_process()) /* the links are the parent's */
        return;
    spr_comm_lock(comm);
    spr_comm_fail(comm, SPR_ERR_REVOKED, comm->rank, -1, reason ? reason : "abort");
    /* Without a thread of the library, this may be our last call: let the news go now. */
    if (!comm->has_thread && !comm->driving)
        spr_comm_progress_locked(comm);
    spr_comm_kick(comm);
    spr_comm_unlock(comm);
}
