/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Allgather, reduce_scatter and broadcast by hosts (collectives/hierarchical_blocks.c and
 * hierarchical_broadcast.c), over simulated hosts: results against a naive fp64 reference, for
 * hosts of neighbours and others, even and uneven; what a host sends, and how long that takes.
 */
#include "collectives/collective.h"
#include "tests/sim/vectors.h"

static const struct {
    int ranks, host[8];
} jobs[] = {
    {4, {0, 0, 1, 1}},    {4, {0, 1, 0, 1}}, {6, {0, 1, 2, 2, 0, 1}}, {8, {0, 0, 0, 0, 1, 1, 1, 1}},
    {5, {0, 0, 1, 1, 1}}, /* uneven: `direct` does it */
    {3, {0, 0, 0}},       {3, {0, 1, 2}},
};

static void make_job(struct world *w, size_t job, int determinism)
{
    make(w, jobs[job].ranks, 10e9);
    world_share_hosts(w, jobs[job].host);
    for (int r = 0; r < w->ranks; r++)
        w->comms[r]->options.determinism = determinism;
}

static void check_sums(struct world *w, const struct buffers *b, spr_dtype t, spr_op op, size_t n,
                       char *const *out)
{
    for (int r = 0; r < w->ranks; r++)
        for (size_t i = 0; i < n; i++) {
            double bound, want = expected(w, b, t, op, (size_t)r * n + i, &bound);
            double got = reference_load(t, out[r], i);

            if (!(fabs(got - want) <= bound))
                fail_msg("%d ranks, %s %s, n=%zu: element %zu of rank %d is %g, not %g "
                         "(SPARRING_SEED=%llu)",
                         w->ranks, spr_dtype_name(t), spr_op_name(op), n, i, r, got, want,
                         (unsigned long long)seed);
        }
}

static void check_reduce_scatter(struct world *w, spr_dtype t, spr_op op, size_t n, bool in_place)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t total = n * (size_t)w->ranks, bytes = n * spr_dtype_size(t);
    struct buffers b;
    char *send[WORLD_MAX], *out[WORLD_MAX];

    options.algorithm = "hierarchical";
    fill(w, &b, t, total, n, n);
    for (int r = 0; r < w->ranks; r++) {
        send[r] = malloc(total * 8 + 8);
        memcpy(send[r], b.in[r], total * spr_dtype_size(t));
        out[r] = in_place ? send[r] + (size_t)r * bytes : b.out[r];
        assert_int_equal(
            spr_ireduce_scatter(w->comms[r], send[r], out[r], n, t, op, &options, &w->requests[r]),
            SPR_OK);
    }
    run_ok(w);
    check_sums(w, &b, t, op, n, out);
    for (int r = 0; r < w->ranks; r++) {
        assert_int_equal((unsigned char)b.out[r][in_place ? 0 : bytes], 0xee);
        free(send[r]);
    }
    drop(w, &b);
}

static void check_broadcast(struct world *w, size_t n, int root)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    char *v[WORLD_MAX];

    options.algorithm = "hierarchical";
    for (int r = 0; r < w->ranks; r++) {
        v[r] = malloc(n + 1);
        assert_non_null(v[r]);
        for (size_t i = 0; i < n; i++)
            v[r][i] = (char)(r == root ? i * 31 >> 3 : 0x77);
        v[r][n] = 0x55;
        assert_int_equal(
            spr_ibroadcast(w->comms[r], v[r], n / 2, SPR_BF16, root, &options, &w->requests[r]),
            SPR_OK);
    }
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        if (memcmp(v[r], v[root], n / 2 * 2) || v[r][n] != 0x55)
            fail_msg("%d ranks, root %d, %zu bytes: rank %d has others", w->ranks, root, n, r);
    }
    for (int r = 0; r < w->ranks; r++)
        free(v[r]);
}

