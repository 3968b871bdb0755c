/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD: what it keeps, and what an abort, a checkpoint and unusual numbers do to that.
 */
#include "tests/unit/lowrank_world.h"

/* ---- what it keeps ---- */

/* A bucket of several matrices, vectors, and a gap that is nobody's. */
static const struct spr_lowrank_tensor bucket[] = {{5, 33, 47},  {1560, 1, 300}, {1860, 300, 1},
                                                   {2160, 3, 5}, {2176, 0, 9},   {2180, 128, 24}};
enum { BUCKET = 2180 + 128 * 24 };

static void what_is_sent_and_what_is_kept_is_the_input(void **state)
{
    enum { RANKS = 4, STEPS = 60 };
    static double given[BUCKET], sent[BUCKET], kept[BUCKET];
    float *g = zeros((size_t)RANKS * BUCKET, sizeof(float)), *rest = zeros(BUCKET, sizeof(float));
    struct world w;

    (void)state;
    world_open(&w, RANKS, bucket, SPR_ARRAY_LEN(bucket), 3);
    for (int step = 0; step < STEPS; step++) {
        double most = 0, size = 0;

        fill(g, (size_t)RANKS * BUCKET);
        world_step(&w, g, 1, 3);
        memset(kept, 0, sizeof(kept));
        for (unsigned rank = 0; rank < RANKS; rank++) {
            residual_of(&w, rank, rest);
            for (size_t i = 0; i < BUCKET; i++)
                kept[i] += (double)rest[i];
        }
        for (size_t i = 0; i < BUCKET; i++)
            sent[i] += (double)w.out[i];
        for (size_t t = 0; t < SPR_ARRAY_LEN(bucket); t++)
            for (size_t j = 0; j < bucket[t].rows * bucket[t].columns; j++) {
                size_t i = bucket[t].offset + j;
                for (unsigned rank = 0; rank < RANKS; rank++)
                    given[i] += (double)g[rank * BUCKET + i];
                most = data_larger(most, fabs(given[i] - sent[i] - kept[i]));
                size = data_larger(size, fabs(kept[i]) + fabs(sent[i]));
            }
        if (!(most < 1e-5 * size))
            fail_msg("step %d: %g of %g are lost", step, most, size);
    }
    assert_true(w.out[0] == 0 && w.out[4] == 0); /* the gap */
    free(g);
    free(rest);
    world_close(&w);
}

/* Two worlds with the same input, of which one has trouble, and ends with what the other has. */
static void expect_the_same(void (*trouble)(struct world *w, const float *g, int step))
{
    enum { RANKS = 2 };
    float *g = zeros((size_t)RANKS * BUCKET, sizeof(float));
    struct world calm, troubled;

    world_open(&calm, RANKS, bucket, SPR_ARRAY_LEN(bucket), 4);
    world_open(&troubled, RANKS, bucket, SPR_ARRAY_LEN(bucket), 4);
    for (int step = 0; step < 6; step++) {
        fill(g, (size_t)RANKS * BUCKET);
        world_step(&calm, g, 0.5f, 3);
        trouble(&troubled, g, step);
        assert_memory_equal(calm.out, troubled.out, calm.elements * sizeof(float));
    }
    free(g);
    world_close(&calm);
    world_close(&troubled);
}

static void fail_and_retry(struct world *w, const float *g, int step)
{
    world_step(w, g, 0.5f, 1 + step % 3);
    if (step % 3 < 2)
        world_step(w, NULL, 0.5f, 3);
}

static void an_aborted_step_is_sent_again_to_the_bit(void **state)
{
    (void)state;
    expect_the_same(fail_and_retry);
}

/* As a checkpoint would: residuals, and where the next step starts. */
static void copy_state(struct spr_lowrank *to, struct spr_lowrank *from)
{
    spr_lowrank_settle(from);
    memcpy(to->residual, from->residual, BUCKET * sizeof(float));
    for (size_t t = 0; t < from->count; t++) {
        size_t floats;
        const float *start = spr_lowrank_start(from, t, &floats);
        memcpy(spr_lowrank_start(to, t, &floats), start, floats * sizeof(float));
    }
}

