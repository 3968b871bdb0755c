/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Playing a schedule: ranks call, test and progress in random order over simulated links, until
 * all that can end has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "collectives/collective.h"
#include "tests/sim/schedules.h"

#define MS 1000000ull
/* Nothing goes on for so long; and a rank that works without end is no better. */
#define LIMIT_NS (60000 * MS)
#define ROUNDS 2000000
/* A failure is known everywhere, and all links are cut, so long after the last event. */
#define QUIET_NS (700 * MS)
/* As spr_comm_destroy does it. */
#define LINGER_NS (100 * MS)

static uint64_t scaled(uint64_t ns) { return (uint64_t)((double)ns * spr_time_factor()); }

/* Setting up ----------------------------------------------------------------------------------- */

static void set_fault(struct spr_sim *sim, const struct schedule_fault *f)
{
    switch (f->kind) {
    case SCHEDULE_SLOW:
        spr_sim_slow(sim, f->rank, f->amount, f->at_ns);
        break;
    case SCHEDULE_DELAY:
        spr_sim_delay(sim, f->rank, f->peer, f->amount, f->at_ns, f->until_ns);
        break;
    case SCHEDULE_LATE:
        spr_sim_late_sent(sim, f->rank, f->amount);
        break;
    case SCHEDULE_NAP:
        spr_sim_pause(sim, f->rank, f->at_ns, f->until_ns);
        break;
    case SCHEDULE_PAUSE:
        spr_sim_pause(sim, f->rank, f->at_ns, f->at_ns + scaled(f->until_ns - f->at_ns));
        break;
    case SCHEDULE_KILL:
        spr_sim_kill(sim, f->rank, f->at_ns);
        break;
    case SCHEDULE_SILENCE:
        spr_sim_silence(sim, f->rank, f->peer, f->at_ns);
        break;
    case SCHEDULE_BREAK:
        spr_sim_break(sim, f->rank, f->peer, f->at_ns, f->sees, f->peer_sees);
        break;
    default:
        spr_sim_frame_fault(sim, f->rank, f->peer,
                            (enum spr_sim_frame_fault)(f->kind - SCHEDULE_CORRUPT), f->nth);
    }
}

/* As if all operations before `first` had been called, and were complete. */
static void count_from(spr_comm *comm, uint32_t first)
{
    comm->next_operation = first;
    comm->done.completed = first - 1;
    for (int r = 0; r < comm->world; r++)
        comm->channel.peers[r].heard = first - 1;
}

/* As SPARRING_MODEL would give it. */
static void take_model(spr_comm *comm, const char *model)
{
    spr_free(comm->options.model);
    comm->options.model = spr_strdup(model);
    if (!comm->options.model)
        abort();
    spr_model_new_era(comm);
}

void schedule_begin(struct schedule_play *play, const struct schedule *schedule)
{
    const struct schedule *s = &play->schedule;
    struct spr_error error = {0};

    memset(play, 0, sizeof *play);
    play->schedule = *schedule;
    if (s->codec && spr_codec_kind_of(s->codec, &play->schedule.kind, &error))
        abort();
    play->live = spr_mem_live();
    schedule_fill(play);
    play->live_bytes = play->most_bytes = spr_mem_live_bytes();
    world_create(&play->world, &s->links);
    world_share_racks(&play->world, s->host, s->rack);
    world_set_rates(&play->world, s->rate);
    for (int r = 0; r < s->ranks; r++) {
        struct spr_options *o = &play->world.comms[r]->options;
        o->timeout_s = s->timeout_s;
        o->warn_s = 1e5;
        o->expel_s = SCHEDULE_EXPEL_S;
        o->eager_bytes = s->eager_bytes;
        o->eager_window = s->eager_window;
        o->indices = s->indices;
        if (s->priority_bytes)
            o->priority_bytes = s->priority_bytes;
        if (s->model)
            take_model(play->world.comms[r], s->model);
        count_from(play->world.comms[r], s->first);
    }
    world_set_determinism(&play->world, s->determinism);
    if (s->zstd)
        (void)world_set_zstd(&play->world, s->zstd);
    for (int i = 0; i < s->faults; i++)
        set_fault(play->world.sim, &s->fault[i]);
}

/* What a rank does ----------------------------------------------------------------------------- */

static bool is_missing(const struct schedule_play *play, int r)
{
    const struct schedule *s = &play->schedule;

    return s->odd == SCHEDULE_MISSING && r == s->odd_rank && play->next[r] == s->odd_operation;
}

