/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frames into slots of the peer; a payload that is PLACED straight to where the peer wants it, as a
 * write of its own before that of its frame. Small frames that follow one another share a message:
 * each message costs the wire a packet and an acknowledgement, and both ends a work request. What
 * is queued goes out as one chain of work requests on each lane. The last is signalled when the
 * device reads the caller's memory or a buffer for one of them, and every so often: a completion
 * means that all before it are over, too.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "transport/verbs/verbs.h"

struct chain {
    struct verbs_lane *lane;
    struct ibv_send_wr wr[VERBS_CHAIN];
    struct ibv_sge sge[VERBS_CHAIN][2];
    int n;
    bool awaited; /* its end gives memory back */
};

/* The message that was added last, where more frames fit behind those in its cell. */
struct open {
    struct chain *chain; /* NULL: there is none */
    struct ibv_sge *cell;
    size_t room; /* bytes of a message, at most */
};

static uint32_t under_way(const struct verbs_lane *lane) { return lane->wr_next - lane->wr_first; }

bool verbs_under_way(const struct verbs_link *l)
{
    bool any = false;

    for (uint32_t i = 0; i < VERBS_LANES; i++)
        any |= under_way(&l->lane[i]) != 0;
    return any;
}

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

bool verbs_awaits(const struct verbs_link *l)
{
    bool any = false;

    for (uint32_t i = 0; i < VERBS_LANES; i++)
        any |= (int32_t)(l->lane[i].wr_told - l->lane[i].wr_first) > 0;
    return any;
}

void verbs_want_word(struct verbs_transport *t, struct verbs_link *l)
{
    if (l->phase != VERBS_UP)
        return;
    for (uint32_t i = 0; i < l->lanes; i++)
        l->lane[i].wants_word = l->lane[i].wr_told != l->lane[i].wr_next;
    spr_tcp_wake(&t->tcp, &l->tcp);
}

/* Room for `n` more work requests. */
static bool room_for(const struct chain *c, uint32_t n)
{
    return (uint32_t)c->n + n <= VERBS_CHAIN && under_way(c->lane) + n <= VERBS_SEND_DEPTH;
}

static uint32_t number_of(const struct verbs_link *l, const struct verbs_lane *lane)
{
    return (uint32_t)(lane - l->lane);
}

/* The lane that has least to do. */
static struct chain *pick_lane(const struct verbs_link *l, struct chain *chains)
{
    struct chain *best = &chains[0];

    for (uint32_t i = 1; i < l->lanes; i++)
        if (chains[i].lane->bytes < best->lane->bytes)
            best = &chains[i];
    return best;
}

/* Add an empty work request. */
static struct ibv_send_wr *add(struct verbs_link *l, struct chain *c)
{
    struct verbs_lane *lane = c->lane;
    struct ibv_send_wr *wr = &c->wr[c->n];
    uint32_t number = number_of(l, lane);

    assert(room_for(c, 1));
    *wr = (struct ibv_send_wr){.wr_id = (uint64_t)number << VERBS_LANE_BIT |
                                        (uint64_t)l->tcp.link.peer << 32 | lane->wr_next,
                               .sg_list = c->sge[c->n],
                               .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    wr->wr.rdma.rkey = l->theirs.end[number].rkey;
    if (c->n > 0)
        c->wr[c->n - 1].next = wr;
    c->n++;
    lane->wr[lane->wr_next++ % VERBS_SEND_DEPTH] = (struct verbs_wr){0};
    verbs_of_link(l)->under_way++;
    return wr;
}

/* ... that says which slots were given back; in order on one lane alone. */
static struct ibv_send_wr *add_telling(struct verbs_link *l, struct chain *c)
{
    if (number_of(l, c->lane) == 0)
        l->told = l->given_back;
    return add(l, c);
}

static void add_credit(struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *wr = add_telling(l, c);

    wr->imm_data = htonl(SPR_VERBS_CREDIT | l->given_back);
    wr->wr.rdma.remote_addr = l->remote.address;
}

/* Nothing, for the sake of its completion; the peer does not notice. */
static void add_word(struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *wr = add(l, c);

    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->wr.rdma.remote_addr = l->remote.address;
}

/* Where the payload is read from. False: no buffer is free. */
static bool place_payload(struct verbs_transport *t, const struct verbs_lane *lane,
                          const struct spr_tx *tx, struct ibv_sge *sge, struct verbs_wr *record)
{
    uint32_t rail = lane->rail->number;
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
                            .lkey = r ? r->mr[rail]->lkey : t->staging.mr[rail]->lkey};
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
    wr->wr.rdma.rkey = place->keys[number_of(l, c->lane)];
}

