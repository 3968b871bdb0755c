/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Random-k over simulated links: all ranks choose the same positions and send values alone, which
 * makes the sums that lists of indices and values would make. Ranks whose positions differ are
 * told.
 */
#include <float.h>

#include "tests/sim/codec_world.h"

/* ---- Sums ------------------------------------------------------------------------------------ */

/* What twins of the codecs send: as lists through a sparse allreduce, and their sums in fp64. */
static void sum_lists(struct world *w, spr_codec *const *twins, spr_op op, float *out, double *sum,
                      double *size)
{
    static float dense[RANKS_MAX][N], value[RANKS_MAX][N];
    static uint32_t index[RANKS_MAX][N];

    for (size_t i = 0; i < N; i++)
        sum[i] = size[i] = 0;
    for (int r = 0; r < w->ranks; r++) {
        struct spr_codec_place place = {
            .blocks = spr_blocks_choose(spr_codec_vector(twins[r]), (uint32_t)w->ranks),
            .rank = (uint32_t)r};
        spr_sparse list = {index[r], value[r], 0, N};
        struct spr_codec_step s;

        assert_int_equal(spr_codec_begin_at(twins[r], gradient[r], &place, &s), SPR_OK);
        spr_codec_sent(twins[r], &s, value[r]);
        memcpy(index[r], s.index, s.count * sizeof(uint32_t));
        for (size_t i = 0; i < s.count; i++) {
            sum[s.index[i]] += (double)value[r][i];
            size[s.index[i]] += fabs((double)value[r][i]);
        }
        list.count = s.count;
        spr_codec_commit(twins[r]);
        assert_int_equal(
            spr_isparse_allreduce(w->comms[r], &list, N, dense[r], NULL, op, NULL, &w->requests[r]),
            SPR_OK);
    }
    run(w);
    memcpy(out, dense[0], sizeof(dense[0]));
}

static void expect_sums(const char *spec, int ranks, spr_op op)
{
    static float lists[N];
    static double sum[N], size[N];
    spr_codec *twins[RANKS_MAX];
    bool halves = strstr(spec, "fp16") || strstr(spec, "bf16");
    double last = strstr(spec, "bf16") ? 0x1p-8 : halves ? 0x1p-11 : 0;
    double divisor = op == SPR_AVG ? ranks : 1;
    struct world w;

    make(&w, ranks, spec);
    add_in_rank_order(&w);
    for (int r = 0; r < ranks; r++)
        twins[r] = make_codec(spec);
    for (int k = 0; k < 5; k++) {
        draw(ranks);
        sum_lists(&w, twins, op, lists, sum, size);
        step(&w, op, NULL);
        for (size_t i = 0; i < N; i++) {
            double out = (double)buffer[0][i], exact = sum[i] / divisor;
            double bound = (ranks * (double)FLT_EPSILON + last) * size[i] / divisor;
            if (!(fabs(out - exact) <= bound + (halves ? 0x1p-25 : 0)) ||
                (!halves && out != (double)lists[i]))
                fail_msg("%s, %d ranks, step %d, element %zu: %g, by lists %g, in fp64 %g", spec,
                         ranks, k, i, out, (double)lists[i], exact);
        }
    }
    for (int r = 0; r < ranks; r++) {
        assert_memory_equal(spr_codec_residual(codec[r]), spr_codec_residual(twins[r]),
                            sizeof(gradient[r]));
        spr_codec_destroy(twins[r]);
    }
    unmake(&w);
}

