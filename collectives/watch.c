/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/watch.h"

#include <stdio.h>

#include "base/log.h"
#include "transport/watch/watch.h"

/* What the dead rank sent is taken in, but not for longer than this. */
#define DRAIN_NS 10000000ull

static void on_lost(void *ctx, int peer, const char *text, bool death)
{
    spr_comm *comm = ctx;

    pthread_mutex_lock(&comm->lock);
    if (death && comm->loss.dead < comm->world) {
        comm->loss.dead_peers[comm->loss.dead++] = peer;
        spr_comm_kick(comm);
    }
    if (!comm->error.status && !comm->loss.pending && !comm->channel.peers[peer].left &&
        !comm->channel.peers[peer].gone) {
        comm->loss.pending = true;
        comm->loss.death = death;
        comm->loss.peer = peer;
        comm->loss.noted_ns = spr_now_ns(comm->clock);
        snprintf(comm->loss.text, sizeof comm->loss.text, "%s", text);
        spr_comm_kick(comm);
    }
    pthread_mutex_unlock(&comm->lock);
}

void spr_comm_take_loss(spr_comm *comm, int events)
{
    struct spr_loss *loss = &comm->loss;
    struct spr_channel_peer *peer;

    if (comm->watch && events > 0)
        spr_watch_advance(comm->watch, events);
    if (loss->pending && (events == 0 || spr_now_ns(comm->clock) - loss->noted_ns >= DRAIN_NS)) {
        loss->pending = false;
        peer = &comm->channel.peers[loss->peer];
        if (!peer->left && !peer->gone && !comm->error.status) {
            peer->dead |= loss->death;
            spr_comm_fail(comm, SPR_ERR_RANK_LOST, peer->rank, -1, loss->text);
        }
    }
    while (loss->dead > 0 && comm->error.status) {
        int dead = loss->dead_peers[--loss->dead];
        comm->channel.peers[dead].dead = true;
        spr_channel_cut(&comm->channel, dead);
    }
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

    comm->loss.dead_peers = spr_calloc((size_t)comm->size, sizeof *comm->loss.dead_peers);
    if (!comm->loss.dead_peers) {
        spr_warn(SPR_SUB_WATCH, "no heartbeats: no memory");
        return;
    }
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

    pthread_mutex_lock(&comm->lock);
    comm->counters.fallbacks += (uint64_t)unseen;
    pthread_mutex_unlock(&comm->lock);
}

void spr_comm_watch_close(spr_comm *comm)
{
    struct spr_watch *watch;

    pthread_mutex_lock(&comm->lock);
    watch = comm->watch;
    comm->watch = NULL;
    pthread_mutex_unlock(&comm->lock);
    spr_watch_close(watch);
    pthread_mutex_lock(&comm->lock);
    spr_free(comm->loss.dead_peers);
    comm->loss.dead_peers = NULL;
    comm->loss.dead = 0;
    pthread_mutex_unlock(&comm->lock);
}
