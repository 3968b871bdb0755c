/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Node: one end of the TCP transport tests. It sends a stream of frames to each peer whose sizes
 * and bytes are a function of (seed, sender, receiver, number), and checks what arrives: order,
 * bytes, and that every frame that was sent comes back once. Sinks are chosen by chance; borrowed
 * payloads are released later, in another order.
 */
#ifndef TESTS_MULTI_TCP_NODE_H
#define TESTS_MULTI_TCP_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "transport/transport.h"

#define NODE_PEERS 8
#define NODE_WINDOW 8    /* frames under way to one peer */
#define NODE_BORROWED 24 /* payloads not given back, all peers */
#define NODE_MOST_BYTES SPR_FRAME_MAX_PAYLOAD

struct node;

struct node_peer {
    struct node *node;
    struct spr_link *link;
    int rank;
    bool up, down;
    spr_status why;
    char text[200];
    uint32_t sent, came_back, failed; /* frames handed over; sent() */
    uint32_t received;
    enum spr_sink sink; /* of the frame that is arriving */
    void *into;
    struct spr_tx tx[NODE_WINDOW];
    bool busy[NODE_WINDOW];
    uint8_t *data[NODE_WINDOW];
};

struct node {
    struct spr_transport *t;
    struct spr_transport_params params;
    struct spr_options options;
    struct spr_auth_key key;
    struct spr_counters counters;
    struct spr_trace trace;
    struct spr_error error;
    struct spr_peer_info info;
    struct node_peer peers[NODE_PEERS];
    uint64_t seed;
    struct spr_rng rng;
    uint32_t frames; /* to send to each peer */
    int in_progress; /* upcalls outside progress() are an error */
    struct {
        struct node_peer *peer;
        void *token;
        const uint8_t *data;
        uint32_t number, bytes;
    } borrowed[NODE_BORROWED + NODE_PEERS]; /* those that are arriving, too */
    int borrowed_count;
    /* A test's own reaction, called at the end of payload(); NULL: none. */
    void (*on_payload)(struct node_peer *p);
};

/* SPR_T_... of these operations. */
int node_kind(const struct spr_transport_ops *ops);
/* Fill in what a transport needs; `interface_name` "" chooses. */
void node_init(struct node *n, int rank, int size, uint64_t seed, const char *interface_name);
/* node_init() and ops->open(); failure fails the test unless `may_fail`. */
spr_status node_open(struct node *n, const struct spr_transport_ops *ops);
void node_connect(struct node *n, int peer, const struct spr_peer_info *info);
/* Queue what fits into the windows. */
void node_feed(struct node *n);
/* The same, then make progress, give some borrowed payloads back. */
int node_step(struct node *n);
bool node_all_up(const struct node *n);
/* All frames sent and returned, and as many received from every peer. */
bool node_finished(const struct node *n);
void node_close(struct node *n);
/* Sleep until the transport may have something to do. */
void node_sleep(struct node *n, int ms);
/* Size of the number-th frame. */
uint32_t node_frame_bytes(uint64_t seed, int from, int to, uint32_t number);

#endif
