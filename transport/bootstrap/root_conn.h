/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One connection between rank 0 and another rank: the handshake, then messages, one at a time in
 * each direction. Nothing blocks, nothing is allocated. Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_CONN_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_CONN_H

#include <stdbool.h>

#include "base/list.h"
#include "transport/bootstrap/auth.h"
#include "transport/bootstrap/root_address.h"
#include "transport/bootstrap/root_wire.h"

struct spr_root_conn {
    struct spr_list node; /* rank 0: among those that are not proven yet, oldest first */
    int fd;               /* -1: closed */
    int rank;             /* at the other end; -1: not proven yet */
    uint32_t watched;     /* rank 0: events in the epoll set */
    uint64_t since_ns;
    struct spr_address address; /* of the other end */
    struct spr_auth auth;
    bool contributed, delivered; /* rank 0, in this allgather */
    /* The message that is being sent. */
    struct spr_root_header tx;
    const void *tx_data;
    size_t tx_done, tx_bytes; /* header included; equal: idle */
    char tx_text[SPR_ROOT_TEXT_BYTES];
    /* The message that is being received. */
    struct spr_root_header rx;
    void *rx_into; /* NULL: the header is not complete or not looked at yet */
    size_t rx_done;
    char rx_text[SPR_ROOT_TEXT_BYTES + 1];
};

void spr_root_conn_init(struct spr_root_conn *c, int fd);
/* Read what is left, so that the system does not answer it with a reset that overtakes our last
 * message; then close. Idempotent. */
void spr_root_conn_close(struct spr_root_conn *c);

/* Begin a message; the sender is idle. data stays valid until it is sent. */
void spr_root_conn_send(struct spr_root_conn *c, enum spr_root_type type, uint32_t sequence,
                        const void *data, size_t bytes);
/* The same for a text, which is copied; `status` and `rank` go into the header. */
void spr_root_conn_send_text(struct spr_root_conn *c, enum spr_root_type type, spr_status status,
                             int rank, const char *text);
/* SPR_OK: idle. IN_PROGRESS. LINK: broken, errno says how. */
spr_status spr_root_conn_flush(struct spr_root_conn *c);
static inline bool spr_root_conn_idle(const struct spr_root_conn *c)
{
    return c->tx_done == c->tx_bytes;
}

/*
 * Receive a header: OK when c->rx is complete; its magic has been checked, nothing else. Then the
 * caller either calls spr_root_conn_text() for a text, or checks rx.bytes and sets rx_into, and
 * receives the payload; when that is OK the next message can come. LINK: broken, errno says how (0:
 * end of file). PROTO: no header of ours.
 */
spr_status spr_root_conn_header(struct spr_root_conn *c);
/* Take the payload as a text. PROTO: too long. */
spr_status spr_root_conn_text(struct spr_root_conn *c);
spr_status spr_root_conn_payload(struct spr_root_conn *c);

#endif
