/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Packing, signs, powers of two and half precision; and the table.
 */
#include "compress/kernels/values_avx2.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static const struct spr_values_kernels *const scalar = &spr_values_kernels_scalar;

static inline uint64_t load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline void store64(void *p, uint64_t v) { memcpy(p, &v, sizeof(v)); }

/* ---- Packing ---- */

/* The low `width` bits of every byte, and of every 16 bits. */
static uint64_t mask_of_bytes(unsigned width) { return 0x0101010101010101u * ((1u << width) - 1); }
static uint64_t mask_of_words(unsigned width) { return 0x0001000100010001u * ((1u << width) - 1); }

static size_t pack_nibbles(const int8_t *code, size_t n, uint8_t *out)
{
    const __m256i low = _mm256_set1_epi8(15), weights = _mm256_set1_epi16(0x1001);
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        /* 1 * even + 16 * odd, then the low bytes of the 16-bit sums. */
        __m256i pair = _mm256_maddubs_epi16(_mm256_and_si256(spr_load8(code + i), low), weights);
        __m128i bytes =
            _mm_packus_epi16(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + i / 2), bytes);
    }
    return i;
}

void spr_avx2_pack8(const int8_t *code, size_t n, unsigned width, uint8_t *out)
{
    uint64_t mask = mask_of_bytes(width);
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 8) {
        memcpy(out, code, n);
        return;
    }
    if (width == 4)
        i = pack_nibbles(code, n, out);
    /* Eight bytes are stored, of which `width` count. */
    for (; i + 8 <= n && i / 8 * width + 8 <= bytes; i += 8)
        store64(out + i / 8 * width, _pext_u64(load64(code + i), mask));
    scalar->pack8(code + i, n - i, width, out + i / 8 * width);
}

void spr_avx2_pack16(const int16_t *code, size_t n, unsigned width, uint8_t *out)
{
    uint64_t mask = mask_of_words(width);
    size_t i = 0, bytes = (n * width + 7) / 8;

    for (; i + 8 <= n && i / 8 * width + 16 <= bytes; i += 8) {
        uint64_t a = _pext_u64(load64(code + i), mask), b = _pext_u64(load64(code + i + 4), mask);
        uint8_t *to = out + i / 8 * width;
        unsigned __int128 both = (unsigned __int128)b << (4 * width) | a;

        memcpy(to, &both, sizeof(both));
    }
    scalar->pack16(code + i, n - i, width, out + i / 8 * width);
}

static size_t unpack_nibbles(const uint8_t *in, size_t n, int8_t *code)
{
    const __m128i low = _mm_set1_epi8(15);
    const __m256i sign = _mm256_set1_epi8(8);
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(in + i / 2));
        __m128i even = _mm_and_si128(bytes, low);
        __m128i odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
        __m256i all = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));

        spr_store8(code + i, _mm256_sub_epi8(_mm256_xor_si256(all, sign), sign));
    }
    return i;
}

void spr_avx2_unpack8(const uint8_t *in, size_t n, unsigned width, int8_t *code)
{
    const __m128i sign = _mm_set1_epi8((char)(1u << (width - 1)));
    uint64_t mask = mask_of_bytes(width);
    size_t i = 0, bytes = (n * width + 7) / 8;

    if (width == 8) {
        memcpy(code, in, n);
        return;
    }
    if (width == 4)
        i = unpack_nibbles(in, n, code);
    for (; i + 8 <= n && i / 8 * width + 8 <= bytes; i += 8) {
        uint64_t spread = _pdep_u64(load64(in + i / 8 * width), mask);
        __m128i v = _mm_cvtsi64_si128((long long)spread);

        v = _mm_sub_epi8(_mm_xor_si128(v, sign), sign);
        store64(code + i, (uint64_t)_mm_cvtsi128_si64(v));
    }
    scalar->unpack8(in + i / 8 * width, n - i, width, code + i);
}

void spr_avx2_unpack16(const uint8_t *in, size_t n, unsigned width, int16_t *code)
{
    const __m128i sign = _mm_set1_epi16((short)(1u << (width - 1)));
    uint64_t mask = mask_of_words(width);
    size_t i = 0, bytes = (n * width + 7) / 8;

    for (; i + 8 <= n && i / 8 * width + 16 <= bytes; i += 8) {
        unsigned __int128 both;

        memcpy(&both, in + i / 8 * width, sizeof(both));
        __m128i v = _mm_set_epi64x((long long)_pdep_u64((uint64_t)(both >> (4 * width)), mask),
                                   (long long)_pdep_u64((uint64_t)both, mask));
        v = _mm_sub_epi16(_mm_xor_si128(v, sign), sign);
        _mm_storeu_si128((__m128i *)(void *)(code + i), v);
    }
    scalar->unpack16(in + i / 8 * width, n - i, width, code + i);
}

