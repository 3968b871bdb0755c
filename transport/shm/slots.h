/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which slots of the own memory are free, and which peer holds the others. Private memory: a peer
 * says only which slot it gives back, and that is checked against this.
 *
 * One pool for all peers, in two classes. Each peer has slots of its own share (two small, one
 * large); beyond it a peer takes from the shared rest. So a slow peer can exhaust the rest, but
 * stop nobody. Slots are reused last-in first-out: memory that was never needed is never touched.
 */
#ifndef SPR_TRANSPORT_SHM_SLOTS_H
#define SPR_TRANSPORT_SHM_SLOTS_H

#include "transport/shm/layout.h"

enum { SPR_SHM_CLASSES = 2 }; /* small, large */

struct spr_shm_class {
    uint32_t *free; /* stack of slot numbers */
    uint32_t free_count;
    uint32_t reserve, shared, shared_used;
};

struct spr_shm_slots {
    struct spr_shm_class classes[SPR_SHM_CLASSES];
    uint32_t *memory; /* of the stacks and holders */
    uint32_t *holder; /* by slot: peer + 1, or 0 = free */
    uint32_t count, small_count;
};

/* What one peer holds. */
struct spr_shm_held {
    uint32_t in_class[SPR_SHM_CLASSES];
};

bool spr_shm_slots_init(struct spr_shm_slots *s, const struct spr_shm_layout *layout);
void spr_shm_slots_destroy(struct spr_shm_slots *s);
/* A slot of at least `bytes` (at most SPR_SHM_LARGE_BYTES), or SPR_SHM_NO_SLOT. */
uint32_t spr_shm_slots_get(struct spr_shm_slots *s, struct spr_shm_held *held, int peer,
                           size_t bytes);
/* False: the peer does not hold this slot; nothing changes. */
bool spr_shm_slots_put(struct spr_shm_slots *s, struct spr_shm_held *held, int peer, uint32_t slot);

static inline uint32_t spr_shm_held_total(const struct spr_shm_held *held)
{
    return held->in_class[0] + held->in_class[1];
}

#endif
