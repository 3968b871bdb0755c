/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Small public calls on a communicator: identity, progress by the caller, memory, statistics.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fork.h"
#include "collectives/comm.h"

/* In a forked child: the lock may be held by a thread that the child does not have. */
static bool is_parents(const spr_comm *comm) { return comm->process != spr_process(); }

int spr_comm_rank(const spr_comm *comm) { return comm->rank; }

int spr_comm_size(const spr_comm *comm) { return comm->size; }

const char *spr_last_error(const spr_comm *comm)
{
    static _Thread_local char text[SPR_ERROR_TEXT_BYTES];
    spr_comm *c = (spr_comm *)(uintptr_t)comm; /* only the lock is changed */

    if (!comm || is_parents(comm))
        return spr_thread_error()->text;
    spr_comm_lock(c);
    memcpy(text, comm->error.status ? comm->error.text : spr_thread_error()->text, sizeof text);
    spr_comm_unlock(c);
    return text;
}

int spr_comm_progress(spr_comm *comm)
{
    int events = 0;

    if (is_parents(comm))
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
    if (!comm->driving && !(comm->thread_only && comm->has_thread))
        events = spr_comm_progress_locked(comm);
    if (comm->error.status && spr_channel_told(&comm->channel))
        events = comm->error.status;
    spr_comm_unlock(comm);
    return events;
}

int spr_comm_fd(spr_comm *comm) { return comm->epoll_fd; }

spr_status spr_comm_arm(spr_comm *comm)
{
    spr_status status;

    if (is_parents(comm))
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
    status = spr_comm_arm_locked(comm);
    spr_comm_unlock(comm);
    return status;
}

/* Memory --------------------------------------------------------------------------------------- */

void spr_comm_offer_memory(spr_comm *comm, void *memory, size_t bytes, bool writable)
{
    for (int i = 0; i < comm->transport_count; i++)
        (void)comm->transports[i]->ops->mem_register(comm->transports[i], memory, bytes, writable);
}

static void withdraw(spr_comm *comm, void *memory, size_t bytes)
{
    for (int i = 0; i < comm->transport_count; i++)
        comm->transports[i]->ops->mem_deregister(comm->transports[i], memory, bytes);
}

static spr_status no_such(const char *what)
{
    return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "memory: the %s is NULL", what);
}

spr_status spr_mem_alloc(spr_comm *comm, size_t bytes, void **memory)
{
    struct spr_memory_range *range;
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (!comm || !memory)
        return no_such(memory ? "communicator" : "memory");
    if (is_parents(comm))
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
    status = spr_memory_alloc(&comm->memory, bytes, &range, spr_thread_error());
    if (status == SPR_OK) {
        *memory = range->base;
        spr_comm_offer_memory(comm, range->base, bytes, true);
    }
    spr_comm_unlock(comm);
    return status;
}

void spr_mem_free(spr_comm *comm, void *memory)
{
    const struct spr_memory_range *range;
    struct spr_error ignored = {0};

    if (!comm || !memory || is_parents(comm))
        return;
    spr_comm_lock(comm);
    range = spr_memory_find(&comm->memory, memory, 1);
    if (range && range->base == memory)
        withdraw(comm, memory, range->bytes);
    (void)spr_memory_free(&comm->memory, memory, &ignored);
    spr_comm_unlock(comm);
}

/* fd: of the DMA-BUF that it is part of; -1: of none. */
static spr_status make_known(spr_comm *comm, void *memory, size_t bytes, int fd, uint64_t offset)
{
    struct spr_memory_range *range;
    spr_status status;

    spr_comm_lock(comm);
    status = spr_memory_register(&comm->memory, memory, bytes, &range, spr_thread_error());
    for (int i = 0; i < comm->transport_count && status == SPR_OK; i++) {
        struct spr_transport *t = comm->transports[i];

        if (fd >= 0 && t->ops->mem_register_dmabuf)
            (void)t->ops->mem_register_dmabuf(t, memory, bytes, fd, offset);
        else
            (void)t->ops->mem_register(t, memory, bytes, true);
    }
    spr_comm_unlock(comm);
    return status;
}

spr_status spr_mem_register(spr_comm *comm, void *memory, size_t bytes)
{
    spr_error_clear(spr_thread_error());
    if (!comm)
        return no_such("communicator");
    if (is_parents(comm))
        return spr_comm_forked(comm);
    return make_known(comm, memory, bytes, -1, 0);
}

spr_status spr_mem_register_dmabuf(spr_comm *comm, void *memory, size_t bytes, int fd,
                                   uint64_t offset)
{
    spr_error_clear(spr_thread_error());
    if (!comm)
        return no_such("communicator");
    if (is_parents(comm))
        return spr_comm_forked(comm);
    if (fcntl(fd, F_GETFD) < 0)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "memory: %d is no open descriptor of a DMA-BUF", fd);
    return make_known(comm, memory, bytes, fd, offset);
}

spr_status spr_mem_deregister(spr_comm *comm, void *memory)
{
    const struct spr_memory_range *range;
    spr_status status = SPR_ERR_INVALID;
    size_t bytes;

    spr_error_clear(spr_thread_error());
    if (!comm || !memory)
        return no_such(memory ? "communicator" : "memory");
    if (is_parents(comm))
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
    range = spr_memory_find(&comm->memory, memory, 1);
    bytes = range ? range->bytes : 0;
    status = spr_memory_deregister(&comm->memory, memory, spr_thread_error());
    if (status == SPR_OK)
        withdraw(comm, memory, bytes);
    spr_comm_unlock(comm);
    return status;
}

/* Statistics ----------------------------------------------------------------------------------- */

spr_status spr_comm_stats(spr_comm *comm, spr_stats *stats)
{
    spr_error_clear(spr_thread_error());
    if (!comm || !stats || stats->struct_size != sizeof *stats)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_comm_stats: no communicator, no stats, or their struct_size is "
                             "not sizeof(spr_stats), %zu",
                             sizeof *stats);
    if (is_parents(comm))
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
#define X(name) stats->name = comm->counters.name;
    SPR_COUNTER_TABLE(X)
#undef X
    spr_comm_unlock(comm);
    return SPR_OK;
}

const char *spr_comm_transport(const spr_comm *comm, int rank)
{
    if (rank == comm->rank || rank < 0 || rank >= comm->size ||
        !comm->channel.peers[comm->ids[rank]].link)
        return "self";
    return comm->channel.peers[comm->ids[rank]].link->transport->ops->name;
}
