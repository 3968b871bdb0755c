/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Arena: bump allocation out of a list of blocks, newest first.
 */
#include "base/mem.h"

#include <string.h>

#include "base/util.h"

#define ALIGNMENT ((size_t)SPR_CACHE_LINE)
#define DEFAULT_BLOCK_BYTES ((size_t)64 << 10)

struct spr_arena_block {
    struct spr_arena_block *next;
    size_t used, capacity; /* bytes behind the header */
};

/* The header takes one alignment unit, so the first allocation behind it is aligned too. */
_Static_assert(sizeof(struct spr_arena_block) <= SPR_CACHE_LINE, "block header");

static void *take(struct spr_arena_block *block, size_t bytes)
{
    char *p = (char *)block + ALIGNMENT + block->used;

    block->used += bytes;
    return p;
}

void spr_arena_init(struct spr_arena *arena, size_t block_bytes)
{
    arena->blocks = NULL;
    arena->block_bytes = spr_align_up(block_bytes ? block_bytes : DEFAULT_BLOCK_BYTES, ALIGNMENT);
}

void *spr_arena_buffer(struct spr_arena *arena, size_t bytes)
{
    struct spr_arena_block *head = arena->blocks, *block;
    size_t capacity;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = spr_align_up(spr_max_size(bytes, 1), ALIGNMENT);
    if (head && bytes <= head->capacity - head->used)
        return take(head, bytes);
    capacity = spr_max_size(arena->block_bytes, bytes);
    block = spr_aligned_alloc(ALIGNMENT, ALIGNMENT + capacity);
    if (!block)
        return NULL;
    block->used = 0;
    block->capacity = capacity;
    if (head && capacity - bytes < head->capacity - head->used) {
        /* A large allocation fills its own block; go on filling the one in front of it. */
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->blocks = block;
    }
    return take(block, bytes);
}

void *spr_arena_alloc(struct spr_arena *arena, size_t bytes)
{
    void *p = spr_arena_buffer(arena, bytes);

    return p ? memset(p, 0, bytes) : NULL;
}

static void free_blocks(struct spr_arena_block *block)
{
    while (block) {
        struct spr_arena_block *next = block->next;

        spr_free(block);
        block = next;
    }
}

size_t spr_arena_bytes(const struct spr_arena *arena)
{
    size_t total = 0;

    for (const struct spr_arena_block *b = arena->blocks; b; b = b->next)
        total += b->capacity;
    return total;
}

/* After a reset one block holds what several held before, so that a repeated pattern of allocations
 * settles on one block and then never asks for memory again. */
void spr_arena_reset(struct spr_arena *arena, size_t most)
{
    size_t total = spr_arena_bytes(arena);

    if (!arena->blocks)
        return;
    if (arena->blocks->next || total > most) {
        spr_arena_free(arena);
        if (total <= most)
            arena->block_bytes = spr_max_size(arena->block_bytes, total);
        return;
    }
    arena->blocks->used = 0;
}

void spr_arena_free(struct spr_arena *arena)
{
    free_blocks(arena->blocks);
    arena->blocks = NULL;
}
