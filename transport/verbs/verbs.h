/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RDMA verbs. A link is one reliable connection (queue pair) or several, its lanes, and a TCP
 * socket. The socket comes first: it is made and authenticated by transport/tcp, as a third twin,
 * carries the cards with which the queue pairs are connected, and is silent from then on. It stays
 * open as long as the link, since its end of file is the peer's end, long before a queue pair would
 * notice.
 *
 * A rail is a device of this host. Every link has as many lanes on each rail as the options say, in
 * turns. A frame goes over the lane that has least to do; the receiver puts frames back in order.
 *
 *   verbs.c    the operations; progress, sleeping
 *   device.c   which devices, ports and GIDs; limits; asynchronous events
 *   gids.c     all GIDs of a device
 *   address.c  GIDs of other network namespaces
 *   queue.c    completion queues, queue pairs
 *   connect.c  from the authenticated socket to a link that is up
 *   cm.c       rdma_cm: listening, events, strangers
 *   cm_link.c  ... and connecting the queue pairs of a link
 *   send.c     frames into slots of the peer
 *   receive.c  frames out of the own slots; giving slots back
 *   fault.c    the end of a link
 *   memory.c   registered memory: slots, buffers
 *   region.c   registered memory: the caller's buckets
 *   wire.h     what goes over the wire
 */
#ifndef SPR_TRANSPORT_VERBS_VERBS_H
#define SPR_TRANSPORT_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "transport/tcp/tcp.h"
#include "transport/verbs/wire.h"

#define VERBS_SMALL_SLOTS 24u /* and as many large ones as the option says */
#define VERBS_RAILS 4u
#define VERBS_LANES SPR_VERBS_LANES
/* Send work requests of a lane: a message in each slot of the peer, a payload for each that is
 * placed elsewhere, and as many credits. */
#define VERBS_SEND_DEPTH 128u
#define VERBS_RECEIVE_DEPTH 96u
/* Receives that may be missing: the peer's writes into slots and its credits never need them. So
 * many are posted at a time. */
#define VERBS_SPARE_RECEIVES (VERBS_RECEIVE_DEPTH - 2 * SPR_VERBS_SLOTS)
/* "receiver not ready" never happens; if it did, a finite number of times. */
#define VERBS_RNR_RETRIES 6
/* Smaller payloads are copied, also from and to registered memory: they come back at once. */
#define VERBS_DIRECT_BYTES 4096u
/* Of a message under way: its small frames, or what comes before its payload. */
#define VERBS_CELL_BYTES 256u
/* Messages are numbered; those that have arrived and wait for an earlier one have a slot each. */
#define VERBS_WINDOW 32u
#define VERBS_CHAIN 16   /* work requests posted at a time */
#define VERBS_UNTOLD 16u /* work requests under way without a completion to follow, at most */
#define VERBS_POLL 16    /* completions taken at a time */
/* An entry for each work request of a lane, so that none can overflow. */
#define VERBS_LANE_COMPLETIONS (VERBS_SEND_DEPTH + VERBS_RECEIVE_DEPTH)

/* What a peer writes counts when the completion says so: packets may be placed in any order. */
#define VERBS_REMOTE_WRITE                                                                         \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING)

/* wr_id: what completed (bit 63: a receive), on which lane (bits 60..62), of which link (bits
 * 32..59), and its number. */
#define VERBS_RECEIVE_ID ((uint64_t)1 << 63)
#define VERBS_LANE_BIT 60
#define VERBS_PEER_MASK 0xfffffffu

static_assert(SPR_PLACE_KEYS == VERBS_LANES, "a key for each lane");

struct verbs_transport;

/* Payloads that are not in registered memory are copied into buffers of this pool. */
struct verbs_staging {
    uint8_t *memory;
    size_t bytes;
    struct ibv_mr *mr[VERBS_RAILS];
    uint8_t **free_small, **free_large; /* stacks */
    uint32_t small_count, large_count;  /* free now */
};

struct verbs_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_device_attr limits;
    struct ibv_port_attr port;
    char name[64];
    uint8_t port_number;
    int gid_index;
    union ibv_gid gid;
    uint32_t gid_type; /* enum ibv_gid_type */
    uint32_t inline_bytes;
};

struct verbs_cq {
    struct ibv_cq *cq;
    uint32_t lanes, most_lanes;
    bool armed; /* the next completion makes the channel readable */
};

