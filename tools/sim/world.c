/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/world.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "collectives/comm.h"
#include "collectives/indices.h"

/* One end of a link. Payloads need no checksums here. */
static void link_end(struct world *world, int rank, int peer)
{
    spr_comm *comm = world->comms[rank];
    struct spr_transport *sim = comm->transports[comm->transport_count - 1];
    struct spr_error error = {0};
    struct spr_link *link;

    if (!comm->channel.peers[peer].link &&
        sim->ops->connect(sim, peer, NULL, &link, &error) == SPR_OK)
        spr_channel_attach(&comm->channel, link, false);
}

static void link_pair(void *ctx, int peer)
{
    const struct member *m = ctx;

    link_end(m->world, m->rank, peer);
    link_end(m->world, peer, m->rank);
}

/* Of the host of a rank. */
static double port_rate(const struct options *o, int ranks, int rank, double rate)
{
    return rank / o->ranks_per_host == (ranks - 1) / o->ranks_per_host ? rate / o->slow : rate;
}

/* One rank's communicator, which knows who shares its host, linked to none but itself. */
static spr_status new_comm(spr_comm **out, int rank, int ranks, const struct options *o,
                           double rate, const struct spr_clock *clock, struct spr_error *error)
{
    /* Both may be 65536, which is a rack, or a host, of all ranks. */
    int64_t per_rack = (int64_t)o->ranks_per_host * (o->hosts_per_rack > 0 ? o->hosts_per_rack : 1);
    struct spr_options options = {0};
    spr_comm *comm;
    spr_status status = spr_opt_load(spr_options_table, spr_options_count, &options, error);

    if (status)
        return status;
    if (options.indices == SPR_INDICES_AUTO) /* its transport does not say how fast it is */
        options.indices = spr_indices_of_model(&(struct spr_model){.byte = 8 / rate});
    status = spr_comm_new(rank, ranks, &options, clock, &comm);
    if (status) {
        spr_opt_free(spr_options_table, spr_options_count, &options);
        return status;
    }
    for (int peer = 0; peer < ranks; peer++) {
        comm->topology.identity[peer] = peer - peer % o->ranks_per_host;
        comm->topology.rack_identity[peer] = peer - (int)(peer % per_rack);
        comm->topology.rate[peer] =
            (uint32_t)fmin(port_rate(o, ranks, peer, rate) / 1e3, UINT32_MAX);
    }
    spr_topology_update(&comm->topology, comm->ids, ranks);
    *out = comm;
    return SPR_OK;
}

spr_status world_choose(const struct options *options, int ranks, double link,
                        const struct spr_plan *plan, const char *name, const char **algorithm,
                        struct spr_error *error)
{
    spr_comm *comm;
    spr_status status = new_comm(&comm, 0, ranks, options, link, &spr_clock_monotonic, error);
    const struct spr_algorithm *a;

    if (status)
        return spr_error_set(error, status, -1, "%s", spr_status_string(status));
    a = spr_algorithm_select(comm, plan, name, error);
    *algorithm = a ? a->name : NULL;
    spr_comm_free(comm);
    return SPR_OK;
}

static spr_status add_rank(struct world *world, int rank, const struct options *o, double rate,
                           struct spr_error *error)
{
    spr_comm *comm;
    spr_status status =
        new_comm(&comm, rank, world->ranks, o, rate, spr_sim_clock(world->sim), error);

    if (status)
        return status;
    world->comms[rank] = comm;
    struct spr_transport_params params = spr_comm_transport_params(comm);
    status = spr_sim_open(world->sim, &params, &comm->transports[comm->transport_count]);
    if (status)
        return status;
    comm->transport_count++;
    world->members[rank] = (struct member){world, rank};
    comm->channel.link = link_pair;
    comm->channel.link_ctx = &world->members[rank];
    return SPR_OK;
}

static void look_at_memory(struct world *world)
{
    int64_t now = spr_mem_live_bytes();

    if (now > world->peak_bytes)
        world->peak_bytes = now;
}

