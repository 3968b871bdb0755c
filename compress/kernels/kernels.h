/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Kernels: the inner loops of compress/, one implementation per instruction set.
 *
 * The scalar table is the specification; every other table gives the same bits (compiled with
 * -ffp-contract=off, no reassociation). Kernels neither allocate nor keep state.
 *
 * Magnitude of a float: its bits without the sign, as an integer. NaN > Inf > finite, -0 = +0, and
 * a comparison raises no floating-point exception.
 *
 * Key of a float, by which selectors compare: its magnitude, but the same for every NaN. Which of
 * two NaNs a residual keeps is left to the compiler; what is selected must not depend on that.
 */
#ifndef SPR_COMPRESS_KERNELS_KERNELS_H
#define SPR_COMPRESS_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Lanes that an emitting kernel may write past its result: outputs have that much slack. */
#define SPR_KERNEL_SLACK 16
/* Thresholds counted in one pass. */
#define SPR_COUNT_THRESHOLDS 7

static inline uint32_t spr_magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

#define SPR_NAN_KEY 0x7f800001u /* the largest key */
static inline uint32_t spr_key(float x)
{
    return spr_magnitude(x) < SPR_NAN_KEY ? spr_magnitude(x) : SPR_NAN_KEY;
}

static inline bool spr_all_finite(const float *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = spr_magnitude(x[i]) > most ? spr_magnitude(x[i]) : most;
    return most < 0x7f800000u;
}

/* a + b, and of two NaNs the first one, made quiet. In assembly, since compilers exchange operands:
 * what every rank adds for itself must have the same bits on all of them, whichever kernels they
 * have. On other CPUs than x86-64, whose NaNs have rules of their own, as the compiler has it. In a
 * file that is compiled for AVX by its instruction: where the upper halves of registers are in use,
 * one of SSE takes 135 ns (Emerald Rapids). */
static inline float spr_add(float a, float b)
{
#if defined __AVX__
    __asm__("vaddss %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
#elif defined __x86_64__
    __asm__("addss %1, %0" : "+x"(a) : "x"(b));
    return a;
#else
    return a + b;
#endif
}

struct spr_kernels {
    const char *name;

    /* Value coders: see compress/value.h. */
    void (*fp16_encode)(const float *in, uint16_t *out, size_t n);
    void (*fp16_decode)(const uint16_t *in, float *out, size_t n);
    void (*bf16_encode)(const float *in, uint16_t *out, size_t n);
    void (*bf16_decode)(const uint16_t *in, float *out, size_t n);

    /* out[i] = spr_add(a[i], b[i]); out may be a or b. */
    void (*sum)(float *out, const float *a, const float *b, size_t n);
    /* Emit (base + i, x[i]) for every magnitude >= lo, in order; returns how many. With lo up to
     * SPR_NAN_KEY, which keys these are is the same. Room for n entries plus SPR_KERNEL_SLACK.
     * `dense`: more than a few per cent are expected (speed only). */
    size_t (*select)(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                     uint32_t *index, float *value);
    /* The same on r[i] + g[i], which is stored to r[i], or zero where it was emitted. */
    size_t (*feedback)(float *r, const float *g, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                       uint32_t *index, float *value);
    /* counts[j] += number of magnitudes >= t[j], or keys as above, for m <= SPR_COUNT_THRESHOLDS
     * thresholds. */
    void (*count)(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts);
    /* Write the keys below hi to `below` (room for n plus slack); returns how many. */
    size_t (*split)(const float *value, size_t n, uint32_t hi, uint32_t *below);
    /* Keep entries with a key > t, and the first *quota with key == t; returns how many. The others
     * go back: back[index] = value, unless back is NULL. The output may be the input, or begin
     * before it in the same array; slack after it. */
    size_t (*filter)(const uint32_t *index, const float *value, size_t n, uint32_t t, size_t *quota,
                     uint32_t *index_out, float *value_out, float *back);

    /* acc[pos[i]] = spr_add(acc[pos[i]], value[i]), touched bit pos[i] set. pos ascending. */
    void (*add_at)(float *acc, uint64_t *touched, const uint16_t *pos, const float *value,
                   size_t n);
    /* The same with the positions as a bitmap of `words` 64-bit words (unaligned), and the values
     * of its set bits in order. Returns the set bits; at least that many values are `readable`. */
    size_t (*add_bits)(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                       const float *value, size_t readable);
    /* out[i] = the next value where bit i is set, +0 where it is not, for n positions. The bitmap
     * (unaligned) has whole words. Returns the set bits; at least that many values are `readable`.
     */
    size_t (*expand)(const void *bitmap, size_t n, const float *value, size_t readable, float *out);
    /* out[i] = +0 */
    void (*clear)(float *out, size_t n);
    /* Positions of the set bits, plus `first`; returns how many. Room for them plus slack. */
    size_t (*positions)(const void *bitmap, size_t words, uint32_t first, uint16_t *pos);
    /* See spr_window_harvest(); `words` covers the window. acc is zero where nothing is touched. */
    size_t (*harvest)(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val);
    /* Set bits of `words` 64-bit words (unaligned). */
    uint64_t (*popcount)(const void *bitmap, size_t words);
    /* Is every element greater than the one before? */
    _Bool (*ascending16)(const uint16_t *pos, size_t n);
    _Bool (*ascending32)(const uint32_t *pos, size_t n);
};

extern const struct spr_kernels spr_kernels_scalar;
extern const struct spr_kernels spr_kernels_avx2;   /* only where HAVE_X86 is defined */
extern const struct spr_kernels spr_kernels_avx512; /* only where HAVE_AVX512 is defined */
extern const struct spr_kernels spr_kernels_neon;   /* only where HAVE_ARM64 is defined */

/* The best table for this CPU (spr_cpu_features()). */
const struct spr_kernels *spr_kernels(void);

/* Scalar kernels, one group per file; spr_kernels_scalar and the tails of the others use them. */
void spr_scalar_fp16_encode(const float *in, uint16_t *out, size_t n);
void spr_scalar_fp16_decode(const uint16_t *in, float *out, size_t n);
void spr_scalar_bf16_encode(const float *in, uint16_t *out, size_t n);
void spr_scalar_bf16_decode(const uint16_t *in, float *out, size_t n);
void spr_scalar_sum(float *out, const float *a, const float *b, size_t n);
size_t spr_scalar_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                         uint32_t *index, float *value);
size_t spr_scalar_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                           _Bool dense, uint32_t *index, float *value);
void spr_scalar_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts);
size_t spr_scalar_split(const float *value, size_t n, uint32_t hi, uint32_t *below);
size_t spr_scalar_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                         size_t *quota, uint32_t *index_out, float *value_out, float *back);
void spr_scalar_add_at(float *acc, uint64_t *touched, const uint16_t *pos, const float *value,
                       size_t n);
