/* SPDX-License-Identifier: BSD-2-Clause
 *
 * spr_codec_choose() by real processes: bounds decide as they say, all ranks get the same figures,
 * what is wrong on one rank ends it on all of them, and a change of codecs loses nothing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/choose_codec.h"
#include "tests/multi/job.h"
#include "tools/codec/data.h"

#define SECONDS 60
enum { N = 20000, RANKS = 3 };

static const spr_layout layout[] = {{1, "w", 0, N / 2, 1}, {2, "v", N / 2, N / 2, 1}};
static const char *const specs[] = {"topk:ratio=1%", "int8"};
enum { TOPK, INT8, DENSE, TRIALS };

static void draw(float *gradient, int rank, int step)
{
    struct spr_rng rng = {(uint64_t)rank, (uint64_t)step << 32};

    for (size_t i = 0; i < N; i++)
        gradient[i] = (float)data_normal(&rng);
}

/* What is chosen within these bounds; -1: nothing, and INVALID. */
static int choice(spr_comm *comm, double most_error, double most_bytes, spr_codec_trial *trials)
{
    spr_choice_options options = SPR_CHOICE_OPTIONS_INIT;
    static float gradient[N], before[N];
    int chosen = -9;
    spr_status status;

    options.most_error = most_error;
    options.most_bytes = most_bytes;
    options.trials = trials;
    draw(gradient, spr_comm_rank(comm), 0);
    memcpy(before, gradient, sizeof before);
    status = spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen);
    RANK_CHECK(!memcmp(before, gradient, sizeof before));
    RANK_CHECK(status == (chosen == -9 ? SPR_ERR_INVALID : SPR_OK)); /* is only set with OK */
    return status ? -1 : chosen;
}

static void run_bounds(struct job *job, int rank, spr_comm *comm)
{
    spr_codec_trial trials[TRIALS];

    (void)job;
    (void)rank;
    RANK_CHECK(choice(comm, 0, 0.02, trials) == TOPK);
    RANK_CHECK(!strcmp(trials[TOPK].spec, specs[TOPK]) && !strcmp(trials[DENSE].spec, "dense"));
    for (int i = 0; i < TRIALS; i++) {
        double figures[] = {trials[i].seconds, trials[i].error, trials[i].bytes}, all[3];

        RANK_CHECK(spr_allreduce(comm, figures, all, 3, SPR_FP64, SPR_MIN, NULL) == SPR_OK);
        RANK_CHECK(!memcmp(figures, all, sizeof all));
        RANK_CHECK(spr_allreduce(comm, figures, all, 3, SPR_FP64, SPR_MAX, NULL) == SPR_OK);
        RANK_CHECK(!memcmp(figures, all, sizeof all));
        RANK_CHECK(trials[i].seconds > 0 && trials[i].seconds < SECONDS);
        RANK_CHECK(trials[i].allowed == (i == TOPK));
    }
    RANK_CHECK(trials[TOPK].error > 0.8 && trials[TOPK].error < 1);
    RANK_CHECK(trials[TOPK].bytes > 0.01 && trials[TOPK].bytes < 0.02);
    RANK_CHECK(trials[INT8].error > 0.001 && trials[INT8].error < 0.02);
    RANK_CHECK(trials[INT8].bytes > 0.25 && trials[INT8].bytes < 0.26);
    RANK_CHECK(trials[DENSE].error == 0 && trials[DENSE].bytes == 1);
    RANK_CHECK(choice(comm, 0.02, 0.5, NULL) == INT8);
    RANK_CHECK(choice(comm, 1e-6, 0, trials) == DENSE);
    RANK_CHECK(!trials[TOPK].allowed && !trials[INT8].allowed && trials[DENSE].allowed);
    RANK_CHECK(choice(comm, 0.001, 0.5, NULL) == -1);
    RANK_CHECK(strstr(spr_last_error(NULL), "none of 2 codecs, nor dense, is within an error of "
                                            "0.001 and 0.5 of the bytes"));
}

