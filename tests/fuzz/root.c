/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What rank 0 and the others say after the handshake (transport/bootstrap/root_*.c), over a socket.
 * Input: which side is ours (bit 0) and the number of ranks, bytes of each part, then pieces: for
 * whom and how long (a byte each; 0 long = a right message, changed by three bytes), the bytes.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/bootstrap/root.h"

#define MOST_RANKS 4
#define MOST_PART 64

static struct spr_root root;
static int ends[MOST_RANKS]; /* ours, by rank; -1 = closed */
static uint8_t *out;

/* All bytes that were fed, by rank. */
static struct {
    uint8_t bytes[4096];
    size_t count;
} fed[MOST_RANKS];

static spr_status find(struct spr_root *r, char *why, size_t bytes)
{
    (void)r;
    FUZZ_CHECK(bytes > 0);
    *why = '\0';
    return SPR_ERR_NOT_FOUND;
}
static const struct spr_root_kind kind = {NULL, NULL, find, NULL};

static int connect_to(int rank)
{
    int fds[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    ends[rank] = fds[1];
    return fds[0];
}

static void open_client(void)
{
    FUZZ_CHECK(spr_root_client_side.open(&root) == SPR_OK);
    spr_root_conn_init(&root.client.conn, connect_to(0));
    root.client.proven = true;
}

/* Everybody is there and proven. */
static void open_server(void)
{
    struct spr_root_server *s = &root.server;

    spr_list_init(&s->half);
    s->listen_fd = -1;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->conns = spr_calloc((size_t)root.size, sizeof *s->conns);
    FUZZ_CHECK(s->epoll_fd >= 0 && s->conns);
    s->connected = root.size - 1;
    for (int rank = 1; rank < root.size; rank++) {
        s->conns[rank] = spr_malloc(sizeof *s->conns[rank]);
        FUZZ_CHECK(s->conns[rank]);
        spr_root_conn_init(s->conns[rank], connect_to(rank));
        s->conns[rank]->rank = rank;
    }
}

static void feed(int rank, const uint8_t *data, size_t bytes)
{
    bytes = spr_min_size(bytes, sizeof fed[rank].bytes - fed[rank].count);
    if (ends[rank] < 0 || send(ends[rank], data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return;
    memcpy(fed[rank].bytes + fed[rank].count, data, bytes);
    fed[rank].count += bytes;
}

/* The message that is due, with three of its bytes changed. */
static void feed_message(int rank, struct fuzz_in *in)
{
    static const uint8_t types[] = {SPR_ROOT_RESULT, SPR_ROOT_NOTE,    SPR_ROOT_REFUSED,
                                    SPR_ROOT_FAIL,   SPR_ROOT_GAVE_UP, SPR_ROOT_GATHER,
                                    SPR_ROOT_RESULT, SPR_ROOT_RESULT};
    uint8_t text[sizeof(struct spr_root_header) + MOST_RANKS * MOST_PART], what = fuzz_u8(in);
    struct spr_root_header h = {.magic = SPR_ROOT_MAGIC, .rank = -1, .sequence = root.sequence};

    h.type = root.key.rank == 0 && !(what & 8) ? SPR_ROOT_GATHER : types[what & 7];
    h.bytes = h.type == SPR_ROOT_GATHER ? root.bytes : root.bytes * (size_t)root.size;
    memset(text, 'a' + rank, sizeof text);
    if (what & 16)
        ((uint8_t *)&h)[fuzz_u8(in) % sizeof h] ^= fuzz_u8(in);
    memcpy(text, &h, sizeof h);
    feed(rank, text, sizeof h + root.bytes * (h.type == SPR_ROOT_GATHER ? 1 : (size_t)root.size));
}

static spr_status run(struct fuzz_in *in)
{
    const struct spr_root_side *side = root.side;
    spr_status status = SPR_IN_PROGRESS;

    while (status == SPR_IN_PROGRESS && in->left) {
        uint8_t whom = fuzz_u8(in), length = fuzz_u8(in);
        int rank = root.key.rank == 0 ? 1 + whom % (root.size - 1) : 0;

        if (length == 0) {
            feed_message(rank, in);
        } else if (length == 255) {
            if (ends[rank] >= 0)
                close(ends[rank]);
            ends[rank] = -1;
        } else {
            size_t n = spr_min_size(length, in->left);
            feed(rank, in->at, n);
            in->at += n;
            in->left -= n;
        }
        status = side->step(&root);
        if (root.key.rank != 0 && root.client.conn.fd < 0)
            break; /* refused: it would connect again */
    }
    return status;
}

static void check(spr_status status, const uint8_t *mine)
{
    char text[SPR_ERROR_TEXT_BYTES];

    if (status < 0) {
        FUZZ_CHECK(root.error.status == status && *root.error.text);
        FUZZ_CHECK(root.error.rank >= -1 && root.error.rank < root.size);
    } else if (status == SPR_IN_PROGRESS) {
        FUZZ_CHECK(root.side->explain(&root, text, sizeof text) < 0 && *text);
        FUZZ_CHECK(memchr(text, '\0', sizeof text));
    } else if (root.key.rank == 0) {
        FUZZ_CHECK(memcmp(out, mine, root.bytes) == 0);
        for (int rank = 1; rank < root.size; rank++) /* the first message was right */
            FUZZ_CHECK(memcmp(out + (size_t)rank * root.bytes,
                              fed[rank].bytes + sizeof(struct spr_root_header), root.bytes) == 0);
    } else {
        /* Some message in what came was the result. */
        FUZZ_CHECK(memmem(fed[0].bytes, fed[0].count, out, root.bytes * (size_t)root.size));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    int64_t live = spr_mem_live();
    uint8_t head = fuzz_u8(&in), *mine;

    memset(&root, 0, sizeof root);
    root.key = (struct spr_auth_key){.rank = head & 1, .size = 2 + (head >> 1) % (MOST_RANKS - 1)};
    root.size = root.key.size;
    root.side = head & 1 ? &spr_root_client_side : &spr_root_server_side;
    root.kind = &kind;
    root.deadline_ns = UINT64_MAX;
    root.active = true;
    root.sequence = 3;
    root.bytes = fuzz_u8(&in) % (MOST_PART + 1);
    mine = malloc(root.bytes + !root.bytes);
    out = malloc(root.bytes * (size_t)root.size + !root.bytes);
    FUZZ_CHECK(mine && out);
    memset(mine, 'm', root.bytes);
    root.in = mine;
    root.out = out;
    for (int i = 0; i < MOST_RANKS; i++) {
        ends[i] = -1;
        fed[i].count = 0;
    }
    if (head & 1)
        open_client();
    else
        open_server();
    root.side->begin(&root);
    check(run(&in), mine);
    root.side->close(&root);
    for (int i = 0; i < MOST_RANKS; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    free(mine);
    free(out);
    FUZZ_CHECK(spr_mem_live() == live);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const names[] = {"result", "note", "refused", "fail", "gave_up", "gather"};
    static struct fuzz_seed s;

    for (unsigned i = 0; i < SPR_ARRAY_LEN(names); i++) {
        const uint8_t bytes[] = {3, 16, 0, 0, (uint8_t)(i | 8), 0, 0, 8};
        fuzz_put(&s, bytes, sizeof bytes);
        fuzz_emit_seed(names[i], &s);
    }
    const uint8_t server[] = {2, 24, 0, 0, 0, 1, 0, 0}, dies[] = {2, 24, 0, 0, 0, 1, 255};
    const uint8_t whole[] = {0, 40, 0, 0, 0};
    fuzz_emit("server", server, sizeof server);
    fuzz_emit("server_of_two", whole, sizeof whole);
    fuzz_emit("server_loses_one", dies, sizeof dies);
    fuzz_put(&s, "\0\20\0\40SPRB\1\0\0\0\3\0\0\0", 16);
    fuzz_emit_seed("server_half", &s);
    fuzz_put(&s,
             "\3\4\0\47SPRB\4\0\0\0\0\0\0\0\303\377\377\377\2\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0"
             "it went",
             43);
    fuzz_emit_seed("client_fail", &s);
}
