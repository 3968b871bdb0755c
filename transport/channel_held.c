/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Data that wait for more urgent ones. What comes here may leave: it is eager, or the peer has
 * granted it. It is handed to the link (channel.c), or it waits in the peer's list, the most urgent
 * first, until the link has little left to send or the peer has gone or given it up
 * (channel_stop.c). Linear in what waits before it.
 */
#include "transport/channel_private.h"

static struct spr_send *first_held(const struct spr_channel_peer *p)
{
    return spr_list_entry(p->held.next, struct spr_send, node);
}

static bool is_urgent(const struct spr_channel_peer *p, const struct spr_send *s)
{
    return s->priority >= p->channel->urgent;
}

static bool has_room(const struct spr_channel_peer *p)
{
    return p->data_out < p->channel->options->priority_bytes;
}

static bool is_behind(const struct spr_channel_peer *p, const struct spr_send *s)
{
    return !spr_list_empty(&p->held) && first_held(p)->priority >= s->priority;
}

static void hold(struct spr_channel_peer *p, struct spr_send *s)
{
    struct spr_list *before = p->held.prev;

    if (!p->limited && p->link->transport->ops->limit_unsent)
        p->link->transport->ops->limit_unsent(p->link, p->channel->options->priority_bytes);
    p->limited = true;
    while (before != &p->held &&
           spr_list_entry(before, struct spr_send, node)->priority < s->priority)
        before = before->prev;
    spr_list_push_front(before, &s->node);
    p->channel->held++;
    spr_trace_add(p->channel->trace, spr_now_ns(p->channel->clock), SPR_EV_HOLD, p->rank,
                  (uint64_t)s->operation << 32 | s->step, s->bytes, 1);
}

static void take(struct spr_channel_peer *p, struct spr_send *s)
{
    spr_list_remove(&s->node);
    p->channel->held--;
}

/* What is eager is short, and in a window that is to be free for what is urgent. */
void spr_channel_send_or_hold(struct spr_channel_peer *p, struct spr_send *s)
{
    if (s->eager || is_urgent(p, s) || (has_room(p) && !is_behind(p, s)))
        spr_channel_hand_over_data(p, s);
    else
        hold(p, s);
}

void spr_channel_drop_held(struct spr_channel_peer *p, struct spr_send *s, spr_status status)
{
    take(p, s);
    s->done(s, status);
}

void spr_channel_send_held_of(struct spr_channel_peer *p, uint32_t operation)
{
    struct spr_list *it = p->held.next;

    while (it != &p->held) {
        struct spr_send *s = spr_list_entry(it, struct spr_send, node);
        it = it->next;
        if (s->operation != operation)
            continue;
        take(p, s);
        spr_channel_hand_over_data(p, s);
    }
}

void spr_channel_send_held(struct spr_channel *ch)
{
    struct spr_channel_peer *p;

    if (ch->held == 0)
        return;
    spr_channel_for_each_peer(p, ch)
    {
        while (!spr_list_empty(&p->held) && (is_urgent(p, first_held(p)) || has_room(p))) {
            struct spr_send *s = first_held(p);
            take(p, s);
            spr_channel_hand_over_data(p, s);
        }
    }
}

void spr_channel_set_urgent(struct spr_channel *ch, int priority) { ch->urgent = priority; }
