/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coders (compress/indices/). Input: mode, universe (4 bytes), count (3 bytes); the bytes.
 *
 * Scalar and SIMD code must agree on whether they are indices, and on which. An accepted list
 * ascends below the universe, is what a second reader finds, has just these bytes for its encoding,
 * and comes in the same order out of a cursor that visits windows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/util.h"
#include "compress/indices/indices.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/index_reader.h"

enum {                /* mode */
       FIX_CODER = 1, /* a first byte that is known */
       FIX_COUNT = 2, /* at most the universe */
       SMALL = 8,     /* a universe below 2^18 */
};

#define MOST_COUNT (1u << 14)

static uint32_t list[2][MOST_COUNT + SPR_INDEX_SLACK];
static const struct spr_index_options options = {.rate = 1e9};

static void check_list(const uint32_t *x, size_t n, uint64_t universe)
{
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(x[i] < universe && (i == 0 || x[i] > x[i - 1]));
}

static void check_bytes(const uint8_t *bytes, size_t size, const uint32_t *x, size_t n,
                        uint64_t universe)
{
    const struct spr_index_coder *coder = spr_index_coder_at(bytes[0]);
    uint64_t sizes[SPR_INDEX_IDS];
    size_t bound = spr_index_bound(coder, universe, n);
    uint8_t *again = malloc(bound);

    FUZZ_CHECK(again && size <= bound);
    FUZZ_CHECK(spr_index_encode(coder, &options, x, n, universe, again) == size);
    FUZZ_CHECK(memcmp(again, bytes, size) == 0);
    spr_index_sizes(x, n, universe, sizes);
    FUZZ_CHECK(sizes[bytes[0]] == size);
    free(again);
}

static void check_windows(const uint8_t *bytes, size_t size, const uint32_t *x, size_t n,
                          uint64_t universe, uint64_t window)
{
    struct spr_index_cursor c;
    const uint32_t *some;
    const char *why;
    size_t done = 0, m;

    FUZZ_CHECK(spr_index_open(&c, bytes, size, universe, n, &why) == SPR_OK);
    for (uint64_t limit = window; limit < universe + window; limit += window) {
        while ((m = spr_index_next(&c, limit, &some)) > 0) {
            FUZZ_CHECK(m <= n - done && memcmp(some, x + done, 4 * m) == 0);
            done += m;
        }
        FUZZ_CHECK(!c.why && (done == n || x[done] >= limit));
    }
    FUZZ_CHECK(done == n);
}

static void run(const uint8_t *bytes, size_t size, uint64_t universe, size_t count)
{
    spr_status status[2];
    const char *why[2] = {NULL, NULL};

    for (int scalar = 0; scalar < 2; scalar++) {
        spr_cpu_override(scalar ? 0 : UINT32_MAX);
        status[scalar] = spr_index_decode(bytes, size, universe, count, list[scalar], &why[scalar]);
    }
    spr_cpu_override(UINT32_MAX);
    FUZZ_CHECK(status[0] == status[1] && why[0] == why[1] && !why[0] == (status[0] == SPR_OK));
    FUZZ_CHECK(spr_index_check(bytes, size, universe, count, &why[1]) == status[0]);
    if (status[0] != SPR_OK)
        return;
    FUZZ_CHECK(memcmp(list[0], list[1], 4 * count) == 0);
    check_list(list[0], count, universe);
    reader_list(bytes, count, universe, list[1]);
    FUZZ_CHECK(memcmp(list[0], list[1], 4 * count) == 0);
    check_bytes(bytes, size, list[0], count, universe);
    uint64_t window = universe / 64 < 1000 ? 1000 : universe / 64;
    check_windows(bytes, size, list[0], count, universe, window);
}

/* Does it fit this target's arrays, and its time? A bitmap of 2^32 positions would not. */
static bool within(uint64_t universe, size_t count)
{
    return count <= MOST_COUNT && (universe < 1u << 22 || count < 1000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t mode = fuzz_u8(&in);
    uint64_t universe = (uint64_t)fuzz_u32(&in) + 1;
    size_t count = (size_t)fuzz_number(&in, 3);

    if (mode & SMALL)
        universe &= 0x3ffff;
    if (mode & FIX_COUNT && count > universe)
        count = (size_t)universe;
    if (!within(universe, count))
        return 0;
    size_t left = in.left;
    uint8_t *bytes = fuzz_rest(&in);
    if (mode & FIX_CODER && left > 0)
        bytes[0] %= SPR_INDEX_IDS;
    run(bytes, left, universe, count);
    free(bytes);
    return 0;
}

/* ---- Seeds ---- */

static void seed(unsigned mode, uint64_t universe, size_t count, const void *bytes, size_t size,
                 const char *name)
{
    static struct fuzz_seed s;

    fuzz_put_u8(&s, mode);
    fuzz_put_u16(&s, (unsigned)(universe - 1) & 0xffff);
    fuzz_put_u16(&s, (unsigned)((universe - 1) >> 16));
    fuzz_put_u16(&s, (unsigned)count & 0xffff);
    fuzz_put_u8(&s, (unsigned)(count >> 16));
    fuzz_put(&s, bytes, size);
    fuzz_emit_seed(name, &s);
}

static size_t make_list(size_t n, uint32_t gap)
{
    uint32_t at = 0;

    for (size_t i = 0; i < n; i++) {
        at += 1 + (uint32_t)(i * i * 2654435761u >> 7) % gap;
        list[0][i] = at;
    }
    return n > 0 ? (size_t)at + 1 : 1;
}

static void seeds_of(size_t n, uint32_t gap)
{
    uint64_t universe = make_list(n, gap);
    char name[64];

    for (size_t id = 0; id < SPR_INDEX_IDS; id++) {
        const struct spr_index_coder *coder = spr_index_coder_at(id);
        uint8_t *bytes = malloc(spr_index_bound(coder, universe, n));

        FUZZ_CHECK(bytes);
        size_t size = spr_index_encode(coder, &options, list[0], n, universe, bytes);
        snprintf(name, sizeof name, "%s_%zu_of_%llu", spr_index_coder_name(coder), n,
                 (unsigned long long)universe);
        if (size <= 4096)
            seed(0, universe, n, bytes, size, name);
        free(bytes);
    }
}

void fuzz_seeds(void)
{
    seeds_of(0, 1);
    seeds_of(1, 90);
    seeds_of(3, 20);
    seeds_of(40, 9);
    seeds_of(256, 30);
    seeds_of(300, 3);
    seeds_of(600, 200);
    seeds_of(500, 2);
}
