/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Going on after a failure, over simulated links: the ranks that are left agree on who they are,
 * and sum rightly again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "collectives/membership.h"
#include "collectives/watch.h"
#include "tests/sim/world.h"

#define MS 1000000ull
#define SECOND (1000 * MS)
#define PATIENCE (2 * SECOND)
#define COUNT 3000
#define RANKS_MAX 9

static uint64_t seed;
static float in[RANKS_MAX][COUNT], out[RANKS_MAX][COUNT];
static spr_status statuses[WORLD_MAX];

static void make(struct world *w, int ranks, uint64_t trial)
{
    struct spr_sim_options options = {.ranks = ranks,
                                      .seed = seed + trial,
                                      .latency_s = 20e-6,
                                      .jitter_s = 100e-6,
                                      .bandwidth = 10e9};

    world_create(w, &options);
    for (int r = 0; r < ranks; r++) {
        w->comms[r]->options.timeout_s = 20;
        for (size_t i = 0; i < COUNT; i++)
            in[r][i] = (float)(r * 7 + (int)(i % 5));
    }
}

static uint64_t now(const struct world *w) { return spr_now_ns(spr_sim_clock(w->sim)); }

/* Post an allreduce on every rank that runs and is in the group. */
static void post(struct world *w, const bool *members)
{
    for (int r = 0; r < w->ranks; r++) {
        w->requests[r] = NULL;
        if (!spr_sim_runs(w->sim, r) || (members && !members[r]))
            continue;
        statuses[r] = spr_iallreduce(w->comms[r], in[r], out[r], COUNT, SPR_FP32, SPR_SUM, NULL,
                                     &w->requests[r]);
    }
}

/* The group is exactly `members`, all have the same view of it, and the next sum is theirs. */
static void check_group(struct world *w, const bool *members, const char *what, uint64_t trial)
{
    int size = 0, rank = 0;
    uint32_t epoch = 0;

    for (int r = 0; r < w->ranks; r++)
        size += members[r];
    for (int r = 0; r < w->ranks; r++) {
        const spr_comm *c = w->comms[r];
        if (!members[r])
            continue;
        if (epoch == 0)
            epoch = c->channel.epoch;
        if (statuses[r] != SPR_OK || c->size != size || c->rank != rank ||
            c->channel.epoch != epoch || spr_comm_initial_rank(c, c->rank) != r)
            fail_msg("%s, trial %llu of seed %llu: rank %d: %s, is %d of %d in epoch %u: %s", what,
                     (unsigned long long)trial, (unsigned long long)seed, r,
                     spr_status_name(statuses[r]), c->rank, c->size, c->channel.epoch,
                     spr_last_error(c));
        rank++;
    }
    post(w, members);
    assert_true(world_run(w, now(w) + 100 * SECOND));
    for (int r = 0; r < w->ranks; r++) {
        if (!members[r])
            continue;
        if (w->results[r] != SPR_OK)
            fail_msg("%s, trial %llu of seed %llu: rank %d afterwards: %s", what,
                     (unsigned long long)trial, (unsigned long long)seed, r,
                     spr_last_error(w->comms[r]));
        for (size_t i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int k = 0; k < w->ranks; k++)
                sum += members[k] ? in[k][i] : 0;
            assert_true(out[r][i] == sum);
        }
    }
}

static void shrink(struct world *w, const char *what, uint64_t trial, struct spr_rng *rng)
{
    uint64_t delays[WORLD_MAX];

    for (int r = 0; r < w->ranks; r++)
        delays[r] = rng ? spr_rng_below(rng, 2) * spr_rng_below(rng, 5 * MS) : 0;
    if (!world_shrink(w, delays, PATIENCE, now(w) + 100 * SECOND, statuses))
        fail_msg("%s, trial %llu of seed %llu: hangs", what, (unsigned long long)trial,
                 (unsigned long long)seed);
}

static void survivors_of_a_killed_rank_go_on(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 300; trial++) {
        struct spr_rng rng = {seed + trial, 1};
        int ranks = 2 + (int)spr_rng_below(&rng, RANKS_MAX - 1);
        int victim = (int)spr_rng_below(&rng, (uint64_t)ranks);
        bool members[RANKS_MAX];
        struct world w;
        make(&w, ranks, trial);
        spr_sim_kill(w.sim, victim, now(&w) + spr_rng_below(&rng, MS / 4));
        post(&w, NULL);
        assert_true(world_run(&w, now(&w) + 100 * SECOND));
        for (int r = 0; r < ranks; r++)
            members[r] = r != victim;
        world_settle(&w, 1);
        shrink(&w, "a killed rank", trial, &rng);
        check_group(&w, members, "a killed rank", trial);
        world_destroy(&w);
    }
}

