/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Flight recorder: a ring of the last events of a rank, always on. It begins in private memory and
 * may be moved into a file that others read, also after this process was killed.
 *
 *   | header, 4096 bytes | event 0 | event 1 | ... | event 4095 |      rank-R.trace
 *
 * The event with sequence number n (from 1) is in slot (n - 1) % 4096; its number is written last.
 * So a writer that is killed leaves one torn slot: the oldest one's, which readers pass over.
 * One writer at a time (the communicator's lock).
 */
#ifndef SPR_BASE_TRACE_H
#define SPR_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sparring/status.h>

/* The numbers are part of the file's format: append only, or raise SPR_TRACE_VERSION. */
enum spr_event_kind {
    SPR_EV_NONE,
    SPR_EV_POST,      /* a: spr_trace_post(), b: elements, c: low half of the descriptor */
    SPR_EV_NAME,      /* the caller's name of the operation posted last: 20 bytes in a, b, c */
    SPR_EV_COMPLETE,  /* a: operation, b: status, c: nanoseconds since it was posted */
    SPR_EV_SEND,      /* peer, a: tag, b: bytes: a payload goes to the transport */
    SPR_EV_HOLD,      /* peer, a: tag, b: bytes: it waits first, c 0: for a grant or credit,
                       * 1: for more urgent data */
    SPR_EV_RECV,      /* peer, a: tag, b: bytes: a whole payload is there */
    SPR_EV_GRANT,     /* peer, a: tag: this rank lets the peer send */
    SPR_EV_LINK_UP,   /* peer, a: word: the transport */
    SPR_EV_LINK_DOWN, /* peer, a: status */
    SPR_EV_ABORT,     /* peer (who said so), a: rank to blame, b: status */
    SPR_EV_FALLBACK,  /* a: word: what cannot be used */
    SPR_EV_LEFT,      /* peer, a: operation: it takes part in no later one, nor in this */
    SPR_EV_SLOW,      /* peer (the first that is waited for), a: operation: SPARRING_WARN passed */
    SPR_EV_FAIL,      /* peer: rank to blame, a: operation (0: none), b: status, c: 1 + who told */
    SPR_EV_REJECT,    /* peer: one that differs, a: operation: ranks called different things */
    SPR_EV_COUNT
};

/* A tag: operation << 32 | step. */
struct spr_event {
    _Atomic uint64_t sequence; /* from 1; 0: nothing here yet */
    uint64_t ns;               /* CLOCK_MONOTONIC */
    uint16_t kind;
    int16_t peer;
    uint32_t c; /* saturates */
    uint64_t a, b;
};

#define SPR_TRACE_EVENTS 4096
#define SPR_TRACE_MAGIC "SPRFLREC"
#define SPR_TRACE_VERSION 1
#define SPR_TRACE_WORDS 48
#define SPR_TRACE_WORD_BYTES 24
#define SPR_TRACE_NAME_BYTES 20
#define SPR_TRACE_HEADER_BYTES 4096
#define SPR_TRACE_TEXT_BYTES 768

/* What does not change with every event. Host byte order; text ends with a NUL. */
struct spr_trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes, event_bytes, events;
    int32_t rank, size;
    uint32_t pid;
    uint32_t epoch;
    uint32_t index;         /* 0, or further communicators that the process has at the same time */
    _Atomic uint32_t ended; /* the communicator was destroyed in order */
    uint64_t job;
    uint64_t process_start; /* of the pid, in clock ticks since boot: /proc/PID/stat */
    uint64_t start_ns, start_realtime_ns; /* CLOCK_MONOTONIC and CLOCK_REALTIME, read together */
    char boot_id[40];
    char host[64];
    _Atomic uint32_t word_count; /* of `words`, from 1; word 0 is "" */
    _Atomic uint32_t failed;     /* 1: `text` says why */
    char words[SPR_TRACE_WORDS][SPR_TRACE_WORD_BYTES];
    char text[SPR_TRACE_TEXT_BYTES];
    _Atomic uint32_t ready; /* the communicator was complete: this rank had all its links */
};
_Static_assert(sizeof(struct spr_event) == 40, "part of the file's format");
_Static_assert(sizeof(struct spr_trace_header) <= SPR_TRACE_HEADER_BYTES, "the header's page");

#define SPR_TRACE_FILE_BYTES (SPR_TRACE_HEADER_BYTES + SPR_TRACE_EVENTS * sizeof(struct spr_event))

struct spr_trace {
    struct spr_event *ring;
    struct spr_trace_header *header;
    uint64_t next; /* number of events so far */
    bool shared;   /* in a file */
    int index;
    const char *words[SPR_TRACE_WORDS]; /* for looking up by address */
};

/* In private memory. NULL: no memory. */
struct spr_trace *spr_trace_new(int rank, int size);
/* Move into DIR/rank-R.trace, which replaces a file of that name unless its process lives: then it
 * is rank-R.1.trace, and so on. False: *why says why not, and all stays as it is. */
bool spr_trace_share(struct spr_trace *t, const char *dir, uint64_t job, uint32_t epoch, char *why,
                     size_t why_bytes);
/* The communicator ends in order: a file stays, and says so. NULL is harmless. */
void spr_trace_free(struct spr_trace *t);

static inline void spr_trace_add(struct spr_trace *t, uint64_t ns, enum spr_event_kind kind,
                                 int peer, uint64_t a, uint64_t b, uint64_t c)
{
    struct spr_event *e = &t->ring[t->next++ % SPR_TRACE_EVENTS];

    e->ns = ns;
    e->kind = (uint16_t)kind;
    e->peer = (int16_t)peer;
    e->c = c < UINT32_MAX ? (uint32_t)c : UINT32_MAX;
    e->a = a;
    e->b = b;
    /* Release: whoever sees the number sees the event. */
    atomic_store_explicit(&e->sequence, t->next, memory_order_release);
}

/* The number of a text in the header's table; 0 when the table is full. Looked up by address: for
 * literals and other texts that stay. */
unsigned spr_trace_word(struct spr_trace *t, const char *text);

/* What POST says of an operation, in one number. */
static inline uint64_t spr_trace_post(uint32_t operation, unsigned collective_word, int dtype,
                                      int op, unsigned algorithm_word)
{
    return (uint64_t)operation << 32 | (uint64_t)(collective_word & 0xff) << 24 |
           (uint64_t)(dtype & 0xff) << 16 | (uint64_t)(op & 0xff) << 8 | (algorithm_word & 0xff);
}
/* Add a NAME event: the caller's name, cut at 20 bytes. */
void spr_trace_add_name(struct spr_trace *t, uint64_t ns, const char *name);
/* All links are there. */
void spr_trace_ready(struct spr_trace *t);
/* Why the communicator failed, as text. The first call wins. */
void spr_trace_fail(struct spr_trace *t, const char *text);

const char *spr_event_name(enum spr_event_kind kind);
/* One event as text, without time and line end. Nothing in header or event is trusted. */
void spr_trace_print(const struct spr_trace_header *header, const struct spr_event *e, FILE *out);
/* The last `most` events as text, oldest first. Not beside spr_trace_add. */
void spr_trace_dump(const struct spr_trace *t, size_t most, FILE *out);
/* The word of a number; "?" when there is none. Bytes that are not printable become '?'. */
void spr_trace_get_word(const struct spr_trace_header *header, uint64_t word,
                        char text[SPR_TRACE_WORD_BYTES]);
/* The name in a NAME event. */
void spr_trace_get_name(const struct spr_event *e, char name[SPR_TRACE_NAME_BYTES + 1]);

#endif
