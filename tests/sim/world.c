/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "collectives/comm.h"
#include "collectives/membership.h"
#include "compress/zstd.h"

static void must(spr_status status)
{
    if (status != SPR_OK)
        abort();
}

/* As on one host, where a board can be read whatever the links do. */
static bool standing_of(void *ctx, int peer, struct spr_standing *standing)
{
    const struct world *w = ctx;

    if (!w->comms[peer])
        return false;
    *standing = (struct spr_standing){.posted = w->comms[peer]->next_operation - 1};
    return true;
}

static void add_rank(struct world *w, int rank)
{
    struct spr_options options = {0};
    struct spr_error error = {0};
    spr_comm *comm;

    must(spr_opt_defaults(spr_options_table, spr_options_count, &options, &error));
    must(spr_comm_new(rank, w->ranks, &options, spr_sim_clock(w->sim), &comm));
    struct spr_transport_params params = spr_comm_transport_params(comm);
    struct spr_transport **sim = &comm->transports[comm->transport_count];
    must(spr_sim_open(w->sim, &params, sim));
    comm->transport_count++;
    for (int peer = 0; peer < w->ranks; peer++) {
        struct spr_link *link;
        if (peer == rank)
            continue;
        must((*sim)->ops->connect(*sim, peer, NULL, &link, &error));
        spr_channel_attach(&comm->channel, link, true);
    }
    comm->standing = standing_of;
    comm->standing_ctx = w;
    w->comms[rank] = comm;
}

void world_set_indices(struct world *w, int indices)
{
    for (int r = 0; r < w->ranks; r++)
        if (w->comms[r])
            w->comms[r]->options.indices = indices;
}

bool world_set_zstd(struct world *w, int level)
{
    if (!spr_zstd_is_built_in())
        return false;
    for (int r = 0; r < w->ranks; r++) {
        if (!w->comms[r])
            continue;
        w->comms[r]->options.zstd = level;
        must(spr_zstd_create(level, &w->comms[r]->zstd));
    }
    return true;
}

void world_set_determinism(struct world *w, int level)
{
    for (int r = 0; r < w->ranks; r++)
        if (w->comms[r])
            w->comms[r]->options.determinism = level;
}

void world_set_model(struct world *w, const struct spr_model *model)
{
    for (int r = 0; r < w->ranks; r++)
        w->comms[r]->model = *model;
}

void world_share_hosts(struct world *w, const int *host)
{
    for (int r = 0; r < w->ranks - (w->liar ? 1 : 0); r++) {
        struct spr_topology *t = &w->comms[r]->topology;
        for (int peer = w->ranks - 1; peer >= 0; peer--)
            for (int same = peer; same >= 0; same--)
                if (host[same] == host[peer])
                    t->identity[peer] = same;
        spr_topology_update(t, w->comms[r]->ids, w->ranks);
    }
}

void world_share_racks(struct world *w, const int *host, const int *rack)
{
    for (int r = 0; r < w->ranks - (w->liar ? 1 : 0); r++)
        for (int peer = w->ranks - 1; peer >= 0; peer--)
            for (int same = peer; same >= 0; same--)
                if (rack[host[same]] == rack[host[peer]])
                    w->comms[r]->topology.rack_identity[peer] = same;
    world_share_hosts(w, host);
}

void world_set_rates(struct world *w, const uint32_t *rate)
{
    for (int r = 0; r < w->ranks - (w->liar ? 1 : 0); r++) {
        struct spr_topology *t = &w->comms[r]->topology;
        memcpy(t->rate, rate, (size_t)w->ranks * sizeof *rate);
        spr_topology_update(t, w->comms[r]->ids, w->ranks);
    }
}

void world_draw_hosts(struct world *w, struct spr_rng *rng)
{
    int host[WORLD_MAX], rack[WORLD_MAX];
    uint64_t hosts = 1 + (uint64_t)w->ranks / 2, racks = 1 + spr_rng_below(rng, hosts);

    for (int r = 0; r < w->ranks; r++)
        host[r] = (int)spr_rng_below(rng, hosts);
    for (int h = 0; h < w->ranks; h++)
        rack[h] = (int)spr_rng_below(rng, racks);
    world_share_racks(w, host, rack);
}

/* The liar's end ------------------------------------------------------------------------------- */

struct lie {
    struct spr_tx tx;
    char data[];
};

static void liar_up(struct spr_link *link) { (void)link; }

static spr_status liar_header(struct spr_link *link, const struct spr_frame *frame,
                              struct spr_rx *rx)
{
    struct liar *liar = link->transport->params.up;

