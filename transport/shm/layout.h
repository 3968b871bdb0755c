/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Layout of a rank's shared memory. One memfd per rank; its owner alone can write it, the peers map
 * it read-only. So everything that rank r says to rank p - frames, and what r did with the frames
 * of p - is in r's memory, in r's area for p.
 *
 *   0        header: constants, and the word that says whether the owner sleeps
 *   4096     areas, one per rank of the job:
 *              ring       64 descriptors of 128 bytes: frames r -> p
 *              consumed   how many descriptors of p -> r the owner has taken
 *              released   how many slots of p the owner has given back
 *              releases   which slots: the last 256 numbers
 *   small    slots of 8 KiB
 *   large    slots of SPR_FRAME_MAX_PAYLOAD (from a multiple of a huge page on)
 *
 * Descriptor, two cache lines:
 *
 *    0   +---------------------------------------------+
 *        | frame header (transport/frame.h)            |
 *   64   +---------------------------------------------+
 *        | payload, when it has at most 56 bytes       |
 *  120   +----------------------+----------------------+
 *        | slot, or ~0 = inline | turn: its number + 1 |
 *        +----------------------+----------------------+
 *
 * The turn is written last; it tells a fresh descriptor from the one of 64 frames ago.
 * Little-endian.
 */
#ifndef SPR_TRANSPORT_SHM_LAYOUT_H
#define SPR_TRANSPORT_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/frame.h"

#define SPR_SHM_MAGIC 0x4d485353u /* "SSHM" */
#define SPR_SHM_VERSION 1u
#define SPR_SHM_RING 64u      /* descriptors per direction and pair */
#define SPR_SHM_RELEASES 256u /* slots that one peer may hold at a time */
#define SPR_SHM_INLINE 56u    /* largest payload inside a descriptor, bytes */
#define SPR_SHM_NO_SLOT UINT32_MAX
#define SPR_SHM_SMALL_BYTES ((size_t)8 << 10)
#define SPR_SHM_LARGE_BYTES SPR_FRAME_MAX_PAYLOAD
#define SPR_SHM_SMALL_SHARED 128u /* small slots for all peers ... */
#define SPR_SHM_SMALL_RESERVE 2u  /* ... and those of each peer */
#define SPR_SHM_LARGE_RESERVE 1u
#define SPR_SHM_MAX_RANKS 16384

struct spr_shm_entry {
    _Atomic uint64_t header[SPR_FRAME_BYTES / 8];
    _Atomic uint64_t payload[SPR_SHM_INLINE / 8];
    _Atomic uint32_t slot;
    _Atomic uint32_t turn;
};
_Static_assert(sizeof(struct spr_shm_entry) == 128, "descriptor layout");

struct spr_shm_area {
    struct spr_shm_entry ring[SPR_SHM_RING];
    _Alignas(SPR_CACHE_LINE) _Atomic uint32_t consumed;
    _Atomic uint32_t released;
    _Alignas(SPR_CACHE_LINE) _Atomic uint32_t releases[SPR_SHM_RELEASES];
};
_Static_assert(sizeof(struct spr_shm_area) == 9280, "area layout");

/* Bits of the sleeping word; above them a generation, so that one sleep is rung for once per peer.
 */
enum {
    SPR_SHM_WAKE_FRAMES = 1, /* wake me when you publish a frame */
    SPR_SHM_WAKE_ROOM = 2,   /* wake me when you take descriptors or release slots */
    SPR_SHM_GENERATION = 4
};

struct spr_shm_header {
    uint32_t magic, version, epoch, rank, size, large_shared;
    uint64_t bytes;
    _Alignas(SPR_CACHE_LINE) _Atomic uint64_t sleeping;
};

/* Offsets and counts that follow from the number of ranks and of shared large slots. */
struct spr_shm_layout {
    uint32_t size, large_shared;
    uint32_t small_count, large_count; /* slots 0 .. small_count - 1 are small, the others large */
    size_t areas, small, large, bytes;
};

/* False when the numbers are out of range. */
bool spr_shm_layout_set(struct spr_shm_layout *l, uint32_t size, uint64_t large_shared);

static inline uint32_t spr_shm_slot_count(const struct spr_shm_layout *l)
{
    return l->small_count + l->large_count;
}
/* slot < spr_shm_slot_count() */
static inline size_t spr_shm_slot_offset(const struct spr_shm_layout *l, uint32_t slot)
{
    return slot < l->small_count ? l->small + slot * SPR_SHM_SMALL_BYTES
                                 : l->large + (slot - l->small_count) * SPR_SHM_LARGE_BYTES;
}
static inline size_t spr_shm_slot_bytes(const struct spr_shm_layout *l, uint32_t slot)
{
    return slot < l->small_count ? SPR_SHM_SMALL_BYTES : SPR_SHM_LARGE_BYTES;
}

#endif
