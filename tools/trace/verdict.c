/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who is to blame. The rules are tried in this order; sparring-trace(1) explains them.
 *
 *   mismatched     ranks called different things at the same point
 *
 * Nobody failed, or somebody waited until the deadline (waited_for):
 *
 *   dead, left     the one that is waited for has no process any more
 *   late           it has not posted the operation that others wait in
 *   stopped        its process is stopped
 *   slow link      all are inside; one link, or all of one rank, is far slower than the others
 *   stuck          all are inside; one did nothing for most of the time
 *
 * What the first failure says (from_failure):
 *
 *   gave up        a rank aborted, cancelled or destroyed what was under way, or could not do it
 *   waited for     until the deadline, and nothing of the above explains it
 *   stopped        the process of the one that is blamed is stopped
 *   expelled       it gave no heartbeat for too long, and its process is not seen stopped now
 *   dead, left     it was lost, and has no process any more
 *   broken link    both ends live, and yet the link failed
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/trace/places.h"

enum { LONG_NS = 1000000000 };

struct verdict {
    const struct scene *s;
    char *line;
    FILE *evidence; /* or NULL */
};

static void fact(const struct verdict *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fact(const struct verdict *v, const char *format, ...)
{
    va_list arguments;

    if (!v->evidence)
        return;
    fputs("  ", v->evidence);
    va_start(arguments, format);
    vfprintf(v->evidence, format, arguments);
    va_end(arguments);
    fputc('\n', v->evidence);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* "in allreduce #7" or "before allreduce #7" */
static void where(const struct scene *s, int rank, char *text, size_t bytes)
{
    const struct place *p = &s->places[rank];
    char name[96];

    trace_operation_name(s->set, p->operation, name, sizeof name);
    if (p->known)
        snprintf(text, bytes, "%s %s", p->inside ? "in" : "before", name);
    else
        snprintf(text, bytes, "without a usable file here");
}

static enum process_kind process_of(const struct scene *s, int rank)
{
    return rank >= 0 && rank < s->set->size ? s->set->processes[rank].kind : PROCESS_UNKNOWN;
}

/* Its process ended, and not because a failure of the communicator was reported to it. */
static bool is_dead(const struct scene *s, int rank)
{
    enum process_kind kind = process_of(s, rank);

    return (kind == PROCESS_EXITED || kind == PROCESS_KILLED || kind == PROCESS_GONE) &&
           !(s->set->ranks[rank] && s->set->ranks[rank]->header.failed);
}

/* Rules ---------------------------------------------------------------------------------------- */

static void call_text(const struct trace *t, const struct operation *o, char *text, size_t bytes)
{
    char word[SPR_TRACE_WORD_BYTES], algorithm[SPR_TRACE_WORD_BYTES];

    spr_trace_get_word(&t->header, o->post->a >> 24 & 0xff, word);
    spr_trace_get_word(&t->header, o->post->a & 0xff, algorithm);
    snprintf(text, bytes, "%s of %" PRIu64 " %s (%s, %s)", word, o->post->b,
             spr_dtype_name((int)(o->post->a >> 16 & 0xff)),
             spr_op_name((int)(o->post->a >> 8 & 0xff)), algorithm);
}

/* How many ranks posted this operation as the given one did. */
static int same_call(const struct scene *s, uint32_t number, uint32_t descriptor)
{
    int same = 0;

    for (int r = 0; r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        const struct operation *o = t ? trace_operation(t, number) : NULL;
        same += o && o->post && o->post->c == descriptor;
    }
    return same;
}

/* The operation that was rejected last, unless a later one was completed since. */
static uint32_t find_rejected(const struct scene *s)
{
    uint32_t rejected = 0, completed = 0;

    for (int r = 0; r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        for (size_t i = 0; t && i < t->count; i++) {
            const struct spr_event *e = &t->events[i];
            if (e->kind == SPR_EV_REJECT && e->a > rejected)
                rejected = (uint32_t)e->a;
            if (e->kind == SPR_EV_COMPLETE && (spr_status)e->b == SPR_OK && e->a > completed)
                completed = (uint32_t)e->a;
        }
    }
    return rejected > completed ? rejected : 0;
}

static bool mismatched(const struct verdict *v)
{
    const struct scene *s = v->s;
    uint32_t number = find_rejected(s);
    int odd = -1, other = -1, fewest = s->set->size + 1;
    char who[96], name[96], mine[128], theirs[128];

    for (int r = 0; number && r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        const struct operation *o = t ? trace_operation(t, number) : NULL;
        int same = o && o->post ? same_call(s, number, o->post->c) : 0;
        if (same > 0 && same < fewest) {
            fewest = same;
            odd = r;
        }
    }
    for (int r = s->set->size - 1; odd >= 0 && r >= 0; r--) {
        const struct trace *t = s->set->ranks[r];
        const struct operation *o = t ? trace_operation(t, number) : NULL;
        if (o && o->post && o->post->c != trace_operation(s->set->ranks[odd], number)->post->c)
            other = r;
    }
    if (other < 0)
        return false;
    scene_rank(s, odd, who, sizeof who);
    trace_operation_name(s->set, number, name, sizeof name);
    call_text(s->set->ranks[odd], trace_operation(s->set->ranks[odd], number), mine, sizeof mine);
    call_text(s->set->ranks[other], trace_operation(s->set->ranks[other], number), theirs,
              sizeof theirs);
    snprintf(v->line, TRACE_TEXT_BYTES,
             "%s: mismatched in operation #%" PRIu32 ": it called %s, rank %d %s", who, number,
             mine, other, theirs);
    for (int r = 0; r < s->set->size; r++) {
        const struct trace *t = s->set->ranks[r];
        const struct operation *o = t ? trace_operation(t, number) : NULL;
        if (!o || !o->post)
            continue;
        call_text(t, o, mine, sizeof mine);
        fact(v, "rank %d called %s", r, mine);
    }
    return true;
}

static void tell_dead(const struct verdict *v, int rank)
{
    const struct scene *s = v->s;
    const struct process *p = &s->set->processes[rank];
    const struct trace *t = s->set->ranks[rank];
    char who[96], place[128], how[96] = "was lost";

    scene_rank(s, rank, who, sizeof who);
    where(s, rank, place, sizeof place);
    if (is_dead(s, rank))
        process_text(p, how, sizeof how);
    if (t && t->header.ended && p->kind != PROCESS_KILLED && s->failure)
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s: left %s: it destroyed its communicator while others needed it", who, place);
    else if (p->kind == PROCESS_UNKNOWN)
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: dead %s: its links ended, and nothing says how",
                 who, place);
    else
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: dead %s: its process %s", who, place, how);
    if (t && s->places[rank].last_ns)
        fact(v, "its last event is %.3f s older than the failure",
             seconds(s->places[rank].last_ns, s->at_ns));
}

/* When the first rank came into the front operation. */
static uint64_t first_inside(const struct scene *s)
{
    uint64_t first = s->at_ns;

    for (int r = 0; r < s->set->size; r++)
        if (s->places[r].known && s->places[r].inside && s->places[r].operation == s->front &&
            s->places[r].since_ns < first)
            first = s->places[r].since_ns;
    return first;
}

static void tell_late(const struct verdict *v, int rank, int waiting)
{
    const struct scene *s = v->s;
    const struct place *p = &s->places[rank];
    uint64_t first = first_inside(s);
    char who[96], name[96];

    scene_rank(s, rank, who, sizeof who);
    trace_operation_name(s->set, s->front, name, sizeof name);
    if (process_of(s, rank) == PROCESS_STOPPED)
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s: stopped before %s: its process was stopped, %d rank%s waited %.3f s", who,
                 name, waiting, spr_plural((uint64_t)waiting), seconds(first, s->at_ns));
    else
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s: late in compute: it had not posted %s, in which %d rank%s waited %.3f s", who,
                 name, waiting, spr_plural((uint64_t)waiting), seconds(first, s->at_ns));
    fact(v, "it was outside of operations for %.3f s", seconds(p->since_ns, s->at_ns));
}

