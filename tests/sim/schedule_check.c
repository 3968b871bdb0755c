/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What must hold of every schedule, whatever happened in it:
 *
 * Agreement    Whoever reports success of a call holds the right result: the fp64 reference within
 *              the bound of its roundings, integers, copies and compressed sums exactly; and all
 *              who do hold the same bits. Nobody succeeds without the ranks that it needs.
 * Harmless     Where nothing is really at fault, all calls succeed on all ranks. Where the ranks
 *              disagree on an operation, that one fails on all of them with MISMATCH (but on those
 *              that need nobody who disagrees), and the others succeed.
 * Liveness     Every call ends within its deadline, the time to tell others, and its own pauses.
 * Blame        The error of a failed communicator names a rank that is really at fault. But for
 *              deadlines: a rank knows whom it waits for, and that one may wait for another. How
 *              many name the right one is counted.
 * Damage       A frame that is damaged, and arrives, fails the communicator.
 * Uniformity   When all is quiet, either no surviving communicator has failed, or all have that
 *              can be reached from one that has. A call never fails on a communicator that has not
 *              failed, and all calls made after its failure are refused with REVOKED. A call may
 *              succeed on one rank and fail on another.
 * Quiet        What a call may write is not written any more when it is over.
 * Order        The events of a flight recorder are in the order of their times.
 * Memory       Bytes held stay below memory_bound() at all times; afterwards nothing is left.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "tests/reference.h"
#include "tests/sim/schedules.h"

#define GUARD 0xee
/* A deadline, and then the end of the grace, is noticed when time has moved on: see pass_time(). */
#define SLACK_S 0.12
#define GRACE_S 0.2

/* One call, when it has ended ------------------------------------------------------------------ */

static double paused_s(const struct schedule *s, int r)
{
    double sum = 0;

    for (int i = 0; i < s->faults; i++) {
        const struct schedule_fault *f = &s->fault[i];
        if (f->rank == r && (f->kind == SCHEDULE_NAP || f->kind == SCHEDULE_PAUSE))
            sum += (double)(f->until_ns - f->at_ns) * 1e-9;
    }
    return sum;
}

static bool check_deadline(struct schedule_play *play, int r, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_call *c = &play->call[r][k];
    double took = (double)(c->ended_ns - c->posted_ns) * 1e-9;
    double most = s->timeout_s + GRACE_S + SLACK_S + paused_s(s, r);

    if (s->links.place)
        most += SCHEDULE_EXPEL_S + SLACK_S;
    if (took > most * spr_time_factor())
        return schedule_fail(play, r, k, "it took %.3f s", took);
    return true;
}

/* Can the operation be through on a rank only when another has called it, too? */
static bool needs(const struct schedule_operation *o, int rank, int other, int ranks)
{
    if (o->count == 0 && o->kind != SCHEDULE_BARRIER)
        return false;
    if (o->kind == SCHEDULE_SENDRECV)
        return other == schedule_source(o, rank, ranks);
    return o->kind != SCHEDULE_BROADCAST || other == o->root;
}

static bool called_otherwise(const struct schedule *s, int r, int k)
{
    return r == s->odd_rank && ((s->odd == SCHEDULE_MISSING && k >= s->odd_operation) ||
                                (s->odd >= SCHEDULE_OTHER_COUNT && s->odd <= SCHEDULE_OTHER_KIND &&
                                 k == s->odd_operation));
}

static bool check_company(struct schedule_play *play, int r, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_operation *o = schedule_call_of(s, r, k);

    for (int q = 0; q < s->ranks; q++) {
        bool same = called_otherwise(s, q, k) == called_otherwise(s, r, k);
        if (needs(o, r, q, s->ranks) && (!play->call[q][k].posted || !same))
            return schedule_fail(play, r, k, "it succeeded without rank %d", q);
    }
    return true;
}

/* The first compressed call of a rank that did not end well; -1. */
static int first_failed(const struct schedule_play *play, int r)
{
    for (int k = 0; k < play->next[r]; k++)
        if (play->call[r][k].before && play->call[r][k].status != SPR_OK &&
            play->call[r][k].status != SPR_ERR_MISMATCH)
            return k;
    return -1;
}

/* After a failure the step is in the residual, whole, and nothing of it has left the velocity; a
 * later one leaves both alone. */
