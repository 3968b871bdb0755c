/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Links that a fuzz target drives: every frame leaves, arrives, and is reported as sent when the
 * target says so, and may be changed on its way. Time is virtual.
 */
#ifndef TESTS_FUZZ_WIRE_H
#define TESTS_FUZZ_WIRE_H

#include "transport/transport.h"

#define WIRE_RANKS 3

/* A frame between two ranks. */
struct wire_packet {
    struct wire_packet *next;
    struct spr_frame header;
    uint8_t *data;    /* header.bytes when it was queued; `bytes` are there */
    size_t bytes;     /* of data: a header may lie */
    bool header_done; /* the upcall; the payload comes next */
    uint8_t *into;    /* where the receiver wants it */
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
};

struct wire_end {
    struct spr_transport base;
    struct wire *wire;
    struct wire_link links[WIRE_RANKS];
};

struct wire {
    struct spr_virtual_clock time;
    struct spr_clock clock;
    struct wire_end ends[WIRE_RANKS];
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
/* Add a frame behind those on their way from one rank to another; data is copied. */
void wire_inject(struct wire *w, int from, int to, const struct spr_frame *f, const void *data);
/* The last frame that is on its way and has not begun to arrive; NULL: none. */
struct wire_packet *wire_last(struct wire *w, int from, int to);
/* It vanishes. */
void wire_drop(struct wire *w, int from, int to, struct wire_packet *packet);
/* The connection between two ranks ends, for both, after what is on its way. */
void wire_cut(struct wire *w, int a, int b);
/* Nothing is queued, on its way, or to be reported at any end. */
bool wire_quiet(const struct wire *w);

#endif
