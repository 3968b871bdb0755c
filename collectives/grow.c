/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The public side of growing, and the newcomer's.
 */
#include "collectives/grow.h"

#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "collectives/create.h"
#include "collectives/decisions.h"
#include "collectives/membership.h"
#include "transport/bootstrap/secret.h"

spr_status spr_growth_broadcast(struct spr_growth *g, spr_comm *comm, void *data, size_t words,
                                int root)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_request *request = NULL;
    spr_status status;

    call.name = "grow";
    status = spr_ibroadcast(comm, data, words, SPR_INT32, root, &call, &request);
    if (status == SPR_OK)
        status = comm == g->old ? spr_growth_wait(g, &request) : spr_wait(&request, -1.0);
    return status ? spr_comm_failed_call(comm, status, g->error) : SPR_OK;
}

double spr_growth_wait_s(const struct spr_growth *g, const struct spr_options *options)
{
    return g->options->wait_s > 0 ? g->options->wait_s : options->init_timeout_s;
}

uint64_t spr_growth_way_in(const struct spr_growth *g, const struct spr_options *options)
{
    double wait_s = spr_growth_wait_s(g, options);

    if (wait_s < options->init_timeout_s)
        wait_s = options->init_timeout_s;
    return spr_monotonic_ns() + spr_seconds_ns(wait_s * spr_time_factor());
}

/* Both sides ----------------------------------------------------------------------------------- */

/* The communicator of the ticket, without links yet. Takes over *options. */
static spr_status make(struct spr_growth *g, int rank, struct spr_options *options,
                       const struct spr_auth_key *key)
{
    spr_status status = spr_comm_new(rank, g->ticket.size, options, &spr_clock_monotonic, &g->comm);

    if (status) {
        g->comm = NULL;
        return status;
    }
    memset(options, 0, sizeof *options); /* moved */
    g->comm->key = *key;
    g->comm->key.job = g->ticket.job;
    g->comm->key.epoch = g->ticket.epoch;
    g->comm->key.rank = rank;
    g->comm->key.size = g->ticket.size;
    spr_membership_start_at(g->comm, g->ticket.epoch);
    spr_log_set_rank(rank);
    spr_record_open(g->comm);
    return SPR_OK;
}

/* Newcomers ------------------------------------------------------------------------------------ */

static spr_status receive_ticket(struct spr_growth *g)
{
    struct spr_ticket *all = spr_calloc(g->meeting.size + 1, sizeof *all), *none;
    spr_status status;

    if (!all)
        return SPR_ERR_NOMEM;
    none = all + g->meeting.size;
    status = spr_bootstrap_allgather(&g->meeting, none, all, sizeof *all, g->deadline_ns, g->error);
    g->ticket = all[0];
    spr_free(all);
    if (status == SPR_OK && (g->ticket.size != (int32_t)g->meeting.size || g->ticket.members < 1 ||
                             g->ticket.members > (int32_t)g->meeting.rank ||
                             g->ticket.state_rank < 0 || g->ticket.state_rank >= g->ticket.members))
        status = spr_error_set(g->error, SPR_ERR_PROTO, 0, "rank 0 sent a ticket that is none");
    return status;
}

static spr_status join(struct spr_growth *g, struct spr_options *options, struct spr_auth_key *key)
{
    const spr_grow_options *o = g->options;
    struct spr_decisions *decisions = NULL; /* not followed, but the members have them, too */
    char place[SPR_MEETING_PLACE_BYTES];
    uint64_t deadline, decisions_hash;
    spr_status status = spr_comm_load_options(o->create, options, g->error);

    if (status == SPR_OK)
        status = spr_decisions_load(options, &decisions, &decisions_hash, g->error);
    spr_decisions_free(decisions);
    if (status == SPR_OK)
        status = spr_secret_load(o->create, key, g->error);
    if (status == SPR_OK)
        status = spr_meeting_place(o->meet, o->create, "", place, g->error);
    if (status)
        return status;
    key->config_hash = spr_comm_config_hash(options, decisions_hash);
    deadline =
        spr_monotonic_ns() + spr_seconds_ns(spr_growth_wait_s(g, options) * spr_time_factor());
    status = spr_meeting_join(place, key, key->secret_bytes == 0 && !options->insecure, deadline,
                              &g->meeting, g->error);
    g->met = status == SPR_OK;
    if (status == SPR_OK)
        status = spr_bootstrap_allgather(&g->meeting, NULL, NULL, 0, deadline, g->error);
    if (status)
        return status;
    g->deadline_ns = spr_growth_way_in(g, options);
    spr_meeting_seated(&g->meeting, g->deadline_ns);
    status = receive_ticket(g);
    if (status == SPR_OK)
        status = make(g, (int)g->meeting.rank, options, key);
    if (status)
        return status;
    snprintf(g->comm->meet, sizeof g->comm->meet, "%s", place);
    status = spr_comm_build(g->comm, &g->meeting, &g->meeting, g->deadline_ns, g->error);
    if (status == SPR_OK)
        status = spr_growth_hand_over(g);
    return status ? status : spr_growth_go(g);
}

static spr_status grow_newcomer(struct spr_growth *g)
{
    struct spr_options options = {0};
    struct spr_auth_key key = {0};
    spr_status status = join(g, &options, &key);

    spr_opt_free(spr_options_table, spr_options_count, &options);
    explicit_bzero(&key, sizeof key);
    return status;
}