static void blocks_are_right_on_all_kinds_of_hosts(void **state)
{
    static const size_t sizes[] = {1, 63, 1000, 10007};

    (void)state;
    for (size_t job = 0; job < SPR_ARRAY_LEN(jobs); job++) {
        struct world w;

        make_job(&w, job, job % 2 ? SPR_DETERMINISM_OFF : SPR_DETERMINISM_RUN);
        for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++) {
            for (int t = 0; t < SPR_DTYPE_COUNT; t++)
                for (int op = 0; op < SPR_OP_COUNT; op++)
                    check_reduce_scatter(&w, (spr_dtype)t, (spr_op)op, sizes[s], (t + op) % 2);
            check_allgather(&w, "hierarchical", SPR_INT64, sizes[s], s % 2);
            for (int root = 0; root < w.ranks; root++)
                check_broadcast(&w, 2 * sizes[s], root);
        }
        world_destroy(&w);
    }
}

/* Of several pieces, the last of them short. */
static void long_blocks_go_piece_by_piece(void **state)
{
    size_t n = ((size_t)4 << 20) + 4321; /* bytes of a piece, with two hosts: 4 Mi */
    struct world w;

    (void)state;
    if (reference_small_scale())
        n /= 3;
    for (int determinism = SPR_DETERMINISM_RUN; determinism <= SPR_DETERMINISM_OFF;
         determinism += SPR_DETERMINISM_OFF - SPR_DETERMINISM_RUN) {
        make_job(&w, 0, determinism);
        check_reduce_scatter(&w, SPR_FP32, SPR_AVG, n, true);
        check_reduce_scatter(&w, SPR_BF16, SPR_SUM, n, false);
        check_allgather(&w, "hierarchical", SPR_INT64, n / 2, false);
        check_broadcast(&w, 5 * n, 3);
        check_broadcast(&w, n / 2, 0);
        world_destroy(&w);
    }
}

/* All of a root's messages wait for grants, and it hears from those to whom it sends nothing: it
 * does not end before all have called. */
static void a_root_waits_for_all(void **state)
{
    static float v[8][100000];
    static const size_t sizes[] = {1, 1000, 100000};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    (void)state;
    options.algorithm = "hierarchical";
    for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++)
        for (int late = 0; late < 8; late++) {
            int root = (late + 1) % 8;
            struct world w;

            make_job(&w, 3, SPR_DETERMINISM_RUN);
            for (int turn = 0; turn < 2; turn++) {
                for (int r = 0; r < w.ranks; r++)
                    if ((r == late) == turn)
                        assert_int_equal(spr_ibroadcast(w.comms[r], v[r], sizes[s], SPR_FP32, root,
                                                        &options, &w.requests[r]),
                                         SPR_OK);
                if (turn == 0) {
                    world_settle(&w, 1000);
                    assert_false(w.requests[root]->done);
                }
            }
            run_ok(&w);
            world_destroy(&w);
        }
}

/* Several at once, so that not all of them are the oldest. */
static void some_go_on_at_once(int eager)
{
    enum { CALLS = 3, COUNT = 40000 };
    static float vector[CALLS][8][8 * COUNT];
    spr_request *request[CALLS][8];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct world w;

    options.algorithm = "hierarchical";
    make_job(&w, 3, SPR_DETERMINISM_RUN);
    for (int r = 0; r < w.ranks && eager == 0; r++)
        w.comms[r]->options.eager_bytes = 0;
    for (int c = 0; c < CALLS; c++)
        for (int r = 0; r < w.ranks; r++) {
            float *v = vector[c][r], *own = v + (size_t)r * COUNT;
            for (size_t i = 0; i < (size_t)w.ranks * COUNT; i++)
                v[i] = (float)(c + r + (int)(i % 1000));
            assert_int_equal(spr_ireduce_scatter(w.comms[r], v, own, COUNT, SPR_FP32, SPR_SUM,
                                                 &options, &request[c][r]),
                             SPR_OK);
        }
    for (int c = 0; c < CALLS; c++) {
        memcpy(w.requests, request[c], sizeof request[c]);
        run_ok(&w);
        for (int r = 0; r < w.ranks; r++)
            for (size_t i = (size_t)r * COUNT; i < (size_t)(r + 1) * COUNT; i++)
                assert_float_equal(vector[c][r][i], (float)(8 * (c + (int)(i % 1000)) + 28), 0);
    }
    world_destroy(&w);
}

