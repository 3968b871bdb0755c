/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Saved codec state: keyed by parameter, independent of the layout, and never loaded by halves.
 */
#include "compress/codec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "tools/codec/data.h"

#define N 600

static struct spr_rng rng;
static const spr_layout layout[] = {
    {.id = 40, .offset = 0, .rows = 10, .columns = 30},
    {.id = 7, .offset = 300, .rows = 200, .columns = 1},
    {.id = 9, .offset = 500, .rows = 100, .columns = 1},
};
/* The same parameters in another order. */
static const spr_layout reordered[] = {
    {.id = 9, .offset = 0, .rows = 100, .columns = 1},
    {.id = 40, .offset = 100, .rows = 10, .columns = 30},
    {.id = 7, .offset = 400, .rows = 200, .columns = 1},
};

static spr_codec *make(const spr_layout *l, size_t parameters)
{
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create("topk:ratio=10%+fp16", l, parameters, &codec), SPR_OK);
    return codec;
}

/* A codec with something in its residual. */
static spr_codec *make_used(void)
{
    float gradient[N];
    struct spr_codec_step step;
    spr_codec *codec = make(layout, 3);

    for (int i = 0; i < 3; i++) {
        data_fill(DATA_NORMAL, gradient, N, &rng);
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        spr_codec_commit(codec);
    }
    return codec;
}

static char *save(const spr_codec *codec, size_t *bytes)
{
    *bytes = 0;
    assert_int_equal(spr_codec_save(codec, NULL, bytes), SPR_ERR_TOO_SMALL);
    char *data = malloc(*bytes);
    assert_int_equal(spr_codec_save(codec, data, bytes), SPR_OK);
    return data;
}

static void state_follows_its_parameters_into_another_layout(void **state)
{
    spr_codec *a = make_used(), *b = make(reordered, 3);
    size_t bytes, again;
    char *data = save(a, &bytes), *copy;

    (void)state;
    assert_int_equal(spr_codec_load(b, data, bytes), SPR_OK);
    const float *from = spr_codec_residual(a), *to = spr_codec_residual(b);
    assert_memory_equal(to + 100, from, 300 * sizeof(float));
    assert_memory_equal(to + 400, from + 300, 200 * sizeof(float));
    assert_memory_equal(to, from + 500, 100 * sizeof(float));
    /* The bytes do not depend on the layout. */
    copy = save(b, &again);
    assert_int_equal(again, bytes);
    assert_memory_equal(copy, data, bytes);
    free(copy);
    free(data);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
}

static void parameters_not_saved_start_at_zero_and_unknown_ones_are_ignored(void **state)
{
    static const spr_layout other[] = {
        {.id = 8, .offset = 0, .rows = 50, .columns = 1},
        {.id = 7, .offset = 50, .rows = 200, .columns = 1},
        {.id = 99, .offset = 250, .rows = 350, .columns = 1},
    };
    spr_codec *a = make_used(), *b = make(other, 3);
    float gradient[N];
    struct spr_codec_step step;
    size_t bytes;
    char *data = save(a, &bytes);

    (void)state;
    data_fill(DATA_NORMAL, gradient, N, &rng);
    assert_int_equal(spr_codec_begin(b, gradient, &step), SPR_OK);
    spr_codec_commit(b);
    assert_int_equal(spr_codec_load(b, data, bytes), SPR_OK);
    const float *residual = spr_codec_residual(b);
    assert_memory_equal(residual + 50, spr_codec_residual(a) + 300, 200 * sizeof(float));
    for (size_t i = 0; i < N; i++)
        assert_true((i >= 50 && i < 250) || data_bits(residual[i]) == 0);
    free(data);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
}

static void a_parameter_of_another_size_is_a_mismatch(void **state)
{
    static const spr_layout other[] = {
        {.id = 7, .offset = 0, .rows = 200, .columns = 1},
        {.id = 9, .offset = 200, .rows = 101, .columns = 1},
    };
    spr_codec *a = make_used(), *b = make(other, 2);
    size_t bytes;
    char *data = save(a, &bytes);

    (void)state;
    assert_int_equal(spr_codec_load(b, data, bytes), SPR_ERR_MISMATCH);
    for (size_t i = 0; i < 301; i++)
        assert_int_equal(data_bits(spr_codec_residual(b)[i]), 0);
    free(data);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
}

