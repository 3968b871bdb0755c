/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Completion queues and queue pairs.
 *
 * Sends and receives of a lane complete in the same queue, so that what arrived before a failure is
 * seen before it. A completion queue serves as many lanes as it has room for all their work
 * requests: it cannot overflow. (soft-RoCE would drop completions silently.)
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "transport/verbs/verbs.h"

#define MOST_COMPLETIONS 65536u
#define RNR_TIMER 12 /* 0.64 ms */
#define HOP_LIMIT 255

static struct ibv_qp *make_qp(const struct verbs_device *d, struct ibv_cq *cq,
                              uint32_t inline_bytes)
{
    struct ibv_qp_init_attr attr = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = VERBS_SEND_DEPTH,
                                            .max_recv_wr = VERBS_RECEIVE_DEPTH,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 1,
                                            .max_inline_data = inline_bytes}};

    return ibv_create_qp(d->pd, &attr);
}

void verbs_inline_probe(struct verbs_device *d)
{
    static const uint32_t sizes[] = {512, 384, 256, 220, 192, 128, SPR_VERBS_HEAD};
    struct ibv_cq *cq = ibv_create_cq(d->context, 16, NULL, NULL, 0);

    d->inline_bytes = 0;
    for (size_t i = 0; cq && !d->inline_bytes && i < SPR_ARRAY_LEN(sizes); i++) {
        struct ibv_qp *qp = make_qp(d, cq, sizes[i]);
        if (!qp)
            continue;
        d->inline_bytes = sizes[i];
        (void)ibv_destroy_qp(qp);
    }
    if (cq)
        (void)ibv_destroy_cq(cq);
}

/* A completion queue with room for one more lane; made for as many as may come. */
static struct verbs_cq *find_cq(const struct verbs_transport *t, struct verbs_rail *rail,
                                struct spr_error *error)
{
    const struct verbs_device *d = &rail->device;
    uint32_t most = (uint32_t)spr_min_size((size_t)d->limits.max_cqe, MOST_COMPLETIONS);
    uint32_t peers = (uint32_t)t->tcp.base.params.size - 1;
    uint32_t expected = peers * (uint32_t)t->tcp.base.params.options->verbs_qps;
    uint32_t lanes = most / VERBS_LANE_COMPLETIONS;
    struct verbs_cq *c, **more;

    c = rail->cq_count > 0 ? rail->cqs[rail->cq_count - 1] : NULL;
    if (c && c->lanes < c->most_lanes)
        return c;
    lanes = lanes < expected ? lanes : expected;
    lanes = lanes ? lanes : 1;
    more = spr_realloc(rail->cqs, (rail->cq_count + 1) * sizeof *rail->cqs);
    if (more)
        rail->cqs = more;
    c = more ? spr_calloc(1, sizeof *c) : NULL;
    if (!c) {
        spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a completion queue");
        return NULL;
    }
    c->cq = ibv_create_cq(d->context, (int)(lanes * VERBS_LANE_COMPLETIONS), c, d->channel, 0);
    if (!c->cq) {
        spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno,
                        "%s refuses a completion queue of %u entries", d->name,
                        lanes * VERBS_LANE_COMPLETIONS);
        spr_free(c);
        return NULL;
    }
    c->most_lanes = lanes;
    rail->cqs[rail->cq_count++] = c;
    return c;
}

spr_status verbs_qp_init(struct verbs_lane *lane, uint32_t pkey_index, struct spr_error *error)
{
    const struct verbs_device *d = &lane->rail->device;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)pkey_index,
                               .port_num = d->port_number,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int failed = ibv_modify_qp(
        lane->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    if (!failed)
        return SPR_OK;
    return spr_error_errno(error, SPR_ERR_SYSTEM, -1, failed,
                           "%s refuses a queue pair (pkey index %u)", d->name, pkey_index);
}

spr_status verbs_qp_reset(struct verbs_transport *t, struct verbs_lane *lane,
                          struct spr_error *error)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    int failed = ibv_modify_qp(lane->qp, &attr, IBV_QP_STATE);

    lane->unposted = VERBS_RECEIVE_DEPTH;
    if (failed)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, failed, "%s does not reset a queue pair",
                               lane->rail->device.name);
    return verbs_qp_init(lane, (uint32_t)t->tcp.base.params.options->verbs_pkey, error);
}

spr_status verbs_qp_create(struct verbs_transport *t, struct verbs_lane *lane,
                           struct spr_error *error)
{
    const struct verbs_device *d = &lane->rail->device;
    struct verbs_cq *c = find_cq(t, lane->rail, error);

    if (!c)
        return SPR_ERR_SYSTEM;
    lane->qp = make_qp(d, c->cq, d->inline_bytes);
    if (!lane->qp)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "%s refuses a queue pair",
                               d->name);
    lane->cq = c;
    c->lanes++;
    /* Random, so that packets of an earlier connection are not taken for ours. */
    lane->first_sequence = spr_hash_u32(spr_monotonic_ns() ^ lane->qp->qp_num) & 0xffffff;
    return verbs_qp_init(lane, (uint32_t)t->tcp.base.params.options->verbs_pkey, error);
}

