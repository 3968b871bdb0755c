/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed sums by "hosts" (collectives/sparse_hosts.c), over simulated links: what the ranks of
 * a host have is added as it is; of a coded vector the host's sum is coded, once; the sum of all is
 * rounded by its owner. What is lost on the way stays with who rounded it, whatever dies meanwhile.
 */
#define CODEC_WORLD_ALGORITHM "hosts"
#include "compress/coding.h"
#include "tests/sim/codec_world.h"

static const char *const specs[] = {
    "int8",
    "int4:group=100",
    "bounded:bits=6,group=64",
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
    "none:feedback=momentum,momentum=0.5+int8",
};
/* What a step puts into the residual is the gradient. */
enum { PLAIN = SPR_ARRAY_LEN(specs) - 1 };

/* ---- A naive reference ----------------------------------------------------------------------- */

static float of_host[RANKS_MAX][N], sum[N];
static bool touched[N];

/* Round values of a window of an owner, where they are touched; those of a vector all are. */
static void round_window(const struct spr_value_coder *coder, const void *options,
                         const struct spr_blocks *b, uint32_t owner, uint32_t w, float *vector)
{
    static float val[SPR_WINDOW + 16];
    static char image[8 * SPR_WINDOW];
    static size_t at[SPR_WINDOW];
    struct spr_draw none = {{0}, 0};
    size_t n = 0;

    for (uint32_t p = 0; p < spr_blocks_window_len(b, owner, w); p++) {
        size_t global = (size_t)spr_blocks_global(b, owner, ((uint64_t)w << SPR_WINDOW_LOG2) + p);
        if (touched[global]) {
            val[n] = vector[global];
            at[n++] = global;
        }
    }
    if (n == 0)
        return;
    assert_true(coder->bound(options, n) <= sizeof(image));
    coder->encode(options, none, val, n, image);
    coder->decode(options, image, n, SPR_DECODE_SET, val);
    for (size_t i = 0; i < n; i++)
        vector[at[i]] = val[i];
}

/* What the ranks of each host send, by twins of their codecs, added in rank order. */
static void sum_hosts(const struct spr_topology *t, int ranks, spr_codec *const *twins)
{
    static float value[N];

    memset(of_host, 0, sizeof of_host);
    memset(touched, 0, sizeof touched);
    for (int i = 0; i < ranks; i++) {
        int r = t->ranks[i];
        float *host = of_host[t->host[r]];
        const struct spr_codec_place place = {.blocks = spr_blocks_choose(N, (uint32_t)ranks),
                                              .rank = (uint32_t)r};
        struct spr_codec_step s;

        assert_int_equal(spr_codec_begin_at(twins[r], gradient[r], &place, &s), SPR_OK);
        if (s.dense)
            memcpy(value, s.vector, sizeof value);
        else
            spr_codec_sent(twins[r], &s, value);
        for (size_t k = 0; k < (s.dense ? N : s.count); k++) {
            size_t at = s.dense ? k : s.index[k];
            host[at] += value[k];
            touched[at] = true;
        }
    }
}

/* Hosts in order; that of the owner is not coded. */
static void sum_all(const struct spr_topology *t, int ranks, const spr_codec *c, spr_op op)
{
    int shares = spr_topology_fewest(t);
    struct spr_blocks b = spr_blocks_choose(N, (uint32_t)(t->hosts * shares));
    bool coded = c->vtype == SPR_V_CODED;

    memset(sum, 0, sizeof sum);
    for (uint32_t owner = 0; owner < b.ranks; owner++)
        for (int h = 0; h < t->hosts && coded; h++)
            for (uint32_t w = 0; (int)owner / shares != h && w < spr_blocks_windows(&b, owner); w++)
                round_window(c->coder, c->coder_options, &b, owner, w, of_host[h]);
    for (int h = 0; h < t->hosts; h++)
        for (size_t i = 0; i < N; i++)
            sum[i] += of_host[h][i];
    for (size_t i = 0; i < N && op == SPR_AVG; i++)
        sum[i] /= (float)ranks;
    for (uint32_t owner = 0; owner < b.ranks && c->sum_vtype != SPR_V_FP32 && ranks > 1; owner++)
        for (uint32_t w = 0; w < spr_blocks_windows(&b, owner); w++)
            round_window(c->sum_coder, c->sum_options, &b, owner, w, sum);
}

