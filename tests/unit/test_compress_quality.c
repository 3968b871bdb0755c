/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a codec says of its quality, against sums in double over plain vectors.
 */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "tests/unit/codec_steps.h"

static struct spr_rng rng;

#define PARAMETERS SPR_ARRAY_LEN(codec_layout)

static const char *const other_specs[] = {"dgc:ratio=1%",
                                          "onebit",
                                          "topk:ratio=2%,feedback=off+int8",
                                          "random:ratio=4%,scale=on,feedback=off",
                                          "qsgd:levels=16",
                                          "natural"};

static spr_codec_quality quality_of(const spr_codec *codec, size_t parameter)
{
    spr_codec_quality q = {.struct_size = sizeof(q)};

    assert_int_equal(spr_codec_measured(codec, parameter, &q), SPR_OK);
    return q;
}

static void assert_near(double x, double y)
{
    if (!(fabs(x - y) <= 1e-4 * fmax(fabs(x), fabs(y)) + 1e-7))
        fail_msg("%.9g is not %.9g", x, y);
}

/* Of elements [first, end). kept: |accumulated - sent|^2 is that. */
static void assert_quality(const spr_codec_quality *q, const float *g, const float *a,
                           const float *s, size_t first, size_t end)
{
    double gg = 0, aa = 0, ss = 0, ee = 0, gs = 0;

    for (size_t i = first; i < end; i++) {
        double x = (double)g[i], y = (double)a[i], z = (double)s[i];
        gg += x * x;
        aa += y * y;
        ss += z * z;
        ee += (y - z) * (y - z);
        gs += x * z;
    }
    assert_near(q->gradient_norm, sqrt(gg));
    assert_near(q->residual_norm, sqrt(ee));
    assert_near(q->relative_error, aa > 0 ? sqrt(ee / aa) : 0);
    assert_near(q->variance_inflation, aa > 0 ? ss / aa : 0);
    assert_near(q->cosine, gg > 0 && ss > 0 ? gs / sqrt(gg) / sqrt(ss) : 0);
}

/* The accumulated vector, from what the codec does not send; without feedback, the gradient. */
static void accumulated_of(const spr_codec *codec, const float *gradient, const float *sent,
                           bool feedback, float *a)
{
    for (size_t i = 0; i < CODEC_N; i++)
        a[i] = feedback ? spr_codec_residual(codec)[i] + sent[i] : gradient[i];
}

static void expect_quality(const char *spec, bool feedback)
{
    static float gradient[CODEC_N], sent[CODEC_N], a[CODEC_N];
    spr_codec *codec = codec_make(spec);

    assert_int_equal(spr_codec_watch(codec, 1, 0, -1), SPR_OK);
    int64_t live = spr_mem_live();
    for (size_t step = 0; step < 4; step++) {
        struct spr_codec_step sends;

        data_fill((enum data)(step % 2 ? DATA_LAYERS : DATA_NORMAL), gradient, CODEC_N, &rng);
        assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
        codec_sent_of(codec, &sends, sent);
        spr_codec_commit(codec);
        accumulated_of(codec, gradient, sent, feedback, a);
        spr_codec_quality all = quality_of(codec, SPR_ALL_PARAMETERS);
        assert_string_equal(all.name, spr_codec_spec(codec));
        assert_true(all.steps == step + 1 && all.samples == step + 1 && all.step == step);
        assert_quality(&all, gradient, a, sent, 0, CODEC_N);
        assert_near(all.density, sends.index ? (double)sends.count / CODEC_N : 1);
        assert_near(all.ratio, all.bits / 32);
        for (size_t p = 0; p < PARAMETERS; p++) {
            spr_codec_quality q = quality_of(codec, p);
            const spr_layout *l = &codec_layout[p];

            assert_true(q.id == l->id && q.rows == l->rows && q.columns == l->columns);
            assert_true(l->name ? strcmp(q.name, l->name) == 0 : q.name == NULL);
            assert_quality(&q, gradient, a, sent, l->offset, l->offset + l->rows * l->columns);
        }
    }
    assert_int_equal(spr_mem_live(), live);
    spr_codec_destroy(codec);
}