/* Ranks die one after the other, some of them while the others agree, until one is left. */
static void every_death_is_survived_until_one_is_left(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 100; trial++) {
        struct spr_rng rng = {seed + trial, 2};
        int ranks = 3 + (int)spr_rng_below(&rng, RANKS_MAX - 2), left = ranks;
        bool members[RANKS_MAX];
        struct world w;
        make(&w, ranks, trial);
        for (int r = 0; r < ranks; r++)
            members[r] = true;
        while (left > 1) {
            int deaths = 1 + (int)spr_rng_below(&rng, (uint64_t)spr_min_u64((uint64_t)left - 1, 3));
            for (int d = 0; d < deaths; d++) {
                int victim;
                do
                    victim = (int)spr_rng_below(&rng, (uint64_t)ranks);
                while (!members[victim]);
                members[victim] = false;
                /* The first during the operation, the others any time from then on. */
                spr_sim_kill(w.sim, victim, now(&w) + spr_rng_below(&rng, d == 0 ? MS / 4 : MS));
            }
            left -= deaths;
            post(&w, members);
            assert_true(world_run(&w, now(&w) + 100 * SECOND));
            shrink(&w, "deaths", trial, &rng);
            /* One that died after the agreement costs another round. */
            for (bool again = true; again;) {
                again = false;
                world_settle(&w, 2);
                for (int r = 0; r < ranks; r++)
                    again |= members[r] && w.comms[r]->error.status != SPR_OK;
                if (again)
                    shrink(&w, "deaths, again", trial, &rng);
            }
            check_group(&w, members, "deaths", trial);
        }
        world_destroy(&w);
    }
}

static void a_group_without_losses_is_repaired(void **state)
{
    struct world w;
    bool members[3] = {true, true, true};

    (void)state;
    make(&w, 3, 0);
    spr_comm_abort(w.comms[1], "loss is NaN");
    world_settle(&w, 2);
    shrink(&w, "an abort", 0, NULL);
    check_group(&w, members, "an abort", 0);
    assert_int_equal(w.comms[0]->channel.epoch, 2);
    world_destroy(&w);
}

/* A rank stops for longer than the others' patience, and wakes up. */
static void a_rank_that_does_not_answer_is_expelled(void **state)
{
    bool members[4] = {true, true, true, true};
    struct world w;

    (void)state;
    for (int sleeper = 0; sleeper < 4; sleeper++) {
        make(&w, 4, (uint64_t)sleeper);
        spr_comm_abort(w.comms[(sleeper + 1) % 4], "a reason");
        spr_sim_pause(w.sim, sleeper, now(&w), now(&w) + 50 * SECOND);
        world_settle(&w, 2);
        members[sleeper] = false;
        shrink(&w, "a sleeper", 0, NULL);
        check_group(&w, members, "a sleeper", 0);
        members[sleeper] = true;
        /* It wakes up, and its own shrink says so. */
        while (now(&w) < 51 * SECOND)
            world_settle(&w, 1000);
        spr_membership_begin(w.comms[sleeper], PATIENCE);
        for (int i = 0; i < 100 && spr_membership_step(w.comms[sleeper]) == SPR_IN_PROGRESS; i++)
            world_settle(&w, 100);
        assert_int_equal(spr_membership_step(w.comms[sleeper]), SPR_ERR_EXPELLED);
        world_destroy(&w);
    }
}

/* The network is cut in two: at most one part goes on. */
static void of_a_cut_network_one_part_goes_on(void **state)
{
    static const struct {
        int ranks;
        bool side[5]; /* true: the part that goes on */
    } cuts[] = {
        {5, {true, true, true, false, false}},
        {5, {false, true, false, true, true}},
        {4, {true, true, false, false}},
        {4, {true, false, false, true}},
        {2, {true, false}},
    };

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(cuts); c++) {
        struct world w;
        make(&w, cuts[c].ranks, c);
        for (int a = 0; a < cuts[c].ranks; a++)
            for (int b = 0; b < a; b++)
                if (cuts[c].side[a] != cuts[c].side[b])
                    spr_sim_cut(w.sim, a, b);
        post(&w, NULL);
        assert_true(world_run(&w, now(&w) + 100 * SECOND));
        shrink(&w, "a cut network", c, NULL);
        for (int r = 0; r < cuts[c].ranks; r++)
            if (!cuts[c].side[r])
                assert_int_equal(statuses[r], SPR_ERR_EXPELLED);
        check_group(&w, cuts[c].side, "a cut network", c);
        world_destroy(&w);
    }
}