    if (liar->heard_count < SPR_ARRAY_LEN(liar->heard))
        liar->heard[liar->heard_count++] = *frame;
    rx->sink = SPR_SINK_DROP;
    return SPR_OK;
}

static void liar_payload(struct spr_link *link, const struct spr_frame *frame, const void *data,
                         void *token)
{
    (void)link;
    (void)frame;
    (void)data;
    (void)token;
}

static void liar_sent(struct spr_link *link, struct spr_tx *tx)
{
    (void)link;
    spr_free(spr_container_of(tx, struct lie, tx));
}

static void liar_down(struct spr_link *link, spr_status why, const char *text)
{
    (void)link;
    (void)why;
    (void)text;
}

static const struct spr_link_events liar_events = {liar_up, liar_header, liar_payload, liar_sent,
                                                   liar_down};

static void add_liar(struct world *w, struct liar *liar)
{
    struct spr_error error = {0};
    struct spr_transport_params params = {
        .rank = w->ranks - 1,
        .size = w->ranks,
        .epoch = 1,
        .events = &liar_events,
        .up = liar,
        .clock = spr_sim_clock(w->sim),
        .counters = &liar->counters,
    };

    memset(liar, 0, sizeof *liar);
    liar->world = w;
    w->liar = liar;
    must(spr_sim_open(w->sim, &params, &liar->transport));
    for (int peer = 0; peer < w->ranks - 1; peer++)
        must(
            liar->transport->ops->connect(liar->transport, peer, NULL, &liar->links[peer], &error));
}

struct spr_frame liar_frame(struct liar *liar, int to, enum spr_frame_type type, uint32_t operation,
                            uint32_t step, uint64_t descriptor)
{
    return (struct spr_frame){.type = (uint8_t)type,
                              .epoch = 1,
                              .sequence = liar->sequence[to]++,
                              .operation = operation,
                              .step = step,
                              .descriptor = descriptor};
}

void liar_send(struct liar *liar, int to, const struct spr_frame *f, const void *data)
{
    size_t bytes = data ? f->bytes : 0;
    struct lie *lie = spr_calloc(1, sizeof *lie + bytes);

    if (!lie)
        abort();
    lie->tx.header = *f;
    lie->tx.data = lie->data;
    if (bytes)
        memcpy(lie->data, data, bytes);
    liar->transport->ops->send(liar->links[to], &lie->tx);
}

void liar_send_sealed(struct liar *liar, int to, struct spr_frame f, const void *data)
{
    if (f.bytes) {
        f.flags |= SPR_FRAME_CRC;
        f.payload_crc = spr_crc32c(0, data, f.bytes);
    }
    spr_frame_seal(&f);
    liar_send(liar, to, &f, data);
}

/* The world ------------------------------------------------------------------------------------ */

static int progress(struct world *w, int rank)
{
    if (w->before)
        w->before(w, rank);
    return w->comms[rank] ? spr_comm_progress_locked(w->comms[rank])
                          : w->liar->transport->ops->progress(w->liar->transport);
}

static void create(struct world *w, const struct spr_sim_options *options, struct liar *liar)
{
    memset(w, 0, sizeof *w);
    w->ranks = options->ranks;
    w->sim = spr_sim_create(options);
    if (!w->sim)
        abort();
    for (int r = 0; r < w->ranks - (liar ? 1 : 0); r++)
        add_rank(w, r);
    if (liar)
        add_liar(w, liar);
    for (int r = 0; r < w->ranks; r++)
        progress(w, r);
}

void world_create(struct world *w, const struct spr_sim_options *options)
{
    create(w, options, NULL);
}

void world_create_liar(struct world *w, const struct spr_sim_options *options, struct liar *liar)
{
    create(w, options, liar);
}

void world_destroy(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (w->comms[r])
            spr_comm_free(w->comms[r]);
    if (w->liar) {
        /* What was handed over comes back first. */
        while (!w->liar->transport->ops->idle(w->liar->transport) && spr_sim_advance(w->sim))
            progress(w, w->ranks - 1);
        w->liar->transport->ops->close(w->liar->transport);
    }
    spr_sim_destroy(w->sim);
}

void world_settle(struct world *w, int rounds)
{
    uint64_t until = spr_now_ns(spr_sim_clock(w->sim));

    while (rounds-- > 0) {
        until += 1000000;
        while (spr_now_ns(spr_sim_clock(w->sim)) < until) {
            for (int r = 0; r < w->ranks; r++)
                progress(w, r);
            spr_sim_sleep(w->sim, until);
        }
    }
}

