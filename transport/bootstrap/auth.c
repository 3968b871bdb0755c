/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The handshake as a machine over bytes; auth_socket.c moves them. A stranger learns nothing but
 * our CHALLENGE and is not told why it is refused: fields are compared only once the MAC has shown
 * that the peer knows the secret.
 */
#include "transport/bootstrap/auth.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/util.h"
#include "transport/bootstrap/auth_wire.h"
#include "transport/options.h"

/* The frame in memory is the frame on the wire. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "Sparring runs on little-endian machines");

#define MAC_OFFSET (SPR_AUTH_FRAME_BYTES - SPR_AUTH_MAC_BYTES)

/* What is waited for. A negative state is the status that the handshake ended with. */
enum state {
    STATE_DONE = SPR_OK,
    HELLO_OUT, /* connector, in this order */
    CHALLENGE_IN,
    PROOF_OUT,
    ACCEPT_IN,
    HELLO_IN, /* acceptor, in this order */
    CHALLENGE_OUT,
    PROOF_IN,
    ACCEPT_OUT
};

static spr_status fail(struct spr_auth *a, spr_status status, const char *why)
{
    a->why = why;
    if (!a->detail[0])
        snprintf(a->detail, sizeof(a->detail), "%s", why);
    return status;
}

bool spr_auth_hmac(const struct spr_auth_key *key, const void *data, size_t bytes,
                   uint8_t mac[SPR_AUTH_MAC_BYTES])
{
    unsigned int length = 0;

    return HMAC(EVP_sha256(), key->secret, (int)key->secret_bytes, data, bytes, mac, &length) &&
           length == SPR_AUTH_MAC_BYTES;
}

/* The MAC of a message: over `who`, all that both sides know by now, and the message itself. */
static bool transcript_mac(const struct spr_auth *a, char who, const uint8_t *message,
                           uint8_t mac[SPR_AUTH_MAC_BYTES])
{
    uint8_t text[1 + 3 * SPR_AUTH_FRAME_BYTES];
    size_t used = 0;

    text[used++] = (uint8_t)who;
    memcpy(text + used, a->hello, SPR_AUTH_FRAME_BYTES);
    used += SPR_AUTH_FRAME_BYTES;
    if (who != 'A') {
        memcpy(text + used, a->challenge, SPR_AUTH_FRAME_BYTES);
        used += SPR_AUTH_FRAME_BYTES;
    }
    memcpy(text + used, message, MAC_OFFSET);
    used += MAC_OFFSET;
    return spr_auth_hmac(a->key, text, used, mac);
}

static bool proven(const struct spr_auth *a, char who)
{
    uint8_t mac[SPR_AUTH_MAC_BYTES];

    return transcript_mac(a, who, a->in, mac) &&
           CRYPTO_memcmp(mac, a->in + MAC_OFFSET, sizeof(mac)) == 0;
}

/* ---- Messages out ---- */

static struct spr_auth_frame blank(const struct spr_auth *a, enum spr_auth_type type)
{
    return (struct spr_auth_frame){
        .magic = SPR_AUTH_MAGIC_BYTES,
        .version = SPR_AUTH_VERSION,
        .type = (uint8_t)type,
        .purpose = (uint16_t)a->purpose,
    };
}

static void put(struct spr_auth *a, const struct spr_auth_frame *f)
{
    memcpy(a->out, f, sizeof(*f));
    a->out_bytes = sizeof(*f);
    a->out_sent = 0;
}

/* HELLO and CHALLENGE: who we are, and a nonce. */
static spr_status introduce(struct spr_auth *a, struct spr_auth_frame *f)
{
    const struct spr_auth_key *key = a->key;

    f->job = key->job;
    f->epoch = key->epoch;
    f->rank = (uint32_t)key->rank;
    f->size = (uint32_t)key->size;
    f->config_hash = key->config_hash;
    if (getrandom(f->nonce, sizeof(f->nonce), 0) != (ssize_t)sizeof(f->nonce))
        return fail(a, SPR_ERR_SYSTEM, "no random bytes for the handshake");
    return SPR_OK;
}

/* Fill in the MAC and queue. */
static int seal(struct spr_auth *a, char who, struct spr_auth_frame *f, enum state next)
{
    if (!transcript_mac(a, who, (const uint8_t *)f, f->mac))
        return fail(a, SPR_ERR_SYSTEM, "libcrypto has no HMAC-SHA256");
    put(a, f);
    return (int)next;
}

/* ---- What differs between the two sides ---- */

