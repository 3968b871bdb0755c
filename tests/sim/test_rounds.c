/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD over simulated links: two rounds in one operation, where the second one's messages may
 * arrive during the first, and what a failure in either of them leaves behind.
 */
#include "tests/sim/codec_world.h"

/* The same in one process, with plain sums in rank order. */
static void step_alone(spr_codec *const *alone, int ranks, float *out)
{
    static float sum[2 * N];
    struct spr_codec_step s[RANKS_MAX];
    bool more = true;

    for (int r = 0; r < ranks; r++)
        assert_int_equal(spr_codec_begin(alone[r], gradient[r], &s[r]), SPR_OK);
    while (more) {
        memset(sum, 0, sizeof(sum));
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < s[r].count; i++)
                sum[i] = r ? sum[i] + s[r].sum[i] : s[r].sum[i];
        for (int r = 0; r < ranks; r++) {
            memcpy(s[r].sum, sum, s[r].count * sizeof(float));
            more = spr_codec_next(alone[r], out, &s[r]);
        }
    }
    for (int r = 0; r < ranks; r++)
        spr_codec_commit(alone[r]);
}

static void both_rounds_are_sums_over_all_ranks(void **state)
{
    static const char *const specs[] = {"powersgd:rank=1", "powersgd:rank=4", "powersgd:rank=32"};
    static float out[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            spr_codec *alone[RANKS_MAX];
            struct world w;
            make(&w, ranks, specs[s]);
            add_in_rank_order(&w);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(
                    spr_codec_create(specs[s], layout, SPR_ARRAY_LEN(layout), &alone[r]), SPR_OK);
            for (int k = 0; k < 4; k++) {
                draw(ranks);
                step_alone(alone, ranks, out);
                step(&w, SPR_SUM, NULL);
                assert_memory_equal(buffer[0], out, sizeof(out));
            }
            for (int r = 0; r < ranks; r++) {
                assert_memory_equal(spr_codec_residual(codec[r]), spr_codec_residual(alone[r]),
                                    sizeof(out));
                spr_codec_destroy(alone[r]);
            }
            unmake(&w);
        }
}

/* They are dense sums, which hosts show in, unless they must not. */
static void rounds_have_the_bits_of_rank_order_on_any_hosts_if_they_must(void **state)
{
    static const int host[] = {0, 1, 0, 1};
    static float out[N];

    (void)state;
    for (int canonical = 0; canonical < 2; canonical++) {
        spr_codec *alone[4];
        struct world w;
        make(&w, 4, "powersgd:rank=4");
        world_share_hosts(&w, host);
        for (int r = 0; r < 4; r++) {
            w.comms[r]->options.eager_bytes = 0;
            w.comms[r]->options.determinism =
                canonical ? SPR_DETERMINISM_CANONICAL : SPR_DETERMINISM_RUN;
            alone[r] = make_codec("powersgd:rank=4");
        }
        draw(4);
        step_alone(alone, 4, out);
        step(&w, SPR_SUM, NULL);
        assert_int_equal(memcmp(buffer[0], out, sizeof(out)) == 0, canonical);
        for (int r = 0; r < 4; r++)
            spr_codec_destroy(alone[r]);
        unmake(&w);
    }
}

static void any_algorithm_that_is_asked_for_takes_both_rounds(void **state)
{
    static const char *const names[] = {"direct",   "ring", "flat",         "halving",
                                        "doubling", "tree", "hierarchical", "auto"};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static float first[N];

    (void)state;
    for (size_t a = 0; a < SPR_ARRAY_LEN(names); a++) {
        struct world w;
        double most = 0;
        make(&w, 3, "powersgd:rank=3");
        options.algorithm = names[a];
        data_fill(DATA_NORMAL, gradient[0], N, &(struct spr_rng){7, 1});
        for (int r = 0; r < 3; r++)
            for (size_t i = 0; i < N; i++)
                buffer[r][i] = gradient[0][i] * (float)(r + 1);
        step(&w, SPR_SUM, &options);
        for (size_t i = 0; a > 0 && i < N; i++)
            most = data_larger(most, fabs((double)buffer[0][i] - (double)first[i]));
        assert_true(most < 1e-3);
        if (a == 0)
            memcpy(first, buffer[0], sizeof(first));
        unmake(&w);
    }
}

