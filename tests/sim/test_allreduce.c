/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every algorithm of allreduce, over simulated links with jitter, against a naive fp64 reference:
 * the full product of algorithms, 1..9 ranks, element types and reductions, many sizes; in what
 * order each adds, on what hosts.
 */
#include "collectives/collective.h"
#include "tests/sim/vectors.h"

static const size_t sizes[] = {0, 1, 2, 7, 63, 64, 65, 1000, 4096, 10007, 65536};

static void allreduce_is_right_for_all_algorithms_types_and_sizes(void **state)
{
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (int a = 0; spr_algorithm_name("allreduce", a); a++) {
            const char *name = spr_algorithm_name("allreduce", a);
            for (spr_dtype t = 0; t < SPR_DTYPE_COUNT; t++)
                for (spr_op op = 0; op < SPR_OP_COUNT; op++)
                    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                        if (reference_allreduce_takes(name, t, sizes[s]))
                            check_allreduce(&w, name, t, op, sizes[s], (s + (size_t)op) % 2, s);
        }
        world_destroy(&w);
    }
}

/* One slice, and several, the last one short; one rank, and all, on a host. */
static void hierarchical_allreduces_are_right_on_any_hosts(void **state)
{
    static const size_t n[] = {1, 63, 1000, 65536, 300001, 2500003};
    static const spr_dtype types[] = {SPR_INT64, SPR_FP32, SPR_BF16, SPR_FP16};
    struct spr_rng rng = {seed, 3};
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (int trial = 0; trial < 4; trial++)
            for (size_t i = 0; i < SPR_ARRAY_LEN(n); i++) {
                spr_dtype t = types[(i + (size_t)trial + (size_t)ranks) % SPR_ARRAY_LEN(types)];
                if (n[i] > 65536 && (trial || ranks % 3))
                    continue;
                world_draw_hosts(&w, &rng);
                check_allreduce(&w, "hierarchical", t, (spr_op)((i + (size_t)trial) % SPR_OP_COUNT),
                                n[i], trial % 2, i);
            }
        world_destroy(&w);
    }
}

/* Eight slices; the last one is a little shorter, and its segments fall into more chunks. */
static void a_shorter_slice_may_have_more_chunks(void **state)
{
    static const int host[] = {0, 0, 1, 2};
    struct world w;

    (void)state;
    make(&w, 4, 0);
    world_share_hosts(&w, host);
    check_allreduce(&w, "hierarchical", SPR_FP32, SPR_SUM, 2100737, true, 1);
    /* The last segment of a slice is the shortest one, and longer in the last slice. */
    check_allreduce(&w, "hierarchical", SPR_FP32, SPR_SUM, 8 * 491776 - 64, true, 1);
    world_destroy(&w);
}

/* Of halves a slice waits until there is room for its sums, in a rank that hears from nobody else
 * then, too: it is alone on its host. */
static void sums_of_halves_have_room_for_some_slices(void **state)
{
    static const int hosts[][4] = {{0, 1, 2, 3}, {0, 1, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}};
    struct world w;

    (void)state;
    make(&w, 4, 10e9);
    for (size_t i = 0; i < SPR_ARRAY_LEN(hosts); i++) {
        world_share_hosts(&w, hosts[i]);
        check_allreduce(&w, "hierarchical", i % 2 ? SPR_BF16 : SPR_FP16, SPR_AVG, 4200011, i % 2,
                        i);
    }
    world_destroy(&w);
}

static void sum_with(struct world *w, struct buffers *b, const char *algorithm, float *bits)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    post_sums(w, b, 20000, &options);
    run_ok(w);
    memcpy(bits, b->out[0], 80000);
}

static void hosts_show_in_the_bits_unless_they_must_not(void **state)
{
    static const int host[] = {0, 1, 0, 1, 1, 0};
    static float direct[20000], hierarchical[20000], any[20000];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;
    struct world w;

    (void)state;
    make(&w, 6, 10e9);
    world_share_hosts(&w, host);
    fill(&w, &b, SPR_FP32, 20000, 20000, 3);
    sum_with(&w, &b, "direct", direct);
    sum_with(&w, &b, "hierarchical", hierarchical);
    sum_with(&w, &b, NULL, any);
    assert_memory_equal(any, hierarchical, sizeof any);
    assert_memory_not_equal(any, direct, sizeof any);
    world_set_determinism(&w, SPR_DETERMINISM_CANONICAL);
    sum_with(&w, &b, NULL, any);
    assert_memory_equal(any, direct, sizeof any);
    options.algorithm = "hierarchical";
    assert_int_equal(spr_iallreduce(w.comms[0], b.in[0], b.out[0], 20000, SPR_FP32, SPR_SUM,
                                    &options, &w.requests[0]),
                     SPR_ERR_INVALID);
    assert_non_null(strstr(spr_last_error(NULL), "with SPARRING_DETERMINISM=canonical; there is:"));
    drop(&w, &b);
    world_destroy(&w);
}

