/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs whose steps begin with the help of workers, beside the same ones without.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "compress/codec_internal.h"
#include "compress/select/selectors.h"
#include "tools/codec/data.h"

enum { N = 700001, SPLIT = 400000 };

static const char *const specs[] = {
    "topk:ratio=1%",
    "topk:ratio=10%+fp16",
    "topk:ratio=1%+int8",
    "accumulate:ratio=1%,threshold=2",
    "threshold:by=rms,value=2",
    "threshold:ratio=2%",
    "sampled:ratio=2%",
    "reuse:ratio=1%,period=2",
    "block:ratio=4%",
    "random:ratio=1%",
    "dgc:ratio=0.5%,momentum=0.9,clip=2.0",
    "adaptive:ratio=1%,every=2",
};

static struct spr_rng rng;

static spr_codec *make(const char *spec)
{
    const spr_layout layout[] = {
        {.id = 1, .offset = 0, .rows = 1000, .columns = SPLIT / 1000},
        {.id = 2, .offset = SPLIT, .rows = 1, .columns = N - SPLIT},
    };
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create(spec, layout, 2, &codec), SPR_OK);
    return codec;
}

static struct spr_codec_step begin(spr_codec *codec, const float *gradient, struct spr_workers *w)
{
    const struct spr_codec_place place = {.blocks = {spr_codec_vector(codec), 1, 12}, .workers = w};
    struct spr_codec_step step;

    assert_int_equal(spr_codec_begin_at(codec, gradient, &place, &step), SPR_OK);
    return step;
}

static void check_same(spr_codec *a, const struct spr_codec_step *x, spr_codec *b,
                       const struct spr_codec_step *y)
{
    assert_int_equal(x->count, y->count);
    assert_int_equal(!x->index, !y->index);
    if (x->index)
        assert_memory_equal(x->index, y->index, x->count * sizeof *x->index);
    assert_memory_equal(x->dense ? x->vector : x->value, y->dense ? y->vector : y->value,
                        x->count * sizeof(float));
    assert_memory_equal(a->residual, b->residual, a->elements * sizeof(float));
    if (a->velocity)
        assert_memory_equal(a->velocity, b->velocity, a->elements * sizeof(float));
}

/* A step of both, or its retry. Returns its entries. */
static size_t begin_both(spr_codec *helped, spr_codec *alone, const float *gradient,
                         struct spr_workers *w)
{
    struct spr_codec_step x = begin(helped, gradient, w), y = begin(alone, gradient, NULL);

    check_same(helped, &x, alone, &y);
    return x.count;
}

static void commit_both(spr_codec *helped, spr_codec *alone)
{
    spr_codec_commit(helped);
    spr_codec_commit(alone);
}

/* Every third step is aborted and begun again. refused: memory for slices. */
static void check_steps(const char *spec, struct spr_workers *w, bool refused)
{
    spr_codec *helped = make(spec), *alone = make(spec);
    float *g = malloc(N * sizeof(float));

    print_message("%s\n", spec);
    for (int i = 0; i < 4; i++) {
        struct spr_codec_step x, y;

        data_fill(i == 2 ? DATA_LAYERS : DATA_NORMAL, g, N, &rng);
        spr_mem_fail_nth(refused);
        x = begin(helped, g, w);
        assert_int_equal(spr_mem_fail_nth(0), 0); /* it has failed */
        assert_int_equal(!helped->sliced, refused);
        y = begin(alone, g, NULL);
        check_same(helped, &x, alone, &y);
        if (i % 3 == 1) {
            spr_codec_abort(helped);
            spr_codec_abort(alone);
            begin_both(helped, alone, g, w);
        }
        commit_both(helped, alone);
    }
    free(g);
    spr_codec_destroy(helped);
    spr_codec_destroy(alone);
}

static void help_changes_no_bit(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        struct spr_workers *w = spr_workers_create(threads);

        assert_non_null(w);
        for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++)
            check_steps(specs[i], w, false);
        spr_workers_destroy(w);
    }
}

/* Whose workspace is not to be had, has the one of a codec without help. */
static void without_memory_for_slices_nothing_fails(void **state)
{
    struct spr_workers *w = spr_workers_create(2);
    int64_t live = spr_mem_live();

    (void)state;
    check_steps("topk:ratio=1%", w, true);
    assert_int_equal(spr_mem_live(), live);
    spr_workers_destroy(w);
}

/* More workers than before, as after another communicator. */
static void the_number_of_workers_may_change(void **state)
{
    spr_codec *helped = make("topk:ratio=1%"), *alone = make("topk:ratio=1%");
    float *g = malloc(N * sizeof(float));

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct spr_workers *w = i % 3 ? spr_workers_create(i % 3) : NULL;
        data_fill(DATA_NORMAL, g, N, &rng);
        begin_both(helped, alone, g, w);
        commit_both(helped, alone);
        spr_workers_destroy(w);
    }
    free(g);
    spr_codec_destroy(helped);
    spr_codec_destroy(alone);
}

