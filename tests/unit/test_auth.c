/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The handshake: two machines wired back to back, with somebody in between who may change, cut,
 * repeat or split what they say.
 */
#include "transport/bootstrap/auth.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "transport/bootstrap/auth_wire.h"

#define MESSAGES 4

static struct spr_rng rng;

static struct spr_auth_key make_key(int rank)
{
    struct spr_auth_key key = {
        .secret = "a secret of the job",
        .secret_bytes = 19,
        .job = 0x1122334455667788,
        .epoch = 3,
        .rank = rank,
        .size = 8,
        .config_hash = 0x99,
    };

    return key;
}

/* ---- The wire between two machines ---- */

struct wire {
    struct spr_auth connector, acceptor;
    struct spr_auth_key key_c, key_a;
    uint8_t said[MESSAGES][SPR_AUTH_FRAME_BYTES]; /* as it was sent */
    int flip_message, flip_bit;                   /* -1: nothing */
    int cut_message; /* -1: nothing; the stream ends inside this message */
    size_t cut_bytes;
    bool split; /* move a random number of bytes at a time */
    int message;
    size_t offset;
};

static void wire_init(struct wire *w)
{
    memset(w, 0, sizeof(*w));
    w->key_c = make_key(5);
    w->key_a = make_key(2);
    w->flip_message = w->cut_message = -1;
}

static void wire_start(struct wire *w)
{
    spr_auth_init(&w->connector, &w->key_c, true, SPR_AUTH_TCP, 2);
    spr_auth_init(&w->acceptor, &w->key_a, false, SPR_AUTH_TCP, -1);
}

/* Move one piece; false when nothing moves any more. */
static bool wire_move(struct wire *w, struct spr_auth *from, struct spr_auth *to)
{
    const uint8_t *data = NULL;
    uint8_t *into = NULL;
    size_t bytes = spr_min_size(spr_auth_output(from, &data), spr_auth_wants(to, &into));

    if (bytes == 0)
        return false;
    if (w->split)
        bytes = 1 + spr_rng_below(&rng, bytes);
    if (w->message == w->cut_message && w->offset + bytes > w->cut_bytes)
        bytes = w->cut_bytes - w->offset;
    if (bytes == 0) {
        spr_auth_broken(from, "cut", 0);
        spr_auth_broken(to, "cut", 0);
        return false;
    }
    memcpy(w->said[w->message] + w->offset, data, bytes);
    memcpy(into, data, bytes);
    if (w->message == w->flip_message) {
        size_t at = (size_t)w->flip_bit / 8;

        if (at >= w->offset && at < w->offset + bytes)
            into[at - w->offset] ^= (uint8_t)(1 << w->flip_bit % 8);
    }
    w->offset += bytes;
    if (w->offset == SPR_AUTH_FRAME_BYTES) {
        w->offset = 0;
        w->message++;
    }
    spr_auth_sent(from, bytes);
    spr_auth_received(to, bytes);
    return true;
}

static void wire_run(struct wire *w)
{
    wire_start(w);
    while (wire_move(w, &w->connector, &w->acceptor) || wire_move(w, &w->acceptor, &w->connector))
        ;
    /* Whoever gave up closes the connection. */
    spr_auth_broken(&w->connector, "closed", 0);
    spr_auth_broken(&w->acceptor, "closed", 0);
}

static void expect_refused(const struct wire *w, spr_status status, const char *words)
{
    assert_int_equal(spr_auth_result(&w->connector), status);
    assert_int_equal(spr_auth_result(&w->acceptor), status);
    assert_non_null(strstr(w->connector.detail, words));
    assert_non_null(strstr(w->acceptor.detail, words));
}

/* ---- Behaviour ---- */

static void two_ranks_of_a_job_prove_each_other(void **state)
{
    struct wire w;

    (void)state;
    wire_init(&w);
    wire_run(&w);
    assert_int_equal(spr_auth_result(&w.connector), SPR_OK);
    assert_int_equal(spr_auth_result(&w.acceptor), SPR_OK);
    assert_int_equal(w.connector.peer, 2);
    assert_int_equal(w.acceptor.peer, 5);
    assert_int_equal(w.message, MESSAGES);
}

