/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared memory that a peer writes (transport/shm/ring.c, slots.c): one link, without sockets. The
 * input is a script of what the peer writes into its memory - descriptors, acknowledgements, slots,
 * also while we read - and of what we do: send, release, progress, arm, kill.
 *
 * Our view of the peer is mapped read-only, so a write there ends the process. A payload lies in
 * the peer's memory, in a copy of ours or where it was asked for; the link goes down once, and then
 * nothing more comes up; every frame comes back once.
 */
#include <stdlib.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/shm/private.h"

#define MOST_TX 128
#define MOST_LENT 256
#define MOST_ACTIONS 600

static struct {
    struct spr_shm t;
    struct spr_shm_link link, *by_rank[2];
    struct spr_shm_own peer; /* its memory, as it sees it */
    struct spr_shm_view view;
    struct spr_counters counters;
    struct spr_shm_area *writes; /* the peer's area for us */
    struct spr_tx tx[MOST_TX];
    int queued, returned;
    bool out[MOST_TX]; /* under way */
    bool down;
    struct {
        void *token;
        const uint8_t *data;
        uint32_t bytes;
    } lent[MOST_LENT];
    int lent_count;
    void *into;
    enum spr_sink sink;
    struct fuzz_in *in; /* the peer may write in the middle of our reading */
    uint32_t turn;      /* of the next descriptor */
} g;

static uint8_t payload_bytes[SPR_FRAME_MAX_PAYLOAD];

/* ---- What the peer writes ---- */

static void write_word(struct fuzz_in *in)
{
    uint16_t at = fuzz_u16(in);
    uint32_t v = fuzz_u32(in);

    at = (uint16_t)(at % (sizeof(struct spr_shm_area) / 4));
    atomic_store((_Atomic uint32_t *)(void *)g.writes + at, v);
}

static void write_frame(struct fuzz_in *in)
{
    uint8_t how = fuzz_u8(in);
    struct spr_shm_entry *e = &g.writes->ring[g.turn % SPR_SHM_RING];
    struct spr_frame f = {.type = SPR_FRAME_DATA, .epoch = 7, .sequence = g.turn};
    uint32_t slot = how & 1 ? SPR_SHM_NO_SLOT : fuzz_u16(in);

    f.bytes = how & 2 ? fuzz_u8(in) : fuzz_u16(in) * 5u;
    if (how & 4)
        f.bytes = fuzz_u32(in);
    if (how & 1 && how & 8)
        f.bytes %= SPR_SHM_INLINE + 1;
    if (!(how & 1) && how & 8) {
        slot %= spr_shm_slot_count(&g.view.layout);
        f.bytes = 1 + f.bytes % (uint32_t)spr_shm_slot_bytes(&g.view.layout, slot);
    }
    if (how & 16)
        slot = fuzz_u32(in);
    spr_frame_seal(&f);
    if (how & 32)
        ((uint8_t *)&f)[fuzz_u8(in) % sizeof f] ^= fuzz_u8(in);
    memcpy((void *)e->header, &f, sizeof f);
    atomic_store(&e->slot, slot);
    g.turn++;
    atomic_store(&e->turn, how & 64 ? fuzz_u32(in) : g.turn);
}

/* Acknowledge right, or wrong by a little. */
static void acknowledge(struct fuzz_in *in)
{
    uint8_t how = fuzz_u8(in);
    uint32_t released = atomic_load(&g.writes->released);

    if (how & 1) {
        atomic_store(&g.writes->consumed, g.link.published - (how >> 4 & 7) + (how >> 7));
        return;
    }
    /* A slot that some descriptor names, or any. */
    uint32_t slot = how & 2 ? fuzz_u16(in) : atomic_load(&g.link.out->ring[how >> 2 & 63].slot);
    atomic_store(&g.writes->releases[released % SPR_SHM_RELEASES], slot);
    atomic_store(&g.writes->released, released + 1);
}

/* ---- Upcalls ---- */

