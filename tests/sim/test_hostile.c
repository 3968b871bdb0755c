/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A peer that lies: rank 0 is ours, rank 1 is the raw end of a simulated link. Whatever comes, rank
 * 0 ends with an error that names rank 1, in bounded memory.
 */
#include "tests/sim/hostile.h"

/* The streams of chunks that two ranks have: that of the first grant from this step on. */
static const struct stream {
    const char *algorithm;
    uint32_t least;
    int host; /* of rank 1; rank 0 is on host 0 */
} streams[] = {
    {"direct", 0, 1},          {"direct", UNION_STEP, 1}, {"allgather", 0, 1},
    {"doubling", 1u << 20, 1}, {"server", 0, 1},          {"ring", 0, 1},
    {"hosts", 0, 0}, /* a list for the sum of the host */
    {"hosts", 0, 1}, /* the sum of a host */
    {"hosts", UNION_STEP, 0},  {"hosts", UNION_STEP, 1},
};

static void post_stream(struct scene *s, const struct stream *stream)
{
    world_share_hosts(&s->world, (int[]){0, stream->host});
    post_sparse(s, stream->algorithm);
}

static void begin_stream(struct scene *s, const struct stream *stream)
{
    begin(s);
    post_stream(s, stream);
}

/* Chunks --------------------------------------------------------------------------------------- */

static void a_chunk_without_windows_is_refused(void **state)
{
    static const uint16_t flags[] = {0, SPR_CHUNK_LAST};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(streams); i++) {
        for (size_t k = 0; k < SPR_ARRAY_LEN(flags); k++) {
            struct spr_chunk_header chunk = {.format = SPR_CHUNK_U16, .flags = flags[k]};
            struct spr_frame grant;
            struct scene s;
            begin_stream(&s, &streams[i]);
            grant = first_grant(&s);
            answer(&s, &grant, step_from(&s, streams[i].least), &chunk, sizeof chunk);
            expect_blame(&s, SPR_ERR_PROTO, "a chunk without windows");
            assert_non_null(strstr(spr_last_error(victim(&s)), "no windows"));
            end(&s);
        }
    }
}

/* What claims to be compressed: noise, more than a chunk can have, and, where it was not asked for,
 * at all. */
static void compressed_chunks_that_are_none_are_refused(void **state)
{
    static const struct {
        int zstd;
        uint32_t payload;
        const char *why;
    } lies[] = {{1, 16, "zstd: no frame"},
                {1, UINT32_MAX, "more content"},
                {0, 16, "unknown chunk format"}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(streams) * SPR_ARRAY_LEN(lies); i++) {
        struct {
            struct spr_chunk_header header;
            uint8_t frame[16];
        } lie = {.header = {.format = SPR_CHUNK_ZSTD, .flags = SPR_CHUNK_LAST, .windows = 1}};
        size_t which = i / SPR_ARRAY_LEN(streams);
        struct spr_frame grant;
        struct scene s;

        lie.header.payload_bytes = lies[which].payload;
        begin(&s);
        if (lies[which].zstd && !world_set_zstd(&s.world, 1)) {
            end(&s);
            continue;
        }
        post_stream(&s, &streams[i % SPR_ARRAY_LEN(streams)]);
        grant = first_grant(&s);
        answer(&s, &grant, step_from(&s, streams[i % SPR_ARRAY_LEN(streams)].least), &lie,
               sizeof lie);
        expect_blame(&s, SPR_ERR_PROTO, lies[which].why);
        if (strcmp(streams[i % SPR_ARRAY_LEN(streams)].algorithm, "ring")) /* compresses nothing */
            assert_non_null(strstr(spr_last_error(victim(&s)), lies[which].why));
        end(&s);
    }
}

