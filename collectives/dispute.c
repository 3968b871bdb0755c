/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dispute.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* News of operations that are not posted yet: at most this many per rank, of either kind. */
#define NEWS_PER_RANK 64
#define TEXT_BYTES SPR_NOTE_BYTES

struct news {
    struct spr_list node; /* comm->news */
    uint32_t operation;
    int from;
    int blamed; /* REJECT */
    bool rejected;
    union {
        struct spr_descriptor descriptor;
        char text[TEXT_BYTES];
    };
};

struct spr_past *spr_past_find(spr_comm *comm, uint32_t operation)
{
    struct spr_past *past = &comm->past[operation % SPR_PAST];

    return past->posted && past->operation == operation ? past : NULL;
}

void spr_past_add(spr_comm *comm, const spr_request *rq, const struct spr_descriptor *d)
{
    comm->past[rq->operation % SPR_PAST] = (struct spr_past){
        .posted = true, .operation = rq->operation, .hash = rq->descriptor, .descriptor = *d};
}

static spr_request *running(const spr_comm *comm, uint32_t operation)
{
    struct spr_list *it;

    spr_list_for_each(it, &comm->running)
    {
        spr_request *rq = spr_list_entry(it, spr_request, node);
        if (rq->operation == operation)
            return rq;
    }
    return NULL;
}

/* What this rank posted; also when more operations are in flight than are remembered. NULL: it was
 * complete too long ago. */
static const struct spr_past *recall(spr_comm *comm, uint32_t operation, struct spr_past *room)
{
    const struct spr_past *past = spr_past_find(comm, operation);
    const spr_request *rq = past ? NULL : running(comm, operation);

    if (!rq)
        return past;
    *room = (struct spr_past){.posted = true,
                              .operation = operation,
                              .rejected = rq->rejected != SPR_OK,
                              .hash = rq->descriptor};
    spr_collective_describe(rq, &room->descriptor);
    return room;
}

static void describe(spr_comm *comm, int peer, const struct spr_past *past)
{
    spr_channel_note(&comm->channel, peer, SPR_FRAME_DESCRIBE, past->operation, 0, 0,
                     &past->descriptor, sizeof past->descriptor);
}

void spr_dispute_describe(const spr_request *rq, int rank)
{
    describe(rq->comm, rq->comm->ids[rank], spr_past_find(rq->comm, rq->operation));
}

void spr_dispute_describe_late(spr_request *rq)
{
    struct spr_past room;
    const struct spr_past *past = recall(rq->comm, rq->operation, &room);

    rq->describe_ns = 0;
    for (int r = 0; past && r < rq->comm->size; r++)
        if (r != rq->comm->rank &&
            spr_channel_waits_for(&rq->comm->channel, rq->comm->ids[r], rq->operation))
            describe(rq->comm, rq->comm->ids[r], past);
}

void spr_dispute_found(spr_comm *comm, int peer, uint32_t operation)
{
    struct spr_past room;
    const struct spr_past *past = recall(comm, operation, &room);
    spr_request *rq = running(comm, operation);
    int rank = comm->channel.peers[peer].rank;

    if (!past) {
        spr_comm_fail(comm, SPR_ERR_MISMATCH, rank, -1,
                      "called something else at this point (other count, type or operation)");
        return;
    }
    if (past->rejected)
        return;
    describe(comm, peer, past);
    if (rq && !rq->dispute_ns) {
        rq->dispute_ns =
            spr_now_ns(comm->clock) + spr_seconds_ns(SPR_DISPUTE_S * spr_time_factor());
        rq->disputed = rank;
    }
}

/* The operation has failed everywhere. */
static void reject(spr_comm *comm, uint32_t operation, int blamed, const char *text)
{
    struct spr_past *past = spr_past_find(comm, operation);
    spr_request *rq = running(comm, operation);

    if (past ? past->rejected : !rq || rq->rejected)
        return;
    if (past)
        past->rejected = true;
    spr_trace_add(comm->trace, spr_now_ns(comm->clock), SPR_EV_REJECT, blamed, operation, 0, 0);
    spr_warn(SPR_SUB_COLL, "%s%s", text, rq ? "" : " (it was complete on this rank)");
    if (rq)
        spr_collective_reject(rq, SPR_ERR_MISMATCH, blamed, text);
}

static void reject_everywhere(spr_comm *comm, uint32_t operation, int blamed, const char *text)
{
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            spr_channel_note(&comm->channel, comm->ids[r], SPR_FRAME_REJECT, operation,
                             (uint32_t)blamed, 0, text, strlen(text) + 1);
    reject(comm, operation, blamed, text);
}

