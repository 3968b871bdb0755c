/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Chrome's trace-event format:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU Ranks are
 * processes; an operation is a span, every other event an instant on the line of its peer.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/trace/trace.h"

/* Text is printable ASCII already. */
static void string(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void begin(FILE *out, bool *first)
{
    fputs(*first ? "\n" : ",\n", out);
    *first = false;
}

static double micros(const struct trace *t, const struct spr_event *e, uint64_t start_ns)
{
    return (double)(trace_time(t, e) - start_ns) / 1e3;
}

static void span(const struct trace_set *set, const struct trace *t, const struct operation *o,
                 uint64_t start_ns, FILE *out, bool *first)
{
    char name[96];

    if (!o->post)
        return;
    trace_operation_name(set, o->number, name, sizeof name);
    begin(out, first);
    fputs("{\"name\":", out);
    string(name, out);
    fprintf(out,
            ",\"cat\":\"operation\",\"ph\":\"b\",\"id\":\"%d.%" PRIu32
            "\",\"ts\":%.3f,\"pid\":%d,\"tid\":0,\"args\":{\"elements\":%" PRIu64 "}}",
            t->header.rank, o->number, micros(t, o->post, start_ns), t->header.rank, o->post->b);
    if (!o->complete)
        return;
    begin(out, first);
    fputs("{\"name\":", out);
    string(name, out);
    fprintf(out,
            ",\"cat\":\"operation\",\"ph\":\"e\",\"id\":\"%d.%" PRIu32
            "\",\"ts\":%.3f,\"pid\":%d,\"tid\":0,\"args\":{\"status\":\"%s\"}}",
            t->header.rank, o->number, micros(t, o->complete, start_ns), t->header.rank,
            spr_status_name((spr_status)o->complete->b));
}

static void instant(const struct trace *t, const struct spr_event *e, uint64_t start_ns, FILE *out,
                    bool *first)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream;

    if (e->kind == SPR_EV_POST || e->kind == SPR_EV_COMPLETE || e->kind == SPR_EV_NAME)
        return;
    stream = open_memstream(&text, &bytes);
    if (!stream)
        return;
    spr_trace_print(&t->header, e, stream);
    if (fclose(stream) == 0) {
        begin(out, first);
        fprintf(out,
                "{\"name\":\"%s\",\"cat\":\"event\",\"ph\":\"i\",\"s\":\"t\",\"ts\":%.3f,"
                "\"pid\":%d,\"tid\":%d,\"args\":{\"event\":",
                spr_event_name((enum spr_event_kind)e->kind), micros(t, e, start_ns),
                t->header.rank, e->peer >= 0 ? e->peer + 1 : 0);
        string(text, out);
        fputs("}}", out);
    }
    free(text);
}

static void process(const struct trace *t, int size, FILE *out, bool *first)
{
    begin(out, first);
    fprintf(out, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":",
            t->header.rank);
    fprintf(out, "\"rank %d of %d, host ", t->header.rank, size);
    for (const char *c = t->header.host; *c; c++)
        fputc(*c == '"' || *c == '\\' ? '?' : *c, out);
    fputs("\"}}", out);
}

void trace_json(const struct trace_set *set, FILE *out)
{
    bool first = true;
    size_t count;
    struct merged *all = trace_merge(set, -1, &count);
    uint64_t start = all && count ? trace_time(all[0].trace, all[0].event) : 0;

    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
    for (int r = 0; r < set->size; r++) {
        const struct trace *t = set->ranks[r];
        if (!t)
            continue;
        process(t, set->size, out, &first);
        for (size_t i = 0; i < t->operation_count; i++)
            span(set, t, &t->operations[i], start, out, &first);
    }
    for (size_t i = 0; all && i < count; i++)
        instant(all[i].trace, all[i].event, start, out, &first);
    fputs("\n]}\n", out);
    free(all);
}
