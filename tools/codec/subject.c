/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/subject.h"

#include <stdio.h>

spr_status subject_open(struct subject *subject, const char *spec, size_t n,
                        struct spr_error *error)
{
    spr_layout layout = {.id = 1, .name = "vector", .rows = n, .columns = 1};

    *subject = (struct subject){.n = n};
    if (spr_codec_create(spec, &layout, 1, &subject->codec) != SPR_OK)
        return spr_error_set(error, spr_thread_error()->status, -1, "%s", spr_thread_error()->text);
    snprintf(subject->name, sizeof(subject->name), "%s", spr_codec_spec(subject->codec));
    if (wire_open(&subject->wire, n, n, error) != SPR_OK) {
        subject_close(subject);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

void subject_close(struct subject *subject)
{
    wire_close(&subject->wire);
    spr_codec_destroy(subject->codec);
    *subject = (struct subject){0};
}

size_t subject_encode(struct subject *subject, const float *x)
{
    const struct spr_codec_place place = wire_place(&subject->wire);
    struct spr_codec_step step;

    if (spr_codec_begin_at(subject->codec, x, &place, &step) != SPR_OK)
        return 0; /* only while another step runs */
    size_t bytes = wire_encode(&subject->wire, &step);
    spr_codec_commit(subject->codec);
    return bytes;
}

spr_status subject_decode(struct subject *subject, float *out, struct spr_error *error)
{
    return wire_decode(&subject->wire, out, error);
}

const float *subject_residual(const struct subject *subject)
{
    return spr_codec_residual(subject->codec);
}
