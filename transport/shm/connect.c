/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One connection until it is a link:
 *
 *   idle      connecting side only: no socket yet, or the peer's backlog was full
 *   auth      the handshake of transport/bootstrap/auth.h
 *   exchange  both send {hello, memfd, eventfd}, and check and map what they get
 *   ready     waits for connect() of this side, then becomes the link
 *
 * On the accepting side nobody is believed before the handshake is done: what does not succeed is
 * closed, with a line at level debug. The connecting side takes its link down.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/private.h"
#include "transport/shm/socket.h"

#define HANDSHAKE_S 5
#define MAX_ATTEMPTS 3 /* of a handshake that the other side broke off, e.g. at its deadline */

struct hello {
    uint32_t magic, version, rank, size;
    uint64_t bytes; /* of the memory */
};

enum { FD_MEMORY, FD_BELL, FD_COUNT };

static struct spr_shm_conn *conn_new(struct spr_shm *t)
{
    struct spr_shm_conn *c = spr_calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->source = SPR_SHM_CONN;
    c->peer = c->socket = c->bell = -1;
    spr_list_push_back(&t->conns, &c->node);
    t->unfinished++;
    return c;
}

static void close_socket(struct spr_shm *t, struct spr_shm_conn *c)
{
    if (c->socket < 0)
        return;
    /* Explicitly: close() does not, while a forked child has the descriptor too. */
    spr_shm_epoll_set(t, EPOLL_CTL_DEL, c->socket, 0, NULL);
    (void)shutdown(c->socket, SHUT_RDWR); /* nor would the other side see the end */
    close(c->socket);
    c->socket = -1;
}

void spr_shm_conn_close(struct spr_shm *t, struct spr_shm_conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    if (c->state != CONN_READY)
        t->unfinished--;
    if (c->half_open)
        t->half_open--;
    c->half_open = false;
    c->state = CONN_DEAD;
    close_socket(t, c);
    if (c->bell >= 0)
        close(c->bell);
    c->bell = -1;
    spr_shm_view_unmap(&c->view);
    t->dead++;
}

void spr_shm_conn_free_dead(struct spr_shm *t)
{
    struct spr_list *it, *tmp;

    if (!t->dead)
        return;
    spr_list_for_each_safe(it, tmp, &t->conns)
    {
        struct spr_shm_conn *c = spr_list_entry(it, struct spr_shm_conn, node);

        if (c->state != CONN_DEAD)
            continue;
        spr_list_remove(&c->node);
        spr_free(c);
    }
    t->dead = 0;
}

spr_status spr_shm_conn_start(struct spr_shm *t, struct spr_shm_link *link, const uint8_t *address)
{
    struct spr_shm_conn *c = conn_new(t);

    if (!c)
        return SPR_ERR_NOMEM;
    c->state = CONN_IDLE;
    c->connector = true;
    c->peer = link->base.peer;
    memcpy(c->address, address, sizeof(c->address));
    link->conn = c;
    return SPR_OK;
}

void spr_shm_conn_accepted(struct spr_shm *t, int fd, int pid)
{
    struct spr_shm_conn *c = conn_new(t);

    if (!c) {
        spr_debug(SPR_SUB_SHM, "closed a connection: no memory");
        close(fd);
        return;
    }
    c->state = CONN_AUTH;
    c->socket = fd;
    c->pid = pid;
    c->half_open = true;
    t->half_open++;
    c->deadline_ns =
        spr_now_ns(t->base.params.clock) + (uint64_t)(HANDSHAKE_S * 1e9 * spr_time_factor());
    spr_auth_init(&c->auth, t->base.params.key, false, SPR_AUTH_SHM, -1);
    if (spr_shm_epoll_set(t, EPOLL_CTL_ADD, fd, EPOLLIN, &c->source) < 0)
        spr_shm_conn_close(t, c);
    c->events = EPOLLIN;
}

/* Wait for these events. */
static spr_status wait_for(struct spr_shm *t, struct spr_shm_conn *c, uint32_t events)
{
    if (events != c->events &&
        spr_shm_epoll_set(t, EPOLL_CTL_MOD, c->socket, events, &c->source) < 0) {
        c->why = strerror(errno);
        return SPR_ERR_SYSTEM;
    }
    c->events = events;
    return SPR_IN_PROGRESS;
}

/* A socket call failed: because of the peer, or for want of something here. */
static spr_status errno_status(int error)
{
    bool ours = error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE;

    return ours ? SPR_ERR_SYSTEM : SPR_ERR_LINK;
}

/* ---- The states. SPR_OK: go on in the next state; SPR_IN_PROGRESS: wait. ---- */

