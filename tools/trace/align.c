/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One time for all ranks. On one boot of one machine CLOCK_MONOTONIC is the same for all. Between
 * machines messages bound the difference of two clocks from both sides, as in NTP: none arrives
 * before it was sent. Where there are not messages both ways, the real-time clocks have to do.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

static const struct spr_event *find_message(const struct trace *t, size_t *from, uint16_t kind,
                                            int peer, uint64_t tag)
{
    /* Both sides have the messages of a link in the same order, so the search goes on where the
     * last one ended; only what one ring has lost makes it start over. */
    for (size_t pass = 0; pass < 2; pass++) {
        size_t begin = pass == 0 ? *from : 0, end = pass == 0 ? t->count : *from;
        for (size_t i = begin; i < end; i++) {
            const struct spr_event *e = &t->events[i];
            if (e->kind == kind && e->peer == peer && e->a == tag) {
                *from = i + 1;
                return e;
            }
        }
    }
    return NULL;
}

/* The least difference "received at b" - "sent at a", each by its own clock. False: no message. */
static bool least_delay(const struct trace *a, const struct trace *b, int64_t *least)
{
    size_t from = 0;
    int searched = 0;
    bool found = false;

    for (size_t i = a->count; i-- > 0 && searched < 256;) { /* the last few hundred suffice */
        const struct spr_event *sent = &a->events[i], *came;
        int64_t delay;
        if (sent->kind != SPR_EV_SEND || sent->peer != b->header.rank)
            continue;
        searched++;
        came = find_message(b, &from, SPR_EV_RECV, a->header.rank, sent->a);
        from = 0;
        if (!came)
            continue;
        delay = (int64_t)(came->ns - sent->ns);
        if (!found || delay < *least)
            *least = delay;
        found = true;
    }
    return found;
}

static int align_one(const struct trace *base, struct trace *t)
{
    int64_t there, back;

    if (strcmp(base->header.boot_id, t->header.boot_id) == 0) {
        t->offset_ns = base->offset_ns;
        return CLOCK_SAME;
    }
    if (least_delay(base, t, &there) && least_delay(t, base, &back)) {
        /* there = latency + (t - base), back = latency - (t - base) */
        t->offset_ns = base->offset_ns - (there / 2 - back / 2);
        return CLOCK_MESSAGES;
    }
    t->offset_ns =
        base->offset_ns + (int64_t)((t->header.start_realtime_ns - t->header.start_ns) -
                                    (base->header.start_realtime_ns - base->header.start_ns));
    return CLOCK_REAL;
}

void trace_align(struct trace_set *set)
{
    const struct trace *base = NULL;

    for (int r = 0; r < set->size; r++) {
        struct trace *t = set->ranks[r];
        const struct trace *same = NULL;
        if (!t)
            continue;
        if (!base) {
            base = t;
            continue;
        }
        /* All ranks of a host get the same offset. */
        for (int s = 0; s < r && !same; s++)
            if (set->ranks[s] && strcmp(set->ranks[s]->header.boot_id, t->header.boot_id) == 0)
                same = set->ranks[s];
        set->clock_used[align_one(same ? same : base, t)] = true;
    }
}