static int in_flight(const struct schedule_play *play, int r)
{
    int n = 0;

    for (int k = 0; k < play->next[r]; k++)
        n += play->call[r][k].request != NULL;
    return n;
}

static bool codec_busy(const struct schedule_play *play, int r)
{
    for (int k = 0; k < play->next[r]; k++)
        if (play->call[r][k].request && play->call[r][k].before)
            return true;
    return false;
}

static bool has_calls(const struct schedule_play *play, int r)
{
    return play->next[r] < play->schedule.operations && !is_missing(play, r);
}

static bool may_call(const struct schedule_play *play, int r)
{
    const struct schedule *s = &play->schedule;
    int k = play->next[r];

    return has_calls(play, r) && play->now_ns >= play->next_call_ns[r] &&
           in_flight(play, r) < s->depth[r] && !(play->call[r][k].before && codec_busy(play, r));
}

static bool ended(struct schedule_play *play, int r, int k)
{
    play->call[r][k].ended = true;
    play->call[r][k].ended_ns = play->now_ns;
    play->call[r][k].out_crc = schedule_out_crc(play, r, k);
    return schedule_check_call(play, r, k);
}

static void note_memory(struct schedule_play *play)
{
    int64_t bytes = spr_mem_live_bytes();

    play->most_bytes = bytes > play->most_bytes ? bytes : play->most_bytes;
}

bool schedule_call(struct schedule_play *play, int r)
{
    struct schedule *s = &play->schedule;
    int k = play->next[r]++;
    struct schedule_call *c = &play->call[r][k];
    bool odd = r == s->odd_rank && k == s->odd_operation;
    spr_status status;

    if (odd && s->odd == SCHEDULE_ABORT)
        spr_comm_abort(play->world.comms[r], "a test wants it");
    c->posted = true;
    c->posted_ns = play->now_ns;
    schedule_offer(play, r, k);
    status = schedule_post(play, r, k);
    note_memory(play);
    if (s->think_ns[r])
        play->next_call_ns[r] = play->now_ns + schedule_below(s, s->think_ns[r]);
    if (odd && s->odd == SCHEDULE_CANCEL && status == SPR_OK)
        spr_cancel(c->request);
    if (status == SPR_OK)
        return true;
    c->status = status;
    return ended(play, r, k);
}

/* Take what has completed. */
static bool collect(struct schedule_play *play, int r)
{
    for (int k = 0; k < play->next[r]; k++) {
        struct schedule_call *c = &play->call[r][k];
        if (!c->request || !c->request->done)
            continue;
        c->status = spr_test(&c->request);
        if (!ended(play, r, k))
            return false;
    }
    return true;
}

bool schedule_work(struct schedule_play *play, int r)
{
    spr_comm_progress_locked(play->world.comms[r]);
    note_memory(play);
    return collect(play, r);
}

/* Leaving -------------------------------------------------------------------------------------- */

static bool has_ended(const struct schedule_play *play, int r)
{
    if (has_calls(play, r))
        return false;
    for (int k = 0; k < play->next[r]; k++)
        if (!play->call[r][k].ended)
            return false;
    return true;
}

/* Goodbye, and a while later the end of the links, whatever the others do. */
static void leave(struct schedule_play *play, int r)
{
    spr_comm *comm = play->world.comms[r];

    if (!play->left[r]) {
        if (!play->schedule.leave || comm->error.status || !has_ended(play, r) ||
            play->next[r] < play->schedule.operations)
            return;
        comm->closing = true;
        spr_channel_bye(&comm->channel, comm->next_operation);
        play->left[r] = true;
        play->leave_ns[r] = play->now_ns + scaled(LINGER_NS);
    } else if (play->now_ns >= play->leave_ns[r]) {
        spr_comm_free(comm);
        play->world.comms[r] = NULL;
    }
}

/* The loop ------------------------------------------------------------------------------------- */

static bool runs(const struct schedule_play *play, int r)
{
    return play->world.comms[r] && spr_sim_runs(play->world.sim, r);
}

static bool is_dead(const struct schedule_play *play, int r)
{
    for (int i = 0; i < play->schedule.faults; i++) {
        const struct schedule_fault *f = &play->schedule.fault[i];
        if (f->kind == SCHEDULE_KILL && f->rank == r && play->now_ns >= f->at_ns)
            return true;
    }
    return false;
}

static bool finished(const struct schedule_play *play)
{
    for (int r = 0; r < play->schedule.ranks; r++) {
        if (!play->world.comms[r] || is_dead(play, r))
            continue;
        if (!spr_sim_runs(play->world.sim, r) || !has_ended(play, r))
            return false;
    }
    return true;
}

