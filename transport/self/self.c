/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The link of a rank to itself, so that a collective need not ask whether a peer is its own rank.
 * Every communicator has it, also that of a rank alone; nothing connects and nothing can fail but
 * memory.
 *
 *   send(tx) -> queued -> progress(): header() -> INTO    one copy         -> payload() -> sent(tx)
 *                                                 BORROW  lent as it is    -> payload() ...
 * release()
 *                                                         -> sent(tx) in the next progress()
 *                                                 DROP    nothing is moved -> payload() -> sent(tx)
 *
 * One copy, from the sender's memory to the receiver's; a collective that reads its own rank's part
 * in place needs none, so those that can do that do.
 *
 * Frames are counted as those of any other link are. There is nothing to wake up for: send() is
 * called by somebody who goes on to progress(), and arm() refuses while frames wait.
 */
#include <assert.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"
#include "transport/transport.h"

#define FRAMES_PER_PROGRESS 16 /* so that the other links have their turn */

/* A sender's data in the hands of the receiver. Not the tx itself: a link that is killed returns
 * the tx while the receiver may still hold the token. */
struct loan {
    struct spr_list node; /* on self.loans while tx is set */
    struct spr_tx *tx;
};

struct queue {
    struct spr_tx *head, **end;
};

struct self {
    struct spr_transport base;
    struct spr_link link;
    struct queue frames;   /* to be delivered */
    struct queue returned; /* to be reported by sent() */
    struct spr_list loans;
    struct spr_pool loan_pool;
};

static struct self *self_of(struct spr_transport *t)
{
    return spr_container_of(t, struct self, base);
}

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->end = &q->head;
}

static void push(struct queue *q, struct spr_tx *tx)
{
    tx->next = NULL;
    *q->end = tx;
    q->end = &tx->next;
}

static struct spr_tx *pop(struct queue *q)
{
    struct spr_tx *tx = q->head;

    if (!tx)
        return NULL;
    q->head = tx->next;
    if (!q->head)
        q->end = &q->head;
    return tx;
}

static void self_close(struct spr_transport *base)
{
    struct self *t = self_of(base);

    spr_pool_destroy(&t->loan_pool);
    spr_free(t);
}

static spr_status self_open(const struct spr_transport_params *params,
                            struct spr_transport **transport, struct spr_error *error)
{
    struct self *t = spr_calloc(1, sizeof *t);

    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, params->rank, "no memory for a transport");
    t->base = (struct spr_transport){.ops = &spr_transport_self, .params = *params};
    queue_init(&t->frames);
    queue_init(&t->returned);
    spr_list_init(&t->loans);
    spr_pool_init(&t->loan_pool, sizeof(struct loan), 16, 0);
    *transport = &t->base;
    return SPR_OK;
}

/* Nobody else has to find it. */
static void self_address(struct spr_transport *t, void *address)
{
    (void)t;
    memset(address, 0, SPR_ADDRESS_BYTES);
}

/* The same entry of the table of peers, not an equal one. */
static const char *self_unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    return mine == peer ? NULL : "it is another rank";
}

static spr_status self_connect(struct spr_transport *base, int peer,
                               const struct spr_peer_info *info, struct spr_link **link,
                               struct spr_error *error)
{
    struct self *t = self_of(base);

    (void)info;
    if (peer != base->params.rank || t->link.transport)
        return spr_error_set(error, SPR_ERR_INVALID, peer,
                             "rank %d links to itself only, and once: not to rank %d",
                             base->params.rank, peer);
    t->link = (struct spr_link){base, peer, SPR_LINK_CONNECTING, NULL};
    *link = &t->link;
    return SPR_OK;
}

static void self_send(struct spr_link *link, struct spr_tx *tx)
{
    struct self *t = self_of(link->transport);

    assert(tx->header.bytes <= SPR_FRAME_MAX_PAYLOAD);
    tx->failed = link->state == SPR_LINK_DOWN;
    push(tx->failed ? &t->returned : &t->frames, tx);
}

static void self_release(struct spr_link *link, void *token)
{
    struct self *t = self_of(link->transport);
    struct loan *loan = token;

    if (!loan)
        return;
    if (loan->tx) {
        spr_list_remove(&loan->node);
        push(&t->returned, loan->tx);
    }
    spr_pool_put(&t->loan_pool, loan);
}

/* All frames go back: failed, if they were not delivered. */
static void shut(struct self *t)
{
    struct spr_tx *tx;

    t->link.state = SPR_LINK_DOWN;
    while ((tx = pop(&t->frames)) != NULL) {
        tx->failed = true;
        push(&t->returned, tx);
    }
    while (!spr_list_empty(&t->loans)) {
        struct loan *loan = spr_list_entry(t->loans.next, struct loan, node);
        spr_list_remove(&loan->node);
        push(&t->returned, loan->tx);
        loan->tx = NULL;
    }
}

