/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The channel's ends: give up an operation, stop after a failure, say goodbye, cut links, begin a
 * new epoch with those who are left.
 */
#include <assert.h>
#include <string.h>

#include "transport/channel_private.h"

/* Nothing need be said to oneself, nor to those who are left behind. */
static bool hears(const struct spr_channel_peer *p)
{
    return p->link && p->link->state == SPR_LINK_UP && !p->gone &&
           p != &p->channel->peers[p->channel->rank];
}

/* Receives given up ----------------------------------------------------------------------------
 */

/* The receive is over, unless the peer may still write it: then when it is sure that it does not.
 * Returns whether the peer has to be asked. */
static bool give_up(struct spr_channel_peer *p, struct spr_recv *r, spr_status status)
{
    spr_list_remove(&r->node);
    if (!r->exposed || p->left || p->down) {
        r->done(r, status);
        return false;
    }
    r->given_up = status;
    spr_list_push_back(&p->recalled, &r->node);
    return true;
}

/* Complete those of `operation`, or all. */
static void recall_over(struct spr_channel_peer *p, bool all, uint32_t operation)
{
    struct spr_list *it, *next;

    spr_list_for_each_safe(it, next, &p->recalled)
    {
        struct spr_recv *r = spr_list_entry(it, struct spr_recv, node);
        if (!all && r->operation != operation)
            continue;
        spr_list_remove(&r->node);
        r->exposed = false;
        r->done(r, p->channel->status ? p->channel->status : r->given_up);
    }
}

void spr_channel_recall_over(struct spr_channel_peer *p) { recall_over(p, true, 0); }

/* Frames of a link stay in order: behind the answer comes no data that the old grants allowed. */
void spr_channel_on_recall(struct spr_channel_peer *p, const struct spr_frame *f)
{
    struct spr_list *it, *next;

    if (f->arg) {
        recall_over(p, false, f->operation);
        return;
    }
    spr_list_for_each_safe(it, next, &p->early)
    {
        struct early *e = spr_list_entry(it, struct early, node);
        if (e->kind == EARLY_GRANT && e->operation == f->operation)
            spr_channel_drop_early(p, e);
    }
    spr_channel_send_held_of(p, f->operation);
    spr_channel_send_control(p, SPR_FRAME_RECALL, f->operation, 0, 0, 1, 0, NULL, 0);
}

/* Messages of one operation that wait. */
static void cancel_operation(struct spr_channel_peer *p, uint32_t operation, spr_status status)
{
    struct spr_list *it, *next;
    bool ask = false;

    spr_list_for_each_safe(it, next, &p->waiting)
    {
        struct spr_send *s = spr_list_entry(it, struct spr_send, node);
        if (s->operation != operation)
            continue;
        spr_list_remove(&s->node);
        s->done(s, status);
    }
    spr_list_for_each_safe(it, next, &p->held)
    {
        struct spr_send *s = spr_list_entry(it, struct spr_send, node);
        if (s->operation == operation)
            spr_channel_drop_held(p, s, status);
    }
    spr_list_for_each_safe(it, next, &p->receives)
    {
        struct spr_recv *r = spr_list_entry(it, struct spr_recv, node);
        if (r->operation == operation)
            ask |= give_up(p, r, status);
    }
    if (ask)
        spr_channel_send_control(p, SPR_FRAME_RECALL, operation, 0, 0, 0, 0, NULL, 0);
}

void spr_channel_reject(struct spr_channel *ch, uint32_t operation, spr_status status)
{
    struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch)
    {
        cancel_operation(p, operation, status);
        spr_channel_drop_ahead(p, operation);
    }
}

/* The end --------------------------------------------------------------------------------------
 */

/* What the peer may still write is over when its own ABORT comes. */
static void cancel_waiting(struct spr_channel_peer *p, spr_status status)
{
    while (!spr_list_empty(&p->waiting)) {
        struct spr_send *s = spr_list_entry(p->waiting.next, struct spr_send, node);
        spr_list_remove(&s->node);
        s->done(s, status);
    }
    while (!spr_list_empty(&p->held))
        spr_channel_drop_held(p, spr_list_entry(p->held.next, struct spr_send, node), status);
    while (!spr_list_empty(&p->receives))
        (void)give_up(p, spr_list_entry(p->receives.next, struct spr_recv, node), status);
}

