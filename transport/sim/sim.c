/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/sim/sim.h"

#include <assert.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"

#define NEVER UINT64_MAX

enum kind { HEADER, PAYLOAD, SENT, DOWN };

/* Something that happens to a rank at a time. */
struct event {
    uint64_t ns, order; /* order breaks ties */
    enum kind kind;
    int peer;
    struct spr_tx *tx; /* SENT */
    struct spr_frame header;
    char *data;               /* PAYLOAD: own copy, or NULL */
    struct spr_list borrowed; /* on sim_rank.borrowed while the layer above keeps the data */
};

struct sim_link {
    struct spr_link link;
    uint64_t last_arrival_ns; /* at the peer: keeps the link in order */
    uint64_t frames;          /* sent so far */
    uint64_t corrupt_nth;     /* NEVER: none */
    struct spr_rx rx;         /* where the payload goes whose header has arrived */
    bool cut, killed, reported;
};

struct sim_rank {
    struct spr_transport transport;
    struct spr_sim *sim;
    int rank;
    bool opened, closed;
    uint64_t kill_ns, pause_from_ns, pause_until_ns;
    double bandwidth;
    uint64_t out_free_ns, in_free_ns; /* the port is busy until then */
    uint64_t sent_bytes;
    struct sim_link *links; /* [ranks] */
    struct spr_list borrowed;
    struct event **heap; /* by (ns, order) */
    size_t count, capacity;
};

struct spr_sim {
    struct spr_sim_options options;
    struct spr_virtual_clock virtual_clock;
    struct spr_clock clock;
    struct spr_rng rng;
    uint64_t order;
    struct sim_rank *ranks;
};

static const struct spr_transport_ops sim_ops;

/* Events --------------------------------------------------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

static bool heap_push(struct sim_rank *r, struct event *e)
{
    size_t i;

    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        struct event **heap = spr_realloc(r->heap, capacity * sizeof *heap);
        if (!heap)
            return false;
        r->heap = heap;
        r->capacity = capacity;
    }
    for (i = r->count++; i > 0 && before(e, r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = e;
    return true;
}

static struct event *heap_pop(struct sim_rank *r)
{
    struct event *top = r->heap[0], *last = r->heap[--r->count];
    size_t i = 0;

    while (2 * i + 1 < r->count) {
        size_t child = 2 * i + 1;
        if (child + 1 < r->count && before(r->heap[child + 1], r->heap[child]))
            child++;
        if (!before(r->heap[child], last))
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    if (r->count)
        r->heap[i] = last;
    return top;
}

static struct event *new_event(struct sim_rank *r, enum kind kind, uint64_t ns, int peer)
{
    struct event *e = spr_calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->kind = kind;
    e->ns = ns;
    e->order = r->sim->order++;
    e->peer = peer;
    if (!heap_push(r, e)) {
        spr_free(e);
        return NULL;
    }
    return e;
}

static void free_event(struct event *e)
{
    spr_free(e->data);
    spr_free(e);
}

/* World ---------------------------------------------------------------------------------------- */

struct spr_sim *spr_sim_create(const struct spr_sim_options *options)
{
    struct spr_sim *sim = spr_calloc(1, sizeof *sim);

    if (!sim)
        return NULL;
    sim->options = *options;
    sim->clock = spr_clock_virtual(&sim->virtual_clock);
    sim->rng = (struct spr_rng){options->seed, 0};
    sim->ranks = spr_calloc((size_t)options->ranks, sizeof *sim->ranks);
    if (!sim->ranks) {
        spr_free(sim);
        return NULL;
    }
    for (int i = 0; i < options->ranks; i++) {
        struct sim_rank *r = &sim->ranks[i];
        r->sim = sim;
        r->rank = i;
        spr_list_init(&r->borrowed);
        r->kill_ns = r->pause_from_ns = NEVER;
        r->bandwidth = options->bandwidth;
        r->links = spr_calloc((size_t)options->ranks, sizeof *r->links);
        if (!r->links) {
            spr_sim_destroy(sim);
            return NULL;
        }
        for (int k = 0; k < options->ranks; k++)
            r->links[k].corrupt_nth = NEVER;
    }
    return sim;
}

void spr_sim_destroy(struct spr_sim *sim)
{
    for (int i = 0; i < sim->options.ranks; i++) {
        struct sim_rank *r = &sim->ranks[i];
        while (r->count)
            free_event(heap_pop(r));
        spr_free(r->heap);
        spr_free(r->links);
    }
    spr_free(sim->ranks);
    spr_free(sim);
}

