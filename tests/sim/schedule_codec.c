/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Conservation: what the codecs sent and kept is what went in, to the bit (compressed schedules are
 * of small whole numbers, and halves of halves of them where there is a velocity or a decay).
 *
 * Where a step succeeded, its result is the sum of what all ranks sent, also of those that failed.
 * Where it failed, or was taken back by a shrink, the codec's state is that of one that never ran
 * it, and a retry sends the same bits and gives the sum of an undisturbed run. Of factors
 * ("powersgd") the sum over ranks is conserved, within rounding.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/codec_internal.h"
#include "tests/sim/schedules.h"

#define LIMIT_NS 3600000000000ull
#define COLUMNS 16 /* of a matrix */

static bool went_well(const struct schedule_call *c)
{
    return c->ended && c->status == SPR_OK && !c->revoked;
}

/* The first step of a rank from `k` on that did not end well; `operations` when all did. */
static int broken_step(const struct schedule_play *play, int r, int k)
{
    while (k < play->schedule.operations &&
           (!play->call[r][k].before || went_well(&play->call[r][k])))
        k++;
    return k;
}

static const float *gradient(const struct schedule_play *play, int r, int k)
{
    return (const float *)(const void *)play->call[r][k].in;
}

spr_codec *schedule_codec(const struct schedule *s)
{
    size_t n = s->codec_elements, rows = s->low_rank ? n / COLUMNS : 0, in_rows = rows * COLUMNS;
    spr_layout layout[2] = {{1, "matrix", 0, rows, COLUMNS},
                            {2, "vector", in_rows, n - in_rows, 1}};
    int first = rows == 0, end = n > in_rows ? 2 : 1;
    spr_codec *codec;

    if (spr_codec_create(s->codec, layout + first, (size_t)(end - first), &codec) != SPR_OK)
        abort();
    return codec;
}

double schedule_codec_bound(const struct schedule *s, double size)
{
    /* What a sum has lost may be as large as the sum of what all ranks sent. */
    double row =
        s->ranks * SCHEDULE_OPERATIONS * SCHEDULE_LARGEST * sqrt((double)s->codec_elements);

    return s->low_rank          ? (size + row) * 0x1p-22
           : s->kind.round_sums ? (size + s->ranks * 2 * SCHEDULE_LARGEST) * 0x1p-22
           : s->kind.coded      ? size * 0x1p-22
                                : 0;
}

static float velocity_after(const struct spr_feedback_options *f, float before, float gradient)
{
    float m = (float)f->momentum;

    return f->rule == SPR_FEEDBACK_NESTEROV ? m * (before + gradient) : m * before + gradient;
}

float schedule_residual_after(const spr_codec *codec, float residual, float velocity,
                              float gradient)
{
    const struct spr_feedback_options *f = spr_codec_feedback(codec);

    if (f->rule == SPR_FEEDBACK_DECAY)
        residual *= (float)f->decay;
    else if (codec->velocity)
        residual += velocity_after(f, velocity, gradient);
    if (codec->velocity && f->rule != SPR_FEEDBACK_NESTEROV)
        return residual;
    return residual + gradient;
}

void schedule_enter(const spr_codec *codec, const float *gradient, float *entered, size_t n)
{
    const struct spr_feedback_options *f = spr_codec_feedback(codec);
    const float *residual = spr_codec_residual(codec), *u = codec->velocity;
    float rest = 1 - (float)f->decay;

    for (size_t i = 0; i < n; i++) {
        entered[i] = schedule_residual_after(codec, 0, u ? u[i] : 0, gradient[i]);
        if (f->rule == SPR_FEEDBACK_DECAY)
            entered[i] -= rest * residual[i];
    }
}

bool schedule_check_velocity(struct schedule_play *play, int r, int k, bool entered)
{
    const struct schedule_call *c = &play->call[r][k];
    const spr_codec *codec = play->codec[r];

    for (size_t i = 0; codec->velocity && i < play->schedule.codec_elements; i++) {
        float u = c->velocity[i];

        if (entered)
            u = velocity_after(spr_codec_feedback(codec), u, gradient(play, r, k)[i]);
        if (codec->velocity[i] != u)
            return schedule_fail(play, r, k, "element %zu of the velocity is %g, not %g", i,
                                 (double)codec->velocity[i], (double)u);
    }
    return true;
}

static void begin(const struct schedule_play *play, spr_codec *codec, int r, int k,
                  struct spr_codec_step *step)
{
    const struct schedule *s = &play->schedule;
    const struct spr_codec_place place = {
        .blocks = spr_blocks_choose(spr_codec_vector(codec), (uint32_t)s->ranks),
        .rank = (uint32_t)r};

    spr_codec_begin_at(codec, gradient(play, r, k), &place, step);
}

/* What others make of the step that runs, as a vector. */
static void spread(const spr_codec *codec, const struct spr_codec_step *step, float *out, size_t n)
{
    float *sent = malloc((step->index ? step->count : n) * sizeof *sent + 1);

    if (!sent)
        abort();
    spr_codec_sent(codec, step, sent);
    memset(out, 0, n * sizeof *out);
    if (!step->index)
        memcpy(out, sent, n * sizeof *out);
    for (size_t i = 0; step->index && i < step->count; i++)
        out[step->index[i]] = sent[i];
    free(sent);
}

