/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rank 0's allgather: every other rank sends its part, the concatenation goes to all of them.
 *
 *   connection    watched for             ends when
 *   gathering     readable                its part is complete
 *   waiting       its end (RDHUP)         all parts are there
 *   broadcasting  writable, its end       the result is in the socket
 *   delivered     nothing                 the next allgather begins
 *
 * A connection that ends in the first three states is a rank that died.
 */
#include "transport/bootstrap/root.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

static void lost(struct spr_root *r, struct spr_root_conn *c, int saved_errno)
{
    char from[160];

    if (spr_root_meeting_open(r)) {
        spr_root_meeting_leave(r, c);
        return;
    }
    spr_address_text(&c->address, from, sizeof(from));
    errno = saved_errno;
    if (saved_errno)
        spr_root_server_fail(r, SPR_ERR_BOOTSTRAP, c->rank,
                             "rank %d (%s) was lost during start-up: %m", c->rank, from);
    else
        spr_root_server_fail(r, SPR_ERR_BOOTSTRAP, c->rank,
                             "rank %d (%s) ended its connection during start-up: it died", c->rank,
                             from);
    spr_root_watch(r, c, 0);
}

/* The end of a connection after its part: its last words may be that its deadline passed. */
static void ended(struct spr_root *r, struct spr_root_conn *c)
{
    char text[SPR_ERROR_TEXT_BYTES];

    if (spr_root_meeting_open(r) || spr_root_conn_header(c) != SPR_OK ||
        c->rx.type != SPR_ROOT_GAVE_UP) {
        lost(r, c, 0);
        return;
    }
    r->side->explain(r, text, sizeof(text));
    spr_root_server_fail(r, SPR_ERR_BOOTSTRAP, -1, "%.600s; rank %d waited no longer", text,
                         c->rank);
    spr_root_watch(r, c, 0);
}

/* ---- Receiving parts ---- */

/* A complete header is there: is it this allgather's part? */
static bool expected(struct spr_root *r, struct spr_root_conn *c)
{
    const struct spr_root_header *h = &c->rx;

    if (spr_root_meeting_open(r))
        return h->type == SPR_ROOT_GATHER && h->sequence == r->sequence && h->bytes == r->bytes;
    if (h->type != SPR_ROOT_GATHER || h->sequence != r->sequence) {
        spr_root_server_fail(r, SPR_ERR_PROTO, c->rank,
                             "rank %d sent message %u of exchange %u in exchange %u", c->rank,
                             h->type, h->sequence, r->sequence);
        return false;
    }
    if (h->bytes != r->bytes) {
        spr_root_server_fail(r, SPR_ERR_MISMATCH, c->rank,
                             "rank %d exchanges %" PRIu64 " bytes, rank 0 %zu: their builds or "
                             "settings differ",
                             c->rank, h->bytes, r->bytes);
        return false;
    }
    return true;
}

static void gather(struct spr_root *r, struct spr_root_conn *c)
{
    spr_status status = SPR_OK;

    if (!c->rx_into) {
        status = spr_root_conn_header(c);
        if (status == SPR_OK) {
            if (!expected(r, c)) {
                if (spr_root_meeting_open(r))
                    spr_root_meeting_leave(r, c);
                return;
            }
            c->rx_into = r->bytes > 0 ? (char *)r->out + (size_t)c->rank * r->bytes : c->rx_text;
        }
    }
    if (status == SPR_OK)
        status = spr_root_conn_payload(c);
    if (status == SPR_OK) {
        c->contributed = true;
        r->server.contributed++;
        spr_root_watch(r, c, EPOLLRDHUP);
    } else if (status == SPR_ERR_PROTO && !spr_root_meeting_open(r)) {
        spr_root_server_fail(r, SPR_ERR_PROTO, c->rank, "rank %d sent no message of ours", c->rank);
    } else if (status != SPR_IN_PROGRESS) {
        lost(r, c, errno);
    }
}

/* ---- Sending the result ---- */

static void deliver(struct spr_root *r, struct spr_root_conn *c)
{
    spr_status status = spr_root_conn_flush(c);

    /* A note was under way when the last part came: the result follows it. */
    if (status == SPR_OK && c->tx.type != SPR_ROOT_RESULT) {
        spr_root_conn_send(c, SPR_ROOT_RESULT, r->sequence, r->out, r->bytes * (size_t)r->size);
        if (r->meeting) {
            c->tx.rank = c->rank;
            c->tx.size = (uint32_t)r->size;
        }
        status = spr_root_conn_flush(c);
    }
    if (status == SPR_OK) {
        c->delivered = true;
        r->server.delivered++;
        spr_root_watch(r, c, 0);
    } else if (status == SPR_IN_PROGRESS) {
        spr_root_watch(r, c, EPOLLOUT | EPOLLRDHUP);
    } else {
        lost(r, c, errno);
    }
}

void spr_root_gather_event(struct spr_root *r, struct spr_root_conn *c, uint32_t events)
{
    if (c->delivered)
        return;
    if (!c->contributed)
        gather(r, c);
    else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        ended(r, c);
    else if (r->server.broadcasting)
        deliver(r, c);
}

void spr_root_gather_join(struct spr_root *r, struct spr_root_conn *c)
{
    spr_root_watch(r, c, EPOLLIN | EPOLLRDHUP);
    gather(r, c); /* what came together with the proof */
}

void spr_root_gather_begin(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    if (r->bytes > 0)
        memcpy(r->out, r->in, r->bytes * (size_t)r->first);
    s->contributed = s->delivered = 0;
    s->broadcasting = false;
    for (int rank = r->first; rank < r->size; rank++) {
        struct spr_root_conn *c = s->conns[rank];

        if (!c)
            continue;
        c->contributed = c->delivered = false;
        if (spr_root_conn_idle(c)) /* else: a note, before the result */
            memset(&c->tx, 0, sizeof(c->tx));
        spr_root_watch(r, c, EPOLLIN | EPOLLRDHUP);
    }
}

spr_status spr_root_gather_step(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    if (s->contributed < spr_root_others(r))
        return SPR_IN_PROGRESS;
    r->seated = true;
    if (!s->broadcasting) {
        s->broadcasting = true;
        for (int rank = r->first; rank < r->size && r->error.status == SPR_OK; rank++)
            deliver(r, s->conns[rank]);
    }
    return s->delivered == spr_root_others(r) ? SPR_OK : SPR_IN_PROGRESS;
}
