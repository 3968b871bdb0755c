/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How fast payloads came over each pair of ranks: the bytes that arrived over the time that any was
 * under way. A payload that had not come counts its time and no bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

struct pair {
    int from, to;
    double bytes, seconds, rate;
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

/* Messages of a link keep their order, so the time under way is summed up front to back. */
static struct pair measure(const struct trace *from, const struct trace *to, uint32_t operation,
                           uint64_t until_ns)
{
    struct pair pair = {.from = from->header.rank, .to = to->header.rank};
    size_t cursor = 0;
    uint64_t busy_until = 0;

    for (size_t i = 0; i < from->count; i++) {
        const struct spr_event *sent = &from->events[i], *came;
        uint64_t begin, end;
        if (sent->kind != SPR_EV_SEND || sent->peer != pair.to || sent->a >> 32 != operation)
            continue;
        begin = trace_time(from, sent);
        came = arrival(to, pair.from, sent->a, &cursor);
        end = came ? trace_time(to, came) : until_ns;
        if (begin > until_ns)
            break;
        if (came && end <= until_ns)
            pair.bytes += (double)sent->b;
        end = end < until_ns ? end : until_ns;
        begin = begin > busy_until ? begin : busy_until;
        if (end > begin)
            pair.seconds += (double)(end - begin) / 1e9;
        busy_until = end > busy_until ? end : busy_until;
    }
    pair.rate = pair.seconds > 0 ? pair.bytes / pair.seconds : -1;
    return pair;
}

static int compare_rates(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;

    return (a->rate > b->rate) - (a->rate < b->rate);
}

/* Of the two ends the one whose other links are slower: a slow host shows on all of them. */
static int blame(const struct pair *pairs, size_t count)
{
    double bytes[2] = {0}, seconds[2] = {0};
    const int ends[2] = {pairs[0].from, pairs[0].to};

    for (size_t i = 0; i < count; i++) {
        const struct pair *p = &pairs[i];
        for (int e = 0; e < 2; e++) {
            bool here = p->from == ends[e] || p->to == ends[e];
            bool both = (p->from == ends[0] && p->to == ends[1]) ||
                        (p->from == ends[1] && p->to == ends[0]);
            if (!here || both)
                continue;
            bytes[e] += p->bytes;
            seconds[e] += p->seconds;
        }
    }
    return bytes[1] * seconds[0] < bytes[0] * seconds[1] ? ends[1] : ends[0];
}

bool trace_slow_link(const struct trace_set *set, uint32_t operation, uint64_t until_ns,
                     struct slow_link *slow)
{
    enum { MOST_RANKS = 256 };
    int size = set->size < MOST_RANKS ? set->size : MOST_RANKS;
    struct pair *pairs = calloc((size_t)size * (size_t)size, sizeof *pairs);
    size_t count = 0;

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
        *slow = (struct slow_link){pairs[0].from,         pairs[0].to, pairs[0].rate,
                                   pairs[count / 2].rate, count,       blame(pairs, count)};
    }
    free(pairs);
    return count > 1 && slow->rate * 4 < slow->others;
}
