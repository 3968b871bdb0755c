/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sixteen elements at a time; what AVX2 does as well is in its table.
 */
#include "compress/kernels/values.h"

#include <stdbool.h>
#include <string.h>

#include "compress/kernels/ahead.h"
#include "compress/kernels/lanes_avx512.h"

#define INLINE static inline __attribute__((always_inline))

static const struct spr_values_kernels *const scalar = &spr_values_kernels_scalar;

/* `how` is a constant where this is inlined. */
INLINE void apply16(float *out, __m512 v, enum spr_decode how)
{
    if (how == SPR_DECODE_ADD)
        v = _mm512_add_ps(_mm512_loadu_ps(out), v);
    else if (how == SPR_DECODE_TAKE)
        v = _mm512_sub_ps(_mm512_loadu_ps(out), v);
    _mm512_storeu_ps(out, v);
}

/* The same where out may hold what is not finite. */
INLINE void apply_finite16(float *out, __m512 v, enum spr_decode how)
{
    if (how != SPR_DECODE_TAKE) {
        apply16(out, v, how);
        return;
    }
    __m512 r = _mm512_loadu_ps(out);
    __mmask16 finite =
        _mm512_cmplt_epu32_mask(spr_magnitude16(spr_load16(out)), spr_splat16(0x7f800000));
    _mm512_storeu_ps(out, _mm512_maskz_sub_ps(finite, r, v));
}

/* Calls f with a constant for `how`. */
#define HOW(f, how, ...)                                                                           \
    do {                                                                                           \
        if ((how) == SPR_DECODE_SET)                                                               \
            f(__VA_ARGS__, SPR_DECODE_SET, out);                                                   \
        else if ((how) == SPR_DECODE_ADD)                                                          \
            f(__VA_ARGS__, SPR_DECODE_ADD, out);                                                   \
        else                                                                                       \
            f(__VA_ARGS__, SPR_DECODE_TAKE, out);                                                  \
    } while (0)

/* ---- Statistics ---- */

static uint32_t largest(const float *x, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    uint32_t most, rest;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        a = _mm512_max_epu32(a, spr_magnitude16(spr_load16(x + i)));
        b = _mm512_max_epu32(b, spr_magnitude16(spr_load16(x + i + 16)));
    }
    most = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
    rest = scalar->largest(x + i, n - i);
    return most > rest ? most : rest;
}

/* Of the lanes, and of |x|, of which fewer than SPR_SUM_LANES are left. */
static float sum_of(__m512 a, __m512 b, const float *x, size_t n)
{
    float lane[SPR_SUM_LANES];

    _mm512_storeu_ps(lane, a);
    _mm512_storeu_ps(lane + 16, b);
    return spr_sum_with(lane, x, n);
}

/* ---- Quantising ---- */

INLINE __m512i nearest(const float *x, float inverse, float limit)
{
    __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse));

    y = _mm512_min_ps(y, _mm512_set1_ps(limit));
    return _mm512_cvtps_epi32(_mm512_max_ps(y, _mm512_set1_ps(-limit)));
}

/* Four vectors of codes as 64 bytes in order. */
INLINE void store_bytes(void *out, const __m512i lanes[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(lanes[0], lanes[1]),
                                       _mm512_packs_epi32(lanes[2], lanes[3]));

    spr_store16(out, _mm512_permutexvar_epi32(order, bytes));
}

static void nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    const size_t ahead = spr_ahead_next(n);
    size_t i = 0;

    for (; i + 64 <= n; i += 64) {
        __m512i lanes[4];

        for (size_t k = 0; k < 4; k++) {
            spr_ahead(x + i + k * 16, ahead);
            lanes[k] = nearest(x + i + k * 16, q.inverse, q.limit);
        }
        store_bytes(code + i, lanes);
    }
    spr_avx2_nearest8(x + i, n - i, q, code + i);
}

