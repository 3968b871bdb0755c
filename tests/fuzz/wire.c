/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"

static struct wire_end *end_of(struct spr_transport *t)
{
    return spr_container_of(t, struct wire_end, base);
}
static struct wire_link *link_of(struct spr_link *link)
{
    return spr_container_of(link, struct wire_link, base);
}

static struct wire_packet *new_packet(const struct spr_frame *f, const void *data, size_t bytes)
{
    struct wire_packet *p = calloc(1, sizeof *p);

    FUZZ_CHECK(p);
    p->header = *f;
    p->bytes = bytes;
    if (bytes) {
        p->data = malloc(p->bytes);
        FUZZ_CHECK(p->data);
        memcpy(p->data, data, p->bytes);
    }
    return p;
}

static void free_packet(struct wire_packet *p)
{
    free(p->data);
    free(p);
}

static void append(struct wire_packet **list, struct wire_packet *p)
{
    while (*list)
        list = &(*list)->next;
    p->next = NULL;
    *list = p;
}

static void append_tx(struct spr_tx **list, struct spr_tx *tx)
{
    while (*list)
        list = &(*list)->next;
    tx->next = NULL;
    *list = tx;
}

/* The payload is written, half of it now, half of it before the header arrives. */
static void place(struct wire_link *there, struct wire_packet *p, uint64_t address)
{
    if (!(p->header.flags & SPR_FRAME_PLACED) || there->lies)
        return;
    FUZZ_CHECK(address && p->bytes == p->header.bytes);
    p->into = (uint8_t *)(uintptr_t)address;
    memcpy(p->into, p->data, p->bytes / 2);
}

static void place_rest(const struct wire_link *l, struct wire_packet *p)
{
    size_t half = p->bytes / 2;

    if (p->into && !l->lies)
        memcpy(p->into + half, p->data + half, p->bytes - half);
}

/* ---- What the target does ---- */

bool wire_transmit(struct wire *w, int from, int to)
{
    struct wire_link *l = wire_link(w, from, to), *there = wire_link(w, to, from);
    struct spr_tx *tx = l->queued;

    if (!tx || l->base.state != SPR_LINK_UP)
        return false;
    l->queued = tx->next;
    append_tx(&l->sent, tx);
    if (there->base.state == SPR_LINK_UP) {
        struct wire_packet *p = new_packet(&tx->header, tx->data, tx->header.bytes);
        append(&there->in, p);
        place(there, p, tx->place.address);
    }
    return true;
}

void wire_inject(struct wire *w, int from, int to, const struct spr_frame *f, const void *data,
                 size_t bytes)
{
    struct wire_link *there = wire_link(w, to, from);

    if (there->base.state == SPR_LINK_UP)
        append(&there->in, new_packet(f, data, bytes));
}

struct wire_packet *wire_last(struct wire *w, int from, int to)
{
    struct wire_packet *p = wire_link(w, to, from)->in;

    while (p && p->next)
        p = p->next;
    return p && !p->header_done ? p : NULL;
}

void wire_drop(struct wire *w, int from, int to, struct wire_packet *packet)
{
    struct wire_packet **at = &wire_link(w, to, from)->in;

    while (*at != packet)
        at = &(*at)->next;
    *at = packet->next;
    free_packet(packet);
}

void wire_cut(struct wire *w, int a, int b)
{
    wire_link(w, a, b)->over = true;
    wire_link(w, b, a)->over = true;
}

void wire_distrust(struct wire *w, int a, int b)
{
    wire_link(w, a, b)->lies = wire_link(w, b, a)->lies = true;
}

bool wire_quiet(const struct wire *w)
{
    for (int at = 0; at < WIRE_RANKS; at++)
        for (int peer = 0; peer < WIRE_RANKS; peer++) {
            const struct wire_link *l = &w->ends[at].links[peer];
            if (l->queued || l->sent || l->in)
                return false;
        }
    return true;
}

/* ---- The transport ---- */

static int return_sent(struct wire_link *l, struct spr_tx **list, bool failed)
{
    struct spr_tx *tx = *list;

    *list = tx->next;
    tx->failed = failed;
    l->base.transport->params.events->sent(&l->base, tx);
    return 1;
}

