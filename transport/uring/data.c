/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/uring/uring.h"

/* Bytes of one send beyond its first frame: more than over epoll, since each costs a completion. */
#define SEND_BYTES ((size_t)256 << 10)

/* ---- Prepare ----------------------------------------------------------------------------------
 */

/* No MSG_WAITALL: it would spare completions, but the next header could not come in the same call,
 * and the kernel would work for each segment all the same. */
static bool prepare_rx(struct uring_transport *t, struct uring_link *l)
{
    struct io_uring_sqe *sqe = uring_sqe(t);
    int n;

    if (!sqe)
        return false;
    n = spr_tcp_conn_want(&l->tcp.conn, l->rx_iov);
    if (n == 1) {
        io_uring_prep_recv(sqe, l->tcp.fd, l->rx_iov[0].iov_base, l->rx_iov[0].iov_len, 0);
    } else {
        l->rx_msg = (struct msghdr){.msg_iov = l->rx_iov, .msg_iovlen = (size_t)n};
        io_uring_prep_recvmsg(sqe, l->tcp.fd, &l->rx_msg, 0);
    }
    io_uring_sqe_set_data(sqe, &l->rx);
    l->rx.in_flight = true;
    return true;
}

/* The rest of the header of a frame whose payload goes by zero copy. */
static int gather_header(struct uring_link *l)
{
    struct spr_tcp_conn *c = &l->tcp.conn;

    spr_tcp_conn_seal(c->tx_first);
    l->tx_iov[0] =
        (struct iovec){(uint8_t *)&c->tx_first->header + c->tx_done, SPR_FRAME_BYTES - c->tx_done};
    return 1;
}

static bool prepare_tx(struct uring_transport *t, struct uring_link *l)
{
    struct spr_tcp_conn *c = &l->tcp.conn;
    struct io_uring_sqe *sqe;
    int n, flags = MSG_NOSIGNAL | MSG_WAITALL;

    l->zc_tx = NULL;
    if (uring_zc_wanted(l)) {
        if (c->tx_done >= SPR_FRAME_BYTES)
            return uring_zc_prepare(t, l);
        n = gather_header(l);
        flags |= MSG_MORE;
    } else {
        size_t most = l->zc ? t->tcp.base.params.options->zerocopy_bytes - 1 : SEND_BYTES;
        n = spr_tcp_conn_gather(c, l->tx_iov, URING_VECTORS, spr_min_size(most, SEND_BYTES));
    }
    sqe = uring_sqe(t);
    if (!sqe)
        return false;
    l->tx_msg = (struct msghdr){.msg_iov = l->tx_iov, .msg_iovlen = (size_t)n};
    l->tx_bytes = 0;
    for (int i = 0; i < n; i++)
        l->tx_bytes += l->tx_iov[i].iov_len;
    io_uring_prep_sendmsg(sqe, l->tcp.fd, &l->tx_msg, (unsigned)flags);
    io_uring_sqe_set_data(sqe, &l->tx);
    l->tx.in_flight = true;
    return true;
}

/* ---- The end of a link ------------------------------------------------------------------------
 */

void uring_lose(struct uring_transport *t, struct uring_link *l, spr_status why, const char *text)
{
    if (l->ending || l->tcp.over)
        return;
    l->ending = true;
    /* The first error is the cause, not the end of file after it; but "broken pipe" says less. */
    if (l->tx_error && l->tx_error != EPIPE) {
        why = spr_tcp_errno_status(l->tx_error);
        text = l->tx_text;
    }
    l->why = why;
    snprintf(l->text, sizeof l->text, "%s", text);
    /* What is in flight completes with an error now. */
    if (why == SPR_ERR_RANK_LOST)
        (void)shutdown(l->tcp.fd, SHUT_RDWR);
    else
        spr_tcp_reset(l->tcp.fd);
    spr_tcp_wake(&t->tcp, &l->tcp);
}

/* Closing resets the connection, so that the kernel drops what it still reads from our memory. */
static void drop_socket(struct uring_link *l)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (l->tcp.fd < 0)
        return;
    if (uring_zc_busy(l))
        (void)setsockopt(l->tcp.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(l->tcp.fd);
    l->tcp.fd = -1;
}

static int finish(struct uring_link *l)
{
    int steps;

    if (uring_busy(l))
        return 0;
    drop_socket(l);
    if (uring_zc_busy(l))
        return 0;
    steps = spr_tcp_tell_sent(&l->tcp, uring_zc_fail_held(l));
    steps += spr_tcp_return_queue(&l->tcp);
    if (l->ending) {
        l->ending = false;
        spr_tcp_lose(&l->tcp, l->why, l->text);
        steps++;
    }
    return steps;
}

