/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What every selector keeps to, over all selectors of the registry: order, bounds, the same bits
 * for all slicings, threads and instruction sets, and that nothing is lost.
 */
#include "compress/select/select.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/select.h"
#include "tests/unit/select_call.h"
#include "tests/unit/simd.h"
#include "tools/codec/data.h"

static struct spr_rng rng;

static const char *const option_sets[][2] = {
    {"topk", "ratio=1%"},
    {"topk", "ratio=30%"},
    {"topk", "count=5"},
    {"accumulate", "ratio=2%,threshold=0.5"},
    {"accumulate", ""},
    {"threshold", "by=absolute,value=1.5"},
    {"threshold", "by=absolute,value=0.001,most=3%"},
    {"threshold", "by=rms,value=2"},
    {"threshold", "by=density,ratio=5%"},
    {"sampled", "ratio=2%,sample=1%"},
    {"sampled", "ratio=10%,low=0.99,high=1.01"},
    {"reuse", "ratio=2%,period=3"},
    {"block", "ratio=5%,norm=l1"},
    {"block", "ratio=5%,norm=l2"},
    {"block", "ratio=5%,norm=max"},
    {"random", "ratio=3%"},
    {"random", "ratio=40%,scale=on"},
};

static const size_t sizes[] = {0, 1, 2, 257, 2049, 8192, 8193, 30000, 70003};

static void same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (data_bits(a[i]) != data_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("element %zu: %08x and %08x", i, data_bits(a[i]), data_bits(b[i]));
}

static void check_order_and_bounds(const struct call *c)
{
    size_t most = spr_select_most(c->s.selector, c->options, c->n);

    assert_true(c->s.count <= most);
    if (c->s.selector->flags & SPR_SELECT_EXACT_COUNT)
        assert_int_equal(c->s.count, most);
    for (size_t i = 0; i < c->s.count; i++) {
        assert_true(c->index[i] < c->n);
        assert_true(i == 0 || c->index[i] > c->index[i - 1]);
    }
}

/* What was selected is zero, the rest is what it was: sent + residual = before + gradient. */
static void check_conservation(const struct call *c, const float *sum, const float *velocity)
{
    bool masking = c->feedback.masking;
    size_t sent = 0;

    for (size_t i = 0; i < c->n; i++) {
        bool taken = sent < c->s.count && c->index[sent] == i;
        float zero = 0;

        same_floats(&c->residual[i], taken ? &zero : &sum[i], 1);
        if (velocity)
            same_floats(&c->velocity[i], taken && masking ? &zero : &velocity[i], 1);
        if (taken)
            same_floats(&c->value[sent], &sum[i], 1);
        if (taken && velocity)
            same_floats(&c->masked[sent], &velocity[i], 1);
        sent += taken;
    }
    assert_int_equal(sent, c->s.count);
}

static void check_same(const struct call *a, const struct call *b)
{
    assert_int_equal(a->s.count, b->s.count);
    assert_int_equal(a->state.threshold_bits, b->state.threshold_bits);
    assert_memory_equal(a->index, b->index, b->s.count * sizeof(uint32_t));
    same_floats(a->value, b->value, b->s.count);
    same_floats(a->residual, b->residual, b->n);
    same_floats(a->velocity, b->velocity, b->n);
}

/* The rules, element by element, as they are written in feedback.h. */
static void expect(const struct spr_feedback *f, const float *g, float *v, float *u, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float w = f->scale * g[i], ahead;

        switch (f->rule) {
        case SPR_FEEDBACK_OFF:
            fail_msg("no residual, no rule");
            break;
        case SPR_FEEDBACK_PLAIN:
            v[i] = v[i] + w;
            break;
        case SPR_FEEDBACK_DECAY:
            ahead = f->factor * v[i];
            v[i] = ahead + w;
            break;
        case SPR_FEEDBACK_MOMENTUM:
            ahead = f->factor * u[i];
            u[i] = ahead + w;
            v[i] = v[i] + u[i];
            break;
        case SPR_FEEDBACK_NESTEROV:
            ahead = u[i] + w;
            u[i] = f->factor * ahead;
            v[i] = (v[i] + u[i]) + w;
            break;
        }
    }
}

