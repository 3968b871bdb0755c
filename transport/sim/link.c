/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The link operations, simulated.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/sim/private.h"

static struct spr_sim_rank *rank_of(struct spr_transport *t)
{
    return spr_container_of(t, struct spr_sim_rank, transport);
}

spr_status spr_sim_open(struct spr_sim *sim, const struct spr_transport_params *params,
                        struct spr_transport **transport)
{
    struct spr_sim_rank *r = &sim->ranks[params->rank];

    if (r->opened)
        return SPR_ERR_INVALID;
    r->transport = (struct spr_transport){&sim->ops, *params};
    r->opened = true;
    *transport = &r->transport;
    return SPR_OK;
}

static spr_status sim_connect(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                              struct spr_link **link, struct spr_error *error)
{
    struct spr_sim_rank *r = rank_of(t);
    struct spr_sim_link *l = spr_sim_link_to(r, peer);

    (void)info;
    (void)error;
    l->link = (struct spr_link){t, peer, SPR_LINK_CONNECTING, NULL};
    spr_list_push_back(&r->connecting, &l->node);
    *link = &l->link;
    return SPR_OK;
}

/* Sending -------------------------------------------------------------------------------------- */

/* A liar's has no place. */
static bool is_placed(const struct spr_tx *tx)
{
    return tx->header.flags & SPR_FRAME_PLACED && tx->place.address;
}

static int slot_of(const struct spr_sim_rank *r, const struct spr_tx *tx)
{
    return !is_placed(tx) && tx->header.bytes > r->sim->options.small_bytes;
}

/* The frame on the wire, as two events of the receiver: the header is there when the first bytes
 * are, and things may happen before the last one comes. */
static void put_on_wire(struct spr_sim_rank *r, struct spr_sim_rank *to, struct spr_sim_link *l,
                        const struct spr_tx *tx, const struct spr_sim_flight *flight)
{
    struct spr_sim_event *head = spr_sim_event_new(to, SPR_SIM_HEADER, flight->first_ns, r->rank);
    struct spr_sim_event *e = spr_sim_event_new(to, SPR_SIM_PAYLOAD, flight->arrival_ns, r->rank);

    e->slot = slot_of(r, tx);
    e->slotted = r->sim->options.slots[e->slot] > 0;
    head->header = e->header = tx->header;
    if (tx->header.bytes) {
        e->data = malloc(tx->header.bytes);
        if (!e->data)
            abort();
        memcpy(e->data, tx->data, tx->header.bytes);
    }
    spr_sim_damage(r->sim, l, to, head, e);
    if (!is_placed(tx))
        return;
    /* The payload comes first, then the header. */
    head->data = e->data;
    head->place = tx->place.address;
    head->whole = e->truncated ? e->whole : tx->header.bytes;
    head->truncated |= e->truncated;
    e->data = NULL;
    e->truncated = false;
}

static void count_one(struct spr_sim_traffic *from, struct spr_sim_traffic *to, uint64_t bytes,
                      bool lost)
{
    from->sent_frames++;
    from->sent_bytes += bytes;
    to->received_bytes += lost ? 0 : bytes;
}

/* A frame, at each level that it leaves. */
static void count(struct spr_sim_rank *from, struct spr_sim_rank *to, uint64_t bytes, bool lost)
{
    struct spr_sim *sim = from->sim;
    int a, b;

    count_one(&from->traffic, &to->traffic, bytes, lost);
    if (from->host == to->host)
        return;
    count_one(&sim->hosts_traffic[from->host], &sim->hosts_traffic[to->host], bytes, lost);
    if (sim->rack_count == 0)
        return;
    a = from->host / sim->options.hosts_per_rack;
    b = to->host / sim->options.hosts_per_rack;
    if (a != b)
        count_one(&sim->racks[a].traffic, &sim->racks[b].traffic, bytes, lost);
}

static bool has_failed(const struct spr_sim_link *l)
{
    return l->killed || l->link.state == SPR_LINK_DOWN;
}

