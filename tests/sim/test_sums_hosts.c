/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed sums by "hosts" (collectives/sparse_hosts.c), over simulated links: what the ranks of
 * a host have is added as it is; of a coded vector the host's sum is coded, once; of lists with
 * union=hosts the largest of a host's sums go to others; the sum of all is rounded by its owner.
 * What is lost on the way stays with who rounded it or left it out, whatever dies meanwhile.
 */
static const char by_hosts[] = "hosts", *algorithm = by_hosts;
#define CODEC_WORLD_ALGORITHM algorithm
#include "tests/sim/codec_world.h"

static const char *const specs[] = {
    "int8",
    "int4:group=100",
    "bounded:bits=6,group=96",
    "sign",
    "none:sums=exact+int8",
    "none:sums=int8+sign",
    "none:sums=fp16+int4:group=100",
    "topk:ratio=5%",
    "topk:ratio=5%+fp16",
    "topk:ratio=3%+bf16",
    "topk:ratio=3%,sums=int8",
    "topk:ratio=60%,sums=bf16+fp16",
    "topk:ratio=10%,sums=exact+fp16",
    "topk:ratio=5%,union=hosts",
    "topk:ratio=5%,union=hosts+fp16",
    "topk:ratio=60%,union=hosts,sums=bf16",
    "block:ratio=10%,union=hosts,sums=int8+bf16",
    "threshold:by=rms,value=1.5,union=hosts,sums=exact+fp16",
    "none:feedback=momentum,momentum=0.5+int8",
};
/* By "hosts" only where hosts are shared, and then by "auto". */
static const char *const coded_lists[] = {
    "topk:ratio=10%,union=hosts+int8:group=64",
    "topk:ratio=20%,union=hosts,sums=fp16+int4",
    "topk:ratio=10%,union=hosts,sums=exact+bounded:error=0.01",
};
/* What a step puts into the residual is the gradient. */
enum { PLAIN = SPR_ARRAY_LEN(specs) - 1 };

/* ---- A naive reference ----------------------------------------------------------------------- */

static float of_host[RANKS_MAX][N], sum[N];
static int touched[RANKS_MAX][N]; /* by so many ranks of a host */
static int all_touched[N];

/* What the ranks of each host send, by twins of their codecs, added in rank order. */
static void sum_hosts(const struct spr_topology *t, int ranks, spr_codec *const *twins, bool bounds)
{
    static float value[N];

    memset(of_host, 0, sizeof of_host);
    memset(touched, 0, sizeof touched);
    for (int i = 0; i < ranks; i++) {
        int r = t->ranks[i];
        float *host = of_host[t->host[r]];
        const struct spr_codec_place place = {.blocks = spr_blocks_choose(N, (uint32_t)ranks),
                                              .rank = (uint32_t)r,
                                              .sums_first = bounds};
        struct spr_codec_step s;

        assert_int_equal(spr_codec_begin_at(twins[r], gradient[r], &place, &s), SPR_OK);
        if (s.dense)
            memcpy(value, s.vector, sizeof value);
        else
            spr_codec_sent(twins[r], &s, value);
        for (size_t k = 0; k < (s.dense ? N : s.count); k++) {
            size_t at = s.dense ? k : s.index[k];
            host[at] += value[k];
            touched[t->host[r]][at]++;
        }
    }
}

static const float *ordered; /* by_size() */

static int by_size(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    float x = fabsf(ordered[i]), y = fabsf(ordered[j]);

    return x > y ? -1 : x < y ? 1 : (i > j) - (i < j);
}

/* Of a host's sums in a window the largest stay, as many as its ranks have on average; the others
 * go to `left`. */
static void bound_window(const struct spr_blocks *b, uint32_t owner, uint32_t w, int h,
                         size_t ranks, float *left)
{
    static size_t order[SPR_WINDOW];
    uint64_t first = (uint64_t)w << SPR_WINDOW_LOG2;
    size_t n = 0, all = 0;

    for (uint32_t p = 0; p < spr_blocks_window_len(b, owner, w); p++) {
        size_t at = (size_t)spr_blocks_global(b, owner, first + p);

        all += (size_t)touched[h][at];
        if (touched[h][at])
            order[n++] = at;
    }
    ordered = of_host[h];
    qsort(order, n, sizeof *order, by_size);
    for (size_t i = spr_div_ceil(all, ranks); i < n; i++) {
        left[order[i]] = of_host[h][order[i]];
        of_host[h][order[i]] = 0;
        touched[h][order[i]] = 0;
    }
}

