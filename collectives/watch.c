/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/watch.h"

#include <stdio.h>

#include "base/log.h"
#include "transport/watch/watch.h"

/* What the dead rank sent is taken in, but not for longer than this: it may have ended because of
 * another one, and have said so. */
#define DRAIN_NS 10000000ull

void spr_comm_note_loss(spr_comm *comm, int peer, const char *text, bool death)
{
    const struct spr_channel_peer *p = &comm->channel.peers[peer];
    struct spr_loss *loss = &comm->loss;

    if (loss->count < comm->world) {
        loss->noted[loss->count].peer = peer;
        loss->noted[loss->count++].death = death;
    }
    if (!comm->error.status && !loss->pending && !p->left && !p->gone) {
        loss->pending = true;
        loss->death = death;
        loss->peer = peer;
        loss->drain_ns = UINT64_MAX;
        snprintf(loss->text, sizeof loss->text, "%s", text);
    }
    spr_comm_kick(comm);
}

static void on_lost(void *ctx, int peer, const char *text, bool death)
{
    spr_comm *comm = ctx;

    spr_comm_lock(comm);
    spr_comm_note_loss(comm, peer, text, death);
    spr_comm_unlock(comm);
}

/* After a failure: what a new epoch has to know. */
static void act_on_noted(spr_comm *comm)
{
    struct spr_loss *loss = &comm->loss;

    while (loss->count > 0) {
        int peer = loss->noted[--loss->count].peer;
        struct spr_channel_peer *p = spr_channel_peer(&comm->channel, peer);
        if (loss->noted[loss->count].death) {
            p->dead = true;
            spr_channel_cut(&comm->channel, peer);
        } else if (peer == comm->channel.rank) {
            loss->expelled = true;
        } else {
            p->expelled = true;
        }
    }
}

/* Noted during a failure that is over: a new epoch began before it was acted on. */
static void find_members(spr_comm *comm)
{
    const struct spr_loss *loss = &comm->loss;

    for (int i = 0; i < loss->count; i++) {
        const struct spr_channel_peer *p = spr_channel_peer(&comm->channel, loss->noted[i].peer);
        if (p->left || p->gone)
            continue;
        spr_comm_fail(comm, SPR_ERR_RANK_LOST, p->rank, -1,
                      loss->noted[i].death ? "its process died" : "expelled: no heartbeat");
        return;
    }
}

/* Time in which this rank had no CPU does not count. */
static bool is_drained(struct spr_loss *loss, int events, uint64_t now)
{
    if (loss->drain_ns == UINT64_MAX)
        loss->drain_ns = now;
    return events == 0 || now - loss->drain_ns >= DRAIN_NS;
}

void spr_comm_take_loss(spr_comm *comm, int events)
{
    struct spr_loss *loss = &comm->loss;
    struct spr_channel_peer *peer;

    if (comm->watch && events > 0)
        spr_watch_advance(comm->watch, events, comm->next_operation - 1);
    if (loss->pending && is_drained(loss, events, spr_now_ns(comm->clock))) {
        loss->pending = false;
        peer = spr_channel_peer(&comm->channel, loss->peer);
        if (!peer->left && !peer->gone && !comm->error.status) {
            peer->dead |= loss->death;
            spr_comm_fail(comm, SPR_ERR_RANK_LOST, peer->rank, -1, loss->text);
        }
    }
    if (loss->count > 0 && !loss->pending && !comm->error.status)
        find_members(comm);
    if (comm->error.status)
        act_on_noted(comm);
}

void spr_comm_judge(const spr_comm *comm, spr_status *status, int *blamed, int *told_by,
                    const char **cause, char *text)
{
    if (comm->watch && *status <= SPR_ERR_LINK && *status != SPR_ERR_EXPELLED &&
        spr_watch_expelled(comm->watch, text, SPR_LOSS_TEXT)) {
        *status = SPR_ERR_EXPELLED;
        *cause = text;
        *told_by = -1;
        *blamed = comm->rank;
    } else if (*blamed == comm->rank && *told_by >= 0 && *status == SPR_ERR_RANK_LOST) {
        *status = SPR_ERR_EXPELLED; /* the dead get no mail: they took us for dead */
    } else if (*blamed != comm->rank && *status == SPR_ERR_EXPELLED) {
        *status = SPR_ERR_RANK_LOST;
    }
}

void spr_comm_watch_open(spr_comm *comm)
{
    struct spr_watch_params params = {.rank = comm->rank,
                                      .size = comm->size,
                                      .options = &comm->options,
                                      .key = &comm->key,
                                      .loopback_only =
                                          comm->key.secret_bytes == 0 && !comm->options.insecure,
                                      .lost = on_lost,
                                      .ctx = comm};
    struct spr_error reason = {0};

    /* Ranks of other hosts need one of the other transports. */
    for (int i = 0; i < comm->transport_count; i++)
        params.mesh |= comm->transports[i]->ops != &spr_transport_shm;
    if (spr_watch_open(&params, &comm->watch, &reason) == SPR_OK)
        return;
    comm->counters.fallbacks++;
    spr_warn(SPR_SUB_WATCH, "no heartbeats, deaths show by their connections only: %s",
             reason.text);
}

void spr_comm_watch_begin(spr_comm *comm)
{
    int unseen = comm->watch ? spr_watch_begin(comm->watch, comm->peers) : 0;

    spr_comm_lock(comm);
    comm->counters.fallbacks += (uint64_t)unseen;
    spr_comm_unlock(comm);
}

bool spr_comm_watch_standing(void *ctx, int peer, struct spr_standing *standing)
{
    const spr_comm *comm = ctx;

    return comm->watch && spr_watch_standing(comm->watch, peer, standing);
}

void spr_comm_watch_close(spr_comm *comm)
{
    struct spr_watch *watch;

    spr_comm_lock(comm);
    watch = comm->watch;
    comm->watch = NULL;
    spr_comm_unlock(comm);
    spr_watch_close(watch);
}