static void random_chunks_are_refused(void **state)
{
    struct spr_rng rng = {seed, 1};
    int refused = 0;

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        struct {
            struct spr_chunk_header header;
            uint32_t payload[64];
        } chunk = {{.format = (uint8_t)spr_rng_below(&rng, SPR_CHUNK_FORMATS + 1)}, {0}};
        const struct stream *stream = &streams[spr_rng_below(&rng, SPR_ARRAY_LEN(streams))];
        size_t bytes = sizeof chunk.header + 4 * spr_rng_below(&rng, 65);
        struct spr_frame grant;
        struct scene s;
        chunk.header.flags = (uint16_t)spr_rng_below(&rng, 2);
        chunk.header.windows = (uint32_t)(spr_rng_next(&rng) >> spr_rng_below(&rng, 64));
        chunk.header.count = (uint32_t)(spr_rng_next(&rng) >> spr_rng_below(&rng, 64));
        chunk.header.payload_bytes = (uint32_t)(bytes - sizeof chunk.header);
        for (size_t i = 0; i < SPR_ARRAY_LEN(chunk.payload); i++)
            chunk.payload[i] = (uint32_t)(spr_rng_next(&rng) >> spr_rng_below(&rng, 64));
        begin_stream(&s, stream);
        grant = first_grant(&s);
        answer(&s, &grant, step_from(&s, stream->least), &chunk, bytes);
        world_settle(&s.world, 2);
        /* One that happens to be right leaves rank 0 waiting for the next. */
        refused += victim(&s)->error.status != SPR_OK;
        expect_blame(&s, victim(&s)->error.status ? SPR_ERR_PROTO : SPR_ERR_DEADLINE, "noise");
        end(&s);
    }
    assert_in_range(refused, 180, 200);
}

/* Ranks 0 and 1 share a host, and rank 0 passes on what the union of rank 2, the liar, is. */
static void what_a_relay_passes_on_is_refused_by_all(void **state)
{
    static const char *const algorithms[] = {"hierarchical", "hosts", "relay"};
    static const struct {
        struct spr_chunk_header chunk;
        size_t bytes;
    } lies[] = {
        {{.format = SPR_CHUNK_U16}, 0},
        {{.format = SPR_CHUNK_U16}, sizeof(struct spr_chunk_header)},
        {{.format = SPR_CHUNK_U32, .windows = 1, .count = 7}, sizeof(struct spr_chunk_header)},
        {{.format = SPR_CHUNK_U32, .windows = 1, .flags = SPR_CHUNK_LAST},
         sizeof(struct spr_chunk_header)},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(algorithms) * SPR_ARRAY_LEN(lies); i++) {
        const char *algorithm = algorithms[i / SPR_ARRAY_LEN(lies)];
        struct spr_frame grant;
        struct scene s;
        begin_with(&s, 3);
        world_share_hosts(&s.world, (int[]){0, 0, 1});
        for (int r = 0; r < 2; r++)
            post_sparse_of(&s, r, algorithm);
        grant = first_grant(&s);
        answer(&s, &grant, step_from(&s, UNION_STEP), &lies[i % SPR_ARRAY_LEN(lies)].chunk,
               lies[i % SPR_ARRAY_LEN(lies)].bytes);
        assert_true(world_run(&s.world, LIMIT_NS));
        for (int r = 0; r < 2; r++) {
            assert_int_equal(s.world.results[r], SPR_ERR_PROTO);
            assert_non_null(strstr(spr_last_error(s.world.comms[r]), "rank 2"));
        }
        end(&s);
    }
}

/* The lowest step of a union, or the highest, whose first chunk rank 0 has granted. */
static uint32_t union_step(const struct scene *s, bool highest)
{
    const struct liar *l = &s->liar;
    uint32_t step = highest ? 0 : UINT32_MAX;

    for (size_t i = 0; i < l->heard_count; i++)
        if (l->heard[i].type == SPR_FRAME_GRANT && l->heard[i].step >= UNION_STEP &&
            (l->heard[i].step > step) == highest)
            step = l->heard[i].step;
    return highest ? step - 1 : step; /* two chunks are granted */
}

/* The liar shares a host with rank 0, or has it behind it on a ring, and passes on what it says the
 * union of rank 2 is, or of rank 1. Its own has a higher number where all ranks are owners, and a
 * lower one where they are numbered by host. */
