/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A peer that lies in a sparse allreduce whose messages are more than chunks: rank 0 is ours, rank
 * 1 is the raw end of a simulated link. Whatever it says, rank 0 ends with an error that names it.
 */
#include "tests/sim/hostile.h"

#include "collectives/sparse_supports.h"
#include "collectives/sparse_tiles.h"

#define TELL_STEP 0x20000000u

/* Unions of supports -------------------------------------------------------------------------- */

static uint32_t sum_index[2 * ELEMENTS];
static float sum_value[2 * ELEMENTS];

struct union_scene {
    struct scene scene;
    struct spr_frame grant;
    spr_sparse list;
    size_t here, there; /* entries of rank 0 in its own blocks, and in those of rank 1 */
};

static size_t entries_of(const struct spr_sparse_state *s, uint32_t owner)
{
    size_t n = 0;

    for (uint32_t w = 0; w < spr_blocks_windows(&s->blocks, owner); w++)
        n += spr_blocks_gather_count(&s->blocks, s->offsets, owner, w);
    return n;
}

static void begin_union(struct union_scene *u, size_t elements, bool list)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    const spr_sparse send = {indices, values, ENTRIES, 0};
    const struct spr_sparse_state *s;

    begin(&u->scene);
    u->list = (spr_sparse){sum_index, sum_value, 0, 2 * ELEMENTS};
    options.algorithm = "union";
    assert_int_equal(spr_isparse_allreduce(victim(&u->scene), &send, elements, list ? NULL : result,
                                           list ? &u->list : NULL, SPR_SUM, &options,
                                           &u->scene.world.requests[0]),
                     SPR_OK);
    u->grant = first_grant(&u->scene);
    s = u->scene.world.requests[0]->state;
    u->here = entries_of(s, 0);
    u->there = entries_of(s, 1);
}

/* That the liar has what rank 0 has, or something else. */
static void tell_bytes(struct union_scene *u, bool same, size_t bytes)
{
    const struct spr_supports_state *state = u->scene.world.requests[0]->state;
    struct spr_supports mine = state->peers[1].mine, words[2] = {{1, 2}, {3, 4}};
    struct spr_frame f = liar_frame(&u->scene.liar, 0, SPR_FRAME_DATA, u->grant.operation,
                                    TELL_STEP, u->grant.descriptor);

    if (same)
        words[0] = (struct spr_supports){mine.here, mine.there};
    f.arg = 1; /* eager */
    f.bytes = (uint32_t)bytes;
    liar_send_sealed(&u->scene.liar, 0, f, words);
    world_settle(&u->scene.world, 2);
}

static void tell(struct union_scene *u, bool same)
{
    tell_bytes(u, same, sizeof(struct spr_supports));
}

static void expect_text(struct union_scene *u, const char *text)
{
    expect_blame(&u->scene, SPR_ERR_PROTO, text);
    if (!strstr(spr_last_error(victim(&u->scene)), text))
        fail_msg("'%s', not '%s'", spr_last_error(victim(&u->scene)), text);
    end(&u->scene);
}

/* A message of sums: windows and entries of its chunk, the first of them at `position`, and how
 * many values alone follow. */
struct sums {
    uint32_t windows, count, position;
    size_t values;
};

static size_t write_sums(const struct sums *m, uint32_t all_windows, char *out)
{
    struct spr_chunk_header h = {.format = SPR_CHUNK_U32,
                                 .flags = m->windows == all_windows ? SPR_CHUNK_LAST : 0,
                                 .windows = m->windows,
                                 .count = m->count,
                                 .payload_bytes = m->count * 8};
    char *at = out + sizeof h;
    const float one = 1;

    memcpy(out, &h, sizeof h);
    for (uint32_t i = 0; i < m->count; i++, at += 4)
        memcpy(at, &(uint32_t){m->position + i}, 4);
    for (size_t i = 0; i < m->count + m->values; i++, at += 4)
        memcpy(at, &one, 4);
    return (size_t)(at - out);
}

