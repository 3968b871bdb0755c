/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sendrecv over simulated links with jitter: every shift from 1..9 ranks to others and to
 * themselves, ranks that disagree, ranks that die.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/dispute.h"
#include "tests/reference.h"
#include "tests/sim/world.h"

#define LIMIT_NS 3600000000000ull
#define RANKS_MAX 9
#define GUARD 0xee

static uint64_t seed;
static char *in[RANKS_MAX], *out[RANKS_MAX];
#define LARGE (5 * SPR_CHUNK_BYTES + 8) /* bytes; both vectors */

static int most_ranks(void) { return reference_small_scale() ? 4 : RANKS_MAX; }

static void make(struct world *w, int ranks)
{
    struct spr_sim_options options = {
        .ranks = ranks, .seed = seed, .latency_s = 10e-6, .jitter_s = 50e-6, .bandwidth = 10e9};
    world_create(w, &options);
    for (int r = 0; r < ranks; r++)
        w->comms[r]->options.timeout_s = 20;
}

static spr_status post(struct world *w, int r, size_t bytes, int shift)
{
    return spr_isendrecv(w->comms[r], in[r], out[r], bytes / 4, SPR_FP32, shift, NULL,
                         &w->requests[r]);
}

static int source_of(int rank, int shift, int ranks)
{
    int64_t from = ((int64_t)rank - shift) % ranks;

    return (int)(from < 0 ? from + ranks : from);
}

static void check(const struct world *w, int shift, size_t bytes)
{
    for (int r = 0; r < w->ranks; r++) {
        int from = source_of(r, shift, w->ranks);
        assert_int_equal(w->results[r], SPR_OK);
        if (memcmp(out[r], in[from], bytes) || (unsigned char)out[r][bytes] != GUARD)
            fail_msg("P=%d shift %d, %zu bytes: rank %d has not what rank %d sent", w->ranks, shift,
                     bytes, r, from);
        memset(out[r], GUARD, bytes);
    }
}

static void run_ok(struct world *w, int shift, size_t bytes)
{
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(post(w, r, bytes, shift), SPR_OK);
    assert_true(world_run(w, LIMIT_NS));
    check(w, shift, bytes);
}

static void every_shift_and_size_is_right(void **state)
{
    static const size_t sizes[] = {0,
                                   4,
                                   1000,
                                   8192,
                                   8196,
                                   SPR_CHUNK_BYTES - 4,
                                   SPR_CHUNK_BYTES,
                                   SPR_CHUNK_BYTES + 4,
                                   5 * SPR_CHUNK_BYTES};
    static const int far[] = {INT_MIN, INT_MIN + 1, -1000, 1000, INT_MAX};
    struct world w;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&w, ranks);
        for (size_t s = 0; s < SPR_ARRAY_LEN(sizes); s++)
            for (int shift = -ranks - 1; shift <= ranks + 1; shift++)
                run_ok(&w, shift, sizes[s]);
        for (size_t i = 0; i < SPR_ARRAY_LEN(far); i++)
            run_ok(&w, far[i], 10000);
        world_destroy(&w);
    }
}

static void every_type_moves_as_it_is(void **state)
{
    struct world w;

    (void)state;
    make(&w, 3);
    for (spr_dtype t = 0; t < SPR_DTYPE_COUNT; t++) {
        for (int r = 0; r < 3; r++)
            assert_int_equal(
                spr_isendrecv(w.comms[r], in[r], out[r], 12345, t, 1, NULL, &w.requests[r]),
                SPR_OK);
        assert_true(world_run(&w, LIMIT_NS));
        check(&w, 1, 12345 * spr_dtype_size(t));
    }
    world_destroy(&w);
}

/* A later one may be done before an older one is even posted by the others. */
static void several_run_at_a_time(void **state)
{
    enum { OPERATIONS = 6, BYTES = 300000 };
    static const int shifts[OPERATIONS] = {1, 0, -1, 4, 2, 0};
    spr_request *requests[OPERATIONS][RANKS_MAX];
    char *results[OPERATIONS][RANKS_MAX];
    int ranks = most_ranks();
    struct world w;

    (void)state;
    make(&w, ranks);
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < OPERATIONS; i++) {
            results[i][r] = malloc(BYTES);
            assert_int_equal(spr_isendrecv(w.comms[r], in[r], results[i][r], BYTES / 4, SPR_INT32,
                                           shifts[i], NULL, &requests[i][r]),
                             SPR_OK);
        }
        world_settle(&w, 1);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        memcpy(w.requests, requests[i], sizeof requests[i]);
        assert_true(world_run(&w, LIMIT_NS));
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(w.results[r], SPR_OK);
            assert_memory_equal(results[i][r], in[source_of(r, shifts[i], ranks)], BYTES);
            free(results[i][r]);
        }
    }
    world_destroy(&w);
}

