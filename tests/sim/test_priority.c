/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An operation that is more urgent than those before it passes them on the links and delays all of
 * them together by little; what ranks think of it may differ.
 */
#include "tests/sim/vectors.h"

#define BANDWIDTH 1e9
#define BACKGROUND 8
#define LONG ((size_t)1 << 19)
#define SHORT ((size_t)1 << 16)

struct times {
    double urgent, all; /* virtual seconds until it is done, and until all are */
};

struct job {
    int ranks;
    bool place; /* ranks write each other's memory */
    const char *algorithm;
    int background, urgent[WORLD_MAX]; /* priorities */
};

static spr_request *post(spr_comm *comm, float *x, size_t n, const char *algorithm, int priority)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *request;

    options.algorithm = algorithm;
    options.priority = priority;
    for (size_t i = 0; i < n; i++)
        x[i] = 1;
    assert_int_equal(spr_iallreduce(comm, x, x, n, SPR_FP32, SPR_SUM, &options, &request), SPR_OK);
    return request;
}

static double run(struct world *w, spr_request **requests, uint64_t begin)
{
    memcpy(w->requests, requests, (size_t)w->ranks * sizeof *requests);
    run_ok(w);
    return (double)(spr_now_ns(spr_sim_clock(w->sim)) - begin) * 1e-9;
}

static void all_are(const float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != value)
            fail_msg("element %zu is %g", i, (double)x[i]);
}

/* Long vectors, and when they are under way a short one. */
static struct times play(const struct job *job)
{
    struct spr_sim_options options = {.ranks = job->ranks,
                                      .seed = seed,
                                      .latency_s = 20e-6,
                                      .bandwidth = BANDWIDTH,
                                      .place = job->place};
    spr_request *requests[BACKGROUND + 1][WORLD_MAX];
    float *x[BACKGROUND + 1][WORLD_MAX];
    struct times times = {0, 0};
    uint64_t begin;
    struct world w;

    world_create(&w, &options);
    for (int k = 0; k <= BACKGROUND; k++)
        for (int r = 0; r < job->ranks; r++)
            x[k][r] = malloc((k < BACKGROUND ? LONG : SHORT) * sizeof(float));
    begin = spr_now_ns(spr_sim_clock(w.sim));
    for (int k = 0; k < BACKGROUND; k++)
        for (int r = 0; r < job->ranks; r++)
            requests[k][r] = post(w.comms[r], x[k][r], LONG, job->algorithm, job->background);
    for (int r = 0; r < job->ranks; r++)
        requests[BACKGROUND][r] =
            post(w.comms[r], x[BACKGROUND][r], SHORT, job->algorithm, job->urgent[r]);
    times.urgent = run(&w, requests[BACKGROUND], begin);
    for (int k = 0; k < BACKGROUND; k++)
        times.all = run(&w, requests[k], begin);
    for (int k = 0; k <= BACKGROUND; k++)
        for (int r = 0; r < job->ranks; r++) {
            all_are(x[k][r], k < BACKGROUND ? LONG : SHORT, (float)job->ranks);
            free(x[k][r]);
        }
    for (int r = 0; r < job->ranks; r++)
        assert_int_equal(w.comms[r]->channel.held, 0);
    world_destroy(&w);
    return times;
}

static struct job a_job(int ranks, bool place, const char *algorithm, int background, int urgent)
{
    struct job job = {ranks, place, algorithm, background, {0}};

    for (int r = 0; r < ranks; r++)
        job.urgent[r] = urgent;
    return job;
}

static void what_is_urgent_passes_the_others(void **state)
{
    static const char *const algorithms[] = {"direct", "ring", "halving", "tree"};

    (void)state;
    for (size_t a = 0; a < SPR_ARRAY_LEN(algorithms); a++)
        for (int ranks = 2; ranks <= 4; ranks += 2)
            for (int place = 0; place < 2; place++) {
                struct job even = a_job(ranks, place, algorithms[a], 0, 0);
                struct job urgent = a_job(ranks, place, algorithms[a], 0, 1);
                struct job behind = a_job(ranks, place, algorithms[a], -2, -1);
                struct times before = play(&even), after = play(&urgent), low = play(&behind);
                printf("%s, %d ranks%s: %.1f of %.1f ms; urgent: %.1f of %.1f ms\n", algorithms[a],
                       ranks, place ? ", placed" : "", before.urgent * 1e3, before.all * 1e3,
                       after.urgent * 1e3, after.all * 1e3);
                /* A tree moves a chunk at a time, which finds what was sent before at each hop. */
                assert_true(after.urgent <
                            (strcmp(algorithms[a], "tree") ? 0.5 : 1) * before.urgent);
                assert_true(after.all < 1.15 * before.all);
                /* Only what is larger counts. */
                assert_true(low.urgent == after.urgent && low.all == after.all);
            }
}

/* ... and what is less urgent than all others comes last. */
static void what_can_wait_is_the_last(void **state)
{
    struct job even = a_job(2, false, "direct", 0, 0), late = a_job(2, false, "direct", 0, -1);
    struct times before = play(&even), after = play(&late);

    (void)state;
    printf("%.1f of %.1f ms; not urgent: %.1f of %.1f ms\n", before.urgent * 1e3, before.all * 1e3,
           after.urgent * 1e3, after.all * 1e3);
    assert_true(after.urgent > 1.5 * before.urgent);
    assert_true(fmax(after.all, after.urgent) < 1.05 * before.all);
}

/* It is late where one rank holds it back, but nobody waits for ever. */
static void ranks_may_disagree(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct job job = a_job(ranks, false, "direct", 0, 0);
        for (int r = 0; r < ranks; r++)
            job.urgent[r] = r - 1;
        (void)play(&job);
    }
}

VECTORS_MAIN(cmocka_unit_test(what_is_urgent_passes_the_others),
             cmocka_unit_test(what_can_wait_is_the_last), cmocka_unit_test(ranks_may_disagree))
