/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frames of several lanes in the order of their numbers, and the end of a link.
 */
#include <assert.h>
#include <stdio.h>

#include "transport/lanes/private.h"
#include "transport/tcp/tcp.h"

/* When a connection has ended: how often nothing must have come, and how long the ends of the
 * others are waited for. */
#define QUIET 2
#define FADE_NS 100000000u

static void add_work(struct lanes_link *l)
{
    if (spr_list_empty(&l->work))
        spr_list_push_back(&lanes_of(l->link.transport)->work, &l->work);
}

/* ---- The end ----------------------------------------------------------------------------------
 */

/* `reset`: something is missing, so the peer must not take ends of file for the end of this
 * process.
 */
static void kill_lanes(struct lanes_link *l, bool reset)
{
    spr_list_remove(&l->fading);
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        int fd = spr_tcp_link_of(lane->link)->fd;
        if (reset && fd >= 0)
            spr_tcp_reset(fd);
        lanes_ops(lane)->kill(lane->link);
    }
}

/* No lane has a frame of the caller any more. */
static bool all_returned(const struct lanes_link *l)
{
    size_t given = 0;

    for (uint32_t i = 0; i < l->lanes; i++)
        given += l->lane[i].given;
    return given == 0;
}

/* To be told when all frames are back. */
static void lose(struct lanes_link *l, spr_status why, const char *text)
{
    if (l->lost || l->link.state == SPR_LINK_DOWN)
        return;
    l->lost = true;
    l->why = why;
    if (text != l->text)
        snprintf(l->text, sizeof l->text, "%s", text);
    kill_lanes(l, why != SPR_ERR_RANK_LOST);
    if (all_returned(l))
        add_work(l);
}

void lanes_kill(struct spr_link *link)
{
    struct lanes_link *l = lanes_link_of(link);

    if (link->state == SPR_LINK_DOWN)
        return;
    link->state = SPR_LINK_DOWN;
    kill_lanes(l, l->first != NULL);
    add_work(l);
}

int lanes_finish(struct lanes_link *l)
{
    int steps = lanes_return_queue(l);

    if (l->link.state == SPR_LINK_DOWN)
        return steps;
    l->link.state = SPR_LINK_DOWN;
    lanes_upcalls(l)->down(&l->link, l->why, l->text);
    return steps + 1;
}

/* ---- What lanes tell --------------------------------------------------------------------------
 */

static bool all_are(const struct lanes_link *l, bool (*is)(const struct lane *lane))
{
    uint32_t n = 0;

    while (n < l->lanes && is(&l->lane[n]))
        n++;
    return n == l->lanes;
}

static bool is_up(const struct lane *lane) { return lane->up; }
static bool has_ended(const struct lane *lane) { return lane->ended; }
static bool is_stuck(const struct lane *lane) { return lane->waits || lane->ended; }

/* Show the frame whose turn it is again. */
static void next_turn(struct lanes_link *l)
{
    for (uint32_t i = 0; i < l->lanes && l->link.state == SPR_LINK_UP && !l->lost; i++) {
        struct lane *lane = &l->lane[i];
        if (!lane->waits || (int32_t)(lane->number - l->next) > 0)
            continue;
        lane->waits = false;
        l->quiet = 0;
        lanes_ops(lane)->unpark(lane->link);
    }
}

static void on_up(struct spr_link *link)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->up = true;
    if (l->lanes > 1)
        lanes_ops(lane)->limit_unsent(link, GIVEN_BYTES);
    if (!all_are(l, is_up) || l->lost)
        return;
    l->link.state = SPR_LINK_UP;
    lanes_upcalls(l)->up(&l->link);
    next_turn(l);
    lanes_feed(l);
}

/* All that can still come is a frame whose turn it is not. */
static bool lacks_one(const struct lanes_link *l)
{
    return l->link.state == SPR_LINK_UP && !l->arriving && all_are(l, is_stuck);
}

/* Is it this frame's turn? Of what is no frame, or came twice, in any case: that is the channel's
 * to tell. */
