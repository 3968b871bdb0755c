/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frames out of the own slots. That a frame has arrived is known from the completion, never from
 * looking at the slot. The peer can write the slot at any time: what decides is read once. The
 * payload of a frame that is PLACED is where this rank let the peer write, written before the frame
 * on the same queue pair, so it is all there. Frames are taken in the order of their numbers, since
 * one lane may be quicker than another.
 */
#include <arpa/inet.h>
#include <string.h>

#include "transport/verbs/verbs.h"

spr_status verbs_post_receives(struct verbs_link *l, struct verbs_lane *lane)
{
    struct ibv_recv_wr chain[VERBS_RECEIVE_DEPTH], *bad;
    uint64_t id = VERBS_RECEIVE_ID | (uint64_t)(lane - l->lane) << VERBS_LANE_BIT |
                  (uint64_t)l->tcp.link.peer << 32;
    uint32_t n = lane->unposted;

    if (n == 0)
        return SPR_OK;
    /* They only count: a write with immediate says itself where it goes. */
    for (uint32_t i = 0; i < n; i++)
        chain[i] = (struct ibv_recv_wr){.wr_id = id, .next = i + 1 < n ? &chain[i + 1] : NULL};
    if (ibv_post_recv(lane->qp, chain, &bad))
        return SPR_ERR_SYSTEM;
    lane->unposted = 0;
    return SPR_OK;
}

static uint32_t bits(uint32_t first, uint32_t count) { return ((1u << count) - 1u) << first; }

/* Of the slots of one size. */
static bool owes(uint32_t untold, uint32_t taken, uint32_t first, uint32_t count)
{
    uint32_t all = bits(first, count), news = untold & all;

    return news && ((taken & all) == all || 2 * (uint32_t)__builtin_popcount(news) >= count);
}

/* As the peer sees it a slot is taken while its payload is borrowed, and until it has been told. */
bool verbs_owes_credit(const struct verbs_link *l)
{
    uint32_t untold = l->given_back ^ l->told, taken = l->held | untold;

    return owes(untold, taken, 0, l->own.small) || owes(untold, taken, l->own.small, l->own.large);
}

/* One reader less; the last one gives it back. */
static void give_back(struct verbs_link *l, uint32_t slot)
{
    if (--l->readers[slot] > 0)
        return;
    l->held &= ~(1u << slot);
    l->given_back ^= 1u << slot;
}

/* A token is the number of the slot, plus 1. */
void verbs_release(struct spr_link *link, void *token)
{
    struct verbs_link *l = verbs_link_of((struct spr_tcp_link *)link);
    uintptr_t slot = (uintptr_t)token;

    if (!token)
        return;
    give_back(l, (uint32_t)slot - 1);
    if (l->phase == VERBS_UP && verbs_owes_credit(l))
        spr_tcp_wake(spr_tcp_of(link->transport), &l->tcp);
}

bool verbs_expose(struct spr_link *link, void *memory, size_t bytes, struct spr_place *place)
{
    struct verbs_transport *t = verbs_of(link->transport);
    const struct verbs_link *l = verbs_link_of(spr_tcp_link_of(link));
    const struct verbs_region *r =
        bytes >= VERBS_DIRECT_BYTES ? verbs_region_find(t, memory, bytes) : NULL;

    if (!r || !r->writable)
        return false;
    *place = (struct spr_place){.address = (uintptr_t)memory};
    for (uint32_t i = 0; i < l->lanes; i++)
        place->keys[i] = r->mr[l->lane[i].rail->number]->rkey;
    return true;
}

static int broken(struct verbs_transport *t, struct verbs_link *l, const char *text)
{
    verbs_fail(t, l, SPR_ERR_PROTO, "%s", text);
    return 1;
}

/* Upcalls for a frame whose header is in *f and whose payload is in `data`; NULL: it is PLACED. */
static int deliver(struct verbs_transport *t, struct verbs_link *l, uint32_t slot,
                   struct spr_frame *f, const uint8_t *data)
{
    const struct spr_transport_params *p = &t->tcp.base.params;
    struct spr_rx rx = {.sink = SPR_SINK_DROP};
    const void *where = NULL;
    void *token = NULL;
    spr_status status;

    status = p->events->header(&l->tcp.link, f, &rx);
    if (l->tcp.over)
        return 1;
    if (status) {
        verbs_fail(t, l, status, "a frame breaks the protocol");
        return 1;
    }
    if (f->bytes && rx.sink == SPR_SINK_INTO) {
        if (data)
            memcpy(rx.into, data, f->bytes);
        where = rx.into;
    } else if (f->bytes && data && rx.sink == SPR_SINK_BORROW) {
        where = data;
        token = (void *)(uintptr_t)(slot + 1);
        l->readers[slot]++;
    }
    p->counters->received_frames++;
    p->counters->received_bytes += SPR_FRAME_BYTES + f->bytes;
    p->events->payload(&l->tcp.link, f, where, token);
    return 1;
}

