/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which algorithms of the sparse allreduce there are: for a codec, and by what order they add in.
 */
#include "tests/sim/vectors.h"

#include "collectives/collective.h"

static const char *taken; /* by the last step */

/* Frames of one step, by all ranks. */
static uint64_t frames_of(struct world *w, const char *spec, size_t elements, const char *algorithm)
{
    spr_layout layout = {1, "w", 0, elements, 1};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static float gradient[4][100000];
    spr_codec *codec[4];
    uint64_t frames = 0;

    options.algorithm = algorithm;
    for (int r = 0; r < 4; r++) {
        for (size_t i = 0; i < elements; i++)
            gradient[r][i] = (float)(i % 97);
        assert_int_equal(spr_codec_create(spec, &layout, 1, &codec[r]), SPR_OK);
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int from = 0; from < 4; from++)
            for (int to = 0; to < 4; to++)
                frames += (uint64_t)sign * spr_sim_sent_frames(w->sim, from, to);
        for (int r = 0; r < 4 && sign < 0; r++)
            assert_int_equal(spr_icompressed_allreduce(w->comms[r], codec[r], gradient[r], SPR_SUM,
                                                       &options, &w->requests[r]),
                             SPR_OK);
        if (sign < 0) {
            taken = w->requests[0]->posted.algorithm;
            run_ok(w);
        }
    }
    for (int r = 0; r < 4; r++)
        spr_codec_destroy(codec[r]);
    return frames;
}

