/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/exchange.h"

#include <assert.h>
#include <string.h>

#include "collectives/reduce.h"

/* A range is cut into four chunks or more (pipelining), within SPR_CHUNK_BYTES and these. */
#define CHUNKS_PER_RANGE 4
#define MIN_CHUNK_BYTES ((size_t)16 << 10)
/* Chunks that are added to something wait in the transport's memory, so many at most; those of a
 * later operation than the oldest in buffers of their own: see direct.h. */
#define OLDEST_AHEAD 4
#define LATER_AHEAD 2
/* Steps of messages: the step of the list, and the chunk. */
#define CHUNK_BITS 24
#define MOST_STEPS 64u

/* Ranges and chunks ---------------------------------------------------------------------------- */

static size_t chunk_elements(const struct spr_exchanges *x, const struct spr_range *whole)
{
    size_t bytes = spr_div_ceil((whole->end - whole->start) * x->element, CHUNKS_PER_RANGE);

    bytes = spr_min_size(spr_max_size(bytes, MIN_CHUNK_BYTES), SPR_CHUNK_BYTES);
    return spr_align_up(bytes, SPR_CACHE_LINE) / x->element;
}

/* The chunk at a place, moved past what is worked off. False: that is all. */
static bool chunk_at(const struct spr_exchanges *x, struct spr_exchange_place *p, bool taken,
                     struct spr_range *r)
{
    for (; p->step < x->steps; p->step++, p->chunk = 0) {
        const struct spr_exchange *e = &x->step[p->step];
        const struct spr_range *whole = taken ? &e->take : &e->send;
        size_t length = whole->end - whole->start, n = chunk_elements(x, whole);
        size_t from = p->chunk * n, to = spr_min_size(from + n, length);
        *r = whole->falling ? (struct spr_range){whole->end - to, whole->end - from, true}
                            : (struct spr_range){whole->start + from, whole->start + to, false};
        if (from < length)
            return true;
    }
    return false;
}

static void pass(struct spr_exchange_place *p)
{
    p->chunk++;
    p->passed++;
}

static bool overlap(const struct spr_range *a, const struct spr_range *b)
{
    return a->start < b->end && b->start < a->end;
}

/* Is nothing of `r` left of those steps before `end` that are to be taken, or sent, from `p` on? */
static bool clear(const struct spr_exchanges *x, const struct spr_exchange_place *p, bool taken,
                  uint32_t end, const struct spr_range *r)
{
    struct spr_exchange_place at = *p;
    struct spr_range rest;

    while (chunk_at(x, &at, taken, &rest) && at.step < end) {
        const struct spr_exchange *e = &x->step[at.step];
        const struct spr_range *whole = taken ? &e->take : &e->send;
        *(rest.falling ? &rest.start : &rest.end) = rest.falling ? whole->start : whole->end;
        if (overlap(&rest, r))
            return false;
        at.step++;
        at.chunk = 0;
    }
    return true;
}

/* Small ranges go without being asked for; both sides see the same range. The chunks of a larger
 * one might be more than may be under way, and would wait for grants that are then given late. */
static bool eager(const spr_request *rq, const struct spr_range *whole)
{
    const struct spr_exchanges *x = rq->state;

    return (whole->end - whole->start) * x->element <= rq->comm->options.eager_bytes;
}

static uint32_t message_step(const struct spr_exchange_place *p)
{
    assert(p->chunk < 1u << CHUNK_BITS);
    return p->step << CHUNK_BITS | p->chunk;
}

static char *result(const spr_request *rq, size_t element)
{
    const struct spr_exchanges *x = rq->state;

    return (char *)rq->plan.recv + element * x->element;
}

/* What this rank has of the range: its input, until something was added. */
static const char *source(const spr_request *rq, uint32_t step, size_t element)
{
    const struct spr_exchanges *x = rq->state;

    return step <= x->first ? x->input + element * x->element : result(rq, element);
}

/* Taking --------------------------------------------------------------------------------------- */

/* May the result be written there? What is being sent from it must have left. */
static bool writable(const spr_request *rq, const struct spr_range *r)
{
    const struct spr_exchanges *x = rq->state;

    if (!clear(x, &x->sent, false, x->taken.step + 1, r))
        return false;
    for (uint32_t i = 0; i < SPR_EXCHANGE_OUT; i++)
        if (x->out[i].busy && overlap(&x->leaving[i], r))
            return false;
    return true;
}

static void add(spr_request *rq, const struct spr_range *r, const void *there)
{
    const struct spr_exchanges *x = rq->state;
    const struct spr_exchange *e = &x->step[x->taken.step];
    const void *here = source(rq, x->taken.step, r->start);
    const struct spr_reduce_two two = {rq->plan.dtype, rq->plan.dtype, rq->plan.op,
                                       true,           e->last,        rq->comm->size};
    bool below = e->how == SPR_TAKE_BELOW;

    spr_reduce_two(&two, result(rq, r->start), below ? there : here, below ? here : there,
                   r->end - r->start);
}