static void bounds_decide_and_all_ranks_see_the_same(void **state)
{
    (void)state;
    job_on_all_transports(RANKS, run_bounds, NULL, SECONDS);
}

static void run_wrong(struct job *job, int rank, spr_comm *comm)
{
    static const char *const wrong[] = {"topk:ratio=1%", "int8:group=x"};
    static const char *const others[] = {"topk:ratio=2%", "int8"};
    static float gradient[N];
    spr_choice_options options = SPR_CHOICE_OPTIONS_INIT;
    int chosen = -1;

    (void)job;
    draw(gradient, rank, 0);
    RANK_CHECK(spr_codec_choose(comm, rank == 1 ? wrong : specs, 2, layout, 2, gradient, NULL,
                                &chosen) == SPR_ERR_INVALID);
    RANK_CHECK(
        strstr(spr_last_error(NULL), rank == 1 ? "group" : "rank 1 cannot try these codecs"));
    RANK_CHECK(spr_codec_choose(comm, specs, rank == 1 ? 1 : 2, layout, 2, gradient, NULL,
                                &chosen) == SPR_ERR_MISMATCH);
    RANK_CHECK(strstr(spr_last_error(NULL), "other numbers of codecs"));
    options.most_bytes = rank == 1 ? 0.5 : 0.25;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) ==
               SPR_ERR_MISMATCH);
    RANK_CHECK(spr_codec_choose(comm, rank == 1 ? others : specs, 2, layout, 2, gradient, NULL,
                                &chosen) == SPR_ERR_MISMATCH);
    RANK_CHECK(chosen == -1);
    /* What is in use need not be the same, after a failure or for a newcomer. */
    options.most_bytes = 0.02;
    options.current = rank == 1 ? INT8 : -1;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) == SPR_OK);
    RANK_CHECK(chosen == TOPK);
    chosen = -1;
    options.current = -1;
    options.most_error = rank == 1 ? (double)INFINITY : (double)NAN;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) ==
               SPR_ERR_INVALID);
    /* Nothing of that is left. */
    RANK_CHECK(choice(comm, 0, 0.02, NULL) == TOPK);
}

static void what_is_wrong_on_one_rank_fails_on_all(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, RANKS, "auto", run_wrong, NULL);
    job_expect_success(&job, SECONDS);
}

/* Three steps by each codec, what one has not sent added to the next one's gradient: sums over
 * ranks of inputs are sums of results and of what is left. */
static void run_change(struct job *job, int rank, spr_comm *comm)
{
    static const char *const in_turn[] = {"topk:ratio=1%+fp16", "int8", "onebit:feedback=on",
                                          "topk:ratio=5%"};
    static double in[N], out[N];
    static float gradient[N], left[N];
    double all_left[N];

    (void)job;
    for (int step = 0; step < 3 * (int)SPR_ARRAY_LEN(in_turn); step++) {
        static spr_codec *codec;

        if (step % 3 == 0)
            RANK_CHECK(spr_codec_create(in_turn[step / 3], layout, 2, &codec) == SPR_OK);
        draw(gradient, rank, step);
        for (size_t i = 0; i < N; i++) {
            in[i] += (double)gradient[i];
            gradient[i] += step % 3 == 0 ? left[i] : 0;
        }
        RANK_CHECK(spr_compressed_allreduce(comm, codec, gradient, SPR_SUM, NULL) == SPR_OK);
        for (size_t i = 0; i < N; i++)
            out[i] += (double)gradient[i];
        if (step % 3 < 2)
            continue;
        memcpy(left, spr_codec_residual(codec), sizeof left);
        spr_codec_destroy(codec);
    }
    for (size_t i = 0; i < N; i++)
        all_left[i] = (double)left[i];
    RANK_CHECK(spr_allreduce(comm, in, in, N, SPR_FP64, SPR_SUM, NULL) == SPR_OK);
    RANK_CHECK(spr_allreduce(comm, all_left, all_left, N, SPR_FP64, SPR_SUM, NULL) == SPR_OK);
    for (size_t i = 0; i < N; i++)
        RANK_CHECK(fabs(in[i] - out[i] - all_left[i]) < 1e-3);
}

