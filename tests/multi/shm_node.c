/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/shm_node.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LIMIT_S 60.0

const struct spr_clock *node_clock = &spr_clock_monotonic;
size_t node_slots = 24;

static uint64_t frame_key(const struct node *n, int from, int to, uint32_t number)
{
    return n->seed ^ ((uint64_t)(unsigned)from << 56 | (uint64_t)(unsigned)to << 48 | number);
}

size_t node_frame_bytes(const struct node *n, int from, int to, uint32_t number)
{
    static const size_t corners[] = {
        0, 1, 55, 56, 57, 8191, 8192, 8193, SPR_FRAME_MAX_PAYLOAD - 1, SPR_FRAME_MAX_PAYLOAD};
    uint32_t h = spr_hash_u32(frame_key(n, from, to, number));
    size_t limits[] = {56, 8192, 8192, SPR_FRAME_MAX_PAYLOAD};
    size_t limit = limits[h % 4];

    if (n->min_bytes || n->max_bytes) {
        size_t most = n->max_bytes ? n->max_bytes : SPR_FRAME_MAX_PAYLOAD;
        return n->min_bytes + h % (most - n->min_bytes + 1);
    }
    if ((h >> 2) % 8 == 0)
        return corners[(h >> 5) % SPR_ARRAY_LEN(corners)];
    return (h >> 5) % (limit + 1);
}

/* Eight-byte words key * (i + 1), the last one cut. */
static void fill(unsigned char *to, uint64_t key, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = (key | 1) * (i + 1);
        memcpy(to + i, &word, spr_min_size(8, bytes - i));
    }
}

static bool matches(const unsigned char *data, uint64_t key, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = (key | 1) * (i + 1);
        if (memcmp(data + i, &word, spr_min_size(8, bytes - i)) != 0)
            return false;
    }
    return true;
}

/* ---- Upcalls ---- */

static struct node_peer *peer_of(struct spr_link *link)
{
    struct node *n = link->transport->params.up;

    return &n->peers[link->peer];
}

static void on_up(struct spr_link *link) { peer_of(link)->up = true; }

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    struct node_peer *p = peer_of(link);
    struct node *n = p->node;
    const char *why = "";
    spr_status status = spr_frame_check(f, &why);

    if (status)
        return status;
    if (f->sequence != p->received ||
        f->bytes != node_frame_bytes(n, link->peer, n->rank, p->received)) {
        n->errors++;
        return SPR_ERR_PROTO;
    }
    do
        rx->sink = (enum spr_sink)spr_rng_below(&n->rng, 3);
    while (!(n->sinks & 1 << (int)rx->sink));
    if (rx->sink == SPR_SINK_BORROW && n->held_count == NODE_HELD)
        rx->sink = SPR_SINK_INTO;
    rx->into = n->into;
    rx->lend = n->lend && n->held_count < NODE_HELD;
    return SPR_OK;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    struct node_peer *p = peer_of(link);
    struct node *n = p->node;
    uint64_t key = frame_key(n, link->peer, n->rank, p->received);

    if (data && !matches(data, key, f->bytes))
        n->errors++;
    if (token) {
        n->held[n->held_count++] = (struct node_held){
            .link = link, .data = data, .token = token, .key = key, .bytes = f->bytes};
        if (n->held_count > n->held_max)
            n->held_max = n->held_count;
    }
    p->received++;
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct node_peer *p = peer_of(link);

    if (tx != &p->tx[p->sent % NODE_TX])
        p->node->errors++;
    p->sent++;
    p->failed += tx->failed;
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    struct node_peer *p = peer_of(link);

    p->node->errors += p->down;
    p->down = true;
    p->why = why;
    snprintf(p->text, sizeof(p->text), "%s", text);
}

static const struct spr_link_events events = {
    .up = on_up, .header = on_header, .payload = on_payload, .sent = on_sent, .down = on_down};

/* ---- Opening ---- */

void node_open_secret(struct node *n, int rank, int size, uint64_t seed, const char *secret)
{
    struct spr_error error = {0};
    struct spr_transport_params params = {.rank = rank,
                                          .size = size,
                                          .epoch = 7,
                                          .key = &n->key,
                                          .options = &n->options,
                                          .events = &events,
                                          .up = n,
                                          .clock = node_clock,
                                          .counters = &n->counters};
    spr_status status;

    memset(n, 0, sizeof(*n));
    n->rank = rank;
    n->size = size;
    n->seed = seed;
    n->rng = (struct spr_rng){.seed = seed + 1000 + (uint64_t)rank};
    n->sinks = 7;
    n->options.shm_slots = node_slots;
    n->key = (struct spr_auth_key){.job = 42, .epoch = 7, .rank = rank, .size = size};
    n->key.secret_bytes = strlen(secret);
    memcpy(n->key.secret, secret, n->key.secret_bytes);
    n->into = malloc(SPR_FRAME_MAX_PAYLOAD);
    status = spr_transport_shm.open(&params, &n->t, &error);
    if (status)
        fprintf(stderr, "open: %s\n", error.text);
    assert_int_equal(status, SPR_OK);
    n->info.transports = 1u << SPR_T_SHM;
    n->info.uid = (uint32_t)geteuid();
    n->t->ops->address(n->t, n->info.address[SPR_T_SHM]);
}