/* Members -------------------------------------------------------------------------------------- */

static spr_status prepare(struct spr_growth *g)
{
    const spr_grow_options *o = g->options;
    struct spr_options options = {0};
    spr_status status;

    if (o->state_rank != g->ticket.state_rank)
        return spr_error_set(g->error, SPR_ERR_MISMATCH, g->old->rank,
                             "rank %d has state_rank %d, rank 0 has %d", g->old->rank,
                             o->state_rank, g->ticket.state_rank);
    status = spr_comm_copy_options(&g->old->options, &options);
    if (status == SPR_OK)
        status = make(g, g->old->rank, &options, &g->old->key);
    spr_opt_free(spr_options_table, spr_options_count, &options);
    if (status)
        return status;
    g->comm->rack_known = g->old->rack_known;
    g->comm->rack = g->old->rack;
    snprintf(g->comm->meet, sizeof g->comm->meet, "%s", o->meet ? o->meet : g->old->meet);
    return SPR_OK;
}

static spr_status grow_member(struct spr_growth *g)
{
    spr_status status = spr_growth_meet(g);
    spr_bootstrap boot;

    if (status)
        return status;
    status = prepare(g);
    spr_growth_bootstrap(g, &boot);
    if (status == SPR_OK)
        status =
            spr_comm_build(g->comm, &boot, g->met ? &g->meeting : NULL, g->deadline_ns, g->error);
    if (!g->exchanged)
        spr_growth_refuse(g, status);
    /* Nothing to vote on: all have failed, or a member was lost. */
    if (!g->addressed)
        return status;
    if (status == SPR_OK)
        status = spr_growth_hand_over(g);
    if (status && !g->error->status)
        spr_error_set(g->error, status, g->old->rank, "rank %d: %s", g->old->rank,
                      spr_status_string(status));
    if (status) {
        spr_comm_withdraw(g->comm, g->error->text);
        g->comm = NULL;
    }
    status = spr_growth_vote(g, status);
    if (status == SPR_OK)
        (void)spr_growth_go(g); /* from here on a failure is one of the new communicator */
    return status;
}

static bool is_busy(spr_comm *comm)
{
    bool busy;

    spr_comm_lock(comm);
    busy = !comm->error.status && !spr_list_empty(&comm->running);
    spr_comm_unlock(comm);
    return busy;
}

static spr_status check(spr_comm *comm, const spr_grow_options *o, spr_comm **grown)
{
    struct spr_error *error = spr_thread_error();

    if (!grown || (o && o->struct_size != sizeof *o))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "grow: nowhere to put the communicator, or options not set up with "
                             "SPR_GROW_OPTIONS_INIT");
    if (comm && comm->process != spr_process())
        return spr_comm_forked(comm);
    if (comm && (comm->left || is_busy(comm)))
        return spr_error_set(error, SPR_ERR_INVALID, comm->rank,
                             "grow: the communicator has grown already, or operations run on it");
    if (!comm || !o)
        return SPR_OK;
    if (o->state_rank < 0 || o->state_rank >= comm->size || (o->state_bytes && !o->state) ||
        o->newcomers < 0 || o->at_least < 0 || o->newcomers > SPR_MOST_NEWCOMERS ||
        o->at_least > (o->newcomers ? o->newcomers : 1))
        return spr_error_set(error, SPR_ERR_INVALID, comm->rank,
                             "grow: %d newcomers, at least %d; state of rank %d of %d, %zu bytes "
                             "at %p",
                             o->newcomers, o->at_least, o->state_rank, comm->size, o->state_bytes,
                             o->state);
    return SPR_OK;
}

spr_status spr_comm_grow(spr_comm *comm, const spr_grow_options *options, spr_comm **grown)
{
    const spr_grow_options defaults = SPR_GROW_OPTIONS_INIT;
    struct spr_error cause = {0}; /* the thread's own is cleared by the calls that are made here */
    struct spr_growth g = {.old = comm, .options = options ? options : &defaults, .error = &cause};
    spr_status status;

    spr_error_clear(spr_thread_error());
    status = check(comm, options, grown);
    if (status)
        return status;
    if (comm)
        comm->grow_first = comm->grow_end = comm->next_operation;
    status = comm ? grow_member(&g) : grow_newcomer(&g);
    if (comm)
        comm->grow_end = comm->next_operation;
    if (g.met && comm && status)
        spr_meeting_refuse(&g.meeting, status, cause.rank, cause.text);
    if (g.met)
        g.meeting.close(g.meeting.ctx);
    if (status) {
        if (!g.error->status)
            spr_error_set(g.error, status, -1, "%s", spr_status_string(status));
        spr_comm_withdraw(g.comm, cause.text);
        if (comm)
            spr_log_set_rank(comm->rank);
        *spr_thread_error() = cause;
        return status;
    }
    spr_comm_announce(g.comm);
    spr_info(SPR_SUB_INIT, "rank %d of %d (%d newcomer%s) in epoch %u", g.comm->rank, g.comm->size,
             g.ticket.size - g.ticket.members,
             spr_plural((uint64_t)(g.ticket.size - g.ticket.members)), g.ticket.epoch);
    *grown = g.comm;
    return SPR_OK;
}