static void an_empty_secret_works(void **state)
{
    struct wire w;

    (void)state;
    wire_init(&w);
    w.key_a.secret_bytes = w.key_c.secret_bytes = 0;
    wire_run(&w);
    assert_int_equal(spr_auth_result(&w.connector), SPR_OK);
    assert_int_equal(spr_auth_result(&w.acceptor), SPR_OK);
}

static void a_wrong_secret_is_refused_by_both_and_learns_nothing(void **state)
{
    struct wire w;

    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        wire_init(&w);
        w.key_c.secret[0] ^= 1;
        w.key_c.job++; /* differs too, but must not show */
        if (empty)
            w.key_c.secret_bytes = 0;
        wire_run(&w);
        assert_int_equal(spr_auth_result(&w.connector), SPR_ERR_AUTH);
        assert_int_equal(spr_auth_result(&w.acceptor), SPR_ERR_LINK);
        assert_null(strstr(w.connector.detail, "here"));
        assert_null(strstr(w.acceptor.detail, "here"));
        assert_int_equal(w.message, 2);
    }
}

/* A peer that does not give up at a challenge without proof, but sends a proof of its own making.
 */
static void a_forged_proof_is_refused(void **state)
{
    struct wire w;
    uint8_t *into = NULL;

    (void)state;
    wire_init(&w);
    w.key_c.secret_bytes--;
    wire_start(&w);
    while (w.message < 2)
        if (!wire_move(&w, &w.connector, &w.acceptor))
            assert_true(wire_move(&w, &w.acceptor, &w.connector));
    assert_int_equal(spr_auth_wants(&w.acceptor, &into), SPR_AUTH_FRAME_BYTES);
    memcpy(into, w.said[1], SPR_AUTH_FRAME_BYTES);
    into[5] = SPR_AUTH_PROOF;
    spr_auth_received(&w.acceptor, SPR_AUTH_FRAME_BYTES);
    assert_int_equal(spr_auth_result(&w.acceptor), SPR_ERR_AUTH);
    assert_int_equal(spr_auth_output(&w.acceptor, (const uint8_t **)&into), 0);
}

static void what_differs_is_named_with_both_values(void **state)
{
    struct wire w;

    (void)state;
    wire_init(&w);
    w.key_c.job = 0xabc;
    wire_run(&w);
    expect_refused(&w, SPR_ERR_AUTH, "1122334455667788");
    expect_refused(&w, SPR_ERR_AUTH, "0000000000000abc");

    wire_init(&w);
    w.key_c.size = 16;
    wire_run(&w);
    expect_refused(&w, SPR_ERR_MISMATCH, "numbers of ranks");
    assert_string_equal(w.acceptor.detail, "numbers of ranks differ: 8 here, 16 there");

    wire_init(&w);
    w.key_c.epoch = 4;
    wire_run(&w);
    expect_refused(&w, SPR_ERR_MISMATCH, "epochs");

    wire_init(&w);
    w.key_c.config_hash = 1;
    wire_run(&w);
    expect_refused(&w, SPR_ERR_MISMATCH, "settings");

    wire_init(&w);
    w.key_c.rank = 2;
    wire_run(&w);
    expect_refused(&w, SPR_ERR_MISMATCH, "same rank");

    wire_init(&w);
    w.key_a.rank = 1;
    wire_run(&w);
    assert_int_equal(spr_auth_result(&w.connector), SPR_ERR_MISMATCH);
    assert_non_null(strstr(w.connector.detail, "2 here, 1 there"));
}

