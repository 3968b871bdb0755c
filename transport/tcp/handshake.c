/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Handshakes on connections of either direction, and the loop of the set-up phase.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/tcp/tcp.h"

/* A connector gives an acceptor that says nothing this long before it tries again. */
#define CONNECTOR_S 10.0
#define EVENTS 32

struct spr_tcp_handshake *spr_tcp_handshake_new(struct spr_tcp *tcp, int fd,
                                                struct spr_tcp_link *link)
{
    const struct spr_transport_params *p = &tcp->base.params;
    struct spr_tcp_handshake *h = spr_calloc(1, sizeof *h);
    struct epoll_event ev = {.events = EPOLLIN | (link ? EPOLLOUT : 0u), .data.ptr = h};

    if (!h)
        return NULL;
    if (epoll_ctl(tcp->setup_fd, EPOLL_CTL_ADD, fd, &ev)) {
        spr_free(h);
        return NULL;
    }
    h->fd = fd;
    h->link = link;
    h->connecting = link != NULL;
    h->events = (short)ev.events;
    h->since_ns = spr_now_ns(p->clock);
    h->deadline_ns = h->since_ns + spr_tcp_seconds_ns(link ? CONNECTOR_S : SPR_TCP_HANDSHAKE_S);
    spr_list_init(&h->node);
    spr_auth_init(&h->auth, p->key, link != NULL, tcp->twin->purpose, link ? link->link.peer : -1);
    return h;
}

int spr_tcp_handshake_end(struct spr_tcp *tcp, struct spr_tcp_handshake *h, bool keep_fd)
{
    int fd = h->fd;

    if (fd < 0)
        return -1;
    /* What stays registered would tell of a handshake that is gone: then it is closed, which takes
     * it out for good. */
    if (epoll_ctl(tcp->setup_fd, EPOLL_CTL_DEL, fd, NULL))
        keep_fd = false;
    h->fd = -1;
    if (h->link)
        h->link->handshake = NULL;
    else
        tcp->half_open_count--;
    spr_list_remove(&h->node);
    spr_list_push_back(&tcp->gone, &h->node);
    if (keep_fd)
        return fd;
    close(fd);
    return -1;
}

void spr_tcp_up(struct spr_tcp_link *l)
{
    struct spr_tcp *tcp = spr_tcp_of(l->link.transport);

    l->link.state = SPR_LINK_UP;
    spr_debug(SPR_SUB_NET, "%s: connected with rank %d", tcp->base.ops->name, l->link.peer);
    spr_tcp_wake(tcp, l);
    tcp->base.params.events->up(&l->link);
}

void spr_tcp_established(struct spr_tcp *tcp, struct spr_tcp_link *l, int fd)
{
    spr_status status;

    spr_list_remove(&l->dial);
    l->fd = fd;
    if (l->same_host)
        spr_tcp_limit_unsent(&l->link, SPR_TCP_LOOPBACK_UNSENT);
    status = fd < 0 ? SPR_ERR_SYSTEM : tcp->twin->attach(tcp, l);
    if (status == SPR_OK)
        spr_tcp_up(l);
    else if (status != SPR_IN_PROGRESS)
        spr_tcp_lose(l, status, "cannot take the connection over");
}

/* An accepted connection showed who it is. */
static void place(struct spr_tcp *tcp, struct spr_tcp_handshake *h)
{
    const struct spr_transport_params *p = &tcp->base.params;
    int peer = h->auth.peer;
    int fd = spr_tcp_handshake_end(tcp, h, true);
    struct spr_tcp_link *l = NULL;

    if (fd < 0)
        return;
    if (peer <= p->rank || peer >= p->size) {
        spr_debug(SPR_SUB_NET, "closed a connection of rank %d, which does not connect to rank %d",
                  peer, p->rank);
        close(fd);
        return;
    }
    l = tcp->links[peer];
    if (l && l->link.state == SPR_LINK_CONNECTING && l->fd < 0) {
        spr_tcp_established(tcp, l, fd);
    } else if (l) {
        spr_debug(SPR_SUB_NET, "closed another connection of rank %d", peer);
        close(fd);
    } else {
        /* The newer one counts: the peer has given the older one up. */
        if (tcp->accepted[peer] >= 0)
            close(tcp->accepted[peer]);
        tcp->accepted[peer] = fd;
    }
}

