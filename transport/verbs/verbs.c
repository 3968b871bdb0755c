/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The operations; progress and sleeping.
 */
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/rate.h"

#define EVENTS 32
/* Descriptors are looked at when arm() let the caller sleep, and else after so many calls. */
#define LOOK_EVERY 1000u
/* Full polls by one progress(), so that sending gets its turn. */
#define FAIR_POLLS 4

/* ---- Completions ------------------------------------------------------------------------------
 */

static int complete(struct verbs_transport *t, const struct ibv_wc *wc)
{
    bool receive = wc->wr_id & VERBS_RECEIVE_ID, good = wc->status == IBV_WC_SUCCESS;
    uint32_t number = (uint32_t)wc->wr_id;
    uint32_t peer = (uint32_t)(wc->wr_id >> 32) & VERBS_PEER_MASK;
    struct verbs_link *l = verbs_link_of(t->tcp.links[peer]);
    struct verbs_lane *lane = &l->lane[verbs_wc_lane(wc)];
    int steps;

    if (receive && good)
        return verbs_arrived(t, l, wc);
    spr_tcp_wake(&t->tcp, &l->tcp);
    if (!good)
        verbs_wc_failed(t, l, wc);
    if (receive)
        return 1;
    /* Those before it succeeded; nobody said so because they were not signalled. */
    steps = good ? 0 : verbs_completed(t, l, lane, number - 1, true);
    return steps + verbs_completed(t, l, lane, number, good);
}

static int complete_all(struct verbs_transport *t, const struct ibv_wc *wc, int n)
{
    int steps = 0;

    for (int i = 0; i < n; i++)
        steps += complete(t, &wc[i]);
    return steps;
}

/* At most VERBS_POLL; fewer: nothing was left. */
static int poll_all(struct verbs_transport *t, struct ibv_wc *wc)
{
    int n = 0;

    for (uint32_t r = 0; r < t->rails; r++) {
        for (uint32_t i = 0; i < t->rail[r].cq_count && n < VERBS_POLL; i++) {
            int taken = ibv_poll_cq(t->rail[r].cqs[i]->cq, VERBS_POLL - n, wc + n);
            n += taken > 0 ? taken : 0;
        }
    }
    return n;
}

/* *empty: nothing was left. */
static int reap(struct verbs_transport *t, bool *empty)
{
    struct ibv_wc wc[VERBS_POLL];
    int steps = 0, n, polls = 0;

    if (t->backlog_count) {
        steps = complete_all(t, t->backlog, t->backlog_count);
        t->backlog_count = 0;
    }
    do {
        n = poll_all(t, wc);
        steps += complete_all(t, wc, n);
    } while (n == VERBS_POLL && ++polls < FAIR_POLLS);
    *empty = n < VERBS_POLL;
    return steps;
}

/* ---- Descriptors ------------------------------------------------------------------------------
 */

static bool concerns(const struct verbs_link *l, const struct verbs_rail *rail, uint32_t queue_pair)
{
    bool any = false;

    for (uint32_t i = 0; i < l->lanes; i++) {
        const struct verbs_lane *lane = &l->lane[i];
        any |= lane->rail == rail && lane->qp && (!queue_pair || lane->qp->qp_num == queue_pair);
    }
    return any;
}

static int device_event(struct verbs_transport *t, struct verbs_rail *rail)
{
    uint32_t queue_pair;
    const char *text = verbs_device_event(&rail->device, &queue_pair);

    for (int r = 0; text && r < t->tcp.base.params.size; r++) {
        struct verbs_link *l = verbs_link_of(t->tcp.links[r]);
        if (l && concerns(l, rail, queue_pair))
            verbs_fail(t, l, SPR_ERR_LINK, "%s: %s", rail->device.name, text);
    }
    return 1;
}

/* What an event of the epoll instance is about: a device, rdma_cm, or the socket of a link. */
static int drive(struct verbs_transport *t, void *what)
{
    for (uint32_t i = 0; i < t->rails; i++) {
        struct verbs_rail *rail = &t->rail[i];
        if (what == &rail->device.channel) {
            verbs_disarm(rail);
            return 0;
        }
        if (what == &rail->device.context)
            return device_event(t, rail);
    }
    if (what == &t->cm)
        return verbs_cm_events(t);
    if (what == &t->cm.timer_fd)
        return verbs_cm_expire(t);
    return verbs_socket_drive(t, what);
}

static int look(struct verbs_transport *t)
{
    struct epoll_event events[EVENTS];
    bool setup = t->tcp.setup_due;
    int steps = 0, n = epoll_wait(t->epoll_fd, events, EVENTS, 0);

    t->asleep = false;
    t->until_look = LOOK_EVERY;
    for (int i = 0; i < n; i++) {
        if (!events[i].data.ptr)
            setup = true;
        else
            steps += drive(t, events[i].data.ptr);
    }
    return steps + (setup ? spr_tcp_setup_progress(&t->tcp) : 0);
}

