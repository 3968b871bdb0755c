/* SPDX-License-Identifier: BSD-2-Clause
 *
 * rdma_cm connects the queue pairs of a link, each with an id of its own. They are this
 * transport's: it makes them and moves them from state to state, with the attributes that rdma_cm
 * has found out (source GID, hop limit, traffic class, service level and partition of the path,
 * packet numbers).
 *
 *     who has connected the socket             the other one
 *     ADDRESS   resolve the address            AWAITED
 *     ROUTE     resolve the route
 *     REQUESTED request, nonce of their card ->  HELD, when the card is not here yet
 *                                               queue pair to RTS
 *               <- reply, nonce of their card   CONNECTED; all: "ready" (socket)
 *     CONNECTED queue pair to RTS
 *               all: "ready" (socket)
 *
 * Cost: a round trip for the address where it is not known, one for request and reply, and about
 * ten calls of the kernel on both sides. If it fails, or takes too long, both go on with what the
 * cards say. The ids stay as long as the link, to hear of the end of
 * the peer and of the device.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

/* Of the time that the start of a communicator may take; enough is left for another way. */
#define SHARE_OF_START (1.0 / 3)
/* The socket says what the end of a connection means; it may be a little slower. */
#define PATIENCE_S 5.0

static bool connects(const struct verbs_transport *t, const struct verbs_link *l)
{
    return t->tcp.base.params.rank > l->tcp.link.peer;
}

static double allowance_s(const struct verbs_transport *t)
{
    return t->tcp.base.params.options->init_timeout_s * SHARE_OF_START;
}

/* ---- The end ----------------------------------------------------------------------------------*/

void verbs_cm_detach(struct verbs_link *l)
{
    for (uint32_t i = 0; i < VERBS_LANES; i++) {
        struct verbs_lane *lane = &l->lane[i];
        /* A peer that still is there is told; no answer is waited for. */
        if (lane->id)
            (void)rdma_destroy_id(lane->id);
        lane->id = NULL;
        lane->cm = VERBS_CM_NONE;
    }
}

void verbs_cm_give_up(struct verbs_transport *t, struct verbs_link *l)
{
    struct spr_error error = {0};
    spr_status status = SPR_OK;

    verbs_cm_detach(l);
    verbs_cm_allow(t, l, 0);
    l->by_cm = l->ready = false;
    l->fell_back = true;
    for (uint32_t i = 0; i < l->lanes && status == SPR_OK; i++) {
        status = verbs_qp_reset(t, &l->lane[i], &error);
        if (status == SPR_OK)
            status = verbs_post_receives(l, &l->lane[i]);
    }
    if (status)
        verbs_fail(t, l, status, "%s", error.text);
    else
        verbs_connect_by_cards(t, l);
}

/* rdma_cm cannot, for the reason given. A rank that is ready itself leaves it to the other one to
 * fall back, so that no side is up while the other one begins anew. */
static void fail(struct verbs_transport *t, struct verbs_link *l, const char *why)
{
    if (verbs_at_end_of_file(l)) {
        verbs_socket_gone(t, l);
    } else if (l->phase == VERBS_CM) {
        if (!t->cm.told_fallen_back)
            spr_warn(SPR_SUB_NET,
                     "verbs: rank %d: rdma_cm: %s; queue pairs are connected without it "
                     "(SPARRING_VERBS_CONNECT)",
                     l->tcp.link.peer, why);
        t->cm.told_fallen_back = true;
        if (verbs_say(l, SPR_VERBS_FALL_BACK))
            verbs_cm_give_up(t, l);
        else
            verbs_fail(t, l, SPR_ERR_LINK, "connection lost while queue pairs are connected");
    } else {
        verbs_fail(t, l, SPR_ERR_LINK, "rdma_cm: %s", why);
    }
}

void verbs_cm_late(struct verbs_transport *t, struct verbs_link *l)
{
    char why[80];

    if (l->phase == VERBS_CM) {
        snprintf(why, sizeof why, "not connected in time (%g s)",
                 allowance_s(t) * spr_time_factor());
        fail(t, l, why);
    } else if (l->phase == VERBS_READY || l->phase == VERBS_UP) {
        fail(t, l, "the peer has ended the connection of its queue pair");
    }
}

/* ---- Steps ------------------------------------------------------------------------------------*/

static spr_status refused(const struct verbs_lane *lane, const char *call, struct spr_error *error)
{
    return spr_error_errno(error, SPR_ERR_LINK, -1, errno, "%s on %s", call,
                           lane->rail->device.name);
}

