/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A second decoder of index lists, written after docs/wire-format.md and not after the library: a
 * bit at a time. It trusts its input, which the library has accepted.
 */
#ifndef TESTS_UNIT_INDEX_READER_H
#define TESTS_UNIT_INDEX_READER_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t reader_number(const uint8_t *bytes, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)bytes[i] << 8 * i;
    return v;
}

static inline unsigned reader_bit(const uint8_t *bytes, size_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Value i of m of w bits. */
static inline uint64_t reader_value(const uint8_t *bytes, size_t i, size_t m, unsigned w)
{
    uint64_t v = 0;

    for (unsigned b = 0; b < w; b++) {
        size_t bit = i * w + b;

        if (m == 256) { /* bit i / 8 * w + b of lane i % 8, of which 32 are in every eighth word */
            size_t of_lane = i / 8 * w + b;
            bit = (of_lane / 32 * 8 + i % 8) * 32 + of_lane % 32;
        }
        v |= (uint64_t)reader_bit(bytes, bit) << b;
    }
    return v;
}

/* Blocks read m gaps, and return the bytes that these take. */
static inline size_t reader_bitpack(const uint8_t *block, size_t m, uint64_t *gap)
{
    for (size_t i = 0; i < m; i++)
        gap[i] = reader_value(block + 1, i, m, block[0]);
    return 1 + (m * block[0] + 7) / 8;
}

static inline size_t reader_eliasfano(const uint8_t *block, size_t m, uint64_t *gap)
{
    unsigned w = block[0];
    const uint8_t *ones = block + 2 + (m * w + 7) / 8;
    uint64_t before = 0;

    for (size_t i = 0, bit = 0; i < m; i++, bit++) {
        while (!reader_bit(ones, bit))
            bit++;
        uint64_t y = (uint64_t)(bit - i) << w | reader_value(block + 2, i, m, w);
        gap[i] = y - before;
        before = y;
    }
    return 2 + (m * w + 7) / 8 + block[1];
}

static inline size_t reader_golomb(const uint8_t *block, size_t m, uint64_t *gap)
{
    size_t bit = 8;

    for (size_t i = 0; i < m; i++) {
        gap[i] = 0;
        for (; !reader_bit(block, bit); bit++)
            gap[i] += UINT64_C(1) << block[0];
        bit++;
        for (unsigned b = 0; b < block[0]; b++, bit++)
            gap[i] += (uint64_t)reader_bit(block, bit) << b;
    }
    return (bit + 7) / 8;
}

static inline void reader_blocks(const uint8_t *bytes, size_t n, uint32_t *x)
{
    size_t (*const read[])(const uint8_t *, size_t, uint64_t *) = {reader_bitpack, reader_eliasfano,
                                                                   reader_golomb};
    const uint8_t *at = bytes + 1;
    uint64_t gap[256], next = 0;

    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;

        at += read[bytes[0] - 3](at, m, gap);
        for (size_t j = 0; j < m; j++, next++)
            x[i + j] = (uint32_t)(next += gap[j]);
    }
}

static inline void reader_list(const uint8_t *bytes, size_t n, uint64_t universe, uint32_t *x)
{
    const uint8_t *in = bytes + 1, *low = in + 4 * ((universe + 65535) / 65536);
    uint64_t window = 0, bit = 0, left = 0;

    if (n > 0 && bytes[0] >= 3) {
        reader_blocks(bytes, n, x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (bytes[0] == 0) {
            x[i] = (uint32_t)reader_number(in + 4 * i, 4);
        } else if (bytes[0] == 1) {
            while (left == 0)
                left = reader_number(in + 4 * window++, 4);
            left--;
            x[i] = (uint32_t)((window - 1) * 65536 + reader_number(low + 2 * i, 2));
        } else {
            while (!reader_bit(in, bit))
                bit++;
            x[i] = (uint32_t)bit++;
        }
    }
}

#endif