static void leave(struct spr_sim_rank *r, struct spr_sim_link *l, struct spr_tx *tx)
{
    struct spr_sim_rank *to = &r->sim->ranks[l->link.peer];
    uint64_t bytes = SPR_FRAME_BYTES + tx->header.bytes;
    struct spr_sim_flight flight = {.left_ns = spr_sim_now_ns(r->sim)};
    bool failed = has_failed(l);
    bool silent = spr_sim_is_silent(r->sim, r->rank, to->rank, flight.left_ns);
    bool lost = failed || silent || spr_sim_killed(to);
    struct spr_sim_event *sent;

    l->vanished |= lost && !failed;
    if (!lost)
        flight = spr_sim_fly(r, to, l, bytes);
    if (r->late_s > 0 && !failed)
        flight.left_ns += (uint64_t)(spr_rng_double(&r->sim->rng) * r->late_s * 1e9);
    sent = spr_sim_event_new(r, SPR_SIM_SENT, flight.left_ns, to->rank);
    sent->tx = tx;
    tx->failed = failed;
    count(r, to, bytes, lost || to->closed);
    r->transport.params.counters->sent_bytes += bytes;
    r->transport.params.counters->sent_frames++;
    l->frames++;
    if (!lost && !to->closed)
        put_on_wire(r, to, l, tx, &flight);
}

/* What has a slot, or needs none. */
static void leave_in_turn(struct spr_sim_rank *r, struct spr_sim_link *l)
{
    while (l->first) {
        struct spr_tx *tx = l->first;
        int slot = slot_of(r, tx), slots = r->sim->options.slots[slot];
        if (slots > 0 && !has_failed(l)) {
            if (l->taken[slot] == slots)
                return;
            l->taken[slot]++;
        }
        l->first = tx->next;
        leave(r, l, tx);
    }
    l->last = &l->first;
}

static void sim_send(struct spr_link *link, struct spr_tx *tx)
{
    struct spr_sim_rank *r = rank_of(link->transport);
    struct spr_sim_link *l = r->links[link->peer];

    tx->next = NULL;
    *l->last = tx;
    l->last = &tx->next;
    l->unsent++;
    leave_in_turn(r, l);
}

/* Receiving ------------------------------------------------------------------------------------ */

static void link_down(struct spr_sim_rank *r, struct spr_sim_link *l, spr_status why,
                      const char *text)
{
    if (l->reported || l->killed || l->link.state == SPR_LINK_DOWN)
        return;
    l->reported = true;
    l->link.state = SPR_LINK_DOWN;
    r->transport.params.events->down(&l->link, why, text);
    spr_sim_return_unsent(r, l);
}

static void deliver_header(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim_link *l = spr_sim_link_to(r, e->peer);
    spr_status status;

    if (l->killed || l->link.state != SPR_LINK_UP)
        return;
    if (e->data)
        memcpy((void *)(uintptr_t)e->place, e->data, e->whole);
    if (e->truncated) {
        link_down(r, l, SPR_ERR_LINK, "end of file within a header");
        return;
    }
    l->rx = (struct spr_rx){.sink = SPR_SINK_DROP};
    status = r->transport.params.events->header(&l->link, &e->header, &l->rx);
    if (status)
        link_down(r, l, status, spr_status_string(status));
}

/* Returns true when the layer above keeps the event's data. */
static bool deliver_payload(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim_link *l = spr_sim_link_to(r, e->peer);
    const struct spr_link_events *up = r->transport.params.events;
    bool lent = l->rx.lend && r->sim->options.memory; /* where that takes nothing */

    if (l->killed || l->link.state != SPR_LINK_UP)
        return false;
    if (l->rx.sink == SPR_SINK_INTO && !lent && e->data)
        memcpy(l->rx.into, e->data, e->truncated ? e->whole : e->header.bytes);
    if (e->truncated) {
        link_down(r, l, SPR_ERR_LINK, "end of file within a payload");
        return false;
    }
    r->transport.params.counters->received_bytes += SPR_FRAME_BYTES + e->header.bytes;
    r->transport.params.counters->received_frames++;
    if ((l->rx.sink == SPR_SINK_BORROW || lent) && e->data) {
        spr_list_push_back(&r->borrowed, &e->node);
        up->payload(&l->link, &e->header, e->data, e);
        return true;
    }
    if (l->rx.sink == SPR_SINK_INTO) {
        up->payload(&l->link, &e->header, l->rx.into, NULL);
    } else {
        up->payload(&l->link, &e->header, NULL, NULL);
    }
    return false;
}

