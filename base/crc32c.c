/* SPDX-License-Identifier: BSD-2-Clause
 *
 * CRC-32C by the instructions of the CPU, or without where it has none (crc32c_scalar.c), or where
 * QEMU emulates them, which takes 20 times as long. Data that comes from memory costs what memory
 * costs; so whoever checks payloads does it while they are in the cache.
 *
 * x86: crc32 takes 8 bytes per cycle but answers after 3 cycles, so three streams run side by side
 * (V. Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", Intel
 * 2011). To combine them, the CRC of a stream is moved over the n bytes that follow it, that is
 * multiplied by x^(8n) modulo P: pclmul multiplies by x^(8n - 33), the crc32 instruction reduces
 * the product and adds 32 to the exponent, and the product of two bit-reflected numbers adds one.
 *
 * crc32 keeps one port of the CPU busy and pclmul another, so long data is shared out between them:
 * three streams by crc32, and a fourth that is folded by pclmul, 64 bytes onto the next 64 (the
 * same authors, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
 */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_SSE42 __attribute__((target("sse4.2")))
#define TARGET_PCLMUL __attribute__((target("sse4.2,pclmul")))
#define TARGET_FOLD __attribute__((target("sse4.2,pclmul,avx"))) /* avx: three operands */

/* Bytes per stream. Long ones make the combination cheap, short ones serve short frames. */
#define LONG 2048
#define SHORT 256
/* x^(8n - 33) modulo P, bit-reflected, for n bytes. */
#define POWER_LONG 0xa51b6135u    /* n = 2048 */
#define POWER_2_LONG 0x82f89c77u  /* n = 4096 */
#define POWER_SHORT 0xb9e02b86u   /* n = 256 */
#define POWER_2_SHORT 0xdd7e3b0cu /* n = 512 */

/* Steps of a block that is shared out; each takes 24 bytes of three streams and 64 of the fourth.
 */
#define STEPS 32
#define STREAM (STEPS * (size_t)24)
#define FOLDED (STEPS * (size_t)64)
#define BLOCK (3 * STREAM + FOLDED)
#define POWER_FOLDED 0xa51b6135u          /* n = FOLDED */
#define POWER_STREAM_FOLDED 0x8515c07fu   /* n = STREAM + FOLDED */
#define POWER_2_STREAM_FOLDED 0x96a1f19bu /* n = 2 STREAM + FOLDED */
/* To fold over n bytes: x^(8(n + 8) - 33) for the low half, whose bits are worth more, x^(8n - 33).
 */
#define FOLD_64 _mm_setr_epi32(0x740eef02, 0, (int)0x9e4addf8, 0)
#define FOLD_16 _mm_setr_epi32((int)0xf20c0dfe, 0, 0x493c7d27, 0)

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t load32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

TARGET_SSE42
static uint64_t stream_x86(uint64_t crc, const unsigned char *p, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8)
        crc = _mm_crc32_u64(crc, load64(p));
    if (bytes >= 4) {
        crc = _mm_crc32_u32((uint32_t)crc, load32(p));
        bytes -= 4;
        p += 4;
    }
    for (; bytes > 0; bytes--)
        crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return crc;
}

TARGET_SSE42
static uint32_t crc_sse42(uint32_t crc, const void *data, size_t bytes)
{
    return ~(uint32_t)stream_x86((uint32_t)~crc, data, bytes);
}

TARGET_PCLMUL
static inline uint64_t multiply(uint64_t crc, uint32_t power)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
                                           _mm_cvtsi64_si128((long long)power), 0);

    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* Three streams of `length` bytes each; a multiple of 8. */
TARGET_PCLMUL
__attribute__((always_inline)) static inline uint64_t
three_streams(uint64_t crc, const unsigned char *p, size_t length, uint32_t power, uint32_t power_2)
{
    uint64_t b = 0, c = 0;

    for (const unsigned char *end = p + length; p < end; p += 8) {
        crc = _mm_crc32_u64(crc, load64(p));
        b = _mm_crc32_u64(b, load64(p + length));
        c = _mm_crc32_u64(c, load64(p + 2 * length));
    }
    return c ^ _mm_crc32_u64(0, multiply(crc, power_2) ^ multiply(b, power));
}

/* The CRC register after the bytes that fold() stands for. */
TARGET_FOLD
static inline uint64_t remainder_of(__m128i folded)
{
    uint64_t low = (uint64_t)_mm_cvtsi128_si64(folded);

    return _mm_crc32_u64(_mm_crc32_u64(0, low), (uint64_t)_mm_extract_epi64(folded, 1));
}

TARGET_FOLD
static inline __m128i load128(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

TARGET_FOLD
static inline __m128i fold(__m128i a, __m128i power, __m128i next)
{
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(a, power, 0x00), _mm_clmulepi64_si128(a, power, 0x11)),
        next);
}

