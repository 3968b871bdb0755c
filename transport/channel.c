/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/channel.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/series.h"
#include "transport/channel_private.h"

/* A frame of the channel's own: grants, requests, credits, abort, bye. */
struct control {
    struct spr_tx tx;
    char data[SPR_NOTE_BYTES];
};

spr_status spr_channel_init(struct spr_channel *ch, int rank, int size, uint32_t epoch,
                            const struct spr_options *options, const struct spr_clock *clock,
                            struct spr_counters *counters, struct spr_trace *trace)
{
    memset(ch, 0, sizeof *ch);
    ch->rank = rank;
    ch->size = size;
    ch->epoch = epoch;
    ch->options = options;
    ch->clock = clock;
    ch->counters = counters;
    ch->trace = trace;
    ch->urgent = INT_MIN;
    ch->peers = spr_calloc((size_t)size, sizeof *ch->peers);
    if (!ch->peers)
        return SPR_ERR_NOMEM;
    spr_pool_init(&ch->control_pool, sizeof(struct control), 16, 0);
    spr_channel_early_init(ch);
    return SPR_OK;
}

void spr_channel_init_peer(struct spr_channel *ch, int peer)
{
    struct spr_channel_peer *p = &ch->peers[peer];

    p->channel = ch;
    p->rank = peer;
    spr_list_init(&p->waiting);
    spr_list_init(&p->held);
    spr_list_init(&p->receives);
    spr_list_init(&p->recalled);
    spr_list_init(&p->early);
}

struct spr_link *spr_channel_link(struct spr_channel *ch, int peer)
{
    struct spr_channel_peer *p = spr_channel_peer(ch, peer);

    if (!p->link && ch->link)
        ch->link(ch->link_ctx, peer);
    return p->link;
}

void spr_channel_attach(struct spr_channel *ch, struct spr_link *link, bool checksum)
{
    struct spr_channel_peer *p = spr_channel_peer(ch, link->peer);

    p->link = link;
    p->checksum = checksum;
    link->channel = p;
}

bool spr_channel_checksums(const struct spr_channel *ch)
{
    const struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch)
    {
        if (p->checksum)
            return true;
    }
    return false;
}

void spr_channel_destroy(struct spr_channel *ch)
{
    struct spr_channel_peer *p;

    if (!ch->peers)
        return;
    spr_channel_for_each_peer(p, ch)
    {
        while (!spr_list_empty(&p->early))
            spr_channel_drop_early(p, spr_list_entry(p->early.next, struct early, node));
        if (p->arriving)
            spr_channel_drop_early(p, p->arriving);
    }
    spr_pool_destroy(&ch->control_pool);
    spr_channel_early_destroy(ch);
    spr_free(ch->peers);
    ch->peers = NULL;
}

/* Frames out ----------------------------------------------------------------------------------- */

/* A payload CRC that is not known yet is the transport's to compute, if it can. */
static void seal(const struct spr_channel_peer *p, struct spr_tx *tx, bool crc_known)
{
    bool open = tx->header.flags & SPR_FRAME_CRC && !crc_known;

    tx->unsealed = open && p->link->transport->ops->seals;
    if (!open)
        spr_frame_seal(&tx->header);
    else if (!tx->unsealed)
        spr_frame_seal_payload(&tx->header, tx->data);
}

static void hand_over(struct spr_channel_peer *p, struct spr_tx *tx, bool crc_known)
{
    struct spr_frame *f = &tx->header;

    f->epoch = p->channel->epoch;
    f->sequence = p->tx_sequence++;
    f->consumed = p->eager_consumed;
    p->eager_reported = p->eager_consumed;
    f->zero = 0;
    seal(p, tx, crc_known);
    tx->failed = false;
    p->channel->frames_out++;
    p->frames_out++;
    p->link->transport->ops->send(p->link, tx);
}