static void sums_are_those_of_lists(void **state)
{
    static const char *const specs[] = {
        "random:ratio=1%",
        "random:ratio=100%",
        "random:ratio=10%,feedback=momentum",
        "random:ratio=10%,feedback=decay,clip=1",
        "random:ratio=10%,scale=on,feedback=off",
        "random:ratio=1%,warmup=2",
        "random:ratio=5%+fp16",
        "random:ratio=1e-9+bf16", /* one element */
        "random:ratio=10%+int8",
        "random:ratio=2%,warmup=1+qsgd:levels=7,coding=elias",
    };

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
            expect_sums(specs[s], ranks, ranks % 2 ? SPR_SUM : SPR_AVG);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static uint64_t sent_bytes(const struct world *w)
{
    spr_stats stats = {.struct_size = sizeof stats};

    assert_int_equal(spr_comm_stats(w->comms[0], &stats), SPR_OK);
    return stats.sent_bytes;
}

/* In one sum, or the second of two. */
static double bytes_of(struct world *w, spr_codec **codecs, float **vectors, size_t n)
{
    uint64_t so_far = sent_bytes(w);

    for (int r = 0; r < w->ranks; r++) {
        spr_status status = codecs ? spr_icompressed_allreduce(w->comms[r], codecs[r], vectors[r],
                                                               SPR_SUM, NULL, &w->requests[r])
                                   : spr_iallreduce(w->comms[r], vectors[r], vectors[r], n,
                                                    SPR_FP32, SPR_SUM, NULL, &w->requests[r]);
        assert_int_equal(status, SPR_OK);
    }
    run(w);
    return (double)(sent_bytes(w) - so_far);
}

/* Headers and all. What a list needs for its indices, and twice for the sums, is not there. */
static void bytes_are_the_ratio_of_those_of_a_dense_sum(void **state)
{
    static const struct {
        const char *spec;
        double most;
    } cases[] = {
        {"random:ratio=1%", 0.0101},
        {"random:ratio=1%+bf16", 0.0051},
        {"random:ratio=1%+int8", 0.0067}, /* sums go back as fp32 */
    };
    enum { LONG = 4 << 20, RANKS = 4 };
    const spr_layout whole = {.id = 1, .rows = LONG, .columns = 1};
    struct spr_sim_options options = {.ranks = RANKS, .seed = seed, .latency_s = 10e-6};
    float *vectors[RANKS];
    spr_codec *codecs[RANKS];
    struct world w;

    (void)state;
    world_create(&w, &options);
    for (int r = 0; r < RANKS; r++)
        assert_non_null(vectors[r] = calloc(LONG, sizeof(float)));
    double dense = bytes_of(&w, NULL, vectors, LONG);
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(spr_codec_create(cases[c].spec, &whole, 1, &codecs[r]), SPR_OK);
        for (int r = 0; r < RANKS; r++)
            data_fill(DATA_NORMAL, vectors[r], LONG, &rng);
        double part = bytes_of(&w, codecs, vectors, LONG) / dense;
        printf("%s: %.5f of the bytes of a dense sum\n", cases[c].spec, part);
        assert_true(part <= cases[c].most);
        for (int r = 0; r < RANKS; r++)
            spr_codec_destroy(codecs[r]);
    }
    for (int r = 0; r < RANKS; r++)
        free(vectors[r]);
    world_destroy(&w);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Rank 2 has done a step more than the others. They are told so, lose nothing, and go on when its
 * state is that of another one. */
static void ranks_at_different_steps_are_told(void **state)
{
    static const char *const specs[] = {"random:ratio=3%", "random:ratio=3%,warmup=1",
                                        "random:ratio=3%+int8", "powersgd"};
    static const char wanted[] = "step of the codec 2 on rank 1, 3 on rank 2";

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        struct spr_codec_step alone;
        size_t bytes = 0;
        struct world w;

        make(&w, 3, specs[s]);
        for (int k = 0; k < 2; k++) {
            draw(3);
            step(&w, SPR_SUM, NULL);
        }
        assert_int_equal(spr_codec_begin(codec[2], gradient[2], &alone), SPR_OK);
        spr_codec_commit(codec[2]);
        draw(3);
        for (int r = 0; r < 3; r++) {
            const float *residual = spr_codec_residual(codec[r]);
            for (size_t i = 0; i < N; i++)
                before[r][i] = residual[i] + gradient[r][i];
            assert_int_equal(post(&w, r, SPR_SUM, NULL), SPR_OK);
        }
        run(&w);
        for (int r = 0; r < 3; r++) {
            char zeroth[sizeof(wanted)];

            assert_int_equal(w.results[r], SPR_ERR_MISMATCH);
            memcpy(zeroth, wanted, sizeof(wanted));
            *strstr(zeroth, "rank 1") = 'r';
            zeroth[strlen("step of the codec 2 on rank ")] = '0';
            if (!strstr(spr_last_error(NULL), wanted) && !strstr(spr_last_error(NULL), zeroth))
                fail_msg("%s: %s", specs[s], spr_last_error(NULL));
            assert_memory_equal(spr_codec_residual(codec[r]), before[r], sizeof(before[r]));
        }
        assert_int_equal(spr_codec_save(codec[0], NULL, &bytes), SPR_ERR_TOO_SMALL);
        char *saved = malloc(bytes);
        assert_int_equal(spr_codec_save(codec[0], saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_load(codec[2], saved, bytes), SPR_OK);
        free(saved);
        for (int k = 0; k < 3; k++) {
            draw(3);
            step(&w, SPR_SUM, NULL);
        }
        unmake(&w);
    }
}

/* Their positions are not the same. Nothing is lost, and the ratio holds for the next new step. */
static void ranks_with_different_ratios_are_told(void **state)
{
    struct world w;

    (void)state;
    make(&w, 3, "random:ratio=3%+fp16");
    draw(3);
    assert_int_equal(spr_codec_set_ratio(codec[1], 0.01), SPR_OK);
    for (int r = 0; r < 3; r++) {
        memcpy(before[r], gradient[r], sizeof(before[r]));
        assert_int_equal(post(&w, r, SPR_SUM, NULL), SPR_OK);
    }
    run(&w);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(w.results[r], SPR_ERR_MISMATCH);
        assert_memory_equal(spr_codec_residual(codec[r]), before[r], sizeof(before[r]));
        spr_codec_drop(codec[r]);
        assert_int_equal(spr_codec_set_ratio(codec[r], 0.01), SPR_OK);
    }
    draw(3);
    step(&w, SPR_SUM, NULL);
    unmake(&w);
}

static void after_a_death_all_are_at_the_same_step(void **state)
{
    static const char *const specs[] = {"random:ratio=2%", "random:ratio=2%,warmup=2",
                                        "random:ratio=5%+int8"};

    (void)state;
    expect_nothing_lost_by_deaths(specs, SPR_ARRAY_LEN(specs));
}

CODEC_WORLD_MAIN(cmocka_unit_test(sums_are_those_of_lists),
                 cmocka_unit_test(bytes_are_the_ratio_of_those_of_a_dense_sum),
                 cmocka_unit_test(ranks_at_different_steps_are_told),
                 cmocka_unit_test(ranks_with_different_ratios_are_told),
                 cmocka_unit_test(after_a_death_all_are_at_the_same_step))
