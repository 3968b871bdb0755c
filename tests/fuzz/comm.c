/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Communicators over links that a script drives (wire.h): two or three real ranks in one thread,
 * with the real channel and collectives. The input is the script: post a collective, let frames
 * leave and arrive, damage, change, drop, repeat or invent some, cut links, cancel, abort, leave,
 * let time pass.
 *
 * Whatever it says: when all links are cut every request ends, nothing leaks, memory of a request
 * is not touched after its end (all of it is freed then), and a failed compressed allreduce leaves
 * the whole gradient in the residual. Frames that are damaged or lost never make a wrong result,
 * only those that are changed behind a right checksum may.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/dispute.h"
#include "compress/chunk_layout.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"
#include "tests/reference.h"

#define MOST_OPERATIONS 6
#define MOST_ACTIONS 400
#define UNION_STEP 0x80000000u /* set in the steps of sparse unions */

enum kind {
    ALLREDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    BROADCAST,
    SENDRECV,
    BARRIER,
    SPARSE,
    COMPRESSED,
    KINDS
};

struct operation {
    enum kind kind;
    spr_dtype dtype;
    spr_op op;
    int root;
    bool in_place, odd; /* odd: the last rank calls something else */
    const char *algorithm;
    size_t count, in_count, out_count;
    char *in[WIRE_RANKS], *out[WIRE_RANKS]; /* of just their size, until the request ends */
    spr_sparse list[WIRE_RANKS];
    spr_codec *codec[WIRE_RANKS];
    spr_request *request[WIRE_RANKS];
};

static struct {
    struct wire wire;
    int ranks;
    spr_comm *comms[WIRE_RANKS];
    int next[WIRE_RANKS]; /* operation */
    bool gone[WIRE_RANKS];
    int count;
    struct operation ops[MOST_OPERATIONS];
    /* What happened so far: frames were lost or damaged, ranks gave up; or frames lied. */
    bool fault, lied;
    bool renumber[WIRE_RANKS][WIRE_RANKS];
    uint32_t sequence[WIRE_RANKS][WIRE_RANKS];
} g;

/* ---- Ranks ---- */

static void add_rank(int rank, size_t eager)
{
    struct spr_options options = {0};
    struct spr_error error = {0};
    spr_comm *comm;

    FUZZ_CHECK(spr_opt_defaults(spr_options_table, spr_options_count, &options, &error) == SPR_OK);
    options.eager_bytes = eager;
    options.timeout_s = 5;
    FUZZ_CHECK(spr_comm_new(rank, g.ranks, &options, &g.wire.clock, &comm) == SPR_OK);
    struct spr_transport_params params = {
        .rank = rank,
        .size = g.ranks,
        .epoch = comm->channel.epoch,
        .options = &comm->options,
        .events = &spr_channel_link_events,
        .up = &comm->channel,
        .clock = comm->clock,
        .counters = &comm->counters,
        .trace = comm->trace,
    };
    struct spr_transport *t = comm->transports[comm->transport_count++] =
        wire_open(&g.wire, &params);
    for (int peer = 0; peer < g.ranks; peer++) {
        struct spr_link *link;

        if (peer == rank)
            continue;
        t->ops->connect(t, peer, NULL, &link, &error);
        spr_channel_attach(&comm->channel, link, true);
    }
    g.comms[rank] = comm;
}

static void progress(int rank) { spr_comm_progress_locked(g.comms[rank]); }

/* ---- Operations ---- */

/* Small whole numbers: sums are exact in every type and order. */
static double input(const struct operation *o, int rank, size_t i)
{
    uint64_t which = (uint64_t)(o - g.ops) << 50 ^ (uint64_t)rank << 40 ^ i;

    return (double)(int)(spr_hash_u32(which) % 201) - 100;
}

static bool listed(const struct operation *o, int rank, size_t i)
{
    return (spr_hash_u32((uint64_t)rank << 33 ^ i * 977) & 7) < (unsigned)(o->root + 1) * 2;
}

static double contribution(const struct operation *o, int rank, size_t i)
{
    return o->kind != SPARSE || listed(o, rank, i) ? input(o, rank, i) : 0;
}

