/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The ranks above 0: connect, again and again until the deadline, prove, then exchange.
 *
 *   waiting    fd < 0: until next_ns         -> connect
 *   proving    handshake                     -> ready; nothing or the wrong one there -> waiting
 *   ready      sends its part, receives      -> REFUSED -> waiting; FAIL or the end -> error
 *
 * Somebody else's listener, or that of a job that is just ending, may be at rank 0's address for a
 * moment: whatever is met before rank 0 has proven itself is a reason to try again.
 */
#include "transport/bootstrap/root.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define MS 1000000ull
#define PAUSE_FIRST (2 * MS)
#define PAUSE_MOST (200 * MS)
/* Connecting and the handshake take at most that long, less when there are other addresses to try.
 */
#define ATTEMPT (5000 * MS)
#define ATTEMPT_OF_MANY (2000 * MS)
/* Rank 0 ends the connection when it needs it no longer: we should be as far soon. */
#define ENDED (2000 * MS)
#define MOST_RANKS (1 << 20) /* more is surely a mistake */

static spr_status client_open(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;

    spr_root_conn_init(&cl->conn, -1);
    cl->pause_ns = PAUSE_FIRST;
    /* Ranks started together must not come back together. */
    cl->rng.seed = spr_monotonic_ns() ^ ((uint64_t)r->key.rank << 48);
    cl->last = SPR_ERR_BOOTSTRAP;
    return SPR_OK;
}

/* ---- Attempts ---- */

static void try_again_later(struct spr_root *r, spr_status status, const char *why)
{
    struct spr_root_client *cl = &r->client;
    uint64_t pause = cl->pause_ns / 2 + spr_rng_below(&cl->rng, cl->pause_ns);

    spr_root_conn_close(&cl->conn);
    cl->proven = false;
    /* That we were refused says more than that rank 0, waiting in vain for us, has gone since. */
    if (cl->last != SPR_ERR_AUTH || status == SPR_ERR_AUTH) {
        cl->last = status;
        snprintf(cl->last_text, sizeof(cl->last_text), "%s", why);
    }
    cl->next_ns = spr_monotonic_ns() + pause;
    cl->pause_ns = spr_min_u64(cl->pause_ns * 3 / 2, PAUSE_MOST);
    spr_debug(SPR_SUB_INIT, "root %s: %s; next attempt in %.3g ms", r->place.text, why,
              (double)pause * 1e-6);
    if (status == SPR_ERR_AUTH && !cl->warned) {
        cl->warned = true;
        spr_warn(SPR_SUB_INIT, "root %s: %s; trying on until the deadline", r->place.text, why);
    }
}

/* "10.0.0.1:1234: ", or nothing when that is what the user called the root. */
static const char *which(const struct spr_root *r, const struct spr_address *a, char *buf,
                         size_t bytes)
{
    char text[160];
    bool same;

    spr_address_text(a, text, sizeof(text));
    same = strcmp(text, r->place.text) == 0;
    snprintf(buf, bytes, "%s%s", same ? "" : text, same ? "" : ": ");
    return buf;
}

static void attempt(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;
    char why[400] = "", to[170];
    const struct spr_address *a;
    uint64_t most;
    int fd;

    if (r->kind->find(r, why, sizeof(why)) != SPR_OK) {
        try_again_later(r, SPR_ERR_BOOTSTRAP, why);
        return;
    }
    a = &r->place.list[cl->tried++ % r->place.count];
    fd = spr_address_connect(a);
    if (fd < 0) {
        int saved_errno = errno;

        which(r, a, to, sizeof(to));
        errno = saved_errno;
        snprintf(why, sizeof(why), "%s%m", to);
        try_again_later(r, SPR_ERR_BOOTSTRAP, why);
        return;
    }
    spr_root_conn_init(&cl->conn, fd);
    cl->conn.address = *a;
    most = r->place.count > 1 ? ATTEMPT_OF_MANY : ATTEMPT;
    cl->give_up_ns = spr_monotonic_ns() + spr_root_scaled(most);
    spr_auth_init(&cl->conn.auth, &r->key, true, SPR_AUTH_ROOT, 0);
    if (!spr_socket_same_user(fd))
        try_again_later(r, SPR_ERR_AUTH, "the socket belongs to another user");
}

/* SPR_OK: rank 0 is proven. */
static spr_status prove(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;
    spr_status status = spr_auth_drive(&cl->conn.auth, cl->conn.fd, &cl->events);
    char why[420], to[170];

    if (status == SPR_OK) {
        cl->proven = true;
        cl->sent = false;
        return SPR_OK;
    }
    spr_address_text(&cl->conn.address, to, sizeof(to));
    if (status == SPR_ERR_MISMATCH)
        return spr_error_set(&r->error, status, 0, "%s %d does not fit rank 0 at %s: %s",
                             r->meeting ? "process" : "rank",
                             r->meeting ? (int)getpid() : r->key.rank, to, cl->conn.auth.detail);
    if (status == SPR_IN_PROGRESS) {
        /* Rank 0 may have let this rank in: to leave now would look like its death. */
        if (spr_monotonic_ns() < cl->give_up_ns || spr_auth_has_proven(&cl->conn.auth))
            return SPR_IN_PROGRESS;
        snprintf(why, sizeof(why), "%sno answer", which(r, &cl->conn.address, to, sizeof(to)));
        status = SPR_ERR_BOOTSTRAP;
    } else {
        snprintf(why, sizeof(why), "%s%s", which(r, &cl->conn.address, to, sizeof(to)),
                 cl->conn.auth.detail);
    }
    try_again_later(r, status, why);
    return SPR_IN_PROGRESS;
}

