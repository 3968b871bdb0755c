/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the simulated network charges: frames of 8000 bits with their header, ports of 1 Gbit/s, so
 * that a frame takes 8 us, and 10 us of latency.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/counters.h"
#include "base/error.h"
#include "transport/sim/sim.h"

#define RANKS 8
#define FRAME_BYTES 1000
#define FRAME_NS 8000u
#define LATENCY_NS 10000u

struct net {
    struct spr_sim *sim;
    struct spr_transport *transports[RANKS];
    struct spr_link *links[RANKS][RANKS];
    struct spr_counters counters[RANKS];
    struct spr_tx tx[16];
    int sent;
    uint64_t last_ns[RANKS]; /* when the last frame came; 0: none */
    int came, left, failed;  /* frames; of those that left, so many as failed */
    bool borrow;
    void *borrowed; /* the last frame's */
};

static struct net *net_of(struct spr_link *link) { return link->transport->params.up; }

static void on_up(struct spr_link *link) { (void)link; }

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    (void)f;
    rx->sink = net_of(link)->borrow ? SPR_SINK_BORROW : SPR_SINK_DROP;
    return SPR_OK;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    struct net *n = net_of(link);

    (void)f;
    (void)data;
    n->came++;
    n->borrowed = token;
    n->last_ns[link->transport->params.rank] = spr_now_ns(spr_sim_clock(n->sim));
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    net_of(link)->left++;
    net_of(link)->failed += tx->failed;
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    (void)link;
    (void)why;
    (void)text;
}

static const struct spr_link_events events = {on_up, on_header, on_payload, on_sent, on_down};

static void run(struct net *n)
{
    do
        for (int r = spr_sim_next_with_work(n->sim, 0); r >= 0;
             r = spr_sim_next_with_work(n->sim, r + 1))
            n->transports[r]->ops->progress(n->transports[r]);
    while (spr_sim_advance(n->sim));
}

static void open_net(struct net *n, struct spr_sim_options options)
{
    struct spr_error error = {0};

    *n = (struct net){0};
    options.ranks = RANKS;
    options.latency_s = LATENCY_NS * 1e-9;
    options.bandwidth = 1e9;
    n->sim = spr_sim_create(&options);
    for (int r = 0; r < RANKS; r++) {
        struct spr_transport_params params = {.rank = r,
                                              .size = RANKS,
                                              .events = &events,
                                              .up = n,
                                              .clock = spr_sim_clock(n->sim),
                                              .counters = &n->counters[r]};
        struct spr_transport **t = &n->transports[r];
        assert_int_equal(spr_sim_open(n->sim, &params, t), SPR_OK);
        for (int peer = 0; peer < RANKS; peer++)
            if (peer != r)
                assert_int_equal((*t)->ops->connect(*t, peer, NULL, &n->links[r][peer], &error),
                                 SPR_OK);
    }
    for (int r = 0; r < RANKS; r++) /* links come up */
        n->transports[r]->ops->progress(n->transports[r]);
}

static void close_net(struct net *n)
{
    for (int r = 0; r < RANKS; r++)
        n->transports[r]->ops->close(n->transports[r]);
    spr_sim_destroy(n->sim);
}

static void send_bytes(struct net *n, int from, int to, uint32_t bytes)
{
    static const char data[FRAME_BYTES];
    struct spr_tx *tx = &n->tx[n->sent++];

    *tx = (struct spr_tx){.header = {.bytes = bytes}, .data = data};
    n->transports[from]->ops->send(n->links[from][to], tx);
}

static void send_frame(struct net *n, int from, int to)
{
    send_bytes(n, from, to, FRAME_BYTES - SPR_FRAME_BYTES);
}

static void a_rank_of_its_own_host_has_its_own_port(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.seed = 1});
    send_frame(&n, 0, 2);
    send_frame(&n, 1, 3);
    run(&n);
    assert_int_equal(n.last_ns[2], FRAME_NS + LATENCY_NS);
    assert_int_equal(n.last_ns[3], FRAME_NS + LATENCY_NS);
    assert_int_equal(spr_sim_count(n.sim, SPR_SIM_HOSTS), RANKS);
    close_net(&n);
}

/* So many frames have left it, and have come. */
static void assert_traffic(const struct net *n, enum spr_sim_level level, int i, uint64_t sent,
                           uint64_t received)
{
    struct spr_sim_traffic t = spr_sim_traffic(n->sim, level, i);

    assert_int_equal(t.sent_frames, sent);
    assert_int_equal(t.sent_bytes, sent * FRAME_BYTES);
    assert_int_equal(t.received_bytes, received * FRAME_BYTES);
}