static void every_codec_is_measured_as_a_plain_sum_would(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(codec_specs); i++)
        expect_quality(codec_specs[i], true);
    for (size_t i = 0; i < SPR_ARRAY_LEN(coded_specs); i++)
        expect_quality(coded_specs[i], true);
    for (size_t i = 0; i < SPR_ARRAY_LEN(other_specs); i++)
        expect_quality(other_specs[i], i < 2);
}

/* One rank alone gets what it sends. */
static void a_low_rank_is_measured_before_the_gradient_is_overwritten(void **state)
{
    static float gradient[CODEC_N], product[CODEC_N], before[CODEC_N], a[CODEC_N];
    spr_codec *codec = codec_make("powersgd:rank=3");

    (void)state;
    assert_int_equal(spr_codec_watch(codec, 2, 0, -1), SPR_OK);
    for (size_t step = 0; step < 5; step++) {
        struct spr_codec_step sends;

        memcpy(before, spr_codec_residual(codec), sizeof(before));
        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        memcpy(product, gradient, sizeof(product));
        assert_int_equal(spr_codec_begin(codec, product, &sends), SPR_OK);
        while (spr_codec_next(codec, product, &sends))
            ;
        spr_codec_commit(codec);
        spr_codec_quality all = quality_of(codec, SPR_ALL_PARAMETERS);
        assert_true(all.step == step / 2 * 2 && all.samples == step / 2 + 1);
        if (step % 2)
            continue;
        for (size_t i = 0; i < CODEC_N; i++)
            a[i] = before[i] + gradient[i];
        assert_quality(&all, gradient, a, product, 0, CODEC_N);
        spr_codec_quality matrix = quality_of(codec, 0), vector = quality_of(codec, 3);
        assert_quality(&matrix, gradient, a, product, 0, 15000);
        assert_near(matrix.bits, 32.0 * 3 * (104 + 152) / 15000); /* whole groups of eight */
        assert_true(vector.relative_error == 0 && vector.bits == 32);
    }
    spr_codec_destroy(codec);
}

/* A vector is sent as it is, however wide its row. */
static void a_wide_vector_takes_no_memory_for_rows(void **state)
{
    const spr_layout layout[] = {
        {.id = 1, .offset = 0, .rows = 1, .columns = 1 << 20},
        {.id = 2, .offset = 1 << 20, .rows = 64, .columns = 32},
    };
    int64_t before = spr_mem_live_bytes();
    spr_codec *codec = NULL;

    (void)state;
    assert_int_equal(spr_codec_create("powersgd:rank=2", layout, 2, &codec), SPR_OK);
    /* Residual, what was sent last, both sums, and not eight rows. */
    assert_true(spr_mem_live_bytes() - before < 5 * (4 << 20));
    spr_codec_destroy(codec);
}

static void a_sample_has_a_time_and_a_cost(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];
    spr_codec *codec = codec_make("topk:ratio=1%");
    struct timespec before, after; /* time() may be a tick behind */

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    clock_gettime(CLOCK_REALTIME, &before);
    codec_step_of(codec, gradient, sent);
    clock_gettime(CLOCK_REALTIME, &after);
    spr_codec_quality q = quality_of(codec, SPR_ALL_PARAMETERS);
    assert_true(q.encode_ns > 0);
    assert_int_equal(q.bytes_in, CODEC_N * sizeof(float));
    assert_int_equal(q.bytes_out, (uint64_t)(q.bits * CODEC_N / 8 + 0.5));
    assert_in_range(q.time_ns / 1000000000, before.tv_sec, after.tv_sec);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
}

static void a_retry_is_no_step_of_its_own(void **state)
{
    static float gradient[CODEC_N];
    static const char *const specs[] = {"topk:ratio=1%+int8", "int8", "powersgd:rank=2"};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *codec = codec_make(specs[s]);
        struct spr_codec_step sends;

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
        spr_codec_quality first = quality_of(codec, SPR_ALL_PARAMETERS);
        spr_codec_abort(codec);
        memset(gradient, 0xff, sizeof(gradient)); /* NaN: must not be read */
        assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
        while (sends.sum && spr_codec_next(codec, gradient, &sends))
            ;
        spr_codec_commit(codec);
        spr_codec_quality again = quality_of(codec, SPR_ALL_PARAMETERS);
        assert_memory_equal(&first, &again, sizeof(first));
        spr_codec_destroy(codec);
    }
}

