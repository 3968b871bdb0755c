/* SPDX-License-Identifier: BSD-2-Clause
 *
 * TCP over epoll: the twin that works everywhere.
 *
 * Sockets are registered once, edge-triggered, for both directions: no epoll_ctl on the data path.
 * The price is to remember that a socket may have more (readable) or take more (writable) until a
 * call says EAGAIN or moves less than asked; a link that is readable, or writable with something to
 * send, stays on the work list, and arm() refuses to sleep while that is not empty.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/tcp/tcp.h"

#define EVENTS 64
#define VECTORS 32
/* Bytes of one connection per progress(), each way, so that no connection starves the others. */
#define FAIR_BYTES ((size_t)1 << 20)
/* Bytes of one sendmsg beyond its first frame. */
#define SEND_BYTES ((size_t)64 << 10)

struct link {
    struct spr_tcp_link tcp; /* first */
    bool readable, writable;
    bool hangup;  /* end of file is near: read until it is seen */
    int tx_error; /* errno: sending failed; what the peer still said is read first */
    char tx_text[80];
};

struct transport {
    struct spr_tcp tcp; /* first */
    int epoll_fd;
    struct spr_list round; /* links of this progress() */
};

static struct transport *transport_of(struct spr_transport *t) { return (struct transport *)t; }

/* ---- Bytes ------------------------------------------------------------------------------------
 */

static int lost(struct link *l, spr_status why, const char *text)
{
    /* The first error is the cause, not the end of file after it; but "broken pipe" says less. */
    if (l->tx_error && l->tx_error != EPIPE)
        spr_tcp_lose(&l->tcp, spr_tcp_errno_status(l->tx_error), l->tx_text);
    else
        spr_tcp_lose(&l->tcp, why, text);
    return 1;
}

static int receive(struct link *l)
{
    struct spr_tcp_conn *c = &l->tcp.conn;
    size_t total = 0;
    int steps = 0;

    if (c->unparked) {
        const char *why = "";
        spr_status status = spr_tcp_conn_received(c, 0, &why);
        if (status)
            return status == SPR_ERR_CANCELED ? 1 : lost(l, status, why);
        steps++;
    }
    while (l->readable && !c->parked && total < FAIR_BYTES) {
        struct iovec iov[2];
        struct msghdr m = {.msg_iov = iov};
        const char *why = "";
        size_t asked;
        spr_status status;
        ssize_t n;

        m.msg_iovlen = (size_t)spr_tcp_conn_want(c, iov);
        asked = iov[0].iov_len + (m.msg_iovlen > 1 ? iov[1].iov_len : 0);
        n = recvmsg(l->tcp.fd, &m, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            l->readable = false;
            break;
        }
        if (n < 0) {
            char text[80];
            spr_status why_lost = spr_tcp_errno_status(errno);
            return steps + lost(l, why_lost, spr_tcp_errno_text(errno, text, sizeof text));
        }
        if (n == 0)
            return steps + (spr_tcp_conn_mid_frame(c)
                                ? lost(l, SPR_ERR_LINK,
                                       "connection closed by the peer in the middle of a frame")
                                : lost(l, SPR_ERR_RANK_LOST, "connection closed by the peer"));
        steps++;
        total += (size_t)n;
        /* Less than asked: the socket is empty, and whatever comes now is an edge of its own. */
        if ((size_t)n < asked && !l->hangup)
            l->readable = false;
        status = spr_tcp_conn_received(c, (size_t)n, &why);
        if (status == SPR_ERR_CANCELED)
            return steps;
        if (status)
            return steps + lost(l, status, why);
    }
    return steps;
}

static void send_failed(struct link *l, int error)
{
    l->tx_error = error;
    spr_tcp_errno_text(error, l->tx_text, sizeof l->tx_text);
    l->writable = false;
    /* Read what is left, up to the end of file that follows. */
    l->readable = l->hangup = true;
    (void)shutdown(l->tcp.fd, SHUT_WR);
}

static int transmit(struct link *l)
{
    struct spr_tcp_conn *c = &l->tcp.conn;
    size_t total = 0;
    int steps = 0;

    while (l->writable && c->tx_first && total < FAIR_BYTES) {
        struct iovec iov[VECTORS];
        struct msghdr m = {.msg_iov = iov};
        size_t asked = 0;
        ssize_t n;

        m.msg_iovlen = (size_t)spr_tcp_conn_gather(c, iov, VECTORS, SEND_BYTES);
        for (size_t i = 0; i < m.msg_iovlen; i++)
            asked += iov[i].iov_len;
        n = sendmsg(l->tcp.fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            send_failed(l, errno);
            return steps + 1;
        }
        if (n < 0 || (size_t)n < asked)
            l->writable = false;
        if (n < 0)
            break;
        steps++;
        total += (size_t)n;
        steps += spr_tcp_tell_sent(&l->tcp, spr_tcp_conn_sent(c, (size_t)n));
        if (c->stopped)
            break;
    }
    return steps;
}

