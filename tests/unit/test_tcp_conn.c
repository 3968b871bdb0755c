/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The frame state machine of TCP connections without a socket: two connections are joined by a
 * buffer, and every call moves a random number of the bytes that were asked for.
 */
#include "transport/tcp/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"

#define FRAMES 400
#define WIRE_BYTES ((size_t)1 << 20)

/* One direction: a sender's connection, a receiver's, and what is between them. */
struct pair {
    struct spr_tcp_staging staging;
    struct spr_tcp_conn tx, rx;
    struct spr_link tx_link, rx_link;
    struct spr_counters tx_counters, rx_counters;
    struct spr_rng rng;
    uint64_t seed;
    struct spr_tx frames[FRAMES];
    uint8_t *data[FRAMES];
    int sent, received;
    uint8_t *into;
    enum spr_sink sink;
    void *tokens[FRAMES];
    int token_count;
    int stop_at; /* stop the connection in the payload upcall of this frame; -1 = never */
    spr_status refuse;
    uint16_t damaged; /* the flags that a payload comes with when it is not as it was sent */
    uint8_t *wire;
    size_t wire_bytes;
};

static struct pair *of(struct spr_link *link) { return link->channel; }

static size_t frame_bytes(uint64_t seed, int i)
{
    uint64_t x = spr_rng_u64(seed, (uint64_t)i);

    switch (x % 5) {
    case 0:
        return 0;
    case 1:
        return (x >> 8) % 200;
    case 2:
        return (x >> 8) % 9000;
    case 3:
        return (x >> 8) % 40000;
    default:
        return (x >> 8) % (SPR_FRAME_MAX_PAYLOAD + 1);
    }
}

static spr_status header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    struct pair *p = of(link);
    const char *why = "";

    assert_int_equal(spr_frame_check(f, &why), SPR_OK);
    assert_int_equal(f->sequence, (uint32_t)p->received);
    assert_int_equal(f->bytes, frame_bytes(p->seed, p->received));
    if (p->refuse)
        return p->refuse;
    p->sink = rx->sink = (enum spr_sink)spr_rng_below(&p->rng, 3);
    if (p->sink == SPR_SINK_INTO)
        rx->into = p->into = spr_malloc(f->bytes + 1);
    return SPR_OK;
}

static void payload(struct spr_link *link, const struct spr_frame *f, const void *data, void *token)
{
    struct pair *p = of(link);

    if (f->bytes && p->sink != SPR_SINK_DROP && memcmp(data, p->data[p->received], f->bytes) == 0)
        assert_int_equal(f->flags, 0); /* the checksum, if any, was found right */
    else if (f->bytes && p->sink != SPR_SINK_DROP)
        assert_int_equal(f->flags, p->damaged);
    else
        assert_null(data);
    assert_int_equal(token != NULL, f->bytes && p->sink == SPR_SINK_BORROW);
    if (token)
        p->tokens[p->token_count++] = token;
    spr_free(p->into);
    p->into = NULL;
    if (p->received++ == p->stop_at)
        spr_tcp_conn_stop(&p->rx);
    /* Give some back, in any order. */
    while (p->token_count && spr_rng_below(&p->rng, 2)) {
        int i = (int)spr_rng_below(&p->rng, (uint64_t)p->token_count);
        spr_tcp_staging_put(&p->staging, p->tokens[i]);
        p->tokens[i] = p->tokens[--p->token_count];
    }
}

static const struct spr_link_events events = {.header = header, .payload = payload};

static struct pair *make_pair(void)
{
    struct pair *p = spr_calloc(1, sizeof *p);

