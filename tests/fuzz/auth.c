/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The handshake (transport/bootstrap/auth.c): two machines, and somebody between them who changes
 * what they say, with the job's secret or without. Input: what differs between the two sides, then
 * for each of the four messages: how it is changed, the bytes, how it is split.
 */
#include <stdlib.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/bootstrap/auth_wire.h"

#define MESSAGES 4

static struct side {
    struct spr_auth_key key;
    struct spr_auth auth;
} connector, acceptor;

struct change {
    bool touched, sealed; /* other than it was sent; with a right MAC */
};

static void make_key(struct spr_auth_key *key, int rank)
{
    *key = (struct spr_auth_key){
        .secret = "a secret of the job",
        .secret_bytes = 19,
        .job = 0x1122334455667788,
        .epoch = 3,
        .rank = rank,
        .size = 8,
        .config_hash = 0x99,
    };
}

/* What a peer that knows the secret of `to` would put there. */
static void seal(const struct side *to, int message, uint8_t *bytes)
{
    static const char who[MESSAGES] = {0, 'A', 'C', 'R'};
    uint8_t text[1 + 3 * SPR_AUTH_FRAME_BYTES];
    size_t n = 0, head = offsetof(struct spr_auth_frame, mac);

    if (message == 0)
        return;
    text[n++] = (uint8_t)who[message];
    memcpy(text + n, to->auth.hello, SPR_AUTH_FRAME_BYTES);
    n += SPR_AUTH_FRAME_BYTES;
    if (message > 1) {
        memcpy(text + n, to->auth.challenge, SPR_AUTH_FRAME_BYTES);
        n += SPR_AUTH_FRAME_BYTES;
    }
    memcpy(text + n, bytes, head);
    FUZZ_CHECK(spr_auth_hmac(&to->key, text, n + head, bytes + head));
}

/* In: a byte (0 = as it is, bit 0: seal again), a place, a length, the bytes. */
static struct change change(const struct side *to, int message, uint8_t *bytes, struct fuzz_in *in)
{
    uint8_t before[SPR_AUTH_FRAME_BYTES], how = fuzz_u8(in);
    struct change c = {false, false};

    if (how == 0)
        return c;
    memcpy(before, bytes, sizeof before);
    size_t at = fuzz_u8(in) % SPR_AUTH_FRAME_BYTES;
    for (size_t n = how >> 2 & 31; n > 0; n--)
        bytes[at++ % SPR_AUTH_FRAME_BYTES] ^= fuzz_u8(in);
    c.sealed = how & 1;
    if (c.sealed)
        seal(to, message, bytes);
    c.touched = memcmp(before, bytes, sizeof before) != 0;
    return c;
}

/* One message of `from`, if it has one. */
static bool move(struct side *from, struct side *to, int message, struct change *c,
                 struct fuzz_in *in)
{
    uint8_t bytes[SPR_AUTH_FRAME_BYTES], split;
    const uint8_t *out;
    size_t n = spr_auth_output(&from->auth, &out), done = 0;

    if (n == 0)
        return false;
    FUZZ_CHECK(n == sizeof bytes && out == from->auth.out);
    memcpy(bytes, out, sizeof bytes);
    *c = change(to, message, bytes, in);
    split = fuzz_u8(in);
    while (done < sizeof bytes) {
        uint8_t *into = NULL;
        size_t room = spr_auth_wants(&to->auth, &into);

        if (room == 0)
            break;
        FUZZ_CHECK(into >= to->auth.in && into + room <= to->auth.in + sizeof to->auth.in);
        n = spr_min_size(spr_min_size(room, sizeof bytes - done), split ? split : SIZE_MAX);
        memcpy(into, bytes + done, n);
        spr_auth_received(&to->auth, n);
        done += n;
    }
    spr_auth_sent(&from->auth, sizeof bytes / 2);
    spr_auth_sent(&from->auth, sizeof bytes - sizeof bytes / 2);
    return true;
}