/* The twins have what the codecs had before a step. */
static void follow(int ranks, spr_codec *const *twins)
{
    for (int r = 0; r < ranks; r++) {
        spr_codec_commit(twins[r]);
        memcpy(twins[r]->residual, spr_codec_residual(codec[r]), sizeof(gradient[r]));
        twins[r]->residual_zero = false;
    }
}

static void expect_results(const char *spec, int ranks, spr_op op)
{
    spr_codec *twins[RANKS_MAX];
    const struct spr_topology *t;
    struct world w;

    make(&w, ranks, spec);
    t = &w.comms[0]->topology;
    for (int r = 0; r < ranks; r++)
        twins[r] = make_codec(spec);
    for (uint64_t k = 0; k < 4; k++) {
        draw_on(&w);
        sum_hosts(t, ranks, twins);
        sum_all(t, ranks, codec[0], op);
        step(&w, op, NULL);
        for (size_t i = 0; i < N; i++)
            if (!(buffer[0][i] >= sum[i] && buffer[0][i] <= sum[i]))
                fail_msg("%s, %d ranks on %d hosts, step %llu, element %zu: %.9g, not %.9g "
                         "(SPARRING_SEED=%llu)",
                         spec, ranks, t->hosts, (unsigned long long)k, i, (double)buffer[0][i],
                         (double)sum[i], (unsigned long long)seed);
        for (size_t i = 0; i < N && op == SPR_AVG; i++)
            buffer[0][i] *= (float)ranks;
        if (codec[0]->selection->steps->conserves(codec[0]))
            expect_conserved(&w, 0, k);
        follow(ranks, twins);
    }
    for (int r = 0; r < ranks; r++)
        spr_codec_destroy(twins[r]);
    unmake(&w);
}

static void hosts_are_summed_as_they_are_and_coded_once(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
            expect_results(specs[s], ranks, spr_rng_below(&rng, 2) ? SPR_SUM : SPR_AVG);
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

    (void)state;
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
                assert_int_equal(spr_codec_create("int8", &whole, 1, &codec[r]), SPR_OK);
            }
            for (int k = 0; k < 2; k++)
                step_of(&w, lengths[l]);
            for (int r = 0; r < FOUR; r++)
                spr_codec_destroy(codec[r]);
            world_destroy(&w);
        }
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void a_death_loses_nothing(void **state)
{
    (void)state;
    expect_nothing_lost_by_deaths(specs, PLAIN);
}

static void what_is_not_finite_does_not_stay(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        struct world w;
        size_t bad = 0;

        make(&w, 4, specs[s]);
        for (int k = 0; k < 3; k++) {
            draw(4);
            for (int i = 0; i < 4 && k == 1; i++)
                buffer[i][spr_rng_below(&rng, N)] = i % 2 ? NAN : -INFINITY;
            step(&w, SPR_AVG, NULL);
            for (size_t i = 0; i < N && k == 1; i++)
                bad += isfinite(buffer[0][i]) ? 0 : 1;
            for (int r = 0; r < 4; r++)
                for (size_t i = 0; i < N; i++)
                    if (!isfinite(spr_codec_residual(codec[r])[i]))
                        fail_msg("%s, step %d, rank %d: element %zu stays %g (SPARRING_SEED=%llu)",
                                 specs[s], k, r, i, (double)spr_codec_residual(codec[r])[i],
                                 (unsigned long long)seed);
        }
        assert_true(bad > 0);
        unmake(&w);
    }
}

CODEC_WORLD_MAIN(cmocka_unit_test(hosts_are_summed_as_they_are_and_coded_once),
                 cmocka_unit_test(a_vector_may_have_any_length),
                 cmocka_unit_test(a_death_loses_nothing),
                 cmocka_unit_test(what_is_not_finite_does_not_stay))
