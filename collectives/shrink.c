/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The public side of membership: go on with the ranks that are left.
 */
#include <stdio.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/membership.h"

/* How often a caller that does not drive looks whether somebody must be given up. */
#define LOOK_NS 20000000ull

struct shrink {
    spr_comm *comm;
    spr_status status;
};

static bool step(void *arg)
{
    struct shrink *s = arg;

    s->status = spr_membership_step(s->comm);
    /* The others wait for what this rank has said last, and its caller may do something else now.
     */
    if (s->status == SPR_OK && s->comm->channel.frames_out > 0)
        s->status = SPR_IN_PROGRESS;
    return s->status != SPR_IN_PROGRESS;
}

static spr_status run(spr_comm *comm, uint64_t patience_ns)
{
    struct shrink s = {comm, SPR_IN_PROGRESS};
    /* Each rank that dies meanwhile costs one more round. */
    uint64_t until = spr_monotonic_ns() + 8 * patience_ns, now;

    comm->background++;
    spr_membership_begin(comm, patience_ns);
    spr_comm_kick(comm);
    do {
        now = spr_monotonic_ns();
        spr_comm_drive(comm, step, &s, spr_min_u64(now + LOOK_NS, until));
    } while (s.status == SPR_IN_PROGRESS && now < until);
    spr_membership_end(comm);
    comm->background--;
    return s.status == SPR_IN_PROGRESS ? SPR_ERR_DEADLINE : s.status;
}

/* Nothing of it works any more, for this rank; the others are not to count on it. */
static void give_up(spr_comm *comm, spr_status status, int rank)
{
    struct spr_error *error = spr_thread_error();

    spr_error_clear(error);
    spr_error_set(error, status, rank,
                  status == SPR_ERR_EXPELLED
                      ? "rank %d: the other ranks go on without this one, or it was cut off from "
                        "more of them than are left here; restart it"
                      : "rank %d: the ranks that are left did not agree in time; restart the job",
                  rank);
    spr_channel_bye(&comm->channel, comm->next_operation);
    /* In a new epoch it was sound. */
    spr_comm_fail(comm, SPR_ERR_REVOKED, comm->rank, -1, "its spr_comm_shrink() came to no end");
    comm->error = *error; /* what calls return from now on */
    spr_comm_kick(comm);
}

spr_status spr_comm_shrink(spr_comm *comm, double patience_s, spr_shrink_info *info)
{
    spr_shrink_info result = SPR_SHRINK_INFO_INIT;
    uint32_t completed;
    int before, rank;
    spr_status status;

    if (!comm || (info && info->struct_size != sizeof *info))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "shrink: no communicator, or info not set up with "
                             "SPR_SHRINK_INFO_INIT");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (comm->world > SPR_MEMBERSHIP_MAX)
        return spr_error_set(spr_thread_error(), SPR_ERR_UNSUPPORTED, comm->rank,
                             "shrink: more than %d ranks", SPR_MEMBERSHIP_MAX);
    if (!(patience_s > 0)) /* nor NaN */
        patience_s = comm->options.init_timeout_s;
    spr_comm_lock(comm);
    before = comm->size;
    rank = comm->rank;
    status = run(comm, spr_seconds_ns(patience_s * spr_time_factor()));
    if (status == SPR_OK) {
        result.epoch = comm->channel.epoch;
        result.lost = before - comm->size;
        result.redo = spr_membership_redo(comm);
        completed = spr_membership_common(comm)->completed;
        result.last_operation = completed > comm->hidden ? completed - comm->hidden : 0;
        spr_info(SPR_SUB_COLL, "rank %d of %d is rank %d of %d in epoch %u", rank, before,
                 comm->rank, comm->size, result.epoch);
    } else {
        give_up(comm, status, rank);
    }
    spr_comm_unlock(comm);
    if (status == SPR_OK && info)
        *info = result;
    return status;
}

int spr_comm_initial_rank(const spr_comm *comm, int rank)
{
    return rank < 0 || rank >= comm->size ? -1 : comm->ids[rank];
}
