/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Registered memory. Remotely writable are the slots of links and the caller's buckets, nothing
 * else.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

#define SMALL_BYTES ((size_t)8 << 10)
#define SMALL_COUNT 32u
#define LARGE_BYTES SPR_FRAME_MAX_PAYLOAD
#define LARGE_COUNT 8u

static size_t page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);

    return bytes > 0 ? (size_t)bytes : 4096;
}

struct ibv_mr *verbs_register(struct verbs_transport *t, void *memory, size_t bytes,
                              unsigned access, struct spr_error *error)
{
    struct ibv_mr *mr = ibv_reg_mr(t->device.pd, memory, bytes, access);
    struct rlimit limit = {0};
    int saved = errno;

    if (mr)
        return mr;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if ((saved == ENOMEM || saved == EAGAIN || saved == EPERM) && limit.rlim_cur != RLIM_INFINITY)
        spr_error_set(error, SPR_ERR_SYSTEM, -1,
                      "%s refuses to register %zu KiB: the limit of locked memory is %llu KiB "
                      "(ulimit -l unlimited, LimitMEMLOCK=infinity in a service, --ulimit "
                      "memlock=-1 for a container)",
                      t->device.name, bytes >> 10, (unsigned long long)limit.rlim_cur >> 10);
    else
        spr_error_errno(error, SPR_ERR_SYSTEM, -1, saved, "%s refuses to register %zu KiB",
                        t->device.name, bytes >> 10);
    return NULL;
}

static void plan_area(const struct spr_options *options, struct spr_verbs_area *a)
{
    *a = (struct spr_verbs_area){.small = VERBS_SMALL_SLOTS,
                                 .large = (uint16_t)options->verbs_slots,
                                 .small_bytes = (uint32_t)spr_align_up(
                                     SPR_VERBS_PAYLOAD + options->eager_bytes, SPR_CACHE_LINE),
                                 .large_bytes = (uint32_t)spr_align_up(
                                     SPR_VERBS_PAYLOAD + SPR_FRAME_MAX_PAYLOAD, SPR_CACHE_LINE)};
    assert(spr_verbs_slot_count(a) <= SPR_VERBS_SLOTS);
}

/* Staging ---------------------------------------------------------------------------------------*/

spr_status verbs_staging_create(struct verbs_transport *t, struct spr_error *error)
{
    struct verbs_staging *s = &t->staging;
    size_t bytes = SMALL_COUNT * SMALL_BYTES + LARGE_COUNT * LARGE_BYTES;

    s->free_small = spr_calloc(SMALL_COUNT + LARGE_COUNT, sizeof *s->free_small);
    s->memory = spr_pages_alloc(bytes);
    if (!s->free_small || !s->memory)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu KiB of buffers",
                             bytes >> 10);
    s->bytes = bytes;
    s->free_large = s->free_small + SMALL_COUNT;
    s->mr = verbs_register(t, s->memory, bytes, IBV_ACCESS_LOCAL_WRITE, error);
    if (!s->mr)
        return SPR_ERR_SYSTEM;
    for (uint32_t i = SMALL_COUNT; i-- > 0;)
        s->free_small[s->small_count++] = s->memory + LARGE_COUNT * LARGE_BYTES + i * SMALL_BYTES;
    for (uint32_t i = LARGE_COUNT; i-- > 0;)
        s->free_large[s->large_count++] = s->memory + i * LARGE_BYTES;
    return SPR_OK;
}