static void greet(const struct verbs_transport *t, const struct verbs_link *l,
                  const struct verbs_lane *lane, struct spr_verbs_hello *hello,
                  struct rdma_conn_param *param)
{
    const struct spr_options *o = t->tcp.base.params.options;

    *hello = (struct spr_verbs_hello){.magic = SPR_VERBS_MAGIC,
                                      .version = SPR_VERBS_VERSION,
                                      .lane = (uint16_t)(lane - l->lane),
                                      .rank = (uint32_t)t->tcp.base.params.rank};
    memcpy(hello->nonce, l->theirs.nonce, sizeof hello->nonce);
    *param = (struct rdma_conn_param){.private_data = hello,
                                      .private_data_len = sizeof *hello,
                                      .responder_resources = 1,
                                      .initiator_depth = 1,
                                      .retry_count = (uint8_t)o->verbs_retry,
                                      .rnr_retry_count = VERBS_RNR_RETRIES,
                                      .qp_num = lane->qp->qp_num};
}

static bool knows(const struct verbs_link *l, const struct spr_verbs_hello *hello)
{
    return hello->magic == SPR_VERBS_MAGIC && hello->version == SPR_VERBS_VERSION &&
           hello->rank == (uint32_t)l->tcp.link.peer &&
           CRYPTO_memcmp(hello->nonce, l->nonce, sizeof hello->nonce) == 0;
}

/* To RTS, with what rdma_cm has found out. */
static spr_status connect_queue_pair(struct verbs_transport *t, struct verbs_link *l,
                                     struct verbs_lane *lane, struct spr_error *error)
{
    uint32_t number = (uint32_t)(lane - l->lane);
    uint32_t pkey = (uint32_t)t->tcp.base.params.options->verbs_pkey;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT}, rtr = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
    struct verbs_path path;
    spr_status status = SPR_OK;
    int mask;

    if (rdma_init_qp_attr(lane->id, &init, &mask) || rdma_init_qp_attr(lane->id, &rtr, &mask) ||
        rdma_init_qp_attr(lane->id, &rts, &mask))
        return refused(lane, "rdma_init_qp_attr", error);
    if (init.port_num != lane->rail->device.port_number)
        return spr_error_set(error, SPR_ERR_LINK, -1, "%s is reached over another port",
                             lane->rail->device.name);
    if (init.pkey_index != pkey)
        status = verbs_qp_init(lane, init.pkey_index, error);
    path = (struct verbs_path){rtr.ah_attr, rtr.path_mtu, rtr.rq_psn, rts.sq_psn};
    return status ? status : verbs_qp_connect(t, l, number, &path, error);
}

static spr_status resolve_address(struct verbs_transport *t, struct verbs_link *l,
                                  struct verbs_lane *lane, struct spr_error *error)
{
    const struct spr_options *o = t->tcp.base.params.options;
    struct spr_tcp_address from = lane->rail->cm, to = l->theirs.end[lane - l->lane].cm;
    uint8_t timeout = (uint8_t)o->verbs_timeout, class = (uint8_t)o->verbs_traffic_class;
    int limit_ms = (int)(spr_tcp_seconds_ns(allowance_s(t)) / 1000000u);
    struct sockaddr_storage source, target;

    from.port = 0;
    /* The scope of a link-local address is the number of our own interface on that wire. */
    to.scope = from.scope;
    if (!from.family || from.family != to.family)
        return spr_error_set(error, SPR_ERR_LINK, -1, "%s and the peer's have no common IP version",
                             lane->rail->device.name);
    (void)spr_tcp_address_to(&from, &source);
    (void)spr_tcp_address_to(&to, &target);
    if (rdma_create_id(t->cm.channel, &lane->id, l, RDMA_PS_TCP)) {
        lane->id = NULL;
        return refused(lane, "rdma_create_id", error);
    }
    /* Without them the kernel's would be used: 2.1 s, and class 0. */
    (void)rdma_set_option(lane->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                          sizeof timeout);
    if (class)
        (void)rdma_set_option(lane->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof class);
    if (rdma_resolve_addr(lane->id, (struct sockaddr *)&source, (struct sockaddr *)&target,
                          limit_ms))
        return refused(lane, "rdma_resolve_addr", error);
    return SPR_OK;
}

static spr_status resolve_route(struct verbs_transport *t, struct verbs_link *l,
                                struct verbs_lane *lane, const struct verbs_cm_event *e,
                                struct spr_error *error)
{
    int limit_ms = (int)(spr_tcp_seconds_ns(allowance_s(t)) / 1000000u);

