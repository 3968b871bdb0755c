/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The receiving side of the channel: upcalls of the links.
 */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "transport/channel_private.h"

void spr_channel_fail(struct spr_channel_peer *p, spr_status status, const char *text)
{
    struct spr_channel *ch = p->channel;

    if (ch->status)
        return;
    ch->events.failed(ch->events.ctx, status, spr_channel_culprit(p, status), -1, text);
}

int spr_channel_culprit(const struct spr_channel_peer *p, spr_status status)
{
    return status == SPR_ERR_NOMEM || status == SPR_ERR_SYSTEM
               ? spr_channel_peer(p->channel, p->channel->rank)->rank
               : p->rank;
}

void spr_channel_report_credit(struct spr_channel_peer *p)
{
    if (p->eager_consumed - p->eager_reported >= p->channel->options->eager_window / 2)
        spr_channel_send_control(p, SPR_FRAME_CREDIT, 0, 0, 0, 0, 0, NULL, 0);
}

void spr_channel_on_up(struct spr_link *link)
{
    struct spr_channel_peer *p = link->channel;

    p->channel->links_up++;
    spr_trace_add(p->channel->trace, spr_now_ns(p->channel->clock), SPR_EV_LINK_UP, p->rank,
                  spr_trace_word(p->channel->trace, link->transport->ops->name), 0, 0);
}

static struct spr_recv *find_receive(struct spr_channel_peer *p, uint32_t operation, uint32_t step)
{
    struct spr_list *it;

    spr_list_for_each(it, &p->receives)
    {
        struct spr_recv *r = spr_list_entry(it, struct spr_recv, node);
        if (r->operation == operation && r->step == step)
            return r;
    }
    return NULL;
}

/* Eager data that nobody waits for yet is kept, within the window that the sender respects. */
static spr_status keep_data(struct spr_channel_peer *p, const struct spr_frame *f,
                            struct spr_rx *rx)
{
    struct spr_channel *ch = p->channel;
    struct early *e;
    void *data;

    if (f->bytes > ch->options->eager_bytes ||
        p->kept_bytes + spr_eager_cost(f->bytes) > ch->options->eager_window) {
        spr_channel_fail(p, SPR_ERR_PROTO, "sent a message that nobody asked for");
        return SPR_ERR_PROTO;
    }
    data = spr_channel_data_get(ch, f->bytes);
    if (!data)
        spr_channel_fail(p, SPR_ERR_NOMEM, "no memory for what a rank sent ahead");
    e = data ? spr_channel_keep(p, EARLY_DATA, f) : NULL;
    if (!e) {
        spr_channel_data_put(ch, data);
        /* Want of memory is not the link's fault, which a new epoch needs. */
        p->dropping = ch->status == SPR_ERR_NOMEM;
        return p->dropping ? SPR_OK : ch->status;
    }
    spr_list_remove(&e->node); /* until the payload is complete */
    e->bytes = f->bytes;
    e->data = data;
    p->kept_bytes += spr_eager_cost(f->bytes);
    p->arriving = e;
    rx->sink = SPR_SINK_INTO;
    rx->into = data;
    return SPR_OK;
}

static spr_status data_header(struct spr_channel_peer *p, const struct spr_frame *f,
                              struct spr_rx *rx)
{
    struct spr_recv *r = find_receive(p, f->operation, f->step);

    if (!r)
        return f->arg ? keep_data(p, f, rx) : SPR_ERR_PROTO;
    if (f->bytes > r->capacity)
        return SPR_ERR_PROTO;
    /* Only what was exposed can have been written before its header came. */
    if (f->flags & SPR_FRAME_PLACED && !r->exposed)
        return SPR_ERR_PROTO;
    spr_list_remove(&r->node);
    r->exposed = false;
    p->receiving = r;
    rx->sink = r->into ? SPR_SINK_INTO : SPR_SINK_BORROW;
    rx->into = r->into;
    rx->lend = r->lend;
    return SPR_OK;
}

/* The frame has no effect; data that came without a grant counts as consumed. */
static spr_status drop(struct spr_channel_peer *p, const struct spr_frame *f)
{
    p->dropping = true;
    if (f->type == SPR_FRAME_DATA && f->arg) {
        p->eager_consumed += spr_eager_cost(f->bytes);
        spr_channel_report_credit(p);
    }
    return SPR_OK;
}