/* Where each rank is a host, a quarter of the entries being 64 KiB or more. */
static void sums_of_long_lists_go_round_a_ring(void **state)
{
    static const struct {
        const char *spec, *taken;
        size_t elements;
        int host[4];
    } cases[] = {
        {"topk:ratio=50%", "relay", 100000, {0, 1, 2, 3}},
        {"topk:ratio=50%+int8", "relay", 100000, {0, 1, 2, 3}},
        {"topk:ratio=50%", "direct", 80000, {0, 1, 2, 3}},
        {"topk:ratio=50%", "hierarchical", 100000, {0, 1, 2, 2}},
        {"topk:ratio=50%", "direct", 100000, {0, 0, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        struct world w;
        make(&w, 4, 0);
        world_share_hosts(&w, cases[i].host);
        frames_of(&w, cases[i].spec, cases[i].elements, NULL);
        assert_string_equal(taken, cases[i].taken);
        world_destroy(&w);
    }
}

static void hosts_are_summed_before_long_values_are_coded(void **state)
{
    static const struct {
        const char *spec, *taken;
        int host[4];
        int determinism;
    } cases[] = {
        {"int8", "hosts", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"int8", "hosts", {0, 1, 2, 2}, SPR_DETERMINISM_OFF},
        {"int8", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_CANONICAL},
        {"int8", "hierarchical", {0, 1, 1, 1}, SPR_DETERMINISM_RUN}, /* one would sum for three */
        {"int8", "direct", {0, 1, 2, 3}, SPR_DETERMINISM_RUN},
        {"int8", "direct", {0, 0, 0, 0}, SPR_DETERMINISM_RUN},
        {"bounded:bits=6", "hosts", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"bounded:bits=3", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"bounded:error=0.001", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"int4", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"sign", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"none:feedback=off+int8", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"int8:rounding=stochastic", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
        {"topk:ratio=50%+int8", "hierarchical", {0, 0, 1, 1}, SPR_DETERMINISM_RUN},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        struct world w;
        make(&w, 4, 0);
        world_share_hosts(&w, cases[i].host);
        for (int r = 0; r < 4; r++)
            w.comms[r]->options.determinism = cases[i].determinism;
        frames_of(&w, cases[i].spec, 50000, NULL);
        assert_string_equal(taken, cases[i].taken);
        world_destroy(&w);
    }
}

/* 3 x 6 x 10,000 bytes are, ten times that are not, and coded values need owners. */
static void short_lists_are_sent_to_all(void **state)
{
    struct world w;

    (void)state;
    make(&w, 4, 0);
    assert_int_equal(frames_of(&w, "topk:ratio=10%", 100000, NULL),
                     frames_of(&w, "topk:ratio=10%", 100000, "allgather"));
    assert_int_equal(frames_of(&w, "topk:ratio=30%", 100000, NULL),
                     frames_of(&w, "topk:ratio=30%", 100000, "direct"));
    assert_int_equal(frames_of(&w, "topk:ratio=10%+int8", 100000, NULL),
                     frames_of(&w, "topk:ratio=10%+int8", 100000, "direct"));
    assert_true(frames_of(&w, "topk:ratio=10%", 100000, "allgather") <
                frames_of(&w, "topk:ratio=10%", 100000, "direct"));
    world_destroy(&w);
}

/* Those of the dense allreduce that sum no halves. */
static void halves_are_refused_before_the_codec_has_begun(void **state)
{
    static const char *const specs[] = {"fp16", "bf16"};
    spr_layout layout = {1, "w", 0, 1000, 1};
    static float gradient[1000];
    struct world w;
    int refused = 0;

    (void)state;
    make(&w, 2, 0);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        for (int a = 0; (options.algorithm = spr_algorithm_name("allreduce", a)) != NULL; a++) {
            spr_codec *codec[2];
            spr_status status = SPR_OK;
            for (int r = 0; r < 2; r++) {
                for (int k = 0; k < 1000; k++)
                    gradient[k] = 1 + (float)k * 0x1p-20f;
                assert_int_equal(spr_codec_create(specs[i], &layout, 1, &codec[r]), SPR_OK);
                status = spr_icompressed_allreduce(w.comms[r], codec[r], gradient, SPR_SUM,
                                                   &options, &w.requests[r]);
                if (status == SPR_OK)
                    continue;
                assert_int_equal(status, SPR_ERR_INVALID);
                for (int k = 0; k < 1000; k++)
                    assert_true(spr_codec_residual(codec[r])[k] == 0);
                refused++;
            }
            if (status == SPR_OK)
                run_ok(&w);
            spr_codec_destroy(codec[0]);
            spr_codec_destroy(codec[1]);
        }
    }
    assert_true(refused > 0);
    world_destroy(&w);
}

/* Do owners send what they have summed as the codec has it? The others send it as fp32. */
static bool ranks_own_alike_with(const char *name)
{
    return !strcmp(name, "direct") || !strcmp(name, "hierarchical") || !strcmp(name, "relay");
}

static bool sums_are_rounded_by(const char *name)
{
    return ranks_own_alike_with(name) || !strcmp(name, "hosts");
}

/* Each value is of fp16 and what is below it, which stays in the rank's residual, and sums of the
 * former are exact. */
static void halves_are_summed_by_every_algorithm(void **state)
{
    enum { RANKS = 6, N = 5000, KEPT = N / 10 };
    static const int hosts[RANKS] = {0, 0, 1, 1, 2, 2};
    static float gradient[RANKS][N], sum[N], beneath[N];
    spr_layout layout = {1, "w", 0, N, 1};
    const char *name;

    (void)state;
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        spr_codec *codec[RANKS];
        struct world w;

        make(&w, RANKS, 0);
        world_share_hosts(&w, hosts);
        options.algorithm = name;
        memset(sum, 0, sizeof sum);
        memset(beneath, 0, sizeof beneath);
        for (int r = 0; r < RANKS; r++) {
            memset(gradient[r], 0, sizeof gradient[r]);
            for (int i = 0; i < KEPT; i++) {
                int at = i * (3 + r) + r, whole = 1025 + 2 * ((i + r) % 400); /* odd: 11 bits */
                gradient[r][at % N] = (float)whole + 0x1p-4f;
            }
            for (int k = 0; k < N; k++) {
                sum[k] += floorf(gradient[r][k]);
                beneath[k] += gradient[r][k] - floorf(gradient[r][k]);
            }
            assert_int_equal(spr_codec_create("topk:ratio=10%+fp16", &layout, 1, &codec[r]),
                             SPR_OK);
            assert_int_equal(spr_icompressed_allreduce(w.comms[r], codec[r], gradient[r], SPR_SUM,
                                                       &options, &w.requests[r]),
                             SPR_OK);
        }
        run_ok(&w);
        for (int r = 0; r < RANKS; r++)
            for (int k = 0; k < N; k++)
                if (gradient[r][k] < sum[k] || gradient[r][k] > sum[k])
                    assert_true(sums_are_rounded_by(name) &&
                                fabsf(gradient[r][k] - sum[k]) <= sum[k] / 2048);
        /* Nothing is lost: what sums have left is with one rank. */
        for (int k = 0; k < N; k++) {
            float left = gradient[0][k];
            for (int r = 0; r < RANKS; r++)
                left += spr_codec_residual(codec[r])[k];
            assert_float_equal(left, sum[k] + beneath[k], 0);
        }
        for (int r = 0; r < RANKS; r++)
            spr_codec_destroy(codec[r]);
        world_destroy(&w);
    }
}

static void what_an_algorithm_cannot_do_is_refused_before_the_codec_has_begun(void **state)
{
    static const struct {
        const char *spec;
        bool by_all, by_hosts; /* or by those alone where each rank owns a part of one kind */
    } cases[] = {
        {"topk:ratio=10%", true, true},
        {"topk:ratio=10%+fp16", true, true},
        {"topk:ratio=10%+bf16", true, true},
        {"topk:ratio=10%+int8", false, false},
        {"topk:ratio=10%,sums=int8", false, true},
        {"int8", false, true},
        {"none:feedback=off+int8", false, false}, /* what a host loses has to stay somewhere */
        {"qsgd", false, false},
        {"random:ratio=10%+int8", false, false},
        {"topk:ratio=10%,union=bounded", false, false},
    };
    spr_layout layout = {1, "w", 0, 1000, 1};
    static float gradient[1000];
    struct world w;

    (void)state;
    make(&w, 2, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name;
        for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
            bool able = cases[i].by_all || ranks_own_alike_with(name) ||
                        (cases[i].by_hosts && !strcmp(name, "hosts"));
            spr_call_options options = SPR_CALL_OPTIONS_INIT;
            spr_codec *codec[2];
            options.algorithm = name;
            for (int r = 0; r < 2; r++) {
                spr_status status;
                for (int k = 0; k < 1000; k++)
                    gradient[k] = (float)(k % 97) - 40;
                assert_int_equal(spr_codec_create(cases[i].spec, &layout, 1, &codec[r]), SPR_OK);
                status = spr_icompressed_allreduce(w.comms[r], codec[r], gradient, SPR_SUM,
                                                   &options, &w.requests[r]);
                assert_int_equal(status, able ? SPR_OK : SPR_ERR_INVALID);
                if (!able) {
                    assert_non_null(strstr(spr_last_error(NULL), "direct"));
                    assert_true(spr_codec_residual(codec[r])[0] == 0);
                }
            }
            if (able)
                run_ok(&w);
            spr_codec_destroy(codec[0]);
            spr_codec_destroy(codec[1]);
        }
    }
    world_destroy(&w);
}