/* Make the checksum right again. The layout of the bytes is in codec_state.c. */
static void seal(char *data, size_t bytes)
{
    uint32_t crc = spr_crc32c(spr_crc32c(0, data, 32), data + 36, bytes - 36);

    memcpy(data + 32, &crc, 4);
}

static void check_refused(spr_codec *codec, const char *data, size_t bytes)
{
    static float before[N];
    /* A copy of the exact size, so that a sanitizer sees reads beyond it. */
    char *copy = malloc(bytes + 1);

    memcpy(copy, data, bytes);
    memcpy(before, spr_codec_residual(codec), sizeof(before));
    spr_status status = spr_codec_load(codec, copy, bytes);
    assert_true(status == SPR_ERR_CORRUPT || status == SPR_ERR_UNSUPPORTED);
    assert_memory_equal(before, spr_codec_residual(codec), sizeof(before));
    free(copy);
}

static void damaged_bytes_leave_the_state_unchanged(void **state)
{
    spr_codec *a = make_used(), *b = make_used();
    size_t bytes;
    char *data = save(a, &bytes);

    (void)state;
    for (size_t n = 0; n < bytes; n++)
        check_refused(b, data, n);
    for (size_t i = 0; i < bytes; i++) {
        char bit = (char)(1 << spr_rng_below(&rng, 8));

        data[i] = (char)(data[i] ^ bit);
        check_refused(b, data, bytes);
        data[i] = (char)(data[i] ^ bit);
    }
    assert_int_equal(spr_codec_load(b, data, bytes), SPR_OK);
    free(data);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
}

/* The header and the records with any value, and a checksum that is right. */
static void bytes_that_make_no_sense_are_refused_in_spite_of_the_checksum(void **state)
{
    static const uint64_t odd[] = {
        0, 1, 2, 4, 8, 41, 1000, UINT32_MAX, UINT64_MAX, UINT64_MAX / 16, UINT64_MAX / 4 + 1};
    spr_codec *a = make_used(), *b = make_used();
    size_t bytes;
    char *data = save(a, &bytes), *copy = malloc(bytes);

    (void)state;
    /* Length, number of parameters; elements of each, and floats of a start; an id out of order. */
    static const size_t places[] = {8, 16, 72, 96, 120, 80, 128, 112};
    for (size_t p = 0; p < SPR_ARRAY_LEN(places); p++)
        for (size_t o = 0; o < SPR_ARRAY_LEN(odd); o++) {
            memcpy(copy, data, bytes);
            uint64_t was;
            memcpy(&was, copy + places[p], 8);
            if (was == odd[o] || (places[p] == 112 && odd[o] > 9))
                continue;
            memcpy(copy + places[p], &odd[o], 8);
            seal(copy, bytes);
            check_refused(b, copy, bytes);
        }
    /* Vectors; the threshold. */
    static const uint32_t words[][2] = {
        {36, 0}, {36, 2}, {36, 3}, {36, UINT32_MAX}, {40, 1u << 31}};
    for (size_t w = 0; w < SPR_ARRAY_LEN(words); w++) {
        memcpy(copy, data, bytes);
        memcpy(copy + words[w][0], &words[w][1], 4);
        seal(copy, bytes);
        check_refused(b, copy, bytes);
    }
    /* The learning rate, and the ratio. */
    static const double rates[] = {-1, 1e16, (double)NAN, (double)INFINITY, 1e-300};
    for (size_t r = 0; r < 2 * SPR_ARRAY_LEN(rates) - 1; r++) { /* a ratio may be that small */
        memcpy(copy, data, bytes);
        memcpy(copy + 48 + 8 * (r % 2), &rates[r / 2], 8);
        seal(copy, bytes);
        check_refused(b, copy, bytes);
    }
    free(copy);
    free(data);
    spr_codec_destroy(a);
    spr_codec_destroy(b);
}

static void a_running_step_is_neither_saved_nor_loaded(void **state)
{
    spr_codec *codec = make_used();
    float gradient[N] = {1};
    struct spr_codec_step step;
    size_t bytes;
    char *data = save(codec, &bytes);

    (void)state;
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    assert_int_equal(spr_codec_save(codec, data, &bytes), SPR_ERR_INVALID);
    assert_int_equal(spr_codec_load(codec, data, bytes), SPR_ERR_INVALID);
    spr_codec_abort(codec);
    assert_int_equal(spr_codec_save(codec, data, &bytes), SPR_OK);
    free(data);
    spr_codec_destroy(codec);
}

