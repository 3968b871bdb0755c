/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What every compressor of gradients is expected to do, under the names that the field's
 * reproductions give to such tests: compressors first, then error feedback. One rank, all the way
 * to the bytes on the wire and back. What makes these codecs right in detail is tested in the other
 * files here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/util.h"
#include "tools/codec/data.h"
#include "tools/codec/subject.h"

enum { N = 20000, ROWS = 100 };

/* All that have a residual, so that what is not sent stays. */
static const char *const specs[] = {
    "topk:ratio=1%",
    "topk:ratio=1%+fp16",
    "topk:ratio=1%+int8",
    "threshold:ratio=1%",
    "sampled:ratio=2%",
    "reuse:ratio=1%",
    "block:ratio=4%",
    "random:ratio=1%",
    "adaptive:ratio=1%",
    "accumulate:ratio=1%",
    "dgc:ratio=1%",
    "onebit",
    "sign",
    "int8",
    "int4",
    "bounded:error=0.01",
    "topk:ratio=5%+qsgd",
    "topk:ratio=5%+natural",
    "none",
    "fp16",
    "powersgd:rank=4",
    "topk:ratio=10%+terngrad",
};

static struct spr_rng rng;
static float x[N], out[N];

static void open_subject(struct subject *s, const char *spec, size_t n)
{
    struct spr_error error = {.rank = -1};

    if (subject_open(s, spec, n, n == N ? ROWS : 0, &error) != SPR_OK)
        fail_msg("%s: %s", spec, error.text);
}

/* A step: `out` is what others get of it. Returns its bytes. */
static size_t pass(struct subject *s, const float *gradient)
{
    struct spr_error error = {.rank = -1};
    size_t bytes = subject_encode(s, gradient);

    if (subject_decode(s, out, &error) != SPR_OK)
        fail_msg("%s: %s", s->name, error.text);
    return bytes;
}

/* A first step of n elements of x. */
static size_t pass_once(const char *spec, size_t n)
{
    struct subject s;
    size_t bytes;

    open_subject(&s, spec, n);
    bytes = pass(&s, x);
    subject_close(&s);
    return bytes;
}

static void draw_normal(void) { data_fill(DATA_NORMAL, x, N, &rng); }

static bool equal(float a, float b) { return a >= b && a <= b; }

static bool is_zero(float a) { return equal(a, 0); }

static size_t sent_elements(void)
{
    size_t sent = 0;

    for (size_t i = 0; i < N; i++)
        sent += !is_zero(out[i]);
    return sent;
}

/* ---- Compressors ---- */

static void test_selects_largest_magnitude(void **state)
{
    float least = INFINITY, most = 0;

    (void)state;
    draw_normal();
    pass_once("topk:ratio=1%", N);
    for (size_t i = 0; i < N; i++)
        if (is_zero(out[i]))
            most = fmaxf(most, fabsf(x[i]));
        else
            least = fminf(least, fabsf(x[i]));
    assert_int_equal(sent_elements(), N / 100);
    assert_true(least >= most);
}

static void test_compression_ratio(void **state)
{
    static const struct {
        const char *spec;
        double ratio; /* fp32 over what is sent, at least; draws differ by some percent */
    } cases[] = {
        {"topk:ratio=1%", 60},  {"topk:ratio=10%", 8}, {"random:ratio=1%", 95},    {"fp16", 2},
        {"int8", 3.8},          {"int4", 7.5},         {"topk:ratio=1%+int8", 98}, {"onebit", 27},
        {"powersgd:rank=1", 60}};

    (void)state;
    draw_normal();
    for (size_t c = 0; c < SPR_ARRAY_LEN(cases); c++) {
        double ratio = 4.0 * N / (double)pass_once(cases[c].spec, N);

        if (ratio < cases[c].ratio)
            fail_msg("%s: %.1f times less, not %.1f", cases[c].spec, ratio, cases[c].ratio);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    draw_normal();
    pass_once("none", N);
    assert_memory_equal(out, x, sizeof(x));
    pass_once("topk:ratio=1%", N);
    for (size_t i = 0; i < N; i++)
        assert_true(is_zero(out[i]) || equal(out[i], x[i]));
}

static void test_zero_tensor(void **state)
{
    (void)state;
    memset(x, 0, sizeof(x));
    for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++) {
        pass_once(specs[i], N);
        if (sent_elements() > 0)
            fail_msg("%s makes something of zeros", specs[i]);
    }
}

static void test_negatives(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++)
        x[i] = -1.0f - (float)i / N;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        pass_once(specs[c], N);
        for (size_t i = 0; i < N; i++)
            if (out[i] > 0 && strncmp(specs[c], "powersgd", 8) != 0)
                fail_msg("%s: element %zu, %g, becomes %g", specs[c], i, (double)x[i],
                         (double)out[i]);
    }
    pass_once("topk:ratio=1%", N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(!is_zero(out[i]), i >= N - N / 100);
}

