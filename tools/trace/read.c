/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* While a live writer goes on, the slots that it writes next may be torn. */
enum { MARGIN = 16, MOST_RANKS = 65536 };

static bool refuse(char *error, size_t bytes, const char *text)
{
    snprintf(error, bytes, "%s", text);
    return false;
}

static bool check_header(const struct spr_trace_header *h, char *error, size_t bytes)
{
    if (memcmp(h->magic, SPR_TRACE_MAGIC, sizeof h->magic) != 0)
        return refuse(error, bytes, "this is not a flight recorder of Sparring");
    if (h->version != SPR_TRACE_VERSION || h->header_bytes != SPR_TRACE_HEADER_BYTES ||
        h->event_bytes != sizeof(struct spr_event) || h->events != SPR_TRACE_EVENTS) {
        snprintf(error, bytes, "written by another version of Sparring (format %u, here %d)",
                 h->version, SPR_TRACE_VERSION);
        return false;
    }
    if (h->rank < 0 || h->size < 1 || h->size > MOST_RANKS || h->rank >= h->size)
        return refuse(error, bytes, "damaged: no such rank can be");
    return true;
}

/* All of the file, which may be written to meanwhile. */
static bool read_bytes(const char *path, char *to, size_t want, char *error, size_t error_bytes)
{
    struct stat st;
    size_t have = 0;
    ssize_t n = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(error, error_bytes, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    while (S_ISREG(st.st_mode) && have < want && (n = read(fd, to + have, want - have)) > 0)
        have += (size_t)n;
    if (n < 0)
        snprintf(error, error_bytes, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode) || have < sizeof(SPR_TRACE_MAGIC) - 1 ||
             memcmp(to, SPR_TRACE_MAGIC, sizeof(SPR_TRACE_MAGIC) - 1) != 0)
        snprintf(error, error_bytes, "this is not a flight recorder of Sparring");
    else if (have < want)
        snprintf(error, error_bytes, "cut off: %zu of %zu bytes", have, want);
    close(fd);
    return n >= 0 && have == want;
}

static int compare_sequence(const void *left, const void *right)
{
    const struct spr_event *a = left, *b = right;

    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

/* Keep those whose number fits their slot and the newest number. */
static void take_events(struct trace *t, const char *ring)
{
    struct spr_event e;
    uint64_t newest = 0;
    size_t kept = 0;

    for (size_t slot = 0; slot < SPR_TRACE_EVENTS; slot++) {
        memcpy(&e, ring + slot * sizeof e, sizeof e);
        if (e.sequence == 0 || (e.sequence - 1) % SPR_TRACE_EVENTS != slot)
            continue;
        newest = e.sequence > newest ? e.sequence : newest;
        memcpy(&t->events[kept++], &e, sizeof e);
    }
    t->count = 0;
    for (size_t i = 0; i < kept; i++) {
        uint64_t age = newest - t->events[i].sequence;
        if (age < SPR_TRACE_EVENTS - MARGIN)
            memmove(&t->events[t->count++], &t->events[i], sizeof e);
    }
    qsort(t->events, t->count, sizeof *t->events, compare_sequence);
}

/* Text that may go to a terminal. */
static void clean(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++)
        *text = *text >= ' ' && *text < 0x7f ? *text : '?';
}

struct trace *trace_parse(const char *bytes, char *error, size_t error_bytes)
{
    struct trace *t = calloc(1, sizeof *t);

    if (!t || !(t->events = calloc(SPR_TRACE_EVENTS, sizeof *t->events))) {
        refuse(error, error_bytes, "no memory");
        goto undo;
    }
    memcpy(&t->header, bytes, sizeof t->header);
    if (!check_header(&t->header, error, error_bytes))
        goto undo;
    clean(t->header.host, sizeof t->header.host);
    clean(t->header.boot_id, sizeof t->header.boot_id);
    clean(t->header.text, sizeof t->header.text);
    take_events(t, bytes + SPR_TRACE_HEADER_BYTES);
    if (trace_operations(t))
        return t;
    refuse(error, error_bytes, "no memory");
undo:
    trace_free(t);
    return NULL;
}

struct trace *trace_read(const char *path, char *error, size_t error_bytes)
{
    char *bytes = malloc(SPR_TRACE_FILE_BYTES);
    struct trace *t = NULL;

    if (!bytes)
        refuse(error, error_bytes, "no memory");
    else if (read_bytes(path, bytes, SPR_TRACE_FILE_BYTES, error, error_bytes))
        t = trace_parse(bytes, error, error_bytes);
    free(bytes);
    return t;
}

bool trace_read_header(const char *path, struct spr_trace_header *header)
{
    char error[TRACE_TEXT_BYTES];

    return read_bytes(path, (char *)header, sizeof *header, error, sizeof error) &&
           check_header(header, error, sizeof error);
}

void trace_free(struct trace *t)
{
    if (!t)
        return;
    free(t->events);
    free(t->operations);
    free(t);
}
