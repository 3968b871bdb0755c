/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Flight recorders of a failed job as sparring-trace sees them (tools/trace). Input: number of
 * ranks, then events: the rank and what they are, their fields. Nothing in them is trusted:
 * verdict, dump and JSON are printable text, whatever the events say.
 */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tools/trace/trace.h"

#define MOST_RANKS 4
#define MOST_EVENTS 32

static struct trace *new_trace(int rank, int size, uint8_t how)
{
    struct trace *t = calloc(1, sizeof *t);

    FUZZ_CHECK(t);
    t->events = calloc(MOST_EVENTS, sizeof *t->events);
    FUZZ_CHECK(t->events);
    t->header.rank = rank;
    t->header.size = size;
    t->header.start_ns = 1000000000;
    t->header.start_realtime_ns = 5000000000 + (how & 1 ? (uint64_t)rank * 1000000 : 0);
    t->header.failed = how >> 1 & 1;
    t->header.ended = how >> 2 & 1;
    snprintf(t->header.host, sizeof t->header.host, how & 8 ? "host%d" : "host", rank);
    snprintf(t->header.boot_id, sizeof t->header.boot_id, how & 8 ? "boot%d" : "boot", rank);
    snprintf(t->header.text, sizeof t->header.text, "it failed");
    t->header.word_count = 3;
    snprintf(t->header.words[1], SPR_TRACE_WORD_BYTES, "allreduce");
    snprintf(t->header.words[2], SPR_TRACE_WORD_BYTES, "direct");
    return t;
}

/* Near ones, so that events of different ranks meet; any, when the first byte says so. */
static void add_event(struct trace *t, struct fuzz_in *in)
{
    struct spr_event *e = &t->events[t->count];
    uint8_t how = fuzz_u8(in);

    e->kind = how & 127;
    e->peer = (int16_t)((fuzz_u8(in) & 7) - 1);
    e->ns = (t->count ? e[-1].ns : 2000000000) + fuzz_u16(in) * UINT64_C(1000);
    if (how & 128) {
        e->a = fuzz_u64(in);
        e->b = fuzz_u64(in);
        e->c = fuzz_u32(in);
        e->peer = (int16_t)fuzz_u16(in);
        e->ns = fuzz_u64(in);
    } else {
        uint8_t operation = fuzz_u8(in);
        e->a = (uint64_t)(operation & 7) << (operation & 128 ? 0 : 32) | (operation >> 3 & 15);
        e->b = fuzz_u16(in);
        e->c = fuzz_u8(in);
    }
    e->sequence = ++t->count;
}

static void check_text(char *text, size_t bytes, bool lines)
{
    FUZZ_CHECK(bytes == 0 || text);
    for (size_t i = 0; i < bytes; i++)
        FUZZ_CHECK((text[i] >= ' ' && text[i] < 0x7f) || (lines && text[i] == '\n'));
}

static void look(const struct trace_set *set)
{
    /* Kept between inputs: to make and to grow one took two fifths of the time. */
    static FILE *out;
    static char *text;
    static size_t bytes;
    char line[TRACE_TEXT_BYTES];

    if (!out)
        out = open_memstream(&text, &bytes);
    FUZZ_CHECK(out && fseek(out, 0, SEEK_SET) == 0);
    memset(line, 'x', sizeof line);
    trace_verdict(set, line, out);
    FUZZ_CHECK(memchr(line, '\0', sizeof line) && *line);
    check_text(line, strlen(line), false);
    trace_dump(set, -1, MOST_EVENTS, out);
    trace_json(set, out);
    FUZZ_CHECK(fflush(out) == 0);
    check_text(text, bytes, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace *traces[MOST_RANKS];
    struct trace_set set;
    struct fuzz_in in = {data, size};
    uint8_t head = fuzz_u8(&in), how = fuzz_u8(&in);
    int ranks = 1 + head % MOST_RANKS, missing = head & 64 && ranks > 1;

    for (int r = 0; r < ranks; r++)
        traces[r] = new_trace(r, ranks, how);
    while (in.left) {
        struct trace *t = traces[fuzz_u8(&in) % ranks];
        if (t->count == MOST_EVENTS)
            break;
        add_event(t, &in);
    }
    if (missing)
        trace_free(traces[--ranks]);
    for (int r = 0; r < ranks; r++)
        FUZZ_CHECK(trace_operations(traces[r]));
    FUZZ_CHECK(trace_set_make(&set, traces, (size_t)ranks));
    look(&set);
    trace_set_free(&set);
    return 0;
}

void fuzz_seeds(void)
{
    static struct fuzz_seed s;

    /* Every kind on both ranks; then a message that was sent and did not come. */
    for (unsigned how = 0; how < 4; how++) {
        fuzz_put_u8(&s, 1);
        fuzz_put_u8(&s, how * 5);
        for (unsigned kind = 0; kind <= SPR_EV_COUNT; kind++)
            for (unsigned rank = 0; rank < 2; rank++) {
                const uint8_t e[] = {(uint8_t)rank,
                                     (uint8_t)kind,
                                     (uint8_t)(2 - rank),
                                     10,
                                     0,
                                     (uint8_t)(how + 1),
                                     40,
                                     0,
                                     5};
                fuzz_put(&s, e, sizeof e);
            }
        char name[16];
        snprintf(name, sizeof name, "kinds_%u", how);
        fuzz_emit_seed(name, &s);
    }
    const uint8_t post[] = {66, 2, 0, SPR_EV_POST, 0, 1, 0, 1, 9, 0, 0};
    const uint8_t send[] = {0, SPR_EV_SEND, 2, 1, 0, 1, 9, 0, 0,
                            1, SPR_EV_FAIL, 1, 1, 0, 1, 1, 0, 0};
    fuzz_put(&s, post, sizeof post);
    fuzz_put(&s, send, sizeof send);
    fuzz_emit_seed("one_missing", &s);
}