/* Of equal ones the first are sent, and as many as of any others. */
static void test_all_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++)
        x[i] = 0.5f;
    pass_once("topk:ratio=1%", N);
    for (size_t i = 0; i < N; i++)
        assert_true(equal(out[i], i < N / 100 ? 0.5f : 0));
}

static void test_single_element(void **state)
{
    (void)state;
    x[0] = -3;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        if (strstr(specs[c], "qsgd") || strstr(specs[c], "terngrad") || strstr(specs[c], "natural"))
            continue; /* at random */
        pass_once(specs[c], 1);
        if (!(fabsf(out[0] + 3) < 0.1f))
            fail_msg("%s: -3 becomes %g", specs[c], (double)out[0]);
    }
}

static void test_statistics(void **state)
{
    spr_codec_quality q = {.struct_size = sizeof(q)};
    struct subject s;

    (void)state;
    draw_normal();
    x[7] = INFINITY;
    open_subject(&s, "topk:ratio=1%", N);
    assert_int_equal(spr_codec_watch(s.codec, 1, 0, -1), SPR_OK);
    pass(&s, x);
    assert_int_equal(spr_codec_measured(s.codec, SPR_ALL_PARAMETERS, &q), SPR_OK);
    assert_int_equal(q.steps, 1);
    assert_int_equal(q.not_finite, 1);
    assert_true(fabs(q.density - 0.01) < 1e-9 && fabs(q.target_density - 0.01) < 1e-9);
    assert_true(q.bits > 0.32 && q.bits < 0.5 && fabs(q.ratio - q.bits / 32) < 1e-12);
    assert_true(q.encode_ns > 0);
    subject_close(&s);
}

/* In all specs, of two steps. */
static void test_scalar_against_simd(void **state)
{
    static float first[N];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        struct spr_rng same = rng;

        for (int scalar = 0; scalar < 2; scalar++) {
            struct subject s;

            rng = same;
            spr_cpu_override(scalar ? 0 : UINT32_MAX);
            open_subject(&s, specs[c], N);
            for (int step = 0; step < 2; step++) {
                draw_normal();
                pass(&s, x);
            }
            subject_close(&s);
            if (scalar && memcmp(first, out, sizeof(out)) != 0)
                fail_msg("%s: other bits without SIMD", specs[c]);
            memcpy(first, out, sizeof(out));
        }
        spr_cpu_override(UINT32_MAX);
    }
}

static void test_shape_kept(void **state)
{
    spr_codec_quality q = {.struct_size = sizeof(q)};
    const spr_layout layout = {.id = 5, .name = "weight", .rows = ROWS, .columns = N / ROWS};
    spr_codec *codec;

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        assert_int_equal(spr_codec_create(specs[c], &layout, 1, &codec), SPR_OK);
        assert_int_equal(spr_codec_elements(codec), N);
        assert_int_equal(spr_codec_measured(codec, 0, &q), SPR_OK);
        assert_string_equal(q.name, "weight");
        assert_int_equal(q.rows, ROWS);
        assert_int_equal(q.columns, N / ROWS);
        spr_codec_destroy(codec);
    }
}

/* ---- Error feedback ---- */

static void test_initialise(void **state)
{
    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        struct subject s;

        open_subject(&s, specs[c], N);
        for (size_t i = 0; subject_residual(&s) && i < N; i++)
            assert_true(is_zero(subject_residual(&s)[i]));
        subject_close(&s);
    }
}

/* What was not sent is added to the next gradient. */
static void test_compensate(void **state)
{
    static float kept[N];
    struct subject s;

    (void)state;
    open_subject(&s, "topk:ratio=1%", N);
    draw_normal();
    pass(&s, x);
    memcpy(kept, subject_residual(&s), sizeof(kept));
    memset(x, 0, sizeof(x));
    pass(&s, x);
    assert_int_equal(sent_elements(), N / 100);
    for (size_t i = 0; i < N; i++)
        assert_true(is_zero(out[i]) || equal(out[i], kept[i]));
    subject_close(&s);
}

/* The residual is what was accumulated less what was sent. */
static void test_update(void **state)
{
    struct subject s;

    (void)state;
    open_subject(&s, "topk:ratio=1%", N);
    draw_normal();
    pass(&s, x);
    for (size_t i = 0; i < N; i++)
        assert_true(equal(subject_residual(&s)[i], is_zero(out[i]) ? x[i] : 0));
    subject_close(&s);
}

