/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the model chooses from one step of a codec to the next, by the union that the last one had,
 * and what it has to heed besides.
 */
#include "collectives/collective.h"
#include "compress/codec.h"
#include "tests/sim/vectors.h"

enum { SHORT_N = 4000, LONG_N = 300000, TILE = 256 };

static float gradient[WORLD_MAX][LONG_N];
/* Large elements are neighbours. */
static bool clustered;

static float draw(int rank, size_t i)
{
    float x = (float)(spr_hash_u32((uint64_t)rank << 40 ^ i) >> 8) + 1;

    return clustered && spr_hash_u32(i / TILE) % 64 == 0 ? x * 1000 : x;
}

/* One step of a codec on all ranks: the algorithm that all have taken. */
static const char *step(struct world *w, spr_codec **codecs)
{
    size_t n = spr_codec_vector(codecs[0]);
    const char *name;

    for (int r = 0; r < w->ranks; r++) {
        for (size_t i = 0; i < n; i++)
            gradient[r][i] = draw(r, i);
        assert_int_equal(spr_icompressed_allreduce(w->comms[r], codecs[r], gradient[r], SPR_SUM,
                                                   NULL, &w->requests[r]),
                         SPR_OK);
    }
    name = w->requests[0]->posted.algorithm;
    for (int r = 1; r < w->ranks; r++)
        assert_string_equal(w->requests[r]->posted.algorithm, name);
    run_ok(w);
    for (int r = 1; r < w->ranks; r++)
        assert_memory_equal(gradient[r], gradient[0], n * sizeof gradient[0][0]);
    return name;
}

/* A world whose ranks have such a codec. */
static void begin(struct world *w, int ranks, const char *spec, size_t n, spr_codec **codecs)
{
    spr_layout layout = {1, "w", 0, n, 1};

    make(w, ranks, 0);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(spr_codec_create(spec, &layout, 1, &codecs[r]), SPR_OK);
}

static void end(struct world *w, spr_codec **codecs)
{
    for (int r = 0; r < w->ranks; r++)
        spr_codec_destroy(codecs[r]);
    world_destroy(w);
}

/* Where nothing costs but to write the result, and dense vectors a little to sum: after one step
 * the next is dense. */
static const struct spr_model writes = {.known = true, .take = 1e-8, .reduce = 5e-10};

static void begin_dense(struct world *w, int ranks, size_t n, spr_codec **codecs)
{
    begin(w, ranks, "topk:ratio=50%", n, codecs);
    world_set_model(w, &writes);
    assert_string_not_equal(step(w, codecs), "dense");
    assert_string_equal(step(w, codecs), "dense");
}

static void a_union_that_has_grown_makes_the_next_step_dense(void **state)
{
    spr_codec *codecs[4];
    struct world w;

    (void)state;
    begin_dense(&w, 4, SHORT_N, codecs);
    assert_string_equal(step(&w, codecs), "dense");
    /* What it has learnt was of other ranks. */
    for (int r = 0; r < 4; r++) {
        spr_model_new_era(w.comms[r]);
        assert_false(w.comms[r]->model.known);
    }
    world_set_model(&w, &writes);
    assert_string_not_equal(step(&w, codecs), "dense");
    end(&w, codecs);
}

/* The sum of a dense step tells how many entries there still are: `within` a factor. */
static void play_shrinking(size_t n, double within)
{
    spr_codec *codecs[4];
    struct world w;
    double known, there = 0;

    begin_dense(&w, 4, n, codecs);
    for (int r = 0; r < 4; r++)
        assert_int_equal(spr_codec_set_ratio(codecs[r], 0.01), SPR_OK);
    assert_string_equal(step(&w, codecs), "dense"); /* it knows the union of the last one */
    for (size_t i = 0; i < n; i++)
        there += gradient[0][i] != 0;
    known = (double)spr_codec_history(codecs[0])->union_entries;
    printf("of %zu elements %.0f were sent by any rank, %.0f are known of\n", n, there, known);
    assert_true(there > 0 && known <= there * within && known >= there / within);
    assert_string_not_equal(step(&w, codecs), "dense");
    end(&w, codecs);
}

static void a_union_that_has_shrunk_makes_lists_of_it_again(void **state)
{
    (void)state;
    play_shrinking(SHORT_N, 1);
    play_shrinking(LONG_N, 1.1); /* a fifth of it is looked at */
    clustered = true;
    play_shrinking(LONG_N, 2);
    clustered = false;
}

