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
#include "tests/fuzz/comm.h"

#include <stdio.h>

#include "base/util.h"
#include "collectives/comm.h"

#define MOST_ACTIONS 400

struct comm_play g;

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

/* ---- The script ---- */

/* All that is under way goes on; `rounds` times. */
static void pump(int rounds)
{
    while (rounds-- > 0) {
        for (int r = 0; r < g.ranks; r++)
            for (int peer = 0; peer < g.ranks; peer++) {
                struct wire_link *l = wire_link(&g.wire, r, peer);

                while (l->queued && l->base.state == SPR_LINK_UP)
                    comm_transmit(r, peer);
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
        comm_post(rank, in);
        break;
    case 2:
        pump(1 + (int)n);
        break;
    case 3:
        for (unsigned i = 0; i <= n; i++)
            comm_transmit(rank, peer);
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
        comm_transmit(rank, peer);
        comm_tamper(rank, peer, in);
        break;
    case 7:
        comm_inject(rank, peer, in);
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
        comm_collect();
    }
}

static void end(void)
{
    bool all = true;

    /* What was posted everywhere, and not disturbed, ends well. Time stands still, so where nothing
     * has been on its way for a while nothing will be. */
    for (int i = 0, still = 0; i < 100 && still < 3 && comm_collect(); i++) {
        pump(3);
        still = wire_quiet(&g.wire) ? still + 1 : 0;
    }
    for (int r = 1; r < g.ranks; r++)
        all &= g.next[r] == g.next[0];
    FUZZ_CHECK(!all || g.fault || g.lied || comm_collect() == 0);
    g.fault = true;
    for (int a = 0; a < g.ranks; a++)
        for (int b = 0; b < a; b++)
            wire_cut(&g.wire, a, b);
    for (int i = 0; i < 100 && comm_collect(); i++) {
        pump(1);
        g.wire.time.ns += 100000000;
    }
    FUZZ_CHECK(comm_collect() == 0); /* nothing hangs */
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
    g.wire.places = head & 8;
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
        uint8_t bytes[24];
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
        {"reject", {7, 0, 8, 1, 0, 1, 2, 32}, 8},
        {"grant", {7, 0, 136, 0, 0, 2, 32}, 7},
        {"data", {7, 0, 135, 0, 0, 2, 32}, 7},
        {"chunk", {7, 1, 198, 8, 0, 5, 3, 2}, 8},
        {"recall", {7, 0, 165, 0, 0, 2, 32}, 7},
        {"place", {7, 0, 163, 0, 0, 2, 32}, 7},
        {"nowhere", {7, 0, 162, 0, 0, 2, 32}, 7},
        {"cut", {2, 0, 8, 0, 2, 32}, 6},
        {"cancelled", {3, 0, 9, 0, 2, 64}, 6},
        {"late", {3, 0, 10, 192, 2, 64}, 6},
        {"aborted", {3, 0, 4, 1, 11, 33, 2, 64}, 8},
        {"half", {3, 0, 4, 1, 8, 0, 4, 1}, 8},
        /* 480 bytes: of the next epoch, without any of us; of this one, shrinking, has lost rank 2.
         */
        {"view_expelled", {7, 0, 7, 0, 0, 224, 1, 2, 0, 0, 2, 48, 0, 7, 2, 32}, 16},
        {"view_lost", {7, 0, 7, 0, 0, 224, 1, 3, 0, 0, 1, 176, 0, 1, 224, 0, 4, 2, 32}, 19},
        {"view_long", {7, 0, 7, 0, 0, 255, 255, 0, 2, 32}, 10},
    };

    for (unsigned kind = 0; kind < KINDS; kind++) {
        emit("whole", kind & 1, kind, 0, 5, NULL, 0);
        emit("whole", 2 + !(kind & 1), kind + KINDS, 5, 9, NULL, 0);
        emit("placed", 10 + (kind & 1), kind, 0, 9, NULL, 0);
    }
    emit("large", 0, ALLREDUCE, 1, 255, NULL, 0);
    for (size_t i = 0; i < SPR_ARRAY_LEN(faults); i++)
        emit(faults[i].name, 2 + (i & 1), (unsigned)i % KINDS, 0, 8, faults[i].bytes,
             faults[i].count);
    emit("chunk_sparse", 2, SPARSE, 0, 8, (const uint8_t[]){7, 1, 198, 8, 0, 5, 3, 2, 32}, 9);
    emit("odd", 0, 238 + ALLREDUCE, 0, 8, NULL, 0);
}
