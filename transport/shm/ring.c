/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The data path: descriptors, slots, acknowledgements, bells.
 *
 * Ordering. A frame is published by the store of its descriptor's turn (release: what was written
 * before it, header and payload, is seen by whoever sees the turn - acquire). A descriptor and a
 * slot are given back by the stores of `consumed` and `released` (release: the reads of the frame
 * are done), and are written again only after those were seen (acquire).
 *
 * Sleeping. A rank that goes to sleep (1) stores its sleeping word, (2) looks once more at the
 * turns, and at consumed and released when frames are queued. A peer that has something for it (3)
 * stores turn, consumed or released, (4) loads the sleeping word, and rings when it is set. All
 * four are seq_cst, so there is one order of them: if (4) misses (1), then (3) comes before (2),
 * which sees it. Either the sleeper sees the news or the peer sees the sleeper. No wake-up is lost.
 * (Stores and not fences: thread sanitizers know nothing of fences.)
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/private.h"

#define FRAMES_PER_LINK 16 /* per call of progress(), so that no peer starves the others */

static void set_fault(struct spr_shm_link *link, spr_status status, const char *text)
{
    if (!link->fault) {
        link->fault = status;
        link->fault_text = text;
    }
}

/* Step (4): `reason` is SPR_SHM_WAKE_... The bell is rung once per sleep; a second time in the same
 * generation cannot be needed, the sleeper is on its way. */
static void wake(struct spr_shm_link *link, uint64_t reason)
{
    const struct spr_shm_header *peer = spr_shm_view_header(&link->view);
    uint64_t word = atomic_load_explicit(&peer->sleeping, memory_order_seq_cst);
    const uint64_t one = 1;

    if (!(word & reason) || word == link->rung || link->bell < 0)
        return;
    link->rung = word;
    /* Fails only when the counter is full, and then the bell is ringing. */
    if (write(link->bell, &one, sizeof(one)) < 0)
        spr_debug(SPR_SUB_SHM, "ring rank %d: %s", link->base.peer, strerror(errno));
}

void spr_shm_ring_attach(struct spr_shm_link *link)
{
    int me = link->base.transport->params.rank;

    link->next = &spr_shm_view_area(&link->view, me)->ring[0];
}

/* ---- Sending ---- */

bool spr_shm_has_room_news(const struct spr_shm_link *link)
{
    const struct spr_shm_area *in;

    if (!link->next || link->base.state != SPR_LINK_UP)
        return false;
    in = spr_shm_view_area(&link->view, link->base.transport->params.rank);
    return atomic_load_explicit(&in->consumed, memory_order_seq_cst) != link->consumed_seen ||
           atomic_load_explicit(&in->released, memory_order_seq_cst) != link->released_seen;
}

void spr_shm_reclaim(struct spr_shm_link *link)
{
    struct spr_shm *t = spr_shm_of_link(link);
    const struct spr_shm_area *in;
    uint32_t consumed, released;

    if (!link->next || link->base.state != SPR_LINK_UP || link->fault)
        return;
    in = spr_shm_view_area(&link->view, t->base.params.rank);
    consumed = atomic_load_explicit(&in->consumed, memory_order_acquire);
    released = atomic_load_explicit(&in->released, memory_order_acquire);
    if (consumed - link->consumed_seen > link->published - link->consumed_seen ||
        released - link->released_seen > spr_shm_held_total(&link->held)) {
        set_fault(link, SPR_ERR_PROTO, "acknowledged frames that were never sent");
        return;
    }
    link->consumed_seen = consumed;
    while (link->released_seen != released) {
        uint32_t slot = atomic_load_explicit(&in->releases[link->released_seen % SPR_SHM_RELEASES],
                                             memory_order_relaxed);
        if (!spr_shm_slots_put(&t->slots, &link->held, link->base.peer, slot)) {
            set_fault(link, SPR_ERR_PROTO, "released a slot that it does not hold");
            return;
        }
        link->released_seen++;
    }
}