static void assert_chosen(const struct world *w, size_t count, spr_dtype dtype, const char *name)
{
    spr_prediction predictions[SPR_CANDIDATES];
    int n =
        spr_comm_predict(w->comms[0], "allreduce", count, dtype, 0, 0, predictions, SPR_CANDIDATES);

    for (int i = 0; i < n; i++)
        if (predictions[i].chosen) {
            assert_string_equal(predictions[i].algorithm, name);
            return;
        }
    fail_msg("none is chosen for %zu elements", count);
}

static void long_vectors_of_single_ranks_go_round_a_ring(void **state)
{
    static const int pairs[] = {0, 0, 1, 1}, alone[] = {0, 1, 2, 3};
    const size_t shortest = 4 * (64 << 10) / sizeof(float);
    struct world w;

    (void)state;
    make(&w, 2, 10e9);
    assert_chosen(&w, 1 << 20, SPR_FP32, "direct");
    world_destroy(&w);
    make(&w, 4, 10e9);
    assert_chosen(&w, shortest, SPR_FP32, "ring");
    assert_chosen(&w, shortest - 1, SPR_FP32, "direct");
    assert_chosen(&w, 2 * shortest, SPR_BF16, "direct"); /* a partial sum would be rounded */
    world_set_determinism(&w, SPR_DETERMINISM_CANONICAL);
    assert_chosen(&w, shortest, SPR_FP32, "direct");
    world_set_determinism(&w, SPR_DETERMINISM_RUN);
    world_share_hosts(&w, pairs);
    assert_chosen(&w, shortest, SPR_FP32, "hierarchical");
    assert_chosen(&w, shortest, SPR_BF16, "hierarchical");
    world_share_racks(&w, alone,
                      pairs); /* floats of a rack are as long as the halves of two hosts */
    assert_chosen(&w, shortest, SPR_FP32, "hierarchical");
    assert_chosen(&w, shortest, SPR_BF16, "direct");
    world_destroy(&w);
}

/* All ranks have the same bits, but those of a run depend on when messages came. */
static void sums_in_the_order_of_arrival_are_right(void **state)
{
    static float in_order[20000], any[20000];
    struct spr_rng rng = {seed, 4};
    struct buffers b;
    struct world w;

    (void)state;
    for (int ranks = 2; ranks <= 6; ranks++) {
        make(&w, ranks, 10e9);
        world_draw_hosts(&w, &rng);
        world_set_determinism(&w, SPR_DETERMINISM_OFF);
        for (int a = 0; spr_algorithm_name("allreduce", a); a++)
            for (spr_dtype t = 0; t < SPR_DTYPE_COUNT; t++)
                for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++)
                    if (reference_allreduce_takes(spr_algorithm_name("allreduce", a), t, sizes[s]))
                        check_allreduce(&w, spr_algorithm_name("allreduce", a), t,
                                        (spr_op)(s % SPR_OP_COUNT), sizes[s], s % 2, s);
        fill(&w, &b, SPR_FP32, 20000, 20000, 3);
        sum_with(&w, &b, "direct", any);
        world_set_determinism(&w, SPR_DETERMINISM_RUN);
        sum_with(&w, &b, "direct", in_order);
        if (ranks > 2)
            assert_memory_not_equal(any, in_order, sizeof any);
        else
            assert_memory_equal(any, in_order, sizeof any);
        drop(&w, &b);
        world_destroy(&w);
    }
}

static void sum_in_rank_order(const struct buffers *b, int ranks, spr_dtype t, spr_op op, size_t n,
                              char *out)
{
    for (size_t i = 0; i < n; i++) {
        float sum = (float)reference_load(t, b->in[0], i);
        for (int r = 1; r < ranks; r++)
            sum += (float)reference_load(t, b->in[r], i);
        reference_store(t, out, i, (double)(op == SPR_AVG ? sum / (float)ranks : sum));
    }
}

/* Halves are floats until then, and rounded once. */
static void direct_and_flat_add_floats_in_rank_order(void **state)
{
    enum { N = 5000, RANKS = 7 };
    static const spr_dtype types[] = {SPR_FP32, SPR_FP16, SPR_BF16};
    static const char *const names[] = {"direct", "flat"};
    static const spr_op ops[] = {SPR_SUM, SPR_AVG};
    struct world w;

    (void)state;
    make(&w, RANKS, 10e9);
    for (size_t i = 0; i < SPR_ARRAY_LEN(types) * SPR_ARRAY_LEN(names) * SPR_ARRAY_LEN(ops); i++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        spr_dtype t = types[i / 4];
        spr_op op = ops[i % 2];
        struct buffers b;
        char want[4 * N];
        options.algorithm = names[i / 2 % 2];
        fill(&w, &b, t, N, N, 3);
        sum_in_rank_order(&b, RANKS, t, op, N, want);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(
                spr_iallreduce(w.comms[r], b.in[r], b.out[r], N, t, op, &options, &w.requests[r]),
                SPR_OK);
        run_ok(&w);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(b.out[r], want, N * spr_dtype_size(t));
        drop(&w, &b);
    }
    world_destroy(&w);
}

