/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs: strings, and what one step sends and keeps.
 */
#include "compress/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "tests/unit/codec_steps.h"
#include "tools/codec/data.h"

#define STEPS 12

static struct spr_rng rng;

/* ---- Strings ---- */

static void every_valid_string_has_one_canonical_form(void **state)
{
    static const char *const cases[][2] = {
        {"topk", "topk:ratio=0.01,count=0"},
        {"topk:ratio=1%", "topk:ratio=0.01,count=0"},
        {"topk:feedback=off,ratio=0.25", "topk:ratio=0.25,count=0,feedback=off"},
        {"topk:ratio=0.1%,feedback=on+fp16", "topk:ratio=0.001,count=0+fp16"},
        {"topk:ratio=1%+bf16", "topk:ratio=0.01,count=0+bf16"},
        {"topk+fp32", "topk:ratio=0.01,count=0"},
        {"topk:count=10,warmup=0,masking=on", "topk:ratio=0.01,count=10"},
        {"random", "random:ratio=0.01,scale=off"},
        {"randomk:feedback=decay,decay=90%",
         "random:ratio=0.01,scale=off,feedback=decay,decay=0.9"},
        {"dgc", "dgc:ratio=0.001,count=0"},
        {"dgc:feedback=momentum,ratio=0.1%", "dgc:ratio=0.001,count=0"},
        {"dgc:feedback=on,clip=3+int8", "dgc:ratio=0.001,count=0,feedback=on,clip=3"
                                        "+int8:group=1K,rounding=nearest"},
        {"none", "none"},
        {"fp32", "none"},
        {"dgc:clip=1e20", "dgc:ratio=0.001,count=0,clip=1e20"},
        {"bounded:bits=4", "bounded:error=0.01,mode=relative,group=1K,bits=4"},
        {"bytegrad", "int8:group=1K,rounding=nearest"},
        {"powersgd", "powersgd:rank=4"},
        {"powersgd:rank=2", "powersgd:rank=2"},
        {"adaptive", "adaptive:ratio=0.01,calm=1,error=0,every=16"},
        {"fp16", "fp16"},
        {"none+bf16", "bf16"},
        {"onebit+fp32", "onebit+fp32"},
        {"random:bytes=1%", "random:ratio=0.01,scale=off"},
        {"random:bytes=25%+fp16", "random:ratio=0.5,scale=off+fp16"},
        {"random:bytes=100%+fp16", "random:ratio=1,scale=off+fp16"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_codec *a = codec_make(cases[i][0]), *b = codec_make(cases[i][1]);

        assert_string_equal(spr_codec_spec(a), cases[i][1]);
        assert_string_equal(spr_codec_spec(b), cases[i][1]);
        assert_true(spr_codec_hash(a) == spr_codec_hash(b));
        spr_codec_destroy(a);
        spr_codec_destroy(b);
    }
}

static void a_bad_string_names_the_position_and_what_is_allowed(void **state)
{
    static const struct {
        const char *spec, *where, *says;
    } cases[] = {
        {"", "character 1:",
         "none, topk, accumulate, threshold, sampled, reuse, block, random, adaptive, dgc, onebit, "
         "powersgd, fp32"},
        {"topq", "character 1:",
         "none, topk, accumulate, threshold, sampled, reuse, block, random, adaptive, dgc, onebit, "
         "powersgd, fp32"},
        {"topk+fp8", "character 6:",
         "none, topk, accumulate, threshold, sampled, reuse, block, random, adaptive, dgc, onebit, "
         "powersgd, fp32"},
        {"topk+", "character 6:", "known are"},
        {"topk+fp16+bf16", "character 11:", "one value coder"},
        {"fp16+topk", "character 6:", "comes first"},
        {"topk+topk", "character 6:", "one selection"},
        {"topk:", "character 6:", "topk has ratio, count, feedback, decay"},
        {"topk:ratio", "character 6:", "name=value"},
        {"topk:rate=1%", "character 6:", "topk has ratio, count, feedback, decay"},
        {"topk:ratio=1%,k=3", "character 15:", "topk has ratio, count, feedback, decay"},
        {"topk:ratio=1%,ratio=2%", "character 15:", "give it once"},
        {"topk:ratio=0", "character 12:", "out of range"},
        {"topk:ratio=101%", "character 12:", "out of range"},
        {"topk:ratio=lots", "character 12:", "ratio"},
        {"topk:feedback=maybe", "character 15:", "feedback"},
        {"topk:count=9,bytes=1%", "character 1:", "has no ratio to set in \"topk\""},
        {"threshold:by=rms,bytes=1%+int8", "character 1:", "leave one of them out"},
        {"topk:ratio=1%,bytes=1%", "bytes= beside ratio= in \"topk\"", "leave one of them out"},
        {"dgc:bytes=0.1%,ratio=1%+int8", "character 1:", "it would set the ratio"},
        {"random:ratio=1%,union=hosts", "union=hosts in \"random\"", "nothing would be left out"},
        {"topk:union=hosts+qsgd", "union=hosts beside \"qsgd\"", "not kept"},
        {"dgc:union=hosts,feedback=off", "union=hosts without feedback", "would be lost"},
        {"random:ratio=1%,union=bounded", "union=bounded in \"random\"",
         "nothing would be left out"},
        {"topk:union=bounded,feedback=off", "union=bounded without feedback", "would be lost"},
        {"topk:count=10,warmup=5", "warmup= has no ratio", "leave one of them out"},
        {"threshold:by=absolute,value=1,warmup=5", "warmup= has no ratio", "leave one of them"},
        {"topk:feedback=off,clip=1", "clip= without feedback", "leave out feedback=off"},
        {"dgc:warmup=-1", "character 12:", "out of range"},
        {"dgc+topk", "character 5:", "one selection"},
        {"none:ratio=1%", "character 6:", "none has feedback, decay, momentum"},
        {"fp16:x=1", "character 6:", "fp16 has none"},
        {"int8:levels=3", "character 6:", "int8 has group, rounding"},
        {"topk+int4:group=1", "character 17:", "group"},
        {"powersgd:rank=0", "character 15:", "out of range"},
        {"powersgd:rank=33", "character 15:", "out of range"},
        {"powersgd:feedback=off", "character 10:", "powersgd has rank"},
        {"powersgd+int8", "character 10:", "without a value coder"},
        {"bounded:bits=8,group=8", "character 1:", "bits must be 0 or above 64 / group"},
        {"topk+bounded:bits=0.06", "character 6:", "bits must be 0 or above 64 / group"},
        {"bounded:group=64", "character 1:", "may not fit a message"},
        {"topk+bounded:group=32,bits=6", "character 6:", "take larger groups"},
        {"adaptive:clip=1", "character 10:", "adaptive has ratio, calm, error, every, feedback"},
        {"adaptive:every=0", "character 16:", "out of range"},
        {"topk: ratio=1%", "character 6:", "topk has ratio, count, feedback, decay"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_codec *codec = NULL;

        assert_int_equal(spr_codec_create(cases[i].spec, codec_layout, 4, &codec), SPR_ERR_INVALID);
        assert_null(codec);
        assert_non_null(strstr(spr_thread_error()->text, cases[i].where));
        assert_non_null(strstr(spr_thread_error()->text, cases[i].says));
    }
}

static void a_very_long_string_is_refused(void **state)
{
    char spec[2000];
    spr_codec *codec;

    (void)state;
    memset(spec, 'x', sizeof(spec) - 1);
    spec[sizeof(spec) - 1] = '\0';
    assert_int_equal(spr_codec_create(spec, codec_layout, 4, &codec), SPR_ERR_INVALID);
    memcpy(spec, "topk:ratio=", 11);
    assert_int_equal(spr_codec_create(spec, codec_layout, 4, &codec), SPR_ERR_INVALID);
}

static void a_layout_with_gaps_or_repeats_is_refused(void **state)
{
    static const spr_layout gap[] = {{1, "a", 0, 5, 2}, {2, "b", 11, 1, 1}};
    static const spr_layout overlap[] = {{1, "a", 0, 5, 2}, {2, "b", 9, 1, 1}};
    static const spr_layout repeat[] = {{1, "a", 0, 5, 2}, {1, "b", 10, 1, 1}};
    static const spr_layout nothing[] = {{1, "a", 0, 0, 2}};
    static const spr_layout huge[] = {{1, "a", 0, SIZE_MAX, SIZE_MAX}};
    static const struct {
        const spr_layout *layout;
        size_t n;
        const char *says;
    } cases[] = {
        {gap, 2, "begins at element 11"},
        {overlap, 2, "begins at element 9"},
        {repeat, 2, "the id 1"},
        {nothing, 1, "no elements"},
        {huge, 1, "2^32"},
        {gap, 0, "must be given"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_codec *codec = NULL;

        assert_int_equal(spr_codec_create("topk", cases[i].layout, cases[i].n, &codec),
                         SPR_ERR_INVALID);
        assert_non_null(strstr(spr_thread_error()->text, cases[i].says));
    }
}

static void the_hash_tells_strings_and_layouts_apart(void **state)
{
    spr_layout other[SPR_ARRAY_LEN(codec_layout)];
    spr_codec *a = codec_make("topk"), *b = codec_make("topk+fp16"), *c;

    (void)state;
    memcpy(other, codec_layout, sizeof(codec_layout));
    other[0].rows = 150;
    other[0].columns = 100;
    assert_int_equal(spr_codec_create("topk", other, SPR_ARRAY_LEN(other), &c), SPR_OK);
    assert_true(spr_codec_hash(a) != spr_codec_hash(b));
    assert_true(spr_codec_hash(a) != spr_codec_hash(c));
    spr_codec_destroy(a);
    spr_codec_destroy(b);
    spr_codec_destroy(c);
}

static void every_allocation_that_fails_is_nomem_and_leaks_nothing(void **state)
{
    int64_t live = spr_mem_live();

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        spr_codec *codec = NULL;

        spr_mem_fail_nth(nth);
        spr_status status = spr_codec_create("dgc+int8", codec_layout, 4, &codec);
        spr_mem_fail_nth(0);
        spr_codec_destroy(codec);
        assert_int_equal(spr_mem_live(), live);
        if (status == SPR_OK)
            break;
        assert_int_equal(status, SPR_ERR_NOMEM);
        assert_true(nth < 20);
    }
}

/* ---- Steps ---- */

/* What is subtracted from the sum is exact, since `sent` has fewer bits. */
static void each_step_keeps_exactly_what_it_does_not_send(void **state)
{
    (void)state;
    codec_expect_kept(codec_specs, SPR_ARRAY_LEN(codec_specs), STEPS, 0, &rng);
}

/* A residual that forgot to subtract, or subtracted something else, drifts: over many steps
 * everything that went in has been sent or is still there. */
static void over_many_steps_nothing_is_lost_or_sent_twice(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];
    static double in[CODEC_N], out[CODEC_N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++) {
        spr_codec *codec = codec_make(codec_specs[s]);

        memset(in, 0, sizeof(in));
        memset(out, 0, sizeof(out));
        for (int step = 0; step < 3 * STEPS; step++) {
            data_fill(DATA_SMALL_INTEGERS, gradient, CODEC_N, &rng);
            for (size_t i = 0; i < CODEC_N; i++)
                gradient[i] *= 1001; /* sums are exact, but too long for fp16 and bf16 */
            codec_step_of(codec, gradient, sent);
            spr_codec_commit(codec);
            for (size_t i = 0; i < CODEC_N; i++) {
                in[i] += gradient[i];
                out[i] += sent[i];
            }
        }
        const float *residual = spr_codec_residual(codec);
        for (size_t i = 0; i < CODEC_N; i++)
            assert_true(in[i] == out[i] + residual[i]);
        spr_codec_destroy(codec);
    }
}

static void sent_values_fit_their_type(void **state)
{
    static float gradient[CODEC_N];
    struct spr_codec_step step;

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(codec_specs); s++) {
        spr_codec *codec = codec_make(codec_specs[s]);

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        spr_codec_begin(codec, gradient, &step);
        size_t n = step.index ? step.count : CODEC_N;
        const float *v = step.dense ? step.vector : step.value;
        uint32_t zero = step.vtype == SPR_V_FP32 ? 0 : step.vtype == SPR_V_FP16 ? 0xfff : 0xffff;
        for (size_t i = 0; i < n; i++)
            assert_int_equal(data_bits(v[i]) & zero, 0);
        spr_codec_commit(codec);
        spr_codec_destroy(codec);
    }
}