/* Three steps of calls that differ only in how they are cut give the same bits. */
static void check_slices(const char *const set[2], enum data kind, size_t n,
                         const struct spr_feedback_options *rule)
{
    static const unsigned slices[] = {1, 2, 5};
    struct call c[4];
    float *g = call_array(n + 1), *sum = call_array(n + 1), *velocity = call_array(n + 1);

    for (int i = 0; i < 4; i++)
        call_make(&c[i], set[0], set[1], n, slices[i % 3], rule);
    for (uint64_t step = 0; step < 3; step++) {
        data_fill(kind, g, n, &rng);
        memcpy(sum, rule ? c[0].residual : g, n * sizeof(float));
        memcpy(velocity, c[0].velocity, n * sizeof(float));
        for (int i = 0; i < 4; i++) {
            spr_cpu_override(i == 3 ? 0 : simd_features);
            call_run(&c[i], g, step);
            check_order_and_bounds(&c[i]);
            check_same(&c[i], &c[0]);
        }
        spr_cpu_override(simd_features);
        if (rule) {
            bool moves = spr_feedback_has_velocity(c[0].feedback.rule);

            expect(&c[0].feedback, g, sum, velocity, n);
            check_conservation(&c[0], sum, moves ? velocity : NULL);
        }
    }
    for (int i = 0; i < 4; i++)
        call_free(&c[i]);
    call_array_free(g);
    call_array_free(sum);
    call_array_free(velocity);
}

static void slices_and_instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t o = 0; o < SPR_ARRAY_LEN(option_sets); o++)
        for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++)
            for (int kind = 0; kind<DATA_KINDS; kind += sizes[i]> 10000 ? 3 : 1)
                check_slices(option_sets[o], (enum data)((kind + (int)o) % DATA_KINDS), sizes[i],
                             NULL);
}

static void sent_and_residual_are_the_input_for_every_rule(void **state)
{
    static const struct spr_feedback_options rules[] = {
        {.rule = SPR_FEEDBACK_PLAIN},
        {.rule = SPR_FEEDBACK_PLAIN, .clip = 3},
        {.rule = SPR_FEEDBACK_DECAY, .decay = 0.75},
        {.rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.9, .masking = true},
        {.rule = SPR_FEEDBACK_NESTEROV, .momentum = 0.5, .masking = true, .clip = 1},
        {.rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.9, .masking = false},
    };

    (void)state;
    for (size_t o = 0; o < SPR_ARRAY_LEN(option_sets); o++)
        for (size_t r = 0; r < SPR_ARRAY_LEN(rules); r++)
            for (size_t i = o % 2; i < SPR_ARRAY_LEN(sizes); i += 2)
                check_slices(option_sets[o], (enum data)spr_rng_below(&rng, DATA_KINDS), sizes[i],
                             &rules[r]);
}

/* Half of x becomes NaN: which half is up to `where`, what NaN up to `bits`. */
static void put_nans(float *x, size_t n, struct spr_rng where, struct spr_rng bits)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t payload = 1 + (uint32_t)spr_rng_below(&bits, 0x7fffff);
        uint32_t sign = (uint32_t)spr_rng_below(&bits, 2) << 31;

        if (spr_rng_below(&where, 2))
            x[i] = data_float(sign | 0x7f800000u | payload);
    }
}

/* More NaNs than are selected, whose sums have other bits with every compiler. */
static void check_nans(const char *const set[2], size_t n, const struct spr_feedback_options *rule)
{
    struct call c[4];
    float *g = malloc(n * sizeof(float));

    for (unsigned i = 0; i < 4; i++)
        call_make(&c[i], set[0], set[1], n, 1 + i, rule);
    for (uint64_t step = 0; step < 3; step++) {
        struct spr_rng where = {.seed = spr_rng_next(&rng)};

        data_fill(DATA_NORMAL, g, n, &rng);
        for (unsigned i = 0; i < 4; i++) {
            put_nans(g, n, where, (struct spr_rng){.seed = spr_rng_next(&rng)});
            spr_cpu_override(i % 2 ? 0 : simd_features);
            call_run(&c[i], g, step);
            check_same(&c[i], &c[0]);
        }
        spr_cpu_override(simd_features);
    }
    for (unsigned i = 0; i < 4; i++)
        call_free(&c[i]);
    free(g);
}

static void what_is_selected_does_not_depend_on_the_bits_of_nan(void **state)
{
    static const struct spr_feedback_options rules[] = {
        {.rule = SPR_FEEDBACK_PLAIN},
        {.rule = SPR_FEEDBACK_DECAY, .decay = 0.75},
        {.rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.9, .masking = true},
    };

    (void)state;
    for (size_t o = 0; o < SPR_ARRAY_LEN(option_sets); o++)
        for (size_t r = 0; r <= SPR_ARRAY_LEN(rules); r++) {
            const struct spr_feedback_options *rule = r > 0 ? &rules[r - 1] : NULL;

            check_nans(option_sets[o], 5000, rule);
            check_nans(option_sets[o], 70003, rule);
        }
}

/* ---- Threads ---- */