/* ---- The exchange ---- */

static spr_status rank_0_lost(struct spr_root *r, int saved_errno)
{
    char to[160];

    spr_address_text(&r->client.conn.address, to, sizeof(to));
    errno = saved_errno;
    if (saved_errno)
        return spr_error_set(&r->error, SPR_ERR_BOOTSTRAP, 0,
                             "rank 0 (%s) was lost during start-up: %m", to);
    return spr_error_set(&r->error, SPR_ERR_BOOTSTRAP, 0,
                         "rank 0 (%s) ended the connection during start-up: it died", to);
}

/* A header is complete: where does its payload go? */
static spr_status open_payload(struct spr_root *r)
{
    struct spr_root_conn *c = &r->client.conn;

    if (c->rx.type != SPR_ROOT_RESULT) {
        if (spr_root_conn_text(c) == SPR_OK)
            return SPR_OK;
        return spr_error_set(&r->error, SPR_ERR_PROTO, 0, "rank 0 sent a text of %" PRIu64 " bytes",
                             c->rx.bytes);
    }
    if (c->rx.sequence != r->sequence)
        return spr_error_set(&r->error, SPR_ERR_PROTO, 0,
                             "rank 0 sent the result of exchange %u in exchange %u", c->rx.sequence,
                             r->sequence);
    if (c->rx.bytes != r->bytes * (size_t)r->size)
        return spr_error_set(&r->error, SPR_ERR_MISMATCH, 0,
                             "rank 0 exchanges %" PRIu64 " bytes, rank %d %zu: their builds or "
                             "settings differ",
                             c->rx.bytes / (size_t)r->size, r->key.rank, r->bytes);
    c->rx_into = c->rx.bytes > 0 ? r->out : c->rx_text;
    return SPR_OK;
}

static spr_status failed_elsewhere(struct spr_root *r)
{
    const struct spr_root_header *h = &r->client.conn.rx;
    int rank = h->rank >= 0 && h->rank < r->size ? h->rank : -1;
    const char *text = r->client.conn.rx_text;
    /* A status that this build does not know says nothing to the caller; the text does. */
    bool known = spr_error_is_known(h->status);

    return spr_error_set(&r->error, known ? h->status : SPR_ERR_BOOTSTRAP, rank, "%s",
                         *text ? text : "rank 0 failed and did not say why");
}

/* Rank 0 has given us a number. */
static spr_status take_seat(struct spr_root *r)
{
    const struct spr_root_header *h = &r->client.conn.rx;
    bool same = h->rank == r->key.rank && h->size == (uint32_t)r->size;

    if (r->seated ? !same : h->rank < 1 || h->size > MOST_RANKS || h->rank >= (int)h->size)
        return spr_error_set(&r->error, SPR_ERR_PROTO, 0, "rank 0 calls us rank %d of %u", h->rank,
                             h->size);
    r->key.rank = h->rank;
    r->size = (int)h->size;
    r->seated = true;
    return SPR_OK;
}

/* A message is complete. SPR_OK: it was the result. */
static spr_status message(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;

    switch (cl->conn.rx.type) {
    case SPR_ROOT_RESULT:
        return r->meeting ? take_seat(r) : SPR_OK;
    case SPR_ROOT_NOTE:
        memcpy(cl->note, cl->conn.rx_text, sizeof(cl->note));
        return SPR_IN_PROGRESS;
    case SPR_ROOT_REFUSED:
        try_again_later(r, SPR_ERR_BOOTSTRAP, cl->conn.rx_text);
        return SPR_IN_PROGRESS;
    case SPR_ROOT_FAIL:
        return failed_elsewhere(r);
    default:
        return spr_error_set(&r->error, SPR_ERR_PROTO, 0, "rank 0 sent an unknown message %u",
                             cl->conn.rx.type);
    }
}

static spr_status receive(struct spr_root *r)
{
    struct spr_root_conn *c = &r->client.conn;
    spr_status status;

    do {
        status = SPR_OK;
        if (!c->rx_into) {
            status = spr_root_conn_header(c);
            if (status == SPR_OK && open_payload(r) != SPR_OK)
                return r->error.status;
        }
        if (status == SPR_OK)
            status = spr_root_conn_payload(c);
        if (status == SPR_ERR_PROTO)
            return spr_error_set(&r->error, SPR_ERR_PROTO, 0, "rank 0 sent no message of ours");
        if (status == SPR_ERR_LINK)
            return rank_0_lost(r, errno);
        if (status == SPR_OK)
            status = message(r);
        else
            break;
    } while (status == SPR_IN_PROGRESS && c->fd >= 0);
    return status;
}