/* ---- Signs and powers of two ---- */

static float signs(const float *x, size_t n, uint8_t *out)
{
    const size_t ahead = spr_ahead_in_order();
    __m256 total[4] = {0};
    float lane[SPR_SUM_LANES];
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m256i v[4];

        spr_ahead32(x + i, ahead);
        for (size_t k = 0; k < 4; k++) {
            v[k] = spr_load8(x + i + k * 8);
            total[k] = _mm256_add_ps(total[k], _mm256_castsi256_ps(spr_magnitude8(v[k])));
        }
        uint32_t bits = spr_mask32(v[0], v[1], v[2], v[3]);
        memcpy(out + i / 8, &bits, sizeof(bits));
    }
    for (size_t k = 0; k < 4; k++)
        _mm256_storeu_ps(lane + k * 8, total[k]);
    scalar->signs(x + i, n - i, out + i / 8);
    return spr_sum_with(lane, x + i, n - i);
}

/* Bit k + lane of `bits` as the sign of the lane. */
INLINE __m256 signs_of(__m256i bits, int k)
{
    const __m256i to_sign = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);

    return _mm256_castsi256_ps(
        _mm256_sllv_epi32(bits, _mm256_sub_epi32(to_sign, _mm256_set1_epi32(k))));
}

INLINE void decode_signs(const uint8_t *bits, size_t n, const float value[2], enum spr_decode how,
                         float *out)
{
    const __m256 plus = _mm256_set1_ps(value[0]), minus = _mm256_set1_ps(value[1]);
    const size_t ahead = spr_ahead_in_order();
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        int word;

        spr_ahead32(out + i, ahead);
        memcpy(&word, bits + i / 8, sizeof(word));
        for (int k = 0; k < 32; k += 8) {
            __m256 sign = signs_of(_mm256_set1_epi32(word), k);
            spr_apply8(out + i + k, _mm256_blendv_ps(plus, minus, sign), how);
        }
    }
    scalar->decode_signs(bits + i / 8, n - i, value, how, out + i);
}

void spr_avx2_decode_signs(const uint8_t *bits, size_t n, const float value[2], enum spr_decode how,
                           float *out)
{
    if (how == SPR_DECODE_SET)
        decode_signs(bits, n, value, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        decode_signs(bits, n, value, SPR_DECODE_ADD, out);
    else
        decode_signs(bits, n, value, SPR_DECODE_TAKE, out);
}

INLINE __m256i exponent_of(const float *x, __m256i draw)
{
    __m256i mag = spr_magnitude8(spr_load8(x));
    __m256i add = _mm256_or_si256(_mm256_slli_epi32(draw, 7), _mm256_set1_epi32(0x40));
    __m256i up = _mm256_srli_epi32(_mm256_add_epi32(mag, add), 23);

    up = _mm256_min_epi32(up, _mm256_set1_epi32(254));
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(255), spr_not_finite8(mag));
}

void spr_avx2_natural(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent)
{
    size_t i = spr_draw_head(draw, n);

    scalar->natural(x, i, draw, exponent);
    for (; i + 32 <= n; i += 32) {
        __m256i a = spr_draw16(draw, draw.first + i), b = spr_draw16(draw, draw.first + i + 16);
        __m256i first = _mm256_packus_epi32(exponent_of(x + i, spr_draw_lower(a)),
                                            exponent_of(x + i + 8, spr_draw_upper(a)));
        __m256i second = _mm256_packus_epi32(exponent_of(x + i + 16, spr_draw_lower(b)),
                                             exponent_of(x + i + 24, spr_draw_upper(b)));
        __m256i bytes = _mm256_packus_epi16(first, second);

        spr_store8(exponent + i,
                   _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    }
    scalar->natural(x + i, n - i, spr_draw_after(draw, i), exponent + i);
}

INLINE void decode_natural(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                           enum spr_decode how, float *out)
{
    const __m256i odd = _mm256_set1_epi32(255), nan = _mm256_set1_epi32(0x7fc00000);
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        int word;

        memcpy(&word, sign_bits + i / 8, sizeof(word));
        for (int k = 0; k < 32; k += 8) {
            __m256i e = _mm256_cvtepu8_epi32(
                _mm_loadl_epi64((const __m128i *)(const void *)(exponent + i + k)));
            __m256 sign =
                _mm256_and_ps(signs_of(_mm256_set1_epi32(word), k), _mm256_set1_ps(-0.0f));
            __m256i v = _mm256_or_si256(_mm256_slli_epi32(e, 23), _mm256_castps_si256(sign));

            v = _mm256_blendv_epi8(v, nan, _mm256_cmpeq_epi32(e, odd));
            spr_apply_finite8(out + i + k, _mm256_castsi256_ps(v), how);
        }
    }
    scalar->decode_natural(exponent + i, sign_bits + i / 8, n - i, how, out + i);
}