/* All are inside the front operation, or past it. */
static bool slow_link(const struct verdict *v)
{
    const struct scene *s = v->s;
    struct slow_link slow;
    char who[96], other[96], name[96];

    if (!trace_slow_link(s->set, s->front, s->at_ns, &slow))
        return false;
    scene_rank(s, slow.culprit, who, sizeof who);
    trace_operation_name(s->set, s->front, name, sizeof name);
    if (slow.sends || slow.receives)
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s: slow link in %s: %s made %.3g MB/s, the median is %.3g MB/s", who, name,
                 !slow.receives ? "the fastest payload from it"
                 : !slow.sends  ? "the fastest payload to it"
                                : "its fastest payload",
                 slow.rate / 1e6, slow.others / 1e6);
    else {
        scene_rank(s, slow.from + slow.to - slow.culprit, other, sizeof other);
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s%s%s: slow link in %s: rank %d to rank %d made %.3g MB/s at best, the median "
                 "is %.3g MB/s",
                 who, slow.either ? " or " : "", slow.either ? other : "", name, slow.from, slow.to,
                 slow.rate / 1e6, slow.others / 1e6);
    }
    fact(v, "all ranks had posted it; %zu link%s carried payloads", slow.pairs,
         spr_plural(slow.pairs));
    return true;
}

