/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selections of codecs: each with every value coder, positions that all ranks know, and options
 * that any of them has.
 */
#include "tests/unit/codec_steps.h"

#include <math.h>
#include <stdio.h>

#include "compress/codec_internal.h"
#include "tools/codec/data.h"

#define N CODEC_N

static struct spr_rng rng;

static void every_selector_is_a_selection_of_its_name(void **state)
{
    (void)state;
    for (size_t i = 0; spr_selectors[i]; i++) {
        const struct spr_codec_selection *s = spr_codec_selections;

        while (s->name && strcmp(s->name, spr_selectors[i]->name) != 0)
            s++;
        assert_non_null(s->name);
        assert_ptr_equal(s->selector, spr_selectors[i]);
        assert_true(s->selector->option_count + SPR_FEEDBACK_OPTIONS <= SPR_CODEC_OPTIONS_MAX);
    }
}

/* residual' + sent = residual + gradient, but for one rounding of the difference; as often as the
 * rule of the selection keeps that. */
static void expect_conservation(spr_codec *codec, bool conserves)
{
    static float gradient[N], before[N], sent[N];

    for (int step = 0; step < 3; step++) {
        memcpy(before, codec->residual, sizeof before);
        data_fill(step % 2 ? DATA_LAYERS : DATA_NORMAL, gradient, N, &rng);
        codec_step_of(codec, gradient, sent);
        spr_codec_commit(codec);
        for (size_t i = 0; i < N && conserves; i++) {
            float sum = before[i] + gradient[i];
            double error = (double)codec->residual[i] + (double)sent[i] - (double)sum;
            if (!(fabs(error) <= 0x1p-23 * fmax(fabs((double)sum), fabs((double)sent[i]))))
                fail_msg("%s, element %zu: %g", spr_codec_spec(codec), i, error);
        }
    }
}

static void every_selection_goes_with_every_value_coder(void **state)
{
    char spec[128];

    (void)state;
    for (const struct spr_codec_selection *s = spr_codec_selections; s->name; s++)
        for (size_t v = 0; v < spr_value_coder_count && s->selector; v++) {
            snprintf(spec, sizeof spec, "%s:ratio=2%%+%s", s->name, spr_value_coders[v]->name);
            spr_codec *codec = codec_make(spec);

            assert_int_equal(codec->velocity != NULL, strcmp(s->name, "dgc") == 0);
            expect_conservation(codec, !codec->velocity);
            spr_codec_destroy(codec);
        }
}

/* What fails on one rank and others have not even begun. */
static void disturb(spr_codec *codec, const float *gradient, int how)
{
    struct spr_codec_step step;

    if (how == 0)
        return;
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    if (how == 2)
        spr_codec_commit(codec);
    spr_codec_abort(codec);
    if (how == 3) /* the step before, and the others have not begun this one */
        spr_codec_revoke(codec);
    if (how == 2) {
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        spr_codec_abort(codec);
        spr_codec_revoke(codec);
    }
    spr_codec_drop(codec);
}

static void random_positions_are_those_of_all_ranks(void **state)
{
    static float gradient[N];
    struct spr_codec_step a, b;
    spr_codec *one = codec_make("random:ratio=1%"), *other = codec_make("randomk:ratio=1%");
    uint32_t last[N / 100];

    (void)state;
    for (int step = 0; step < 12; step++) {
        data_fill(DATA_NORMAL, gradient, N, &rng);
        if (step % 4 == 3)
            spr_codec_revoke(other), spr_codec_drop(other);
        disturb(one, gradient, step % 4);
        assert_int_equal(spr_codec_begin(one, gradient, &a), SPR_OK);
        data_fill(DATA_LAYERS, gradient, N, &rng);
        assert_int_equal(spr_codec_begin(other, gradient, &b), SPR_OK);
        assert_int_equal(a.count, N / 100);
        assert_int_equal(b.count, N / 100);
        assert_memory_equal(a.index, b.index, sizeof last);
        if (step > 0 && step % 4 != 3)
            assert_memory_not_equal(a.index, last, sizeof last);
        memcpy(last, a.index, sizeof last);
        spr_codec_commit(one);
        spr_codec_commit(other);
    }
    spr_codec_destroy(one);
    spr_codec_destroy(other);
}

/* Values alone, as a vector; what they add up to goes where they come from. */
static void sums_go_to_known_positions(void **state)
{
    static const char *const specs[] = {"random:ratio=1%,warmup=2", "random:ratio=3%+bf16",
                                        "random:ratio=2%,feedback=off+int8"};
    static float gradient[N], out[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);

        for (int step = 0; step < 8; step++) {
            size_t count = spr_codec_vector(codec), zeros = 0;
            struct spr_codec_step a;

            data_fill(DATA_NORMAL, gradient, N, &rng);
            assert_int_equal(spr_codec_begin(codec, gradient, &a), SPR_OK);
            assert_true(a.dense && a.count == count && a.number == (uint64_t)step);
            for (size_t i = 0; i < count; i++)
                a.sum[i] = (float)(i + 1);
            memset(out, 0xff, sizeof out);
            assert_false(spr_codec_next(codec, out, &a));
            for (size_t i = 0; i < count; i++)
                assert_true(out[a.index[i]] == (float)(i + 1));
            for (size_t i = 0; i < N; i++)
                zeros += data_bits(out[i]) == 0;
            assert_int_equal(zeros, N - count);
            spr_codec_commit(codec);
        }
        spr_codec_destroy(codec);
    }
}

