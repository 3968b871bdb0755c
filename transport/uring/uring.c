/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/uring/uring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/log.h"

static const struct spr_tcp_twin twin;

/* Watch the set-up epoll. One shot: level-triggered means to look again after it was served. */
static void watch_setup(struct uring_transport *t)
{
    struct io_uring_sqe *sqe = t->setup.in_flight ? NULL : uring_sqe(t);

    if (!sqe)
        return;
    io_uring_prep_poll_add(sqe, t->tcp.setup_fd, POLLIN);
    io_uring_sqe_set_data(sqe, &t->setup);
    t->setup.in_flight = true;
}

static int reap(struct uring_transport *t)
{
    /* What is there now and what that leads to at once; never for ever. */
    unsigned most = t->backlog_most;
    struct io_uring_cqe cqe;
    int steps = 0;

    while (most-- > 0 && uring_next(t, &cqe))
        steps += uring_complete(t, &cqe);
    return steps;
}

static int progress(struct spr_transport *base)
{
    struct uring_transport *t = uring_of(base);
    int steps;

    if (!uring_enable(t))
        return 0;
    uring_disarm(t);
    uring_regions_update(t);
    steps = reap(t);
    if (t->setup_ready || t->tcp.setup_due) {
        t->setup_ready = false;
        steps += spr_tcp_setup_progress(&t->tcp);
    }
    watch_setup(t);
    while (!spr_list_empty(&t->tcp.work)) {
        struct spr_list *w = t->tcp.work.next;
        spr_list_remove(w);
        spr_list_push_back(&t->round, w);
    }
    while (!spr_list_empty(&t->round)) {
        struct spr_list *w = t->round.next;
        spr_list_remove(w);
        steps += uring_serve(t, uring_link_of(spr_list_entry(w, struct spr_tcp_link, work)));
    }
    if (io_uring_sq_ready(&t->ring)) {
        uring_submit(t);
        /* Much completes at once: sends into an empty socket buffer, receives of what has come. */
        steps += reap(t);
    }
    return steps;
}

static int pollable(struct spr_transport *base) { return uring_pollable(uring_of(base)); }

static spr_status arm(struct spr_transport *base)
{
    struct uring_transport *t = uring_of(base);

    if (!t->enabled || t->tcp.setup_due || t->setup_ready || t->backlog_count ||
        !spr_list_empty(&t->tcp.work) || io_uring_sq_ready(&t->ring))
        return SPR_IN_PROGRESS;
    return uring_arm(t) ? SPR_OK : SPR_IN_PROGRESS;
}

/* ---- Links ------------------------------------------------------------------------------------
 */

static spr_status attach(struct spr_tcp *tcp, struct spr_tcp_link *tl)
{
    struct uring_link *l = uring_link_of(tl);
    int flags = fcntl(tl->fd, F_GETFL);

    /* On a non-blocking socket io_uring reports EAGAIN instead of waiting. */
    if (flags < 0 || fcntl(tl->fd, F_SETFL, flags & ~O_NONBLOCK))
        return SPR_ERR_SYSTEM;
    l->rx = (struct uring_op){.link = l, .kind = URING_RX};
    l->tx = (struct uring_op){.link = l, .kind = URING_TX};
    uring_zc_attach(uring_of(&tcp->base), l);
    return SPR_OK;
}

/* Settled first: after kill() the receiver's memory is not ours any more. */
static void end_operations(struct uring_transport *t, struct uring_link *l)
{
    if (l->tcp.fd < 0)
        return;
    spr_tcp_end(&l->tcp);
    if (uring_settle(t, l))
        return;
    /* Better lost than written to by a stranger. */
    spr_warn(SPR_SUB_NET, "rank %d: operations of a link that is over do not end",
             l->tcp.link.peer);
    l->tcp.conn.rx_token = NULL;
}

static void kill_link(struct spr_link *link)
{
    struct uring_link *l = uring_link_of(spr_tcp_link_of(link));

    if (link->state == SPR_LINK_DOWN)
        return;
    end_operations(uring_of(link->transport), l);
    l->ending = false;
    (void)spr_tcp_cut(&l->tcp);
    if (l->tcp.fd >= 0 && !uring_busy(l) && !uring_zc_busy(l)) {
        close(l->tcp.fd);
        l->tcp.fd = -1;
    }
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void close_transport(struct spr_transport *base)
{
    struct uring_transport *t = uring_of(base);

    /* First the operations, then the ring, which cancels what is left, then the sockets. Data that
     * was sent is on its way all the same: only receiving is shut down here. */
    for (int r = 0; t->enabled && r < base->params.size; r++) {
        struct spr_tcp_link *l = t->tcp.links[r];
        if (!l || l->fd < 0)
            continue;
        (void)shutdown(l->fd, SHUT_WR);
        if (!uring_settle(t, uring_link_of(l)))
            l->conn.rx_token = NULL;
    }
    uring_destroy(t);
    spr_tcp_close(&t->tcp);
    spr_free(t);
}

static spr_status open_transport(const struct spr_transport_params *params,
                                 struct spr_transport **transport, struct spr_error *error)
{
    struct uring_transport *t = spr_calloc(1, sizeof *t);
    spr_status status;

    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the io_uring transport");
    spr_list_init(&t->round);
    t->setup.kind = URING_SETUP;
    t->event_fd = -1;
    t->zc = t->zc_report = params->options->zerocopy_bytes != SIZE_MAX;
    /* The ring first: where it is refused there is no listener to be announced and closed again. */
    t->tcp.base.params = *params;
    status = uring_create(t, error);
    if (status == SPR_OK)
        status = spr_tcp_open(&t->tcp, &twin, params, error);
    if (status) {
        uring_destroy(t);
        spr_free(t);
        return status;
    }
    *transport = &t->tcp.base;
    return SPR_OK;
}

static const char *unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    return spr_tcp_unusable(&twin, mine, peer);
}

const struct spr_transport_ops spr_transport_uring = {
    .name = "uring",
    .seals = true,
    .narrow = true,
    .one_submitter = true,
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
    .mem_register = uring_mem_register,
    .mem_deregister = uring_mem_deregister,
};

static const struct spr_tcp_twin twin = {
    .ops = &spr_transport_uring,
    .index = SPR_T_URING,
    .other = SPR_T_EPOLL,
    .purpose = SPR_AUTH_TCP,
    .link_bytes = sizeof(struct uring_link),
    .attach = attach,
};