static void link_down(struct wire_link *l, spr_status why, const char *text)
{
    if (l->reported || l->killed)
        return;
    l->reported = true;
    l->base.state = SPR_LINK_DOWN;
    while (l->sent)
        return_sent(l, &l->sent, false);
    while (l->queued)
        return_sent(l, &l->queued, true);
    l->base.transport->params.events->down(&l->base, why, text);
}

/* The header, with the first half of the payload behind it. */
static void arrive_header(struct wire_link *l, struct wire_packet *p)
{
    struct spr_rx rx = {.sink = SPR_SINK_DROP};
    spr_status status;

    place_rest(l, p);
    status = l->base.transport->params.events->header(&l->base, &p->header, &rx);

    if (l->base.state != SPR_LINK_UP)
        return;
    if (status == SPR_OK && p->header.bytes > SPR_FRAME_MAX_PAYLOAD)
        status = SPR_ERR_PROTO; /* every transport has that limit of its own */
    if (status != SPR_OK) {
        link_down(l, status, "a frame breaks the protocol");
        return;
    }
    p->header_done = true;
    p->into = rx.sink == SPR_SINK_INTO ? rx.into : NULL;
    l->sink = rx.sink;
    if (p->header.flags & SPR_FRAME_PLACED)
        return;
    /* A header that promises more than there is: the rest never comes. */
    if (p->header.bytes > p->bytes) {
        p->data = realloc(p->data, p->header.bytes);
        FUZZ_CHECK(p->data);
        memset(p->data + p->bytes, 0x5a, p->header.bytes - p->bytes);
        p->bytes = p->header.bytes;
    }
    if (p->into && p->header.bytes)
        memcpy(p->into, p->data, p->header.bytes / 2);
}

static void arrive_payload(struct wire_link *l)
{
    const struct spr_link_events *events = l->base.transport->params.events;
    struct wire_packet *p = l->in;
    struct spr_frame f = p->header;
    size_t half = f.bytes / 2;

    l->in = p->next;
    if (l->sink == SPR_SINK_BORROW && f.bytes && !(f.flags & SPR_FRAME_PLACED)) {
        append(&l->borrowed, p);
        events->payload(&l->base, &f, p->data, p);
        return;
    }
    uint8_t *into = p->into;
    if (into && f.bytes && !(f.flags & SPR_FRAME_PLACED))
        memcpy(into + half, p->data + half, f.bytes - half);
    free_packet(p);
    events->payload(&l->base, &f, into, NULL);
}

static int link_progress(struct wire_link *l)
{
    int n = 0;

    if (l->base.state == SPR_LINK_CONNECTING && !l->killed) {
        l->base.state = SPR_LINK_UP;
        l->base.transport->params.events->up(&l->base);
        n++;
    }
    for (; l->sent && (l->may_sent || l->base.state == SPR_LINK_DOWN); l->may_sent--)
        n += return_sent(l, &l->sent, false);
    while (l->queued && l->base.state == SPR_LINK_DOWN)
        n += return_sent(l, &l->queued, true);
    for (; l->in && l->may_receive && l->base.state == SPR_LINK_UP; l->may_receive--, n++) {
        if (l->in->header_done)
            arrive_payload(l);
        else
            arrive_header(l, l->in);
    }
    if (l->over && l->base.state == SPR_LINK_UP && (!l->in || l->may_receive)) {
        link_down(l, SPR_ERR_LINK, "end of file");
        n++;
    }
    l->may_receive = l->may_sent = 0;
    return n;
}

static int wire_progress(struct spr_transport *t)
{
    int n = 0;

    for (int peer = 0; peer < t->params.size; peer++)
        if (peer != t->params.rank)
            n += link_progress(&end_of(t)->links[peer]);
    return n;
}

static spr_status wire_connect(struct spr_transport *t, int peer, const struct spr_peer_info *info,
                               struct spr_link **link, struct spr_error *error)
{
    struct wire_link *l = &end_of(t)->links[peer];

    (void)info;
    (void)error;
    l->base = (struct spr_link){t, peer, SPR_LINK_CONNECTING, NULL};
    *link = &l->base;
    return SPR_OK;
}