static void a_relay_is_blamed_for_what_it_passes_on(void **state)
{
    static const struct {
        const char *algorithm;
        int host[4];
        bool highest;
    } cases[] = {{"hierarchical", {0, 1, 1, 0}, false},
                 {"hosts", {0, 1, 1, 0}, true},
                 {"relay", {0, 1, 2, 3}, false}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        struct spr_chunk_header chunk = {.format = SPR_CHUNK_U16};
        struct spr_frame grant;
        struct scene s;
        begin_with(&s, 4);
        world_share_hosts(&s.world, cases[i].host);
        for (int r = 0; r < 3; r++)
            post_sparse_of(&s, r, cases[i].algorithm);
        grant = first_grant(&s);
        answer(&s, &grant, union_step(&s, cases[i].highest), &chunk, sizeof chunk);
        assert_true(world_run(&s.world, LIMIT_NS));
        for (int r = 0; r < 3; r++) {
            assert_int_equal(s.world.results[r], SPR_ERR_PROTO);
            assert_non_null(strstr(spr_last_error(s.world.comms[r]), "rank 3"));
        }
        end(&s);
    }
}

/* All windows of rank 0's part, without entries, and the last chunk of the stream. */
static size_t empty_stream(struct scene *s, void *chunk)
{
    struct spr_chunk_header header = {.format = SPR_CHUNK_U32, .flags = SPR_CHUNK_LAST};
    struct spr_blocks blocks = {.elements = ELEMENTS, .ranks = 2, .block_log2 = 12};

    (void)s;
    header.windows = spr_blocks_windows(&blocks, 0);
    memcpy(chunk, &header, sizeof header);
    return sizeof header;
}

/* Rank 1's whole list, its union, and one message more, of the list but for one time. */
static void send_too_much(const struct stream *stream, int pause)
{
    static char late[100000];
    char chunk[SPR_CHUNK_HEADER_BYTES];
    struct spr_frame grant;
    struct scene s;
    uint32_t step;
    size_t bytes;

    begin_stream(&s, stream);
    grant = first_grant(&s);
    step = step_from(&s, UNION_STEP);
    bytes = empty_stream(&s, chunk);
    answer(&s, &grant, 0, chunk, bytes);
    answer(&s, &grant, step, chunk, bytes);
    if (pause)
        world_settle(&s.world, pause);
    answer(&s, &grant, pause == 1 ? step + 1 : 1, late, sizeof late);
    if (pause == 2 && !s.world.requests[0])
        post_allreduce(&s);
    expect_blame(&s, SPR_ERR_PROTO, "data behind the last chunk");
    end(&s);
}

static void data_behind_the_last_chunk_is_refused(void **state)
{
    static const struct stream lists[] = {{"direct", 0, 1}, {"hosts", 0, 0}, {"hosts", 0, 1}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++)
        for (int pause = 0; pause < 3; pause++)
            send_too_much(&lists[i], pause);
}

/* Aborts --------------------------------------------------------------------------------------- */

static void an_abort_without_a_failure_is_refused(void **state)
{
    static const int32_t statuses[] = {SPR_OK, SPR_IN_PROGRESS, SPR_ERR_TIMEOUT, INT32_MAX};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(statuses); i++) {
        struct spr_frame f;
        struct scene s;
        begin(&s);
        assert_int_equal(spr_ibarrier(victim(&s), NULL, &s.world.requests[0]), SPR_OK);
        f = liar_frame(&s.liar, 0, SPR_FRAME_ABORT, 0, 0, 0);
        f.arg = 1;
        f.arg64 = (uint64_t)(uint32_t)statuses[i];
        f.bytes = 4;
        liar_send_sealed(&s.liar, 0, f, "lie");
        expect_blame(&s, SPR_ERR_PROTO, "an abort without a failure");
        assert_int_equal(s.world.results[0], SPR_ERR_PROTO);
        end(&s);
    }
}

/* Floods --------------------------------------------------------------------------------------- */