static spr_status exchange(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;
    spr_status status;
    int saved_errno = 0;

    if (!cl->sent) {
        cl->sent = true;
        spr_root_conn_send(&cl->conn, SPR_ROOT_GATHER, r->sequence, r->in, r->bytes);
    }
    if (spr_root_conn_flush(&cl->conn) == SPR_ERR_LINK)
        saved_errno = errno;
    /* Also when sending failed: rank 0's last words may be there. */
    status = receive(r);
    if (status == SPR_IN_PROGRESS && saved_errno && cl->conn.fd >= 0)
        return rank_0_lost(r, saved_errno);
    cl->events = spr_root_conn_idle(&cl->conn) ? POLLIN : POLLIN | POLLOUT;
    return status;
}

spr_status spr_root_client_look(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;
    spr_status status = SPR_OK;
    uint64_t now = spr_monotonic_ns();

    if (cl->ended_ns == 0) {
        if (!cl->conn.rx_into)
            status = spr_root_conn_header(&cl->conn);
        if (status == SPR_OK && !cl->conn.rx_into)
            status = spr_root_conn_text(&cl->conn);
        if (status == SPR_OK)
            status = spr_root_conn_payload(&cl->conn);
        if (status == SPR_OK && cl->conn.rx.type == SPR_ROOT_FAIL)
            return failed_elsewhere(r);
        if (status < 0)
            cl->ended_ns = now;
    } else if (now - cl->ended_ns > spr_root_scaled(ENDED)) {
        return rank_0_lost(r, 0);
    }
    return SPR_OK;
}

/* ---- The others' side of the bootstrap ---- */

static void client_begin(struct spr_root *r)
{
    r->client.sent = false;
    r->client.note[0] = '\0';
}

static spr_status client_step(struct spr_root *r)
{
    struct spr_root_client *cl = &r->client;
    spr_status status;

    if (r->error.status != SPR_OK)
        return r->error.status;
    if (cl->conn.fd < 0 && spr_monotonic_ns() >= cl->next_ns)
        attempt(r);
    if (cl->conn.fd < 0)
        return SPR_IN_PROGRESS;
    if (!cl->proven && (status = prove(r)) != SPR_OK)
        return status;
    return exchange(r);
}

static void client_wait(struct spr_root *r, uint64_t until_ns)
{
    struct spr_root_client *cl = &r->client;
    struct pollfd waiting = {.fd = cl->conn.fd, .events = cl->events};
    uint64_t now = spr_monotonic_ns();

    if (cl->conn.fd < 0)
        until_ns = spr_min_u64(until_ns, cl->next_ns);
    if (until_ns > now) {
        struct timespec left = {(time_t)((until_ns - now) / (1000 * MS)),
                                (long)((until_ns - now) % (1000 * MS))};

        (void)ppoll(&waiting, 1, &left, NULL); /* a negative descriptor is passed over */
    }
}

static spr_status client_explain(struct spr_root *r, char *text, size_t bytes)
{
    const struct spr_root_client *cl = &r->client;
    char waited[32];

    spr_root_waited(r, waited, sizeof(waited));
    if (r->meeting && !cl->proven) {
        snprintf(text, bytes, "nobody took this newcomer in at %.250s within %s: %s", r->place.text,
                 waited, cl->last_text[0] ? cl->last_text : "it does not answer");
        return cl->last == SPR_ERR_AUTH ? SPR_ERR_AUTH : SPR_ERR_BOOTSTRAP;
    }
    if (cl->proven) {
        snprintf(text, bytes, "rank 0 at %.100s still waits after %s: %.400s", r->place.text,
                 waited, cl->note[0] ? cl->note : "it did not say for whom");
        return SPR_ERR_BOOTSTRAP;
    }
    snprintf(text, bytes, "rank %d did not reach rank 0 at %.250s within %s: %s", r->key.rank,
             r->place.text, waited, cl->last_text[0] ? cl->last_text : "it does not answer");
    return cl->last == SPR_ERR_AUTH ? SPR_ERR_AUTH : SPR_ERR_BOOTSTRAP;
}

/* Our deadline came first: rank 0 knows who is missing, and must not take us for dead. */
static void client_tell(struct spr_root *r)
{
    struct spr_root_conn *c = &r->client.conn;

    if (!r->client.proven || c->fd < 0 || !spr_root_conn_idle(c))
        return;
    spr_root_conn_send(c, SPR_ROOT_GAVE_UP, r->sequence, NULL, 0);
    (void)spr_root_conn_flush(c);
}

static void client_close(struct spr_root *r)
{
    if (r->active)
        client_tell(r);
    spr_root_conn_close(&r->client.conn);
}

const struct spr_root_side spr_root_client_side = {
    client_open, client_begin, client_step, client_wait, client_explain, client_tell, client_close,
};
