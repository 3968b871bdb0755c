/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A communicator: what it consists of, and what it answers its channel.
 */
#include "collectives/comm.h"

#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fork.h"
#include "collectives/collective.h"
#include "collectives/decisions.h"
#include "collectives/dispute.h"
#include "collectives/membership.h"
#include "collectives/trials.h"
#include "collectives/watch.h"
#include "compress/select/select.h"
#include "compress/zstd.h"

/* Of the pool: few registrations, and no more than 2 MiB that nobody may need. */
#define BUFFERS_PER_BLOCK 7

static void on_failed(void *ctx, spr_status status, int rank, int told_by, const char *text)
{
    const spr_comm *comm = ctx;

    /* Who is blamed comes from the wire. */
    spr_comm_fail(ctx, status, rank < comm->size ? rank : told_by, told_by, text);
}

static enum spr_operation_state state_of(void *ctx, uint32_t operation, uint64_t *descriptor)
{
    spr_comm *comm = ctx;
    const struct spr_past *past;
    struct spr_list *it;

    if ((int32_t)(operation - comm->next_operation) >= 0)
        return SPR_OPERATION_FUTURE;
    spr_list_for_each(it, &comm->running)
    {
        const spr_request *rq = spr_list_entry(it, spr_request, node);
        if (rq->operation != operation)
            continue;
        *descriptor = rq->descriptor;
        return rq->rejected ? SPR_OPERATION_REJECTED : SPR_OPERATION_RUNNING;
    }
    past = spr_past_find(comm, operation);
    if (past)
        *descriptor = past->hash;
    return past && past->rejected ? SPR_OPERATION_REJECTED : SPR_OPERATION_OVER;
}

static void on_mismatch(void *ctx, int peer, uint32_t operation)
{
    spr_dispute_found(ctx, peer, operation);
}

static void on_note(void *ctx, int peer, const struct spr_frame *f, const void *data)
{
    if (f->type == SPR_FRAME_VIEW)
        spr_membership_view(ctx, peer, data, f->bytes);
    else
        spr_dispute_note(ctx, peer, f, data);
}

/* Encoders write where the transports send from. What is received there is checked, and then used:
 * it is no place for peers to write. */
static void on_buffers(void *ctx, void *memory, size_t bytes)
{
    spr_comm_offer_memory(ctx, memory, bytes, false);
}

struct spr_transport_params spr_comm_transport_params(spr_comm *comm)
{
    return (struct spr_transport_params){
        .rank = comm->rank,
        .size = comm->size,
        .epoch = comm->channel.epoch,
        .options = &comm->options,
        .events = &spr_channel_link_events,
        .up = &comm->channel,
        .clock = comm->clock,
        .counters = &comm->counters,
        .trace = comm->trace,
    };
}

static spr_status link_to_self(spr_comm *comm)
{
    const struct spr_transport_params params = spr_comm_transport_params(comm);
    const struct spr_transport_ops *ops = &spr_transport_self;
    struct spr_transport **self = &comm->transports[0];
    struct spr_error error = {0};
    struct spr_link *link;
    spr_status status = ops->open(&params, self, &error);

    if (status)
        return status;
    comm->transport_count = 1;
    status = ops->connect(*self, comm->rank, NULL, &link, &error);
    if (status == SPR_OK)
        spr_channel_attach(&comm->channel, link, false);
    return status;
}

