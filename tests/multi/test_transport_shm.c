/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport: ranks of one process, driven round-robin by one thread.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/multi/shm_node.h"
#include "transport/shm/private.h"
#include "transport/shm/socket.h"

static struct node nodes[NODE_MAX];
static uint64_t seed;

static void open_mesh(int size)
{
    for (int i = 0; i < size; i++)
        node_open(&nodes[i], i, size, seed);
    node_mesh(nodes, size);
}

static void close_mesh(int size)
{
    for (int i = 0; i < size; i++)
        node_close(&nodes[i]);
}

static void expect_clean(int size)
{
    for (int i = 0; i < size; i++) {
        assert_int_equal(nodes[i].errors, 0);
        for (int j = 0; j < size; j++)
            assert_false(nodes[i].peers[j].down);
    }
}

/* Random frames on all links until each has taken `frames`. */
static void run_traffic(int size, uint32_t frames)
{
    uint64_t end = spr_monotonic_ns() + (uint64_t)(60e9 * spr_time_factor());
    bool all;

    do {
        all = true;
        for (int i = 0; i < size; i++) {
            struct node *n = &nodes[i];

            for (int j = 0; j < size; j++) {
                if (i == j)
                    continue;
                if (n->peers[j].posted < frames && spr_rng_below(&n->rng, 2))
                    node_send_next(n, j);
                all = all && n->peers[j].received == frames && n->peers[j].sent == frames;
            }
            n->t->ops->progress(n->t);
            if (spr_rng_below(&n->rng, 8) == 0)
                node_release_one(n);
            if (spr_rng_below(&n->rng, 64) == 0)
                node_release_all(n);
        }
        assert_true(spr_monotonic_ns() < end);
    } while (!all);
}

static void expect_counters(int size, uint32_t frames)
{
    for (int i = 0; i < size; i++) {
        uint64_t sent = 0, received = 0, links = (uint64_t)size - 1;

        for (int j = 0; j < size; j++)
            for (uint32_t k = 0; j != i && k < frames; k++) {
                sent += 64 + node_frame_bytes(&nodes[i], i, j, k);
                received += 64 + node_frame_bytes(&nodes[i], j, i, k);
            }
        assert_int_equal(nodes[i].counters.sent_frames, links * frames);
        assert_int_equal(nodes[i].counters.received_frames, links * frames);
        assert_int_equal(nodes[i].counters.sent_bytes, sent);
        assert_int_equal(nodes[i].counters.received_bytes, received);
    }
}

static void two_ranks_exchange_random_frames(void **state)
{
    (void)state;
    open_mesh(2);
    run_traffic(2, 5000);
    expect_clean(2);
    expect_counters(2, 5000);
    assert_true(nodes[0].held_max > 8);
    for (int i = 0; i < 2; i++) {
        node_release_all(&nodes[i]);
        assert_true(nodes[i].t->ops->idle(nodes[i].t));
    }
    close_mesh(2);
}

static void five_ranks_exchange_random_frames(void **state)
{
    (void)state;
    open_mesh(5);
    run_traffic(5, 700);
    expect_clean(5);
    expect_counters(5, 700);
    close_mesh(5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_exchange_random_frames),
        cmocka_unit_test(five_ranks_exchange_random_frames),
    };

    seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("transport/shm", tests, NULL, NULL);
}
