/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

static int compare_numbers(const void *left, const void *right)
{
    const struct operation *a = left, *b = right;

    return (a->number > b->number) - (a->number < b->number);
}

/* The operation that an event shows this rank to have taken part in; 0: none. A payload that came
 * (RECV) does not: it may have come early. */
static uint32_t shown(const struct spr_event *e)
{
    switch (e->kind) {
    case SPR_EV_POST:
    case SPR_EV_SEND:
    case SPR_EV_HOLD:
    case SPR_EV_GRANT:
        return (uint32_t)(e->a >> 32);
    case SPR_EV_COMPLETE:
        return (uint32_t)e->a;
    default:
        return 0;
    }
}

/* The entry of a number, at or near the end as a rule; a new one goes to the end. */
static struct operation *entry(struct trace *t, uint32_t number, const struct spr_event *e)
{
    size_t i = t->operation_count;

    while (i > 0 && t->operations[i - 1].number != number)
        if (t->operations[--i].number < number && t->operation_count - i > 64)
            i = 0;
    if (i > 0)
        return &t->operations[i - 1];
    t->operations[t->operation_count] = (struct operation){.number = number, .first = e};
    return &t->operations[t->operation_count++];
}

bool trace_operations(struct trace *t)
{
    struct operation *posted = NULL;

    t->operations = calloc(t->count + 1, sizeof *t->operations);
    if (!t->operations)
        return false;
    for (size_t i = 0; i < t->count; i++) {
        const struct spr_event *e = &t->events[i];
        uint32_t number = shown(e);
        struct operation *o = number ? entry(t, number, e) : NULL;
        if (e->kind == SPR_EV_NAME && posted)
            posted->name = e;
        if (o && e->kind == SPR_EV_POST) {
            *o = (struct operation){.number = number, .post = e, .first = e}; /* also: again */
            posted = o;
        }
        if (o && e->kind == SPR_EV_COMPLETE)
            o->complete = e;
    }
    qsort(t->operations, t->operation_count, sizeof *t->operations, compare_numbers);
    return true;
}

const struct operation *trace_operation(const struct trace *t, uint32_t number)
{
    const struct operation key = {.number = number};

    return bsearch(&key, t->operations, t->operation_count, sizeof key, compare_numbers);
}

void trace_operation_name(const struct trace_set *set, uint32_t number, char *text, size_t bytes)
{
    char word[SPR_TRACE_WORD_BYTES] = "operation", name[SPR_TRACE_NAME_BYTES + 1] = "";

    for (int r = 0; r < set->size; r++) {
        const struct trace *t = set->ranks[r];
        const struct operation *o = t ? trace_operation(t, number) : NULL;
        if (!o || !o->post)
            continue;
        spr_trace_get_word(&t->header, o->post->a >> 24 & 0xff, word);
        if (o->name)
            spr_trace_get_name(o->name, name);
        break;
    }
    snprintf(text, bytes, "%s #%" PRIu32 "%s%s%s", word, number, *name ? " '" : "", name,
             *name ? "'" : "");
}
