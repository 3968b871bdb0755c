/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A memfd has no name: nothing stays behind in /dev/shm when a rank is killed, and the small
 * /dev/shm of a container is no limit. F_SEAL_SHRINK keeps a peer's access from faulting,
 * F_SEAL_FUTURE_WRITE makes the owner's mapping the only one that can ever write.
 */
#include "transport/shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
#define PAGE ((size_t)4096)

bool spr_shm_layout_set(struct spr_shm_layout *l, uint32_t size, uint64_t large_shared)
{
    uint32_t peers;

    if (size < 1 || size > SPR_SHM_MAX_RANKS || large_shared < 1 || large_shared > 65536)
        return false;
    peers = size - 1;
    l->size = size;
    l->large_shared = (uint32_t)large_shared;
    l->small_count = SPR_SHM_SMALL_SHARED + SPR_SHM_SMALL_RESERVE * peers;
    l->large_count = l->large_shared + SPR_SHM_LARGE_RESERVE * peers;
    l->areas = PAGE;
    l->small = spr_align_up(l->areas + size * sizeof(struct spr_shm_area), PAGE);
    l->large = spr_align_up(l->small + l->small_count * SPR_SHM_SMALL_BYTES, SPR_HUGE_PAGE);
    l->bytes = l->large + l->large_count * SPR_SHM_LARGE_BYTES;
    return true;
}

static void write_header(struct spr_shm_own *own, uint32_t rank, uint32_t epoch)
{
    struct spr_shm_header *h = spr_shm_own_header(own);

    h->magic = SPR_SHM_MAGIC;
    h->version = SPR_SHM_VERSION;
    h->epoch = epoch;
    h->rank = rank;
    h->size = own->layout.size;
    h->large_shared = own->layout.large_shared;
    h->bytes = own->layout.bytes;
}

spr_status spr_shm_own_create(struct spr_shm_own *own, uint32_t rank, uint32_t size, uint32_t epoch,
                              size_t large_shared, struct spr_error *error)
{
    spr_status status;
    void *base;

    *own = (struct spr_shm_own){.fd = -1};
    if (!spr_shm_layout_set(&own->layout, size, large_shared))
        return spr_error_set(error, SPR_ERR_INVALID, -1, "shared memory for %u ranks, %zu slots",
                             size, large_shared);
    own->fd = memfd_create("sparring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (own->fd < 0)
        return spr_error_errno(error, errno == ENOSYS ? SPR_ERR_UNSUPPORTED : SPR_ERR_SYSTEM, -1,
                               errno, "memfd_create");
    if (ftruncate(own->fd, (off_t)own->layout.bytes) < 0) {
        status = spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "size a memfd to %zu bytes",
                                 own->layout.bytes);
        goto undo;
    }
    base = mmap(NULL, own->layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd, 0);
    if (base == MAP_FAILED) {
        status = spr_error_errno(error, SPR_ERR_NOMEM, -1, errno, "map %zu bytes of shared memory",
                                 own->layout.bytes);
        goto undo;
    }
    own->base = base;
    /* Sealed after the mapping: it is the last one that can write. */
    if (fcntl(own->fd, F_ADD_SEALS, SEALS) < 0) {
        status = spr_error_errno(error, SPR_ERR_UNSUPPORTED, -1, errno, "seal a memfd");
        goto undo;
    }
    /* A wish: most systems have huge pages for shared memory switched off. */
    (void)madvise(own->base + own->layout.large, own->layout.bytes - own->layout.large,
                  MADV_HUGEPAGE);
    write_header(own, rank, epoch);
    return SPR_OK;
undo:
    spr_shm_own_destroy(own);
    return status;
}

void spr_shm_own_destroy(struct spr_shm_own *own)
{
    if (own->base)
        munmap(own->base, own->layout.bytes);
    if (own->fd >= 0)
        close(own->fd);
    own->base = NULL;
    own->fd = -1;
}

/* The constants of a peer's header against the job and the size of its memfd. */
static bool header_fits(const struct spr_shm_header *h, uint32_t rank, uint32_t size,
                        uint32_t epoch, size_t bytes, struct spr_shm_layout *layout)
{
    return h->magic == SPR_SHM_MAGIC && h->version == SPR_SHM_VERSION && h->epoch == epoch &&
           h->rank == rank && h->size == size && h->bytes == bytes &&
           spr_shm_layout_set(layout, size, h->large_shared) && layout->bytes == bytes;
}

spr_status spr_shm_view_map(struct spr_shm_view *view, int fd, uint32_t rank, uint32_t size,
                            uint32_t epoch, const char **why)
{
    struct spr_shm_layout layout;
    struct spr_shm_header h;
    struct stat st;
    void *base;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS) {
        *why = "its memory is not sealed";
        return SPR_ERR_PROTO;
    }
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)PAGE) {
        *why = "its memory has a wrong size";
        return SPR_ERR_PROTO;
    }
    /* Read, not mapped: the constants are copied before they are checked. */
    if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
        !header_fits(&h, rank, size, epoch, (size_t)st.st_size, &layout)) {
        *why = "the header of its memory is wrong";
        return SPR_ERR_PROTO;
    }
    base = mmap(NULL, layout.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        *why = "its memory cannot be mapped";
        return SPR_ERR_SYSTEM;
    }
    *view = (struct spr_shm_view){.base = base, .layout = layout};
    return SPR_OK;
}

void spr_shm_view_unmap(struct spr_shm_view *view)
{
    if (view->base)
        munmap((void *)(uintptr_t)view->base, view->layout.bytes);
    view->base = NULL;
}
