/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Memory inside the library. All allocations go through here, so that tests can make the n-th fail.
 */
#ifndef SPR_BASE_MEM_H
#define SPR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As malloc, calloc, realloc, free. NULL on failure only: 0 bytes is a valid size. Thread-safe. */
void *spr_malloc(size_t bytes);
void *spr_calloc(size_t n, size_t bytes);
void *spr_realloc(void *p, size_t bytes);
char *spr_strdup(const char *s);
void spr_free(void *p);
/* Aligned to `alignment` (a power of two, at least sizeof(void *)); free with spr_free. */
void *spr_aligned_alloc(size_t alignment, size_t bytes);

/* Tests: the n-th allocation from now (1 = the next) fails once; 0 = never. Process-wide. Returns
 * what was left of the previous n; 0: that allocation has failed. */
uint64_t spr_mem_fail_nth(uint64_t n);
/* Allocations not yet freed (0 when nothing leaks). */
int64_t spr_mem_live(void);
/* Their bytes, as the allocator rounds them up; of pages, as they were asked for. */
int64_t spr_mem_live_bytes(void);

/* Anonymous pages, zeroed; aligned to SPR_HUGE_PAGE with MADV_HUGEPAGE when bytes is at least that.
 * The rest of the last page belongs to the caller too. Counts as one allocation. NULL on failure.
 */
void *spr_pages_alloc(size_t bytes);
/* `bytes` as it was allocated; p may be NULL. */
void spr_pages_free(void *p, size_t bytes);
/* mlock; on refusal one warning per process with limit and remedy, returns false. */
bool spr_pages_lock(void *p, size_t bytes);

/*
 * Arena: bump allocation out of blocks; everything is freed at once. Not thread-safe.
 */
struct spr_arena {
    struct spr_arena_block *blocks;
    size_t block_bytes;
};
void spr_arena_init(struct spr_arena *arena, size_t block_bytes);
/* 64-byte aligned, zeroed; NULL: no memory. */
void *spr_arena_alloc(struct spr_arena *arena, size_t bytes);
/* The same, but not zeroed: for buffers, which are written before they are read. */
void *spr_arena_buffer(struct spr_arena *arena, size_t bytes);
/* Forget all allocations. One block is kept for reuse, unless it is longer than `most` bytes. */
void spr_arena_reset(struct spr_arena *arena, size_t most);
/* Of all its blocks. */
size_t spr_arena_bytes(const struct spr_arena *arena);
void spr_arena_free(struct spr_arena *arena);

/*
 * Pool of equal buffers, grown on demand by per_block up to `max` (0 = no limit), page-aligned when
 * object_bytes is at least a page, else aligned to a cache line. Contents are undefined. Freed
 * buffers are reused last-in first-out. Not thread-safe.
 */
struct spr_pool {
    void *free_list;
    size_t object_bytes, per_block, live, total, max;
    struct spr_pool_block *blocks;
    /* Told of each block of memory as it is taken; may be NULL. */
    void (*grown)(void *ctx, void *memory, size_t bytes);
    void *grown_ctx;
};
void spr_pool_init(struct spr_pool *pool, size_t object_bytes, size_t per_block, size_t max);
void *spr_pool_get(struct spr_pool *pool); /* NULL: at max or no memory */
void spr_pool_put(struct spr_pool *pool, void *object);
void spr_pool_destroy(struct spr_pool *pool);

#endif
