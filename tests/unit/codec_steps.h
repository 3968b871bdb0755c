/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Steps of codecs, for the tests of these: which codecs, and what a step sends.
 */
#ifndef TESTS_UNIT_CODEC_STEPS_H
#define TESTS_UNIT_CODEC_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compress/codec.h"

#define CODEC_N 20000 /* beyond the size up to which top-k looks at everything */

static const char *const codec_specs[] = {
    "topk:ratio=1%", "topk:ratio=5%+fp16", "topk:ratio=100%+bf16", "none", "fp16", "bf16",
};

/* What a step sends, as a dense vector; 0 where nothing. */
static inline void codec_sent_of(const struct spr_codec_step *step, float *sent)
{
    if (step->dense) {
        memcpy(sent, step->vector, CODEC_N * sizeof(float));
        return;
    }
    memset(sent, 0, CODEC_N * sizeof(float));
    for (size_t i = 0; i < step->count; i++) {
        assert_true(i == 0 || step->index[i] > step->index[i - 1]);
        sent[step->index[i]] = step->value[i];
    }
}

static inline void codec_step_of(spr_codec *codec, const float *gradient, float *sent)
{
    struct spr_codec_step step;

    assert_int_equal(spr_codec_begin(codec, gradient, &step), SPR_OK);
    codec_sent_of(&step, sent);
}

#endif
