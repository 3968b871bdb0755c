/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Events as text. The reader's side: what is printed may come from a file that anybody wrote.
 */
#include <inttypes.h>
#include <string.h>

#include <sparring/types.h>

#include "base/trace.h"
#include "base/util.h"

static const char *const event_names[SPR_EV_COUNT] = {
    [SPR_EV_NONE] = "none",           [SPR_EV_POST] = "post",   [SPR_EV_NAME] = "name",
    [SPR_EV_COMPLETE] = "complete",   [SPR_EV_SEND] = "send",   [SPR_EV_HOLD] = "hold",
    [SPR_EV_RECV] = "recv",           [SPR_EV_GRANT] = "grant", [SPR_EV_LINK_UP] = "link-up",
    [SPR_EV_LINK_DOWN] = "link-down", [SPR_EV_ABORT] = "abort", [SPR_EV_FALLBACK] = "fallback",
    [SPR_EV_LEFT] = "left",           [SPR_EV_SLOW] = "slow",   [SPR_EV_FAIL] = "fail",
    [SPR_EV_REJECT] = "mismatch",
};

const char *spr_event_name(enum spr_event_kind kind)
{
    return (unsigned)kind < SPR_EV_COUNT ? event_names[kind] : "unknown";
}

/* Copy what is printable, up to the end of either. */
static void copy_printable(char *to, const char *from, size_t bytes)
{
    size_t i = 0;

    for (; i < bytes && from[i] != '\0'; i++)
        to[i] = from[i] >= ' ' && from[i] < 0x7f ? from[i] : '?';
    to[i] = '\0';
}

void spr_trace_get_word(const struct spr_trace_header *header, uint64_t word,
                        char text[SPR_TRACE_WORD_BYTES])
{
    if (word > 0 && word < SPR_TRACE_WORDS && *header->words[word])
        copy_printable(text, header->words[word], SPR_TRACE_WORD_BYTES - 1);
    else
        memcpy(text, "?", 2);
}

void spr_trace_get_name(const struct spr_event *e, char name[SPR_TRACE_NAME_BYTES + 1])
{
    char bytes[SPR_TRACE_NAME_BYTES];

    memcpy(bytes, &e->a, 8);
    memcpy(bytes + 8, &e->b, 8);
    memcpy(bytes + 16, &e->c, 4);
    copy_printable(name, bytes, sizeof bytes);
}

static void print_post(const struct spr_trace_header *header, const struct spr_event *e, FILE *out)
{
    char collective[SPR_TRACE_WORD_BYTES], algorithm[SPR_TRACE_WORD_BYTES];

    spr_trace_get_word(header, e->a >> 24 & 0xff, collective);
    spr_trace_get_word(header, e->a & 0xff, algorithm);
    fprintf(out, " op=%" PRIu64 " %s elements=%" PRIu64 " dtype=%s reduction=%s algorithm=%s",
            e->a >> 32, collective, e->b, spr_dtype_name((int)(e->a >> 16 & 0xff)),
            spr_op_name((int)(e->a >> 8 & 0xff)), algorithm);
    fprintf(out, " descriptor=%08" PRIx32, e->c);
}

static void print_message(const struct spr_event *e, FILE *out)
{
    fprintf(out, " peer=%d op=%" PRIu64 " step=%" PRIu64, e->peer, e->a >> 32, e->a & UINT32_MAX);
    if (e->kind != SPR_EV_GRANT)
        fprintf(out, " bytes=%" PRIu64, e->b);
    if (e->kind == SPR_EV_HOLD && e->c)
        fputs(" for=priority", out);
}

static void print_word(const struct spr_trace_header *header, const struct spr_event *e, FILE *out)
{
    char word[SPR_TRACE_WORD_BYTES];

    spr_trace_get_word(header, e->a, word);
    if (e->peer >= 0)
        fprintf(out, " peer=%d", e->peer);
    fprintf(out, " transport=%s", word);
}

static void print_name(const struct spr_event *e, FILE *out)
{
    char name[SPR_TRACE_NAME_BYTES + 1];

    spr_trace_get_name(e, name);
    fprintf(out, " '%s'", name);
}

void spr_trace_print(const struct spr_trace_header *header, const struct spr_event *e, FILE *out)
{
    fprintf(out, "%-9s", spr_event_name((enum spr_event_kind)e->kind));
    switch (e->kind) {
    case SPR_EV_POST:
        print_post(header, e, out);
        break;
    case SPR_EV_NAME:
        print_name(e, out);
        break;
    case SPR_EV_COMPLETE:
        fprintf(out, " op=%" PRIu64 " status=%s us%s%" PRIu32, e->a,
                spr_status_name((spr_status)e->b), e->c < UINT32_MAX ? "=" : ">=", e->c / 1000);
        break;
    case SPR_EV_SEND:
    case SPR_EV_HOLD:
    case SPR_EV_RECV:
    case SPR_EV_GRANT:
        print_message(e, out);
        break;
    case SPR_EV_LINK_UP:
    case SPR_EV_FALLBACK:
        print_word(header, e, out);
        break;
    case SPR_EV_LINK_DOWN:
        fprintf(out, " peer=%d status=%s", e->peer, spr_status_name((spr_status)e->a));
        break;
    case SPR_EV_ABORT:
        fprintf(out, " peer=%d blamed=%d status=%s", e->peer, (int)e->a,
                spr_status_name((spr_status)e->b));
        break;
    case SPR_EV_LEFT:
    case SPR_EV_REJECT:
    case SPR_EV_SLOW:
        fprintf(out, " peer=%d op=%" PRIu64, e->peer, e->a);
        break;
    case SPR_EV_FAIL:
        fprintf(out, " blamed=%d op=%" PRIu64 " status=%s", e->peer, e->a,
                spr_status_name((spr_status)e->b));
        if (e->c)
            fprintf(out, " told-by=%" PRIu32, e->c - 1);
        break;
    default:
        fprintf(out, " peer=%d a=%" PRIx64 " b=%" PRIx64 " c=%" PRIx32, e->peer, e->a, e->b, e->c);
        break;
    }
}

void spr_trace_dump(const struct spr_trace *t, size_t most, FILE *out)
{
    uint64_t end = t->next;
    uint64_t n = spr_min_u64(spr_min_u64(end, SPR_TRACE_EVENTS), most);

    for (uint64_t i = end - n; i < end; i++) {
        const struct spr_event *e = &t->ring[i % SPR_TRACE_EVENTS];

        fprintf(out, "%" PRIu64 ".%09" PRIu64 " ", e->ns / 1000000000u, e->ns % 1000000000u);
        spr_trace_print(t->header, e, out);
        fputc('\n', out);
    }
}
