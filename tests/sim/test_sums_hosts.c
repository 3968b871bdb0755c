/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed sums by "hosts" (collectives/sparse_hosts.c), over simulated links: what the ranks of
 * a host have is added as it is; of a coded vector the host's sum is coded, once; the sum of all is
 * rounded by its owner. What is lost on the way stays with who rounded it, whatever dies meanwhile.
 */
#define CODEC_WORLD_ALGORITHM "hosts"
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
static int touched[N]; /* by so many ranks */

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
            touched[at]++;
        }
    }
}

/* Hosts in order; that of the owner is not coded. */
static const float *make_sum(const struct world *w, spr_codec *const *twins, spr_op op)
{
    const struct spr_topology *t = &w->comms[0]->topology;
    const spr_codec *c = codec[0];
    int shares = spr_topology_fewest(t);
    struct spr_blocks b = spr_blocks_choose(N, (uint32_t)(t->hosts * shares));

    sum_hosts(t, w->ranks, twins);
    for (uint32_t owner = 0; owner < b.ranks && c->vtype == SPR_V_CODED; owner++)
        for (int h = 0; h < t->hosts; h++)
            if ((int)owner / shares != h)
                round_blocks(c->coder, c->coder_options, &b, owner, touched, of_host[h]);
    memset(sum, 0, sizeof sum);
    for (int h = 0; h < t->hosts; h++)
        for (size_t i = 0; i < N; i++)
            sum[i] += of_host[h][i];
    for (size_t i = 0; i < N && op == SPR_AVG; i++)
        sum[i] /= (float)w->ranks;
    for (uint32_t owner = 0; owner < b.ranks && c->sum_vtype != SPR_V_FP32; owner++)
        round_blocks(c->sum_coder, c->sum_options, &b, owner, touched, sum);
    return sum;
}

static void hosts_are_summed_as_they_are_and_coded_once(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
            expect_steps(specs[s], ranks, spr_rng_below(&rng, 2) ? SPR_SUM : SPR_AVG, make_sum);
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
    expect_what_is_not_finite_to_go(specs, SPR_ARRAY_LEN(specs), 4);
}

CODEC_WORLD_MAIN(cmocka_unit_test(hosts_are_summed_as_they_are_and_coded_once),
                 cmocka_unit_test(a_vector_may_have_any_length),
                 cmocka_unit_test(a_death_loses_nothing),
                 cmocka_unit_test(what_is_not_finite_does_not_stay))