static void a_list_may_be_empty(void **state)
{
    static float gradient[N], sent[N], nothing[N];
    struct spr_codec_step step;
    spr_codec *codec = codec_make("accumulate:ratio=1%,threshold=3+int8");

    (void)state;
    for (size_t i = 0; i < N; i++)
        gradient[i] = 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        assert_int_equal(step.count, 0);
        codec_sent_of(codec, &step, sent);
        assert_memory_equal(sent, nothing, sizeof sent);
        spr_codec_commit(codec);
    }
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK); /* 1 + 1 + 1 */
    assert_int_equal(step.count, N / 100);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
}

static void decay_and_a_clipped_norm_are_part_of_any_selection(void **state)
{
    static float gradient[N], sent[N];
    const struct spr_codec_place four = {.blocks = {N, 4, 10}, .rank = 2};
    struct spr_codec_step step;
    spr_codec *codec = codec_make("block:ratio=1%,feedback=decay,decay=50%");

    (void)state;
    gradient[0] = 1;
    gradient[300] = 4;
    gradient[600] = 2;
    gradient[900] = 1;
    codec_step_of(codec, gradient, sent);
    spr_codec_commit(codec);
    assert_true(sent[300] == 4 && codec->residual[900] == 1);
    memset(gradient, 0, sizeof gradient);
    codec_step_of(codec, gradient, sent);
    spr_codec_commit(codec);
    assert_true(codec->residual[600] + sent[600] == 1 && codec->residual[900] + sent[900] == 0.5f);
    spr_codec_destroy(codec);

    codec = codec_make("topk:count=1,clip=10"); /* 5 for each of four ranks */
    gradient[0] = 30;
    gradient[1] = 40;
    assert_int_equal(spr_codec_begin_at(codec, gradient, &four, &step), SPR_OK);
    assert_true(step.count == 1 && step.index[0] == 1 && step.value[0] == 0.1f * 40);
    assert_true(codec->residual[0] == 0.1f * 30);
    spr_codec_destroy(codec);
}

/* Every third entry of a list is sent on. */
static void only_what_is_sent_on_leaves_the_residual(void **state)
{
    static const char *const specs[][2] = {
        {"topk:ratio=1%+fp16", "topk:ratio=1%,union=bounded+fp16"},
        {"block:ratio=5%", "block:ratio=5%,union=bounded"},
        {"dgc:ratio=1%+int8", "dgc:ratio=1%,union=bounded+int8"},
    };
    const struct spr_codec_place four = {.blocks = {CODEC_N, 4, 6}};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        static float gradient[CODEC_N], result[CODEC_N];
        spr_codec *all = codec_make(specs[s][0]), *some = codec_make(specs[s][1]);
        struct spr_codec_step step, same;
        const uint32_t *index;
        const float *exact;
        size_t count;

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        assert_int_equal(spr_codec_begin_at(all, gradient, &four, &step), SPR_OK);
        assert_int_equal(spr_codec_begin_at(some, gradient, &four, &same), SPR_OK);
        assert_int_equal(step.count, same.count);
        assert_memory_equal(step.index, same.index, step.count * sizeof(*step.index));
        assert_true(same.bound_union && !step.bound_union);
        memset(result, 0, sizeof(result));
        for (size_t i = 0; i < step.count; i += 3)
            result[step.index[i]] = 1;
        spr_codec_take_back(some, result);
        spr_codec_commit(some);
        spr_codec_commit(all);
        assert_true(spr_codec_last_list(some, &index, &exact, &count) && count > 3);
        for (size_t e = 0, i = 0; e < CODEC_N; e++) {
            bool listed = i < count && index[i] == e, stays = listed && i % 3;
            float left = stays ? exact[i] : all->residual[e];
            assert_memory_equal(&some->residual[e], &left, sizeof(left));
            float velocity = stays ? gradient[e] : all->velocity ? all->velocity[e] : 0;
            assert_true(!some->velocity ||
                        (some->velocity[e] >= velocity && some->velocity[e] <= velocity));
            i += listed;
        }
        spr_codec_revoke(some);
        spr_codec_revoke(all);
        assert_memory_equal(some->residual, all->residual, sizeof(gradient));

        /* Nobody has said what was sent on: all was. */
        assert_int_equal(spr_codec_begin_at(all, gradient, &four, &step), SPR_OK);
        assert_int_equal(spr_codec_begin_at(some, gradient, &four, &same), SPR_OK);
        spr_codec_commit(all);
        spr_codec_commit(some);
        assert_memory_equal(some->residual, all->residual, sizeof(gradient));
        spr_codec_destroy(all);
        spr_codec_destroy(some);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_selector_is_a_selection_of_its_name),
        cmocka_unit_test(every_selection_goes_with_every_value_coder),
        cmocka_unit_test(random_positions_are_those_of_all_ranks),
        cmocka_unit_test(sums_go_to_known_positions),
        cmocka_unit_test(a_list_may_be_empty),
        cmocka_unit_test(decay_and_a_clipped_norm_are_part_of_any_selection),
        cmocka_unit_test(only_what_is_sent_on_leaves_the_residual),
    };

    rng.seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
