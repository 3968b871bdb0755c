/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/lanes/lanes.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "transport/tcp/address.h"
#include "transport/tcp/interface.h"

/* What a lane is given beyond one frame, and what it may leave unsent in the kernel: enough for it
 * to be busy, and not so much that the slowest one ends much later than the others. */
#define GIVEN_BYTES ((size_t)128 << 10)

/* A speed is measured over so long at least, while so much is under way: of a few bytes,
 * acknowledgements come when the peer likes. What a measurement counts. */
#define LOOK_NS 300000u
#define BUSY_BYTES ((size_t)64 << 10)
#define NEWS 0.1
/* The longer it was not measured, the more a lane is taken for as fast as the others. */
#define FORGOTTEN_NS 1e9

struct lanes_link;

struct lane {
    struct lanes_link *of;
    struct spr_link *link;
    size_t given; /* bytes between send() and events.sent */
    /* Its speed, as measured (0: not yet), and when; bytes that it was ever given, and brought; the
     * same when the measurement began, and what was left to do then (0: too little). */
    double bytes_ns;
    uint64_t known_ns, total, arrived, from, from_ns;
    size_t left;
    bool up, ended;
    bool broke;      /* a frame did not leave */
    bool waits;      /* a frame, for its turn */
    uint32_t number; /* ... its number */
    /* A frame that arrives: the channel has seen its header. */
    bool arrives, complete; /* complete: all of it is there, but not of an earlier one */
    uint32_t sequence;
    struct spr_frame frame;
    const void *data;
    void *token;
};

struct lanes_link {
    struct spr_link link; /* first */
    struct lane lane[SPR_LANES];
    uint32_t lanes;
    uint32_t next; /* number of the frame whose turn it is */

    struct spr_tx *first, **last; /* frames that no lane has been given */
    struct spr_list work;         /* in t->work: frames to be returned, or an end to be told */
    bool lost;
    spr_status why;
    char text[200];
};

struct lanes_transport {
    struct spr_transport base; /* first */
    struct spr_transport *lane[SPR_LANES];
    struct spr_options options[SPR_LANES];
    struct spr_tcp_joined joined;
    uint32_t lanes;
    int epoll_fd;
    struct lanes_link **links; /* per rank */
    struct spr_list work;
    size_t queued; /* frames that no lane has been given */
};

static struct lanes_transport *transport_of(struct spr_transport *t)
{
    return (struct lanes_transport *)t;
}
static struct lanes_link *link_of(struct spr_link *l) { return (struct lanes_link *)l; }
static struct lane *lane_of(const struct spr_link *l) { return l->channel; }
static const struct spr_transport_ops *ops_of(const struct lane *lane)
{
    return lane->link->transport->ops;
}
static const struct spr_link_events *events_of(const struct lanes_link *l)
{
    return l->link.transport->params.events;
}

static size_t bytes_of(const struct spr_tx *tx) { return SPR_FRAME_BYTES + tx->header.bytes; }

static void add_work(struct lanes_link *l)
{
    if (spr_list_empty(&l->work))
        spr_list_push_back(&transport_of(l->link.transport)->work, &l->work);
}

/* ---- Sending ----------------------------------------------------------------------------------
 */

static struct spr_tx *pop(struct lanes_link *l)
{
    struct spr_tx *tx = l->first;

    l->first = tx->next;
    if (!l->first)
        l->last = &l->first;
    transport_of(l->link.transport)->queued--;
    return tx;
}

/* Bytes that it has not brought over. On the way its speed is measured, from one arrival to
 * another, while it has something to do all the time: less has arrived than there was to do at
 * first. */
static size_t look(struct lane *lane, uint64_t now)
{
    size_t left = lane->given + ops_of(lane)->unacknowledged(lane->link);
    uint64_t arrived = lane->total - spr_min_u64(left, lane->total);
    uint64_t bytes = arrived - lane->from, ns = now - lane->from_ns;
    bool busy = bytes < lane->left;

    if (arrived == lane->arrived)
        return left;
    lane->arrived = arrived;
    if (busy && ns < LOOK_NS)
        return left;
    if (busy) {
        double speed = (double)bytes / (double)ns;
        lane->bytes_ns += (speed - lane->bytes_ns) * (lane->bytes_ns > 0 ? NEWS : 1);
        lane->known_ns = now;
    }
    lane->from_ns = now;
    lane->from = arrived;
    lane->left = left >= BUSY_BYTES ? left : 0;
    return left;
}

