/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Calls that are wrong, over simulated links: ranks that call different things, arguments that are
 * refused, and which operation an error names.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/dispute.h"
#include "tests/sim/world.h"

#define LIMIT_NS 3600000000000ull
#define LARGE 1000000
#define RANKS_MAX 5

static uint64_t seed;
static float *in[RANKS_MAX], *out[RANKS_MAX];
static uint32_t indices[100];

static void make(struct world *w, int ranks)
{
    struct spr_sim_options options = {
        .ranks = ranks, .seed = seed, .latency_s = 10e-6, .jitter_s = 50e-6, .bandwidth = 10e9};
    world_create(w, &options);
    for (int r = 0; r < ranks; r++)
        w->comms[r]->options.timeout_s = 20;
}

/* Ranks that disagree -------------------------------------------------------------------------- */

enum kind { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER, SPARSE, SENDRECV };

struct call {
    enum kind kind;
    size_t count;
    spr_dtype dtype;
    spr_op op;
    int root; /* sendrecv: shift */
    const char *algorithm;
};

static spr_status post(struct world *w, int r, const struct call *c)
{
    spr_sparse list = {indices, in[r], SPR_ARRAY_LEN(indices), 0};
    spr_request **rq = &w->requests[r];
    spr_comm *comm = w->comms[r];
    spr_call_options named = SPR_CALL_OPTIONS_INIT, *options = c->algorithm ? &named : NULL;

    named.algorithm = c->algorithm;
    list.count = spr_min_size(list.count, c->count);
    switch (c->kind) {
    case ALLREDUCE:
        return spr_iallreduce(comm, in[r], out[r], c->count, c->dtype, c->op, options, rq);
    case REDUCE_SCATTER:
        return spr_ireduce_scatter(comm, in[r], out[r], c->count, c->dtype, c->op, options, rq);
    case ALLGATHER:
        return spr_iallgather(comm, in[r], out[r], c->count, c->dtype, options, rq);
    case BROADCAST:
        return spr_ibroadcast(comm, out[r], c->count, c->dtype, c->root, options, rq);
    case BARRIER:
        return spr_ibarrier(comm, options, rq);
    case SENDRECV:
        return spr_isendrecv(comm, in[r], out[r], c->count, c->dtype, c->root, options, rq);
    default:
        return spr_isparse_allreduce(comm, &list, c->count, out[r], NULL, c->op, options, rq);
    }
}