/* Data frames are told from control frames by their type when they come back in sent(). */
void spr_channel_send_control(struct spr_channel_peer *p, enum spr_frame_type type,
                              uint32_t operation, uint32_t step, uint64_t descriptor, uint32_t arg,
                              uint64_t arg64, const void *data, size_t bytes)
{
    struct control *c;

    assert(bytes <= SPR_NOTE_BYTES);
    if (!p->link || p->down || p->channel->dead)
        return;
    c = spr_pool_get(&p->channel->control_pool);
    if (!c) {
        spr_channel_fail(p, SPR_ERR_NOMEM, "no memory for a control frame");
        return;
    }
    memset(&c->tx, 0, sizeof c->tx);
    c->tx.header.type = (uint8_t)type;
    c->tx.header.operation = operation;
    c->tx.header.step = step;
    c->tx.header.descriptor = descriptor;
    c->tx.header.arg = arg;
    c->tx.header.arg64 = arg64;
    if (bytes) {
        memcpy(c->data, data, bytes);
        c->tx.header.bytes = (uint32_t)bytes;
        c->tx.header.flags = SPR_FRAME_CRC;
        c->tx.data = c->data;
    }
    hand_over(p, &c->tx, false);
}

void spr_channel_hand_over_data(struct spr_channel_peer *p, struct spr_send *s)
{
    spr_trace_add(p->channel->trace, spr_channel_now(p->channel), SPR_EV_SEND, p->rank,
                  (uint64_t)s->operation << 32 | s->step, s->bytes, 0);
    p->data_out += s->bytes;
    hand_over(p, &s->tx, s->crc_known);
}

/* `place`: where the peer wants it, or NULL. */
static void send_data(struct spr_channel_peer *p, struct spr_send *s, const struct spr_place *place)
{
    struct spr_frame *f = &s->tx.header;

    memset(&s->tx, 0, sizeof s->tx);
    f->type = SPR_FRAME_DATA;
    f->operation = s->operation;
    f->step = s->step;
    f->descriptor = s->descriptor;
    f->bytes = (uint32_t)s->bytes;
    f->arg = s->eager;
    f->flags = p->checksum && s->bytes ? SPR_FRAME_CRC : 0;
    f->payload_crc = f->flags && s->crc_known ? s->crc : 0;
    if (place && s->bytes) {
        f->flags |= SPR_FRAME_PLACED;
        s->tx.place = *place;
        p->channel->counters->placed_sends++;
    }
    s->tx.data = s->data;
    spr_list_init(&s->node);
    spr_channel_send_or_hold(p, s);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct spr_channel_peer *p = link->channel;
    struct spr_channel *ch = p->channel;

    ch->frames_out--;
    p->frames_out--;
    if (tx->header.type == SPR_FRAME_DATA) {
        struct spr_send *s = spr_container_of(tx, struct spr_send, tx);
        p->data_out -= s->bytes;
        s->done(s, !tx->failed ? SPR_OK : ch->status ? ch->status : SPR_ERR_LINK);
    } else {
        spr_pool_put(&ch->control_pool, spr_container_of(tx, struct control, tx));
    }
}

/* Posting -------------------------------------------------------------------------------------- */

static bool eager_fits(const struct spr_channel_peer *p, size_t bytes)
{
    return p->eager_sent - p->eager_acked + spr_eager_cost(bytes) <=
           (uint32_t)p->channel->options->eager_window;
}

static struct early *find_early(struct spr_channel_peer *p, enum early_kind kind,
                                uint32_t operation, uint32_t step)
{
    struct spr_list *it;

    spr_list_for_each(it, &p->early)
    {
        struct early *e = spr_list_entry(it, struct early, node);
        if (e->kind == kind && e->operation == operation && e->step == step)
            return e;
    }
    return NULL;
}