/* The lane that would bring so many bytes first. */
static struct lane *soonest(struct lanes_link *l, size_t bytes)
{
    uint64_t now = spr_now_ns(l->link.transport->params.clock);
    struct lane *best = NULL;
    size_t left[SPR_LANES];
    double fastest = 0, least = 0;

    for (uint32_t i = 0; i < l->lanes; i++) {
        left[i] = look(&l->lane[i], now);
        fastest = fmax(fastest, l->lane[i].bytes_ns);
    }
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        double age = (double)(now - lane->known_ns) / FORGOTTEN_NS;
        double speed = lane->bytes_ns + (fastest - lane->bytes_ns) * fmin(age, 1);
        double ns = (double)(left[i] + bytes) / (speed > 0 ? speed : 1);
        if (lane->ended || (best && ns >= least))
            continue;
        best = lane;
        least = ns;
    }
    return best;
}

static void feed(struct lanes_link *l)
{
    while (l->first && l->link.state == SPR_LINK_UP && !l->lost) {
        size_t bytes = bytes_of(l->first);
        struct lane *lane = l->lanes > 1 ? soonest(l, bytes) : &l->lane[0];
        if (!lane || (l->lanes > 1 && lane->given && lane->given + bytes > GIVEN_BYTES))
            return;
        lane->given += bytes;
        lane->total += bytes;
        ops_of(lane)->send(lane->link, pop(l));
    }
}

static void send_frame(struct spr_link *link, struct spr_tx *tx)
{
    struct lanes_link *l = link_of(link);

    tx->next = NULL;
    *l->last = tx;
    l->last = &tx->next;
    transport_of(link->transport)->queued++;
    feed(l);
}

static int return_queue(struct lanes_link *l)
{
    int n = 0;

    for (; l->first; n++) {
        struct spr_tx *tx = pop(l);
        tx->next = NULL;
        tx->failed = true;
        events_of(l)->sent(&l->link, tx);
    }
    return n;
}

/* ---- The end ----------------------------------------------------------------------------------
 */

static void kill_lanes(struct lanes_link *l)
{
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        ops_of(lane)->kill(lane->link);
        if (lane->complete)
            ops_of(lane)->release(lane->link, lane->token);
        lane->complete = lane->arrives = lane->waits = false;
    }
}

/* No lane has a frame of the caller any more. */
static bool all_returned(const struct lanes_link *l)
{
    size_t given = 0;

    for (uint32_t i = 0; i < l->lanes; i++)
        given += l->lane[i].given;
    return given == 0;
}

/* To be told when all frames are back. */
static void lose(struct lanes_link *l, spr_status why, const char *text)
{
    if (l->lost || l->link.state == SPR_LINK_DOWN)
        return;
    l->lost = true;
    l->why = why;
    snprintf(l->text, sizeof l->text, "%s", text);
    kill_lanes(l);
    if (all_returned(l))
        add_work(l);
}

static void kill_link(struct spr_link *link)
{
    struct lanes_link *l = link_of(link);

    if (link->state == SPR_LINK_DOWN)
        return;
    link->state = SPR_LINK_DOWN;
    kill_lanes(l);
    add_work(l);
}

static int finish(struct lanes_link *l)
{
    int steps = return_queue(l);

    if (l->link.state == SPR_LINK_DOWN)
        return steps;
    l->link.state = SPR_LINK_DOWN;
    events_of(l)->down(&l->link, l->why, l->text);
    return steps + 1;
}

/* ---- What lanes tell --------------------------------------------------------------------------
 */

static bool all_are(const struct lanes_link *l, bool (*is)(const struct lane *lane))
{
    uint32_t n = 0;

    while (n < l->lanes && is(&l->lane[n]))
        n++;
    return n == l->lanes;
}

static bool is_up(const struct lane *lane) { return lane->up; }
static bool has_ended(const struct lane *lane) { return lane->ended; }
static bool is_free(const struct lane *lane) { return !lane->arrives; }
static bool is_stuck(const struct lane *lane)
{
    return !lane->arrives && (lane->waits || lane->ended);
}

