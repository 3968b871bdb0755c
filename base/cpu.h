/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What this CPU can do, and how many of them this process may use.
 */
#ifndef SPR_BASE_CPU_H
#define SPR_BASE_CPU_H

#include <stdint.h>

enum spr_cpu_feature {
    SPR_CPU_SSE42 = 1,
    SPR_CPU_PCLMUL = 2,
    SPR_CPU_AVX2 = 4,   /* with F16C, BMI2 and FMA present */
    SPR_CPU_AVX512 = 8, /* F, BW, DQ and VL, with AVX2 */
    SPR_CPU_NEON = 16,
    SPR_CPU_CRC32 = 32,     /* arm64 CRC instructions */
    SPR_CPU_EMULATED = 64,  /* an x86 by QEMU: CRCs go bit by bit, vectors by 64 bits */
    SPR_CPU_FETCH = 128,    /* what is read in order comes sooner if asked for (Intel, Zen 5) */
    SPR_CPU_FETCH_TWO = 256 /* ... also beside another such stream (Intel) */
};

/* Bits of enum spr_cpu_feature, masked by SPARRING_SIMD=scalar|avx2|avx512|neon|auto. Cached. */
uint32_t spr_cpu_features(void);
/* What SPARRING_SIMD leaves of what was detected. */
uint32_t spr_cpu_allowed(uint32_t detected);
/* Tests: override (UINT32_MAX = back to detection). */
void spr_cpu_override(uint32_t features);

/* CPUs that this process may use: affinity mask, cgroup v1/v2 quota (rounded down); at least 1. */
int spr_cpu_usable(void);

#define SPR_CPU_SET_CPUS 1024

/* Bit i % 64 of word i / 64: CPU i. CPUs from SPR_CPU_SET_CPUS on are left out. */
struct spr_cpu_set {
    uint64_t words[SPR_CPU_SET_CPUS / 64];
};

/* Those in the affinity mask of this thread; none when the kernel does not say. */
void spr_cpu_set_own(struct spr_cpu_set *set);
/* One more process may use these: counts[i] of CPU i. */
void spr_cpu_set_count(const struct spr_cpu_set *set, uint32_t counts[SPR_CPU_SET_CPUS]);
/* What a process has of the CPUs of its set when each is shared out among those who may use it;
 * with itself among the counts. 4 processes that may use the same 8: 2. Each on one of its own: 1.
 */
double spr_cpu_set_share(const struct spr_cpu_set *set, const uint32_t counts[SPR_CPU_SET_CPUS]);
/* The CPU quota of the own cgroup and those above it, in CPUs; 0 = none. `root` is put before /proc
 * and /sys ("" for the real ones). */
double spr_cpu_quota(const char *root);

/* Spin hint. */
static inline void spr_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