spr_status verbs_memory_probe(struct verbs_transport *t, struct spr_error *error)
{
    size_t peers = (size_t)t->tcp.base.params.size - 1, bytes;
    struct spr_verbs_area area;
    struct rlimit limit = {0};
    struct ibv_mr *mr = NULL;
    void *memory;

    if (peers == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SPR_OK;
    plan_area(t->tcp.base.params.options, &area);
    bytes = peers *
            (spr_verbs_area_bytes(&area) + VERBS_SEND_DEPTH * VERBS_CELL_BYTES + 2 * page_bytes());
    memory = spr_pages_alloc(bytes);
    if (memory)
        mr = verbs_register(t, memory, bytes, IBV_ACCESS_LOCAL_WRITE, error);
    else
        spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu KiB of slots", bytes >> 10);
    if (mr)
        (void)ibv_dereg_mr(mr);
    spr_pages_free(memory, bytes);
    return mr ? SPR_OK : SPR_ERR_SYSTEM;
}

void verbs_staging_destroy(struct verbs_transport *t)
{
    struct verbs_staging *s = &t->staging;

    if (s->mr)
        (void)ibv_dereg_mr(s->mr);
    spr_pages_free(s->memory, s->bytes);
    spr_free(s->free_small);
    *s = (struct verbs_staging){0};
}

uint8_t *verbs_staging_get(struct verbs_transport *t, size_t bytes)
{
    struct verbs_staging *s = &t->staging;

    assert(bytes <= LARGE_BYTES);
    if (bytes <= SMALL_BYTES && s->small_count > 0)
        return s->free_small[--s->small_count];
    return bytes > SMALL_BYTES && s->large_count > 0 ? s->free_large[--s->large_count] : NULL;
}

void verbs_staging_put(struct verbs_transport *t, uint8_t *buffer)
{
    struct verbs_staging *s = &t->staging;

    if (buffer >= s->memory + LARGE_COUNT * LARGE_BYTES)
        s->free_small[s->small_count++] = buffer;
    else
        s->free_large[s->large_count++] = buffer;
    while (!spr_list_empty(&t->hungry)) {
        struct verbs_link *l = spr_list_entry(t->hungry.next, struct verbs_link, hungry);
        spr_list_remove(&l->hungry);
        spr_tcp_wake(&t->tcp, &l->tcp);
    }
}

/* Links -----------------------------------------------------------------------------------------*/

spr_status verbs_link_memory(struct verbs_transport *t, struct verbs_link *l,
                             struct spr_error *error)
{
    size_t slots, cells = VERBS_SEND_DEPTH * VERBS_CELL_BYTES;

    plan_area(t->tcp.base.params.options, &l->own);
    /* Whole pages, so that nothing else is on what the peer can write. */
    slots = spr_align_up(spr_verbs_area_bytes(&l->own), page_bytes());
    l->memory = spr_pages_alloc(slots + cells);
    if (!l->memory)
        return spr_error_set(error, SPR_ERR_NOMEM, l->tcp.link.peer,
                             "no memory for %zu KiB of slots", slots >> 10);
    l->memory_bytes = slots + cells;
    l->cells = l->memory + slots;
    l->slots_mr = verbs_register(t, l->memory, slots, VERBS_REMOTE_WRITE, error);
    l->cells_mr =
        l->slots_mr ? verbs_register(t, l->cells, cells, IBV_ACCESS_LOCAL_WRITE, error) : NULL;
    if (!l->cells_mr) {
        verbs_link_memory_free(l);
        return SPR_ERR_SYSTEM;
    }
    l->own.address = (uintptr_t)l->memory;
    l->own.rkey = l->slots_mr->rkey;
    return SPR_OK;
}

/* Deregistered before the memory is given away. */
void verbs_link_memory_free(struct verbs_link *l)
{
    if (l->slots_mr)
        (void)ibv_dereg_mr(l->slots_mr);
    if (l->cells_mr)
        (void)ibv_dereg_mr(l->cells_mr);
    l->slots_mr = l->cells_mr = NULL;
    spr_pages_free(l->memory, l->memory_bytes);
    l->memory = l->cells = NULL;
}

/* Bucket memory ---------------------------------------------------------------------------------*/

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
        t->asked_on_demand = true;
        t->on_demand = pages_on_demand(&t->device);
        if (!t->on_demand)
            spr_warn(SPR_SUB_MEM, "VERBS_ODP: %s does not page on demand; buckets are pinned",
                     t->device.name);
    }
    return t->on_demand ? IBV_ACCESS_ON_DEMAND : 0;
}

static struct ibv_mr *register_bucket(struct verbs_transport *t, const struct verbs_region *r,
                                      struct spr_error *why)
{
    unsigned access = r->writable ? VERBS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
    unsigned paged = on_demand(t);
    struct ibv_mr *mr = verbs_register(t, r->memory, r->bytes, access | paged, why);

    if (mr || !paged)
        return mr;
    spr_warn(SPR_SUB_MEM, "VERBS_ODP: %s; buckets are pinned", why->text);
    t->on_demand = false;
    spr_error_clear(why);
    return verbs_register(t, r->memory, r->bytes, access, why);
}

static void register_region(struct verbs_transport *t, struct verbs_region *r)
{
    struct spr_error why = {0};

    if (r->mr || r->refused)
        return;
    r->mr = register_bucket(t, r, &why);
    r->refused = !r->mr;
    if (r->refused && !t->told_refused)
        spr_warn(SPR_SUB_MEM, "%s; buckets are copied", why.text);
    t->told_refused |= r->refused;
}

void verbs_regions_update(struct verbs_transport *t)
{
    for (size_t i = 0; i < t->region_count; i++)
        register_region(t, &t->regions[i]);
}

spr_status verbs_mem_register(struct spr_transport *base, void *memory, size_t bytes, bool writable)
{
    struct verbs_transport *t = verbs_of(base);
    size_t i = first_after(t, (uintptr_t)memory);

    if (t->region_count == t->region_capacity) {
        size_t capacity = t->region_capacity ? 2 * t->region_capacity : 16;
        struct verbs_region *more = spr_realloc(t->regions, capacity * sizeof *more);
        if (!more)
            return SPR_ERR_UNSUPPORTED;
        t->regions = more;
        t->region_capacity = capacity;
    }
    memmove(t->regions + i + 1, t->regions + i, (t->region_count - i) * sizeof *t->regions);
    t->regions[i] = (struct verbs_region){.memory = memory, .bytes = bytes, .writable = writable};
    t->region_count++;
    /* Where all peers are reached otherwise nothing is pinned for nothing. */
    if (t->link_count == 0)
        return SPR_OK;
    register_region(t, &t->regions[i]);
    return t->regions[i].mr ? SPR_OK : SPR_ERR_UNSUPPORTED;
}

void verbs_mem_deregister(struct spr_transport *base, void *memory, size_t bytes)
{
    struct verbs_transport *t = verbs_of(base);
    size_t i = first_after(t, (uintptr_t)memory);

    (void)bytes;
    if (i == 0 || t->regions[i - 1].memory != memory)
        return;
    if (t->regions[i - 1].mr)
        (void)ibv_dereg_mr(t->regions[i - 1].mr);
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
    return r->mr && offset <= r->bytes && bytes <= r->bytes - offset ? r : NULL;
}

void verbs_regions_destroy(struct verbs_transport *t)
{
    while (t->region_count > 0)
        verbs_mem_deregister(&t->tcp.base, t->regions[t->region_count - 1].memory, 0);
    spr_free(t->regions);
    t->regions = NULL;
    t->region_capacity = 0;
}
