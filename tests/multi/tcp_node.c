/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/tcp_node.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static uint64_t stream(uint64_t seed, int from, int to, uint32_t number)
{
    return spr_rng_u64(seed, (uint64_t)from << 48 | (uint64_t)to << 40 | number);
}

/* A third without payload or tiny, a third small, a third up to the largest. */
uint32_t node_frame_bytes(uint64_t seed, int from, int to, uint32_t number)
{
    uint64_t x = stream(seed, from, to, number);
    uint32_t y = (uint32_t)(x >> 32);

    switch (x % 6) {
    case 0:
        return 0;
    case 1:
        return y % 100;
    case 2:
    case 3:
        return y % 20000;
    case 4:
        return y % ((uint32_t)NODE_MOST_BYTES + 1);
    default:
        return (uint32_t)NODE_MOST_BYTES - y % 3;
    }
}

static uint8_t byte_at(uint64_t key, size_t i) { return (uint8_t)(key + i * 31 + (i >> 8) * 7); }

static void fill(uint8_t *data, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(key, i);
}

static void check(const uint8_t *data, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_at(key, i))
            fail_msg("byte %zu of %zu differs", i, bytes);
}

static void on_up(struct spr_link *link)
{
    struct node_peer *p = link->channel;

    assert_true(p->node->in_progress > 0);
    assert_false(p->up);
    assert_int_equal(link->state, SPR_LINK_UP);
    p->up = true;
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    struct node_peer *p = link->channel;
    struct node *n = p->node;
    const char *why = "";
    spr_status status = spr_frame_check(f, &why);

    assert_true(n->in_progress > 0);
    assert_true(p->up && !p->down);
    if (status)
        return status;
    assert_int_equal(f->sequence, p->received);
    assert_int_equal(f->bytes, node_frame_bytes(n->seed, p->rank, n->params.rank, p->received));
    rx->sink = (enum spr_sink)spr_rng_below(&n->rng, 3);
    if (rx->sink == SPR_SINK_BORROW && n->borrowed_count >= NODE_BORROWED)
        rx->sink = SPR_SINK_INTO;
    if (rx->sink == SPR_SINK_INTO) {
        p->into = spr_malloc(f->bytes + 1); /* exactly, so that memory checkers see an overrun */
        rx->into = p->into;
    }
    p->sink = rx->sink;
    return SPR_OK;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    struct node_peer *p = link->channel;
    struct node *n = p->node;
    uint64_t key = stream(n->seed, p->rank, n->params.rank, p->received);

    assert_true(n->in_progress > 0);
    if (f->bytes == 0 || p->sink == SPR_SINK_DROP) {
        assert_null(data);
        assert_null(token);
    } else {
        assert_non_null(data);
        check(data, f->bytes, key);
    }
    if (p->sink == SPR_SINK_INTO && f->bytes)
        assert_ptr_equal(data, p->into);
    if (p->sink != SPR_SINK_BORROW)
        assert_null(token);
    if (token) {
        int slot = n->borrowed_count++;
        n->borrowed[slot].peer = p;
        n->borrowed[slot].token = token;
        n->borrowed[slot].data = data;
        n->borrowed[slot].number = p->received;
        n->borrowed[slot].bytes = f->bytes;
    }
    spr_free(p->into);
    p->into = NULL;
    p->received++;
    if (n->on_payload)
        n->on_payload(p);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct node_peer *p = link->channel;
    size_t slot = (size_t)(tx - p->tx);

    assert_true(p->node->in_progress > 0);
    assert_true(slot < NODE_WINDOW && p->busy[slot]);
    p->busy[slot] = false;
    /* A transport that still reads from here gets caught. */
    memset(p->data[slot], 0xee, tx->header.bytes);
    if (tx->failed)
        p->failed++;
    p->came_back++;
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    struct node_peer *p = link->channel;

    assert_true(p->node->in_progress > 0);
    assert_false(p->down);
    assert_int_equal(p->came_back, p->sent);
    p->down = true;
    p->why = why;
    snprintf(p->text, sizeof p->text, "%s", text);
    spr_free(p->into);
    p->into = NULL;
}

static const struct spr_link_events events = {on_up, on_header, on_payload, on_sent, on_down};

void node_init(struct node *n, int rank, int size, uint64_t seed, const char *interface_name)
{
    memset(n, 0, sizeof *n);
    assert_int_equal(spr_opt_defaults(spr_options_table, spr_options_count, &n->options, &n->error),
                     SPR_OK);
    spr_free(n->options.interface_name);
    n->options.interface_name = spr_strdup(interface_name);
    n->seed = seed;
    n->rng = (struct spr_rng){seed + 1000 + (uint64_t)rank, 0};
    n->key = (struct spr_auth_key){.secret = "between us",
                                   .secret_bytes = 10,
                                   .job = seed,
                                   .epoch = 1,
                                   .rank = rank,
                                   .size = size};
    n->params = (struct spr_transport_params){.rank = rank,
                                              .size = size,
                                              .epoch = 1,
                                              .key = &n->key,
                                              .options = &n->options,
                                              .events = &events,
                                              .up = n,
                                              .clock = &spr_clock_monotonic,
                                              .counters = &n->counters,
                                              .trace = &n->trace};
}

