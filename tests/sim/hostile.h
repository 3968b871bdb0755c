/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A world with a liar: rank 0 is ours, the last rank is the raw end of simulated links. For tests
 * of what a peer may send.
 */
#ifndef TESTS_SIM_HOSTILE_H
#define TESTS_SIM_HOSTILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "compress/chunk_layout.h"
#include "tests/sim/world.h"

#define LIMIT_NS 3600000000000ull
#define ELEMENTS 1000000
#define UNION_STEP 0x80000000u /* set in the steps of sparse unions */
#define ENTRIES 1000

static uint64_t seed;
static float result[ELEMENTS];
static uint32_t indices[ENTRIES];
static float values[ENTRIES];

struct scene {
    struct world world;
    struct liar liar;
    int64_t live; /* allocations before */
};

static inline void begin_with(struct scene *s, int ranks)
{
    struct spr_sim_options options = {
        .ranks = ranks, .seed = seed, .latency_s = 10e-6, .bandwidth = 10e9};

    s->live = spr_mem_live();
    world_create_liar(&s->world, &options, &s->liar);
    for (int r = 0; r < ranks - 1; r++)
        s->world.comms[r]->options.timeout_s = 5;
}

static inline void begin(struct scene *s) { begin_with(s, 2); }

static inline void end(struct scene *s)
{
    world_destroy(&s->world);
    assert_int_equal(spr_mem_live(), s->live);
}

static inline spr_comm *victim(const struct scene *s) { return s->world.comms[0]; }

static inline void post_allreduce(struct scene *s)
{
    assert_int_equal(spr_iallreduce(victim(s), result, result, ELEMENTS, SPR_FP32, SPR_SUM, NULL,
                                    &s->world.requests[0]),
                     SPR_OK);
}

static inline void post_sparse_of(struct scene *s, int rank, const char *algorithm)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_sparse list = {indices, values, ENTRIES, 0};

    options.algorithm = algorithm;
    assert_int_equal(spr_isparse_allreduce(s->world.comms[rank], &list, ELEMENTS, result, NULL,
                                           SPR_SUM, &options, &s->world.requests[rank]),
                     SPR_OK);
}

static inline void post_sparse(struct scene *s, const char *algorithm)
{
    post_sparse_of(s, 0, algorithm);
}

/* The first grant that rank 0 sent: what operation and descriptor it runs. */
static inline struct spr_frame first_grant(struct scene *s)
{
    size_t i = 0;

    world_settle(&s->world, 2);
    while (i < s->liar.heard_count && s->liar.heard[i].type != SPR_FRAME_GRANT)
        i++;
    assert_true(i < s->liar.heard_count);
    s->liar.heard[i].descriptor = s->world.requests[0]->descriptor;
    return s->liar.heard[i];
}

static inline void answer(struct scene *s, const struct spr_frame *grant, uint32_t step,
                          const void *data, size_t bytes)
{
    struct spr_frame f =
        liar_frame(&s->liar, 0, SPR_FRAME_DATA, grant->operation, step, grant->descriptor);

    f.bytes = (uint32_t)bytes;
    liar_send_sealed(&s->liar, 0, f, data);
}

/* Rank 0 gives up on rank 1. */
static inline void expect_blame(struct scene *s, spr_status status, const char *what)
{
    const char *text;

    if (s->world.requests[0] && !world_run(&s->world, LIMIT_NS))
        fail_msg("%s: rank 0 hangs", what);
    world_settle(&s->world, 1);
    text = spr_last_error(victim(s));
    if (victim(s)->error.status != status || !strstr(text, "rank 1"))
        fail_msg("%s: %s, '%s', not %s of rank 1", what, spr_status_name(victim(s)->error.status),
                 text, spr_status_name(status));
}

/* Of the first message of a stream. */
static inline uint32_t step_from(const struct scene *s, uint32_t least)
{
    const struct liar *l = &s->liar;
    size_t i = 0;

    while (i < l->heard_count && (l->heard[i].type != SPR_FRAME_GRANT || l->heard[i].step < least))
        i++;
    assert_true(i < l->heard_count);
    return l->heard[i].step;
}

static inline void hostile_begin(void)
{
    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        indices[i] = i * (ELEMENTS / ENTRIES);
        values[i] = 1;
    }
}

#endif