/* Run `codec` and a twin that is never disturbed. */
static void a_dropped_step_keeps_its_gradient(void **state)
{
    static float first[CODEC_N], second[CODEC_N], both[CODEC_N], sent[CODEC_N], twin_sent[CODEC_N];

    (void)state;
    for (size_t s = 0; s < CODEC_STATELESS; s++) {
        spr_codec *codec = codec_make(codec_specs[s]), *twin = codec_make(codec_specs[s]);

        data_fill(DATA_NORMAL, first, CODEC_N, &rng);
        data_fill(DATA_NORMAL, second, CODEC_N, &rng);
        for (size_t i = 0; i < CODEC_N; i++)
            both[i] = first[i] + second[i];
        codec_step_of(codec, first, sent);
        spr_codec_abort(codec);
        spr_codec_drop(codec);
        assert_memory_equal(spr_codec_residual(codec), first, sizeof(first));
        codec_step_of(codec, second, sent);
        codec_step_of(twin, both, twin_sent);
        assert_memory_equal(sent, twin_sent, sizeof(sent));
        spr_codec_destroy(codec);
        spr_codec_destroy(twin);
    }
}

static void a_codec_runs_one_step_at_a_time(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];
    struct spr_codec_step step;
    spr_codec *codec = codec_make("topk");

    (void)state;
    codec_step_of(codec, gradient, sent);
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_ERR_INVALID);
    spr_codec_drop(codec); /* does not end a running step */
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_ERR_INVALID);
    spr_codec_commit(codec);
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    spr_codec_destroy(codec);
}