/* spr_draw_bits() of 32 elements from a multiple of 16 on. */
INLINE void draws_of(struct spr_draw draw, uint64_t i, __m512i bits[2])
{
    __m512i x = _mm512_add_epi32(spr_splat16((uint32_t)(i >> 1)), spr_ramp16()), low, high;

    x = _mm512_xor_si512(x, spr_splat16(draw.key[0]));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, spr_splat16(0x7feb352d));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
    x = _mm512_add_epi32(x, spr_splat16(draw.key[1]));
    x = _mm512_mullo_epi32(x, spr_splat16(0x846ca68b));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    low = _mm512_and_si512(x, spr_splat16(0xffff));
    high = _mm512_srli_epi32(x, 16);
    bits[0] = _mm512_shuffle_i64x2(low, high, 0x44); /* both halves of the lower eight lanes */
    bits[1] = _mm512_shuffle_i64x2(low, high, 0xee);
}

static void random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                    int8_t *code)
{
    const float inverse = q.inverse * 0x1p16f, limit = q.limit * 0x1p16f;
    const size_t ahead = spr_ahead_next(n);
    size_t i = spr_draw_head(draw, n);

    scalar->random8(x, i, q, draw, code);
    for (; i + 64 <= n; i += 64) {
        __m512i lanes[4], bits[4];

        draws_of(draw, draw.first + i, bits);
        draws_of(draw, draw.first + i + 32, bits + 2);
        for (size_t k = 0; k < 4; k++) {
            spr_ahead(x + i + k * 16, ahead);
            lanes[k] = nearest(x + i + k * 16, inverse, limit);
            lanes[k] = _mm512_srai_epi32(_mm512_add_epi32(lanes[k], bits[k]), 16);
        }
        store_bytes(code + i, lanes);
    }
    spr_avx2_random8(x + i, n - i, q, spr_draw_after(draw, i), code + i);
}

static void nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512i codes = nearest(x + i, q.inverse, q.limit);

        _mm256_storeu_si256((void *)(code + i), _mm512_cvtepi32_epi16(codes));
    }
    scalar->nearest16(x + i, n - i, q, code + i);
}

/* ---- Signs and powers of two ---- */

INLINE uint32_t signs32(__m512 low, __m512 high)
{
    return (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(low)) |
           (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(high)) << 16;
}

static float signs(const float *x, size_t n, uint8_t *out)
{
    const size_t ahead = spr_ahead_in_order();
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + 16);
        uint32_t bits = signs32(low, high);

        spr_ahead32(x + i, ahead);
        a = _mm512_add_ps(a, _mm512_abs_ps(low));
        b = _mm512_add_ps(b, _mm512_abs_ps(high));
        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    scalar->signs(x + i, n - i, out + i / 8);
    return sum_of(a, b, x + i, n - i);
}

INLINE __mmask16 load_mask(const uint8_t *bits)
{
    __mmask16 mask;
    memcpy(&mask, bits, sizeof(mask));
    return mask;
}

INLINE void decode_powers(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                          enum spr_decode how, float *out)
{
    const __m512i nan = spr_splat16(0x7fc00000), minus = spr_splat16(0x80000000u);
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(exponent + i)));
        __m512i v = _mm512_slli_epi32(e, 23);

        v = _mm512_mask_or_epi32(v, load_mask(sign_bits + i / 8), v, minus);
        v = _mm512_mask_mov_epi32(v, _mm512_cmpeq_epi32_mask(e, spr_splat16(255)), nan);
        apply_finite16(out + i, _mm512_castsi512_ps(v), how);
    }
    scalar->decode_natural(exponent + i, sign_bits + i / 8, n - i, how, out + i);
}

static void decode_natural(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                           enum spr_decode how, float *out)
{
    HOW(decode_powers, how, exponent, sign_bits, n);
}

/* ---- Half precision ---- */

/* bf16 in the upper halves of the lanes, of what is finite and stays so. */
INLINE __m512i bf16_of(__m512i x)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), spr_splat16(1));

    return _mm512_add_epi32(x, _mm512_add_epi32(odd, spr_splat16(0x7fff)));
}

static void bf16_encode(const float *x, size_t n, uint16_t *out)
{
    /* The odd halves of the one and of the other. */
    const __m512i upper = _mm512_add_epi32(
        spr_splat16(0x00030001), _mm512_mullo_epi32(spr_ramp16(), spr_splat16(0x00040004)));
    const size_t ahead = spr_ahead_in_order();
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m512i a = spr_load16(x + i), b = spr_load16(x + i + 16);
        __m512i most = _mm512_max_epu32(spr_magnitude16(a), spr_magnitude16(b));

        spr_ahead32(x + i, ahead);
        if (_mm512_cmpge_epu32_mask(most, spr_splat16(0x7f7f8000)))
            spr_avx2_bf16_encode_finite(x + i, 32, out + i);
        else
            spr_store16(out + i, _mm512_permutex2var_epi16(bf16_of(a), upper, bf16_of(b)));
    }
    spr_avx2_bf16_encode_finite(x + i, n - i, out + i);
}