/* The frame that was not wanted yet. */
static int take_again(struct uring_transport *t, struct uring_link *l)
{
    const char *why = "";
    spr_status status = spr_tcp_conn_received(&l->tcp.conn, 0, &why);

    if (status && status != SPR_ERR_CANCELED)
        uring_lose(t, l, status, why);
    return 1;
}

int uring_serve(struct uring_transport *t, struct uring_link *l)
{
    int steps = 0;

    if (l->tcp.link.state == SPR_LINK_CONNECTING)
        return 0; /* queued frames wait for up() */
    if (l->tcp.conn.unparked && l->tcp.link.state == SPR_LINK_UP && !l->ending)
        steps = take_again(t, l);
    if (l->ending || l->tcp.link.state == SPR_LINK_DOWN)
        return steps + finish(l);
    if (!l->rx.in_flight && !l->tcp.conn.parked && !prepare_rx(t, l))
        spr_tcp_wake(&t->tcp, &l->tcp);
    /* Without an SQE try again; without a zero-copy slot its notification wakes the link. */
    if (!l->tx.in_flight && l->tcp.conn.tx_first && !l->tx_error && !prepare_tx(t, l) &&
        !uring_zc_busy(l))
        spr_tcp_wake(&t->tcp, &l->tcp);
    return steps;
}

/* ---- Complete ---------------------------------------------------------------------------------
 */

/* The thread that submitted it ended, or a signal came: again. */
static bool again(int result)
{
    return result == -ECANCELED || result == -EINTR || result == -EAGAIN;
}

static int complete_rx(struct uring_transport *t, struct uring_link *l, int result)
{
    const char *why = "";
    char text[80];
    spr_status status;

    l->rx.in_flight = false;
    spr_tcp_wake(&t->tcp, &l->tcp);
    if (l->ending || l->tcp.over || again(result))
        return 0;
    if (result < 0) {
        uring_lose(t, l, spr_tcp_errno_status(-result),
                   spr_tcp_errno_text(-result, text, sizeof text));
        return 0;
    }
    if (result == 0) {
        /* A reset is told once. Where a send that had got some of its bytes away was told, it
         * returned their number, and what is left to see of the reset is an end of file. */
        if (spr_tcp_conn_mid_frame(&l->tcp.conn))
            uring_lose(t, l, SPR_ERR_LINK,
                       "connection closed by the peer in the middle of a frame");
        else if (l->tx_short)
            uring_lose(t, l, spr_tcp_errno_status(ECONNRESET),
                       spr_tcp_errno_text(ECONNRESET, text, sizeof text));
        else
            uring_lose(t, l, SPR_ERR_RANK_LOST, "connection closed by the peer");
        return 0;
    }
    status = spr_tcp_conn_received(&l->tcp.conn, (size_t)result, &why);
    if (status && status != SPR_ERR_CANCELED)
        uring_lose(t, l, status, why);
    return 1;
}

/* The socket is dead for sending: read what the peer still said, up to the end of file. */
static void send_failed(struct uring_link *l, int error)
{
    l->tx_error = error;
    spr_tcp_errno_text(error, l->tx_text, sizeof l->tx_text);
    (void)shutdown(l->tcp.fd, SHUT_WR);
}

static int complete_tx(struct uring_transport *t, struct uring_link *l, int result)
{
    struct spr_tx *done;

    l->tx.in_flight = false;
    spr_tcp_wake(&t->tcp, &l->tcp);
    if (l->ending || l->tcp.over || again(result))
        return 0;
    if (result < 0) {
        if (!l->zc_tx || !uring_zc_failed(t, l, -result))
            send_failed(l, -result);
        return 0;
    }
    l->tx_short = (size_t)result < l->tx_bytes;
    done = spr_tcp_conn_sent(&l->tcp.conn, (size_t)result);
    if (done)
        l->zc_skip = false;
    return 1 + spr_tcp_tell_sent(&l->tcp, uring_zc_hold(l, done));
}

int uring_complete(struct uring_transport *t, const struct io_uring_cqe *cqe)
{
    struct uring_op *op = io_uring_cqe_get_data(cqe);
    struct uring_link *l;
    int steps;

    if (!op)
        return 0; /* a cancellation */
    l = op->link;
    switch (op->kind) {
    case URING_SETUP:
        op->in_flight = false;
        t->setup_ready = true;
        return 0;
    case URING_RX:
        return complete_rx(t, l, cqe->res);
    case URING_TX:
        return complete_tx(t, l, cqe->res);
    case URING_ZC:
        break;
    }
    if (cqe->flags & IORING_CQE_F_NOTIF) {
        spr_tcp_wake(&t->tcp, &l->tcp);
        return uring_zc_notified(t, (struct uring_zc *)op, cqe->res, false);
    }
    /* Hold first, then, if no notification will come, give back. */
    steps = complete_tx(t, l, cqe->res);
    if (!(cqe->flags & IORING_CQE_F_MORE))
        steps += uring_zc_free((struct uring_zc *)op, false);
    return steps;
}
