/* SPDX-License-Identifier: BSD-2-Clause
 *
 * TCP over io_uring: private to transport/uring/.
 *
 * One ring per transport. Per connection at most one receive and one send are in flight: two sends
 * on a stream may interleave. Every progress() reaps completions, prepares what the work list asks
 * for and submits all of it with one system call.
 *
 *    work list --prepare--> SQEs --one io_uring_enter--> CQEs --uring_complete--> upcalls, work
 * list
 *
 * Sockets are not registered with the ring: that would delay the end of file that tells our peers
 * that this process died, since a ring is torn down later than a process's own files.
 *
 * Memory that an operation in flight refers to is the caller's, so a link is not over before its
 * operations are: kill() cancels and reaps them (uring_settle) before it returns; a link that is
 * lost on its own waits for its last completion before it tells.
 */
#ifndef SPR_TRANSPORT_URING_URING_H
#define SPR_TRANSPORT_URING_URING_H

#include <liburing.h>

#include "transport/tcp/tcp.h"

#define URING_VECTORS 32
#define URING_ZC_SLOTS 8
#define URING_REGIONS 64

enum uring_op_kind { URING_SETUP, URING_RX, URING_TX, URING_ZC };

/* What a completion's user data points to. */
struct uring_op {
    struct uring_link *link; /* NULL: URING_SETUP */
    enum uring_op_kind kind;
    bool in_flight; /* URING_ZC: until the notification */
};

/* A zero-copy send whose memory the kernel still reads. */
struct uring_zc {
    struct uring_op op;
    struct spr_tx *tx;
};

struct uring_link {
    struct spr_tcp_link tcp; /* first */
    struct uring_op rx, tx;
    /* Read by the kernel at submission; kept as long as the operation. */
    struct iovec rx_iov[2], tx_iov[URING_VECTORS];
    struct msghdr rx_msg, tx_msg;

    bool ending; /* lost: tell when nothing is in flight any more */
    spr_status why;
    char text[200];
    int tx_error;    /* errno: sending failed; what the peer still said is read first */
    size_t tx_bytes; /* of the send that was submitted last */
    bool tx_short;   /* ... the kernel sent less, and says of the error nothing but that */
    char tx_text[80];

    /* Zero copy. */
    bool zc;              /* large payloads of this link go that way */
    bool zc_skip;         /* not this frame */
    struct spr_tx *zc_tx; /* frame of the send in flight; NULL: an ordinary one */
    unsigned zc_copied;   /* notifications in a row that said "copied" */
    unsigned zc_refused;  /* sends that were refused for want of memory */
    struct uring_zc slots[URING_ZC_SLOTS];
    struct spr_tx *held; /* sent, but the kernel still reads from them */
};

/* Bucket memory. */
struct uring_region {
    enum { REGION_FREE, REGION_ASKED, REGION_READY, REGION_REFUSED, REGION_GONE } state;
    void *memory;
    size_t bytes;
};

struct uring_transport {
    struct spr_tcp tcp; /* first */
    struct io_uring ring;
    bool open, enabled, single_issuer, told_thread;
    int event_fd; /* single issuer: what to sleep on */
    bool armed;   /* completions signal event_fd */
    struct uring_op setup;
    bool setup_ready;
    struct spr_list round;
    /* Completions that were taken from the ring while a link was being settled. */
    struct io_uring_cqe *backlog;
    unsigned backlog_first, backlog_count, backlog_most;

    bool zc, zc_report; /* zero-copy sends may be tried; the kernel can tell whether it copied */
    bool regions_table, regions_changed;
    struct uring_region regions[URING_REGIONS];
};

static inline struct uring_transport *uring_of(struct spr_transport *t)
{
    return (struct uring_transport *)t;
}
static inline struct uring_link *uring_link_of(struct spr_tcp_link *l)
{
    return (struct uring_link *)l;
}

/* ---- ring.c -----------------------------------------------------------------------------------
 */

/* UNSUPPORTED with reason and remedy when the system does not let us; SYSTEM. */
spr_status uring_create(struct uring_transport *t, struct spr_error *error);
void uring_destroy(struct uring_transport *t);
/* The first progress() decides which thread a single-issuer ring belongs to. */
bool uring_enable(struct uring_transport *t);
/* Something to sleep on. Deferred work does not wake who polls the ring itself, so there an eventfd
 * is signalled, and only after uring_arm(). */
int uring_pollable(const struct uring_transport *t);
/* False: something is there already. */
bool uring_arm(struct uring_transport *t);
void uring_disarm(struct uring_transport *t);
/* NULL: the queue is full even after submitting. */
struct io_uring_sqe *uring_sqe(struct uring_transport *t);
/* Submit all, and run what completes at once. */
void uring_submit(struct uring_transport *t);
bool uring_next(struct uring_transport *t, struct io_uring_cqe *cqe);
/* Cancel what a link has in flight and take its completions without upcalls. False: some still is,
 * after a second (another thread that submitted it has not run since). */
bool uring_settle(struct uring_transport *t, struct uring_link *l);

/* ---- data.c -----------------------------------------------------------------------------------
 */

/* Prepare what the link wants to do next. Returns upcalls. */
int uring_serve(struct uring_transport *t, struct uring_link *l);
int uring_complete(struct uring_transport *t, const struct io_uring_cqe *cqe);
/* Receive or send in flight? (Not: notifications.) */
static inline bool uring_busy(const struct uring_link *l)
{
    return l->rx.in_flight || l->tx.in_flight;
}
/* Begin to end a link that failed on its own. */
void uring_lose(struct uring_transport *t, struct uring_link *l, spr_status why, const char *text);

/* ---- zerocopy.c -------------------------------------------------------------------------------
 */

void uring_zc_attach(struct uring_transport *t, struct uring_link *l);
/* Is the link's next frame one for zero copy? */
bool uring_zc_wanted(const struct uring_link *l);
/* Prepare its payload (the header is on its way). False: no slot, or no SQE. */
bool uring_zc_prepare(struct uring_transport *t, struct uring_link *l);
/* The send's own completion was an error: true when it is to be done in another way. */
bool uring_zc_failed(struct uring_transport *t, struct uring_link *l, int error);
/* Memory is no longer read; result: whether it was copied. Quiet: no upcall. Returns upcalls. */
int uring_zc_notified(struct uring_transport *t, struct uring_zc *z, int result, bool quiet);
/* The same, where no notification comes. */
int uring_zc_free(struct uring_zc *z, bool quiet);
bool uring_zc_busy(const struct uring_link *l);
/* Of frames that are sent, keep those that the kernel still reads; returns the others. */
struct spr_tx *uring_zc_hold(struct uring_link *l, struct spr_tx *sent);
/* Frames that were held, when a link is over. */
struct spr_tx *uring_zc_fail_held(struct uring_link *l);
/* Follow mem_register() and mem_deregister(), on the ring's own thread. */
void uring_regions_update(struct uring_transport *t);
spr_status uring_mem_register(struct spr_transport *t, void *memory, size_t bytes, bool writable);
void uring_mem_deregister(struct spr_transport *t, void *memory, size_t bytes);

#endif