struct worker {
    pthread_t thread;
    struct call *c;
    unsigned slice;
    pthread_barrier_t *barrier;
    bool *done;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    bool done = false;

    while (!done) {
        spr_select_scan(&w->c->s, w->slice);
        pthread_barrier_wait(w->barrier);
        if (w->slice == 0)
            *w->done = spr_select_decide(&w->c->s);
        pthread_barrier_wait(w->barrier);
        done = *w->done;
    }
    spr_select_emit(&w->c->s, w->slice);
    return NULL;
}

static void run_in_threads(struct call *c, const float *g, uint64_t step)
{
    struct worker w[8];
    pthread_barrier_t barrier;
    bool done = false;

    call_prepare(c, g, step);
    pthread_barrier_init(&barrier, NULL, c->s.slices);
    spr_select_begin(&c->s);
    for (unsigned i = 0; i < c->s.slices; i++) {
        w[i] = (struct worker){.c = c, .slice = i, .barrier = &barrier, .done = &done};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < c->s.slices; i++)
        pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

static void threads_give_the_same_bits_as_one(void **state)
{
    static const struct spr_feedback_options rules[] = {
        {.rule = SPR_FEEDBACK_PLAIN},
        {.rule = SPR_FEEDBACK_MOMENTUM, .momentum = 0.9, .masking = true},
    };
    enum { N = 60000 };
    float *g = malloc(N * sizeof(float));
    struct call one, many;

    (void)state;
    for (size_t o = 0; o < SPR_ARRAY_LEN(option_sets); o++)
        for (int kind = 0; kind < DATA_KINDS; kind++) {
            const struct spr_feedback_options *rule = &rules[kind % 2];

            call_make(&one, option_sets[o][0], option_sets[o][1], N, 1, rule);
            call_make(&many, option_sets[o][0], option_sets[o][1], N, 4, rule);
            for (uint64_t step = 0; step < 2; step++) {
                data_fill((enum data)kind, g, N, &rng);
                call_run(&one, g, step);
                run_in_threads(&many, g, step);
                assert_int_equal(one.s.count, many.s.count);
                assert_memory_equal(one.index, many.index, one.s.count * sizeof(uint32_t));
                same_floats(one.value, many.value, one.s.count);
                same_floats(one.residual, many.residual, N);
            }
            call_free(&one);
            call_free(&many);
        }
    free(g);
}

/* ---- Size ---- */

static void positions_beyond_2_to_the_24_are_exact(void **state)
{
    const size_t n = (1u << 24) + 4099;
    float *x = malloc(n * sizeof(float));
    struct call c;

    (void)state;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)spr_hash_u32(i ^ rng.seed) * 1e-9f;
    call_make(&c, "topk", "ratio=1%", n, 3, NULL);
    call_run(&c, x, 0);
    check_order_and_bounds(&c);
    size_t above = 0, at_least = 0, next = 0, ties = 0;
    uint32_t T = c.state.threshold_bits;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = data_bits(x[i]) & 0x7fffffff;
        bool listed = next < c.s.count && c.index[next] == i;

        above += magnitude > T;
        at_least += magnitude >= T;
        ties += listed && magnitude == T;
        assert_true(magnitude > T ? listed : magnitude == T || !listed);
        next += listed;
    }
    assert_int_equal(next, c.s.count);
    assert_true(above < c.s.count && at_least >= c.s.count);
    assert_int_equal(ties, c.s.count - above);
    call_free(&c);
    free(x);
}

/* Of long vectors, two selectors in each run: as the scalar kernels have it, and nothing is lost.
 */
static void long_vectors_are_selected_as_others(void **state)
{
    static const struct spr_feedback_options rule = {.rule = SPR_FEEDBACK_PLAIN};

    (void)state;
    for (int round = 0; round < 2; round++) {
        const char *const *set = option_sets[spr_rng_below(&rng, SPR_ARRAY_LEN(option_sets))];
        size_t n = round ? ((size_t)1 << 24) + 4099 : 70003 + spr_rng_below(&rng, 1 << 20);
        float *g = call_array(n);
        struct call c[2];

        for (int i = 0; i < 2; i++)
            call_make(&c[i], set[0], set[1], n, 3, &rule);
        for (uint64_t step = 0; step < 2; step++) {
            float *sum = call_array(n);

            for (size_t i = 0; i < n; i++)
                g[i] = (float)(int32_t)spr_hash_u32(i ^ spr_rng_u64(rng.seed, step)) * 1e-9f;
            memcpy(sum, c[0].residual, n * sizeof(float));
            expect(&c[0].feedback, g, sum, NULL, n);
            for (int i = 0; i < 2; i++) {
                spr_cpu_override(i ? 0 : simd_features);
                call_run(&c[i], g, step);
                check_order_and_bounds(&c[i]);
            }
            spr_cpu_override(simd_features);
            assert_int_equal(c[0].s.count, c[1].s.count);
            assert_memory_equal(c[0].index, c[1].index, c[0].s.count * sizeof(uint32_t));
            check_conservation(&c[0], sum, NULL);
            call_array_free(sum);
        }
        for (int i = 0; i < 2; i++)
            call_free(&c[i]);
        call_array_free(g);
    }
}

