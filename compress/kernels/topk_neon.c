/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Two ways to emit, as in topk_avx2.c:
 *
 *   sparse  test 16 elements at a time, note the groups that hold something, and come back to those
 *           while they are in L1: no branch that depends on data, little work per empty group
 *   dense   compress every 4 lanes by a permutation from a table, store all 4, advance by the count
 */
#include "compress/kernels/topk_emit.h"

#include "compress/kernels/lanes_neon.h"

static inline uint32x4_t at_least(uint32x4_t x, uint32_t lo)
{
    return vcgeq_u32(spr_magnitude4(x), vdupq_n_u32(lo));
}

/* Elements at, at + 1, ... of which some are taken. */
static inline void put4(struct spr_sink *s, uint32x4_t x, uint32x4_t take, uint32_t at)
{
    unsigned mask = spr_mask4(take);
    uint32x4_t index = vaddq_u32(vdupq_n_u32(at), spr_ramp4());

    spr_store4(s->value + s->count, spr_compress4(x, mask));
    vst1q_u32(s->index + s->count, spr_compress4(index, mask));
    s->count += spr_count4(mask);
}

static inline uint32x4_t add4(const float *r, const float *g)
{
    return vreinterpretq_u32_f32(vaddq_f32(vld1q_f32(r), vld1q_f32(g)));
}

/*
 * The functions below emit from x. With feedback they emit from x + g instead, and what remains of
 * that goes to r, which is x.
 */

/* n is a multiple of 16. */
static inline void emit_dense(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                              uint32_t base, struct spr_sink *s)
{
    for (size_t i = 0; i < n; i += 4) {
        uint32x4_t v = g ? add4(x + i, g + i) : spr_bits4(x + i), take = at_least(v, lo);

        if (g)
            spr_store4(r + i, vbicq_u32(v, take));
        put4(s, v, take, base + (uint32_t)i);
    }
}

/* The largest magnitude of 16 elements, which are left in r with feedback. */
static inline uint32_t most16(const float *x, float *r, const float *g)
{
    uint32x4_t most = vdupq_n_u32(0);

    for (size_t k = 0; k < 16; k += 4) {
        uint32x4_t v = g ? add4(x + k, g + k) : spr_bits4(x + k);

        if (g)
            spr_store4(r + k, v);
        most = vmaxq_u32(most, spr_magnitude4(v));
    }
    return vmaxvq_u32(most);
}

/* n is a multiple of 16, at most SPR_EMIT_BLOCK. */
static inline void emit_sparse(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                               uint32_t base, struct spr_sink *s)
{
    uint32_t groups[SPR_EMIT_BLOCK / 16 + 1];
    size_t found = 0;

    for (size_t i = 0; i < n; i += 16) {
        groups[found] = (uint32_t)i;
        found += most16(x + i, r ? r + i : NULL, g ? g + i : NULL) >= lo;
    }
    for (size_t j = 0; j < found; j++)
        for (uint32_t i = groups[j]; i < groups[j] + 16; i += 4) {
            uint32x4_t v = spr_bits4(x + i); /* the sum, if there is one: r is x */
            uint32x4_t take = at_least(v, lo);

            put4(s, v, take, base + i);
            if (g)
                spr_store4(r + i, vbicq_u32(v, take));
        }
}

size_t spr_neon_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                       uint32_t *index, float *value)
{
    return spr_emit(x, NULL, NULL, n, lo, base, dense, index, value, emit_dense, emit_sparse);
}

size_t spr_neon_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                         _Bool dense, uint32_t *index, float *value)
{
    return spr_emit(r, r, g, n, lo, base, dense, index, value, emit_dense, emit_sparse);
}

/* m thresholds, a constant where this is called. */
static inline __attribute__((always_inline)) void
count_against(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts)
{
    uint32x4_t low[SPR_COUNT_THRESHOLDS], sum[SPR_COUNT_THRESHOLDS];

    for (size_t j = 0; j < m; j++) {
        low[j] = vdupq_n_u32(t[j]);
        sum[j] = vdupq_n_u32(0);
    }
    /* A lane counts to at most n / 4 <= 2^30. */
    for (size_t i = 0; i < n; i += 4) {
        uint32x4_t mag = spr_magnitude4(spr_bits4(x + i));

        for (size_t j = 0; j < m; j++)
            sum[j] = vsubq_u32(sum[j], vcgeq_u32(mag, low[j]));
    }
    for (size_t j = 0; j < m; j++)
        counts[j] = vaddlvq_u32(sum[j]);
}

void spr_neon_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts)
{
    size_t done = n & ~(size_t)3;
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

size_t spr_neon_split(const float *value, size_t n, uint32_t hi, uint32_t *below)
{
    const uint32x4_t high = vdupq_n_u32(hi);
    size_t i = 0, m = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t key = spr_key4(spr_bits4(value + i));
        unsigned mask = spr_mask4(vcltq_u32(key, high));

        vst1q_u32(below + m, spr_compress4(key, mask));
        m += spr_count4(mask);
    }
    return m + spr_scalar_split(value + i, n - i, hi, below + m);
}

size_t spr_neon_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                       size_t *quota, uint32_t *index_out, float *value_out, float *back)
{
    const uint32x4_t limit = vdupq_n_u32(t);
    size_t i = 0, m = 0;

    for (; i + 4 <= n; i += 4) {
        uint32x4_t v = spr_bits4(value + i), at = vld1q_u32(index + i), key = spr_key4(v);
        unsigned keep = spr_mask4(vcgtq_u32(key, limit));
        unsigned equal = spr_mask4(vceqq_u32(key, limit));

        for (; equal && *quota > 0; equal &= equal - 1, --*quota)
            keep |= equal & -equal;
        /* Before the stores: the output may be the input. */
        if (back)
            for (unsigned drop = ~keep & 15; drop; drop &= drop - 1) {
                size_t l = i + (size_t)__builtin_ctz(drop);
                back[index[l]] = value[l];
            }
        spr_store4(value_out + m, spr_compress4(v, keep));
        vst1q_u32(index_out + m, spr_compress4(at, keep));
        m += spr_count4(keep);
    }
    return m + spr_scalar_filter(index + i, value + i, n - i, t, quota, index_out + m,
                                 value_out + m, back);
}
