/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums that are rounded as values are, or by a coder of their own (compress/codec_sums.c), over
 * simulated links: what comes out is the sum, rounded once more by its owner; what that loses comes
 * again; and sums=exact, coders that round at random and a rank alone leave the sum as it is. And
 * unions that are bounded: the largest sums come out, and the others where they came from.
 */
/* Owners round sums; short lists have none. */
#define CODEC_WORLD_ALGORITHM "hierarchical"
#include "tests/sim/codec_world.h"

static const char *const rounding_specs[] = {
    "topk:ratio=5%+fp16",
    "topk:ratio=3%+bf16",
    "topk:ratio=10%+int8:group=64",
    "topk:ratio=100%+int4",
    "topk:ratio=2%+bounded:error=0.01",
    "threshold:by=rms,value=2,most=20%+sign:group=32",
    "block:ratio=10%+fp16",
    "adaptive:ratio=5%+int8",
    "int8",
    "int4:group=100",
    "bounded:bits=6,group=96",
    "sign",
    "topk:ratio=5%,union=bounded+fp16",
    "topk:ratio=20%,union=bounded+int8:group=64",
    "block:ratio=10%,union=bounded+bf16",
    "topk:ratio=5%,sums=int8",
    "topk:ratio=3%,sums=fp16+int8:rounding=stochastic",
    "topk:ratio=8%,sums=int4+bf16",
    "block:ratio=10%,union=bounded,sums=bf16",
    "none:sums=int8+sign",
    "none:sums=fp16+int4:group=100",
};
static const char *const exact_specs[] = {
    "topk:ratio=5%",
    "topk:ratio=5%,sums=exact+fp16",
    "topk:ratio=5%,feedback=off+int8",
    "topk:ratio=5%+int8:rounding=stochastic",
    "none:sums=exact+int8",
    "qsgd:levels=7",
    "topk:ratio=5%,union=bounded",
    "topk:ratio=60%,union=bounded,sums=exact+fp16",
    "threshold:by=rms,value=1.5,union=bounded",
    "adaptive:ratio=10%,union=bounded",
};

/* ---- A naive reference ----------------------------------------------------------------------- */

static float sum[N];
static int touched[N]; /* by so many ranks */
static bool rounded;   /* are sums? */

/* What all ranks send, by twins of their codecs, added in rank order. */
static void sum_twins(int ranks, spr_codec *const *twins)
{
    static float value[N];

    memset(sum, 0, sizeof(sum));
    memset(touched, 0, sizeof(touched));
    for (int r = 0; r < ranks; r++) {
        const struct spr_codec_place place = {.blocks = spr_blocks_choose(N, (uint32_t)ranks),
                                              .rank = (uint32_t)r};
        struct spr_codec_step s;

        assert_int_equal(spr_codec_begin_at(twins[r], gradient[r], &place, &s), SPR_OK);
        spr_codec_sent(twins[r], &s, value);
        for (size_t i = 0; i < (s.dense ? N : s.count); i++) {
            size_t at = s.dense ? i : s.index[i];
            sum[at] = touched[at] ? sum[at] + value[i] : 0 + value[i];
            touched[at]++;
        }
    }
}

static void average(int ranks)
{
    for (size_t i = 0; i < N; i++)
        sum[i] /= (float)ranks;
}

static int by_size(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    float x = fabsf(sum[i]), y = fabsf(sum[j]);

    return x > y ? -1 : x < y ? 1 : (i > j) - (i < j);
}

/* Of the sums of a window only the largest stay: as many as a rank has sent there on average. */
static void bound_window(const struct spr_blocks *b, uint32_t owner, uint32_t w, int ranks)
{
    static size_t order[SPR_WINDOW];
    uint64_t first = (uint64_t)w << SPR_WINDOW_LOG2;
    size_t n = 0, all = 0;

    for (uint32_t p = 0; p < spr_blocks_window_len(b, owner, w); p++) {
        size_t at = (size_t)spr_blocks_global(b, owner, first + p);

        all += (size_t)touched[at];
        if (touched[at])
            order[n++] = at;
    }
    qsort(order, n, sizeof(*order), by_size);
    for (size_t i = spr_div_ceil(all, (size_t)ranks); i < n; i++)
        sum[order[i]] = 0, touched[order[i]] = 0;
}

static void bound_sum(int ranks)
{
    struct spr_blocks b = spr_blocks_choose(N, (uint32_t)ranks);

    for (uint32_t owner = 0; owner < (uint32_t)ranks; owner++)
        for (uint32_t w = 0; w < spr_blocks_windows(&b, owner); w++)
            bound_window(&b, owner, w, ranks);
}

