/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Flat algorithms for small vectors: everything in one message.
 *
 * allreduce (gather and sum): every rank sends its whole vector to every other and sums all of them
 * in rank order. Canonical. Cost: 1 step, P-1 messages, (P-1) n v bytes sent, (P-1) n additions per
 * rank.
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   send     x0 to all     x1 to all     x2 to all     x3 to all
 *   sum      x0+x1+x2+x3   x0+x1+x2+x3   x0+x1+x2+x3   x0+x1+x2+x3
 *
 * broadcast: the root sends to every other rank, and every other rank tells the root that it has
 * called, so that a root knows of those who took another rank for it. Cost: 1 step, (P-1) n v bytes
 * at the root.
 */
#include <string.h>

#include "collectives/collective.h"
#include "collectives/reduce.h"

struct flat {
    size_t bytes;
    int next_rank;              /* whose vector is added next, from rank 1 on */
    bool received;              /* broadcast: nothing more to come */
    const char *own;            /* this rank's vector */
    char *accumulator, *inputs; /* inputs: [size], not kept in the transport's memory, which a slow
                                 * rank would block for all other operations */
    struct spr_in *in;
    struct spr_out *out;
    char nothing[1];
};

static bool one_message(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->count * spr_dtype_size(plan->dtype) <= SPR_FRAME_MAX_PAYLOAD;
}

static struct flat *make(spr_request *rq)
{
    size_t size = (size_t)rq->comm->size;
    struct flat *f = spr_arena_alloc(&rq->arena, sizeof *f);

    rq->state = f;
    if (!f)
        return NULL;
    f->bytes = rq->plan.count * spr_dtype_size(rq->plan.dtype);
    f->in = spr_arena_alloc(&rq->arena, size * sizeof *f->in);
    f->out = spr_arena_alloc(&rq->arena, size * sizeof *f->out);
    return f->in && f->out ? f : NULL;
}

static void cleanup(spr_request *rq)
{
    struct flat *f = rq->state;

    spr_in_release_all(f->in, (size_t)rq->comm->size);
}

static bool eager(const spr_request *rq, const struct flat *f)
{
    return f->bytes <= rq->comm->options.eager_bytes;
}

/* In place, the result is written while others may still be reading the input. */
static const char *own_vector(spr_request *rq, const struct flat *f)
{
    const struct spr_plan *plan = &rq->plan;

    if (plan->send != plan->recv)
        return plan->send;
    /* A place in `inputs` that no message needs. */
    return memcpy(f->inputs + (size_t)rq->comm->rank * f->bytes, plan->send, f->bytes);
}

static spr_status start_allreduce(spr_request *rq)
{
    struct flat *f = make(rq);
    int size = rq->comm->size;

    if (!f)
        return SPR_ERR_NOMEM;
    f->next_rank = 1;
    f->accumulator = spr_arena_buffer(&rq->arena, rq->plan.count * sizeof(uint64_t));
    f->inputs = spr_arena_buffer(&rq->arena, f->bytes * (size_t)size);
    if (!f->accumulator || !f->inputs)
        return SPR_ERR_NOMEM;
    f->own = own_vector(rq, f);
    /* The others wait for what is sent. */
    for (int i = 1; i < size; i++) {
        int peer = (rq->comm->rank + size - i) % size;
        spr_post_send(rq, &f->out[peer], peer, 0, f->own, f->bytes, eager(rq, f));
    }
    for (int i = 1; i < size; i++) {
        int peer = (rq->comm->rank + i) % size;
        /* The other one of two vectors is summed as soon as it is there. */
        f->in[peer].recv.lend = size == 2;
        spr_post_receive(rq, &f->in[peer], peer, 0, f->inputs + (size_t)peer * f->bytes, f->bytes,
                         eager(rq, f));
    }
    return SPR_OK;
}

/* The vector of `from`, or NULL when it has not arrived. */
static const void *vector_of(spr_request *rq, int from)
{
    const struct flat *f = rq->state;

    if (from == rq->comm->rank)
        return f->own;
    if (f->in[from].state != SPR_IN_ARRIVED)
        return NULL;
    if (f->in[from].recv.bytes != f->bytes) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, from, -1, "sent a message of another size");
        return NULL;
    }
    return f->in[from].recv.data;
}

static bool advance_allreduce(spr_request *rq)
{
    struct flat *f = rq->state;
    const struct spr_plan *plan = &rq->plan;
    int size = rq->comm->size;

    if (size == 1 && f->next_rank == 1) {
        spr_reduce_load(plan->dtype, f->accumulator, f->own, plan->count);
        spr_reduce_store(plan->dtype, plan->op, plan->recv, f->accumulator, plan->count, 1);
        f->next_rank++;
    }
    for (; f->next_rank < size; f->next_rank++) {
        int rank = f->next_rank;
        const struct spr_reduce_two two = {plan->dtype, plan->dtype,      plan->op,
                                           rank == 1,   rank == size - 1, size};
        const void *a = two.first ? vector_of(rq, 0) : f->accumulator, *b = vector_of(rq, rank);
        if (!a || !b)
            return false;
        spr_reduce_two(&two, two.last ? plan->recv : f->accumulator, a, b, plan->count);
    }
    return true;
}

static spr_status start_broadcast(spr_request *rq)
{
    struct flat *f = make(rq);
    int size = rq->comm->size, root = rq->plan.root;

    if (!f)
        return SPR_ERR_NOMEM;
    if (rq->comm->rank != root) {
        spr_post_receive(rq, &f->in[root], root, 0, rq->plan.recv, f->bytes, eager(rq, f));
        spr_post_send(rq, &f->out[root], root, 1, NULL, 0, true);
        return SPR_OK;
    }
    f->received = true;
    for (int i = 1; i < size; i++) {
        int peer = (root + i) % size;
        spr_post_receive(rq, &f->in[peer], peer, 1, f->nothing, 0, true);
        spr_post_send(rq, &f->out[peer], peer, 0, rq->plan.recv, f->bytes, eager(rq, f));
    }
    return SPR_OK;
}

static bool advance_broadcast(spr_request *rq)
{
    struct flat *f = rq->state;
    struct spr_in *in = &f->in[rq->plan.root];

    if (!f->received && in->state == SPR_IN_ARRIVED) {
        if (in->recv.bytes != f->bytes) {
            spr_comm_fail(rq->comm, SPR_ERR_PROTO, rq->plan.root, -1,
                          "sent a message of another size");
            return false;
        }
        spr_in_release(in);
        f->received = true;
    }
    return f->received;
}

const struct spr_algorithm spr_allreduce_flat = {
    .collective = SPR_C_ALLREDUCE,
    .name = "flat",
    .cost = "1 step, (P-1) n bytes, canonical; small vectors",
    .usable = one_message,
    .start = start_allreduce,
    .advance = advance_allreduce,
    .cleanup = cleanup,
    .predict = spr_cost_flat};
const struct spr_algorithm spr_broadcast_flat = {
    .collective = SPR_C_BROADCAST,
    .name = "flat",
    .cost = "1 step, (P-1) n bytes at the root; small vectors",
    .usable = one_message,
    .start = start_broadcast,
    .advance = advance_broadcast,
    .cleanup = cleanup};
