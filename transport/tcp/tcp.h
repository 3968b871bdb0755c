/* SPDX-License-Identifier: BSD-2-Clause
 *
 * TCP: what the epoll and the io_uring transport have in common. Everything until a connection is
 * authenticated (listener, connector, handshakes, timers) runs here, on plain non-blocking sockets
 * and an epoll instance of its own, the set-up epoll; then the socket is handed to the transport's
 * data path.
 *
 *                    spr_tcp_setup_progress()                       twin
 *   listener   accept -> handshake ---\                        +-------------+
 *                                      > spr_tcp_established -> | attach      | -> events.up
 *   connector  connect -> handshake --/                        | moves bytes |
 *      ^---- refused: back off, retry until killed             +-------------+
 *
 * The higher rank connects. A connection that comes before the lower rank asked for the link waits
 * in accepted[]. The two transports speak the same protocol: a rank on epoll and one on io_uring
 * can have a link, through whichever listener the other one has.
 */
#ifndef SPR_TRANSPORT_TCP_TCP_H
#define SPR_TRANSPORT_TCP_TCP_H

#include <netinet/in.h>

#include "base/list.h"
#include "transport/tcp/address.h"
#include "transport/tcp/conn.h"
#include "transport/tcp/interface.h"
#include "transport/transport.h"

/* Connections that have not shown who they are; more wait in the kernel's queue. */
#define SPR_TCP_HALF_OPEN 64
/* A socket whose peer is on the same host takes no more while so many bytes are unsent: less is
 * between the copy into the kernel and the one out of it. As measured, 32 to 128 KiB. Between hosts
 * a socket takes what it likes. */
#define SPR_TCP_LOOPBACK_UNSENT ((size_t)64 << 10)
#define SPR_TCP_HANDSHAKE_S 5.0

struct spr_tcp;
struct spr_tcp_link;

/* A connection that is being made or authenticated. */
struct spr_tcp_handshake {
    struct spr_list node;      /* accepted: tcp->half_open; over: tcp->gone */
    struct spr_tcp_link *link; /* who connects; NULL: accepted */
    int fd;                    /* -1: over */
    bool connecting;           /* connect() has not finished */
    short events;              /* what the set-up epoll waits for */
    uint64_t since_ns, deadline_ns;
    struct spr_auth auth;
    struct spr_tcp_address remote;
};

struct spr_tcp_link {
    struct spr_link link; /* first */
    struct spr_tcp_conn conn;
    struct spr_list work; /* in tcp->work: progress() has something to do for it */
    int fd;               /* of the data path; -1: none */
    bool same_host;
    bool over; /* killed, or down() was told: no more upcalls but sent() */

    /* Who connects. */
    struct spr_list dial; /* in tcp->dialing */
    struct spr_tcp_address to;
    struct spr_tcp_handshake *handshake; /* NULL: until retry_ns */
    uint64_t retry_ns, since_ns;
    uint64_t refused_ns; /* since when nobody listens there; 0: somebody does */
    unsigned attempts;
    bool told; /* that it takes long */
};

/* What makes a transport out of this. */
struct spr_tcp_twin {
    const struct spr_transport_ops *ops;
    int index, other; /* SPR_T_EPOLL, SPR_T_URING: which address is its own */
    enum spr_auth_purpose purpose;
    size_t link_bytes; /* a struct that begins with struct spr_tcp_link */
    /* Take an authenticated, non-blocking socket, l->fd, into the data path. IN_PROGRESS: more has
     * to happen before the link is up; then spr_tcp_up() follows. */
    spr_status (*attach)(struct spr_tcp *tcp, struct spr_tcp_link *l);
};

struct spr_tcp {
    struct spr_transport base; /* first */
    const struct spr_tcp_twin *twin;
    struct spr_tcp_interface interface;
    struct spr_tcp_address address; /* of the listener */

    int setup_fd, listen_fd, timer_fd;
    bool setup_due;     /* call spr_tcp_setup_progress() although setup_fd is not readable */
    bool listen_paused; /* full, or no descriptors left: until resume_ns */
    bool told_no_descriptors;
    uint64_t resume_ns, timer_ns;
    struct spr_list half_open; /* oldest first */
    size_t half_open_count;
    struct spr_list dialing; /* struct spr_tcp_link */
    struct spr_list gone;    /* handshakes to be freed when no event can name them */
    int *accepted;           /* per rank: authenticated, not asked for yet; -1 = none */

    struct spr_tcp_link **links; /* per rank */
    struct spr_list work;        /* struct spr_tcp_link */
    size_t queued;               /* frames between send() and events.sent */
    struct spr_tcp_staging staging;
};

static inline struct spr_tcp *spr_tcp_of(struct spr_transport *t) { return (struct spr_tcp *)t; }
static inline struct spr_tcp_link *spr_tcp_link_of(struct spr_link *l)
{
    return (struct spr_tcp_link *)l;
}

/* ---- Entries of spr_transport_ops that are the same for both ----------------------------------
 */

