/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/tcp/conn.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

/* Staging ---------------------------------------------------------------------------------------*/

#define SMALL_BYTES ((size_t)8 << 10)

/* A token is the address of the memory; an odd one marks the small pool (both are aligned). */
void spr_tcp_staging_init(struct spr_tcp_staging *s)
{
    spr_pool_init(&s->small, SMALL_BYTES, 8, 0);
    spr_pool_init(&s->large, SPR_FRAME_MAX_PAYLOAD, 4, 0);
}

void spr_tcp_staging_destroy(struct spr_tcp_staging *s)
{
    spr_pool_destroy(&s->small);
    spr_pool_destroy(&s->large);
}

void *spr_tcp_staging_get(struct spr_tcp_staging *s, size_t bytes, void **token)
{
    bool small = bytes <= SMALL_BYTES;
    uint8_t *memory = spr_pool_get(small ? &s->small : &s->large);

    *token = memory && small ? memory + 1 : memory;
    return memory;
}

void spr_tcp_staging_put(struct spr_tcp_staging *s, void *token)
{
    bool small = ((uintptr_t)token & 1) != 0;

    spr_pool_put(small ? &s->small : &s->large, small ? (uint8_t *)token - 1 : token);
}

/* Life ------------------------------------------------------------------------------------------*/

spr_status spr_tcp_conn_init(struct spr_tcp_conn *c, struct spr_link *link,
                             const struct spr_link_events *events, struct spr_counters *counters,
                             struct spr_tcp_staging *staging)
{
    memset(c, 0, sizeof *c);
    c->link = link;
    c->events = events;
    c->counters = counters;
    c->staging = staging;
    c->tx_last = &c->tx_first;
    c->ahead = spr_aligned_alloc(SPR_CACHE_LINE, SPR_TCP_AHEAD_BYTES);
    return c->ahead ? SPR_OK : SPR_ERR_NOMEM;
}

void spr_tcp_conn_stop(struct spr_tcp_conn *c)
{
    c->stopped = true;
    if (c->rx_token)
        spr_tcp_staging_put(c->staging, c->rx_token);
    c->rx_token = NULL;
    c->rx_to = NULL;
}

void spr_tcp_conn_free(struct spr_tcp_conn *c)
{
    if (!c->link)
        return;
    spr_tcp_conn_stop(c);
    spr_free(c->ahead);
    c->ahead = NULL;
}

/* Receiving -------------------------------------------------------------------------------------*/

static size_t ahead_bytes(const struct spr_tcp_conn *c) { return c->ahead_end - c->ahead_begin; }

int spr_tcp_conn_want(struct spr_tcp_conn *c, struct iovec iov[2])
{
    size_t room;

    if (c->in_payload && c->rx_to) {
        size_t left = c->frame.bytes - c->rx_done;
        assert(left > 0 && ahead_bytes(c) == 0);
        c->ahead_begin = c->ahead_end = 0;
        iov[0] = (struct iovec){c->rx_to + c->rx_done, spr_min_size(left, SPR_TCP_PIECE_BYTES)};
        if (left > SPR_TCP_PIECE_BYTES)
            return 1;
        room = c->frame.bytes >= SPR_TCP_LARGE_BYTES ? SPR_FRAME_BYTES : SPR_TCP_AHEAD_BYTES;
        iov[1] = (struct iovec){c->ahead, room};
        return 2;
    }
    /* Less than a header is left over, or a dropped payload, which always is consumed at once. */
    assert(ahead_bytes(c) < SPR_FRAME_BYTES);
    memmove(c->ahead, c->ahead + c->ahead_begin, ahead_bytes(c));
    c->ahead_end = ahead_bytes(c);
    c->ahead_begin = 0;
    room =
        (c->after_large && !c->in_payload ? SPR_FRAME_BYTES : SPR_TCP_AHEAD_BYTES) - c->ahead_end;
    iov[0] = (struct iovec){c->ahead + c->ahead_end, room};
    return 1;
}

/* A whole header is there: ask where the payload goes. */
static spr_status take_header(struct spr_tcp_conn *c, const char **why)
{
    struct spr_rx rx = {.sink = SPR_SINK_DROP};
    spr_status status;

    memcpy(&c->frame, c->ahead + c->ahead_begin, SPR_FRAME_BYTES);
    c->rx_done = 0;
    c->rx_crc = 0;
    c->rx_to = NULL;
    c->rx_token = NULL;
    *why = "a frame breaks the protocol";
    status = c->events->header(c->link, &c->frame, &rx);
    if (c->stopped)
        return SPR_ERR_CANCELED;
    c->parked = status == SPR_IN_PROGRESS;
    if (status != SPR_OK)
        return status;
    c->ahead_begin += SPR_FRAME_BYTES;
    if (c->frame.bytes > SPR_FRAME_MAX_PAYLOAD)
        return SPR_ERR_PROTO;
    c->in_payload = true;
    c->after_large = c->frame.bytes >= SPR_TCP_LARGE_BYTES;
    if (c->frame.bytes == 0 || rx.sink == SPR_SINK_DROP)
        return SPR_OK;
    if (rx.sink == SPR_SINK_INTO) {
        c->rx_to = rx.into;
        return SPR_OK;
    }
    c->rx_to = spr_tcp_staging_get(c->staging, c->frame.bytes, &c->rx_token);
    *why = "no memory for a payload";
    return c->rx_to ? SPR_OK : SPR_ERR_NOMEM;
}