/* What a topk of so many of MANY elements needs for slices. */
enum { MANY = 2000001 };

static size_t need_of(size_t count, unsigned slices)
{
    const struct spr_selector *topk = &spr_selector_topk;
    const struct spr_opt *opt = spr_opt_find(topk->options, topk->option_count, "count");
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES] = {0};

    assert_int_equal(spr_opt_defaults(topk->options, topk->option_count, options, NULL), SPR_OK);
    memcpy(options + opt->offset, &count, sizeof count);
    return spr_select_workspace(topk, options, MANY, slices);
}

/* The first number of entries, more than 1 %, that needs more room than the next one: fewer entries
 * may take more runs of candidates. */
static size_t more_than_the_next(unsigned slices)
{
    size_t k = MANY / 100, end;

    while (need_of(k + MANY / 1000, slices) >= need_of(k, slices))
        assert_in_range(k += MANY / 1000, 0, MANY / 2);
    end = k + MANY / 1000;
    while (end - k > 1) {
        size_t middle = (k + end) / 2;

        if (need_of(middle, slices) < need_of(k, slices))
            end = middle;
        else
            k = middle;
    }
    return k;
}

/* As a schedule has it. */
static void fewer_entries_may_need_more_room(void **state)
{
    const spr_layout layout = {.id = 1, .rows = 1, .columns = MANY};
    struct spr_workers *w = spr_workers_create(1);
    unsigned slices = spr_select_slices(MANY, spr_workers_width(w));
    float *g = malloc(MANY * sizeof(float));
    spr_codec *helped = NULL, *alone = NULL;
    size_t k = more_than_the_next(slices);
    char spec[64];

    (void)state;
    snprintf(spec, sizeof spec, "topk:ratio=%.6f", (double)(k + MANY / 1000) / MANY);
    assert_int_equal(spr_codec_create(spec, &layout, 1, &helped), SPR_OK);
    assert_int_equal(spr_codec_create(spec, &layout, 1, &alone), SPR_OK);
    for (int step = 0; step < 2; step++) {
        size_t entries;

        data_fill(DATA_NORMAL, g, MANY, &rng);
        if (step > 0) {
            assert_int_equal(spr_codec_set_ratio(helped, (double)k / MANY), SPR_OK);
            assert_int_equal(spr_codec_set_ratio(alone, (double)k / MANY), SPR_OK);
        }
        entries = begin_both(helped, alone, g, w);
        assert_true(helped->sliced_bytes >= need_of(entries, slices));
        commit_both(helped, alone);
    }
    free(g);
    spr_workers_destroy(w);
    spr_codec_destroy(helped);
    spr_codec_destroy(alone);
}

/* Room is made for a part that has all entries. One that has fewer, and needs more, has one slice.
 */
static void a_part_that_needs_more_room_is_not_cut(void **state)
{
    enum { BESIDE = 1000, ALL = MANY + BESIDE };
    const spr_layout layout[] = {
        {.id = 1, .offset = 0, .rows = 1, .columns = MANY},
        {.id = 2, .offset = MANY, .rows = 1, .columns = BESIDE},
    };
    struct spr_workers *w = spr_workers_create(1);
    unsigned slices = spr_select_slices(ALL, spr_workers_width(w));
    float *g = malloc(ALL * sizeof(float));
    spr_codec *helped = NULL, *alone = NULL;
    char spec[64];

    (void)state;
    snprintf(spec, sizeof spec, "adaptive:ratio=%.9f,every=1",
             (double)(more_than_the_next(slices) + 1) / ALL);
    assert_int_equal(spr_codec_create(spec, layout, 2, &helped), SPR_OK);
    assert_int_equal(spr_codec_create(spec, layout, 2, &alone), SPR_OK);
    for (int step = 0; step < 2; step++) {
        struct spr_codec_step x, y;
        size_t entries = 0;

        data_fill(DATA_NORMAL, g, ALL, &rng);
        x = begin(helped, g, w);
        y = begin(alone, g, NULL);
        check_same(helped, &x, alone, &y);
        while (entries < x.count && x.index[entries] < MANY)
            entries++;
        assert_in_range(need_of(entries, slices), helped->sliced_bytes + 1, SIZE_MAX);
        commit_both(helped, alone);
    }
    free(g);
    spr_workers_destroy(w);
    spr_codec_destroy(helped);
    spr_codec_destroy(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_changes_no_bit),
        cmocka_unit_test(without_memory_for_slices_nothing_fails),
        cmocka_unit_test(the_number_of_workers_may_change),
        cmocka_unit_test(fewer_entries_may_need_more_room),
        cmocka_unit_test(a_part_that_needs_more_room_is_not_cut),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