static void a_buffer_that_is_too_small_is_not_written(void **state)
{
    spr_codec *codec = make_used();
    size_t bytes, small;
    char *data = save(codec, &bytes);

    (void)state;
    memset(data, 0x55, bytes);
    small = bytes - 1;
    assert_int_equal(spr_codec_save(codec, data, &small), SPR_ERR_TOO_SMALL);
    assert_int_equal(small, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], 0x55);
    free(data);
    spr_codec_destroy(codec);
}

/* A newcomer that has loaded and cleared sends what one with an empty residual would, at the places
 * and from the start that all others have. */
static void a_cleared_codec_has_no_past_but_its_place_in_the_job(void **state)
{
    static const char *const specs[] = {"random:ratio=10%", "powersgd:rank=2", "dgc:ratio=10%",
                                        "topk:ratio=10%+fp16", "int8"};
    static float gradient[N], zero[N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        struct spr_codec_step theirs, ours;
        spr_codec *a = NULL, *b = NULL;
        size_t bytes;

        assert_int_equal(spr_codec_create(specs[s], layout, 3, &a), SPR_OK);
        assert_int_equal(spr_codec_create(specs[s], layout, 3, &b), SPR_OK);
        for (int i = 0; i < 3; i++) {
            data_fill(DATA_NORMAL, gradient, N, &rng);
            assert_int_equal(spr_codec_begin(a, gradient, &theirs), SPR_OK);
            while (theirs.sum && spr_codec_next(a, gradient, &theirs))
                ;
            assert_int_equal(spr_codec_clear(a), SPR_ERR_INVALID); /* it runs */
            spr_codec_commit(a);
        }
        char *data = save(a, &bytes);
        assert_int_equal(spr_codec_load(b, data, bytes), SPR_OK);
        free(data);
        assert_int_equal(spr_codec_clear(a), SPR_OK);
        assert_int_equal(spr_codec_clear(b), SPR_OK);
        assert_memory_equal(spr_codec_residual(a), zero, sizeof(zero));
        assert_memory_equal(spr_codec_residual(b), zero, sizeof(zero));
        assert_int_equal(spr_codec_begin(a, gradient, &theirs), SPR_OK);
        assert_int_equal(spr_codec_begin(b, gradient, &ours), SPR_OK);
        assert_true(ours.number == 3 && theirs.number == 3 && ours.count == theirs.count);
        if (ours.index)
            assert_memory_equal(ours.index, theirs.index, ours.count * sizeof(*ours.index));
        assert_memory_equal(ours.dense ? ours.vector : ours.value,
                            theirs.dense ? theirs.vector : theirs.value,
                            (ours.index || ours.sum ? ours.count : N) * sizeof(float));
        spr_codec_destroy(a);
        spr_codec_destroy(b);
    }
}

/* Cleared is what was not sent; what comes back, as others have not got it, does. */
static void a_revoked_step_comes_back_to_a_cleared_codec(void **state)
{
    static float gradient[N], sent[N];
    struct spr_codec_step step;
    spr_codec *codec = NULL;

    (void)state;
    assert_int_equal(spr_codec_create("topk:ratio=10%", layout, 3, &codec), SPR_OK);
    data_fill(DATA_NORMAL, gradient, N, &rng);
    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    memset(sent, 0, sizeof(sent));
    for (size_t i = 0; i < step.count; i++)
        sent[step.index[i]] = step.value[i];
    spr_codec_commit(codec);
    assert_int_equal(spr_codec_clear(codec), SPR_OK);
    spr_codec_revoke(codec);
    assert_memory_equal(spr_codec_residual(codec), sent, sizeof(sent));
    spr_codec_destroy(codec);
}

/* Steps, and what they need besides. */
static void use(spr_codec *codec, int steps)
{
    static float gradient[N];
    struct spr_codec_step step;

    for (int i = 0; i < steps; i++) {
        data_fill(DATA_NORMAL, gradient, N, &rng);
        assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
        while (step.sum && spr_codec_next(codec, gradient, &step))
            ;
        spr_codec_commit(codec);
    }
}