static spr_status step_idle(struct spr_shm *t, struct spr_shm_conn *c)
{
    struct sockaddr_un name;
    socklen_t bytes = spr_shm_socket_name(&name, c->address);

    c->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->socket < 0) {
        c->why = strerror(errno);
        return SPR_ERR_SYSTEM;
    }
    if (connect(c->socket, (struct sockaddr *)&name, bytes) < 0) {
        int error = errno;

        close(c->socket);
        c->socket = -1;
        if (error == EAGAIN || error == EINTR)
            return SPR_IN_PROGRESS; /* a full backlog: again at the next tick */
        c->why = error == ECONNREFUSED ? "nobody listens: the process has ended" : strerror(error);
        return errno_status(error);
    }
    if (!spr_shm_same_user(c->socket, &c->pid)) {
        c->why = "another user listens there";
        return SPR_ERR_AUTH;
    }
    if (spr_shm_epoll_set(t, EPOLL_CTL_ADD, c->socket, EPOLLIN, &c->source) < 0) {
        c->why = strerror(errno);
        return SPR_ERR_SYSTEM;
    }
    c->events = EPOLLIN;
    c->attempts++;
    spr_auth_init(&c->auth, t->base.params.key, true, SPR_AUTH_SHM, c->peer);
    c->state = CONN_AUTH;
    return SPR_OK;
}

/* The accepting side learns who it is: a higher rank, and only one connection of it. */
static spr_status accept_peer(struct spr_shm *t, struct spr_shm_conn *c)
{
    struct spr_list *it;

    t->half_open--;
    c->half_open = false;
    if (c->auth.peer <= t->base.params.rank || c->auth.peer >= t->base.params.size) {
        c->why = "connected to a higher rank, or from none of the job";
        return SPR_ERR_PROTO;
    }
    /* It began again: its earlier attempt is void. */
    spr_list_for_each(it, &t->conns)
    {
        struct spr_shm_conn *other = spr_list_entry(it, struct spr_shm_conn, node);

        if (other->peer == c->auth.peer)
            spr_shm_conn_close(t, other);
    }
    c->peer = c->auth.peer;
    return SPR_OK;
}

static spr_status step_auth(struct spr_shm *t, struct spr_shm_conn *c)
{
    short events = 0;
    spr_status status = spr_auth_drive(&c->auth, c->socket, &events);

    if (status == SPR_IN_PROGRESS)
        return wait_for(t, c, (uint32_t)(unsigned short)events);
    if (status == SPR_ERR_LINK && c->connector && c->attempts < MAX_ATTEMPTS) {
        close_socket(t, c);
        c->state = CONN_IDLE;
        return SPR_IN_PROGRESS;
    }
    c->why = c->auth.detail;
    if (status == SPR_OK && !c->connector)
        status = accept_peer(t, c);
    if (status == SPR_OK)
        c->state = CONN_EXCHANGE;
    return status;
}

union fd_message {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FD_COUNT * sizeof(int))];
};

static spr_status send_hello(struct spr_shm *t, struct spr_shm_conn *c)
{
    struct hello hello = {.magic = SPR_SHM_MAGIC,
                          .version = SPR_SHM_VERSION,
                          .rank = (uint32_t)t->base.params.rank,
                          .size = (uint32_t)t->base.params.size,
                          .bytes = t->own.layout.bytes};
    struct iovec part = {.iov_base = &hello, .iov_len = sizeof(hello)};
    union fd_message control = {.bytes = {0}};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    int fds[FD_COUNT] = {[FD_MEMORY] = t->own.fd, [FD_BELL] = t->bell};
    ssize_t n;

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(h), fds, sizeof(fds));
    n = sendmsg(c->socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)sizeof(hello))
        return SPR_OK;
    /* ETOOMANYREFS: this user has as many descriptors under way as it may open; they arrive soon.
     */
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS))
        return SPR_IN_PROGRESS;
    c->why = n < 0 ? strerror(errno) : "a message was cut";
    return n < 0 ? errno_status(errno) : SPR_ERR_LINK;
}

/* Take the descriptors out of a message. All of them, so that none leaks. Returns how many came. */
static int take_fds(struct msghdr *m, int fds[FD_COUNT])
{
    int count = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        size_t n;

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++, count++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            if (count < FD_COUNT)
                fds[count] = fd;
            else
                close(fd);
        }
    }
    return count;
}

/* The bell must not block the one who rings it. */
static bool bell_fits(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_NONBLOCK) && (flags & O_ACCMODE) == O_RDWR;
}

static spr_status take_hello(struct spr_shm *t, struct spr_shm_conn *c, const struct hello *hello,
                             int fds[FD_COUNT])
{
    const struct spr_transport_params *p = &t->base.params;
    spr_status status;

    if (hello->magic != SPR_SHM_MAGIC || hello->version != SPR_SHM_VERSION ||
        hello->rank != (uint32_t)c->peer || hello->size != (uint32_t)p->size ||
        !bell_fits(fds[FD_BELL])) {
        c->why = "the descriptors that it sent are not those of a peer";
        return SPR_ERR_PROTO;
    }
    status = spr_shm_view_map(&c->view, fds[FD_MEMORY], (uint32_t)c->peer, (uint32_t)p->size,
                              p->epoch, &c->why);
    if (status)
        return status;
    c->bell = fds[FD_BELL];
    fds[FD_BELL] = -1;
    return SPR_OK;
}