/* BLOCK bytes: three streams, then the folded one. */
TARGET_FOLD
__attribute__((always_inline)) static inline uint64_t
shared_block(uint64_t crc, const unsigned char *p, bool cold)
{
    const unsigned char *v = p + 3 * STREAM, *next = p + BLOCK;
    const __m128i far = FOLD_64, near = FOLD_16;
    __m128i a0 = load128(v), a1 = load128(v + 16), a2 = load128(v + 32), a3 = load128(v + 48);
    uint64_t b = 0, c = 0;

    for (const unsigned char *end = p + STREAM; p < end; p += 24, next += BLOCK / STEPS) {
        if (cold) { /* four streams are too many for the CPU to see the next block coming */
            _mm_prefetch((const char *)next, _MM_HINT_T0);
            _mm_prefetch((const char *)next + 64, _MM_HINT_T0);
        }
        for (size_t i = 0; i < 24; i += 8) {
            crc = _mm_crc32_u64(crc, load64(p + i));
            b = _mm_crc32_u64(b, load64(p + STREAM + i));
            c = _mm_crc32_u64(c, load64(p + 2 * STREAM + i));
        }
        if (p + 24 == end)
            break; /* the folded stream began one step ahead */
        v += 64;
        a0 = fold(a0, far, load128(v));
        a1 = fold(a1, far, load128(v + 16));
        a2 = fold(a2, far, load128(v + 32));
        a3 = fold(a3, far, load128(v + 48));
    }
    a0 = fold(fold(fold(a0, near, a1), near, a2), near, a3);
    return remainder_of(a0) ^
           _mm_crc32_u64(0, multiply(crc, POWER_2_STREAM_FOLDED) ^
                                multiply(b, POWER_STREAM_FOLDED) ^ multiply(c, POWER_FOLDED));
}

TARGET_PCLMUL
static uint64_t streams_x86(uint64_t crc, const unsigned char *p, size_t bytes)
{
    for (; bytes >= (size_t)3 * LONG; bytes -= (size_t)3 * LONG, p += (size_t)3 * LONG)
        crc = three_streams(crc, p, LONG, POWER_LONG, POWER_2_LONG);
    for (; bytes >= (size_t)3 * SHORT; bytes -= (size_t)3 * SHORT, p += (size_t)3 * SHORT)
        crc = three_streams(crc, p, SHORT, POWER_SHORT, POWER_2_SHORT);
    return stream_x86(crc, p, bytes);
}

TARGET_PCLMUL
static uint32_t crc_pclmul(uint32_t crc, const void *data, size_t bytes)
{
    return ~(uint32_t)streams_x86((uint32_t)~crc, data, bytes);
}

TARGET_FOLD
__attribute__((always_inline)) static inline uint32_t shared(uint32_t crc, const void *data,
                                                             size_t bytes, bool cold)
{
    const unsigned char *p = data;
    uint64_t c = (uint32_t)~crc;

    for (; bytes >= BLOCK; bytes -= BLOCK, p += BLOCK)
        c = shared_block(c, p, cold);
    return ~(uint32_t)streams_x86(c, p, bytes);
}

TARGET_FOLD
static uint32_t crc_shared(uint32_t crc, const void *data, size_t bytes)
{
    return shared(crc, data, bytes, false);
}

TARGET_FOLD
static uint32_t crc_shared_cold(uint32_t crc, const void *data, size_t bytes)
{
    return shared(crc, data, bytes, true);
}

static uint32_t dispatch(uint32_t crc, const void *data, size_t bytes, bool cold)
{
    uint32_t features = spr_cpu_features();

    if ((features & (SPR_CPU_SSE42 | SPR_CPU_EMULATED)) != SPR_CPU_SSE42)
        return spr_crc32c_scalar(crc, data, bytes);
    if (!(features & SPR_CPU_PCLMUL) || bytes < (size_t)3 * SHORT)
        return crc_sse42(crc, data, bytes);
    if ((features & SPR_CPU_AVX2) && bytes >= BLOCK)
        return (cold ? crc_shared_cold : crc_shared)(crc, data, bytes);
    return crc_pclmul(crc, data, bytes);
}

uint32_t spr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return dispatch(crc, data, bytes, false);
}

uint32_t spr_crc32c_cold(uint32_t crc, const void *data, size_t bytes)
{
    return dispatch(crc, data, bytes, true);
}

#elif defined(__aarch64__)

/* The builtins of arm_acle.h need the instruction set for the whole file, the assembler does not.
 */
static inline uint32_t step64(uint32_t crc, uint64_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
    return crc;
}

static inline uint32_t step8(uint32_t crc, uint32_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(v));
    return crc;
}

static uint32_t crc_arm64(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        crc = step64(crc, v);
    }
    for (; bytes > 0; bytes--)
        crc = step8(crc, *p++);
    return ~crc;
}

uint32_t spr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (spr_cpu_features() & SPR_CPU_CRC32)
        return crc_arm64(crc, data, bytes);
    return spr_crc32c_scalar(crc, data, bytes);
}

#else

uint32_t spr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return spr_crc32c_scalar(crc, data, bytes);
}

#endif

#if !defined(__x86_64__)
uint32_t spr_crc32c_cold(uint32_t crc, const void *data, size_t bytes)
{
    return spr_crc32c(crc, data, bytes);
}
#endif