static int end_gone(struct verbs_transport *t)
{
    for (int r = 0; r < t->tcp.base.params.size; r++) {
        struct verbs_link *l = verbs_link_of(t->tcp.links[r]);
        if (!l || !l->gone || l->gone_told)
            continue;
        l->gone_told = true;
        t->gone--;
        verbs_socket_gone(t, l);
    }
    return 1;
}

/* ---- Progress ---------------------------------------------------------------------------------
 */

static int serve(struct verbs_transport *t, struct verbs_link *l)
{
    int steps = 0;

    if (l->phase == VERBS_UP)
        steps += verbs_flush(t, l);
    if (l->phase == VERBS_ENDING)
        steps += verbs_drain(t, l);
    if (l->tcp.link.state == SPR_LINK_DOWN)
        steps += spr_tcp_return_queue(&l->tcp);
    return steps;
}

static int serve_all(struct verbs_transport *t)
{
    int steps = 0;

    while (!spr_list_empty(&t->tcp.work)) {
        struct spr_list *w = t->tcp.work.next;
        spr_list_remove(w);
        spr_list_push_back(&t->round, w);
    }
    while (!spr_list_empty(&t->round)) {
        struct spr_list *w = t->round.next;
        spr_list_remove(w);
        steps += serve(t, verbs_link_of(spr_list_entry(w, struct spr_tcp_link, work)));
    }
    return steps;
}

/* What waits to be sent goes first: nothing that may have arrived is as urgent. */
static int progress(struct spr_transport *base)
{
    struct verbs_transport *t = verbs_of(base);
    bool empty = true;
    int steps = serve_all(t);

    if (t->asleep || t->tcp.setup_due || t->unfinished || t->until_look == 0)
        steps += look(t);
    t->until_look--;
    if (t->link_count)
        steps += reap(t, &empty);
    /* All that such a peer has sent is taken now. */
    if (t->gone && empty)
        steps += end_gone(t);
    return steps + serve_all(t);
}

static int pollable(struct spr_transport *base) { return verbs_of(base)->epoll_fd; }

static spr_status arm(struct spr_transport *base)
{
    struct verbs_transport *t = verbs_of(base);

    if (t->tcp.setup_due || t->gone || t->backlog_count || !spr_list_empty(&t->tcp.work) ||
        !verbs_arm(t))
        return SPR_IN_PROGRESS;
    /* What came before the queues were armed makes nothing readable. */
    t->backlog_count = poll_all(t, t->backlog);
    if (t->backlog_count)
        return SPR_IN_PROGRESS;
    t->asleep = true;
    return SPR_OK;
}

static bool idle(struct spr_transport *base)
{
    struct verbs_transport *t = verbs_of(base);
    bool idle = t->tcp.queued == 0 && t->under_way == 0;

    for (int r = 0; !idle && r < base->params.size; r++)
        if (t->tcp.links[r])
            verbs_want_word(t, verbs_link_of(t->tcp.links[r]));
    return idle;
}

static bool delivered(struct spr_link *link)
{
    struct verbs_link *l = verbs_link_of(spr_tcp_link_of(link));

    if (!l->tcp.conn.tx_first && !verbs_under_way(l))
        return true;
    verbs_want_word(verbs_of_link(l), l);
    return false;
}

/* ---- Peers ------------------------------------------------------------------------------------
 */

static void address(struct spr_transport *base, void *blob)
{
    const struct verbs_device *d = &verbs_of(base)->rail[0].device;
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct spr_verbs_address a = {.link_layer = d->port.link_layer};

    memcpy(a.gid, d->gid.raw, sizeof a.gid);
    a.family = memcmp(a.gid, mapped, sizeof mapped) ? SPR_TCP_IPV6 : SPR_TCP_IPV4;
    spr_tcp_address(base, blob);
    memcpy((uint8_t *)blob + sizeof(struct spr_tcp_address), &a, sizeof a);
}

static const struct spr_tcp_twin twin;

/* RoCE between addresses of one family, InfiniBand inside a subnet. */
static const char *unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    struct spr_verbs_address a, b;

    if (!(peer->transports >> SPR_T_VERBS & 1))
        return "the other one has no RDMA device";
    memcpy(&a, mine->address[SPR_T_VERBS] + sizeof(struct spr_tcp_address), sizeof a);
    memcpy(&b, peer->address[SPR_T_VERBS] + sizeof(struct spr_tcp_address), sizeof b);
    if (a.link_layer != b.link_layer)
        return "one of them has InfiniBand, the other one RoCE";
    if (a.link_layer == IBV_LINK_LAYER_ETHERNET && a.family != b.family)
        return "one of them uses RoCE over IPv4, the other one over IPv6";
    if (a.link_layer != IBV_LINK_LAYER_ETHERNET && memcmp(a.gid, b.gid, 8) != 0)
        return "they are in different InfiniBand subnets";
    return spr_tcp_unusable(&twin, mine, peer);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static void close_transport(struct spr_transport *base)
{
    struct verbs_transport *t = verbs_of(base);

    for (int r = 0; t->tcp.links && r < base->params.size; r++)
        if (t->tcp.links[r])
            verbs_detach(t, verbs_link_of(t->tcp.links[r]));
    verbs_cm_close(t);
    verbs_regions_destroy(t);
    verbs_staging_destroy(t);
    for (uint32_t i = 0; i < t->rails; i++) {
        verbs_cqs_destroy(&t->rail[i]);
        verbs_device_close(&t->rail[i].device);
    }
    spr_tcp_close(&t->tcp);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    spr_free(t);
}