static void answer_sums(struct union_scene *u, const struct sums *m)
{
    static char message[SPR_FRAME_MAX_PAYLOAD];
    const struct spr_sparse_state *s = u->scene.world.requests[0]->state;
    size_t bytes = write_sums(m, spr_blocks_windows(&s->blocks, 1), message);

    answer(&u->scene, &u->grant, step_from(&u->scene, UNION_STEP), message, bytes);
}

/* Without a grant what rank 0 has to say never leaves, but what it has heard is its result. */
static void the_truth_is_taken(void **state)
{
    (void)state;
    for (int list = 0; list < 2; list++) {
        const struct spr_supports_state *our;
        struct union_scene u;
        begin_union(&u, ELEMENTS, list);
        tell(&u, true);
        answer(&u.scene, &u.grant, 0, values, u.here * sizeof *values);
        answer_sums(&u, &(struct sums){8, 3, 5, u.there});
        world_settle(&u.scene.world, 2);
        our = u.scene.world.requests[0]->state;
        assert_int_equal(our->s.union_entries, ENTRIES + 3);
        assert_int_equal(our->s.merged, 8);
        if (!list)
            assert_true(result[0] == 2 && result[4096 + 5] == 1 && result[4096 + 8] == 0);
        expect_blame(&u.scene, SPR_ERR_DEADLINE, "silence");
        end(&u.scene);
    }
}

static void a_support_of_another_size_is_refused(void **state)
{
    static const size_t bytes[] = {0, 8, 15};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(bytes); i++) {
        struct union_scene u;
        begin_union(&u, ELEMENTS, false);
        tell_bytes(&u, true, bytes[i]);
        expect_text(&u, "another size");
    }
}

/* It has said that it has the same positions. */
static void values_of_another_number_are_refused(void **state)
{
    (void)state;
    for (int k = -1; k <= 1; k += 2) {
        struct union_scene u;
        begin_union(&u, ELEMENTS, false);
        tell(&u, true);
        answer(&u.scene, &u.grant, 0, values, (u.here + (size_t)(long)k) * sizeof *values);
        expect_text(&u, "one value for each position");
    }
}

static void entries_that_are_no_chunk_are_refused(void **state)
{
    struct spr_chunk_header chunk = {.format = SPR_CHUNK_U16};

    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        struct union_scene u;
        begin_union(&u, ELEMENTS, false);
        tell(&u, false);
        answer(&u.scene, &u.grant, sums ? step_from(&u.scene, UNION_STEP) : 0, &chunk,
               sizeof chunk);
        expect_text(&u, "no windows");
    }
}

static void sums_that_do_not_fit_our_list_are_refused(void **state)
{
    static const struct {
        const char *text;
        size_t elements;
        uint32_t windows, count, position;
        int surplus; /* values alone */
    } lies[] = {
        {"one sum for each entry", ELEMENTS, 8, 0, 0, -1},
        {"one sum for each entry", ELEMENTS, 8, 7, 1, 1},
        /* Entry 5, at 5000, is the first in the blocks of rank 1. */
        {"a position that is in this rank's list", ELEMENTS, 8, 1, 5000 - 4096, 0},
        {"a position that is in this rank's list", ELEMENTS, 8, 20, 5000 - 4096 - 19, 0},
        {"more sums than a message may have", ELEMENTS, 8, 22000, 1, 0},
        {"more sums than a message may have", 3 * ELEMENTS, 23, 0, 0, 0},
        {"length", ELEMENTS, 8, UINT32_MAX / 8, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lies); i++)
        for (int list = 0; list < 2; list++) {
            struct union_scene u;
            struct sums m = {lies[i].windows, lies[i].count, lies[i].position, 0};
            if (lies[i].elements > ELEMENTS && !list)
                continue;
            begin_union(&u, lies[i].elements, list);
            tell(&u, true);
            m.values = u.there + (size_t)(long)lies[i].surplus;
            if (m.count < ELEMENTS) {
                answer_sums(&u, &m);
            } else {
                struct spr_chunk_header h = {.format = SPR_CHUNK_U32,
                                             .flags = SPR_CHUNK_LAST,
                                             .windows = 8,
                                             .payload_bytes = UINT32_MAX};
                answer(&u.scene, &u.grant, step_from(&u.scene, UNION_STEP), &h, sizeof h);
            }
            expect_text(&u, lies[i].text);
        }
}