static void a_copied_state_goes_on_to_the_bit(void **state)
{
    float *g = zeros(BUCKET, sizeof(float));
    struct world a, b, unsettled;

    (void)state;
    world_open(&a, 1, bucket, SPR_ARRAY_LEN(bucket), 2);
    world_open(&b, 1, bucket, SPR_ARRAY_LEN(bucket), 2);
    world_open(&unsettled, 1, bucket, SPR_ARRAY_LEN(bucket), 2);
    for (int step = 0; step < 8; step++) {
        fill(g, BUCKET);
        if (step == 5)
            copy_state(b.rank, a.rank);
        world_step(&a, g, 1, 3);
        world_step(&unsettled, g, 1, 3);
        assert_memory_equal(a.out, unsettled.out, a.elements * sizeof(float));
        if (step >= 5) {
            world_step(&b, g, 1, 3);
            assert_memory_equal(a.out, b.out, a.elements * sizeof(float));
        }
    }
    free(g);
    world_close(&a);
    world_close(&b);
    world_close(&unsettled);
}

static void revoke(struct world *w)
{
    for (unsigned rank = 0; rank < w->ranks; rank++)
        spr_lowrank_revoke(&w->rank[rank]);
}

static void revoke_and_retry(struct world *w, const float *g, int step)
{
    (void)step;
    world_step(w, g, 0.5f, 3);
    revoke(w);
    world_step(w, NULL, 0.5f, 3);
}

static void a_revoked_step_is_sent_again_to_the_bit(void **state)
{
    (void)state;
    expect_the_same(revoke_and_retry);
}

/* What was sent has left the residual by then, and comes back rounded. */
static void a_revoked_step_is_sent_again_when_it_was_settled(void **state)
{
    static float sent[BUCKET];
    float *g = zeros(BUCKET, sizeof(float));
    struct world w;

    (void)state;
    world_open(&w, 1, bucket, SPR_ARRAY_LEN(bucket), 4);
    for (int step = 0; step < 6; step++) {
        fill(g, BUCKET);
        world_step(&w, g, 1, 3);
        memcpy(sent, w.out, sizeof(sent));
        if (step % 2)
            spr_lowrank_settle(w.rank);
        else
            world_step(&w, NULL, 1, 1); /* the next one has begun, with nothing to add */
        revoke(&w);
        world_step(&w, NULL, 1, 3);
        assert_true(norm(w.out, sent, BUCKET) < 1e-4 * norm(sent, NULL, BUCKET));
    }
    free(g);
    world_close(&w);
}

/* Nothing of what is given is lost, whatever is taken back with another gradient in it. */
static void a_revoked_step_beneath_another_loses_nothing(void **state)
{
    float *g = zeros(BUCKET, sizeof(float)), *rest = zeros(BUCKET, sizeof(float));
    static double given[BUCKET], sent[BUCKET];
    double most = 0, size = 0;
    struct world w;

    (void)state;
    memset(given, 0, sizeof(given));
    memset(sent, 0, sizeof(sent));
    world_open(&w, 1, bucket, SPR_ARRAY_LEN(bucket), 3);
    for (int step = 0; step < 12; step++) {
        for (int time = 0; time < 2; time++) {
            fill(g, BUCKET);
            for (size_t i = 0; i < BUCKET; i++)
                given[i] += (double)g[i];
            world_step(&w, g, 1, time == 0 ? 3 : 1);
        }
        spr_lowrank_revoke(w.rank);
        world_step(&w, NULL, 1, 3);
        for (size_t i = 0; i < BUCKET; i++)
            sent[i] += (double)w.out[i];
    }
    residual_of(&w, 0, rest);
    for (size_t t = 0; t < SPR_ARRAY_LEN(bucket); t++)
        for (size_t j = 0; j < bucket[t].rows * bucket[t].columns; j++) {
            size_t i = bucket[t].offset + j;
            most = data_larger(most, fabs(given[i] - sent[i] - (double)rest[i]));
            size = data_larger(size, fabs(given[i]) + fabs(sent[i]));
        }
    assert_true(most < 1e-5 * size);
    free(g);
    free(rest);
    world_close(&w);
}

