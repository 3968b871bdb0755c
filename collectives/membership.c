/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/membership.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/collective.h"
#include "collectives/dispute.h"
#include "transport/watch/watch.h"

#define MAP_BYTES (SPR_MEMBERSHIP_MAX / 8)

enum { VIEW_SHRINKING = 1, VIEW_READY = 2 };

/* Payload of a VIEW frame. Bitmaps are indexed by peer. */
struct view {
    uint32_t epoch;            /* the sender's */
    uint32_t first_operation;  /* of that epoch */
    struct spr_outcome common; /* operations of earlier ones that are complete on all its members */
    uint8_t out[MAP_BYTES];    /* no members of that epoch */
    uint32_t flags;
    uint32_t next_operation;   /* SHRINKING: the sender's own */
    struct spr_outcome done;   /* SHRINKING: operations that are complete there */
    uint8_t lost[MAP_BYTES];   /* SHRINKING: no members of the next epoch */
    uint8_t silent[MAP_BYTES]; /* of these: without proof of death */
};
_Static_assert(sizeof(struct view) <= SPR_NOTE_BYTES, "a view fits the channel's own frames");

struct member {
    bool told, ready; /* what it said of this epoch */
    bool parted;      /* it is in an epoch without this rank: whatever ends its connection */
    uint32_t next_operation;
    struct spr_outcome done;
    uint8_t lost[MAP_BYTES];
};

struct spr_membership {
    bool active, expelled;
    struct view self; /* what this rank says; in an epoch, `lost` only grows */
    bool changed;     /* ... since it was said last */
    int coordinator;
    uint64_t since_ns, patience_ns; /* since when nothing has changed */
    int redo;
    struct spr_outcome common; /* of the last epoch that had any */
    struct member *members;    /* [world] */
    int *rank_of;              /* [world] */
};

static bool has(const uint8_t *map, int peer) { return map[peer / 8] >> (peer % 8) & 1; }

static void add(uint8_t *map, int peer) { map[peer / 8] |= (uint8_t)(1u << (peer % 8)); }

spr_status spr_membership_new(spr_comm *comm)
{
    struct spr_membership *m = spr_calloc(1, sizeof *m);

    comm->membership = m;
    if (!m)
        return SPR_ERR_NOMEM;
    m->members = spr_calloc((size_t)comm->world, sizeof *m->members);
    m->rank_of = spr_calloc((size_t)comm->world, sizeof *m->rank_of);
    m->self.epoch = comm->channel.epoch;
    m->self.first_operation = 1;
    return m->members && m->rank_of ? SPR_OK : SPR_ERR_NOMEM;
}

void spr_membership_start_at(spr_comm *comm, uint32_t epoch)
{
    comm->channel.epoch = comm->membership->self.epoch = epoch;
}

void spr_membership_free(spr_comm *comm)
{
    if (!comm->membership)
        return;
    spr_free(comm->membership->members);
    spr_free(comm->membership->rank_of);
    spr_free(comm->membership);
}

/* Talking -------------------------------------------------------------------------------------- */

static void tell(spr_comm *comm, int peer)
{
    struct spr_membership *m = comm->membership;

    if (peer != comm->channel.rank)
        spr_channel_note(&comm->channel, peer, SPR_FRAME_VIEW, 0, 0, 0, &m->self, sizeof m->self);
}

/* `but`: not those. */
static void tell_all(spr_comm *comm, const uint8_t *but)
{
    for (int i = 0; i < comm->world; i++)
        if (!has(but, i))
            tell(comm, i);
}

/* Whom we have lost ---------------------------------------------------------------------------- */

static void lose(spr_comm *comm, int peer, bool silent, const char *why)
{
    struct spr_membership *m = comm->membership;

    if (has(m->self.lost, peer)) {
        /* Proof may come later. */
        if (!silent && has(m->self.silent, peer)) {
            m->self.silent[peer / 8] &= (uint8_t) ~(1u << (peer % 8));
            m->changed = true;
        }
        return;
    }
    spr_info(SPR_SUB_COLL, "shrink: rank %d%s%s is left out: %s",
             spr_channel_peer(&comm->channel, peer)->rank, comm->peers ? " on host " : "",
             comm->peers ? comm->peers[peer].host : "", why);
    add(m->self.lost, peer);
    if (silent)
        add(m->self.silent, peer);
    m->changed = true;
}

/* What the links and the error say. */
static void look_around(spr_comm *comm)
{
    struct spr_membership *m = comm->membership;
    int blamed = -1;

    if (comm->error.status == SPR_ERR_RANK_LOST && comm->error.rank >= 0 &&
        comm->error.rank < comm->size)
        blamed = comm->ids[comm->error.rank];
    for (int i = 0; i < comm->world; i++) {
        const struct spr_channel_peer *p = &comm->channel.peers[i];
        bool said_bye = p->left && p->bye;
        if (i == comm->channel.rank || has(m->self.out, i))
            continue;
        if (p->down || said_bye)
            lose(comm, i, (!p->dead && !said_bye) || m->members[i].parted,
                 said_bye ? "it has left" : "its connection ended");
        else if (p->expelled)
            lose(comm, i, true, "this rank has expelled it");
    }
    if (blamed >= 0 && blamed != comm->channel.rank)
        lose(comm, blamed, !comm->channel.peers[blamed].dead || m->members[blamed].parted,
             "it is reported lost");
}