static void self_kill(struct spr_link *link)
{
    struct self *t = self_of(link->transport);

    if (link->state != SPR_LINK_DOWN)
        shut(t);
}

static int return_sent(struct self *t)
{
    struct spr_tx *tx;
    int n = 0;

    for (; (tx = pop(&t->returned)) != NULL; n++)
        t->base.params.events->sent(&t->link, tx);
    return n;
}

static void break_link(struct self *t, spr_status why, const char *text)
{
    shut(t);
    return_sent(t);
    t->base.params.events->down(&t->link, why, text);
}

/* Lend the payload out. False: no memory. */
static bool lend(struct self *t, struct spr_tx *tx)
{
    struct loan *loan = spr_pool_get(&t->loan_pool);

    if (!loan)
        return false;
    loan->tx = tx;
    spr_list_init(&loan->node);
    spr_list_push_back(&t->loans, &loan->node);
    t->base.params.events->payload(&t->link, &tx->header, tx->data, loan);
    return true;
}

/* The upcalls of one frame. It is in no queue meanwhile, but its link may be killed by any. */
static void deliver(struct self *t, struct spr_tx *tx)
{
    const struct spr_transport_params *params = &t->base.params;
    struct spr_counters *counters = params->counters;
    size_t bytes = tx->header.bytes;
    struct spr_rx rx = {.sink = SPR_SINK_DROP};
    spr_status status = params->events->header(&t->link, &tx->header, &rx);
    const void *data = NULL;

    counters->sent_frames++;
    counters->received_frames++;
    counters->sent_bytes += SPR_FRAME_BYTES + bytes;
    counters->received_bytes += SPR_FRAME_BYTES + bytes;
    tx->failed = status || t->link.state != SPR_LINK_UP;
    if (!tx->failed && rx.sink == SPR_SINK_BORROW && bytes) {
        if (lend(t, tx))
            return;
        tx->failed = true;
        status = SPR_ERR_NOMEM;
    }
    if (!tx->failed) {
        if (rx.sink == SPR_SINK_INTO && bytes)
            data = memcpy(rx.into, tx->data, bytes);
        params->events->payload(&t->link, &tx->header, data, NULL);
    }
    push(&t->returned, tx);
    if (status && t->link.state == SPR_LINK_UP)
        break_link(t, status,
                   status == SPR_ERR_NOMEM ? "no memory for a payload"
                                           : "a frame breaks the protocol");
}

static int self_progress(struct spr_transport *base)
{
    struct self *t = self_of(base);
    int n = 0;

    if (t->link.transport && t->link.state == SPR_LINK_CONNECTING) {
        t->link.state = SPR_LINK_UP;
        base->params.events->up(&t->link);
        n++;
    }
    for (; n < FRAMES_PER_PROGRESS && t->link.state == SPR_LINK_UP; n++) {
        struct spr_tx *tx = pop(&t->frames);
        if (!tx)
            break;
        deliver(t, tx);
    }
    return n + return_sent(t);
}

static int self_fd(struct spr_transport *t)
{
    (void)t;
    return -1;
}

static spr_status self_arm(struct spr_transport *base)
{
    const struct self *t = self_of(base);
    bool connecting = t->link.transport && t->link.state == SPR_LINK_CONNECTING;

    return connecting || t->frames.head || t->returned.head ? SPR_IN_PROGRESS : SPR_OK;
}

static bool self_idle(struct spr_transport *base)
{
    const struct self *t = self_of(base);

    return !t->frames.head && !t->returned.head && spr_list_empty(&t->loans);
}

static bool self_delivered(struct spr_link *link) { return !self_of(link->transport)->frames.head; }

static spr_status self_mem_register(struct spr_transport *t, void *memory, size_t bytes,
                                    bool writable)
{
    (void)t, (void)memory, (void)bytes, (void)writable;
    return SPR_OK; /* nothing to do: payloads are copied by the CPU */
}

static void self_mem_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    (void)t, (void)memory, (void)bytes;
}

const struct spr_transport_ops spr_transport_self = {
    .name = "self",
    .open = self_open,
    .address = self_address,
    .unusable = self_unusable,
    .connect = self_connect,
    .send = self_send,
    .release = self_release,
    .kill = self_kill,
    .progress = self_progress,
    .fd = self_fd,
    .arm = self_arm,
    .idle = self_idle,
    .delivered = self_delivered,
    .close = self_close,
    .mem_register = self_mem_register,
    .mem_deregister = self_mem_deregister,
};