bool verbs_watch(struct verbs_transport *t, int fd, void *what)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = what};

    return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static spr_status open_rails(struct verbs_transport *t, struct spr_error *error)
{
    struct verbs_device devices[VERBS_RAILS];
    spr_status status = verbs_devices_open(devices, VERBS_RAILS, &t->rails,
                                           t->tcp.base.params.options, &t->tcp.interface, error);

    for (uint32_t i = 0; i < t->rails; i++)
        t->rail[i] = (struct verbs_rail){.device = devices[i], .number = i};
    return status;
}

static bool watch_rail(struct verbs_transport *t, struct verbs_rail *rail)
{
    struct verbs_device *d = &rail->device;
    char text[VERBS_DEVICE_TEXT];

    if (!verbs_watch(t, d->channel->fd, &d->channel) ||
        !verbs_watch(t, d->context->async_fd, &d->context))
        return false;
    spr_info(SPR_SUB_NET, "verbs: %s, MTU %d, inline up to %u bytes",
             verbs_device_print(d, text, sizeof text), 128 << (int)verbs_mtu(t, d),
             d->inline_bytes);
    return true;
}

static spr_status open_devices(struct verbs_transport *t, struct spr_error *error)
{
    spr_status status = open_rails(t, error);
    bool good;

    if (status == SPR_OK)
        status = verbs_staging_create(t, error);
    if (status == SPR_OK)
        status = verbs_memory_probe(t, error);
    if (status)
        return status;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    good = t->epoll_fd >= 0 && verbs_watch(t, t->tcp.setup_fd, NULL);
    for (uint32_t i = 0; i < t->rails; i++)
        good = good && watch_rail(t, &t->rail[i]);
    if (!good)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create an epoll instance");
    return SPR_OK;
}

static spr_status open_transport(const struct spr_transport_params *params,
                                 struct spr_transport **transport, struct spr_error *error)
{
    struct verbs_transport *t;
    spr_status status;

    if (!verbs_kernel_has_devices())
        return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1, "there is no RDMA device");
    t = spr_calloc(1, sizeof *t);
    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the verbs transport");
    spr_list_init(&t->round);
    spr_list_init(&t->hungry);
    t->epoll_fd = t->cm.timer_fd = -1;
    status = spr_tcp_open(&t->tcp, &twin, params, error);
    if (status) {
        spr_free(t);
        return status;
    }
    status = open_devices(t, error);
    if (status) {
        close_transport(&t->tcp.base);
        return status;
    }
    *transport = &t->tcp.base;
    return SPR_OK;
}

/* Of all its devices. */
static struct spr_link_rate rate(const struct spr_transport *base)
{
    const struct verbs_transport *t = (const struct verbs_transport *)base;
    double sum = 0;

    for (uint32_t i = 0; i < t->rails; i++) {
        double gbit = spr_verbs_gbit(&t->rail[i].device.port);
        sum = gbit > 0 ? sum + gbit : INFINITY;
    }
    return (struct spr_link_rate){sum < 4000 ? (uint32_t)(sum * 1e6) : 0, t->rails};
}

const struct spr_transport_ops spr_transport_verbs = {
    .name = "verbs",
    .places = true,
    .open = open_transport,
    .address = address,
    .rate = rate,
    .unusable = unusable,
    .connect = spr_tcp_connect,
    .send = spr_tcp_send,
    .expose = verbs_expose,
    .release = verbs_release,
    .kill = verbs_kill,
    .progress = progress,
    .fd = pollable,
    .arm = arm,
    .idle = idle,
    .delivered = delivered,
    .close = close_transport,
    .mem_register = verbs_mem_register,
    .mem_register_dmabuf = verbs_mem_register_dmabuf,
    .mem_deregister = verbs_mem_deregister,
};

static const struct spr_tcp_twin twin = {
    .ops = &spr_transport_verbs,
    .index = SPR_T_VERBS,
    .other = SPR_T_VERBS,
    .purpose = SPR_AUTH_VERBS,
    .link_bytes = sizeof(struct verbs_link),
    .attach = verbs_attach,
};
