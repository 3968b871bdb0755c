/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors of the ranks of a simulated world, and what their sums have to be: for tests of
 * collectives.
 */
#ifndef TESTS_SIM_VECTORS_H
#define TESTS_SIM_VECTORS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/reference.h"
#include "tests/sim/world.h"

#define LIMIT_NS 3600000000000ull

static uint64_t seed;

static inline int most_ranks(void) { return reference_small_scale() ? 3 : 9; }

struct buffers {
    char *in[WORLD_MAX], *out[WORLD_MAX];
};

static inline void fill(const struct world *w, struct buffers *b, spr_dtype t, size_t in_count,
                        size_t out_count, uint64_t salt)
{
    for (int r = 0; r < w->ranks; r++) {
        b->in[r] = malloc(in_count * 8 + 8);
        b->out[r] = malloc(out_count * 8 + 8);
        memset(b->out[r], 0xee, out_count * 8 + 8);
        for (size_t i = 0; i < in_count; i++)
            reference_store(t, b->in[r], i, reference_input(seed, t, salt, r, i));
    }
}

static inline void drop(const struct world *w, struct buffers *b)
{
    for (int r = 0; r < w->ranks; r++) {
        free(b->in[r]);
        free(b->out[r]);
    }
}

/* The reduction of element i over ranks in fp64, and a bound of the error. */
static inline double expected(const struct world *w, const struct buffers *b, spr_dtype t,
                              spr_op op, size_t i, double *bound)
{
    double x[WORLD_MAX];

    for (int r = 0; r < w->ranks; r++)
        x[r] = reference_load(t, b->in[r], i);
    return reference_reduce(x, w->ranks, t, op, bound);
}

static inline void run_ok(struct world *w)
{
    assert_true(world_run(w, LIMIT_NS));
    for (int r = 0; r < w->ranks; r++)
        if (w->results[r] != SPR_OK)
            fail_msg("rank %d: %s", r, spr_last_error(w->comms[r]));
}

static inline void post_sums(struct world *w, struct buffers *b, size_t n,
                             const spr_call_options *options)
{
    for (int r = 0; r < w->ranks; r++)
        spr_iallreduce(w->comms[r], b->in[r], b->out[r], n, SPR_FP32, SPR_SUM, options,
                       &w->requests[r]);
}

static inline void check_allreduce(struct world *w, const char *algorithm, spr_dtype t, spr_op op,
                                   size_t n, bool in_place, uint64_t salt)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct buffers b;

    options.algorithm = algorithm;
    fill(w, &b, t, n, n, salt);
    for (int r = 0; r < w->ranks; r++) {
        if (in_place)
            memcpy(b.out[r], b.in[r], n * spr_dtype_size(t));
        assert_int_equal(spr_iallreduce(w->comms[r], in_place ? b.out[r] : b.in[r], b.out[r], n, t,
                                        op, &options, &w->requests[r]),
                         SPR_OK);
    }
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        assert_memory_equal(b.out[r], b.out[0], n * spr_dtype_size(t));
        assert_int_equal((unsigned char)b.out[r][n * spr_dtype_size(t)], 0xee);
    }
    for (size_t i = 0; i < n; i++) {
        double bound, want = expected(w, &b, t, op, i, &bound),
                      got = reference_load(t, b.out[0], i);
        if (!(fabs(got - want) <= bound))
            fail_msg("%s %s %s n=%zu P=%d element %zu: %.17g, not %.17g", algorithm,
                     spr_dtype_name(t), spr_op_name(op), n, w->ranks, i, got, want);
    }
    drop(w, &b);
}

static inline void make(struct world *w, int ranks, double bandwidth)
{
    struct spr_sim_options options = {.ranks = ranks,
                                      .seed = seed,
                                      .latency_s = 10e-6,
                                      .jitter_s = 50e-6,
                                      .bandwidth = bandwidth};
    world_create(w, &options);
}

/* Every rank has every other one's numbers, and nothing behind them was written. */
static inline void check_allgather(struct world *w, const char *algorithm, spr_dtype t, size_t n,
                                   bool in_place)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t bytes = n * spr_dtype_size(t);
    struct buffers b;

    options.algorithm = algorithm;
    fill(w, &b, t, n, n * (size_t)w->ranks, n);
    for (int r = 0; r < w->ranks; r++) {
        char *own = b.out[r] + (size_t)r * bytes;
        if (in_place)
            memcpy(own, b.in[r], bytes);
        assert_int_equal(spr_iallgather(w->comms[r], in_place ? own : b.in[r], b.out[r], n, t,
                                        &options, &w->requests[r]),
                         SPR_OK);
    }
    run_ok(w);
    for (int r = 0; r < w->ranks; r++) {
        for (int from = 0; from < w->ranks; from++)
            assert_memory_equal(b.out[r] + (size_t)from * bytes, b.in[from], bytes);
        assert_int_equal((unsigned char)b.out[r][(size_t)w->ranks * bytes], 0xee);
    }
    drop(w, &b);
}

#define VECTORS_MAIN(...)                                                                          \
    int main(void)                                                                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
                                                                                                   \
        seed = spr_rng_test_seed();                                                                \
        printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);                                  \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

/* After a sparse allreduce of these lists: all ranks know how large their union is, since choices
 * are made from it. `dense`, one rank alone and vectors without an element do not count. */
static inline void world_check_union(const struct world *w, const char *algorithm,
                                     const spr_sparse *lists, size_t n)
{
    bool *has = calloc(n + 1, sizeof *has);
    size_t entries = 0;

    for (int r = 0; r < w->ranks; r++)
        for (size_t i = 0; i < lists[r].count; i++) {
            bool *this = &has[lists[r].index[i]];
            entries += !*this;
            *this = true;
        }
    free(has);
    if (!algorithm || !strcmp(algorithm, "dense") || n == 0 || w->ranks == 1)
        return;
    for (int r = 0; r < w->ranks; r++) {
        spr_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(spr_comm_stats(w->comms[r], &stats), SPR_OK);
        assert_int_equal(stats.last_union, entries);
    }
}

#endif