static bool check_residual(struct schedule_play *play, int r, int k)
{
    const struct schedule_call *c = &play->call[r][k];
    const float *residual = spr_codec_residual(play->codec[r]);
    bool good = c->status == SPR_OK;
    bool first = c->status == SPR_ERR_MISMATCH || first_failed(play, r) == k;
    const float *gradient = (const float *)(const void *)c->in;

    for (size_t i = 0; i < play->schedule.codec_elements; i++) {
        float want = c->before[i];
        if (good) {
            c->sent[i] = c->before[i] + c->entered[i] - residual[i];
            continue;
        }
        if (first)
            want = schedule_residual_after(play->codec[r], want, c->velocity[i], gradient[i]);
        if (residual[i] != want)
            return schedule_fail(play, r, k,
                                 "element %zu of the residual is %.9g, not %.9g (%.9g before)", i,
                                 (double)residual[i], (double)want, (double)c->before[i]);
    }
    return good || schedule_check_velocity(play, r, k, first);
}

/* An operation that the ranks disagree on fails, and nothing else does. The step that was not sent
 * is given up, so that the next one is not its retry. */
static bool check_mismatch(struct schedule_play *play, int r, int k)
{
    if (!schedule_mismatches(&play->schedule) || k != play->schedule.odd_operation)
        return schedule_fail(play, r, k, "a mismatch where there is none");
    if (play->call[r][k].before && !check_residual(play, r, k))
        return false;
    if (play->call[r][k].before)
        spr_codec_drop(play->codec[r]);
    return true;
}

bool schedule_check_call(struct schedule_play *play, int r, int k)
{
    const struct schedule_call *c = &play->call[r][k];
    const struct spr_error *error = &play->world.comms[r]->error;

    if (!check_deadline(play, r, k))
        return false;
    if (c->status == SPR_OK && !check_company(play, r, k))
        return false;
    if (c->status == SPR_ERR_MISMATCH)
        return check_mismatch(play, r, k);
    if (c->status != SPR_OK && !error->status)
        return schedule_fail(play, r, k, "%s on a sound communicator", spr_status_name(c->status));
    if (c->status != SPR_OK && c->status != error->status && c->status != SPR_ERR_REVOKED &&
        c->status != SPR_ERR_CANCELED)
        return schedule_fail(play, r, k, "%s after a failure", spr_status_name(c->status));
    return !c->before || check_residual(play, r, k);
}

/* Results -------------------------------------------------------------------------------------- */

static bool check_sums(struct schedule_play *play, int rank, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_operation *o = &s->operation[k];
    size_t offset = o->kind == SCHEDULE_REDUCE_SCATTER ? (size_t)rank * o->count : 0;
    double x[SCHEDULE_RANKS], bound, want, have;

    for (size_t i = 0; i < o->count; i++) {
        for (int r = 0; r < s->ranks; r++)
            x[r] = reference_load(o->dtype, play->call[r][k].in, offset + i);
        want = reference_reduce(x, s->ranks, o->dtype, o->op, &bound);
        have = reference_load(o->dtype, play->call[rank][k].out, i);
        if (!(fabs(have - want) <= bound))
            return schedule_fail(play, rank, k, "element %zu is %.17g, not %.17g", i, have, want);
    }
    return true;
}

/* The list has every index of every rank's list, and the values of the dense result. */
static bool check_list(struct schedule_play *play, int rank, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_call *c = &play->call[rank][k];
    const float *dense = (const float *)(const void *)c->out;
    size_t at[SCHEDULE_RANKS] = {0}, n = 0;

    for (uint32_t i = 0; i < s->operation[k].count; i++) {
        bool listed = false;
        for (int r = 0; r < s->ranks; r++) {
            const spr_sparse *list = &play->call[r][k].list;
            if (at[r] < list->count && list->index[at[r]] == i) {
                at[r]++;
                listed = true;
            }
        }
        if (!listed)
            continue;
        if (n >= c->result.count || c->result.index[n] != i ||
            memcmp(&c->result.value[n], &dense[i], sizeof(float)))
            return schedule_fail(play, rank, k, "entry %zu of the list is wrong", n);
        n++;
    }
    return n == c->result.count || schedule_fail(play, rank, k, "the list is too long");
}

static bool check_copies(struct schedule_play *play, int rank, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_operation *o = &s->operation[k];
    size_t bytes = o->count * spr_dtype_size(o->dtype);
    const char *out = play->call[rank][k].out;

    if (o->kind == SCHEDULE_BROADCAST && memcmp(out, play->call[o->root][k].in, bytes))
        return schedule_fail(play, rank, k, "not what the root sent");
    if (o->kind == SCHEDULE_SENDRECV &&
        memcmp(out, play->call[schedule_source(o, rank, s->ranks)][k].in, bytes))
        return schedule_fail(play, rank, k, "not what the source sent");
    for (int r = 0; o->kind == SCHEDULE_ALLGATHER && r < s->ranks; r++)
        if (memcmp(out + (size_t)r * bytes, play->call[r][k].in, bytes))
            return schedule_fail(play, rank, k, "not what rank %d gave", r);
    return true;
}