static void bits_are_those_of_the_formats(void **state)
{
    static float gradient[CODEC_N];
    static const struct {
        const char *spec;
        double bits;
    } cases[] = {
        {"topk:ratio=25%+fp16", 0.25 * 16 + 1}, /* a bitmap is the cheapest */
        {"random:ratio=1%", 0.01 * 32},         {"topk:ratio=100%", 32}, {"none", 32}, {"bf16", 16},
        {"sign:group=256", 1 + 32.0 / 256},
    };

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_codec *codec = codec_make(cases[i].spec);
        struct spr_codec_step sends;

        assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
        spr_codec_quality q = quality_of(codec, SPR_ALL_PARAMETERS);
        assert_true(fabs(q.bits - cases[i].bits) <= 0.01 * cases[i].bits);
        spr_codec_commit(codec);
        spr_codec_destroy(codec);
    }
}

/* The positions of `count` entries, as the coder makes them, without its first byte. */
static size_t packed_bytes(const uint32_t *index, size_t count)
{
    static uint8_t bytes[8 * CODEC_N];

    return spr_index_encode(spr_index_coder_at(SPR_INDEX_BITPACK), NULL, index, count, CODEC_N,
                            bytes) -
           1;
}

static void positions_count_as_they_are_packed(void **state)
{
    static float gradient[CODEC_N];
    static const double ratios[] = {0.001, 0.01, 0.1};

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    for (size_t i = 0; i < SPR_ARRAY_LEN(ratios); i++) {
        char spec[64];
        struct spr_codec_step sends;
        (void)snprintf(spec, sizeof(spec), "topk:ratio=%g", ratios[i]);
        spr_codec *codec = codec_make(spec);

        assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
        spr_codec_quality q = quality_of(codec, SPR_ALL_PARAMETERS);
        size_t bytes = sends.count * sizeof(float) + packed_bytes(sends.index, sends.count);
        assert_true(bytes < sends.count * (sizeof(float) + 2));
        assert_int_equal(q.bytes_out, bytes);
        spr_codec_commit(codec);
        spr_codec_destroy(codec);
    }
}

/* Each parameter has its share of a block of positions: one in ten, and one in a thousand. */
static void a_sparser_parameter_has_longer_positions(void **state)
{
    enum { HALF = 1 << 18 };
    const spr_layout layout[] = {{.id = 1, .offset = 0, .rows = HALF, .columns = 1},
                                 {.id = 2, .offset = HALF, .rows = HALF, .columns = 1}};
    static float gradient[2 * HALF];
    struct spr_codec_step sends;
    spr_codec *codec = NULL;
    double all = 0;

    (void)state;
    for (size_t i = 0; i < 2 * HALF; i++)
        gradient[i] = spr_rng_u64(1, i) % (i < HALF ? 10 : 1000) ? 0 : 1;
    assert_int_equal(spr_codec_create("threshold:by=absolute,value=0.5,most=1", layout, 2, &codec),
                     SPR_OK);
    assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
    for (size_t p = 0; p < 2; p++) {
        spr_codec_quality q = quality_of(codec, p);
        double entries = q.density * HALF, bits = 8 * (double)q.bytes_out / entries - 32;
        double wanted = spr_index_bitpack_bits(1 / q.density);

        all += (double)q.bytes_out;
        if (!(fabs(bits - wanted) < 0.75))
            fail_msg("parameter %zu: %g bits per position, not %g", p, bits, wanted);
    }
    spr_codec_quality q = quality_of(codec, SPR_ALL_PARAMETERS);
    assert_true(fabs(all - (double)q.bytes_out) <= 2);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
}

