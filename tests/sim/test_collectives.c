/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every collective and algorithm but the sparse ones (test_sparse.c), over simulated links with
 * jitter, against a naive fp64 reference: the full product of algorithms, 1..9 ranks, element types
 * and reductions, many sizes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/reference.h"
#include "tests/sim/world.h"

#define LIMIT_NS 3600000000000ull

static uint64_t seed;

static int most_ranks(void) { return reference_small_scale() ? 3 : 9; }

struct buffers {
    char *in[WORLD_MAX], *out[WORLD_MAX];
};

static void fill(const struct world *w, struct buffers *b, spr_dtype t, size_t in_count,
                 size_t out_count, uint64_t salt)
{
    for (int r = 0; r < w->ranks; r++) {
        b->in[r] = malloc(in_count * 8 + 8);
        b->out[r] = malloc(out_count * 8 + 8);
        memset(b->out[r], 0xee, out_count * 8 + 8);
        for (size_t i = 0; i < in_count; i++)
            reference_store(t, b->in[r], i, reference_input(seed, t, salt, r, i));
    }
}

static void drop(const struct world *w, struct buffers *b)
{
    for (int r = 0; r < w->ranks; r++) {
        free(b->in[r]);
        free(b->out[r]);
    }
}

/* The reduction of element i over ranks in fp64, and a bound of the error. */
static double expected(const struct world *w, const struct buffers *b, spr_dtype t, spr_op op,
                       size_t i, double *bound)
{
    double x[WORLD_MAX];

    for (int r = 0; r < w->ranks; r++)
        x[r] = reference_load(t, b->in[r], i);
    return reference_reduce(x, w->ranks, t, op, bound);
}

static void run_ok(struct world *w)
{
    assert_true(world_run(w, LIMIT_NS));
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(w->results[r], SPR_OK);
}

static void post_sums(struct world *w, struct buffers *b, size_t n, const spr_call_options *options)
{
    for (int r = 0; r < w->ranks; r++)
        spr_iallreduce(w->comms[r], b->in[r], b->out[r], n, SPR_FP32, SPR_SUM, options,
                       &w->requests[r]);
}

static void check_allreduce(struct world *w, const char *algorithm, spr_dtype t, spr_op op,
                            size_t n, bool in_place, uint64_t salt)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;

    options.algorithm = algorithm;
    fill(w, &b, t, n, n, salt);
    for (int r = 0; r < w->ranks; r++) {
        if (in_place)
            memcpy(b.out[r], b.in[r], n * spr_dtype_size(t));
        assert_int_equal(spr_iallreduce(w->comms[r], in_place ? b.out[r] : b.in[r], b.out[r], n, t,
                                        op, &options, &w->requests[r]),
                         SPR_OK);
    }
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        assert_memory_equal(b.out[r], b.out[0], n * spr_dtype_size(t));
        assert_int_equal((unsigned char)b.out[r][n * spr_dtype_size(t)], 0xee);
    }
    for (size_t i = 0; i < n; i++) {
        double bound, want = expected(w, &b, t, op, i, &bound),
                      got = reference_load(t, b.out[0], i);
        if (fabs(got - want) > bound)
            fail_msg("%s %s %s n=%zu P=%d element %zu: %.17g, not %.17g", algorithm,
                     spr_dtype_name(t), spr_op_name(op), n, w->ranks, i, got, want);
    }
    drop(w, &b);
}

static const size_t sizes[] = {0, 1, 2, 7, 63, 64, 65, 1000, 4096, 10007, 65536};