/* False: it needs a message of its own. */
static bool append(const struct open *o, const struct spr_tx *tx)
{
    uint32_t at, end;
    struct verbs_lane *lane;
    uint8_t *cell;

    if (!o->chain || tx->header.flags & SPR_FRAME_PLACED || tx->header.bytes > o->room)
        return false;
    at = spr_verbs_next(o->cell->length);
    end = at + SPR_FRAME_BYTES + tx->header.bytes;
    if (end > o->room)
        return false;
    cell = (uint8_t *)(uintptr_t)o->cell->addr;
    memset(cell + o->cell->length, 0, at - o->cell->length);
    memcpy(cell + at, &tx->header, SPR_FRAME_BYTES);
    if (tx->header.bytes)
        memcpy(cell + at + SPR_FRAME_BYTES, tx->data, tx->header.bytes);
    o->cell->length = end;
    lane = o->chain->lane;
    lane->wr[(lane->wr_next - 1) % VERBS_SEND_DEPTH].bytes += SPR_FRAME_BYTES + tx->header.bytes;
    lane->bytes += SPR_FRAME_BYTES + tx->header.bytes;
    return true;
}

/* False: it has to wait. Else *copied tells whether its data is not needed any more. */
static bool add_message(struct verbs_transport *t, struct verbs_link *l, struct chain *c,
                        struct spr_tx *tx, bool *copied, struct open *open)
{
    bool placed = tx->header.flags & SPR_FRAME_PLACED;
    uint32_t bytes = SPR_VERBS_HEAD + (placed ? 0 : tx->header.bytes);
    const struct verbs_rail *rail = c->lane->rail;
    bool in_line = bytes <= rail->device.inline_bytes, whole = false;
    struct ibv_sge payload = {0};
    struct verbs_wr record = {0};
    struct ibv_send_wr *wr;
    uint8_t *cell;
    int slot = find_slot(l, bytes);

    if (slot < 0 || !room_for(c, placed ? 2 : 1))
        return false;
    if (bytes <= VERBS_CELL_BYTES && !placed) {
        whole = true;
    } else if (in_line && !placed) {
        payload = (struct ibv_sge){.addr = (uintptr_t)tx->data, .length = tx->header.bytes};
    } else if (!place_payload(t, c->lane, tx, &payload, &record)) {
        if (spr_list_empty(&l->hungry))
            spr_list_push_back(&t->hungry, &l->hungry);
        return false;
    }
    if (placed)
        add_placed(l, c, &tx->place, &payload);
    cell = c->lane->cells + c->lane->wr_next % VERBS_SEND_DEPTH * VERBS_CELL_BYTES;
    memcpy(cell, &l->given_back, SPR_VERBS_PREFIX);
    memcpy(cell + SPR_VERBS_PREFIX, &tx->header, SPR_FRAME_BYTES);
    wr = add_telling(l, c);
    if (whole && tx->header.bytes)
        memcpy(cell + SPR_VERBS_HEAD, tx->data, tx->header.bytes);
    wr->sg_list[0] = (struct ibv_sge){(uintptr_t)cell, whole ? bytes : SPR_VERBS_HEAD,
                                      l->cells_mr[rail->number]->lkey};
    wr->sg_list[1] = payload;
    wr->num_sge = whole || placed ? 1 : 2;
    wr->send_flags = in_line ? IBV_SEND_INLINE : 0;
    wr->imm_data =
        htonl((uint32_t)slot | (l->tx_number & SPR_VERBS_NUMBER_MASK) << SPR_VERBS_NUMBER_BIT);
    wr->wr.rdma.remote_addr =
        l->remote.address + spr_verbs_slot_offset(&l->remote, (uint32_t)slot) + SPR_VERBS_LEAD;
    *copied = whole || (in_line && !placed) || record.staging;
    record.tx = *copied ? NULL : tx;
    record.bytes = SPR_VERBS_HEAD + tx->header.bytes;
    c->awaited |= record.tx || record.staging;
    c->lane->wr[(c->lane->wr_next - 1) % VERBS_SEND_DEPTH] = record;
    c->lane->bytes += record.bytes;
    l->used ^= 1u << slot;
    l->tx_number++;
    *open = (struct open){
        .chain = whole || placed ? c : NULL,
        .cell = wr->sg_list,
        .room = spr_min_size(spr_verbs_slot_bytes(&l->remote, (uint32_t)slot) - SPR_VERBS_LEAD,
                             VERBS_CELL_BYTES)};
    if (in_line)
        open->room = spr_min_size(open->room, rail->device.inline_bytes);
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

/* Take queued frames into the chains, one for each lane; returns those that are the caller's again.
 */
static struct spr_tx *gather(struct verbs_transport *t, struct verbs_link *l, struct chain *chains)
{
    struct spr_tcp_conn *queue = &l->tcp.conn;
    struct spr_tx *copied = NULL, **last = &copied;
    struct open open = {0};

