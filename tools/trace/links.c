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

enum { SENDS = 1, RECEIVES = 2 };

/* A rank, or one direction of its port. */
struct port {
    int rank, ways, pairs; /* that carried payloads */
    double rate;           /* of the fastest payload; -1: there was none */
};

/* The fastest payload of a rank, other than to or from one of its peers (-1: of all). */
static struct port measure_port(const struct pair *pairs, size_t count, int rank, int ways,
                                int without)
{
    struct port port = {rank, ways, 0, -1};

    for (size_t i = 0; i < count; i++) {
        const struct pair *p = &pairs[i];
        bool sends = (ways & SENDS) && p->from == rank && p->to != without;
        bool receives = (ways & RECEIVES) && p->to == rank && p->from != without;
        if (!sends && !receives)
            continue;
        port.pairs++;
        port.rate = p->rate > port.rate ? p->rate : port.rate;
    }
    return port;
}

/* What is so much slower is slow. */
#define FAR 4

/* Of the two ends of the slowest pair the one that is slower with its other peers, in the same
 * direction: others tell a slow sender from a slow receiver. Where one has no others that way, as
 * in a ring, it may be either, unless one of them is slow in the other direction, too. */
static int blame(const struct pair *pairs, size_t count, bool *either)
{
    int from = pairs[0].from, to = pairs[0].to;
    struct port sender = measure_port(pairs, count, from, SENDS, to);
    struct port receiver = measure_port(pairs, count, to, RECEIVES, from);

    *either = sender.pairs == 0 || receiver.pairs == 0;
    if (*either) {
        sender = measure_port(pairs, count, from, SENDS | RECEIVES, to);
        receiver = measure_port(pairs, count, to, SENDS | RECEIVES, from);
        *either = receiver.rate < 0 || sender.rate < 0 ||
                  (receiver.rate * FAR >= sender.rate && sender.rate * FAR >= receiver.rate);
    }
    return receiver.rate >= 0 && receiver.rate < sender.rate ? to : from;
}

static int compare_ports(const void *left, const void *right)
{
    const struct port *a = left, *b = right;

    return (a->rate > b->rate) - (a->rate < b->rate);
}

/* Is one of those that served at least so many pairs far slower than the median? */
static bool slow_port(struct port *ports, size_t used, int least, struct slow_link *slow)
{
    size_t i = 0;

    qsort(ports, used, sizeof *ports, compare_ports);
    while (i < used && ports[i].pairs < least)
        i++;
    if (used < 3 || i == used || ports[i].rate * FAR >= ports[used / 2].rate)
        return false;
    slow->rate = ports[i].rate;
    slow->others = ports[used / 2].rate;
    slow->culprit = ports[i].rank;
    slow->sends = ports[i].ways & SENDS;
    slow->receives = ports[i].ways & RECEIVES;
    return true;
}

/* A slow host, or its port in both directions or in one: in one, a port that served a single pair
 * is no more than that pair, and its other end as likely the cause. */
static bool slow_rank(const struct pair *pairs, size_t count, int size, struct slow_link *slow)
{
    struct port *ports = calloc(2 * (size_t)size, sizeof *ports);
    size_t used = 0;
    bool found = false;

    for (int r = 0; ports && r < size; r++) {
        ports[used] = measure_port(pairs, count, r, SENDS | RECEIVES, -1);
        used += ports[used].pairs > 0;
    }
    found = ports && slow_port(ports, used, 1, slow);
    used = 0;
    for (int i = 0; ports && !found && i < 2 * size; i++) {
        ports[used] = measure_port(pairs, count, i / 2, i % 2 ? RECEIVES : SENDS, -1);
        used += ports[used].pairs > 0;
    }
    found = found || (ports && slow_port(ports, used, 2, slow));
    free(ports);
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
                                   .pairs = count};
        slow->culprit = blame(pairs, count, &slow->either);
    }
    if (count > 1 && slow_rank(pairs, count, size, slow))
        found = true;
    else
        found = count > 1 && slow->rate * FAR < slow->others;
    free(pairs);
    return found;
}
