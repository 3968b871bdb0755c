/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"

static void must(spr_status status)
{
    if (status != SPR_OK)
        abort();
}

static void add_rank(struct world *w, int rank)
{
    struct spr_options options = {0};
    struct spr_error error = {0};
    spr_comm *comm;

    must(spr_opt_defaults(spr_options_table, spr_options_count, &options, &error));
    must(spr_comm_new(rank, w->ranks, &options, spr_sim_clock(w->sim), &comm));
    struct spr_transport_params params = {
        .rank = rank,
        .size = w->ranks,
        .epoch = comm->channel.epoch,
        .options = &comm->options,
        .events = &spr_channel_link_events,
        .up = &comm->channel,
        .clock = comm->clock,
        .counters = &comm->counters,
        .trace = comm->trace,
    };
    must(spr_sim_open(w->sim, &params, &comm->transports[0]));
    comm->transport_count = 1;
    for (int peer = 0; peer < w->ranks; peer++) {
        struct spr_link *link;
        if (peer == rank)
            continue;
        must(comm->transports[0]->ops->connect(comm->transports[0], peer, NULL, &link, &error));
        spr_channel_attach(&comm->channel, link, true);
    }
    w->comms[rank] = comm;
}

void world_create(struct world *w, const struct spr_sim_options *options)
{
    memset(w, 0, sizeof *w);
    w->ranks = options->ranks;
    w->sim = spr_sim_create(options);
    if (!w->sim)
        abort();
    for (int r = 0; r < w->ranks; r++)
        add_rank(w, r);
    for (int r = 0; r < w->ranks; r++)
        spr_comm_progress_locked(w->comms[r]);
}

void world_destroy(struct world *w)
{
    for (int r = 0; r < w->ranks; r++)
        spr_comm_free(w->comms[r]);
    spr_sim_destroy(w->sim);
}

/* One round over all ranks, in an order that changes. Returns the events. */
static int progress_all(struct world *w, uint64_t round)
{
    int events = 0;

    for (int i = 0; i < w->ranks; i++) {
        int r = (int)((uint64_t)i + round) % w->ranks;
        if (spr_sim_runs(w->sim, r))
            events += spr_comm_progress_locked(w->comms[r]);
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
    }
    return all;
}

bool world_run(struct world *w, uint64_t limit_ns)
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
