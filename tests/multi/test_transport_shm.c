/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport: ranks of one process, driven round-robin by one thread.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/multi/shm_node.h"
#include "transport/shm/private.h"

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

/* ---- Slots ---- */

static bool rank_1_holds_three(void *ctx)
{
    (void)ctx;
    return nodes[1].held_count == 3 && nodes[2].peers[0].received == 20;
}

static bool ten_came(void *ctx)
{
    (void)ctx;
    return nodes[1].peers[0].received == 10 && nodes[0].peers[1].sent == 10;
}

static bool all_came(void *ctx)
{
    (void)ctx;
    node_release_all(&nodes[1]);
    return ten_came(ctx);
}

/* Rank 1 keeps what it gets; rank 2 still has the slot of its share. */
static void a_full_pool_stops_nobody_else_and_recovers(void **state)
{
    (void)state;
    node_slots = 2;
    for (int i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3, seed);
        nodes[i].min_bytes = SPR_SHM_SMALL_BYTES + 1; /* large slots only */
        nodes[i].sinks = 1 << (int)(i == 1 ? SPR_SINK_BORROW : SPR_SINK_INTO);
    }
    node_slots = 24;
    node_mesh(nodes, 3);
    for (int i = 0; i < 10; i++)
        assert_true(node_send_next(&nodes[0], 1));
    for (int i = 0; i < 20; i++)
        assert_true(node_send_next(&nodes[0], 2));
    assert_true(node_drive_until(nodes, 3, rank_1_holds_three, NULL));
    assert_int_equal(nodes[1].peers[0].received, 3); /* two shared ones and its own */
    assert_false(nodes[0].t->ops->idle(nodes[0].t));
    assert_true(node_drive_until(nodes, 3, all_came, NULL));
    assert_true(nodes[0].t->ops->idle(nodes[0].t));
    expect_clean(3);
    close_mesh(3);
}

static void exchange_lent(size_t min_bytes, size_t max_bytes, int held)
{
    for (int i = 0; i < 2; i++) {
        node_open(&nodes[i], i, 2, seed);
        nodes[i].min_bytes = min_bytes;
        nodes[i].max_bytes = max_bytes;
        nodes[i].sinks = 1 << SPR_SINK_INTO;
        nodes[i].lend = true;
    }
    node_mesh(nodes, 2);
    for (int i = 0; i < 10; i++)
        assert_true(node_send_next(&nodes[0], 1));
    assert_true(node_drive_until(nodes, 2, ten_came, NULL));
    assert_int_equal(nodes[1].held_count, held);
    for (int i = 0; i < held; i++)
        assert_ptr_not_equal(nodes[1].held[i].data, nodes[1].into);
    node_release_all(&nodes[1]);
    run_traffic(2, 3000); /* more than there are slots: they come back */
    expect_clean(2);
    close_mesh(2);
}

/* No copy is made of what lies in a slot; an inline payload, whose place is used again, is copied
 * where it was wanted, which takes no memory. */
static void a_receive_is_lent_what_lies_in_a_slot(void **state)
{
    (void)state;
    exchange_lent(SPR_SHM_INLINE + 1, 4096, 10);
    exchange_lent(1, SPR_SHM_INLINE, 0);
}

/* Small frames, slots used again at once: what was never needed is never touched. */
static void memory_is_touched_only_when_used(void **state)
{
    struct stat st;

    (void)state;
    for (int i = 0; i < 2; i++) {
        node_open(&nodes[i], i, 2, seed);
        nodes[i].max_bytes = 4096;
    }
    node_mesh(nodes, 2);
    run_traffic(2, 3000);
    assert_int_equal(fstat(spr_shm_of(nodes[0].t)->own.fd, &st), 0);
    print_message("%lld KiB of %lld in use\n", (long long)st.st_blocks / 2,
                  (long long)st.st_size / 1024);
    assert_in_range(st.st_blocks * 512, 1, 2 << 20);
    assert_true(st.st_size > 8 << 20);
    close_mesh(2);
}

/* ---- Sleep ---- */

