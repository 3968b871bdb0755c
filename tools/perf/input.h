/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse and gradient input of all ranks: that of support.h, or a trace, whose support are the
 * largest magnitudes of the recorded gradient.
 */
#ifndef SPR_TOOLS_PERF_INPUT_H
#define SPR_TOOLS_PERF_INPUT_H

#include "tools/perf/job.h"
#include "tools/perf/support.h"
#include "tools/perf/trace.h"

struct input {
    struct job *job;
    struct support support; /* of a trace: pattern, elements and density only */
    /* Of a trace. */
    const struct trace *trace;
    size_t step;          /* index of the current one */
    const float **mapped; /* [size]; only ours unless results are checked */
    int64_t *threshold;   /* [2 * size]: magnitude bits of the smallest entry, and the end of those
                           * of its ties that are in */
};

/* elements and density of the rows to come. A trace is at its first step then. */
bool input_open(struct input *input, struct job *job, const struct trace *trace, size_t elements,
                double density);
void input_close(struct input *input);
/* Go on to the next step of a trace; nothing otherwise. Collective. */
bool input_advance(struct input *input);

/* mask[k] = 1 when first + k is in the rank's support; value[k] is then its value, else 0. Either
 * may be NULL. Of other ranks only when results are checked. */
void input_sparse(const struct input *input, int rank, size_t first, size_t count, uint8_t *mask,
                  float *value);
/* A dense gradient whose large elements are the support. */
void input_gradient(const struct input *input, int rank, size_t first, size_t count, float *value);
/* Entries of this rank's support. */
size_t input_count(const struct input *input);
/* This rank's list; arrays have room for input_count() entries. */
void input_list(const struct input *input, spr_sparse *list);

#endif