/* A bucket becomes two, and these become one of another order: nothing has changed. */
static void buckets_are_split_and_merged(void **state)
{
    static const char *const specs[] = {
        "topk:ratio=10%+fp16",        "dgc:ratio=10%", "powersgd:rank=2",
        "adaptive:ratio=10%,every=1", "onebit",        "reuse:ratio=5%"};
    static const spr_layout first[] = {{.id = 7, .offset = 0, .rows = 200, .columns = 1},
                                       {.id = 40, .offset = 200, .rows = 10, .columns = 30}};
    static const spr_layout second[] = {{.id = 9, .offset = 0, .rows = 100, .columns = 1}};

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(specs); s++) {
        spr_codec *whole = NULL, *part[2] = {NULL, NULL}, *loaded = NULL, *merged = NULL;
        size_t bytes, want_bytes, got_bytes;
        char *data, *want, *got;

        assert_int_equal(spr_codec_create(specs[s], layout, 3, &whole), SPR_OK);
        assert_int_equal(spr_codec_create(specs[s], first, 2, &part[0]), SPR_OK);
        assert_int_equal(spr_codec_create(specs[s], second, 1, &part[1]), SPR_OK);
        assert_int_equal(spr_codec_create(specs[s], reordered, 3, &loaded), SPR_OK);
        assert_int_equal(spr_codec_create(specs[s], reordered, 3, &merged), SPR_OK);
        use(whole, 3);
        use(merged, 1); /* all of that is replaced */
        data = save(whole, &bytes);
        assert_int_equal(spr_codec_load(loaded, data, bytes), SPR_OK);
        for (int i = 0; i < 2; i++) {
            size_t part_bytes;
            char *of_part;

            assert_int_equal(spr_codec_load(part[i], data, bytes), SPR_OK);
            of_part = save(part[i], &part_bytes);
            assert_int_equal(spr_codec_merge(merged, of_part, part_bytes), SPR_OK);
            free(of_part);
        }
        want = save(loaded, &want_bytes);
        got = save(merged, &got_bytes);
        assert_int_equal(got_bytes, want_bytes);
        if (memcmp(got, want, want_bytes) != 0)
            fail_msg("%s: split and merged it is another state", specs[s]);
        free(data);
        free(want);
        free(got);
        spr_codec_destroy(whole);
        spr_codec_destroy(part[0]);
        spr_codec_destroy(part[1]);
        spr_codec_destroy(loaded);
        spr_codec_destroy(merged);
    }
}

/* What stays was left over at another learning rate. */
static void a_merge_keeps_what_a_residual_is_worth(void **state)
{
    static const spr_layout parts[] = {{.id = 40, .offset = 0, .rows = 10, .columns = 30},
                                       {.id = 7, .offset = 0, .rows = 300, .columns = 1}};
    static const spr_layout both[] = {{.id = 40, .offset = 0, .rows = 10, .columns = 30},
                                      {.id = 7, .offset = 300, .rows = 300, .columns = 1}};
    static const double rates[] = {0.5, 0.125};
    spr_codec *part[2], *merged = make(both, 2);

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *data;

        part[i] = make(&parts[i], 1);
        assert_int_equal(spr_codec_set_learning_rate(part[i], rates[i]), SPR_OK);
        use(part[i], 2);
        data = save(part[i], &bytes);
        assert_int_equal(spr_codec_merge(merged, data, bytes), SPR_OK);
        free(data);
    }
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(data_bits(spr_codec_residual(merged)[i]),
                         data_bits(spr_codec_residual(part[0])[i] * 4));
    assert_memory_equal(spr_codec_residual(merged) + 300, spr_codec_residual(part[1]),
                        300 * sizeof(float));
    spr_codec_destroy(part[0]);
    spr_codec_destroy(part[1]);
    spr_codec_destroy(merged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_follows_its_parameters_into_another_layout),
        cmocka_unit_test(parameters_not_saved_start_at_zero_and_unknown_ones_are_ignored),
        cmocka_unit_test(a_parameter_of_another_size_is_a_mismatch),
        cmocka_unit_test(damaged_bytes_leave_the_state_unchanged),
        cmocka_unit_test(bytes_that_make_no_sense_are_refused_in_spite_of_the_checksum),
        cmocka_unit_test(a_cleared_codec_has_no_past_but_its_place_in_the_job),
        cmocka_unit_test(a_revoked_step_comes_back_to_a_cleared_codec),
        cmocka_unit_test(a_running_step_is_neither_saved_nor_loaded),
        cmocka_unit_test(a_buffer_that_is_too_small_is_not_written),
        cmocka_unit_test(buckets_are_split_and_merged),
        cmocka_unit_test(a_merge_keeps_what_a_residual_is_worth),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