static void a_flood_ends_with_an_error_in_bounded_memory(void **state)
{
    static const struct {
        enum spr_frame_type type;
        uint32_t bytes;
        int frames;
    } floods[] = {{SPR_FRAME_DATA, 8192, 2000},
                  {SPR_FRAME_DATA, 0, 70000},
                  {SPR_FRAME_REQUEST, 0, 70000},
                  {SPR_FRAME_GRANT, 0, 70000}};
    static const char data[8192];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(floods); i++) {
        size_t window, most = 0;
        int64_t live;
        struct scene s;
        begin(&s);
        window = victim(&s)->options.eager_window;
        live = spr_mem_live();
        for (int k = 0; k < floods[i].frames && !victim(&s)->error.status; k++) {
            struct spr_frame f =
                liar_frame(&s.liar, 0, floods[i].type, 1000000 + (uint32_t)k, 0, 7);
            f.bytes = floods[i].bytes;
            f.arg = floods[i].type == SPR_FRAME_DATA;
            liar_send_sealed(&s.liar, 0, f, data);
            if (k % 50 == 0)
                world_settle(&s.world, 1);
            if (victim(&s)->channel.peers[1].kept_bytes > most)
                most = victim(&s)->channel.peers[1].kept_bytes;
        }
        expect_blame(&s, SPR_ERR_PROTO, "a flood");
        assert_true(most <= window);
        assert_true(spr_mem_live() - live < 20000);
        end(&s);
    }
}

static void data_of_a_finished_operation_is_refused(void **state)
{
    (void)state;
    for (int eager = 0; eager < 2; eager++) {
        struct spr_frame first, f;
        struct scene s;
        begin(&s);
        assert_int_equal(spr_ibarrier(victim(&s), NULL, &s.world.requests[0]), SPR_OK);
        world_settle(&s.world, 2);
        assert_true(s.liar.heard_count > 0);
        first = s.liar.heard[0];
        f = liar_frame(&s.liar, 0, SPR_FRAME_DATA, first.operation, 0, first.descriptor);
        f.arg = 1;
        liar_send_sealed(&s.liar, 0, f, NULL);
        assert_true(world_run(&s.world, LIMIT_NS));
        assert_int_equal(s.world.results[0], SPR_OK);
        f = liar_frame(&s.liar, 0, SPR_FRAME_DATA, first.operation, 0, first.descriptor);
        f.arg = (uint32_t)eager;
        liar_send_sealed(&s.liar, 0, f, NULL);
        expect_blame(&s, SPR_ERR_PROTO, "data of a finished operation");
        end(&s);
    }
}

/* Headers -------------------------------------------------------------------------------------- */

/* All fields of a header; `fatal`: any other value than a correct peer's is refused at once. */
static const struct field {
    const char *name;
    size_t offset, bytes;
    bool fatal, sealed; /* sealed: the checksum is made after the lie */
} fields[] = {
    {"magic", offsetof(struct spr_frame, magic), 4, true, false},
    {"version", offsetof(struct spr_frame, version), 1, true, false},
    {"type", offsetof(struct spr_frame, type), 1, false, true},
    {"type, damaged", offsetof(struct spr_frame, type), 1, true, false},
    {"flags", offsetof(struct spr_frame, flags), 2, false, true},
    {"epoch", offsetof(struct spr_frame, epoch), 4, true, true},
    {"sequence", offsetof(struct spr_frame, sequence), 4, true, true},
    {"operation", offsetof(struct spr_frame, operation), 4, false, true},
    {"step", offsetof(struct spr_frame, step), 4, false, true},
    {"descriptor", offsetof(struct spr_frame, descriptor), 8, false, true},
    {"bytes", offsetof(struct spr_frame, bytes), 4, false, true},
    {"payload_crc", offsetof(struct spr_frame, payload_crc), 4, false, true},
    {"consumed", offsetof(struct spr_frame, consumed), 4, false, true},
    {"arg", offsetof(struct spr_frame, arg), 4, false, true},
    {"arg64", offsetof(struct spr_frame, arg64), 8, false, true},
    {"zero", offsetof(struct spr_frame, zero), 4, true, false},
    {"header_crc", offsetof(struct spr_frame, header_crc), 4, true, false},
};
static const uint64_t extremes[] = {0, 1, 2, 0x7f, 0x7fffffff, 0x80000000, UINT64_MAX};