static void noise_is_refused(void **state)
{
    struct spr_rng rng = {seed, 5};
    int refused = 0;

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        struct {
            struct spr_chunk_header header;
            uint32_t payload[600];
        } m = {{.format = (uint8_t)spr_rng_below(&rng, SPR_CHUNK_FORMATS + 1)}, {0}};
        size_t bytes = 4 * spr_rng_below(&rng, sizeof m / 4 + 1);
        struct union_scene u;
        begin_union(&u, ELEMENTS, trial & 1);
        m.header.flags = (uint16_t)spr_rng_below(&rng, 2);
        m.header.windows = (uint32_t)spr_rng_below(&rng, 10);
        m.header.count = (uint32_t)spr_rng_below(&rng, 600);
        m.header.payload_bytes = (uint32_t)spr_rng_below(&rng, 4 * 600);
        for (size_t i = 0; i < SPR_ARRAY_LEN(m.payload); i++)
            m.payload[i] = (uint32_t)(spr_rng_next(&rng) >> spr_rng_below(&rng, 64));
        tell(&u, trial & 2);
        answer(&u.scene, &u.grant, trial & 4 ? step_from(&u.scene, UNION_STEP) : 0, &m, bytes);
        world_settle(&u.scene.world, 2);
        /* What happens to be right leaves rank 0 waiting for the next. */
        refused += victim(&u.scene)->error.status != SPR_OK;
        expect_blame(&u.scene, victim(&u.scene)->error.status ? SPR_ERR_PROTO : SPR_ERR_DEADLINE,
                     "noise");
        end(&u.scene);
    }
    assert_in_range(refused, 270, 300);
}

/* Tiles --------------------------------------------------------------------------------------- */

enum { WINDOWS = 8 }; /* of each rank */

/* A message of all windows of an owner, and what is wrong with it: other words in its header, and a
 * window with one tile, of one entry, or several. */
struct tiles_lie {
    const char *why; /* NULL: nothing */
    struct spr_tiles_header header;
    uint32_t window, number, position;
    uint32_t stray;          /* a value without an entry, behind that many others; 0: none */
    uint64_t promised;       /* tiles that are not there */
    size_t missing, surplus; /* bytes */
    bool empty;              /* the tile has no entries */
    bool entries_only;       /* wrong in rank 0's blocks, not in its own */
};

static const struct tiles_lie tiles_lies[] = {
    {.header = {0, WINDOWS, 1, 0}},
    {.why = "shorter than a header", .header = {0, WINDOWS, 1, 0}, .missing = 1 << 20},
    {.why = "not the expected window", .header = {1, WINDOWS - 1, 1, 0}},
    {.why = "not the expected window", .header = {0, WINDOWS, 1, 1}},
    {.why = "no windows, or more", .header = {0, 0, 0, 0}},
    {.why = "no windows, or more", .header = {0, WINDOWS + 1, 1, 0}},
    {.why = "no windows, or more", .header = {0, UINT32_MAX, 1, 0}},
    {.why = "ends at the wrong place", .header = {0, WINDOWS, 0, 0}},
    {.why = "ends at the wrong place", .header = {0, WINDOWS, 2, 0}},
    {.why = "ends at the wrong place", .header = {0, WINDOWS - 1, 1, 0}},
    {.why = "a tile is missing", .header = {0, WINDOWS, 1, 0}, .promised = 3 << 8, .window = 7},
    {.why = "a tile is out of range", .header = {0, WINDOWS, 1, 0}, .window = 7, .number = 163},
    {.why = "a position is out of range", /* of rank 0's, whose last block is short */
     .header = {0, WINDOWS, 1, 0},
     .window = 7,
     .number = 162,
     .position = 64,
     .entries_only = true},
    {.why = "a value where there is no entry", .header = {0, WINDOWS, 1, 0}, .stray = 255},
    {.why = "a tile without entries", .header = {0, WINDOWS, 1, 0}, .empty = true},
    {.why = "bytes behind", .header = {0, WINDOWS, 1, 0}, .surplus = 8},
    {.why = "a window is missing", .header = {0, WINDOWS, 1, 0}, .missing = 8},
};

