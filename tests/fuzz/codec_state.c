/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Saved states of codecs (compress/codec_state.c). Input: mode (bit 0: right magic, version, length
 * and checksum; bits 1 and 2: into which codec), the state.
 */
#include <stdlib.h>

#include "base/crc32c.h"
#include "compress/codec_internal.h"
#include "tests/fuzz/fuzz.h"

#define ELEMENTS 50
#define START 16 /* of the matrix, which begins at element 5 */
#define HEADER_BYTES 64
#define RECORD_BYTES 24
#define STATE_BYTES (HEADER_BYTES + 3 * RECORD_BYTES + 2 * 4 * ELEMENTS + 4 * START)

static const spr_layout layout[] = {
    {7, "a", 0, 2, 2}, {3, "b", 4, 1, 1}, {1000, "c", 5, 5, 9}, /* in the order of offsets */
};
enum { MATRIX = 2 /* of them, in any order */, TARGETS = 3 };
/* With a velocity, of a low rank, with ratios of its own: the latter two have starts. */
static const char *const specs[TARGETS] = {"dgc:ratio=50%", "powersgd:rank=1",
                                           "adaptive:ratio=50%"};
static struct {
    spr_codec *codec;
    uint8_t base[STATE_BYTES]; /* the state before each input */
    size_t bytes;
} targets[TARGETS];

static float *start_of(spr_codec *codec, size_t p, size_t *floats)
{
    *floats = 0;
    if (codec->lowrank.state && p == MATRIX)
        return spr_lowrank_start(&codec->lowrank, MATRIX, floats);
    if (codec->adapt.count == 0)
        return NULL;
    *floats = sizeof(struct spr_adapt_memory) / sizeof(float);
    return (float *)&codec->adapt.parts[p].memory;
}

static void prepare(void)
{
    for (int t = 0; t < TARGETS && !targets[t].codec; t++) {
        spr_codec *codec;
        if (spr_codec_create(specs[t], layout, 3, &codec))
            abort();
        for (size_t i = 0; i < ELEMENTS; i++) {
            codec->residual[i] = (float)i - 5.5f;
            if (codec->velocity)
                codec->velocity[i] = 2 * codec->residual[i];
        }
        targets[t].codec = codec;
        targets[t].bytes = STATE_BYTES;
        FUZZ_CHECK(spr_codec_save(codec, targets[t].base, &targets[t].bytes) == SPR_OK);
    }
}