    (void)l;
    (void)e;
    return rdma_resolve_route(lane->id, limit_ms) ? refused(lane, "rdma_resolve_route", error)
                                                  : SPR_OK;
}

static spr_status request(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                          const struct verbs_cm_event *e, struct spr_error *error)
{
    struct spr_verbs_hello hello;
    struct rdma_conn_param param;

    (void)e;
    greet(t, l, lane, &hello, &param);
    return rdma_connect(lane->id, &param) ? refused(lane, "rdma_connect", error) : SPR_OK;
}

/* The reply has come. */
static spr_status establish(struct verbs_transport *t, struct verbs_link *l,
                            struct verbs_lane *lane, const struct verbs_cm_event *e,
                            struct spr_error *error)
{
    spr_status status;

    if (!knows(l, &e->hello))
        return spr_error_set(error, SPR_ERR_LINK, -1, "the reply is not the peer's");
    status = connect_queue_pair(t, l, lane, error);
    if (status == SPR_OK && rdma_establish(lane->id))
        return refused(lane, "rdma_establish", error);
    return status;
}

/* The request has come, and the card. */
static spr_status answer(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                         const struct verbs_cm_event *e, struct spr_error *error)
{
    uint8_t timeout = (uint8_t)t->tcp.base.params.options->verbs_timeout;
    struct spr_verbs_hello hello;
    struct rdma_conn_param param;
    spr_status status;

    (void)e;
    (void)rdma_set_option(lane->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                          sizeof timeout);
    status = connect_queue_pair(t, l, lane, error);
    if (status)
        return status;
    greet(t, l, lane, &hello, &param);
    return rdma_accept(lane->id, &param) ? refused(lane, "rdma_accept", error) : SPR_OK;
}

static spr_status wait_for_word(struct verbs_transport *t, struct verbs_link *l,
                                struct verbs_lane *lane, const struct verbs_cm_event *e,
                                struct spr_error *error)
{
    (void)lane;
    (void)e;
    (void)error;
    verbs_cm_allow(t, l, PATIENCE_S);
    return SPR_OK;
}

static spr_status tell_change(struct verbs_transport *t, struct verbs_link *l,
                              struct verbs_lane *lane, const struct verbs_cm_event *e,
                              struct spr_error *error)
{
    (void)t;
    (void)e;
    (void)error;
    spr_warn(SPR_SUB_NET, "verbs: rank %d: the address of %s has moved to another interface",
             l->tcp.link.peer, lane->rail->device.name);
    return SPR_OK;
}

/* ---- Events -----------------------------------------------------------------------------------*/

static const struct {
    enum verbs_cm_state in;
    enum rdma_cm_event_type event;
    spr_status (*act)(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                      const struct verbs_cm_event *e, struct spr_error *error); /* NULL: nothing */
    enum verbs_cm_state then;
} steps[] = {
    {VERBS_CM_ADDRESS, RDMA_CM_EVENT_ADDR_RESOLVED, resolve_route, VERBS_CM_ROUTE},
    {VERBS_CM_ROUTE, RDMA_CM_EVENT_ROUTE_RESOLVED, request, VERBS_CM_REQUESTED},
    {VERBS_CM_REQUESTED, RDMA_CM_EVENT_CONNECT_RESPONSE, establish, VERBS_CM_CONNECTED},
    {VERBS_CM_NONE, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, VERBS_CM_HELD},
    {VERBS_CM_AWAITED, RDMA_CM_EVENT_CONNECT_REQUEST, answer, VERBS_CM_CONNECTED},
    /* Whether the peer has connected its queue pair it says on the socket. */
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_ESTABLISHED, NULL, VERBS_CM_CONNECTED},
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_CONNECT_ERROR, NULL, VERBS_CM_CONNECTED},
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_UNREACHABLE, NULL, VERBS_CM_CONNECTED},
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL, VERBS_CM_CONNECTED},
    /* So it does why it has taken the connection back: it falls back, or has ended. */
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_REJECTED, wait_for_word, VERBS_CM_CONNECTED},
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_DISCONNECTED, wait_for_word, VERBS_CM_CONNECTED},
    /* As when bonded interfaces change over: the device finds out whether the path still works. */
    {VERBS_CM_CONNECTED, RDMA_CM_EVENT_ADDR_CHANGE, tell_change, VERBS_CM_CONNECTED},
};