static size_t write_tiles(const struct tiles_lie *l, char *out)
{
    struct spr_tiles_writer w;
    size_t bytes;

    spr_tiles_begin(&w, out, 0);
    for (uint32_t i = 0; i < WINDOWS; i++) {
        struct spr_tile *tile;
        spr_tiles_window(&w);
        if (i != l->window)
            continue;
        tile = spr_tiles_add(&w, l->number);
        memset(tile, 0, sizeof *tile);
        tile->value[l->position] = l->empty ? 0 : 5;
        if (!l->empty)
            tile->present[l->position / 64] |= UINT64_C(1) << l->position % 64;
        if (l->stray)
            tile->value[l->stray] = 1;
        w.map->tile[0] |= l->promised;
    }
    bytes = spr_tiles_end(&w, true);
    memcpy(out, &l->header, sizeof l->header);
    memset(out + bytes, 0, l->surplus);
    return l->missing > bytes ? 0 : bytes - l->missing + l->surplus;
}

static void tiles_that_are_wrong_are_refused(void **state)
{
    static uint64_t message[SPR_FRAME_MAX_PAYLOAD / 8];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(tiles_lies); i++)
        for (int sums = 0; sums < 2 - tiles_lies[i].entries_only; sums++) {
            const char *why = tiles_lies[i].why;
            size_t bytes = write_tiles(&tiles_lies[i], (char *)message);
            struct spr_frame grant;
            struct scene s;
            begin(&s);
            post_sparse(&s, "blocks");
            grant = first_grant(&s);
            answer(&s, &grant, step_from(&s, sums ? UNION_STEP : 0), message, bytes);
            if (sums && !why) { /* position 0 of rank 1's blocks */
                world_settle(&s.world, 2);
                assert_true(result[4096] == 5 && result[4097] == 0);
            }
            expect_blame(&s, why ? SPR_ERR_PROTO : SPR_ERR_DEADLINE, why ? why : "silence");
            if (why && !strstr(spr_last_error(victim(&s)), why))
                fail_msg("'%s', not '%s'", spr_last_error(victim(&s)), why);
            end(&s);
        }
}

static void noise_as_tiles_is_refused(void **state)
{
    static uint64_t message[3 * sizeof(struct spr_tile) / 8];
    struct spr_rng rng = {seed, 6};
    int refused = 0;

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        const struct spr_tiles_header h = {0, (uint32_t)spr_rng_below(&rng, WINDOWS + 1),
                                           (uint32_t)spr_rng_below(&rng, 2), 0};
        size_t bytes = spr_rng_below(&rng, sizeof message + 1);
        struct spr_frame grant;
        struct scene s;
        for (size_t i = 0; i < SPR_ARRAY_LEN(message); i++)
            message[i] = spr_rng_below(&rng, 4) ? 0 : spr_rng_next(&rng) & spr_rng_next(&rng);
        memcpy(message, &h, sizeof h);
        begin(&s);
        post_sparse(&s, "blocks");
        grant = first_grant(&s);
        answer(&s, &grant, step_from(&s, trial & 1 ? UNION_STEP : 0), message, bytes);
        world_settle(&s.world, 2);
        refused += victim(&s)->error.status != SPR_OK;
        expect_blame(&s, victim(&s)->error.status ? SPR_ERR_PROTO : SPR_ERR_DEADLINE, "noise");
        end(&s);
    }
    assert_in_range(refused, 270, 300);
}

