/* SPDX-License-Identifier: BSD-2-Clause
 *
 * As topk_avx2.c, with a compression in place of the table.
 */
#include "compress/kernels/topk_emit.h"

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx512.h"

static inline void put16(struct spr_sink *s, __m512i x, __mmask16 take, uint32_t base)
{
    __m512i at = _mm512_add_epi32(spr_ramp16(), spr_splat16(base));

    spr_store16(s->value + s->count, _mm512_maskz_compress_epi32(take, x));
    spr_store16(s->index + s->count, _mm512_maskz_compress_epi32(take, at));
    s->count += spr_lanes(take);
}

static inline __m512i add16(const float *r, const float *g)
{
    return _mm512_castps_si512(_mm512_add_ps(_mm512_loadu_ps(r), _mm512_loadu_ps(g)));
}

/* Emits from x. With feedback it emits from x + g instead, and what remains of that goes to r,
 * which is x. n is a multiple of 16, here and below. */
static inline void emit_dense(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                              uint32_t base, struct spr_sink *s)
{
    const __m512i low = spr_splat16(lo);

    for (size_t i = 0; i < n; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        if (g)
            spr_ahead(g + i, SPR_AHEAD_BYTES);
        __m512i v = g ? add16(x + i, g + i) : spr_load16(x + i);
        __mmask16 take = spr_at_least16(v, low);

        if (g)
            spr_store16(r + i, _mm512_maskz_mov_epi32((__mmask16)~take, v));
        put16(s, v, take, base + (uint32_t)i);
    }
}

/* n is at most SPR_EMIT_BLOCK. */
/* Without feedback. */
static inline void emit_sparse(const float *x, float *r, const float *g, size_t n, uint32_t lo,
                               uint32_t base, struct spr_sink *s)
{
    const __m512i low = spr_splat16(lo);
    uint32_t groups[SPR_EMIT_BLOCK / 16 + 1];
    size_t found = 0;

    (void)r;
    (void)g;
    for (size_t i = 0; i < n; i += 16) {
        spr_ahead(x + i, SPR_AHEAD_BYTES);
        groups[found] = (uint32_t)i;
        found += spr_at_least16(spr_load16(x + i), low) != 0;
    }
    for (size_t j = 0; j < found; j++) {
        __m512i v = spr_load16(x + groups[j]);

        put16(s, v, spr_at_least16(v, low), base + groups[j]);
    }
}

size_t spr_avx512_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                         uint32_t *index, float *value)
{
    return spr_emit(x, NULL, NULL, n, lo, base, dense, index, value, emit_dense, emit_sparse);
}

size_t spr_avx512_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                           _Bool dense, uint32_t *index, float *value)
{
    if (!dense) /* wider vectors make the two stages no faster */
        return spr_avx2_feedback(r, g, n, lo, base, dense, index, value);
    return spr_emit(r, r, g, n, lo, base, 1, index, value, emit_dense, emit_sparse);
}

size_t spr_avx512_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                         size_t *quota, uint32_t *index_out, float *value_out, float *back)
{
    const __m512i limit = spr_splat16(t);
    size_t i = 0, m = 0;

    for (; i + 16 <= n; i += 16) {
        __m512i v = spr_load16(value + i), at = spr_load16(index + i), key = spr_key16(v);
        unsigned keep = _mm512_cmpgt_epu32_mask(key, limit);
        unsigned equal = _mm512_cmpeq_epu32_mask(key, limit);

        for (; equal && *quota > 0; equal &= equal - 1, --*quota)
            keep |= equal & -equal;
        /* Before the stores: the output may be the input. */
        if (back)
            for (unsigned drop = ~keep & 0xffff; drop; drop &= drop - 1) {
                size_t l = i + (size_t)__builtin_ctz(drop);
                back[index[l]] = value[l];
            }
        spr_store16(value_out + m, _mm512_maskz_compress_epi32((__mmask16)keep, v));
        spr_store16(index_out + m, _mm512_maskz_compress_epi32((__mmask16)keep, at));
        m += spr_lanes((__mmask16)keep);
    }
    return m + spr_scalar_filter(index + i, value + i, n - i, t, quota, index_out + m,
                                 value_out + m, back);
}
