/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The channel's ends: stop after a failure, say goodbye, cut links, begin a new epoch with those
 * who are left.
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

static void cancel_waiting(struct spr_channel_peer *p, spr_status status)
{
    while (!spr_list_empty(&p->waiting)) {
        struct spr_send *s = spr_list_entry(p->waiting.next, struct spr_send, node);
        spr_list_remove(&s->node);
        s->done(s, status);
    }
    while (!spr_list_empty(&p->receives)) {
        struct spr_recv *r = spr_list_entry(p->receives.next, struct spr_recv, node);
        spr_list_remove(&r->node);
        r->done(r, status);
    }
}

void spr_channel_stop(struct spr_channel *ch, spr_status status, int blamed, const char *text)
{
    size_t bytes = spr_min_size(strlen(text), SPR_NOTE_BYTES - 1);

    if (ch->status)
        return;
    ch->status = status;
    ch->blamed = blamed;
    for (int r = 0; r < ch->size; r++) {
        struct spr_channel_peer *p = &ch->peers[r];
        if (hears(p))
            spr_channel_send_control(p, SPR_FRAME_ABORT, 0, 0, 0, (uint32_t)blamed,
                                     (uint64_t)(uint32_t)status, text, bytes);
        cancel_waiting(p, status);
    }
}

bool spr_channel_told(const struct spr_channel *ch)
{
    if (ch->dead)
        return true;
    for (int r = 0; r < ch->size; r++) {
        const struct spr_channel_peer *p = &ch->peers[r];
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
    struct spr_channel_peer *p = &ch->peers[peer];
    struct spr_recv *recv = p->receiving;

    assert(ch->status || p->gone);
    if (p->link)
        p->link->transport->ops->kill(p->link);
    p->down = true;
    cancel_waiting(p, ch->status);
    p->receiving = NULL;
    if (recv)
        recv->done(recv, ch->status);
}

void spr_channel_kill(struct spr_channel *ch)
{
    ch->dead = true;
    if (!ch->status)
        ch->status = SPR_ERR_CANCELED;
    for (int r = 0; r < ch->size; r++)
        spr_channel_cut(ch, r);
}

void spr_channel_settle(struct spr_channel *ch)
{
    ch->settled = true;
    for (int r = 0; r < ch->size; r++) {
        struct spr_channel_peer *p = &ch->peers[r];
        if (!p->down && r != ch->rank && (p->frames_out > 0 || p->receiving || p->gone)) {
            p->given_up = true;
            spr_channel_cut(ch, r);
        }
    }
}

void spr_channel_cut_gone(struct spr_channel *ch)
{
    for (int r = 0; r < ch->size; r++)
        if (ch->peers[r].gone && !ch->peers[r].down)
            spr_channel_cut(ch, r);
}

static void begin_epoch(struct spr_channel_peer *p, uint32_t next_operation)
{
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
        struct spr_channel_peer *p = &ch->peers[r];
        p->gone = rank_of[r] < 0;
        p->rank = p->gone ? p->rank : rank_of[r];
        begin_epoch(p, next_operation);
    }
}

void spr_channel_bye(struct spr_channel *ch, uint32_t next_operation)
{
    for (int r = 0; r < ch->size; r++)
        if (hears(&ch->peers[r]))
            spr_channel_send_control(&ch->peers[r], SPR_FRAME_BYE, 0, 0, 0, next_operation, 0, NULL,
                                     0);
}

bool spr_channel_all_left(const struct spr_channel *ch)
{
    for (int r = 0; r < ch->size; r++)
        if (r != ch->rank && ch->peers[r].link && !ch->peers[r].left && !ch->peers[r].down &&
            !ch->peers[r].gone)
            return false;
    return true;
}
