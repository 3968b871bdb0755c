/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dense sums over links whose receivers have room for few frames, as with shared memory and verbs:
 * several at once, long ones and such as are sent ahead, within a small window. None hangs.
 */
#include "collectives/collective.h"
#include "tests/sim/vectors.h"
#include "transport/shm/layout.h"

#define AT_ONCE 6
#define LONGEST 60000

struct sum {
    const char *algorithm;
    size_t count;
    float *in[WORLD_MAX], *out[WORLD_MAX];
    spr_request *requests[WORLD_MAX];
};

/* Small enough for fp32 to be exact. */
static float element(int rank, size_t i) { return (float)((size_t)(rank + 1) * (i % 7 + 1)); }

static void draw_sum(struct sum *s, struct spr_rng *rng)
{
    static const size_t most[] = {40, 1000, LONGEST};
    static const char *const names[] = {"flat",     "direct", "ring",        "halving",
                                        "doubling", "tree",   "hierarchical"};

    assert_null(spr_algorithm_name("allreduce", SPR_ARRAY_LEN(names) + 1)); /* 0: auto */
    s->algorithm = names[spr_rng_below(rng, SPR_ARRAY_LEN(names))];
    s->count = 1 + spr_rng_below(rng, most[spr_rng_below(rng, SPR_ARRAY_LEN(most))]);
    if (!strcmp(s->algorithm, "flat"))
        s->count = 1 + s->count % 1000;
}

static char description[512];

static void describe(const struct spr_sim_options *links, size_t eager, const struct sum *sums,
                     int n)
{
    int at = snprintf(description, sizeof description,
                      "%d ranks, %s%s, %d and %d slots, eager %zu:", links->ranks,
                      links->memory ? "memory" : "device", links->place ? ", placed" : "",
                      links->slots[0], links->slots[1], eager);

    for (int k = 0; k < n; k++)
        at += snprintf(description + at, sizeof description - (size_t)at, " %s of %zu",
                       sums[k].algorithm, sums[k].count);
}

static void post(struct world *w, struct sum *s, int rank)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = s->algorithm;
    s->in[rank] = malloc(s->count * sizeof(float));
    s->out[rank] = malloc(s->count * sizeof(float));
    for (size_t i = 0; i < s->count; i++)
        s->in[rank][i] = element(rank, i);
    assert_int_equal(spr_iallreduce(w->comms[rank], s->in[rank], s->out[rank], s->count, SPR_FP32,
                                    SPR_SUM, &options, &s->requests[rank]),
                     SPR_OK);
}

static void finish(struct world *w, struct sum *s)
{
    float factor = (float)(w->ranks * (w->ranks + 1) / 2);

    memcpy(w->requests, s->requests, sizeof w->requests);
    assert_true(world_run(w, LIMIT_NS));
    for (int r = 0; r < w->ranks; r++)
        if (w->results[r])
            fail_msg("%s: rank %d: %s", description, r, spr_last_error(w->comms[r]));
    for (int r = 0; r < w->ranks; r++) {
        for (size_t i = 0; i < s->count; i++)
            if (!(s->out[r][i] == factor * element(0, i)))
                fail_msg("%s: %s, rank %d, element %zu", description, s->algorithm, r, i);
        free(s->in[r]);
        free(s->out[r]);
    }
}

static struct spr_sim_options draw_links(struct spr_rng *rng)
{
    struct spr_sim_options o = {.ranks = 2 + (int)spr_rng_below(rng, (uint64_t)most_ranks() - 1),
                                .seed = spr_rng_next(rng),
                                .latency_s = 10e-6,
                                .jitter_s = spr_rng_below(rng, 2) ? 50e-6 : 0,
                                .memory = spr_rng_below(rng, 2),
                                .place = spr_rng_below(rng, 2)};

    o.slots[0] = o.memory ? 0 : (int[]){8, 24}[spr_rng_below(rng, 2)];
    o.slots[1] = 1 + (int)spr_rng_below(rng, 4);
    o.small_bytes = SPR_SHM_INLINE;
    return o;
}

static void few_slots_are_enough(void **state)
{
    struct spr_rng rng = {seed, 7};

    (void)state;
    for (int trial = 0; trial < 1000; trial++) {
        struct spr_sim_options links = draw_links(&rng);
        int at_once = 1 + (int)spr_rng_below(&rng, AT_ONCE);
        size_t eager = (size_t)64 << 2 * spr_rng_below(&rng, 4);
        struct sum sums[AT_ONCE];
        struct world w;

        if (!links.memory)
            links.small_bytes = eager;
        world_create(&w, &links);
        world_draw_hosts(&w, &rng);
        for (int r = 0; r < w.ranks; r++) {
            w.comms[r]->options.eager_bytes = eager;
            w.comms[r]->options.eager_window = (eager + SPR_FRAME_BYTES) * 5 / 2;
            w.comms[r]->options.timeout_s = 100;
        }
        for (int k = 0; k < at_once; k++)
            draw_sum(&sums[k], &rng);
        describe(&links, eager, sums, at_once);
        for (int r = 0; r < w.ranks; r++)
            for (int k = 0; k < at_once; k++)
                post(&w, &sums[k], r);
        for (int k = 0; k < at_once; k++)
            finish(&w, &sums[k]);
        world_destroy(&w);
    }
}

VECTORS_MAIN(cmocka_unit_test(few_slots_are_enough))