static int lowest_left(const spr_comm *comm)
{
    int i = 0;

    while (i < comm->world && has(comm->membership->self.lost, i))
        i++;
    return i;
}

/* A group must outnumber those that may be alive somewhere else; of two halves the one with the
 * lowest rank goes on. */
static bool is_quorate(const spr_comm *comm)
{
    const struct view *v = &comm->membership->self;
    int left = 0, silent = 0, lowest = -1;

    for (int i = 0; i < comm->world; i++) {
        bool is_left = !has(v->lost, i), is_silent = !has(v->out, i) && has(v->silent, i);
        left += is_left;
        silent += is_silent;
        if (lowest < 0 && (is_left || is_silent))
            lowest = i;
    }
    return left > silent || (left == silent && !has(v->lost, lowest));
}

/* The next epoch ------------------------------------------------------------------------------- */

/* Is there an operation in it of the epoch that began with this one? If not, it says nothing of
 * those before, which may have failed. */
static bool has_any(const struct spr_outcome *common, uint32_t first)
{
    static const struct spr_outcome none;

    return common->completed != first - 1 ||
           memcmp(common->later, none.later, sizeof none.later) != 0;
}

/* This rank is in the epoch that `next` describes. */
static void enter(spr_comm *comm, const struct view *next)
{
    struct spr_membership *m = comm->membership;
    struct view *v = &m->self, last = m->self;
    int size = 0;

    v->epoch = next->epoch;
    v->first_operation = next->first_operation;
    v->common = next->common;
    if (has_any(&next->common, last.first_operation))
        m->common = next->common;
    memcpy(v->out, next->out, sizeof v->out);
    m->redo +=
        spr_outcome_surplus(&comm->done, &v->common) -
        spr_outcome_surplus_between(&comm->done, &v->common, comm->grow_first, comm->grow_end);
    spr_outcome_revoke(comm, &v->common);
    for (int i = 0; i < comm->world; i++) {
        m->rank_of[i] = has(v->out, i) ? -1 : size;
        if (!has(v->out, i))
            comm->ids[size++] = i;
        else if (comm->watch)
            spr_watch_forget(comm->watch, i);
        m->members[i] = (struct member){.parted = m->members[i].parted};
    }
    comm->size = size;
    spr_topology_update(&comm->topology, comm->ids, size);
    spr_model_new_era(comm);
    comm->rank = m->rank_of[comm->channel.rank];
    comm->next_operation = v->first_operation;
    comm->done =
        (struct spr_outcome){.completed = v->first_operation - 1}; /* of this epoch: none */
    comm->cause_told = false;
    comm->loss.pending = false;
    spr_error_clear(&comm->error);
    spr_dispute_clear(comm);
    spr_channel_new_epoch(&comm->channel, v->epoch, m->rank_of, v->first_operation);
    spr_comm_leave_behind(comm);
    v->flags = VIEW_READY;
    memcpy(v->lost, v->out, sizeof v->lost);
    for (int i = 0; i < MAP_BYTES; i++)
        v->silent[i] &= v->out[i];
    m->since_ns = spr_now_ns(comm->clock);
    m->coordinator = -1;
    /* The expelled learn it, too, if they can hear. */
    tell_all(comm, last.out);
    /* Who was lost between the agreement and now. */
    for (int r = 0; r < size; r++) {
        const struct spr_channel_peer *p = &comm->channel.peers[comm->ids[r]];
        if (r != comm->rank && (p->down || p->left || p->expelled))
            spr_comm_fail(comm, SPR_ERR_RANK_LOST, r, -1, "it was lost while the group was formed");
    }
}

/* As coordinator: all that are left have told the same set. */
static void lead(spr_comm *comm)
{
    const struct spr_membership *m = comm->membership;
    struct view next = {
        .epoch = m->self.epoch + 1, .first_operation = comm->next_operation, .common = comm->done};

    memcpy(next.out, m->self.lost, sizeof next.out);
    for (int i = 0; i < comm->world; i++) {
        const struct member *member = &m->members[i];
        if (has(next.out, i) || i == comm->channel.rank)
            continue;
        if ((int32_t)(member->next_operation - next.first_operation) > 0)
            next.first_operation = member->next_operation;
        spr_outcome_intersect(&next.common, &member->done);
    }
    enter(comm, &next);
}

/* Calls ---------------------------------------------------------------------------------------- */

void spr_membership_begin(spr_comm *comm, uint64_t patience_ns)
{
    struct spr_membership *m = comm->membership;

    if (!comm->error.status)
        spr_comm_fail(comm, SPR_ERR_REVOKED, comm->rank, -1, "it called spr_comm_shrink()");
    m->active = true;
    m->changed = true;
    m->coordinator = -1;
    m->patience_ns = patience_ns;
    m->redo = 0;
}

void spr_membership_end(spr_comm *comm) { comm->membership->active = false; }