/* The next chunk. False: it has not arrived, or must wait. */
static bool take(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;
    uint32_t slot = x->taken.passed % SPR_EXCHANGE_AHEAD;
    struct spr_in *in = &x->in[slot];
    const struct spr_exchange *e;
    struct spr_range r;

    if (!chunk_at(x, &x->taken, true, &r) || in->state != SPR_IN_ARRIVED)
        return false;
    e = &x->step[x->taken.step];
    if (in->recv.bytes != (r.end - r.start) * x->element) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, e->from, -1, "sent a chunk of another size");
        return false;
    }
    if (e->how != SPR_TAKE_COPY) {
        if (!writable(rq, &r))
            return false;
        add(rq, &r, in->recv.data);
    }
    spr_in_release(in);
    spr_comm_buffer_put(rq->comm, x->staging[slot]);
    x->staging[slot] = NULL;
    pass(&x->taken);
    return true;
}

/* Copies go to their place at once: they come from a rank that has had what was sent from there. */
static void ask(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;
    bool oldest = rq->comm->running.next == &rq->node;
    struct spr_range r;

    while (chunk_at(x, &x->asked, true, &r)) {
        const struct spr_exchange *e = &x->step[x->asked.step];
        uint32_t slot = x->asked.passed % SPR_EXCHANGE_AHEAD;
        bool copy = e->how == SPR_TAKE_COPY, own = !copy && !oldest;
        void *into = copy ? result(rq, r.start) : NULL;
        uint32_t ahead = copy ? SPR_EXCHANGE_AHEAD : oldest ? OLDEST_AHEAD : LATER_AHEAD;
        if (x->asked.passed - x->taken.passed >= ahead)
            return;
        if (own) {
            into = x->staging[slot] = spr_comm_buffer_get(rq->comm);
            if (!into)
                return; /* when it is the oldest it needs none */
        }
        spr_post_receive(rq, &x->in[slot], e->from, message_step(&x->asked), into,
                         (r.end - r.start) * x->element, eager(rq, &e->take));
        pass(&x->asked);
    }
}

/* Sending -------------------------------------------------------------------------------------- */

static void send_ready(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;
    bool in_place = x->input == rq->plan.recv;
    struct spr_range r;

    while (chunk_at(x, &x->sent, false, &r)) {
        const struct spr_exchange *e = &x->step[x->sent.step];
        uint32_t slot = x->sent.passed % SPR_EXCHANGE_OUT;
        if (x->out[slot].busy || !clear(x, &x->taken, true, x->sent.step, &r))
            return;
        /* Grants before data: where both send the same chunk, the other one keeps what it gets in
         * the transport's memory until its own has left, for which it needs our grant. Behind data
         * that waits for such memory that would not leave. */
        if (!clear(x, &x->asked, true, x->sent.step + 1, &r))
            return;
        x->leaving[slot] = in_place || x->sent.step > x->first ? r : (struct spr_range){0};
        spr_post_send(rq, &x->out[slot], e->to, message_step(&x->sent),
                      source(rq, x->sent.step, r.start), (r.end - r.start) * x->element,
                      eager(rq, &e->send));
        pass(&x->sent);
    }
}

bool spr_exchanges_advance(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    struct spr_range r;

    while (take(rq))
        continue;
    rq->comm->counters.reduce_ns += spr_now_ns(rq->comm->clock) - begin;
    if (rq->comm->error.status)
        return false;
    ask(rq);
    send_ready(rq);
    return !chunk_at(x, &x->taken, true, &r) && !chunk_at(x, &x->sent, false, &r);
}

/* Life ----------------------------------------------------------------------------------------- */

bool spr_exchanges_usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype != SPR_FP16 && plan->dtype != SPR_BF16;
}

struct spr_exchanges *spr_exchanges_make(spr_request *rq, uint32_t steps)
{
    struct spr_exchanges *x = spr_arena_alloc(&rq->arena, sizeof *x);

    assert(steps <= MOST_STEPS);
    if (!x)
        return NULL;
    rq->state = x;
    x->steps = steps;
    x->step = spr_arena_alloc(&rq->arena, spr_max_size(steps, 1) * sizeof *x->step);
    x->input = rq->plan.send;
    x->element = spr_dtype_size(rq->plan.dtype);
    return x->step ? x : NULL;
}

void spr_exchanges_filled(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;
    struct spr_exchange_place p = {0};
    struct spr_range r;

    (void)chunk_at(x, &p, true, &r);
    x->first = p.step;
    if (x->steps == 0 && x->input != rq->plan.recv)
        memcpy(rq->plan.recv, x->input, rq->plan.count * x->element);
}

void spr_exchanges_cleanup(spr_request *rq)
{
    struct spr_exchanges *x = rq->state;

    spr_in_release_all(x->in, SPR_EXCHANGE_AHEAD);
    for (uint32_t i = 0; i < SPR_EXCHANGE_AHEAD; i++)
        spr_comm_buffer_put(rq->comm, x->staging[i]);
}
