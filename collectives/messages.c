/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Messages of a request: how an algorithm sends and receives. What is done wakes the request.
 */
#include <assert.h>

#include "collectives/collective.h"

#define ROUND_STEP 0x40000000u /* steps of the second round; no algorithm has so many */

/* Behind those that are as urgent. */
void spr_collective_wake(spr_request *rq)
{
    struct spr_list *ready = &rq->comm->ready, *before = ready->prev;

    if (!spr_list_empty(&rq->ready_node))
        return;
    while (before != ready &&
           spr_list_entry(before, spr_request, ready_node)->priority < rq->priority)
        before = before->prev;
    spr_list_push_front(before, &rq->ready_node);
}

bool spr_request_marks(spr_request *rq, struct spr_marks *marks, int n)
{
    marks->n = n;
    marks->words = spr_arena_alloc(&rq->arena, spr_marks_words(n) * sizeof *marks->words);
    if (marks->words)
        spr_marks_set_all(marks);
    return marks->words;
}

static void send_done(struct spr_send *send, spr_status status)
{
    struct spr_out *out = spr_container_of(send, struct spr_out, send);

    (void)status; /* a failure has revoked the communicator already */
    out->busy = false;
    if (out->under_way)
        --*out->under_way;
    if (out->marks)
        spr_marks_set(out->marks, (int)out->number);
    out->rq->outstanding--;
    spr_collective_wake(out->rq);
}

static void receive_done(struct spr_recv *recv, spr_status status)
{
    struct spr_in *in = spr_container_of(recv, struct spr_in, recv);

    in->state = status ? SPR_IN_FREE : SPR_IN_ARRIVED;
    if (in->marks)
        spr_marks_set(in->marks, (int)in->number);
    in->rq->outstanding--;
    spr_collective_wake(in->rq);
}

void spr_post_send(spr_request *rq, struct spr_out *out, int peer, uint32_t step, const void *data,
                   size_t bytes, bool eager)
{
    assert(!out->busy);
    out->rq = rq;
    out->busy = true;
    if (out->under_way)
        ++*out->under_way;
    out->send.peer = rq->comm->ids[peer];
    out->send.operation = rq->operation;
    out->send.priority = rq->priority;
    out->send.step = step | rq->round * ROUND_STEP;
    out->send.descriptor = rq->descriptor;
    out->send.data = data;
    out->send.bytes = bytes;
    out->send.eager = eager;
    out->send.done = send_done;
    rq->outstanding++;
    spr_channel_send(&rq->comm->channel, &out->send);
}

void spr_post_receive(spr_request *rq, struct spr_in *in, int peer, uint32_t step, void *into,
                      size_t capacity, bool eager)
{
    assert(in->state == SPR_IN_FREE);
    in->rq = rq;
    in->state = SPR_IN_POSTED;
    in->recv.peer = rq->comm->ids[peer];
    in->recv.operation = rq->operation;
    in->recv.step = step | rq->round * ROUND_STEP;
    in->recv.descriptor = rq->descriptor;
    in->recv.into = into;
    in->recv.capacity = capacity;
    in->recv.eager = eager;
    in->recv.done = receive_done;
    rq->outstanding++;
    spr_channel_receive(&rq->comm->channel, &in->recv);
}

bool spr_withdraw_receive(struct spr_in *in)
{
    if (!spr_channel_withdraw(&in->rq->comm->channel, &in->recv))
        return false;
    in->state = SPR_IN_FREE;
    in->rq->outstanding--;
    return true;
}

void spr_in_release(struct spr_in *in)
{
    spr_channel_release(&in->rq->comm->channel, &in->recv);
    in->state = SPR_IN_FREE;
}

void spr_in_release_all(struct spr_in *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (in[i].state == SPR_IN_ARRIVED)
            spr_in_release(&in[i]);
}

char *spr_comm_buffer_get(spr_comm *comm) { return spr_pool_get(&comm->buffers); }

void spr_comm_buffer_put(spr_comm *comm, char *buffer)
{
    if (buffer)
        spr_pool_put(&comm->buffers, buffer);
}
