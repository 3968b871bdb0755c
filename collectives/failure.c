/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How a communicator fails: one cause, one text that names the rank, everybody told.
 *
 *   cause (a link, a message, a deadline, the caller) -> spr_comm_fail -> error text, flight
 *   recorder -> ABORT to all -> requests complete as their messages come back
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/dispute.h"
#include "collectives/watch.h"

/* After a failure the others are told; at most this long before links on which something is stuck
 * are cut. */
#define GRACE_NS 200000000ull
/* Nothing wakes who waits for what another thread sends. */
#define TELL_NS 1000000ull
/* A data path that has not moved for so long is worth a word; and so long nothing is said after a
 * warning. */
#define STILL_NS 1000000000ull

const char *spr_comm_host(const spr_comm *comm, int rank)
{
    return comm->peers && rank >= 0 && rank < comm->size ? comm->peers[comm->ids[rank]].host : "";
}

static const spr_request *oldest(const spr_comm *comm)
{
    return spr_list_empty(&comm->running) ? NULL
                                          : spr_list_entry(comm->running.next, spr_request, node);
}

/* "rank 5 (host b) left during allreduce #1234 'layer3.weight' after 41 ms: ..." */
static void compose(spr_comm *comm, const spr_request *rq, spr_status status, int blamed,
                    const char *text)
{
    char who[112] = "", during[160] = "";

    if (blamed >= 0 && status != SPR_ERR_DEADLINE)
        snprintf(who, sizeof who, "rank %d%s%s%s %s", blamed,
                 *spr_comm_host(comm, blamed) ? " (host " : "", spr_comm_host(comm, blamed),
                 *spr_comm_host(comm, blamed) ? ")" : "",
                 status == SPR_ERR_RANK_LOST  ? "was lost"
                 : status == SPR_ERR_EXPELLED ? "was expelled"
                 : status == SPR_ERR_MISMATCH ? "disagrees"
                 : status == SPR_ERR_REVOKED  ? "gave up"
                 : status == SPR_ERR_CANCELED ? "cancelled"
                                              : "failed");
    if (rq)
        snprintf(during, sizeof during, "%s%s #%u%s%s%s after %.0f ms", *who ? " during " : "",
                 spr_collective_names[rq->posted.collective], rq->operation, *rq->name ? " '" : "",
                 rq->name, *rq->name ? "'" : "",
                 (double)(spr_now_ns(comm->clock) - rq->posted_ns) / 1e6);
    spr_error_set(&comm->error, status, blamed, "%s%s%s%s; communicator revoked: %s", who, during,
                  *who || *during ? ": " : "", text,
                  status == SPR_ERR_EXPELLED ? "restart this rank"
                                             : "call spr_comm_shrink() or restart");
}

/* The flight recorder, for whoever has to find out later. */
static void dump_trace(const spr_comm *comm)
{
    const char *name = comm->options.trace_file, *mark = name ? strstr(name, "%r") : NULL;
    char path[512];
    FILE *file;

    if (!name || !*name)
        return;
    if (mark)
        snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - name), name, comm->rank, mark + 2);
    else
        snprintf(path, sizeof path, "%s", name);
    file = fopen(path, "we");
    if (!file) {
        spr_warn(SPR_SUB_COLL, "cannot write SPARRING_TRACE_FILE %s: %m", path);
        return;
    }
    fprintf(file, "# %s\n", comm->error.text);
    spr_trace_dump(comm->trace, SPR_TRACE_EVENTS, file);
    fclose(file);
}

void spr_comm_leave_behind(spr_comm *comm)
{
    comm->leave_ns = spr_now_ns(comm->clock) + (uint64_t)((double)GRACE_NS * spr_time_factor());
    comm->next_timer_ns = 0;
}

/* rq: the request that failed. */
static void fail(spr_comm *comm, const spr_request *failed, spr_status status, int blamed,
                 int told_by, const char *text)
{
    char judgement[SPR_LOSS_TEXT];
    struct spr_list *it, *next;

    if (comm->error.status)
        return;
    spr_comm_judge(comm, &status, &blamed, &told_by, &text, judgement);
    if (told_by >= 0)
        spr_error_set(&comm->error, status, blamed, "%s (told by rank %d)", text, told_by);
    else
        compose(comm, failed, status, blamed, text);
    if (!comm->closing)
        spr_info(SPR_SUB_COLL, "%s", comm->error.text);
    spr_trace_add(comm->trace, spr_now_ns(comm->clock), SPR_EV_FAIL, blamed,
                  failed ? failed->operation : 0, (uint64_t)(uint32_t)status,
                  (uint64_t)told_by + 1);
    spr_trace_fail(comm->trace, comm->error.text);
    dump_trace(comm);
    comm->grace_ns = spr_now_ns(comm->clock) + (uint64_t)((double)GRACE_NS * spr_time_factor());
    comm->recall_ns =
        spr_now_ns(comm->clock) + spr_seconds_ns(comm->options.expel_s * spr_time_factor());
    comm->next_timer_ns = 0;
    spr_channel_stop(&comm->channel, status, blamed, told_by >= 0 ? text : comm->error.text);
    spr_list_for_each_safe(it, next, &comm->running)
        spr_collective_wake(spr_list_entry(it, spr_request, node));
}

void spr_comm_fail(spr_comm *comm, spr_status status, int blamed, int told_by, const char *text)
{
    fail(comm, oldest(comm), status, blamed, told_by, text);
}

static bool others_know(void *arg) { return spr_channel_told(&((spr_comm *)arg)->channel); }