static void decode_natural_how(const uint8_t *exponent, const uint8_t *sign_bits, size_t n,
                               enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        decode_natural(exponent, sign_bits, n, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        decode_natural(exponent, sign_bits, n, SPR_DECODE_ADD, out);
    else
        decode_natural(exponent, sign_bits, n, SPR_DECODE_TAKE, out);
}

/* ---- Half precision ---- */

/* Is one of 16 infinite? Then one of them may have to be made finite again. */
INLINE bool any_infinite(__m256i half, short infinity)
{
    __m256i mag = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
    __m256i found = _mm256_cmpeq_epi16(mag, _mm256_set1_epi16(infinity));

    return !_mm256_testz_si256(found, found);
}

void spr_avx2_fp16_encode_finite(const float *x, size_t n, uint16_t *out)
{
    const size_t ahead = spr_ahead_in_order();
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        spr_ahead(x + i, ahead);
        __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(x + i + 8), _MM_FROUND_TO_NEAREST_INT);
        __m256i half = _mm256_set_m128i(high, low);

        spr_store8(out + i, half);
        if (any_infinite(half, 0x7c00))
            scalar->fp16_encode(x + i, 16, out + i);
    }
    scalar->fp16_encode(x + i, n - i, out + i);
}

/* Eight bf16 in the low halves of the lanes. */
INLINE __m256i bf16_of(__m256i x)
{
    __m256i upper = _mm256_srli_epi32(x, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(x, bias), 16);
    __m256i nan = _mm256_cmpgt_epi32(spr_magnitude8(x), _mm256_set1_epi32(0x7f800000));

    return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}

void spr_avx2_bf16_encode_finite(const float *x, size_t n, uint16_t *out)
{
    const size_t ahead = spr_ahead_in_order();
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        spr_ahead(x + i, ahead);
        __m256i half =
            _mm256_packus_epi32(bf16_of(spr_load8(x + i)), bf16_of(spr_load8(x + i + 8)));

        half = _mm256_permute4x64_epi64(half, 0xd8);
        spr_store8(out + i, half);
        if (any_infinite(half, 0x7f80))
            scalar->bf16_encode(x + i, 16, out + i);
    }
    scalar->bf16_encode(x + i, n - i, out + i);
}

INLINE void half_decode(bool brain, const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        __m256 v = brain ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))
                         : _mm256_cvtph_ps(half);
        spr_apply_finite8(out + i, v, how);
    }
    (brain ? scalar->bf16_decode : scalar->fp16_decode)(in + i, n - i, how, out + i);
}

static void fp16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        half_decode(false, in, n, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        half_decode(false, in, n, SPR_DECODE_ADD, out);
    else
        half_decode(false, in, n, SPR_DECODE_TAKE, out);
}

static void bf16_decode(const uint16_t *in, size_t n, enum spr_decode how, float *out)
{
    if (how == SPR_DECODE_SET)
        half_decode(true, in, n, SPR_DECODE_SET, out);
    else if (how == SPR_DECODE_ADD)
        half_decode(true, in, n, SPR_DECODE_ADD, out);
    else
        half_decode(true, in, n, SPR_DECODE_TAKE, out);
}

static void stream_lines(const char *in, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i += 32)
        _mm256_stream_si256((__m256i *)(void *)(out + i), spr_load8(in + i));
}

static void stream(const void *in, size_t bytes, void *out)
{
    spr_stream_by(stream_lines, in, bytes, out);
}

void spr_avx2_fence(void) { _mm_sfence(); }

const struct spr_values_kernels spr_values_kernels_avx2 = {
    .name = "avx2",
    .add = spr_avx2_add,
    .largest = spr_avx2_largest,
    .sum_sides = spr_avx2_sum_sides,
    .sum_squares = spr_avx2_sum_squares,
    .nearest8 = spr_avx2_nearest8,
    .nearest16 = spr_avx2_nearest16,
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
    .decode_natural = decode_natural_how,
    .fp16_encode = spr_avx2_fp16_encode_finite,
    .bf16_encode = spr_avx2_bf16_encode_finite,
    .fp16_decode = fp16_decode,
    .bf16_decode = bf16_decode,
    .add_largest = spr_avx2_add_largest,
    .nearest8_take = spr_avx2_nearest8_take,
    .add_signs = spr_avx2_add_signs,
    .stream = stream,
    .fence = spr_avx2_fence,
    .streams = true,
};
