/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Steps of codecs, for the tests of these: which codecs, and what a step sends.
 */
#ifndef TESTS_UNIT_CODEC_STEPS_H
#define TESTS_UNIT_CODEC_STEPS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "compress/codec.h"
#include "tools/codec/data.h"

#define CODEC_N 20000 /* beyond the size up to which top-k looks at everything */

static const spr_layout codec_layout[] = {
    {.id = 40, .name = "embedding", .offset = 0, .rows = 100, .columns = 150},
    {.id = 7, .name = "bias", .offset = 15000, .rows = 1, .columns = 1},
    {.id = 9, .name = "empty", .offset = 15001, .rows = 0, .columns = 5},
    {.id = 1, .offset = 15001, .rows = 4999, .columns = 1},
};

/* What they take from the residual is exact, ... */
static const char *const codec_specs[] = {
    "topk:ratio=1%",
    "topk:ratio=5%+fp16",
    "topk:ratio=100%+bf16",
    "none",
    "fp16",
    "bf16",
    "accumulate:ratio=5%,threshold=2",
    "threshold:by=absolute,value=1.5+fp16",
    "threshold:by=rms,value=2",
    "sampled:ratio=2%+bf16",
    "block:ratio=4%",
    "block:ratio=10%,norm=max+fp16",
    /* What these select depends on the steps before, or on their number. */
    "threshold:ratio=2%",
    "reuse:ratio=1%,period=3+fp16",
    "adaptive:ratio=2%",
    "adaptive:ratio=10%,error=50%,calm=1%,every=1+fp16",
    "random:ratio=5%",
    "randomk:ratio=25%+bf16",
};
#define CODEC_STATELESS 12 /* the first of them */
/* ... and here rounded to fp32. Values are coded; with error feedback. */
static const char *const coded_specs[] = {
    "topk:ratio=5%+int8:group=256",
    "topk:ratio=30%+int8:rounding=stochastic",
    "topk:ratio=1%+bounded:error=0.01",
    "topk:ratio=10%+qsgd:levels=7,coding=elias",
    "adaptive:ratio=2%,every=3+int8",
    "random:ratio=1%+int8",
    "threshold:by=absolute,value=1,most=30%+sign:group=64",
    "block:ratio=2%+int4",
    "int8",
    "int4:group=64",
    "bounded:error=0,bits=4,group=96",
    "sign",
};

static inline spr_codec *codec_make(const char *spec)
{
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create(spec, codec_layout, SPR_ARRAY_LEN(codec_layout), &codec),
                     SPR_OK);
    assert_int_equal(spr_codec_elements(codec), CODEC_N);
    return codec;
}

/* What others make of the step that runs, as a dense vector; 0 where nothing is sent. */
static inline void codec_sent_of(const spr_codec *codec, const struct spr_codec_step *step,
                                 float *sent)
{
    static float value[CODEC_N];

    if (!step->index) {
        spr_codec_sent(codec, step, sent);
        return;
    }
    spr_codec_sent(codec, step, value);
    memset(sent, 0, CODEC_N * sizeof(float));
    for (size_t i = 0; i < step->count; i++) {
        assert_true(i == 0 || step->index[i] > step->index[i - 1]);
        sent[step->index[i]] = value[i];
    }
}

static inline void codec_step_of(spr_codec *codec, const float *gradient, float *sent)
{
    struct spr_codec_step step;

    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    codec_sent_of(codec, &step, sent);
}

/* Some steps of each codec: residual' + sent = residual + gradient, element by element, where the
 * sum is rounded once to fp32, but for `relative` of the larger of the two. Nothing is allocated.
 */
static inline void codec_expect_kept(const char *const *specs, size_t count, int steps,
                                     double relative, struct spr_rng *rng)
{
    static float gradient[CODEC_N], before[CODEC_N], sent[CODEC_N];

    for (size_t s = 0; s < count; s++) {
        spr_codec *codec = codec_make(specs[s]);
        int64_t live = spr_mem_live();

        for (int step = 0; step < steps; step++) {
            memcpy(before, spr_codec_residual(codec), sizeof(before));
            data_fill((enum data)(step % 2 ? DATA_LAYERS : DATA_NORMAL), gradient, CODEC_N, rng);
            codec_step_of(codec, gradient, sent);
            spr_codec_commit(codec);
            for (size_t i = 0; i < CODEC_N; i++) {
                double sum = (double)(before[i] + gradient[i]), out = (double)sent[i];
                double error = (double)spr_codec_residual(codec)[i] + out - sum;
                assert_true(fabs(error) <= relative * fmax(fabs(sum), fabs(out)));
            }
        }
        assert_int_equal(spr_mem_live(), live);
        spr_codec_destroy(codec);
    }
}

#endif