static void several_go_on_at_once(void **state)
{
    (void)state;
    some_go_on_at_once(1);
    some_go_on_at_once(0);
}

/* ---- Choice ---------------------------------------------------------------------------------- */

static const char *taken(size_t job, spr_dtype t, bool gather, size_t n, int determinism)
{
    static char parts[8][8 << 16], own[8][1 << 16];
    const char *name = NULL;
    struct world w;

    make_job(&w, job, determinism);
    for (int r = 0; r < w.ranks; r++) {
        assert_int_equal(
            gather ? spr_iallgather(w.comms[r], own[r], parts[r], n, t, NULL, &w.requests[r])
                   : spr_ireduce_scatter(w.comms[r], parts[r], own[r], n, t, SPR_SUM, NULL,
                                         &w.requests[r]),
            SPR_OK);
        name = w.requests[r]->posted.algorithm;
    }
    run_ok(&w);
    world_destroy(&w);
    return name;
}

static void long_blocks_go_by_hosts(void **state)
{
    static const struct {
        const char *scatter, *gather;
        spr_dtype dtype;
        size_t job, n;
        int determinism;
    } cases[] = {
        {"hierarchical", "hierarchical", SPR_FP32, 0, 4096, SPR_DETERMINISM_RUN},
        {"direct", "direct", SPR_FP32, 0, 4095, SPR_DETERMINISM_RUN},
        {"direct", "hierarchical", SPR_BF16, 0, 8192, SPR_DETERMINISM_RUN}, /* 2 ranks: no gain */
        {"hierarchical", "hierarchical", SPR_BF16, 3, 8192, SPR_DETERMINISM_RUN},
        {"direct", "hierarchical", SPR_FP32, 0, 8192, SPR_DETERMINISM_CANONICAL},
        {"direct", "direct", SPR_FP32, 4, 8192, SPR_DETERMINISM_RUN}, /* uneven */
        {"direct", "direct", SPR_FP32, 5, 8192, SPR_DETERMINISM_RUN},
        {"direct", "direct", SPR_FP32, 6, 8192, SPR_DETERMINISM_RUN},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++)
        for (int gather = 0; gather < 2; gather++)
            assert_string_equal(
                taken(cases[i].job, cases[i].dtype, gather, cases[i].n, cases[i].determinism),
                gather ? cases[i].gather : cases[i].scatter);
}

static void long_broadcasts_go_by_hosts(void **state)
{
    static char v[8][1 << 20];

    (void)state;
    for (size_t job = 0; job < SPR_ARRAY_LEN(jobs); job++)
        for (int large = 0; large < 2; large++) {
            const char *wanted = !large ? "flat" : job < 4 ? "hierarchical" : "direct";
            struct world w;

            make_job(&w, job, SPR_DETERMINISM_CANONICAL);
            for (int r = 0; r < w.ranks; r++) {
                assert_int_equal(spr_ibroadcast(w.comms[r], v[r], large ? 1 << 18 : 16, SPR_FP32, 2,
                                                NULL, &w.requests[r]),
                                 SPR_OK);
                assert_string_equal(w.requests[r]->posted.algorithm, wanted);
            }
            run_ok(&w);
            world_destroy(&w);
        }
}

/* ---- What a host sends ------------------------------------------------------------------------
 */

enum { RANKS = 8, PER_HOST = 4, COUNT = 500000 };

