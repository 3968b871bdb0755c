/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which lane a frame takes: the one that would bring it soonest.
 */
#include <math.h>

#include "transport/lanes/private.h"

/* A speed is measured over so long at least, while so much is under way: of a few bytes,
 * acknowledgements come when the peer likes. What a measurement counts. */
#define LOOK_NS 300000u
#define BUSY_BYTES ((size_t)64 << 10)
#define NEWS 0.1
/* The longer it was not measured, the more a lane is taken for as fast as the others. */
#define FORGOTTEN_NS 1e9

static struct spr_tx *pop(struct lanes_link *l)
{
    struct spr_tx *tx = l->first;

    l->first = tx->next;
    if (!l->first)
        l->last = &l->first;
    lanes_of(l->link.transport)->queued--;
    return tx;
}

/* Bytes that it has not brought over. On the way its speed is measured, from one arrival to
 * another, while it has something to do all the time: less has arrived than there was to do at
 * first. */
static size_t look(struct lane *lane, uint64_t now)
{
    size_t left = lane->given + lanes_ops(lane)->unacknowledged(lane->link);
    uint64_t arrived = lane->total - spr_min_u64(left, lane->total);
    uint64_t bytes = arrived - lane->from, ns = now - lane->from_ns;
    bool busy = bytes < lane->left;

    if (arrived == lane->arrived)
        return left;
    lane->arrived = arrived;
    if (busy && ns < LOOK_NS)
        return left;
    if (busy) {
        double speed = (double)bytes / (double)ns;
        lane->bytes_ns += (speed - lane->bytes_ns) * (lane->bytes_ns > 0 ? NEWS : 1);
        lane->known_ns = now;
    }
    lane->from_ns = now;
    lane->from = arrived;
    lane->left = left >= BUSY_BYTES ? left : 0;
    return left;
}

/* The lane that would bring so many bytes first. */
static struct lane *soonest(struct lanes_link *l, size_t bytes)
{
    uint64_t now = spr_now_ns(l->link.transport->params.clock);
    struct lane *best = NULL;
    size_t left[SPR_LANES];
    double fastest = 0, least = 0;

    for (uint32_t i = 0; i < l->lanes; i++) {
        left[i] = look(&l->lane[i], now);
        fastest = fmax(fastest, l->lane[i].bytes_ns);
    }
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        double age = (double)(now - lane->known_ns) / FORGOTTEN_NS;
        double speed = lane->bytes_ns + (fastest - lane->bytes_ns) * fmin(age, 1);
        double ns = (double)(left[i] + bytes) / (speed > 0 ? speed : 1);
        if (lane->ended || (best && ns >= least))
            continue;
        best = lane;
        least = ns;
    }
    return best;
}

void lanes_feed(struct lanes_link *l)
{
    while (l->first && l->link.state == SPR_LINK_UP && !l->lost) {
        size_t bytes = lanes_bytes(l->first);
        struct lane *lane = l->lanes > 1 ? soonest(l, bytes) : &l->lane[0];
        if (!lane || (l->lanes > 1 && lane->given && lane->given + bytes > GIVEN_BYTES))
            return;
        lane->given += bytes;
        lane->total += bytes;
        lanes_ops(lane)->send(lane->link, pop(l));
    }
}

void lanes_send(struct spr_link *link, struct spr_tx *tx)
{
    struct lanes_link *l = lanes_link_of(link);

    tx->next = NULL;
    *l->last = tx;
    l->last = &tx->next;
    lanes_of(link->transport)->queued++;
    lanes_feed(l);
}

int lanes_return_queue(struct lanes_link *l)
{
    int n = 0;

    for (; l->first; n++) {
        struct spr_tx *tx = pop(l);
        tx->next = NULL;
        tx->failed = true;
        lanes_upcalls(l)->sent(&l->link, tx);
    }
    return n;
}