static bool any_failed(const struct schedule_play *play)
{
    for (int r = 0; r < play->schedule.ranks; r++)
        if (play->world.comms[r] && play->world.comms[r]->error.status)
            return true;
    return false;
}

/* One round over all ranks that have something to do. *moved: there was one. */
static bool round_of_all(struct schedule_play *play, bool *moved)
{
    struct schedule *s = &play->schedule;
    int first = (int)schedule_below(s, (uint64_t)s->ranks);
    uint64_t coins = spr_rng_next(&s->rng);

    for (int i = 0; i < s->ranks; i++) {
        int r = (first + i) % s->ranks;
        bool good = true;
        if (!runs(play, r))
            continue;
        if (may_call(play, r)) {
            *moved = true;
            if (coins >> i & 1)
                good = schedule_call(play, r);
        }
        if (spr_sim_has_work(play->world.sim, r)) {
            *moved = true;
            if (coins >> (i + 16) & 1)
                good = good && schedule_work(play, r);
        }
        if (!good)
            return false;
    }
    return true;
}

/* Nobody can do anything: time passes, at most `step`, and wakes those that wait for it. */
static bool pass_time(struct schedule_play *play, uint64_t step)
{
    uint64_t until = play->now_ns + step;

    for (int r = 0; r < play->schedule.ranks; r++)
        if (runs(play, r) && has_calls(play, r) && play->next_call_ns[r] > play->now_ns)
            until = spr_min_u64(until, play->next_call_ns[r]);
    spr_sim_sleep(play->world.sim, until);
    play->now_ns = spr_now_ns(spr_sim_clock(play->world.sim));
    for (int r = 0; r < play->schedule.ranks; r++) {
        if (!runs(play, r))
            continue;
        if (!schedule_work(play, r))
            return false;
        leave(play, r);
    }
    return true;
}

bool schedule_run(struct schedule_play *play)
{
    uint64_t quiet_ns = 0, step = 1000;
    bool failed = false;

    for (int rounds = 0;; rounds++) {
        bool moved = false;
        if (!round_of_all(play, &moved))
            return false;
        if (moved) {
            step = 1000;
        } else {
            if (!pass_time(play, step))
                return false;
            step = spr_min_u64(step * 2, scaled(50 * MS));
        }
        if (!finished(play) || failed != any_failed(play))
            quiet_ns = 0;
        failed = any_failed(play);
        if (finished(play) && quiet_ns == 0)
            quiet_ns = play->now_ns + (failed ? scaled(QUIET_NS) : 0) + 1;
        if (quiet_ns && play->now_ns >= quiet_ns && spr_sim_is_quiet(play->world.sim))
            return true;
        if (rounds > ROUNDS || play->now_ns > scaled(LIMIT_NS))
            return schedule_fail(play, -1, -1, "it goes on for ever");
    }
}

bool schedule_survives(const struct schedule_play *play, int rank) { return !is_dead(play, rank); }

/* Ranks that died are taken down as by spr_comm_destroy, so that nothing of theirs is left. */
static void bury(struct schedule_play *play, int r)
{
    spr_comm *comm = play->world.comms[r];

    if (!comm || spr_list_empty(&comm->running))
        return;
    spr_sim_revive(play->world.sim, r);
    spr_comm_fail(comm, SPR_ERR_CANCELED, r, -1, "the communicator was destroyed");
    spr_channel_kill(&comm->channel);
    spr_comm_progress_locked(comm);
    if (!spr_list_empty(&comm->running))
        schedule_fail(play, r, -1, "a request does not end with its links");
}

bool schedule_end(struct schedule_play *play, bool good)
{
    play->failed = any_failed(play);
    for (int r = 0; r < play->schedule.ranks; r++)
        bury(play, r);
    good = good && !*play->failure;
    world_destroy(&play->world);
    memset(&play->world, 0, sizeof play->world);
    good = good && schedule_check_codecs(play);
    schedule_free(play);
    if (good && spr_mem_live() != play->live)
        good = schedule_fail(play, -1, -1, "%lld allocations leaked",
                             (long long)(spr_mem_live() - play->live));
    return good;
}

bool schedule_play(struct schedule_play *play, const struct schedule *schedule)
{
    bool good;

    schedule_begin(play, schedule);
    good = schedule_run(play) && schedule_check(play);
    if (good && any_failed(play) && !schedule->leave)
        good = schedule_shrink(play);
    return schedule_end(play, good);
}