/* ---- Registry and kernels ---- */

static void registry_is_complete_and_describes_itself(void **state)
{
    (void)state;
    for (const struct spr_selector *const *s = spr_selectors; *s; s++) {
        bool tested = false;

        assert_ptr_equal(spr_selector_find((*s)->name), *s);
        assert_true((*s)->doc && (*s)->paper && (*s)->option_bytes <= SPR_SELECT_OPTION_BYTES);
        for (size_t o = 0; o < SPR_ARRAY_LEN(option_sets); o++)
            tested |= strcmp(option_sets[o][0], (*s)->name) == 0;
        if (!tested)
            fail_msg("no options to test %s with", (*s)->name);
    }
    assert_null(spr_selector_find("no-such"));
}

static void kernels_give_the_bits_of_the_scalar_ones(void **state)
{
    enum { N = 1500 };
    const struct spr_select_kernels *a = &spr_select_kernels_scalar, *b = spr_select_kernels();
    float x[N + 8], g[N + 8], v[2][N], u[2][N];
    uint32_t bits[2][N];

    (void)state;
    for (int round = 0; round < 600; round++) {
        size_t n = spr_rng_below(&rng, N), at = spr_rng_below(&rng, 8);
        enum data kind = (enum data)spr_rng_below(&rng, DATA_KINDS);
        float m = (float)spr_rng_double(&rng), c = (float)spr_rng_double(&rng);

        data_fill(kind, x + at, n, &rng);
        data_fill(DATA_NORMAL, g + at, n, &rng);
        for (int rule = 0; rule < 3; rule++) {
            for (int i = 0; i < 2; i++) {
                memcpy(v[i], x + at, n * sizeof(float));
                for (size_t j = 0; j < n; j++)
                    u[i][j] = x[at + n - 1 - j];
                const struct spr_select_kernels *k = i ? b : a;
                if (rule == 0)
                    k->decay(v[i], g + at, m, c, n);
                else
                    k->momentum(v[i], u[i], g + at, m, c, rule == 2, n);
            }
            same_floats(v[0], v[1], n);
            same_floats(u[0], u[1], n);
        }
        double squares[2] = {a->squares(x + at, n), b->squares(x + at, n)};
        assert_true(memcmp(&squares[0], &squares[1], sizeof(double)) == 0 ||
                    (isnan(squares[0]) && isnan(squares[1])));
        for (int norm = SPR_NORM_L1; norm <= SPR_NORM_MAX; norm++) {
            a->norms(x + at, n, (enum spr_norm)norm, bits[0]);
            b->norms(x + at, n, (enum spr_norm)norm, bits[1]);
            assert_memory_equal(bits[0], bits[1], spr_div_ceil(n, SPR_NORM_BLOCK) * 4);
        }
        struct spr_strata s = {
            .length = 1 + (uint32_t)spr_rng_below(&rng, round % 2 ? 5000 : 10),
            .longer = (uint32_t)spr_rng_below(&rng, 2000),
            .key = {(uint32_t)spr_rng_next(&rng), (uint32_t)spr_rng_next(&rng)},
        };
        a->strata(&s, (uint32_t)at, n, bits[0]);
        b->strata(&s, (uint32_t)at, n, bits[1]);
        assert_memory_equal(bits[0], bits[1], n * 4);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry_is_complete_and_describes_itself),
        cmocka_unit_test(kernels_give_the_bits_of_the_scalar_ones),
        cmocka_unit_test(slices_and_instruction_sets_give_the_same_bits),
        cmocka_unit_test(sent_and_residual_are_the_input_for_every_rule),
        cmocka_unit_test(what_is_selected_does_not_depend_on_the_bits_of_nan),
        cmocka_unit_test(threads_give_the_same_bits_as_one),
        cmocka_unit_test(positions_beyond_2_to_the_24_are_exact),
        cmocka_unit_test(long_vectors_are_selected_as_others),
    };

    printf("kernels: %s, SPARRING_SEED=%llu\n", spr_kernels()->name, (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    rng.seed = spr_rng_test_seed();
    return simd_for_each(run);
}