struct verbs_rail {
    struct verbs_device device;
    uint32_t number;
    struct verbs_cq **cqs;
    uint32_t cq_count;
    struct rdma_cm_id *listener; /* for the queue pairs of this device; NULL: none */
    struct spr_tcp_address cm;   /* where it listens */
};

/* How far rdma_cm is with a queue pair. */
enum verbs_cm_state {
    VERBS_CM_NONE,
    VERBS_CM_ADDRESS,   /* who connects: the address is resolved, */
    VERBS_CM_ROUTE,     /* then the route, */
    VERBS_CM_REQUESTED, /* then the peer is asked */
    VERBS_CM_AWAITED,   /* who is connected to: the request will come */
    VERBS_CM_HELD,      /* ... or came before the peer's card */
    VERBS_CM_CONNECTED
};

/* Bucket memory. */
struct verbs_region {
    uint8_t *memory;
    size_t bytes;
    bool writable;   /* ... by peers */
    int dmabuf;      /* until then, our descriptor of the DMA-BUF that it is part of; or -1 */
    uint64_t offset; /* ... of which it begins here */
    struct ibv_mr *mr[VERBS_RAILS]; /* NULL: not registered, or refused: all of them */
    bool refused;
};

/* A send work request that has not completed. */
struct verbs_wr {
    struct spr_tx *tx; /* its data is read by the device; NULL: it was copied */
    uint8_t *staging;  /* to be given back, or NULL */
    uint32_t bytes;
};

/* A queue pair. */
struct verbs_lane {
    struct verbs_rail *rail;
    struct verbs_cq *cq;
    struct ibv_qp *qp;
    uint32_t first_sequence;
    struct rdma_cm_id *id; /* NULL: rdma_cm knows nothing of it */
    enum verbs_cm_state cm;
    uint32_t unposted;          /* receive work requests that were consumed */
    uint32_t wr_first, wr_next; /* send work requests under way: [first, next) modulo 2^32 */
    size_t bytes;               /* of them */
    uint32_t wr_told; /* those before this number are signalled, or followed by one that is */
    bool wants_word;  /* ... and somebody asks about the rest */
    struct verbs_wr wr[VERBS_SEND_DEPTH];
    uint8_t *cells;
};

/* A message that has arrived, perhaps before one that was sent earlier. */
struct verbs_arrival {
    bool there;
    uint32_t slot, bytes;
};

struct verbs_link {
    struct spr_tcp_link tcp; /* first */
    enum {
        VERBS_NONE,
        VERBS_CARDS,  /* cards are exchanged */
        VERBS_CM,     /* rdma_cm connects the queue pairs */
        VERBS_READY,  /* ours is connected, the peer's perhaps not */
        VERBS_UP,     /* the link is up */
        VERBS_ENDING, /* no further upcalls; work requests are coming back */
        VERBS_OVER
    } phase;
    struct verbs_lane lane[VERBS_LANES];
    uint32_t lanes; /* how many this rank has made; once the peer's card is there: that both have */

    /* Before it is up. */
    struct spr_verbs_card theirs;
    size_t card_received;           /* bytes of it */
    bool ready;                     /* the peer said so */
    bool offers_cm;                 /* this rank */
    bool by_cm;                     /* rdma_cm connects, or has connected, the queue pairs */
    bool fell_back;                 /* it could not */
    uint8_t nonce[SPR_VERBS_NONCE]; /* of our card */
    uint64_t cm_due_ns;             /* when rdma_cm has taken too long; 0: never */

    /* Memory: the slots, then the cells. */
    uint8_t *memory;
    size_t memory_bytes;
    struct ibv_mr *slots_mr[VERBS_RAILS], *cells_mr[VERBS_RAILS];

    /* Frames from the peer. */
    struct spr_verbs_area own;         /* slots that it writes */
    uint32_t held;                     /* slots that are read, or whose payload is borrowed */
    uint32_t readers[SPR_VERBS_SLOTS]; /* ... by so many */
    uint32_t given_back, told;         /* bits as in wire.h, now and as last told to the peer */
    uint32_t rx_number;                /* of the next message */
    struct verbs_arrival arrival[VERBS_WINDOW]; /* by number, modulo that */
    bool gone; /* end of file seen; what has arrived still counts */
    bool gone_told;
    int gone_error; /* errno of the socket, or 0 */

    /* Frames to the peer. */
    struct spr_verbs_area remote;
    uint32_t used, seen_back; /* bits as in wire.h */
    uint32_t tx_number;
    struct spr_list hungry; /* in transport->hungry: waits for a staging buffer */