/* What rank 0 may say of rank 1 after one odd frame and then silence. */
static bool is_blame(spr_status status)
{
    return status == SPR_ERR_PROTO || status == SPR_ERR_CORRUPT || status == SPR_ERR_MISMATCH ||
           status == SPR_ERR_DEADLINE || status == SPR_ERR_RANK_LOST || status == SPR_ERR_REVOKED ||
           status == SPR_ERR_INVALID /* told by an ABORT */;
}

/* A correct frame but for one field. Returns false when the lie is the truth. */
static bool lie(struct scene *s, const struct spr_frame *grant, enum spr_frame_type type,
                const struct field *field, uint64_t value)
{
    static char payload[SPR_FRAME_MAX_PAYLOAD + 1];
    struct spr_frame f, truth;

    if (field->offset == offsetof(struct spr_frame, bytes)) /* the simulator really carries them */
        value = spr_min_u64(value, sizeof payload);
    f = liar_frame(&s->liar, 0, type, grant->operation, grant->step, grant->descriptor);
    if (type == SPR_FRAME_ABORT)
        f.arg64 = (uint64_t)(uint32_t)SPR_ERR_REVOKED;
    spr_frame_seal(&f);
    truth = f;
    memcpy((char *)&f + field->offset, &value, field->bytes);
    if (field->sealed)
        spr_frame_seal(&f);
    if (!memcmp(&f, &truth, sizeof f))
        return false;
    liar_send(&s->liar, 0, &f, payload);
    return true;
}

/* Nobody let the liar write anywhere. */
static void a_payload_that_is_placed_is_refused(void **state)
{
    static const uint32_t chunk[4];
    struct spr_frame grant;
    struct scene s;

    (void)state;
    begin(&s);
    post_allreduce(&s);
    grant = first_grant(&s);
    grant.type = SPR_FRAME_DATA;
    grant.flags = SPR_FRAME_PLACED;
    grant.bytes = sizeof chunk;
    grant.sequence = s.liar.sequence[0]++;
    liar_send_sealed(&s.liar, 0, grant, chunk);
    expect_blame(&s, SPR_ERR_PROTO, "a payload that is said to be in place");
    end(&s);
}

static void a_header_at_its_extremes_is_refused(void **state)
{
    char what[128];

    (void)state;
    for (int type = SPR_FRAME_DATA; type < SPR_FRAME_TYPES; type++) {
        for (size_t i = 0; i < SPR_ARRAY_LEN(fields); i++) {
            for (size_t v = 0; v < SPR_ARRAY_LEN(extremes); v++) {
                struct spr_frame grant;
                struct scene s;
                spr_status status;
                bool lied;
                begin(&s);
                post_allreduce(&s);
                grant = first_grant(&s);
                lied = lie(&s, &grant, (enum spr_frame_type)type, &fields[i], extremes[v]);
                snprintf(what, sizeof what, "type %d, %s = 0x%llx", type, fields[i].name,
                         (unsigned long long)extremes[v]);
                if (!world_run(&s.world, LIMIT_NS))
                    fail_msg("%s: rank 0 hangs", what);
                status = s.world.results[0];
                if (!is_blame(status) || !strstr(spr_last_error(victim(&s)), "rank 1"))
                    fail_msg("%s: %s '%s'", what, spr_status_name(status),
                             spr_last_error(victim(&s)));
                if (lied && fields[i].fatal && status != SPR_ERR_PROTO && status != SPR_ERR_CORRUPT)
                    fail_msg("%s: taken: %s", what, spr_last_error(victim(&s)));
                end(&s);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_without_windows_is_refused),
        cmocka_unit_test(compressed_chunks_that_are_none_are_refused),
        cmocka_unit_test(random_chunks_are_refused),
        cmocka_unit_test(what_a_relay_passes_on_is_refused_by_all),
        cmocka_unit_test(a_relay_is_blamed_for_what_it_passes_on),
        cmocka_unit_test(data_behind_the_last_chunk_is_refused),
        cmocka_unit_test(an_abort_without_a_failure_is_refused),
        cmocka_unit_test(a_flood_ends_with_an_error_in_bounded_memory),
        cmocka_unit_test(data_of_a_finished_operation_is_refused),
        cmocka_unit_test(a_payload_that_is_placed_is_refused),
        cmocka_unit_test(a_header_at_its_extremes_is_refused),
    };

    hostile_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
