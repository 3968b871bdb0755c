/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Links that a fuzz target drives: every frame leaves, arrives, and is reported as sent when the
 * target says so, and may be changed on its way. Time is virtual. With `places` ranks let their
 * peers write into receives, as over verbs: half of a payload is there when its frame leaves.
 */
#ifndef TESTS_FUZZ_WIRE_H
#define TESTS_FUZZ_WIRE_H

#include "transport/transport.h"

#define WIRE_RANKS 3
#define WIRE_BUCKETS 16 /* of a rank, registered at once */

/* A frame between two ranks. */
struct wire_packet {
    struct wire_packet *next;
    struct spr_frame header;
    uint8_t *data;    /* header.bytes when it was queued; `bytes` are there */
    size_t bytes;     /* of data: a header may lie */
    bool header_done; /* the upcall; the payload comes next */
    uint8_t *into;    /* where the receiver wants it, or has let it be written */
};

struct wire_link {
    struct spr_link base;
    struct spr_tx *queued, *sent;   /* given to us; on the wire, not yet reported */
    struct wire_packet *in;         /* on their way to this end */
    struct wire_packet *borrowed;   /* payloads that the receiver keeps */
    unsigned may_receive, may_sent; /* steps of the next progress() */
    enum spr_sink sink;             /* of the payload that arrives */
    bool over;                      /* the other end is closed */
    bool killed, reported;
    bool lies; /* one of its ends does: what that one may write is not modelled */
};

struct wire_bucket {
    uint8_t *memory; /* NULL: none */
    size_t bytes;
};

struct wire_end {
    struct spr_transport base;
    struct wire *wire;
    struct wire_link links[WIRE_RANKS];
    struct wire_bucket buckets[WIRE_BUCKETS];
};

struct wire {
    struct spr_virtual_clock time;
    struct spr_clock clock;
    struct wire_end ends[WIRE_RANKS];
    bool places;
};

void wire_init(struct wire *w);
/* The transport of rank params->rank, whose links still have to be connected. */
struct spr_transport *wire_open(struct wire *w, const struct spr_transport_params *params);
static inline struct wire_link *wire_link(struct wire *w, int at, int peer)
{
    return &w->ends[at].links[peer];
}

/* The oldest frame that `from` queued leaves for `to`. False: there is none. */
bool wire_transmit(struct wire *w, int from, int to);
/* Add a frame behind those on their way from one rank to another; data is copied, which may be more
 * or less than the header says. */
void wire_inject(struct wire *w, int from, int to, const struct spr_frame *f, const void *data,
                 size_t bytes);
/* The last frame that is on its way and has not begun to arrive; NULL: none. */
struct wire_packet *wire_last(struct wire *w, int from, int to);
/* It vanishes. */
void wire_drop(struct wire *w, int from, int to, struct wire_packet *packet);
/* The connection between two ranks ends, for both, after what is on its way. */
void wire_cut(struct wire *w, int a, int b);
/* From now on nothing is written into places over the connection of two ranks. */
void wire_distrust(struct wire *w, int a, int b);
/* Nothing is queued, on its way, or to be reported at any end. */
bool wire_quiet(const struct wire *w);

#endif
