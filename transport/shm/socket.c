/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Unix sockets in the abstract namespace: nothing in the file system. The listening name is random;
 * a connection is authenticated before anything is believed, and afterwards only lives so that its
 * end of file tells of the peer's death.
 *
 * One epoll descriptor holds it all, the bell included, and is what the layer above sleeps on.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/private.h"
#include "transport/shm/socket.h"

#define BACKLOG 4096
#define MAX_HALF_OPEN 64
#define ACCEPT_PER_CALL 32 /* whoever connects without a pause has the rank do other work, too */
#define TICK_NS 20000000   /* deadlines and retries are looked at this often */
#define EVENTS 64

socklen_t spr_shm_socket_name(struct sockaddr_un *to, const uint8_t name[16])
{
    size_t n = offsetof(struct sockaddr_un, sun_path) + 1; /* abstract: begins with a zero */
    char *text = to->sun_path + 1;

    memset(to, 0, sizeof(*to));
    to->sun_family = AF_UNIX;
    n += (size_t)snprintf(text, sizeof(to->sun_path) - 1, "sparring-");
    for (int i = 0; i < 16; i++)
        snprintf(text + 9 + 2 * i, 3, "%02x", name[i]);
    return (socklen_t)(n + 32);
}

int spr_shm_epoll_set(struct spr_shm *t, int op, int fd, uint32_t events, void *source)
{
    struct epoll_event e = {.events = events, .data.ptr = source};

    return epoll_ctl(t->epoll, op, fd, &e);
}

static void set_timer(struct spr_shm *t)
{
    bool on = t->unfinished || t->listener_off;
    struct itimerspec every = {.it_value.tv_nsec = TICK_NS, .it_interval.tv_nsec = TICK_NS};
    struct itimerspec never = {0};

    if (on == t->timer_on)
        return;
    if (timerfd_settime(t->timer, 0, on ? &every : &never, NULL) == 0)
        t->timer_on = on;
}

/* A pause ends at the next tick, or when a connection has left. */
static void pause_listener(struct spr_shm *t, bool off)
{
    if (off == t->listener_off)
        return;
    if (spr_shm_epoll_set(t, EPOLL_CTL_MOD, t->listener, off ? 0 : EPOLLIN, &t->listener_source) ==
        0)
        t->listener_off = off;
}

static int listen_here(struct spr_shm *t, struct spr_error *error)
{
    struct sockaddr_un name;
    socklen_t bytes;

    if (getrandom(t->name, sizeof(t->name), 0) != (ssize_t)sizeof(t->name))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "getrandom");
    t->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->listener < 0)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "create a Unix socket");
    bytes = spr_shm_socket_name(&name, t->name);
    if (bind(t->listener, (struct sockaddr *)&name, bytes) < 0 || listen(t->listener, BACKLOG) < 0)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "listen on a Unix socket");
    return SPR_OK;
}

spr_status spr_shm_sockets_open(struct spr_shm *t, struct spr_error *error)
{
    spr_status status = listen_here(t, error);

    if (status)
        return status;
    t->listener_source = SPR_SHM_LISTENER;
    t->bell_source = SPR_SHM_BELL;
    t->timer_source = SPR_SHM_TIMER;
    t->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    t->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    /* Edge-triggered: each ring is an event, and the counter need not be read. */
    if (t->bell < 0 || t->timer < 0 || t->epoll < 0 ||
        spr_shm_epoll_set(t, EPOLL_CTL_ADD, t->bell, EPOLLIN | EPOLLET, &t->bell_source) < 0 ||
        spr_shm_epoll_set(t, EPOLL_CTL_ADD, t->timer, EPOLLIN, &t->timer_source) < 0 ||
        spr_shm_epoll_set(t, EPOLL_CTL_ADD, t->listener, EPOLLIN, &t->listener_source) < 0)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno,
                               "cannot create descriptors to sleep on");
    return SPR_OK;
}

void spr_shm_sockets_close(struct spr_shm *t)
{
    int fds[] = {t->epoll, t->listener, t->bell, t->timer};

    struct spr_list *it;

    spr_list_for_each(it, &t->conns)
        spr_shm_conn_close(t, spr_list_entry(it, struct spr_shm_conn, node));
    spr_shm_conn_free_dead(t);
    for (size_t i = 0; i < SPR_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

bool spr_shm_same_user(int fd, int *pid)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0 || who.uid != geteuid())
        return false;
    *pid = who.pid;
    return true;
}