    /* The end. */
    spr_status fault;
    uint64_t drain_ns; /* when not to wait for work requests any more */
    char fault_text[400];
};

struct verbs_cm {
    struct rdma_event_channel *channel; /* NULL: not open */
    int timer_fd;
    uint64_t timer_ns;            /* when it will go off; UINT64_MAX: never */
    bool tried, told_fallen_back; /* to open it; that the cards had to do */
};

struct verbs_transport {
    struct spr_tcp tcp;                  /* first */
    struct verbs_rail rail[VERBS_RAILS]; /* the first one tells peers whether a link can work */
    uint32_t rails;
    struct verbs_staging staging;
    struct verbs_cm cm;
    struct verbs_region *regions; /* by address */
    size_t region_count, region_capacity;
    bool told_refused, told_dmabuf;
    bool asked_on_demand, on_demand; /* buckets need not be pinned */
    uint32_t link_count, unfinished; /* links; those that are not up yet, or ending */
    size_t under_way;                /* send work requests */
    int gone;                        /* links with an end of file that is not told yet */

    int epoll_fd;
    bool asleep;         /* arm() said so: look at the descriptors */
    unsigned until_look; /* calls of progress() until they are looked at in any case */
    struct spr_list round, hungry;
    struct ibv_wc backlog[VERBS_POLL]; /* taken by arm() */
    int backlog_count;
};

static inline struct verbs_transport *verbs_of(struct spr_transport *t)
{
    return (struct verbs_transport *)t;
}
/* Queue pairs that this rank makes for a link. */
static inline uint32_t verbs_lanes(const struct verbs_transport *t)
{
    uint32_t lanes = t->rails * (uint32_t)t->tcp.base.params.options->verbs_qps;

    return lanes < VERBS_LANES ? lanes : VERBS_LANES;
}

static inline struct verbs_link *verbs_link_of(struct spr_tcp_link *l)
{
    return (struct verbs_link *)l;
}
static inline uint32_t verbs_wc_lane(const struct ibv_wc *wc)
{
    return (uint32_t)(wc->wr_id >> VERBS_LANE_BIT & (VERBS_LANES - 1));
}
static inline struct verbs_transport *verbs_of_link(struct verbs_link *l)
{
    return verbs_of(l->tcp.link.transport);
}

/* ---- device.c ---------------------------------------------------------------------------------*/

/* Quick: loads nothing. */
bool verbs_kernel_has_devices(void);
/* Open the devices, at most `most` and options->verbs_rails, with the port and GID of each that
 * suit options and interface best; the best device first, the others by name. UNSUPPORTED: there is
 * none; INVALID: none of those that the options name; SYSTEM. */
spr_status verbs_devices_open(struct verbs_device *d, uint32_t most, uint32_t *count,
                              const struct spr_options *options,
                              const struct spr_tcp_interface *interface, struct spr_error *error);
void verbs_device_close(struct verbs_device *d);
/* "rxe0:1 (RoCE v2, GID 1 ::ffff:192.0.2.1)"; returns text. */
const char *verbs_device_print(const struct verbs_device *d, char *text, size_t bytes);
#define VERBS_DEVICE_TEXT 160
const char *verbs_gid_print(const union ibv_gid *gid, char *text, size_t bytes);
#define VERBS_GID_TEXT 48
/* Log what happened to the device. Returns a text when it cannot be used any more, else NULL;
 * *queue_pair: only this one, or 0. */
const char *verbs_device_event(struct verbs_device *d, uint32_t *queue_pair);

/* ---- address.c --------------------------------------------------------------------------------*/

/* Is this GID of RoCE an address of the network namespace of this process? */
bool verbs_gid_is_here(const union ibv_gid *gid);
/* IP addresses of this namespace that may belong to the device: the one that its GID is, or, since
 * GIDs of InfiniBand are none, all. Returns how many. */
size_t verbs_ip_addresses(const struct verbs_device *d, struct spr_tcp_address *a, size_t most);

/* ---- queue.c ----------------------------------------------------------------------------------*/

struct verbs_path {
    struct ibv_ah_attr ah;
    enum ibv_mtu mtu;                  /* at most: that of both ports is a limit, too */
    uint32_t rx_sequence, tx_sequence; /* numbers of the first packets */
};