void node_open(struct node *n, int rank, int size, uint64_t seed)
{
    node_open_secret(n, rank, size, seed, "a secret of the job");
}

void node_connect(struct node *n, int peer, const struct spr_peer_info *info)
{
    struct spr_error error = {0};
    struct node_peer *p = &n->peers[peer];

    p->node = n;
    assert_null(n->t->ops->unusable(&n->info, info));
    assert_int_equal(n->t->ops->connect(n->t, peer, info, &p->link, &error), SPR_OK);
}

struct mesh {
    struct node *nodes;
    int size;
};

static bool mesh_is_up(void *ctx)
{
    struct mesh *m = ctx;

    for (int i = 0; i < m->size; i++)
        for (int j = 0; j < m->size; j++)
            if (i != j && !m->nodes[i].peers[j].up)
                return false;
    return true;
}

void node_mesh(struct node *nodes, int size)
{
    struct mesh m = {nodes, size};

    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            if (i != j)
                node_connect(&nodes[i], j, &nodes[j].info);
    assert_true(node_drive_until(nodes, size, mesh_is_up, &m));
}

void node_close(struct node *n)
{
    if (n->t)
        n->t->ops->close(n->t);
    n->t = NULL;
    for (int i = 0; i < NODE_MAX; i++)
        for (int k = 0; k < NODE_TX; k++) {
            free(n->peers[i].payload[k]);
            n->peers[i].payload[k] = NULL;
        }
    free(n->into);
    n->into = NULL;
}

/* ---- Traffic ---- */

bool node_send_next(struct node *n, int peer)
{
    struct node_peer *p = &n->peers[peer];
    uint32_t k = p->posted % NODE_TX;
    struct spr_tx *tx = &p->tx[k];
    size_t bytes = node_frame_bytes(n, n->rank, peer, p->posted);

    if (p->down || p->posted - p->sent == NODE_TX)
        return false;
    if (!p->payload[k])
        p->payload[k] = malloc(SPR_FRAME_MAX_PAYLOAD);
    assert_non_null(p->payload[k]);
    fill(p->payload[k], frame_key(n, n->rank, peer, p->posted), bytes);
    *tx = (struct spr_tx){.data = p->payload[k]};
    tx->header.type = SPR_FRAME_DATA;
    tx->header.epoch = 7;
    tx->header.sequence = p->posted++;
    tx->header.bytes = (uint32_t)bytes;
    spr_frame_seal(&tx->header);
    n->t->ops->send(p->link, tx);
    return true;
}

void node_release_one(struct node *n)
{
    struct node_held *h;

    if (!n->held_count)
        return;
    h = &n->held[spr_rng_below(&n->rng, (uint64_t)n->held_count)];
    if (!matches(h->data, h->key, h->bytes))
        n->errors++;
    n->t->ops->release(h->link, h->token);
    *h = n->held[--n->held_count];
}

void node_release_all(struct node *n)
{
    while (n->held_count)
        node_release_one(n);
}

bool node_drive_until(struct node *nodes, int count, bool (*done)(void *ctx), void *ctx)
{
    uint64_t end = spr_monotonic_ns() + (uint64_t)(LIMIT_S * 1e9 * spr_time_factor());

    while (!done(ctx)) {
        for (int i = 0; i < count; i++)
            if (nodes[i].t)
                nodes[i].t->ops->progress(nodes[i].t);
        if (spr_monotonic_ns() > end)
            return false;
    }
    return true;
}

/* ---- The process ---- */

static struct {
    int fds, maps, names;
} before;

/* Names in a directory that hold this text. */
/* Files: sparring-run's flight recorders, of tests that run at the same time, are in folders. */
static int count_names(const char *directory, const char *text)
{
    DIR *d = opendir(directory);
    struct dirent *e;
    int n = 0;

    if (!d)
        return 0;
    while ((e = readdir(d)))
        n += e->d_type != DT_DIR && strstr(e->d_name, text) != NULL;
    closedir(d);
    return n;
}

static int count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        n += strstr(line, "memfd:sparring") != NULL;
    fclose(f);
    return n;
}

int node_count_before(void **state)
{
    (void)state;
    before.fds = count_names("/proc/self/fd", "");
    before.maps = count_maps();
    before.names = count_names("/dev/shm", "sparring");
    return 0;
}

int node_count_after(void **state)
{
    (void)state;
    assert_int_equal(count_names("/proc/self/fd", ""), before.fds);
    assert_int_equal(count_maps(), before.maps);
    assert_int_equal(count_names("/dev/shm", "sparring"), before.names);
    return 0;
}