static void make(struct world *w, int ranks, double bandwidth)
{
    struct spr_sim_options options = {.ranks = ranks,
                                      .seed = seed,
                                      .latency_s = 10e-6,
                                      .jitter_s = 50e-6,
                                      .bandwidth = bandwidth};
    world_create(w, &options);
}

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
    struct spr_rng rng = {seed, 3};
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (int trial = 0; trial < 4; trial++)
            for (size_t i = 0; i < SPR_ARRAY_LEN(n); i++) {
                spr_dtype t = i % 2 ? SPR_FP32 : SPR_INT64;
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
    for (int r = 0; r < 6; r++)
        w.comms[r]->options.determinism = SPR_DETERMINISM_CANONICAL;
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

static void direct_and_flat_give_the_same_bits(void **state)
{
    spr_call_options flat = SPR_CALL_OPTIONS_INIT, direct = SPR_CALL_OPTIONS_INIT;
    struct buffers b;
    struct world w;
    char first[20000];

    (void)state;
    flat.algorithm = "flat";
    direct.algorithm = "direct";
    make(&w, 7, 10e9);
    fill(&w, &b, SPR_FP32, 5000, 5000, 3);
    post_sums(&w, &b, 5000, &flat);
    run_ok(&w);
    memcpy(first, b.out[0], 20000);
    post_sums(&w, &b, 5000, &direct);
    run_ok(&w);
    assert_memory_equal(first, b.out[3], 20000);
    drop(&w, &b);
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

static void reduce_scatter_is_right(void **state)
{
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks, 10e9);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t n = sizes[s], total = n * (size_t)ranks;
            struct buffers b;
            fill(&w, &b, SPR_FP32, total, n, s);
            for (int r = 0; r < ranks; r++)
                spr_ireduce_scatter(w.comms[r], b.in[r], b.out[r], n, SPR_FP32, SPR_SUM, NULL,
                                    &w.requests[r]);
            run_ok(&w);
            for (int r = 0; r < ranks; r++)
                for (size_t i = 0; i < n; i++) {
                    double bound;
                    double want = expected(&w, &b, SPR_FP32, SPR_SUM, (size_t)r * n + i, &bound);
                    assert_true(fabs(reference_load(SPR_FP32, b.out[r], i) - want) <= bound);
                }
            drop(&w, &b);
        }
        world_destroy(&w);
    }
}

static void check_allgather(struct world *w, const char *algorithm, size_t n, bool in_place)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;

    options.algorithm = algorithm;
    fill(w, &b, SPR_INT64, n, n * (size_t)w->ranks, n);
    for (int r = 0; r < w->ranks; r++) {
        char *own = b.out[r] + (size_t)r * n * 8;
        if (in_place)
            memcpy(own, b.in[r], n * 8);
        assert_int_equal(spr_iallgather(w->comms[r], in_place ? own : b.in[r], b.out[r], n,
                                        SPR_INT64, &options, &w->requests[r]),
                         SPR_OK);
    }
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        for (int from = 0; from < w->ranks; from++)
            assert_memory_equal(b.out[r] + (size_t)from * n * 8, b.in[from], n * 8);
        assert_int_equal((unsigned char)b.out[r][n * (size_t)w->ranks * 8], 0xee);
    }
    drop(w, &b);
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
                check_allgather(&w, name, sizes[s], s % 2);
        world_destroy(&w);
    }
}

static void check_broadcast(struct world *w, const char *algorithm, size_t n, int root)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;

    options.algorithm = algorithm;
    fill(w, &b, SPR_FP64, n, n, n);
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(
            spr_ibroadcast(w->comms[r], b.in[r], n, SPR_FP64, root, &options, &w->requests[r]),
            SPR_OK);
    run_ok(w);
    for (int r = 0; r < w->ranks; r++)
        for (size_t i = 0; i < n; i++)
            assert_true(reference_load(SPR_FP64, b.in[r], i) ==
                        reference_input(seed, SPR_FP64, n, root, i));
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
                    check_broadcast(&w, name, sizes[s], (int)(s % (size_t)ranks));
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

    static const char *const algorithms[] = {"direct", "ring", "halving", "doubling", "tree"};

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
        options.algorithm = algorithms[trial % 5];
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
    for (int r = 0; r < 3; r++)
        assert_int_equal(w.results[r], SPR_ERR_DEADLINE);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduce_is_right_for_all_algorithms_types_and_sizes),
        cmocka_unit_test(hierarchical_allreduces_are_right_on_any_hosts),
        cmocka_unit_test(a_shorter_slice_may_have_more_chunks),
        cmocka_unit_test(hosts_show_in_the_bits_unless_they_must_not),
        cmocka_unit_test(direct_and_flat_give_the_same_bits),
        cmocka_unit_test(halving_and_doubling_add_neighbours_to_neighbours),
        cmocka_unit_test(many_at_once_do_not_get_in_each_others_way),
        cmocka_unit_test(reduce_scatter_is_right),
        cmocka_unit_test(allgather_is_right_for_all_algorithms),
        cmocka_unit_test(broadcast_and_barrier_are_right),
        cmocka_unit_test(error_feedback_conserves_every_step),
        cmocka_unit_test(every_survivor_names_the_killed_rank),
        cmocka_unit_test(a_cut_link_ends_at_the_deadline_with_the_rank),
        cmocka_unit_test(a_flipped_bit_is_caught),
    };

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
