/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dense sums of hosts whose links are not equally fast: they are right, their bits are those of
 * equal links, and the slowest link is busy from start to end with what it has to carry.
 */
#include "collectives/collective.h"
#include "tests/sim/vectors.h"

static struct spr_rng rng;

static void draw_rates(struct world *w)
{
    static const uint32_t usual[] = {100, 1000, 1050, 2500, 10000, 100000};
    uint32_t rate[WORLD_MAX];

    for (int r = 0; r < w->ranks; r++)
        rate[r] = usual[spr_rng_below(&rng, SPR_ARRAY_LEN(usual))];
    world_set_rates(w, rate);
}

/* Any ranks on any hosts, in one rack half of the time: else links are not looked at. */
static void draw_hosts(struct world *w)
{
    static const int none[WORLD_MAX];
    int host[WORLD_MAX];

    world_draw_hosts(w, &rng);
    for (int r = 0; r < w->ranks; r++)
        host[r] = (int)spr_rng_below(&rng, (uint64_t)w->ranks);
    if (spr_rng_below(&rng, 2))
        world_share_racks(w, host, none);
}

static void sums_over_any_links_are_right(void **state)
{
    static const char *const names[] = {"direct", "hierarchical", NULL};
    static const size_t n[] = {0, 1, 63, 65, 1000, 4097, 65536, 300001, 2500003};
    const struct spr_topology *t0;
    int uneven[2] = {0};
    struct world w;

    (void)state;
    rng = (struct spr_rng){seed, 3};
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (int trial = 0; trial < 6; trial++) /* two each */
            for (size_t i = 0; i < SPR_ARRAY_LEN(n); i++) {
                spr_dtype t = (spr_dtype)spr_rng_below(&rng, SPR_DTYPE_COUNT);
                spr_op op = (spr_op)spr_rng_below(&rng, SPR_OP_COUNT);
                if (n[i] > 65536 && ((i + (size_t)trial) % 2 || ranks % 3))
                    continue;
                if (trial % 2)
                    draw_hosts(&w);
                draw_rates(&w);
                t0 = &w.comms[0]->topology;
                uneven[t0->hosts < ranks] += t0->uneven;
                check_allreduce(&w, names[trial / 2], t, op, n[i], i % 2, i);
            }
        world_destroy(&w);
    }
    assert_true(uneven[0] > 0 || most_ranks() < 9);
    assert_true(uneven[1] > 0 || most_ranks() < 9);
}

/* A slice's shard of a rank may be longer in a later slice, which is shorter: its parts are not.
 * Sizes with which they were. */
static void later_slices_have_no_longer_parts(void **state)
{
    static const struct {
        int ranks, per_host;
        size_t n;
    } cases[] = {
        {16, 4, 624679}, {12, 3, 854330}, {15, 5, 561327}, {18, 6, 743464}, {20, 5, 688031}};
    uint32_t rate[WORLD_MAX];
    int host[WORLD_MAX];
    struct world w;

    (void)state;
    rng = (struct spr_rng){seed, 4};
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases) + 6; i++) {
        bool drawn = i >= SPR_ARRAY_LEN(cases);
        int per_host = drawn ? 3 + (int)spr_rng_below(&rng, 3) : cases[i].per_host;
        int ranks = drawn ? 4 * per_host : cases[i].ranks;
        size_t n = drawn ? 300000 + spr_rng_below(&rng, 700000) : cases[i].n;

        make(&w, ranks, 10e9);
        for (int r = 0; r < ranks; r++) {
            host[r] = r / per_host;
            rate[r] = host[r] == 1 ? 2500000 : 10000000;
        }
        world_share_hosts(&w, host);
        world_set_rates(&w, rate);
        assert_true(w.comms[0]->topology.uneven);
        check_allreduce(&w, "hierarchical", SPR_FP32, SPR_SUM, n, i % 2, i);
        world_destroy(&w);
    }
}

static void sum_with(struct world *w, struct buffers *b, size_t n, const char *algorithm,
                     float *bits)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    post_sums(w, b, n, &options);
    run_ok(w);
    for (int r = 0; r < w->ranks; r++)
        assert_memory_equal(b->out[r], b->out[0], n * sizeof *bits);
    memcpy(bits, b->out[0], n * sizeof *bits);
}

static void rates_do_not_show_in_the_bits(void **state)
{
    static const uint32_t rate[] = {100, 1000, 100, 1000, 10000, 1000};
    static const int host[] = {0, 1, 0, 1, 2, 2};
    static float alike[20000], unlike[20000];
    struct buffers b;
    struct world w;

    (void)state;
    make(&w, 6, 10e9);
    fill(&w, &b, SPR_FP32, 20000, 20000, 3);
    sum_with(&w, &b, 20000, "direct", alike);
    world_set_rates(&w, rate);
    assert_true(w.comms[0]->topology.uneven);
    sum_with(&w, &b, 20000, "direct", unlike);
    assert_memory_equal(alike, unlike, sizeof alike);
    world_share_hosts(&w, host);
    assert_true(w.comms[0]->topology.uneven);
    assert_int_equal(w.comms[0]->topology.host_rate[0], 100);
    assert_int_equal(w.comms[0]->topology.host_rate[2], 10000);
    sum_with(&w, &b, 20000, "hierarchical", unlike);
    world_set_rates(&w, (uint32_t[6]){0});
    assert_false(w.comms[0]->topology.uneven);
    sum_with(&w, &b, 20000, "hierarchical", alike);
    assert_memory_equal(alike, unlike, sizeof alike);
    drop(&w, &b);
    world_destroy(&w);
}