/* ---- numbers that are hard ---- */

static void what_is_not_finite_shows_once_and_in_its_tensor_only(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    float *g = zeros(2 * (size_t)BUCKET, sizeof(float));

    (void)state;
    for (size_t b = 0; b < SPR_ARRAY_LEN(bad); b++) {
        struct world w;
        world_open(&w, 2, bucket, SPR_ARRAY_LEN(bucket), 3);
        for (int step = 0; step < 3; step++) {
            fill(g, 2 * (size_t)BUCKET);
            for (size_t i = 0; step == 1 && i < (b == 3 ? 1000 : 1); i++) /* these overflow */
                g[BUCKET + 5 + 47 * 7 + 3 + i] = bad[b];
            world_step(&w, g, 1, 3);
            for (size_t i = 0; i < 33 * 47; i++)
                assert_true(isnan(w.out[5 + i]) == (step == 1));
            for (size_t i = 1560; i < BUCKET; i++)
                assert_true(isfinite(w.out[i]));
        }
        world_close(&w);
    }
    free(g);
}

static void the_scale_of_a_matrix_does_not_matter(void **state)
{
    static const struct spr_lowrank_tensor shape = {0, 40, 50};
    static const int exponent[] = {-120, -60, 60, 100};
    float x[2000], y[2000];

    (void)state;
    for (size_t e = 0; e < SPR_ARRAY_LEN(exponent); e++) {
        struct world w, scaled;
        world_open(&w, 1, &shape, 1, 3);
        world_open(&scaled, 1, &shape, 1, 3);
        for (int step = 0; step < 4; step++) {
            fill(x, 2000);
            for (size_t i = 0; i < 2000; i++)
                y[i] = ldexpf(x[i], exponent[e]);
            world_step(&w, x, 1, 3);
            world_step(&scaled, y, 1, 3);
            for (size_t i = 0; i < 2000; i++)
                y[i] = ldexpf(scaled.out[i], -exponent[e]);
            assert_true(norm(y, w.out, 2000) < 1e-4 * norm(w.out, NULL, 2000));
        }
        world_close(&w);
        world_close(&scaled);
    }
}

static void zeros_and_denormal_numbers_are_numbers(void **state)
{
    static const struct spr_lowrank_tensor shape = {0, 40, 50};
    float x[2000] = {0}, rest[2000];
    struct world w;

    (void)state;
    world_open(&w, 1, &shape, 1, 4);
    world_step(&w, x, 1, 3);
    for (size_t i = 0; i < 2000; i++)
        assert_true(w.out[i] == 0);
    data_fill(DATA_DENORMAL, x, 2000, &rng);
    world_step(&w, x, 1, 3);
    residual_of(&w, 0, rest);
    for (size_t i = 0; i < 2000; i++) /* to a few of the smallest numbers that there are */
        assert_true(fabsf(x[i] - w.out[i] - rest[i]) <= 8 * 0x1p-149f);
    assert_true(norm(w.out, NULL, 2000) > 0);
    low_rank(x, 40, 50, 2, 1); /* and zeros before have spoilt nothing */
    world_step(&w, x, 1, 3);
    assert_true(norm(w.out, x, 2000) < 1e-5 * norm(x, NULL, 2000));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_and_what_is_kept_is_the_input),
        cmocka_unit_test(an_aborted_step_is_sent_again_to_the_bit),
        cmocka_unit_test(a_copied_state_goes_on_to_the_bit),
        cmocka_unit_test(a_revoked_step_is_sent_again_to_the_bit),
        cmocka_unit_test(a_revoked_step_is_sent_again_when_it_was_settled),
        cmocka_unit_test(a_revoked_step_beneath_another_loses_nothing),
        cmocka_unit_test(what_is_not_finite_shows_once_and_in_its_tensor_only),
        cmocka_unit_test(the_scale_of_a_matrix_does_not_matter),
        cmocka_unit_test(zeros_and_denormal_numbers_are_numbers),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