static void rounding_never_makes_an_infinity(void **state)
{
    static const struct {
        const char *spec;
        float in, out;
    } cases[] = {
        {"topk+fp16", 1e6f, 65504},      {"topk+fp16", -1e30f, -65504},
        {"fp16", 65520, 65504},          {"fp16", -3e38f, -65504},
        {"bf16", 3.4e38f, 0x1.fep127f},  {"topk+bf16", -3.4e38f, -0x1.fep127f},
        {"topk+fp32", 3.4e38f, 3.4e38f},
    };
    static float gradient[CODEC_N], sent[CODEC_N];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        spr_codec *codec = codec_make(cases[c].spec);

        memset(gradient, 0, sizeof(gradient));
        gradient[77] = cases[c].in;
        codec_step_of(codec, gradient, sent);
        assert_true(sent[77] == cases[c].out);
        spr_codec_abort(codec); /* even where rest + sent is not the sum any more */
        assert_true(spr_codec_residual(codec)[77] == cases[c].in);
        codec_step_of(codec, gradient, sent);
        spr_codec_commit(codec);
        assert_true(spr_codec_residual(codec)[77] == cases[c].in - cases[c].out);
        spr_codec_destroy(codec);
    }
}

static void nan_and_infinity_are_sent_and_leave_nothing_behind(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];

    (void)state;
    for (size_t s = 0; s < CODEC_STATELESS; s++) {
        spr_codec *codec = codec_make(codec_specs[s]);

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        gradient[3] = NAN;
        gradient[4] = INFINITY;
        gradient[CODEC_N - 1] = -INFINITY;
        codec_step_of(codec, gradient, sent);
        assert_true(isnan(sent[3]) && isinf(sent[4]) && sent[CODEC_N - 1] == -INFINITY);
        spr_codec_commit(codec);
        for (size_t i = 0; i < CODEC_N; i++)
            assert_true(isfinite(spr_codec_residual(codec)[i]));
        assert_true(spr_codec_residual(codec)[3] == 0);
        spr_codec_destroy(codec);
    }
}

