/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a TCP test is run on, and nodes of one process.
 */
#ifndef TESTS_MULTI_TCP_WORLD_H
#define TESTS_MULTI_TCP_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/multi/tcp_node.h"

#define LIMIT_S 90

struct variant {
    const struct spr_transport_ops *ops[2]; /* of even and odd ranks */
    const char *address;
    bool one_thread;
    int rails, qps; /* verbs: devices, queue pairs on each; 0: the default */
    int sockets;    /* lanes; 0: the default */
};

extern const struct variant epoll4, epoll6, uring4, uring6, threads, mixed, verbs;
/* Over several connections, and at one end only. */
extern const struct variant three_lanes, one_lane, uring_lanes, mixed_lanes;

/* One test on one variant. */
#define ON(test, variant)                                                                          \
    {                                                                                              \
#test " on " #variant, test, limit_time, NULL, (void *)(uintptr_t)&variant                 \
    }

/* ... and on both twins, and verbs, which has the same sockets. */
#ifdef HAVE_VERBS
#define ON_ALL(test) ON(test, epoll4), ON_URING(test), ON(test, verbs)
#else
#define ON_ALL(test) ON(test, epoll4), ON_URING(test)
#endif
#ifdef HAVE_URING
#define ON_LANES(test) ON(test, three_lanes), ON(test, uring_lanes)
#else
#define ON_LANES(test) ON(test, three_lanes)
#endif
#ifdef HAVE_URING
#define ON_URING(test) ON(test, uring4)
#else
#define ON_URING(test) ON(test, epoll6)
#endif

uint64_t test_seed(void); /* printed */
int limit_time(void **state);
/* Fewer under sanitizers (SPARRING_TEST_SCALE below 1). */
uint32_t scaled_frames(uint32_t frames);
double now_s(void);

/* Leaves out the tests on verbs where there is no RDMA device; SPARRING_TEST_TRANSPORTS=verbs
 * leaves all others out: without a device the program ends as skipped. */
void choose_variants(void);
/* Skips the test where io_uring is refused. */
struct node *open_nodes(const struct variant *v, int size, uint32_t frames);
void connect_nodes(struct node *n, int size);
/* Until `done` says so of all nodes; sleeps when none has anything to do. */
void run_nodes(struct node *n, int size, bool (*done)(const struct node *n));
void close_nodes(struct node *n, int size);

#endif