static void up(struct spr_link *link) { (void)link; }

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    const char *why;
    spr_status status = spr_frame_check(f, &why);
    uint8_t how = fuzz_u8(g.in);

    FUZZ_CHECK(!g.down && link == &g.link.base);
    if (status != SPR_OK)
        return status;
    if (how & 64)
        write_word(g.in);
    if (how >= 240)
        return SPR_ERR_PROTO;
    rx->sink = g.sink = (enum spr_sink)(how % 3);
    if (g.lent_count == MOST_LENT && rx->sink == SPR_SINK_BORROW)
        rx->sink = g.sink = SPR_SINK_DROP;
    if (rx->sink == SPR_SINK_INTO) {
        rx->into = g.into = malloc(f->bytes + !f->bytes);
        FUZZ_CHECK(g.into);
    }
    return SPR_OK;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    const uint8_t *at = data, *base = g.view.base;
    uint8_t sum = 0;

    (void)link;
    FUZZ_CHECK(!g.down && f->bytes <= SPR_FRAME_MAX_PAYLOAD);
    FUZZ_CHECK((data != NULL) == (f->bytes > 0 && g.sink != SPR_SINK_DROP));
    FUZZ_CHECK((token != NULL) == (f->bytes > 0 && g.sink == SPR_SINK_BORROW));
    if (data && at >= base && at < base + g.view.layout.bytes)
        FUZZ_CHECK(at >= base + g.view.layout.small && at + f->bytes <= base + g.view.layout.bytes);
    for (uint32_t i = 0; data && i < f->bytes; i += i < 64 ? 1 : 997)
        sum ^= at[i];
    if (data)
        sum ^= at[f->bytes - 1];
    *(volatile uint8_t *)payload_bytes = sum;
    free(g.into);
    g.into = NULL;
    if (token) {
        g.lent[g.lent_count].token = token;
        g.lent[g.lent_count].data = data;
        g.lent[g.lent_count++].bytes = f->bytes;
    }
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    (void)link;
    FUZZ_CHECK(tx >= g.tx && tx < g.tx + MOST_TX && g.out[tx - g.tx]);
    g.out[tx - g.tx] = false;
    g.returned++;
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    FUZZ_CHECK(!g.down && link == &g.link.base && why < 0 && text && *text);
    FUZZ_CHECK(g.returned == g.queued); /* queued frames come back before */
    g.down = true;
    free(g.into);
    g.into = NULL;
}

static const struct spr_link_events events = {up, on_header, on_payload, on_sent, on_down};

/* ---- Our side ---- */

static void prepare(void)
{
    struct spr_error error = {0};
    const char *why;

    if (g.peer.base)
        return;
    FUZZ_CHECK(spr_shm_own_create(&g.t.own, 0, 2, 7, 1, &error) == SPR_OK);
    FUZZ_CHECK(spr_shm_own_create(&g.peer, 1, 2, 7, 1, &error) == SPR_OK);
    FUZZ_CHECK(spr_shm_view_map(&g.view, g.peer.fd, 1, 2, 7, &why) == SPR_OK);
    g.writes = spr_shm_own_area(&g.peer, 0);
}

static void start(struct fuzz_in *in)
{
    prepare();
    memset((void *)g.writes, 0, sizeof *g.writes);
    memset((void *)spr_shm_own_area(&g.t.own, 1), 0, sizeof(struct spr_shm_area));
    atomic_store(&spr_shm_own_header(&g.peer)->sleeping, 0);
    FUZZ_CHECK(spr_shm_slots_init(&g.t.slots, &g.t.own.layout));
    g.t.base = (struct spr_transport){
        &spr_transport_shm, {.size = 2, .epoch = 7, .events = &events, .counters = &g.counters}};
    g.t.epoll = g.t.listener = g.t.bell = g.t.timer = -1;
    g.t.by_rank = g.by_rank;
    g.t.links = g.by_rank + 1;
    g.t.links[0] = &g.link;
    g.t.link_count = 1;
    g.t.until_sockets = UINT32_MAX;
    g.t.armed = g.t.sockets_due = false;
    memset(&g.link, 0, sizeof g.link);
    g.link.source = SPR_SHM_LINK;
    g.link.base = (struct spr_link){&g.t.base, 1, SPR_LINK_UP, NULL};
    g.link.bell = g.link.socket = g.link.pidfd = -1;
    g.link.out = spr_shm_own_area(&g.t.own, 1);
    g.link.view = g.view;
    spr_pool_init(&g.link.copies, SPR_SHM_INLINE, 64, 0);
    spr_shm_ring_attach(&g.link);
    memset(g.tx, 0, sizeof g.tx);
    memset(g.out, 0, sizeof g.out);
    g.queued = g.returned = g.lent_count = 0;
    g.down = false;
    g.turn = 0;
    g.in = in;
}