/* `first`: the first rank that succeeded; it is checked against the inputs, others against it. */
static bool check_success(struct schedule_play *play, int rank, int k, int first)
{
    const struct schedule_operation *o = schedule_call_of(&play->schedule, rank, k);
    size_t element = spr_dtype_size(o->dtype);
    const char *out = play->call[rank][k].out;
    bool same = o->kind == SCHEDULE_ALLREDUCE || o->kind == SCHEDULE_SPARSE ||
                o->kind == SCHEDULE_COMPRESSED;

    if ((unsigned char)out[o->out_count * element] != GUARD)
        return schedule_fail(play, rank, k, "written past the end");
    if (called_otherwise(&play->schedule, rank, k))
        return true; /* a root that is alone with its broadcast */
    if (same && rank != first && memcmp(out, play->call[first][k].out, o->count * element))
        return schedule_fail(play, rank, k, "other bits than rank %d", first);
    if ((same && rank == first && o->kind != SCHEDULE_COMPRESSED) ||
        o->kind == SCHEDULE_REDUCE_SCATTER)
        if (!check_sums(play, rank, k))
            return false;
    if (o->list && !check_list(play, rank, k))
        return false;
    return check_copies(play, rank, k);
}

static bool check_results(struct schedule_play *play)
{
    const struct schedule *s = &play->schedule;

    for (int k = 0; k < s->operations; k++) {
        int first = -1;
        for (int r = 0; r < s->ranks; r++) {
            const struct schedule_call *c = &play->call[r][k];
            if (c->ended && c->status == SPR_OK) {
                first = first < 0 ? r : first;
                if (!check_success(play, r, k, first))
                    return false;
            } else if (schedule_culprits(s) == 0 && c->status != SPR_ERR_MISMATCH) {
                return schedule_fail(play, r, k, "%s without a fault", spr_status_name(c->status));
            }
        }
    }
    return true;
}

/* Whose fault ---------------------------------------------------------------------------------- */

static bool is_empty(const struct schedule_operation *o, int ranks)
{
    return (o->count == 0 && o->kind != SCHEDULE_BARRIER) ||
           (o->kind == SCHEDULE_SENDRECV && o->root % ranks == 0);
}

unsigned schedule_culprits(const struct schedule *s)
{
    unsigned culprits = 0;

    for (int i = 0; i < s->faults; i++) {
        const struct schedule_fault *f = &s->fault[i];
        if (f->kind >= SCHEDULE_KILL)
            culprits |= 1u << f->rank;
        if (f->kind >= SCHEDULE_SILENCE)
            culprits |= 1u << f->peer;
    }
    /* A rank that has nothing to send or to wait for is through before it hears that others call
     * something else, and they may hear nothing of it before their deadline. */
    if ((s->odd != SCHEDULE_EVEN && !schedule_mismatches(s)) ||
        (schedule_mismatches(s) &&
         (is_empty(&s->operation[s->odd_operation], s->ranks) || is_empty(&s->odd_call, s->ranks))))
        culprits |= 1u << s->odd_rank;
    return culprits;
}

/* Failures ------------------------------------------------------------------------------------- */

static bool check_blame(struct schedule_play *play, int r)
{
    const struct schedule *s = &play->schedule;
    const struct spr_error *error = &play->world.comms[r]->error;
    unsigned culprits = schedule_culprits(s);

    if (!error->status)
        return true;
    if (culprits == 0)
        return schedule_fail(play, r, -1, "a failure without a fault");
    if (error->status == SPR_ERR_DEADLINE) {
        play->deadlines++;
        play->right_deadlines += error->rank >= 0 && culprits >> error->rank & 1;
        return true;
    }
    if (error->rank < 0 || !(culprits >> error->rank & 1))
        return schedule_fail(play, r, -1, "blames rank %d for %s", error->rank,
                             spr_status_name(error->status));
    return true;
}

static bool reaches(const struct schedule *s, int from, int to)
{
    for (int i = 0; i < s->faults; i++) {
        const struct schedule_fault *f = &s->fault[i];
        if (f->kind == SCHEDULE_SILENCE && f->rank == from && f->peer == to)
            return false;
        if (f->kind == SCHEDULE_BREAK &&
            ((f->rank == from && f->peer == to) || (f->rank == to && f->peer == from)))
            return false;
    }
    return true;
}