/* As an owner gets them, but for `own`, which the hosts of the owners have left out. */
static void bound_hosts(const struct spr_topology *t, const struct spr_blocks *b, float *own)
{
    static float left[N];
    int shares = spr_topology_fewest(t);

    for (uint32_t owner = 0; owner < b->ranks; owner++)
        for (int h = 0; h < t->hosts; h++)
            for (uint32_t w = 0; w < spr_blocks_windows(b, owner); w++)
                bound_window(b, owner, w, h, (size_t)spr_topology_local_ranks(t, h),
                             (int)owner / shares == h ? own : left);
}

/* What of a host's sums is rounded on its way to an owner, and how. */
static bool rounds_hosts(const spr_codec *c, bool bounds, const struct spr_value_coder **coder,
                         const void **options)
{
    bool as_sums = bounds && c->vtype != SPR_V_CODED;

    *coder = as_sums ? c->sum_coder : c->coder;
    *options = as_sums ? c->sum_options : c->coder_options;
    return as_sums ? c->sum_vtype == SPR_V_FP16 || c->sum_vtype == SPR_V_BF16
                   : c->vtype == SPR_V_CODED;
}

/* Hosts in order; that of the owner is not coded, and adds in the end what it had left out and
 * others have brought. */
static const float *make_sum(const struct world *w, spr_codec *const *twins, spr_op op)
{
    static float own[N];
    const struct spr_topology *t = &w->comms[0]->topology;
    const spr_codec *c = codec[0];
    int shares = spr_topology_fewest(t);
    struct spr_blocks b = spr_blocks_choose(N, (uint32_t)(t->hosts * shares));
    bool bounds = spr_codec_bounds_hosts(c) && t->hosts > 1 && t->hosts < w->ranks;
    const struct spr_value_coder *coder;
    const void *options;

    if (!bounds && algorithm != by_hosts)
        return NULL; /* another algorithm, of other tests */
    sum_hosts(t, w->ranks, twins, bounds);
    memset(own, 0, sizeof own);
    if (bounds)
        bound_hosts(t, &b, own);
    if (rounds_hosts(c, bounds, &coder, &options))
        for (uint32_t owner = 0; owner < b.ranks; owner++)
            for (int h = 0; h < t->hosts; h++)
                if ((int)owner / shares != h)
                    round_blocks(coder, options, &b, owner, touched[h], of_host[h]);
    memset(sum, 0, sizeof sum);
    memset(all_touched, 0, sizeof all_touched);
    for (int h = 0; h < t->hosts; h++)
        for (size_t i = 0; i < N; i++) {
            sum[i] += of_host[h][i];
            all_touched[i] += touched[h][i];
        }
    for (size_t i = 0; i < N; i++)
        sum[i] += all_touched[i] ? own[i] : 0;
    for (size_t i = 0; i < N && op == SPR_AVG; i++)
        sum[i] /= (float)w->ranks;
    for (uint32_t owner = 0; owner < b.ranks && c->sum_vtype != SPR_V_FP32; owner++)
        round_blocks(c->sum_coder, c->sum_options, &b, owner, all_touched, sum);
    return sum;
}

static void hosts_are_summed_as_they_are_and_coded_once(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int ranks = 2; ranks <= RANKS_MAX; ranks += 1 + reference_small_scale())
            expect_steps(specs[s], ranks, spr_rng_below(&rng, 2) ? SPR_SUM : SPR_AVG, make_sum);
}

static void lists_are_coded_once_for_a_host(void **state)
{
    (void)state;
    algorithm = "auto";
    for (size_t s = 0; s < SPR_ARRAY_LEN(coded_lists); s++)
        for (int ranks = 3; ranks <= RANKS_MAX; ranks += 1 + reference_small_scale())
            for (int k = 0; k < 2; k++)
                expect_steps(coded_lists[s], ranks, k ? SPR_SUM : SPR_AVG, make_sum);
    algorithm = by_hosts;
}

/* ---- Who may do it --------------------------------------------------------------------------- */

enum { PAIRS = 4 };