INLINE void half_decode(bool brain, const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    const size_t ahead = spr_ahead_of_two();
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        spr_ahead(out + i, ahead);
        spr_ahead(in + i, ahead);
        __m256i half = _mm256_loadu_si256((const void *)(in + i));
        __m512 v = brain ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))
                         : _mm512_cvtph_ps(half);

        apply_finite16(out + i, v, how);
    }
    (brain ? scalar->bf16_decode : scalar->fp16_decode)(in + i, n - i, how, out + i);
}

static void fp16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    HOW(half_decode, how, false, in, n);
}

static void bf16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    HOW(half_decode, how, true, in, n);
}

/* ---- Error feedback ---- */

INLINE __m512 add16(float *r, const float *g)
{
    __m512 sum = _mm512_add_ps(_mm512_loadu_ps(r), _mm512_loadu_ps(g));

    _mm512_storeu_ps(r, sum);
    return sum;
}

static void nearest8_take(float *x, size_t n, struct spr_quantiser q, int8_t *code)
{
    const __m512 scale = _mm512_set1_ps(q.scale);
    size_t i = 0;

    for (; i + 64 <= n; i += 64) {
        __m512i lanes[4];

        for (size_t k = 0; k < 4; k++) {
            float *at = x + i + k * 16;
            __m512 v = _mm512_loadu_ps(at);

            spr_ahead(at, SPR_AHEAD_BYTES);
            lanes[k] = nearest(at, q.inverse, q.limit);
            v = _mm512_sub_ps(v, _mm512_mul_ps(_mm512_cvtepi32_ps(lanes[k]), scale));
            _mm512_storeu_ps(at, v);
        }
        store_bytes(code + i, lanes);
    }
    spr_avx2_nearest8_take(x + i, n - i, q, code + i);
}

static float add_signs(float *r, const float *g, size_t n, uint8_t *out)
{
    const size_t ahead = spr_ahead_in_order();
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        spr_ahead32(r + i, ahead);
        spr_ahead32(g + i, ahead);
        __m512 low = add16(r + i, g + i), high = add16(r + i + 16, g + i + 16);
        uint32_t bits = signs32(low, high);

        a = _mm512_add_ps(a, _mm512_abs_ps(low));
        b = _mm512_add_ps(b, _mm512_abs_ps(high));
        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    scalar->add(r + i, g + i, n - i);
    scalar->signs(r + i, n - i, out + i / 8);
    return sum_of(a, b, r + i, n - i);
}

static void stream_lines(const char *in, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(void *)(out + i), spr_load16(in + i));
}

static void stream(const void *in, size_t bytes, void *out)
{
    spr_stream_by(stream_lines, in, bytes, out);
}

const struct spr_values_kernels spr_values_kernels_avx512 = {
    .name = "avx512",
    .add = spr_avx2_add,
    .largest = largest,
    .sum_sides = spr_avx2_sum_sides,
    .sum_squares = spr_avx2_sum_squares,
    .nearest8 = nearest8,
    .nearest16 = nearest16,
    .random8 = random8,
    .decode8 = spr_avx2_decode8,
    .decode16 = spr_avx2_decode16,
    .pack8 = spr_avx2_pack8,
    .pack16 = spr_avx2_pack16,
    .unpack8 = spr_avx2_unpack8,
    .unpack16 = spr_avx2_unpack16,
    .signs = signs,
    .decode_signs = spr_avx2_decode_signs,
    .natural = spr_avx2_natural,
    .decode_natural = decode_natural,
    .fp16_encode = spr_avx2_fp16_encode_finite,
    .bf16_encode = bf16_encode,
    .fp16_decode = fp16_decode,
    .bf16_decode = bf16_decode,
    .add_largest = spr_avx2_add_largest,
    .nearest8_take = nearest8_take,
    .add_signs = add_signs,
    .stream = stream,
    .fence = spr_avx2_fence,
    .streams = true,
};