/* A rank has another codec than before, and so no history of it: the others lose theirs. */
static void play_mismatch(bool other_history, const char *other_name)
{
    spr_call_options other = SPR_CALL_OPTIONS_INIT;
    spr_codec *codecs[4];
    struct world w;

    begin_dense(&w, 4, SHORT_N, codecs);
    if (other_history)
        *spr_codec_history(codecs[1]) = (struct spr_codec_history){0};
    other.name = other_name;
    memset(gradient, 0, sizeof gradient);
    for (int r = 0; r < 4; r++)
        assert_int_equal(spr_icompressed_allreduce(w.comms[r], codecs[r], gradient[r], SPR_SUM,
                                                   r == 1 ? &other : NULL, &w.requests[r]),
                         SPR_OK);
    assert_true(world_run(&w, LIMIT_NS));
    for (int r = 0; r < 4; r++) {
        assert_int_equal(w.results[r], SPR_ERR_MISMATCH);
        spr_codec_drop(codecs[r]);
    }
    assert_string_not_equal(step(&w, codecs), "dense");
    assert_string_equal(step(&w, codecs), "dense");
    end(&w, codecs);
}

/* Whatever else they disagree about: a rank may not hear what that was, nor whether it was the
 * algorithm. */
static void a_history_that_differs_costs_one_step(void **state)
{
    (void)state;
    play_mismatch(true, NULL);
    play_mismatch(false, "layer7");
    play_mismatch(true, "layer7");
}

static void an_algorithm_stays_unless_another_is_much_faster(void **state)
{
    struct spr_model model = {.known = true, .latency = 1e-5, .byte = 1e-9};
    spr_codec *codecs[4];
    struct world w;
    const char *first;

    (void)state;
    begin(&w, 4, "topk:ratio=10%", SHORT_N, codecs);
    world_set_model(&w, &model);
    world_set_determinism(&w, SPR_DETERMINISM_CANONICAL);
    first = step(&w, codecs);
    assert_string_equal(first, "allgather");
    /* direct: 2 steps and about 2/3 of the bytes; allgather: 1 step. A little in favour of one ...
     */
    model = (struct spr_model){
        .known = true, .latency = 1e-9, .merge = 1e-8, .encode = 4.5e-8, .reduce = 1e-6};
    world_set_model(&w, &model);
    assert_string_equal(step(&w, codecs), "allgather");
    /* ... and much. */
    model.merge = 1e-6;
    world_set_model(&w, &model);
    assert_string_equal(step(&w, codecs), "direct");
    /* What an algorithm takes besides counts, too, and what it takes less. */
    model.start[spr_algorithm_place("sparse_allreduce", "direct")] = 1;
    world_set_model(&w, &model);
    assert_string_not_equal(step(&w, codecs), "direct");
    model.start[spr_algorithm_place("sparse_allreduce", "server")] = -1;
    world_set_model(&w, &model);
    assert_string_equal(step(&w, codecs), "server");
    end(&w, codecs);
}

static void the_level_of_determinism_holds_with_a_model(void **state)
{
    const struct spr_model model = {.known = true, .latency = 1e-3, .message = 1e-3, .byte = 1e-12};
    static float x[8][300];
    struct world w;

    (void)state;
    make(&w, 8, 0);
    world_set_model(&w, &model);
    for (int canonical = 0; canonical < 2; canonical++) {
        world_set_determinism(&w, canonical);
        for (int r = 0; r < 8; r++)
            assert_int_equal(spr_iallreduce(w.comms[r], x[r], x[r], 300, SPR_FP32, SPR_SUM, NULL,
                                            &w.requests[r]),
                             SPR_OK);
        assert_string_equal(w.requests[0]->posted.algorithm, canonical ? "flat" : "doubling");
        run_ok(&w);
    }
    world_destroy(&w);
}

static void lists_longer_than_promised_are_refused(void **state)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    uint32_t index[3] = {1, 2, 3};
    float value[3] = {1, 2, 3}, dense[10];
    spr_sparse list = {index, value, 3, 3};
    struct world w;

    (void)state;
    make(&w, 1, 0);
    options.most_entries = 2;
    assert_int_equal(spr_isparse_allreduce(w.comms[0], &list, 10, dense, NULL, SPR_SUM, &options,
                                           &w.requests[0]),
                     SPR_ERR_INVALID);
    assert_non_null(strstr(spr_last_error(NULL), "3 entries, where most_entries is 2"));
    world_destroy(&w);
}

VECTORS_MAIN(cmocka_unit_test(a_union_that_has_grown_makes_the_next_step_dense),
             cmocka_unit_test(a_union_that_has_shrunk_makes_lists_of_it_again),
             cmocka_unit_test(a_history_that_differs_costs_one_step),
             cmocka_unit_test(an_algorithm_stays_unless_another_is_much_faster),
             cmocka_unit_test(the_level_of_determinism_holds_with_a_model),
             cmocka_unit_test(lists_longer_than_promised_are_refused))