static void define(struct operation *o, struct fuzz_in *in)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 100, 500, 501, 1000, 2100, 3000, 40, 9, 64, 200};
    static const spr_dtype dtypes[] = {SPR_FP32, SPR_FP64, SPR_INT32, SPR_INT64};
    static const char *const algorithms[] = {NULL, "direct", "ring", "flat"};
    uint8_t a = fuzz_u8(in), b = fuzz_u8(in), c = fuzz_u8(in);
    size_t size = (size_t)g.ranks;

    memset(o, 0, sizeof *o);
    o->kind = (enum kind)(a % KINDS);
    o->in_place = a / KINDS & 1;
    o->dtype = dtypes[b & 3];
    o->op = (spr_op)(b >> 2 & 3);
    o->root = (b >> 4) % g.ranks;
    /* The large one: two chunks of fp64. */
    o->count = c == 255 ? 33000 : counts[(c & 15) % SPR_ARRAY_LEN(counts)];
    if (o->kind == ALLREDUCE)
        o->algorithm = algorithms[c >> 4 & 3];
    if (o->algorithm && !strcmp(o->algorithm, "flat") && o->count > 1000)
        o->count = 1000;
    if (o->kind == SPARSE || o->kind == COMPRESSED) {
        o->dtype = SPR_FP32;
        o->op = SPR_SUM;
        o->count++;
    }
    o->in_count = o->kind == REDUCE_SCATTER ? o->count * size : o->count;
    o->out_count = o->kind == ALLGATHER ? o->count * size : o->count;
    /* Of nothing at all, nobody says anything. */
    o->odd = a >= 238 && o->kind < BARRIER && o->count > 1;
}

static void *memory(size_t bytes)
{
    char *p = malloc(bytes ? bytes : 1);

    FUZZ_CHECK(p);
    return p;
}

static void fill(struct operation *o, int rank)
{
    size_t element = spr_dtype_size(o->dtype);
    spr_sparse *list = &o->list[rank];

    o->in[rank] = memory(o->in_count * element);
    o->out[rank] = memory(o->out_count * element);
    memset(o->out[rank], 0xee, o->out_count * element);
    for (size_t i = 0; i < o->in_count; i++)
        reference_store(o->dtype, o->in[rank], i, input(o, rank, i));
    if (o->kind == COMPRESSED) {
        spr_layout layout = {1, "w", 0, o->count, 1};
        FUZZ_CHECK(spr_codec_create(o->in_place ? "topk:ratio=10%" : "none", &layout, 1,
                                    &o->codec[rank]) == SPR_OK);
    }
    if (o->kind != SPARSE)
        return;
    list->index = memory(o->count * 4);
    list->value = memory(o->count * 4);
    for (size_t i = 0; i < o->count; i++)
        if (listed(o, rank, i)) {
            list->index[list->count] = (uint32_t)i;
            list->value[list->count++] = (float)input(o, rank, i);
        }
}

static void free_buffers(struct operation *o, int rank)
{
    free(o->in[rank]);
    free(o->out[rank]);
    free(o->list[rank].index);
    free(o->list[rank].value);
    spr_codec_destroy(o->codec[rank]);
    o->in[rank] = o->out[rank] = NULL;
    o->list[rank] = (spr_sparse){0};
    o->codec[rank] = NULL;
}

static spr_status call(struct operation *o, int r)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_comm *c = g.comms[r];
    spr_request **rq = &o->request[r];
    bool odd = o->odd && r == g.ranks - 1;
    size_t n = o->count - odd;

    options.algorithm = o->algorithm;
    switch (o->kind) {
    case ALLREDUCE:
        return spr_iallreduce(c, o->in[r], o->in_place ? o->in[r] : o->out[r], n, o->dtype, o->op,
                              &options, rq);
    case REDUCE_SCATTER:
        return spr_ireduce_scatter(c, o->in[r], o->out[r], n, o->dtype, o->op, &options, rq);
    case ALLGATHER:
        return spr_iallgather(c, o->in[r], o->out[r], n, o->dtype, &options, rq);
    case BROADCAST:
        return spr_ibroadcast(c, o->in[r], n, o->dtype, o->root, &options, rq);
    case SENDRECV:
        return spr_isendrecv(c, o->in[r], o->out[r], n, o->dtype, o->root - 1, &options, rq);
    case BARRIER:
        return spr_ibarrier(c, &options, rq);
    case SPARSE:
        return spr_isparse_allreduce(c, &o->list[r], o->count, (float *)(void *)o->out[r], NULL,
                                     o->op, &options, rq);
    default:
        return spr_icompressed_allreduce(c, o->codec[r], (float *)(void *)o->in[r], o->op, &options,
                                         rq);
    }
}

