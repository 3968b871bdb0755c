/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Asking for memory that comes next, on x86.
 *
 * Whether it helps depends on who made the CPU. Zen 3 and Zen 4 fetch ahead by themselves what is
 * read in order, and earlier where no prefetch is in their way. An Emerald Rapids does not keep up
 * with work on what it reads: int8 takes 1.8 to 2.0 times as long as reading alone, 1.2 to 1.4
 * times if it asks. A Zen 5 that asks takes 5 to 16 % less time for int8 and 10 to 15 % less for
 * signs, but 10 % more to add up decoded int8 and bf16.
 */
#ifndef SPR_COMPRESS_KERNELS_AHEAD_H
#define SPR_COMPRESS_KERNELS_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

/* What is selected, summed or fed back is asked for so far ahead on every CPU: by itself the
 * hardware gets not far enough past that much work. */
#define SPR_AHEAD_BYTES 2048

/* How far ahead to ask where memory is read in order, in bytes: 0, what is read now, asks for
 * nothing. */
static inline size_t spr_ahead_in_order(void)
{
    return spr_cpu_features() & SPR_CPU_FETCH ? SPR_AHEAD_BYTES : 0;
}

/* The same where what is decoded, from bytes or halves, is added up or set. */
static inline size_t spr_ahead_of_two(void)
{
    return spr_cpu_features() & SPR_CPU_FETCH_TWO ? SPR_AHEAD_BYTES : 0;
}

/* The same in the second pass over a group of n floats, which is in L1: the next group. */
static inline size_t spr_ahead_next(size_t n)
{
    return spr_cpu_features() & SPR_CPU_FETCH ? n * sizeof(float) : 0;
}

/* Behind the end of a vector this is of no use, and no error. Not _mm_prefetch(): gcc 12 takes a
 * function that does nothing else for one without an effect, and leaves out the call, sometimes. */
static inline void spr_ahead(const void *x, size_t bytes)
{
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)((uintptr_t)x + bytes)));
}

/* For 32 floats. */
static inline void spr_ahead32(const float *x, size_t bytes)
{
    spr_ahead(x, bytes);
    spr_ahead(x + 16, bytes);
}

#endif
