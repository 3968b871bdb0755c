/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Eight positions at a time; what is left of a block is for the scalar kernels. Packing has one
 * function per width, in which all shifts are constants (Lemire and Boytsov 2015, "Decoding
 * billions of integers per second through vectorization").
 */
#include "compress/kernels/indices.h"

#include "compress/kernels/lanes_avx2.h"

#define ROWS (SPR_INDEX_BLOCK / 8)

static inline __m256i splat(uint32_t v) { return _mm256_set1_epi32((int)v); }
static inline __m256i ramp(uint32_t from)
{
    return _mm256_add_epi32(splat(from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The lanes moved up by one; lane 0 is the last one of `before`. */
static inline __m256i shift_in(__m256i before, __m256i lanes)
{
    const __m256i up = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);

    return _mm256_blend_epi32(_mm256_permutevar8x32_epi32(lanes, up),
                              _mm256_permutevar8x32_epi32(before, up), 1);
}

static inline uint32_t any_bits(__m256i v)
{
    __m128i half = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    half = _mm_or_si128(half, _mm_srli_si128(half, 8));
    half = _mm_or_si128(half, _mm_srli_si128(half, 4));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

static uint32_t gaps(const uint32_t *x, size_t n, uint32_t first, uint32_t *gap)
{
    __m256i before = splat(first - 1), any = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i now = spr_load8(x + i);
        __m256i g = _mm256_sub_epi32(_mm256_sub_epi32(now, shift_in(before, now)), splat(1));

        spr_store8(gap + i, g);
        any = _mm256_or_si256(any, g);
        before = now;
    }
    if (i > 0)
        first = x[i - 1] + 1;
    return any_bits(any) | spr_indices_scalar.gaps(x + i, n - i, first, gap + i);
}

static uint32_t sums(const uint32_t *gap, size_t n, uint32_t first, uint32_t *x)
{
    const __m256i last = splat(7), one = splat(1);
    __m256i sum = splat(first - 1), any = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i g = spr_load8(gap + i);

        any = _mm256_or_si256(any, g);
        g = _mm256_add_epi32(g, one);
        g = _mm256_add_epi32(g, _mm256_slli_si256(g, 4));
        g = _mm256_add_epi32(g, _mm256_slli_si256(g, 8));
        /* The lower half's total into the upper half. */
        __m256i half = _mm256_permute2x128_si256(g, g, 0x08);
        g = _mm256_add_epi32(g, _mm256_shuffle_epi32(half, 0xff));
        spr_store8(x + i, _mm256_add_epi32(sum, g));
        sum = _mm256_add_epi32(sum, _mm256_permutevar8x32_epi32(g, last));
    }
    if (i > 0)
        first = x[i - 1] + 1;
    return any_bits(any) | spr_indices_scalar.sums(gap + i, n - i, first, x + i);
}

/* ---- Packing, by width ---- */

#define INLINE static inline __attribute__((always_inline))
#define EACH_WIDTH(f)                                                                              \
    f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15) f(16)    \
        f(17) f(18) f(19) f(20) f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) f(30) f(31)  \
            f(32)

INLINE void pack_rows(const uint32_t *value, unsigned width, uint8_t *out)
{
    __m256i word = _mm256_setzero_si256();
    unsigned have = 0;

#pragma GCC unroll 32
    for (unsigned row = 0; row < ROWS; row++) {
        __m256i v = spr_load8(value + 8 * row);

        word = _mm256_or_si256(word, _mm256_slli_epi32(v, (int)have));
        have += width;
        if (have >= 32) {
            spr_store8(out, word);
            out += 32;
            have -= 32;
            word = _mm256_srli_epi32(v, (int)(width - have)); /* nothing when by 32 */
        }
    }
}

INLINE void unpack_rows(const uint8_t *in, unsigned width, uint32_t *value)
{
    const __m256i mask = splat((uint32_t)((UINT64_C(1) << width) - 1));
    __m256i word = _mm256_setzero_si256();
    unsigned have = 0;

#pragma GCC unroll 32
    for (unsigned row = 0; row < ROWS; row++) {
        __m256i v = _mm256_srli_epi32(word, (int)(32 - have));

        if (have < width) {
            word = spr_load8(in);
            in += 32;
            v = _mm256_or_si256(v, _mm256_slli_epi32(word, (int)have));
            have += 32;
        }
        have -= width;
        spr_store8(value + 8 * row, _mm256_and_si256(v, mask));
    }
}

#define PACK(w)                                                                                    \
    static void pack_##w(const uint32_t *value, uint8_t *out) { pack_rows(value, w, out); }
#define UNPACK(w)                                                                                  \
    static void unpack_##w(const uint8_t *in, uint32_t *value) { unpack_rows(in, w, value); }
EACH_WIDTH(PACK)
EACH_WIDTH(UNPACK)

static void pack(const uint32_t *value, unsigned width, uint8_t *out)
{
#define NAME(w) pack_##w,
    static void (*const of_width[])(const uint32_t *, uint8_t *) = {EACH_WIDTH(NAME)};
#undef NAME

    of_width[width](value, out);
}

static void unpack(const uint8_t *in, unsigned width, uint32_t *value)
{
#define NAME(w) unpack_##w,
    static void (*const of_width[])(const uint8_t *, uint32_t *) = {EACH_WIDTH(NAME)};
#undef NAME

    of_width[width](in, value);
}

