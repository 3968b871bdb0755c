/* SPDX-License-Identifier: BSD-2-Clause
 *
 * State of lanes, shared by send.c (which lane a frame takes), link.c (what lanes tell, in order,
 * and the end of a link) and lanes.c (the transport).
 */
#ifndef SPR_TRANSPORT_LANES_PRIVATE_H
#define SPR_TRANSPORT_LANES_PRIVATE_H

#include "base/list.h"
#include "transport/lanes/lanes.h"
#include "transport/tcp/interface.h"

/* What a lane is given beyond one frame, and what it may leave unsent in the kernel: enough for it
 * to be busy, and not so much that the slowest one ends much later than the others. */
#define GIVEN_BYTES ((size_t)128 << 10)

struct lanes_link;

struct lane {
    struct lanes_link *of;
    struct spr_link *link;
    size_t given; /* bytes between send() and events.sent */
    /* Its speed, as measured (0: not yet), and when; bytes that it was ever given, and brought; the
     * same when the measurement began, and what was left to do then (0: too little). */
    double bytes_ns;
    uint64_t known_ns, total, arrived, from, from_ns;
    size_t left;
    bool up, ended;
    bool waits;      /* a frame, for its turn */
    uint32_t number; /* ... its number */
};

struct lanes_link {
    struct spr_link link; /* first */
    struct lane lane[SPR_LANES];
    uint32_t lanes;
    uint32_t next; /* number of the frame whose turn it is ... */
    bool arriving; /* ... when the payload of the one before is complete */

    struct spr_tx *first, **last; /* frames that no lane has been given */
    struct spr_list work;         /* in t->work: frames to be returned, or an end to be told */
    /* A connection has ended, and the link will: what others have still brought is read first. */
    struct spr_list fading; /* in t->fading */
    bool broken;            /* ... of an error: no need to wait for the others' end of file */
    int quiet;              /* calls of progress() in a row in which nothing came */
    uint64_t since_ns;
    bool refused; /* the channel has refused a frame, and is shown no more */
    bool lost;
    spr_status why;
    char text[200];
};

struct lanes_transport {
    struct spr_transport base; /* first */
    struct spr_transport *lane[SPR_LANES];
    struct spr_options options[SPR_LANES];
    struct spr_tcp_joined joined;
    uint32_t lanes;
    int epoll_fd;
    struct lanes_link **links; /* per rank */
    struct spr_list work, fading;
    size_t queued; /* frames that no lane has been given */
};

static inline struct lanes_transport *lanes_of(struct spr_transport *t)
{
    return (struct lanes_transport *)t;
}
static inline struct lanes_link *lanes_link_of(struct spr_link *l)
{
    return (struct lanes_link *)l;
}
static inline struct lane *lane_of(const struct spr_link *l) { return l->channel; }
static inline const struct spr_transport_ops *lanes_ops(const struct lane *lane)
{
    return lane->link->transport->ops;
}
static inline const struct spr_link_events *lanes_upcalls(const struct lanes_link *l)
{
    return l->link.transport->params.events;
}

static inline size_t lanes_bytes(const struct spr_tx *tx)
{
    return SPR_FRAME_BYTES + tx->header.bytes;
}

/* send.c. Give lanes what they can take now; upcalls of frames that none has been given, failed. */
void lanes_feed(struct lanes_link *l);
void lanes_send(struct spr_link *link, struct spr_tx *tx);
int lanes_return_queue(struct lanes_link *l);

/* link.c. Upcalls of the lanes. */
extern const struct spr_link_events lanes_events;
void lanes_kill(struct spr_link *link);
void lanes_release(struct spr_link *link, void *token);
/* A link of t->work: return its frames, tell its end. */
int lanes_finish(struct lanes_link *l);
/* Links of which a connection has ended: over when nothing comes any more. */
int lanes_fade(struct lanes_transport *t);

#endif
