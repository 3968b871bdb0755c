/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selection "powersgd": of each matrix the two skinny factors that compress/lowrank/ finds, in two
 * rounds, since the second depends on the sum of the first. Vectors, and what is too small to gain,
 * are part of the first round as they are.
 *
 *   begin   residual += gradient (and -= what the step before sent);  P, and the vectors
 *   next    P is a sum: its basis;  Q, unless there is no matrix
 *   next    Q is a sum: the gradient becomes P Q^T, and the sum of the vectors
 *
 * An abort leaves the gradient in the residual and changes nothing else, so a retry sends the same
 * bits. So does a revoke, unless the next step has begun: then the retry sends what is best of both
 * gradients, and nothing of either is lost.
 */
#include "compress/codec_internal.h"

#include <string.h>

#include "base/util.h"

static const struct spr_lowrank_options *options_of(const spr_codec *codec)
{
    return (const void *)codec->options;
}

/* What sizes depend on. */
static struct spr_lowrank shape_of(const spr_codec *codec)
{
    return (struct spr_lowrank){
        .tensors = codec->tensors,
        .count = codec->parameter_count,
        .rank = (unsigned)options_of(codec)->rank,
    };
}

/* Workspace: orthogonalisation's, state, P, Q; each from a cache line on. */
static size_t lines(size_t bytes) { return spr_align_up(bytes, 64); }

static size_t lowrank_workspace(const spr_codec *codec)
{
    struct spr_lowrank l = shape_of(codec);

    return lines(spr_lowrank_workspace(&l)) + lines(spr_lowrank_state_floats(&l) * sizeof(float)) +
           lines(spr_lowrank_p_floats(&l) * sizeof(float)) +
           lines(spr_lowrank_q_floats(&l) * sizeof(float)) + 64;
}

static float *state_of(const spr_codec *codec)
{
    return (float *)(void *)((char *)codec->workspace +
                             lines(spr_lowrank_workspace(&codec->lowrank)));
}

static float *p_of(const spr_codec *codec)
{
    size_t bytes = spr_lowrank_state_floats(&codec->lowrank) * sizeof(float);

    return state_of(codec) + lines(bytes) / sizeof(float);
}

static float *q_of(const spr_codec *codec)
{
    size_t bytes = spr_lowrank_p_floats(&codec->lowrank) * sizeof(float);

    return p_of(codec) + lines(bytes) / sizeof(float);
}

static bool conserves(const spr_codec *codec)
{
    (void)codec;
    return false; /* not for each element: factors are summed, not products */
}

static void lowrank_init(spr_codec *codec)
{
    codec->lowrank = shape_of(codec);
    codec->lowrank.residual = codec->residual;
    codec->lowrank.state = state_of(codec);
    spr_lowrank_reset(&codec->lowrank);
    codec->residual_zero = false;
}

static size_t lowrank_vector(const spr_codec *codec)
{
    return spr_lowrank_p_floats(&codec->lowrank);
}

static void send(struct spr_codec_step *step, float *vector, size_t count)
{
    step->dense = true;
    step->vector = step->sum = vector;
    step->count = count;
}

static void lowrank_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    spr_lowrank_project(&codec->lowrank, gradient, p_of(codec));
    codec->factors = false;
    send(step, p_of(codec), spr_lowrank_p_floats(&codec->lowrank));
}

static void lowrank_replay(spr_codec *codec, struct spr_codec_step *step)
{
    lowrank_begin(codec, NULL, step);
}

static bool lowrank_next(spr_codec *codec, float *gradient, struct spr_codec_step *step)
{
    float *q = q_of(codec);
    size_t count = spr_lowrank_q_floats(&codec->lowrank);

    if (!codec->factors) {
        spr_lowrank_correlate(&codec->lowrank, p_of(codec), q, codec->workspace);
        codec->factors = true;
        spr_quality_factors(codec, gradient);
        if (count > 0) {
            send(step, q, count);
            return true;
        }
    }
    spr_lowrank_commit(&codec->lowrank, p_of(codec), q, 1, gradient);
    return false;
}

/* The last round has done it. */
static void lowrank_commit(spr_codec *codec) { (void)codec; }

/* What was sent last before this step left the residual when it began: pending is what this one has
 * sent itself, if its last round is over. */
static void lowrank_abort(spr_codec *codec) { codec->lowrank.pending = false; }

static void lowrank_revoke(spr_codec *codec) { spr_lowrank_revoke(&codec->lowrank); }

static void lowrank_settle(spr_codec *codec) { spr_lowrank_settle(&codec->lowrank); }

const struct spr_codec_steps spr_codec_low_rank = {
    .workspace = lowrank_workspace,
    .conserves = conserves,
    .init = lowrank_init,
    .begin = lowrank_begin,
    .replay = lowrank_replay,
    .commit = lowrank_commit,
    .abort = lowrank_abort,
    .revoke = lowrank_revoke,
    .vector = lowrank_vector,
    .next = lowrank_next,
    .settle = lowrank_settle,
};
