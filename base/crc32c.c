/* SPDX-License-Identifier: BSD-2-Clause
 *
 * CRC-32C by the instructions of the CPU.
 *
 * x86: crc32 takes 8 bytes per cycle but answers after 3 cycles, so three streams run side by side
 * (V. Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", Intel
 * 2011). To combine them, the CRC of a stream is moved over the n bytes that follow it, that is
 * multiplied by x^(8n) modulo P: pclmul multiplies by x^(8n - 33), the crc32 instruction reduces
 * the product and adds 32 to the exponent, and the product of two bit-reflected numbers adds one.
 */
#include "base/crc32c.h"

#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_SSE42 __attribute__((target("sse4.2")))
#define TARGET_PCLMUL __attribute__((target("sse4.2,pclmul")))

/* Bytes per stream. Long ones make the combination cheap, short ones serve short frames. */
#define LONG 2048
#define SHORT 256
/* x^(8n - 33) modulo P, bit-reflected, for n bytes. */
#define POWER_LONG 0xa51b6135u    /* n = 2048 */
#define POWER_2_LONG 0x82f89c77u  /* n = 4096 */
#define POWER_SHORT 0xb9e02b86u   /* n = 256 */
#define POWER_2_SHORT 0xdd7e3b0cu /* n = 512 */

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

TARGET_SSE42
static uint64_t stream_x86(uint64_t crc, const unsigned char *p, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8)
        crc = _mm_crc32_u64(crc, load64(p));
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

TARGET_PCLMUL
static uint32_t crc_pclmul(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t c = (uint32_t)~crc;

    for (; bytes >= (size_t)3 * LONG; bytes -= (size_t)3 * LONG, p += (size_t)3 * LONG)
        c = three_streams(c, p, LONG, POWER_LONG, POWER_2_LONG);
    for (; bytes >= (size_t)3 * SHORT; bytes -= (size_t)3 * SHORT, p += (size_t)3 * SHORT)
        c = three_streams(c, p, SHORT, POWER_SHORT, POWER_2_SHORT);
    return ~(uint32_t)stream_x86(c, p, bytes);
}

uint32_t spr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    uint32_t features = spr_cpu_features();

    if ((features & SPR_CPU_SSE42) && (features & SPR_CPU_PCLMUL))
        return crc_pclmul(crc, data, bytes);
    if (features & SPR_CPU_SSE42)
        return crc_sse42(crc, data, bytes);
    return spr_crc32c_scalar(crc, data, bytes);
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
