/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Saved states of codecs (compress/codec_state.c). Input: mode (bit 0: right magic, version, length
 * and checksum), the state.
 */
#include <stdlib.h>

#include "base/crc32c.h"
#include "compress/codec_internal.h"
#include "tests/fuzz/fuzz.h"

#define ELEMENTS 14
#define HEADER_BYTES 48
#define STATE_BYTES (HEADER_BYTES + 3 * 16 + 2 * 4 * ELEMENTS)

static const spr_layout layout[] = {
    {7, "a", 0, 2, 2}, {3, "b", 4, 1, 1}, {1000, "c", 5, 9, 1}, /* in the order of offsets */
};
static spr_codec *codec;
static uint8_t base[STATE_BYTES]; /* the state before each input */

static void prepare(void)
{
    size_t bytes = sizeof base;

    if (codec)
        return;
    if (spr_codec_create("dgc:ratio=50%", layout, 3, &codec))
        abort();
    for (size_t i = 0; i < ELEMENTS; i++)
        codec->velocity[i] = 2 * (codec->residual[i] = (float)i - 5.5f);
    FUZZ_CHECK(spr_codec_save(codec, base, &bytes) == SPR_OK && bytes == sizeof base);
}

static uint64_t word(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static void repair(uint8_t *state, size_t bytes)
{
    static const uint32_t start[2] = {0x53525053u, 3};
    const uint64_t length = bytes;

    if (bytes < HEADER_BYTES)
        return;
    memcpy(state, start, 8);
    memcpy(state + 8, &length, 8);
    uint32_t crc = spr_crc32c(spr_crc32c(0, state, 32), state + 36, bytes - 36);
    memcpy(state + 32, &crc, 4);
}

/* What an accepted state says, read the plain way. */
static void expect(const uint8_t *state, size_t bytes, float vector[2][ELEMENTS])
{
    uint64_t parameters = word(state + 16), at = HEADER_BYTES + 16 * parameters;

    memset(vector, 0, 2 * sizeof *vector);
    FUZZ_CHECK(state[36] == 1 || state[36] == 2);
    for (uint64_t i = 0; i < parameters * state[36]; i++) {
        const uint8_t *record = state + HEADER_BYTES + 16 * (i % parameters);
        uint64_t id = word(record), elements = word(record + 8);

        FUZZ_CHECK(elements <= (bytes - at) / 4);
        for (size_t p = 0; p < 3; p++) {
            if (layout[p].id != id)
                continue;
            FUZZ_CHECK(elements == layout[p].rows * layout[p].columns);
            memcpy(vector[i / parameters] + layout[p].offset, state + at, elements * 4);
        }
        at += elements * 4;
    }
    FUZZ_CHECK(at == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t again[STATE_BYTES], twice[STATE_BYTES];
    float expected[2][ELEMENTS];
    size_t n = sizeof again;

    prepare();
    FUZZ_CHECK(spr_codec_load(codec, base, sizeof base) == SPR_OK);
    uint8_t mode = fuzz_u8(&in);
    size_t bytes = in.left;
    uint8_t *state = fuzz_rest(&in);
    if (mode & 1)
        repair(state, bytes);
    spr_status status = spr_codec_load(codec, state, bytes);
    FUZZ_CHECK(spr_codec_save(codec, again, &n) == SPR_OK && n == sizeof again);
    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_CORRUPT || status == SPR_ERR_MISMATCH ||
                   status == SPR_ERR_UNSUPPORTED);
        FUZZ_CHECK(memcmp(again, base, sizeof base) == 0);
    } else {
        expect(state, bytes, expected);
        FUZZ_CHECK(memcmp(codec->residual, expected[0], sizeof expected[0]) == 0);
        FUZZ_CHECK(memcmp(codec->velocity, expected[1], sizeof expected[1]) == 0);
        FUZZ_CHECK(spr_codec_load(codec, again, sizeof again) == SPR_OK);
        FUZZ_CHECK(spr_codec_save(codec, twice, &n) == SPR_OK);
        FUZZ_CHECK(memcmp(again, twice, sizeof again) == 0);
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
        {"some", {{1000, "c", 0, 9, 1}}, 1},
    };
    static struct fuzz_seed s;

    prepare();
    for (unsigned mode = 0; mode < 2; mode++) {
        fuzz_put_u8(&s, mode);
        fuzz_put(&s, base, sizeof base);
        fuzz_emit_seed(mode ? "repaired" : "whole", &s);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        uint8_t state[512];
        size_t bytes = sizeof state;
        spr_codec *other;

        if (spr_codec_create("none", others[i].layout, others[i].count, &other) ||
            spr_codec_save(other, state, &bytes))
            abort();
        spr_codec_destroy(other);
        fuzz_put_u8(&s, 1);
        fuzz_put(&s, state, bytes);
        fuzz_emit_seed(others[i].name, &s);
    }
}