/* A peer of another version: rewrite its HELLO and sign anew, as that build would. */
static void another_version_is_named_after_the_proof(void **state)
{
    struct spr_auth_key key_a = make_key(2), key_c = make_key(5);
    uint8_t hello[SPR_AUTH_FRAME_BYTES], text[1 + 3 * SPR_AUTH_FRAME_BYTES] = "C";
    struct spr_auth acceptor, connector;
    struct spr_auth_frame proof = {
        {'S', 'P', 'R', 'A'}, 9, SPR_AUTH_PROOF, SPR_AUTH_TCP, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}};
    const uint8_t *data = NULL;
    uint8_t *into = NULL;

    (void)state;
    spr_auth_init(&acceptor, &key_a, false, SPR_AUTH_TCP, -1);
    spr_auth_init(&connector, &key_c, true, SPR_AUTH_TCP, 2);
    assert_int_equal(spr_auth_output(&connector, &data), SPR_AUTH_FRAME_BYTES);
    memcpy(hello, data, sizeof(hello));
    hello[offsetof(struct spr_auth_frame, version)] = 9;
    spr_auth_wants(&acceptor, &into);
    memcpy(into, hello, sizeof(hello));
    spr_auth_received(&acceptor, sizeof(hello));
    assert_int_equal(spr_auth_output(&acceptor, &data), SPR_AUTH_FRAME_BYTES);
    memcpy(text + 1, hello, sizeof(hello));
    memcpy(text + 1 + 128, data, 128);
    memcpy(text + 1 + 256, &proof, 96);
    assert_true(spr_auth_hmac(&key_c, text, 1 + 256 + 96, proof.mac));
    spr_auth_sent(&acceptor, SPR_AUTH_FRAME_BYTES);
    spr_auth_wants(&acceptor, &into);
    memcpy(into, &proof, sizeof(proof));
    spr_auth_received(&acceptor, sizeof(proof));
    assert_int_equal(spr_auth_output(&acceptor, &data), SPR_AUTH_FRAME_BYTES); /* tells the peer */
    spr_auth_sent(&acceptor, SPR_AUTH_FRAME_BYTES);
    assert_int_equal(spr_auth_result(&acceptor), SPR_ERR_MISMATCH);
    assert_string_equal(acceptor.detail, "protocol versions differ: 1 here, 9 there");
}

static void every_flipped_bit_of_every_message_is_refused(void **state)
{
    struct wire w;

    (void)state;
    for (int message = 0; message < MESSAGES; message++) {
        for (int bit = 0; bit < 8 * SPR_AUTH_FRAME_BYTES; bit++) {
            wire_init(&w);
            w.flip_message = message;
            w.flip_bit = bit;
            wire_run(&w);
            /* The acceptor has ended when ACCEPT is under way. */
            assert_true(spr_auth_result(&w.connector) < 0);
            if (message < 3)
                assert_true(spr_auth_result(&w.acceptor) < 0);
        }
    }
}

static void a_cut_at_every_length_ends_in_an_error(void **state)
{
    struct wire w;

    (void)state;
    for (int message = 0; message < MESSAGES; message++) {
        for (size_t bytes = 0; bytes < SPR_AUTH_FRAME_BYTES; bytes++) {
            wire_init(&w);
            w.cut_message = message;
            w.cut_bytes = bytes;
            wire_run(&w);
            assert_int_equal(spr_auth_result(&w.connector), SPR_ERR_LINK);
            assert_int_equal(spr_auth_result(&w.acceptor), SPR_ERR_LINK);
        }
    }
}

static void random_pieces_give_the_same_result(void **state)
{
    struct wire w;

    (void)state;
    for (int i = 0; i < 500; i++) {
        wire_init(&w);
        w.split = true;
        wire_run(&w);
        assert_int_equal(spr_auth_result(&w.connector), SPR_OK);
        assert_int_equal(spr_auth_result(&w.acceptor), SPR_OK);
    }
}

static void a_recorded_handshake_opens_nothing(void **state)
{
    struct spr_auth acceptor;
    struct wire w;
    const uint8_t *data = NULL;
    uint8_t *into = NULL;

    (void)state;
    wire_init(&w);
    wire_run(&w);
    spr_auth_init(&acceptor, &w.key_a, false, SPR_AUTH_TCP, -1);
    spr_auth_wants(&acceptor, &into);
    memcpy(into, w.said[0], SPR_AUTH_FRAME_BYTES);
    spr_auth_received(&acceptor, SPR_AUTH_FRAME_BYTES);
    spr_auth_output(&acceptor, &data);
    assert_memory_not_equal(data, w.said[1], SPR_AUTH_FRAME_BYTES); /* another nonce */
    spr_auth_sent(&acceptor, SPR_AUTH_FRAME_BYTES);
    spr_auth_wants(&acceptor, &into);
    memcpy(into, w.said[2], SPR_AUTH_FRAME_BYTES);
    spr_auth_received(&acceptor, SPR_AUTH_FRAME_BYTES);
    assert_int_equal(spr_auth_result(&acceptor), SPR_ERR_AUTH);
}