/* Rank 0 has the result of the last operation, the others have not. */
static void who_was_ahead_is_told(void **state)
{
    struct world w;
    bool members[3] = {true, true, false};

    (void)state;
    make(&w, 3, 0);
    post(&w, NULL);
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    /* Rank 2 sends nothing to rank 1 any more. */
    spr_sim_cut(w.sim, 1, 2);
    for (int r = 0; r < 3; r++) {
        w.requests[r] = NULL;
        assert_int_equal(spr_ibroadcast(w.comms[r], out[r], 100, SPR_FP32, 2, NULL, &w.requests[r]),
                         SPR_OK);
    }
    for (int i = 0; i < 20; i++)
        world_settle(&w, 1);
    assert_int_equal(spr_test(&w.requests[0]), SPR_OK);
    spr_sim_kill(w.sim, 2, now(&w));
    w.requests[2] = NULL;
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    assert_int_equal(w.results[1], SPR_ERR_RANK_LOST);
    shrink(&w, "one is ahead", 0, NULL);
    assert_int_equal(spr_membership_redo(w.comms[0]), 1);
    assert_int_equal(spr_membership_common(w.comms[0])->completed, 1);
    assert_int_equal(spr_membership_redo(w.comms[1]), 0);
    assert_int_equal(spr_membership_common(w.comms[1])->completed, 1);
    check_group(&w, members, "one is ahead", 0);
    world_destroy(&w);
}

/* Rank 0 is ahead, and another rank dies when the group is agreed on, before all are in it. */
static void who_was_ahead_is_told_after_a_second_round(void **state)
{
    spr_status status[3] = {SPR_IN_PROGRESS, SPR_IN_PROGRESS, SPR_IN_PROGRESS};
    struct world w;

    (void)state;
    make(&w, 4, 0);
    spr_sim_cut(w.sim, 1, 3);
    for (int r = 0; r < 4; r++)
        assert_int_equal(spr_ibroadcast(w.comms[r], out[r], 100, SPR_FP32, 3, NULL, &w.requests[r]),
                         SPR_OK);
    world_settle(&w, 20);
    assert_int_equal(spr_test(&w.requests[0]), SPR_OK);
    spr_sim_kill(w.sim, 3, now(&w));
    w.requests[3] = NULL;
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    for (int r = 0; r < 3; r++) {
        w.comms[r]->channel.peers[3].dead = true;
        spr_membership_begin(w.comms[r], PATIENCE);
    }
    for (int round = 0; round < 1000 && status[0] == SPR_IN_PROGRESS; round++) {
        for (int r = 0; r < 3; r++)
            if (status[r] == SPR_IN_PROGRESS && spr_sim_runs(w.sim, r))
                status[r] = spr_membership_step(w.comms[r]);
        if (w.comms[0]->channel.epoch == 2)
            spr_sim_kill(w.sim, 2, now(&w));
        world_settle(&w, 1);
    }
    assert_int_equal(status[0], SPR_OK);
    assert_int_equal(w.comms[0]->channel.epoch, 3);
    assert_int_equal(spr_membership_redo(w.comms[0]), 1);
    /* Rank 1 has not got the broadcast, operation 1. */
    assert_int_equal(spr_membership_common(w.comms[0])->completed, 0);
    assert_int_equal(spr_membership_common(w.comms[1])->completed, 0);
    world_destroy(&w);
}