static void names_tell_in_what_order_they_add(void **state)
{
    static const char *const canonical[] = {"direct", "hierarchical", "allgather", "union",
                                            "server", "blocks",       "relay"},
                             *const others[] = {"hosts", "doubling", "ring", "no-such-one"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(canonical); i++)
        assert_true(spr_algorithm_is_canonical("sparse_allreduce", canonical[i]));
    for (size_t i = 0; i < SPR_ARRAY_LEN(others); i++)
        assert_false(spr_algorithm_is_canonical("sparse_allreduce", others[i]));
    assert_true(spr_algorithm_is_canonical("allreduce", "direct"));
    assert_false(spr_algorithm_is_canonical("allreduce", "ring"));
}

VECTORS_MAIN(cmocka_unit_test(short_lists_are_sent_to_all),
             cmocka_unit_test(halves_are_summed_by_every_algorithm),
             cmocka_unit_test(sums_of_long_lists_go_round_a_ring),
             cmocka_unit_test(hosts_are_summed_before_long_values_are_coded),
             cmocka_unit_test(halves_are_refused_before_the_codec_has_begun),
             cmocka_unit_test(what_an_algorithm_cannot_do_is_refused_before_the_codec_has_begun),
             cmocka_unit_test(names_tell_in_what_order_they_add))