/* The end of an event. Its slot is free again when word of that has come to the peer. */
static void done_with(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim *sim = r->sim;
    struct spr_sim_rank *from = &sim->ranks[e->peer];
    uint64_t now = spr_sim_now_ns(sim);

    if (e->slotted && !from->closed && !spr_sim_link_to(r, e->peer)->killed &&
        !spr_sim_is_silent(sim, r->rank, e->peer, now))
        spr_sim_event_new(from, SPR_SIM_ROOM, now + (uint64_t)(sim->options.latency_s * 1e9),
                          r->rank)
            ->slot = e->slot;
    spr_sim_event_free(e);
}

/* A peer's death: its frames under way may still come before the end of file, or never. Returns
 * true when the event is put off. */
static bool deliver_death(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim *sim = r->sim;
    struct spr_sim_link *l = spr_sim_link_to(r, e->peer);
    uint64_t last = spr_sim_link_to(&sim->ranks[e->peer], r->rank)->last_arrival_ns;

    if (!l->link.transport || spr_sim_is_silent(sim, e->peer, r->rank, sim->ranks[e->peer].kill_ns))
        return false;
    if (last > e->ns && !sim->options.choose && spr_rng_below(&sim->rng, 2)) {
        e->ns = last + 1;
        spr_sim_event_push(r, e);
        return true;
    }
    link_down(r, l, SPR_ERR_RANK_LOST, "end of file");
    return false;
}

/* Returns true when the event lives on. */
static bool deliver(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim_link *l = spr_sim_link_to(r, e->peer);

    switch (e->kind) {
    case SPR_SIM_SENT:
        l->unsent--;
        r->transport.params.events->sent(&l->link, e->tx);
        return false;
    case SPR_SIM_ROOM:
        l->taken[e->slot]--;
        leave_in_turn(r, l);
        return false;
    case SPR_SIM_HEADER:
        deliver_header(r, e);
        return false;
    case SPR_SIM_PAYLOAD:
        return deliver_payload(r, e);
    case SPR_SIM_DIED:
        return deliver_death(r, e);
    default:
        if (l->link.transport)
            link_down(r, l, e->kind == SPR_SIM_CLOSED ? SPR_ERR_RANK_LOST : SPR_ERR_LINK,
                      e->kind == SPR_SIM_CLOSED ? "end of file" : "connection reset by peer");
        return false;
    }
}

static int connect_links(struct spr_sim_rank *r)
{
    int n = 0;

    while (!spr_list_empty(&r->connecting)) {
        struct spr_sim_link *l = spr_list_entry(r->connecting.next, struct spr_sim_link, node);
        spr_list_remove(&l->node);
        if (l->link.state != SPR_LINK_CONNECTING || l->killed)
            continue;
        l->link.state = SPR_LINK_UP;
        r->transport.params.events->up(&l->link);
        n++;
    }
    return n;
}

static int sim_progress(struct spr_transport *t)
{
    struct spr_sim_rank *r = rank_of(t);
    int n;

    if (!spr_sim_runs(r->sim, r->rank))
        return 0;
    n = connect_links(r);
    while (r->count && r->heap[0].ns <= spr_sim_now_ns(r->sim)) {
        struct spr_sim_event *e = spr_sim_event_pop(r);
        if (!deliver(r, e))
            done_with(r, e);
        n++;
    }
    return n;
}

static bool sim_expose(struct spr_link *link, void *memory, size_t bytes, struct spr_place *place)
{
    const struct spr_sim_rank *r = rank_of(link->transport);
    const char *m = memory;

    for (size_t i = 0; i < r->range_count; i++) {
        const struct spr_sim_range *range = &r->ranges[i];
        if (m < range->memory || m + bytes > range->memory + range->bytes)
            continue;
        place->address = (uintptr_t)memory;
        return true;
    }
    return false;
}

static void sim_release(struct spr_link *link, void *token)
{
    struct spr_sim_event *e = token;

    spr_list_remove(&e->node);
    done_with(rank_of(link->transport), e);
}

/* Ending --------------------------------------------------------------------------------------- */

