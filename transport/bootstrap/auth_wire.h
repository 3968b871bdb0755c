/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The four messages of the handshake, and the byte machine below the sockets. Private to auth*.c
 * and its tests.
 *
 *    0         4         5         6                   8
 *   +---------+---------+---------+-------------------+
 *   | "SPRA"  | version | type    | purpose           |   0   all four messages
 *   +---------+---------+---------+-------------------+
 *   | job                                             |   8   HELLO, CHALLENGE
 *   +------------------------+------------------------+
 *   | epoch                  | rank                   |  16   HELLO, CHALLENGE
 *   +------------------------+------------------------+
 *   | size: HELLO, CHALLENGE | status: ACCEPT         |  24
 *   +------------------------+------------------------+
 *   | config hash                                     |  32   HELLO, CHALLENGE
 *   +-------------------------------------------------+
 *   | 0 (24 bytes)                                    |  40
 *   +-------------------------------------------------+
 *   | nonce (32 bytes)                                |  64   HELLO, CHALLENGE
 *   +-------------------------------------------------+
 *   | MAC (32 bytes)                                  |  96   CHALLENGE, PROOF, ACCEPT
 *   +-------------------------------------------------+ 128
 *
 * Little-endian; what a message does not use is zero. The MAC of a message is
 *
 *   CHALLENGE   HMAC(secret, "A" | HELLO             | CHALLENGE[0..95])
 *   PROOF       HMAC(secret, "C" | HELLO | CHALLENGE | PROOF[0..95])
 *   ACCEPT      HMAC(secret, "R" | HELLO | CHALLENGE | ACCEPT[0..95])
 *
 * so that every bit of all four is covered, the two sides cannot be reflected onto each other, and
 * both nonces are in every proof. This layout is the same in all versions: two builds can always
 * tell each other, proven, that their versions differ.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_AUTH_WIRE_H
#define SPR_TRANSPORT_BOOTSTRAP_AUTH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/bootstrap/auth.h"

#define SPR_AUTH_MAGIC_BYTES                                                                       \
    {                                                                                              \
        'S', 'P', 'R', 'A'                                                                         \
    }
#define SPR_AUTH_VERSION 1
#define SPR_AUTH_MAC_BYTES 32

enum spr_auth_type { SPR_AUTH_HELLO = 1, SPR_AUTH_CHALLENGE, SPR_AUTH_PROOF, SPR_AUTH_ACCEPT };

struct spr_auth_frame {
    uint8_t magic[4];
    uint8_t version, type;
    uint16_t purpose; /* enum spr_auth_purpose */
    uint64_t job;
    uint32_t epoch, rank;
    uint32_t size;
    int32_t status; /* spr_status */
    uint64_t config_hash;
    uint8_t zero[24];
    uint8_t nonce[32];
    uint8_t mac[SPR_AUTH_MAC_BYTES];
};
_Static_assert(sizeof(struct spr_auth_frame) == SPR_AUTH_FRAME_BYTES, "handshake frame layout");
_Static_assert(offsetof(struct spr_auth_frame, nonce) == 64, "handshake frame layout");
_Static_assert(offsetof(struct spr_auth_frame, mac) == 96, "handshake frame layout");

/*
 * The machine without a socket. At any time it either has bytes to send (spr_auth_output > 0), or
 * wants bytes (spr_auth_wants > 0), or has ended; spr_auth_result is IN_PROGRESS until then.
 */
size_t spr_auth_output(const struct spr_auth *a, const uint8_t **data);
void spr_auth_sent(struct spr_auth *a, size_t bytes);
/* Where received bytes go, and how many at most. */
size_t spr_auth_wants(struct spr_auth *a, uint8_t **into);
void spr_auth_received(struct spr_auth *a, size_t bytes);
/* The stream ended or broke; `how` is a static text, saved_errno 0 for an end of file. */
void spr_auth_broken(struct spr_auth *a, const char *how, int saved_errno);
spr_status spr_auth_result(const struct spr_auth *a);

/* HMAC-SHA256. false: libcrypto refused. */
bool spr_auth_hmac(const struct spr_auth_key *key, const void *data, size_t bytes,
                   uint8_t mac[SPR_AUTH_MAC_BYTES]);

#endif
