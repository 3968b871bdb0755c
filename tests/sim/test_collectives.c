/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every collective and algorithm but the sparse ones (test_sparse.c), over simulated links with
 * jitter, against a naive fp64 reference: 1..9 ranks, many sizes, all element types. Allreduce has
 * a program of its own (test_allreduce.c), and so have blocks by hosts (test_blocks.c).
 */
#include "tests/sim/vectors.h"

static const size_t sizes[] = {0, 1, 2, 7, 63, 64, 65, 1000, 4096, 10007, 65536};

/* Each type with some of the sizes. */
static spr_dtype type_of(size_t s, int ranks)
{
    return (spr_dtype)((s + (size_t)ranks) % SPR_DTYPE_COUNT);
}

static void check_reduce_scatter(struct world *w, spr_dtype t, spr_op op, size_t n)
{
    struct buffers b;

    fill(w, &b, t, n * (size_t)w->ranks, n, n);
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(
            spr_ireduce_scatter(w->comms[r], b.in[r], b.out[r], n, t, op, NULL, &w->requests[r]),
            SPR_OK);
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        for (size_t i = 0; i < n; i++) {
            double bound, want = expected(w, &b, t, op, (size_t)r * n + i, &bound);
            assert_true(fabs(reference_load(t, b.out[r], i) - want) <= bound);
        }
        assert_int_equal((unsigned char)b.out[r][n * spr_dtype_size(t)], 0xee);
    }
    drop(w, &b);
}

static void reduce_scatter_is_right(void **state)
{
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            check_reduce_scatter(&w, type_of(s, ranks), (spr_op)(s % SPR_OP_COUNT), sizes[s]);
        world_destroy(&w);
    }
}

static void allgather_is_right_for_all_algorithms(void **state)
{
    const char *name;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        struct world w;
        make(&w, ranks, 10e9);
        for (int a = 0; (name = spr_algorithm_name("allgather", a)) != NULL; a++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                check_allgather(&w, name, type_of(s, ranks), sizes[s], s % 2);
        world_destroy(&w);
    }
}

static void check_broadcast(struct world *w, const char *algorithm, spr_dtype t, size_t n, int root)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t bytes = n * spr_dtype_size(t);
    char *want = malloc(bytes + 1);
    struct buffers b = {{NULL}, {NULL}};

    options.algorithm = algorithm;
    fill(w, &b, t, n, 0, n);
    memcpy(want, b.in[root], bytes);
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(
            spr_ibroadcast(w->comms[r], b.in[r], n, t, root, &options, &w->requests[r]), SPR_OK);
    run_ok(w);
    for (int r = 0; r < w->ranks; r++)
        assert_memory_equal(b.in[r], want, bytes);
    free(want);
    drop(w, &b);
}

static void broadcast_and_barrier_are_right(void **state)
{
    struct world w;
    const char *name;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (int a = 0; (name = spr_algorithm_name("broadcast", a)) != NULL; a++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                if (strcmp(name, "flat") || sizes[s] * 8 <= 65536)
                    check_broadcast(&w, name, type_of(s, ranks), sizes[s],
                                    (int)(s % (size_t)ranks));
        for (int r = 0; r < ranks; r++)
            spr_ibarrier(w.comms[r], NULL, &w.requests[r]);
        run_ok(&w);
        world_destroy(&w);
    }
}

/* Compressed ----------------------------------------------------------------------------------- */

static void conserves_every_step(const char *spec, const char *algorithm, double tolerance)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    enum { N = 20000, RANKS = 5, STEPS = 12 };
    static float gradient[RANKS][N];
    static double sum_in[N], sum_out[N];
    spr_layout layout[2] = {{1, "a", 0, 100, 100}, {2, "b", 10000, 10000, 1}};
    spr_codec *codec[RANKS];
    struct world w;

    options.algorithm = algorithm;
    make(&w, RANKS, 10e9);
    memset(sum_in, 0, sizeof sum_in);
    memset(sum_out, 0, sizeof sum_out);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(spr_codec_create(spec, layout, 2, &codec[r]), SPR_OK);
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < N; i++) {
                gradient[r][i] = (float)reference_input(seed, SPR_FP32, (uint64_t)step + 100, r, i);
                sum_in[i] += (double)gradient[r][i];
            }
            assert_int_equal(spr_icompressed_allreduce(w.comms[r], codec[r], gradient[r], SPR_SUM,
                                                       &options, &w.requests[r]),
                             SPR_OK);
        }
        run_ok(&w);
        for (size_t i = 0; i < N; i++) {
            double residual = 0;
            sum_out[i] += (double)gradient[0][i];
            for (int r = 0; r < RANKS; r++) {
                assert_true(gradient[r][i] == gradient[0][i]);
                residual += (double)spr_codec_residual(codec[r])[i];
            }
            assert_true(fabs(sum_out[i] + residual - sum_in[i]) < tolerance);
        }
    }
    for (int r = 0; r < RANKS; r++)
        spr_codec_destroy(codec[r]);
    world_destroy(&w);
}

/* Nothing is lost but the rounding of sums: none for lists, one of a half per step for dense
 * halves. */