static spr_status receive_hello(struct spr_shm *t, struct spr_shm_conn *c)
{
    struct hello hello;
    struct iovec part = {.iov_base = &hello, .iov_len = sizeof(hello)};
    union fd_message control;
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    int fds[FD_COUNT] = {-1, -1}, count;
    ssize_t n = recvmsg(c->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    spr_status status = SPR_ERR_PROTO;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return SPR_IN_PROGRESS;
    if (n <= 0) {
        c->why = n < 0 ? strerror(errno) : "closed during the exchange of descriptors";
        return n < 0 ? errno_status(errno) : SPR_ERR_LINK;
    }
    count = take_fds(&m, fds);
    if (count < FD_COUNT && (m.msg_flags & MSG_CTRUNC)) {
        c->why = "this process has no descriptors left (ulimit -n)";
        status = SPR_ERR_SYSTEM;
    } else if (n != (ssize_t)sizeof(hello) || count != FD_COUNT || (m.msg_flags & MSG_CTRUNC)) {
        c->why = "expected two descriptors";
    } else {
        status = take_hello(t, c, &hello, fds);
    }
    for (int i = 0; i < FD_COUNT; i++)
        if (fds[i] >= 0)
            close(fds[i]); /* the memory stays mapped without it */
    return status;
}

static spr_status step_exchange(struct spr_shm *t, struct spr_shm_conn *c)
{
    spr_status status;

    if (!c->sent) {
        status = send_hello(t, c);
        if (status < 0)
            return status;
        c->sent = status == SPR_OK;
    }
    if (!c->received) {
        status = receive_hello(t, c);
        if (status < 0)
            return status;
        c->received = status == SPR_OK;
    }
    if (!c->sent || !c->received)
        return wait_for(t, c, EPOLLIN);
    t->unfinished--;
    c->state = CONN_READY;
    return SPR_OK;
}

static spr_status step_ready(struct spr_shm *t, struct spr_shm_conn *c)
{
    struct spr_shm_link *link = t->by_rank[c->peer];
    char byte;

    if (!link) {
        if (recv(c->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0) {
            c->why = "closed before this rank connected";
            return SPR_ERR_LINK;
        }
        return SPR_IN_PROGRESS;
    }
    if (link->base.state != SPR_LINK_CONNECTING) {
        c->why = "the rank has or had a link already";
        return SPR_ERR_PROTO;
    }
    if (spr_shm_epoll_set(t, EPOLL_CTL_MOD, c->socket, EPOLLIN | EPOLLRDHUP, &link->source) < 0) {
        c->why = strerror(errno);
        return SPR_ERR_SYSTEM;
    }
    link->socket = c->socket;
    link->bell = c->bell;
    link->view = c->view;
    link->pid = c->pid;
    link->conn = NULL;
    c->socket = c->bell = -1;
    c->view.base = NULL;
    spr_shm_conn_close(t, c);
    spr_shm_watch_process(t, link);
    spr_shm_ring_attach(link);
    link->base.state = SPR_LINK_UP;
    spr_debug(SPR_SUB_SHM, "link to rank %d (process %d) is up", link->base.peer, link->pid);
    t->base.params.events->up(&link->base);
    return SPR_OK;
}

static void conn_fail(struct spr_shm *t, struct spr_shm_conn *c, spr_status status)
{
    struct spr_shm_link *link = c->connector ? t->by_rank[c->peer] : NULL;
    char text[sizeof(c->auth.detail)];

    snprintf(text, sizeof(text), "%s", c->why ? c->why : spr_status_string(status));
    if (link && link->conn == c) {
        spr_shm_link_down(link, status, text);
        return;
    }
    spr_debug(SPR_SUB_SHM, "closed a connection of process %d: %s", c->pid, text);
    spr_shm_conn_close(t, c);
}

int spr_shm_conn_drive(struct spr_shm *t, struct spr_shm_conn *c)
{
    static spr_status (*const steps[])(struct spr_shm *, struct spr_shm_conn *) = {
        [CONN_IDLE] = step_idle,
        [CONN_AUTH] = step_auth,
        [CONN_EXCHANGE] = step_exchange,
        [CONN_READY] = step_ready,
    };
    int n = 0;

    while (c->state != CONN_DEAD) {
        spr_status status = steps[c->state](t, c);

        if (status == SPR_IN_PROGRESS)
            return n;
        n++;
        if (status < 0)
            conn_fail(t, c, status);
    }
    return n;
}