static uint32_t get_slot(struct spr_shm_link *link, size_t bytes)
{
    struct spr_shm *t = spr_shm_of_link(link);
    uint32_t slot = spr_shm_slots_get(&t->slots, &link->held, link->base.peer, bytes);

    if (slot != SPR_SHM_NO_SLOT)
        return slot;
    /* What others released goes to the shared rest. */
    for (int i = 0; i < t->link_count; i++)
        spr_shm_reclaim(t->links[i]);
    return spr_shm_slots_get(&t->slots, &link->held, link->base.peer, bytes);
}

static void store_words(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    uint64_t words[SPR_FRAME_BYTES / 8] = {0};

    memcpy(words, from, bytes);
    for (size_t i = 0; i < spr_div_ceil(bytes, 8); i++)
        atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
}

/* Copy one frame. False: no room, nothing changed. */
static bool publish(struct spr_shm_link *link, const struct spr_tx *tx)
{
    struct spr_shm *t = spr_shm_of_link(link);
    struct spr_counters *counters = t->base.params.counters;
    struct spr_shm_entry *e = &link->out->ring[link->published % SPR_SHM_RING];
    size_t bytes = tx->header.bytes;
    uint32_t slot = SPR_SHM_NO_SLOT;

    if (link->published - link->consumed_seen == SPR_SHM_RING)
        return false;
    if (bytes > SPR_SHM_INLINE) {
        slot = get_slot(link, bytes);
        if (slot == SPR_SHM_NO_SLOT)
            return false;
        memcpy(t->own.base + spr_shm_slot_offset(&t->own.layout, slot), tx->data, bytes);
    } else if (bytes) {
        store_words(e->payload, tx->data, bytes);
    }
    store_words(e->header, &tx->header, sizeof(tx->header));
    atomic_store_explicit(&e->slot, slot, memory_order_relaxed);
    link->published++;
    atomic_store_explicit(&e->turn, link->published, memory_order_seq_cst); /* step (3) */
    wake(link, SPR_SHM_WAKE_FRAMES);
    counters->sent_frames++;
    counters->sent_bytes += SPR_FRAME_BYTES + bytes;
    return true;
}

int spr_shm_flush(struct spr_shm_link *link)
{
    int n = 0;

    if (!link->uncopied || link->base.state != SPR_LINK_UP)
        return 0;
    spr_shm_reclaim(link);
    while (link->uncopied && !link->fault && publish(link, link->uncopied)) {
        link->uncopied = link->uncopied->next;
        n++;
    }
    return n;
}

/* ---- Receiving ---- */

/* Take a descriptor into private memory, each word once: the peer may change it at any time. */
static void load_entry(const struct spr_shm_entry *e, struct spr_frame *frame, uint64_t *payload,
                       uint32_t *slot)
{
    uint64_t words[SPR_FRAME_BYTES / 8];

    for (size_t i = 0; i < SPR_ARRAY_LEN(words); i++)
        words[i] = atomic_load_explicit(&e->header[i], memory_order_relaxed);
    memcpy(frame, words, sizeof(*frame));
    for (size_t i = 0; i < SPR_SHM_INLINE / 8; i++)
        payload[i] = atomic_load_explicit(&e->payload[i], memory_order_relaxed);
    *slot = atomic_load_explicit(&e->slot, memory_order_relaxed);
}

/* Where the payload lies, or NULL when length and place do not fit. */
static const void *locate(const struct spr_shm_link *link, const struct spr_frame *frame,
                          const uint64_t *inline_payload, uint32_t slot)
{
    const struct spr_shm_layout *l = &link->view.layout;

    if (slot == SPR_SHM_NO_SLOT)
        return frame->bytes <= SPR_SHM_INLINE ? inline_payload : NULL;
    if (slot >= spr_shm_slot_count(l) || frame->bytes > spr_shm_slot_bytes(l, slot) ||
        frame->bytes == 0)
        return NULL;
    return link->view.base + spr_shm_slot_offset(l, slot);
}

/* Tell the peer that a slot is free. Step (3) is the caller's, on `released` or on what it stores
 * after it: a sleeper looks at `released` last. */