/* Chunks ahead ---------------------------------------------------------------------------------
 */

/* Windows of rank 0's half of its list, which threads would sum together. */
static void begin_together(struct scene *s, struct spr_frame *grant)
{
    static uint32_t index[ELEMENTS / 2];
    static float value[ELEMENTS / 2];
    spr_sparse list = {index, value, ELEMENTS / 2, 0};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    for (uint32_t i = 0; i < ELEMENTS / 2; i++)
        index[i] = 2 * i;
    begin(s);
    victim(s)->options.workers = victim(s)->helpers = 1;
    options.algorithm = "direct";
    assert_int_equal(spr_isparse_allreduce(victim(s), &list, ELEMENTS, result, NULL, SPR_SUM,
                                           &options, &s->world.requests[0]),
                     SPR_OK);
    *grant = first_grant(s);
}

/* Of windows with one entry. */
static void answer_windows(struct scene *s, const struct spr_frame *grant, uint32_t step,
                           struct spr_chunk_header h)
{
    struct {
        struct spr_chunk_header header;
        uint32_t position;
        float value;
    } m = {h, 7, 1};

    m.header.format = SPR_CHUNK_U32;
    m.header.count = 1;
    m.header.payload_bytes = 8;
    answer(s, grant, step, &m, sizeof m);
}

static void chunks_ahead_that_are_wrong_are_refused(void **state)
{
    static const struct {
        const char *why; /* NULL: nothing */
        struct spr_chunk_header header;
    } lies[] = {
        {NULL, {.first_window = 0, .windows = 1}},
        {"not the expected window", {.first_window = 1, .windows = 1}},
        {"ends at the wrong place", {.windows = 1, .flags = SPR_CHUNK_LAST}},
        {"no windows", {.windows = 0}},
        {"more windows than the owner has", {.windows = 9}},
        {"ends at the wrong place", {.windows = 8}}, /* or it is more than there are */
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lies); i++)
        for (uint32_t wrong = 0; wrong < 4; wrong++) {
            const char *why = wrong > 0 && lies[i].header.windows == 8
                                  ? "more windows than the owner has"
                                  : lies[i].why;
            struct spr_frame grant;
            struct scene s;
            begin_together(&s, &grant);
            for (uint32_t k = 0; k < 4; k++) {
                struct spr_chunk_header h = {.windows = 1};
                if (k == wrong)
                    h = lies[i].header;
                h.first_window += k;
                answer_windows(&s, &grant, k, h);
            }
            world_settle(&s.world, 2);
            if (!why) /* without a grant what rank 0 has to say never leaves */
                assert_int_equal(victim(&s)->counters.shared_windows, 4);
            expect_blame(&s, why ? SPR_ERR_PROTO : SPR_ERR_DEADLINE, why ? why : "silence");
            if (why && !strstr(spr_last_error(victim(&s)), why))
                fail_msg("lie %zu at chunk %u: '%s'", i, wrong, spr_last_error(victim(&s)));
            end(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_truth_is_taken),
        cmocka_unit_test(a_support_of_another_size_is_refused),
        cmocka_unit_test(values_of_another_number_are_refused),
        cmocka_unit_test(entries_that_are_no_chunk_are_refused),
        cmocka_unit_test(sums_that_do_not_fit_our_list_are_refused),
        cmocka_unit_test(noise_is_refused),
        cmocka_unit_test(tiles_that_are_wrong_are_refused),
        cmocka_unit_test(noise_as_tiles_is_refused),
        cmocka_unit_test(chunks_ahead_that_are_wrong_are_refused),
    };

    hostile_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