/* The rank whose last event is the oldest, if that is most of the time that was waited. */
static bool stuck(const struct verdict *v)
{
    const struct scene *s = v->s;
    int oldest = -1;
    char who[96], name[96];

    for (int r = 0; r < s->set->size; r++) {
        const struct place *p = &s->places[r];
        if (!p->known || !p->inside || p->operation != s->front)
            continue;
        if (oldest < 0 || p->last_ns < s->places[oldest].last_ns)
            oldest = r;
    }
    if (oldest < 0)
        return false;
    scene_rank(s, oldest, who, sizeof who);
    trace_operation_name(s->set, s->front, name, sizeof name);
    snprintf(v->line, TRACE_TEXT_BYTES,
             "%s: stuck in %s: it did nothing for the last %.3f of %.3f s", who, name,
             seconds(s->places[oldest].last_ns, s->at_ns), seconds(first_inside(s), s->at_ns));
    return true;
}

/* Somebody waited: who for? */
static bool waited_for(const struct verdict *v)
{
    const struct scene *s = v->s;
    int late = -1, waiting = 0, gone = -1;
    char who[96], name[96];

    for (int r = 0; r < s->set->size; r++) {
        const struct place *p = &s->places[r];
        bool at_front = p->known && p->operation == s->front;
        waiting += at_front && p->inside;
        /* Of several that are late: one that is stopped, else the one that did the least. */
        if (at_front && !p->inside &&
            (late < 0 ||
             (process_of(s, r) == PROCESS_STOPPED && process_of(s, late) != PROCESS_STOPPED) ||
             (process_of(s, late) != PROCESS_STOPPED && p->last_ns < s->places[late].last_ns)))
            late = r;
        if ((at_front || !p->known) && is_dead(s, r) && gone < 0)
            gone = r;
    }
    /* In a job that nobody found fault with somebody always waits a little. */
    if (waiting == 0 || (!s->failure && s->at_ns - first_inside(s) < LONG_NS))
        return false;
    if (gone >= 0 && (late < 0 || is_dead(s, late))) {
        tell_dead(v, gone);
        return true;
    }
    if (late >= 0) {
        tell_late(v, late, waiting);
        return true;
    }
    trace_operation_name(s->set, s->front, name, sizeof name);
    for (int r = 0; r < s->set->size; r++) {
        if (process_of(s, r) != PROCESS_STOPPED)
            continue;
        scene_rank(s, r, who, sizeof who);
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: stopped in %s: its process was stopped", who,
                 name);
        fact(v, "its last event is %.3f s older than the failure",
             seconds(s->places[r].last_ns, s->at_ns));
        return true;
    }
    return slow_link(v) || (s->set->present == s->set->size && stuck(v));
}

/* The one that is blamed lived on, but not in time. */
static bool was_expelled(const struct trace *witness)
{
    return strstr(witness->header.text, ": expelled: no heartbeat") != NULL;
}

/* A rank's own doing: it aborted, cancelled, had a NaN or no memory. */
static bool is_own(spr_status status)
{
    return (status < 0 && status > SPR_ERR_LINK) || status == SPR_ERR_REVOKED ||
           status == SPR_ERR_SYSTEM;
}