/* What comes out, of unions that are bounded or not, rounded or not. */
static const float *make_sum(const struct world *w, spr_codec *const *twins, spr_op op)
{
    const spr_codec *c = codec[0];
    struct spr_blocks b = spr_blocks_choose(N, (uint32_t)w->ranks);

    sum_twins(w->ranks, twins);
    if (spr_codec_bounds_union(c))
        bound_sum(w->ranks);
    if (op == SPR_AVG)
        average(w->ranks);
    for (uint32_t owner = 0; rounded && owner < b.ranks; owner++)
        round_blocks(c->sum_coder, c->sum_options, &b, owner, touched, sum);
    return sum;
}

static void expect_results(const char *spec, int ranks, spr_op op, bool round_sums)
{
    rounded = round_sums;
    expect_steps(spec, ranks, op, make_sum);
}

static void sums_are_rounded_once_more_and_nothing_is_lost(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(rounding_specs); s++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
            expect_results(rounding_specs[s], ranks, (ranks + (int)s) % 2 ? SPR_SUM : SPR_AVG,
                           ranks > 1);
}

static void sums_are_exact_where_that_is_asked_for(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(exact_specs); s++)
        for (int ranks = 2; ranks <= RANKS_MAX; ranks += 2)
            expect_results(exact_specs[s], ranks, SPR_AVG, false);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void a_death_loses_nothing_of_what_sums_have_lost(void **state)
{
    (void)state;
    expect_nothing_lost_by_deaths(rounding_specs, SPR_ARRAY_LEN(rounding_specs));
}

static void what_is_not_finite_does_not_stay(void **state)
{
    (void)state;
    expect_what_is_not_finite_to_go(rounding_specs, SPR_ARRAY_LEN(rounding_specs), 3);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static double sent_bytes(const struct world *w)
{
    spr_stats stats = {.struct_size = sizeof stats};

    assert_int_equal(spr_comm_stats(w->comms[0], &stats), SPR_OK);
    return (double)stats.sent_bytes;
}

/* Per element, headers and all, of 2 (P - 1) / P n elements in both directions. */
static void both_ways_take_the_bytes_of_the_coder(void **state)
{
    static const struct {
        const char *spec;
        double most;
    } cases[] = {{"int8", 1.02},   {"int4", 0.52},
                 {"sign", 0.14},   {"none:sums=int8+sign", 0.58},
                 {"onebit", 0.33}, {"none:sums=exact+int8", 2.53}};
    enum { LONG = 1 << 20, RANKS = 4 };
    const spr_layout whole = {.id = 1, .rows = LONG, .columns = 1};
    struct spr_sim_options options = {.ranks = RANKS, .seed = seed, .latency_s = 10e-6};
    float *vectors[RANKS];
    struct world w;

    (void)state;
    world_create(&w, &options);
    for (int r = 0; r < RANKS; r++)
        assert_non_null(vectors[r] = malloc(LONG * sizeof(float)));
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        double so_far = sent_bytes(&w), per_element;

        for (int r = 0; r < RANKS; r++) {
            data_fill(DATA_NORMAL, vectors[r], LONG, &rng);
            assert_int_equal(spr_codec_create(cases[c].spec, &whole, 1, &codec[r]), SPR_OK);
            assert_int_equal(spr_icompressed_allreduce(w.comms[r], codec[r], vectors[r], SPR_AVG,
                                                       NULL, &w.requests[r]),
                             SPR_OK);
        }
        run(&w);
        per_element = (sent_bytes(&w) - so_far) / (2.0 * (RANKS - 1) / RANKS * LONG);
        printf("%s: %.3f bytes per element\n", cases[c].spec, per_element);
        assert_true(per_element <= cases[c].most);
        for (int r = 0; r < RANKS; r++)
            spr_codec_destroy(codec[r]);
    }
    for (int r = 0; r < RANKS; r++)
        free(vectors[r]);
    world_destroy(&w);
}

CODEC_WORLD_MAIN(cmocka_unit_test(sums_are_rounded_once_more_and_nothing_is_lost),
                 cmocka_unit_test(sums_are_exact_where_that_is_asked_for),
                 cmocka_unit_test(a_death_loses_nothing_of_what_sums_have_lost),
                 cmocka_unit_test(what_is_not_finite_does_not_stay),
                 cmocka_unit_test(both_ways_take_the_bytes_of_the_coder))
