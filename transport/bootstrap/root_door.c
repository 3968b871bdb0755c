/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rank 0: lets the ranks in. Whoever connects is a stranger until its handshake is through, and a
 * stranger can neither hold the others up nor take more than one of SPR_ROOT_HALF_OPEN places for a
 * moment.
 */
#include "transport/bootstrap/root.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define MS 1000000ull
#define LISTEN_PAUSE (50 * MS) /* between attempts to get the port */
#define HALF_OPEN (5000 * MS)  /* a handshake takes at most that long */
/* When all places are taken, the oldest loses its place after that time. A rank sends its HELLO as
 * soon as it is connected, which is before we accept it: silence is suspicious soon. */
#define EVICT_SILENT (20 * MS)
#define EVICT_SLOW (200 * MS)

/* ---- Strangers ---- */

static void drop_half_open(struct spr_root *r, struct spr_root_conn *c, const char *why)
{
    struct spr_root_server *s = &r->server;
    char from[160];

    spr_address_text(&c->address, from, sizeof(from));
    spr_debug(SPR_SUB_INIT, "root: connection from %s turned away: %s", from, why);
    s->refused++;
    snprintf(s->last_refusal, sizeof(s->last_refusal), "from %.60s: %s", from, why);
    spr_list_remove(&c->node);
    s->half_count--;
    /* Explicitly: close() does not take it out of epoll while a forked child has it, too. */
    spr_root_watch(r, c, 0);
    spr_root_conn_close(c);
    spr_free(c);
}

/* A rank that is there already, perhaps a second process with the same number: it may try again. */
static void refuse_duplicate(struct spr_root *r, struct spr_root_conn *c)
{
    char text[200] = "as many as are awaited have come", from[160];

    if (!r->meeting) {
        spr_address_text(&r->server.conns[c->auth.peer]->address, from, sizeof(from));
        snprintf(text, sizeof(text), "rank %d is connected already, from %s", c->auth.peer, from);
    }
    spr_root_conn_send_text(c, SPR_ROOT_REFUSED, SPR_ERR_BOOTSTRAP, c->auth.peer, text);
    (void)spr_root_conn_flush(c);
    drop_half_open(r, c, text);
}

static void let_in(struct spr_root *r, struct spr_root_conn *c)
{
    struct spr_root_server *s = &r->server;
    int rank = r->meeting ? spr_root_meeting_place(r) : c->auth.peer;

    if (rank < 0 || s->conns[rank]) {
        refuse_duplicate(r, c);
        return;
    }
    spr_list_remove(&c->node);
    s->half_count--;
    c->rank = rank;
    s->conns[c->rank] = c;
    s->connected++;
    if (r->error.status == SPR_OK)
        spr_root_gather_join(r, c);
    else
        spr_root_server_tell(r, c);
}

/* A rank of this job that cannot take part: all must hear of it, nobody else will come for it. */
static void unfit(struct spr_root *r, struct spr_root_conn *c)
{
    char from[160];

    spr_address_text(&c->address, from, sizeof(from));
    spr_root_server_fail(r, SPR_ERR_MISMATCH, c->auth.peer, "a rank at %s does not fit rank 0: %s",
                         from, c->auth.detail);
}

void spr_root_door_handshake(struct spr_root *r, struct spr_root_conn *c)
{
    short events = 0;
    spr_status status = spr_auth_drive(&c->auth, c->fd, &events);

    if (status == SPR_OK) {
        let_in(r, c);
    } else if (status == SPR_IN_PROGRESS) {
        spr_root_watch(r, c, events & POLLOUT ? EPOLLOUT : EPOLLIN);
    } else {
        if (status == SPR_ERR_MISMATCH && !r->meeting)
            unfit(r, c);
        drop_half_open(r, c, c->auth.detail);
    }
}

/* ---- The listening socket ---- */

static void listen_watch(struct spr_root *r, bool on)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct spr_root_server *s = &r->server;

    if (s->listen_fd < 0 || s->listening == on)
        return;
    s->listening = on;
    if (epoll_ctl(s->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listen_fd, &event) != 0)
        spr_root_server_fail(r, SPR_ERR_SYSTEM, -1, "epoll_ctl: %m");
}

