/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Trials that are given: what text is one, and which calls go by it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "collectives/trials.h"
#include "tests/sim/world.h"

#define LIMIT_NS 1000000000ull

static void make_world(struct world *w, int ranks, const char *trials)
{
    struct spr_sim_options options = {
        .ranks = ranks, .seed = 1, .latency_s = 10e-6, .bandwidth = 10e9};

    world_create(w, &options);
    for (int r = 0; r < ranks; r++) {
        spr_free(w->comms[r]->options.trials);
        w->comms[r]->options.trials = spr_strdup(trials);
        spr_model_new_era(w->comms[r]);
    }
}

static void trials_may_be_read_again(void **state)
{
    static const char *const good[] = {
        "",
        "allreduce:8/4:1024x4=flat@1.2e-05",
        "allreduce:2/1:25557032x2=ring@0.25,allreduce:2/1:7x8=flat@1e-06",
        "sparse_allreduce:8/8:25557032x4:255571=direct@0.0419",
        "sparse_allreduce:8/8:4000x4:40:fp16/fp32=hosts@1e-05",
        "sparse_allreduce:8/8:4000x4:40:bounded=hosts@1e-05",
        "sparse_allreduce:8/8:4000x4:40:bf16/coded:bounded=union@3",
        "sparse_allreduce:8/4:25557032x4:coded8/coded4=hosts@0.4",
        "sparse_allreduce:8/4:4000x4:40:hosts=hosts@1e-05",
        "sparse_allreduce:8/4:4000x4:40:fp16/fp16:hosts=hosts@3",
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(good); i++) {
        struct spr_error error = {0};
        char text[SPR_TRIALS_BYTES];
        struct world w;
        make_world(&w, 2, good[i]);
        assert_int_equal(spr_trials_check_option(good[i], &error), SPR_OK);
        assert_string_equal(spr_comm_trials(w.comms[0], text, sizeof text), good[i]);
        world_destroy(&w);
    }
}

static void what_is_wrong_with_a_trial_is_said(void **state)
{
    static const char *const wrong[] = {
        "measure",
        "allreduce",
        "barrier:8/4:1x1=dissemination@1",
        "allreduce:8:1024x4=flat@1",
        "allreduce:8/4:1024=flat@1",
        "allreduce:8/4:-1x4=flat@1",
        "allreduce:8/4:99999999999999999999x4=flat@1",
        "allreduce:8/4:1024x4=star@1",
        "allreduce:8/4:1024x4=flat",
        "allreduce:8/4:1024x4=flat@soon",
        "allreduce:8/4:1024x4=flat@0",
        "allreduce:8/4:1024x4=flat@inf",
        "allreduce:8/4:1024x4=flat@1e308",
        "allreduce:8/4:1024x4=flat@1x",
        "allreduce:8/4:1024x4:fp16=flat@1",
        "allreduce:8/4:1024x4:fp16/fp8=flat@1",
        "allreduce:8/4:1024x4:coded65/coded8=flat@1",
        "allreduce:8/4:1024x4:fp16/fp16:coded8=flat@1",
        "allreduce:8/4:1024x4:often=flat@1",
        "sparse_allreduce:8/4:1024x4:10:10=direct@1",
        "allreduce:8/4:1024x4=flat@1,",
        ",allreduce:8/4:1024x4=flat@1",
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(wrong); i++) {
        struct spr_error error = {0};
        if (spr_trials_check_option(wrong[i], &error) != SPR_ERR_INVALID ||
            !strstr(error.text, "is no trial such as"))
            fail_msg("'%s': %s", wrong[i], error.text);
    }
}

/* The algorithm that all ranks take for an allreduce. */
static const char *taken(struct world *w, size_t count, spr_dtype dtype)
{
    static double in[4000], out[WORLD_MAX][4000];
    const char *name = NULL;

    for (int r = 0; r < w->ranks; r++) {
        if (!w->comms[r])
            continue;
        assert_int_equal(
            spr_iallreduce(w->comms[r], in, out[r], count, dtype, SPR_SUM, NULL, &w->requests[r]),
            SPR_OK);
        assert_true(!name || !strcmp(name, w->requests[r]->posted.algorithm));
        name = w->requests[r]->posted.algorithm;
    }
    assert_true(world_run(w, LIMIT_NS));
    return name;
}

static void calls_go_by_the_trials_that_are_given(void **state)
{
    static const int hosts[] = {0, 0, 1, 1};
    struct world w;

    (void)state;
    make_world(&w, 4, "allreduce:4/4:3000x4=tree@1e-05,allreduce:4/4:3000x8=halving@1e-05");
    assert_string_equal(taken(&w, 3000, SPR_FP32), "tree");
    assert_string_equal(taken(&w, 2800, SPR_INT32), "tree");
    assert_string_equal(taken(&w, 3000, SPR_FP64), "halving");
    assert_string_not_equal(taken(&w, 2600, SPR_FP32), "tree");
    /* On other hosts they took another time. */
    world_share_hosts(&w, hosts);
    assert_string_not_equal(taken(&w, 3000, SPR_FP32), "tree");
    world_destroy(&w);
    /* So they did with other ranks. */
    make_world(&w, 3, "allreduce:4/3:3000x4=tree@1e-05");
    assert_string_not_equal(taken(&w, 3000, SPR_FP32), "tree");
    world_destroy(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trials_may_be_read_again),
        cmocka_unit_test(what_is_wrong_with_a_trial_is_said),
        cmocka_unit_test(calls_go_by_the_trials_that_are_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
