/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The transport: addresses, links, progress, and the tables of operations.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/mem.h"
#include "transport/lanes/private.h"
#include "transport/tcp/address.h"

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
    const struct lanes_transport *t = lanes_of(base);

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
    struct lanes_transport *t = lanes_of(base);
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
    spr_list_init(&l->fading);
    t->links[peer] = l;
    for (uint32_t i = 0; i < t->lanes && status == SPR_OK; i++) {
        info_of_lane(info, i, one);
        if (i > 0 && !have_lane(t, one, i))
            break;
        status = connect_lane(t, l, one, error);
    }
    spr_free(one);
    if (status) {
        lanes_kill(&l->link);
        return status;
    }
    *link = &l->link;
    return SPR_OK;
}

/* Of all interfaces: several sockets of one share it. */
static struct spr_link_rate rate(const struct spr_transport *base)
{
    const struct lanes_transport *t = (const struct lanes_transport *)base;
    struct spr_link_rate all = {.of = t->joined.count ? t->joined.count : 1};
    bool known = true;

    for (uint32_t i = 0; i < all.of && i < t->lanes; i++) {
        struct spr_link_rate one = t->lane[i]->ops->rate(t->lane[i]);
        known &= one.kbit > 0 && one.kbit <= UINT32_MAX - all.kbit;
        all.kbit += one.kbit;
    }
    all.kbit = known ? all.kbit : 0;
    return all;
}

static void limit_unsent(struct spr_link *link, size_t bytes)
{
    struct lanes_link *l = lanes_link_of(link);

    for (uint32_t i = 0; i < l->lanes; i++)
        lanes_ops(&l->lane[i])
            ->limit_unsent(l->lane[i].link,
                           l->lanes > 1 ? spr_min_size(bytes, GIVEN_BYTES) : bytes);
}

static bool delivered(struct spr_link *link)
{
    struct lanes_link *l = lanes_link_of(link);
    bool all = !l->first;

    for (uint32_t i = 0; i < l->lanes; i++)
        all &= lanes_ops(&l->lane[i])->delivered(l->lane[i].link);
    return all;
}

/* ---- Progress ---------------------------------------------------------------------------------
 */

static int progress(struct spr_transport *base)
{
    struct lanes_transport *t = lanes_of(base);
    int steps = 0;

    for (uint32_t i = 0; i < t->lanes; i++)
        steps += t->lane[i]->ops->progress(t->lane[i]);
    steps += lanes_fade(t);
    while (!spr_list_empty(&t->work)) {
        struct spr_list *w = t->work.next;
        spr_list_remove(w);
        steps += lanes_finish(spr_list_entry(w, struct lanes_link, work));
    }
    return steps;
}

static int pollable(struct spr_transport *base) { return lanes_of(base)->epoll_fd; }

static spr_status arm(struct spr_transport *base)
{
    struct lanes_transport *t = lanes_of(base);
    bool due = !spr_list_empty(&t->work) || !spr_list_empty(&t->fading);
    spr_status status = due ? SPR_IN_PROGRESS : SPR_OK;

    for (uint32_t i = 0; i < t->lanes && status == SPR_OK; i++)
        status = t->lane[i]->ops->arm(t->lane[i]);
    return status;
}

static bool idle(struct spr_transport *base)
{
    struct lanes_transport *t = lanes_of(base);
    bool all = t->queued == 0;

    for (uint32_t i = 0; i < t->lanes; i++)
        all &= t->lane[i]->ops->idle(t->lane[i]);
    return all;
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void close_transport(struct spr_transport *base)
{
    struct lanes_transport *t = lanes_of(base);

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
    params.events = &lanes_events;
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
    /* Else its lanes would meet those of another interface over there. */
    if (t->joined.missing[0])
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "interface %s of SPARRING_INTERFACE=%s is not up here, or has no "
                             "address; name others on this host",
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
    spr_list_init(&t->fading);
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
    struct lanes_transport *t = lanes_of(base);
    spr_status status = SPR_OK;

    for (uint32_t i = 0; i < t->lanes; i++) {
        spr_status one = t->lane[i]->ops->mem_register(t->lane[i], memory, bytes, writable);
        status = status ? status : one;
    }
    return status;
}

static void mem_deregister(struct spr_transport *base, void *memory, size_t bytes)
{
    struct lanes_transport *t = lanes_of(base);

    for (uint32_t i = 0; i < t->lanes; i++)
        t->lane[i]->ops->mem_deregister(t->lane[i], memory, bytes);
}

/* ---- Over each twin ---------------------------------------------------------------------------
 */

/* What both have. */
#define LANES_OPS                                                                                  \
    .seals = true, .narrow = true, .address = address, .rate = rate, .connect = connect_link,      \
    .send = lanes_send, .limit_unsent = limit_unsent, .release = lanes_release,                    \
    .kill = lanes_kill, .progress = progress, .fd = pollable, .arm = arm, .idle = idle,            \
    .delivered = delivered, .close = close_transport, .mem_register = mem_register,                \
    .mem_deregister = mem_deregister

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
