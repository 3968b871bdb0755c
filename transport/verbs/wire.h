/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What two ranks agree on over verbs: slots, messages, the immediate word, and the cards that are
 * exchanged on the authenticated socket before the queue pairs are connected. Little-endian.
 *
 * Each rank has, for each peer, an area of slots that this peer alone can write: small ones first,
 * then large ones. A message is one RDMA write with immediate into a slot:
 *
 *    0    +-----------------------------------------------+
 *         | unused, so that the payload is aligned        |
 *   60    +-----------------------------------------------+
 *         | slots that the sender has given back          |
 *   64    +-----------------------------------------------+
 *         | frame header (transport/frame.h)              |
 *  128    +-----------------------------------------------+
 *         | payload, unless the frame is PLACED           |
 *         +-----------------------------------------------+
 *         | more frames, header and payload, each on a    |
 *         | multiple of 8 from the beginning of the slot  |
 *         +-----------------------------------------------+
 *
 * A slot is free when its bit in "used" (kept by who writes it: flipped at each use) and its bit in
 * "given back" (kept by who owns it: flipped at each release) are the same. So the whole state of
 * the credit is one word, which every message carries, and which may be lost or come twice. But not
 * late: of several queue pairs the first one alone tells it, with its messages and by itself.
 *
 * Messages of a link are numbered over all its queue pairs, and taken in that order. The payload of
 * a frame that is PLACED is a write of its own, before that of its frame on the same queue pair, to
 * the place that the grant gave, with the key for that queue pair.
 *
 *   immediate word   bit 31 clear: a message; bits 0..7: its slot; 8..15: its number modulo 256
 *                    bit 31 set: no message; bits 0..30: slots given back
 *
 * A write with immediate consumes a receive work request of its target. There are never more under
 * way than are posted: one for each slot, and one for each slot that can be given back without a
 * message (after which it must be used again before the next time). So there is no "receiver not
 * ready", ever.
 */
#ifndef SPR_TRANSPORT_VERBS_WIRE_H
#define SPR_TRANSPORT_VERBS_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/frame.h"
#include "transport/tcp/address.h"

#define SPR_VERBS_LEAD 60u                                  /* bytes of a slot before a message */
#define SPR_VERBS_PAYLOAD 128u                              /* ... and before the payload */
#define SPR_VERBS_HEAD (SPR_VERBS_PAYLOAD - SPR_VERBS_LEAD) /* bytes of a message before it */
#define SPR_VERBS_CREDIT 0x80000000u
#define SPR_VERBS_SLOTS 31u /* most slots of an area: a bit each */
#define SPR_VERBS_LANES 4u  /* most queue pairs of a link */

#define SPR_VERBS_PREFIX 4u /* bytes of a message before the frame header */
static_assert(SPR_VERBS_PREFIX + SPR_FRAME_BYTES == SPR_VERBS_HEAD, "layout of a message");

/* Where in a message the next frame begins, when one ends at byte `end` of it. */
static inline uint32_t spr_verbs_next(uint32_t end)
{
    return ((end + SPR_VERBS_LEAD + 7u) & ~7u) - SPR_VERBS_LEAD;
}

/* The immediate word of a message. */
#define SPR_VERBS_SLOT_MASK 0xffu
#define SPR_VERBS_NUMBER_BIT 8
#define SPR_VERBS_NUMBER_MASK 0xffu

#define SPR_VERBS_MAGIC 0x56525053u /* "SPRV" */
#define SPR_VERBS_VERSION 5
#define SPR_VERBS_NONCE 16u

#define SPR_VERBS_OFFERS_CM 1u /* flag of a card */

/* An area of slots. */
struct spr_verbs_area {
    uint64_t address;
    uint32_t zero;
    uint16_t small, large;             /* how many */
    uint32_t small_bytes, large_bytes; /* of one slot, multiples of 64 */
};

/* One end of a queue pair. */
struct spr_verbs_end {
    uint32_t queue_pair, first_sequence;
    uint8_t gid[16];
    uint16_t lid;
    uint8_t link_layer, mtu;   /* IBV_LINK_LAYER_..., enum ibv_mtu */
    uint32_t rkey;             /* of the slots, on this queue pair */
    struct spr_tcp_address cm; /* where rdma_cm listens for it; family 0: nowhere */
};

/* Each side's first words on the socket. Then each sends single bytes: SPR_VERBS_READY or
 * SPR_VERBS_READY_CM when it has connected its queue pairs with what the cards say, or by rdma_cm:
 * only now the other may send to it; instead of the latter SPR_VERBS_FALL_BACK, when rdma_cm has
 * failed, after which both use the cards. */
struct spr_verbs_card {
    uint32_t magic;
    uint16_t version;
    uint16_t lanes; /* queue pairs that are offered: as many are connected as both have */
    struct spr_verbs_area area;
    struct spr_verbs_end end[SPR_VERBS_LANES];
    uint32_t flags; /* SPR_VERBS_OFFERS_CM: when both do, rdma_cm connects the queue pairs */
    uint32_t zero;
    uint8_t nonce[SPR_VERBS_NONCE]; /* shows rdma_cm that a request or reply is for this card */
};
static_assert(sizeof(struct spr_verbs_card) == 280, "layout of a card");
#define SPR_VERBS_READY 0x52     /* 'R' */
#define SPR_VERBS_READY_CM 0x43  /* 'C' */
#define SPR_VERBS_FALL_BACK 0x46 /* 'F' */

/* Private data of rdma_cm: of a request, and of the reply to it. */
struct spr_verbs_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t lane;
    uint32_t rank; /* who says so */
    uint32_t zero;
    uint8_t nonce[SPR_VERBS_NONCE]; /* of the card of who is spoken to */
};
static_assert(sizeof(struct spr_verbs_hello) == 32, "private data of a request: 56 bytes at most");

/* What follows the TCP address (transport/tcp/address.h) in spr_peer_info.address[]. */
struct spr_verbs_address {
    uint8_t link_layer;
    uint8_t family; /* of a RoCE GID: SPR_TCP_IPV4, SPR_TCP_IPV6 */
    uint8_t zero[6];
    uint8_t gid[16];
};
static_assert(sizeof(struct spr_verbs_address) == 24, "layout of an address");

static inline uint32_t spr_verbs_slot_count(const struct spr_verbs_area *a)
{
    return (uint32_t)a->small + a->large;
}
static inline uint32_t spr_verbs_slot_bytes(const struct spr_verbs_area *a, uint32_t slot)
{
    return slot < a->small ? a->small_bytes : a->large_bytes;
}
static inline size_t spr_verbs_slot_offset(const struct spr_verbs_area *a, uint32_t slot)
{
    return slot < a->small
               ? (size_t)slot * a->small_bytes
               : (size_t)a->small * a->small_bytes + (size_t)(slot - a->small) * a->large_bytes;
}
static inline size_t spr_verbs_area_bytes(const struct spr_verbs_area *a)
{
    return spr_verbs_slot_offset(a, spr_verbs_slot_count(a));
}

#endif