/* What is sent is measured when it is still in the residual, too. */
static void expect_unions_to_be_measured_alike(int percent, const char *coder)
{
    static float gradient[CODEC_N];
    static const char *const unions[] = {"all", "bounded", "hosts"};
    struct spr_codec_place four = {.blocks = {CODEC_N, 4, 6}};
    spr_codec_quality q[3];

    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    for (int i = 0; i < 3; i++) {
        struct spr_codec_step sends;
        spr_codec *codec;
        char spec[64];

        snprintf(spec, sizeof spec, "topk:ratio=%d%%,union=%s+%s", percent, unions[i], coder);
        codec = codec_make(spec);
        four.sums_first = i == 2; /* as if each rank coded its own list */
        assert_int_equal(spr_codec_begin_at(codec, gradient, &four, &sends), SPR_OK);
        q[i] = quality_of(codec, SPR_ALL_PARAMETERS);
        spr_codec_destroy(codec);
        assert_near(q[i].residual_norm, q[0].residual_norm);
        assert_near(q[i].relative_error, q[0].relative_error);
        assert_near(q[i].cosine, q[0].cosine);
        assert_near(q[i].variance_inflation, q[0].variance_inflation);
    }
}

static void a_bounded_union_is_measured_as_another(void **state)
{
    (void)state;
    expect_unions_to_be_measured_alike(1, "int4");
    expect_unions_to_be_measured_alike(100, "fp16"); /* only rounding is lost */
}

static void what_is_not_finite_is_counted_and_left_out(void **state)
{
    static float gradient[CODEC_N];
    spr_codec *codec = codec_make("topk:ratio=1%");
    struct spr_codec_step sends;

    (void)state;
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    gradient[3] = NAN;
    gradient[15000] = INFINITY;
    assert_int_equal(spr_codec_begin(codec, gradient, &sends), SPR_OK);
    spr_codec_quality all = quality_of(codec, SPR_ALL_PARAMETERS), bias = quality_of(codec, 1);
    assert_true(all.not_finite == 2 && bias.not_finite == 1 && bias.gradient_norm == 0);
    assert_true(isfinite(all.relative_error) && isfinite(all.cosine) && all.cosine > 0);
    spr_codec_commit(codec);
    spr_codec_destroy(codec);
}

/* ---- Warnings ---- */

static char warning[1024];
static int warnings;

static void take_line(void *ctx, enum spr_log_level level, const char *line)
{
    (void)ctx;
    if (level != SPR_LOG_WARN)
        return;
    snprintf(warning, sizeof(warning), "%s", line);
    warnings++;
}

/* Steps of a codec, each measured; returns how many warnings there were. */
static int warnings_of(const char *spec, int steps, float (*scale)(int step))
{
    static float gradient[CODEC_N], scaled[CODEC_N], sent[CODEC_N];
    spr_codec *codec = codec_make(spec);

    warnings = 0;
    assert_int_equal(spr_codec_watch(codec, 1, 1e4, -0.05), SPR_OK);
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < CODEC_N; i++)
            scaled[i] = scale(step) * gradient[i];
        codec_step_of(codec, scaled, sent);
        spr_codec_commit(codec);
    }
    spr_codec_destroy(codec);
    return warnings;
}

static float the_same(int step)
{
    (void)step;
    return 1;
}

static float only_at_first(int step) { return step == 0 ? 1 : 0; }

/* What a checkpoint holds is not compared with a gradient that is not there yet. */
static void a_residual_before_the_first_gradient_is_no_alarm(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];
    spr_codec *a = codec_make("topk:ratio=1%"), *b = codec_make("topk:ratio=1%");
    size_t bytes = 0;

    (void)state;
    spr_log_set_sink(take_line, NULL);
    data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
    codec_step_of(a, gradient, sent);
    spr_codec_commit(a);
    assert_int_equal(spr_codec_save(a, NULL, &bytes), SPR_ERR_TOO_SMALL);
    char *saved = malloc(bytes);
    assert_int_equal(spr_codec_save(a, saved, &bytes), SPR_OK);
    assert_int_equal(spr_codec_load(b, saved, bytes), SPR_OK);
    free(saved);
    warnings = 0;
    memset(gradient, 0, sizeof(gradient));
    codec_step_of(b, gradient, sent);
    assert_int_equal(warnings, 0);
    spr_codec_commit(b);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
    assert_int_equal(warnings_of("topk:ratio=1%", 30, only_at_first), 0);
    spr_log_set_sink(NULL, NULL);
}