/* The most that a host sends, in blocks of one rank; of a broadcast there is one. */
static double blocks_between(enum spr_collective collective, spr_dtype t, const char *algorithm,
                             uint64_t *ns)
{
    static float parts[RANKS][RANKS * COUNT], own[RANKS][COUNT];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct spr_sim_options links = {.ranks = RANKS,
                                    .seed = seed,
                                    .latency_s = 10e-6,
                                    .bandwidth = 1e9,
                                    .ranks_per_host = PER_HOST,
                                    .local_latency_s = 1e-6,
                                    .local_bandwidth = 40e9};
    double most = 0;
    struct world w;

    options.algorithm = algorithm;
    world_create(&w, &links);
    world_share_hosts(&w, jobs[3].host);
    for (int r = 0; r < RANKS; r++) {
        spr_request **rq = &w.requests[r];
        spr_status status =
            collective == SPR_C_ALLGATHER
                ? spr_iallgather(w.comms[r], own[r], parts[r], COUNT, t, &options, rq)
            : collective == SPR_C_BROADCAST
                ? spr_ibroadcast(w.comms[r], own[r], COUNT, t, 5, &options, rq)
                : spr_ireduce_scatter(w.comms[r], parts[r], own[r], COUNT, t, SPR_SUM, &options,
                                      rq);
        assert_int_equal(status, SPR_OK);
    }
    *ns = spr_now_ns(spr_sim_clock(w.sim));
    run_ok(&w);
    *ns = spr_now_ns(spr_sim_clock(w.sim)) - *ns;
    for (int h = 0; h < RANKS / PER_HOST; h++) {
        struct spr_sim_traffic out = spr_sim_traffic(w.sim, SPR_SIM_HOSTS, h);
        double bytes = (double)(out.sent_bytes - SPR_FRAME_BYTES * out.sent_frames);
        most = bytes > most ? bytes : most;
    }
    world_destroy(&w);
    return most / (double)spr_dtype_size(t) / COUNT;
}

static void a_host_sends_each_block_once(void **state)
{
    static const struct {
        enum spr_collective collective;
        spr_dtype dtype;
        double by_hosts, direct, faster;
    } cases[] = {
        {SPR_C_REDUCE_SCATTER, SPR_FP32, PER_HOST, PER_HOST * PER_HOST, 3},
        {SPR_C_ALLGATHER, SPR_FP32, PER_HOST, PER_HOST * PER_HOST, 3},
        {SPR_C_REDUCE_SCATTER, SPR_BF16, 2 * PER_HOST, PER_HOST * PER_HOST, 1.5},
        {SPR_C_ALLGATHER, SPR_BF16, PER_HOST, PER_HOST * PER_HOST, 3},
        /* Half of it to its owners, and half of it from each owner to all. */
        {SPR_C_BROADCAST, SPR_FP32, 1, 0.5 + 0.5 * PER_HOST, 2},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        enum spr_collective collective = cases[i].collective;
        uint64_t ns, flat_ns;
        double got = blocks_between(collective, cases[i].dtype, "hierarchical", &ns);
        double direct = blocks_between(collective, cases[i].dtype, "direct", &flat_ns);

        printf("%s of %s: a host sends %.3f blocks, not %.3f, and takes %.2f of the time\n",
               spr_collective_names[collective], spr_dtype_name(cases[i].dtype), got, direct,
               (double)ns / (double)flat_ns);
        assert_true(fabs(got / cases[i].by_hosts - 1) < 0.01);
        assert_true(fabs(direct / cases[i].direct - 1) < 0.01);
        assert_true((double)flat_ns > cases[i].faster * (double)ns);
    }
}

VECTORS_MAIN(cmocka_unit_test(blocks_are_right_on_all_kinds_of_hosts),
             cmocka_unit_test(long_blocks_go_piece_by_piece),
             cmocka_unit_test(a_root_waits_for_all), cmocka_unit_test(several_go_on_at_once),
             cmocka_unit_test(long_blocks_go_by_hosts),
             cmocka_unit_test(long_broadcasts_go_by_hosts),
             cmocka_unit_test(a_host_sends_each_block_once))