static bool is_there(const struct schedule_play *play, int r)
{
    return play->world.comms[r] && !play->left[r] && schedule_survives(play, r);
}

static bool check_uniformity(struct schedule_play *play)
{
    const struct schedule *s = &play->schedule;

    for (int r = 0; r < s->ranks; r++) {
        if (!is_there(play, r) || play->world.comms[r]->error.status)
            continue;
        for (int q = 0; q < s->ranks; q++)
            if (q != r && is_there(play, q) && play->world.comms[q]->error.status &&
                reaches(s, q, r))
                return schedule_fail(play, r, -1, "rank %d failed and this one does not know", q);
    }
    return true;
}

/* A damaged frame, the only thing that is wrong, does not go unnoticed. Repeated ones come up to
 * three frames later. */
static bool check_noticed(struct schedule_play *play)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_fault *damage = NULL;
    int wrong =
        s->leave || s->odd != SCHEDULE_EVEN; /* of an operation that is over, none is read */
    uint64_t frames;

    for (int i = 0; i < s->faults; i++) {
        wrong += s->fault[i].kind >= SCHEDULE_KILL;
        if (s->fault[i].kind >= SCHEDULE_CORRUPT)
            damage = &s->fault[i];
    }
    if (!damage || wrong > 1)
        return true;
    frames = damage->nth + (damage->kind == SCHEDULE_REPLAY ? 4 : 1);
    if (spr_sim_sent_frames(play->world.sim, damage->rank, damage->peer) >= frames &&
        !play->world.comms[damage->peer]->error.status)
        return schedule_fail(play, damage->peer, -1, "a damaged frame of rank %d was taken",
                             damage->rank);
    return true;
}

/* Memory --------------------------------------------------------------------------------------- */

/* Of all ranks. A rank: its communicator with the flight recorder, and for each peer what that may
 * send ahead. An operation in flight: an arena; a sparse one has buffers of a frame besides. */
static size_t memory_bound(const struct schedule *s)
{
    size_t frame = SPR_FRAME_MAX_PAYLOAD + 4096, ranks = (size_t)s->ranks;
    size_t rank = ((size_t)300 << 10) + ranks * (s->eager_window + 32768);

    for (int k = 0; k < s->operations; k++) {
        const struct schedule_operation *o = &s->operation[k];
        size_t vector = spr_max_size(o->in_count, o->out_count) * 8;
        rank += 69632 + (ranks + 3) * spr_min_size(vector, SPR_CHUNK_BYTES * 8) + 3 * ranks * frame;
        if (o->kind == SCHEDULE_SPARSE || o->kind == SCHEDULE_COMPRESSED)
            rank += 5 * ranks * frame + ((size_t)2 << 20) + vector;
    }
    return ranks * rank;
}

/* Quiet. */
static bool check_quiet(struct schedule_play *play)
{
    for (int r = 0; r < play->schedule.ranks; r++)
        for (int k = 0; k < play->schedule.operations; k++)
            if (play->call[r][k].ended && play->call[r][k].out_crc != schedule_out_crc(play, r, k))
                return schedule_fail(play, r, k, "its memory was written after its end");
    return true;
}

/* Order. */
static bool check_order(struct schedule_play *play, int r)
{
    const struct spr_trace *t = play->world.comms[r]->trace;
    uint64_t first = t->next - spr_min_u64(t->next, SPR_TRACE_EVENTS), last_ns = 0;

    for (uint64_t n = first; n < t->next; n++) {
        const struct spr_event *e = &t->ring[n % SPR_TRACE_EVENTS];
        if (e->ns < last_ns)
            return schedule_fail(play, r, -1, "its event of kind %u has a time %.9f s too early",
                                 e->kind, (double)(last_ns - e->ns) * 1e-9);
        last_ns = e->ns;
    }
    return true;
}

bool schedule_check(struct schedule_play *play)
{
    size_t bytes;

    if (!check_results(play))
        return false;
    for (int r = 0; r < play->schedule.ranks; r++)
        if (play->world.comms[r] && schedule_survives(play, r) &&
            (!check_blame(play, r) || !check_order(play, r)))
            return false;
    if (!check_uniformity(play) || !check_noticed(play) || !check_quiet(play))
        return false;
    bytes = (size_t)(play->most_bytes - play->live_bytes);
    return bytes <= memory_bound(&play->schedule) ||
           schedule_fail(play, -1, -1, "%zu bytes in use at once, more than %zu", bytes,
                         memory_bound(&play->schedule));
}