static int accept_some(struct spr_shm *t)
{
    int n = 0;

    while (n < ACCEPT_PER_CALL && t->half_open < MAX_HALF_OPEN) {
        int pid, fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) {
                if (!t->accept_warned)
                    spr_warn(SPR_SUB_SHM, "accept a connection: %s", strerror(errno));
                t->accept_warned = true;
                pause_listener(t, true);
            }
            return n;
        }
        n++;
        if (spr_shm_same_user(fd, &pid)) {
            spr_shm_conn_accepted(t, fd, pid);
        } else {
            spr_debug(SPR_SUB_SHM, "closed a connection of another user");
            close(fd);
        }
    }
    if (t->half_open >= MAX_HALF_OPEN)
        pause_listener(t, true);
    return n;
}

static void on_tick(struct spr_shm *t)
{
    uint64_t ticks;

    if (read(t->timer, &ticks, sizeof(ticks)) < 0)
        return;
    if (t->half_open < MAX_HALF_OPEN)
        pause_listener(t, false);
}

/* A process that forked (a data loader) and died leaves its socket open in the child. Without
 * pidfds, or from another PID namespace, end of file has to do. */
void spr_shm_watch_process(struct spr_shm *t, struct spr_shm_link *link)
{
#ifdef SYS_pidfd_open
    if (link->pid <= 0 || link->pid == getpid())
        return;
    link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0);
    if (link->pidfd >= 0)
        spr_shm_epoll_set(t, EPOLL_CTL_ADD, link->pidfd, EPOLLIN, &link->source);
#else
    (void)t, (void)link;
#endif
}

static bool process_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return pidfd >= 0 && poll(&p, 1, 0) > 0;
}

/* Nothing is sent on the socket of a link but the word that it is cut: other bytes break the
 * protocol, and zero bytes are its end. */
static void on_link(struct spr_shm_link *link)
{
    char byte;
    ssize_t n;

    if (link->socket < 0 || link->gone)
        return;
    n = recv(link->socket, &byte, 1, MSG_DONTWAIT);
    if (n > 0 && byte == SPR_SHM_CUT) {
        link->gone = link->was_cut = true;
    } else if (n > 0) {
        link->fault = SPR_ERR_PROTO;
        link->fault_text = "bytes on the socket of a link";
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || process_ended(link->pidfd)) {
        link->gone = true;
    }
}

/* Deadlines of accepted connections, connections to begin again, and those that wait for connect().
 */
static int drive_conns(struct spr_shm *t)
{
    uint64_t now = spr_now_ns(t->base.params.clock);
    struct spr_list *it;
    int n = 0;

    /* Closed ones stay in the list for now. */
    spr_list_for_each(it, &t->conns)
    {
        struct spr_shm_conn *c = spr_list_entry(it, struct spr_shm_conn, node);

        if (!c->connector && c->state < CONN_READY && now > c->deadline_ns) {
            spr_debug(SPR_SUB_SHM, "closed a connection that did not authenticate in time");
            spr_shm_conn_close(t, c);
            n++;
        } else if (c->state != CONN_AUTH) {
            n += spr_shm_conn_drive(t, c);
        }
    }
    return n;
}

int spr_shm_sockets_progress(struct spr_shm *t)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(t->epoll, events, EVENTS, 0), n = 0;

    t->sockets_due = false;
    for (int i = 0; i < count; i++) {
        enum spr_shm_source *source = events[i].data.ptr;

        switch (*source) {
        case SPR_SHM_LISTENER:
            n += accept_some(t);
            break;
        case SPR_SHM_TIMER:
            on_tick(t);
            break;
        case SPR_SHM_CONN:
            n += spr_shm_conn_drive(t, spr_container_of(source, struct spr_shm_conn, source));
            break;
        case SPR_SHM_LINK:
            on_link(spr_container_of(source, struct spr_shm_link, source));
            n++;
            break;
        case SPR_SHM_BELL: /* progress() goes on to look at the rings */
            break;
        }
    }
    if (!spr_list_empty(&t->conns))
        n += drive_conns(t);
    spr_shm_conn_free_dead(t);
    if (t->listener_off && t->half_open < MAX_HALF_OPEN && n)
        pause_listener(t, false);
    set_timer(t);
    return n;
}