static spr_status differ(struct spr_auth *a, spr_status status, const char *what, uint64_t here,
                         uint64_t there)
{
    snprintf(a->detail, sizeof(a->detail), "%s: %" PRIu64 " here, %" PRIu64 " there", what, here,
             there);
    a->why = what;
    return status;
}

static spr_status differ_hex(struct spr_auth *a, spr_status status, const char *what, uint64_t here,
                             uint64_t there)
{
    snprintf(a->detail, sizeof(a->detail), "%s: %016" PRIx64 " here, %016" PRIx64 " there", what,
             here, there);
    a->why = what;
    return status;
}

/* `f` comes from a peer that knows the secret. */
static spr_status compare(struct spr_auth *a, const struct spr_auth_frame *f)
{
    const struct spr_auth_key *key = a->key;

    if (f->version != SPR_AUTH_VERSION)
        return differ(a, SPR_ERR_MISMATCH, "protocol versions differ", SPR_AUTH_VERSION,
                      f->version);
    if (f->purpose != a->purpose)
        return differ(a, SPR_ERR_PROTO, "connections of different purpose", a->purpose, f->purpose);
    if (f->job != key->job)
        return differ_hex(a, SPR_ERR_AUTH, "jobs differ", key->job, f->job);
    if (f->size != (uint32_t)key->size)
        return differ(a, SPR_ERR_MISMATCH, "numbers of ranks differ", (uint32_t)key->size, f->size);
    if (f->epoch != key->epoch)
        return differ(a, SPR_ERR_MISMATCH, "epochs differ", key->epoch, f->epoch);
    if (f->config_hash != key->config_hash)
        return differ_hex(a, SPR_ERR_MISMATCH, "settings differ (one of " SPR_EQUAL_SETTINGS ")",
                          key->config_hash, f->config_hash);
    if (f->rank >= f->size)
        return differ(a, SPR_ERR_MISMATCH, "the peer is no rank of this job", (uint32_t)key->rank,
                      f->rank);
    if (f->rank == (uint32_t)key->rank)
        return differ(a, SPR_ERR_MISMATCH, "both sides are the same rank", (uint32_t)key->rank,
                      f->rank);
    if (a->peer >= 0 && f->rank != (uint32_t)a->peer)
        return differ(a, SPR_ERR_MISMATCH, "not the rank that was expected", (uint32_t)a->peer,
                      f->rank);
    a->peer = (int)f->rank;
    return SPR_OK;
}

/* ---- Connector ---- */

static int begin_hello(struct spr_auth *a)
{
    struct spr_auth_frame f = blank(a, SPR_AUTH_HELLO);
    spr_status status = introduce(a, &f);

    if (status != SPR_OK)
        return status;
    memcpy(a->hello, &f, sizeof(f));
    put(a, &f);
    return HELLO_OUT;
}

static int hello_sent(struct spr_auth *a)
{
    (void)a;
    return CHALLENGE_IN;
}

static int challenge_came(struct spr_auth *a)
{
    struct spr_auth_frame f, proof = blank(a, SPR_AUTH_PROOF);

    if (!proven(a, 'A'))
        return fail(a, SPR_ERR_AUTH, "the peer does not have this job's secret");
    memcpy(a->challenge, a->in, sizeof(a->challenge));
    memcpy(&f, a->in, sizeof(f));
    /* Also when something differs: with our proof the peer knows it too and can name it. */
    a->refusal = compare(a, &f);
    return seal(a, 'C', &proof, PROOF_OUT);
}

static int proof_sent(struct spr_auth *a)
{
    (void)a;
    return ACCEPT_IN;
}

static int accept_came(struct spr_auth *a)
{
    struct spr_auth_frame f;

    if (a->refusal != SPR_OK)
        return a->refusal;
    if (!proven(a, 'R'))
        return fail(a, SPR_ERR_AUTH, "the answer to our proof is not authentic");
    memcpy(&f, a->in, sizeof(f));
    if (f.status == SPR_OK)
        return STATE_DONE;
    snprintf(a->detail, sizeof(a->detail), "refused by rank %d: %s", a->peer,
             spr_status_string(f.status));
    return fail(a, f.status < 0 ? f.status : SPR_ERR_PROTO, "refused by the peer");
}

/* ---- Acceptor ---- */

static int hello_came(struct spr_auth *a)
{
    struct spr_auth_frame f = blank(a, SPR_AUTH_CHALLENGE);
    spr_status status = introduce(a, &f);

    if (status != SPR_OK)
        return status;
    memcpy(a->hello, a->in, sizeof(a->hello));
    status = seal(a, 'A', &f, CHALLENGE_OUT);
    memcpy(a->challenge, &f, sizeof(f));
    return status;
}