static void set_path(const struct spr_options *o, const struct verbs_device *d,
                     const struct spr_verbs_end *to, struct ibv_ah_attr *ah)
{
    bool ethernet = d->port.link_layer == IBV_LINK_LAYER_ETHERNET;

    *ah = (struct ibv_ah_attr){.port_num = d->port_number,
                               .sl = (uint8_t)o->verbs_sl,
                               .dlid = to->lid,
                               .is_global = ethernet || o->verbs_gid >= 0};
    memcpy(ah->grh.dgid.raw, to->gid, sizeof ah->grh.dgid.raw);
    ah->grh.sgid_index = (uint8_t)d->gid_index;
    ah->grh.hop_limit = HOP_LIMIT;
    ah->grh.traffic_class = (uint8_t)o->verbs_traffic_class;
}

void verbs_path_by_cards(const struct verbs_transport *t, const struct verbs_link *l,
                         uint32_t number, struct verbs_path *path)
{
    const struct spr_verbs_end *to = &l->theirs.end[number];
    const struct verbs_lane *lane = &l->lane[number];

    path->mtu = IBV_MTU_4096;
    path->rx_sequence = to->first_sequence;
    path->tx_sequence = lane->first_sequence;
    set_path(t->tcp.base.params.options, &lane->rail->device, to, &path->ah);
}

static enum ibv_mtu lower_mtu(enum ibv_mtu a, enum ibv_mtu b) { return a < b ? a : b; }

static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5, "the choices of verbs_mtu");

enum ibv_mtu verbs_mtu(const struct verbs_transport *t, const struct verbs_device *d)
{
    enum ibv_mtu asked = (enum ibv_mtu)t->tcp.base.params.options->verbs_mtu;

    return asked ? lower_mtu(asked, d->port.active_mtu) : d->port.active_mtu;
}

spr_status verbs_qp_connect(struct verbs_transport *t, struct verbs_link *l, uint32_t number,
                            const struct verbs_path *path, struct spr_error *error)
{
    const struct spr_options *o = t->tcp.base.params.options;
    const struct spr_verbs_end *to = &l->theirs.end[number];
    const struct verbs_lane *lane = &l->lane[number];
    const struct verbs_device *d = &lane->rail->device;
    enum ibv_mtu mtu = lower_mtu((enum ibv_mtu)to->mtu, verbs_mtu(t, d));
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = lower_mtu(path->mtu, mtu),
                              .ah_attr = path->ah,
                              .dest_qp_num = to->queue_pair,
                              .rq_psn = path->rx_sequence,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = RNR_TIMER};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .sq_psn = path->tx_sequence,
                              .timeout = (uint8_t)o->verbs_timeout,
                              .retry_cnt = (uint8_t)o->verbs_retry,
                              .rnr_retry = VERBS_RNR_RETRIES,
                              .max_rd_atomic = 1};
    char gid[VERBS_GID_TEXT];
    int failed;

    failed = ibv_modify_qp(lane->qp, &rtr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!failed)
        failed = ibv_modify_qp(lane->qp, &rts,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (!failed)
        return SPR_OK;
    return spr_error_errno(error, SPR_ERR_LINK, l->tcp.link.peer, failed,
                           "%s cannot connect to GID %s of rank %d", d->name,
                           verbs_gid_print((const union ibv_gid *)to->gid, gid, sizeof gid),
                           l->tcp.link.peer);
}

void verbs_qp_stop(struct verbs_lane *lane)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (lane->qp)
        (void)ibv_modify_qp(lane->qp, &attr, IBV_QP_STATE);
}

void verbs_qp_destroy(struct verbs_lane *lane)
{
    if (lane->qp)
        (void)ibv_destroy_qp(lane->qp);
    lane->qp = NULL;
    if (lane->cq)
        lane->cq->lanes--;
    lane->cq = NULL;
}

void verbs_cqs_destroy(struct verbs_rail *rail)
{
    verbs_disarm(rail);
    for (uint32_t i = 0; i < rail->cq_count; i++) {
        (void)ibv_destroy_cq(rail->cqs[i]->cq);
        spr_free(rail->cqs[i]);
    }
    spr_free(rail->cqs);
    rail->cqs = NULL;
    rail->cq_count = 0;
}

bool verbs_arm(struct verbs_transport *t)
{
    for (uint32_t r = 0; r < t->rails; r++) {
        for (uint32_t i = 0; i < t->rail[r].cq_count; i++) {
            struct verbs_cq *c = t->rail[r].cqs[i];
            if (!c->armed && ibv_req_notify_cq(c->cq, 0))
                return false;
            c->armed = true;
        }
    }
    return true;
}

void verbs_disarm(struct verbs_rail *rail)
{
    struct ibv_cq *cq;
    void *context;

    if (!rail->device.channel)
        return;
    while (ibv_get_cq_event(rail->device.channel, &cq, &context) == 0) {
        struct verbs_cq *c = context;
        c->armed = false;
        /* Takes a lock; nobody destroys a queue meanwhile. */
        ibv_ack_cq_events(cq, 1);
    }
}