static bool same_step(const struct spr_codec_step *a, const struct spr_codec_step *b, size_t n)
{
    if (a->coding.seed != b->coding.seed || a->number != b->number)
        return false;
    if (!a->index)
        return !b->index && !memcmp(a->vector, b->vector, n * sizeof(float));
    return a->count == b->count && !memcmp(a->index, b->index, a->count * sizeof *a->index) &&
           !memcmp(a->value, b->value, a->count * sizeof *a->value);
}

/* What the step behind a revoked one had added to the residual, or NULL. */
static const float *absorbed_later(const struct schedule_play *play, int r, int broken)
{
    int operations = play->schedule.operations;
    int later = play->call[r][broken].revoked ? broken_step(play, r, broken + 1) : operations;

    return later < operations && play->call[r][later].ended ? play->call[r][later].entered : NULL;
}

/* Is `a` what `b` is, and besides what the step behind a revoked one had absorbed? */
static bool same_residual(const struct schedule_play *play, int r, int broken, const float *a,
                          const float *b)
{
    const struct schedule *s = &play->schedule;
    const float *later = absorbed_later(play, r, broken);

    if (!later)
        return !memcmp(a, b, s->codec_elements * sizeof *a);
    for (size_t i = 0; i < s->codec_elements; i++) {
        float both = b[i] + later[i];
        double size = fabs((double)b[i]) + fabs((double)play->call[r][broken].entered[i]) +
                      fabs((double)later[i]);
        if (!(fabs((double)a[i] - (double)both) <= schedule_codec_bound(s, size)))
            return false;
    }
    return true;
}

/* Does what comes out depend on more than what each rank has sent? Then only the residuals tell. */
static bool by_residual(const spr_codec *codec)
{
    return spr_codec_sum_vtype(codec) != SPR_V_FP32 || spr_codec_bounds_union(codec) ||
           spr_codec_bounds_hosts(codec) || spr_codec_may_sum_first(codec) ||
           codec->selection->steps == &spr_codec_low_rank;
}

/* What there was before the step: also what sums have lost, and what was taken back, which a codec
 * alone does not know. */
static void put_before(const struct schedule_play *play, spr_codec *codec, int r, int k)
{
    const struct schedule_call *c = &play->call[r][k];
    const float *before = c->posted ? c->before : spr_codec_residual(play->codec[r]);
    const float *velocity = c->posted ? c->velocity : play->codec[r]->velocity;
    size_t bytes = play->schedule.codec_elements * sizeof(float);

    if (!by_residual(codec))
        return;
    memcpy(codec->residual, before, bytes);
    codec->residual_zero = false;
    if (codec->velocity)
        memcpy(codec->velocity, velocity, bytes);
}

/* What factors are sent depends on the sums of those before, but a retry begins with the same. */
static bool check_factors(struct schedule_play *play, int r, int broken)
{
    struct schedule_call *c = &play->call[r][broken];
    spr_codec *codec = play->codec[r];
    struct spr_codec_step step;
    float *first;
    bool same;

    spr_codec_abort(codec); /* of a rank that died */
    if (!c->posted) {
        memcpy(c->before, spr_codec_residual(codec), play->schedule.codec_elements * sizeof(float));
        schedule_enter(codec, gradient(play, r, broken), c->entered, play->schedule.codec_elements);
    }
    begin(play, codec, r, broken, &step);
    first = malloc(step.count * sizeof *first + 1);
    if (!first)
        abort();
    memcpy(first, step.vector, step.count * sizeof *first);
    spr_codec_abort(codec);
    begin(play, codec, r, broken, &step);
    same = !memcmp(first, step.vector, step.count * sizeof *first);
    spr_codec_abort(codec);
    free(first);
    return same || schedule_fail(play, r, broken, "a retry would send something else");
}

/* Retry the broken step with the codec that failed and with one that never did. The codec is as
 * after the failure then; call.sent is what it sends. */
static bool check_retry(struct schedule_play *play, int r, int broken)
{
    const struct schedule *s = &play->schedule;
    size_t n = s->codec_elements;
    struct spr_codec_step step, other;
    spr_codec *fresh;
    bool same;

    if (s->low_rank)
        return check_factors(play, r, broken);
    fresh = schedule_codec(s);
    for (int k = 0; k < broken; k++) {
        if (!play->call[r][k].before)
            continue;
        put_before(play, fresh, r, k);
        begin(play, fresh, r, k, &other);
        spr_codec_commit(fresh);
    }
    put_before(play, fresh, r, broken);
    /* Of a rank that died before, nobody has seen it. */
    memcpy(play->call[r][broken].before, spr_codec_residual(fresh), n * sizeof(float));
    schedule_enter(fresh, gradient(play, r, broken), play->call[r][broken].entered, n);
    spr_codec_abort(play->codec[r]); /* of a rank that died */
    begin(play, play->codec[r], r, broken, &step);
    begin(play, fresh, r, broken, &other);
    spread(play->codec[r], &step, play->call[r][broken].sent, n);
    same = same_step(&step, &other, n);
    spr_codec_commit(fresh);
    spr_codec_commit(play->codec[r]);
    same = same && same_residual(play, r, broken, spr_codec_residual(play->codec[r]),
                                 spr_codec_residual(fresh));
    spr_codec_revoke(play->codec[r]);
    spr_codec_destroy(fresh);
    return same || schedule_fail(play, r, broken, "a retry would send something else");
}