static bool readable(const struct node *n)
{
    struct pollfd p = {.fd = n->t->ops->fd(n->t), .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void settle(void)
{
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 2; k++)
            nodes[k].t->ops->progress(nodes[k].t);
}

static void a_frame_wakes_before_and_after_arm(void **state)
{
    struct spr_transport *t;

    (void)state;
    open_mesh(2);
    t = nodes[1].t;
    for (int i = 0; i < 100; i++) {
        settle();
        node_send_next(&nodes[0], 1); /* between progress() and arm() */
        assert_int_equal(t->ops->arm(t), SPR_IN_PROGRESS);
        settle();
        assert_int_equal(t->ops->arm(t), SPR_OK);
        assert_int_equal(t->ops->arm(t), SPR_OK);
        assert_false(readable(&nodes[1]));
        node_send_next(&nodes[0], 1);
        assert_true(readable(&nodes[1]));
        assert_int_equal(t->ops->arm(t), SPR_IN_PROGRESS);
        settle();
        assert_int_equal(nodes[1].peers[0].received, 2 * i + 2);
        node_release_all(&nodes[1]);
    }
    close_mesh(2);
}

/* Who waits for a slot is woken by its release, and only who waits. */
static void a_release_wakes_before_and_after_arm(void **state)
{
    struct spr_transport *t;

    (void)state;
    node_slots = 2;
    for (int i = 0; i < 2; i++) {
        node_open(&nodes[i], i, 2, seed);
        nodes[i].min_bytes = SPR_SHM_SMALL_BYTES + 1;
        nodes[i].sinks = 1 << SPR_SINK_BORROW;
    }
    node_slots = 24;
    node_mesh(nodes, 2);
    t = nodes[0].t;
    for (int i = 0; i < 8; i++) /* three slots */
        node_send_next(&nodes[0], 1);
    settle();
    assert_int_equal(nodes[1].held_count, 3);
    node_release_one(&nodes[1]);
    assert_int_equal(t->ops->arm(t), SPR_IN_PROGRESS);
    settle();
    assert_int_equal(t->ops->arm(t), SPR_OK);
    assert_false(readable(&nodes[0]));
    node_release_one(&nodes[1]);
    assert_true(readable(&nodes[0]));
    settle();
    node_release_all(&nodes[1]);
    settle();
    assert_int_equal(nodes[1].peers[0].received, 8);
    assert_true(t->ops->idle(t));
    assert_int_equal(t->ops->arm(t), SPR_OK);
    node_release_all(&nodes[1]); /* nobody waits for these */
    assert_false(readable(&nodes[0]));
    expect_clean(2);
    close_mesh(2);
}

static void the_end_of_a_peer_wakes(void **state)
{
    (void)state;
    open_mesh(2);
    settle();
    assert_int_equal(nodes[1].t->ops->arm(nodes[1].t), SPR_OK);
    nodes[0].t->ops->kill(nodes[0].peers[1].link);
    assert_true(readable(&nodes[1]));
    settle();
    assert_true(nodes[1].peers[0].down);
    assert_int_equal(nodes[1].t->ops->arm(nodes[1].t), SPR_OK);
    assert_false(readable(&nodes[1]));
    close_mesh(2);
}

/* ---- The end of links ---- */

static bool rank_1_is_down(void *ctx)
{
    (void)ctx;
    return nodes[1].peers[0].down;
}

static void frames_sent_before_the_end_still_arrive(void **state)
{
    (void)state;
    open_mesh(2);
    nodes[1].sinks = 1 << SPR_SINK_BORROW;
    for (int i = 0; i < 20; i++)
        node_send_next(&nodes[0], 1);
    nodes[0].t->ops->progress(nodes[0].t);
    assert_true(nodes[0].t->ops->idle(nodes[0].t));
    nodes[0].t->ops->close(nodes[0].t);
    nodes[0].t = NULL;
    assert_true(node_drive_until(nodes, 2, rank_1_is_down, NULL));
    assert_int_equal(nodes[1].peers[0].received, 20);
    assert_int_equal(nodes[1].peers[0].why, SPR_ERR_RANK_LOST);
    node_release_all(&nodes[1]); /* the bytes are still there */
    assert_int_equal(nodes[1].errors, 0);
    close_mesh(2);
}

static bool all_returned(void *ctx)
{
    (void)ctx;
    return nodes[0].peers[1].sent == nodes[0].peers[1].posted && nodes[1].peers[0].down;
}

/* To the peer, what was queued is missing: an end of file alone would be proof of death. */
static void a_killed_link_returns_its_frames_without_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        node_open(&nodes[i], i, 2, seed);
        nodes[i].min_bytes = SPR_SHM_SMALL_BYTES + 1; /* of 64, slots for 24 */
    }
    node_mesh(nodes, 2);
    nodes[1].sinks = 1 << SPR_SINK_BORROW;
    for (int i = 0; i < NODE_TX; i++)
        node_send_next(&nodes[0], 1);
    nodes[0].t->ops->kill(nodes[0].peers[1].link);
    nodes[0].t->ops->kill(nodes[0].peers[1].link);
    assert_true(node_drive_until(nodes, 2, all_returned, NULL));
    assert_false(nodes[0].peers[1].down);
    assert_int_equal(nodes[0].peers[1].failed + nodes[1].peers[0].received, NODE_TX);
    assert_true(nodes[0].peers[1].failed > 0);
    print_message("the peer saw: %s\n", nodes[1].peers[0].text);
    assert_int_equal(nodes[1].peers[0].why, SPR_ERR_LINK);
    node_release_all(&nodes[1]);
    assert_int_equal(nodes[0].errors + nodes[1].errors, 0);
    node_send_next(&nodes[0], 1);
    assert_true(node_drive_until(nodes, 2, all_returned, NULL));
    assert_int_equal(nodes[0].peers[1].failed + nodes[1].peers[0].received, NODE_TX + 1);
    close_mesh(2);
}

/* A data loader has the socket of the link as well. */
static void a_link_ends_while_a_forked_child_lives(void **state)
{
    pid_t child;

    (void)state;
    open_mesh(2);
    child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    assert_true(child > 0);
    nodes[0].t->ops->kill(nodes[0].peers[1].link);
    assert_true(node_drive_until(nodes, 2, rank_1_is_down, NULL));
    assert_int_equal(nodes[1].peers[0].why, SPR_ERR_RANK_LOST);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close_mesh(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(two_ranks_exchange_random_frames),
        NODE_TEST(five_ranks_exchange_random_frames),
        NODE_TEST(a_full_pool_stops_nobody_else_and_recovers),
        NODE_TEST(a_receive_is_lent_what_lies_in_a_slot),
        NODE_TEST(memory_is_touched_only_when_used),
        NODE_TEST(a_frame_wakes_before_and_after_arm),
        NODE_TEST(a_release_wakes_before_and_after_arm),
        NODE_TEST(the_end_of_a_peer_wakes),
        NODE_TEST(frames_sent_before_the_end_still_arrive),
        NODE_TEST(a_killed_link_returns_its_frames_without_down),
        NODE_TEST(a_link_ends_while_a_forked_child_lives),
    };

    seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("transport/shm", tests, NULL, NULL);
}