static void ranks_of_a_host_share_its_port_in_both_directions(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.ranks_per_host = 2});
    assert_int_equal(spr_sim_count(n.sim, SPR_SIM_HOSTS), RANKS / 2);
    send_frame(&n, 0, 2);
    send_frame(&n, 1, 4); /* behind it */
    run(&n);
    assert_int_equal(n.last_ns[2], FRAME_NS + LATENCY_NS);
    assert_int_equal(n.last_ns[4], 2 * FRAME_NS + LATENCY_NS);
    close_net(&n);

    open_net(&n, (struct spr_sim_options){.ranks_per_host = 2});
    send_frame(&n, 2, 0);
    send_frame(&n, 4, 1); /* comes to the same port */
    run(&n);
    assert_int_equal(n.last_ns[0], FRAME_NS + LATENCY_NS);
    assert_int_equal(n.last_ns[1], 2 * FRAME_NS + LATENCY_NS);
    close_net(&n);
}

static void frames_inside_a_host_take_no_part_of_its_port(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){
                     .ranks_per_host = 4, .local_latency_s = 1e-6, .local_bandwidth = 8e9});
    send_frame(&n, 0, 1);
    send_frame(&n, 2, 3); /* has memory of its own */
    send_frame(&n, 0, 4);
    run(&n);
    assert_int_equal(n.last_ns[1], FRAME_NS / 8 + 1000);
    assert_int_equal(n.last_ns[3], FRAME_NS / 8 + 1000);
    assert_int_equal(n.last_ns[4], FRAME_NS + LATENCY_NS);
    assert_traffic(&n, SPR_SIM_RANKS, 0, 2, 0);
    assert_traffic(&n, SPR_SIM_RANKS, 1, 0, 1);
    assert_traffic(&n, SPR_SIM_HOSTS, 0, 1, 0);
    assert_traffic(&n, SPR_SIM_HOSTS, 1, 0, 1);
    assert_int_equal(spr_sim_count(n.sim, SPR_SIM_RACKS), 0);
    close_net(&n);
}

static void a_frame_passes_uplinks_as_it_comes_in(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.hosts_per_rack = 4, .rack_latency_s = 5e-6});
    send_frame(&n, 0, 1); /* in the rack */
    send_frame(&n, 2, 4);
    run(&n);
    assert_int_equal(n.last_ns[1], FRAME_NS + LATENCY_NS);
    assert_int_equal(n.last_ns[4], FRAME_NS + LATENCY_NS + 5000);
    assert_int_equal(spr_sim_count(n.sim, SPR_SIM_RACKS), RANKS / 4);
    assert_traffic(&n, SPR_SIM_HOSTS, 0, 1, 0);
    assert_traffic(&n, SPR_SIM_RACKS, 0, 1, 0);
    assert_traffic(&n, SPR_SIM_RACKS, 1, 0, 1);
    close_net(&n);
}

static void hosts_of_a_rack_share_its_uplink(void **state)
{
    /* 4 ports of 1 Gbit/s behind one uplink of 1 Gbit/s. */
    const struct spr_sim_options options = {.hosts_per_rack = 4, .oversubscription = 4};
    struct net n;

    (void)state;
    open_net(&n, options);
    for (int r = 0; r < 4; r++)
        send_frame(&n, r, 4 + r);
    send_frame(&n, 7, 3); /* the other way, which is free */
    run(&n);
    for (int r = 0; r < 4; r++)
        assert_int_equal(n.last_ns[4 + r], (uint64_t)(r + 1) * FRAME_NS + LATENCY_NS);
    assert_int_equal(n.last_ns[3], FRAME_NS + LATENCY_NS);
    close_net(&n);
}

static void hosts_of_a_rack_do_not_wait_for_an_uplink_that_is_fast_enough(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.hosts_per_rack = 4});
    for (int r = 0; r < 4; r++)
        send_frame(&n, r, 4 + r);
    run(&n);
    for (int r = 0; r < 4; r++)
        assert_int_equal(n.last_ns[4 + r], FRAME_NS + LATENCY_NS);
    close_net(&n);
}

static void an_uplink_that_is_slower_than_a_port_slows_a_frame_down(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.hosts_per_rack = 4, .oversubscription = 8});
    send_frame(&n, 0, 4);
    run(&n);
    /* Half a port's rate on the uplinks; through the last port as it comes. */
    assert_int_equal(n.last_ns[4], 2 * FRAME_NS + LATENCY_NS);
    close_net(&n);
}

