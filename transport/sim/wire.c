/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How long a frame takes: ports of hosts, uplinks of racks, memory inside a host.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/sim/private.h"

static uint64_t transfer_ns(double bandwidth, uint64_t bytes)
{
    return bandwidth > 0 ? (uint64_t)((double)bytes * 8e9 / bandwidth) : 0;
}

static uint64_t to_ns(double seconds) { return (uint64_t)(seconds * 1e9); }

/* The first that ends behind `ns`. */
static size_t ends_behind(const struct spr_sim_inlet *in, uint64_t ns)
{
    size_t low = 0, high = in->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (in->busy[middle].end_ns > ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void insert(struct spr_sim_inlet *in, size_t at, struct spr_sim_busy busy)
{
    bool joins_left = at > 0 && in->busy[at - 1].end_ns == busy.begin_ns;
    bool joins_right = at < in->count && in->busy[at].begin_ns == busy.end_ns;

    if (joins_left && joins_right) {
        in->busy[at - 1].end_ns = in->busy[at].end_ns;
        memmove(in->busy + at, in->busy + at + 1, (--in->count - at) * sizeof *in->busy);
    } else if (joins_left) {
        in->busy[at - 1].end_ns = busy.end_ns;
    } else if (joins_right) {
        in->busy[at].begin_ns = busy.begin_ns;
    } else {
        memmove(in->busy + at + 1, in->busy + at, (in->count++ - at) * sizeof *in->busy);
        in->busy[at] = busy;
    }
}

/* When a frame has been taken in whose first bytes are there at `begin`: that happens in the first
 * gap that is long enough. What leaves another port later is not waited for. */
static uint64_t take_in(struct spr_sim_inlet *in, uint64_t now, uint64_t begin, uint64_t transfer)
{
    size_t past, at;

    if (transfer == 0)
        return begin;
    past = ends_behind(in, now);
    if (in->count == in->capacity) {
        in->capacity = in->capacity ? 2 * in->capacity : 16;
        struct spr_sim_busy *busy = realloc(in->busy, in->capacity * sizeof *busy);
        if (!busy)
            abort();
        in->busy = busy;
    }
    in->count -= past;
    memmove(in->busy, in->busy + past, in->count * sizeof *in->busy);
    for (at = ends_behind(in, begin); at < in->count && in->busy[at].begin_ns < begin + transfer;
         at++)
        begin = in->busy[at].end_ns;
    insert(in, at, (struct spr_sim_busy){begin, begin + transfer});
    return begin + transfer;
}

/* A frame's last byte passes a place at `end_ns`, its first one `span_ns` before: as fast as the
 * slowest place so far. This one could do it in `transfer_ns`. */
struct passage {
    uint64_t end_ns, span_ns, transfer_ns;
};

/* ... and a port: it comes in as it leaves, and no faster than that. */
static void pass_port(struct passage *p, struct spr_sim_inlet *in, uint64_t now, uint64_t latency,
                      uint64_t transfer)
{
    uint64_t begin = p->end_ns + latency - spr_min_u64(transfer, p->span_ns);

    p->end_ns = take_in(in, now, begin, transfer);
    p->span_ns = transfer > p->span_ns ? transfer : p->span_ns;
    p->transfer_ns = transfer;
}

/* ... and an uplink, which may be faster than what comes in: its packets pass between those of
 * others as they come, so it may take any of the uplink's time since the first one. */
static void pass_uplink(struct passage *p, struct spr_sim_inlet *in, uint64_t now, uint64_t latency,
                        uint64_t transfer)
{
    uint64_t end = take_in(in, now, p->end_ns - p->span_ns + latency, transfer);

    p->end_ns = end > p->end_ns + latency ? end : p->end_ns + latency;
    p->span_ns = transfer > p->span_ns ? transfer : p->span_ns;
    p->transfer_ns = transfer;
}

static struct passage leave(struct spr_sim_port *port, uint64_t now, uint64_t transfer)
{
    uint64_t start = now > port->out_free_ns ? now : port->out_free_ns;

    port->out_free_ns = start + transfer;
    return (struct passage){start + transfer, transfer, transfer};
}

static struct passage across(struct spr_sim_rank *from, struct spr_sim_rank *to, uint64_t bytes,
                             uint64_t *left_ns)
{
    struct spr_sim *sim = from->sim;
    const struct spr_sim_options *o = &sim->options;
    uint64_t now = spr_sim_now_ns(sim), in = transfer_ns(spr_sim_bandwidth_in(to), bytes);
    int racks[] = {0, 0};
    struct passage p =
        leave(&sim->ports[from->host], now, transfer_ns(spr_sim_bandwidth_out(from), bytes));

    *left_ns = p.end_ns;
    if (sim->racks) {
        racks[0] = from->host / o->hosts_per_rack;
        racks[1] = to->host / o->hosts_per_rack;
    }
    if (racks[0] != racks[1]) {
        struct spr_sim_rack *up = &sim->racks[racks[0]], *down = &sim->racks[racks[1]];
        pass_uplink(&p, &up->up, now, 0, transfer_ns(up->bandwidth, bytes));
        pass_uplink(&p, &down->down, now, to_ns(o->rack_latency_s),
                    transfer_ns(down->bandwidth, bytes));
    }
    pass_port(&p, &sim->ports[to->host].in, now, to_ns(o->latency_s), in);
    return p;
}

static struct passage within(struct spr_sim_rank *from, struct spr_sim_rank *to, uint64_t bytes,
                             uint64_t *left_ns)
{
    const struct spr_sim_options *o = &from->sim->options;
    uint64_t now = spr_sim_now_ns(from->sim), transfer = transfer_ns(o->local_bandwidth, bytes);
    struct passage p = leave(&from->local, now, transfer);

    *left_ns = p.end_ns;
    pass_port(&p, &to->local.in, now, to_ns(o->local_latency_s), transfer);
    return p;
}

struct spr_sim_flight spr_sim_fly(struct spr_sim_rank *from, struct spr_sim_rank *to,
                                  struct spr_sim_link *l, uint64_t bytes)
{
    struct spr_sim *sim = from->sim;
    struct spr_sim_flight flight;
    uint64_t now = spr_sim_now_ns(sim), previous = l->last_arrival_ns, arrival;
    struct passage p = from->host == to->host ? within(from, to, bytes, &flight.left_ns)
                                              : across(from, to, bytes, &flight.left_ns);

    arrival = p.end_ns;
    /* Behind the port, so that one late frame does not hold up those of other links. */
    if (sim->options.jitter_s > 0)
        arrival += (uint64_t)(spr_rng_double(&sim->rng) * sim->options.jitter_s * 1e9);
    if (now >= l->delay_from_ns && now < l->delay_until_ns)
        arrival += l->delay_ns;
    if (arrival <= l->last_arrival_ns)
        arrival = l->last_arrival_ns + 1;
    l->last_arrival_ns = arrival;
    flight.arrival_ns = arrival;
    flight.first_ns = arrival - spr_min_u64(p.transfer_ns, arrival - previous - 1);
    return flight;
}

void spr_sim_wire(struct spr_sim *sim)
{
    const struct spr_sim_options *o = &sim->options;
    int per_host = o->ranks_per_host > 1 ? o->ranks_per_host : 1;
    double over = o->oversubscription > 0 ? o->oversubscription : 1;

    sim->hosts = (o->ranks + per_host - 1) / per_host;
    sim->ports = spr_sim_alloc((size_t)sim->hosts * sizeof *sim->ports);
    sim->hosts_traffic = spr_sim_alloc((size_t)sim->hosts * sizeof *sim->hosts_traffic);
    for (int i = 0; i < o->ranks; i++)
        sim->ranks[i].host = i / per_host;
    if (o->hosts_per_rack <= 0 || o->hosts_per_rack >= sim->hosts)
        return;
    sim->rack_count = (sim->hosts + o->hosts_per_rack - 1) / o->hosts_per_rack;
    sim->racks = spr_sim_alloc((size_t)sim->rack_count * sizeof *sim->racks);
    for (int i = 0; i < sim->rack_count; i++)
        sim->racks[i].bandwidth = o->hosts_per_rack * o->bandwidth / over;
}

void spr_sim_unwire(struct spr_sim *sim)
{
    for (int i = 0; i < sim->options.ranks; i++)
        free(sim->ranks[i].local.in.busy);
    for (int i = 0; i < sim->hosts; i++)
        free(sim->ports[i].in.busy);
    for (int i = 0; i < sim->rack_count; i++) {
        free(sim->racks[i].up.busy);
        free(sim->racks[i].down.busy);
    }
    free(sim->racks);
    free(sim->ports);
    free(sim->hosts_traffic);
}