static bool check_sum(struct schedule_play *play, int rank, int k, const float *out)
{
    const struct schedule *s = &play->schedule;
    static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8};
    int halves = s->kind.lists              ? 0
                 : strstr(s->codec, "fp16") ? 1
                 : strstr(s->codec, "bf16") ? 2
                                            : 0;

    for (size_t i = 0; i < s->codec_elements; i++) {
        double sum = 0, bound = 0, size = 0;
        for (int r = 0; r < s->ranks; r++) {
            const struct schedule_call *c = &play->call[r][k];
            sum += (double)c->sent[i];
            size +=
                fabs((double)c->sent[i]) + fabs((double)c->before[i]) + fabs((double)c->entered[i]);
        }
        if (s->operation[k].op == SPR_AVG) {
            sum /= s->ranks;
            bound = fabs(sum) * unit[halves];
        }
        bound += schedule_codec_bound(s, size);
        if (!(fabs((double)out[i] - sum) <= bound))
            return schedule_fail(play, rank, k, "element %zu is %g, and %g was sent", i,
                                 (double)out[i], sum);
    }
    return true;
}

/* What a rank has sent, as far as it was sent on, is what has left its residual. */
static void take_sent(const struct schedule_play *play, int r, int k)
{
    const struct schedule_call *c = &play->call[r][k];
    const float *residual = spr_codec_residual(play->codec[r]);
    const float *later = absorbed_later(play, r, k);

    for (size_t i = 0; i < play->schedule.codec_elements; i++)
        if (by_residual(play->codec[r]))
            c->sent[i] = c->before[i] + c->entered[i] + (later ? later[i] : 0) - residual[i];
}

/* All ranks, the dead ones too, run the step again in a job without faults. */
static bool retry_together(struct schedule_play *play, int k)
{
    const struct schedule *s = &play->schedule;
    struct spr_sim_options links = {.ranks = s->ranks, .seed = s->seed, .latency_s = 10e-6};
    static struct world w;
    bool good;

    world_create(&w, &links);
    for (int r = 0; r < s->ranks; r++) {
        float *out = (float *)(void *)play->call[r][k].out;
        memcpy(out, play->call[r][k].in, s->codec_elements * sizeof *out);
        if (spr_icompressed_allreduce(w.comms[r], play->codec[r], out, s->operation[k].op, NULL,
                                      &w.requests[r]) != SPR_OK)
            abort();
    }
    good = world_run(&w, LIMIT_NS);
    for (int r = 0; r < s->ranks; r++)
        good = good && w.results[r] == SPR_OK;
    world_destroy(&w);
    if (!good)
        return schedule_fail(play, -1, k, "the retry failed");
    for (int r = 0; r < s->ranks; r++)
        take_sent(play, r, k);
    for (int r = 0; r < s->ranks; r++)
        if (!check_sum(play, r, k, (const float *)(const void *)play->call[r][k].out))
            return false;
    return true;
}

/* Is it known of all ranks what they sent in this step? */
static bool all_sent(const struct schedule_play *play, const int *broken, int k)
{
    const struct schedule *s = &play->schedule;

    for (int r = 0; r < s->ranks; r++) {
        const struct schedule_call *c = &play->call[r][k];
        if (!c->sent)
            return false;
        if (c->ended && c->status == SPR_OK)
            continue;
        /* What a rank that failed has kept, nobody knows. */
        if (k != broken[r] || schedule_mismatches(s) || by_residual(play->codec[r]))
            return false;
    }
    return true;
}

bool schedule_check_codecs(struct schedule_play *play)
{
    const struct schedule *s = &play->schedule;
    int broken[SCHEDULE_RANKS], least = s->operations, most = 0;

    for (int r = 0; r < s->ranks; r++) {
        if (!play->codec[r])
            return true;
        broken[r] = broken_step(play, r, 0);
        least = broken[r] < least ? broken[r] : least;
        most = broken[r] > most ? broken[r] : most;
        if (broken[r] < s->operations && !schedule_mismatches(s) &&
            !check_retry(play, r, broken[r]))
            return false;
    }
    for (int k = 0; k < s->operations; k++)
        for (int r = 0; r < s->ranks && all_sent(play, broken, k); r++)
            if (play->call[r][k].ended && play->call[r][k].status == SPR_OK &&
                !check_sum(play, r, k, (float *)(void *)play->call[r][k].out))
                return false;
    /* Only where all ranks are at the same step. */
    return least < most || least == s->operations || s->odd != SCHEDULE_EVEN ||
           retry_together(play, least);
}
