/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Connection: the frames of one TCP stream, both ways, without the socket. A pure state machine:
 * the owner asks what to receive or send next, moves the bytes by whatever means (epoll, io_uring,
 * a test) and says how many there were.
 *
 *   receive   want() -> bytes -> received(): events.header, events.payload
 *   send      queue() -> gather() -> bytes -> sent(): the frames that are complete
 *
 * Where received bytes go. Behind a small frame more small ones are likely: as much as fits is read
 * ahead into the connection's own buffer, so that many frames cost one call. The remainder of a
 * payload goes straight to its final place. Behind a large frame only the next header is read
 * ahead, so that bulk data is never copied.
 */
#ifndef SPR_TRANSPORT_TCP_CONN_H
#define SPR_TRANSPORT_TCP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/mem.h"
#include "transport/transport.h"

#define SPR_TCP_AHEAD_BYTES ((size_t)16 << 10)
/* From here on a payload counts as bulk data. */
#define SPR_TCP_LARGE_BYTES ((size_t)16 << 10)
/* Received at a time: still in the L1 or L2 cache when its checksum is computed. */
#define SPR_TCP_PIECE_BYTES ((size_t)128 << 10)

/* Memory for payloads that the receiver borrows; shared by the connections of a transport. */
struct spr_tcp_staging {
    struct spr_pool small, large;
};
void spr_tcp_staging_init(struct spr_tcp_staging *s);
void spr_tcp_staging_destroy(struct spr_tcp_staging *s);
/* NULL: no memory. *token is what release() gets. bytes is 1 .. SPR_FRAME_MAX_PAYLOAD. */
void *spr_tcp_staging_get(struct spr_tcp_staging *s, size_t bytes, void **token);
void spr_tcp_staging_put(struct spr_tcp_staging *s, void *token);

struct spr_tcp_conn {
    struct spr_link *link;
    const struct spr_link_events *events;
    struct spr_counters *counters;
    struct spr_tcp_staging *staging;
    bool stopped; /* no further upcalls but sent() */
    bool parked;  /* the next frame is not wanted yet: nothing is received until unpark() */
    bool unparked;

    /* Receiving. In the middle of a payload with a place of its own (rx_to) nothing is read ahead.
     */
    uint8_t *ahead; /* SPR_TCP_AHEAD_BYTES */
    size_t ahead_begin, ahead_end;
    bool in_payload;
    bool after_large;       /* the last frame was large: read ahead no more than a header */
    struct spr_frame frame; /* of the payload that is arriving */
    uint8_t *rx_to;         /* NULL: dropped */
    void *rx_token;         /* BORROW */
    size_t rx_done;         /* bytes of the payload */
    uint32_t rx_crc;        /* of these, where the frame has a checksum */

    /* Sending. */
    struct spr_tx *tx_first, **tx_last;
    size_t tx_done; /* bytes of tx_first, header included */
};

/* NOMEM. counters may not be NULL. */
spr_status spr_tcp_conn_init(struct spr_tcp_conn *c, struct spr_link *link,
                             const struct spr_link_events *events, struct spr_counters *counters,
                             struct spr_tcp_staging *staging);
/* No further upcalls, and no memory of the receiver is touched any more. Idempotent. */
void spr_tcp_conn_stop(struct spr_tcp_conn *c);
void spr_tcp_conn_free(struct spr_tcp_conn *c);

/* Where the next bytes go: 1 or 2 vectors. */
int spr_tcp_conn_want(struct spr_tcp_conn *c, struct iovec iov[2]);
/* n bytes were received into them: upcalls. Not SPR_OK: take the link down with that status and
 * *why; CANCELED: an upcall stopped the connection. Afterwards c->parked: receive no more. */
spr_status spr_tcp_conn_received(struct spr_tcp_conn *c, size_t n, const char **why);
/* Ask for the frame that was not wanted again. The owner's next step is received() of 0 bytes. */
void spr_tcp_conn_unpark(struct spr_tcp_conn *c);
/* Would end of file now cut a frame? */
bool spr_tcp_conn_mid_frame(const struct spr_tcp_conn *c);

void spr_tcp_conn_queue(struct spr_tcp_conn *c, struct spr_tx *tx);
/* What to send next: at most `max` vectors and, beyond the first frame, `most_bytes`. 0: nothing.
 */
int spr_tcp_conn_gather(struct spr_tcp_conn *c, struct iovec *iov, int max, size_t most_bytes);
/* Before the first byte of a frame leaves by other means than gather(). */
void spr_tcp_conn_seal(struct spr_tx *tx);
/* n bytes of it were sent. Returns the frames that are now complete, in order, linked by next: the
 * caller tells events.sent. */
struct spr_tx *spr_tcp_conn_sent(struct spr_tcp_conn *c, size_t n);
/* Take all queued frames out, marked as failed. */
struct spr_tx *spr_tcp_conn_fail_queue(struct spr_tcp_conn *c);

#endif