/* The frame that begins at byte `at` of a message; *end: where it ends. */
static int take_frame(struct verbs_transport *t, struct verbs_link *l, uint32_t slot,
                      uint32_t bytes, uint32_t at, uint32_t *end)
{
    const uint8_t *message = l->memory + spr_verbs_slot_offset(&l->own, slot) + SPR_VERBS_LEAD;
    struct spr_frame f;
    bool placed;

    *end = at + SPR_FRAME_BYTES;
    if (*end > bytes)
        return broken(t, l, "a message is not what was announced");
    memcpy(&f, message + at, sizeof f);
    placed = f.flags & SPR_FRAME_PLACED;
    if (!placed && f.bytes > bytes - *end)
        return broken(t, l, "a message is not what was announced");
    message += *end;
    *end += placed ? 0 : f.bytes;
    return deliver(t, l, slot, &f, placed ? NULL : message);
}

/* The next one in order. What is not of its frames was checked when it arrived. The slot is held
 * until the upcalls are over, and longer when it is borrowed. */
static int take_message(struct verbs_transport *t, struct verbs_link *l, uint32_t slot,
                        uint32_t bytes)
{
    uint32_t at = SPR_VERBS_PREFIX, end = 0;
    int steps = 0;

    l->readers[slot] = 1;
    for (; l->phase == VERBS_UP && end != bytes; at = spr_verbs_next(end))
        steps += take_frame(t, l, slot, bytes, at, &end);
    if (l->phase == VERBS_UP)
        give_back(l, slot);
    return steps;
}

/* Note that it is there. False: it cannot be. */
static bool note_message(struct verbs_transport *t, struct verbs_link *l, uint32_t lane,
                         uint32_t word, uint32_t bytes)
{
    uint32_t slot = word & SPR_VERBS_SLOT_MASK, number = word >> SPR_VERBS_NUMBER_BIT;
    struct verbs_arrival *a = &l->arrival[number % VERBS_WINDOW];
    uint32_t given_back;
    const char *wrong = NULL;

    if (slot >= spr_verbs_slot_count(&l->own) || (l->held & 1u << slot)) {
        broken(t, l, "wrote to a slot that it does not have");
        return false;
    }
    if (bytes < SPR_VERBS_HEAD || bytes > spr_verbs_slot_bytes(&l->own, slot) - SPR_VERBS_LEAD) {
        broken(t, l, "a message does not fit its slot");
        return false;
    }
    memcpy(&given_back, l->memory + spr_verbs_slot_offset(&l->own, slot) + SPR_VERBS_LEAD,
           SPR_VERBS_PREFIX);
    if (number > SPR_VERBS_NUMBER_MASK || a->there ||
        ((number - l->rx_number) & SPR_VERBS_NUMBER_MASK) >= VERBS_WINDOW)
        wrong = "a message has a number that it cannot have";
    else if (lane == 0 && !verbs_given_back(l, given_back))
        wrong = "gave back a slot that it did not have";
    if (wrong) {
        broken(t, l, wrong);
        return false;
    }
    l->held |= 1u << slot;
    *a = (struct verbs_arrival){true, slot, bytes};
    return true;
}

static int arrived_message(struct verbs_transport *t, struct verbs_link *l, uint32_t lane,
                           uint32_t word, uint32_t bytes)
{
    struct verbs_arrival *a;
    int steps = 1;

    if (!note_message(t, l, lane, word, bytes))
        return steps;
    while (l->phase == VERBS_UP && (a = &l->arrival[l->rx_number % VERBS_WINDOW])->there) {
        a->there = false;
        l->rx_number++;
        steps += take_message(t, l, a->slot, a->bytes);
    }
    return steps;
}

static int take(struct verbs_transport *t, struct verbs_link *l, const struct ibv_wc *wc)
{
    uint32_t word = ntohl(wc->imm_data), lane = verbs_wc_lane(wc);

    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
        return broken(t, l, "an unexpected kind of message");
    if (!(word & SPR_VERBS_CREDIT))
        return arrived_message(t, l, lane, word, wc->byte_len);
    if (lane != 0 || !verbs_given_back(l, word & ~SPR_VERBS_CREDIT))
        return broken(t, l, "gave back a slot that it did not have");
    return 1;
}

int verbs_arrived(struct verbs_transport *t, struct verbs_link *l, const struct ibv_wc *wc)
{
    struct verbs_lane *lane = &l->lane[verbs_wc_lane(wc)];
    int steps;

    lane->unposted++;
    /* The peer sends only when both ends are ready. */
    if (l->phase == VERBS_READY)
        verbs_up(t, l);
    if (l->phase != VERBS_UP)
        return 1;
    steps = take(t, l, wc);
    /* A frame may have waited for the slots that the peer gave back. */
    if (l->tcp.conn.tx_first || lane->unposted > VERBS_SPARE_RECEIVES || verbs_owes_credit(l))
        spr_tcp_wake(&t->tcp, &l->tcp);
    return steps;
}
