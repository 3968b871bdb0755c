/* SPDX-License-Identifier: BSD-2-Clause
 *
 * After a failure the ranks that are left shrink and go on: all that succeed agree on the epoch,
 * the members and the operations that all of them have completed, and the next sum is right. What
 * is complete on all members is kept by all of them; of a step that is not, all codecs have taken
 * back what they sent, and sent + residual = inputs. Where nothing but deaths went wrong, every
 * survivor is a member.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/membership.h"
#include "tests/sim/schedules.h"

#define SECOND 1000000000ull
#define COUNT 5

static bool only_deaths(const struct schedule *s)
{
    if (s->odd != SCHEDULE_EVEN && !schedule_mismatches(s))
        return false;
    for (int i = 0; i < s->faults; i++)
        if (s->fault[i].kind > SCHEDULE_KILL)
            return false;
    return schedule_culprits(s) != 0;
}

static bool good(const struct schedule_call *c)
{
    return c->ended && (c->status == SPR_OK || c->status == SPR_ERR_MISMATCH);
}

/* All that went into the codec was sent for all, or is in the residual. Whole numbers: exact. */
static bool check_conserved(struct schedule_play *play, int r)
{
    const struct schedule *s = &play->schedule;
    const float *residual = spr_codec_residual(play->codec[r]);
    bool absorbed = false;

    for (size_t i = 0; i < s->codec_elements; i++) {
        double sum = 0, size = 0;
        absorbed = false;
        for (int k = 0; k < s->operations; k++) {
            const struct schedule_call *c = &play->call[r][k];
            /* What comes behind the first that failed is its retry. */
            if (!c->before || !c->ended || absorbed)
                continue;
            absorbed = !good(c);
            sum += (double)c->entered[i];
            size += fabs((double)c->entered[i]);
            if (c->status != SPR_OK)
                continue;
            size += fabs((double)c->sent[i]); /* what is taken back is rounded, too */
            sum -= c->revoked ? 0 : (double)c->sent[i];
        }
        if (!(fabs(sum - (double)residual[i]) <= schedule_codec_bound(s, size)))
            return schedule_fail(play, r, -1, "element %zu of the residual is %.9g, not %.9g", i,
                                 (double)residual[i], sum);
    }
    return true;
}

/* In its second epoch, a rank knows which operations of the first count. */
static void entered(void *ctx, int r)
{
    struct schedule_play *play = ctx;
    const struct spr_outcome *common = spr_membership_common(play->world.comms[r]);

    if (play->world.comms[r]->channel.epoch != 2)
        return;
    for (int k = 0; k < play->schedule.operations; k++) {
        struct schedule_call *c = &play->call[r][k];
        bool counts = spr_outcome_has(common, play->schedule.first + (uint32_t)k);
        if (counts && !good(c))
            schedule_fail(play, r, k, "it failed, and counts as complete everywhere");
        c->revoked = !counts && c->ended && c->status == SPR_OK;
        play->revoked += c->revoked && c->before;
    }
    if (play->codec[r] && !*play->failure)
        (void)check_conserved(play, r);
}

/* What one member has taken back, no other has kept. */
static bool check_reason(struct schedule_play *play, const spr_status *statuses)
{
    const struct schedule *s = &play->schedule;

    for (int k = 0; k < s->operations; k++) {
        int revoked = -1, kept = -1;
        for (int r = 0; r < s->ranks; r++) {
            const struct schedule_call *c = &play->call[r][k];
            if (!spr_sim_runs(play->world.sim, r) || statuses[r] != SPR_OK)
                continue;
            if (c->ended && c->status == SPR_OK)
                *(c->revoked ? &revoked : &kept) = r;
        }
        if (revoked >= 0 && kept >= 0)
            return schedule_fail(play, revoked, k, "it is taken back, and kept by rank %d", kept);
    }
    return true;
}

static bool check_members(struct schedule_play *play, const spr_status *statuses, bool deaths)
{
    const spr_comm *first = NULL;
    const struct spr_outcome *last = NULL, *own;

    for (int r = 0; r < play->schedule.ranks; r++) {
        spr_comm *comm = play->world.comms[r];
        if (!spr_sim_runs(play->world.sim, r))
            continue;
        if (statuses[r] != SPR_OK && deaths)
            return schedule_fail(play, r, -1, "shrink: %s", spr_status_name(statuses[r]));
        if (statuses[r] != SPR_OK)
            continue;
        own = spr_membership_common(comm);
        if (first && (comm->channel.epoch != first->channel.epoch || comm->size != first->size ||
                      memcmp(comm->ids, first->ids, (size_t)comm->size * sizeof *comm->ids) ||
                      memcmp(own, last, sizeof *own)))
            return schedule_fail(play, r, -1, "shrink: epoch %u of %d ranks, last operation %u",
                                 comm->channel.epoch, comm->size, own->completed);
        first = comm;
        last = own;
    }
    return check_reason(play, statuses);
}

bool schedule_shrink(struct schedule_play *play)
{
    struct world *w = &play->world;
    uint64_t now = spr_now_ns(spr_sim_clock(w->sim));
    static int32_t ones[COUNT] = {1, 1, 1, 1, 1}, sums[SCHEDULE_RANKS][COUNT];
    spr_status statuses[WORLD_MAX];
    bool deaths = only_deaths(&play->schedule);

    w->entered = entered;
    w->entered_ctx = play;
    if (!world_shrink(w, NULL, 2 * SECOND, now + 200 * SECOND, statuses))
        return schedule_fail(play, -1, -1, "shrink goes on for ever");
    if (*play->failure || !check_members(play, statuses, deaths))
        return false;
    for (int r = 0; r < play->schedule.ranks; r++)
        if (spr_sim_runs(w->sim, r) && statuses[r] == SPR_OK &&
            spr_iallreduce(w->comms[r], ones, sums[r], COUNT, SPR_INT32, SPR_SUM, NULL,
                           &w->requests[r]) != SPR_OK)
            w->requests[r] = NULL;
    if (!world_run(w, now + 400 * SECOND))
        return schedule_fail(play, -1, -1, "the sum after a shrink goes on for ever");
    for (int r = 0; r < play->schedule.ranks; r++) {
        if (!spr_sim_runs(w->sim, r) || statuses[r] != SPR_OK)
            continue;
        if (deaths && w->results[r] != SPR_OK)
            return schedule_fail(play, r, -1, "the sum after a shrink: %s",
                                 spr_status_name(w->results[r]));
        for (int i = 0; i < COUNT && w->results[r] == SPR_OK; i++)
            if (sums[r][i] != w->comms[r]->size)
                return schedule_fail(play, r, -1, "the sum after a shrink is %d", sums[r][i]);
    }
    return true;
}
