/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/tcp/rate.h"

/* Opening and closing ---------------------------------------------------------------------------*/

static spr_status open_setup(struct spr_tcp *tcp, struct spr_error *error)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &tcp->timer_fd};

    tcp->setup_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    tcp->timer_ns = UINT64_MAX;
    if (tcp->setup_fd < 0 || tcp->timer_fd < 0 ||
        epoll_ctl(tcp->setup_fd, EPOLL_CTL_ADD, tcp->timer_fd, &ev))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create epoll and timer");
    return SPR_OK;
}

static void say_where(const struct spr_tcp *tcp)
{
    char where[SPR_TCP_ADDRESS_TEXT], congestion[32];

    spr_tcp_congestion_name(tcp->listen_fd, congestion, sizeof congestion);
    spr_info(SPR_SUB_NET, "%s: interface %s (%s), listening on %s, congestion control %s",
             tcp->twin->ops->name, tcp->interface.name, tcp->interface.why,
             spr_tcp_address_print(&tcp->address, where, sizeof where), congestion);
}

spr_status spr_tcp_open(struct spr_tcp *tcp, const struct spr_tcp_twin *twin,
                        const struct spr_transport_params *params, struct spr_error *error)
{
    size_t size = (size_t)params->size;
    spr_status status;

    tcp->base.ops = twin->ops;
    tcp->base.params = *params;
    tcp->twin = twin;
    tcp->setup_fd = tcp->listen_fd = tcp->timer_fd = -1;
    spr_list_init(&tcp->half_open);
    spr_list_init(&tcp->dialing);
    spr_list_init(&tcp->gone);
    spr_list_init(&tcp->work);
    spr_tcp_staging_init(&tcp->staging);
    tcp->links = spr_calloc(size, sizeof *tcp->links);
    tcp->accepted = spr_calloc(size, sizeof *tcp->accepted);
    status =
        tcp->links && tcp->accepted ? SPR_OK : spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory");
    for (size_t r = 0; tcp->accepted && r < size; r++)
        tcp->accepted[r] = -1;
    if (status == SPR_OK)
        status = spr_tcp_interface_choose(params->options->interface_name, params->loopback_only,
                                          &tcp->interface, error);
    if (status == SPR_OK)
        status = open_setup(tcp, error);
    if (status == SPR_OK)
        status = spr_tcp_listen(tcp, error);
    if (status) {
        spr_tcp_close(tcp);
        return status;
    }
    say_where(tcp);
    return SPR_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void spr_tcp_close(struct spr_tcp *tcp)
{
    for (int r = 0; r < tcp->base.params.size; r++) {
        struct spr_tcp_link *l = tcp->links ? tcp->links[r] : NULL;
        if (tcp->accepted)
            close_fd(&tcp->accepted[r]);
        if (!l)
            continue;
        if (l->handshake)
            spr_tcp_handshake_end(tcp, l->handshake, false);
        spr_tcp_close_politely(l->fd);
        spr_tcp_conn_free(&l->conn);
        spr_free(l);
    }
    while (!spr_list_empty(&tcp->half_open))
        spr_tcp_handshake_end(
            tcp, spr_list_entry(tcp->half_open.next, struct spr_tcp_handshake, node), false);
    while (!spr_list_empty(&tcp->gone)) {
        struct spr_list *h = tcp->gone.next;
        spr_list_remove(h);
        spr_free(spr_list_entry(h, struct spr_tcp_handshake, node));
    }
    close_fd(&tcp->listen_fd);
    close_fd(&tcp->timer_fd);
    close_fd(&tcp->setup_fd);
    spr_tcp_staging_destroy(&tcp->staging);
    spr_free(tcp->accepted);
    spr_free(tcp->links);
    tcp->accepted = NULL;
    tcp->links = NULL;
}

struct spr_link_rate spr_tcp_rate(const struct spr_transport *t)
{
    uint32_t mbit = spr_tcp_link_mbit(((const struct spr_tcp *)t)->interface.name);

    return (struct spr_link_rate){mbit > SPR_TCP_MOST_MBIT ? 0 : 1000 * mbit, 1};
}

/* Addresses -------------------------------------------------------------------------------------*/

void spr_tcp_address(struct spr_transport *t, void *address)
{
    memset(address, 0, SPR_ADDRESS_BYTES);
    memcpy(address, &spr_tcp_of(t)->address, sizeof(struct spr_tcp_address));
}

static bool offers(const struct spr_peer_info *info, int index, struct spr_tcp_address *a)
{
    memcpy(a, info->address[index], sizeof *a);
    return (info->transports & 1u << index) &&
           (a->family == SPR_TCP_IPV4 || a->family == SPR_TCP_IPV6);
}

/* The listener of the same kind; else the other kind's, if it has just that. */
static bool find_address(const struct spr_tcp_twin *twin, const struct spr_peer_info *peer,
                         struct spr_tcp_address *a)
{
    return offers(peer, twin->index, a) || offers(peer, twin->other, a);
}

const char *spr_tcp_unusable(const struct spr_tcp_twin *twin, const struct spr_peer_info *mine,
                             const struct spr_peer_info *peer)
{
    struct spr_tcp_address theirs, ours, other;

    if (!find_address(twin, peer, &theirs) || !find_address(twin, mine, &ours))
        return "one of them has no TCP address";
    /* Both ends have to come to the same answer. Kinds may differ when there is no common one. */
    if ((!offers(peer, twin->index, &other) && offers(mine, twin->other, &other)) ||
        (!offers(mine, twin->index, &other) && offers(peer, twin->other, &other)))
        return "only one of them has it";
    if (theirs.family != ours.family)
        return "one of them uses IPv4, the other one IPv6";
    if ((theirs.loopback || ours.loopback) && !spr_peer_same_host(mine, peer))
        return "the loopback interface does not lead to another host";
    return NULL;
}

/* Links -----------------------------------------------------------------------------------------*/

spr_status spr_tcp_connect(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                           struct spr_link **link, struct spr_error *error)
{
    struct spr_tcp *tcp = spr_tcp_of(t);
    const struct spr_transport_params *p = &t->params;
    struct spr_tcp_link *l;
    struct spr_tcp_address to;
    spr_status status;

    assert(peer >= 0 && peer < p->size && peer != p->rank && !tcp->links[peer]);
    if (!find_address(tcp->twin, info, &to))
        return spr_error_set(error, SPR_ERR_INVALID, peer, "rank %d has no TCP address", peer);
    l = spr_calloc(1, tcp->twin->link_bytes);
    if (!l)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a link");
    l->link.transport = t;
    l->link.peer = peer;
    l->link.state = SPR_LINK_CONNECTING;
    status = spr_tcp_conn_init(&l->conn, &l->link, p->events, p->counters, &tcp->staging);
    if (status) {
        spr_free(l);
        return spr_error_set(error, status, -1, "no memory for a link");
    }
    spr_list_init(&l->work);
    spr_list_init(&l->dial);
    l->fd = -1;
    l->to = to;
    l->same_host = to.loopback || spr_tcp_address_same_host(&to, &tcp->address);
    l->since_ns = spr_now_ns(p->clock);
    tcp->links[peer] = l;
    /* Upcalls belong into progress(), so the first try does, too. */
    tcp->setup_due = true;
    if (p->rank > peer)
        spr_list_push_back(&tcp->dialing, &l->dial);
    *link = &l->link;
    return SPR_OK;
}

void spr_tcp_wake(struct spr_tcp *tcp, struct spr_tcp_link *l)
{
    if (spr_list_empty(&l->work))
        spr_list_push_back(&tcp->work, &l->work);
}

void spr_tcp_send(struct spr_link *link, struct spr_tx *tx)
{
    struct spr_tcp_link *l = spr_tcp_link_of(link);
    struct spr_tcp *tcp = spr_tcp_of(link->transport);

    tcp->queued++;
    spr_tcp_conn_queue(&l->conn, tx);
    spr_tcp_wake(tcp, l);
}

void spr_tcp_release(struct spr_link *link, void *token)
{
    if (token)
        spr_tcp_staging_put(&spr_tcp_of(link->transport)->staging, token);
}

void spr_tcp_unpark(struct spr_link *link)
{
    struct spr_tcp_link *l = spr_tcp_link_of(link);

    spr_tcp_conn_unpark(&l->conn);
    spr_tcp_wake(spr_tcp_of(link->transport), l);
}

bool spr_tcp_idle(struct spr_transport *t) { return spr_tcp_of(t)->queued == 0; }

/* What the peer has not acknowledged is lost when this socket is closed with unread data in it,
 * which a process that just exits does. */
bool spr_tcp_delivered(struct spr_link *link)
{
    return !spr_tcp_link_of(link)->conn.tx_first && spr_tcp_unacknowledged(link) == 0;
}

size_t spr_tcp_unacknowledged(struct spr_link *link)
{
    int fd = spr_tcp_link_of(link)->fd, bytes = 0;

    return fd < 0 || ioctl(fd, SIOCOUTQ, &bytes) ? 0 : (size_t)bytes;
}

int spr_tcp_tell_sent(struct spr_tcp_link *l, struct spr_tx *list)
{
    struct spr_tcp *tcp = spr_tcp_of(l->link.transport);
    int n = 0;

    while (list) {
        struct spr_tx *tx = list;
        list = tx->next; /* tx is the caller's again after the upcall */
        tcp->queued--;
        tcp->base.params.events->sent(&l->link, tx);
        n++;
    }
    return n;
}

int spr_tcp_return_queue(struct spr_tcp_link *l)
{
    return spr_tcp_tell_sent(l, spr_tcp_conn_fail_queue(&l->conn));
}

void spr_tcp_end(const struct spr_tcp_link *l)
{
    if (l->conn.tx_first) /* perhaps the word that this rank goes on without it */
        spr_tcp_reset(l->fd);
    else
        (void)shutdown(l->fd, SHUT_RDWR);
}

bool spr_tcp_cut(struct spr_tcp_link *l)
{
    if (l->link.state == SPR_LINK_DOWN)
        return false;
    l->link.state = SPR_LINK_DOWN;
    l->over = true;
    spr_tcp_dial_stop(l);
    spr_tcp_conn_stop(&l->conn);
    if (l->fd >= 0)
        spr_tcp_end(l);
    spr_tcp_wake(spr_tcp_of(l->link.transport), l);
    return true;
}

void spr_tcp_lose(struct spr_tcp_link *l, spr_status why, const char *text)
{
    if (l->over)
        return;
    assert(l->conn.link);
    l->link.state = SPR_LINK_DOWN;
    l->over = true;
    spr_tcp_dial_stop(l);
    spr_tcp_conn_stop(&l->conn);
    if (l->fd >= 0 && why != SPR_ERR_RANK_LOST)
        spr_tcp_reset(l->fd);
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    (void)spr_tcp_return_queue(l);
    l->link.transport->params.events->down(&l->link, why, text);
}
