/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Channel: tagged messages over the links of one communicator. The layer between the collectives,
 * which know (operation, step), and the transports, which know frames.
 *
 * Receiver-driven: posting a receive is the permission to send. A message above the eager limit
 * waits at its sender until the receiver has posted the matching receive and a GRANT frame has come
 * over. So memory is bounded by what the receiver posted, a fast rank cannot flood a slow one, and
 * the receiver decides the order in which its peers send. Small messages go at once ("eager"),
 * within a window of unconsumed bytes per link; past the window the sender sends a REQUEST and
 * waits for a GRANT.
 *
 *   granted:  R: recv(op, step) --GRANT--> S        S: send(op, step) --DATA--> R
 *   eager:    S: send(op, step) --DATA--> R         R: delivered, or kept until recv(op, step)
 *
 * Where a transport lets peers write each other's memory (ops->expose), the grant says where, and
 * the data comes straight into its place ("placed"). Such a receive is not over before nothing can
 * be written for it any more: when it is given up, the sender is asked to forget the grant (RECALL)
 * and says that it has; or it has stopped too (ABORT, BYE), or the link is down.
 *
 * What may leave does so at once, unless something more urgent is under way: then less urgent data
 * with a grant are held back while their link has enough to send (SPARRING_PRIORITY_BYTES), and go
 * by priority.
 * A link that has nothing else to do sends them: so ranks may differ in what is urgent to them.
 *
 * Both sides derive from the plan whether a message is eager (`eager` below must agree).
 * Serialised by the communicator's lock. Messages complete inside the transports' progress() or,
 * when nothing has to be waited for, inside the post itself; `done` must not post (mark and
 * return).
 */
#ifndef SPR_TRANSPORT_CHANNEL_H
#define SPR_TRANSPORT_CHANNEL_H

#include "base/list.h"
#include "base/mem.h"
#include "transport/transport.h"

/* Largest payload of the channel's own frames. */
#define SPR_NOTE_BYTES 512
#define SPR_EARLY_SIZES 3 /* of buffers for messages that come early */

struct spr_channel;

/* A message to send. The owner keeps it and the data untouched until done(). */
struct spr_send {
    struct spr_list node; /* private */
    struct spr_tx tx;     /* private */
    int peer;
    int priority; /* larger: more urgent */
    uint32_t operation, step;
    uint64_t descriptor;
    const void *data;
    size_t bytes; /* at most SPR_FRAME_MAX_PAYLOAD */
    bool eager;
    bool crc_known; /* `crc` is the payload's CRC-32C: the same data goes to several peers */
    uint32_t crc;
    void (*done)(struct spr_send *send, spr_status status);
};

/* A message to receive. */
struct spr_recv {
    struct spr_list node; /* private */
    int peer;
    uint32_t operation, step;
    uint64_t descriptor;
    void *into;      /* NULL: borrow */
    bool lend;       /* with `into`: or borrow, where that costs nothing */
    size_t capacity; /* most bytes */
    bool eager;
    /* Results, valid in done(): */
    const void *data; /* == into, or borrowed memory until spr_channel_release */
    size_t bytes;
    void *token;
    bool copied;         /* data is private: spr_channel_data_get() */
    bool exposed;        /* private: the peer may write it */
    spr_status given_up; /* private: why, while it is being recalled */
    void (*done)(struct spr_recv *recv, spr_status status);
};

struct spr_channel_peer {
    struct spr_channel *channel; /* NULL: nothing has been said to it or of it, and all is 0 */
    struct spr_link *link;       /* NULL: not connected yet */
    int rank;                    /* in this epoch; the index in `peers` is for life */
    bool checksum;               /* payload CRC on this link */
    bool left;                   /* said BYE, or ABORT */
    uint32_t left_at; /* ... before this operation; all earlier ones are complete over there */
    uint32_t heard;   /* the latest operation that any frame of the peer belonged to */
    bool down;
    bool given_up;       /* ... because this rank cut the link, not the peer */
    bool dead;           /* proven: the watch saw it die, or it closed its link without a word */
    bool damaged;        /* what it said was: it may have been its last word */
    bool expelled;       /* the watch has given it up without proof of its death */
    bool limited;        /* the transport's memory of what is unsent, for priorities */
    bool gone;           /* no member of this epoch: whatever it sends is dropped */
    bool bye;            /* ... it was BYE */
    uint32_t left_epoch; /* of that BYE or ABORT */
    size_t frames_out;   /* handed to the transport, not yet sent() */
    size_t data_out;     /* ... bytes of data */
    uint32_t tx_sequence, rx_sequence;
    struct spr_list waiting;          /* struct spr_send without grant or credit */
    struct spr_list held;             /* struct spr_send with grant, the most urgent first */
    struct spr_list receives;         /* struct spr_recv posted */
    struct spr_list recalled;         /* struct spr_recv given up, which may still be written */
    struct spr_list early;            /* struct early: grants, requests, data without a partner */
    struct spr_recv *receiving;       /* its payload is arriving */
    bool dropping;                    /* the frame that is arriving has no effect */
    struct early *arriving;           /* eager payload without a receive is arriving */
    uint32_t eager_sent, eager_acked; /* as sender: bytes, modulo 2^32 */
    uint32_t eager_consumed, eager_reported; /* as receiver */
    size_t kept_bytes, kept_entries;         /* in `early` */
};

