/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Flight recorder: a ring of the last events of a rank, always on. One writer at a time (the
 * communicator's lock); readers copy and may miss events that are being overwritten.
 */
#ifndef SPR_BASE_TRACE_H
#define SPR_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum spr_event_kind {
    SPR_EV_NONE,
    SPR_EV_POST,      /* a: operation sequence, b: kind << 32 | algorithm; c: bytes */
    SPR_EV_COMPLETE,  /* a: operation sequence, b: status, c: nanoseconds */
    SPR_EV_SEND,      /* peer, a: tag, b: bytes */
    SPR_EV_SENT,      /* peer, a: tag */
    SPR_EV_RECV,      /* peer, a: tag, b: bytes */
    SPR_EV_GRANT,     /* peer, a: tag */
    SPR_EV_LINK_UP,   /* peer */
    SPR_EV_LINK_DOWN, /* peer, a: status */
    SPR_EV_ABORT,     /* peer (who said so), a: rank to blame */
    SPR_EV_FALLBACK,  /* a: reason */
    SPR_EV_COUNT
};

struct spr_event {
    uint64_t ns;
    uint16_t kind;
    int16_t peer;
    uint32_t c; /* saturates */
    uint64_t a, b;
};

#define SPR_TRACE_EVENTS 4096

struct spr_trace {
    uint64_t next; /* index of the next event; slot = next % SPR_TRACE_EVENTS */
    struct spr_event events[SPR_TRACE_EVENTS];
};

static inline void spr_trace_add(struct spr_trace *t, uint64_t ns, enum spr_event_kind kind,
                                 int peer, uint64_t a, uint64_t b, uint64_t c)
{
    struct spr_event *e = &t->events[t->next++ % SPR_TRACE_EVENTS];
    *e = (struct spr_event){
        .ns = ns,
        .kind = (uint16_t)kind,
        .peer = (int16_t)peer,
        .c = c < UINT32_MAX ? (uint32_t)c : UINT32_MAX,
        .a = a,
        .b = b,
    };
}

const char *spr_event_name(enum spr_event_kind kind);
/* The last `most` events as text, oldest first. */
void spr_trace_dump(const struct spr_trace *t, size_t most, FILE *out);

#endif