/* Initialise *tcp (zeroed memory) and listen. On error nothing is left to close. */
spr_status spr_tcp_open(struct spr_tcp *tcp, const struct spr_tcp_twin *twin,
                        const struct spr_transport_params *params, struct spr_error *error);
/* Close and free everything but tcp itself. Links that are up say end of file. */
void spr_tcp_close(struct spr_tcp *tcp);
void spr_tcp_address(struct spr_transport *t, void *address);
struct spr_link_rate spr_tcp_rate(const struct spr_transport *t);
/* For a twin's unusable(). */
const char *spr_tcp_unusable(const struct spr_tcp_twin *twin, const struct spr_peer_info *mine,
                             const struct spr_peer_info *peer);
spr_status spr_tcp_connect(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                           struct spr_link **link, struct spr_error *error);
void spr_tcp_send(struct spr_link *link, struct spr_tx *tx);
void spr_tcp_limit_unsent(struct spr_link *link, size_t bytes);
void spr_tcp_release(struct spr_link *link, void *token);
void spr_tcp_unpark(struct spr_link *link);
bool spr_tcp_idle(struct spr_transport *t);
bool spr_tcp_delivered(struct spr_link *link);
size_t spr_tcp_unacknowledged(struct spr_link *link);

/* ---- For the twins ----------------------------------------------------------------------------
 */

/* Accept, connect, authenticate, expire. Upcalls. Returns the number of steps. Call it when
 * setup_fd is readable or setup_due is set. */
int spr_tcp_setup_progress(struct spr_tcp *tcp);
/* The link is up: tell. */
void spr_tcp_up(struct spr_tcp_link *l);
/* Put a link on the work list. */
void spr_tcp_wake(struct spr_tcp *tcp, struct spr_tcp_link *l);
/* Upcalls of a list of frames; returns how many. */
int spr_tcp_tell_sent(struct spr_tcp_link *l, struct spr_tx *list);
/* Queued frames back as failed; returns how many. */
int spr_tcp_return_queue(struct spr_tcp_link *l);
/* The link is over, for the reason given, unless it was before: close the socket, return the queue,
 * tell. */
void spr_tcp_lose(struct spr_tcp_link *l, spr_status why, const char *text);
/* End the connection for good: an end of file, or a reset when frames are unsent, after which the
 * peer must not take this process for dead. fd stays open. */
void spr_tcp_end(const struct spr_tcp_link *l);
/* The common part of kill(): no upcalls; spr_tcp_end(). False: it was down before. */
bool spr_tcp_cut(struct spr_tcp_link *l);
/* End the connection at once, with a reset: an end of file between two frames would be taken for
 * the end of this process. What is still in the kernel's buffers is dropped. fd stays open. */
void spr_tcp_reset(int fd);
/* Say end of file and take what is still unread, so that closing does not reset the connection and
 * with it what the peer has not read yet. */
void spr_tcp_close_politely(int fd);

/* ---- Inside transport/tcp/ --------------------------------------------------------------------
 */

/* accept.c */
spr_status spr_tcp_listen(struct spr_tcp *tcp, struct spr_error *error);
int spr_tcp_accept(struct spr_tcp *tcp);
int spr_tcp_expire(struct spr_tcp *tcp, uint64_t now);
void spr_tcp_resume(struct spr_tcp *tcp, uint64_t now);
/* dial.c */
int spr_tcp_dial_due(struct spr_tcp *tcp, uint64_t now);
void spr_tcp_dial_retry(struct spr_tcp_link *l, const char *why);
void spr_tcp_dial_stop(struct spr_tcp_link *l);
/* True: connected. False: not yet, or it went to spr_tcp_dial_retry or spr_tcp_lose. */
bool spr_tcp_dial_finish(struct spr_tcp_handshake *h);
/* handshake.c */
struct spr_tcp_handshake *spr_tcp_handshake_new(struct spr_tcp *tcp, int fd,
                                                struct spr_tcp_link *link);
/* Something happened on its socket. */
int spr_tcp_handshake_drive(struct spr_tcp *tcp, struct spr_tcp_handshake *h);
/* Leave the set-up epoll and be freed later. Closes the socket unless keep_fd; returns it. */
int spr_tcp_handshake_end(struct spr_tcp *tcp, struct spr_tcp_handshake *h, bool keep_fd);
void spr_tcp_established(struct spr_tcp *tcp, struct spr_tcp_link *l, int fd);
/* socket.c: options of a socket, before connect() or listen(). */
spr_status spr_tcp_socket_options(int fd, const struct spr_options *options,
                                  struct spr_error *error);
/* The congestion control that a socket of this process gets. */
void spr_tcp_congestion_name(int fd, char *name, size_t bytes);
/* "connection refused": errno in the style of the log. */
const char *spr_tcp_errno_text(int error, char *text, size_t bytes);
/* What an error of a socket means: LINK, or NOMEM when it is this host that lacks something. */
spr_status spr_tcp_errno_status(int error);
uint64_t spr_tcp_seconds_ns(double seconds);

#endif
