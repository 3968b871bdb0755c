/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A test for every instruction set that has kernels of its own.
 */
#ifndef SPR_TESTS_UNIT_SIMD_H
#define SPR_TESTS_UNIT_SIMD_H

#include <stdint.h>
#include <stdio.h>

#include "base/cpu.h"

/* Of the set under test: for spr_cpu_override(), to come back from the scalar kernels. */
static uint32_t simd_features;

/* Calls run() for each set that this CPU has and SPARRING_SIMD allows; returns the failures. */
static inline int simd_for_each(int (*run)(void))
{
    uint32_t all = spr_cpu_features();
    int failed = 0;

    if (all & SPR_CPU_AVX512) {
        spr_cpu_override(simd_features = all & ~(uint32_t)SPR_CPU_AVX512);
        failed += run();
    } else {
        printf("AVX-512 kernels skipped: not on this CPU, or not with this SPARRING_SIMD\n");
    }
    if (!(all & (SPR_CPU_AVX2 | SPR_CPU_NEON)))
        printf("SIMD kernels skipped: not on this CPU, or slow there, or not with this "
               "SPARRING_SIMD\n");
    spr_cpu_override(simd_features = all);
    return failed + run();
}

#endif