void spr_channel_send(struct spr_channel *ch, struct spr_send *s)
{
    struct spr_channel_peer *p = spr_channel_peer(ch, s->peer);
    struct early *grant;

    assert(s->bytes <= SPR_FRAME_MAX_PAYLOAD);
    (void)spr_channel_link(ch, s->peer);
    spr_list_init(&s->node);
    if (ch->status || spr_channel_never_comes(p, s->operation)) {
        spr_channel_fail(p, SPR_ERR_RANK_LOST, "the rank has left");
        s->done(s, ch->status);
        return;
    }
    if (p->left) { /* it has no use for the message, so the operation was rejected: news of it comes
                    */
        spr_list_push_back(&p->waiting, &s->node);
        return;
    }
    if (s->eager && eager_fits(p, s->bytes)) {
        p->eager_sent += spr_eager_cost(s->bytes);
        send_data(p, s, NULL);
        return;
    }
    grant = find_early(p, EARLY_GRANT, s->operation, s->step);
    if (grant) {
        struct spr_place place = grant->place;
        bool placed = grant->placed;
        spr_channel_drop_early(p, grant);
        s->eager = false;
        send_data(p, s, placed ? &place : NULL);
        return;
    }
    spr_list_push_back(&p->waiting, &s->node);
    spr_trace_add(ch->trace, spr_now_ns(ch->clock), SPR_EV_HOLD, p->rank,
                  (uint64_t)s->operation << 32 | s->step, s->bytes, 0);
    if (s->eager)
        spr_channel_send_control(p, SPR_FRAME_REQUEST, s->operation, s->step, s->descriptor, 0, 0,
                                 NULL, 0);
}

void spr_channel_receive(struct spr_channel *ch, struct spr_recv *r)
{
    struct spr_channel_peer *p = spr_channel_peer(ch, r->peer);
    struct early *e;

    assert(r->capacity <= SPR_FRAME_MAX_PAYLOAD);
    (void)spr_channel_link(ch, r->peer);
    spr_list_init(&r->node);
    r->data = NULL;
    r->token = NULL;
    r->bytes = 0;
    r->copied = false;
    r->exposed = false;
    if (!ch->status && r->eager) {
        e = find_early(p, EARLY_DATA, r->operation, r->step);
        if (e) {
            spr_channel_deliver_early(p, r, e);
            return;
        }
    }
    if (!ch->status && spr_channel_never_comes(p, r->operation))
        spr_channel_fail(p, SPR_ERR_RANK_LOST, "the rank has left");
    if (ch->status) {
        r->done(r, ch->status);
        return;
    }
    spr_list_push_back(&p->receives, &r->node);
    e = r->eager ? find_early(p, EARLY_REQUEST, r->operation, r->step) : NULL;
    if (e)
        spr_channel_drop_early(p, e);
    if (e || !r->eager)
        spr_channel_send_grant(p, r);
}

void spr_channel_send_grant(struct spr_channel_peer *p, struct spr_recv *r)
{
    struct spr_channel *ch = p->channel;
    struct spr_place place = {0};

    if (r->into && r->capacity && p->link && !p->down && p->link->transport->ops->expose)
        r->exposed = p->link->transport->ops->expose(p->link, r->into, r->capacity, &place);
    spr_trace_add(ch->trace, spr_now_ns(ch->clock), SPR_EV_GRANT, p->rank,
                  (uint64_t)r->operation << 32 | r->step, 0, 0);
    spr_channel_send_control(p, SPR_FRAME_GRANT, r->operation, r->step, r->descriptor, 0, 0, &place,
                             r->exposed ? sizeof place : 0);
}

void spr_channel_release(struct spr_channel *ch, struct spr_recv *r)
{
    struct spr_channel_peer *p = &ch->peers[r->peer];

    if (r->copied)
        spr_channel_data_put(ch, r->token);
    else if (r->token)
        p->link->transport->ops->release(p->link, r->token);
    r->token = NULL;
    r->copied = false;
    r->data = NULL;
}

void spr_channel_grant(struct spr_channel_peer *p, const struct spr_frame *f,
                       const struct spr_place *place)
{
    struct spr_list *it;
    struct early *e;

    spr_list_for_each(it, &p->waiting)
    {
        struct spr_send *s = spr_list_entry(it, struct spr_send, node);
        if (s->operation == f->operation && s->step == f->step) {
            spr_list_remove(&s->node);
            s->eager = false;
            send_data(p, s, place);
            return;
        }
    }
    e = spr_channel_keep(p, EARLY_GRANT, f);
    if (e && place) {
        e->placed = true;
        e->place = *place;
    }
}

