/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/values/elias.h"

#include <string.h>

#include "compress/values/group.h"

/* ---- The code of N < 2^16: `bits` of them, right-aligned ---- */

struct word {
    uint32_t value;
    unsigned bits;
};

static unsigned log2_of(uint32_t n) { return 31u - (unsigned)__builtin_clz(n); }

static struct word omega_of(uint32_t n)
{
    struct word w = {0, 1};

    for (; n > 1; n = log2_of(n)) {
        w.value |= n << w.bits;
        w.bits += log2_of(n) + 1;
    }
    return w;
}

/* ---- Bits ---- */

struct writer {
    uint64_t bits; /* the lower `held` ones; fewer than 32 between calls */
    unsigned held;
    uint8_t *out;
};

static void put(struct writer *w, uint32_t value, unsigned bits)
{
    w->bits = w->bits << bits | value;
    w->held += bits;
    if (w->held >= 32) {
        w->held -= 32;
        spr_store_u32(w->out, __builtin_bswap32((uint32_t)(w->bits >> w->held)));
        w->out += 4;
    }
}

static void put_omega(struct writer *w, uint32_t n)
{
    struct word word = omega_of(n);
    put(w, word.value, word.bits);
}

struct reader {
    const uint8_t *in;
    size_t size;
    size_t at;     /* bytes that were loaded */
    uint64_t bits; /* the upper `held` ones; the others are zero */
    unsigned held;
};

/* 1 to 32 bits; false when there are not so many. A word is loaded when a bit of it is needed. */
static bool get(struct reader *r, unsigned bits, uint32_t *value)
{
    if (r->held < bits) {
        if (r->size - r->at < 4)
            return false;
        r->bits |= (uint64_t)__builtin_bswap32(spr_load_u32(r->in + r->at)) << (32 - r->held);
        r->held += 32;
        r->at += 4;
    }
    *value = (uint32_t)(r->bits >> (64 - bits));
    r->bits <<= bits;
    r->held -= bits;
    return true;
}

/* False when it is above `most` (below 2^16), too. */
static bool get_omega(struct reader *r, uint32_t most, uint32_t *n)
{
    uint32_t bit, rest;

    *n = 1;
    while (get(r, 1, &bit)) {
        if (bit == 0)
            return true;
        if (*n > 16 || !get(r, *n, &rest))
            return false;
        *n = 1u << *n | rest;
        if (*n > most)
            return false;
    }
    return false;
}

/* ---- Codes ---- */

size_t spr_elias_bound(size_t n, int levels, bool sparse)
{
    size_t one = omega_of((uint32_t)levels + !sparse).bits + 1;

    /* A level at a distance of d takes at most d times the bits of one at a distance of 1. */
    if (sparse)
        return spr_padded(n * (one + 1) + omega_of((uint32_t)n + 1).bits);
    return spr_padded(n * one);
}

static void put_sign(struct writer *w, int8_t code) { put(w, code < 0, 1); }

static uint32_t level_of(int8_t code) { return (uint32_t)(code < 0 ? -code : code); }

size_t spr_elias_encode(const int8_t *code, size_t n, bool sparse, uint8_t *out)
{
    struct writer w = {.out = out};
    size_t before = 0; /* positions up to the last one written */

    for (size_t i = 0; i < n; i++) {
        if (!sparse)
            put_omega(&w, level_of(code[i]) + 1);
        if (code[i] == 0)
            continue;
        if (sparse)
            put_omega(&w, (uint32_t)(i + 1 - before));
        put_sign(&w, code[i]);
        if (sparse)
            put_omega(&w, level_of(code[i]));
        before = i + 1;
    }
    if (sparse)
        put_omega(&w, (uint32_t)(n + 1 - before));
    if (w.held)
        put(&w, 0, 32 - w.held);
    return (size_t)(w.out - out);
}

static bool get_dense(struct reader *r, size_t n, int levels, int8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t level, sign = 0;

        if (!get_omega(r, (uint32_t)levels + 1, &level))
            return false;
        level--;
        if (level && !get(r, 1, &sign))
            return false;
        code[i] = (int8_t)(sign ? -(int)level : (int)level);
    }
    return true;
}

static bool get_sparse(struct reader *r, size_t n, int levels, int8_t *code)
{
    uint32_t distance, sign, level;
    size_t at = 0;

    memset(code, 0, n);
    while (get_omega(r, (uint32_t)(n + 1 - at), &distance)) {
        at += distance;
        if (at == n + 1)
            return true;
        if (!get(r, 1, &sign) || !get_omega(r, (uint32_t)levels, &level))
            return false;
        code[at - 1] = (int8_t)(sign ? -(int)level : (int)level);
    }
    return false;
}

size_t spr_elias_decode(const uint8_t *in, size_t size, size_t n, int levels, bool sparse,
                        int8_t *code)
{
    struct reader r = {.in = in, .size = size};

    if (!(sparse ? get_sparse : get_dense)(&r, n, levels, code))
        return 0;
    return r.bits == 0 ? r.at : 0;
}