/* Virtual seconds of a sum of n floats. */
static double seconds(struct world *w, size_t n, const char *algorithm)
{
    const struct spr_clock *clock = spr_sim_clock(w->sim);
    uint64_t begin = spr_now_ns(clock);
    float *bits = malloc(n * sizeof *bits);
    struct buffers b;

    fill(w, &b, SPR_FP32, n, n, 3);
    sum_with(w, &b, n, algorithm, bits);
    drop(w, &b);
    free(bits);
    return (double)(spr_now_ns(clock) - begin) * 1e-9;
}

/* It carries the vector once each way, where equal parts would have it carry 2 (P - 1) / P. */
static void the_slowest_link_carries_little_else(void **state)
{
    enum { RANKS = 8, N = 1000000 };
    struct spr_sim_options links = {
        .ranks = RANKS, .seed = seed, .latency_s = 10e-6, .bandwidth = 1e9};
    uint32_t rate[RANKS];
    int host[RANKS];
    double least = N * sizeof(float) * 8 / 250e6, even, uneven;
    struct world w;

    (void)state;
    world_create(&w, &links);
    for (int r = 0; r < RANKS; r++)
        rate[r] = 1000;
    rate[5] = 250;
    spr_sim_slow(w.sim, 5, 250e6, 0);
    even = seconds(&w, N, "direct");
    assert_true(even > 1.75 * least);
    assert_true(seconds(&w, N, NULL) > 1.75 * least);
    world_set_rates(&w, rate);
    uneven = seconds(&w, N, NULL);
    if (uneven > 1.1 * least)
        fail_msg("%.3f s, %.2f of the least", uneven, uneven / least);
    world_destroy(&w);
    /* Four hosts of two, which share a port. */
    links.ranks_per_host = 2;
    world_create(&w, &links);
    for (int r = 0; r < RANKS; r++) {
        host[r] = r / 2;
        rate[r] = r / 2 == 2 ? 250 : 1000;
        spr_sim_slow(w.sim, r, rate[r] * 1e6, 0);
    }
    world_share_hosts(&w, host);
    even = seconds(&w, N, NULL);
    world_set_rates(&w, rate);
    uneven = seconds(&w, N, NULL);
    if (uneven > 1.1 * least || even < 1.45 * least)
        fail_msg("%.3f s, %.2f of the least; equal parts %.3f", uneven, uneven / least, even);
    world_destroy(&w);
}

static void assert_chosen(const struct world *w, const char *name)
{
    spr_prediction predictions[SPR_CANDIDATES];
    int n = spr_comm_predict(w->comms[0], "allreduce", 1 << 22, SPR_FP32, 0, 0, predictions,
                             SPR_CANDIDATES);

    for (int i = 0; i < n; i++)
        if (predictions[i].chosen) {
            assert_string_equal(predictions[i].algorithm, name);
            return;
        }
    fail_msg("none is chosen");
}

static double predicted(const struct world *w, const char *name)
{
    spr_prediction predictions[SPR_CANDIDATES];
    int n = spr_comm_predict(w->comms[0], "allreduce", 1 << 22, SPR_FP32, 0, 0, predictions,
                             SPR_CANDIDATES);

    for (int i = 0; i < n; i++)
        if (!strcmp(predictions[i].algorithm, name))
            return predictions[i].seconds;
    fail_msg("%s is no candidate", name);
    return 0;
}

/* A ring has each link carry as much. Nor does the model take it, which knows what parts save. */
static void no_ring_is_chosen_for_such_links(void **state)
{
    static const uint32_t rate[] = {1000, 250, 1000, 1000, 1000, 1000, 1000, 1000};
    static const int pairs[] = {0, 1, 2, 3, 0, 1, 2, 3};
    struct spr_model model = {.byte = 3.2e-8, .known = true};
    double even, hosts;
    struct world w;

    (void)state;
    make(&w, 8, 10e9);
    assert_chosen(&w, "ring");
    world_set_rates(&w, rate);
    assert_chosen(&w, "direct");
    world_set_rates(&w, (uint32_t[8]){0});
    world_set_model(&w, &model);
    even = predicted(&w, "direct");
    world_set_rates(&w, rate);
    assert_chosen(&w, "direct");
    /* The vector once, and not 2 (P - 1) / P of it; and the last chunk. */
    assert_true(predicted(&w, "direct") < 0.6 * even && predicted(&w, "direct") > 0.55 * even);
    /* Where ranks share links, of hosts' sums only. */
    world_set_rates(&w, (uint32_t[8]){0});
    world_share_hosts(&w, pairs);
    even = predicted(&w, "direct");
    hosts = predicted(&w, "hierarchical");
    world_set_rates(&w, (uint32_t[8]){1000, 250, 1000, 1000, 1000, 250, 1000, 1000});
    assert_true(predicted(&w, "direct") == even);
    assert_true(predicted(&w, "hierarchical") < 0.7 * hosts);
    world_destroy(&w);
}

VECTORS_MAIN(cmocka_unit_test(sums_over_any_links_are_right),
             cmocka_unit_test(later_slices_have_no_longer_parts),
             cmocka_unit_test(rates_do_not_show_in_the_bits),
             cmocka_unit_test(the_slowest_link_carries_little_else),
             cmocka_unit_test(no_ring_is_chosen_for_such_links))
