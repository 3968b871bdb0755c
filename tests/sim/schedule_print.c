/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Saying what was drawn.
 */
#include "base/util.h"
#include "tests/sim/schedules.h"

static const char *const kind_names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                         "barrier",   "sendrecv",       "sparse",    "compressed"};
static const char *const odd_names[] = {
    "all call the same", "another count", "another operation", "another call", "no call",
    "cancels",           "aborts"};
static const char *const fault_names[] = {
    "slow port", "delay", "late sent", "nap",      "kill",   "pause",
    "silence",   "break", "corrupt",   "truncate", "replay",
};
_Static_assert(SPR_ARRAY_LEN(kind_names) == SCHEDULE_KINDS, "names");
_Static_assert(SPR_ARRAY_LEN(odd_names) == SCHEDULE_ODDS, "names");
_Static_assert(SPR_ARRAY_LEN(fault_names) == SCHEDULE_FAULT_KINDS, "names");

static void print_operation(const struct schedule_operation *o, int k, FILE *out)
{
    fprintf(out, "  %d: %s of %zu %s, %s", k, kind_names[o->kind], o->count,
            spr_dtype_name(o->dtype), spr_op_name(o->op));
    if (o->kind == SCHEDULE_BROADCAST)
        fprintf(out, ", root %d", o->root);
    if (o->kind == SCHEDULE_SENDRECV)
        fprintf(out, ", shift %d", o->root);
    if (o->algorithm)
        fprintf(out, ", algorithm %s", o->algorithm);
    if (o->kind == SCHEDULE_SPARSE)
        fprintf(out, ", density %g%s", o->density, o->list ? ", as a list too" : "");
    fprintf(out, "%s%s\n", o->in_place ? ", in place" : "", o->whole ? ", whole numbers" : "");
}

static void print_fault(const struct schedule_fault *f, FILE *out)
{
    fprintf(out, "  %s: rank %d", fault_names[f->kind], f->rank);
    if (f->kind == SCHEDULE_DELAY || f->kind >= SCHEDULE_SILENCE)
        fprintf(out, " to %d", f->peer);
    if (f->kind >= SCHEDULE_CORRUPT)
        fprintf(out, ", frame %llu", (unsigned long long)f->nth);
    else
        fprintf(out, ", at %.3f us", (double)f->at_ns / 1e3);
    if (f->kind == SCHEDULE_DELAY || f->kind == SCHEDULE_NAP || f->kind == SCHEDULE_PAUSE)
        fprintf(out, " until %.3f us", (double)f->until_ns / 1e3);
    if (f->kind <= SCHEDULE_LATE)
        fprintf(out, ", %g %s", f->amount, f->kind == SCHEDULE_SLOW ? "bit/s" : "s");
    if (f->kind == SCHEDULE_BREAK)
        fprintf(out, ", seen by %s",
                !f->peer_sees ? "the first"
                : !f->sees    ? "the second"
                              : "both");
    fputc('\n', out);
}

void schedule_print(const struct schedule *s, FILE *out)
{
    fprintf(out,
            "SPARRING_SEED=%llu: %d ranks, latency %g s, jitter %g s, %g bit/s, deaths seen within "
            "%g s, eager %zu of %zu, timeout %g s%s%s\n",
            (unsigned long long)s->seed, s->ranks, s->links.latency_s, s->links.jitter_s,
            s->links.bandwidth, s->links.detect_s, s->eager_bytes, s->eager_window, s->timeout_s,
            s->links.memory ? ", links are memory" : "",
            s->leave ? ", ranks leave when they are done" : "");
    if (s->links.slots[1])
        fprintf(out, "slots of a link: %d small, %d large\n", s->links.slots[0], s->links.slots[1]);
    fprintf(out, "operations from #%u on (codec %s):\n", s->first, s->codec);
    for (int k = 0; k < s->operations; k++)
        print_operation(&s->operation[k], k, out);
    fprintf(out, "in flight at most, by rank:");
    for (int r = 0; r < s->ranks; r++)
        fprintf(out, " %d%s", s->depth[r], s->think_ns[r] ? " (late)" : "");
    fprintf(out, "\nmodel: %s, indices: %d, zstd: %d, determinism: %d",
            s->model ? s->model : "none", s->indices, s->zstd, s->determinism);
    fprintf(out, "\nbytes ahead of what is less urgent: %zu%s", s->priority_bytes,
            s->priority_bytes ? "; priorities, by rank:" : "");
    for (int r = 0; s->priority_bytes && r < s->ranks; r++) {
        for (int k = 0; k < s->operations; k++)
            fprintf(out, "%c%d", k ? ',' : ' ', schedule_priority(s, r, k));
    }
    fprintf(out, "\nhosts:");
    for (int r = 0; r < s->ranks; r++)
        fprintf(out, " %d", s->host[r]);
    fprintf(out, "; their racks:");
    for (int h = 0; h < s->ranks; h++)
        fprintf(out, " %d", s->rack[h]);
    fprintf(out, "; rates of links:");
    for (int r = 0; r < s->ranks; r++)
        fprintf(out, " %u", s->rate[r]);
    fprintf(out, "\nfaults: %s\n", s->faults ? "" : "none");
    for (int i = 0; i < s->faults; i++)
        print_fault(&s->fault[i], out);
    if (s->odd != SCHEDULE_EVEN)
        fprintf(out, "odd: rank %d, operation %d: %s\n", s->odd_rank, s->odd_operation,
                odd_names[s->odd]);
    if (s->odd >= SCHEDULE_OTHER_COUNT && s->odd <= SCHEDULE_OTHER_KIND)
        print_operation(&s->odd_call, s->odd_operation, out);
}
