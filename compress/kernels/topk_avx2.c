/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Two ways to emit, both reading memory once:
 *
 *   sparse  test 16 elements at a time, note the groups that hold something, and come back to those
 *           while they are in L1: no branch that depends on data, little work per empty group
 *   dense   compress every 8 lanes by a permutation from a table, store all 8, advance by the count
 */
#include "compress/kernels/topk_emit.h"

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx2.h"

static inline void put8(struct spr_sink *s, __m256i x, __m256i take, __m256i base)
{
    unsigned mask = spr_mask8(take);
    __m256i lanes = spr_row8(spr_lut_compress, mask);

    spr_store8(s->value + s->count, _mm256_permutevar8x32_epi32(x, lanes));
    spr_store8(s->index + s->count, _mm256_add_epi32(lanes, base));
    s->count += (size_t)__builtin_popcount(mask);
}

static inline __m256i add8(const float *r, const float *g)
{
    return _mm256_castps_si256(spr_add8(_mm256_loadu_ps(r), _mm256_loadu_ps(g)));
}

/*
 * The functions below emit from x. With feedback they emit from x + g instead, and what remains of
 * that goes to r, which is x.
 */

/* Elements i to i + 7. */
static inline void emit8(const float *x, float *r, const float *g, size_t i, __m256i low,
                         __m256i at, struct spr_sink *s)
{
    __m256i v = g ? add8(x + i, g + i) : spr_load8(x + i);
    __m256i take = _mm256_cmpgt_epi32(spr_magnitude8(v), low);

    if (g)
        spr_store8(r + i, _mm256_andnot_si256(take, v));
    put8(s, v, take, at);
}

/* n is a multiple of 16. */
static inline void emit_dense(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                              uint32_t base, struct spr_sink *s)
{
    const __m256i low = spr_at_least8(lo), eight = _mm256_set1_epi32(8);
    __m256i at = _mm256_set1_epi32((int)base);

    for (size_t i = 0; i < n; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        if (g)
            spr_ahead(g + i, SPR_AHEAD_BYTES);
        emit8(x, r, g, i, low, at, s);
        at = _mm256_add_epi32(at, eight);
        emit8(x, r, g, i + 8, low, at, s);
        at = _mm256_add_epi32(at, eight);
    }
}

/* n is a multiple of 16, at most SPR_EMIT_BLOCK. */
static inline void emit_sparse(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                               uint32_t base, struct spr_sink *s)
{
    const __m256i low = spr_at_least8(lo);
    uint32_t groups[SPR_EMIT_BLOCK / 16 + 1];
    size_t found = 0;

    for (size_t i = 0; i < n; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        if (g)
            spr_ahead(g + i, SPR_AHEAD_BYTES);
        __m256i a = g ? add8(x + i, g + i) : spr_load8(x + i);
        __m256i b = g ? add8(x + i + 8, g + i + 8) : spr_load8(x + i + 8);
        __m256i any = _mm256_or_si256(_mm256_cmpgt_epi32(spr_magnitude8(a), low),
                                      _mm256_cmpgt_epi32(spr_magnitude8(b), low));

        if (g) {
            spr_store8(r + i, a);
            spr_store8(r + i + 8, b);
        }
        groups[found] = (uint32_t)i;
        found += !_mm256_testz_si256(any, any);
    }
    for (size_t j = 0; j < found; j++)
        for (uint32_t i = groups[j]; i < groups[j] + 16; i += 8) {
            __m256i v = spr_load8(x + i); /* the sum, if there is one: r is x */
            __m256i take = _mm256_cmpgt_epi32(spr_magnitude8(v), low);

            put8(s, v, take, _mm256_set1_epi32((int)(base + i)));
            if (g)
                spr_store8(r + i, _mm256_andnot_si256(take, v));
        }
}

size_t spr_avx2_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                       uint32_t *index, float *value)
{
    return spr_emit(x, NULL, NULL, n, lo, base, dense, index, value, emit_dense, emit_sparse);
}