/* Nobody has to wait: several codecs, and plain sums between them. */
static void rounds_of_several_operations_do_not_get_mixed_up(void **state)
{
    enum { DEPTH = 4, RANKS = 3 };
    static float vectors[DEPTH][RANKS][N], wanted[DEPTH][N], plain[RANKS][N];
    spr_codec *many[DEPTH][RANKS];
    spr_request *requests[DEPTH][RANKS], *sums[RANKS];
    struct world w;

    (void)state;
    for (int together = 0; together < 2; together++) {
        make(&w, RANKS, "powersgd:rank=2");
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < N; i++)
                plain[r][i] = (float)r;
        for (int d = 0; d < DEPTH; d++)
            for (int r = 0; r < RANKS; r++) {
                assert_int_equal(
                    spr_codec_create("powersgd:rank=2", layout, SPR_ARRAY_LEN(layout), &many[d][r]),
                    SPR_OK);
                data_fill(DATA_NORMAL, vectors[d][r], N, &(struct spr_rng){(uint64_t)d, 1});
            }
        for (int d = 0; d < DEPTH; d++)
            for (int r = 0; r < RANKS; r++) {
                if (d == 2)
                    assert_int_equal(spr_iallreduce(w.comms[r], plain[r], plain[r], N, SPR_FP32,
                                                    SPR_SUM, NULL, &sums[r]),
                                     SPR_OK);
                assert_int_equal(spr_icompressed_allreduce(w.comms[r], many[d][r], vectors[d][r],
                                                           SPR_AVG, NULL, &requests[d][r]),
                                 SPR_OK);
                if (!together || d == DEPTH - 1)
                    w.requests[r] = requests[d][r];
                if (r == RANKS - 1 && (!together || d == DEPTH - 1))
                    run(&w);
            }
        for (int d = 0; d < DEPTH; d++)
            for (int r = 0; r < RANKS; r++) {
                if (together && d < DEPTH - 1) {
                    w.requests[0] = w.requests[1] = w.requests[2] = NULL;
                    w.requests[r] = requests[d][r];
                    run(&w);
                    assert_int_equal(w.results[r], SPR_OK);
                }
                if (!together)
                    memcpy(wanted[d], vectors[d][0], sizeof(wanted[d]));
                assert_memory_equal(vectors[d][r], wanted[d], sizeof(wanted[d]));
            }
        for (int r = 0; r < RANKS; r++) {
            w.requests[0] = w.requests[1] = w.requests[2] = NULL;
            w.requests[r] = sums[r];
            run(&w);
            assert_true(w.results[r] == SPR_OK && plain[r][0] == 3 && plain[r][N - 1] == 3);
            for (int d = 0; d < DEPTH; d++)
                spr_codec_destroy(many[d][r]);
        }
        unmake(&w);
    }
}

static void ranks_that_differ_are_told_and_lose_nothing(void **state)
{
    spr_codec *other;
    struct world w;

    (void)state;
    make(&w, 3, "powersgd:rank=4");
    other = make_codec("powersgd:rank=3");
    draw(3);
    for (int r = 0; r < 2; r++)
        assert_int_equal(post(&w, r, SPR_SUM, NULL), SPR_OK);
    assert_int_equal(
        spr_icompressed_allreduce(w.comms[2], other, buffer[2], SPR_SUM, NULL, &w.requests[2]),
        SPR_OK);
    run(&w);
    for (int r = 0; r < 3; r++)
        assert_int_equal(w.results[r], SPR_ERR_MISMATCH);
    for (int r = 0; r < 2; r++)
        assert_memory_equal(spr_codec_residual(codec[r]), gradient[r], sizeof(gradient[r]));
    memcpy(buffer[2], gradient[2], sizeof(buffer[2]));
    step(&w, SPR_SUM, NULL);
    spr_codec_destroy(other);
    unmake(&w);
}

/* A rank dies at any moment of a step. The others have all done it, or all have all of their
 * gradient, and do it again. */
static void a_death_in_any_round_loses_nothing_of_the_others(void **state)
{
    int redone = 0, kept = 0, in_second = 0;
    spr_status statuses[WORLD_MAX];

    (void)state;
    for (uint64_t trial = 0; trial < 150; trial++) {
        int ranks = 2 + (int)spr_rng_below(&rng, RANKS_MAX - 1);
        int victim = (int)spr_rng_below(&rng, (uint64_t)ranks);
        uint64_t delays[WORLD_MAX] = {0};
        bool redo = false;
        struct world w;

        make(&w, ranks, "powersgd:rank=2");
        for (int k = 0; k < 2; k++) {
            draw(ranks);
            step(&w, SPR_SUM, NULL);
        }
        draw_on(&w);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(post(&w, r, SPR_SUM, NULL), SPR_OK);
            delays[r] = spr_rng_below(&rng, 2) * spr_rng_below(&rng, 5 * MS);
        }
        spr_sim_kill(w.sim, victim, now(&w) + spr_rng_below(&rng, 2 * MS));
        run(&w);
        world_settle(&w, 3); /* it may die later */
        in_second += codec[victim]->factors && codec[victim]->phase == SPR_CODEC_RUNNING;
        assert_true(world_shrink(&w, delays, 2 * SECOND, now(&w) + 100 * SECOND, statuses));
        for (int r = 0; r < ranks; r++) {
            if (r == victim)
                continue;
            assert_int_equal(statuses[r], SPR_OK);
            bool again = codec[r]->phase == SPR_CODEC_ABSORBED;
            assert_true(again == redo || r == (victim == 0));
            redo = again;
            if (again)
                assert_memory_equal(spr_codec_residual(codec[r]), before[r], sizeof(before[r]));
            for (size_t i = 0; again && i < N; i++)
                buffer[r][i] = NAN; /* the gradient is not read again */
        }
        redone += redo;
        kept += !redo;
        for (int k = 0; k < 2; k++) {
            if (!redo || k == 1)
                draw_on(&w);
            expect_conserved(&w, step(&w, SPR_SUM, NULL), trial);
        }
        unmake(&w);
    }
    printf("%d steps done again, %d were done; %d deaths in the second round\n", redone, kept,
           in_second);
    assert_true(redone > 10 && kept > 10 && in_second > 5);
}

CODEC_WORLD_MAIN(cmocka_unit_test(both_rounds_are_sums_over_all_ranks),
                 cmocka_unit_test(rounds_have_the_bits_of_rank_order_on_any_hosts_if_they_must),
                 cmocka_unit_test(any_algorithm_that_is_asked_for_takes_both_rounds),
                 cmocka_unit_test(rounds_of_several_operations_do_not_get_mixed_up),
                 cmocka_unit_test(ranks_that_differ_are_told_and_lose_nothing),
                 cmocka_unit_test(a_death_in_any_round_loses_nothing_of_the_others))
