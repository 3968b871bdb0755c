/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs, complete: error feedback, selection, rounding, and the bytes on the wire.
 */
#include "tools/codec/operations.h"

#include <stdio.h>

#include "tools/codec/subject.h"

/* `%` stands for the density. */
static const char *const specs[] = {"topk:ratio=%", "topk:ratio=%+fp16", "fp16", "bf16"};

struct codec {
    struct subject subject;
    float *decoded;
    size_t bytes;
};

static bool codec_setup(struct trial *trial, struct spr_error *error)
{
    const char *spec = trial->operation->what, *percent = strchr(spec, '%');
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
    s->decoded = trial_pages(trial, trial->vector->n * sizeof(float), error);
    return s->decoded && subject_open(&s->subject, text, trial->vector->n, 0, error) == SPR_OK;
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
    for (size_t i = 0; residual && i < v->n; i++)
        s->decoded[i] += residual[i];
    if (!(relative_error(v->x, s->decoded, v->n) < 1e-6))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "what was sent and the residual do not add up") == SPR_OK;
    return true;
}

void op_codec_add(struct operations *list)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(specs); i++) {
        bool sparse = strchr(specs[i], '%') != NULL;
        struct operation row = {.reference = REFERENCE_ADD,
                                .by_density = sparse,
                                .next = one_phase,
                                .what = specs[i],
                                .setup = codec_setup,
                                .prepare = no_prepare,
                                .run = codec_run,
                                .check = codec_check,
                                .close = codec_close};
        char name[OPERATION_NAME_BYTES] = "";
        /* The density has a column of its own. */
        for (const char *at = specs[i]; *at; at++)
            if (strncmp(at, ":ratio=%", 8) == 0)
                at += 7;
            else
                snprintf(name + strlen(name), 2, "%c", *at);
        operations_add(list, &row, "codec %s", name);
    }
}