spr_status world_open(struct world *world, const struct options *options, int ranks, double link,
                      struct spr_error *error)
{
    const struct spr_sim_options network = {
        .ranks = ranks,
        .seed = options->seed,
        .latency_s = options->latency_s,
        .bandwidth = link,
        .ranks_per_host = options->ranks_per_host,
        .local_latency_s = options->local_latency_s,
        .local_bandwidth = options->local_link,
        .hosts_per_rack = options->hosts_per_rack,
        .oversubscription = options->oversubscription,
        .rack_latency_s = options->rack_latency_s,
    };
    spr_status status = SPR_OK;

    *world = (struct world){.ranks = ranks, .base_bytes = spr_mem_live_bytes()};
    world->sim = spr_sim_create(&network);
    world->members = calloc((size_t)ranks, sizeof *world->members);
    world->comms = calloc((size_t)ranks, sizeof(spr_comm *));
    world->requests = calloc((size_t)ranks, sizeof(spr_request *));
    if (!world->sim || !world->members || !world->comms || !world->requests)
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "out of memory");
    for (int r = 0; status == SPR_OK && r < ranks; r++)
        status = add_rank(world, r, options, link, error);
    for (int r = 0; status == SPR_OK && r < ranks; r++)
        spr_sim_slow(world->sim, r, port_rate(options, ranks, r, link), 0);
    if (status) {
        /* Unless there is a text already. */
        spr_error_set(error, status, -1, "%s", spr_status_string(status));
        world_close(world);
    }
    return status;
}

void world_close(struct world *world)
{
    for (int r = 0; world->comms != NULL && r < world->ranks; r++)
        if (world->comms[r] != NULL)
            spr_comm_free(world->comms[r]);
    if (world->sim != NULL)
        spr_sim_destroy(world->sim);
    free(world->members);
    free(world->comms);
    free(world->requests);
    *world = (struct world){0};
}

static void on_complete(void *ctx, spr_status status)
{
    struct world *world = ctx;

    (void)status;
    world->running--;
    world->end_ns = spr_now_ns(spr_sim_clock(world->sim));
}

static void progress(struct world *world, int rank)
{
    while (spr_comm_progress_locked(world->comms[rank]) > 0)
        ;
}

/* Until all are done. What only the passing of time would end is stuck. */
static bool run(struct world *world)
{
    for (int r = 0; r < world->ranks; r++)
        progress(world, r);
    while (world->running > 0) {
        for (int r = spr_sim_next_with_work(world->sim, 0); r >= 0;
             r = spr_sim_next_with_work(world->sim, r + 1))
            progress(world, r);
        look_at_memory(world);
        if (world->running > 0 && !spr_sim_advance(world->sim))
            return false;
    }
    return true;
}

/* Takes all requests, the running ones too, which a failure ends. */
static spr_status take_results(struct world *world, struct spr_error *error)
{
    spr_status first = SPR_OK;

    for (int r = 0; r < world->ranks; r++) {
        spr_status status = world->requests[r] ? spr_test(&world->requests[r]) : SPR_OK;
        if (status && first == SPR_OK)
            first = spr_error_set(error, status, r, "rank %d: %s", r,
                                  status == SPR_IN_PROGRESS ? "waits for messages that nobody sends"
                                                            : spr_last_error(world->comms[r]));
    }
    return first;
}

spr_status world_run(struct world *world, post_fn *post, void *ctx, struct spr_error *error)
{
    spr_status status = SPR_OK;

    world->begin_ns = world->end_ns = spr_now_ns(spr_sim_clock(world->sim));
    for (int r = 0; r < world->ranks; r++) {
        status = post(ctx, r, world->comms[r], &world->requests[r]);
        if (status)
            return spr_error_set(error, status, r, "%s", spr_last_error(NULL));
        world->running++;
        spr_on_complete(world->requests[r], on_complete, world);
        look_at_memory(world);
    }
    (void)run(world);
    return take_results(world, error);
}