static void sim_kill(struct spr_link *link)
{
    struct spr_sim_rank *r = rank_of(link->transport), *to = &r->sim->ranks[link->peer];
    struct spr_sim_link *l = r->links[link->peer];
    uint64_t now = spr_sim_now_ns(r->sim);

    if (l->killed)
        return;
    l->killed = true;
    link->state = SPR_LINK_DOWN;
    spr_sim_return_unsent(r, l);
    if (!to->closed && !spr_sim_is_silent(r->sim, r->rank, to->rank, now))
        spr_sim_event_new(to, SPR_SIM_CLOSED,
                          l->last_arrival_ns > now ? l->last_arrival_ns + 1 : now + 1, r->rank);
}

static void sim_address(struct spr_transport *t, void *address)
{
    (void)t;
    memset(address, 0, SPR_ADDRESS_BYTES);
}

static const char *sim_unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    (void)mine;
    (void)peer;
    return NULL;
}

static spr_status sim_unopened(const struct spr_transport_params *params,
                               struct spr_transport **transport, struct spr_error *error)
{
    (void)params;
    (void)transport;
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1, "sim is opened with spr_sim_open");
}

static int sim_fd(struct spr_transport *t)
{
    (void)t;
    return -1;
}

static spr_status sim_arm(struct spr_transport *t)
{
    struct spr_sim_rank *r = rank_of(t);

    return r->count && r->heap[0].ns <= spr_sim_now_ns(r->sim) ? SPR_IN_PROGRESS : SPR_OK;
}

static bool sim_idle(struct spr_transport *t)
{
    struct spr_sim_rank *r = rank_of(t);

    for (int i = 0; i < r->sim->options.ranks; i++)
        if (r->links[i] && r->links[i]->unsent)
            return false;
    return true;
}

/* Frames under way may be lost with their sender; those that vanished are never acknowledged. Where
 * time stands still, what is sent arrives. */
static bool sim_delivered(struct spr_link *link)
{
    const struct spr_sim_rank *r = rank_of(link->transport);
    const struct spr_sim_link *l = r->links[link->peer];

    return !l->first && (r->sim->options.choose ||
                         (!l->vanished && l->last_arrival_ns <= spr_sim_now_ns(r->sim)));
}

/* No upcalls any more, so what was handed over is not touched: its owner may have freed it. */
static void sim_close(struct spr_transport *t)
{
    struct spr_sim_rank *r = rank_of(t);

    while (r->count)
        spr_sim_event_free(spr_sim_event_pop(r));
    spr_sim_choice_drop(r);
    for (int i = 0; i < r->sim->options.ranks; i++) {
        if (!r->links[i])
            continue;
        r->links[i]->unsent = 0;
        r->links[i]->first = NULL;
        if (r->links[i]->link.transport)
            sim_kill(&r->links[i]->link);
    }
    while (!spr_list_empty(&r->borrowed)) {
        struct spr_sim_event *e = spr_list_entry(r->borrowed.next, struct spr_sim_event, node);
        spr_list_remove(&e->node);
        spr_sim_event_free(e);
    }
    r->closed = true;
}

static spr_status sim_register(struct spr_transport *t, void *memory, size_t bytes, bool writable)
{
    struct spr_sim_rank *r = rank_of(t);

    if (!r->sim->options.place || !writable)
        return SPR_ERR_UNSUPPORTED;
    r->ranges = realloc(r->ranges, (r->range_count + 1) * sizeof *r->ranges);
    if (!r->ranges)
        abort();
    r->ranges[r->range_count++] = (struct spr_sim_range){memory, bytes};
    return SPR_OK;
}

static void sim_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    struct spr_sim_rank *r = rank_of(t);
    size_t i = 0;

    (void)bytes;
    while (i < r->range_count && r->ranges[i].memory != memory)
        i++;
    if (i < r->range_count)
        r->ranges[i] = r->ranges[--r->range_count];
}

const struct spr_transport_ops spr_sim_ops = {
    .name = "sim",
    .narrow = true,
    .open = sim_unopened,
    .address = sim_address,
    .unusable = sim_unusable,
    .connect = sim_connect,
    .send = sim_send,
    .expose = sim_expose,
    .release = sim_release,
    .kill = sim_kill,
    .progress = sim_progress,
    .fd = sim_fd,
    .arm = sim_arm,
    .idle = sim_idle,
    .delivered = sim_delivered,
    .close = sim_close,
    .mem_register = sim_register,
    .mem_deregister = sim_deregister,
};