static void post(int rank, struct fuzz_in *in)
{
    struct operation *o = &g.ops[g.next[rank]];
    spr_status status;

    if (g.gone[rank] || g.next[rank] == MOST_OPERATIONS)
        return;
    if (g.next[rank] == g.count)
        define(&g.ops[g.count++], in);
    g.next[rank]++;
    fill(o, rank);
    status = call(o, rank);
    if (status != SPR_OK) {
        FUZZ_CHECK(status < 0 && (g.comms[rank]->error.status || o->algorithm));
        free_buffers(o, rank);
        g.gone[rank] = true; /* the numbers of the operations differ from now on */
        g.fault = true;
    }
}

/* ---- Results ---- */

static double expected(const struct operation *o, int rank, size_t i, double *bound)
{
    double x[WIRE_RANKS];
    size_t at = o->kind == REDUCE_SCATTER ? (size_t)rank * o->count + i : i;

    *bound = 0;
    if (o->kind == BROADCAST)
        return input(o, o->root, i);
    if (o->kind == ALLGATHER)
        return input(o, (int)(i / o->count), i % o->count);
    if (o->kind == SENDRECV)
        return input(o, (rank - (o->root - 1) + g.ranks) % g.ranks, i);
    for (int r = 0; r < g.ranks; r++)
        x[r] = contribution(o, r, at);
    return reference_reduce(x, g.ranks, o->dtype, o->op, bound);
}

/* Can this rank be done before it hears of the odd one? In a broadcast all others; and who neither
 * gets from the odd one nor is it. */
static bool may_not_know(const struct operation *o, int rank)
{
    int source = (rank - (o->root - 1) + g.ranks) % g.ranks, odd = g.ranks - 1;

    if (o->kind == SENDRECV)
        return source == rank || (source != odd && rank != odd);
    return o->kind == BROADCAST && rank != odd && rank != o->root;
}

static void check_result(const struct operation *o, int rank)
{
    bool in_place = (o->kind == ALLREDUCE && o->in_place) || o->kind == BROADCAST;
    const char *result = in_place ? o->in[rank] : o->out[rank];
    double bound;

    FUZZ_CHECK(!o->odd || may_not_know(o, rank));
    if (o->kind == BARRIER || o->kind == COMPRESSED || o->odd)
        return;
    for (size_t i = 0; i < o->out_count; i++) {
        double want = expected(o, rank, i, &bound);
        double got = reference_load(o->dtype, result, i);
        FUZZ_CHECK(got - want <= bound && want - got <= bound);
    }
    for (size_t i = 0; i < o->in_count && !in_place; i++)
        FUZZ_CHECK(reference_load(o->dtype, o->in[rank], i) == input(o, rank, i));
}

static void check_failure(const struct operation *o, int rank, spr_status status)
{
    FUZZ_CHECK(status < 0 && *spr_last_error(g.comms[rank]));
    FUZZ_CHECK(status == SPR_ERR_MISMATCH ? o->odd || g.fault || g.lied
                                          : g.comms[rank]->error.status);
    if (o->kind != COMPRESSED || !o->in_place)
        return;
    for (size_t i = 0; i < o->count; i++)
        FUZZ_CHECK((double)spr_codec_residual(o->codec[rank])[i] == input(o, rank, i));
}