static void error_feedback_conserves_every_step(void **state)
{
    (void)state;
    conserves_every_step("topk:ratio=2%", NULL, 1e-4);
    conserves_every_step("topk:ratio=2%+fp16", NULL, 1e-4);
    conserves_every_step("topk:ratio=0.1%+bf16", NULL, 1e-4);
    conserves_every_step("topk:ratio=2%", "allgather", 1e-4);
    conserves_every_step("topk:ratio=2%", "doubling", 1e-4);
    conserves_every_step("topk:ratio=2%", "ring", 1e-4);
    conserves_every_step("topk:ratio=2%+fp16", "allgather", 1e-4);
    conserves_every_step("topk:ratio=0.1%+bf16", "allgather", 1e-4);
    conserves_every_step("none", NULL, 1e-4);
    conserves_every_step("fp16", NULL, 12 * 5 * 0x1p-11);
    conserves_every_step("bf16", NULL, 12 * 5 * 0x1p-8);
}

/* Failure -------------------------------------------------------------------------------------- */

static void every_survivor_names_the_killed_rank(void **state)
{
    struct spr_rng rng = {seed, 1};

    static const char *const algorithms[] = {"direct",   "ring", "halving",
                                             "doubling", "tree", "hierarchical"};

    (void)state;
    for (int trial = 0; trial < (reference_small_scale() ? 20 : 400); trial++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        int ranks = 2 + (int)spr_rng_below(&rng, 7),
            victim = (int)spr_rng_below(&rng, (uint64_t)ranks);
        size_t n = 1 + (size_t)spr_rng_below(&rng, 300000);
        spr_status last[WORLD_MAX] = {0};
        struct buffers b;
        struct world w;
        int failed;
        make(&w, ranks, 1e9);
        fill(&w, &b, SPR_FP32, n, n, 5);
        options.algorithm = algorithms[trial % (int)SPR_ARRAY_LEN(algorithms)];
        if (!strcmp(options.algorithm, "hierarchical"))
            world_draw_hosts(&w, &rng);
        spr_sim_kill(w.sim, victim, spr_rng_below(&rng, 3000000) + 1);
        for (int step = 0; step < 1000; step++) {
            for (int r = 0; r < ranks; r++)
                if (spr_sim_runs(w.sim, r) && !w.requests[r] && !last[r])
                    last[r] = spr_iallreduce(w.comms[r], b.in[r], b.out[r], n, SPR_FP32, SPR_SUM,
                                             &options, &w.requests[r]);
            assert_true(world_run(&w, LIMIT_NS));
            failed = 0;
            for (int r = 0; r < ranks; r++) {
                if (w.results[r] < 0)
                    last[r] = w.results[r];
                failed += last[r] < 0;
            }
            if (failed == ranks - 1)
                break;
        }
        for (int r = 0; r < ranks; r++) {
            char name[32];
            if (r == victim)
                continue;
            snprintf(name, sizeof name, "rank %d was lost", victim);
            /* Who learns of it between two operations is refused the next one. */
            assert_true(last[r] == SPR_ERR_RANK_LOST || last[r] == SPR_ERR_REVOKED);
            assert_non_null(strstr(spr_last_error(w.comms[r]), name));
        }
        drop(&w, &b);
        world_destroy(&w);
    }
}

static void a_cut_link_ends_at_the_deadline_with_the_rank(void **state)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;
    struct world w;

    (void)state;
    options.timeout_s = 0.5;
    options.name = "layer3.weight";
    make(&w, 3, 1e9);
    fill(&w, &b, SPR_FP32, 100000, 100000, 1);
    spr_sim_cut(w.sim, 0, 2);
    post_sums(&w, &b, 100000, &options);
    assert_true(world_run(&w, LIMIT_NS));
    for (int r = 0; r < 3; r++) {
        int from = w.comms[r]->error.rank;
        assert_int_equal(w.results[r], SPR_ERR_DEADLINE);
        assert_true(r == 1 ? from == 0 || from == 2 : from == 2 - r);
    }
    assert_non_null(strstr(spr_last_error(w.comms[0]), "layer3.weight"));
    drop(&w, &b);
    world_destroy(&w);
}

static void a_flipped_bit_is_caught(void **state)
{
    (void)state;
    for (uint64_t nth = 0; nth < (reference_small_scale() ? 10 : 60); nth++) {
        struct buffers b;
        struct world w;
        int good = -1;
        make(&w, 3, 1e9);
        fill(&w, &b, SPR_FP32, 100000, 100000, 1);
        spr_sim_corrupt(w.sim, 1, 2, nth);
        post_sums(&w, &b, 100000, NULL);
        assert_true(world_run(&w, LIMIT_NS));
        for (int r = 0; r < 3; r++) {
            if (w.results[r] != SPR_OK && !strstr(spr_last_error(w.comms[r]), "rank 1"))
                fail_msg("rank %d: %s", r, spr_last_error(w.comms[r]));
            if (w.results[r] != SPR_OK)
                continue; /* its vector may be incomplete */
            good = good < 0 ? r : good;
            assert_memory_equal(b.out[r], b.out[good], 400000);
        }
        if (nth < 4)
            assert_true(w.results[2] == SPR_ERR_CORRUPT || w.results[2] == SPR_ERR_PROTO);
        drop(&w, &b);
        world_destroy(&w);
    }
}

VECTORS_MAIN(cmocka_unit_test(reduce_scatter_is_right),
             cmocka_unit_test(allgather_is_right_for_all_algorithms),
             cmocka_unit_test(broadcast_and_barrier_are_right),
             cmocka_unit_test(error_feedback_conserves_every_step),
             cmocka_unit_test(every_survivor_names_the_killed_rank),
             cmocka_unit_test(a_cut_link_ends_at_the_deadline_with_the_rank),
             cmocka_unit_test(a_flipped_bit_is_caught))
