/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sink output_sink = {.fd = STDOUT_FILENO};
struct sink error_sink = {.fd = STDERR_FILENO};

#ifndef __clang__
#pragma GCC diagnostic push
/* The analyzer of gcc 12 believes that what is stored in a structure of the caller is lost. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
/* Where so many more bytes go; NULL: nowhere. */
static char *sink_extend(struct sink *sink, size_t length)
{
    size_t begin = sink->length;
    if (sink->dead)
        return NULL;
    if (begin + length > sink->room) {
        char *text = realloc(sink->text, 2 * (begin + length));
        if (text == NULL)
            return NULL;
        sink->room = 2 * (begin + length);
        sink->text = text;
    }
    sink->length = begin + length;
    return sink->text + begin;
}
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

static void sink_add(struct sink *sink, const char *text, size_t length)
{
    char *to = sink_extend(sink, length);
    if (to != NULL)
        memcpy(to, text, length);
}

void sink_flush(struct sink *sink)
{
    size_t done = 0;
    while (done < sink->length && !sink->dead) {
        struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
        if (poll(&ready, 1, 0) < 1)
            break;
        /* A pipe that polls writable takes PIPE_BUF bytes without blocking, and no more for sure.
         */
        size_t part = sink->length - done < PIPE_BUF ? sink->length - done : PIPE_BUF;
        ssize_t written = write(sink->fd, sink->text + done, part);
        if (written >= 0)
            done += (size_t)written;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR) {
            sink->dead = true;
            sink->why = errno == EPIPE ? 0 : errno;
        }
    }
    sink->length -= done;
    if (sink->dead)
        sink->length = 0;
    else if (done > 0)
        memmove(sink->text, sink->text + done, sink->length);
}

void sinks_give_up(void)
{
    output_sink.dead = error_sink.dead = true;
    output_sink.length = error_sink.length = 0;
}

static void say_list(const char *format, va_list list, const char *detail)
{
    char line[1024];
    int length = snprintf(line, sizeof line, "sparring-run: ");
    int more = vsnprintf(line + length, sizeof line - (size_t)length, format, list);
    length += more > 0 ? more : 0;
    if (length < (int)sizeof line)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s%s",
                           *detail != '\0' ? ": " : "", detail);
    if (length > (int)sizeof line - 1)
        length = (int)sizeof line - 1;
    sink_add(&error_sink, line, (size_t)length);
    sink_add(&error_sink, "\n", 1);
    sink_flush(&error_sink);
}

void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(format, list, "");
    va_end(list);
}

void say_errno(const char *format, ...)
{
    const char *detail = strerror(errno);
    va_list list;
    va_start(list, format);
    say_list(format, list, detail);
    va_end(list);
}

void say_flush(void)
{
    for (int i = 0; i < 10; i++) {
        sink_flush(&error_sink);
        struct pollfd ready = {.fd = error_sink.fd, .events = POLLOUT};
        if (error_sink.length == 0 || poll(&ready, 1, 100) < 0)
            break;
    }
}

bool stream_open(struct stream *stream, int fd, int rank, struct sink *sink)
{
    char *line = malloc(LINE_MAX_BYTES);
    if (line == NULL)
        return false;
    *stream = (struct stream){.fd = fd, .sink = sink, .rank = rank, .line = line};
    return true;
}

static void emit(const struct stream *stream, const char *line, size_t length)
{
    char prefix[16];
    size_t bytes = (size_t)snprintf(prefix, sizeof prefix, "[%d] ", stream->rank);
    char *to = sink_extend(stream->sink, bytes + length + 1);
    if (to == NULL)
        return;
    memcpy(to, prefix, bytes);
    memcpy(to + bytes, line, length);
    to[bytes + length] = '\n';
}

/* Moves the finished lines to the sink; `fresh` bytes at the end have not been searched yet. */
static void cut_lines(struct stream *stream, size_t fresh)
{
    const char *line = stream->line;
    const char *stop = stream->line + stream->length;
    const char *search = stop - fresh;
    const char *end;
    while ((end = memchr(search, '\n', (size_t)(stop - search))) != NULL) {
        emit(stream, line, (size_t)(end - line));
        line = search = end + 1;
    }
    stream->length = (size_t)(stop - line);
    if (stream->length == LINE_MAX_BYTES) {
        emit(stream, line, stream->length);
        stream->length = 0;
    }
    memmove(stream->line, line, stream->length);
}

bool stream_read(struct stream *stream)
{
    if (stream->fd < 0)
        return false;
    while (stream->fd >= 0 && stream->sink->length < SINK_FULL_BYTES) {
        if (stream->sink->dead) { /* the rank shall see a closed pipe, as without us between */
            stream_close(stream);
            return false;
        }
        ssize_t got =
            read(stream->fd, stream->line + stream->length, LINE_MAX_BYTES - stream->length);
        if (got > 0) {
            stream->length += (size_t)got;
            cut_lines(stream, (size_t)got);
        } else if (got == 0) {
            stream_close(stream);
        } else if (errno != EINTR) {
            break;
        }
    }
    bool full = stream->fd >= 0 && stream->sink->length >= SINK_FULL_BYTES;
    sink_flush(stream->sink);
    return full;
}

void stream_close(struct stream *stream)
{
    if (stream->fd < 0)
        return;
    if (stream->length > 0)
        emit(stream, stream->line, stream->length);
    close(stream->fd);
    free(stream->line);
    stream->fd = -1;
    stream->line = NULL;
    stream->length = 0;
}
