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
        if (lane->complete)
            lanes_ops(lane)->release(lane->link, lane->token);
        lane->complete = lane->arrives = lane->waits = false;
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
static bool is_free(const struct lane *lane) { return !lane->arrives; }
static bool is_stuck(const struct lane *lane)
{
    return !lane->arrives && (lane->waits || lane->ended);
}

/* Show the frame whose turn it is again. */
static void next_turn(struct lanes_link *l)
{
    for (uint32_t i = 0; i < l->lanes && l->link.state == SPR_LINK_UP && !l->lost; i++) {
        struct lane *lane = &l->lane[i];
        if (!lane->waits || lane->arrives || (int32_t)(lane->number - l->next) > 0)
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
    return l->link.state == SPR_LINK_UP && all_are(l, is_stuck);
}

/* Has nothing to do with the payloads that are arriving. */
static bool is_light(const struct spr_frame *frame)
{
    return frame->type == SPR_FRAME_GRANT || frame->type == SPR_FRAME_CREDIT ||
           frame->type == SPR_FRAME_REQUEST;
}

/* Is it this frame's turn? Of what is no frame, or came twice, in any case: that is the channel's
 * to tell. Data may arrive by several lanes at the same time; what the channel's owner does on its
 * own account, such as to leave, comes after all that was sent before. */
static bool has_turn(const struct lane *lane, const struct spr_frame *frame)
{
    const struct lanes_link *l = lane->of;
    const char *why;

    if (l->lanes == 1 || spr_frame_check(frame, &why))
        return true;
    if (l->link.state != SPR_LINK_UP || l->refused || lane->arrives ||
        (int32_t)(frame->sequence - l->next) > 0)
        return false;
    return is_light(frame) || frame->type == SPR_FRAME_DATA || all_are(l, is_free);
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *frame, struct spr_rx *rx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;
    spr_status status;

    lane->waits = !has_turn(lane, frame);
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
    lane->arrives = true;
    lane->sequence = frame->sequence;
    if ((int32_t)(frame->sequence - l->next) >= 0)
        l->next = frame->sequence + 1;
    next_turn(l);
    return SPR_OK;
}

/* A token tells its lane in the two bits that are free. */
static void *token_of(const struct lane *lane, void *token)
{
    uintptr_t number = (uintptr_t)(lane - lane->of->lane);

    assert(((uintptr_t)token & 6) == 0);
    return token ? (uint8_t *)token + 2 * number : NULL;
}

static void deliver(struct lane *lane)
{
    struct lanes_link *l = lane->of;

    lane->arrives = lane->complete = false;
    lanes_upcalls(l)->payload(&l->link, &lane->frame, lane->data, token_of(lane, lane->token));
}

/* Data are told in their order. False: the first of what arrives is not complete. */
static bool deliver_first(struct lanes_link *l)
{
    struct lane *first = NULL;

    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        if (lane->arrives && (!first || (int32_t)(lane->sequence - first->sequence) < 0))
            first = lane;
    }
    if (!first || !first->complete || l->link.state != SPR_LINK_UP || l->lost)
        return false;
    deliver(first);
    return true;
}

static void on_payload(struct spr_link *link, const struct spr_frame *frame, const void *data,
                       void *token)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    l->quiet = 0;
    lane->complete = true;
    lane->frame = *frame;
    lane->data = data;
    lane->token = token;
    if (is_light(frame))
        deliver(lane);
    while (deliver_first(l))
        ;
    next_turn(l);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->given -= lanes_bytes(tx);
    lane->broke |= tx->failed;
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
    l->at_once |= !closed || lane->broke;
    if (first || (l->why == SPR_ERR_RANK_LOST && !closed)) {
        l->why = why;
        snprintf(l->text, sizeof l->text, "%s", text);
    }
    if (all_are(l, has_ended) || lacks_one(l)) {
        bool all_closed = all_are(l, has_ended) && !l->at_once;
        lose(l, l->why == SPR_ERR_RANK_LOST && !all_closed ? SPR_ERR_LINK : l->why, l->text);
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
        if (l->quiet++ < QUIET || (!l->at_once && now - l->since_ns < FADE_NS))
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