/* All others are failures. */
static const struct {
    enum rdma_cm_event_type event;
    const char *text;
} failures[] = {
    {RDMA_CM_EVENT_ADDR_ERROR, "its address cannot be resolved"},
    {RDMA_CM_EVENT_ROUTE_ERROR, "there is no route; InfiniBand: the subnet manager gives no path"},
    {RDMA_CM_EVENT_UNREACHABLE, "it does not answer"},
    {RDMA_CM_EVENT_REJECTED, "it refuses"},
    {RDMA_CM_EVENT_DISCONNECTED, "it has ended the connection"},
    {RDMA_CM_EVENT_CONNECT_ERROR, "the connection failed"},
    {RDMA_CM_EVENT_DEVICE_REMOVAL, "the device is removed"},
};

static void failed(struct verbs_transport *t, struct verbs_link *l, const struct verbs_lane *lane,
                   const struct verbs_cm_event *e)
{
    char why[200], to[SPR_TCP_ADDRESS_TEXT];
    const char *text = rdma_event_str(e->type);

    for (size_t i = 0; i < SPR_ARRAY_LEN(failures); i++)
        if (failures[i].event == e->type)
            text = failures[i].text;
    spr_tcp_address_print(&l->theirs.end[lane - l->lane].cm, to, sizeof to);
    snprintf(why, sizeof why, "%s to %s: %s (status %d)", lane->rail->device.name, to, text,
             e->status);
    fail(t, l, why);
}

/* When the last lane is connected this end is ready. */
static void entered(struct verbs_transport *t, struct verbs_link *l)
{
    for (uint32_t i = 0; i < l->lanes; i++)
        if (l->lane[i].cm != VERBS_CM_CONNECTED)
            return;
    if (l->phase != VERBS_CM)
        return;
    verbs_cm_allow(t, l, 0);
    verbs_ready(t, l);
}

/* False: the table has no such step. */
static bool step(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                 const struct verbs_cm_event *e)
{
    struct spr_error error = {0};
    size_t i = 0;

    while (i < SPR_ARRAY_LEN(steps) && (steps[i].in != lane->cm || steps[i].event != e->type))
        i++;
    if (i == SPR_ARRAY_LEN(steps))
        return false;
    if (steps[i].act && steps[i].act(t, l, lane, e, &error)) {
        fail(t, l, error.text);
        return true;
    }
    lane->cm = steps[i].then;
    entered(t, l);
    return true;
}

void verbs_cm_drive(struct verbs_transport *t, struct verbs_link *l, const struct rdma_cm_id *id,
                    const struct verbs_cm_event *e)
{
    struct verbs_lane *lane = NULL;

    for (uint32_t i = 0; i < VERBS_LANES; i++)
        lane = l->lane[i].id == id ? &l->lane[i] : lane;
    if (!lane || l->phase == VERBS_ENDING || l->phase == VERBS_OVER || step(t, l, lane, e))
        return;
    failed(t, l, lane, e);
}

bool verbs_cm_knock(struct verbs_transport *t, const struct verbs_rail *rail, struct rdma_cm_id *id,
                    const struct verbs_cm_event *e)
{
    const struct spr_transport_params *p = &t->tcp.base.params;
    const struct spr_verbs_hello *hello = &e->hello;
    struct verbs_lane *lane;
    struct verbs_link *l;

    if (hello->rank >= (uint32_t)p->size || hello->rank <= (uint32_t)p->rank)
        return false;
    l = verbs_link_of(t->tcp.links[hello->rank]);
    if (!l || !knows(l, hello) || hello->lane >= l->lanes ||
        !(l->phase == VERBS_CM || (l->phase == VERBS_CARDS && l->offers_cm)))
        return false;
    lane = &l->lane[hello->lane];
    if (lane->id || lane->rail != rail)
        return false;
    lane->id = id;
    id->context = l;
    (void)step(t, l, lane, e);
    return true;
}

void verbs_cm_start(struct verbs_transport *t, struct verbs_link *l)
{
    static const struct verbs_cm_event came = {.type = RDMA_CM_EVENT_CONNECT_REQUEST};

    l->by_cm = true;
    l->phase = VERBS_CM;
    verbs_cm_allow(t, l, allowance_s(t));
    for (uint32_t i = 0; i < l->lanes && l->phase == VERBS_CM; i++) {
        struct verbs_lane *lane = &l->lane[i];
        bool held = lane->cm == VERBS_CM_HELD;
        struct spr_error error = {0};
        lane->cm = connects(t, l) ? VERBS_CM_ADDRESS : VERBS_CM_AWAITED;
        if (connects(t, l) && resolve_address(t, l, lane, &error))
            fail(t, l, error.text);
        else if (held)
            (void)step(t, l, lane, &came);
    }
}
