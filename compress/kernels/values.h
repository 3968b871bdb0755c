/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Kernels of the value coders (compress/values/): statistics of a group, quantising it, packing the
 * codes, and the way back.
 *
 * The scalar table is the specification; every other table gives the same bits. Groups have at most
 * SPR_VALUES_GROUP_MAX elements. Lengths are arbitrary, floats need the alignment of a float, codes
 * none but where they are uint16_t. Magnitudes are as in kernels.h.
 *
 * Sums have a fixed order, so that every instruction set can give it: element i goes to lane i mod
 * SPR_SUM_LANES, in order, then the upper half of the lanes is added to the lower until one is
 * left.
 */
#ifndef SPR_COMPRESS_KERNELS_VALUES_H
#define SPR_COMPRESS_KERNELS_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SPR_VALUES_GROUP_MAX 4096u
#define SPR_SUM_LANES 32
#define SPR_VALUES_LINE 64u

/* What becomes of a decoded value v. */
enum spr_decode {
    SPR_DECODE_SET, /* out = v */
    SPR_DECODE_ADD, /* out += v */
    SPR_DECODE_TAKE /* out -= v: a residual gives away what was sent */
};

/* A random number per element, a function of (key, index of the element) alone. */
struct spr_draw {
    uint32_t key[2]; /* of the seed: spr_draw() in compress/values/values.h */
    uint64_t first;  /* index of element 0; counts modulo 2^33 */
};

/* code = round(x * inverse), kept within -limit..limit; decoded: code * scale. */
struct spr_quantiser {
    float inverse, scale, limit;
};

/* 16 random bits of element i. The hash is lowbias32 (C. Wellons, "Prospecting for hash functions",
 * 2018), keyed before and between its rounds; one value serves two elements, eight apart, which are
 * the two halves of 16 lanes. */
static inline uint32_t spr_draw_bits(struct spr_draw draw, uint64_t i)
{
    uint32_t x = ((uint32_t)(i >> 1) & ~7u) | ((uint32_t)i & 7u);

    x ^= draw.key[0];
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x += draw.key[1];
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return i & 8 ? x >> 16 : x & 0xffffu;
}

/* Elements before the first whose index is a multiple of 16, at most n. */
static inline size_t spr_draw_head(struct spr_draw draw, size_t n)
{
    size_t head = (size_t)(-draw.first & 15);

    return head < n ? head : n;
}

/* That of the elements from n on. */
static inline struct spr_draw spr_draw_after(struct spr_draw draw, size_t n)
{
    return (struct spr_draw){{draw.key[0], draw.key[1]}, draw.first + n};
}

/* Draws and quantisers go by value: a load that spans several stores, as a copy of what was just
 * written does, waits until these are through, and with them all stores to memory before.
 */
struct spr_values_kernels {
    const char *name;

    /* r[i] += g[i] */
    void (*add)(float *r, const float *g, size_t n);
    /* Largest magnitude, 0 of none. */
    uint32_t (*largest)(const float *x, size_t n);
    /* Sum of those with a clear sign bit, and of the others. */
    void (*sum_sides)(const float *x, size_t n, float sum[2]);
    /* Sum of x and of x * x. */
    void (*sum_squares)(const float *x, size_t n, float sum[2]);

    /* All x finite. To the nearest, even in the middle. */
    void (*nearest8)(const float *x, size_t n, struct spr_quantiser q, int8_t *code);
    void (*nearest16)(const float *x, size_t n, struct spr_quantiser q, int16_t *code);
    /* floor((nearest(x * inverse * 2^16) + 16 random bits) / 2^16): up with the probability of the
     * fraction, within 2^-17. */
    void (*random8)(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                    int8_t *code);
    void (*decode8)(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out);
    void (*decode16)(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out);

    /* The low `width` bits of every code, put side by side from bit 0 of byte 0 on; (n * width + 7)
     * / 8 bytes. unpack extends the sign. width 1..8, and 1..16. */
    void (*pack8)(const int8_t *code, size_t n, unsigned width, uint8_t *out);
    void (*pack16)(const int16_t *code, size_t n, unsigned width, uint8_t *out);
    void (*unpack8)(const uint8_t *in, size_t n, unsigned width, int8_t *code);
    void (*unpack16)(const uint8_t *in, size_t n, unsigned width, int16_t *code);

    /* Bit i of out: the sign bit of x[i]; (n + 7) / 8 bytes. Returns the sum of |x|. */
    float (*signs)(const float *x, size_t n, uint8_t *out);
    /* v = value[bit i] */
    void (*decode_signs)(const uint8_t *bits, size_t n, const float value[2], enum spr_decode how,
                         float *out);

    /* Exponent of a power of two next to |x|: the upper one with the probability of the fraction,
     * within 2^-17, but never that of infinity; 255 for NaN and Inf. */
    void (*natural)(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent);
    /* v = +-2^(exponent - 127), +-0 for 0, NaN for 255. TAKE leaves 0 where out is not finite. */
    void (*decode_natural)(const uint8_t *exponent, const uint8_t *signs, size_t n,
                           enum spr_decode how, float *out);

    /* As in compress/value.h, but what is finite stays so: the largest finite value stands in.
     * Decoding: TAKE leaves 0 where out is not finite. */
    void (*fp16_encode)(const float *x, size_t n, uint16_t *out);
    void (*bf16_encode)(const float *x, size_t n, uint16_t *out);
    void (*fp16_decode)(const uint16_t *in, size_t n, enum spr_decode how, float *out);
    void (*bf16_decode)(const uint16_t *in, size_t n, enum spr_decode how, float *out);