static int challenge_sent(struct spr_auth *a)
{
    (void)a;
    return PROOF_IN;
}

static int proof_came(struct spr_auth *a)
{
    struct spr_auth_frame hello, f = blank(a, SPR_AUTH_ACCEPT);

    if (!proven(a, 'C'))
        return fail(a, SPR_ERR_AUTH, "the peer does not have this job's secret");
    memcpy(&hello, a->hello, sizeof(hello));
    a->refusal = compare(a, &hello);
    f.status = a->refusal;
    return seal(a, 'R', &f, ACCEPT_OUT);
}

static int accept_sent(struct spr_auth *a) { return a->refusal; }

/* ---- The machine ---- */

/* A state ends when one whole message was sent or received; `then` gives the next state. */
static const struct {
    bool out;
    enum spr_auth_type type;
    int (*then)(struct spr_auth *a);
} states[] = {
    [HELLO_OUT] = {true, SPR_AUTH_HELLO, hello_sent},
    [CHALLENGE_IN] = {false, SPR_AUTH_CHALLENGE, challenge_came},
    [PROOF_OUT] = {true, SPR_AUTH_PROOF, proof_sent},
    [ACCEPT_IN] = {false, SPR_AUTH_ACCEPT, accept_came},
    [HELLO_IN] = {false, SPR_AUTH_HELLO, hello_came},
    [CHALLENGE_OUT] = {true, SPR_AUTH_CHALLENGE, challenge_sent},
    [PROOF_IN] = {false, SPR_AUTH_PROOF, proof_came},
    [ACCEPT_OUT] = {true, SPR_AUTH_ACCEPT, accept_sent},
};

static bool running(const struct spr_auth *a) { return a->state > STATE_DONE; }

bool spr_auth_has_proven(const struct spr_auth *a)
{
    return a->state == PROOF_OUT || a->state == ACCEPT_IN;
}

void spr_auth_init(struct spr_auth *a, const struct spr_auth_key *key, bool connector,
                   enum spr_auth_purpose purpose, int peer)
{
    memset(a, 0, sizeof(*a));
    a->key = key;
    a->connector = connector;
    a->purpose = purpose;
    a->peer = peer;
    a->state = connector ? begin_hello(a) : HELLO_IN;
}

size_t spr_auth_output(const struct spr_auth *a, const uint8_t **data)
{
    if (!running(a) || !states[a->state].out)
        return 0;
    *data = a->out + a->out_sent;
    return a->out_bytes - a->out_sent;
}

void spr_auth_sent(struct spr_auth *a, size_t bytes)
{
    a->out_sent += bytes;
    if (a->out_sent == a->out_bytes)
        a->state = states[a->state].then(a);
}

size_t spr_auth_wants(struct spr_auth *a, uint8_t **into)
{
    if (!running(a) || states[a->state].out)
        return 0;
    *into = a->in + a->in_bytes;
    return SPR_AUTH_FRAME_BYTES - a->in_bytes;
}

/* A scanner or a browser is recognised by its first bytes; it need not send 128 of them. */
static bool prefix_fits(const struct spr_auth *a)
{
    static const uint8_t magic[] = SPR_AUTH_MAGIC_BYTES;

    if (memcmp(a->in, magic, spr_min_size(a->in_bytes, sizeof(magic))) != 0)
        return false;
    return a->in_bytes <= offsetof(struct spr_auth_frame, type) ||
           a->in[offsetof(struct spr_auth_frame, type)] == states[a->state].type;
}

void spr_auth_received(struct spr_auth *a, size_t bytes)
{
    a->in_bytes += bytes;
    if (!prefix_fits(a)) {
        a->state = fail(a, SPR_ERR_PROTO, "the peer does not speak this protocol");
        return;
    }
    if (a->in_bytes < SPR_AUTH_FRAME_BYTES)
        return;
    a->in_bytes = 0;
    a->state = states[a->state].then(a);
}

void spr_auth_broken(struct spr_auth *a, const char *how, int saved_errno)
{
    if (!running(a))
        return;
    if (a->refusal != SPR_OK) { /* known before the peer hung up: the better text */
        a->state = a->refusal;
        return;
    }
    if (saved_errno) {
        errno = saved_errno;
        snprintf(a->detail, sizeof(a->detail), "%s: %m", how);
    }
    a->state = fail(a, SPR_ERR_LINK, how);
}

spr_status spr_auth_result(const struct spr_auth *a)
{
    return running(a) ? SPR_IN_PROGRESS : a->state;
}