static void make_pairs(struct world *w, int determinism, const char *spec)
{
    static const int host[] = {0, 0, 1, 1};
    struct spr_sim_options options = {.ranks = PAIRS, .seed = seed, .latency_s = 10e-6};

    world_create(w, &options);
    world_share_hosts(w, host);
    for (int r = 0; r < PAIRS; r++) {
        w->comms[r]->options.determinism = determinism;
        codec[r] = make_codec(spec);
    }
}

/* Where sums are added in the order of ranks they are those of all lists. */
static void in_rank_order_nothing_is_left_out(void **state)
{
    static const char *const both[] = {"topk:ratio=5%,union=all+fp16",
                                       "topk:ratio=5%,union=hosts+fp16"};
    static float all[N];
    struct world w;

    (void)state;
    algorithm = "auto";
    draw(PAIRS);
    for (int i = 0; i < 2; i++) {
        make_pairs(&w, SPR_DETERMINISM_CANONICAL, both[i]);
        memcpy(buffer, gradient, sizeof buffer);
        step(&w, SPR_SUM, NULL);
        if (i > 0)
            assert_memory_equal(buffer[0], all, sizeof all);
        memcpy(all, buffer[0], sizeof all);
        unmake(&w);
    }
    algorithm = by_hosts;
}

static void no_other_algorithm_bounds_hosts(void **state)
{
    spr_prediction predictions[SPR_CANDIDATES];
    const char *name;
    struct world w;

    (void)state;
    make_pairs(&w, SPR_DETERMINISM_RUN, "topk:ratio=5%,union=hosts");
    draw(PAIRS);
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
        if (!strcmp(name, by_hosts))
            continue;
        algorithm = name;
        assert_int_equal(post(&w, 0, SPR_SUM, NULL), SPR_ERR_INVALID);
        assert_non_null(strstr(spr_last_error(NULL), "with union=hosts; there is: hosts"));
    }
    algorithm = by_hosts;
    assert_int_equal(spr_codec_predict(w.comms[0], codec[0], predictions, SPR_CANDIDATES), 1);
    assert_string_equal(predictions[0].algorithm, by_hosts);
    /* There is nothing to try: no call, which would wait here for ever. */
    assert_int_equal(spr_codec_tune(w.comms[0], codec[0]), SPR_OK);
    unmake(&w);
}

/* ---- Lengths --------------------------------------------------------------------------------- */

enum { LONG = 600001, FOUR = 4 };
static float vector[FOUR][LONG], there[FOUR][LONG];

/* A step: nothing is lost, and all have the same. */
static void step_of(struct world *w, size_t n)
{
    for (int r = 0; r < FOUR; r++) {
        data_fill(DATA_NORMAL, vector[r], n, &rng);
        for (size_t i = 0; i < n; i++)
            there[r][i] = spr_codec_residual(codec[r])[i] + vector[r][i];
    }
    for (int r = 0; r < FOUR; r++)
        assert_int_equal(spr_icompressed_allreduce(w->comms[r], codec[r], vector[r], SPR_SUM, NULL,
                                                   &w->requests[r]),
                         SPR_OK);
    if (strstr(codec[0]->spec, "union=hosts") || !codec[0]->selection->selector)
        assert_string_equal(w->requests[0]->posted.algorithm, "hosts");
    run(w);
    for (size_t i = 0; i < n; i++) {
        double sent = 0, size = 1;
        for (int r = 0; r < FOUR; r++) {
            assert_int_equal(w->results[r], SPR_OK);
            assert_memory_equal(&vector[r][i], &vector[0][i], sizeof(float));
            sent += (double)there[r][i] - (double)spr_codec_residual(codec[r])[i];
            size += fabs((double)there[r][i]);
        }
        if (!(fabs((double)vector[0][i] - sent) <= 1e-6 * size))
            fail_msg("element %zu of %zu: %g, and %g was sent (SPARRING_SEED=%llu)", i, n,
                     (double)vector[0][i], sent, (unsigned long long)seed);
    }
}

