/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The connecting side. It tries until the link is killed, since how long a start may take is the
 * caller's business; but a peer listens before it tells its address, so where nobody has listened
 * for a while nobody will.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "transport/tcp/tcp.h"

#define FIRST_RETRY_S 0.002
#define LAST_RETRY_S 0.25
#define REFUSED_S 1.0
#define TELL_S 3.0

static struct spr_tcp *owner(const struct spr_tcp_link *l) { return spr_tcp_of(l->link.transport); }

void spr_tcp_dial_stop(struct spr_tcp_link *l)
{
    spr_list_remove(&l->dial);
    if (l->handshake)
        spr_tcp_handshake_end(owner(l), l->handshake, false);
}

/* Twice as long each time, plus up to as much again by chance, so that many ranks do not come at
 * once. */
void spr_tcp_dial_retry(struct spr_tcp_link *l, const char *why)
{
    const struct spr_transport_params *p = &owner(l)->base.params;
    uint64_t now = spr_now_ns(p->clock);
    uint64_t wait = spr_tcp_seconds_ns(FIRST_RETRY_S), most = spr_tcp_seconds_ns(LAST_RETRY_S);
    uint64_t who = (uint64_t)p->rank << 40 ^ (uint64_t)l->link.peer << 20 ^ l->attempts;
    char to[SPR_TCP_ADDRESS_TEXT];

    wait = l->attempts < 16 ? spr_min_u64(wait << l->attempts, most) : most;
    l->retry_ns = now + wait + wait * (spr_hash_u32(who ^ now) & 0xff) / 256;
    l->attempts++;
    spr_tcp_address_print(&l->to, to, sizeof to);
    spr_trace(SPR_SUB_NET, "connecting to rank %d at %s: %s", l->link.peer, to, why);
    if (!l->told && now - l->since_ns > spr_tcp_seconds_ns(TELL_S)) {
        l->told = true;
        spr_info(SPR_SUB_NET, "still connecting to rank %d at %s: %s", l->link.peer, to, why);
    }
}

/* Errors that trying again will not cure. */
static bool hopeless(int error)
{
    return error == EACCES || error == EPERM || error == EAFNOSUPPORT || error == EINVAL ||
           error == ENETUNREACH;
}

/* Nobody listens, and has not for so long that it is no accident. */
static bool is_closed(struct spr_tcp_link *l, int error)
{
    uint64_t now = spr_now_ns(owner(l)->base.params.clock);

    if (error != ECONNREFUSED)
        l->refused_ns = 0;
    else if (l->refused_ns == 0)
        l->refused_ns = now;
    return l->refused_ns > 0 && now - l->refused_ns > spr_tcp_seconds_ns(REFUSED_S);
}

static void failed(struct spr_tcp_link *l, int error)
{
    bool closed = is_closed(l, error);
    char text[64], why[200], to[SPR_TCP_ADDRESS_TEXT];

    spr_tcp_errno_text(error, text, sizeof text);
    if (!closed && !hopeless(error)) {
        spr_tcp_dial_retry(l, text);
        return;
    }
    snprintf(why, sizeof why, "cannot connect to %s: %s%s",
             spr_tcp_address_print(&l->to, to, sizeof to), text,
             closed ? ": it has given up or ended, or a firewall is between" : "");
    spr_tcp_lose(l, SPR_ERR_LINK, why);
}

/* An interface that the user named is also the one to send from; routing knows better otherwise. */
static void bind_source(const struct spr_tcp *tcp, const struct spr_tcp_link *l, int fd)
{
    struct spr_tcp_address from = tcp->interface.address;
    struct sockaddr_storage sa;
    const int on = 1;

    if (!tcp->interface.asked || from.family != l->to.family || from.loopback != l->to.loopback)
        return;
    from.port = 0;
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    (void)bind(fd, (struct sockaddr *)&sa, spr_tcp_address_to(&from, &sa));
}

static void dial(struct spr_tcp *tcp, struct spr_tcp_link *l)
{
    struct sockaddr_storage sa;
    socklen_t length;
    int fd;

    /* The scope of a link-local address is the number of our own interface on that wire. */
    if (spr_tcp_address_link_local(&l->to))
        l->to.scope = tcp->interface.address.scope;
    length = spr_tcp_address_to(&l->to, &sa);
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        failed(l, errno);
        return;
    }
    /* The listener has the same options; that they work was seen there. */
    (void)spr_tcp_socket_options(fd, tcp->base.params.options, NULL);
    bind_source(tcp, l, fd);
    if (connect(fd, (struct sockaddr *)&sa, length) && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        failed(l, error);
        return;
    }
    l->handshake = spr_tcp_handshake_new(tcp, fd, l);
    if (!l->handshake) {
        close(fd);
        failed(l, ENOMEM);
        return;
    }
    l->handshake->remote = l->to;
}

/* With nobody listening, a port of the ephemeral range can be our own socket's. */
static bool is_ourselves(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t la = sizeof a, lb = sizeof b;

    return !getsockname(fd, (struct sockaddr *)&a, &la) &&
           !getpeername(fd, (struct sockaddr *)&b, &lb) && la == lb && !memcmp(&a, &b, la);
}

bool spr_tcp_dial_finish(struct spr_tcp_handshake *h)
{
    struct spr_tcp_link *l = h->link;
    struct sockaddr_storage sa;
    socklen_t length = sizeof(int), peer_length = sizeof sa;
    int error = 0;

    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &length))
        error = errno;
    if (!error && is_ourselves(h->fd))
        error = ECONNREFUSED;
    /* A socket that is neither connected nor has an error is still on its way. */
    if (!error && getpeername(h->fd, (struct sockaddr *)&sa, &peer_length))
        return false;
    if (error) {
        spr_tcp_handshake_end(owner(l), h, false);
        failed(l, error);
        return false;
    }
    h->connecting = false;
    l->refused_ns = 0;
    return true;
}

int spr_tcp_dial_due(struct spr_tcp *tcp, uint64_t now)
{
    struct spr_list *it, *next, due;
    int steps = 0;

    /* Collected first: upcalls may change the list. */
    spr_list_init(&due);
    spr_list_for_each_safe(it, next, &tcp->dialing)
    {
        struct spr_tcp_link *l = spr_list_entry(it, struct spr_tcp_link, dial);
        if (now < (l->handshake ? l->handshake->deadline_ns : l->retry_ns))
            continue;
        spr_list_remove(&l->dial);
        spr_list_push_back(&due, &l->dial);
    }
    while (!spr_list_empty(&due)) {
        struct spr_tcp_link *l = spr_list_entry(due.next, struct spr_tcp_link, dial);
        spr_list_remove(&l->dial);
        spr_list_push_back(&tcp->dialing, &l->dial);
        if (l->handshake) {
            spr_tcp_handshake_end(tcp, l->handshake, false);
            spr_tcp_dial_retry(l, "no answer in the handshake");
        } else {
            dial(tcp, l);
        }
        steps++;
    }
    return steps;
}
