/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/memory.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

void spr_memory_init(struct spr_memory *m) { *m = (struct spr_memory){0}; }

static void range_free(struct spr_memory_range *r)
{
    if (r->owned)
        spr_pages_free(r->base, r->bytes); /* unlocks too */
    spr_free(r);
}

void spr_memory_destroy(struct spr_memory *m)
{
    for (size_t i = 0; i < m->count; i++)
        range_free(m->ranges[i]);
    spr_free(m->ranges);
    spr_memory_init(m);
}

/* The index of the first range that begins after this address. */
static size_t first_after(const struct spr_memory *m, uintptr_t address)
{
    size_t low = 0, high = m->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)m->ranges[middle]->base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct spr_memory_range *spr_memory_find(const struct spr_memory *m, const void *memory,
                                         size_t bytes)
{
    size_t i = first_after(m, (uintptr_t)memory), offset;
    struct spr_memory_range *r;

    if (i == 0)
        return NULL;
    r = m->ranges[i - 1];
    offset = (uintptr_t)memory - (uintptr_t)r->base;
    return offset <= r->bytes && bytes <= r->bytes - offset ? r : NULL;
}

/* Room for one more, and the place of [address, address + bytes). */
static spr_status find_place(struct spr_memory *m, uintptr_t address, size_t bytes, size_t *place,
                             struct spr_error *error)
{
    size_t i = first_after(m, address);

    if ((i > 0 && address - (uintptr_t)m->ranges[i - 1]->base < m->ranges[i - 1]->bytes) ||
        (i < m->count && (uintptr_t)m->ranges[i]->base - address < bytes))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "memory of %zu bytes at %#zx overlaps a registered range", bytes,
                             (size_t)address);
    if (m->count == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 16;
        struct spr_memory_range **more = spr_realloc(m->ranges, capacity * sizeof(*more));

        if (!more)
            return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a list of %zu ranges",
                                 capacity);
        m->ranges = more;
        m->capacity = capacity;
    }
    *place = i;
    return SPR_OK;
}

static spr_status add(struct spr_memory *m, const struct spr_memory_range *range,
                      struct spr_memory_range **added, struct spr_error *error)
{
    struct spr_memory_range *r;
    size_t i = 0;
    spr_status status = find_place(m, (uintptr_t)range->base, range->bytes, &i, error);

    if (status)
        return status;
    r = spr_malloc(sizeof(*r));
    if (!r)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory to register a range");
    *r = *range;
    memmove(m->ranges + i + 1, m->ranges + i, (m->count - i) * sizeof(*m->ranges));
    m->ranges[i] = r;
    m->count++;
    *added = r;
    return SPR_OK;
}

static spr_status drop(struct spr_memory *m, const void *memory, bool owned,
                       struct spr_error *error)
{
    size_t i = first_after(m, (uintptr_t)memory);
    struct spr_memory_range *r = i > 0 ? m->ranges[i - 1] : NULL;

    if (!r || r->base != memory || r->owned != owned)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "memory at %#zx was not %s here",
                             (size_t)(uintptr_t)memory, owned ? "allocated" : "registered");
    memmove(m->ranges + i - 1, m->ranges + i, (m->count - i) * sizeof(*m->ranges));
    m->count--;
    range_free(r);
    return SPR_OK;
}

spr_status spr_memory_alloc(struct spr_memory *m, size_t bytes, struct spr_memory_range **range,
                            struct spr_error *error)
{
    struct spr_memory_range r = {.bytes = bytes, .owned = true};
    spr_status status;

    if (!bytes)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "memory of 0 bytes");
    r.base = spr_pages_alloc(bytes);
    if (!r.base)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a bucket of %zu bytes",
                             bytes);
    status = add(m, &r, range, error);
    if (status) {
        spr_pages_free(r.base, bytes);
        return status;
    }
    (*range)->locked = spr_pages_lock(r.base, bytes);
    return SPR_OK;
}

spr_status spr_memory_free(struct spr_memory *m, void *memory, struct spr_error *error)
{
    return drop(m, memory, true, error);
}

spr_status spr_memory_register(struct spr_memory *m, void *memory, size_t bytes,
                               struct spr_memory_range **range, struct spr_error *error)
{
    struct spr_memory_range r = {.base = memory, .bytes = bytes};

    if (!memory || !bytes || bytes - 1 > UINTPTR_MAX - (uintptr_t)memory)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "no such memory: %zu bytes at %#zx", bytes,
                             (size_t)(uintptr_t)memory);
    return add(m, &r, range, error);
}

spr_status spr_memory_deregister(struct spr_memory *m, void *memory, struct spr_error *error)
{
    return drop(m, memory, false, error);
}