static void without_feedback_the_rest_is_forgotten(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N], again[CODEC_N];
    spr_codec *codec = codec_make("topk:ratio=1%,feedback=off+fp16");

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    codec_step_of(codec, gradient, sent);
    spr_codec_abort(codec);
    codec_step_of(codec, gradient, again);
    assert_memory_equal(sent, again, sizeof(sent));
    spr_codec_commit(codec);
    for (size_t i = 0; i < CODEC_N; i++)
        assert_true(spr_codec_residual(codec)[i] == 0);
    codec_step_of(codec, gradient, again);
    assert_memory_equal(sent, again, sizeof(sent));
    spr_codec_destroy(codec);
}

/* ... and what is too large for a half is sent as the largest, as with feedback. */
static void without_feedback_no_half_becomes_infinite(void **state)
{
    static const char *const specs[] = {"none:feedback=off+fp16",
                                        "random:ratio=100%,feedback=off+fp16"};
    static float gradient[CODEC_N], sent[CODEC_N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        gradient[0] = 1e5f;
        gradient[1] = -1e30f;
        gradient[2] = 1.0f + 0x1p-13f;
        codec_step_of(codec, gradient, sent);
        assert_true(sent[0] == 65504 && sent[1] == -65504 && sent[2] == 1);
        spr_codec_commit(codec);
        for (size_t i = 0; i < CODEC_N; i++)
            assert_true(spr_codec_residual(codec)[i] == 0);
        spr_codec_destroy(codec);
    }
}