/* Of no window for some ranks, to several for each; in order, or as they come. */
static void a_vector_may_have_any_length(void **state)
{
    static const size_t lengths[] = {1, 65, 3000, LONG};
    static const int host[] = {0, 0, 1, 1}, uneven[] = {0, 1, 0, 2};
    static const char *const long_specs[] = {"int8", "topk:ratio=20%,union=hosts+fp16",
                                             "topk:ratio=5%,union=hosts+int8"};

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(long_specs); c++)
        for (size_t l = 0; l < SPR_ARRAY_LEN(lengths); l++)
            for (int way = 0; way < 4; way++) {
                const spr_layout whole = {.id = 1, .rows = lengths[l], .columns = 1};
                struct spr_sim_options options = {
                    .ranks = FOUR, .seed = seed, .latency_s = 10e-6, .jitter_s = 50e-6};
                struct world w;

                world_create(&w, &options);
                world_share_hosts(&w, way & 1 ? uneven : host);
                for (int r = 0; r < FOUR; r++) {
                    w.comms[r]->options.determinism =
                        way & 2 ? SPR_DETERMINISM_OFF : SPR_DETERMINISM_RUN;
                    assert_int_equal(spr_codec_create(long_specs[c], &whole, 1, &codec[r]), SPR_OK);
                }
                for (int k = 0; k < 2; k++)
                    step_of(&w, lengths[l]);
                for (int r = 0; r < FOUR; r++)
                    spr_codec_destroy(codec[r]);
                world_destroy(&w);
            }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* The most that a host of two ranks sends. */
static double sent_by_hosts(const char *spec)
{
    static const int host[] = {0, 0, 1, 1};
    const spr_layout whole = {.id = 1, .rows = LONG, .columns = 1};
    struct spr_sim_options options = {.ranks = FOUR, .seed = seed, .ranks_per_host = 2};
    double most = 0;
    struct world w;

    world_create(&w, &options);
    world_share_hosts(&w, host);
    for (int r = 0; r < FOUR; r++)
        assert_int_equal(spr_codec_create(spec, &whole, 1, &codec[r]), SPR_OK);
    step_of(&w, LONG);
    for (int h = 0; h < 2; h++) {
        struct spr_sim_traffic out = spr_sim_traffic(w.sim, SPR_SIM_HOSTS, h);
        most = fmax(most, (double)out.sent_bytes);
    }
    for (int r = 0; r < FOUR; r++)
        spr_codec_destroy(codec[r]);
    world_destroy(&w);
    return most;
}

/* Lists of k entries at independent positions: a host sends k to owners, and they have 2 k,
 * instead of nearly 2 k and 4 k, whose positions take fewer bits each. */
static void a_host_sends_as_many_entries_as_one_rank(void **state)
{
    double all, bound;

    (void)state;
    for (size_t r = 0; r < 4; r++) {
        static const char *const types[] = {"", "+fp16", ",sums=fp16", "+int8"};
        char whole[64], bounding[64];

        snprintf(whole, sizeof whole, "topk:ratio=5%%,union=all%s", types[r]);
        snprintf(bounding, sizeof bounding, "topk:ratio=5%%,union=hosts%s", types[r]);
        all = sent_by_hosts(whole);
        bound = sent_by_hosts(bounding);
        printf("%s: a host sends %.3f of the bytes of union=all\n", bounding, bound / all);
        assert_true(bound < 0.56 * all);
    }
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void a_death_loses_nothing(void **state)
{
    (void)state;
    expect_nothing_lost_by_deaths(specs, PLAIN);
    algorithm = "auto";
    expect_nothing_lost_by_deaths(coded_lists, SPR_ARRAY_LEN(coded_lists));
    algorithm = by_hosts;
}

static void what_is_not_finite_does_not_stay(void **state)
{
    (void)state;
    expect_what_is_not_finite_to_go(specs, SPR_ARRAY_LEN(specs), 4);
    algorithm = "auto";
    expect_what_is_not_finite_to_go(coded_lists, SPR_ARRAY_LEN(coded_lists), 4);
    algorithm = by_hosts;
}

CODEC_WORLD_MAIN(cmocka_unit_test(hosts_are_summed_as_they_are_and_coded_once),
                 cmocka_unit_test(lists_are_coded_once_for_a_host),
                 cmocka_unit_test(in_rank_order_nothing_is_left_out),
                 cmocka_unit_test(no_other_algorithm_bounds_hosts),
                 cmocka_unit_test(a_vector_may_have_any_length),
                 cmocka_unit_test(a_host_sends_as_many_entries_as_one_rank),
                 cmocka_unit_test(a_death_loses_nothing),
                 cmocka_unit_test(what_is_not_finite_does_not_stay))
