/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/trace.h"

#include <inttypes.h>

#include <sparring/status.h>

#include "base/util.h"

static const char *const event_names[SPR_EV_COUNT] = {
    [SPR_EV_NONE] = "none",   [SPR_EV_POST] = "post",         [SPR_EV_COMPLETE] = "complete",
    [SPR_EV_SEND] = "send",   [SPR_EV_SENT] = "sent",         [SPR_EV_RECV] = "recv",
    [SPR_EV_GRANT] = "grant", [SPR_EV_LINK_UP] = "link-up",   [SPR_EV_LINK_DOWN] = "link-down",
    [SPR_EV_ABORT] = "abort", [SPR_EV_FALLBACK] = "fallback",
};

const char *spr_event_name(enum spr_event_kind kind)
{
    return (unsigned)kind < SPR_EV_COUNT ? event_names[kind] : "unknown";
}

static void dump_event(const struct spr_event *e, FILE *out)
{
    fprintf(out, "%" PRIu64 ".%09" PRIu64 " %-9s", e->ns / 1000000000u, e->ns % 1000000000u,
            spr_event_name((enum spr_event_kind)e->kind));
    switch (e->kind) {
    case SPR_EV_POST:
        fprintf(out, " op=%" PRIu64 " kind=%" PRIu64 " algorithm=%" PRIu64 " bytes=%" PRIu32, e->a,
                e->b >> 32, e->b & UINT32_MAX, e->c);
        break;
    case SPR_EV_COMPLETE:
        fprintf(out, " op=%" PRIu64 " status=%s ns=%" PRIu32, e->a,
                spr_status_name((spr_status)e->b), e->c);
        break;
    case SPR_EV_SEND:
    case SPR_EV_RECV:
        fprintf(out, " peer=%d tag=%" PRIx64 " bytes=%" PRIu64, e->peer, e->a, e->b);
        break;
    case SPR_EV_SENT:
    case SPR_EV_GRANT:
        fprintf(out, " peer=%d tag=%" PRIx64, e->peer, e->a);
        break;
    case SPR_EV_LINK_UP:
        fprintf(out, " peer=%d", e->peer);
        break;
    case SPR_EV_LINK_DOWN:
        fprintf(out, " peer=%d status=%s", e->peer, spr_status_name((spr_status)e->a));
        break;
    case SPR_EV_ABORT:
        fprintf(out, " peer=%d blamed=%" PRId64, e->peer, (int64_t)e->a);
        break;
    default:
        fprintf(out, " peer=%d a=%" PRIu64 " b=%" PRIu64 " c=%" PRIu32, e->peer, e->a, e->b, e->c);
        break;
    }
    fputc('\n', out);
}

void spr_trace_dump(const struct spr_trace *t, size_t most, FILE *out)
{
    uint64_t end = t->next;
    uint64_t n = spr_min_u64(spr_min_u64(end, SPR_TRACE_EVENTS), most);

    for (uint64_t i = end - n; i < end; i++) {
        struct spr_event copy = t->events[i % SPR_TRACE_EVENTS];

        dump_event(&copy, out);
    }
}
