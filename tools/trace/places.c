/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static bool over(const struct trace *t, const struct spr_event *e, uint64_t at_ns)
{
    return !e || trace_time(t, e) > at_ns;
}

static struct place find_place(const struct trace *t, uint64_t at_ns)
{
    struct place p = {.known = true, .operation = 1, .since_ns = t->header.start_ns};

    p.since_ns += (uint64_t)t->offset_ns;
    for (size_t i = 0; i < t->count && trace_time(t, &t->events[i]) <= at_ns; i++)
        if (t->events[i].kind != SPR_EV_FAIL && t->events[i].kind != SPR_EV_SLOW)
            p.last_ns = trace_time(t, &t->events[i]);
    for (size_t i = 0; i < t->operation_count; i++) {
        const struct operation *o = &t->operations[i];
        spr_status status = o->complete ? (spr_status)o->complete->b : SPR_OK;
        if (over(t, o->first, at_ns))
            break;
        p.operation = o->number;
        if (over(t, o->complete, at_ns)) {
            p.inside = true;
            p.since_ns = trace_time(t, o->first);
            return p;
        }
        p.since_ns = trace_time(t, o->complete);
        /* Any other end before the failure is that of a call that was refused. */
        if (status == SPR_OK || status == SPR_ERR_MISMATCH || status == SPR_ERR_TOO_SMALL)
            p.operation++;
    }
    return p;
}

/* The first failure of all. Of two at the same moment the one that nobody told. */
static void find_failure(struct scene *s)
{
    for (int r = 0; r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        for (size_t i = 0; t && i < t->count; i++) {
            const struct spr_event *e = &t->events[i];
            uint64_t ns = trace_time(t, e);
            if (e->kind != SPR_EV_FAIL)
                continue;
            if (s->set->ended && ns > s->set->seen_ns)
                break;
            if (!s->failure || ns < s->at_ns || (ns == s->at_ns && s->failure->c && !e->c)) {
                s->failure = e;
                s->witness = t;
                s->at_ns = ns;
            }
            break;
        }
    }
}

/* Without a failure: now, when one of the processes still runs here; else the end of what there is.
 */
static void find_end(struct scene *s)
{
    bool live = false;

    for (int r = 0; r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        enum process_kind kind = s->set->processes[r].kind;
        if (t && t->count && !s->set->ended && trace_time(t, &t->events[t->count - 1]) > s->at_ns)
            s->at_ns = trace_time(t, &t->events[t->count - 1]);
        live |= t && !s->set->watched && (kind == PROCESS_ALIVE || kind == PROCESS_STOPPED) &&
                t->offset_ns == 0;
    }
    if (s->set->watched && s->set->seen_ns > s->at_ns)
        s->at_ns = s->set->seen_ns;
    if (live && spr_monotonic_ns() > s->at_ns)
        s->at_ns = spr_monotonic_ns();
}

bool scene_make(struct scene *s, const struct trace_set *set)
{
    *s = (struct scene){.set = set};
    s->places = calloc((size_t)set->size, sizeof *s->places);
    if (!s->places)
        return false;
    find_failure(s);
    if (!s->failure)
        find_end(s);
    s->front = UINT32_MAX;
    for (int r = 0; r < set->size; r++) {
        if (!set->ranks[r])
            continue;
        s->places[r] = find_place(set->ranks[r], s->at_ns);
        if (s->places[r].operation < s->front)
            s->front = s->places[r].operation;
    }
    return true;
}

void scene_free(struct scene *s)
{
    free(s->places);
    s->places = NULL;
}

void scene_rank(const struct scene *s, int rank, char *text, size_t bytes)
{
    const struct trace *t = rank >= 0 && rank < s->set->size ? s->set->ranks[rank] : NULL;

    if (t && *t->header.host)
        snprintf(text, bytes, "rank %d (host %s)", rank, t->header.host);
    else
        snprintf(text, bytes, "rank %d", rank);
}
