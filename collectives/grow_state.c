/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Growing: the state is handed over, the members vote.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/grow.h"
#include "collectives/membership.h"

/* Of the state, in one broadcast. Members that have it throw it away in pieces of that size. */
#define PIECE_BYTES ((size_t)16 << 20)
#define WORD sizeof(int32_t)
#define PATIENCE_S 2 /* of a newcomer that does not know whether it is in */

/* What comes before the state: its size, and the bytes after its last whole word. */
struct head {
    uint64_t bytes;
    uint8_t tail[8];
};

/* Memory for the state on this rank; *into stays NULL where it is not wanted. */
static spr_status make_room(struct spr_growth *g, uint64_t bytes, char **into)
{
    const spr_grow_options *o = g->options;

    if (g->old || bytes == 0)
        return SPR_OK;
    if (!o->take)
        return spr_error_set(g->error, SPR_ERR_INVALID, g->comm->rank,
                             "rank %d, a newcomer, does not take the state of %" PRIu64
                             " bytes: its options have no `take`",
                             g->comm->rank, bytes);
    *into = o->take(o->ctx, (size_t)bytes);
    if (!*into)
        return spr_error_set(g->error, SPR_ERR_NOMEM, g->comm->rank,
                             "rank %d, a newcomer, has no room for the state of %" PRIu64 " bytes",
                             g->comm->rank, bytes);
    return SPR_OK;
}

static spr_status stream(struct spr_growth *g, char *state, size_t bytes)
{
    size_t piece = spr_min_size(bytes, PIECE_BYTES);
    char *scratch = state || bytes == 0 ? NULL : spr_malloc(piece);
    spr_status status = SPR_OK;

    if (bytes > 0 && !state && !scratch)
        return spr_error_set(g->error, SPR_ERR_NOMEM, g->comm->rank,
                             "rank %d has no memory to pass the state on", g->comm->rank);
    for (size_t at = 0; at < bytes && status == SPR_OK; at += piece)
        status = spr_growth_broadcast(g, g->comm, state ? state + at : scratch,
                                      spr_min_size(bytes - at, piece) / WORD, g->ticket.state_rank);
    spr_free(scratch);
    return status;
}

/* All have the state. */
static spr_status all_there(struct spr_growth *g)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_status status;

    call.name = "grow";
    status = spr_barrier(g->comm, &call);
    return status ? spr_comm_failed_call(g->comm, status, g->error) : SPR_OK;
}

spr_status spr_growth_hand_over(struct spr_growth *g)
{
    bool gives = g->old && g->old->rank == g->ticket.state_rank;
    struct head head = {0};
    char *state = NULL;
    size_t whole, rest;
    spr_status status;

    if (gives) {
        /* Broadcast only reads at its root. */
        union {
            const void *in;
            char *out;
        } pointer = {.in = g->options->state};
        state = pointer.out;
        head.bytes = g->options->state_bytes;
        rest = (size_t)head.bytes % WORD;
        if (rest)
            memcpy(head.tail, state + head.bytes - rest, rest);
    }
    status = spr_growth_broadcast(g, g->comm, &head, sizeof head / WORD, g->ticket.state_rank);
    if (status == SPR_OK && !gives)
        status = make_room(g, head.bytes, &state);
    whole = (size_t)head.bytes / WORD * WORD;
    rest = (size_t)head.bytes - whole;
    if (status == SPR_OK)
        status = stream(g, state, whole);
    if (status == SPR_OK && !gives && state)
        memcpy(state + whole, head.tail, rest);
    /* Before members vote. A newcomer to which this fails may be counted on, see below. */
    return status || !g->old ? status : all_there(g);
}

static bool leave(spr_comm *old)
{
    bool said;

    spr_comm_lock(old);
    said = spr_comm_leave(old);
    spr_comm_unlock(old);
    return said;
}

/* A member was lost in the vote or after it. Do all that are left have its result? */
static bool all_have(struct spr_growth *g, uint32_t operation)
{
    bool have;

    if (spr_comm_shrink(g->old, 0, NULL) != SPR_OK)
        return false;
    spr_comm_lock(g->old);
    have = spr_outcome_has(spr_membership_common(g->old), operation);
    spr_comm_unlock(g->old);
    return have;
}

/* All members end with the error of the lowest one that has said no. */
static spr_status hear_why(struct spr_growth *g, int who)
{
    struct {
        int32_t status, rank;
        char text[480];
    } cause = {.status = g->error->status, .rank = g->error->rank};

    snprintf(cause.text, sizeof cause.text, "%.479s", g->error->text);
    spr_error_clear(g->error);
    if (spr_growth_broadcast(g, g->old, &cause, sizeof cause / WORD, who) != SPR_OK)
        return g->error->status;
    cause.text[sizeof cause.text - 1] = '\0';
    return spr_error_set(g->error, cause.status < 0 ? cause.status : SPR_ERR_BOOTSTRAP, cause.rank,
                         "%s", cause.text);
}

spr_status spr_growth_vote(struct spr_growth *g, spr_status mine)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    int32_t vote = mine == SPR_OK ? INT32_MAX : g->old->rank;
    struct spr_error cause;
    uint32_t operation;
    spr_status status;

    call.name = "grow";
    operation = g->old->next_operation;
    status = spr_allreduce(g->old, &vote, &vote, 1, SPR_INT32, SPR_MIN, &call);
    if (status == SPR_OK && vote != INT32_MAX)
        return hear_why(g, vote);
    if (status == SPR_OK)
        status = spr_barrier(g->old, &call);
    if (status == SPR_OK) {
        /* Who has failed meanwhile could not be heard: those who shrink would wait for it. */
        if (!leave(g->old) && all_have(g, operation))
            leave(g->old);
        return SPR_OK;
    }
    (void)spr_comm_failed_call(g->old, status, g->error);
    cause = *g->error;
    if (all_have(g, operation) && mine == SPR_OK) {
        leave(g->old);
        spr_error_clear(g->error);
        return SPR_OK;
    }
    *g->error = cause;
    return status;
}

spr_status spr_growth_go(struct spr_growth *g)
{
    int32_t go = 1;
    spr_status status = SPR_OK;

    /* The same number on all, whether it succeeds or not. */
    g->comm->hidden = g->comm->next_operation + !g->old;
    g->comm->grow_first = 1;
    g->comm->grow_end = g->comm->hidden + 1;
    if (!g->old)
        status = all_there(g);
    if (status == SPR_OK)
        status = spr_growth_broadcast(g, g->comm, &go, 1, 0);
    if (status == SPR_OK || g->old)
        return status;
    /* Somebody was lost before this newcomer knew. Members that count on the new communicator
     * shrink it; the others have left it. */
    if (spr_comm_shrink(g->comm, PATIENCE_S, NULL) != SPR_OK ||
        spr_comm_initial_rank(g->comm, 0) >= g->ticket.members)
        return status;
    spr_error_clear(g->error);
    return SPR_OK;
}
