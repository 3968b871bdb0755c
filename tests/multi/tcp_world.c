/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/tcp_world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "transport/lanes/lanes.h"

const struct variant epoll4 = {
    {&spr_transport_epoll, &spr_transport_epoll}, "127.0.0.1", true, 0, 0, 0};
const struct variant epoll6 = {{&spr_transport_epoll, &spr_transport_epoll}, "::1", true, 0, 0, 0};
const struct variant three_lanes = {
    {&spr_lanes_epoll, &spr_lanes_epoll}, "127.0.0.1", true, 0, 0, 3};
const struct variant one_lane = {
    {&spr_lanes_epoll, &spr_transport_epoll}, "127.0.0.1", true, 0, 0, 4};
#ifdef HAVE_URING
const struct variant uring_lanes = {
    {&spr_lanes_uring, &spr_lanes_uring}, "127.0.0.1", true, 0, 0, 2};
const struct variant mixed_lanes = {
    {&spr_lanes_uring, &spr_lanes_epoll}, "127.0.0.1", true, 0, 0, 4};
const struct variant uring4 = {
    {&spr_transport_uring, &spr_transport_uring}, "127.0.0.1", true, 0, 0, 0};
const struct variant uring6 = {{&spr_transport_uring, &spr_transport_uring}, "::1", true, 0, 0, 0};
const struct variant threads = {
    {&spr_transport_uring, &spr_transport_uring}, "127.0.0.1", false, 0, 0, 0};
const struct variant mixed = {
    {&spr_transport_uring, &spr_transport_epoll}, "127.0.0.1", true, 0, 0, 0};
#endif
#ifdef HAVE_VERBS
const struct variant verbs = {
    {&spr_transport_verbs, &spr_transport_verbs}, "127.0.0.1", true, 0, 0, 0};
#endif

void choose_variants(void)
{
    const char *only = getenv("SPARRING_TEST_TRANSPORTS");
    bool alone = only && !strcmp(only, "verbs");
    bool missing = access("/sys/class/infiniband_verbs/uverbs0", F_OK);

    if (alone && missing) {
        fprintf(stderr, "without verbs: no RDMA device\n");
        exit(77);
    }
    if (alone)
        cmocka_set_test_filter("*on verbs");
    if (missing)
        cmocka_set_skip_filter("*on verbs");
}

uint64_t test_seed(void)
{
    uint64_t seed = spr_rng_test_seed();

    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

int limit_time(void **state)
{
    (void)state;
    alarm((unsigned)(LIMIT_S * spr_time_factor()));
    return 0;
}

uint32_t scaled_frames(uint32_t frames)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");

    return scale && strtod(scale, NULL) < 1 ? frames / 8 : frames;
}

double now_s(void) { return (double)spr_monotonic_ns() * 1e-9; }

struct node *open_nodes(const struct variant *v, int size, uint32_t frames)
{
    struct node *n = spr_calloc((size_t)size, sizeof *n);
    uint64_t seed = test_seed();

    for (int i = 0; i < size; i++) {
        node_init(&n[i], i, size, seed, v->address);
        n[i].params.one_thread = v->one_thread;
        n[i].frames = frames;
        n[i].options.verbs_rails = v->rails ? v->rails : 1;
        n[i].options.verbs_qps = v->qps ? v->qps : 1;
        n[i].options.sockets = v->sockets ? v->sockets : 1;
        if (node_open(&n[i], v->ops[i % 2]) == SPR_ERR_UNSUPPORTED) {
            print_message("%s\n", n[i].error.text);
            skip();
        }
    }
    return n;
}

void connect_nodes(struct node *n, int size)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            if (i != j)
                node_connect(&n[i], j, &n[j].info);
}

/* Until one of them has something to do. */
static void sleep_all(struct node *n, int size, int ms)
{
    struct pollfd fds[NODE_PEERS];
    int armed = 0;

    for (int i = 0; i < size; i++) {
        fds[i] = (struct pollfd){.fd = n[i].t->ops->fd(n[i].t), .events = POLLIN};
        armed += n[i].t->ops->arm(n[i].t) == SPR_OK;
    }
    if (armed == size)
        (void)poll(fds, (nfds_t)size, ms);
}

void run_nodes(struct node *n, int size, bool (*done)(const struct node *n))
{
    for (;;) {
        int steps = 0;
        bool all = true;
        for (int i = 0; i < size; i++) {
            steps += node_step(&n[i]);
            all &= done(&n[i]);
        }
        if (all)
            return;
        if (steps == 0)
            sleep_all(n, size, 1);
    }
}

void close_nodes(struct node *n, int size)
{
    for (int i = 0; i < size; i++)
        node_close(&n[i]);
    spr_free(n);
}