spr_status spr_comm_new(int rank, int size, const struct spr_options *options,
                        const struct spr_clock *clock, spr_comm **out)
{
    spr_comm *comm = spr_calloc(1, sizeof *comm);
    spr_status status;

    if (!comm)
        return SPR_ERR_NOMEM;
    comm->rank = rank;
    comm->size = comm->world = size;
    comm->options = *options;
    comm->clock = clock;
    comm->epoll_fd = comm->wake_fd = comm->timer_fd = -1;
    comm->process = spr_process();
    comm->next_operation = 1;
    comm->standing = spr_comm_watch_standing;
    comm->standing_ctx = comm;
    spr_list_init(&comm->running);
    spr_list_init(&comm->ready);
    spr_list_init(&comm->finished);
    spr_list_init(&comm->spare);
    spr_list_init(&comm->news);
    spr_list_init(&comm->codecs);
    spr_memory_init(&comm->memory);
    spr_pool_init(&comm->buffers, SPR_FRAME_MAX_PAYLOAD, BUFFERS_PER_BLOCK, 0);
    comm->buffers.grown = on_buffers;
    comm->buffers.grown_ctx = comm;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->workers_lock, NULL);
    pthread_cond_init(&comm->thread_wake, NULL);
    {
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&comm->changed, &attr);
        pthread_condattr_destroy(&attr);
    }
    comm->trace = spr_trace_new(rank, size);
    comm->past = spr_calloc(SPR_PAST, sizeof *comm->past);
    comm->tried = spr_calloc(SPR_TRIED, sizeof *comm->tried);
    comm->ids = spr_calloc((size_t)size, sizeof *comm->ids);
    comm->loss.noted = spr_calloc((size_t)size, sizeof *comm->loss.noted);
    for (int r = 0; comm->ids && r < size; r++)
        comm->ids[r] = r;
    status = comm->trace && comm->past && comm->tried && comm->ids && comm->loss.noted &&
                     spr_topology_new(&comm->topology, size)
                 ? spr_channel_init(&comm->channel, rank, size, 1, &comm->options, clock,
                                    &comm->counters, comm->trace)
                 : SPR_ERR_NOMEM;
    if (status == SPR_OK)
        status = link_to_self(comm);
    if (status == SPR_OK)
        status = spr_membership_new(comm);
    if (status == SPR_OK && options->zstd > 0)
        status = spr_zstd_create(options->zstd, &comm->zstd);
    if (status) {
        memset(&comm->options, 0, sizeof comm->options); /* still the caller's */
        spr_comm_free(comm);
        return status;
    }
    spr_model_new_era(comm);
    comm->channel.events =
        (struct spr_channel_events){on_failed, on_mismatch, on_note, state_of, comm};
    *out = comm;
    return SPR_OK;
}

/* The caller may have been bound to fewer CPUs than the communicator was made with, and they will
 * be theirs. */
static struct spr_workers *start_workers(const spr_comm *comm)
{
    int most = comm->options.workers < 0 ? spr_cpu_usable() - 1 : comm->helpers;

    most = most < comm->helpers ? most : comm->helpers;
    return most > 0 ? spr_workers_create((unsigned)most) : NULL;
}

struct spr_workers *spr_comm_workers(spr_comm *comm, size_t elements)
{
    struct spr_workers *workers;

    if (spr_select_slices(elements, (unsigned)comm->helpers + 1) == 1)
        return NULL;
    pthread_mutex_lock(&comm->workers_lock);
    if (!comm->workers && !comm->no_workers) {
        comm->workers = start_workers(comm);
        comm->no_workers = !comm->workers;
    }
    workers = comm->workers;
    pthread_mutex_unlock(&comm->workers_lock);
    return workers;
}

void spr_comm_free(spr_comm *comm)
{
    struct spr_list *lists[] = {&comm->running, &comm->finished, &comm->spare};

    spr_outcome_close(comm);
    spr_workers_destroy(comm->workers);
    /* First, since their queues hold frames of requests. */
    for (int i = 0; i < comm->transport_count; i++)
        comm->transports[i]->ops->close(comm->transports[i]);
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        while (!spr_list_empty(lists[i])) {
            spr_request *rq = spr_list_entry(lists[i]->next, spr_request, node);
            spr_list_remove(&rq->node);
            spr_arena_free(&rq->arena);
            spr_free(rq);
        }
    }
    spr_channel_destroy(&comm->channel);
    spr_memory_destroy(&comm->memory);
    spr_pool_destroy(&comm->buffers);
    if (comm->epoll_fd >= 0)
        close(comm->epoll_fd);
    if (comm->wake_fd >= 0)
        close(comm->wake_fd);
    if (comm->timer_fd >= 0)
        close(comm->timer_fd);
    spr_free(comm->peers);
    spr_dispute_clear(comm);
    spr_membership_free(comm);
    spr_topology_free(&comm->topology);
    spr_zstd_free(comm->zstd);
    spr_free(comm->ids);
    spr_free(comm->past);
    spr_free(comm->tried);
    spr_decisions_free(comm->decisions);
    spr_free(comm->loss.noted);
    spr_trace_free(comm->trace);
    spr_opt_free(spr_options_table, spr_options_count, &comm->options);
    explicit_bzero(&comm->key, sizeof comm->key);
    pthread_mutex_destroy(&comm->lock);
    pthread_mutex_destroy(&comm->workers_lock);
    pthread_cond_destroy(&comm->changed);
    pthread_cond_destroy(&comm->thread_wake);
    spr_free(comm);
}