/* A frame of an operation. Dropped: what comes after a failure, what belongs to an operation that
 * failed alone, and what disagrees on what the operation is. */
static spr_status message_header(struct spr_channel_peer *p, const struct spr_frame *f,
                                 struct spr_rx *rx)
{
    struct spr_channel *ch = p->channel;
    uint64_t descriptor = f->descriptor;
    enum spr_operation_state state = ch->events.state(ch->events.ctx, f->operation, &descriptor);

    if ((int32_t)(f->operation - p->heard) > 0)
        p->heard = f->operation;
    if (ch->status)
        return SPR_OK;
    if (f->type == SPR_FRAME_GRANT && f->bytes == sizeof(struct spr_place))
        rx->sink = SPR_SINK_BORROW;
    else if (f->type != SPR_FRAME_DATA && f->bytes)
        return SPR_ERR_PROTO;
    if (descriptor != f->descriptor) {
        ch->events.mismatch(ch->events.ctx, (int)(p - ch->peers), f->operation);
        return drop(p, f);
    }
    if (state == SPR_OPERATION_REJECTED)
        return drop(p, f);
    if (f->type != SPR_FRAME_DATA)
        return SPR_OK;
    return state == SPR_OPERATION_OVER ? SPR_ERR_PROTO : data_header(p, f, rx);
}

/* Frames of another epoch, from ranks that have noticed a failure earlier or later than this one.
 * Only a VIEW has a meaning then; and a rank may leave a later epoch before this one is in it. */
static spr_status foreign(struct spr_channel_peer *p, const struct spr_frame *f)
{
    /* Members are never two epochs apart, and nobody goes on before all have stopped. */
    uint32_t epoch = p->channel->epoch;
    bool later = f->epoch == epoch + 1 && p->channel->status;
    bool earlier = f->epoch + 1 == epoch && f->epoch > 0;

    p->dropping = true;
    if (later && (f->type == SPR_FRAME_ABORT || f->type == SPR_FRAME_BYE)) {
        p->bye = f->type == SPR_FRAME_BYE || (p->left && p->bye && p->left_epoch == f->epoch);
        p->left = true;
        p->left_at = 0;
        p->left_epoch = f->epoch;
        return SPR_OK;
    }
    return earlier ? SPR_OK : SPR_ERR_PROTO;
}

static spr_status frame_header(struct spr_channel_peer *p, const struct spr_frame *f,
                               struct spr_rx *rx)
{
    if (f->type == SPR_FRAME_VIEW) {
        rx->sink = SPR_SINK_BORROW;
        return f->bytes > SPR_NOTE_BYTES ? SPR_ERR_PROTO : SPR_OK;
    }
    if (f->epoch != p->channel->epoch)
        return foreign(p, f);
    p->eager_acked = f->consumed;
    switch (f->type) {
    case SPR_FRAME_DATA:
    case SPR_FRAME_GRANT:
    case SPR_FRAME_REQUEST:
        return message_header(p, f, rx);
    case SPR_FRAME_ABORT:
    case SPR_FRAME_DESCRIBE:
    case SPR_FRAME_REJECT:
        if (f->bytes > SPR_NOTE_BYTES)
            return SPR_ERR_PROTO;
        rx->sink = SPR_SINK_BORROW;
        return SPR_OK;
    default:
        return f->bytes ? SPR_ERR_PROTO : SPR_OK;
    }
}

spr_status spr_channel_on_header(struct spr_link *link, const struct spr_frame *f,
                                 struct spr_rx *rx)
{
    struct spr_channel_peer *p = link->channel;
    const char *why = "";
    spr_status status = spr_frame_check(f, &why);

    rx->sink = SPR_SINK_DROP;
    rx->into = NULL;
    rx->lend = false;
    p->dropping = p->gone;
    if (p->gone)
        return status;
    if (status == SPR_OK && f->flags & SPR_FRAME_PLACED &&
        (f->type != SPR_FRAME_DATA || f->arg || !link->transport->ops->expose)) {
        status = SPR_ERR_PROTO;
        why = "frame with a payload that cannot be where it says";
    }
    if (status == SPR_OK && f->sequence != p->rx_sequence) {
        status = SPR_ERR_PROTO;
        why = "frame out of sequence";
    }
    if (status) {
        spr_channel_fail(p, status, why);
        return status;
    }
    p->rx_sequence++;
    return frame_header(p, f, rx);
}

