/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frame: what travels on every link, of every transport. 64 bytes of header, then the payload.
 *
 *    0                   4         5         6                   8
 *   +-------------------+---------+---------+-------------------+
 *   | magic "SPR1"      | version | type    | flags             |
 *   +-------------------+---------+---------+-------------------+
 *   | epoch                       | sequence on this link       |  8
 *   +-----------------------------+-----------------------------+
 *   | operation                   | step                        | 16   the tag of a message
 *   +-----------------------------+-----------------------------+
 *   | hash of the operation's descriptor                        | 24
 *   +-----------------------------+-----------------------------+
 *   | payload bytes               | payload CRC-32C (flag CRC)  | 32
 *   +-----------------------------+-----------------------------+
 *   | eager bytes consumed so far | argument (by type)          | 40
 *   +-----------------------------+-----------------------------+
 *   | argument, 64 bits (by type)                               | 48
 *   +-----------------------------+-----------------------------+
 *   | 0                           | CRC-32C of bytes 0..59      | 56
 *   +-----------------------------+-----------------------------+
 *
 * Little-endian. A header is checked whole before anything in it is used (spr_frame_check).
 */
#ifndef SPR_TRANSPORT_FRAME_H
#define SPR_TRANSPORT_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include <sparring/status.h>

#define SPR_FRAME_MAGIC 0x31525053u /* "SPR1" */
#define SPR_FRAME_VERSION 1
#define SPR_FRAME_BYTES 64
/* Largest payload of one frame: 256 KiB of values, and room for the bitmap of a sparse window. */
#define SPR_FRAME_MAX_PAYLOAD ((size_t)272 << 10)

enum spr_frame_type {
    SPR_FRAME_DATA = 1, /* a message (operation, step) */
    SPR_FRAME_GRANT,    /* the receiver has room for message (operation, step); payload = where,
                           if the sender can write there (struct spr_place), or none */
    SPR_FRAME_CREDIT,   /* only carries "eager bytes consumed" */
    SPR_FRAME_REQUEST,  /* the sender is out of eager credit: grant (operation, step) when posted */
    SPR_FRAME_ABORT, /* the communicator failed: argument = rank to blame, arg64 = status; payload =
                        text */
    SPR_FRAME_BYE,   /* orderly end: no more frames will come */
    SPR_FRAME_DESCRIBE, /* payload: what the sender posted as `operation`, for who disagrees */
    SPR_FRAME_VIEW,     /* who is left after a failure, see collectives/membership.h */
    SPR_FRAME_REJECT, /* `operation` fails on all ranks: argument = rank to blame, payload = text */
    SPR_FRAME_RECALL, /* argument 0: use no grant of `operation` any more; 1: from here on none is
                       */
    SPR_FRAME_TYPES
};
enum {
    SPR_FRAME_CRC = 1,   /* flags: the payload CRC is filled in */
    SPR_FRAME_PLACED = 2 /* ... the payload is where the grant said, and not behind this header */
};

struct spr_frame {
    uint32_t magic;
    uint8_t version, type;
    uint16_t flags;
    uint32_t epoch, sequence;
    uint32_t operation, step;
    uint64_t descriptor;
    uint32_t bytes, payload_crc;
    uint32_t consumed, arg;
    uint64_t arg64;
    uint32_t zero, header_crc;
};
_Static_assert(sizeof(struct spr_frame) == SPR_FRAME_BYTES, "frame header layout");

/* Fill magic, version and header CRC; everything else is set by the caller. */
void spr_frame_seal(struct spr_frame *f);
/* The same with the CRC of a payload of f->bytes bytes, at least 1. */
void spr_frame_seal_payload(struct spr_frame *f, const void *payload);
/* Magic, version, type, header CRC, length. Errors: PROTO, CORRUPT; *why is a static text. */
spr_status spr_frame_check(const struct spr_frame *f, const char **why);

#endif
