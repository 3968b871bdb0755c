/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Communicator, inside. Everything in here is guarded by `lock`; progress runs with the lock held
 * and gives it up only to sleep.
 *
 * Who progresses: one thread at a time, the "driver". A thread in spr_wait() becomes the driver
 * when there is none; otherwise the library's thread (SPR_PROGRESS_THREAD) is, while collectives
 * run. With io_uring links the library's thread is always the driver (the ring belongs to one
 * thread).
 */
#ifndef SPR_COLLECTIVES_COMM_H
#define SPR_COLLECTIVES_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sparring/sparring.h>

#include "base/list.h"
#include "base/workers.h"
#include "collectives/model.h"
#include "collectives/outcome.h"
#include "collectives/topology.h"
#include "transport/bootstrap/meeting.h"
#include "transport/channel.h"
#include "transport/memory.h"
#include "transport/watch/watch.h"

#define SPR_MAX_TRANSPORTS 4

/* Ranks that the watch has given up, until the driver acts on it. Peers are ranks at the start. */
#define SPR_LOSS_TEXT 160
struct spr_loss {
    bool pending; /* the first one, which is to fail the communicator */
    int peer;
    bool death;
    uint64_t drain_ns; /* since when what the dead rank sent is taken in; UINT64_MAX: not yet */
    char text[SPR_LOSS_TEXT];
    bool expelled; /* the others have expelled this rank after a failure */
    int count;     /* of all that are not acted on yet */
    struct {
        int peer;
        bool death;
    } * noted; /* [world]: each is given up once */
};

struct spr_comm {
    int rank, size; /* in this epoch */
    int world;      /* ranks at the start */
    int *ids;       /* [world] rank in this epoch -> rank at the start, the index of peers */
    struct spr_options options;
    struct spr_auth_key key;
    const struct spr_clock *clock;
    struct spr_counters counters;
    struct spr_trace *trace;
    struct spr_channel channel;
    struct spr_transport *transports[SPR_MAX_TRANSPORTS]; /* the first is self */
    int transport_count;
    struct spr_peer_info *peers;  /* [world]; NULL under simulation */
    struct spr_topology topology; /* of this epoch */
    bool rack_known;              /* looked up, or an older communicator's */
    uint64_t rack;                /* of this host; 0: none */
    struct spr_model model;       /* of this epoch */
    struct spr_tried *tried;      /* [SPR_TRIED], of this epoch */
    size_t tried_count;
    struct spr_decisions *decisions; /* NULL: it was made of another one */
    uint64_t era;                    /* no other epoch of any communicator here has this number */
    struct spr_memory memory;
    struct spr_zstd *zstd; /* compresses chunks, under the lock; NULL: they go as they are */

    pthread_mutex_t lock;       /* see spr_comm_lock */
    pthread_cond_t changed;     /* a request completed, or the driver left */
    pthread_cond_t thread_wake; /* for the library's thread while it idles */
    bool driving;               /* some thread progresses */
    bool sleeping;              /* ... and is asleep on epoll_fd */
    bool thread_only;           /* only the library's thread may progress */
    bool has_thread, thread_stop;
    pthread_t thread;
    _Atomic int callers;   /* threads that want the lock: whoever drives lets them in */
    int waiters;           /* threads in spr_wait that are not the driver */
    int inside;            /* threads in spr_comm_drive */
    int epoll_fd, wake_fd; /* -1 under simulation */
    int timer_fd;          /* wakes a caller that sleeps on epoll_fd for deadlines; -1: none */
    bool armed;            /* spr_comm_arm said "sleep" */
    bool may_spin;
    uint64_t quiet_since; /* who drives has found nothing to do; 0: something was posted, or was
                           * done, since it looked last */
    int helpers;          /* threads of `workers` when they are wanted */
    pthread_mutex_t workers_lock; /* of the two below: who compresses waits for no driver */
    struct spr_workers *workers;  /* help to compute; NULL: none yet */
    bool no_workers;              /* there are none to be had */

    struct spr_list running;  /* struct spr_request, in the order of posting */
    struct spr_list ready;    /* those whose messages completed */
    struct spr_list finished; /* complete, not yet taken by spr_wait or spr_test */
    struct spr_list spare;    /* memory of finished requests, reused; those with an arena first */
    size_t spare_bytes;       /* of their arenas */
    struct spr_pool buffers;  /* SPR_FRAME_MAX_PAYLOAD bytes each: encoded and received chunks, in
                               * memory that the transports know */
    struct spr_list news;     /* of operations not posted yet, see dispute.h */
    struct spr_past *past;    /* [SPR_PAST] operations posted lately */
    struct spr_membership *membership;
    uint32_t next_operation;
    /* Of the last spr_comm_grow() or spr_comm_split() on it, or that made it: from the first up to
     * before `grow_end`. They are none of the caller's. */
    uint32_t grow_first, grow_end;
    uint32_t hidden;         /* number of the last operation of the growth that made it; 0: none */
    struct spr_outcome done; /* operations that have ended here, and not by a failure of all */
    unsigned ended;          /* requests that have, too far ahead of others to be in it */
    struct spr_list codecs;  /* whose last step may be taken back */
    uint64_t next_timer_ns;
    uint64_t process; /* that made it, see base/fork.h */
    bool closing;
    spr_comm *maker;                    /* while spr_comm_split() makes it of that one; else NULL */
    bool left;                          /* said goodbye: only spr_comm_destroy is left */
    char meet[SPR_MEETING_PLACE_BYTES]; /* where newcomers may be met; "" = not known */
    int background;                     /* work besides `running`: connecting, saying goodbye */

