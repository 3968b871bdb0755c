/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bucket memory of a communicator: what it allocated, and what the caller registered. Ranges never
 * overlap, so that an address has one answer. Not thread-safe: the communicator's lock is held.
 */
#ifndef SPR_TRANSPORT_MEMORY_H
#define SPR_TRANSPORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct spr_memory_range {
    unsigned char *base;
    size_t bytes; /* as asked for */
    bool owned;   /* from spr_memory_alloc */
    bool locked;
    void *handle; /* for the layer above; NULL at first */
};

struct spr_memory {
    struct spr_memory_range **ranges; /* by address */
    size_t count, capacity;
};

void spr_memory_init(struct spr_memory *m);
/* Free what is still allocated, forget the rest. */
void spr_memory_destroy(struct spr_memory *m);

/* Zeroed, page-aligned, in huge pages where there are any, locked when the memlock limit allows
 * (else one warning per process). INVALID: no bytes; NOMEM. The range is stable until it is freed.
 */
spr_status spr_memory_alloc(struct spr_memory *m, size_t bytes, struct spr_memory_range **range,
                            struct spr_error *error);
/* INVALID: not the begin of memory from spr_memory_alloc. */
spr_status spr_memory_free(struct spr_memory *m, void *memory, struct spr_error *error);

/* Memory of the caller. INVALID: nothing, or it overlaps a known range; NOMEM. */
spr_status spr_memory_register(struct spr_memory *m, void *memory, size_t bytes,
                               struct spr_memory_range **range, struct spr_error *error);
/* INVALID: not the begin of memory from spr_memory_register. */
spr_status spr_memory_deregister(struct spr_memory *m, void *memory, struct spr_error *error);

/* The range that holds all of [memory, memory + bytes), or NULL. */
struct spr_memory_range *spr_memory_find(const struct spr_memory *m, const void *memory,
                                         size_t bytes);

#endif
