/* SPDX-License-Identifier: BSD-2-Clause
 *
 * After a failure the ranks that are left shrink and go on: all that succeed agree on the epoch,
 * the members and the last operation that all of them have completed, and the next sum is right.
 * Where nothing but deaths went wrong, every survivor is a member.
 */
#include <stdlib.h>
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

/* Operations up to the last common one succeeded here, but for one that the ranks disagreed on. */
static bool check_last(struct schedule_play *play, int r, uint32_t last)
{
    const struct schedule *s = &play->schedule;

    for (int k = 0; k < s->operations && (uint32_t)k < last; k++)
        if (play->call[r][k].status != SPR_OK && play->call[r][k].status != SPR_ERR_MISMATCH)
            return schedule_fail(play, r, k, "it failed, and counts as complete everywhere");
    return true;
}

static bool check_members(struct schedule_play *play, const spr_status *statuses, bool deaths)
{
    const spr_comm *first = NULL;
    uint32_t last = 0, own;

    for (int r = 0; r < play->schedule.ranks; r++) {
        spr_comm *comm = play->world.comms[r];
        if (!spr_sim_runs(play->world.sim, r))
            continue;
        if (statuses[r] != SPR_OK && deaths)
            return schedule_fail(play, r, -1, "shrink: %s", spr_status_name(statuses[r]));
        if (statuses[r] != SPR_OK)
            continue;
        (void)spr_membership_redo(comm, &own);
        if (first &&
            (comm->channel.epoch != first->channel.epoch || comm->size != first->size ||
             memcmp(comm->ids, first->ids, (size_t)comm->size * sizeof *comm->ids) || own != last))
            return schedule_fail(play, r, -1, "shrink: epoch %u of %d ranks, last operation %u",
                                 comm->channel.epoch, comm->size, own);
        first = comm;
        last = own;
        if (!check_last(play, r, last))
            return false;
    }
    return true;
}

bool schedule_shrink(struct schedule_play *play)
{
    struct world *w = &play->world;
    uint64_t now = spr_now_ns(spr_sim_clock(w->sim));
    static int32_t ones[COUNT] = {1, 1, 1, 1, 1}, sums[SCHEDULE_RANKS][COUNT];
    spr_status statuses[WORLD_MAX];
    bool deaths = only_deaths(&play->schedule);

    if (!deaths && !getenv("SPARRING_TEST_SHRINK"))
        return true;
    if (!world_shrink(w, NULL, 2 * SECOND, now + 200 * SECOND, statuses))
        return schedule_fail(play, -1, -1, "shrink goes on for ever");
    if (!check_members(play, statuses, deaths))
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