static void give_back(struct spr_shm_link *link, uint32_t slot, memory_order order)
{
    if (slot == SPR_SHM_NO_SLOT)
        return;
    atomic_store_explicit(&link->out->releases[link->released % SPR_SHM_RELEASES], slot,
                          memory_order_relaxed);
    link->released++;
    atomic_store_explicit(&link->out->released, link->released, order);
}

/* A slot's token is its number, made odd; a copy's is its address, which is even. */
static void *slot_token(uint32_t slot) { return (void *)((uintptr_t)slot << 1 | 1); }

/* Lend an inline payload out of a private copy: its descriptor is written again soon. */
static bool lend_copy(struct spr_shm_link *link, const void **data, void **token, size_t bytes)
{
    void *copy = spr_pool_get(&link->copies);

    if (!copy)
        return false;
    memcpy(copy, *data, bytes);
    *data = copy;
    *token = copy;
    return true;
}

/* One frame, whose descriptor is given back. False: the link is no longer up. */
static bool deliver(struct spr_shm_link *link, const struct spr_frame *frame,
                    const uint64_t *inline_payload, uint32_t slot)
{
    const struct spr_transport_params *params = &link->base.transport->params;
    const void *data = locate(link, frame, inline_payload, slot);
    struct spr_rx rx = {.sink = SPR_SINK_DROP};
    void *token = NULL;
    spr_status status;

    if (!data) {
        spr_shm_link_down(link, SPR_ERR_PROTO, "length and place of a payload do not fit");
        return false;
    }
    params->counters->received_frames++;
    params->counters->received_bytes += SPR_FRAME_BYTES + frame->bytes;
    status = params->events->header(&link->base, frame, &rx);
    if (status)
        spr_shm_link_down(link, status, "a frame breaks the protocol");
    if (link->base.state != SPR_LINK_UP)
        return false;
    if (!frame->bytes || rx.sink == SPR_SINK_DROP) {
        data = NULL;
    } else if (slot != SPR_SHM_NO_SLOT && (rx.sink == SPR_SINK_BORROW || rx.lend)) {
        token = slot_token(slot);
    } else if (rx.sink == SPR_SINK_INTO) {
        memcpy(rx.into, data, frame->bytes);
        data = rx.into;
    } else if (!lend_copy(link, &data, &token, frame->bytes)) {
        spr_shm_link_down(link, SPR_ERR_NOMEM, "no memory for a payload");
        return false;
    }
    if (!token)
        give_back(link, slot, memory_order_release);
    params->events->payload(&link->base, frame, data, token);
    return link->base.state == SPR_LINK_UP;
}

int spr_shm_receive(struct spr_shm_link *link)
{
    const struct spr_shm_area *in;
    int n = 0;

    if (!spr_shm_has_frame(link))
        return 0;
    in = spr_shm_view_area(&link->view, link->base.transport->params.rank);
    while (n < FRAMES_PER_LINK && spr_shm_has_frame(link)) {
        uint64_t payload[SPR_SHM_INLINE / 8];
        struct spr_frame frame;
        uint32_t slot;

        load_entry(link->next, &frame, payload, &slot);
        link->consumed++;
        link->next = &in->ring[link->consumed % SPR_SHM_RING];
        atomic_store_explicit(&link->out->consumed, link->consumed, memory_order_release);
        n++;
        if (!deliver(link, &frame, payload, slot))
            return n;
    }
    /* Step (3) for all of them. */
    atomic_store_explicit(&link->out->consumed, link->consumed, memory_order_seq_cst);
    wake(link, SPR_SHM_WAKE_ROOM);
    return n;
}

void spr_shm_release(struct spr_link *base, void *token)
{
    struct spr_shm_link *link = spr_shm_link_of(base);
    uintptr_t value = (uintptr_t)token;

    if (!token)
        return;
    if (!(value & 1)) {
        spr_pool_put(&link->copies, token);
        return;
    }
    give_back(link, (uint32_t)(value >> 1), memory_order_seq_cst);
    wake(link, SPR_SHM_WAKE_ROOM);
}
