/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What rank 0 and the others say to each other after the handshake: a header of 32 bytes, then the
 * payload. Little-endian. Private to the bootstrap.
 *
 *    0                   4         5                   8
 *   +-------------------+---------+-------------------+
 *   | "SPRB"            | type    | 0                 |
 *   +-------------------+---------+-------------------+
 *   | sequence                    | status            |  8   of the allgather; FAIL: what happened
 *   +-----------------------------+-------------------+
 *   | rank                        | size              | 16   FAIL: who is to blame, or -1;
 *   |                             |                   |      RESULT in a meeting: the receiver,
 *   |                             |                   |      of how many
 *   +-----------------------------+-------------------+
 *   | bytes of the payload                            | 24
 *   +-------------------------------------------------+ 32
 *
 * Both sides know how long a GATHER and a RESULT must be, and refuse any other length before they
 * use it.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_WIRE_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_WIRE_H

#include <stdint.h>

#include "base/error.h"

#define SPR_ROOT_MAGIC 0x42525053u /* "SPRB" */

enum spr_root_type {
    SPR_ROOT_GATHER = 1, /* to rank 0: one rank's part of an allgather */
    SPR_ROOT_RESULT,     /* from rank 0: all parts in rank order */
    SPR_ROOT_NOTE,       /* from rank 0: a text that says whom it waits for */
    SPR_ROOT_REFUSED,    /* from rank 0: not now, with a text; try again */
    SPR_ROOT_FAIL,       /* from rank 0: it is over, with a text */
    SPR_ROOT_GAVE_UP     /* to rank 0: my deadline passed; so it is not a death */
};

struct spr_root_header {
    uint32_t magic;
    uint8_t type;
    uint8_t zero[3];
    uint32_t sequence;
    int32_t status;
    int32_t rank;
    uint32_t size; /* RESULT in a meeting, else 0 */
    uint64_t bytes;
};
_Static_assert(sizeof(struct spr_root_header) == 32, "root header layout");

/* Most bytes of the text of NOTE, REFUSED and FAIL. */
#define SPR_ROOT_TEXT_BYTES (SPR_ERROR_TEXT_BYTES - 1)

#endif
