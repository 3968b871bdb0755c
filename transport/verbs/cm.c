/* SPDX-License-Identifier: BSD-2-Clause
 *
 * rdma_cm, the kernel's way to connect queue pairs: one event channel, one timer, and a listener on
 * the IP address of each device. Ranks have exchanged cards over their authenticated socket before;
 * a request that does not show the nonce of such a card is a stranger's: it is refused and
 * forgotten at once, so strangers hold nothing up and fill nothing. No call here waits for a peer.
 *
 *   event channel -> request -> listener's rail -> link of the rank that it names (cm_link.c)
 *                 -> any other event -> link of its id
 *   timer         -> links whose time is over
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

/* Requests that the kernel keeps for us: the most that it can be told. */
#define BACKLOG 1024
/* Events taken at a time, so that strangers do not keep this rank from its work. */
#define FAIR_EVENTS 32
#define ADDRESSES 64

/* ---- Opening and closing ----------------------------------------------------------------------*/

static bool is_of_device(const struct rdma_cm_id *id, const struct verbs_device *d)
{
    return id->verbs && id->port_num == d->port_number &&
           !strcmp(ibv_get_device_name(id->verbs->device), d->name);
}

static void stop_listening(struct verbs_rail *rail)
{
    if (rail->listener)
        (void)rdma_destroy_id(rail->listener);
    rail->listener = NULL;
    rail->cm = (struct spr_tcp_address){0};
}

/* Returns 0 or an errno; ENODEV: the address is not one of the device. */
static int listen_at(struct verbs_transport *t, struct verbs_rail *rail,
                     const struct spr_tcp_address *address)
{
    struct spr_tcp_address at = *address;
    struct sockaddr_storage sa;
    int error = 0;

    at.port = 0;
    (void)spr_tcp_address_to(&at, &sa);
    if (rdma_create_id(t->cm.channel, &rail->listener, rail, RDMA_PS_TCP)) {
        rail->listener = NULL;
        return errno;
    }
    if (rdma_bind_addr(rail->listener, (struct sockaddr *)&sa))
        error = errno;
    else if (!is_of_device(rail->listener, &rail->device))
        error = ENODEV;
    else if (rdma_listen(rail->listener, BACKLOG))
        error = errno;
    if (error) {
        stop_listening(rail);
        return error;
    }
    rail->cm = at;
    rail->cm.port = ntohs(rdma_get_src_port(rail->listener));
    return 0;
}

static spr_status listen_on(struct verbs_transport *t, struct verbs_rail *rail,
                            struct spr_error *error)
{
    struct spr_tcp_address all[ADDRESSES];
    size_t n = verbs_ip_addresses(&rail->device, all, ADDRESSES);
    char text[SPR_TCP_ADDRESS_TEXT];
    int failed = EADDRNOTAVAIL;

    for (size_t i = 0; i < n; i++) {
        failed = listen_at(t, rail, &all[i]);
        if (failed)
            continue;
        spr_debug(SPR_SUB_NET, "verbs: %s: rdma_cm listens on %s", rail->device.name,
                  spr_tcp_address_print(&rail->cm, text, sizeof text));
        return SPR_OK;
    }
    return spr_error_errno(error, SPR_ERR_SYSTEM, -1, failed,
                           "rdma_cm cannot listen on an IP address of %s", rail->device.name);
}

static spr_status open_channel(struct verbs_transport *t, struct spr_error *error)
{
    struct verbs_cm *cm = &t->cm;
    int flags;

    cm->timer_ns = UINT64_MAX;
    cm->channel = rdma_create_event_channel();
    if (!cm->channel)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno,
                               "there is no rdma_cm (modprobe rdma_ucm; rights of "
                               "/dev/infiniband/rdma_cm)");
    cm->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    flags = fcntl(cm->channel->fd, F_GETFL);
    if (cm->timer_fd >= 0 && flags >= 0 && !fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK) &&
        verbs_watch(t, cm->channel->fd, cm) && verbs_watch(t, cm->timer_fd, &cm->timer_fd))
        return SPR_OK;
    return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "rdma_cm gives no events");
}

void verbs_cm_close(struct verbs_transport *t)
{
    struct verbs_cm *cm = &t->cm;

    for (uint32_t i = 0; i < t->rails; i++)
        stop_listening(&t->rail[i]);
    if (cm->channel)
        rdma_destroy_event_channel(cm->channel);
    if (cm->timer_fd >= 0)
        close(cm->timer_fd);
    cm->channel = NULL;
    cm->timer_fd = -1;
}

spr_status verbs_cm_open(struct verbs_transport *t, struct spr_error *error)
{
    const struct spr_options *o = t->tcp.base.params.options;
    spr_status status = open_channel(t, error);

    t->cm.tried = true;
    if (o->verbs_sl || o->verbs_pkey)
        spr_warn(SPR_SUB_NET, "verbs: rdma_cm chooses service level and partition: VERBS_SL and "
                              "VERBS_PKEY have no effect");
    for (uint32_t i = 0; i < t->rails && status == SPR_OK; i++)
        status = listen_on(t, &t->rail[i], error);
    if (status)
        verbs_cm_close(t);
    return status;
}