/* The sum of `units` ranks or pairs of neighbours from `first` on: halves are added to halves. */
static float sum_of_halves(const struct buffers *b, size_t i, int first, int units, int pairs)
{
    int rank = first < pairs ? 2 * first : first + pairs;
    float sum;

    if (units > 1)
        return sum_of_halves(b, i, first, units / 2, pairs) +
               sum_of_halves(b, i, first + units / 2, units / 2, pairs);
    sum = ((const float *)(const void *)b->in[rank])[i];
    return first < pairs ? sum + ((const float *)(const void *)b->in[rank + 1])[i] : sum;
}

static void halving_and_doubling_add_neighbours_to_neighbours(void **state)
{
    static const char *const names[] = {"halving", "doubling"};
    enum { N = 5000 };

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++)
        for (size_t a = 0; a < 2; a++) {
            spr_call_options options = SPR_CALL_OPTIONS_INIT;
            int units = 1;
            struct buffers b;
            struct world w;
            while (2 * units <= ranks)
                units *= 2;
            options.algorithm = names[a];
            make(&w, ranks, 10e9);
            fill(&w, &b, SPR_FP32, N, N, 3);
            post_sums(&w, &b, N, &options);
            run_ok(&w);
            for (size_t i = 0; i < N; i++) {
                float want = sum_of_halves(&b, i, 0, units, ranks - units);
                for (int r = 0; r < ranks; r++)
                    assert_memory_equal(b.out[r] + 4 * i, &want, 4);
            }
            drop(&w, &b);
            world_destroy(&w);
        }
}

/* Only the oldest of them may leave what came in the transport's memory. */
static void many_at_once_do_not_get_in_each_others_way(void **state)
{
    enum { OPERATIONS = 12, N = 70000 };
    static spr_request *requests[OPERATIONS][WORLD_MAX];
    static struct buffers b[OPERATIONS];
    struct world w;
    int algorithms = 0;

    (void)state;
    while (spr_algorithm_name("allreduce", algorithms))
        algorithms++;
    for (int ranks = 2; ranks <= most_ranks(); ranks += 3) {
        make(&w, ranks, 10e9);
        for (int k = 0; k < OPERATIONS; k++)
            fill(&w, &b[k], SPR_FP32, N, N, (uint64_t)k);
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < OPERATIONS; k++) {
                spr_call_options options = SPR_CALL_OPTIONS_INIT;
                options.algorithm = spr_algorithm_name("allreduce", 1 + k % (algorithms - 1));
                assert_int_equal(spr_iallreduce(w.comms[r], b[k].in[r], b[k].out[r], N, SPR_FP32,
                                                SPR_SUM, &options, &requests[k][r]),
                                 SPR_OK);
            }
        for (int k = OPERATIONS - 1; k >= 0; k--) {
            memcpy(w.requests, requests[k], sizeof requests[k]);
            run_ok(&w);
            for (size_t i = 0; i < N; i++) {
                double bound, want = expected(&w, &b[k], SPR_FP32, SPR_SUM, i, &bound);
                assert_true(fabs(reference_load(SPR_FP32, b[k].out[0], i) - want) <= bound);
            }
            for (int r = 1; r < ranks; r++)
                assert_memory_equal(b[k].out[r], b[k].out[0], N * 4);
            drop(&w, &b[k]);
        }
        world_destroy(&w);
    }
}

/* 2 ranks, 4 MiB: each sends 2 MiB to the owner and 2 MiB of results, and a grant for each chunk
 * that it gets. */
static void chunks_are_larger_where_peers_write_memory(void **state)
{
    enum { N = 1 << 20 };

    (void)state;
    for (int place = 0; place < 2; place++) {
        struct spr_sim_options options = {
            .ranks = 2, .seed = seed, .latency_s = 10e-6, .bandwidth = 10e9, .place = place};
        uint64_t chunk = place ? 2 * SPR_CHUNK_BYTES : SPR_CHUNK_BYTES, frames;
        struct world w;
        world_create(&w, &options);
        frames = spr_sim_sent_frames(w.sim, 0, 1);
        check_allreduce(&w, "direct", SPR_FP32, SPR_SUM, N, false, 1);
        frames = spr_sim_sent_frames(w.sim, 0, 1) - frames;
        assert_int_equal(frames, 2 * (4 * (uint64_t)N / chunk));
        world_destroy(&w);
    }
}

VECTORS_MAIN(cmocka_unit_test(chunks_are_larger_where_peers_write_memory),
             cmocka_unit_test(allreduce_is_right_for_all_algorithms_types_and_sizes),
             cmocka_unit_test(hierarchical_allreduces_are_right_on_any_hosts),
             cmocka_unit_test(sums_of_halves_have_room_for_some_slices),
             cmocka_unit_test(a_shorter_slice_may_have_more_chunks),
             cmocka_unit_test(sums_in_the_order_of_arrival_are_right),
             cmocka_unit_test(hosts_show_in_the_bits_unless_they_must_not),
             cmocka_unit_test(long_vectors_of_single_ranks_go_round_a_ring),
             cmocka_unit_test(direct_and_flat_add_floats_in_rank_order),
             cmocka_unit_test(halving_and_doubling_add_neighbours_to_neighbours),
             cmocka_unit_test(many_at_once_do_not_get_in_each_others_way))