static spr_status await_ready(spr_comm *comm, uint64_t now)
{
    const struct spr_membership *m = comm->membership;

    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank || m->members[comm->ids[r]].ready)
            continue;
        if (now - m->since_ns > 2 * m->patience_ns)
            spr_comm_fail(comm, SPR_ERR_RANK_LOST, r, -1, "it does not answer");
        return SPR_IN_PROGRESS;
    }
    return SPR_OK;
}

static bool agrees(const struct spr_membership *m, int peer)
{
    return m->members[peer].told &&
           !memcmp(m->members[peer].lost, m->self.lost, sizeof m->self.lost);
}

/* Wait for the others; give up the one that says nothing for too long. */
static void gather(spr_comm *comm, uint64_t now)
{
    struct spr_membership *m = comm->membership;
    bool leads = m->coordinator == comm->channel.rank, complete = true;
    /* The coordinator first, so that the others hear of it before they give the coordinator up. */
    bool late = now - m->since_ns > (leads ? m->patience_ns : 2 * m->patience_ns);
    uint8_t mute[MAP_BYTES] = {0};

    for (int i = 0; i < comm->world; i++)
        if (i != comm->channel.rank && !has(m->self.lost, i) && !agrees(m, i)) {
            complete = false;
            add(mute, i);
        }
    for (int i = 0; late && leads && i < comm->world; i++)
        if (has(mute, i))
            lose(comm, i, true, "it does not answer");
    if (late && !leads)
        lose(comm, m->coordinator, true,
             has(mute, m->coordinator) ? "it does not answer" : "it does not lead");
    if (late)
        m->since_ns = now;
    if (!leads || !complete || m->changed)
        return;
    if (is_quorate(comm))
        lead(comm);
    else if (late)
        m->expelled = true; /* no proof has come in time */
}

spr_status spr_membership_step(spr_comm *comm)
{
    struct spr_membership *m = comm->membership;
    uint64_t now = spr_now_ns(comm->clock);
    int lowest;

    if (m->expelled || comm->loss.expelled || comm->error.status == SPR_ERR_EXPELLED)
        return SPR_ERR_EXPELLED;
    if (!comm->error.status)
        return await_ready(comm, now);
    if (!spr_list_empty(&comm->running))
        return SPR_IN_PROGRESS;
    look_around(comm);
    lowest = lowest_left(comm);
    if (lowest != m->coordinator) {
        m->coordinator = lowest;
        m->changed = true;
    }
    if (m->changed) {
        m->changed = false;
        m->since_ns = now;
        m->self.flags = VIEW_SHRINKING;
        m->self.next_operation = comm->next_operation;
        m->self.done = comm->done;
        tell_all(comm, m->self.out);
    }
    gather(comm, now);
    return SPR_IN_PROGRESS;
}

void spr_membership_view(spr_comm *comm, int peer, const void *data, size_t bytes)
{
    struct spr_membership *m = comm->membership;
    struct member *member = &m->members[peer];
    struct view v;

    if (bytes != sizeof v || comm->world > SPR_MEMBERSHIP_MAX) {
        spr_comm_fail(comm, SPR_ERR_PROTO, comm->channel.peers[peer].rank, -1,
                      "sent a view that does not fit");
        return;
    }
    memcpy(&v, data, sizeof v);
    if (has(m->self.lost, peer)) {
        member->parted |= has(v.out, comm->channel.rank);
        return;
    }
    /* Also where this rank began, as coordinator, an epoch that nobody follows it into. */
    if ((int32_t)(v.epoch - m->self.epoch) >= 0 && has(v.out, comm->channel.rank)) {
        m->expelled = true;
        spr_comm_fail(comm, SPR_ERR_EXPELLED, comm->rank, -1, "the others went on without it");
        return;
    }
    /* Its group cannot have formed without this rank, which said nothing before it was idle. */
    if (v.epoch == m->self.epoch + 1 && m->active && spr_list_empty(&comm->running)) {
        enter(comm, &v);
    } else if (v.epoch + 1 == m->self.epoch) {
        tell(comm, peer); /* it was left behind; what it says is of the past */
        return;
    }
    if (v.epoch != m->self.epoch)
        return;
    member->ready |= (v.flags & VIEW_READY) != 0;
    if (!(v.flags & VIEW_SHRINKING))
        return;
    member->told = member->ready = true;
    member->next_operation = v.next_operation;
    member->done = v.done;
    memcpy(member->lost, v.lost, sizeof member->lost);
    for (int i = 0; i < comm->world; i++) {
        if (!has(v.lost, i))
            continue;
        if (i == comm->channel.rank)
            m->expelled = true;
        else
            lose(comm, i, has(v.silent, i), "another rank has lost it");
    }
    if (!comm->error.status)
        spr_comm_fail(comm, SPR_ERR_REVOKED, comm->channel.peers[peer].rank, -1,
                      "it called spr_comm_shrink()");
}

int spr_membership_redo(const spr_comm *comm) { return comm->membership->redo; }

const struct spr_outcome *spr_membership_common(const spr_comm *comm)
{
    return &comm->membership->common;
}
