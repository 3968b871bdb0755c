/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/subject.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tools/matrix_layout.h"

spr_status subject_open(struct subject *subject, const char *spec, size_t n, size_t rows,
                        struct spr_error *error)
{
    spr_layout layout[2];
    size_t parameters = matrix_layout(n, rows, layout);

    *subject = (struct subject){.n = n};
    if (spr_codec_create(spec, layout, parameters, &subject->codec) != SPR_OK)
        return spr_error_set(error, spr_thread_error()->status, -1, "%s", spr_thread_error()->text);
    snprintf(subject->name, sizeof(subject->name), "%s", spr_codec_spec(subject->codec));
    if (wire_open(&subject->wire, n, n, error) != SPR_OK) {
        subject_close(subject);
        return SPR_ERR_NOMEM;
    }
    /* As over TCP, where nobody says otherwise. */
    subject->wire.indices = spr_index_coder_at(SPR_INDEX_BITPACK);
    return SPR_OK;
}

void subject_close(struct subject *subject)
{
    wire_close(&subject->wire);
    spr_pages_free(subject->product, subject->n * sizeof(float));
    spr_codec_destroy(subject->codec);
    *subject = (struct subject){0};
}

/* What one rank alone sends, and gets back at once. */
static size_t encode_rounds(struct subject *subject, struct spr_codec_step *step)
{
    size_t bytes = 0;

    spr_error_clear(&subject->error);
    subject->rounds = 0;
    subject->entries = 0;
    if (!subject->product)
        subject->product = spr_pages_alloc(subject->n * sizeof(float));
    if (!subject->product) {
        spr_error_set(&subject->error, SPR_ERR_NOMEM, -1, "no memory for %zu sums", subject->n);
        return 0;
    }
    do {
        (void)wire_place(&subject->wire, step->count);
        bytes += wire_encode(&subject->wire, step);
        subject->rounds++;
        subject->entries += step->count;
        (void)wire_decode(&subject->wire, step->sum, &subject->error); /* for subject_decode() */
    } while (spr_codec_next(subject->codec, subject->product, step));
    return bytes;
}

size_t subject_encode(struct subject *subject, const float *x)
{
    const struct spr_codec_place place =
        wire_place(&subject->wire, spr_codec_vector(subject->codec));
    struct spr_codec_step step;

    if (spr_codec_begin_at(subject->codec, x, &place, &step) != SPR_OK)
        return 0; /* only while another step runs */
    subject->rounds = 1;
    subject->lists = !step.sum && !step.dense;
    subject->entries = step.dense ? subject->n : step.count;
    subject->bytes = step.sum ? encode_rounds(subject, &step) : wire_encode(&subject->wire, &step);
    spr_codec_commit(subject->codec);
    return subject->bytes;
}

spr_status subject_decode(struct subject *subject, float *out, struct spr_error *error)
{
    if (subject->error.status != SPR_OK)
        return spr_error_set(error, subject->error.status, -1, "%s", subject->error.text);
    if (subject->product) {
        memcpy(out, subject->product, subject->n * sizeof(float));
        return SPR_OK;
    }
    return wire_decode(&subject->wire, out, error);
}

const float *subject_residual(const struct subject *subject)
{
    return spr_codec_residual(subject->codec);
}