enum spr_operation_state {
    SPR_OPERATION_OVER,
    SPR_OPERATION_RUNNING,
    SPR_OPERATION_REJECTED, /* failed alone, running still or over: its frames are dropped */
    SPR_OPERATION_FUTURE
};

struct spr_channel_events {
    /* The first failure; at most once. `rank`: who is to blame. `told_by`: -1, or the rank whose
     * ABORT said so. The channel has already stopped; the owner completes its operations as their
     * messages come back. */
    void (*failed)(void *ctx, spr_status status, int rank, int told_by, const char *text);
    /* A frame of `peer` (its index) is of an operation that was posted here with another
     * descriptor. The frame is dropped. */
    void (*mismatch)(void *ctx, int peer, uint32_t operation);
    /* A frame that the channel only carries: DESCRIBE, REJECT, VIEW (of any epoch). `peer` is its
     * index. f->bytes bytes of data. */
    void (*note)(void *ctx, int peer, const struct spr_frame *f, const void *data);
    /* Is this operation over, under way, rejected, or still to come? *descriptor is set when it is
     * known. A grant for one that is over is dropped: a receiver may post more receives than the
     * sender turns out to need. */
    enum spr_operation_state (*state)(void *ctx, uint32_t operation, uint64_t *descriptor);
    void *ctx;
};

struct spr_channel {
    int rank, size; /* index in `peers`, and how many: as at the beginning */
    uint32_t epoch;
    const struct spr_options *options;
    const struct spr_clock *clock;
    uint64_t recent_ns; /* what the clock has just said, see spr_channel_now(); 0: nothing */
    struct spr_counters *counters;
    struct spr_trace *trace;
    struct spr_channel_events events;
    struct spr_channel_peer *peers; /* size entries, see spr_channel_peer() */
    /* Links a peer that is needed for the first time, for simulations of so many ranks that not all
     * can be; NULL: all are linked before. */
    void (*link)(void *ctx, int peer);
    void *link_ctx;
    struct spr_pool control_pool, early_pool;
    struct spr_pool data_pools[SPR_EARLY_SIZES]; /* of messages in `early` */
    int links_up;                                /* that of this rank to itself is one of them */
    size_t frames_out;                           /* handed to transports, not yet sent() */
    size_t held;                                 /* of all peers */
    int urgent;                                  /* the highest priority that is under way */
    spr_status status;                           /* SPR_OK, or why the channel stopped */
    int blamed;                                  /* ... because of this rank; -1: of none */
    bool settled;                                /* stopped, and links that were stuck are cut */
    bool dead;                                   /* links are killed */
};

extern const struct spr_link_events spr_channel_link_events;

spr_status spr_channel_init(struct spr_channel *ch, int rank, int size, uint32_t epoch,
                            const struct spr_options *options, const struct spr_clock *clock,
                            struct spr_counters *counters, struct spr_trace *trace);
void spr_channel_init_peer(struct spr_channel *ch, int peer);
/* By its index. Entries are made when they are first asked for: pages of `peers` that nobody has
 * written take no memory. */
static inline struct spr_channel_peer *spr_channel_peer(struct spr_channel *ch, int peer)
{
    if (!ch->peers[peer].channel)
        spr_channel_init_peer(ch, peer);
    return &ch->peers[peer];
}

/* The next one that is there behind `p` (NULL: of all); NULL: none. */
static inline struct spr_channel_peer *spr_channel_next_peer(const struct spr_channel *ch,
                                                             const struct spr_channel_peer *p)
{
    for (int i = p ? (int)(p - ch->peers) + 1 : 0; i < ch->size; i++)
        if (ch->peers[i].channel)
            return &ch->peers[i];
    return NULL;
}

#define spr_channel_for_each_peer(p, ch)                                                           \
    for ((p) = spr_channel_next_peer(ch, NULL); (p); (p) = spr_channel_next_peer(ch, p))

/* The link to a peer, made now if it has to be; NULL: none. */
struct spr_link *spr_channel_link(struct spr_channel *ch, int peer);
/* Attach a link right after ops->connect; its upcalls then come here. */
void spr_channel_attach(struct spr_channel *ch, struct spr_link *link, bool checksum);