const struct spr_clock *spr_sim_clock(const struct spr_sim *sim) { return &sim->clock; }

static uint64_t now_ns(const struct spr_sim *sim) { return sim->virtual_clock.ns; }

static bool killed(const struct sim_rank *r) { return now_ns(r->sim) >= r->kill_ns; }

bool spr_sim_runs(const struct spr_sim *sim, int rank)
{
    const struct sim_rank *r = &sim->ranks[rank];
    uint64_t now = now_ns(sim);

    return !killed(r) && (now < r->pause_from_ns || now >= r->pause_until_ns);
}

/* When the rank can act on its first event; NEVER. */
static uint64_t next_ns(const struct sim_rank *r)
{
    uint64_t ns;

    if (!r->count || r->closed)
        return NEVER;
    ns = r->heap[0]->ns;
    if (ns >= r->pause_from_ns && ns < r->pause_until_ns)
        ns = r->pause_until_ns;
    return ns >= r->kill_ns ? NEVER : ns;
}

static uint64_t world_next_ns(const struct spr_sim *sim)
{
    uint64_t next = NEVER;

    for (int i = 0; i < sim->options.ranks; i++)
        next = spr_min_u64(next, next_ns(&sim->ranks[i]));
    return next;
}

bool spr_sim_advance(struct spr_sim *sim)
{
    uint64_t next = world_next_ns(sim);

    if (next == NEVER)
        return false;
    if (next > sim->virtual_clock.ns)
        sim->virtual_clock.ns = next;
    return true;
}

void spr_sim_sleep(struct spr_sim *sim, uint64_t until_ns)
{
    uint64_t next = spr_min_u64(world_next_ns(sim), until_ns);

    if (next > sim->virtual_clock.ns)
        sim->virtual_clock.ns = next;
}

/* Faults --------------------------------------------------------------------------------------- */

void spr_sim_kill(struct spr_sim *sim, int rank, uint64_t at_ns)
{
    uint64_t latency = (uint64_t)(sim->options.latency_s * 1e9);

    sim->ranks[rank].kill_ns = at_ns;
    for (int i = 0; i < sim->options.ranks; i++)
        if (i != rank)
            (void)new_event(&sim->ranks[i], DOWN, at_ns + latency + 1, rank);
}

void spr_sim_pause(struct spr_sim *sim, int rank, uint64_t from_ns, uint64_t until_ns)
{
    sim->ranks[rank].pause_from_ns = from_ns;
    sim->ranks[rank].pause_until_ns = until_ns;
}

void spr_sim_slow(struct spr_sim *sim, int rank, double bandwidth)
{
    sim->ranks[rank].bandwidth = bandwidth;
}

void spr_sim_cut(struct spr_sim *sim, int a, int b)
{
    sim->ranks[a].links[b].cut = true;
    sim->ranks[b].links[a].cut = true;
}

void spr_sim_corrupt(struct spr_sim *sim, int from, int to, uint64_t nth)
{
    sim->ranks[from].links[to].corrupt_nth = nth;
}

uint64_t spr_sim_sent_bytes(const struct spr_sim *sim, int rank)
{
    return sim->ranks[rank].sent_bytes;
}

/* Transport ------------------------------------------------------------------------------------ */

spr_status spr_sim_open(struct spr_sim *sim, const struct spr_transport_params *params,
                        struct spr_transport **transport)
{
    struct sim_rank *r = &sim->ranks[params->rank];

    if (r->opened)
        return SPR_ERR_INVALID;
    r->transport = (struct spr_transport){&sim_ops, *params};
    r->opened = true;
    *transport = &r->transport;
    return SPR_OK;
}

static struct sim_rank *rank_of(struct spr_transport *t)
{
    return spr_container_of(t, struct sim_rank, transport);
}

static spr_status sim_connect(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                              struct spr_link **link, struct spr_error *error)
{
    struct sim_rank *r = rank_of(t);

    (void)info;
    (void)error;
    r->links[peer].link = (struct spr_link){t, peer, SPR_LINK_CONNECTING, NULL};
    *link = &r->links[peer].link;
    return SPR_OK;
}

static uint64_t transfer_ns(const struct sim_rank *r, uint64_t bytes)
{
    return r->bandwidth > 0 ? (uint64_t)((double)bytes * 8e9 / r->bandwidth) : 0;
}