size_t spr_avx2_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                         _Bool dense, uint32_t *index, float *value)
{
    return spr_emit(r, r, g, n, lo, base, dense, index, value, emit_dense, emit_sparse);
}

/* m thresholds, a constant where this is called. */
static inline __attribute__((always_inline)) void
count_against(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts)
{
    __m256i low[SPR_COUNT_THRESHOLDS], sum[SPR_COUNT_THRESHOLDS];
    const size_t ahead = spr_ahead_in_order();

    for (size_t j = 0; j < m; j++) {
        low[j] = spr_at_least8(t[j]);
        sum[j] = _mm256_setzero_si256();
    }
    /* A lane counts to at most n / 8 <= 2^29. */
    for (size_t i = 0; i < n; i += 8) {
        spr_ahead(x + i, ahead);
        __m256i mag = spr_magnitude8(spr_load8(x + i));

        for (size_t j = 0; j < m; j++)
            sum[j] = _mm256_sub_epi32(sum[j], _mm256_cmpgt_epi32(mag, low[j]));
    }
    for (size_t j = 0; j < m; j++) {
        uint32_t lanes[8];

        spr_store8(lanes, sum[j]);
        for (size_t l = 0; l < 8; l++)
            counts[j] += lanes[l];
    }
}

void spr_avx2_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts)
{
    size_t done = n & ~(size_t)7;
    uint32_t padded[SPR_COUNT_THRESHOLDS] = {0};
    uint64_t sums[SPR_COUNT_THRESHOLDS] = {0};

    memcpy(padded, t, m * sizeof(*t));
    if (m <= 2)
        count_against(x, done, padded, 2, sums);
    else if (m <= 4)
        count_against(x, done, padded, 4, sums);
    else
        count_against(x, done, padded, SPR_COUNT_THRESHOLDS, sums);
    for (size_t j = 0; j < m; j++)
        counts[j] += sums[j];
    spr_scalar_count(x + done, n - done, t, m, counts);
}

size_t spr_avx2_split(const float *value, size_t n, uint32_t hi, uint32_t *below)
{
    const __m256i high = spr_at_least8(hi);
    size_t i = 0, m = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i key = spr_key8(spr_load8(value + i));
        unsigned mask = ~spr_mask8(_mm256_cmpgt_epi32(key, high)) & 0xff;
        __m256i lanes = spr_row8(spr_lut_compress, mask);

        spr_store8(below + m, _mm256_permutevar8x32_epi32(key, lanes));
        m += (size_t)__builtin_popcount(mask);
    }
    return m + spr_scalar_split(value + i, n - i, hi, below + m);
}

size_t spr_avx2_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                       size_t *quota, uint32_t *index_out, float *value_out, float *back)
{
    const __m256i limit = _mm256_set1_epi32((int)t);
    size_t i = 0, m = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = spr_load8(value + i), at = spr_load8(index + i), key = spr_key8(v);
        unsigned keep = spr_mask8(_mm256_cmpgt_epi32(key, limit));
        unsigned equal = spr_mask8(_mm256_cmpeq_epi32(key, limit));

        for (; equal && *quota > 0; equal &= equal - 1, --*quota)
            keep |= equal & -equal;
        /* Before the stores: the output may be the input. */
        if (back)
            for (unsigned drop = ~keep & 0xff; drop; drop &= drop - 1) {
                size_t l = i + (size_t)__builtin_ctz(drop);
                back[index[l]] = value[l];
            }
        __m256i lanes = spr_row8(spr_lut_compress, keep);
        spr_store8(value_out + m, _mm256_permutevar8x32_epi32(v, lanes));
        spr_store8(index_out + m, _mm256_permutevar8x32_epi32(at, lanes));
        m += (size_t)__builtin_popcount(keep);
    }
    return m + spr_scalar_filter(index + i, value + i, n - i, t, quota, index_out + m,
                                 value_out + m, back);
}