/* What comes late does not hold up what comes to the same port before it. */
static void a_port_takes_in_what_fits_before_a_later_frame(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.hosts_per_rack = 4, .rack_latency_s = 1e-3});
    send_frame(&n, 4, 0);
    send_frame(&n, 1, 0);
    send_frame(&n, 2, 0);
    run(&n);
    assert_int_equal(n.last_ns[0], FRAME_NS + LATENCY_NS + 1000000);
    close_net(&n);

    open_net(&n, (struct spr_sim_options){.hosts_per_rack = 4, .rack_latency_s = 1e-3});
    send_frame(&n, 4, 0);
    send_frame(&n, 1, 0);
    assert_true(spr_sim_advance(n.sim)); /* first a frame has left, then one has come */
    while (n.last_ns[0] == 0) {
        for (int r = 0; r < RANKS; r++)
            n.transports[r]->ops->progress(n.transports[r]);
        spr_sim_advance(n.sim);
    }
    assert_int_equal(n.last_ns[0], FRAME_NS + LATENCY_NS);
    run(&n);
    close_net(&n);
}

static void release(struct net *n, int from, int to)
{
    n->transports[to]->ops->release(n->links[to][from], n->borrowed);
}

static void a_frame_waits_for_a_slot_of_its_size_and_all_behind_it(void **state)
{
    const struct spr_sim_options options = {.slots = {0, 1}, .small_bytes = 100};
    struct net n;

    (void)state;
    open_net(&n, options);
    n.borrow = true;
    send_bytes(&n, 0, 1, 100); /* there is room for any number of these */
    run(&n);
    assert_non_null(n.borrowed);
    release(&n, 0, 1);
    send_frame(&n, 0, 1);
    send_frame(&n, 0, 1);
    send_bytes(&n, 0, 1, 0);
    run(&n);
    assert_int_equal(n.came, 2);
    assert_int_equal(n.left, 2);
    assert_false(n.transports[0]->ops->idle(n.transports[0]));
    assert_false(n.transports[0]->ops->delivered(n.links[0][1]));
    uint64_t came_ns = n.last_ns[1];
    release(&n, 0, 1);
    n.borrowed = NULL;
    assert_true(spr_sim_advance(n.sim)); /* word of it */
    for (int r = 0; r < RANKS; r++)
        n.transports[r]->ops->progress(n.transports[r]);
    assert_int_equal(spr_now_ns(spr_sim_clock(n.sim)), came_ns + LATENCY_NS);
    run(&n);
    assert_int_equal(n.came, 4);
    assert_int_equal(n.left, 4);
    assert_true(n.transports[0]->ops->idle(n.transports[0]));
    assert_true(n.transports[0]->ops->delivered(n.links[0][1]));
    close_net(&n);
}

/* Dropped, it has its slot no longer than it takes. */
static void a_slot_is_free_when_its_frame_was_taken(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.slots = {1, 1}, .small_bytes = 100});
    for (int i = 0; i < 5; i++) {
        send_frame(&n, 0, 1);
        send_bytes(&n, 0, 1, 10);
    }
    run(&n);
    assert_int_equal(n.came, 10);
    assert_int_equal(n.left, 10);
    assert_int_equal(n.failed, 0);
    close_net(&n);
}

static void what_waits_for_a_slot_comes_back_when_the_link_is_cut(void **state)
{
    struct net n;

    (void)state;
    open_net(&n, (struct spr_sim_options){.slots = {1, 1}});
    n.borrow = true;
    for (int i = 0; i < 4; i++)
        send_frame(&n, 0, 1);
    run(&n);
    assert_int_equal(n.came, 1);
    n.transports[0]->ops->kill(n.links[0][1]);
    send_frame(&n, 0, 1);
    run(&n);
    assert_int_equal(n.left, 5);
    assert_int_equal(n.failed, 4);
    assert_true(n.transports[0]->ops->idle(n.transports[0]));
    close_net(&n); /* one is borrowed still */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_of_its_own_host_has_its_own_port),
        cmocka_unit_test(ranks_of_a_host_share_its_port_in_both_directions),
        cmocka_unit_test(frames_inside_a_host_take_no_part_of_its_port),
        cmocka_unit_test(a_frame_passes_uplinks_as_it_comes_in),
        cmocka_unit_test(hosts_of_a_rack_share_its_uplink),
        cmocka_unit_test(hosts_of_a_rack_do_not_wait_for_an_uplink_that_is_fast_enough),
        cmocka_unit_test(an_uplink_that_is_slower_than_a_port_slows_a_frame_down),
        cmocka_unit_test(a_port_takes_in_what_fits_before_a_later_frame),
        cmocka_unit_test(a_frame_waits_for_a_slot_of_its_size_and_all_behind_it),
        cmocka_unit_test(a_slot_is_free_when_its_frame_was_taken),
        cmocka_unit_test(what_waits_for_a_slot_comes_back_when_the_link_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
