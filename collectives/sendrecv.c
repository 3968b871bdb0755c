/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sendrecv: every rank sends its vector to the rank `shift` further on, and receives that of the
 * rank `shift` behind. One that is its own neighbour goes over the link to itself.
 *
 * Cost, n elements of v bytes, chunks of C bytes: 1 step, max(1, ceil(n v / C)) messages; n v bytes
 * sent and received per rank; no additions.
 *
 * Data movement, 4 ranks, x_r the vector of rank r; shift 1, and shift -6, which is 2 modulo 4:
 *
 *                       rank 0       rank 1       rank 2       rank 3
 *   send (shift 1)      x0 to 1      x1 to 2      x2 to 3      x3 to 0
 *   receive             x3           x0           x1           x2
 *   send (shift -6)     x0 to 2      x1 to 3      x2 to 0      x3 to 1
 *   receive             x2           x3           x0           x1
 *
 * Receives are posted a few chunks ahead, straight into the result: no memory of the transport is
 * held, so an operation need not be the oldest to move.
 *
 * Ranks that disagree on the shift talk to ranks that expect somebody else, which notice by the
 * descriptor. Only where the ranks fall into several cycles (gcd(shift, P) > 1) could a cycle be
 * happy without the others; so there each rank also describes the call to the next one, which may
 * be the one that waits, while this one is done, with a good result, and busy with something else.
 * Where each rank is its own neighbour, all of them hear from others in the steps of a barrier.
 */
#include "collectives/barrier.h"
#include "collectives/dispute.h"

/* Messages posted ahead, in each direction. */
#define AHEAD 4
/* Steps of the barrier; those of chunks are below. */
#define BARRIER_STEP 0x80000000u

struct sendrecv {
    int to, from;
    size_t bytes;                     /* of the vector */
    uint32_t chunks;                  /* at least 1 */
    uint32_t sent, expected, arrived; /* chunks: posted, receive posted, in place */
    bool eager;
    struct spr_out out[AHEAD];
    struct spr_in in[AHEAD];
    struct spr_barrier barrier; /* no steps: none */
};

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static spr_status start(spr_request *rq)
{
    const spr_comm *comm = rq->comm;
    struct sendrecv *s = spr_arena_alloc(&rq->arena, sizeof *s);
    int distance = rq->plan.root % comm->size; /* in (-size, size) */

    if (!s)
        return SPR_ERR_NOMEM;
    rq->state = s;
    distance += distance < 0 ? comm->size : 0;
    s->to = (int)(((unsigned)comm->rank + (unsigned)distance) % (unsigned)comm->size);
    s->from =
        (int)(((unsigned)comm->rank + (unsigned)(comm->size - distance)) % (unsigned)comm->size);
    s->bytes = rq->plan.count * spr_dtype_size(rq->plan.dtype);
    s->chunks = (uint32_t)spr_max_size(spr_div_ceil(s->bytes, SPR_CHUNK_BYTES), 1);
    s->eager = s->bytes <= comm->options.eager_bytes;
    if (distance == 0)
        return spr_barrier_init(rq, &s->barrier, BARRIER_STEP);
    if (common_divisor((uint32_t)comm->size, (uint32_t)distance) > 1)
        spr_dispute_describe(rq, (comm->rank + 1) % comm->size);
    return SPR_OK;
}

static size_t chunk_bytes(const struct sendrecv *s, uint32_t c)
{
    return spr_min_size(s->bytes - c * SPR_CHUNK_BYTES, SPR_CHUNK_BYTES);
}

/* Take arrived chunks off their slots. False: the peer sent something else. */
static bool take(spr_request *rq)
{
    struct sendrecv *s = rq->state;

    while (s->arrived < s->expected) {
        struct spr_in *in = &s->in[s->arrived % AHEAD];
        if (in->state != SPR_IN_ARRIVED)
            break;
        if (in->recv.bytes != chunk_bytes(s, s->arrived)) {
            spr_comm_fail(rq->comm, SPR_ERR_PROTO, s->from, -1, "sent a chunk of another size");
            return false;
        }
        spr_in_release(in);
        s->arrived++;
    }
    return true;
}

static bool advance(spr_request *rq)
{
    struct sendrecv *s = rq->state;
    char *recv = rq->plan.recv;
    const char *send = rq->plan.send;

    if (!take(rq))
        return false;
    while (s->expected < s->chunks && s->expected < s->arrived + AHEAD) {
        uint32_t c = s->expected++;
        void *into =
            s->bytes ? recv + c * SPR_CHUNK_BYTES : (char *)s; /* NULL would be to borrow */
        spr_post_receive(rq, &s->in[c % AHEAD], s->from, c, into, chunk_bytes(s, c), s->eager);
    }
    while (s->sent < s->chunks && !s->out[s->sent % AHEAD].busy) {
        uint32_t c = s->sent++;
        const void *data = s->bytes ? send + c * SPR_CHUNK_BYTES : NULL;
        spr_post_send(rq, &s->out[c % AHEAD], s->to, c, data, chunk_bytes(s, c), s->eager);
    }
    return spr_barrier_advance(rq, &s->barrier) && s->arrived == s->chunks && s->sent == s->chunks;
}

static void cleanup(spr_request *rq)
{
    struct sendrecv *s = rq->state;

    spr_in_release_all(s->in, AHEAD);
    spr_barrier_cleanup(&s->barrier);
}

const struct spr_algorithm spr_sendrecv_direct = {.collective = SPR_C_SENDRECV,
                                                  .name = "direct",
                                                  .cost = "1 step, n bytes",
                                                  .start = start,
                                                  .advance = advance,
                                                  .cleanup = cleanup};
