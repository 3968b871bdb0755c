/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Memory of a rank: the own memfd, sealed, and the read-only view of a peer's.
 */
#ifndef SPR_TRANSPORT_SHM_REGION_H
#define SPR_TRANSPORT_SHM_REGION_H

#include "base/error.h"
#include "transport/shm/layout.h"

/* The own memory. */
struct spr_shm_own {
    int fd; /* the memfd, -1 = none */
    unsigned char *base;
    struct spr_shm_layout layout;
};

/* Create, map and seal: nobody can resize it, and no further mapping can write it. SYSTEM, NOMEM,
 * INVALID, UNSUPPORTED (the kernel lacks memfd or its seals). */
spr_status spr_shm_own_create(struct spr_shm_own *own, uint32_t rank, uint32_t size, uint32_t epoch,
                              size_t large_shared, struct spr_error *error);
void spr_shm_own_destroy(struct spr_shm_own *own);

static inline struct spr_shm_header *spr_shm_own_header(const struct spr_shm_own *own)
{
    return (struct spr_shm_header *)(void *)own->base;
}
static inline struct spr_shm_area *spr_shm_own_area(const struct spr_shm_own *own, int peer)
{
    return (struct spr_shm_area *)(void *)(own->base + own->layout.areas) + peer;
}

/* The view of a peer's memory. Every word in it may change at any time. */
struct spr_shm_view {
    const unsigned char *base; /* NULL = none */
    struct spr_shm_layout layout;
};

/* Map the memfd of rank `rank` after checking seals, size and header. Does not keep fd. PROTO: *why
 * is a static text; SYSTEM. */
spr_status spr_shm_view_map(struct spr_shm_view *view, int fd, uint32_t rank, uint32_t size,
                            uint32_t epoch, const char **why);
void spr_shm_view_unmap(struct spr_shm_view *view);

static inline const struct spr_shm_header *spr_shm_view_header(const struct spr_shm_view *view)
{
    return (const struct spr_shm_header *)(const void *)view->base;
}
static inline const struct spr_shm_area *spr_shm_view_area(const struct spr_shm_view *view, int me)
{
    return (const struct spr_shm_area *)(const void *)(view->base + view->layout.areas) + me;
}

#endif
