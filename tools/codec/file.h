/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A gradient out of a file: .npy (versions 1 to 3; fp16, fp32, fp64, little-endian, C order), a
 * trace (tools/perf/trace.h), else raw fp32. Nothing in the file is trusted.
 */
#ifndef SPR_TOOLS_CODEC_FILE_H
#define SPR_TOOLS_CODEC_FILE_H

#include "base/error.h"

struct gradient {
    float *x;
    size_t n;
    size_t rows;      /* of a matrix; of more dimensions, the others are its columns; 0: a vector */
    const char *form; /* "npy fp16" and so on */
};

/* `path` "-" is standard input. INVALID: one line with the path, what is wrong and, where there is
 * one, a remedy. NOMEM. */
spr_status gradient_read(struct gradient *gradient, const char *path, struct spr_error *error);
/* The same of the bytes of a file; `path` is for messages. */
spr_status gradient_parse(struct gradient *gradient, const unsigned char *bytes, size_t size,
                          const char *path, struct spr_error *error);
void gradient_free(struct gradient *gradient);

#endif
