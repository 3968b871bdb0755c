/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/log.h"
#include "base/util.h"

#define KNOWN ((uint32_t)1 << 31)

#if defined(__x86_64__)
#define HYPERVISOR ((unsigned)1 << 31) /* of ecx of leaf 1 */
#define HYPERVISOR_LEAF 0x40000000u

/* Under a hypervisor that leaf has its name. */
static bool emulated(void)
{
    unsigned eax, ebx, ecx, edx, name[3];

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & HYPERVISOR))
        return false;
    __cpuid(HYPERVISOR_LEAF, eax, name[0], name[1], name[2]);
    return memcmp(name, "TCGTCGTCGTCG", sizeof name) == 0;
}

#define ZEN_5 0x1a /* the family, of AMD's */

static unsigned family(void)
{
    unsigned eax, ebx, ecx, edx;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return 0;
    return (eax >> 8 & 0xf) + (eax >> 20 & 0xff); /* the second one counts from 15 on */
}

static uint32_t detect(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    uint32_t f = 0;

    /* The AVX answers of the compiler's run time include that the system saves the registers. */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        f |= SPR_CPU_SSE42;
    if (__builtin_cpu_supports("pclmul"))
        f |= SPR_CPU_PCLMUL;
    /* F16C is not a name that all compilers know. */
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) &&
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        f |= SPR_CPU_AVX2;
    if ((f & SPR_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        f |= SPR_CPU_AVX512;
    if (__builtin_cpu_is("intel"))
        f |= SPR_CPU_FETCH | SPR_CPU_FETCH_TWO;
    else if (__builtin_cpu_is("amd") && family() >= ZEN_5)
        f |= SPR_CPU_FETCH;
    if (emulated())
        f |= SPR_CPU_EMULATED;
    return f;
}
#elif defined(__aarch64__)
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
static uint32_t detect(void)
{
    uint32_t f = SPR_CPU_NEON; /* part of the base architecture */

    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        f |= SPR_CPU_CRC32;
    return f;
}
#else
static uint32_t detect(void) { return 0; }
#endif

/* On x86, QEMU turns vectors of 256 bits into loads and stores of 64, and calls a function for
 * nearly all that is not bit logic: with what the compiler makes of the scalar kernels, sums and
 * selections take half the time or less there. (int8 and int4 take up to 1.5 times as long to
 * encode. Measured on an Intel host.) */
uint32_t spr_cpu_allowed(uint32_t detected)
{
    const char *text = getenv("SPARRING_SIMD");
    uint32_t best = detected;

    if (detected & SPR_CPU_EMULATED)
        best &= ~(uint32_t)(SPR_CPU_AVX2 | SPR_CPU_AVX512);
    if (!text || !*text || strcmp(text, "auto") == 0)
        return best;
    if (strcmp(text, "scalar") == 0)
        return 0;
    if (strcmp(text, "avx2") == 0)
        return detected & ~(uint32_t)SPR_CPU_AVX512;
    /* The best that there is, on either kind of CPU. */
    if (strcmp(text, "avx512") == 0 || strcmp(text, "neon") == 0)
        return detected;
    spr_warn(SPR_SUB_INIT, "SPARRING_SIMD='%s' ignored: use scalar, avx2, avx512, neon or auto",
             text);
    return best;
}

/* 0 = not asked yet. Two threads that ask at once compute the same. */
static _Atomic uint32_t cached;

uint32_t spr_cpu_features(void)
{
    uint32_t f = atomic_load_explicit(&cached, memory_order_relaxed);

    if (__builtin_expect(f == 0, 0)) {
        f = spr_cpu_allowed(detect()) | KNOWN;
        atomic_store_explicit(&cached, f, memory_order_relaxed);
    }
    return f & ~KNOWN;
}

void spr_cpu_override(uint32_t features)
{
    atomic_store(&cached, features == UINT32_MAX ? 0 : features | KNOWN);
}

/* The affinity mask of this thread, of *bytes, for CPU_FREE(); NULL when the kernel does not say.
 */
static cpu_set_t *affinity(size_t *bytes)
{
    /* The kernel refuses a mask shorter than its own. */
    for (int cpus = SPR_CPU_SET_CPUS; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);

        *bytes = CPU_ALLOC_SIZE((size_t)cpus);
        if (!set || sched_getaffinity(0, *bytes, set) == 0)
            return set;
        CPU_FREE(set);
    }
    return NULL;
}

void spr_cpu_set_own(struct spr_cpu_set *set)
{
    size_t bytes;
    cpu_set_t *mask = affinity(&bytes);

    *set = (struct spr_cpu_set){0};
    for (size_t i = 0; mask && i < SPR_CPU_SET_CPUS; i++)
        if (CPU_ISSET_S(i, bytes, mask))
            set->words[i / 64] |= 1ull << i % 64;
    CPU_FREE(mask);
}

static bool is_set(const struct spr_cpu_set *set, size_t i)
{
    return set->words[i / 64] >> i % 64 & 1;
}

void spr_cpu_set_count(const struct spr_cpu_set *set, uint32_t counts[SPR_CPU_SET_CPUS])
{
    for (size_t i = 0; i < SPR_CPU_SET_CPUS; i++)
        counts[i] += is_set(set, i);
}

double spr_cpu_set_share(const struct spr_cpu_set *set, const uint32_t counts[SPR_CPU_SET_CPUS])
{
    double share = 0;

    for (size_t i = 0; i < SPR_CPU_SET_CPUS; i++)
        if (is_set(set, i))
            share += 1.0 / counts[i];
    return share;
}

int spr_cpu_usable(void)
{
    size_t bytes;
    cpu_set_t *set = affinity(&bytes);
    int n = set ? CPU_COUNT_S(bytes, set) : 0;
    double quota = spr_cpu_quota("");

    CPU_FREE(set);

    if (quota > 0 && quota < n)
        n = (int)quota;
    return n > 0 ? n : 1;
}