static bool listens(const struct verbs_transport *t)
{
    for (uint32_t i = 0; i < t->rails; i++)
        if (!t->rail[i].listener)
            return false;
    return true;
}

/* On RoCE the cards have all that rdma_cm finds out, and are quicker: a request that is lost is
 * repeated after 4.3 s. On InfiniBand the subnet manager alone knows service level and partition of
 * a path, unless the user does. */
static bool is_better(const struct verbs_transport *t)
{
    const struct spr_options *o = t->tcp.base.params.options;

    return t->rail[0].device.port.link_layer == IBV_LINK_LAYER_INFINIBAND && !o->verbs_sl &&
           !o->verbs_pkey && o->verbs_gid < 0;
}

bool verbs_cm_offered(struct verbs_transport *t)
{
    int asked = t->tcp.base.params.options->verbs_connect;
    struct spr_error why = {0};

    if (asked == SPR_CONNECT_SOCKET || (asked == SPR_CONNECT_AUTO && !is_better(t)))
        return false;
    if (!t->cm.tried && verbs_cm_open(t, &why))
        spr_warn(SPR_SUB_NET, "verbs: queue pairs are connected without rdma_cm: %s", why.text);
    return listens(t);
}

/* ---- Time -------------------------------------------------------------------------------------*/

static void set_timer(struct verbs_transport *t, uint64_t now, uint64_t when)
{
    uint64_t in = when > now ? when - now : 1;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(in / 1000000000u), .tv_nsec = (long)(in % 1000000000u)}};

    if (when < t->cm.timer_ns && timerfd_settime(t->cm.timer_fd, 0, &spec, NULL) == 0)
        t->cm.timer_ns = when;
}

void verbs_cm_allow(struct verbs_transport *t, struct verbs_link *l, double seconds)
{
    uint64_t now = spr_now_ns(t->tcp.base.params.clock);

    l->cm_due_ns = seconds > 0 ? now + spr_tcp_seconds_ns(seconds) : 0;
    if (l->cm_due_ns)
        set_timer(t, now, l->cm_due_ns);
}

int verbs_cm_expire(struct verbs_transport *t)
{
    uint64_t expirations, next = UINT64_MAX, now = spr_now_ns(t->tcp.base.params.clock);

    if (read(t->cm.timer_fd, &expirations, sizeof expirations) < 0)
        return 0;
    t->cm.timer_ns = UINT64_MAX;
    for (int r = 0; r < t->tcp.base.params.size; r++) {
        struct verbs_link *l = verbs_link_of(t->tcp.links[r]);
        if (!l || !l->cm_due_ns)
            continue;
        if (l->cm_due_ns <= now) {
            l->cm_due_ns = 0;
            verbs_cm_late(t, l);
        } else {
            next = spr_min_u64(next, l->cm_due_ns);
        }
    }
    if (next != UINT64_MAX)
        set_timer(t, now, next);
    return 1;
}

/* ---- Events -----------------------------------------------------------------------------------*/

static void copy_event(const struct rdma_cm_event *from, struct verbs_cm_event *e)
{
    const struct rdma_conn_param *c = &from->param.conn;
    bool speaks = from->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                  from->event == RDMA_CM_EVENT_CONNECT_RESPONSE;

    *e = (struct verbs_cm_event){.type = from->event, .status = from->status};
    /* The kernel fills up with zeros. */
    if (speaks && c->private_data && c->private_data_len >= sizeof e->hello)
        memcpy(&e->hello, c->private_data, sizeof e->hello);
}

static void request(struct verbs_transport *t, struct verbs_rail *rail, struct rdma_cm_id *id,
                    const struct verbs_cm_event *e)
{
    if (rail && verbs_cm_knock(t, rail, id, e))
        return;
    spr_debug(SPR_SUB_NET, "verbs: rdma_cm: refused a request that is not of this job");
    (void)rdma_reject(id, NULL, 0);
    (void)rdma_destroy_id(id);
}

/* Links that are up go on: their queue pairs have events of their own. */
static void of_listener(struct verbs_rail *rail, const struct verbs_cm_event *e)
{
    spr_warn(SPR_SUB_NET, "verbs: %s: rdma_cm: %s", rail->device.name, rdma_event_str(e->type));
    if (e->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
        stop_listening(rail);
}

int verbs_cm_events(struct verbs_transport *t)
{
    struct rdma_cm_event *from;
    int steps = 0;

    for (; steps < FAIR_EVENTS && rdma_get_cm_event(t->cm.channel, &from) == 0; steps++) {
        struct rdma_cm_id *id = from->id, *listener = from->listen_id;
        struct verbs_rail *rail = NULL;
        struct verbs_cm_event e;
        copy_event(from, &e);
        /* First: an id cannot be destroyed before. */
        (void)rdma_ack_cm_event(from);
        for (uint32_t i = 0; i < t->rails; i++)
            if (t->rail[i].listener &&
                (t->rail[i].listener == listener || t->rail[i].listener == id))
                rail = &t->rail[i];
        if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            request(t, rail, id, &e);
        else if (rail)
            of_listener(rail, &e);
        else
            verbs_cm_drive(t, id->context, id, &e);
    }
    return steps;
}
