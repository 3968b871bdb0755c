/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The frames of a TCP stream (transport/tcp/conn.c). Input: frames - where the payload goes and how
 * the header is changed, a byte each, its length (u16), what comes of the payload - until a zero
 * byte; then how many bytes arrive at a time.
 */
#include "base/crc32c.h"
#include "base/mem.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/tcp/conn.h"

#define MOST_FRAMES 16
#define STREAM_BYTES ((size_t)1 << 19)
/* When so much was said, all further frames are short. */
#define MOST_LONG_BYTES ((size_t)1 << 16)

static struct {
    uint8_t bytes[STREAM_BYTES];
    size_t count;
    size_t at[MOST_FRAMES]; /* of each frame */
    uint8_t how[MOST_FRAMES];
    bool wrong[MOST_FRAMES]; /* the checksum of the payload */
    int frames;
} stream;

/* Kept between inputs, since their pages would take most of the time: as large as they get. What
 * arrives ends where `into` ends, so that a step beyond it is seen. */
static struct spr_tcp_staging staging;
static uint8_t into[1 + SPR_FRAME_MAX_PAYLOAD];
#define GUARD 0xa5

static struct {
    struct spr_tcp_conn conn;
    struct spr_link link;
    int headers, payloads;
    enum spr_sink sink;
    void *tokens[MOST_FRAMES + 1];
    const uint8_t *lent[MOST_FRAMES + 1];
    uint32_t lent_bytes[MOST_FRAMES + 1];
    int token_count;
} rx;

static spr_status header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *r)
{
    const char *why;
    spr_status status = spr_frame_check(f, &why);

    (void)link;
    FUZZ_CHECK(rx.headers == rx.payloads && rx.headers < stream.frames);
    FUZZ_CHECK(memcmp(f, stream.bytes + stream.at[rx.headers], sizeof *f) == 0);
    uint8_t how = stream.how[rx.headers++];
    if (status != SPR_OK)
        return status;
    if (how & 8)
        return SPR_ERR_PROTO;
    rx.sink = r->sink = (enum spr_sink)(how % 3);
    if (r->sink == SPR_SINK_INTO) {
        r->into = into + sizeof into - f->bytes;
        ((uint8_t *)r->into)[-1] = GUARD;
    }
    return SPR_OK;
}

static void payload(struct spr_link *link, const struct spr_frame *f, const void *data, void *token)
{
    const uint8_t *sent = stream.bytes + stream.at[rx.payloads] + SPR_FRAME_BYTES;

    (void)link;
    rx.payloads++;
    FUZZ_CHECK(rx.payloads == rx.headers);
    FUZZ_CHECK((data != NULL) == (rx.sink != SPR_SINK_DROP && f->bytes > 0));
    FUZZ_CHECK((token != NULL) == (rx.sink == SPR_SINK_BORROW && f->bytes > 0));
    if (data) { /* the flag stays where the checksum has to be looked at once more */
        FUZZ_CHECK(memcmp(data, sent, f->bytes) == 0);
        FUZZ_CHECK(!(f->flags & SPR_FRAME_CRC) == !stream.wrong[rx.payloads - 1]);
    }
    if (token) {
        rx.lent[rx.token_count] = data;
        rx.lent_bytes[rx.token_count] = (uint32_t)(sent - stream.bytes);
        rx.tokens[rx.token_count++] = token;
    }
    FUZZ_CHECK(rx.sink != SPR_SINK_INTO || into[sizeof into - f->bytes - 1] == GUARD);
    if (stream.how[rx.payloads - 1] & 16)
        spr_tcp_conn_stop(&rx.conn);
}

static const struct spr_link_events events = {.header = header, .payload = payload};

static void write_stream(struct fuzz_in *in)
{
    stream.count = 0;
    stream.frames = 0;
    for (uint8_t how; stream.frames < MOST_FRAMES && (how = fuzz_u8(in)) != 0; stream.frames++) {
        struct spr_frame f = {.type = SPR_FRAME_DATA, .epoch = 1};
        uint8_t change = fuzz_u8(in);

        f.sequence = (uint32_t)stream.frames;
        size_t bytes = fuzz_u16(in) * (how & 32 ? 5u : 1u);
        bytes %= stream.count < MOST_LONG_BYTES ? SPR_FRAME_MAX_PAYLOAD + 1 : 2048;
        f.bytes = (uint32_t)bytes;
        if (SPR_FRAME_BYTES + bytes > STREAM_BYTES - stream.count)
            break;
        uint8_t *payload = stream.bytes + stream.count + sizeof f;
        for (size_t i = 0; i < bytes; i += 61) /* the others do not matter */
            payload[i] = (uint8_t)(i ^ how);
        stream.wrong[stream.frames] = how & 64 && bytes && change == 2;
        if (how & 64 && bytes) {
            f.flags = SPR_FRAME_CRC;
            f.payload_crc = spr_crc32c(0, payload, bytes) ^ (change == 2);
        }
        if (change == 1)
            f.bytes = UINT32_MAX;
        spr_frame_seal(&f);
        if (change > 127)
            ((uint8_t *)&f)[change & 63] ^= 1;
        stream.how[stream.frames] = how;
        stream.at[stream.frames] = stream.count;
        memcpy(stream.bytes + stream.count, &f, sizeof f);
        stream.count += sizeof f + bytes;
    }
}

