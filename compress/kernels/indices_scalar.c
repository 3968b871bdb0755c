/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/indices.h"

#include <string.h>

#include "base/cpu.h"

#define LANES 8
#define ROWS (SPR_INDEX_BLOCK / LANES)

static uint32_t gaps(const uint32_t *x, size_t n, uint32_t first, uint32_t *gap)
{
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++) {
        gap[i] = x[i] - first;
        first = x[i] + 1;
        any |= gap[i];
    }
    return any;
}

static uint32_t sums(const uint32_t *gap, size_t n, uint32_t first, uint32_t *x)
{
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++) {
        any |= gap[i];
        x[i] = first + gap[i];
        first = x[i] + 1;
    }
    return any;
}

static void store32(uint8_t *out, size_t word, uint32_t v) { memcpy(out + 4 * word, &v, 4); }

static uint32_t load32(const uint8_t *in, size_t word)
{
    uint32_t v;
    memcpy(&v, in + 4 * word, 4);
    return v;
}

static void pack(const uint32_t *value, unsigned width, uint8_t *out)
{
    for (size_t lane = 0; lane < LANES; lane++) {
        uint64_t bits = 0;
        unsigned have = 0;
        size_t word = lane;

        for (size_t row = 0; row < ROWS; row++) {
            bits |= (uint64_t)value[LANES * row + lane] << have;
            have += width;
            if (have >= 32) {
                store32(out, word, (uint32_t)bits);
                word += LANES;
                bits >>= 32;
                have -= 32;
            }
        }
    }
}

static void unpack(const uint8_t *in, unsigned width, uint32_t *value)
{
    uint32_t mask = (uint32_t)((UINT64_C(1) << width) - 1);

    for (size_t lane = 0; lane < LANES; lane++) {
        uint64_t bits = 0;
        unsigned have = 0;
        size_t word = lane;

        for (size_t row = 0; row < ROWS; row++) {
            if (have < width) {
                bits |= (uint64_t)load32(in, word) << have;
                word += LANES;
                have += 32;
            }
            value[LANES * row + lane] = (uint32_t)bits & mask;
            bits >>= width;
            have -= width;
        }
    }
}

static void split(const uint32_t *x, size_t n, uint32_t first, unsigned width, uint32_t *low,
                  uint32_t *one)
{
    uint32_t mask = (UINT32_C(1) << width) - 1;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t y = x[i] - first - i;

        low[i] = y & mask;
        one[i] = (y >> width) + i;
    }
}

static _Bool join(const uint32_t *low, const uint32_t *one, size_t n, uint32_t first,
                  unsigned width, uint32_t *x)
{
    _Bool rising = 1;
    uint32_t before = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t y = (one[i] - i) << width | low[i];

        rising &= y >= before;
        before = y;
        x[i] = first + y + i;
    }
    return rising;
}

static size_t ones(const uint8_t *bits, size_t bytes, uint32_t first, uint32_t *x)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        for (unsigned byte = bits[i]; byte; byte &= byte - 1)
            x[n++] = first + (uint32_t)(8 * i) + (uint32_t)__builtin_ctz(byte);
    return n;
}

/* A word is stored again with each bit in it: no load has to wait for a store. */
static void set(const uint32_t *x, size_t n, uint8_t *bits)
{
    uint64_t word = 0;
    uint32_t at = 0;

    for (size_t i = 0; i < n; i++) {
        word = x[i] / 64 == at ? word : 0;
        at = x[i] / 64;
        word |= UINT64_C(1) << x[i] % 64;
        memcpy(bits + 8 * (size_t)at, &word, sizeof(word));
    }
}

const struct spr_indices_kernels spr_indices_scalar = {
    .name = "scalar",
    .gaps = gaps,
    .sums = sums,
    .pack = pack,
    .unpack = unpack,
    .split = split,
    .join = join,
    .ones = ones,
    .set = set,
};

const struct spr_indices_kernels *spr_indices_kernels(void)
{
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return &spr_indices_avx2;
#endif
#ifdef HAVE_ARM64
    if (spr_cpu_features() & SPR_CPU_NEON)
        return &spr_indices_neon;
#endif
    return &spr_indices_scalar;
}