size_t spr_scalar_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                           const float *value, size_t readable);
size_t spr_scalar_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                         float *out);
void spr_scalar_clear(float *out, size_t n);
size_t spr_scalar_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos);
size_t spr_scalar_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val);
uint64_t spr_scalar_popcount(const void *bitmap, size_t words);
_Bool spr_scalar_ascending16(const uint16_t *pos, size_t n);
_Bool spr_scalar_ascending32(const uint32_t *pos, size_t n);

/* AVX2 has no compress and no expand instruction; these permutations stand in. Byte j of entry m:
 * compress: the j-th set bit of m; expand: how many set bits of m are below bit j, and bit 7 set
 * where bit j is not. */
extern const uint64_t spr_lut_compress[256];
extern const uint64_t spr_lut_expand[256];

/* AVX2 kernels; the table is in dispatch.c. */
void spr_avx2_fp16_encode(const float *in, uint16_t *out, size_t n);
void spr_avx2_fp16_decode(const uint16_t *in, float *out, size_t n);
void spr_avx2_bf16_encode(const float *in, uint16_t *out, size_t n);
void spr_avx2_bf16_decode(const uint16_t *in, float *out, size_t n);
void spr_avx2_sum(float *out, const float *a, const float *b, size_t n);
size_t spr_avx2_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                       uint32_t *index, float *value);
size_t spr_avx2_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                         _Bool dense, uint32_t *index, float *value);
void spr_avx2_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts);
size_t spr_avx2_split(const float *value, size_t n, uint32_t hi, uint32_t *below);
size_t spr_avx2_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                       size_t *quota, uint32_t *index_out, float *value_out, float *back);
size_t spr_avx2_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                         const float *value, size_t readable);
size_t spr_avx2_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                       float *out);
void spr_avx2_clear(float *out, size_t n);
size_t spr_avx2_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos);
size_t spr_avx2_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val);
size_t spr_avx2_harvest_sparse(float *acc, uint64_t *touched, size_t words, uint16_t *pos,
                               float *val);
uint64_t spr_avx2_popcount(const void *bitmap, size_t words);
_Bool spr_avx2_ascending16(const uint16_t *pos, size_t n);
_Bool spr_avx2_ascending32(const uint32_t *pos, size_t n);

/* AVX-512 kernels, where they are faster than those for AVX2. */
size_t spr_avx512_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                         uint32_t *index, float *value);
size_t spr_avx512_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                           _Bool dense, uint32_t *index, float *value);
size_t spr_avx512_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                         size_t *quota, uint32_t *index_out, float *value_out, float *back);
size_t spr_avx512_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                           const float *value, size_t readable);
size_t spr_avx512_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val);

/* NEON kernels. */
void spr_neon_fp16_encode(const float *in, uint16_t *out, size_t n);
void spr_neon_fp16_decode(const uint16_t *in, float *out, size_t n);
size_t spr_neon_select(const float *x, size_t n, uint32_t lo, uint32_t base, _Bool dense,
                       uint32_t *index, float *value);
size_t spr_neon_feedback(float *r, const float *g, size_t n, uint32_t lo, uint32_t base,
                         _Bool dense, uint32_t *index, float *value);
void spr_neon_count(const float *x, size_t n, const uint32_t *t, size_t m, uint64_t *counts);
size_t spr_neon_split(const float *value, size_t n, uint32_t hi, uint32_t *below);
size_t spr_neon_filter(const uint32_t *index, const float *value, size_t n, uint32_t t,
                       size_t *quota, uint32_t *index_out, float *value_out, float *back);
size_t spr_neon_add_bits(float *acc, uint64_t *touched, const void *bitmap, size_t words,
                         const float *value, size_t readable);
size_t spr_neon_expand(const void *bitmap, size_t n, const float *value, size_t readable,
                       float *out);
size_t spr_neon_positions(const void *bitmap, size_t words, uint32_t first, uint16_t *pos);
size_t spr_neon_harvest(float *acc, uint64_t *touched, size_t words, uint16_t *pos, float *val);
uint64_t spr_neon_popcount(const void *bitmap, size_t words);
_Bool spr_neon_ascending16(const uint16_t *pos, size_t n);
_Bool spr_neon_ascending32(const uint32_t *pos, size_t n);

#endif