static void a_connector_cannot_be_answered_with_its_own_words(void **state)
{
    struct spr_auth_key key = make_key(5);
    struct spr_auth connector;
    uint8_t *into = NULL;
    const uint8_t *data = NULL;

    (void)state;
    spr_auth_init(&connector, &key, true, SPR_AUTH_TCP, 2);
    spr_auth_output(&connector, &data);
    spr_auth_sent(&connector, SPR_AUTH_FRAME_BYTES);
    spr_auth_wants(&connector, &into);
    memcpy(into, data, SPR_AUTH_FRAME_BYTES);
    spr_auth_received(&connector, SPR_AUTH_FRAME_BYTES);
    assert_int_equal(spr_auth_result(&connector), SPR_ERR_PROTO);
}

/* ---- On sockets ---- */

static void socket_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static void nothing_beyond_the_handshake_is_read(void **state)
{
    struct spr_auth_key key_a = make_key(2), key_c = make_key(5);
    struct spr_auth a, c;
    short events = 0;
    char text[32] = "";
    int fds[2];
    spr_status status_c = SPR_IN_PROGRESS;

    (void)state;
    socket_pair(fds);
    spr_auth_init(&c, &key_c, true, SPR_AUTH_SHM, 2);
    spr_auth_init(&a, &key_a, false, SPR_AUTH_SHM, -1);
    while (status_c == SPR_IN_PROGRESS) {
        spr_auth_drive(&a, fds[1], &events);
        status_c = spr_auth_drive(&c, fds[0], &events);
    }
    assert_int_equal(status_c, SPR_OK);
    assert_int_equal(write(fds[0], "after", 5), 5);
    assert_int_equal(write(fds[1], "later", 5), 5);
    assert_int_equal(spr_auth_drive(&a, fds[1], &events), SPR_OK);
    assert_int_equal(spr_auth_drive(&c, fds[0], &events), SPR_OK);
    assert_int_equal(read(fds[1], text, sizeof(text)), 5);
    assert_memory_equal(text, "after", 5);
    assert_int_equal(read(fds[0], text, sizeof(text)), 5);
    assert_memory_equal(text, "later", 5);
    close(fds[0]);
    close(fds[1]);
}

static void strangers_are_known_by_their_first_bytes(void **state)
{
    static const char *const words[] = {
        "GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "SSH-2.0-x", "S?", "\n", "SPRA\x01\x02"};
    struct spr_auth_key key = make_key(2);
    struct spr_auth a;
    short events = 0;
    int fds[2];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(words); i++) {
        socket_pair(fds);
        spr_auth_init(&a, &key, false, SPR_AUTH_ROOT, -1);
        assert_int_equal(spr_auth_drive(&a, fds[0], &events), SPR_IN_PROGRESS);
        assert_int_equal(events, POLLIN);
        assert_true(write(fds[1], words[i], strlen(words[i])) > 0);
        assert_int_equal(spr_auth_drive(&a, fds[0], &events), SPR_ERR_PROTO);
        close(fds[0]);
        close(fds[1]);
    }
}

static void a_peer_that_hangs_up_is_a_broken_link(void **state)
{
    struct spr_auth_key key = make_key(2);
    struct spr_auth a;
    short events = 0;
    int fds[2];

    (void)state;
    socket_pair(fds);
    spr_auth_init(&a, &key, true, SPR_AUTH_ROOT, 0);
    close(fds[1]);
    assert_int_equal(spr_auth_drive(&a, fds[0], &events), SPR_ERR_LINK);
    assert_non_null(a.why);
    assert_true(a.detail[0] != '\0');
    close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_of_a_job_prove_each_other),
        cmocka_unit_test(an_empty_secret_works),
        cmocka_unit_test(a_wrong_secret_is_refused_by_both_and_learns_nothing),
        cmocka_unit_test(a_forged_proof_is_refused),
        cmocka_unit_test(what_differs_is_named_with_both_values),
        cmocka_unit_test(another_version_is_named_after_the_proof),
        cmocka_unit_test(every_flipped_bit_of_every_message_is_refused),
        cmocka_unit_test(a_cut_at_every_length_ends_in_an_error),
        cmocka_unit_test(random_pieces_give_the_same_result),
        cmocka_unit_test(a_recorded_handshake_opens_nothing),
        cmocka_unit_test(a_connector_cannot_be_answered_with_its_own_words),
        cmocka_unit_test(nothing_beyond_the_handshake_is_read),
        cmocka_unit_test(strangers_are_known_by_their_first_bytes),
        cmocka_unit_test(a_peer_that_hangs_up_is_a_broken_link),
    };

    alarm(60);
    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
