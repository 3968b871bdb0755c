/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

static uint64_t load64(const void *bitmap, size_t word)
{
    uint64_t bits;
    memcpy(&bits, (const char *)bitmap + word * sizeof(bits), sizeof(bits));
    return bits;
}

void spr_scalar_add_at(float *acc, uint64_t *touched, const uint16_t *pos, const float *value,
                       size_t n)
{
    /* By byte, since neighbours in a 64-bit word would wait for each other's store. */
    uint8_t *bytes = (uint8_t *)touched;

    for (size_t i = 0; i < n; i++) {
        uint32_t p = pos[i];

        acc[p] = spr_add(acc[p], value[i]);
        bytes[p >> 3] = (uint8_t)(bytes[p >> 3] | 1u << (p & 7));
    }
}

size_t spr_scalar_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                           const float *value, size_t readable)
{
    size_t n = 0;

    (void)readable;
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = load64(bitmap, w);

        touched[w] |= bits;
        for (; bits; bits &= bits - 1) {
            float *at = acc + w * 64 + (size_t)__builtin_ctzll(bits);
            *at = spr_add(*at, value[n++]);
        }
    }
    return n;
}

size_t spr_scalar_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                         float *out)
{
    size_t k = 0;

    (void)readable;
    for (size_t at = 0; at < n; at += 64) {
        uint64_t bits = load64(bitmap, at / 64);

        memset(out + at, 0, (n - at < 64 ? n - at : 64) * sizeof(*out));
        for (; bits; bits &= bits - 1)
            out[at + (size_t)__builtin_ctzll(bits)] = value[k++];
    }
    return k;
}

void spr_scalar_clear(float *out, size_t n) { memset(out, 0, n * sizeof(*out)); }

size_t spr_scalar_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos)
{
    size_t n = 0;

    for (size_t w = 0; w < words; w++)
        for (uint64_t bits = load64(bitmap, w); bits; bits &= bits - 1)
            pos[n++] = (uint16_t)(first + w * 64 + (size_t)__builtin_ctzll(bits));
    return n;
}

size_t spr_scalar_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val)
{
    size_t n = 0;

    for (size_t w = 0; w < words; w++) {
        for (uint64_t bits = touched[w]; bits; bits &= bits - 1) {
            size_t p = w * 64 + (size_t)__builtin_ctzll(bits);

            pos[n] = (uint16_t)p;
            val[n] = acc[p];
            n++;
            acc[p] = 0;
        }
        touched[w] = 0;
    }
    return n;
}

uint64_t spr_scalar_popcount(const void *bitmap, size_t words)
{
    uint64_t n = 0;

    for (size_t w = 0; w < words; w++)
        n += (uint64_t)__builtin_popcountll(load64(bitmap, w));
    return n;
}

_Bool spr_scalar_ascending16(const uint16_t *pos, size_t n)
{
    _Bool bad = 0;

    for (size_t i = 1; i < n; i++)
        bad |= pos[i - 1] >= pos[i];
    return !bad;
}

_Bool spr_scalar_ascending32(const uint32_t *pos, size_t n)
{
    _Bool bad = 0;

    for (size_t i = 1; i < n; i++)
        bad |= pos[i - 1] >= pos[i];
    return !bad;
}