/* The mean of what is sent of the same gradient goes to that gradient. */
static void test_convergence(void **state)
{
    static const char *const codecs[] = {"topk:ratio=10%",   "topk:ratio=10%+int8", "sign", "int4",
                                         "random:ratio=10%", "powersgd:rank=4"};
    enum { STEPS = 400 };
    static double sum[N];

    (void)state;
    draw_normal();
    for (size_t c = 0; c < SPR_ARRAY_LEN(codecs); c++) {
        struct subject s;
        double off = 0, all = 0;

        open_subject(&s, codecs[c], N);
        memset(sum, 0, sizeof(sum));
        for (int step = 0; step < STEPS; step++) {
            pass(&s, x);
            for (size_t i = 0; i < N; i++)
                sum[i] += (double)out[i];
        }
        for (size_t i = 0; i < N; i++) {
            off += pow(sum[i] / STEPS - (double)x[i], 2);
            all += pow((double)x[i], 2);
        }
        if (!(sqrt(off / all) < 0.1))
            fail_msg("%s: after %d steps the mean is off by %g", codecs[c], STEPS, sqrt(off / all));
        subject_close(&s);
    }
}

/* Each has a residual of its own, at its offset, whatever its id. */
static void test_several_parameters(void **state)
{
    enum { A = 300, B = 500 };
    const spr_layout layout[] = {{.id = 2, .offset = 0, .rows = 1, .columns = A},
                                 {.id = 1, .offset = A, .rows = 1, .columns = B}};
    struct spr_codec_step step;
    spr_codec *codec;

    (void)state;
    draw_normal();
    x[A] = 100;
    if (spr_codec_create("topk:count=1", layout, 2, &codec) != SPR_OK)
        fail_msg("%s", spr_thread_error()->text);
    assert_int_equal(spr_codec_begin(codec, x, &step), SPR_OK);
    assert_int_equal(step.count, 1);
    assert_int_equal(step.index[0], A);
    spr_codec_commit(codec);
    for (size_t i = 0; i < A + B; i++)
        assert_true(equal(spr_codec_residual(codec)[i], i == A ? 0 : x[i]));
    spr_codec_destroy(codec);
}

/* One that is loaded goes on as the one that was saved. */
static void test_serialise(void **state)
{
    static char saved[4 * sizeof(x)];
    static float here[N];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        size_t bytes = sizeof(saved);
        struct subject a, b;

        open_subject(&a, specs[c], N);
        open_subject(&b, specs[c], N);
        draw_normal();
        pass(&a, x);
        assert_int_equal(spr_codec_save(a.codec, saved, &bytes), SPR_OK);
        assert_int_equal(spr_codec_load(b.codec, saved, bytes), SPR_OK);
        draw_normal();
        pass(&a, x);
        memcpy(here, out, sizeof(out));
        pass(&b, x);
        if (memcmp(here, out, sizeof(out)) != 0)
            fail_msg("%s: a codec that was loaded goes on otherwise", specs[c]);
        subject_close(&a);
        subject_close(&b);
    }
}

/* Sent + residual = all that came in, over several steps. */
static void test_conservation(void **state)
{
    enum { STEPS = 5 };
    static double in[N], sent[N];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++) {
        struct spr_codec_kind kind;
        struct spr_error error = {.rank = -1};
        struct subject s;

        assert_int_equal(spr_codec_kind_of(specs[c], &kind, &error), SPR_OK);
        if (!kind.conserves)
            continue;
        open_subject(&s, specs[c], N);
        memset(in, 0, sizeof(in));
        memset(sent, 0, sizeof(sent));
        for (int step = 0; step < STEPS; step++) {
            draw_normal();
            pass(&s, x);
            for (size_t i = 0; i < N; i++) {
                in[i] += (double)x[i];
                sent[i] += (double)out[i];
            }
        }
        for (size_t i = 0; i < N; i++) {
            double kept = subject_residual(&s) ? (double)subject_residual(&s)[i] : 0;

            if (!(fabs(sent[i] + kept - in[i]) <= STEPS * 0x1p-20))
                fail_msg("%s: element %zu: %g sent, %g kept, %g in (SPARRING_SEED=%llu)", specs[c],
                         i, sent[i], kept, in[i], (unsigned long long)rng.seed);
        }
        subject_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selects_largest_magnitude),
        cmocka_unit_test(test_compression_ratio),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_zero_tensor),
        cmocka_unit_test(test_negatives),
        cmocka_unit_test(test_all_equal),
        cmocka_unit_test(test_single_element),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_scalar_against_simd),
        cmocka_unit_test(test_shape_kept),
        cmocka_unit_test(test_initialise),
        cmocka_unit_test(test_compensate),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_convergence),
        cmocka_unit_test(test_several_parameters),
        cmocka_unit_test(test_serialise),
        cmocka_unit_test(test_conservation),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