/* Take the results that are there. Returns the requests that still run. */
static int collect(void)
{
    int running = 0;

    for (int i = 0; i < g.count; i++)
        for (int r = 0; r < g.ranks; r++) {
            struct operation *o = &g.ops[i];
            spr_status status;

            if (!o->request[r])
                continue;
            status = spr_test(&o->request[r]);
            if (status == SPR_IN_PROGRESS) {
                running++;
                continue;
            }
            if (status != SPR_OK)
                check_failure(o, r, status);
            else if (!g.lied)
                check_result(o, r);
            FUZZ_CHECK(status == SPR_OK || o->odd || g.fault || g.lied);
            free_buffers(o, r);
        }
    return running;
}

/* ---- Frames ---- */

static void transmit(int from, int to)
{
    if (from == to || !wire_transmit(&g.wire, from, to) || !g.renumber[from][to])
        return;
    struct wire_packet *p = wire_last(&g.wire, from, to);
    if (!p)
        return;
    p->header.sequence = g.sequence[from][to]++;
    spr_frame_seal(&p->header);
}

/* From now on `from` may say what it likes to `to`, and counts right. */
static void begin_to_lie(int from, int to)
{
    const struct wire_packet *p = wire_link(&g.wire, to, from)->in;
    uint32_t n = g.comms[to]->channel.peers[from].rx_sequence;

    g.lied = true;
    if (g.renumber[from][to])
        return;
    g.renumber[from][to] = true;
    for (; p; p = p->next)
        n += !p->header_done;
    g.sequence[from][to] = n;
}

static void seal_payload(struct spr_frame *f, const void *data)
{
    f->flags = f->bytes ? SPR_FRAME_CRC : 0;
    f->payload_crc = f->bytes ? spr_crc32c(0, data, f->bytes) : 0;
    spr_frame_seal(f);
}

static void set_field(struct spr_frame *f, struct fuzz_in *in)
{
    uint8_t field = fuzz_u8(in);
    uint32_t v = field & 16 ? fuzz_u32(in) : fuzz_u8(in);

    switch (field % 11) {
    case 0:
        f->type = (uint8_t)v;
        break;
    case 1:
        f->flags = (uint16_t)v;
        break;
    case 2:
        f->epoch = v;
        break;
    case 3:
        f->sequence += v;
        break;
    case 4:
        f->operation += v - 3;
        break;
    case 5:
        f->step = field & 32 ? v | UNION_STEP : v;
        break;
    case 6:
        f->descriptor += v;
        break;
    case 7:
        f->consumed = v;
        break;
    case 8:
        f->arg = v;
        break;
    case 9:
        f->arg64 = field & 32 ? (uint64_t)(int64_t)(int32_t)-v : v;
        break;
    default:
        f->bytes = v;
    }
    spr_frame_seal(f);
}

static void resize(struct wire_packet *p, size_t bytes)
{
    p->data = realloc(p->data, bytes ? bytes : 1);
    FUZZ_CHECK(p->data);
    if (bytes > p->bytes)
        memset(p->data + p->bytes, 0, bytes - p->bytes);
    p->bytes = bytes;
    p->header.bytes = (uint32_t)bytes;
    seal_payload(&p->header, p->data);
}

static void tamper(int from, int to, struct fuzz_in *in)
{
    struct wire_packet *p = wire_last(&g.wire, from, to);
    uint8_t how = fuzz_u8(in) % 8;
    uint16_t at = fuzz_u16(in);

    if (!p)
        return;
    if (how >= 2 && how < 6)
        begin_to_lie(from, to);
    g.fault = true;
    if (how == 0 || (how == 1 && !p->bytes)) {
        ((uint8_t *)&p->header)[at / 8 % SPR_FRAME_BYTES] ^= (uint8_t)(1u << at % 8);
    } else if (how == 1) {
        p->data[at / 8 % p->bytes] ^= (uint8_t)(1u << at % 8);
    } else if (how == 2) {
        set_field(&p->header, in);
    } else if (how == 3 && p->bytes) {
        for (size_t n = 1 + at % 8u, i = at >> 3; n > 0; n--, i++)
            p->data[i % p->bytes] = fuzz_u8(in);
        seal_payload(&p->header, p->data);
    } else if (how == 4) {
        resize(p, at % (p->bytes + 1));
    } else if (how == 5) {
        resize(p, spr_min_size(p->bytes + at, SPR_FRAME_MAX_PAYLOAD));
    } else if (how == 6) {
        wire_drop(&g.wire, from, to, p);
    } else if (how == 7) {
        wire_inject(&g.wire, from, to, &p->header, p->bytes ? p->data : NULL);
    }
}