/* The largest inline payload that queue pairs of this device can have. */
void verbs_inline_probe(struct verbs_device *d);
/* A completion queue with room for one more lane, and its queue pair, in state INIT. */
spr_status verbs_qp_create(struct verbs_transport *t, struct verbs_lane *lane,
                           struct spr_error *error);
/* To INIT. */
spr_status verbs_qp_init(struct verbs_lane *lane, uint32_t pkey_index, struct spr_error *error);
/* The path to the end of the peer as the cards say. */
void verbs_path_by_cards(const struct verbs_transport *t, const struct verbs_link *l, uint32_t lane,
                         struct verbs_path *path);
/* What packets of this device hold at most: by its port, or by the option. */
enum ibv_mtu verbs_mtu(const struct verbs_transport *t, const struct verbs_device *d);
/* From INIT to RTR and RTS. */
spr_status verbs_qp_connect(struct verbs_transport *t, struct verbs_link *l, uint32_t lane,
                            const struct verbs_path *path, struct spr_error *error);
/* Back to INIT, without the receives that were posted. */
spr_status verbs_qp_reset(struct verbs_transport *t, struct verbs_lane *lane,
                          struct spr_error *error);
/* To the error state: nothing is sent or received any more; work requests come back. */
void verbs_qp_stop(struct verbs_lane *lane);
void verbs_qp_destroy(struct verbs_lane *lane);
void verbs_cqs_destroy(struct verbs_rail *rail);
/* Ask all queues to tell of the next completion. False: one refused. */
bool verbs_arm(struct verbs_transport *t);
/* Take what the completion channel says. */
void verbs_disarm(struct verbs_rail *rail);

/* ---- connect.c --------------------------------------------------------------------------------*/

spr_status verbs_attach(struct spr_tcp *tcp, struct spr_tcp_link *tl);
/* The socket of a link has something to say. Returns the number of steps. */
int verbs_socket_drive(struct verbs_transport *t, struct verbs_link *l);
/* Connect the queue pairs, in state INIT, with what the cards say. */
void verbs_connect_by_cards(struct verbs_transport *t, struct verbs_link *l);
/* All queue pairs of this end are connected: say so. */
void verbs_ready(struct verbs_transport *t, struct verbs_link *l);
/* Say a word (SPR_VERBS_...) on the socket. */
bool verbs_say(struct verbs_link *l, char word);
/* Both ends are ready. Upcall. */
void verbs_up(struct verbs_transport *t, struct verbs_link *l);
/* Free what a link has beside the socket. Idempotent. */
void verbs_detach(struct verbs_transport *t, struct verbs_link *l);

/* ---- cm.c -------------------------------------------------------------------------------------*/

/* What an event of rdma_cm says. */
struct verbs_cm_event {
    enum rdma_cm_event_type type;
    int status;
    struct spr_verbs_hello hello; /* of a request or reply; else zero */
};

/* Listen on all rails. SYSTEM: this host or its addresses cannot. */
spr_status verbs_cm_open(struct verbs_transport *t, struct spr_error *error);
/* All ids are gone already. */
void verbs_cm_close(struct verbs_transport *t);
/* Is rdma_cm to be used with peers that can, too? */
bool verbs_cm_offered(struct verbs_transport *t);
/* Take what the event channel, or the timer, says. Returns the number of steps. */
int verbs_cm_events(struct verbs_transport *t);
int verbs_cm_expire(struct verbs_transport *t);
/* The link has this long from now on; 0: for ever. */
void verbs_cm_allow(struct verbs_transport *t, struct verbs_link *l, double seconds);

/* ---- cm_link.c --------------------------------------------------------------------------------*/

/* The cards are exchanged. */
void verbs_cm_start(struct verbs_transport *t, struct verbs_link *l);
/* Is this request for one of our queue pairs? Then the id is taken. */
bool verbs_cm_knock(struct verbs_transport *t, const struct verbs_rail *rail, struct rdma_cm_id *id,
                    const struct verbs_cm_event *e);
void verbs_cm_drive(struct verbs_transport *t, struct verbs_link *l, const struct rdma_cm_id *id,
                    const struct verbs_cm_event *e);
/* The time that verbs_cm_allow() gave is over. */
void verbs_cm_late(struct verbs_transport *t, struct verbs_link *l);
/* The peer could not: go on with the cards. */
void verbs_cm_give_up(struct verbs_transport *t, struct verbs_link *l);
/* Destroy the ids of a link. Waits for nobody. */
void verbs_cm_detach(struct verbs_link *l);