/* A simulated rank has nothing to sleep on. */
void spr_comm_tell(spr_comm *comm)
{
    uint64_t now;

    if (!comm->error.status)
        return;
    spr_comm_kick(comm);
    while (comm->epoll_fd >= 0 && !others_know(comm) && (now = spr_monotonic_ns()) < comm->grace_ns)
        spr_comm_drive(comm, others_know, comm, spr_min_u64(now + TELL_NS, comm->grace_ns));
}

spr_status spr_comm_failed_call(spr_comm *comm, spr_status status, struct spr_error *error)
{
    struct spr_error cause = *spr_thread_error();

    spr_comm_lock(comm);
    /* All disagree; or it could not even be posted here, and the others wait for it. */
    if (!comm->error.status && status != SPR_ERR_MISMATCH)
        spr_comm_fail(comm, status, comm->rank, -1, spr_status_string(status));
    if (comm->error.status)
        cause = comm->error;
    spr_comm_tell(comm);
    spr_comm_unlock(comm);
    spr_error_clear(error);
    return spr_error_set(error, status, cause.rank, "%s",
                         *cause.text ? cause.text : spr_status_string(status));
}

bool spr_comm_is_sound(spr_comm *comm)
{
    bool sound;

    spr_comm_lock(comm);
    sound = !comm->error.status;
    spr_comm_unlock(comm);
    return sound;
}

/* The rank that matters most: one that has not come to the operation, or gives no heartbeat, or has
 * not moved for longest. */
static int find_reason(const spr_comm *comm, uint32_t operation, struct spr_standing *worst)
{
    struct spr_standing standing;
    int reason = -1;

    *worst = (struct spr_standing){.posted = operation};
    for (int r = 0; r < comm->size; r++) {
        int32_t behind;
        if (r == comm->rank || !comm->standing(comm->standing_ctx, comm->ids[r], &standing))
            continue;
        if ((int32_t)(standing.posted - operation) > 0)
            standing.posted = operation;
        behind = (int32_t)(worst->posted - standing.posted);
        if (behind < 0 || (behind == 0 && standing.silent_ns < worst->silent_ns) ||
            (behind == 0 && standing.silent_ns == worst->silent_ns &&
             standing.still_ns <= worst->still_ns))
            continue;
        *worst = standing;
        reason = r;
    }
    return reason;
}

/* Those we wait for may wait for another one themselves. Says so in `text`, behind the list of
 * ranks; returns the rank to blame, or `first`. */
static int judge(const spr_comm *comm, const spr_request *rq, uint64_t now, int first, char *text,
                 size_t bytes)
{
    struct spr_standing s;
    int reason = find_reason(comm, rq->operation, &s);

    text[0] = '\0';
    /* What is known of other hosts is as old as their last heartbeat. */
    if (reason < 0 ||
        now - rq->posted_ns < spr_seconds_ns(comm->options.suspect_s * spr_time_factor()))
        return first;
    if (s.posted == 0)
        snprintf(text, bytes, "; rank %d has not called anything yet", reason);
    else if (s.posted != rq->operation)
        snprintf(text, bytes, "; rank %d has not called it: its last was #%u", reason, s.posted);
    else if (s.silent_ns)
        snprintf(text, bytes, "; rank %d gives no heartbeat for %.3g s", reason,
                 (double)s.silent_ns * 1e-9);
    else if (s.still_ns >= STILL_NS)
        snprintf(text, bytes, "; rank %d has not moved for %.3g s", reason,
                 (double)s.still_ns * 1e-9);
    return *text ? reason : first;
}

static void look_for_disputes(spr_request *rq, uint64_t now, bool old)
{
    if (old && rq->describe_ns && now >= rq->describe_ns)
        spr_dispute_describe_late(rq);
    if (rq->dispute_ns && now >= rq->dispute_ns)
        spr_dispute_decide(rq);
}

void spr_comm_check_deadlines(spr_comm *comm, uint64_t now)
{
    struct spr_list *it;
    char ranks[128], reason[96], text[288];
    int first, waiting = 0;

    spr_list_for_each(it, &comm->running)
    {
        spr_request *rq = spr_list_entry(it, spr_request, node);
        bool old, late = now >= rq->deadline_ns;
        if (rq->ended)
            continue;
        old = waiting++ < SPR_LATE_MOST;
        if (!rq->rejected && !late)
            look_for_disputes(rq, now, old);
        if (!late && !(old && now >= rq->warn_ns && now >= comm->calm_ns))
            continue;
        spr_channel_waiting_for(&comm->channel, rq->operation, ranks, sizeof ranks, &first);
        first = judge(comm, rq, now, first, reason, sizeof reason);
        if (late) {
            snprintf(text, sizeof text, "deadline passed, waiting for rank %s%s",
                     *ranks ? ranks : "(none: local work)", reason);
            fail(comm, rq, SPR_ERR_DEADLINE, first, -1, text);
            return;
        }
        rq->warn_ns = UINT64_MAX;
        comm->calm_ns = now + (uint64_t)((double)STILL_NS * spr_time_factor());
        spr_trace_add(comm->trace, now, SPR_EV_SLOW, first, rq->operation, 0, 0);
        spr_warn(SPR_SUB_COLL, "%s #%u '%s' takes longer than %.3g s, waiting for rank %s%s",
                 spr_collective_names[rq->posted.collective], rq->operation, rq->name,
                 comm->options.warn_s, *ranks ? ranks : "(none)", reason);
    }
}
