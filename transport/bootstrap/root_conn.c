/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/root_conn.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"

#define DRAIN_ROUNDS 64

void spr_root_conn_init(struct spr_root_conn *c, int fd)
{
    memset(c, 0, sizeof(*c));
    spr_list_init(&c->node);
    c->fd = fd;
    c->rank = -1;
}

void spr_root_conn_close(struct spr_root_conn *c)
{
    char scratch[4096];

    if (c->fd < 0)
        return;
    shutdown(c->fd, SHUT_WR);
    for (int i = 0; i < DRAIN_ROUNDS; i++)
        if (recv(c->fd, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0)
            break;
    close(c->fd);
    c->fd = -1;
    explicit_bzero(&c->auth, sizeof(c->auth));
}

/* ---- Sending ---- */

void spr_root_conn_send(struct spr_root_conn *c, enum spr_root_type type, uint32_t sequence,
                        const void *data, size_t bytes)
{
    c->tx = (struct spr_root_header){
        .magic = SPR_ROOT_MAGIC,
        .type = (uint8_t)type,
        .sequence = sequence,
        .rank = -1,
        .bytes = bytes,
    };
    c->tx_data = bytes > 0 ? data : c->tx_text;
    c->tx_done = 0;
    c->tx_bytes = sizeof(c->tx) + bytes;
}

void spr_root_conn_send_text(struct spr_root_conn *c, enum spr_root_type type, spr_status status,
                             int rank, const char *text)
{
    size_t bytes = strnlen(text, sizeof(c->tx_text));

    memcpy(c->tx_text, text, bytes);
    spr_root_conn_send(c, type, 0, c->tx_text, bytes);
    c->tx.status = status;
    c->tx.rank = rank;
}

spr_status spr_root_conn_flush(struct spr_root_conn *c)
{
    while (!spr_root_conn_idle(c)) {
        size_t head = spr_min_size(c->tx_done, sizeof(c->tx));
        size_t body = c->tx_done - head;
        /* The interface of sendmsg has no const; it only reads. */
        union {
            const void *in;
            void *out;
        } data = {.in = (const char *)c->tx_data + body};
        struct iovec parts[2] = {
            {(char *)&c->tx + head, sizeof(c->tx) - head},
            {data.out, c->tx_bytes - sizeof(c->tx) - body},
        };
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0)
            c->tx_done += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return SPR_IN_PROGRESS;
        else if (errno != EINTR)
            return SPR_ERR_LINK;
    }
    return SPR_OK;
}

/* ---- Receiving ---- */

/* Until `done` of the message's bytes are there. `into` is where byte `first` goes. */
static spr_status receive(struct spr_root_conn *c, void *into, size_t first, size_t done)
{
    while (c->rx_done < done) {
        ssize_t n =
            recv(c->fd, (char *)into + (c->rx_done - first), done - c->rx_done, MSG_DONTWAIT);

        if (n > 0) {
            c->rx_done += (size_t)n;
        } else if (n == 0) {
            errno = 0;
            return SPR_ERR_LINK;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return SPR_IN_PROGRESS;
        } else if (errno != EINTR) {
            return SPR_ERR_LINK;
        }
    }
    return SPR_OK;
}

spr_status spr_root_conn_header(struct spr_root_conn *c)
{
    spr_status status = receive(c, &c->rx, 0, sizeof(c->rx));

    if (status == SPR_OK && c->rx.magic != SPR_ROOT_MAGIC)
        return SPR_ERR_PROTO;
    return status;
}

spr_status spr_root_conn_text(struct spr_root_conn *c)
{
    if (c->rx.bytes > SPR_ROOT_TEXT_BYTES)
        return SPR_ERR_PROTO;
    c->rx_text[c->rx.bytes] = '\0';
    c->rx_into = c->rx_text;
    return SPR_OK;
}

spr_status spr_root_conn_payload(struct spr_root_conn *c)
{
    spr_status status = receive(c, c->rx_into, sizeof(c->rx), sizeof(c->rx) + c->rx.bytes);

    if (status == SPR_OK) {
        c->rx_into = NULL;
        c->rx_done = 0;
    }
    return status;
}
