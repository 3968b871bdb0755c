/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Counter-based random numbers: a value is a pure function of (seed, counter), so that results do
 * not depend on the number of threads or slices.
 */
#ifndef SPR_BASE_RNG_H
#define SPR_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* 64 well-mixed bits of (seed, counter): Philox2x64-10 (Salmon et al., SC'11). */
uint64_t spr_rng_u64(uint64_t seed, uint64_t counter);
/* Cheap 32 bits (two rounds of a 64-bit finaliser), for simulation and data generation. */
static inline uint32_t spr_hash_u32(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    return (uint32_t)(x >> 16);
}

/* A stream: seed plus a running counter. */
struct spr_rng {
    uint64_t seed, counter;
};
static inline uint64_t spr_rng_next(struct spr_rng *r)
{
    return spr_rng_u64(r->seed, r->counter++);
}
/* Uniform in [0, n), n > 0, without modulo bias worth mentioning (multiply-shift). */
static inline uint64_t spr_rng_below(struct spr_rng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)spr_rng_next(r) * n) >> 64);
}
/* Uniform in [0, 1). */
static inline double spr_rng_double(struct spr_rng *r)
{
    return (double)(spr_rng_next(r) >> 11) * 0x1p-53;
}

/* order[0..n-1] = the numbers below n, each order as likely as the others. */
void spr_rng_order(struct spr_rng *r, size_t *order, size_t n);

/* A seed for tests: SPARRING_SEED when set, else from the kernel; printed by the caller. */
uint64_t spr_rng_test_seed(void);

#endif