static void on_abort(struct spr_channel_peer *p, const struct spr_frame *f, const char *data)
{
    struct spr_channel *ch = p->channel;
    char text[SPR_NOTE_BYTES + 1];
    int blamed = (int)f->arg;

    /* Nothing of this epoch follows; end of file is expected. A goodbye before it holds: that rank
     * takes no part any more, whatever it has noticed since. */
    p->bye = p->left && p->bye && p->left_epoch == ch->epoch;
    p->left = true;
    p->left_at = 0;
    p->left_epoch = ch->epoch;
    spr_channel_recall_over(p);
    if (ch->status)
        return;
    if (!spr_error_is_known((int32_t)f->arg64) || (int32_t)f->arg64 == SPR_ERR_TIMEOUT) {
        spr_channel_fail(p, SPR_ERR_PROTO, "aborted with a status that is no failure");
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)f->bytes, data ? data : "");
    if (blamed < 0 || blamed >= ch->size)
        blamed = p->rank;
    spr_trace_add(ch->trace, spr_now_ns(ch->clock), SPR_EV_ABORT, p->rank, (uint64_t)blamed,
                  (uint64_t)f->arg64, 0);
    ch->events.failed(ch->events.ctx, (spr_status)(int32_t)f->arg64, blamed, p->rank, text);
}

static bool is_over(struct spr_channel_peer *p, uint32_t operation)
{
    const struct spr_channel_events *events = &p->channel->events;
    uint64_t descriptor;

    return events->state(events->ctx, operation, &descriptor) == SPR_OPERATION_OVER;
}

/* A request of the sender: grant now when the receive is posted, else when it is. */
static void on_request(struct spr_channel_peer *p, const struct spr_frame *f)
{
    struct spr_recv *r = find_receive(p, f->operation, f->step);

    if (r)
        spr_channel_send_grant(p, r);
    else if (!is_over(p, f->operation))
        spr_channel_keep(p, EARLY_REQUEST, f);
}

static void on_grant(struct spr_channel_peer *p, const struct spr_frame *f, const void *data)
{
    struct spr_place place;

    if (data)
        memcpy(&place, data, sizeof place);
    if (!is_over(p, f->operation))
        spr_channel_grant(p, f, data ? &place : NULL);
}

bool spr_channel_never_comes(const struct spr_channel_peer *p, uint32_t operation)
{
    if (p->left)
        return (int32_t)(operation - p->left_at) >= 0;
    return p->down;
}

/* Does an operation here need a peer that has gone? */
static bool missed(const struct spr_channel_peer *p)
{
    const struct spr_list *it;

    spr_list_for_each(it, &p->receives)
    {
        if (spr_channel_never_comes(p, spr_list_entry(it, struct spr_recv, node)->operation))
            return true;
    }
    spr_list_for_each(it, &p->waiting)
    {
        if (spr_channel_never_comes(p, spr_list_entry(it, struct spr_send, node)->operation))
            return true;
    }
    return p->receiving != NULL;
}

/* The peer is done with the job. Whoever still needs it has lost it. */
static void on_bye(struct spr_channel_peer *p, uint32_t next_operation)
{
    p->left = true;
    p->left_at = next_operation;
    spr_trace_add(p->channel->trace, spr_now_ns(p->channel->clock), SPR_EV_LEFT, p->rank,
                  next_operation, 0, 0);
    p->bye = true;
    p->left_epoch = p->channel->epoch;
    spr_channel_recall_over(p);
    if (missed(p))
        spr_channel_fail(p, SPR_ERR_RANK_LOST, "the rank has left");
}

/* While its payload arrived, its operation was posted as something else, or failed. */
static bool unwanted(struct spr_channel_peer *p, const struct early *e)
{
    const struct spr_channel_events *events = &p->channel->events;
    uint64_t descriptor = e->descriptor;
    enum spr_operation_state state = events->state(events->ctx, e->operation, &descriptor);

    return descriptor != e->descriptor || state == SPR_OPERATION_REJECTED ||
           state == SPR_OPERATION_OVER;
}

