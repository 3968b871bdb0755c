/* SPDX-License-Identifier: BSD-2-Clause
 *
 * An operation from its post to its end. The caller's side of it is request.c.
 */
#include "collectives/collective.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "collectives/dispute.h"
#include "collectives/finite.h"
#include "compress/codec.h"

/* What has no more elements is brief. */
#define BRIEF_ELEMENTS 4096u

const char *const spr_collective_names[SPR_C_COUNT] = {
    "allreduce", "reduce_scatter",   "allgather", "broadcast",
    "barrier",   "sparse_allreduce", "sendrecv",
};

void spr_collective_describe(const spr_request *rq, struct spr_descriptor *d)
{
    const struct spr_plan *p = &rq->plan;

    memset(d, 0, sizeof *d);
    d->collective = (uint32_t)rq->posted.collective;
    d->dtype = (uint32_t)p->dtype;
    d->op = (uint32_t)p->op;
    d->vtype = (uint32_t)p->vtype;
    d->root = p->root;
    d->size = (uint32_t)rq->comm->size;
    d->count = rq->posted.count;
    d->codec_hash = p->codec_hash;
    d->codec_step = p->codec_step;
    memcpy(d->algorithm, rq->posted.algorithm,
           strnlen(rq->posted.algorithm, sizeof d->algorithm - 1));
    memcpy(d->name, rq->name, strnlen(rq->name, sizeof d->name - 1));
}

static void end_step(spr_request *rq, spr_status status)
{
    if (!rq->codec)
        return;
    if (status == SPR_OK) {
        if (rq->plan.bound_union)
            spr_codec_take_back(rq->codec, rq->plan.dense);
        spr_codec_commit(rq->codec);
        spr_outcome_committed(rq->comm, rq->codec, rq->operation);
        spr_history_add(rq);
    } else {
        /* Ranks may have chosen by histories that differ: all of them forget. After any other
         * failure histories are alike, as long as they hold what has succeeded. */
        if (rq->rejected)
            *spr_codec_history(rq->codec) = (struct spr_codec_history){0};
        spr_codec_abort(rq->codec);
    }
    rq->codec = NULL;
}

/* An operation of that priority has begun, or ended. */
static void update_urgent(spr_comm *comm, int priority)
{
    struct spr_list *it;
    int urgent = INT_MIN;

    if (priority < comm->channel.urgent)
        return;
    spr_list_for_each(it, &comm->running)
    {
        const spr_request *other = spr_list_entry(it, spr_request, node);
        if (!other->ended && other->priority > urgent)
            urgent = other->priority;
        if (urgent == priority) /* none is more urgent */
            break;
    }
    spr_channel_set_urgent(&comm->channel, urgent);
}

/* Those that have ended too far ahead, and need not wait any more. */
static void wake_ended(spr_comm *comm)
{
    struct spr_list *it;

    spr_list_for_each(it, &comm->running)
    {
        spr_request *rq = spr_list_entry(it, spr_request, node);
        if (!spr_outcome_reaches(&comm->done, rq->operation))
            break;
        if (rq->ended)
            spr_collective_wake(rq);
    }
}

static void complete(spr_request *rq, spr_status status)
{
    spr_comm *comm = rq->comm;
    uint64_t now = spr_channel_now(&comm->channel);

    spr_list_remove(&rq->node);
    spr_list_push_back(&comm->finished, &rq->node);
    spr_list_remove(&rq->ready_node);
    update_urgent(comm, rq->priority);
    /* The next one is the oldest now, which may do more. */
    if (!spr_list_empty(&comm->running))
        spr_collective_wake(spr_list_entry(comm->running.next, spr_request, node));
    comm->ended -= rq->ended;
    spr_channel_forget(&comm->channel, rq->operation);
    rq->done = true;
    rq->result = status;
    if (comm->error.status && status == comm->error.status)
        comm->cause_told = true;
    if (!comm->error.status)
        spr_outcome_add(&comm->done, rq->operation);
    if (comm->ended)
        wake_ended(comm);
    if (status < 0 && status != SPR_ERR_TOO_SMALL)
        comm->counters.failures++;
    else
        comm->counters.collectives++;
    spr_trace_add(comm->trace, now, SPR_EV_COMPLETE, -1, rq->operation, (uint64_t)(uint32_t)status,
                  now - rq->posted_ns);
    end_step(rq, status);
    if (rq->on_complete)
        rq->on_complete(rq->on_complete_ctx, status);
    pthread_cond_broadcast(&comm->changed);
}