    struct spr_watch *watch; /* NULL: none */
    /* What is known of a peer besides its frames: from the watch, or injected. */
    bool (*standing)(void *ctx, int peer, struct spr_standing *standing);
    void *standing_ctx;
    struct spr_loss loss;
    struct spr_error error; /* why it was revoked */
    bool cause_told;        /* ... and a call of the user has returned that */
    uint64_t leave_ns;      /* when the links of ranks that were left behind are cut; 0: none */
    uint64_t grace_ns;  /* after a failure: until then ABORT frames may still leave; 0 = healthy */
    uint64_t calm_ns;   /* no more warnings of late operations before */
    uint64_t recall_ns; /* ... until then peers may say that they write nothing any more */
};

/* As all take the lock, except who drives and takes it back. */
static inline void spr_comm_lock(spr_comm *comm)
{
    atomic_fetch_add_explicit(&comm->callers, 1, memory_order_relaxed);
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_sub_explicit(&comm->callers, 1, memory_order_relaxed);
}

static inline void spr_comm_unlock(spr_comm *comm) { pthread_mutex_unlock(&comm->lock); }

/* An empty communicator of given rank and size, linked to nobody but itself. Used by
 * spr_comm_create and by the simulator. Takes over *options (strings included). */
spr_status spr_comm_new(int rank, int size, const struct spr_options *options,
                        const struct spr_clock *clock, spr_comm **comm);
/* What its transports are opened with; the key and who may connect are up to the caller. */
struct spr_transport_params spr_comm_transport_params(spr_comm *comm);
/* Threads that help with vectors of so many elements, started by the first call that has use for
 * them; NULL: none. */
struct spr_workers *spr_comm_workers(spr_comm *comm, size_t elements);
/* Free; links must be gone or unused. */
void spr_comm_free(spr_comm *comm);

/* Progress under the lock: transports, ready requests, deadlines. Returns the number of events. */
int spr_comm_progress_locked(spr_comm *comm);
/* Revoke: the first cause wins. `blamed` may be -1; told_by: -1, or who said so. Under the lock. */
void spr_comm_fail(spr_comm *comm, spr_status status, int blamed, int told_by, const char *text);
/* Return when the others have been told of the failure, if there is one, or its time of grace is
 * over. The caller may end as soon as it hears of it, and would be taken for the cause by those who
 * have not heard yet. Under the lock. */
void spr_comm_tell(spr_comm *comm);
/* A blocking operation of the library's own has ended with `status`: the communicator fails by that
 * if it has not yet, and the others hear of it. *error becomes the cause. Returns status. */
spr_status spr_comm_failed_call(spr_comm *comm, spr_status status, struct spr_error *error);
/* It has not failed. */
bool spr_comm_is_sound(spr_comm *comm);
/* The ranks that are no members of this epoch get a moment to hear of it; then their links are cut.
 */
void spr_comm_leave_behind(spr_comm *comm);
/* Warn of requests that take long; fail when one is past its deadline. */
void spr_comm_check_deadlines(spr_comm *comm, uint64_t now);
/* All transports and requests have nothing to do now: SPR_OK, one may sleep on epoll_fd. */
spr_status spr_comm_arm_locked(spr_comm *comm);
/* Wake the driver, or the library's thread, after something was posted. Under the lock. */
void spr_comm_kick(spr_comm *comm);
/* Drive until `done(arg)` or the time is over (monotonic; UINT64_MAX: never). Under the lock, which
 * is given up while sleeping. Returns false when time is over. */
bool spr_comm_drive(spr_comm *comm, bool (*done)(void *arg), void *arg, uint64_t until_ns);
spr_status spr_comm_start_thread(spr_comm *comm);
void spr_comm_stop_thread(spr_comm *comm);
/* Goodbye to the others: no operation will follow. false: it has failed, nobody would hear. Under
 * the lock. */
bool spr_comm_leave(spr_comm *comm);
/* The flight recorder goes into the directory that the options name, if they do. */
void spr_record_open(spr_comm *comm);
/* A request is posted. Under the lock. */
void spr_record_post(const spr_request *rq);
/* What calls on the communicator of a parent process return: FORKED, with a text. */
spr_status spr_comm_forked(const spr_comm *comm);
/* links.c: what joins all ranks of a group: memory of their host, or links over which peers write
 * into it, such as verbs. All of them come to the same answer, since it is made from what all have
 * told all; in a simulation all links are alike. */
enum spr_medium { SPR_MEDIUM_ANY, SPR_MEDIUM_MEMORY, SPR_MEDIUM_PLACES };
enum spr_medium spr_comm_medium(const spr_comm *comm, const struct spr_group *group);
/* Tell the transports of memory that messages come from and go to; one that refuses uses it
 * unregistered. Under the lock. */
void spr_comm_offer_memory(spr_comm *comm, void *memory, size_t bytes, bool writable);
/* Name of the host of a rank, "" when unknown. */
const char *spr_comm_host(const spr_comm *comm, int rank);

#endif