static void flip_a_bit(struct spr_sim *sim, struct event *e)
{
    uint64_t bytes = sizeof e->header + e->header.bytes;
    uint64_t bit = spr_rng_below(&sim->rng, bytes * 8);
    unsigned char *at = bit / 8 < sizeof e->header
                            ? (unsigned char *)&e->header + bit / 8
                            : (unsigned char *)e->data + (bit / 8 - sizeof e->header);

    *at ^= (unsigned char)(1u << (bit % 8));
}

/* When a frame that leaves now arrives; moves both ports on. */
static uint64_t arrival_ns(struct sim_rank *from, struct sim_rank *to, struct sim_link *l,
                           uint64_t bytes, uint64_t *left_ns)
{
    struct spr_sim *sim = from->sim;
    double extra = sim->options.latency_s + spr_rng_double(&sim->rng) * sim->options.jitter_s;
    uint64_t start = now_ns(sim) > from->out_free_ns ? now_ns(sim) : from->out_free_ns;
    uint64_t arrival;

    from->out_free_ns = *left_ns = start + transfer_ns(from, bytes);
    arrival = *left_ns + (uint64_t)(extra * 1e9);
    if (arrival < to->in_free_ns + transfer_ns(to, bytes))
        arrival = to->in_free_ns + transfer_ns(to, bytes);
    to->in_free_ns = arrival;
    if (arrival <= l->last_arrival_ns)
        arrival = l->last_arrival_ns + 1;
    l->last_arrival_ns = arrival;
    return arrival;
}

static void sim_send(struct spr_link *link, struct spr_tx *tx)
{
    struct sim_rank *r = rank_of(link->transport), *to = &r->sim->ranks[link->peer];
    struct sim_link *l = &r->links[link->peer];
    uint64_t bytes = SPR_FRAME_BYTES + tx->header.bytes, left = now_ns(r->sim), arrival;
    uint64_t previous = l->last_arrival_ns, first;
    struct event *e, *head, *sent;
    bool lost = l->cut || l->killed || link->state == SPR_LINK_DOWN || killed(to);

    arrival = lost ? 0 : arrival_ns(r, to, l, bytes, &left);
    sent = new_event(r, SENT, left, link->peer);
    assert(sent); /* tests only: memory faults are injected above this layer */
    sent->tx = tx;
    tx->failed = l->killed || link->state == SPR_LINK_DOWN;
    r->sent_bytes += bytes;
    r->transport.params.counters->sent_bytes += bytes;
    r->transport.params.counters->sent_frames++;
    l->frames++;
    if (lost || to->closed)
        return;
    /* The header is there when the first bytes are; things may happen before the last one comes. */
    first = arrival - spr_min_u64(transfer_ns(to, bytes), arrival - previous - 1);
    head = new_event(to, HEADER, first, r->rank);
    e = new_event(to, PAYLOAD, arrival, r->rank);
    assert(head && e);
    e->header = tx->header;
    if (tx->header.bytes) {
        e->data = spr_malloc(tx->header.bytes);
        assert(e->data);
        memcpy(e->data, tx->data, tx->header.bytes);
    }
    if (l->frames - 1 == l->corrupt_nth)
        flip_a_bit(r->sim, e);
    head->header = e->header;
}

static void link_down(struct sim_rank *r, struct sim_link *l, spr_status why, const char *text)
{
    if (l->reported || l->killed || l->link.state == SPR_LINK_DOWN)
        return;
    l->reported = true;
    l->link.state = SPR_LINK_DOWN;
    r->transport.params.events->down(&l->link, why, text);
}

static void deliver_header(struct sim_rank *r, struct event *e)
{
    struct sim_link *l = &r->links[e->peer];
    spr_status status;

    if (l->killed || l->link.state != SPR_LINK_UP)
        return;
    l->rx = (struct spr_rx){SPR_SINK_DROP, NULL};
    status = r->transport.params.events->header(&l->link, &e->header, &l->rx);
    if (status)
        link_down(r, l, status, spr_status_string(status));
}