    assert_non_null(p);
    p->seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)p->seed);
    p->rng = (struct spr_rng){p->seed + 1, 0};
    p->stop_at = -1;
    p->wire = spr_malloc(WIRE_BYTES);
    p->tx_link.channel = p->rx_link.channel = p;
    spr_tcp_staging_init(&p->staging);
    assert_int_equal(spr_tcp_conn_init(&p->tx, &p->tx_link, &events, &p->tx_counters, &p->staging),
                     SPR_OK);
    assert_int_equal(spr_tcp_conn_init(&p->rx, &p->rx_link, &events, &p->rx_counters, &p->staging),
                     SPR_OK);
    for (int i = 0; i < FRAMES; i++) {
        struct spr_tx *tx = &p->frames[i];
        size_t bytes = frame_bytes(p->seed, i);
        p->data[i] = spr_malloc(bytes + 1);
        for (size_t b = 0; b < bytes; b++)
            p->data[i][b] = (uint8_t)(spr_hash_u32(b) + (uint32_t)i);
        tx->header.type = SPR_FRAME_DATA;
        tx->header.sequence = (uint32_t)i;
        tx->header.bytes = (uint32_t)bytes;
        tx->data = p->data[i];
        tx->unsealed = bytes && spr_rng_below(&p->rng, 4);
        if (!tx->unsealed)
            spr_frame_seal(&tx->header);
    }
    return p;
}

static void free_pair(struct pair *p)
{
    while (p->token_count)
        spr_tcp_staging_put(&p->staging, p->tokens[--p->token_count]);
    for (int i = 0; i < FRAMES; i++)
        spr_free(p->data[i]);
    spr_free(p->into);
    spr_tcp_conn_free(&p->tx);
    spr_tcp_conn_free(&p->rx);
    assert_int_equal(p->staging.small.live + p->staging.large.live, 0);
    spr_tcp_staging_destroy(&p->staging);
    spr_free(p->wire);
    spr_free(p);
}

/* Mostly all, sometimes a few bytes. */
static size_t some(struct pair *p, size_t most)
{
    uint64_t x = spr_rng_below(&p->rng, 4);

    if (most == 0 || x == 0)
        return most;
    if (x == 1)
        return spr_min_size(most, 1 + spr_rng_below(&p->rng, 70));
    return 1 + spr_rng_below(&p->rng, most);
}

static void put_on_wire(struct pair *p)
{
    struct iovec iov[16];
    int n = spr_tcp_conn_gather(&p->tx, iov, 16, 100000);
    size_t total = 0, left;

    for (int i = 0; i < n; i++) {
        assert_true(iov[i].iov_len > 0);
        total += iov[i].iov_len;
    }
    total = left = spr_min_size(some(p, total), WIRE_BYTES - p->wire_bytes);
    for (int i = 0; i < n && left; i++) {
        size_t k = spr_min_size(left, iov[i].iov_len);
        memcpy(p->wire + p->wire_bytes, iov[i].iov_base, k);
        p->wire_bytes += k;
        left -= k;
    }
    for (struct spr_tx *tx = spr_tcp_conn_sent(&p->tx, total); tx; tx = tx->next)
        assert_ptr_equal(tx, &p->frames[p->sent++]);
}

static spr_status take_from_wire(struct pair *p, const char **why)
{
    struct iovec iov[2];
    int n = spr_tcp_conn_want(&p->rx, iov);
    size_t asked = iov[0].iov_len + (n > 1 ? iov[1].iov_len : 0), total, done = 0;

    assert_true(n == 1 || n == 2);
    assert_true(asked > 0);
    total = some(p, spr_min_size(asked, p->wire_bytes));
    for (int i = 0; i < n && done < total; i++) {
        size_t k = spr_min_size(total - done, iov[i].iov_len);
        memcpy(iov[i].iov_base, p->wire + done, k);
        done += k;
    }
    memmove(p->wire, p->wire + total, p->wire_bytes - total);
    p->wire_bytes -= total;
    return total ? spr_tcp_conn_received(&p->rx, total, why) : SPR_OK;
}

static void frames_survive_any_split(void **state)
{
    struct pair *p = make_pair();
    uint64_t bytes = 0;
    int queued = 0;
    const char *why = "";

    (void)state;
    while (p->received < FRAMES) {
        while (queued < FRAMES && queued - p->sent < 12 && spr_rng_below(&p->rng, 3))
            spr_tcp_conn_queue(&p->tx, &p->frames[queued++]);
        if (p->tx.tx_first)
            put_on_wire(p);
        assert_int_equal(take_from_wire(p, &why), SPR_OK);
    }
    for (int i = 0; i < FRAMES; i++)
        bytes += SPR_FRAME_BYTES + frame_bytes(p->seed, i);
    assert_int_equal(p->sent, FRAMES);
    assert_false(spr_tcp_conn_mid_frame(&p->rx));
    assert_int_equal(p->tx_counters.sent_bytes, bytes);
    assert_int_equal(p->rx_counters.received_bytes, bytes);
    assert_int_equal(p->tx_counters.sent_frames, FRAMES);
    assert_int_equal(p->rx_counters.received_frames, FRAMES);
    free_pair(p);
}