/* ---- send.c -----------------------------------------------------------------------------------*/

/* Post receives, queued frames and credit, as far as possible. Returns the number of steps. */
int verbs_flush(struct verbs_transport *t, struct verbs_link *l);
/* Send work requests of a lane up to this number are over. Returns the number of upcalls. */
int verbs_completed(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                    uint32_t number, bool good);
/* Is any send work request under way, as far as this rank knows? */
bool verbs_under_way(const struct verbs_link *l);
/* Does a completion follow for any of them? */
bool verbs_awaits(const struct verbs_link *l);
/* Ask for a completion of all that is under way. */
void verbs_want_word(struct verbs_transport *t, struct verbs_link *l);
/* What the peer says about the slots that it gave back. False: that cannot be. */
bool verbs_given_back(struct verbs_link *l, uint32_t given_back);

/* ---- receive.c --------------------------------------------------------------------------------*/

spr_status verbs_post_receives(struct verbs_link *l, struct verbs_lane *lane);
/* A write with immediate of the peer has arrived. Returns the number of steps. */
int verbs_arrived(struct verbs_transport *t, struct verbs_link *l, const struct ibv_wc *wc);
void verbs_release(struct spr_link *link, void *token);
bool verbs_expose(struct spr_link *link, void *memory, size_t bytes, struct spr_place *place);
/* Could the peer be waiting for slots that it does not know to be free? */
bool verbs_owes_credit(const struct verbs_link *l);

/* ---- fault.c ----------------------------------------------------------------------------------*/

/* The link is over: stop the queue pair; down() follows when the work requests have come back. */
void verbs_fail(struct verbs_transport *t, struct verbs_link *l, spr_status why, const char *fmt,
                ...) SPR_PRINTF(4, 5);
/* A work request failed. */
void verbs_wc_failed(struct verbs_transport *t, struct verbs_link *l, const struct ibv_wc *wc);
/* Has the peer's process ended, which explains all else? */
bool verbs_at_end_of_file(const struct verbs_link *l);
/* The socket's end, after all that has arrived. */
void verbs_socket_gone(struct verbs_transport *t, struct verbs_link *l);
/* Go on with a link that is ending. Returns the number of steps. */
int verbs_drain(struct verbs_transport *t, struct verbs_link *l);
void verbs_kill(struct spr_link *link);

/* ---- verbs.c ----------------------------------------------------------------------------------*/

/* Look at this descriptor, too; `what` tells progress() which one it is. */
bool verbs_watch(struct verbs_transport *t, int fd, void *what);

/* ---- memory.c ---------------------------------------------------------------------------------*/

/* Register on every rail, or on none; a refusal is explained. */
bool verbs_register_all(struct verbs_transport *t, struct ibv_mr **mr, void *memory, size_t bytes,
                        unsigned access, struct spr_error *error);
void verbs_deregister_all(struct ibv_mr **mr);
/* Would slots for all peers be registered, too? Asked only where memory is limited. */
spr_status verbs_memory_probe(struct verbs_transport *t, struct spr_error *error);
spr_status verbs_staging_create(struct verbs_transport *t, struct spr_error *error);
void verbs_staging_destroy(struct verbs_transport *t);
/* A buffer of at least `bytes`, at most SPR_FRAME_MAX_PAYLOAD; NULL: none is free. */
uint8_t *verbs_staging_get(struct verbs_transport *t, size_t bytes);
void verbs_staging_put(struct verbs_transport *t, uint8_t *buffer);
/* Slots and cells of a link. */
spr_status verbs_link_memory(struct verbs_transport *t, struct verbs_link *l,
                             struct spr_error *error);
void verbs_link_memory_free(struct verbs_link *l);
/* ---- region.c ---------------------------------------------------------------------------------*/

spr_status verbs_mem_register_dmabuf(struct spr_transport *base, void *memory, size_t bytes, int fd,
                                     uint64_t offset);
spr_status verbs_mem_register(struct spr_transport *base, void *memory, size_t bytes,
                              bool writable);
void verbs_mem_deregister(struct spr_transport *base, void *memory, size_t bytes);
/* Register what was offered while there was no link. */
void verbs_regions_update(struct verbs_transport *t);
/* The registered region that holds all of it, or NULL. */
const struct verbs_region *verbs_region_find(struct verbs_transport *t, const void *data,
                                             size_t bytes);
void verbs_regions_destroy(struct verbs_transport *t);

#endif