/* More operations than an outcome reaches ahead, of which the first ends last. */
static void what_ends_far_ahead_of_others_is_complete_in_the_end(void **state)
{
    enum { CALLS = 2 * SPR_OUTCOME_AHEAD + 10, LONG = 1 << 20 };
    static spr_request *requests[3][CALLS];
    static float tiny[3][CALLS];
    float *large[3];
    bool members[3] = {true, true, false};
    unsigned held = 0;
    struct world w;
    int left = 3 * CALLS;

    (void)state;
    make(&w, 3, 0);
    for (int r = 0; r < 3; r++) {
        large[r] = spr_calloc(LONG, sizeof **large);
        assert_non_null(large[r]);
        for (int i = 0; i < CALLS; i++)
            assert_int_equal(spr_iallreduce(w.comms[r], i ? &tiny[r][i] : large[r],
                                            i ? &tiny[r][i] : large[r], i ? 1 : LONG, SPR_FP32,
                                            SPR_SUM, NULL, &requests[r][i]),
                             SPR_OK);
    }
    for (int round = 0; left > 0 && round < 10000; round++) {
        world_settle(&w, 1);
        for (int r = 0; r < 3; r++) {
            held += w.comms[r]->ended;
            for (int i = CALLS - 1; i >= 0; i--) {
                if (!requests[r][i] || spr_test(&requests[r][i]) == SPR_IN_PROGRESS)
                    continue;
                assert_true(i < (int)SPR_OUTCOME_AHEAD || spr_outcome_has(&w.comms[r]->done, 1));
                left--;
            }
        }
    }
    assert_true(held > 0);
    assert_int_equal(left, 0);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(w.comms[r]->done.completed, CALLS);
        assert_int_equal(w.comms[r]->ended, 0);
        spr_free(large[r]);
    }
    spr_sim_kill(w.sim, 2, now(&w));
    post(&w, NULL);
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    shrink(&w, "far ahead", 0, NULL);
    assert_int_equal(spr_membership_common(w.comms[0])->completed, CALLS);
    check_group(&w, members, "far ahead", 0);
    world_destroy(&w);
}

/* Ranks are renumbered; who describes a call to its neighbour means the new one. */
static void ranks_that_disagree_in_a_new_group_are_told_at_once(void **state)
{
    bool members[5] = {false, true, true, true, true};
    struct world w;
    uint64_t begin = 0;

    (void)state;
    make(&w, 5, 0);
    spr_sim_kill(w.sim, 0, now(&w));
    post(&w, NULL);
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    shrink(&w, "a killed rank", 0, NULL);
    check_group(&w, members, "a killed rank", 0);
    /* New ranks 0 and 2 are each other's neighbours, done, and busy with something else. */
    for (int i = 0; i < 4; i++) {
        static const int order[] = {1, 3, 2, 4};
        int r = order[i];
        assert_int_equal(spr_isendrecv(w.comms[r], in[r], out[r], 10, SPR_FP32, r % 2 ? 2 : 1, NULL,
                                       &w.requests[r]),
                         SPR_OK);
        if (r == 3) {
            assert_true(world_run(&w, now(&w) + 100 * SECOND));
            assert_true(w.results[1] == SPR_OK && w.results[3] == SPR_OK);
            for (int idle = 1; idle < 5; idle += 2)
                spr_sim_pause(w.sim, idle, now(&w), now(&w) + 10 * SECOND);
            begin = now(&w);
        }
    }
    assert_true(world_run(&w, now(&w) + 100 * SECOND));
    for (int r = 2; r < 5; r += 2)
        assert_int_equal(w.results[r], SPR_ERR_MISMATCH);
    assert_true(now(&w) - begin < SECOND / 2);
    world_destroy(&w);
}

/* The watch of rank 1 gives up rank 2 just before the n-th progress of rank 1. */
static int countdown;
static bool in_time; /* ... which is in the old epoch still */
static enum { EXPELLED, DEAD, REPORTED_DEAD, WAYS } way;
static const char *const ways[] = {"silence", "death", "a report of death"};

static void give_up_rank_2(struct world *w, int rank)
{
    if (rank != 1 || --countdown != 0)
        return;
    in_time = w->comms[1]->channel.epoch == 1;
    if (way == DEAD) /* its links stay, as those that a child process holds open */
        spr_sim_pause(w->sim, 2, now(w), now(w) + 30 * SECOND);
    spr_comm_note_loss(w->comms[1], 2, "its process died (robust futex)", way != EXPELLED);
}

/* A rank that was not run for long has not heard the dead one's last words yet. */
static void last_words_are_heard_before_a_loss_counts(void **state)
{
    struct world w;

    (void)state;
    make(&w, 3, 0);
    spr_comm_note_loss(w.comms[1], 2, "its process died (robust futex)", true);
    spr_sim_sleep(w.sim, now(&w) + 20 * MS);
    spr_comm_take_loss(w.comms[1], 1);
    assert_int_equal(w.comms[1]->error.status, SPR_OK);
    spr_comm_take_loss(w.comms[1], 0);
    assert_int_equal(w.comms[1]->error.status, SPR_ERR_RANK_LOST);
    world_destroy(&w);
}

static bool goes_on_with(const spr_comm *comm, int peer)
{
    for (int r = 0; r < comm->size; r++)
        if (comm->ids[r] == peer)
            return statuses[comm->channel.rank] == SPR_OK && !comm->error.status;
    return false;
}

