/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Pool of equal buffers. A free buffer holds the pointer to the next free one in its first bytes.
 */
#include "base/mem.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

struct spr_pool_block {
    struct spr_pool_block *next;
    void *memory;
    size_t bytes;
    bool pages; /* from spr_pages_alloc */
};

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Distance of neighbours: whole pages, or cache lines so that two owners never share one. */
static size_t stride(const struct spr_pool *pool)
{
    size_t page = page_bytes();

    return spr_align_up(pool->object_bytes,
                        pool->object_bytes >= page ? page : (size_t)SPR_CACHE_LINE);
}

void spr_pool_init(struct spr_pool *pool, size_t object_bytes, size_t per_block, size_t max)
{
    assert(object_bytes <= SIZE_MAX / 2);
    *pool = (struct spr_pool){
        .object_bytes = spr_max_size(object_bytes, sizeof(void *)),
        .per_block = spr_max_size(per_block, 1),
        .max = max,
    };
}

static struct spr_pool_block *new_block(const struct spr_pool *pool, size_t bytes)
{
    struct spr_pool_block *block = spr_malloc(sizeof(*block));

    if (!block)
        return NULL;
    block->bytes = bytes;
    block->pages = pool->object_bytes >= page_bytes();
    block->memory =
        block->pages ? spr_pages_alloc(bytes) : spr_aligned_alloc(SPR_CACHE_LINE, bytes);
    if (!block->memory) {
        spr_free(block);
        return NULL;
    }
    return block;
}

static void push(struct spr_pool *pool, void *object)
{
    memcpy(object, &pool->free_list, sizeof(void *));
    pool->free_list = object;
}

static bool grow(struct spr_pool *pool)
{
    size_t step = stride(pool), n = pool->per_block;
    struct spr_pool_block *block;

    if (pool->max)
        n = spr_min_size(n, pool->max - pool->total);
    if (n == 0 || n > SIZE_MAX / 2 / step)
        return false;
    block = new_block(pool, n * step);
    if (!block)
        return false;
    block->next = pool->blocks;
    pool->blocks = block;
    pool->total += n;
    if (pool->grown)
        pool->grown(pool->grown_ctx, block->memory, block->bytes);
    /* Backwards, so that buffers are handed out in ascending order. */
    for (size_t i = n; i-- > 0;)
        push(pool, (char *)block->memory + i * step);
    return true;
}

void *spr_pool_get(struct spr_pool *pool)
{
    void *object;

    if (!pool->free_list && !grow(pool))
        return NULL;
    object = pool->free_list;
    memcpy(&pool->free_list, object, sizeof(void *));
    pool->live++;
    return object;
}

void spr_pool_put(struct spr_pool *pool, void *object)
{
    if (!object)
        return;
    assert(pool->live > 0);
    pool->live--;
    push(pool, object);
}

void spr_pool_destroy(struct spr_pool *pool)
{
    struct spr_pool_block *block = pool->blocks;

    while (block) {
        struct spr_pool_block *next = block->next;

        if (block->pages)
            spr_pages_free(block->memory, block->bytes);
        else
            spr_free(block->memory);
        spr_free(block);
        block = next;
    }
    pool->blocks = NULL;
    pool->free_list = NULL;
    pool->live = pool->total = 0;
}