/* What the first failure itself says. */
static void from_failure(const struct verdict *v)
{
    const struct scene *s = v->s;
    spr_status status = (spr_status)s->failure->b;
    int blamed = s->failure->peer, self = s->witness->header.rank;
    bool valid = blamed >= 0 && blamed < s->set->size;
    char who[96], place[128];

    blamed = valid ? blamed : self;
    scene_rank(s, blamed, who, sizeof who);
    where(s, blamed, place, sizeof place);
    if (is_own(status))
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: gave up %s: %.200s", who, place,
                 s->witness->header.text);
    else if (status == SPR_ERR_DEADLINE)
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: waited for %s, and its file does not say why", who,
                 place);
    else if (process_of(s, blamed) == PROCESS_STOPPED)
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: stopped %s: its process was stopped", who, place);
    else if (status == SPR_ERR_EXPELLED || was_expelled(s->witness))
        snprintf(v->line, TRACE_TEXT_BYTES,
                 "%s: expelled %s: it gave no heartbeat: it was stopped, or its host overloaded or "
                 "cut off",
                 who, place);
    else if (is_dead(s, blamed) || process_of(s, blamed) == PROCESS_UNKNOWN ||
             (s->set->ranks[blamed] && s->set->ranks[blamed]->header.ended))
        tell_dead(v, blamed);
    else
        snprintf(v->line, TRACE_TEXT_BYTES, "%s: broken link to rank %d %s: %.200s", who, self,
                 place, s->witness->header.text);
}

/* Without any failure: a process that sparring-run saw fail. */
static bool process_failed(const struct verdict *v)
{
    for (int r = 0; r < v->s->set->size; r++) {
        const struct process *p = &v->s->set->processes[r];
        if (p->kind != PROCESS_KILLED && (p->kind != PROCESS_EXITED || p->number == 0))
            continue;
        tell_dead(v, r);
        return true;
    }
    return false;
}

/* Evidence that any verdict gets -------------------------------------------------------------- */

static void tell_rank(const struct verdict *v, int r)
{
    const struct scene *s = v->s;
    const struct place *p = &s->places[r];
    char who[96], place[128], process[96];

    scene_rank(s, r, who, sizeof who);
    process_text(&s->set->processes[r], process, sizeof process);
    if (!p->known) {
        fact(v, "%s: no usable file; its process %s", who, process);
        return;
    }
    where(s, r, place, sizeof place);
    fact(v, "%s: %s for %.3f s, last event %.3f s before; its process %s", who, place,
         seconds(p->since_ns, s->at_ns), seconds(p->last_ns, s->at_ns), process);
}

static void tell_all(const struct verdict *v)
{
    static const char *const clocks[] = {
        [CLOCK_SAME] = "one clock, the ranks are on one machine",
        [CLOCK_MESSAGES] = "clocks compared by messages between the machines",
        [CLOCK_REAL] = "real-time clocks of the machines, which may differ",
    };
    const struct scene *s = v->s;

    if (s->failure)
        fact(v, "rank %d failed first: %s", s->witness->header.rank, s->witness->header.text);
    for (int r = 0; r < s->set->size && s->set->size <= 64; r++)
        tell_rank(v, r);
    if (s->set->present < s->set->size)
        fact(v, "%d of %d rank%s left a usable file", s->set->present, s->set->size,
             spr_plural((uint64_t)s->set->size));
    if (s->set->ignored)
        fact(v, "%d file%s of other communicators left out", s->set->ignored,
             spr_plural((uint64_t)s->set->ignored));
    for (int c = CLOCK_REAL; c >= CLOCK_SAME; c--)
        if (s->set->clock_used[c]) {
            fact(v, "times: %s", clocks[c]);
            break;
        }
}

bool trace_verdict(const struct trace_set *set, char line[TRACE_TEXT_BYTES], FILE *evidence)
{
    struct scene scene;
    struct verdict v = {&scene, line, evidence};
    bool found = true, waits;
    spr_status status;

    if (!scene_make(&scene, set)) {
        snprintf(line, TRACE_TEXT_BYTES, "no memory");
        return false;
    }
    status = scene.failure ? (spr_status)scene.failure->b : SPR_OK;
    waits = status == SPR_OK || status == SPR_ERR_DEADLINE;
    if (!mismatched(&v) && !(!scene.failure && process_failed(&v)) && !(waits && waited_for(&v))) {
        found = scene.failure != NULL;
        if (found)
            from_failure(&v);
        else
            snprintf(line, TRACE_TEXT_BYTES, "no failure is recorded, and nobody waits");
    }
    tell_all(&v);
    scene_free(&scene);
    return found;
}