/* A small chunk whose length is right, of windows and entries as the script says. */
static size_t make_chunk(struct fuzz_in *in, uint8_t *out)
{
    uint8_t a = fuzz_u8(in), b = fuzz_u8(in);
    struct spr_chunk_header h = {.format = SPR_CHUNK_U32, .windows = a >> 2 & 3, .count = b % 30u};

    h.flags = a & 1;
    h.first_window = a >> 4 & 1;
    h.payload_bytes = h.count * 8;
    memcpy(out, &h, sizeof h);
    uint32_t *pos = (uint32_t *)(void *)(out + sizeof h);
    for (uint32_t i = 0, p = a & 2 ? fuzz_u16(in) : 0; i < h.count; i++, p += 1 + (b >> 6))
        pos[i] = p;
    memset(pos + h.count, 0x3f, 4 * (size_t)h.count);
    return sizeof h + h.payload_bytes;
}

/* What the receiver posted, but for a few bytes. */
static size_t make_description(int to, uint32_t operation, struct fuzz_in *in, uint8_t *out)
{
    const struct spr_past *past = spr_past_find(g.comms[to], operation);
    uint8_t how = fuzz_u8(in);

    memset(out, 'd', sizeof(struct spr_descriptor));
    if (past)
        memcpy(out, &past->descriptor, sizeof past->descriptor);
    for (; how & 3; how--)
        out[fuzz_u8(in) % sizeof(struct spr_descriptor)] ^= fuzz_u8(in);
    return sizeof(struct spr_descriptor) - (how >= 252);
}

/* The n-th message that `to` waits for from `from`, or has for it. */
static void aim(struct spr_frame *f, int from, int to, unsigned n, size_t *capacity)
{
    const struct spr_channel_peer *p = &g.comms[to]->channel.peers[from];
    const struct spr_list *it;

    spr_list_for_each(it, f->type == SPR_FRAME_GRANT ? &p->waiting : &p->receives)
    {
        if (n-- > 0)
            continue;
        if (f->type == SPR_FRAME_GRANT) {
            const struct spr_send *s = spr_list_entry(it, struct spr_send, node);
            f->operation = s->operation, f->step = s->step, f->descriptor = s->descriptor;
        } else {
            const struct spr_recv *r = spr_list_entry(it, struct spr_recv, node);
            f->operation = r->operation, f->step = r->step, f->descriptor = r->descriptor;
            *capacity = r->capacity;
        }
        return;
    }
}

static void inject(int from, int to, struct fuzz_in *in)
{
    static _Alignas(8) uint8_t data[SPR_FRAME_MAX_PAYLOAD];
    uint8_t what = fuzz_u8(in), how = fuzz_u8(in);
    struct spr_frame f = {.type = (uint8_t)(1 + what % 9u), .epoch = 1};
    size_t capacity = 64, bytes = 0;

    begin_to_lie(from, to);
    f.operation = g.comms[to]->next_operation - 1 + (how & 3u) - (how >> 2 & 1u);
    f.step = fuzz_u8(in);
    if (f.step >= 128)
        f.step = f.step == 255 ? UINT32_MAX : UNION_STEP + (f.step & 127);
    if (what & 128)
        aim(&f, from, to, how >> 4 & 7, &capacity);
    f.arg = how >> 3 & 1;
    if (f.type == SPR_FRAME_ABORT || f.type == SPR_FRAME_REJECT) {
        f.arg = fuzz_u8(in);
        f.arg64 = (uint64_t)(uint32_t)(-(int32_t)fuzz_u8(in));
        capacity = 600;
    }
    f.consumed = g.comms[to]->channel.peers[from].eager_sent;
    if (f.type == SPR_FRAME_DATA && what & 64)
        bytes = make_chunk(in, data);
    else if (f.type == SPR_FRAME_DESCRIBE)
        bytes = make_description(to, f.operation, in, data);
    else if (f.type == SPR_FRAME_DATA || f.type == SPR_FRAME_ABORT || f.type == SPR_FRAME_REJECT)
        for (bytes = how & 128 ? fuzz_u16(in) : capacity; capacity && bytes > capacity + 1;)
            bytes %= capacity + 2;
    if (f.type != SPR_FRAME_DESCRIBE && !(f.type == SPR_FRAME_DATA && what & 64))
        memset(data, 'a' + what % 20, bytes);
    f.bytes = (uint32_t)spr_min_size(bytes, sizeof data);
    f.sequence = g.sequence[from][to]++;
    seal_payload(&f, data);
    wire_inject(&g.wire, from, to, &f, f.bytes ? data : NULL);
}

