/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A rank of the shared-memory transport, for tests: it sends frames whose length and bytes follow
 * from (seed, from, to, number), and checks that what arrives is just that, in order.
 */
#ifndef TESTS_MULTI_SHM_NODE_H
#define TESTS_MULTI_SHM_NODE_H

#include "base/rng.h"
#include "transport/transport.h"

#define NODE_MAX 8
#define NODE_HELD 128 /* borrowed payloads kept at a time, over all links */
#define NODE_TX 64    /* frames under way per link */

struct node_held {
    struct spr_link *link;
    const unsigned char *data;
    void *token;
    uint64_t key;
    size_t bytes;
};

struct node_peer {
    struct node *node;
    struct spr_link *link;
    bool up, down;
    spr_status why;
    char text[160];
    uint32_t received;     /* frames, complete */
    uint32_t posted, sent; /* frames */
    uint32_t failed;       /* frames that came back failed */
    struct spr_tx tx[NODE_TX];
    unsigned char *payload[NODE_TX];
};

struct node {
    struct spr_transport *t;
    struct spr_options options;
    struct spr_auth_key key;
    struct spr_counters counters;
    struct spr_peer_info info;
    int rank, size;
    uint64_t seed;
    struct spr_rng rng;
    int sinks;                   /* which of the three sinks are used; bit 1 << SPR_SINK_... */
    bool lend;                   /* into memory of its own, unless the transport lends it */
    size_t min_bytes, max_bytes; /* of frames that are sent; 0 = all lengths. Equal on all ranks */
    uint32_t errors;             /* frames that were not as expected */
    struct node_held held[NODE_HELD];
    int held_count, held_max;
    unsigned char *into;
    struct node_peer peers[NODE_MAX];
};

/* The clock of nodes that are opened from now on. */
extern const struct spr_clock *node_clock;
/* Slots of nodes that are opened from now on. */
extern size_t node_slots;

void node_open(struct node *n, int rank, int size, uint64_t seed);
/* The same with another secret. */
void node_open_secret(struct node *n, int rank, int size, uint64_t seed, const char *secret);
void node_connect(struct node *n, int peer, const struct spr_peer_info *info);
/* Nodes 0 .. size - 1 in this thread: connect all pairs and drive until they are up. */
void node_mesh(struct node *nodes, int size);
void node_close(struct node *n);

size_t node_frame_bytes(const struct node *n, int from, int to, uint32_t number);
/* Queue the next frame to a peer. False: NODE_TX are under way, or the link is down. */
bool node_send_next(struct node *n, int peer);
/* Release one borrowed payload, drawn by chance, after looking at its bytes again. */
void node_release_one(struct node *n);
void node_release_all(struct node *n);
/* progress() until the condition or the time limit; false at the limit. */
bool node_drive_until(struct node *nodes, int count, bool (*done)(void *ctx), void *ctx);

/* Nothing stays behind: descriptors and mappings of this process, names in /dev/shm. */
int node_count_before(void **state);
int node_count_after(void **state);
#define NODE_TEST(name) cmocka_unit_test_setup_teardown(name, node_count_before, node_count_after)

#endif