/* Whenever that is, also between the agreement and the new epoch: rank 1 does not go on with rank
 * 2, also when that lives and answers. */
static void whom_the_watch_gives_up_meanwhile_is_left_out(void **state)
{
    (void)state;
    for (way = 0; way < WAYS; way++) {
        in_time = true;
        for (int n = 1; in_time; n++) {
            struct world w;
            make(&w, 4, 0);
            countdown = n;
            w.before = give_up_rank_2;
            spr_comm_abort(w.comms[3], "a reason");
            shrink(&w, ways[way], (uint64_t)n, NULL);
            for (int i = 0; i < 10; i++) {
                world_settle(&w, 1);
                if (w.comms[1]->error.status || w.comms[0]->error.status)
                    shrink(&w, ways[way], (uint64_t)n, NULL);
            }
            assert_true(countdown <= 0);
            if (goes_on_with(w.comms[1], 2) || (way != REPORTED_DEAD && w.comms[1]->size != 3))
                fail_msg("%s before progress %d: rank 1 is in a group of %d: %s '%s'", ways[way], n,
                         w.comms[1]->size, spr_status_name(statuses[1]),
                         spr_last_error(w.comms[1]));
            world_destroy(&w);
        }
    }
}

/* Rank 0 leads the others into the next epoch, hears nothing of them, and ends with DEADLINE. Its
 * communicator takes in what comes later, and the others do not count on it. */
static void who_gives_up_in_a_new_epoch_says_so(void **state)
{
    bool members[] = {false, true, true};
    struct world w;

    (void)state;
    make(&w, 3, 0);
    for (int r = 1; r < 3; r++) {
        spr_membership_begin(w.comms[r], PATIENCE);
        assert_int_equal(spr_membership_step(w.comms[r]), SPR_IN_PROGRESS);
    }
    world_settle(&w, 1);
    assert_int_equal(spr_comm_shrink(w.comms[0], 0.01, NULL), SPR_ERR_DEADLINE); /* nobody moves */
    assert_int_equal(w.comms[0]->channel.epoch, 2);
    spr_comm_note_loss(w.comms[0], 2, "its process died (robust futex)", true);
    spr_comm_progress_locked(w.comms[0]);
    spr_sim_pause(w.sim, 0, now(&w), UINT64_MAX);
    shrink(&w, "one gives up", 0, NULL);
    check_group(&w, members, "one gives up", 0);
    world_destroy(&w);
}

/* The n-th allocation fails, on any rank, also for what came before it was wanted: the links are as
 * good as before. */
static void want_of_memory_costs_no_rank(void **state)
{
    const bool members[] = {true, true, true};
    bool failed = true;

    (void)state;
    for (uint64_t n = 1; failed; n++) {
        struct world w;
        make(&w, 3, 0);
        for (int r = 0; r < 3; r++)
            w.comms[r]->options.eager_bytes = n % 2 ? sizeof in[0] : 0;
        spr_sim_pause(w.sim, 1, now(&w), now(&w) + 2 * MS); /* calls later */
        spr_mem_fail_nth((n + 1) / 2);
        post(&w, NULL);
        world_settle(&w, 3);
        statuses[1] = spr_iallreduce(w.comms[1], in[1], out[1], COUNT, SPR_FP32, SPR_SUM, NULL,
                                     &w.requests[1]);
        assert_true(world_run(&w, now(&w) + 100 * SECOND));
        failed = spr_mem_fail_nth(0) == 0;
        shrink(&w, "want of memory", n, NULL);
        check_group(&w, members, "want of memory", n);
        world_destroy(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_a_killed_rank_go_on),
        cmocka_unit_test(every_death_is_survived_until_one_is_left),
        cmocka_unit_test(a_group_without_losses_is_repaired),
        cmocka_unit_test(a_rank_that_does_not_answer_is_expelled),
        cmocka_unit_test(of_a_cut_network_one_part_goes_on),
        cmocka_unit_test(who_was_ahead_is_told),
        cmocka_unit_test(who_was_ahead_is_told_after_a_second_round),
        cmocka_unit_test(what_ends_far_ahead_of_others_is_complete_in_the_end),
        cmocka_unit_test(ranks_that_disagree_in_a_new_group_are_told_at_once),
        cmocka_unit_test(last_words_are_heard_before_a_loss_counts),
        cmocka_unit_test(whom_the_watch_gives_up_meanwhile_is_left_out),
        cmocka_unit_test(who_gives_up_in_a_new_epoch_says_so),
        cmocka_unit_test(want_of_memory_costs_no_rank),
    };

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