/* n more bytes of a payload are in their place. */
static void have_payload(struct spr_tcp_conn *c, size_t n)
{
    if (c->rx_to && (c->frame.flags & SPR_FRAME_CRC))
        c->rx_crc = spr_crc32c(c->rx_crc, c->rx_to + c->rx_done, n);
    c->rx_done += n;
}

/* Move what was read ahead to the payload. */
static void take_payload(struct spr_tcp_conn *c)
{
    size_t n = spr_min_size(ahead_bytes(c), c->frame.bytes - c->rx_done);

    if (c->rx_to && n)
        memcpy(c->rx_to + c->rx_done, c->ahead + c->ahead_begin, n);
    c->ahead_begin += n;
    have_payload(c, n);
}

static spr_status deliver(struct spr_tcp_conn *c)
{
    const void *data = c->rx_to;
    void *token = c->rx_token;

    /* Else the channel computes it again, and says what is wrong. */
    if (data && c->rx_crc == c->frame.payload_crc)
        c->frame.flags &= (uint16_t)~SPR_FRAME_CRC;
    /* Cleared first: the upcall owns the token and may stop the connection. */
    c->in_payload = false;
    c->rx_to = NULL;
    c->rx_token = NULL;
    c->counters->received_frames++;
    c->events->payload(c->link, &c->frame, data, token);
    return c->stopped ? SPR_ERR_CANCELED : SPR_OK;
}

spr_status spr_tcp_conn_received(struct spr_tcp_conn *c, size_t n, const char **why)
{
    c->counters->received_bytes += n;
    c->unparked = false;
    if (c->in_payload && c->rx_to) {
        size_t direct = spr_min_size(n, c->frame.bytes - c->rx_done);
        have_payload(c, direct);
        n -= direct;
    }
    c->ahead_end += n;
    for (;;) {
        spr_status status;
        if (!c->in_payload) {
            if (ahead_bytes(c) < SPR_FRAME_BYTES)
                return SPR_OK;
            status = take_header(c, why);
            if (status)
                return c->parked ? SPR_OK : status;
        }
        take_payload(c);
        if (c->rx_done < c->frame.bytes)
            return SPR_OK;
        status = deliver(c);
        if (status)
            return status;
    }
}

void spr_tcp_conn_unpark(struct spr_tcp_conn *c)
{
    c->unparked |= c->parked;
    c->parked = false;
}

bool spr_tcp_conn_mid_frame(const struct spr_tcp_conn *c)
{
    return c->in_payload || ahead_bytes(c) > 0;
}

/* Sending ---------------------------------------------------------------------------------------*/

void spr_tcp_conn_queue(struct spr_tcp_conn *c, struct spr_tx *tx)
{
    tx->next = NULL;
    *c->tx_last = tx;
    c->tx_last = &tx->next;
}

static void add(struct iovec *iov, int *n, const void *data, size_t bytes, size_t skip)
{
    /* sendmsg does not write to what iov_base points to. */
    if (skip < bytes)
        iov[(*n)++] = (struct iovec){(uint8_t *)(uintptr_t)data + skip, bytes - skip};
}

void spr_tcp_conn_seal(struct spr_tx *tx)
{
    if (tx->unsealed)
        spr_frame_seal_payload(&tx->header, tx->data);
    tx->unsealed = false;
}

int spr_tcp_conn_gather(struct spr_tcp_conn *c, struct iovec *iov, int max, size_t most_bytes)
{
    size_t skip = c->tx_done, total = 0;
    int n = 0;

    for (struct spr_tx *tx = c->tx_first; tx && n + 2 <= max; tx = tx->next) {
        size_t bytes = tx->header.bytes;
        if (total && total + bytes > most_bytes)
            break;
        spr_tcp_conn_seal(tx);
        add(iov, &n, &tx->header, SPR_FRAME_BYTES, skip);
        add(iov, &n, tx->data, bytes, skip > SPR_FRAME_BYTES ? skip - SPR_FRAME_BYTES : 0);
        total += SPR_FRAME_BYTES + bytes - skip;
        skip = 0;
    }
    return n;
}

struct spr_tx *spr_tcp_conn_sent(struct spr_tcp_conn *c, size_t n)
{
    struct spr_tx *complete = NULL, **last = &complete;

    c->counters->sent_bytes += n;
    c->tx_done += n;
    while (c->tx_first && c->tx_done >= SPR_FRAME_BYTES + (size_t)c->tx_first->header.bytes) {
        struct spr_tx *tx = c->tx_first;
        c->tx_done -= SPR_FRAME_BYTES + (size_t)tx->header.bytes;
        c->tx_first = tx->next;
        if (!c->tx_first)
            c->tx_last = &c->tx_first;
        tx->next = NULL;
        *last = tx;
        last = &tx->next;
        c->counters->sent_frames++;
    }
    return complete;
}

struct spr_tx *spr_tcp_conn_fail_queue(struct spr_tcp_conn *c)
{
    struct spr_tx *queue = c->tx_first;

    for (struct spr_tx *tx = queue; tx; tx = tx->next)
        tx->failed = true;
    c->tx_first = NULL;
    c->tx_last = &c->tx_first;
    c->tx_done = 0;
    return queue;
}