/* The highest priority of what is under way from now on; data that are less urgent are held back.
 */
void spr_channel_set_urgent(struct spr_channel *ch, int priority);
/* Send what need not be held back any more: after progress(). */
void spr_channel_send_held(struct spr_channel *ch);

/* The time of an event: of the one just before it, if the owner has seen to it that little can have
 * happened since. A reading takes 20 ns, of some 1000 in the shortest operations. */
static inline uint64_t spr_channel_now(struct spr_channel *ch)
{
    uint64_t now = ch->recent_ns ? ch->recent_ns : spr_now_ns(ch->clock);

    ch->recent_ns = 0;
    return now;
}

/* Does any link of the channel want payload CRCs? */
bool spr_channel_checksums(const struct spr_channel *ch);

/* Post. When the channel has failed or the peer left, done() is called at once with an error. */
void spr_channel_send(struct spr_channel *ch, struct spr_send *send);
void spr_channel_receive(struct spr_channel *ch, struct spr_recv *recv);
/* Give the data of a completed receive back (borrowed or kept early data). Harmless for others. */
void spr_channel_release(struct spr_channel *ch, struct spr_recv *recv);

/* An operation is posted here: compare it with what the peers have said of it so far. */
void spr_channel_begin(struct spr_channel *ch, uint32_t operation, uint64_t descriptor);
/* Tell a peer what an operation is, before it has asked for anything of it. */
void spr_channel_announce(struct spr_channel *ch, int peer, uint32_t operation,
                          uint64_t descriptor);
/* An operation fails alone: its messages that wait are completed with `status` now, those under way
 * when they come back, and receives that the peer may write when it says that it will not. */
void spr_channel_reject(struct spr_channel *ch, uint32_t operation, spr_status status);
/* Send a frame that only carries something; at most SPR_NOTE_BYTES bytes, which are copied. */
void spr_channel_note(struct spr_channel *ch, int peer, enum spr_frame_type type,
                      uint32_t operation, uint32_t arg, uint64_t arg64, const void *data,
                      size_t bytes);
/* Take a posted receive back; done() is not called. False: a payload is arriving for it, which
 * breaks the protocol; the receive stays posted. */
bool spr_channel_withdraw(struct spr_channel *ch, struct spr_recv *recv);
/* An operation is over: forget grants for it that were not used. */
void spr_channel_forget(struct spr_channel *ch, uint32_t operation);

/*
 * Stop: messages that wait are completed with `status` now; those under way when they come back.
 * Tells all peers (ABORT). Does not call events.failed. Idempotent: the first call wins.
 */
void spr_channel_stop(struct spr_channel *ch, spr_status status, int blamed, const char *text);
/* After stop: everybody who is there has been told, also if this process ends now. */
bool spr_channel_told(const struct spr_channel *ch);
/* After a stop: cut the link to a dead rank, so that nothing under way to it is waited for. */
void spr_channel_cut(struct spr_channel *ch, int peer);
/* Cut all links; everything under way is returned by the transports' next progress. */
void spr_channel_kill(struct spr_channel *ch);
/* Some time after stop: cut the links on which something is stuck. The others stay, for a new
 * epoch. */
void spr_channel_settle(struct spr_channel *ch);
/* Is there a receive that was given up, and that a peer may still write? */
bool spr_channel_recalls(const struct spr_channel *ch);
/* After stop: cut the links of those peers. */
void spr_channel_cut_silent(struct spr_channel *ch);
/* After stop, when nothing is under way any more: go on in a new epoch. rank_of[index]: the peer's
 * rank in it, or -1: not a member. */
void spr_channel_new_epoch(struct spr_channel *ch, uint32_t epoch, const int *rank_of,
                           uint32_t next_operation);
/* Cut the links of those who are no members of this epoch. */
void spr_channel_cut_gone(struct spr_channel *ch);
/* Say BYE to all peers: all operations before `next_operation` are complete here. */
void spr_channel_bye(struct spr_channel *ch, uint32_t next_operation);
/* All peers said BYE or are down. */
bool spr_channel_all_left(const struct spr_channel *ch);
void spr_channel_destroy(struct spr_channel *ch);

/* Does it wait for a message of this peer, or to be allowed to send it one? */
bool spr_channel_waits_for(const struct spr_channel *ch, int peer, uint32_t operation);
/* Ranks that an operation waits for: those that have not reached it; if there are none, all with
 * posted receives and sends without grant. Text like "2, 5-7"; ends with ", ..." when it is cut. */
void spr_channel_waiting_for(const struct spr_channel *ch, uint32_t operation, char *text,
                             size_t bytes, int *first);

#endif