    while (queue->tx_first) {
        struct spr_tx *tx = queue->tx_first;
        bool is_copied = append(&open, tx);
        if (!is_copied && !add_message(t, l, pick_lane(l, chains), tx, &is_copied, &open))
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

/* Must this chain be followed by a completion? */
static bool signals(const struct chain *c)
{
    const struct verbs_lane *lane = c->lane;

    return c->awaited || lane->wants_word || lane->wr_next - lane->wr_told >= VERBS_UNTOLD;
}

static bool post(struct verbs_transport *t, struct verbs_link *l, struct chain *c)
{
    struct ibv_send_wr *bad;
    int failed;

    if (signals(c)) {
        c->wr[c->n - 1].send_flags |= IBV_SEND_SIGNALED;
        c->lane->wr_told = c->lane->wr_next;
        c->lane->wants_word = false;
    }
    t->tcp.base.params.counters->posted_chains++;
    failed = ibv_post_send(c->lane->qp, c->wr, &bad);
    if (!failed)
        return true;
    verbs_fail(t, l, SPR_ERR_LINK, "%s refuses work requests: %s", c->lane->rail->device.name,
               strerrordesc_np(failed));
    /* Some of them will never complete. */
    l->drain_ns = 0;
    return false;
}

/* First the receives, then what allows the peer to use them; a few may be missing. */
static bool post_receives(struct verbs_transport *t, struct verbs_link *l)
{
    for (uint32_t i = 0; i < l->lanes; i++) {
        struct verbs_lane *lane = &l->lane[i];
        if (lane->unposted <= VERBS_SPARE_RECEIVES || verbs_post_receives(l, lane) == SPR_OK)
            continue;
        verbs_fail(t, l, SPR_ERR_LINK, "%s refuses receives", lane->rail->device.name);
        return false;
    }
    return true;
}

/* Post all that can be posted; *full: there may be more. */
static int flush_once(struct verbs_transport *t, struct verbs_link *l, bool *full)
{
    struct chain chains[VERBS_LANES];
    struct spr_tx *copied;
    int n = 0;

    for (uint32_t i = 0; i < l->lanes; i++) {
        chains[i].lane = &l->lane[i];
        chains[i].n = 0;
        chains[i].awaited = false;
    }
    copied = gather(t, l, chains);
    if (chains[0].n == 0 && verbs_owes_credit(l) && room_for(&chains[0], 1))
        add_credit(l, &chains[0]);
    *full = false;
    for (uint32_t i = 0; i < l->lanes && l->phase == VERBS_UP; i++) {
        if (chains[i].n == 0 && chains[i].lane->wants_word && room_for(&chains[i], 1))
            add_word(l, &chains[i]);
        if (chains[i].n > 0)
            (void)post(t, l, &chains[i]);
        *full |= chains[i].n >= VERBS_CHAIN - 1;
        n += chains[i].n;
    }
    return n + spr_tcp_tell_sent(&l->tcp, copied);
}

int verbs_flush(struct verbs_transport *t, struct verbs_link *l)
{
    bool full = true;
    int steps = 0;

    if (!post_receives(t, l))
        return 1;
    while (full && l->phase == VERBS_UP)
        steps += flush_once(t, l, &full);
    return steps;
}

int verbs_completed(struct verbs_transport *t, struct verbs_link *l, struct verbs_lane *lane,
                    uint32_t number, bool good)
{
    struct spr_tx *over = NULL, **last = &over;

    /* Said before: a later one of the same chain was signalled. */
    if (number - lane->wr_first >= under_way(lane))
        return 0;
    while (lane->wr_first != number + 1) {
        struct verbs_wr *wr = &lane->wr[lane->wr_first % VERBS_SEND_DEPTH];
        lane->wr_first++;
        t->under_way--;
        lane->bytes -= wr->bytes;
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
