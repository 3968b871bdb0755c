/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Transport: links between this rank and its peers. A link carries frames, reliably and in order,
 * both ways. Every implementation (self, shm, verbs, uring, epoll, sim) fills one table, struct
 * spr_transport_ops.
 *
 * Nothing here blocks. All calls on the transports of one communicator are serialised by the
 * communicator's lock; upcalls (struct spr_link_events) happen inside progress() only - never
 * inside send(), release() or connect().
 *
 * The way of a frame:
 *   sender    send(link, tx) -> queued -> wire -> events.sent(link, tx)
 *   receiver  header complete -> events.header(link, frame, rx): checks the frame and says where
 * the payload goes -> payload complete -> events.payload(link, frame, data, token)
 * The payload of a frame that is PLACED lies where it goes before its header is seen; rx->into is
 * that place then.
 */
#ifndef SPR_TRANSPORT_TRANSPORT_H
#define SPR_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/trace.h"
#include "transport/bootstrap/auth.h"
#include "transport/frame.h"
#include "transport/options.h"

struct spr_transport;
struct spr_link;

/* Memory that the peer may write itself: what a grant carries. */
#define SPR_PLACE_KEYS 4
struct spr_place {
    uint64_t address;
    uint32_t keys[SPR_PLACE_KEYS]; /* as the transport wants */
};

/* A frame to send. Owned by the caller until events.sent; header sealed, data stable until then.
 * `unsealed`, only where ops->seals: the transport seals it, payload CRC included, just before its
 * first byte leaves. A checksum is cheap for data that is about to be copied anyway, and dear as a
 * pass of its own over memory. */
struct spr_tx {
    struct spr_tx *next; /* the transport's queue */
    struct spr_frame header;
    const void *data; /* header.bytes bytes */
    bool failed;      /* set before events.sent when the link went down first */
    bool unsealed;
    struct spr_place place; /* with SPR_FRAME_PLACED: where the data goes at the peer */
};

/* Where a payload goes: the answer of events.header. */
enum spr_sink {
    SPR_SINK_INTO,   /* into rx->into (header.bytes bytes) */
    SPR_SINK_BORROW, /* keep it in the transport's memory until release(link, token) */
    SPR_SINK_DROP    /* nowhere; events.payload is still called, with data NULL */
};
struct spr_rx {
    enum spr_sink sink;
    void *into;
    bool lend; /* INTO: or as BORROW, where that takes neither time nor memory */
};

struct spr_link_events {
    /* The link is connected and authenticated. */
    void (*up)(struct spr_link *link);
    /* A header arrived (any type). Not SPR_OK: the frame breaks the protocol; the transport takes
     * the link down with that status and calls no further upcall than down(); but IN_PROGRESS, only
     * where ops->unpark: not yet, and nothing more of this link until then. Frames without payload
     * get header(), then payload() with data NULL. */
    spr_status (*header)(struct spr_link *link, const struct spr_frame *frame, struct spr_rx *rx);
    /* The payload is complete. A transport that has compared its CRC while it came in, and found it
     * right, clears SPR_FRAME_CRC in *frame. Borrowed or lent: data stays valid until release(link,
     * token); else token is NULL. Tokens of one link may be released in any order, also long after
     * this upcall. */
    void (*payload)(struct spr_link *link, const struct spr_frame *frame, const void *data,
                    void *token);
    void (*sent)(struct spr_link *link, struct spr_tx *tx);
    /* The link is gone: end of file between two frames (RANK_LOST: the peer has ended or closed
     * it), reset or other error (LINK ...). Once; queued tx are returned by sent() with failed set
     * before. `text` says what was seen, e.g. "connection reset by peer". */
    void (*down)(struct spr_link *link, spr_status why, const char *text);
};

struct spr_link {
    struct spr_transport *transport;
    int peer; /* rank at the other end */
    enum { SPR_LINK_CONNECTING, SPR_LINK_UP, SPR_LINK_DOWN } state;
    void *channel; /* for the layer above */
};

#define SPR_ADDRESS_BYTES 128
/* Those that exchange addresses. */
enum { SPR_T_SHM, SPR_T_URING, SPR_T_EPOLL, SPR_T_VERBS, SPR_T_COUNT };

/* How the peers find a rank's board (transport/watch/board.h), and its control mesh. */
struct spr_watch_card {
    uint8_t nonce[16];
    uint32_t thread, descriptor;        /* thread 0: none */
    uint64_t pid_namespace;             /* inode */
    uint8_t address[SPR_ADDRESS_BYTES]; /* of the control mesh; zeros: none */
};

/* Of all links of a host by which a transport leads to other hosts. */
struct spr_link_rate {
    uint32_t kbit; /* kbit/s; 0: not known */
    uint32_t of;   /* so many interfaces or devices together; 0: as the user has said */
};

/* What a rank tells all others at start; exchanged by the bootstrap's allgather. Plain bytes. */
struct spr_peer_info {
    uint32_t version;       /* SPR_FRAME_VERSION */
    uint32_t transports;    /* bit SPR_T_... = offered */
    uint64_t config_hash;   /* settings that must be equal */
    uint8_t boot_id[16];    /* same host = same boot id and network namespace */
    uint64_t net_namespace; /* inode */
    uint64_t rack;          /* same rack = same number; 0: it stands alone */
    uint32_t pid, uid;
    char host[64];
    struct spr_cpu_set cpus; /* that it may use */
    struct spr_link_rate rate[SPR_T_COUNT];
    struct spr_watch_card watch;
    uint8_t address[SPR_T_COUNT][SPR_ADDRESS_BYTES];
};