/* `from` has described what it posted as `operation`; this rank has posted it, too. */
static void compare(spr_comm *comm, uint32_t operation, int from, const struct spr_descriptor *d)
{
    struct spr_past room;
    const struct spr_past *past = recall(comm, operation, &room);
    char text[TEXT_BYTES - 32], host[64]; /* room for "told by" */

    if (!past || past->rejected || past->hash == spr_descriptor_hash(d))
        return;
    snprintf(host, sizeof host, "%s", spr_comm_host(comm, from));
    spr_descriptor_explain(operation, &past->descriptor, comm->rank,
                           spr_comm_host(comm, comm->rank), d, from, host, text, sizeof text);
    reject_everywhere(comm, operation, from, text);
}

void spr_dispute_decide(spr_request *rq)
{
    spr_comm *comm = rq->comm;
    const char *host = spr_comm_host(comm, rq->disputed);
    char text[TEXT_BYTES - 32];

    rq->dispute_ns = 0;
    snprintf(text, sizeof text,
             "%s #%u%s%s%s: the ranks disagree: count %zu and algorithm %s on rank %d, something "
             "else on rank %d%s%s%s, which is busy and has not said what",
             spr_collective_names[rq->posted.collective], rq->operation, *rq->name ? " '" : "",
             rq->name, *rq->name ? "'" : "", rq->posted.count, rq->posted.algorithm, comm->rank,
             rq->disputed, *host ? " (host " : "", host, *host ? ")" : "");
    reject_everywhere(comm, rq->operation, rq->disputed, text);
}

/* Keep news of an operation that is still to come. */
static void keep(spr_comm *comm, const struct news *what)
{
    struct news *n;
    struct spr_list *it;
    int have = 0;

    spr_list_for_each(it, &comm->news)
    {
        n = spr_list_entry(it, struct news, node);
        have += n->from == what->from && n->rejected == what->rejected;
    }
    /* A rank may be far ahead, and describes what it has called: that is only a help. */
    if (have >= NEWS_PER_RANK && !what->rejected)
        return;
    if (have >= NEWS_PER_RANK) {
        spr_comm_fail(comm, SPR_ERR_PROTO, what->from, -1, "disputes too much ahead of this rank");
        return;
    }
    n = spr_malloc(sizeof *n);
    if (!n) {
        spr_comm_fail(comm, SPR_ERR_NOMEM, comm->rank, -1, "no memory for a mismatch");
        return;
    }
    *n = *what;
    spr_list_push_back(&comm->news, &n->node);
}

static void act(spr_comm *comm, const struct news *n)
{
    if (n->rejected)
        reject(comm, n->operation, n->blamed, n->text);
    else
        compare(comm, n->operation, n->from, &n->descriptor);
}

void spr_dispute_note(spr_comm *comm, int peer, const struct spr_frame *f, const void *data)
{
    int rank = comm->channel.peers[peer].rank;
    struct news n = {.operation = f->operation, .from = rank};

    if (comm->error.status)
        return;
    n.rejected = f->type == SPR_FRAME_REJECT;
    n.blamed = f->arg < (uint32_t)comm->size ? (int)f->arg : rank;
    if (n.rejected && f->bytes > 1)
        snprintf(n.text, sizeof n.text, "%.*s (told by rank %d)", (int)f->bytes, (const char *)data,
                 rank);
    else if (n.rejected)
        spr_comm_fail(comm, SPR_ERR_PROTO, rank, -1, "rejected an operation without a reason");
    else if (f->bytes == sizeof n.descriptor)
        memcpy(&n.descriptor, data, sizeof n.descriptor);
    else
        spr_comm_fail(comm, SPR_ERR_PROTO, rank, -1, "sent a description of a wrong length");
    if (comm->error.status)
        return;
    if ((int32_t)(f->operation - comm->next_operation) >= 0)
        keep(comm, &n);
    else
        act(comm, &n);
}

void spr_dispute_posted(spr_comm *comm, spr_request *rq)
{
    struct spr_list *it, *next;

    spr_list_for_each_safe(it, next, &comm->news)
    {
        struct news *n = spr_list_entry(it, struct news, node);
        if (n->operation != rq->operation)
            continue;
        spr_list_remove(&n->node);
        act(comm, n);
        spr_free(n);
    }
}

void spr_dispute_clear(spr_comm *comm)
{
    while (!spr_list_empty(&comm->news)) {
        struct news *n = spr_list_entry(comm->news.next, struct news, node);
        spr_list_remove(&n->node);
        spr_free(n);
    }
}