/* ---- Elias-Fano ---- */

static void split(const uint32_t *x, size_t n, uint32_t first, unsigned width, uint32_t *low,
                  uint32_t *one)
{
    const __m256i mask = splat((UINT32_C(1) << width) - 1);
    const __m128i shift = _mm_cvtsi32_si128((int)width);
    __m256i i8 = ramp(0);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i y = _mm256_sub_epi32(_mm256_sub_epi32(spr_load8(x + i), splat(first)), i8);

        spr_store8(low + i, _mm256_and_si256(y, mask));
        spr_store8(one + i, _mm256_add_epi32(_mm256_srl_epi32(y, shift), i8));
        i8 = _mm256_add_epi32(i8, splat(8));
    }
    /* The rest counts from 0 again, i further on. */
    spr_indices_scalar.split(x + i, n - i, first + (uint32_t)i, width, low + i, one + i);
    for (size_t j = i; j < n; j++)
        one[j] += (uint32_t)i;
}

static _Bool join(const uint32_t *low, const uint32_t *one, size_t n, uint32_t first,
                  unsigned width, uint32_t *x)
{
    const __m128i shift = _mm_cvtsi32_si128((int)width);
    __m256i before = _mm256_setzero_si256(), rising = splat(~0u), i8 = ramp(0);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i high = _mm256_sll_epi32(_mm256_sub_epi32(spr_load8(one + i), i8), shift);
        __m256i y = _mm256_or_si256(high, spr_load8(low + i));
        __m256i most = _mm256_max_epu32(y, shift_in(before, y));

        rising = _mm256_and_si256(rising, _mm256_cmpeq_epi32(most, y));
        before = y;
        spr_store8(x + i, _mm256_add_epi32(_mm256_add_epi32(y, splat(first)), i8));
        i8 = _mm256_add_epi32(i8, splat(8));
    }
    _Bool good = spr_mask8(rising) == 0xff;
    uint32_t y = i > 0 ? x[i - 1] - first - (uint32_t)(i - 1) : 0;
    for (; i < n; i++) {
        uint32_t now = (one[i] - (uint32_t)i) << width | low[i];

        good &= now >= y;
        y = now;
        x[i] = first + y + (uint32_t)i;
    }
    return good;
}

static size_t ones(const uint8_t *bits, size_t bytes, uint32_t first, uint32_t *x)
{
    __m256i at = splat(first);
    size_t n = 0, i = 0;

    for (; i + 8 <= bytes; i += 8, at = _mm256_add_epi32(at, splat(64))) {
        uint64_t word;

        memcpy(&word, bits + i, sizeof(word));
        if (word == 0)
            continue;
        __m256i eight = at;
        for (unsigned b = 0; b < 8; b++, word >>= 8) {
            __m256i lanes = spr_row8(spr_lut_compress, (unsigned)word & 0xff);

            spr_store8(x + n, _mm256_add_epi32(lanes, eight));
            eight = _mm256_add_epi32(eight, splat(8));
            n += (size_t)__builtin_popcount((unsigned)word & 0xff);
        }
    }
    return n + spr_indices_scalar.ones(bits + i, bytes - i, first + 8 * (uint32_t)i, x + n);
}

/* The last eight bytes that were stored, and where: they may get more bits. */
struct bits_end {
    uint8_t *bits;
    uint32_t at; /* byte */
    uint64_t last;
};

INLINE void put(struct bits_end *end, uint32_t at, uint64_t more)
{
    uint32_t by = at - end->at;

    end->last = (by < 8 ? end->last >> 8 * by : 0) | more;
    end->at = at;
    memcpy(end->bits + at, &end->last, sizeof(end->last));
}

/* Eight bits that lie within 64. */
INLINE uint64_t gather_bits(__m256i x)
{
    const __m256i one = _mm256_set1_epi64x(1);
    __m256i low = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(x));
    __m256i high = _mm256_cvtepu32_epi64(_mm256_extracti128_si256(x, 1));
    __m256i four = _mm256_or_si256(_mm256_sllv_epi64(one, low), _mm256_sllv_epi64(one, high));
    __m128i two = _mm_or_si128(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));

    return (uint64_t)_mm_cvtsi128_si64(_mm_or_si128(two, _mm_unpackhi_epi64(two, two)));
}

static void set(const uint32_t *x, size_t n, uint8_t *bits)
{
    struct bits_end end = {.bits = bits};
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint32_t at = x[i] / 8;

        if (x[i + 7] - 8 * at < 64) {
            put(&end, at, gather_bits(_mm256_sub_epi32(spr_load8(x + i), splat(8 * at))));
            continue;
        }
        for (size_t j = i; j < i + 8; j++)
            put(&end, x[j] / 8, UINT64_C(1) << x[j] % 8);
    }
    for (; i < n; i++)
        put(&end, x[i] / 8, UINT64_C(1) << x[i] % 8);
}

const struct spr_indices_kernels spr_indices_avx2 = {
    .name = "avx2",
    .gaps = gaps,
    .sums = sums,
    .pack = pack,
    .unpack = unpack,
    .split = split,
    .join = join,
    .ones = ones,
    .set = set,
};
