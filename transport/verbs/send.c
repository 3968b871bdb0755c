/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frames into slots of the peer; a payload that is PLACED straight to where the peer wants it, as a
 * write of its own before that of its frame. What is queued goes out as one chain of work requests,
 * of which the last is signalled: a completion means that all before it are over, too.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "transport/verbs/verbs.h"

struct chain {
    struct ibv_send_wr wr[VERBS_CHAIN];
    struct ibv_sge sge[VERBS_CHAIN][2];
    int n;
};

static uint32_t under_way(const struct verbs_link *l) { return l->wr_next - l->wr_first; }

bool verbs_given_back(struct verbs_link *l, uint32_t given_back)
{
    uint32_t news = given_back ^ l->seen_back, busy = l->used ^ l->seen_back;

    l->seen_back = given_back;
    return (news & ~busy) == 0;
}

/* A free slot of the peer for a message, or -1. */
static int find_slot(const struct verbs_link *l, uint32_t bytes)
{
    uint32_t all = (1u << spr_verbs_slot_count(&l->remote)) - 1u;
    uint32_t small = (1u << l->remote.small) - 1u;
    uint32_t room = all & ~(l->used ^ l->seen_back);

    room &= bytes <= l->remote.small_bytes - SPR_VERBS_LEAD ? small : ~small;
    return room ? __builtin_ctz(room) : -1;
}

/* Room for `n` more work requests. */
static bool room_for(const struct verbs_link *l, const struct chain *c, uint32_t n)
{
    return (uint32_t)c->n + n <= VERBS_CHAIN && under_way(l) + n <= VERBS_SEND_DEPTH;
}