static int serve(struct transport *t, struct link *l)
{
    int steps = 0;

    if (l->tcp.link.state == SPR_LINK_CONNECTING)
        return 0; /* queued frames wait for up() */
    if (l->tcp.link.state == SPR_LINK_UP)
        steps += receive(l);
    if (l->tcp.link.state == SPR_LINK_UP)
        steps += transmit(l);
    if (l->tcp.link.state == SPR_LINK_DOWN)
        return steps + spr_tcp_return_queue(&l->tcp);
    if ((l->readable && !l->tcp.conn.parked) || (l->writable && l->tcp.conn.tx_first))
        spr_tcp_wake(&t->tcp, &l->tcp);
    return steps;
}

static int progress(struct spr_transport *base)
{
    struct transport *t = transport_of(base);
    struct epoll_event events[EVENTS];
    bool setup = t->tcp.setup_due;
    int steps = 0, n = epoll_wait(t->epoll_fd, events, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct link *l = events[i].data.ptr;
        uint32_t e = events[i].events;
        if (!l) {
            setup = true;
            continue;
        }
        /* The link may have gone down since, but lives until close(). */
        if (e & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            l->hangup = true;
        if (e & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            l->readable = true;
        if (e & (EPOLLOUT | EPOLLHUP | EPOLLERR))
            l->writable = !l->tx_error;
        spr_tcp_wake(&t->tcp, &l->tcp);
    }
    if (setup)
        steps += spr_tcp_setup_progress(&t->tcp);
    /* One turn for each link that has something now; what they wake is for the next call. */
    while (!spr_list_empty(&t->tcp.work)) {
        struct spr_list *w = t->tcp.work.next;
        spr_list_remove(w);
        spr_list_push_back(&t->round, w);
    }
    while (!spr_list_empty(&t->round)) {
        struct spr_list *w = t->round.next;
        spr_list_remove(w);
        steps += serve(t, (struct link *)spr_list_entry(w, struct spr_tcp_link, work));
    }
    return steps;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static spr_status attach(struct spr_tcp *tcp, struct spr_tcp_link *tl)
{
    struct link *l = (struct link *)tl;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = l};

    /* What is there already is an edge, too. */
    if (epoll_ctl(transport_of(&tcp->base)->epoll_fd, EPOLL_CTL_ADD, tl->fd, &ev))
        return SPR_ERR_SYSTEM;
    return SPR_OK;
}

static void kill_link(struct spr_link *link)
{
    struct spr_tcp_link *l = spr_tcp_link_of(link);

    if (!spr_tcp_cut(l) || l->fd < 0)
        return;
    close(l->fd);
    l->fd = -1;
}

static const struct spr_tcp_twin twin;

static void close_transport(struct spr_transport *base)
{
    struct transport *t = transport_of(base);

    spr_tcp_close(&t->tcp);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    spr_free(t);
}

static spr_status open_transport(const struct spr_transport_params *params,
                                 struct spr_transport **transport, struct spr_error *error)
{
    struct transport *t = spr_calloc(1, sizeof *t);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    spr_status status;

    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the epoll transport");
    spr_list_init(&t->round);
    t->epoll_fd = -1;
    status = spr_tcp_open(&t->tcp, &twin, params, error);
    if (status) {
        spr_free(t);
        return status;
    }
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll_fd < 0 || epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->tcp.setup_fd, &ev)) {
        status =
            spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create an epoll instance");
        close_transport(&t->tcp.base);
        return status;
    }
    *transport = &t->tcp.base;
    return SPR_OK;
}

static int pollable(struct spr_transport *base) { return transport_of(base)->epoll_fd; }

static spr_status arm(struct spr_transport *base)
{
    struct transport *t = transport_of(base);

    return t->tcp.setup_due || !spr_list_empty(&t->tcp.work) ? SPR_IN_PROGRESS : SPR_OK;
}

/* Plain sockets gain nothing from memory that is known beforehand. */
static spr_status mem_register(struct spr_transport *t, void *memory, size_t bytes, bool writable)
{
    (void)t, (void)memory, (void)bytes, (void)writable;
    return SPR_OK;
}

static void mem_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    (void)t, (void)memory, (void)bytes;
}

static const char *unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    return spr_tcp_unusable(&twin, mine, peer);
}

const struct spr_transport_ops spr_transport_epoll = {
    .name = "epoll",
    .seals = true,
    .narrow = true,
    .open = open_transport,
    .address = spr_tcp_address,
    .rate = spr_tcp_rate,
    .unusable = unusable,
    .connect = spr_tcp_connect,
    .send = spr_tcp_send,
    .limit_unsent = spr_tcp_limit_unsent,
    .release = spr_tcp_release,
    .unpark = spr_tcp_unpark,
    .kill = kill_link,
    .progress = progress,
    .fd = pollable,
    .arm = arm,
    .idle = spr_tcp_idle,
    .delivered = spr_tcp_delivered,
    .unacknowledged = spr_tcp_unacknowledged,
    .close = close_transport,
    .mem_register = mem_register,
    .mem_deregister = mem_deregister,
};

static const struct spr_tcp_twin twin = {
    .ops = &spr_transport_epoll,
    .index = SPR_T_EPOLL,
    .other = SPR_T_URING,
    .purpose = SPR_AUTH_TCP,
    .link_bytes = sizeof(struct link),
    .attach = attach,
};
