/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Authentication of a connection, the same on root, TCP and shared-memory sockets: a pure state
 * machine over fixed-size frames, so that nothing is allocated and no length is believed before the
 * peer has shown that it knows the job's secret.
 *
 *   connector                                   acceptor
 *      HELLO   who it is, nonce C           ->
 *                                           <-  CHALLENGE   who it is, nonce S, MAC
 *      PROOF   MAC                          ->
 *                                           <-  ACCEPT      status (a refusal has a reason), MAC
 *
 * auth_wire.h has the fields, and what each MAC covers.
 *
 * HMAC-SHA256 (RFC 2104) over the whole transcript with two fresh nonces: not replayable, both
 * sides are proven. Without a secret the MACs are computed with an empty key: then it only keeps
 * strangers' traffic (other jobs, port scans) out.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_AUTH_H
#define SPR_TRANSPORT_BOOTSTRAP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/status.h>

/* What all connections of this rank have in common. */
struct spr_auth_key {
    uint8_t secret[64];
    size_t secret_bytes; /* 0: none */
    uint64_t job;
    uint32_t epoch;
    int rank, size;
    uint64_t config_hash; /* settings that must be equal on all ranks */
};

enum spr_auth_purpose { SPR_AUTH_ROOT = 1, SPR_AUTH_TCP, SPR_AUTH_SHM, SPR_AUTH_VERBS };

#define SPR_AUTH_FRAME_BYTES 128 /* all four messages have this size */

struct spr_auth {
    const struct spr_auth_key *key;
    bool connector;
    uint32_t purpose;
    int peer;           /* expected rank, or -1 until the peer said it */
    int state;          /* private */
    spr_status refusal; /* private: what differs, found before the peer has been told */
    uint8_t hello[SPR_AUTH_FRAME_BYTES], challenge[SPR_AUTH_FRAME_BYTES];
    uint8_t out[SPR_AUTH_FRAME_BYTES], in[SPR_AUTH_FRAME_BYTES];
    size_t out_sent, out_bytes, in_bytes;
    const char *why; /* static text after an error */
    char detail[240];
};

/* peer: the rank that must be at the other end, or -1 (acceptor: any). key must outlive a. */
void spr_auth_init(struct spr_auth *a, const struct spr_auth_key *key, bool connector,
                   enum spr_auth_purpose purpose, int peer);
/*
 * Drive the handshake on a non-blocking stream socket: writes and reads exactly the handshake's
 * bytes, never more. SPR_OK: authenticated, a->peer is proven; SPR_IN_PROGRESS: wait for *events
 * (POLLIN | POLLOUT); errors: AUTH (wrong secret or job), MISMATCH (version, size or settings
 * differ), PROTO (garbage), LINK (closed); a->detail has the text.
 */
spr_status spr_auth_drive(struct spr_auth *a, int fd, short *events);
/* As connector: the peer is proven, and this rank's proof may have reached it. */
bool spr_auth_has_proven(const struct spr_auth *a);

#endif
