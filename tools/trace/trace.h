/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reading flight recorders (base/trace.h). Nothing in a file is trusted: it may be torn, cut off,
 * of another version or made up. Used by sparring-trace and, for the verdict, by sparring-run.
 */
#ifndef TOOLS_TRACE_TRACE_H
#define TOOLS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/trace.h"

enum { TRACE_TEXT_BYTES = 512 };

/* An operation as one rank saw it; NULL: the event is not in the ring (any more). */
struct operation {
    uint32_t number;
    const struct spr_event *post, *name, *complete;
    const struct spr_event *first; /* of all its events */
};

/* One rank. */
struct trace {
    struct spr_trace_header header;
    struct spr_event *events; /* whole ones, oldest first */
    size_t count;
    struct operation *operations; /* by number */
    size_t operation_count;
    int64_t offset_ns; /* added to its times they are comparable with the others' */
};

/* How a rank's process is or ended. */
enum process_kind {
    PROCESS_UNKNOWN,
    PROCESS_ALIVE,
    PROCESS_STOPPED,
    PROCESS_EXITED,
    PROCESS_KILLED,
    PROCESS_GONE
};
struct process {
    enum process_kind kind;
    int number; /* exit code or signal */
};

enum { CLOCK_SAME, CLOCK_MESSAGES, CLOCK_REAL };

struct trace_set {
    struct trace **ranks;       /* `size` entries; NULL: no file */
    struct process *processes;  /* the same */
    int size, present, ignored; /* ignored: files of other jobs and communicators */
    uint64_t seen_ns;           /* ... when it saw a failure or ended the job; 0: not known */
    bool ended;                 /* ... the latter: later failures are its doing */
    bool watched;               /* sparring-run wrote down how the ranks ended */
    bool clock_used[3];         /* which ways of comparing clocks were needed */
};

/* The time of an event, comparable between ranks. */
static inline uint64_t trace_time(const struct trace *t, const struct spr_event *e)
{
    return e->ns + (uint64_t)t->offset_ns;
}

/* read.c. NULL: `error` has one line, without the path. */
struct trace *trace_read(const char *path, char *error, size_t error_bytes);
/* The same of the SPR_TRACE_FILE_BYTES bytes of a file. */
struct trace *trace_parse(const char *bytes, char *error, size_t error_bytes);
/* The header alone. False: it is none, or of another version. */
bool trace_read_header(const char *path, struct spr_trace_header *header);
void trace_free(struct trace *t);
/* set.c: a directory or one file. `error` has one line with the path of the first file that cannot
 * be used, or is empty. False: none can. */
bool trace_set_read(struct trace_set *set, const char *path, char *error, size_t error_bytes);
void trace_set_free(struct trace_set *set);
/* The same of traces that are there already; takes them over. False: no memory. */
bool trace_set_make(struct trace_set *set, struct trace **traces, size_t count);

/* operations.c. False: no memory. */
bool trace_operations(struct trace *t);
const struct operation *trace_operation(const struct trace *t, uint32_t number);
/* "allreduce #7 'name'", from whichever rank has it in its ring. */
void trace_operation_name(const struct trace_set *set, uint32_t number, char *text, size_t bytes);

/* align.c: fills offset_ns of all. */
void trace_align(struct trace_set *set);

/* state.c: fills processes; `directory` may be NULL. */
void trace_processes(struct trace_set *set, const char *directory);
/* Is the process there that wrote this, on this machine? By pid and start time, so that a pid that
 * was given again is not taken for it. */
enum process_kind trace_process(const struct spr_trace_header *header);
/* "was killed by signal 9 (Killed)" */
void process_text(const struct process *process, char *text, size_t bytes);

/* links.c: the rank from or to which, or the pair of ranks over which an operation's payloads came
 * slowest. */
struct slow_link {
    int from, to;         /* the pair, unless `sends` or `receives` */
    double rate;          /* bytes/s of the fastest payload */
    double others;        /* the median of all ranks, ports or pairs */
    size_t pairs;         /* that carried anything */
    int culprit;          /* of a pair the end whose other links are slower */
    bool either;          /* ... but nothing tells that end from the other one */
    bool sends, receives; /* all links of the culprit, in this direction */
};
/* False: nothing was under way, or it was not slower than a quarter of the others. */
bool trace_slow_link(const struct trace_set *set, uint32_t operation, uint64_t until_ns,
                     struct slow_link *slow);

/* verdict.c: the line that names the culprit; evidence goes to `evidence`, one fact a line, unless
 * it is NULL. False: there is no failure to explain, and the line says so. */
bool trace_verdict(const struct trace_set *set, char line[TRACE_TEXT_BYTES], FILE *evidence);

/* dump.c, json.c: rank -1 = all; the last `most` events. */
void trace_dump(const struct trace_set *set, int rank, size_t most, FILE *out);
void trace_json(const struct trace_set *set, FILE *out);
/* All events of all ranks (or one) in the order of time; allocated. */
struct merged {
    const struct trace *trace;
    const struct spr_event *event;
};
struct merged *trace_merge(const struct trace_set *set, int rank, size_t *count);

#endif
