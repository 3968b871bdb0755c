/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sparring-run writes: its own messages and, with --tag, the lines of the ranks. Nothing here
 * blocks: text waits in a sink until poll() says that its descriptor takes more, so a reader that
 * stalls never keeps signals and clean-up waiting.
 */
#ifndef TOOLS_RUN_OUTPUT_H
#define TOOLS_RUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct sink {
    int fd;
    char *text;
    size_t length;
    size_t room;
    bool dead; /* its reader is gone, ... */
    int why;   /* ... or what else keeps it from being written: errno */
};

/* One output of one rank, read from a pipe and cut into lines. */
struct stream {
    int fd; /* -1 = closed, or not there */
    struct sink *sink;
    int rank;
    char *line; /* LINE_MAX_BYTES, allocated when the stream is opened */
    size_t length;
};

enum {
    LINE_MAX_BYTES = 64 * 1024,  /* a longer line is cut into several */
    SINK_FULL_BYTES = 256 * 1024 /* streams are not read while their sink holds more */
};

extern struct sink output_sink, error_sink;

/* One line to standard error: "sparring-run: ...\n", queued behind what ranks wrote before. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* ": text of errno" is added. */
void say_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes what the descriptor takes now. */
void sink_flush(struct sink *sink);
/* Nothing that waits is written, and nothing any more. */
void sinks_give_up(void);
/* Writes the messages of this process, waiting at most a second: for use outside the poll loop. */
void say_flush(void);

/* Makes the read end of a pipe a stream. False when memory is short; the caller still owns fd. */
bool stream_open(struct stream *stream, int fd, int rank, struct sink *sink);
/* Reads what is there now, as far as the sink has room. Closes the stream at its end. True when the
 * sink was the limit. */
bool stream_read(struct stream *stream);
/* Ends an unfinished line and closes. */
void stream_close(struct stream *stream);

#endif