static void bulk_data_is_not_read_ahead(void **state)
{
    struct pair *p = make_pair();
    struct iovec iov[2];
    const char *why = "";

    (void)state;
    /* Idle: as much as the buffer holds. */
    assert_int_equal(spr_tcp_conn_want(&p->rx, iov), 1);
    assert_int_equal(iov[0].iov_len, SPR_TCP_AHEAD_BYTES);
    while (frame_bytes(p->seed, p->received) < 2 * SPR_TCP_AHEAD_BYTES ||
           frame_bytes(p->seed, p->received) > SPR_TCP_PIECE_BYTES)
        p->received++;
    p->sink = SPR_SINK_INTO;
    spr_tcp_conn_seal(&p->frames[p->received]);
    memcpy(iov[0].iov_base, &p->frames[p->received].header, SPR_FRAME_BYTES);
    do /* until the sink is memory */
        p->rng.counter++;
    while (spr_rng_below(&(struct spr_rng){p->rng.seed, p->rng.counter}, 3) == SPR_SINK_DROP);
    assert_int_equal(spr_tcp_conn_received(&p->rx, SPR_FRAME_BYTES, &why), SPR_OK);
    /* Bulk: the rest of the payload in its place, and one header. */
    assert_int_equal(spr_tcp_conn_want(&p->rx, iov), 2);
    assert_int_equal(iov[0].iov_len, frame_bytes(p->seed, p->received));
    assert_int_equal(iov[1].iov_len, SPR_FRAME_BYTES);
    assert_true(spr_tcp_conn_mid_frame(&p->rx));
    free_pair(p);
}

static void a_damaged_payload_is_seen(void **state)
{
    struct pair *p = make_pair();
    const char *why = "";

    (void)state;
    p->damaged = SPR_FRAME_CRC;
    for (int i = 0; i < FRAMES; i++)
        spr_tcp_conn_queue(&p->tx, &p->frames[i]);
    while (p->received < FRAMES) {
        put_on_wire(p);
        if (p->rx.in_payload && p->rx.rx_to && p->frames[p->received].header.flags && p->wire_bytes)
            p->wire[0] ^= 1;
        assert_int_equal(take_from_wire(p, &why), SPR_OK);
    }
    free_pair(p);
}

/* Queue all, deliver until the receiver says something else than OK. */
static spr_status run_until_error(struct pair *p, const char **why)
{
    spr_status status = SPR_OK;

    for (int i = 0; i < FRAMES; i++)
        spr_tcp_conn_queue(&p->tx, &p->frames[i]);
    while (status == SPR_OK && p->received < FRAMES) {
        put_on_wire(p);
        status = take_from_wire(p, why);
    }
    return status;
}

static void an_upcall_may_stop_the_connection(void **state)
{
    struct pair *p = make_pair();
    const char *why = "";
    int failed = 0;

    (void)state;
    p->stop_at = 17;
    assert_int_equal(run_until_error(p, &why), SPR_ERR_CANCELED);
    assert_int_equal(p->received, 18);
    for (struct spr_tx *tx = spr_tcp_conn_fail_queue(&p->tx); tx; tx = tx->next) {
        assert_true(tx->failed);
        assert_ptr_equal(tx, &p->frames[p->sent + failed]);
        failed++;
    }
    assert_int_equal(p->sent + failed, FRAMES);
    assert_null(p->tx.tx_first);
    free_pair(p);
}

static void a_refused_header_ends_it(void **state)
{
    struct pair *p = make_pair();
    const char *why = NULL;

    (void)state;
    p->refuse = SPR_ERR_CORRUPT;
    assert_int_equal(run_until_error(p, &why), SPR_ERR_CORRUPT);
    assert_int_equal(p->received, 0);
    assert_non_null(why);
    free_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_survive_any_split),
        cmocka_unit_test(bulk_data_is_not_read_ahead),
        cmocka_unit_test(a_damaged_payload_is_seen),
        cmocka_unit_test(an_upcall_may_stop_the_connection),
        cmocka_unit_test(a_refused_header_ends_it),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
