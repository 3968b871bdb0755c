/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Small helpers without state.
 */
#ifndef SPR_BASE_UTIL_H
#define SPR_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

/* Before a loop: nothing depends on an earlier iteration. */
#if defined(__clang__)
#define SPR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define SPR_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SPR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define spr_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define SPR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SPR_CACHE_LINE 64
#define SPR_HUGE_PAGE ((size_t)2 << 20)

static inline size_t spr_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t spr_max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline uint64_t spr_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t spr_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline size_t spr_div_ceil(size_t a, size_t b) { return (a + b - 1) / b; }
/* Behind a noun: "1 rank", "2 ranks". */
static inline const char *spr_plural(uint64_t count) { return count == 1 ? "" : "s"; }
/* alignment is a power of two */
static inline size_t spr_align_up(size_t a, size_t alignment)
{
    return (a + alignment - 1) & ~(alignment - 1);
}

#endif
