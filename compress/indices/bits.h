/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bits in bytes, low ones first. No alignment is needed.
 */
#ifndef SPR_COMPRESS_INDICES_BITS_H
#define SPR_COMPRESS_INDICES_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t spr_bits_load(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

static inline void spr_bits_store(uint8_t *at, uint64_t v) { memcpy(at, &v, sizeof(v)); }

/* Eight bytes, zeros from `end` on. */
static inline uint64_t spr_bits_load_until(const uint8_t *at, const uint8_t *end)
{
    uint64_t v = 0;

    if (end - at >= 8)
        return spr_bits_load(at);
    if (at < end)
        memcpy(&v, at, (size_t)(end - at));
    return v;
}

static inline size_t spr_bits_bytes(size_t bits) { return (bits + 7) / 8; }

/* n values of `width` <= 32 bits, one after the other; the rest of the last byte is zero. Returns
 * the end. Up to 8 bytes behind it are overwritten. */
static inline uint8_t *spr_bits_put(const uint32_t *value, size_t n, unsigned width, uint8_t *out)
{
    uint8_t *at = out;
    uint64_t bits = 0;
    unsigned have = 0;

    spr_bits_store(at, 0);
    for (size_t i = 0; i < n; i++) {
        bits |= (uint64_t)value[i] << have;
        spr_bits_store(at, bits);
        have += width;
        at += have / 8;
        bits >>= have / 8 * 8;
        have %= 8;
    }
    return out + spr_bits_bytes(n * width);
}

/* The inverse. Reads spr_bits_bytes(n * width) bytes; returns whether the rest of the last is
 * zero. */
static inline bool spr_bits_get(const uint8_t *in, size_t n, unsigned width, uint32_t *value)
{
    const uint8_t *end = in + spr_bits_bytes(n * width);
    uint64_t mask = (UINT64_C(1) << width) - 1;
    size_t bit = 0;

    for (size_t i = 0; i < n; i++, bit += width)
        value[i] = (uint32_t)(spr_bits_load_until(in + bit / 8, end) >> bit % 8 & mask);
    return bit % 8 == 0 || end[-1] >> bit % 8 == 0;
}

#endif