static void nothing_to_clean(spr_request *rq) { (void)rq; }
static const struct spr_algorithm nothing = {.cleanup = nothing_to_clean};

/* What a codec sends when it knows the sum of what it has sent, by the algorithm that was asked for
 * if that can. False: it has what it wants. */
static bool next_round(spr_request *rq)
{
    struct spr_plan *plan = &rq->plan;
    struct spr_codec_step step;
    spr_status status;

    if (!plan->gradient || !spr_codec_next(rq->codec, plan->gradient, &step))
        return false;
    assert(rq->round == 0);
    rq->round++;
    plan->send = plan->recv = step.sum;
    plan->count = step.count;
    if (!rq->named || !spr_algorithm_usable(rq->algorithm, plan, rq->comm->size))
        rq->algorithm = spr_algorithm_select(rq->comm, plan, NULL, spr_thread_error());
    status = rq->algorithm->start(rq);
    if (status) {
        rq->algorithm = &nothing;
        spr_comm_fail(rq->comm, status, rq->comm->rank, -1,
                      "cannot start the second round of a codec");
    }
    spr_collective_wake(rq);
    return true;
}

/* Go on. True: nothing is left to do. */
static bool is_over(spr_request *rq)
{
    if (rq->rejected) {
        if (rq->outstanding == 0)
            rq->algorithm->cleanup(rq);
        return rq->outstanding == 0;
    }
    if (!rq->algorithm->advance(rq) || rq->outstanding > 0 || rq->comm->error.status)
        return false;
    spr_halves_unpack(rq);
    rq->algorithm->cleanup(rq);
    return !next_round(rq);
}

void spr_collective_step(spr_request *rq)
{
    spr_comm *comm = rq->comm;

    if (rq->done)
        return;
    if (!rq->brief)
        comm->channel.recent_ns = 0;
    if (comm->error.status) {
        /* Memory of the caller may still be in use by frames under way; and the others should know.
         */
        if (rq->outstanding == 0 && spr_channel_told(&comm->channel)) {
            rq->algorithm->cleanup(rq);
            complete(rq, rq->canceled ? SPR_ERR_CANCELED : comm->error.status);
        }
        return;
    }
    if (!rq->ended && is_over(rq)) {
        rq->algorithm = &nothing;
        rq->ended = true;
        comm->ended++;
        if (!spr_outcome_reaches(&comm->done, rq->operation))
            update_urgent(comm, rq->priority);
    }
    if (rq->ended && spr_outcome_reaches(&comm->done, rq->operation))
        complete(rq, rq->rejected ? rq->rejected : rq->result);
}

void spr_collective_reject(spr_request *rq, spr_status status, int blamed, const char *text)
{
    size_t bytes = strlen(text) + 1;

    if (rq->rejected)
        return;
    rq->rejected = status;
    rq->blamed = blamed;
    rq->why = spr_arena_alloc(&rq->arena, bytes);
    if (rq->why)
        memcpy(rq->why, text, bytes);
    spr_channel_reject(&rq->comm->channel, rq->operation, status);
    spr_collective_wake(rq);
}

static void fill_options(spr_request *rq, const spr_call_options *options)
{
    double timeout =
        options && options->timeout_s > 0 ? options->timeout_s : rq->comm->options.timeout_s;
    double warn = rq->comm->options.warn_s;

    rq->posted_ns = spr_now_ns(rq->comm->clock);
    rq->deadline_ns = rq->posted_ns + spr_seconds_ns(timeout * spr_time_factor());
    rq->warn_ns = rq->posted_ns + spr_seconds_ns(warn * spr_time_factor());
    rq->describe_ns = rq->posted_ns + spr_seconds_ns(SPR_DISPUTE_S * spr_time_factor());
    rq->priority = options ? options->priority : 0;
    rq->named = options && options->algorithm && strcmp(options->algorithm, "auto") != 0;
    if (options && options->name)
        snprintf(rq->name, sizeof rq->name, "%s", options->name);
}

/* A failure may come between two calls: the first call after it tells what it was. Who was expelled
 * hears that from every call. */
static spr_status refusal(spr_comm *comm)
{
    bool tell = !comm->cause_told || comm->error.status == SPR_ERR_EXPELLED;

    comm->cause_told = true;
    return tell ? comm->error.status : SPR_ERR_REVOKED;
}