/* A socket on the first address of the place that this host has. */
static int listen_somewhere(struct spr_root *r)
{
    const struct spr_address *first = &r->place.list[0];
    struct spr_address any;

    for (int i = 0; i < r->place.count; i++) {
        int fd = spr_address_listen(&r->place.list[i]);

        if (fd >= 0 || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
            return fd;
    }
    if (spr_address_loopback(first))
        return -1;
    /* Behind address translation. Only a job with a secret (or told to be insecure) comes here. */
    spr_info(SPR_SUB_INIT, "root %s is no address of this host: listening on all of them",
             r->place.text);
    any = spr_address_any(first);
    return spr_address_listen(&any);
}

/* The port may be taken for a moment, by the job before us. */
void spr_root_door_listen(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    struct spr_address bound;
    char text[160];

    s->listen_fd = listen_somewhere(r);
    if (s->listen_fd < 0) {
        s->listen_errno = errno;
        s->listen_next_ns = spr_monotonic_ns() + LISTEN_PAUSE;
        if (errno != EADDRINUSE && errno != EADDRNOTAVAIL)
            spr_root_server_fail(r, SPR_ERR_SYSTEM, -1, "rank 0 cannot listen on %s: %m",
                                 r->place.text);
        return;
    }
    memset(&bound, 0, sizeof(bound));
    bound.bytes = sizeof(bound.sa);
    if (getsockname(s->listen_fd, (struct sockaddr *)&bound.sa, &bound.bytes) != 0)
        bound = r->place.list[0];
    spr_debug(SPR_SUB_INIT, "root: listening on %s", spr_address_text(&bound, text, sizeof(text)));
    listen_watch(r, true);
    (void)r->kind->publish(r, &bound);
}

/* Make room; false: nobody has been here long enough. */
static bool evict(struct spr_root *r)
{
    struct spr_root_conn *c = spr_list_entry(r->server.half.next, struct spr_root_conn, node);
    bool quiet = c->auth.in_bytes == 0 && c->auth.out_bytes == 0;

    if (spr_monotonic_ns() - c->since_ns < spr_root_scaled(quiet ? EVICT_SILENT : EVICT_SLOW))
        return false;
    drop_half_open(r, c, quiet ? "silent, and others wait" : "slow, and others wait");
    return true;
}

static void welcome(struct spr_root *r, int fd, const struct spr_address *from)
{
    struct spr_root_conn *c = spr_malloc(sizeof(*c));

    if (!c || !spr_socket_same_user(fd)) {
        spr_debug(SPR_SUB_INIT, "root: connection closed: %s",
                  c ? "it belongs to another user" : "no memory");
        spr_free(c);
        close(fd);
        return;
    }
    spr_root_conn_init(c, fd);
    c->address = *from;
    c->since_ns = spr_monotonic_ns();
    spr_auth_init(&c->auth, &r->key, false, SPR_AUTH_ROOT, -1);
    spr_list_push_back(&r->server.half, &c->node);
    r->server.half_count++;
    spr_root_door_handshake(r, c);
}

/* Take in those who wait, as long as there are places. */
void spr_root_door_accept(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    struct spr_address from;

    for (int i = 0; i < 4 * SPR_ROOT_HALF_OPEN && s->connected < spr_root_others(r); i++) {
        int fd;

        if (s->half_count >= SPR_ROOT_HALF_OPEN && !evict(r)) {
            listen_watch(r, false); /* until a place is free: see spr_root_door_until */
            return;
        }
        fd = spr_address_accept(s->listen_fd, &from);
        if (fd >= 0) {
            welcome(r, fd, &from);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            spr_root_server_fail(r, SPR_ERR_SYSTEM, -1,
                                 "rank 0 cannot accept a connection from each of %d ranks: %m "
                                 "(see ulimit -n)",
                                 spr_root_others(r));
            listen_watch(r, false); /* who waits there would wake us at once, again and again */
            return;
        } /* else: that connection is gone already */
    }
    listen_watch(r, true);
}

void spr_root_door_close(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    if (s->listen_fd >= 0) {
        /* Likewise; nor does the port become free. */
        listen_watch(r, false);
        (void)shutdown(s->listen_fd, SHUT_RDWR);
        close(s->listen_fd);
        s->listen_fd = -1;
        s->listening = false;
    }
    while (!spr_list_empty(&s->half))
        drop_half_open(r, spr_list_entry(s->half.next, struct spr_root_conn, node),
                       "everybody is here");
}

void spr_root_door_timers(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    uint64_t now = spr_monotonic_ns();

    if (s->listen_fd < 0 && s->connected < spr_root_others(r) && now >= s->listen_next_ns)
        spr_root_door_listen(r);
    while (!spr_list_empty(&s->half)) {
        struct spr_root_conn *c = spr_list_entry(s->half.next, struct spr_root_conn, node);

        if (now - c->since_ns < spr_root_scaled(HALF_OPEN))
            break;
        drop_half_open(r, c, "it did not authenticate in time");
    }
}

uint64_t spr_root_door_until(const struct spr_root *r)
{
    const struct spr_root_server *s = &r->server;

    if (s->connected == spr_root_others(r))
        return UINT64_MAX;
    if (s->listen_fd < 0)
        return s->listen_next_ns;
    return s->listening ? UINT64_MAX : spr_monotonic_ns() + EVICT_SILENT / 2;
}