    /* Error feedback, in two passes over a group: r += g with what a coder has to know of it, then
     * the codes and what stays. The bits are those of add() with largest(), of nearest8() with
     * decode8(), and of add() with signs(). */
    uint32_t (*add_largest)(float *r, const float *g, size_t n);
    void (*nearest8_take)(float *x, size_t n, struct spr_quantiser q, int8_t *code);
    float (*add_signs)(float *r, const float *g, size_t n, uint8_t *out);

    /* Copies, past the caches where `streams`, but for lines that are not whole at both ends; other
     * threads see it after fence(). */
    void (*stream)(const void *in, size_t bytes, void *out);
    void (*fence)(void);
    _Bool streams;
};

extern const struct spr_values_kernels spr_values_kernels_scalar;
extern const struct spr_values_kernels spr_values_kernels_avx2;   /* only with HAVE_X86 */
extern const struct spr_values_kernels spr_values_kernels_avx512; /* only with HAVE_AVX512 */
extern const struct spr_values_kernels spr_values_kernels_neon;   /* only with HAVE_ARM64 */

/* The best table for this CPU (spr_cpu_features()). */
const struct spr_values_kernels *spr_values_kernels(void);

/* The kernels of error feedback from those that define their bits, one after the other. */
#define SPR_VALUES_STEP_BY_STEP(add, largest, nearest8, decode8, signs)                            \
    static uint32_t add_largest(float *r, const float *g, size_t n)                                \
    {                                                                                              \
        add(r, g, n);                                                                              \
        return largest(r, n);                                                                      \
    }                                                                                              \
    static void nearest8_take(float *x, size_t n, struct spr_quantiser q, int8_t *code)            \
    {                                                                                              \
        nearest8(x, n, q, code);                                                                   \
        decode8(code, n, q.scale, SPR_DECODE_TAKE, x);                                             \
    }                                                                                              \
    static float add_signs(float *r, const float *g, size_t n, uint8_t *out)                       \
    {                                                                                              \
        add(r, g, n);                                                                              \
        return signs(r, n, out);                                                                   \
    }

/* lane[0] = the sum of all SPR_SUM_LANES, in the order above. */
static inline float spr_sum_lanes(float *lane)
{
    for (int width = SPR_SUM_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

/* The same after |x|, which is shorter than that, went to its lanes. */
static inline float spr_sum_with(float *lane, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lane[i] += __builtin_fabsf(x[i]);
    return spr_sum_lanes(lane);
}

/* A copy by one of whole lines to whole lines, a constant where this is inlined. */
static inline __attribute__((always_inline)) void
spr_stream_by(void (*lines)(const char *, size_t, char *), const char *in, size_t bytes, char *out)
{
    size_t head = -(uintptr_t)out % SPR_VALUES_LINE, whole;

    head = head < bytes ? head : bytes;
    whole = (bytes - head) / SPR_VALUES_LINE * SPR_VALUES_LINE;
    if (head > 0)
        memcpy(out, in, head);
    lines(in + head, whole, out + head);
    if (head + whole < bytes)
        memcpy(out + head + whole, in + head + whole, bytes - head - whole);
}

/* AVX2 kernels, one group per file: the tables of AVX2 and of AVX-512 have them. */

/* values_avx2.c */
void spr_avx2_add(float *r, const float *g, size_t n);
uint32_t spr_avx2_largest(const float *x, size_t n);
void spr_avx2_sum_sides(const float *x, size_t n, float sum[2]);
void spr_avx2_sum_squares(const float *x, size_t n, float sum[2]);
void spr_avx2_nearest8(const float *x, size_t n, struct spr_quantiser q, int8_t *code);
void spr_avx2_nearest16(const float *x, size_t n, struct spr_quantiser q, int16_t *code);
void spr_avx2_random8(const float *x, size_t n, struct spr_quantiser q, struct spr_draw draw,
                      int8_t *code);
void spr_avx2_decode8(const int8_t *code, size_t n, float scale, enum spr_decode how, float *out);
void spr_avx2_decode16(const int16_t *code, size_t n, float scale, enum spr_decode how, float *out);

/* values_feedback_avx2.c */
uint32_t spr_avx2_add_largest(float *r, const float *g, size_t n);
void spr_avx2_nearest8_take(float *x, size_t n, struct spr_quantiser q, int8_t *code);
float spr_avx2_add_signs(float *r, const float *g, size_t n, uint8_t *out);

/* values_bits_avx2.c */
void spr_avx2_pack8(const int8_t *code, size_t n, unsigned width, uint8_t *out);
void spr_avx2_pack16(const int16_t *code, size_t n, unsigned width, uint8_t *out);
void spr_avx2_unpack8(const uint8_t *in, size_t n, unsigned width, int8_t *code);
void spr_avx2_unpack16(const uint8_t *in, size_t n, unsigned width, int16_t *code);
void spr_avx2_decode_signs(const uint8_t *bits, size_t n, const float value[2], enum spr_decode how,
                           float *out);
void spr_avx2_natural(const float *x, size_t n, struct spr_draw draw, uint8_t *exponent);
void spr_avx2_fp16_encode_finite(const float *x, size_t n, uint16_t *out);
void spr_avx2_bf16_encode_finite(const float *x, size_t n, uint16_t *out);
void spr_avx2_fence(void);

#endif
