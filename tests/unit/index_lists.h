/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Lists of positions for the tests of index coders. Integers only, so that they are the same
 * everywhere.
 */
#ifndef TESTS_UNIT_INDEX_LISTS_H
#define TESTS_UNIT_INDEX_LISTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum list {
    LIST_UNIFORM,   /* every position alike */
    LIST_CLUSTERED, /* 4096 in a row alike, their density from 1/57 to 4.5 of the mean */
    LIST_RUNS,      /* 32 positions in a row, or none of them */
    LIST_COMB,      /* equal distances */
    LIST_KINDS
};

static const char *const list_names[LIST_KINDS] = {"uniform", "clustered", "runs", "comb"};

/* Is position i taken, at `ppm` positions of a million? */
static inline int list_takes(enum list kind, uint32_t i, uint32_t ppm, uint64_t seed)
{
    uint64_t part = ((uint64_t)ppm << 32) / 1000000, salt = seed << 32;

    switch (kind) {
    case LIST_CLUSTERED:
        part = (part << spr_hash_u32(salt + (i >> 12) + 1) % 9) * 9 / 511;
        return spr_hash_u32(~salt + i) < part;
    case LIST_RUNS:
        return spr_hash_u32(salt + (i >> 5)) < part;
    case LIST_COMB:
        return i % (1000000 / ppm) == 3 % (1000000 / ppm);
    default:
        return spr_hash_u32(salt + i) < part;
    }
}

/* Returns how many; x has room for `universe`. */
static inline size_t list_fill(enum list kind, uint32_t universe, uint32_t ppm, uint64_t seed,
                               uint32_t *x)
{
    size_t n = 0;

    for (uint32_t i = 0; i < universe; i++)
        if (list_takes(kind, i, ppm, seed))
            x[n++] = i;
    return n;
}

/* Gaps up to `most`, and now and then a large one. Returns how many of n are below the universe. */
static inline size_t list_random(struct spr_rng *rng, size_t n, uint64_t universe, uint64_t most,
                                 uint32_t *x)
{
    uint64_t at = spr_rng_below(rng, most + 1);

    for (size_t i = 0; i < n; i++) {
        if (at >= universe)
            return i;
        x[i] = (uint32_t)at;
        at += 1 + spr_rng_below(rng, most + 1);
        if (spr_rng_below(rng, 1000) == 0)
            at += spr_rng_below(rng, 300 * most + 1);
    }
    return n;
}

/* Bytes in memory of just that size, so that a step beyond them is seen, at copy + 1, which is an
 * odd address; free(copy). */
static inline uint8_t *list_bytes_copy(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        abort();
    if (size > 0)
        memcpy(copy + 1, bytes, size);
    return copy;
}

#endif
