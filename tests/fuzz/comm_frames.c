/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/comm.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "collectives/dispute.h"
#include "compress/chunk_layout.h"

#define UNION_STEP 0x80000000u /* set in the steps of sparse unions */

void comm_transmit(int from, int to)
{
    if (from == to || !wire_transmit(&g.wire, from, to) || !g.renumber[from][to])
        return;
    struct wire_packet *p = wire_last(&g.wire, from, to);
    if (!p)
        return;
    p->header.sequence = g.sequence[from][to]++;
    spr_frame_seal(&p->header);
}

/* From now on `from` may say what it likes to `to`, and counts right. */
static void begin_to_lie(int from, int to)
{
    const struct wire_packet *p = wire_link(&g.wire, to, from)->in;
    uint32_t n = g.comms[to]->channel.peers[from].rx_sequence;

    g.lied = true;
    wire_distrust(&g.wire, from, to);
    if (g.renumber[from][to])
        return;
    g.renumber[from][to] = true;
    for (; p; p = p->next)
        n += !p->header_done;
    g.sequence[from][to] = n;
}

static void seal_payload(struct spr_frame *f, const void *data)
{
    f->flags = (f->flags & SPR_FRAME_PLACED) | (f->bytes ? SPR_FRAME_CRC : 0);
    f->payload_crc = f->bytes ? spr_crc32c(0, data, f->bytes) : 0;
    spr_frame_seal(f);
}

static void set_field(struct spr_frame *f, struct fuzz_in *in)
{
    uint8_t field = fuzz_u8(in);
    uint32_t v = field & 16 ? fuzz_u32(in) : fuzz_u8(in);

    switch (field % 11) {
    case 0:
        f->type = (uint8_t)v;
        break;
    case 1:
        f->flags = (uint16_t)v;
        break;
    case 2:
        f->epoch = v;
        break;
    case 3:
        f->sequence += v;
        break;
    case 4:
        f->operation += v - 3;
        break;
    case 5:
        f->step = field & 32 ? v | UNION_STEP : v;
        break;
    case 6:
        f->descriptor += v;
        break;
    case 7:
        f->consumed = v;
        break;
    case 8:
        f->arg = v;
        break;
    case 9:
        f->arg64 = field & 32 ? (uint64_t)(int64_t)(int32_t)-v : v;
        break;
    default:
        f->bytes = v;
    }
    spr_frame_seal(f);
}

static void resize(struct wire_packet *p, size_t bytes)
{
    p->data = realloc(p->data, bytes ? bytes : 1);
    FUZZ_CHECK(p->data);
    if (bytes > p->bytes)
        memset(p->data + p->bytes, 0, bytes - p->bytes);
    p->bytes = bytes;
    p->header.bytes = (uint32_t)bytes;
    seal_payload(&p->header, p->data);
}

void comm_tamper(int from, int to, struct fuzz_in *in)
{
    struct wire_packet *p = wire_last(&g.wire, from, to);
    uint8_t how = fuzz_u8(in) % 8;
    uint16_t at = fuzz_u16(in);

    if (!p)
        return;
    if (how >= 2 && how < 6)
        begin_to_lie(from, to);
    g.fault = true;
    if (how == 0 || (how == 1 && !p->bytes)) {
        ((uint8_t *)&p->header)[at / 8 % SPR_FRAME_BYTES] ^= (uint8_t)(1u << at % 8);
    } else if (how == 1) {
        p->data[at / 8 % p->bytes] ^= (uint8_t)(1u << at % 8);
    } else if (how == 2) {
        set_field(&p->header, in);
    } else if (how == 3 && p->bytes) {
        for (size_t n = 1 + at % 8u, i = at >> 3; n > 0; n--, i++)
            p->data[i % p->bytes] = fuzz_u8(in);
        p->header.bytes = (uint32_t)p->bytes;
        seal_payload(&p->header, p->data);
    } else if (how == 4) {
        resize(p, at % (p->bytes + 1));
    } else if (how == 5) {
        resize(p, spr_min_size(p->bytes + at, SPR_FRAME_MAX_PAYLOAD));
    } else if (how == 6) {
        wire_drop(&g.wire, from, to, p);
    } else if (how == 7) {
        wire_inject(&g.wire, from, to, &p->header, p->data, p->bytes);
    }
}

/* A small chunk whose length is right, of windows and entries as the script says. */
static size_t make_chunk(struct fuzz_in *in, uint8_t *out)
{
    uint8_t a = fuzz_u8(in), b = fuzz_u8(in);
    struct spr_chunk_header h = {.format = SPR_CHUNK_U32, .windows = a >> 2 & 3, .count = b % 30u};

    h.flags = a & 1;
    h.first_window = a >> 4 & 1;
    h.payload_bytes = h.count * 8;
    memcpy(out, &h, sizeof h);
    uint32_t *pos = (uint32_t *)(void *)(out + sizeof h);
    for (uint32_t i = 0, p = a & 2 ? fuzz_u16(in) : 0; i < h.count; i++, p += 1 + (b >> 6))
        pos[i] = p;
    memset(pos + h.count, 0x3f, 4 * (size_t)h.count);
    return sizeof h + h.payload_bytes;
}