static uint64_t word(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static void repair(uint8_t *state, size_t bytes)
{
    static const uint32_t start[2] = {0x53525053u, 6};
    const uint64_t length = bytes;

    if (bytes < HEADER_BYTES)
        return;
    memcpy(state, start, 8);
    memcpy(state + 8, &length, 8);
    uint32_t crc = spr_crc32c(spr_crc32c(0, state, 32), state + 36, bytes - 36);
    memcpy(state + 32, &crc, 4);
}

/* What an accepted state says, read the plain way, against the codec that has accepted it. */
static void expect(spr_codec *codec, const uint8_t *state, size_t bytes, float vector[2][ELEMENTS])
{
    uint64_t parameters = word(state + 16), at = HEADER_BYTES + RECORD_BYTES * parameters;

    memset(vector, 0, 2 * sizeof *vector);
    FUZZ_CHECK(state[36] == 1 || state[36] == 2);
    for (uint64_t i = 0; i < parameters * (state[36] + 1u); i++) {
        const uint8_t *record = state + HEADER_BYTES + RECORD_BYTES * (i % parameters);
        bool starts = i / parameters == state[36];
        uint64_t id = word(record), floats = word(record + (starts ? 16 : 8));

        FUZZ_CHECK(floats <= (bytes - at) / 4);
        for (size_t p = 0; p < 3; p++) {
            if (layout[p].id != id)
                continue;
            if (starts) {
                size_t own;
                const float *now = start_of(codec, p, &own);

                FUZZ_CHECK(own != floats || own == 0 || memcmp(now, state + at, own * 4) == 0);
                continue;
            }
            FUZZ_CHECK(floats == layout[p].rows * layout[p].columns);
            memcpy(vector[i / parameters] + layout[p].offset, state + at, floats * 4);
        }
        at += floats * 4;
    }
    FUZZ_CHECK(at == bytes);
}

/* `again` is the state behind it. */
static void check_accepted(spr_codec *codec, const uint8_t *state, size_t bytes,
                           const uint8_t *again, size_t n)
{
    uint8_t twice[STATE_BYTES];
    float expected[2][ELEMENTS];

    expect(codec, state, bytes, expected);
    FUZZ_CHECK(memcmp(codec->residual, expected[0], sizeof expected[0]) == 0);
    FUZZ_CHECK(!codec->velocity || memcmp(codec->velocity, expected[1], sizeof expected[1]) == 0);
    for (int merge = 0; merge < 2; merge++) {
        FUZZ_CHECK((merge ? spr_codec_merge : spr_codec_load)(codec, again, n) == SPR_OK);
        FUZZ_CHECK(spr_codec_save(codec, twice, &n) == SPR_OK);
        FUZZ_CHECK(memcmp(again, twice, n) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t again[STATE_BYTES];
    size_t n = sizeof again;

    prepare();
    uint8_t mode = fuzz_u8(&in);
    size_t t = (mode >> 1 & 3u) % TARGETS;
    spr_codec *codec = targets[t].codec;
    const uint8_t *base = targets[t].base;
    size_t base_bytes = targets[t].bytes;
    FUZZ_CHECK(spr_codec_load(codec, base, base_bytes) == SPR_OK);
    size_t bytes = in.left;
    uint8_t *state = fuzz_rest(&in);
    if (mode & 1)
        repair(state, bytes);
    spr_status status = spr_codec_load(codec, state, bytes);
    FUZZ_CHECK(spr_codec_save(codec, again, &n) == SPR_OK && n == base_bytes);
    if (status == SPR_OK) {
        check_accepted(codec, state, bytes, again, n);
    } else {
        FUZZ_CHECK(status == SPR_ERR_CORRUPT || status == SPR_ERR_MISMATCH ||
                   status == SPR_ERR_UNSUPPORTED);
        FUZZ_CHECK(memcmp(again, base, base_bytes) == 0);
        FUZZ_CHECK(spr_codec_merge(codec, state, bytes) == status);
        FUZZ_CHECK(spr_codec_save(codec, again, &n) == SPR_OK && n == base_bytes);
        FUZZ_CHECK(memcmp(again, base, base_bytes) == 0);
    }
    free(state);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name;
        spr_layout layout[2];
        size_t count;
    } others[] = {
        {"other_size", {{3, "b", 0, 2, 1}}, 1},
        {"unknown_parameter", {{5, "x", 0, 3, 1}, {7, "a", 3, 4, 1}}, 2},
        {"some", {{1000, "c", 0, 5, 9}}, 1},
        {"other_shape", {{1000, "c", 0, 9, 5}}, 1},
    };
    static struct fuzz_seed s;

    prepare();
    static const char *const whole[] = {"whole",          "repaired",
                                        "whole_lowrank",  "repaired_lowrank",
                                        "whole_adaptive", "repaired_adaptive"};
    for (unsigned mode = 0; mode < 2 * TARGETS; mode++) {
        fuzz_put_u8(&s, mode);
        fuzz_put(&s, targets[mode >> 1].base, targets[mode >> 1].bytes);
        fuzz_emit_seed(whole[mode], &s);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        uint8_t state[512];
        size_t bytes = sizeof state;
        spr_codec *other;

        if (spr_codec_create(i < 3 ? "none" : "powersgd:rank=1", others[i].layout, others[i].count,
                             &other) ||
            spr_codec_save(other, state, &bytes))
            abort();
        spr_codec_destroy(other);
        fuzz_put_u8(&s, i < 3 ? 1 : 3);
        fuzz_put(&s, state, bytes);
        fuzz_emit_seed(others[i].name, &s);
    }
}