/* Add an empty work request. */
static struct ibv_send_wr *add(struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *wr = &c->wr[c->n];

    *wr = (struct ibv_send_wr){.wr_id = (uint64_t)l->tcp.link.peer << 32 | l->wr_next,
                               .sg_list = c->sge[c->n],
                               .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    wr->wr.rdma.rkey = l->remote.rkey;
    if (c->n > 0)
        c->wr[c->n - 1].next = wr;
    c->n++;
    l->wr[l->wr_next % VERBS_SEND_DEPTH] = (struct verbs_wr){0};
    l->wr_next++;
    l->told = l->given_back;
    return wr;
}

static void add_credit(struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *wr = add(l, c);

    wr->imm_data = htonl(SPR_VERBS_CREDIT | l->given_back);
    wr->wr.rdma.remote_addr = l->remote.address;
}

/* Where the payload is read from. False: no buffer is free. */
static bool place_payload(struct verbs_transport *t, const struct spr_tx *tx, struct ibv_sge *sge,
                          struct verbs_wr *record)
{
    size_t bytes = tx->header.bytes;
    const struct verbs_region *r =
        bytes >= VERBS_DIRECT_BYTES ? verbs_region_find(t, tx->data, bytes) : NULL;

    if (!r) {
        record->staging = verbs_staging_get(t, bytes);
        if (!record->staging)
            return false;
        memcpy(record->staging, tx->data, bytes);
    }
    *sge = (struct ibv_sge){.addr = r ? (uintptr_t)tx->data : (uintptr_t)record->staging,
                            .length = (uint32_t)bytes,
                            .lkey = r ? r->mr->lkey : t->staging.mr->lkey};
    return true;
}

static void add_placed(struct verbs_link *l, struct chain *c, const struct spr_place *place,
                       const struct ibv_sge *payload)
{
    struct ibv_send_wr *wr = add(l, c);

    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->sg_list[0] = *payload;
    wr->num_sge = 1;
    wr->wr.rdma.remote_addr = place->address;
    wr->wr.rdma.rkey = place->keys[0];
}

/* False: it has to wait. Else *copied tells whether its data is not needed any more. */
static bool add_message(struct verbs_transport *t, struct verbs_link *l, struct chain *c,
                        struct spr_tx *tx, bool *copied)
{
    bool placed = tx->header.flags & SPR_FRAME_PLACED;
    uint32_t bytes = SPR_VERBS_HEAD + (placed ? 0 : tx->header.bytes);
    struct spr_verbs_prefix prefix = {.given_back = l->given_back, .number = l->tx_number};
    bool in_line = bytes <= t->device.inline_bytes, whole = false;
    struct ibv_sge payload = {0};
    struct verbs_wr record = {0};
    struct ibv_send_wr *wr;
    uint8_t *cell;
    int slot = find_slot(l, bytes);

    if (slot < 0 || !room_for(l, c, placed ? 2 : 1))
        return false;
    if (bytes <= VERBS_CELL_BYTES && !placed) {
        whole = true;
    } else if (in_line && !placed) {
        payload = (struct ibv_sge){.addr = (uintptr_t)tx->data, .length = tx->header.bytes};
    } else if (!place_payload(t, tx, &payload, &record)) {
        if (spr_list_empty(&l->hungry))
            spr_list_push_back(&t->hungry, &l->hungry);
        return false;
    }
    if (placed)
        add_placed(l, c, &tx->place, &payload);
    cell = l->cells + l->wr_next % VERBS_SEND_DEPTH * VERBS_CELL_BYTES;
    memcpy(cell, &prefix, sizeof prefix);
    memcpy(cell + sizeof prefix, &tx->header, SPR_FRAME_BYTES);
    wr = add(l, c);
    if (whole && tx->header.bytes)
        memcpy(cell + SPR_VERBS_HEAD, tx->data, tx->header.bytes);
    wr->sg_list[0] =
        (struct ibv_sge){(uintptr_t)cell, whole ? bytes : SPR_VERBS_HEAD, l->cells_mr->lkey};
    wr->sg_list[1] = payload;
    wr->num_sge = whole || placed ? 1 : 2;
    wr->send_flags = in_line ? IBV_SEND_INLINE : 0;
    wr->imm_data = htonl((uint32_t)slot);
    wr->wr.rdma.remote_addr =
        l->remote.address + spr_verbs_slot_offset(&l->remote, (uint32_t)slot) + SPR_VERBS_LEAD;
    *copied = whole || (in_line && !placed) || record.staging;
    record.tx = *copied ? NULL : tx;
    l->wr[(l->wr_next - 1) % VERBS_SEND_DEPTH] = record;
    l->used ^= 1u << slot;
    l->tx_number++;
    return true;
}

static void count(struct verbs_transport *t, const struct spr_tx *tx, bool copied)
{
    struct spr_counters *counters = t->tcp.base.params.counters;

    counters->sent_frames++;
    counters->sent_bytes += SPR_FRAME_BYTES + tx->header.bytes;
    counters->zerocopy_sends += !copied;
    counters->copied_sends += copied && tx->header.bytes >= VERBS_DIRECT_BYTES;
}

/* Take queued frames into the chain; returns those that are the caller's again. */
static struct spr_tx *gather(struct verbs_transport *t, struct verbs_link *l, struct chain *c)
{
    struct spr_tcp_conn *queue = &l->tcp.conn;
    struct spr_tx *copied = NULL, **last = &copied;

    while (room_for(l, c, 1) && queue->tx_first) {
        struct spr_tx *tx = queue->tx_first;
        bool is_copied = false;
        if (!add_message(t, l, c, tx, &is_copied))
            break;
        queue->tx_first = tx->next;
        if (!queue->tx_first)
            queue->tx_last = &queue->tx_first;
        tx->next = NULL;
        count(t, tx, is_copied);
        if (!is_copied)
            continue;
        *last = tx;
        last = &tx->next;
    }
    return copied;
}

static bool post(struct verbs_transport *t, struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *bad;
    int failed;

    c->wr[c->n - 1].send_flags |= IBV_SEND_SIGNALED;
    t->under_way += (size_t)c->n;
    failed = ibv_post_send(l->qp, c->wr, &bad);
    if (!failed)
        return true;
    verbs_fail(t, l, SPR_ERR_LINK, "%s refuses work requests: %s", t->device.name,
               strerrordesc_np(failed));
    /* Some of them will never complete. */
    l->drain_ns = 0;
    return false;
}

int verbs_flush(struct verbs_transport *t, struct verbs_link *l)
{
    int steps = 0;

    /* First the receives, then what allows the peer to use them; a few may be missing. */
    if (l->unposted > VERBS_SPARE_RECEIVES && verbs_post_receives(l)) {
        verbs_fail(t, l, SPR_ERR_LINK, "%s refuses receives", t->device.name);
        return 1;
    }
    while (l->phase == VERBS_UP) {
        struct chain c;
        struct spr_tx *copied;
        c.n = 0;
        copied = gather(t, l, &c);
        if (c.n == 0 && verbs_owes_credit(l) && under_way(l) < VERBS_SEND_DEPTH)
            add_credit(l, &c);
        if (c.n == 0)
            break;
        (void)post(t, l, &c);
        steps += c.n + spr_tcp_tell_sent(&l->tcp, copied);
        if (c.n < VERBS_CHAIN - 1)
            break;
    }
    return steps;
}

int verbs_completed(struct verbs_transport *t, struct verbs_link *l, uint32_t number, bool good)
{
    struct spr_tx *over = NULL, **last = &over;

    /* Said before: a later one of the same chain was signalled. */
    if (number - l->wr_first >= under_way(l))
        return 0;
    while (l->wr_first != number + 1) {
        struct verbs_wr *wr = &l->wr[l->wr_first % VERBS_SEND_DEPTH];
        l->wr_first++;
        t->under_way--;
        if (wr->staging)
            verbs_staging_put(t, wr->staging);
        if (wr->tx) {
            wr->tx->failed = !good;
            wr->tx->next = NULL;
            *last = wr->tx;
            last = &wr->tx->next;
        }
        *wr = (struct verbs_wr){0};
    }
    return 1 + spr_tcp_tell_sent(&l->tcp, over);
}