static float turns_back(int step) { return step < 60 ? 1 : -0.1f; }

static void a_residual_without_bound_is_told_once(void **state)
{
    (void)state;
    spr_log_set_sink(take_line, NULL);
    assert_true(warnings_of("topk:ratio=12.5%+qsgd:levels=1,bucket=512", 150, the_same) >= 1);
    assert_non_null(strstr(warning, "parameter "));
    assert_non_null(strstr(warning, "more is left over than is ever sent"));
    assert_true(warnings <= 3); /* one for each parameter that has elements */
    assert_int_equal(warnings_of("topk:ratio=1%", 150, the_same), 0);
    assert_int_equal(warnings_of("onebit", 150, the_same), 0);
    spr_log_set_sink(NULL, NULL);
}

/* What is sent at random positions is 60 steps old when the gradient turns round. */
static void a_cosine_that_falls_is_told(void **state)
{
    (void)state;
    spr_log_set_sink(take_line, NULL);
    assert_true(warnings_of("random:ratio=2%", 100, turns_back) >= 1);
    assert_non_null(strstr(warning, "out of date"));
    assert_int_equal(warnings_of("random:ratio=2%", 60, turns_back), 0);
    spr_log_set_sink(NULL, NULL);
}

/* What was not sent at once has the wrong sign. */
static float there_and_back(int step) { return powf(-0.7f, (float)step); }

static void a_cosine_of_few_elements_is_no_alarm(void **state)
{
    (void)state;
    spr_log_set_sink(take_line, NULL);
    for (int trial = 0; trial < 10; trial++) /* the cosine of one element is 1 or -1 */
        assert_int_equal(warnings_of("random:ratio=33%", 200, there_and_back), 0);
    spr_log_set_sink(NULL, NULL);
}

static void bad_arguments_are_refused(void **state)
{
    spr_codec *codec = codec_make("none");
    spr_codec_quality q = {.struct_size = sizeof(q) - 1};

    (void)state;
    assert_int_equal(spr_codec_measured(codec, 0, &q), SPR_ERR_INVALID);
    q.struct_size = sizeof(q);
    assert_int_equal(spr_codec_measured(codec, PARAMETERS, &q), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_measured(codec, 0, &q), SPR_OK);
    assert_true(q.samples == 0 && q.gradient_norm == 0);
    assert_int_equal(spr_codec_watch(codec, 1, (double)NAN, 0), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_watch(codec, 1, -1, 0), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_watch(codec, 1, 1, 2), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_watch(codec, 0, 1, 0), SPR_OK);
    spr_codec_destroy(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_is_measured_as_a_plain_sum_would),
        cmocka_unit_test(a_low_rank_is_measured_before_the_gradient_is_overwritten),
        cmocka_unit_test(a_wide_vector_takes_no_memory_for_rows),
        cmocka_unit_test(a_sample_has_a_time_and_a_cost),
        cmocka_unit_test(a_retry_is_no_step_of_its_own),
        cmocka_unit_test(bits_are_those_of_the_formats),
        cmocka_unit_test(positions_count_as_they_are_packed),
        cmocka_unit_test(a_sparser_parameter_has_longer_positions),
        cmocka_unit_test(a_bounded_union_is_measured_as_another),
        cmocka_unit_test(what_is_not_finite_is_counted_and_left_out),
        cmocka_unit_test(a_residual_without_bound_is_told_once),
        cmocka_unit_test(a_residual_before_the_first_gradient_is_no_alarm),
        cmocka_unit_test(a_cosine_that_falls_is_told),
        cmocka_unit_test(a_cosine_of_few_elements_is_no_alarm),
        cmocka_unit_test(bad_arguments_are_refused),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
