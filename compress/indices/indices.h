/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coders: ascending positions below a universe, as bytes.
 *
 *    0        1
 *   +--------+----------------------------------------------------------+
 *   | coder  | what the coder makes of them; nothing when there are none |
 *   +--------+----------------------------------------------------------+
 *
 * The first byte is enum spr_index_id, so whoever decodes need not know who chose. How many
 * positions there are, and the universe, both sides know from elsewhere (a chunk's header). An
 * encoding is canonical: a list has one per coder, and everything else is refused.
 *
 * Cost: see spr_index_cost. Nothing is allocated, and there is no state. The bytes need no
 * alignment; those to be decoded must not be writable by a peer meanwhile.
 */
#ifndef SPR_COMPRESS_INDICES_INDICES_H
#define SPR_COMPRESS_INDICES_INDICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/status.h>

#include "base/opt.h"
#include "compress/kernels/indices.h"

/* First byte, on the wire. */
enum spr_index_id {
    SPR_INDEX_U32,
    SPR_INDEX_U16,
    SPR_INDEX_BITMAP,
    SPR_INDEX_BITPACK,
    SPR_INDEX_ELIASFANO,
    SPR_INDEX_GOLOMB,
    SPR_INDEX_IDS
};

struct spr_index_options {
    double rate; /* bit/s of the link that the bytes go over: what `auto` weighs them with */
};

/* A registered coder: one of enum spr_index_id, or "auto". */
struct spr_index_coder;
/* i = 0, 1, ...: NULL when there are no more. The first SPR_INDEX_IDS are in the order of their
 * ids. */
const struct spr_index_coder *spr_index_coder_at(size_t i);
const struct spr_index_coder *spr_index_coder_find(const char *name); /* or NULL */
const char *spr_index_coder_name(const struct spr_index_coder *coder);
const char *spr_index_coder_doc(const struct spr_index_coder *coder);
const char *spr_index_coder_paper(const struct spr_index_coder *coder); /* or NULL */
/* What a position takes on average in "bitpack", where one of `every` positions is chosen
 * independently. */
double spr_index_bitpack_bits(double every);
/* What a block of n positions takes there, the least of which may be `first`. */
size_t spr_index_bitpack_bytes(const uint32_t *index, size_t n, uint32_t first);
/* Fields of struct spr_index_options. */
const struct spr_opt *spr_index_coder_options(const struct spr_index_coder *coder, size_t *n);

/*
 * `universe` is at most 2^32, count at most the universe. The list is the program's own: it must
 * ascend strictly and stay below the universe, which is not checked.
 */

/* Room for an encoding: the longest that there can be, and what SIMD stores write behind it. */
size_t spr_index_bound(const struct spr_index_coder *coder, uint64_t universe, size_t count);
/* Returns the bytes of the encoding. `out` has room for spr_index_bound(). */
size_t spr_index_encode(const struct spr_index_coder *coder,
                        const struct spr_index_options *options, const uint32_t *index,
                        size_t count, uint64_t universe, void *out);

/* The same for lists that come in parts, by coders of blocks: bitpack, eliasfano and golomb. `out`
 * has room for spr_index_bound() of all. */
struct spr_index_writer {
    const struct spr_index_coder *coder;
    uint8_t *at;
    uint32_t first;   /* one above the last position that is written */
    size_t have;      /* positions that are not */
    size_t eliasfano; /* bytes that Elias-Fano codes of those written would take */
    uint32_t block[SPR_INDEX_BLOCK];
};
bool spr_index_has_blocks(const struct spr_index_coder *coder);
void spr_index_begin(struct spr_index_writer *w, const struct spr_index_coder *coder, void *out);
/* The next n positions: those of a window that begins at `base`. */
void spr_index_put(struct spr_index_writer *w, const uint16_t *position, size_t n, uint32_t base);
/* Returns the end of the encoding. */
uint8_t *spr_index_end(struct spr_index_writer *w);

/* Bytes that each coder would return, exactly, by id. One pass over the list. */
void spr_index_sizes(const uint32_t *index, size_t count, uint64_t universe,
                     uint64_t bytes[SPR_INDEX_IDS]);

/* What `auto` reckons with: measured, and the same numbers everywhere. */
struct spr_index_cost {
    float encode_ns, decode_ns; /* per index */
    float position_ns;          /* per position of the universe, both ways together */
};
extern const struct spr_index_cost spr_index_costs[SPR_INDEX_IDS];
/* The coder with the least time to encode, send and decode; of equal ones the first. Only those
 * whose bytes are at most `room` are asked. A pure function: ranks with equal arguments agree. */
enum spr_index_id spr_index_choose(const uint64_t bytes[SPR_INDEX_IDS], size_t count,
                                   uint64_t universe, double rate, uint64_t room);

/*
 * Decoding. Bytes come from a peer: whatever they are, nothing outside of the outputs is written
 * and nothing outside of the bytes read. Errors are SPR_ERR_PROTO, with a reason in *why (a static
 * string); outputs are then undefined.
 */

/* `index` has room for count plus SPR_INDEX_SLACK. */
spr_status spr_index_decode(const void *bytes, size_t size, uint64_t universe, size_t count,
                            uint32_t *index, const char **why);
/* Is it an encoding of `count` positions? As much work as decoding. */
spr_status spr_index_check(const void *bytes, size_t size, uint64_t universe, size_t count,
                           const char **why);

/* A cursor decodes a block at a time, for windows that are visited one after the other. */
struct spr_index_cursor {
    const struct spr_index_coder *coder;
    const uint8_t *at, *end; /* bytes that are not decoded */
    uint64_t universe;
    uint64_t left; /* positions that are not decoded */
    uint64_t next; /* the least one that may come */
    const char *why;
    /* u16 */
    const uint8_t *counts; /* of the window that comes after */
    uint32_t in_window;    /* left in this one */
    uint64_t window;       /* where it begins */
    /* Decoded and not taken. */
    size_t taken, have;
    uint32_t buffer[SPR_INDEX_BLOCK + SPR_INDEX_SLACK];
};

/* Looks at the first byte and at lengths; the rest is validated as it is decoded. */
spr_status spr_index_open(struct spr_index_cursor *c, const void *bytes, size_t size,
                          uint64_t universe, size_t count, const char **why);
/* The next positions below `limit`, at most SPR_INDEX_BLOCK of them, in *index until the next call.
 * Returns how many: 0 when there are none, or when c->why says what is wrong with the bytes. */
size_t spr_index_next(struct spr_index_cursor *c, uint64_t limit, const uint32_t **index);

#endif