/* Under the lock. */
static spr_status post_locked(spr_comm *comm, const struct spr_plan *plan,
                              const spr_call_options *options, spr_codec *codec, spr_request **out)
{
    struct spr_descriptor descriptor;
    struct spr_past before; /* what has the operation's place among those that are remembered */
    spr_request *rq;
    spr_status status;

    if (comm->error.status)
        return refusal(comm);
    rq = spr_request_get(comm);
    if (!rq)
        return SPR_ERR_NOMEM;
    rq->plan = *plan;
    rq->plan.operation = comm->next_operation;
    if (codec)
        spr_history_recall(&rq->plan, comm, codec);
    status = spr_halves_pack(rq);
    if (status)
        goto undo;
    rq->algorithm = spr_algorithm_select(comm, &rq->plan, options ? options->algorithm : NULL,
                                         spr_thread_error());
    status = rq->algorithm ? SPR_OK : spr_thread_error()->status;
    if (status)
        goto undo;
    rq->operation = comm->next_operation;
    rq->posted.collective = plan->collective;
    rq->posted.algorithm = rq->algorithm->name;
    rq->posted.count = rq->plan.count;
    fill_options(rq, options);
    spr_collective_describe(rq, &descriptor);
    rq->descriptor = spr_descriptor_hash(&descriptor);
    before = comm->past[rq->operation % SPR_PAST];
    spr_past_add(comm, rq, &descriptor);
    spr_list_push_back(&comm->running, &rq->node);
    update_urgent(comm, rq->priority);
    comm->next_operation++;
    if (comm->watch)
        spr_watch_advance(comm->watch, 1, rq->operation);
    spr_record_post(rq);
    /* Before start(), whose receives take what came early. */
    spr_channel_begin(&comm->channel, rq->operation, rq->descriptor);
    rq->brief = !codec && rq->plan.count <= BRIEF_ELEMENTS;
    comm->channel.recent_ns = rq->brief ? rq->posted_ns : 0;
    rq->codec = codec;
    status = rq->algorithm->start(rq);
    if (status)
        goto undo_number;
    spr_dispute_posted(comm, rq);
    spr_collective_wake(rq);
    *out = rq;
    return SPR_OK;
undo_number:
    rq->codec = NULL; /* whose step is the caller's to end */
    spr_trace_add(comm->trace, rq->posted_ns, SPR_EV_COMPLETE, -1, rq->operation,
                  (uint64_t)(uint32_t)status, 0);
    comm->past[rq->operation % SPR_PAST] = before;
    comm->next_operation--;
undo:
    spr_request_put(rq);
    update_urgent(comm, comm->channel.urgent);
    return status;
}

spr_status spr_comm_forked(const spr_comm *comm)
{
    return spr_error_set(spr_thread_error(), SPR_ERR_FORKED, comm->rank,
                         "rank %d: a forked child cannot use its parent's communicator",
                         comm->rank);
}

spr_status spr_collective_check(const spr_comm *comm, const spr_call_options *options,
                                spr_request **out)
{
    /* The lock may be held by a thread that the child does not have. */
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (options && options->struct_size != sizeof *options)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: call options not set up with SPR_CALL_OPTIONS_INIT",
                             comm->rank);
    if (!out)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: NULL request", comm->rank);
    return SPR_OK;
}

spr_status spr_collective_post(spr_comm *comm, const struct spr_plan *plan,
                               const spr_call_options *options, spr_codec *codec, bool soon,
                               spr_request **out)
{
    spr_status status = spr_collective_check(comm, options, out);

    if (status)
        return status;
    status = codec ? SPR_OK : spr_check_finite(comm, plan, options, NULL);
    if (status)
        return status;
    spr_comm_lock(comm);
    status = post_locked(comm, plan, options, codec, out);
    if (status == SPR_OK) {
        assert(*out);
        spr_collective_step(*out);
        comm->channel.recent_ns = comm->quiet_since = 0;
        /* A rank alone has no thread, and waits for nobody. */
        while (comm->size == 1 && !(*out)->done && spr_comm_progress_locked(comm) > 0)
            ;
        if (!soon || comm->thread_only || comm->driving)
            spr_comm_kick(comm);
    } else {
        spr_comm_tell(comm);
    }
    spr_comm_unlock(comm);
    if (status && status != SPR_ERR_REVOKED) /* unless there is a better text */
        (void)spr_error_set(spr_thread_error(), status, comm->rank, "rank %d: %s: %s", comm->rank,
                            spr_collective_names[plan->collective], spr_status_string(status));
    return status;
}

spr_status spr_collective_run(spr_comm *comm, const struct spr_plan *plan,
                              const spr_call_options *options, spr_codec *codec)
{
    spr_request *rq = NULL;
    spr_status status = spr_collective_post(comm, plan, options, codec, true, &rq);

    return status ? status : spr_wait(&rq, -1.0);
}