static const struct {
    const char *what;
    struct call odd, others;
} disagreements[] = {
    {"counts", {ALLREDUCE, 100, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"small counts", {ALLREDUCE, 100, 0, 0, 0, NULL}, {ALLREDUCE, 101, 0, 0, 0, NULL}},
    {"large counts", {ALLREDUCE, LARGE - 1, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"collectives", {ALLGATHER, 100000, 0, 0, 0, NULL}, {REDUCE_SCATTER, 100000, 0, 0, 0, NULL}},
    {"small collectives", {ALLGATHER, 10, 0, 0, 0, NULL}, {REDUCE_SCATTER, 10, 0, 0, 0, NULL}},
    {"a barrier", {BARRIER, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"a barrier and a few", {BARRIER, 0, 0, 0, 0, NULL}, {ALLREDUCE, 1, 0, 0, 0, NULL}},
    {"roots", {BROADCAST, LARGE, 0, 0, 1, NULL}, {BROADCAST, LARGE, 0, 0, 0, NULL}},
    {"roots of few", {BROADCAST, 10, 0, 0, 1, NULL}, {BROADCAST, 10, 0, 0, 0, NULL}},
    {"roots of trees", {BROADCAST, LARGE, 0, 0, 1, "tree"}, {BROADCAST, LARGE, 0, 0, 0, "tree"}},
    {"roots of small trees", {BROADCAST, 10, 0, 0, 1, "tree"}, {BROADCAST, 10, 0, 0, 0, "tree"}},
    {"types in a tree",
     {BROADCAST, 40, SPR_INT32, 0, 1, "tree"},
     {BROADCAST, 40, SPR_FP32, 0, 1, "tree"}},
    {"counts in a tree",
     {BROADCAST, LARGE - 1, 0, 0, 1, "tree"},
     {BROADCAST, LARGE, 0, 0, 1, "tree"}},
    {"a tree and none", {BROADCAST, LARGE, 0, 0, 1, "tree"}, {BROADCAST, LARGE, 0, 0, 1, NULL}},
    {"types of few, directly",
     {BROADCAST, 40, SPR_INT32, 0, 1, "direct"},
     {BROADCAST, 40, SPR_FP32, 0, 1, "direct"}},
    {"types", {ALLREDUCE, 1000, SPR_INT32, 0, 0, NULL}, {ALLREDUCE, 1000, SPR_FP32, 0, 0, NULL}},
    {"types of many",
     {ALLREDUCE, LARGE, SPR_INT32, 0, 0, NULL},
     {ALLREDUCE, LARGE, SPR_FP32, 0, 0, NULL}},
    {"operations", {ALLREDUCE, 1000, 0, SPR_MAX, 0, NULL}, {ALLREDUCE, 1000, 0, SPR_SUM, 0, NULL}},
    {"operations on many",
     {ALLREDUCE, LARGE, 0, SPR_MAX, 0, NULL},
     {ALLREDUCE, LARGE, 0, SPR_SUM, 0, NULL}},
    {"dense and sparse", {ALLREDUCE, LARGE, 0, 0, 0, NULL}, {SPARSE, LARGE, 0, 0, 0, NULL}},
    {"few dense and sparse", {ALLREDUCE, 200, 0, 0, 0, NULL}, {SPARSE, 200, 0, 0, 0, NULL}},
    {"nothing and many", {ALLREDUCE, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"nothing and a few", {ALLREDUCE, 0, 0, 0, 0, NULL}, {ALLREDUCE, 5, 0, 0, 0, NULL}},
    {"nothing, directly", {ALLREDUCE, 0, 0, 0, 0, "direct"}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"nothing and rings", {ALLREDUCE, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, "ring"}},
    {"nothing and halves", {ALLREDUCE, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, "halving"}},
    {"nothing and a tree", {ALLREDUCE, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, "tree"}},
    {"one to halve", {ALLREDUCE, 2, 0, 0, 0, "halving"}, {ALLREDUCE, 1, 0, 0, 0, "halving"}},
    {"counts to double",
     {ALLREDUCE, LARGE - 1, 0, 0, 0, "doubling"},
     {ALLREDUCE, LARGE, 0, 0, 0, "doubling"}},
    {"operations in a tree",
     {ALLREDUCE, 1000, 0, SPR_MAX, 0, "tree"},
     {ALLREDUCE, 1000, 0, SPR_SUM, 0, "tree"}},
    {"algorithms", {ALLREDUCE, LARGE, 0, 0, 0, "halving"}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"few to gather", {ALLGATHER, 1, 0, 0, 0, "bruck"}, {ALLGATHER, 2, 0, 0, 0, "bruck"}},
    {"many to gather", {ALLGATHER, 9000, 0, 0, 0, "bruck"}, {ALLGATHER, 10000, 0, 0, 0, "bruck"}},
    {"many and nothing", {ALLREDUCE, LARGE, 0, 0, 0, "direct"}, {ALLREDUCE, 0, 0, 0, 0, NULL}},
    {"nothing to scatter",
     {REDUCE_SCATTER, 0, 0, 0, 0, NULL},
     {REDUCE_SCATTER, 10000, 0, 0, 0, NULL}},
    {"nothing to gather", {ALLGATHER, 0, 0, 0, 0, NULL}, {ALLGATHER, 10000, 0, 0, 0, NULL}},
    {"something to gather", {ALLGATHER, 10000, 0, 0, 0, NULL}, {ALLGATHER, 0, 0, 0, 0, NULL}},
    {"nothing sparse", {SPARSE, 0, 0, 0, 0, NULL}, {SPARSE, LARGE, 0, 0, 0, NULL}},
    {"something sparse", {SPARSE, LARGE, 0, 0, 0, NULL}, {SPARSE, 0, 0, 0, 0, NULL}},
    {"nothing sparse and dense", {SPARSE, 0, 0, 0, 0, NULL}, {ALLREDUCE, LARGE, 0, 0, 0, NULL}},
    {"nothing and a barrier", {REDUCE_SCATTER, 0, 0, 0, 0, NULL}, {BARRIER, 0, 0, 0, 0, NULL}},
    {"a shift of none", {SENDRECV, 10000, 0, 0, 0, NULL}, {SENDRECV, 10000, 0, 0, 1, NULL}},
    {"a shift of a few by none", {SENDRECV, 10, 0, 0, 0, NULL}, {SENDRECV, 10, 0, 0, 1, NULL}},
    {"shifts", {SENDRECV, 10000, 0, 0, 1, NULL}, {SENDRECV, 10000, 0, 0, 0, NULL}},
    {"nothing shifted", {SENDRECV, 0, 0, 0, 0, NULL}, {SENDRECV, 10000, 0, 0, 0, NULL}},
    {"elements of sparse", {SPARSE, LARGE - 1, 0, 0, 0, NULL}, {SPARSE, LARGE, 0, 0, 0, NULL}},
};

static char texts[RANKS_MAX][512]; /* each rank's error, as it came */

static void keep_text(void *ctx, spr_status status)
{
    const spr_request *rq = ctx;

    if (status)
        snprintf(texts[rq->comm->rank], sizeof texts[0], "%s", rq->why ? rq->why : "");
}

/* May it be through already, with good data? Who agrees with the root of a broadcast that is small,
 * or by a tree, and who agrees with both neighbours. */
static bool may_be_through(const struct call *c, int r)
{
    if (c->kind == SENDRECV)
        return c->root != 0;
    return c->kind == BROADCAST && c->root != r &&
           (c->count < 1000 || (c->algorithm && !strcmp(c->algorithm, "tree")));
}

/* The error names two ranks and the field. */
static void check_rank(const struct world *w, int r, const struct call *c, bool odd,
                       const char *what, uint64_t trial)
{
    const char *text = texts[r], *second = strstr(text, " on rank ");

    if (!odd && may_be_through(c, r) && w->results[r] == SPR_OK)
        return;
    if (w->results[r] != SPR_ERR_MISMATCH || !strstr(text, "the ranks disagree: ") || !second ||
        !strstr(second + 1, " on rank "))
        fail_msg("%s, trial %llu of seed %llu, rank %d of %d (%s): %s '%s'", what,
                 (unsigned long long)trial, (unsigned long long)seed, r, w->ranks,
                 odd ? "the odd one" : "one of the others", spr_status_name(w->results[r]), text);
}

/* The next operation is right, on all of them. */
static void check_usable(struct world *w, const char *what)
{
    static float ones[LARGE];

    for (size_t i = 0; i < LARGE; i++)
        ones[i] = 1.0f;
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(spr_iallreduce(w->comms[r], ones, out[r], LARGE, SPR_FP32, SPR_SUM, NULL,
                                        &w->requests[r]),
                         SPR_OK);
    if (!world_run(w, 2 * LIMIT_NS))
        fail_msg("%s: hangs afterwards", what);
    for (int r = 0; r < w->ranks; r++) {
        if (w->results[r] != SPR_OK)
            fail_msg("%s: rank %d afterwards: %s '%s'", what, r, spr_status_name(w->results[r]),
                     spr_last_error(w->comms[r]));
        for (size_t i = 0; i < LARGE; i++)
            assert_true(out[r][i] == (float)w->ranks);
    }
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(disagreements); i++) {
        for (uint64_t trial = 0; trial < 12; trial++) {
            struct spr_rng rng = {seed + trial, i << 32};
            int ranks = 2 + (int)spr_rng_below(&rng, RANKS_MAX - 1);
            int odd = (int)spr_rng_below(&rng, (uint64_t)ranks);
            int first = (int)spr_rng_below(&rng, (uint64_t)ranks);
            struct world w;
            make(&w, ranks);
            w.lazy = trial % 2;
            for (int k = 0; k < ranks; k++) {
                int r = (first + k) % ranks;
                assert_int_equal(
                    post(&w, r, r == odd ? &disagreements[i].odd : &disagreements[i].others),
                    SPR_OK);
                spr_on_complete(w.requests[r], keep_text, w.requests[r]);
                if (spr_rng_below(&rng, 2))
                    world_settle(&w, 1 + (int)spr_rng_below(&rng, 3));
            }
            if (!world_run(&w, LIMIT_NS))
                fail_msg("%s: hangs", disagreements[i].what);
            for (int r = 0; r < ranks; r++)
                check_rank(&w, r, r == odd ? &disagreements[i].odd : &disagreements[i].others,
                           r == odd, disagreements[i].what, trial);
            if (trial % 4 == 0)
                check_usable(&w, disagreements[i].what);
            world_destroy(&w);
        }
    }
}

/* More operations are in flight than are remembered when they are over. */
static void the_oldest_of_many_in_flight_may_disagree(void **state)
{
    enum { OPERATIONS = 3 * SPR_PAST };
    static spr_request *requests[OPERATIONS][2];
    struct world w;

    (void)state;
    make(&w, 2);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < OPERATIONS; i++)
            assert_int_equal(spr_iallreduce(w.comms[r], in[r], out[r],
                                            i == 0 ? 100 + (size_t)r : 10, SPR_FP32, SPR_SUM, NULL,
                                            &requests[i][r]),
                             SPR_OK);
    for (int i = 0; i < OPERATIONS; i++) {
        memcpy(w.requests, requests[i], sizeof requests[i]);
        if (i == 0)
            for (int r = 0; r < 2; r++)
                spr_on_complete(w.requests[r], keep_text, w.requests[r]);
        assert_true(world_run(&w, LIMIT_NS));
        for (int r = 0; r < 2; r++)
            assert_int_equal(w.results[r], i == 0 ? SPR_ERR_MISMATCH : SPR_OK);
    }
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(texts[r], "count 100 on rank 0, 101 on rank 1"));
    world_destroy(&w);
}

/* Its number is the next call's, and what was there is not forgotten. */
static void a_call_that_cannot_begin_leaves_no_trace(void **state)
{
    int refused = 0;
    struct world w;

    (void)state;
    make(&w, 2);
    for (int i = 0; i < SPR_PAST; i++) {
        for (int r = 0; r < 2; r++)
            assert_int_equal(spr_ibarrier(w.comms[r], NULL, &w.requests[r]), SPR_OK);
        assert_true(world_run(&w, LIMIT_NS));
    }
    for (uint64_t n = 1; n < 20; n++) {
        spr_status status;
        (void)spr_mem_fail_nth(n);
        status = spr_iallreduce(w.comms[0], in[0], out[0], LARGE, SPR_FP32, SPR_SUM, NULL,
                                &w.requests[0]);
        (void)spr_mem_fail_nth(0);
        if (status == SPR_OK)
            break;
        refused++;
        assert_int_equal(status, SPR_ERR_NOMEM);
        assert_non_null(spr_past_find(w.comms[0], 1));
        assert_null(spr_past_find(w.comms[0], SPR_PAST + 1));
    }
    assert_true(refused > 0); /* then it begins, and memory fails it while it is under way */
    world_destroy(&w);
}

/* Arguments ------------------------------------------------------------------------------------ */

static void what_was_wrong_is_said(void **state)
{
    spr_stats stats = {.struct_size = 8};
    spr_request *request = NULL;
    struct world w;

    (void)state;
    make(&w, 2);
#define REFUSED(call, text)                                                                        \
    do {                                                                                           \
        assert_int_equal(call, SPR_ERR_INVALID);                                                   \
        if (!strstr(spr_last_error(NULL), text))                                                   \
            fail_msg("%s: '%s'", #call, spr_last_error(NULL));                                     \
    } while (0)
    REFUSED(spr_allreduce(NULL, in[0], out[0], 10, SPR_FP32, SPR_SUM, NULL), "no communicator");
    REFUSED(spr_allreduce(w.comms[0], in[0], out[0], 10, (spr_dtype)77, SPR_SUM, NULL),
            "77 is no element type");
    REFUSED(spr_allreduce(w.comms[0], in[0], out[0], 10, SPR_FP32, (spr_op)78, NULL),
            "78 is no reduction");
    REFUSED(spr_icompressed_allreduce(w.comms[0], NULL, NULL, SPR_SUM, NULL, &request), "no codec");
    REFUSED(spr_comm_stats(w.comms[0], &stats), "struct_size");
    REFUSED(spr_test(&request), "no request");
    REFUSED(spr_wait(&request, 0), "no request");
#undef REFUSED
    world_destroy(&w);
}

static void wrong_options_and_requests_are_invalid(void **state)
{
    static const size_t sizes[] = {0, 8, sizeof(spr_call_options) - 1,
                                   sizeof(spr_call_options) + 8};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct world w;

    (void)state;
    make(&w, 2);
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        options.struct_size = sizes[i];
        assert_int_equal(spr_ibarrier(w.comms[0], &options, &w.requests[0]), SPR_ERR_INVALID);
        assert_int_equal(spr_allreduce(w.comms[0], in[0], out[0], 10, SPR_FP32, SPR_SUM, &options),
                         SPR_ERR_INVALID);
    }
    assert_int_equal(spr_ibarrier(w.comms[0], NULL, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_iallreduce(w.comms[0], in[0], out[0], 10, SPR_FP32, SPR_SUM, NULL, NULL),
                     SPR_ERR_INVALID);
    assert_int_equal(spr_test(NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_wait(NULL, 0), SPR_ERR_INVALID);
    /* Nothing was changed. */
    for (int r = 0; r < 2; r++)
        assert_int_equal(spr_ibarrier(w.comms[r], NULL, &w.requests[r]), SPR_OK);
    assert_true(world_run(&w, LIMIT_NS));
    assert_true(w.results[0] == SPR_OK && w.results[1] == SPR_OK);
    world_destroy(&w);
}

static void an_invalid_call_leaves_the_codec_as_it_was(void **state)
{
    enum { N = 1000 };
    static const char *const specs[] = {"topk:ratio=10%", "topk:ratio=10%+fp16", "fp16", "none"};
    spr_layout layout = {1, "w", 0, N, 1};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    static float gradient[N];
    struct world w;

    (void)state;
    make(&w, 1);
    for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++) {
        spr_codec *codec;
        assert_int_equal(spr_codec_create(specs[i], &layout, 1, &codec), SPR_OK);
        for (int k = 0; k < N; k++)
            gradient[k] = 1;
        options = (spr_call_options)SPR_CALL_OPTIONS_INIT;
        options.algorithm = "nope";
        assert_int_equal(spr_icompressed_allreduce(w.comms[0], codec, gradient, SPR_SUM, &options,
                                                   &w.requests[0]),
                         SPR_ERR_INVALID);
        options.algorithm = NULL;
        options.struct_size = 3;
        assert_int_equal(spr_icompressed_allreduce(w.comms[0], codec, gradient, SPR_SUM, &options,
                                                   &w.requests[0]),
                         SPR_ERR_INVALID);
        assert_int_equal(
            spr_icompressed_allreduce(w.comms[0], codec, gradient, SPR_SUM, NULL, NULL),
            SPR_ERR_INVALID);
        for (int k = 0; k < N; k++) {
            assert_true(gradient[k] == 1 && spr_codec_residual(codec)[k] == 0);
            gradient[k] = 5;
        }
        /* The next call is a new step: it reads its own gradient. */
        assert_int_equal(
            spr_icompressed_allreduce(w.comms[0], codec, gradient, SPR_SUM, NULL, &w.requests[0]),
            SPR_OK);
        assert_true(world_run(&w, LIMIT_NS));
        assert_int_equal(w.results[0], SPR_OK);
        for (int k = 0; k < N; k++)
            assert_true(gradient[k] + spr_codec_residual(codec)[k] == 5);
        spr_codec_destroy(codec);
    }
    world_destroy(&w);
}

/* Names ---------------------------------------------------------------------------------------- */

static void a_deadline_names_its_own_operation(void **state)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *older = NULL;
    struct world w;

    (void)state;
    make(&w, 2);
    options.name = "an older one";
    options.timeout_s = 10;
    assert_int_equal(
        spr_iallreduce(w.comms[0], in[0], out[0], 100, SPR_FP32, SPR_SUM, &options, &older),
        SPR_OK);
    options.name = "layer7.bias";
    options.timeout_s = 0.5;
    assert_int_equal(
        spr_iallreduce(w.comms[0], in[1], out[1], 100, SPR_FP32, SPR_SUM, &options, &w.requests[0]),
        SPR_OK);
    assert_true(world_run(&w, LIMIT_NS));
    assert_int_equal(w.results[0], SPR_ERR_DEADLINE);
    assert_non_null(strstr(spr_last_error(w.comms[0]), "layer7.bias"));
    assert_non_null(strstr(spr_last_error(w.comms[0]), "rank 1"));
    assert_null(strstr(spr_last_error(w.comms[0]), "older"));
    assert_true(spr_test(&older) < 0);
    world_destroy(&w);
}

static void endless_and_huge_timeouts_work(void **state)
{
    static const double timeouts[] = {(double)INFINITY, 1e300, 1e10};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct world w;

    (void)state;
    make(&w, 2);
    for (size_t i = 0; i < SPR_ARRAY_LEN(timeouts); i++) {
        options.timeout_s = timeouts[i];
        assert_int_equal(spr_ibarrier(w.comms[0], &options, &w.requests[0]), SPR_OK);
        world_settle(&w, 1000); /* long enough for a deadline that wrapped around */
        assert_int_equal(spr_ibarrier(w.comms[1], &options, &w.requests[1]), SPR_OK);
        assert_true(world_run(&w, LIMIT_NS));
        assert_true(w.results[0] == SPR_OK && w.results[1] == SPR_OK);
    }
    world_destroy(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(the_oldest_of_many_in_flight_may_disagree),
        cmocka_unit_test(a_call_that_cannot_begin_leaves_no_trace),
        cmocka_unit_test(what_was_wrong_is_said),
        cmocka_unit_test(wrong_options_and_requests_are_invalid),
        cmocka_unit_test(an_invalid_call_leaves_the_codec_as_it_was),
        cmocka_unit_test(a_deadline_names_its_own_operation),
        cmocka_unit_test(endless_and_huge_timeouts_work),
    };
    int failures;

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < SPR_ARRAY_LEN(indices); i++)
        indices[i] = 2 * i;
    for (int r = 0; r < RANKS_MAX; r++) {
        in[r] = calloc(LARGE, sizeof **in);
        out[r] = calloc(LARGE, sizeof **out);
    }
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    for (int r = 0; r < RANKS_MAX; r++) {
        free(in[r]);
        free(out[r]);
    }
    return failures;
}
