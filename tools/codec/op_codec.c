/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs, complete: error feedback, selection, rounding, and the bytes on the wire.
 */
#include "tools/codec/operations.h"

#include <stdio.h>

#include "tools/codec/subject.h"

#define ROWS 4096 /* of the matrix that a low rank takes the vector for */

/* `%` stands for the density, which has a column of its own. */
struct spec {
    const char *name, *text;
};
static const struct spec specs[] = {
    {"topk", "topk:ratio=%"},
    {"topk+fp16", "topk:ratio=%+fp16"},
    {"topk+int8", "topk:ratio=%+int8"},
    {"topk with decay", "topk:ratio=%,feedback=decay,decay=0.9"},
    {"threshold", "threshold:ratio=%"},
    {"sampled", "sampled:ratio=%"},
    {"reuse", "reuse:ratio=%"},
    {"accumulate", "accumulate:ratio=%"},
    {"block", "block:ratio=%"},
    {"random", "random:ratio=%"},
    {"adaptive", "adaptive:ratio=%"},
    {"dgc", "dgc:ratio=%"},
    {"dgc with clip", "dgc:ratio=%,clip=1"},
    {"dgc with nesterov", "dgc:ratio=%,feedback=nesterov"},
    {"none", "none"},
    {"fp16", "fp16"},
    {"bf16", "bf16"},
    {"int8", "int8"},
    {"int8 stochastic", "int8:rounding=stochastic"},
    {"int4", "int4"},
    {"sign", "sign"},
    {"onebit", "onebit"},
    {"qsgd", "qsgd"},
    {"terngrad", "terngrad"},
    {"natural", "natural"},
    {"bounded", "bounded"},
    {"powersgd", "powersgd"},
};

struct codec {
    struct subject subject;
    float *decoded;
    size_t bytes;
    bool conserves;
};

static bool codec_setup(struct trial *trial, struct spr_error *error)
{
    const struct spec *row = trial->operation->what;
    const char *spec = row->text, *percent = strchr(spec, '%');
    struct codec *s = trial_pages(trial, sizeof(*s), error);
    char text[128];

    if (!s)
        return false;
    trial->state = s;
    if (percent)
        snprintf(text, sizeof(text), "%.*s%.9g%s", (int)(percent - spec), spec, trial->density,
                 percent + 1);
    else
        snprintf(text, sizeof(text), "%s", spec);
    struct spr_codec_kind kind;
    if (spr_codec_kind_of(text, &kind, error) != SPR_OK)
        return false;
    /* What is clipped is meant to be lost. */
    s->conserves = kind.conserves && !strstr(spec, "clip=");
    s->decoded = trial_pages(trial, trial->vector->n * sizeof(float), error);
    return s->decoded &&
           subject_open(&s->subject, text, trial->vector->n,
                        strncmp(spec, "powersgd", 8) == 0 ? ROWS : 0, error) == SPR_OK;
}

static void codec_close(struct trial *trial)
{
    struct codec *s = trial->state;

    if (s)
        subject_close(&s->subject);
}

static void codec_run(struct trial *trial, int slice, int slices)
{
    struct codec *s = trial->state;

    (void)slice;
    (void)slices;
    s->bytes = subject_encode(&s->subject, trial->vector->x);
}

/* After the first step, what was sent and what was kept add up to the vector. */
static bool codec_check(struct trial *trial, struct spr_error *error)
{
    const struct vector *v = trial->vector;
    struct codec *s = trial->state;
    const float *residual = subject_residual(&s->subject);

    if (subject_decode(&s->subject, s->decoded, error) != SPR_OK)
        return false;
    trial->error = relative_error(v->x, s->decoded, v->n);
    trial->bits = 8 * (double)s->bytes / (double)v->n;
    /* A group in which something is not finite is sent as NaN, and what is finite there is kept. */
    for (size_t i = 0; residual && i < v->n; i++)
        s->decoded[i] =
            isnan(s->decoded[i]) && isfinite(v->x[i]) ? residual[i] : s->decoded[i] + residual[i];
    if (s->conserves && !(relative_error(v->x, s->decoded, v->n) < 1e-6))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "what was sent and the residual do not add up") == SPR_OK;
    return true;
}

void op_codec_add(struct operations *list)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++) {
        struct operation row = {.reference = REFERENCE_ADD,
                                .by_density = strchr(specs[i].text, '%'),
                                .next = one_phase,
                                .what = &specs[i],
                                .setup = codec_setup,
                                .prepare = no_prepare,
                                .run = codec_run,
                                .check = codec_check,
                                .close = codec_close};
        operations_add(list, &row, "codec %s", specs[i].name);
    }
}