/* Show the frame whose turn it is again. */
static void next_turn(struct lanes_link *l)
{
    for (uint32_t i = 0; i < l->lanes && l->link.state == SPR_LINK_UP && !l->lost; i++) {
        struct lane *lane = &l->lane[i];
        if (!lane->waits || lane->arrives || lane->number != l->next)
            continue;
        lane->waits = false;
        ops_of(lane)->unpark(lane->link);
    }
}

static void on_up(struct spr_link *link)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->up = true;
    if (l->lanes > 1)
        ops_of(lane)->limit_unsent(link, GIVEN_BYTES);
    if (!all_are(l, is_up) || l->lost)
        return;
    l->link.state = SPR_LINK_UP;
    events_of(l)->up(&l->link);
    next_turn(l);
    feed(l);
}

/* All that can still come is a frame whose turn it is not. */
static bool lacks_one(const struct lanes_link *l)
{
    return l->link.state == SPR_LINK_UP && all_are(l, is_stuck);
}

/* Has nothing to do with the payloads that are arriving. */
static bool is_light(const struct spr_frame *frame)
{
    return frame->type == SPR_FRAME_GRANT || frame->type == SPR_FRAME_CREDIT ||
           frame->type == SPR_FRAME_REQUEST;
}

/* Is it this frame's turn? Of what is no frame, or came twice, in any case: that is the channel's
 * to tell. Data may arrive by several lanes at the same time; what the channel's owner does on its
 * own account, such as to leave, comes after all that was sent before. */
static bool has_turn(const struct lane *lane, const struct spr_frame *frame)
{
    const struct lanes_link *l = lane->of;
    const char *why;

    if (l->lanes == 1 || spr_frame_check(frame, &why))
        return true;
    if (l->link.state != SPR_LINK_UP || lane->arrives || (int32_t)(frame->sequence - l->next) > 0)
        return false;
    return is_light(frame) || frame->type == SPR_FRAME_DATA || all_are(l, is_free);
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *frame, struct spr_rx *rx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;
    spr_status status;

    lane->waits = !has_turn(lane, frame);
    if (lane->waits) {
        lane->number = frame->sequence;
        if (lacks_one(l))
            lose(l, SPR_ERR_LINK, "a frame is missing among those of its connections");
        return SPR_IN_PROGRESS;
    }
    status = events_of(l)->header(&l->link, frame, rx);
    lane->arrives = status == SPR_OK;
    lane->sequence = frame->sequence;
    l->next = frame->sequence + 1;
    next_turn(l);
    return status;
}

/* A token tells its lane in the two bits that are free. */
static void *token_of(const struct lane *lane, void *token)
{
    uintptr_t number = (uintptr_t)(lane - lane->of->lane);

    assert(((uintptr_t)token & 6) == 0);
    return token ? (uint8_t *)token + 2 * number : NULL;
}

static void deliver(struct lane *lane)
{
    struct lanes_link *l = lane->of;

    lane->arrives = lane->complete = false;
    events_of(l)->payload(&l->link, &lane->frame, lane->data, token_of(lane, lane->token));
}

/* Data are told in their order. False: the first of what arrives is not complete. */
static bool deliver_first(struct lanes_link *l)
{
    struct lane *first = NULL;

    for (uint32_t i = 0; i < l->lanes; i++) {
        struct lane *lane = &l->lane[i];
        if (lane->arrives && (!first || (int32_t)(lane->sequence - first->sequence) < 0))
            first = lane;
    }
    if (!first || !first->complete || l->link.state != SPR_LINK_UP || l->lost)
        return false;
    deliver(first);
    return true;
}

static void on_payload(struct spr_link *link, const struct spr_frame *frame, const void *data,
                       void *token)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->complete = true;
    lane->frame = *frame;
    lane->data = data;
    lane->token = token;
    if (is_light(frame))
        deliver(lane);
    while (deliver_first(l))
        ;
    next_turn(l);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->given -= bytes_of(tx);
    lane->broke |= tx->failed;
    events_of(l)->sent(&l->link, tx);
    if (l->lost && all_returned(l))
        add_work(l);
    feed(l);
}

