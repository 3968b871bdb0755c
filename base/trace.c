/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/trace.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"

struct spr_trace *spr_trace_new(int rank, int size)
{
    struct spr_trace *t = spr_calloc(1, sizeof *t);
    struct spr_trace_header *h = t ? spr_calloc(1, SPR_TRACE_FILE_BYTES) : NULL;

    if (!h) {
        spr_free(t);
        return NULL;
    }
    t->header = h;
    t->ring = (struct spr_event *)(void *)((char *)h + SPR_TRACE_HEADER_BYTES);
    t->index = -1;
    memcpy(h->magic, SPR_TRACE_MAGIC, sizeof h->magic);
    h->version = SPR_TRACE_VERSION;
    h->header_bytes = SPR_TRACE_HEADER_BYTES;
    h->event_bytes = sizeof(struct spr_event);
    h->events = SPR_TRACE_EVENTS;
    h->rank = rank;
    h->size = size;
    return t;
}

unsigned spr_trace_word(struct spr_trace *t, const char *text)
{
    unsigned count = atomic_load_explicit(&t->header->word_count, memory_order_relaxed);

    for (unsigned i = 1; i <= count; i++)
        if (t->words[i] == text)
            return i;
    if (count + 1 >= SPR_TRACE_WORDS)
        return 0;
    count++;
    t->words[count] = text;
    snprintf(t->header->words[count], SPR_TRACE_WORD_BYTES, "%s", text);
    atomic_store_explicit(&t->header->word_count, count, memory_order_release);
    return count;
}

void spr_trace_add_name(struct spr_trace *t, uint64_t ns, const char *name)
{
    char bytes[SPR_TRACE_NAME_BYTES] = {0};
    uint64_t a, b;
    uint32_t c;

    memcpy(bytes, name, strnlen(name, sizeof bytes));
    memcpy(&a, bytes, 8);
    memcpy(&b, bytes + 8, 8);
    memcpy(&c, bytes + 16, 4);
    spr_trace_add(t, ns, SPR_EV_NAME, -1, a, b, c);
}

void spr_trace_ready(struct spr_trace *t)
{
    atomic_store_explicit(&t->header->ready, 1, memory_order_release);
}

void spr_trace_fail(struct spr_trace *t, const char *text)
{
    struct spr_trace_header *h = t->header;

    if (atomic_load_explicit(&h->failed, memory_order_relaxed))
        return;
    snprintf(h->text, sizeof h->text, "%s", text);
    atomic_store_explicit(&h->failed, 1, memory_order_release);
}
