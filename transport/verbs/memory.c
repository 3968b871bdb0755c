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
#include "transport/channel.h"
#include "transport/verbs/survey.h"
#include "transport/verbs/verbs.h"

#define SMALL_BYTES ((size_t)8 << 10)
#define SMALL_COUNT 32u
#define LARGE_BYTES SPR_FRAME_MAX_PAYLOAD
#define LARGE_COUNT 8u
#define STAGING_BYTES (SMALL_COUNT * SMALL_BYTES + LARGE_COUNT * LARGE_BYTES)

static size_t page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);

    return bytes > 0 ? (size_t)bytes : 4096;
}

static struct ibv_mr *register_on(const struct verbs_device *d, void *memory, size_t bytes,
                                  unsigned access, struct spr_error *error)
{
    struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, bytes, access);
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
                      d->name, bytes >> 10, (unsigned long long)limit.rlim_cur >> 10);
    else
        spr_error_errno(error, SPR_ERR_SYSTEM, -1, saved, "%s refuses to register %zu KiB", d->name,
                        bytes >> 10);
    return NULL;
}

void verbs_deregister_all(struct ibv_mr **mr)
{
    for (uint32_t r = 0; r < VERBS_RAILS; r++) {
        if (mr[r])
            (void)ibv_dereg_mr(mr[r]);
        mr[r] = NULL;
    }
}

static size_t cells_bytes(uint32_t lanes) { return lanes * VERBS_SEND_DEPTH * VERBS_CELL_BYTES; }

static void plan_area(const struct spr_options *options, struct spr_verbs_area *a)
{
    /* What is said of a failure does not wait for room that data take. */
    size_t small = spr_max_size(options->eager_bytes, SPR_NOTE_BYTES);

    *a = (struct spr_verbs_area){
        .small = VERBS_SMALL_SLOTS,
        .large = (uint16_t)options->verbs_slots,
        .small_bytes = (uint32_t)spr_align_up(SPR_VERBS_PAYLOAD + small, SPR_CACHE_LINE),
        .large_bytes =
            (uint32_t)spr_align_up(SPR_VERBS_PAYLOAD + SPR_FRAME_MAX_PAYLOAD, SPR_CACHE_LINE)};
    assert(spr_verbs_slot_count(a) <= SPR_VERBS_SLOTS);
}

bool verbs_register_all(struct verbs_transport *t, struct ibv_mr **mr, void *memory, size_t bytes,
                        unsigned access, struct spr_error *error)
{
    for (uint32_t r = 0; r < t->rails; r++) {
        mr[r] = register_on(&t->rail[r].device, memory, bytes, access, error);
        t->tcp.base.params.counters->registrations++;
        if (mr[r])
            continue;
        verbs_deregister_all(mr);
        return false;
    }
    return true;
}

/* Staging ---------------------------------------------------------------------------------------*/

spr_status verbs_staging_create(struct verbs_transport *t, struct spr_error *error)
{
    struct verbs_staging *s = &t->staging;
    size_t bytes = STAGING_BYTES;

    s->free_small = spr_calloc(SMALL_COUNT + LARGE_COUNT, sizeof *s->free_small);
    s->memory = spr_pages_alloc(bytes);
    s->bytes = bytes;
    if (!s->free_small || !s->memory)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu KiB of buffers",
                             bytes >> 10);
    s->free_large = s->free_small + SMALL_COUNT;
    if (!verbs_register_all(t, s->mr, s->memory, bytes, IBV_ACCESS_LOCAL_WRITE, error))
        return SPR_ERR_SYSTEM;
    for (uint32_t i = SMALL_COUNT; i-- > 0;)
        s->free_small[s->small_count++] = s->memory + LARGE_COUNT * LARGE_BYTES + i * SMALL_BYTES;
    for (uint32_t i = LARGE_COUNT; i-- > 0;)
        s->free_large[s->large_count++] = s->memory + i * LARGE_BYTES;
    return SPR_OK;
}

/* Of a link: the slots, the cells of its lanes, and what is left of their last pages. */
static size_t link_bytes(const struct spr_options *options, uint32_t lanes)
{
    struct spr_verbs_area area;

    plan_area(options, &area);
    return spr_verbs_area_bytes(&area) + cells_bytes(lanes) + 2 * page_bytes();
}

uint64_t spr_verbs_locked_bytes(const struct spr_options *options, uint32_t peers)
{
    uint32_t rails = (uint32_t)options->verbs_rails, lanes = rails * (uint32_t)options->verbs_qps;

    lanes = lanes < VERBS_LANES ? lanes : VERBS_LANES;
    return rails * (STAGING_BYTES + (uint64_t)peers * link_bytes(options, lanes));
}

spr_status verbs_memory_probe(struct verbs_transport *t, struct spr_error *error)
{
    size_t peers = (size_t)t->tcp.base.params.size - 1, bytes;
    struct rlimit limit = {0};
    struct ibv_mr *mr[VERBS_RAILS] = {NULL};
    bool good = false;
    void *memory;

    if (peers == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SPR_OK;
    bytes = peers * link_bytes(t->tcp.base.params.options, verbs_lanes(t));
    memory = spr_pages_alloc(bytes);
    if (memory)
        good = verbs_register_all(t, mr, memory, bytes, IBV_ACCESS_LOCAL_WRITE, error);
    else
        spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu KiB of slots", bytes >> 10);
    verbs_deregister_all(mr);
    spr_pages_free(memory, bytes);
    return good ? SPR_OK : SPR_ERR_SYSTEM;
}

void verbs_staging_destroy(struct verbs_transport *t)
{
    struct verbs_staging *s = &t->staging;

    verbs_deregister_all(s->mr);
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
    size_t slots, cells = cells_bytes(verbs_lanes(t));
    bool good;

    plan_area(t->tcp.base.params.options, &l->own);
    /* Whole pages, so that nothing else is on what the peer can write. */
    slots = spr_align_up(spr_verbs_area_bytes(&l->own), page_bytes());
    l->memory = spr_pages_alloc(slots + cells);
    if (!l->memory)
        return spr_error_set(error, SPR_ERR_NOMEM, l->tcp.link.peer,
                             "no memory for %zu KiB of slots", slots >> 10);
    l->memory_bytes = slots + cells;
    good =
        verbs_register_all(t, l->slots_mr, l->memory, slots, VERBS_REMOTE_WRITE, error) &&
        verbs_register_all(t, l->cells_mr, l->memory + slots, cells, IBV_ACCESS_LOCAL_WRITE, error);
    if (!good) {
        verbs_link_memory_free(l);
        return SPR_ERR_SYSTEM;
    }
    l->own.address = (uintptr_t)l->memory;
    for (uint32_t i = 0; i < verbs_lanes(t); i++)
        l->lane[i].cells = l->memory + slots + i * VERBS_SEND_DEPTH * VERBS_CELL_BYTES;
    return SPR_OK;
}

/* Deregistered before the memory is given away. */
void verbs_link_memory_free(struct verbs_link *l)
{
    verbs_deregister_all(l->slots_mr);
    verbs_deregister_all(l->cells_mr);
    spr_pages_free(l->memory, l->memory_bytes);
    l->memory = NULL;
}