/* A rank alone is done at once: nobody else would move its bytes. */
static void a_rank_alone_is_done_when_the_call_returns(void **state)
{
    static const size_t sizes[] = {0, 4, 100000, 5 * SPR_CHUNK_BYTES};
    spr_stats stats = {.struct_size = sizeof stats};
    struct world w;

    (void)state;
    make(&w, 1);
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        assert_int_equal(post(&w, 0, sizes[i], (int)i), SPR_OK);
        assert_true(w.requests[0]->done);
        assert_int_equal(spr_test(&w.requests[0]), SPR_OK);
        assert_memory_equal(in[0], out[0], sizes[i]);
    }
    assert_int_equal(spr_comm_stats(w.comms[0], &stats), SPR_OK);
    assert_true(stats.sent_bytes >= 5 * SPR_CHUNK_BYTES);
    assert_int_equal(stats.received_bytes, stats.sent_bytes);
    assert_string_equal(spr_comm_transport(w.comms[0], 0), "self");
    world_destroy(&w);
}

static void overlapping_buffers_are_invalid(void **state)
{
    spr_request *rq = NULL;
    char *x = out[0];
    struct world w;

    (void)state;
    make(&w, 1);
    assert_int_equal(spr_sendrecv(w.comms[0], x, x, 1, SPR_FP32, 0, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_sendrecv(w.comms[0], x, x + 396, 100, SPR_FP32, 0, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_isendrecv(w.comms[0], x + 396, x, 100, SPR_FP32, 0, NULL, &rq),
                     SPR_ERR_INVALID);
    assert_int_equal(spr_sendrecv(w.comms[0], NULL, x, 1, SPR_FP32, 0, NULL), SPR_ERR_INVALID);
    assert_null(rq);
    memset(x, 7, 400);
    assert_int_equal(spr_sendrecv(w.comms[0], x, x + 400, 100, SPR_FP32, 0, NULL), SPR_OK);
    assert_memory_equal(x, x + 400, 400);
    assert_int_equal(spr_sendrecv(w.comms[0], x, x, 0, SPR_FP32, 0, NULL), SPR_OK);
    assert_int_equal(spr_sendrecv(w.comms[0], NULL, NULL, 0, SPR_FP32, 0, NULL), SPR_OK);
    memset(x, GUARD, 800);
    world_destroy(&w);
}

static char texts[RANKS_MAX][512]; /* each rank's error, as it came */

static void keep_text(void *ctx, spr_status status)
{
    const spr_request *rq = ctx;

    if (status)
        snprintf(texts[rq->comm->rank], sizeof texts[0], "%s", rq->why ? rq->why : "");
}

/* Whoever was done before it could know has what a neighbour sent that agrees with it. */
static bool done_or_told(const struct world *w, int r, int from, size_t bytes)
{
    if (w->results[r] == SPR_OK)
        return !memcmp(out[r], in[from], bytes);
    return w->results[r] == SPR_ERR_MISMATCH && strstr(texts[r], "the ranks disagree: ");
}

/* Every rank calls one of two sendrecvs, each of them is called by some. All know: by their own
 * error, or because what is over here is on record as rejected. The next call works. */
static void ranks_that_disagree_are_told(void **state)
{
    static const size_t sizes[] = {0, 400, 100000, 5 * SPR_CHUNK_BYTES};

    (void)state;
    for (uint64_t trial = 0; trial < (reference_small_scale() ? 100 : 1500); trial++) {
        struct spr_rng rng = {seed + trial, 7};
        int ranks = 2 + (int)spr_rng_below(&rng, RANKS_MAX - 1);
        int first = (int)spr_rng_below(&rng, (uint64_t)ranks);
        uint64_t odd = 1 + spr_rng_below(&rng, ((uint64_t)1 << ranks) - 2);
        int shifts[2] = {(int)spr_rng_below(&rng, 21) - 10, (int)spr_rng_below(&rng, 21) - 10};
        size_t bytes[2] = {sizes[spr_rng_below(&rng, 4)], sizes[spr_rng_below(&rng, 4)]};
        struct world w;
        if (shifts[0] == shifts[1] && bytes[0] == bytes[1])
            continue;
        make(&w, ranks);
        w.lazy = trial % 2; /* who is done does not hear the others any more */
        for (int k = 0; k < ranks; k++) {
            int r = (first + k) % ranks, which = (int)(odd >> r & 1);
            assert_int_equal(post(&w, r, bytes[which], shifts[which]), SPR_OK);
            spr_on_complete(w.requests[r], keep_text, w.requests[r]);
            if (spr_rng_below(&rng, 2))
                world_settle(&w, 1 + (int)spr_rng_below(&rng, 3));
        }
        assert_true(world_run(&w, LIMIT_NS));
        world_settle(&w, 2);
        for (int r = 0; r < ranks; r++) {
            int which = (int)(odd >> r & 1), from = source_of(r, shifts[which], ranks);
            const struct spr_past *past = spr_past_find(w.comms[r], 1);
            if (done_or_told(&w, r, from, bytes[which]) && past && past->rejected)
                continue;
            fail_msg("trial %llu of seed %llu: shifts %d, %d of %zu, %zu bytes, ranks 0x%llx of %d "
                     "odd, rank %d: %s '%s'",
                     (unsigned long long)trial, (unsigned long long)seed, shifts[0], shifts[1],
                     bytes[0], bytes[1], (unsigned long long)odd, ranks, r,
                     spr_status_name(w.results[r]), texts[r]);
        }
        for (int r = 0; r < ranks; r++)
            memset(out[r], GUARD, LARGE);
        run_ok(&w, shifts[0], bytes[1]);
        world_destroy(&w);
    }
}

/* Cycles that know nothing of each other may be far apart; so may news of them. */
static void cycles_may_be_far_apart(void **state)
{
    enum { OPERATIONS = 300, RANKS = 4 };
    struct world w;

    (void)state;
    make(&w, RANKS);
    for (int i = 0; i < 2 * OPERATIONS; i++) {
        memset(w.requests, 0, sizeof w.requests);
        for (int r = i / OPERATIONS; r < RANKS; r += 2) {
            memset(out[r], GUARD, 400);
            assert_int_equal(post(&w, r, 400, 2), SPR_OK);
        }
        assert_true(world_run(&w, LIMIT_NS));
        for (int r = i / OPERATIONS; r < RANKS; r += 2) {
            assert_int_equal(w.results[r], SPR_OK);
            assert_memory_equal(out[r], in[source_of(r, 2, RANKS)], 400);
        }
    }
    memset(w.requests, 0, sizeof w.requests);
    for (int r = 0; r < RANKS; r++)
        memset(out[r], GUARD, LARGE);
    run_ok(&w, 2, 400);
    world_destroy(&w);
}

/* It has what was sent to it, or an error that names the victim. */
static bool done_or_lost(const struct world *w, int r, int victim, const char *got,
                         const char *sent, size_t bytes)
{
    char name[32];

    if (w->results[r] == SPR_OK)
        return !memcmp(got, sent, bytes);
    snprintf(name, sizeof name, "rank %d was lost", victim);
    return (w->results[r] == SPR_ERR_RANK_LOST || w->results[r] == SPR_ERR_REVOKED) &&
           strstr(spr_last_error(w->comms[r]), name);
}

/* A rank dies while all send to it, past it and to themselves; memory is given back. */
static void survivors_end_and_leak_nothing(void **state)
{
    enum { RANKS = 5, OWN = LARGE / 2 };
    static char own_out[RANKS][OWN];
    int64_t live = spr_mem_live();
    int lost = 0;

    (void)state;
    for (uint64_t trial = 0; trial < (reference_small_scale() ? 30 : 300); trial++) {
        struct spr_rng rng = {seed + trial, 8};
        int ranks = 2 + (int)spr_rng_below(&rng, RANKS - 1), victim = (int)spr_rng_below(&rng, 2);
        spr_request *own[RANKS_MAX] = {NULL};
        struct world w;
        make(&w, ranks);
        spr_sim_kill(w.sim, victim, spr_rng_below(&rng, 2000000) + 1);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(post(&w, r, LARGE - 8, 1), SPR_OK);
            assert_int_equal(
                spr_isendrecv(w.comms[r], in[r], own_out[r], OWN / 4, SPR_FP32, 0, NULL, &own[r]),
                SPR_OK);
        }
        for (int which = 0; which < 2; which++) {
            if (which)
                memcpy(w.requests, own, sizeof own);
            assert_true(world_run(&w, LIMIT_NS));
            for (int r = 0; r < ranks; r++) {
                const char *got = which ? own_out[r] : out[r];
                const char *sent = in[which ? r : source_of(r, 1, ranks)];
                if (r == victim)
                    continue;
                if (!done_or_lost(&w, r, victim, got, sent, which ? OWN : LARGE - 8))
                    fail_msg("trial %llu, rank %d: %s '%s'", (unsigned long long)trial, r,
                             spr_status_name(w.results[r]), spr_last_error(w.comms[r]));
                lost += w.results[r] != SPR_OK;
            }
        }
        world_destroy(&w);
        assert_int_equal(spr_mem_live(), live);
    }
    assert_true(lost > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shift_and_size_is_right),
        cmocka_unit_test(every_type_moves_as_it_is),
        cmocka_unit_test(several_run_at_a_time),
        cmocka_unit_test(a_rank_alone_is_done_when_the_call_returns),
        cmocka_unit_test(overlapping_buffers_are_invalid),
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(cycles_may_be_far_apart),
        cmocka_unit_test(survivors_end_and_leak_nothing),
    };
    int failures;

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    for (int r = 0; r < RANKS_MAX; r++) {
        in[r] = malloc(LARGE);
        out[r] = malloc(LARGE);
        memset(out[r], GUARD, LARGE);
        for (uint32_t i = 0; i < LARGE / 4; i++)
            ((uint32_t *)(void *)in[r])[i] = spr_hash_u32(seed ^ (uint64_t)r << 40 ^ i);
    }
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    for (int r = 0; r < RANKS_MAX; r++) {
        free(in[r]);
        free(out[r]);
    }
    return failures;
}