/* A peer that ends closes all of its connections, and what is under way on others still counts. */
static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    struct lane *lane = lane_of(link);
    struct lanes_link *l = lane->of;

    lane->ended = true;
    if (why != SPR_ERR_RANK_LOST || all_are(l, has_ended))
        lose(l, why, text);
    else if (lane->broke || lacks_one(l))
        lose(l, SPR_ERR_LINK, "one of its connections was closed by the peer");
}

static const struct spr_link_events lane_events = {on_up, on_header, on_payload, on_sent, on_down};

static void release(struct spr_link *link, void *token)
{
    struct lanes_link *l = link_of(link);
    uintptr_t number = (uintptr_t)token >> 1 & 3;
    struct lane *lane = &l->lane[number];

    if (token)
        ops_of(lane)->release(lane->link, (uint8_t *)token - 2 * number);
}

/* ---- Addresses and links ----------------------------------------------------------------------
 */

#define ADDRESS_BYTES sizeof(struct spr_tcp_address)
static_assert(SPR_LANES * ADDRESS_BYTES <= SPR_ADDRESS_BYTES, "addresses of all lanes");

static struct spr_tcp_address own_address(const struct lanes_transport *t, uint32_t i)
{
    uint8_t bytes[SPR_ADDRESS_BYTES];
    struct spr_tcp_address a;

    t->lane[i]->ops->address(t->lane[i], bytes);
    memcpy(&a, bytes, sizeof a);
    return a;
}

static void address(struct spr_transport *base, void *to)
{
    const struct lanes_transport *t = transport_of(base);

    memset(to, 0, SPR_ADDRESS_BYTES);
    for (uint32_t i = 0; i < t->lanes; i++) {
        struct spr_tcp_address a = own_address(t, i);
        memcpy((uint8_t *)to + i * ADDRESS_BYTES, &a, ADDRESS_BYTES);
    }
}

/* What the peer would have told if it had its i-th lane alone. */
static void info_of_lane(const struct spr_peer_info *peer, uint32_t i, struct spr_peer_info *lane)
{
    static const int kinds[] = {SPR_T_URING, SPR_T_EPOLL};

    *lane = *peer;
    for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++) {
        uint8_t *a = lane->address[kinds[k]];
        memmove(a, a + i * ADDRESS_BYTES, ADDRESS_BYTES);
        memset(a + ADDRESS_BYTES, 0, SPR_ADDRESS_BYTES - ADDRESS_BYTES);
    }
}

/* Do both have an i-th lane, that can reach each other? The same at both ends. The first has been
 * looked at by ops->unusable. */
static bool have_lane(const struct lanes_transport *t, const struct spr_peer_info *theirs,
                      uint32_t i)
{
    int kind = theirs->transports & 1u << SPR_T_EPOLL ? SPR_T_EPOLL : SPR_T_URING;
    struct spr_tcp_address ours, other;

    if (i >= t->lanes)
        return false;
    ours = own_address(t, i);
    memcpy(&other, theirs->address[kind], sizeof other);
    return other.family == ours.family && other.loopback == ours.loopback;
}

static spr_status connect_lane(struct lanes_transport *t, struct lanes_link *l,
                               const struct spr_peer_info *info, struct spr_error *error)
{
    struct spr_transport *of = t->lane[l->lanes];
    struct lane *lane = &l->lane[l->lanes];
    spr_status status = of->ops->connect(of, l->link.peer, info, &lane->link, error);

    if (status)
        return status;
    lane->of = l;
    lane->link->channel = lane;
    l->lanes++;
    return SPR_OK;
}

static spr_status connect_link(struct spr_transport *base, int peer,
                               const struct spr_peer_info *info, struct spr_link **link,
                               struct spr_error *error)
{
    struct lanes_transport *t = transport_of(base);
    struct spr_peer_info *one = spr_calloc(1, sizeof *one);
    struct lanes_link *l = spr_calloc(1, sizeof *l);
    spr_status status = SPR_OK;