static void help_names_every_codec_and_option(void **state)
{
    char text[16384];
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    spr_codec_help(out);
    fclose(out);
    for (const char *const *name =
             (const char *const[]){"topk", "ratio", "feedback", "none", "fp16", "bf16", "dgc",
                                   "random", "momentum", NULL};
         *name; name++)
        assert_non_null(strstr(text, *name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_valid_string_has_one_canonical_form),
        cmocka_unit_test(a_bad_string_names_the_position_and_what_is_allowed),
        cmocka_unit_test(a_very_long_string_is_refused),
        cmocka_unit_test(a_layout_with_gaps_or_repeats_is_refused),
        cmocka_unit_test(the_hash_tells_strings_and_layouts_apart),
        cmocka_unit_test(every_allocation_that_fails_is_nomem_and_leaks_nothing),
        cmocka_unit_test(each_step_keeps_exactly_what_it_does_not_send),
        cmocka_unit_test(over_many_steps_nothing_is_lost_or_sent_twice),
        cmocka_unit_test(sent_values_fit_their_type),
        cmocka_unit_test(a_dropped_step_keeps_its_gradient),
        cmocka_unit_test(a_codec_runs_one_step_at_a_time),
        cmocka_unit_test(rounding_never_makes_an_infinity),
        cmocka_unit_test(nan_and_infinity_are_sent_and_leave_nothing_behind),
        cmocka_unit_test(without_feedback_the_rest_is_forgotten),
        cmocka_unit_test(without_feedback_no_half_becomes_infinite),
        cmocka_unit_test(help_names_every_codec_and_option),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