/* What the receiver posted, but for a few bytes. */
static size_t make_description(int to, uint32_t operation, struct fuzz_in *in, uint8_t *out)
{
    const struct spr_past *past = spr_past_find(g.comms[to], operation);
    uint8_t how = fuzz_u8(in);

    memset(out, 'd', sizeof(struct spr_descriptor));
    if (past)
        memcpy(out, &past->descriptor, sizeof past->descriptor);
    for (; how & 3; how--)
        out[fuzz_u8(in) % sizeof(struct spr_descriptor)] ^= fuzz_u8(in);
    return sizeof(struct spr_descriptor) - (how >= 252);
}

/* Who is left, says `from` (struct view of collectives/membership.c): zeros, but for some bytes. */
static size_t make_view(struct fuzz_in *in, uint8_t *out)
{
    /* Compared as it is with what fits, so libFuzzer finds that. */
    size_t bytes = spr_min_size(fuzz_u16(in), SPR_NOTE_BYTES + 1);

    memset(out, 0, SPR_NOTE_BYTES + 1);
    for (uint8_t n = fuzz_u8(in) % 16u; n > 0; n--) {
        uint16_t at = fuzz_u16(in) % SPR_NOTE_BYTES;
        out[at] = fuzz_u8(in);
    }
    return bytes;
}

/* The n-th message that `to` waits for from `from`, or has for it. */
static void aim(struct spr_frame *f, int from, int to, unsigned n, size_t *capacity)
{
    const struct spr_channel_peer *p = &g.comms[to]->channel.peers[from];
    const struct spr_list *it;

    spr_list_for_each(it, f->type == SPR_FRAME_GRANT ? &p->waiting : &p->receives)
    {
        if (n-- > 0)
            continue;
        if (f->type == SPR_FRAME_GRANT) {
            const struct spr_send *s = spr_list_entry(it, struct spr_send, node);
            f->operation = s->operation, f->step = s->step, f->descriptor = s->descriptor;
        } else {
            const struct spr_recv *r = spr_list_entry(it, struct spr_recv, node);
            f->operation = r->operation, f->step = r->step, f->descriptor = r->descriptor;
            *capacity = r->capacity;
        }
        return;
    }
}

void comm_inject(int from, int to, struct fuzz_in *in)
{
    static _Alignas(8) uint8_t data[SPR_FRAME_MAX_PAYLOAD];
    uint8_t what = fuzz_u8(in), how = fuzz_u8(in);
    struct spr_frame f = {.type = (uint8_t)(1 + what % 9u), .epoch = 1};
    size_t capacity = 64, bytes = 0;

    begin_to_lie(from, to);
    if (f.type == SPR_FRAME_REQUEST && what & 32)
        f.type = SPR_FRAME_RECALL;
    f.operation = g.comms[to]->next_operation - 1 + (how & 3u) - (how >> 2 & 1u);
    f.step = fuzz_u8(in);
    if (f.step >= 128)
        f.step = f.step == 255 ? UINT32_MAX : UNION_STEP + (f.step & 127);
    if (what & 128)
        aim(&f, from, to, how >> 4 & 7, &capacity);
    f.arg = how >> 3 & 1;
    if (f.type == SPR_FRAME_ABORT || f.type == SPR_FRAME_REJECT) {
        f.arg = fuzz_u8(in);
        f.arg64 = (uint64_t)(uint32_t)(-(int32_t)fuzz_u8(in));
        capacity = 600;
    }
    f.consumed = g.comms[to]->channel.peers[from].eager_sent;
    if (f.type == SPR_FRAME_DATA && what & 64)
        bytes = make_chunk(in, data);
    else if (f.type == SPR_FRAME_DESCRIBE)
        bytes = make_description(to, f.operation, in, data);
    else if (f.type == SPR_FRAME_VIEW)
        bytes = make_view(in, data);
    else if (f.type == SPR_FRAME_DATA || f.type == SPR_FRAME_ABORT || f.type == SPR_FRAME_REJECT)
        for (bytes = how & 128 ? fuzz_u16(in) : capacity; capacity && bytes > capacity + 1;)
            bytes %= capacity + 2;
    if (f.type != SPR_FRAME_DESCRIBE && f.type != SPR_FRAME_VIEW &&
        !(f.type == SPR_FRAME_DATA && what & 64))
        memset(data, 'a' + what % 20, bytes);
    if (f.type == SPR_FRAME_GRANT && what & 32)
        bytes = sizeof(struct spr_place); /* anywhere: nothing is written there */
    if (f.type == SPR_FRAME_DATA && what & 32)
        f.flags = SPR_FRAME_PLACED;
    f.bytes = (uint32_t)spr_min_size(bytes, sizeof data);
    f.sequence = g.sequence[from][to]++;
    seal_payload(&f, data);
    wire_inject(&g.wire, from, to, &f, data, f.bytes);
}