    if (!l || !one) {
        spr_free(l);
        spr_free(one);
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a link");
    }
    l->link.transport = base;
    l->link.peer = peer;
    l->link.state = SPR_LINK_CONNECTING;
    l->last = &l->first;
    spr_list_init(&l->work);
    t->links[peer] = l;
    info_of_lane(info, 0, one);
    do {
        status = connect_lane(t, l, one, error);
        info_of_lane(info, l->lanes % SPR_LANES, one);
    } while (status == SPR_OK && have_lane(t, one, l->lanes));
    spr_free(one);
    if (status) {
        kill_link(&l->link);
        return status;
    }
    *link = &l->link;
    return SPR_OK;
}

static void limit_unsent(struct spr_link *link, size_t bytes)
{
    struct lanes_link *l = link_of(link);

    for (uint32_t i = 0; i < l->lanes; i++)
        ops_of(&l->lane[i])
            ->limit_unsent(l->lane[i].link,
                           l->lanes > 1 ? spr_min_size(bytes, GIVEN_BYTES) : bytes);
}

static bool delivered(struct spr_link *link)
{
    struct lanes_link *l = link_of(link);
    bool all = !l->first;

    for (uint32_t i = 0; i < l->lanes; i++)
        all &= ops_of(&l->lane[i])->delivered(l->lane[i].link);
    return all;
}

/* ---- Progress ---------------------------------------------------------------------------------
 */

static int progress(struct spr_transport *base)
{
    struct lanes_transport *t = transport_of(base);
    int steps = 0;

    for (uint32_t i = 0; i < t->lanes; i++)
        steps += t->lane[i]->ops->progress(t->lane[i]);
    while (!spr_list_empty(&t->work)) {
        struct spr_list *w = t->work.next;
        spr_list_remove(w);
        steps += finish(spr_list_entry(w, struct lanes_link, work));
    }
    return steps;
}

static int pollable(struct spr_transport *base) { return transport_of(base)->epoll_fd; }

static spr_status arm(struct spr_transport *base)
{
    struct lanes_transport *t = transport_of(base);
    spr_status status = spr_list_empty(&t->work) ? SPR_OK : SPR_IN_PROGRESS;

    for (uint32_t i = 0; i < t->lanes && status == SPR_OK; i++)
        status = t->lane[i]->ops->arm(t->lane[i]);
    return status;
}

static bool idle(struct spr_transport *base)
{
    struct lanes_transport *t = transport_of(base);
    bool all = t->queued == 0;

    for (uint32_t i = 0; i < t->lanes; i++)
        all &= t->lane[i]->ops->idle(t->lane[i]);
    return all;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void close_transport(struct spr_transport *base)
{
    struct lanes_transport *t = transport_of(base);

    for (uint32_t i = 0; i < t->lanes; i++)
        t->lane[i]->ops->close(t->lane[i]);
    for (int r = 0; t->links && r < base->params.size; r++)
        spr_free(t->links[r]);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    spr_free(t->links);
    spr_free(t);
}

static spr_status open_lane(struct lanes_transport *t, const struct spr_transport_ops *ops,
                            struct spr_error *error)
{
    const struct spr_tcp_joined *joined = &t->joined;
    struct spr_transport_params params = t->base.params;
    struct spr_transport **lane = &t->lane[t->lanes];
    struct spr_options *options = &t->options[t->lanes];
    struct epoll_event ev = {.events = EPOLLIN};
    spr_status status;

    *options = *params.options;
    if (joined->count)
        options->interface_name = t->joined.names[t->lanes % joined->count];
    params.options = options;
    params.events = &lane_events;
    status = ops->open(&params, lane, error);
    if (status)
        return status;
    t->lanes++;
    if (own_address(t, t->lanes - 1).loopback != own_address(t, 0).loopback)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "SPARRING_INTERFACE joins %s and %s, of which one leads to no other "
                             "host",
                             joined->names[0], options->interface_name);
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, (*lane)->ops->fd(*lane), &ev))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "epoll refuses a lane");
    return SPR_OK;
}

/* The interfaces in turn. */
static spr_status open_lanes(struct lanes_transport *t, const struct spr_transport_ops *ops,
                             struct spr_error *error)
{
    const struct spr_options *options = t->base.params.options;
    uint32_t interfaces, lanes;
    spr_status status = SPR_OK;