/* ---- The script ---- */

/* All that is under way goes on; `rounds` times. */
static void pump(int rounds)
{
    while (rounds-- > 0) {
        for (int r = 0; r < g.ranks; r++)
            for (int peer = 0; peer < g.ranks; peer++) {
                struct wire_link *l = wire_link(&g.wire, r, peer);

                while (l->queued && l->base.state == SPR_LINK_UP)
                    transmit(r, peer);
                l->may_receive = l->may_sent = 1000;
            }
        for (int r = 0; r < g.ranks; r++)
            progress(r);
    }
}

static void cancel(int rank, unsigned n)
{
    for (int i = 0; i < g.count; i++)
        if (g.ops[i].request[rank] && n-- == 0) {
            spr_cancel(g.ops[i].request[rank]);
            g.fault = g.gone[rank] = true;
            return;
        }
}

/* As spr_comm_destroy() does it, which waits by the clock. */
static void leave(int rank)
{
    if (g.gone[rank])
        return;
    for (int i = 0; i < g.count; i++)
        if (g.ops[i].request[rank])
            return;
    g.gone[rank] = g.fault = true;
    g.comms[rank]->closing = true;
    if (!g.comms[rank]->error.status)
        spr_channel_bye(&g.comms[rank]->channel, g.comms[rank]->next_operation);
}

static void act(struct fuzz_in *in)
{
    static const uint64_t times_ms[] = {1, 20, 210, 1000, 4900, 11000, 700000, 3};
    uint8_t action = fuzz_u8(in), where = fuzz_u8(in);
    int rank = (where & 15) % g.ranks, peer = (rank + 1 + (where >> 4 & 1)) % g.ranks;
    unsigned n = where >> 5;

    if (peer == rank)
        peer = (rank + 1) % g.ranks;
    struct wire_link *l = wire_link(&g.wire, rank, peer);
    switch (action % 14) {
    case 0:
    case 1:
        post(rank, in);
        break;
    case 2:
        pump(1 + (int)n);
        break;
    case 3:
        for (unsigned i = 0; i <= n; i++)
            transmit(rank, peer);
        break;
    case 4:
        l->may_receive = n + 1;
        progress(rank);
        break;
    case 5:
        l->may_sent = n + 1;
        progress(rank);
        break;
    case 6:
        transmit(rank, peer);
        tamper(rank, peer, in);
        break;
    case 7:
        inject(rank, peer, in);
        break;
    case 8:
        wire_cut(&g.wire, rank, peer);
        g.fault = true;
        break;
    case 9:
        cancel(rank, n);
        break;
    case 10:
        g.wire.time.ns += times_ms[n] * 1000000;
        g.fault = true; /* a deadline may pass */
        break;
    case 11:
        spr_comm_abort(g.comms[rank], n ? "the script says so" : NULL);
        g.fault = true;
        break;
    case 12:
        leave(rank);
        break;
    default:
        collect();
    }
}

