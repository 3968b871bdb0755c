/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/shm/slots.h"

#include "base/mem.h"

bool spr_shm_slots_init(struct spr_shm_slots *s, const struct spr_shm_layout *layout)
{
    uint32_t n = spr_shm_slot_count(layout);

    *s = (struct spr_shm_slots){.count = n, .small_count = layout->small_count};
    s->memory = spr_calloc(2 * (size_t)n, sizeof(*s->memory));
    if (!s->memory)
        return false;
    s->holder = s->memory + n;
    s->classes[0] = (struct spr_shm_class){.free = s->memory,
                                           .free_count = layout->small_count,
                                           .reserve = SPR_SHM_SMALL_RESERVE,
                                           .shared = SPR_SHM_SMALL_SHARED};
    s->classes[1] = (struct spr_shm_class){.free = s->memory + layout->small_count,
                                           .free_count = layout->large_count,
                                           .reserve = SPR_SHM_LARGE_RESERVE,
                                           .shared = layout->large_shared};
    /* Low numbers on top: they are used first. */
    for (uint32_t i = 0; i < layout->small_count; i++)
        s->classes[0].free[i] = layout->small_count - 1 - i;
    for (uint32_t i = 0; i < layout->large_count; i++)
        s->classes[1].free[i] = n - 1 - i;
    return true;
}

void spr_shm_slots_destroy(struct spr_shm_slots *s)
{
    spr_free(s->memory);
    *s = (struct spr_shm_slots){0};
}

uint32_t spr_shm_slots_get(struct spr_shm_slots *s, struct spr_shm_held *held, int peer,
                           size_t bytes)
{
    int k = bytes > SPR_SHM_SMALL_BYTES;
    struct spr_shm_class *c = &s->classes[k];
    bool beyond = held->in_class[k] >= c->reserve;
    uint32_t slot;

    if ((beyond && c->shared_used == c->shared) || spr_shm_held_total(held) == SPR_SHM_RELEASES)
        return SPR_SHM_NO_SLOT;
    /* Never empty: there are as many slots as shares and shared ones together. */
    slot = c->free[--c->free_count];
    c->shared_used += beyond;
    held->in_class[k]++;
    s->holder[slot] = (uint32_t)peer + 1;
    return slot;
}

bool spr_shm_slots_put(struct spr_shm_slots *s, struct spr_shm_held *held, int peer, uint32_t slot)
{
    struct spr_shm_class *c;
    int k;

    if (slot >= s->count || s->holder[slot] != (uint32_t)peer + 1)
        return false;
    k = slot >= s->small_count;
    c = &s->classes[k];
    s->holder[slot] = 0;
    c->free[c->free_count++] = slot;
    if (held->in_class[k]-- > c->reserve)
        c->shared_used--;
    return true;
}
