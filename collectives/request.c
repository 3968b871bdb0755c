/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Requests: their memory, which is kept for later ones, and the public calls on them. What happens
 * to the operation meanwhile is in collective.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "collectives/collective.h"

#define ARENA_BLOCK_BYTES ((size_t)64 << 10)
/* Finished requests of a communicator keep that much memory for later ones, all together. New pages
 * at each call took half the time of a sparse ring of 2 ranks. */
#define SPARE_BYTES ((size_t)32 << 20)

spr_request *spr_request_get(spr_comm *comm)
{
    spr_request *rq;

    if (!spr_list_empty(&comm->spare)) {
        struct spr_arena arena;
        rq = spr_list_entry(comm->spare.next, spr_request, node);
        spr_list_remove(&rq->node);
        arena = rq->arena;
        comm->spare_bytes -= spr_arena_bytes(&arena);
        memset(rq, 0, sizeof *rq);
        rq->arena = arena;
    } else {
        rq = spr_calloc(1, sizeof *rq);
        if (!rq)
            return NULL;
        spr_arena_init(&rq->arena, ARENA_BLOCK_BYTES);
    }
    spr_list_init(&rq->node);
    spr_list_init(&rq->ready_node);
    rq->comm = comm;
    return rq;
}

void spr_request_put(spr_request *rq)
{
    spr_comm *comm = rq->comm;
    size_t kept;

    spr_arena_reset(&rq->arena, SPARE_BYTES - comm->spare_bytes);
    kept = spr_arena_bytes(&rq->arena);
    comm->spare_bytes += kept;
    spr_list_remove(&rq->node);
    spr_list_remove(&rq->ready_node);
    if (kept)
        spr_list_push_front(&comm->spare, &rq->node);
    else
        spr_list_push_back(&comm->spare, &rq->node);
}

/* Public --------------------------------------------------------------------------------------- */

static spr_status request_take(spr_request **request)
{
    spr_request *rq = *request;
    spr_status status = rq->result;

    if (rq->rejected && status == rq->rejected) {
        spr_error_clear(spr_thread_error());
        spr_error_set(spr_thread_error(), status, rq->blamed,
                      "%s; the operation failed on all ranks, the communicator works on",
                      rq->why ? rq->why : spr_status_string(status));
    }
    *request = NULL;
    spr_request_put(rq);
    return status;
}

static spr_status no_request(const char *call)
{
    spr_error_clear(spr_thread_error());
    return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                         "%s: there is no request: it was taken, or never posted", call);
}

spr_status spr_test(spr_request **request)
{
    spr_status status = SPR_IN_PROGRESS;
    spr_comm *comm;

    if (!request || !*request)
        return no_request("spr_test");
    comm = (*request)->comm;
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    spr_comm_lock(comm);
    if (!(*request)->done && !comm->driving && !(comm->thread_only && comm->has_thread))
        spr_comm_progress_locked(comm);
    if ((*request)->done)
        status = request_take(request);
    spr_comm_unlock(comm);
    return status;
}

static bool is_done(void *arg) { return ((spr_request *)arg)->done; }

spr_status spr_wait(spr_request **request, double timeout_s)
{
    spr_status status = SPR_ERR_TIMEOUT;
    spr_comm *comm;
    uint64_t until = UINT64_MAX;

    if (!request || !*request)
        return no_request("spr_wait");
    comm = (*request)->comm;
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (timeout_s >= 0)
        until = spr_monotonic_ns() + spr_seconds_ns(timeout_s);
    spr_comm_lock(comm);
    if (spr_comm_drive(comm, is_done, *request, until))
        status = request_take(request);
    spr_comm_unlock(comm);
    return status;
}

void spr_cancel(spr_request *request)
{
    spr_comm *comm = request->comm;
    char text[160];

    if (comm->process != spr_process()) /* the request is the parent's */
        return;
    spr_comm_lock(comm);
    if (!request->done) {
        request->canceled = true;
        snprintf(text, sizeof text, "%s #%u '%s' was cancelled",
                 spr_collective_names[request->posted.collective], request->operation,
                 request->name);
        spr_comm_fail(comm, SPR_ERR_CANCELED, comm->rank, -1, text);
        spr_comm_kick(comm);
    }
    spr_comm_unlock(comm);
}

void spr_on_complete(spr_request *request, void (*done)(void *ctx, spr_status status), void *ctx)
{
    spr_comm *comm = request->comm;

    if (comm->process != spr_process())
        return;
    spr_comm_lock(comm);
    if (request->done) {
        spr_comm_unlock(comm);
        done(ctx, request->result);
        return;
    }
    request->on_complete = done;
    request->on_complete_ctx = ctx;
    spr_comm_unlock(comm);
}