void spr_channel_stop(struct spr_channel *ch, spr_status status, int blamed, const char *text)
{
    size_t bytes = spr_min_size(strlen(text), SPR_NOTE_BYTES - 1);
    struct spr_channel_peer *p;

    if (ch->status)
        return;
    ch->status = status;
    ch->blamed = blamed;
    spr_channel_for_each_peer(p, ch)
    {
        if (hears(p))
            spr_channel_send_control(p, SPR_FRAME_ABORT, 0, 0, 0, (uint32_t)blamed,
                                     (uint64_t)(uint32_t)status, text, bytes);
        cancel_waiting(p, status);
    }
}

bool spr_channel_told(const struct spr_channel *ch)
{
    const struct spr_channel_peer *p;

    if (ch->dead)
        return true;
    spr_channel_for_each_peer(p, ch)
    {
        if (p->frames_out > 0 && !p->gone)
            return false;
        /* Who has left knows, or does not listen. */
        if (!ch->settled && hears(p) && !p->left && p->rank != ch->blamed &&
            !p->link->transport->ops->delivered(p->link))
            return false;
    }
    return true;
}

void spr_channel_cut(struct spr_channel *ch, int peer)
{
    struct spr_channel_peer *p = spr_channel_peer(ch, peer);
    struct spr_recv *recv = p->receiving;

    assert(ch->status || p->gone);
    if (p->link)
        p->link->transport->ops->kill(p->link);
    p->down = true;
    cancel_waiting(p, ch->status);
    spr_channel_recall_over(p);
    p->receiving = NULL;
    if (p->arriving)
        spr_channel_drop_early(p, p->arriving);
    if (recv)
        recv->done(recv, ch->status);
}

void spr_channel_kill(struct spr_channel *ch)
{
    const struct spr_channel_peer *p;

    ch->dead = true;
    if (!ch->status)
        ch->status = SPR_ERR_CANCELED;
    spr_channel_for_each_peer(p, ch) spr_channel_cut(ch, (int)(p - ch->peers));
}

void spr_channel_settle(struct spr_channel *ch)
{
    struct spr_channel_peer *p;

    ch->settled = true;
    spr_channel_for_each_peer(p, ch)
    {
        int r = (int)(p - ch->peers);
        if (!p->down && r != ch->rank && (p->frames_out > 0 || p->receiving || p->gone)) {
            p->given_up = true;
            spr_channel_cut(ch, r);
        }
    }
}

bool spr_channel_recalls(const struct spr_channel *ch)
{
    const struct spr_channel_peer *p;
    bool any = false;

    spr_channel_for_each_peer(p, ch) any |= !spr_list_empty(&p->recalled);
    return any;
}

void spr_channel_cut_silent(struct spr_channel *ch)
{
    struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch)
    {
        if (spr_list_empty(&p->recalled))
            continue;
        p->given_up = true;
        spr_channel_cut(ch, (int)(p - ch->peers));
    }
}

void spr_channel_cut_gone(struct spr_channel *ch)
{
    const struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch)
    {
        if (p->gone && !p->down)
            spr_channel_cut(ch, (int)(p - ch->peers));
    }
}

static void begin_epoch(struct spr_channel_peer *p, uint32_t next_operation)
{
    assert(spr_list_empty(&p->recalled) && spr_list_empty(&p->held));
    while (!spr_list_empty(&p->early))
        spr_channel_drop_early(p, spr_list_entry(p->early.next, struct early, node));
    p->left = p->left && p->left_epoch == p->channel->epoch;
    p->heard = next_operation - 1;
    p->eager_sent = p->eager_acked = 0;
    p->eager_consumed = p->eager_reported = 0;
}

void spr_channel_new_epoch(struct spr_channel *ch, uint32_t epoch, const int *rank_of,
                           uint32_t next_operation)
{
    ch->epoch = epoch;
    ch->status = SPR_OK;
    ch->blamed = -1;
    ch->settled = false;
    for (int r = 0; r < ch->size; r++) {
        struct spr_channel_peer *p = spr_channel_peer(ch, r);
        p->gone = rank_of[r] < 0;
        p->rank = p->gone ? p->rank : rank_of[r];
        begin_epoch(p, next_operation);
    }
}

void spr_channel_bye(struct spr_channel *ch, uint32_t next_operation)
{
    struct spr_channel_peer *p;

    spr_channel_for_each_peer(p, ch)
    {
        if (hears(p))
            spr_channel_send_control(p, SPR_FRAME_BYE, 0, 0, 0, next_operation, 0, NULL, 0);
    }
}

bool spr_channel_all_left(const struct spr_channel *ch)
{
    const struct spr_channel_peer *p, *self = &ch->peers[ch->rank];

    spr_channel_for_each_peer(p, ch)
    {
        if (p != self && p->link && !p->left && !p->down && !p->gone)
            return false;
    }
    return true;
}