/* Give it n bytes. */
static spr_status arrive(size_t *done, size_t n, const char **why)
{
    struct iovec iov[2] = {{NULL, 0}, {NULL, 0}};
    int count = spr_tcp_conn_want(&rx.conn, iov);
    size_t moved = 0;

    FUZZ_CHECK(count >= 1 && count <= 2 && iov[0].iov_len > 0);
    for (int i = 0; i < count && n > 0; i++) {
        size_t take = spr_min_size(n, iov[i].iov_len);
        memcpy(iov[i].iov_base, stream.bytes + *done, take);
        *done += take;
        moved += take;
        n -= take;
    }
    return spr_tcp_conn_received(&rx.conn, moved, why);
}

static void prepare(void)
{
    void *tokens[2][MOST_FRAMES + 1];

    if (staging.small.object_bytes)
        return;
    spr_tcp_staging_init(&staging);
    for (int i = 0; i <= MOST_FRAMES; i++)
        FUZZ_CHECK(spr_tcp_staging_get(&staging, 1, &tokens[0][i]) &&
                   spr_tcp_staging_get(&staging, SPR_FRAME_MAX_PAYLOAD, &tokens[1][i]));
    for (int i = 0; i <= MOST_FRAMES; i++) {
        spr_tcp_staging_put(&staging, tokens[0][i]);
        spr_tcp_staging_put(&staging, tokens[1][i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct spr_counters counters = {0};
    prepare();
    int64_t live = spr_mem_live();
    spr_status status = SPR_OK;
    const char *why = NULL;
    size_t done = 0;

    write_stream(&in);
    memset(&rx, 0, sizeof rx);
    FUZZ_CHECK(spr_tcp_conn_init(&rx.conn, &rx.link, &events, &counters, &staging) == SPR_OK);
    while (status == SPR_OK && done < stream.count) {
        size_t n = in.left ? (size_t)fuzz_u8(&in) * (1 + (size_t)fuzz_u8(&in) * 16) : SIZE_MAX;
        status = arrive(&done, spr_min_size(n + 1 - (n == SIZE_MAX), stream.count - done), &why);
    }
    if (status == SPR_OK) {
        FUZZ_CHECK(rx.payloads == stream.frames && !spr_tcp_conn_mid_frame(&rx.conn));
    } else {
        FUZZ_CHECK(status == SPR_ERR_CANCELED || (why && *why));
    }
    /* What was lent stays as it was until it is given back. */
    for (int i = 0; i < rx.token_count; i++) {
        FUZZ_CHECK(rx.lent[i][0] == stream.bytes[rx.lent_bytes[i]]);
        spr_tcp_staging_put(&staging, rx.tokens[i]);
    }
    spr_tcp_conn_free(&rx.conn);
    FUZZ_CHECK(staging.small.live == 0 && staging.large.live == 0);
    FUZZ_CHECK(spr_mem_live() == live);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_script seeds[] = {
        {"into", {3, 0, 100, 0, 0}, 5},
        {"borrow", {1, 0, 100, 0, 1, 0, 0, 0, 1, 0, 0, 90, 0}, 13},
        {"drop", {2, 0, 100, 0, 2, 0, 0, 50, 0, 10, 0}, 11},
        {"bulk_dropped", {34, 0, 1, 100, 0, 200, 20, 7, 3}, 9},
        {"bulk", {35, 0, 255, 255, 33, 0, 0, 200, 34, 0, 1, 100, 0, 200, 20, 7, 3}, 17},
        {"bytes", {3, 0, 3, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, 17},
        {"checksum", {67, 0, 200, 1, 65, 0, 200, 0, 99, 0, 0, 80, 0, 9, 2}, 15},
        {"wrong_checksum", {67, 2, 200, 1, 65, 2, 200, 0, 66, 2, 9, 0, 0, 30, 0}, 15},
        {"too_long", {3, 1, 8, 0, 0}, 5},
        {"damaged", {1, 0, 8, 0, 1, 150, 8, 0, 0}, 9},
        {"refused", {9, 0, 8, 0, 0}, 5},
        {"stopped", {17, 0, 8, 0, 1, 0, 8, 0, 0}, 9},
    };

    fuzz_emit_scripts(seeds, SPR_ARRAY_LEN(seeds));
}
