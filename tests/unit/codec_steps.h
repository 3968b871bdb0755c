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

#include "base/util.h"
#include "compress/codec.h"

#define CODEC_N 20000 /* beyond the size up to which top-k looks at everything */

static const spr_layout codec_layout[] = {
    {.id = 40, .name = "embedding", .offset = 0, .rows = 100, .columns = 150},
    {.id = 7, .name = "bias", .offset = 15000, .rows = 1, .columns = 1},
    {.id = 9, .name = "empty", .offset = 15001, .rows = 0, .columns = 5},
    {.id = 1, .offset = 15001, .rows = 4999, .columns = 1},
};

static const char *const codec_specs[] = {
    "topk:ratio=1%", "topk:ratio=5%+fp16", "topk:ratio=100%+bf16", "none", "fp16", "bf16",
};

static inline spr_codec *codec_make(const char *spec)
{
    spr_codec *codec = NULL;

    assert_int_equal(spr_codec_create(spec, codec_layout, SPR_ARRAY_LEN(codec_layout), &codec),
                     SPR_OK);
    assert_int_equal(spr_codec_elements(codec), CODEC_N);
    return codec;
}

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
