/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sixteen elements at a time; what AVX2 does as well is in its table.
 */
#include "compress/kernels/values.h"

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

/* See spr_ahead() of values_avx2.h. */
static inline void ahead(const float *x)
{
    _mm_prefetch((const char *)((uintptr_t)x + 2048), _MM_HINT_T0);
}

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

/* Of the lanes, and of |x|, to which fewer than SPR_SUM_LANES are left. */
static float sum_of(__m512 a, __m512 b, const float *x, size_t n)
{
    float lane[SPR_SUM_LANES];

    _mm512_storeu_ps(lane, a);
    _mm512_storeu_ps(lane + 16, b);
    for (size_t i = 0; i < n; i++)
        lane[i] += __builtin_fabsf(x[i]);
    return spr_sum_lanes(lane);
}

static float sum_abs(const float *x, size_t n)
{
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        a = _mm512_add_ps(a, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
        b = _mm512_add_ps(b, _mm512_abs_ps(_mm512_loadu_ps(x + i + 16)));
    }
    return sum_of(a, b, x + i, n - i);
}

/* ---- Quantising ---- */

INLINE __m512i nearest(__m512 x, float inverse, float limit)
{
    __m512 y = _mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(inverse)), _mm512_set1_ps(limit));

    return _mm512_cvtps_epi32(_mm512_max_ps(y, _mm512_set1_ps(-limit)));
}

static void store_bytes(void *out, __m512i codes)
{
    _mm_storeu_si128(out, _mm512_cvtepi32_epi8(codes));
}

static void nearest8(const float *x, size_t n, const struct spr_quantiser *q, int8_t *code)
{
    const float inverse = q->inverse, limit = q->limit; /* the bytes stored may alias *q */
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        store_bytes(code + i, nearest(_mm512_loadu_ps(x + i), inverse, limit));
    scalar->nearest8(x + i, n - i, q, code + i);
}

static void nearest16(const float *x, size_t n, const struct spr_quantiser *q, int16_t *code)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512i codes = nearest(_mm512_loadu_ps(x + i), q->inverse, q->limit);

        _mm256_storeu_si256((void *)(code + i), _mm512_cvtepi32_epi16(codes));
    }
    scalar->nearest16(x + i, n - i, q, code + i);
}

/* ---- Signs and powers of two ---- */

static void signs(const float *x, size_t n, uint8_t *out)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __mmask16 bits = _mm512_movepi32_mask(spr_load16(x + i));

        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    scalar->signs(x + i, n - i, out + i / 8);
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

INLINE void half_decode(bool brain, const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
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

static void nearest8_take(float *x, size_t n, const struct spr_quantiser *q, int8_t *code)
{
    /* The bytes stored may alias them. */
    const float inverse = q->inverse, limit = q->limit;
    const __m512 scale = _mm512_set1_ps(q->scale);
    const struct spr_quantiser rest = *q;
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        __m512i codes = nearest(v, inverse, limit);

        ahead(x + i);
        store_bytes(code + i, codes);
        _mm512_storeu_ps(x + i, _mm512_sub_ps(v, _mm512_mul_ps(_mm512_cvtepi32_ps(codes), scale)));
    }
    scalar->nearest8_take(x + i, n - i, &rest, code + i);
}

static float add_signs(float *r, const float *g, size_t n, uint8_t *out)
{
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m512 low = add16(r + i, g + i), high = add16(r + i + 16, g + i + 16);
        uint32_t bits = (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(low)) |
                        (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(high)) << 16;

        a = _mm512_add_ps(a, _mm512_abs_ps(low));
        b = _mm512_add_ps(b, _mm512_abs_ps(high));
        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    scalar->add(r + i, g + i, n - i);
    scalar->signs(r + i, n - i, out + i / 8);
    return sum_of(a, b, r + i, n - i);
}

const struct spr_values_kernels spr_values_kernels_avx512 = {
    .name = "avx512",
    .add = spr_avx2_add,
    .largest = largest,
    .sum_abs = sum_abs,
    .sum_sides = spr_avx2_sum_sides,
    .sum_squares = spr_avx2_sum_squares,
    .nearest8 = nearest8,
    .nearest16 = nearest16,
    .random8 = spr_avx2_random8,
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
    .bf16_encode = spr_avx2_bf16_encode_finite,
    .fp16_decode = fp16_decode,
    .bf16_decode = bf16_decode,
    .add_largest = spr_avx2_add_largest,
    .nearest8_take = nearest8_take,
    .add_signs = add_signs,
    .stream = spr_avx2_stream,
    .fence = spr_avx2_fence,
    .streams = true,
};
