/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The listener. Whoever connects has a few seconds to show that it belongs to the job, one of a few
 * places to do so, and no influence on the job otherwise.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/tcp/tcp.h"

#define BACKLOG 1024
#define ACCEPT_PER_CALL 32
/* When all places are taken, the oldest is given away after this time: whoever belongs to the job
 * says so within a round trip, and can come again. */
#define EVICT_S 0.1
#define NO_DESCRIPTORS_PAUSE_S 0.1

spr_status spr_tcp_listen(struct spr_tcp *tcp, struct spr_error *error)
{
    const struct spr_options *options = tcp->base.params.options;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &tcp->listen_fd};
    struct sockaddr_storage sa;
    socklen_t length = spr_tcp_address_to(&tcp->interface.address, &sa);
    char where[SPR_TCP_ADDRESS_TEXT];
    const int on = 1;
    spr_status status;

    spr_tcp_address_print(&tcp->interface.address, where, sizeof where);
    tcp->listen_fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp->listen_fd < 0)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create a TCP socket");
    /* Accepted sockets inherit the options. */
    status = spr_tcp_socket_options(tcp->listen_fd, options, error);
    if (status)
        return status;
    (void)setsockopt(tcp->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(tcp->listen_fd, (struct sockaddr *)&sa, length) || listen(tcp->listen_fd, BACKLOG))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot listen on %s (%s)", where,
                               tcp->interface.name);
    length = sizeof sa;
    if (getsockname(tcp->listen_fd, (struct sockaddr *)&sa, &length) ||
        !spr_tcp_address_from(&tcp->address, (struct sockaddr *)&sa))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot learn the port of %s",
                               where);
    if (epoll_ctl(tcp->setup_fd, EPOLL_CTL_ADD, tcp->listen_fd, &ev))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "epoll refuses the listener");
    return SPR_OK;
}

/* Look away, so that what cannot be accepted now does not wake us again and again. */
static void pause_listener(struct spr_tcp *tcp, double seconds)
{
    struct epoll_event ev = {.events = 0, .data.ptr = &tcp->listen_fd};

    (void)epoll_ctl(tcp->setup_fd, EPOLL_CTL_MOD, tcp->listen_fd, &ev);
    tcp->listen_paused = true;
    tcp->resume_ns = spr_now_ns(tcp->base.params.clock) + spr_tcp_seconds_ns(seconds);
}

void spr_tcp_resume(struct spr_tcp *tcp, uint64_t now)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &tcp->listen_fd};

    if (!tcp->listen_paused || now < tcp->resume_ns)
        return;
    tcp->listen_paused = false;
    (void)epoll_ctl(tcp->setup_fd, EPOLL_CTL_MOD, tcp->listen_fd, &ev);
}

/* A place for one more. */
static bool make_place(struct spr_tcp *tcp)
{
    struct spr_tcp_handshake *oldest;
    char from[SPR_TCP_ADDRESS_TEXT];

    if (tcp->half_open_count < SPR_TCP_HALF_OPEN)
        return true;
    oldest = spr_list_entry(tcp->half_open.next, struct spr_tcp_handshake, node);
    if (spr_now_ns(tcp->base.params.clock) < oldest->since_ns + spr_tcp_seconds_ns(EVICT_S))
        return false;
    spr_debug(SPR_SUB_NET, "closed a connection from %s: too many unknown ones",
              spr_tcp_address_print(&oldest->remote, from, sizeof from));
    spr_tcp_handshake_end(tcp, oldest, false);
    return true;
}

static void no_descriptors(struct spr_tcp *tcp, int error)
{
    char text[64];

    pause_listener(tcp, NO_DESCRIPTORS_PAUSE_S);
    if (tcp->told_no_descriptors)
        return;
    tcp->told_no_descriptors = true;
    spr_warn(SPR_SUB_NET, "cannot accept connections: %s (see ulimit -n); trying again",
             spr_tcp_errno_text(error, text, sizeof text));
}

int spr_tcp_accept(struct spr_tcp *tcp)
{
    int steps = 0;

    for (; steps < ACCEPT_PER_CALL; steps++) {
        struct spr_tcp_handshake *h;
        struct sockaddr_storage sa = {0};
        socklen_t length = sizeof sa;
        int fd;
        if (!make_place(tcp)) {
            pause_listener(tcp, EVICT_S / 4);
            return steps;
        }
        fd = accept4(tcp->listen_fd, (struct sockaddr *)&sa, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            no_descriptors(tcp, errno);
        /* Others are EAGAIN, or errors of the one connection (accept(2)), which is gone then. */
        if (fd < 0)
            return steps;
        h = spr_tcp_handshake_new(tcp, fd, NULL);
        if (!h) {
            close(fd);
            return steps;
        }
        (void)spr_tcp_address_from(&h->remote, (struct sockaddr *)&sa);
        spr_list_push_back(&tcp->half_open, &h->node);
        tcp->half_open_count++;
        /* The first message usually is there already. */
        (void)spr_tcp_handshake_drive(tcp, h);
    }
    return steps;
}

int spr_tcp_expire(struct spr_tcp *tcp, uint64_t now)
{
    int steps = 0;

    while (!spr_list_empty(&tcp->half_open)) {
        struct spr_tcp_handshake *h =
            spr_list_entry(tcp->half_open.next, struct spr_tcp_handshake, node);
        char from[SPR_TCP_ADDRESS_TEXT];
        if (now < h->deadline_ns)
            break;
        spr_debug(SPR_SUB_NET, "closed a connection from %s: silent for %g s",
                  spr_tcp_address_print(&h->remote, from, sizeof from),
                  SPR_TCP_HANDSHAKE_S * spr_time_factor());
        spr_tcp_handshake_end(tcp, h, false);
        steps++;
    }
    return steps;
}