/* Returns true when the layer above keeps the event's data. */
static bool deliver_payload(struct sim_rank *r, struct event *e)
{
    struct sim_link *l = &r->links[e->peer];
    const struct spr_link_events *up = r->transport.params.events;

    if (l->killed || l->link.state != SPR_LINK_UP)
        return false;
    r->transport.params.counters->received_bytes += SPR_FRAME_BYTES + e->header.bytes;
    r->transport.params.counters->received_frames++;
    if (l->rx.sink == SPR_SINK_INTO && e->header.bytes)
        memcpy(l->rx.into, e->data, e->header.bytes);
    if (l->rx.sink == SPR_SINK_INTO) {
        up->payload(&l->link, &e->header, l->rx.into, NULL);
    } else if (l->rx.sink == SPR_SINK_BORROW && e->data) {
        spr_list_push_back(&r->borrowed, &e->borrowed);
        up->payload(&l->link, &e->header, e->data, e);
        return true;
    } else {
        up->payload(&l->link, &e->header, NULL, NULL);
    }
    return false;
}

static int sim_progress(struct spr_transport *t)
{
    struct sim_rank *r = rank_of(t);
    int n = 0;

    if (!spr_sim_runs(r->sim, r->rank))
        return 0;
    for (int i = 0; i < r->sim->options.ranks; i++) {
        struct sim_link *l = &r->links[i];
        if (l->link.transport && l->link.state == SPR_LINK_CONNECTING && !l->killed) {
            l->link.state = SPR_LINK_UP;
            r->transport.params.events->up(&l->link);
            n++;
        }
    }
    while (r->count && r->heap[0]->ns <= now_ns(r->sim)) {
        struct event *e = heap_pop(r);
        bool kept = false;
        if (e->kind == SENT)
            r->transport.params.events->sent(&r->links[e->peer].link, e->tx);
        else if (e->kind == HEADER)
            deliver_header(r, e);
        else if (e->kind == PAYLOAD)
            kept = deliver_payload(r, e);
        else if (r->links[e->peer].link.transport)
            link_down(r, &r->links[e->peer], SPR_ERR_LINK, "end of file");
        if (!kept)
            free_event(e);
        n++;
    }
    return n;
}

static void sim_release(struct spr_link *link, void *token)
{
    struct event *e = token;

    (void)link;
    spr_list_remove(&e->borrowed);
    free_event(e);
}

static void sim_kill(struct spr_link *link)
{
    struct sim_rank *r = rank_of(link->transport), *to = &r->sim->ranks[link->peer];
    struct sim_link *l = &r->links[link->peer];

    if (l->killed)
        return;
    l->killed = true;
    link->state = SPR_LINK_DOWN;
    if (!to->closed && !l->cut)
        (void)new_event(to, DOWN,
                        l->last_arrival_ns > now_ns(r->sim) ? l->last_arrival_ns + 1
                                                            : now_ns(r->sim) + 1,
                        r->rank);
}

static void sim_address(struct spr_transport *t, void *address)
{
    (void)t;
    memset(address, 0, SPR_ADDRESS_BYTES);
}

static bool sim_usable(struct spr_transport *t, const struct spr_peer_info *mine,
                       const struct spr_peer_info *peer)
{
    (void)t;
    (void)mine;
    (void)peer;
    return true;
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
    struct sim_rank *r = rank_of(t);

    return r->count && r->heap[0]->ns <= now_ns(r->sim) ? SPR_IN_PROGRESS : SPR_OK;
}

static bool sim_idle(struct spr_transport *t)
{
    struct sim_rank *r = rank_of(t);

    for (size_t i = 0; i < r->count; i++)
        if (r->heap[i]->kind == SENT)
            return false;
    return true;
}

static bool sim_delivered(const struct spr_link *link)
{
    (void)link;
    return true; /* what is sent arrives, whatever becomes of the sender */
}

static void sim_close(struct spr_transport *t)
{
    struct sim_rank *r = rank_of(t);

    for (int i = 0; i < r->sim->options.ranks; i++)
        if (r->links[i].link.transport)
            sim_kill(&r->links[i].link);
    while (r->count)
        free_event(heap_pop(r));
    while (!spr_list_empty(&r->borrowed))
        sim_release(NULL, spr_list_entry(r->borrowed.next, struct event, borrowed));
    r->closed = true;
}

static spr_status sim_register(struct spr_transport *t, void *memory, size_t bytes)
{
    (void)t;
    (void)memory;
    (void)bytes;
    return SPR_ERR_UNSUPPORTED;
}

static void sim_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    (void)t;
    (void)memory;
    (void)bytes;
}

static const struct spr_transport_ops sim_ops = {
    .name = "sim",
    .open = sim_unopened,
    .address = sim_address,
    .usable = sim_usable,
    .connect = sim_connect,
    .send = sim_send,
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
