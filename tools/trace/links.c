/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How fast payloads came over each pair of ranks: that of the fastest one counts. A collective goes
 * at the pace of its slowest link, and payloads wait behind others, so the average is bad
 * everywhere; but over a good link one payload at least found the way free.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

struct pair {
    int from, to;
    double rate; /* bytes/s of the fastest payload; -1: there was none */
};

static const struct spr_event *arrival(const struct trace *to, int from, uint64_t tag,
                                       size_t *cursor)
{
    for (size_t i = *cursor; i < to->count; i++) {
        const struct spr_event *e = &to->events[i];
        if (e->kind != SPR_EV_RECV || e->peer != from || e->a != tag)
            continue;
        *cursor = i + 1;
        return e;
    }
    return NULL;
}

/* A payload that had not come counts as if it came at the end. */
static struct pair measure(const struct trace *from, const struct trace *to, uint32_t operation,
                           uint64_t until_ns)
{
    struct pair pair = {.from = from->header.rank, .to = to->header.rank, .rate = -1};
    size_t cursor = 0;

    for (size_t i = 0; i < from->count; i++) {
        const struct spr_event *sent = &from->events[i], *came;
        uint64_t begin, end;
        double rate;
        if (sent->kind != SPR_EV_SEND || sent->peer != pair.to || sent->a >> 32 != operation)
            continue;
        begin = trace_time(from, sent);
        came = arrival(to, pair.from, sent->a, &cursor);
        end = came && trace_time(to, came) < until_ns ? trace_time(to, came) : until_ns;
        if (begin >= end)
            continue;
        rate = (double)sent->b * 1e9 / (double)(end - begin);
        pair.rate = rate > pair.rate ? rate : pair.rate;
    }
    return pair;
}

static int compare_rates(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;

    return (a->rate > b->rate) - (a->rate < b->rate);
}

/* The fastest payload from or to a rank, but for those of the slowest pair. */
static double best_of(const struct pair *pairs, size_t count, int rank, bool all)
{
    double best = -1;

    for (size_t i = 0; i < count; i++) {
        const struct pair *p = &pairs[i];
        bool slowest = (p->from == pairs[0].from && p->to == pairs[0].to) ||
                       (p->from == pairs[0].to && p->to == pairs[0].from);
        if ((p->from == rank || p->to == rank) && (all || !slowest) && p->rate > best)
            best = p->rate;
    }
    return best;
}

/* Of the two ends of the slowest pair the one whose other links are slower. */
static int blame(const struct pair *pairs, size_t count)
{
    double from = best_of(pairs, count, pairs[0].from, false);
    double to = best_of(pairs, count, pairs[0].to, false);

    return to >= 0 && to < from ? pairs[0].to : pairs[0].from;
}

/* A slow host or port: the best link of one rank against the median of the ranks. */
static bool slow_rank(const struct pair *pairs, size_t count, int size, struct slow_link *slow)
{
    struct pair *ranks = calloc((size_t)size, sizeof *ranks);
    int used = 0;
    bool found = false;

    for (int r = 0; ranks && r < size; r++) {
        ranks[used] = (struct pair){r, r, best_of(pairs, count, r, true)};
        used += ranks[used].rate >= 0;
    }
    if (used > 2) {
        qsort(ranks, (size_t)used, sizeof *ranks, compare_rates);
        found = ranks[0].rate * 4 < ranks[used / 2].rate;
    }
    if (found) {
        *slow = (struct slow_link){.rate = ranks[0].rate,
                                   .others = ranks[used / 2].rate,
                                   .pairs = count,
                                   .culprit = ranks[0].from,
                                   .whole = true};
    }
    free(ranks);
    return found;
}

bool trace_slow_link(const struct trace_set *set, uint32_t operation, uint64_t until_ns,
                     struct slow_link *slow)
{
    enum { MOST_RANKS = 256 };
    int size = set->size < MOST_RANKS ? set->size : MOST_RANKS;
    struct pair *pairs = calloc((size_t)size * (size_t)size, sizeof *pairs);
    size_t count = 0;
    bool found;

    for (int a = 0; pairs && a < size; a++)
        for (int b = 0; b < size; b++) {
            if (a == b || !set->ranks[a] || !set->ranks[b])
                continue;
            pairs[count] = measure(set->ranks[a], set->ranks[b], operation, until_ns);
            count += pairs[count].rate >= 0;
        }
    *slow = (struct slow_link){.pairs = count};
    if (count > 0) {
        qsort(pairs, count, sizeof *pairs, compare_rates);
        *slow = (struct slow_link){.from = pairs[0].from,
                                   .to = pairs[0].to,
                                   .rate = pairs[0].rate,
                                   .others = pairs[count / 2].rate,
                                   .pairs = count,
                                   .culprit = blame(pairs, count)};
    }
    if (count > 1 && slow_rank(pairs, count, size, slow))
        found = true;
    else
        found = count > 1 && slow->rate * 4 < slow->others;
    free(pairs);
    return found;
}