int node_kind(const struct spr_transport_ops *ops)
{
    if (!strcmp(ops->name, "verbs"))
        return SPR_T_VERBS;
    return strcmp(ops->name, "epoll") ? SPR_T_URING : SPR_T_EPOLL;
}

spr_status node_open(struct node *n, const struct spr_transport_ops *ops)
{
    int kind = node_kind(ops);
    spr_status status = ops->open(&n->params, &n->t, &n->error);

    if (status)
        return status;
    n->info = (struct spr_peer_info){.version = SPR_FRAME_VERSION, .transports = 1u << kind};
    ops->address(n->t, n->info.address[kind]);
    return SPR_OK;
}

void node_connect(struct node *n, int peer, const struct spr_peer_info *info)
{
    struct node_peer *p = &n->peers[peer];

    p->node = n;
    p->rank = peer;
    assert_null(n->t->ops->unusable(&n->info, info));
    assert_int_equal(n->t->ops->connect(n->t, peer, info, &p->link, &n->error), SPR_OK);
    p->link->channel = p;
    assert_int_equal(p->link->peer, peer);
    for (int i = 0; i < NODE_WINDOW; i++)
        p->data[i] = spr_malloc(NODE_MOST_BYTES);
}

static void feed(struct node *n, struct node_peer *p)
{
    for (int i = 0; i < NODE_WINDOW && p->sent < n->frames; i++) {
        struct spr_tx *tx = &p->tx[i];
        if (p->busy[i])
            continue;
        memset(tx, 0, sizeof *tx);
        tx->header.type = SPR_FRAME_DATA;
        tx->header.sequence = p->sent;
        tx->header.bytes = node_frame_bytes(n->seed, n->params.rank, p->rank, p->sent);
        fill(p->data[i], tx->header.bytes, stream(n->seed, n->params.rank, p->rank, p->sent));
        tx->data = tx->header.bytes ? p->data[i] : NULL;
        spr_frame_seal(&tx->header);
        p->busy[i] = true;
        p->sent++;
        n->t->ops->send(p->link, tx);
    }
}

static void give_back(struct node *n, int slot)
{
    struct node_peer *p = n->borrowed[slot].peer;

    /* It was not touched meanwhile. */
    check(n->borrowed[slot].data, n->borrowed[slot].bytes,
          stream(n->seed, p->rank, n->params.rank, n->borrowed[slot].number));
    n->t->ops->release(p->link, n->borrowed[slot].token);
    n->borrowed[slot] = n->borrowed[--n->borrowed_count];
}

void node_feed(struct node *n)
{
    for (int r = 0; r < n->params.size; r++)
        if (n->peers[r].link && n->peers[r].up && !n->peers[r].down)
            feed(n, &n->peers[r]);
}

int node_step(struct node *n)
{
    int steps;

    node_feed(n);
    n->in_progress++;
    steps = n->t->ops->progress(n->t);
    n->in_progress--;
    while (n->borrowed_count && spr_rng_below(&n->rng, 3) == 0)
        give_back(n, (int)spr_rng_below(&n->rng, (uint64_t)n->borrowed_count));
    return steps;
}

bool node_all_up(const struct node *n)
{
    for (int r = 0; r < n->params.size; r++)
        if (r != n->params.rank && !n->peers[r].up)
            return false;
    return true;
}

bool node_finished(const struct node *n)
{
    for (int r = 0; r < n->params.size; r++) {
        const struct node_peer *p = &n->peers[r];
        if (r != n->params.rank && (p->came_back < n->frames || p->received < n->frames))
            return false;
    }
    return true;
}

void node_sleep(struct node *n, int ms)
{
    struct pollfd fd = {.fd = n->t->ops->fd(n->t), .events = POLLIN};

    if (n->t->ops->arm(n->t) == SPR_OK)
        (void)poll(&fd, 1, ms);
}

void node_close(struct node *n)
{
    while (n->borrowed_count)
        give_back(n, n->borrowed_count - 1);
    if (n->t)
        n->t->ops->close(n->t);
    n->t = NULL;
    for (int r = 0; r < n->params.size; r++) {
        spr_free(n->peers[r].into);
        n->peers[r].into = NULL;
        for (int i = 0; i < NODE_WINDOW; i++) {
            spr_free(n->peers[r].data[i]);
            n->peers[r].data[i] = NULL;
        }
    }
    spr_opt_free(spr_options_table, spr_options_count, &n->options);
}
