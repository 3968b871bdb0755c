/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Windows of sparse sums that are dealt out to threads: the bits of one thread, from chunks of all
 * kinds, whatever has come by when.
 */
#include "tests/sim/sums.h"

enum { RANKS = 5 };

/* What every rank has of positions; each has so many windows of its own. */
struct scene {
    const char *what, *algorithm;
    double density[RANKS];
    bool alike; /* the same positions */
    bool few;   /* not worth it */
};

static const struct scene scenes[] = {
    {"dense", "direct", {1, 1, 1, 1, 1}, false, false},
    {"bitmaps", "direct", {0.3, 0.1, 0.2, 0.5, 0.1}, false, false},
    {"of several windows", "direct", {0.05, 0.04, 0.03, 0.02, 0.02}, false, false},
    {"alike", "hierarchical", {0.04, 0.04, 0.04, 0.04, 0.04}, true, false},
    {"of one rank", "hierarchical", {0.2, 0.02, 0.001, 0, 0}, false, false},
    {"few", "direct", {0.001, 0.001, 0.001, 0.001, 0.001}, false, true},
};

static void draw(struct sums *s, const struct scene *scene)
{
    for (int r = 0; r < s->world.ranks; r++)
        for (size_t i = 0; i < s->n; i++) {
            uint64_t who = scene->alike ? 0 : (uint64_t)r << 40;
            uint32_t h = spr_hash_u32(seed ^ 78 ^ who ^ i);
            if ((double)h * 0x1p-32 < scene->density[r])
                enter(s, r, i, (float)reference_input(seed, SPR_FP32, 9, r, i));
        }
}

/* So many threads of each rank. */
static void set_helpers(struct world *w, int helpers)
{
    for (int r = 0; r < w->ranks; r++)
        w->comms[r]->options.workers = w->comms[r]->helpers = helpers;
}

static uint64_t shared_windows(const struct world *w)
{
    uint64_t sum = 0;

    for (int r = 0; r < w->ranks; r++)
        sum += w->comms[r]->counters.shared_windows;
    return sum;
}

/* Dense results and lists of all ranks, as one thread makes them and as several do. */
static void check_scene(struct sums *s, const struct scene *scene, int helpers)
{
    float *alone = malloc(s->n * sizeof *alone);
    spr_sparse list = {malloc(s->n * 4), malloc(s->n * 4), 0, 0};
    uint64_t shared;

    s->algorithm = scene->algorithm;
    allocate(s);
    draw(s, scene);
    set_helpers(&s->world, 0);
    run_sparse(s);
    memcpy(alone, s->dense[0], s->n * sizeof *alone);
    list.count = s->sum[0].count;
    memcpy(list.index, s->sum[0].index, list.count * sizeof *list.index);
    memcpy(list.value, s->sum[0].value, list.count * sizeof *list.value);
    shared = shared_windows(&s->world);
    set_helpers(&s->world, helpers);
    run_sparse(s);
    if ((shared_windows(&s->world) == shared) != scene->few)
        fail_msg("%s, %d ranks: %llu windows were shared out", scene->what, s->world.ranks,
                 (unsigned long long)(shared_windows(&s->world) - shared));
    for (int r = 0; r < s->world.ranks; r++)
        if (memcmp(s->dense[r], alone, s->n * sizeof *alone) || s->sum[r].count != list.count ||
            memcmp(s->sum[r].index, list.index, list.count * sizeof *list.index) ||
            memcmp(s->sum[r].value, list.value, list.count * sizeof *list.value))
            fail_msg("%s, %d ranks, %d helpers: other bits on rank %d", scene->what, s->world.ranks,
                     helpers, r);
    free_sums(s);
    free(alone);
    free(list.index);
    free(list.value);
}

/* Links of any speed: what has come when a rank looks is one window, or all there is room for. */
static void several_threads_have_the_bits_of_one(void **state)
{
    static const int indices[] = {SPR_INDICES_PLAIN, SPR_INDICES_BITPACK};
    struct spr_rng rng = {seed, 6};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(scenes); i++)
        for (int k = 0; k < 2; k++) {
            int ranks = k ? RANKS : 2 + (int)spr_rng_below(&rng, 2);
            /* Of a rank, and a short one: even less than messages that would be awaited. */
            size_t windows = scenes[i].density[0] < 0.3 ? 9 : 3 + spr_rng_below(&rng, 7);
            struct sums s = {.n = (size_t)ranks * (windows << 16) + 12345,
                             .op = k ? SPR_AVG : SPR_SUM};
            make(&s.world, ranks, k ? 10e9 : 100e9);
            world_draw_hosts(&s.world, &rng);
            world_set_indices(&s.world, indices[spr_rng_below(&rng, 2)]);
            if (ranks == 2) /* whose sums have no order */
                world_set_determinism(&s.world, SPR_DETERMINISM_OFF);
            check_scene(&s, &scenes[i], 1 + (int)spr_rng_below(&rng, 3));
            world_destroy(&s.world);
        }
}

/* Rank 1 has four messages of a window each on their way, and no more before they are added; rank 2
 * sends two messages, of which the last one is not looked at so early, where four are awaited. */
static void nobody_waits_for_what_nobody_sends(void **state)
{
    static const struct scene scene = {
        "one is behind", "direct", {0.021, 0.086, 0.015}, false, false};
    struct sums s = {.n = (size_t)3 * (16 << 16), .op = SPR_SUM};

    (void)state;
    make(&s.world, 3, 100e9);
    check_scene(&s, &scene, 1);
    world_destroy(&s.world);
}

VECTORS_MAIN(cmocka_unit_test(several_threads_have_the_bits_of_one),
             cmocka_unit_test(nobody_waits_for_what_nobody_sends))