/* The handshake came to nothing. */
static void refuse(struct spr_tcp *tcp, struct spr_tcp_handshake *h, spr_status status)
{
    struct spr_tcp_link *l = h->link;
    char from[SPR_TCP_ADDRESS_TEXT], detail[sizeof h->auth.detail];

    memcpy(detail, h->auth.detail, sizeof detail);
    detail[sizeof detail - 1] = '\0';
    spr_tcp_address_print(&h->remote, from, sizeof from);
    spr_tcp_handshake_end(tcp, h, false);
    if (!l)
        spr_debug(SPR_SUB_NET, "closed a connection from %s: %s", from,
                  detail[0] ? detail : spr_status_string(status));
    else if (status == SPR_ERR_LINK)
        spr_tcp_dial_retry(l, detail[0] ? detail : "closed during the handshake");
    else
        spr_tcp_lose(l, status, detail[0] ? detail : spr_status_string(status));
}

int spr_tcp_handshake_drive(struct spr_tcp *tcp, struct spr_tcp_handshake *h)
{
    short events = 0;
    spr_status status;

    if (h->connecting && !spr_tcp_dial_finish(h))
        return 1;
    status = spr_auth_drive(&h->auth, h->fd, &events);
    if (status == SPR_IN_PROGRESS) {
        struct epoll_event ev = {.events = (uint32_t)(uint16_t)events, .data.ptr = h};
        if (events != h->events && epoll_ctl(tcp->setup_fd, EPOLL_CTL_MOD, h->fd, &ev) == 0)
            h->events = events;
        return 1;
    }
    if (status)
        refuse(tcp, h, status);
    else if (h->link)
        spr_tcp_established(tcp, h->link, spr_tcp_handshake_end(tcp, h, true));
    else
        place(tcp, h);
    return 1;
}

/* The next moment at which something is due. */
static void arm_timer(struct spr_tcp *tcp, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    struct spr_list *it;

    if (!spr_list_empty(&tcp->half_open))
        next = spr_list_entry(tcp->half_open.next, struct spr_tcp_handshake, node)->deadline_ns;
    spr_list_for_each(it, &tcp->dialing)
    {
        const struct spr_tcp_link *l = spr_list_entry(it, struct spr_tcp_link, dial);
        next = spr_min_u64(next, l->handshake ? l->handshake->deadline_ns : l->retry_ns);
    }
    if (tcp->listen_paused)
        next = spr_min_u64(next, tcp->resume_ns);
    if (next != tcp->timer_ns) {
        uint64_t in = next > now ? next - now : 1;
        struct itimerspec when = {{0, 0}, {0, 0}}; /* all zero: off */
        if (next != UINT64_MAX) {
            when.it_value.tv_sec = (time_t)(in / 1000000000u);
            when.it_value.tv_nsec = (long)(in % 1000000000u);
        }
        if (timerfd_settime(tcp->timer_fd, 0, &when, NULL) == 0)
            tcp->timer_ns = next;
    }
}

static void free_gone(struct spr_tcp *tcp)
{
    while (!spr_list_empty(&tcp->gone)) {
        struct spr_tcp_handshake *h =
            spr_list_entry(tcp->gone.next, struct spr_tcp_handshake, node);
        spr_list_remove(&h->node);
        spr_free(h);
    }
}

/* Links whose peer connected before they were asked for. */
static int take_accepted(struct spr_tcp *tcp)
{
    int steps = 0;

    for (int r = tcp->base.params.rank + 1; r < tcp->base.params.size; r++) {
        struct spr_tcp_link *l = tcp->links[r];
        int fd = tcp->accepted[r];
        if (fd < 0 || !l)
            continue;
        tcp->accepted[r] = -1;
        if (l->link.state == SPR_LINK_CONNECTING && l->fd < 0)
            spr_tcp_established(tcp, l, fd);
        else
            close(fd);
        steps++;
    }
    return steps;
}

int spr_tcp_setup_progress(struct spr_tcp *tcp)
{
    struct epoll_event events[EVENTS];
    bool knock = false;
    uint64_t now, expirations;
    int steps = 0, n = epoll_wait(tcp->setup_fd, events, EVENTS, 0);

    if (tcp->setup_due) {
        tcp->setup_due = false;
        steps += take_accepted(tcp);
    }
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == &tcp->listen_fd) {
            knock = true;
        } else if (what == &tcp->timer_fd) {
            if (read(tcp->timer_fd, &expirations, sizeof expirations) > 0)
                tcp->timer_ns = UINT64_MAX;
        } else {
            struct spr_tcp_handshake *h = what;
            /* An upcall of an earlier event may have ended it; then it is in `gone` until below. */
            if (h->fd >= 0)
                steps += spr_tcp_handshake_drive(tcp, h);
        }
    }
    now = spr_now_ns(tcp->base.params.clock);
    steps += spr_tcp_expire(tcp, now);
    steps += spr_tcp_dial_due(tcp, now);
    /* After the handshakes, whose places are free now. */
    if (knock)
        steps += spr_tcp_accept(tcp);
    spr_tcp_resume(tcp, now);
    arm_timer(tcp, now);
    free_gone(tcp);
    return steps;
}