    spr_tcp_interface_joined(options->interface_name, &t->joined);
    interfaces = t->joined.count ? t->joined.count : 1;
    lanes = interfaces * (uint32_t)options->sockets;
    if (lanes > SPR_LANES)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "SPARRING_SOCKETS=%d on each of %u interfaces is too much: a peer has "
                             "at most %u connections",
                             options->sockets, interfaces, SPR_LANES);
    if (t->joined.missing[0])
        spr_warn(SPR_SUB_NET,
                 "interface %s of SPARRING_INTERFACE=%s is not up here, or has no address: its "
                 "links go without it",
                 t->joined.missing, options->interface_name);
    while (t->lanes < lanes && status == SPR_OK)
        status = open_lane(t, ops, error);
    return status;
}

static spr_status open_over(const struct spr_transport_ops *mine,
                            const struct spr_transport_ops *ops,
                            const struct spr_transport_params *params,
                            struct spr_transport **transport, struct spr_error *error)
{
    struct lanes_transport *t = spr_calloc(1, sizeof *t);
    spr_status status = SPR_OK;

    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a transport");
    t->base.ops = mine;
    t->base.params = *params;
    spr_list_init(&t->work);
    t->links = spr_calloc((size_t)params->size, sizeof(struct lanes_link *));
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!t->links)
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for links");
    else if (t->epoll_fd < 0)
        status =
            spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create an epoll instance");
    else
        status = open_lanes(t, ops, error);
    if (status) {
        close_transport(&t->base);
        return status;
    }
    *transport = &t->base;
    return SPR_OK;
}

bool spr_lanes_wanted(const struct spr_options *options)
{
    struct spr_tcp_joined joined;

    spr_tcp_interface_joined(options->interface_name, &joined);
    return options->sockets > 1 || joined.count;
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

static spr_status mem_register(struct spr_transport *base, void *memory, size_t bytes,
                               bool writable)
{
    struct lanes_transport *t = transport_of(base);
    spr_status status = SPR_OK;

    for (uint32_t i = 0; i < t->lanes; i++) {
        spr_status one = t->lane[i]->ops->mem_register(t->lane[i], memory, bytes, writable);
        status = status ? status : one;
    }
    return status;
}

static void mem_deregister(struct spr_transport *base, void *memory, size_t bytes)
{
    struct lanes_transport *t = transport_of(base);

    for (uint32_t i = 0; i < t->lanes; i++)
        t->lane[i]->ops->mem_deregister(t->lane[i], memory, bytes);
}

/* ---- Over each twin ---------------------------------------------------------------------------
 */

/* What both have. */
#define LANES_OPS                                                                                  \
    .seals = true, .narrow = true, .address = address, .connect = connect_link,                    \
    .send = send_frame, .limit_unsent = limit_unsent, .release = release, .kill = kill_link,       \
    .progress = progress, .fd = pollable, .arm = arm, .idle = idle, .delivered = delivered,        \
    .close = close_transport, .mem_register = mem_register, .mem_deregister = mem_deregister

static const char *unusable_epoll(const struct spr_peer_info *mine,
                                  const struct spr_peer_info *peer)
{
    return spr_transport_epoll.unusable(mine, peer);
}

static spr_status open_epoll(const struct spr_transport_params *params,
                             struct spr_transport **transport, struct spr_error *error)
{
    return open_over(&spr_lanes_epoll, &spr_transport_epoll, params, transport, error);
}

const struct spr_transport_ops spr_lanes_epoll = {
    .name = "epoll", .open = open_epoll, .unusable = unusable_epoll, LANES_OPS};

#ifdef HAVE_URING
static const char *unusable_uring(const struct spr_peer_info *mine,
                                  const struct spr_peer_info *peer)
{
    return spr_transport_uring.unusable(mine, peer);
}

static spr_status open_uring(const struct spr_transport_params *params,
                             struct spr_transport **transport, struct spr_error *error)
{
    return open_over(&spr_lanes_uring, &spr_transport_uring, params, transport, error);
}

const struct spr_transport_ops spr_lanes_uring = {.name = "uring",
                                                  .one_submitter = true,
                                                  .open = open_uring,
                                                  .unusable = unusable_uring,
                                                  LANES_OPS};
#endif