static void post(struct fuzz_in *in)
{
    struct spr_tx *tx = &g.tx[g.queued % MOST_TX];
    uint8_t how = fuzz_u8(in);

    if (g.queued == MOST_TX)
        return;
    tx->header = (struct spr_frame){.type = SPR_FRAME_DATA, .epoch = 7};
    tx->header.bytes = how < 128 ? how % 70u : how < 250 ? how * 64u : how * 1024u;
    tx->data = payload_bytes;
    spr_frame_seal(&tx->header);
    g.out[g.queued++] = true;
    spr_transport_shm.send(&g.link.base, tx);
}

static void release(unsigned n)
{
    if (g.lent_count == 0)
        return;
    n %= (unsigned)g.lent_count;
    /* What was copied stays; what lies in the peer's memory may change, but is there. */
    *(volatile uint8_t *)payload_bytes = g.lent[n].data[g.lent[n].bytes - 1];
    spr_transport_shm.release(&g.link.base, g.lent[n].token);
    g.lent[n] = g.lent[--g.lent_count];
}

static void progress(void)
{
    (void)spr_transport_shm.progress(&g.t.base);
    g.t.sockets_due = false; /* there are none */
    g.t.until_sockets = UINT32_MAX;
}

static void act(struct fuzz_in *in)
{
    uint8_t action = fuzz_u8(in);

    switch (action % 8) {
    case 0:
        post(in);
        break;
    case 1:
        write_frame(in);
        break;
    case 2:
        acknowledge(in);
        break;
    case 3:
        release(action >> 3);
        break;
    case 4:
        write_word(in);
        break;
    case 5:
        if (action < 16)
            spr_transport_shm.kill(&g.link.base);
        else if (action < 64 && !g.down && g.link.base.state == SPR_LINK_UP)
            (void)spr_transport_shm.arm(&g.t.base);
        else if (action < 80)
            g.link.gone = true;
        else
            atomic_store(&spr_shm_own_header(&g.peer)->sleeping, action);
        break;
    default:
        progress();
    }
    /* An armed transport would look at its sockets. */
    g.t.armed = false;
    FUZZ_CHECK(spr_shm_held_total(&g.link.held) <= SPR_SHM_RELEASES);
    FUZZ_CHECK(g.t.slots.classes[0].free_count + g.t.slots.classes[1].free_count +
                   spr_shm_held_total(&g.link.held) ==
               g.t.slots.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    int64_t live = spr_mem_live();

    start(&in);
    for (int i = 0; i < MOST_ACTIONS && in.left; i++)
        act(&in);
    while (g.lent_count)
        release(0);
    spr_transport_shm.kill(&g.link.base);
    progress();
    FUZZ_CHECK(g.returned == g.queued);
    free(g.into);
    g.into = NULL;
    spr_pool_destroy(&g.link.copies);
    spr_shm_slots_destroy(&g.t.slots);
    FUZZ_CHECK(spr_mem_live() == live);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_script seeds[] = {
        {"inline", {1, 11, 40, 6, 0, 1, 11, 40, 6, 1, 3}, 11},
        {"slot", {1, 8, 3, 0, 200, 1, 6, 1, 1, 8, 200, 0, 9, 9, 6, 0, 3}, 17},
        {"long_inline", {1, 3, 57, 6, 1}, 5},
        {"slot_out_of_range", {1, 16, 0, 0, 9, 0, 255, 255, 255, 255, 6, 1}, 12},
        {"damaged", {1, 43, 40, 20, 1, 6, 1}, 7},
        {"send", {0, 20, 0, 200, 0, 255, 6, 2, 1, 2, 4, 6, 0, 20, 6}, 15},
        {"acknowledged_too_much", {0, 20, 2, 129, 0, 20, 6}, 7},
        {"released_of_nobody", {0, 200, 2, 2, 9, 0, 6, 0, 200, 6}, 10},
        {"changed_while_read", {1, 8, 3, 0, 200, 1, 6, 64, 30, 0, 1, 2, 3, 4}, 14},
        {"killed", {0, 200, 1, 11, 9, 5, 6}, 7},
        {"gone", {1, 11, 40, 69, 6, 0, 6}, 7},
        {"armed", {0, 20, 21, 1, 11, 40, 21, 6, 0}, 9},
    };

    fuzz_emit_scripts(seeds, SPR_ARRAY_LEN(seeds));
}