static void check_side(struct side *s, int expected)
{
    spr_status status;

    if (spr_auth_result(&s->auth) == SPR_IN_PROGRESS)
        spr_auth_broken(&s->auth, "closed", 0);
    status = spr_auth_result(&s->auth);
    FUZZ_CHECK(status <= 0 && memchr(s->auth.detail, '\0', sizeof s->auth.detail));
    if (status != SPR_OK) {
        FUZZ_CHECK(*s->auth.detail && s->auth.why);
        return;
    }
    FUZZ_CHECK(s->auth.peer >= 0 && s->auth.peer < s->key.size && s->auth.peer != s->key.rank);
    FUZZ_CHECK(expected < 0 || s->auth.peer == expected);
}

static bool keys_fit(uint8_t differ) { return differ == 0; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct change c[MESSAGES] = {{false, false}};
    uint8_t differ = fuzz_u8(&in) & 127;
    int expected = differ & 64 ? 4 : 5, message = 0;

    make_key(&connector.key, 5);
    make_key(&acceptor.key, 2);
    acceptor.key.secret[0] ^= differ & 1;
    acceptor.key.job ^= differ >> 1 & 1;
    acceptor.key.epoch ^= differ >> 2 & 1;
    acceptor.key.size += differ >> 3 & 1;
    acceptor.key.config_hash ^= differ >> 4 & 1;
    spr_auth_init(&connector.auth, &connector.key, true, SPR_AUTH_TCP, 2);
    spr_auth_init(&acceptor.auth, &acceptor.key, false, differ & 32 ? SPR_AUTH_SHM : SPR_AUTH_TCP,
                  expected);
    while (message < MESSAGES) {
        struct side *from = message % 2 ? &acceptor : &connector;
        struct side *to = message % 2 ? &connector : &acceptor;

        if (!move(from, to, message, &c[message], &in))
            break;
        message++;
    }
    check_side(&connector, 2);
    check_side(&acceptor, expected);
    bool connected = spr_auth_result(&connector.auth) == SPR_OK;
    bool accepted = spr_auth_result(&acceptor.auth) == SPR_OK;
    bool forged = false, lied = false;
    for (int i = 0; i < MESSAGES; i++) {
        forged |= c[i].touched && (!c[i].sealed || i == 0);
        lied |= c[i].touched && c[i].sealed;
        if (i == 2)
            FUZZ_CHECK(!accepted || lied || (!forged && keys_fit(differ)));
    }
    FUZZ_CHECK(!connected || lied || (!forged && keys_fit(differ)));
    FUZZ_CHECK(forged || lied || connected == keys_fit(differ));
    FUZZ_CHECK(connected || forged || lied || !accepted);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_script seeds[] = {
        {"whole", {0, 0, 0, 0, 0, 0, 0, 0}, 8},
        {"split", {0, 0, 7, 0, 5, 0, 3, 0, 64}, 9},
        {"other_secret", {1}, 1},
        {"other_job", {2}, 1},
        {"other_epoch", {4}, 1},
        {"other_size", {8}, 1},
        {"other_settings", {16}, 1},
        {"other_purpose", {32}, 1},
        {"other_rank", {64}, 1},
        {"hello_changed", {0, 4, 20, 1}, 4},
        {"challenge_changed", {0, 0, 0, 4, 20, 1}, 6},
        {"challenge_of_a_liar", {0, 0, 0, 5, 20, 1}, 6},
        {"proof_of_a_liar", {0, 0, 0, 0, 0, 5, 50, 1}, 8},
        {"accept_of_a_liar", {0, 0, 0, 0, 0, 0, 0, 5, 28, 255}, 10},
        {"not_a_handshake", {0, 16, 0, 'G', 'E', 'T', ' '}, 7},
    };

    fuzz_emit_scripts(seeds, SPR_ARRAY_LEN(seeds));
}