static void end(void)
{
    bool all = true;

    /* What was posted everywhere, and not disturbed, ends well. */
    for (int i = 0; i < 100 && collect(); i++)
        pump(3);
    for (int r = 1; r < g.ranks; r++)
        all &= g.next[r] == g.next[0];
    FUZZ_CHECK(!all || g.fault || g.lied || collect() == 0);
    g.fault = true;
    for (int a = 0; a < g.ranks; a++)
        for (int b = 0; b < a; b++)
            wire_cut(&g.wire, a, b);
    for (int i = 0; i < 100 && collect(); i++) {
        pump(1);
        g.wire.time.ns += 100000000;
    }
    FUZZ_CHECK(collect() == 0); /* nothing hangs */
    for (int r = 0; r < g.ranks; r++) {
        progress(r);
        spr_channel_kill(&g.comms[r]->channel);
        progress(r);
    }
    for (int r = 0; r < g.ranks; r++)
        spr_comm_free(g.comms[r]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t eager[] = {8192, 0, 64, 4000};
    struct fuzz_in in = {data, size};
    int64_t live = spr_mem_live();
    uint8_t head = fuzz_u8(&in);

    memset(&g, 0, sizeof g);
    g.ranks = 2 + (head & 1);
    wire_init(&g.wire);
    for (int r = 0; r < g.ranks; r++)
        add_rank(r, eager[head >> 1 & 3]);
    pump(1);
    for (int i = 0; i < MOST_ACTIONS && in.left; i++)
        act(&in);
    end();
    FUZZ_CHECK(spr_mem_live() == live);
    return 0;
}

/* ---- Seeds ---- */

static void emit(const char *what, unsigned head, unsigned kind, unsigned b, unsigned c,
                 const uint8_t *more, size_t bytes)
{
    static struct fuzz_seed s;
    char name[64];

    fuzz_put_u8(&s, head);
    for (unsigned r = 0; r < 2 + (head & 1); r++) {
        fuzz_put_u8(&s, 0);
        fuzz_put_u8(&s, r);
        if (r == 0) {
            fuzz_put_u8(&s, kind);
            fuzz_put_u8(&s, b);
            fuzz_put_u8(&s, c);
        }
    }
    fuzz_put(&s, more, bytes);
    snprintf(name, sizeof name, "%s_%u_%u_%u", what, kind, head, c);
    fuzz_emit_seed(name, &s);
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name;
        uint8_t bytes[12];
        size_t count;
    } faults[] = {
        {"damaged", {2, 0, 6, 0, 0, 77, 0}, 7},
        {"payload", {2, 0, 6, 0, 1, 99, 0}, 7},
        {"field", {2, 0, 6, 1, 2, 5, 0, 5}, 8},
        {"changed", {6, 0, 3, 8, 0, 1, 2, 3}, 8},
        {"shorter", {6, 1, 4, 40, 0, 2, 32}, 7},
        {"longer", {6, 0, 5, 9, 0, 2, 32}, 7},
        {"lost", {6, 0, 6, 0, 0, 2, 32}, 7},
        {"twice", {6, 0, 7, 0, 0, 2, 32}, 7},
        {"describe", {7, 0, 6, 1, 0, 1, 16, 1, 32}, 8},
        {"reject", {7, 0, 7, 1, 0, 1, 2, 32}, 8},
        {"grant", {7, 0, 136, 0, 0, 2, 32}, 7},
        {"data", {7, 0, 135, 0, 0, 2, 32}, 7},
        {"chunk", {7, 1, 198, 8, 0, 5, 3, 2}, 8},
        {"cut", {2, 0, 8, 0, 2, 32}, 6},
        {"cancelled", {3, 0, 9, 0, 2, 64}, 6},
        {"late", {3, 0, 10, 192, 2, 64}, 6},
        {"aborted", {3, 0, 4, 1, 11, 33, 2, 64}, 8},
        {"half", {3, 0, 4, 1, 8, 0, 4, 1}, 8},
    };

    for (unsigned kind = 0; kind < KINDS; kind++) {
        emit("whole", kind & 1, kind, 0, 5, NULL, 0);
        emit("whole", 2 + !(kind & 1), kind + KINDS, 5, 9, NULL, 0);
    }
    emit("large", 0, ALLREDUCE, 1, 255, NULL, 0);
    for (size_t i = 0; i < SPR_ARRAY_LEN(faults); i++)
        emit(faults[i].name, 2 + (i & 1), (unsigned)i % KINDS, 0, 8, faults[i].bytes,
             faults[i].count);
    emit("chunk_sparse", 2, SPARSE, 0, 8, (const uint8_t[]){7, 1, 198, 8, 0, 5, 3, 2, 32}, 9);
    emit("odd", 0, 238 + ALLREDUCE, 0, 8, NULL, 0);
}
