/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Buckets: the caller's memory, registered with every device, so that frames are sent from it
 * without a copy, and that peers write results straight into it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

/* The index of the first region that begins after this address. */
static size_t first_after(const struct verbs_transport *t, uintptr_t address)
{
    size_t low = 0, high = t->region_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)t->regions[middle].memory > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* What the device must do with pages that are not there: read them for a write of ours, and write
 * them for one of the peer. */
static bool pages_on_demand(const struct verbs_device *d)
{
    struct ibv_device_attr_ex attr = {0};

    return !ibv_query_device_ex(d->context, NULL, &attr) &&
           (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
           (attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
}

/* Asked once, when there is the first bucket. */
static unsigned on_demand(struct verbs_transport *t)
{
    if (!t->tcp.base.params.options->verbs_odp)
        return 0;
    if (!t->asked_on_demand) {
        t->asked_on_demand = t->on_demand = true;
        for (uint32_t i = 0; i < t->rails && t->on_demand; i++) {
            const struct verbs_device *d = &t->rail[i].device;
            t->on_demand = pages_on_demand(d);
            if (!t->on_demand)
                spr_warn(SPR_SUB_MEM, "VERBS_ODP: %s does not page on demand; buckets are pinned",
                         d->name);
        }
    }
    return t->on_demand ? IBV_ACCESS_ON_DEMAND : 0;
}

static void close_dmabuf(struct verbs_region *r)
{
    if (r->dmabuf >= 0)
        (void)close(r->dmabuf);
    r->dmabuf = -1;
}

static bool register_dmabuf(struct verbs_transport *t, struct verbs_region *r, unsigned access,
                            struct spr_error *why)
{
    for (uint32_t i = 0; i < t->rails; i++) {
        const struct verbs_device *d = &t->rail[i].device;

        r->mr[i] = ibv_reg_dmabuf_mr(d->pd, r->offset, r->bytes, (uintptr_t)r->memory, r->dmabuf,
                                     (int)access);
        t->tcp.base.params.counters->registrations++;
        if (r->mr[i])
            continue;
        spr_error_errno(why, SPR_ERR_SYSTEM, -1, errno, "%s refuses a DMA-BUF of %zu KiB", d->name,
                        r->bytes >> 10);
        verbs_deregister_all(r->mr);
        return false;
    }
    return true;
}

static bool register_bucket(struct verbs_transport *t, struct verbs_region *r,
                            struct spr_error *why)
{
    unsigned access = r->writable ? VERBS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
    unsigned paged;

    if (r->dmabuf >= 0) {
        if (register_dmabuf(t, r, access, why))
            return true;
        if (!t->told_dmabuf)
            spr_warn(SPR_SUB_MEM, "%s; its mapping is registered", why->text);
        t->told_dmabuf = true;
        spr_error_clear(why);
    }
    paged = on_demand(t);
    if (verbs_register_all(t, r->mr, r->memory, r->bytes, access | paged, why))
        return true;
    if (!paged)
        return false;
    spr_warn(SPR_SUB_MEM, "VERBS_ODP: %s; buckets are pinned", why->text);
    t->on_demand = false;
    spr_error_clear(why);
    return verbs_register_all(t, r->mr, r->memory, r->bytes, access, why);
}

static void register_region(struct verbs_transport *t, struct verbs_region *r)
{
    struct spr_error why = {0};

    if (r->mr[0] || r->refused)
        return;
    r->refused = !register_bucket(t, r, &why);
    close_dmabuf(r); /* done with */
    if (r->refused && !t->told_refused)
        spr_warn(SPR_SUB_MEM, "%s; buckets are copied", why.text);
    t->told_refused |= r->refused;
}

void verbs_regions_update(struct verbs_transport *t)
{
    for (size_t i = 0; i < t->region_count; i++)
        register_region(t, &t->regions[i]);
}

/* The descriptor becomes the region's. */
static spr_status add_region(struct verbs_transport *t, struct verbs_region *region)
{
    size_t i = first_after(t, (uintptr_t)region->memory);

    if (t->region_count == t->region_capacity) {
        size_t capacity = t->region_capacity ? 2 * t->region_capacity : 16;
        struct verbs_region *more = spr_realloc(t->regions, capacity * sizeof *more);
        if (!more) {
            close_dmabuf(region);
            return SPR_ERR_UNSUPPORTED;
        }
        t->regions = more;
        t->region_capacity = capacity;
    }
    memmove(t->regions + i + 1, t->regions + i, (t->region_count - i) * sizeof *t->regions);
    t->regions[i] = *region;
    t->region_count++;
    /* Where all peers are reached otherwise nothing is pinned for nothing. */
    if (t->link_count == 0)
        return SPR_OK;
    register_region(t, &t->regions[i]);
    return t->regions[i].refused ? SPR_ERR_UNSUPPORTED : SPR_OK;
}

spr_status verbs_mem_register(struct spr_transport *base, void *memory, size_t bytes, bool writable)
{
    return add_region(verbs_of(base),
                      &(struct verbs_region){
                          .memory = memory, .bytes = bytes, .writable = writable, .dmabuf = -1});
}

spr_status verbs_mem_register_dmabuf(struct spr_transport *base, void *memory, size_t bytes, int fd,
                                     uint64_t offset)
{
    struct verbs_transport *t = verbs_of(base);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* it may be registered later, with the first peer */

    if (own < 0 && !t->told_dmabuf)
        spr_warn(SPR_SUB_MEM, "no descriptor for a DMA-BUF (%s); its mapping is registered",
                 strerror(errno));
    t->told_dmabuf |= own < 0;
    return add_region(
        t,
        &(struct verbs_region){
            .memory = memory, .bytes = bytes, .writable = true, .dmabuf = own, .offset = offset});
}

void verbs_mem_deregister(struct spr_transport *base, void *memory, size_t bytes)
{
    struct verbs_transport *t = verbs_of(base);
    size_t i = first_after(t, (uintptr_t)memory);

    (void)bytes;
    if (i == 0 || t->regions[i - 1].memory != memory)
        return;
    verbs_deregister_all(t->regions[i - 1].mr);
    close_dmabuf(&t->regions[i - 1]);
    memmove(t->regions + i - 1, t->regions + i, (t->region_count - i) * sizeof *t->regions);
    t->region_count--;
}

const struct verbs_region *verbs_region_find(struct verbs_transport *t, const void *data,
                                             size_t bytes)
{
    size_t i = first_after(t, (uintptr_t)data), offset;
    const struct verbs_region *r;

    if (i == 0)
        return NULL;
    r = &t->regions[i - 1];
    offset = (uintptr_t)data - (uintptr_t)r->memory;
    return r->mr[0] && offset <= r->bytes && bytes <= r->bytes - offset ? r : NULL;
}

void verbs_regions_destroy(struct verbs_transport *t)
{
    while (t->region_count > 0)
        verbs_mem_deregister(&t->tcp.base, t->regions[t->region_count - 1].memory, 0);
    spr_free(t->regions);
    t->regions = NULL;
    t->region_capacity = 0;
}