static bool has_turn(const struct lanes_link *l, const struct spr_frame *frame)
{
    const char *why;

    if (l->lanes == 1 || spr_frame_check(frame, &why))
        return true;
    return l->link.state == SPR_LINK_UP && !l->refused && !l->arriving &&
           (int32_t)(frame->sequence - l->next) <= 0;
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *frame, struct spr_rx *rx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;
    spr_status status;

    lane->waits = !has_turn(l, frame);
    if (lane->waits) {
        lane->number = frame->sequence;
        if (!l->refused && lacks_one(l))
            lose(l, SPR_ERR_LINK, "a frame is missing among those of its connections");
        return SPR_IN_PROGRESS;
    }
    l->quiet = 0;
    status = lanes_upcalls(l)->header(&l->link, frame, rx);
    l->refused |= status != SPR_OK;
    if (status)
        return status;
    l->arriving = true;
    if ((int32_t)(frame->sequence - l->next) >= 0)
        l->next = frame->sequence + 1;
    return SPR_OK;
}

/* A token tells its lane in the two bits that are free. */
static void *token_of(const struct lane *lane, void *token)
{
    uintptr_t number = (uintptr_t)(lane - lane->of->lane);

    assert(((uintptr_t)token & 6) == 0);
    return token ? (uint8_t *)token + 2 * number : NULL;
}

static void on_payload(struct spr_link *link, const struct spr_frame *frame, const void *data,
                       void *token)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    l->quiet = 0;
    l->arriving = false;
    lanes_upcalls(l)->payload(&l->link, frame, data, token_of(lane, token));
    next_turn(l);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->given -= lanes_bytes(tx);
    lane->ended |= tx->failed; /* its end is told next */
    lanes_upcalls(l)->sent(&l->link, tx);
    if (l->lost && all_returned(l))
        add_work(l);
    lanes_feed(l);
}

/* A peer that ends closes all of its connections, and what is under way on others still counts, its
 * last words perhaps. */
static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;
    bool closed = why == SPR_ERR_RANK_LOST, first = spr_list_empty(&l->fading);

    lane->ended = true;
    if (l->lost || l->link.state == SPR_LINK_DOWN)
        return;
    if (!closed && why != SPR_ERR_LINK) {
        lose(l, why, text);
        return;
    }
    /* The first error is the cause, or the first end of file where there is none. */
    if (first || (!closed && !l->broken))
        snprintf(l->text, sizeof l->text, "%s", text);
    l->broken |= !closed;
    if (all_are(l, has_ended) || lacks_one(l)) {
        bool death = all_are(l, has_ended) && !l->broken;
        lose(l, death ? SPR_ERR_RANK_LOST : SPR_ERR_LINK, l->text);
        return;
    }
    l->quiet = 0;
    if (!first)
        return;
    l->since_ns = spr_now_ns(l->link.transport->params.clock);
    spr_list_push_back(&lanes_of(l->link.transport)->fading, &l->fading);
}

/* Links of which a connection has ended: over when nothing comes any more. */
int lanes_fade(struct lanes_transport *t)
{
    uint64_t now = spr_now_ns(t->base.params.clock);
    struct spr_list *it, *next;
    int steps = 0;

    spr_list_for_each_safe(it, next, &t->fading)
    {
        struct lanes_link *l = spr_list_entry(it, struct lanes_link, fading);
        if (l->quiet++ < QUIET || (!l->broken && now - l->since_ns < FADE_NS))
            continue;
        lose(l, SPR_ERR_LINK, l->text);
        steps++;
    }
    return steps;
}

const struct spr_link_events lanes_events = {on_up, on_header, on_payload, on_sent, on_down};

void lanes_release(struct spr_link *link, void *token)
{
    struct lanes_link *l = lanes_link_of(link);
    uintptr_t number = (uintptr_t)token >> 1 & 3;
    struct lane *lane = &l->lane[number];

    if (token)
        lanes_ops(lane)->release(lane->link, (uint8_t *)token - 2 * number);
}
