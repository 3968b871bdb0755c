/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/trace/trace.h"

static int compare_times(const void *left, const void *right)
{
    const struct merged *a = left, *b = right;
    uint64_t x = trace_time(a->trace, a->event), y = trace_time(b->trace, b->event);

    if (x != y)
        return x < y ? -1 : 1;
    if (a->trace != b->trace)
        return a->trace->header.rank < b->trace->header.rank ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

struct merged *trace_merge(const struct trace_set *set, int rank, size_t *count)
{
    struct merged *all;
    size_t room = 1;

    *count = 0;
    for (int r = 0; r < set->size; r++)
        room += set->ranks[r] ? set->ranks[r]->count : 0;
    all = calloc(room, sizeof *all);
    for (int r = 0; all && r < set->size; r++) {
        const struct trace *t = set->ranks[r];
        for (size_t i = 0; t && (rank < 0 || rank == r) && i < t->count; i++)
            all[(*count)++] = (struct merged){t, &t->events[i]};
    }
    if (all)
        qsort(all, *count, sizeof *all, compare_times);
    return all;
}

void trace_dump(const struct trace_set *set, int rank, size_t most, FILE *out)
{
    size_t count;
    struct merged *all = trace_merge(set, rank, &count);

    for (int r = 0; r < set->size; r++)
        if (set->ranks[r] && set->ranks[r]->header.failed && (rank < 0 || rank == r))
            fprintf(out, "# rank %d: %s\n", r, set->ranks[r]->header.text);
    for (size_t i = count > most ? count - most : 0; all && i < count; i++) {
        uint64_t ns = trace_time(all[i].trace, all[i].event);
        fprintf(out, "%" PRIu64 ".%09" PRIu64 " rank %d ", ns / 1000000000u, ns % 1000000000u,
                all[i].trace->header.rank);
        spr_trace_print(&all[i].trace->header, all[i].event, out);
        fputc('\n', out);
    }
    free(all);
}