static inline bool spr_peer_same_host(const struct spr_peer_info *a, const struct spr_peer_info *b)
{
    return !memcmp(a->boot_id, b->boot_id, sizeof a->boot_id) &&
           a->net_namespace == b->net_namespace;
}

struct spr_transport_params {
    int rank, size;
    uint32_t epoch;
    const struct spr_auth_key *key; /* secret, job, epoch, configuration */
    const struct spr_options *options;
    const struct spr_link_events *events;
    void *up; /* for the layer above */
    const struct spr_clock *clock;
    struct spr_counters *counters;
    struct spr_trace *trace;
    bool loopback_only; /* no secret: listen on loopback */
    bool one_thread;    /* progress(), send() ... always come from the same thread */
};

struct spr_transport_ops {
    const char *name;
    bool seals;  /* takes frames that are not sealed */
    bool narrow; /* of some Gbit/s: a byte less is worth the time of a CPU */
    bool memory; /* of this host: the CPUs of both ends move what is sent, and nothing else does */
    bool places; /* peers write memory that is registered with it */
    bool one_submitter; /* where params.one_thread, only that thread may move bytes */
    /* Create; start to listen. `error` gets the reason. UNSUPPORTED / SYSTEM: not possible here. */
    spr_status (*open)(const struct spr_transport_params *params, struct spr_transport **transport,
                       struct spr_error *error);
    /* This rank's address, at most SPR_ADDRESS_BYTES (zero-filled). */
    void (*address)(struct spr_transport *t, void *address);
    /* How fast it leads to other hosts, as drivers say. NULL: never known. */
    struct spr_link_rate (*rate)(const struct spr_transport *t);
    /* Why a link between these two, who both say what they offer, cannot work; NULL: it could.
     * Pure, and for both ends the same. */
    const char *(*unusable)(const struct spr_peer_info *mine, const struct spr_peer_info *peer);
    /* Begin a link: the higher rank connects, the lower rank waits for it. events.up follows. The
     * link is owned by the transport and lives until close(). */
    spr_status (*connect)(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                          struct spr_link **link, struct spr_error *error);
    /* Queue a frame. Frames of a link leave in the order of these calls. */
    void (*send)(struct spr_link *link, struct spr_tx *tx);
    /* From now on leave few bytes unsent in the kernel, about so many: what comes later may be more
     * urgent. NULL: there is nothing to limit. */
    void (*limit_unsent)(struct spr_link *link, size_t bytes);
    /* Let the peer write here, until it has or the link is down: then frames may come that are
     * PLACED. False: it cannot, and the memory is received into as always. NULL: never. */
    bool (*expose)(struct spr_link *link, void *memory, size_t bytes, struct spr_place *place);
    /* Give borrowed memory back. A token of epoll or io_uring, which lanes mark, is a multiple of
     * 8, or 1 more: two bits are free. */
    void (*release)(struct spr_link *link, void *token);
    /* In the next progress(), show the header again that was not wanted yet. NULL: there is none
     * such. */
    void (*unpark)(struct spr_link *link);
    /* Cut the link now: no further frames, no upcalls but sent() of queued tx (failed) in the next
     * progress(). The peer sees end of file, or a reset if frames were queued. Idempotent. */
    void (*kill)(struct spr_link *link);
    /* Do what can be done without blocking. Returns the number of upcalls and bytes-moving steps.
     */
    int (*progress)(struct spr_transport *t);
    /* Readable when progress() has something to do, after arm() returned SPR_OK. -1: none. */
    int (*fd)(struct spr_transport *t);
    /* SPR_OK: sleep on fd. SPR_IN_PROGRESS: call progress() first. */
    spr_status (*arm)(struct spr_transport *t);
    /* Nothing queued or in flight any more (used before close). */
    bool (*idle)(struct spr_transport *t);
    /* All frames of the link are on the peer's side, in its kernel or in memory that it sees: the
     * end of this process does not take them back. Nothing wakes the caller when that becomes true,
     * and it may become so only because somebody asks. */
    bool (*delivered)(struct spr_link *link);
    /* Bytes that the kernel has taken of it and the peer's has not got. NULL: none is known of. */
    size_t (*unacknowledged)(struct spr_link *link);
    /* Free everything. No upcalls. */
    void (*close)(struct spr_transport *t);
    /* Memory that frames are sent from and, `writable`, that peers may be let write (expose): the
     * caller's buckets. May do nothing. SPR_OK or UNSUPPORTED (used unregistered). */
    spr_status (*mem_register)(struct spr_transport *t, void *memory, size_t bytes, bool writable);
    /* NULL, or likewise for memory, writable, that begins at `offset` of a DMA-BUF, whose
     * descriptor is only lent. */
    spr_status (*mem_register_dmabuf)(struct spr_transport *t, void *memory, size_t bytes, int fd,
                                      uint64_t offset);
    /* Of either kind. */
    void (*mem_deregister)(struct spr_transport *t, void *memory, size_t bytes);
};

struct spr_transport {
    const struct spr_transport_ops *ops;
    struct spr_transport_params params;
};

extern const struct spr_transport_ops spr_transport_self, spr_transport_shm, spr_transport_verbs,
    spr_transport_uring, spr_transport_epoll;

#endif
