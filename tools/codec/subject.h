/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Something that a vector can be compressed with, by name: a codec string.
 */
#ifndef SPR_TOOLS_CODEC_SUBJECT_H
#define SPR_TOOLS_CODEC_SUBJECT_H

#include "tools/codec/wire.h"

struct subject {
    char name[256]; /* canonical */
    size_t n;
    spr_codec *codec;
    struct wire wire;
    float *product; /* n: what a codec has made of sums; NULL: nothing so far */
    /* Of the last step: */
    struct spr_error error; /* why sums have made nothing of it */
    int rounds;             /* of sums, one after the other; 1 without */
    bool lists;             /* indices and values were sent, else values only */
    size_t entries;         /* values that were sent, in all rounds */
    size_t bytes;           /* on the wire, likewise */
};

/* rows: of the matrix that the vector is, 0: none (tools/matrix_layout.h). INVALID: `spec` is no
 * codec, with the reason in one line. NOMEM. */
spr_status subject_open(struct subject *subject, const char *spec, size_t n, size_t rows,
                        struct spr_error *error);
void subject_close(struct subject *subject);
/* One step, up to the bytes on the wire; returns how many. What a codec leaves out goes into the
 * next step, as in training. */
size_t subject_encode(struct subject *subject, const float *x);
/* What the others get of the last step. PROTO: its bytes cannot be read. NOMEM: for sums. */
spr_status subject_decode(struct subject *subject, float *out, struct spr_error *error);
/* What is kept of it for later steps; NULL: nothing. */
const float *subject_residual(const struct subject *subject);

#endif