static void on_data(struct spr_channel_peer *p, const struct spr_frame *f, const void *data,
                    void *token)
{
    struct spr_recv *r = p->receiving;
    bool good =
        !(f->flags & SPR_FRAME_CRC) || !data || spr_crc32c(0, data, f->bytes) == f->payload_crc;

    p->receiving = NULL;
    if (r || p->arriving) {
        uint64_t now = spr_now_ns(p->channel->clock);

        spr_trace_add(p->channel->trace, now, SPR_EV_RECV, p->rank,
                      (uint64_t)f->operation << 32 | f->step, f->bytes, 0);
        p->channel->recent_ns = now;
    }
    if (!good)
        spr_channel_fail(p, SPR_ERR_CORRUPT, "payload checksum does not match");
    if (p->arriving) {
        struct early *e = p->arriving;
        p->arriving = NULL;
        spr_list_push_back(&p->early, &e->node);
        if (f->epoch != p->channel->epoch || unwanted(p, e)) {
            if (f->epoch == p->channel->epoch)
                p->eager_consumed += spr_eager_cost(e->bytes);
            spr_channel_drop_early(p, e);
            return;
        }
        /* Its receive may have been posted while the payload was under way. */
        r = find_receive(p, e->operation, e->step);
        if (r) {
            spr_list_remove(&r->node);
            spr_channel_deliver_early(p, r, e);
        }
        return;
    }
    if (!r)
        return; /* dropped */
    if (f->arg) {
        p->eager_consumed += spr_eager_cost(f->bytes);
        spr_channel_report_credit(p);
    }
    r->data = data;
    r->token = token;
    r->bytes = f->bytes;
    if (!good || p->channel->status)
        spr_channel_release(p->channel, r);
    r->done(r, p->channel->status ? p->channel->status : SPR_OK);
}

/* A frame of the channel's own. */
static void on_control(struct spr_channel_peer *p, const struct spr_frame *f, const void *data)
{
    struct spr_channel *ch = p->channel;

    switch (f->type) {
    case SPR_FRAME_ABORT:
        on_abort(p, f, data);
        return;
    case SPR_FRAME_GRANT:
        if (!ch->status)
            on_grant(p, f, data);
        return;
    case SPR_FRAME_REQUEST:
        if (!ch->status)
            on_request(p, f);
        return;
    case SPR_FRAME_BYE:
        on_bye(p, f->arg);
        return;
    case SPR_FRAME_RECALL:
        spr_channel_on_recall(p, f);
        return;
    case SPR_FRAME_DESCRIBE:
    case SPR_FRAME_REJECT:
    case SPR_FRAME_VIEW:
        ch->events.note(ch->events.ctx, (int)(p - ch->peers), f, data ? data : "");
        return;
    default: /* CREDIT: the header said it all */
        return;
    }
}

void spr_channel_on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                            void *token)
{
    struct spr_channel_peer *p = link->channel;

    if (f->type == SPR_FRAME_DATA) {
        on_data(p, f, data, token);
        return;
    }
    if ((f->flags & SPR_FRAME_CRC) && data && spr_crc32c(0, data, f->bytes) != f->payload_crc) {
        p->damaged = true;
        spr_channel_fail(p, SPR_ERR_CORRUPT, "payload checksum does not match");
    } else if (!p->dropping && (f->type == SPR_FRAME_VIEW || f->epoch == p->channel->epoch))
        on_control(p, f, data); /* this rank may have gone on since the header came */
    if (token)
        link->transport->ops->release(link, token);
}

void spr_channel_on_down(struct spr_link *link, spr_status why, const char *text)
{
    struct spr_channel_peer *p = link->channel;
    struct spr_channel *ch = p->channel;
    struct spr_recv *r = p->receiving;

    p->down = true;
    p->dead |= why == SPR_ERR_RANK_LOST && !p->left && !p->damaged;
    spr_trace_add(ch->trace, spr_now_ns(ch->clock), SPR_EV_LINK_DOWN, p->rank,
                  (uint64_t)(uint32_t)why, 0, 0);
    if (why != SPR_ERR_PROTO && why != SPR_ERR_CORRUPT && spr_channel_culprit(p, why) == p->rank)
        why = SPR_ERR_RANK_LOST;
    if (!p->gone && (!p->left || missed(p)))
        spr_channel_fail(p, why, text);
    spr_channel_recall_over(p);
    p->receiving = NULL;
    if (p->arriving)
        spr_channel_drop_early(p, p->arriving);
    if (r)
        r->done(r, ch->status ? ch->status : SPR_ERR_RANK_LOST);
}