static void a_change_of_codecs_loses_nothing(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, RANKS, "auto", run_change, NULL);
    job_expect_success(&job, SECONDS);
}

static void run_lost(struct job *job, int rank, spr_comm *comm)
{
    static float gradient[N];
    int chosen;

    draw(gradient, rank, 0);
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), RANKS);
    if (rank == 1)
        _exit(0);
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, NULL, &chosen) != SPR_OK);
    RANK_CHECK(strstr(spr_last_error(comm), "rank 1") != NULL);
    RANK_CHECK(spr_comm_shrink(comm, 0, NULL) == SPR_OK);
    RANK_CHECK(choice(comm, 0, 0.02, NULL) == TOPK);
}

static void a_rank_that_dies_meanwhile_is_named(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, RANKS, "auto", run_lost, NULL);
    job_expect_success(&job, SECONDS);
}

static void the_fastest_one_within_the_bounds_is_taken(void **state)
{
    static const struct {
        double most_error, most_bytes;
        int current, chosen;
    } cases[] = {
        {0, 0, -1, 1},      {0, 0, 1, 1},      {0, 0, 2, 1},       {0, 0, 3, 3}, /* 9 % slower */
        {0.1, 0, -1, 3},    {0.1, 0, 1, 3},    {0.01, 0, -1, 2},   {0, 0.5, -1, 1},
        {0.1, 0.5, -1, -1}, {0.1, 0.5, 1, -1}, {0.25, 0.5, -1, 0},
    };
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_codec_trial trials[] = {{"a", 3, 0.25, 0.5, 0},
                                    {"b", 1, 0.9, 0.01, 0},
                                    {"dense", 2, 0, 1, 0},
                                    {"c", 1.09, 0.1, 0.6, 0}};
        spr_choice_options options = SPR_CHOICE_OPTIONS_INIT;

        options.most_error = cases[i].most_error;
        options.most_bytes = cases[i].most_bytes;
        if (spr_trials_decide(trials, 4, &options, cases[i].current) != cases[i].chosen)
            fail_msg("case %zu: %d", i, spr_trials_decide(trials, 4, &options, cases[i].current));
    }
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(spr_codec_choose(NULL, specs, 2, layout, 2, NULL, NULL, NULL),
                     SPR_ERR_INVALID);
    assert_non_null(strstr(spr_last_error(NULL), "a pointer is NULL"));
}

static void run_alone(struct job *job, int rank, spr_comm *comm)
{
    spr_choice_options options = SPR_CHOICE_OPTIONS_INIT;
    static float gradient[N];
    int chosen;

    (void)job;
    draw(gradient, rank, 0);
    RANK_CHECK(choice(comm, 0, 0.02, NULL) == TOPK);
    RANK_CHECK(spr_codec_choose(comm, specs, 0, layout, 2, gradient, NULL, &chosen) ==
               SPR_ERR_INVALID);
    options.current = 3;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) ==
               SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), "the codec in use is -1 to 2, not 3"));
    options.current = -1;
    options.most_error = NAN;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) ==
               SPR_ERR_INVALID);
    options.struct_size = 1;
    RANK_CHECK(spr_codec_choose(comm, specs, 2, layout, 2, gradient, &options, &chosen) ==
               SPR_ERR_INVALID);
}

static void a_rank_alone_may_choose(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, 1, "auto", run_alone, NULL);
    job_expect_success(&job, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_one_within_the_bounds_is_taken),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(bounds_decide_and_all_ranks_see_the_same),
        cmocka_unit_test(what_is_wrong_on_one_rank_fails_on_all),
        cmocka_unit_test(a_change_of_codecs_loses_nothing),
        cmocka_unit_test(a_rank_that_dies_meanwhile_is_named),
        cmocka_unit_test(a_rank_alone_may_choose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