static void wire_send(struct spr_link *link, struct spr_tx *tx)
{
    const char *why;

    FUZZ_CHECK(spr_frame_check(&tx->header, &why) == SPR_OK);
    append_tx(&link_of(link)->queued, tx);
}

static bool wire_expose(struct spr_link *link, void *memory, size_t bytes, struct spr_place *place)
{
    const struct wire_end *e = end_of(link->transport);
    uint8_t *m = memory;

    for (int i = 0; i < WIRE_BUCKETS && e->wire->places; i++) {
        const struct wire_bucket *b = &e->buckets[i];
        if (!b->memory || m < b->memory || m + bytes > b->memory + b->bytes)
            continue;
        place->address = (uintptr_t)memory;
        return true;
    }
    return false;
}

static void wire_release(struct spr_link *link, void *token)
{
    struct wire_packet **at = &link_of(link)->borrowed, *p = token;

    while (*at && *at != p)
        at = &(*at)->next;
    FUZZ_CHECK(*at); /* nothing is given back twice */
    *at = p->next;
    free_packet(p);
}

static void wire_kill(struct spr_link *link)
{
    struct wire_link *l = link_of(link);
    struct wire *w = end_of(link->transport)->wire;

    if (l->killed)
        return;
    l->killed = true;
    link->state = SPR_LINK_DOWN;
    wire_link(w, link->peer, link->transport->params.rank)->over = true;
}

static bool wire_idle(struct spr_transport *t)
{
    for (int peer = 0; peer < t->params.size; peer++)
        if (end_of(t)->links[peer].queued || end_of(t)->links[peer].sent)
            return false;
    return true;
}

static bool wire_delivered(struct spr_link *link)
{
    return !((const struct wire_link *)(const void *)link)->queued;
}

static void wire_close(struct spr_transport *t)
{
    for (int peer = 0; peer < t->params.size; peer++) {
        struct wire_link *l = &end_of(t)->links[peer];

        FUZZ_CHECK(!l->borrowed); /* all memory that was lent is back */
        while (l->in) {
            struct wire_packet *p = l->in;
            l->in = p->next;
            free_packet(p);
        }
        l->queued = l->sent = NULL;
    }
}

static spr_status wire_arm(struct spr_transport *t)
{
    (void)t;
    return SPR_OK;
}

static spr_status wire_mem_register(struct spr_transport *t, void *memory, size_t bytes,
                                    bool writable)
{
    struct wire_bucket *b = end_of(t)->buckets;

    if (!writable)
        return SPR_OK;
    while (b < end_of(t)->buckets + WIRE_BUCKETS && b->memory)
        b++;
    FUZZ_CHECK(b < end_of(t)->buckets + WIRE_BUCKETS);
    *b = (struct wire_bucket){memory, bytes};
    return SPR_OK;
}

static void wire_mem_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    struct wire_bucket *b = end_of(t)->buckets;

    while (b < end_of(t)->buckets + WIRE_BUCKETS && b->memory != memory)
        b++;
    FUZZ_CHECK(b < end_of(t)->buckets + WIRE_BUCKETS && b->bytes == bytes);
    b->memory = NULL;
}

static const struct spr_transport_ops wire_ops = {
    .name = "wire",
    .connect = wire_connect,
    .send = wire_send,
    .expose = wire_expose,
    .release = wire_release,
    .kill = wire_kill,
    .progress = wire_progress,
    .arm = wire_arm,
    .idle = wire_idle,
    .delivered = wire_delivered,
    .close = wire_close,
    .mem_register = wire_mem_register,
    .mem_deregister = wire_mem_deregister,
};

void wire_init(struct wire *w)
{
    memset(w, 0, sizeof *w);
    w->clock = spr_clock_virtual(&w->time);
    w->time.ns = 1000000000;
}

struct spr_transport *wire_open(struct wire *w, const struct spr_transport_params *params)
{
    struct wire_end *e = &w->ends[params->rank];

    e->base = (struct spr_transport){&wire_ops, *params};
    e->wire = w;
    return &e->base;
}