void spr_channel_begin(struct spr_channel *ch, uint32_t operation, uint64_t descriptor)
{
    struct spr_channel_peer *p;
    struct spr_list *it;

    spr_channel_for_each_peer(p, ch)
    {
        bool differs = p->arriving && p->arriving->operation == operation &&
                       p->arriving->descriptor != descriptor;
        spr_list_for_each(it, &p->early)
        {
            const struct early *e = spr_list_entry(it, struct early, node);
            differs |= e->operation == operation && e->descriptor != descriptor;
        }
        if (!differs || ch->status)
            continue;
        spr_channel_drop_ahead(p, operation);
        ch->events.mismatch(ch->events.ctx, (int)(p - ch->peers), operation);
    }
}

/* A request for a step that is never posted. */
void spr_channel_announce(struct spr_channel *ch, int peer, uint32_t operation, uint64_t descriptor)
{
    if (ch->status)
        return;
    (void)spr_channel_link(ch, peer);
    spr_channel_send_control(spr_channel_peer(ch, peer), SPR_FRAME_REQUEST, operation, UINT32_MAX,
                             descriptor, 0, 0, NULL, 0);
}

bool spr_channel_withdraw(struct spr_channel *ch, struct spr_recv *r)
{
    struct spr_channel_peer *p = &ch->peers[r->peer];

    assert(!r->exposed);
    if (p->receiving == r) {
        spr_channel_fail(p, SPR_ERR_PROTO, "sent more than it had announced");
        return false;
    }
    spr_list_remove(&r->node);
    return true;
}

void spr_channel_forget(struct spr_channel *ch, uint32_t operation)
{
    struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch) spr_channel_drop_ahead(p, operation);
}

void spr_channel_note(struct spr_channel *ch, int peer, enum spr_frame_type type,
                      uint32_t operation, uint32_t arg, uint64_t arg64, const void *data,
                      size_t bytes)
{
    (void)spr_channel_link(ch, peer);
    spr_channel_send_control(spr_channel_peer(ch, peer), type, operation, 0, 0, arg, arg64, data,
                             bytes);
}

static bool receives(const struct spr_list *list, uint32_t operation)
{
    const struct spr_list *it;

    spr_list_for_each(it, list) if (spr_list_entry(it, struct spr_recv, node)->operation ==
                                    operation) return true;
    return false;
}

static bool sends(const struct spr_list *list, uint32_t operation)
{
    const struct spr_list *it;

    spr_list_for_each(it, list) if (spr_list_entry(it, struct spr_send, node)->operation ==
                                    operation) return true;
    return false;
}

static bool waits_for(const struct spr_channel_peer *p, uint32_t operation)
{
    return p->channel && ((p->receiving && p->receiving->operation == operation) ||
                          receives(&p->receives, operation) || receives(&p->recalled, operation) ||
                          sends(&p->waiting, operation) || sends(&p->held, operation));
}

bool spr_channel_waits_for(const struct spr_channel *ch, int peer, uint32_t operation)
{
    return waits_for(&ch->peers[peer], operation);
}

static bool behind(const struct spr_channel_peer *p, uint32_t operation)
{
    return (int32_t)(p->heard - operation) < 0;
}

void spr_channel_waiting_for(const struct spr_channel *ch, uint32_t operation, char *text,
                             size_t bytes, int *first)
{
    struct spr_series ranks;
    bool only_behind = false;

    spr_series_begin(&ranks, text, bytes);
    *first = -1;
    for (int r = 0; r < ch->size; r++)
        only_behind |= waits_for(&ch->peers[r], operation) && behind(&ch->peers[r], operation);
    for (int r = 0; r < ch->size; r++) {
        const struct spr_channel_peer *p = &ch->peers[r];
        if (p->gone || !waits_for(p, operation) || (only_behind && !behind(p, operation)))
            continue;
        if (*first < 0)
            *first = p->rank;
        spr_series_add_number(&ranks, p->rank); /* they ascend */
    }
    spr_series_end(&ranks);
}

const struct spr_link_events spr_channel_link_events = {
    .up = spr_channel_on_up,
    .header = spr_channel_on_header,
    .payload = spr_channel_on_payload,
    .sent = on_sent,
    .down = spr_channel_on_down,
};