/* One round over all ranks, in an order that changes. Returns the events. */
static int progress_all(struct world *w, uint64_t round)
{
    int events = 0;

    for (int i = 0; i < w->ranks; i++) {
        int r = (int)((uint64_t)i + round) % w->ranks;
        if (spr_sim_runs(w->sim, r))
            events += progress(w, r);
    }
    return events;
}

static bool collect(struct world *w)
{
    bool all = true;

    for (int r = 0; r < w->ranks; r++) {
        if (!w->requests[r] || !spr_sim_runs(w->sim, r))
            continue;
        w->results[r] = spr_test(&w->requests[r]);
        all &= w->requests[r] == NULL;
        if (w->lazy && !w->requests[r])
            spr_sim_pause(w->sim, r, spr_now_ns(spr_sim_clock(w->sim)), UINT64_MAX);
    }
    return all;
}

static bool run(struct world *w, uint64_t limit_ns)
{
    const struct spr_clock *clock = spr_sim_clock(w->sim);

    for (int r = 0; r < w->ranks; r++)
        w->results[r] = SPR_IN_PROGRESS;
    for (uint64_t round = 0;; round++) {
        bool moved = progress_all(w, round) > 0;
        if (collect(w))
            return true;
        if (moved)
            continue;
        if (spr_now_ns(clock) >= limit_ns)
            return false;
        /* Deadlines need time to pass even when no frame is under way. */
        spr_sim_sleep(w->sim, spr_now_ns(clock) + 10000000);
    }
}

bool world_run(struct world *w, uint64_t limit_ns)
{
    bool ok = run(w, limit_ns);

    for (int r = 0; w->lazy && r < w->ranks; r++)
        spr_sim_pause(w->sim, r, 0, 0);
    return ok;
}

/* What the watch would tell of the ranks that were killed. */
static void tell_of_the_dead(struct world *w)
{
    for (int dead = 0; dead < w->ranks; dead++)
        for (int r = 0; spr_sim_is_dead(w->sim, dead) && r < w->ranks; r++)
            w->comms[r]->channel.peers[dead].dead = true;
}

static void look_at_epochs(struct world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        uint32_t epoch = w->comms[r] ? w->comms[r]->channel.epoch : 0;
        if (w->comms[r] && epoch != w->epochs[r] && w->epochs[r] && w->entered)
            w->entered(w->entered_ctx, r);
        w->epochs[r] = epoch;
    }
}

bool world_shrink(struct world *w, const uint64_t *delays_ns, uint64_t patience_ns,
                  uint64_t limit_ns, spr_status *statuses)
{
    const struct spr_clock *clock = spr_sim_clock(w->sim);
    uint64_t start = spr_now_ns(clock), over_ns = 0;
    uint64_t quiet_ns = (uint64_t)(300e6 * spr_time_factor());
    bool begun[WORLD_MAX] = {false};

    for (int r = 0; r < w->ranks; r++)
        statuses[r] = SPR_IN_PROGRESS;
    look_at_epochs(w);
    for (uint64_t round = 0;; round++) {
        bool moved = progress_all(w, round) > 0, over = true;
        uint64_t now = spr_now_ns(clock);
        look_at_epochs(w);
        tell_of_the_dead(w);
        for (int r = 0; r < w->ranks; r++) {
            if (!spr_sim_runs(w->sim, r))
                continue;
            /* Its next operation would fail: it calls again. */
            if (statuses[r] == SPR_OK && w->comms[r]->error.status) {
                statuses[r] = SPR_IN_PROGRESS;
                begun[r] = false;
            }
            if (statuses[r] == SPR_IN_PROGRESS && now >= start + (delays_ns ? delays_ns[r] : 0)) {
                if (!begun[r])
                    spr_membership_begin(w->comms[r], patience_ns);
                begun[r] = true;
                statuses[r] = spr_membership_step(w->comms[r]);
                moved |= statuses[r] != SPR_IN_PROGRESS;
                if (statuses[r] != SPR_IN_PROGRESS)
                    spr_membership_end(w->comms[r]);
                look_at_epochs(w);
            }
            over &= statuses[r] != SPR_IN_PROGRESS;
        }
        /* A link that is lost just now, or cut behind those who are left out, is noticed. */
        over_ns = !over ? 0 : over_ns ? over_ns : now;
        if (over && now >= over_ns + quiet_ns && spr_sim_is_quiet(w->sim))
            return true;
        if (moved)
            continue;
        if (now >= limit_ns)
            return false;
        spr_sim_sleep(w->sim, now + (over ? quiet_ns / 4 : 1000000));
    }
}
