/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Gradients of a training run, recorded to DIR/step<S>.rank<R>.f32, all little-endian:
 *
 *   byte  0   char[8]  "SPRTRACE"
 *         8   u32      version, 1
 *        12   u32      rank, from 0
 *        16   u32      step
 *        20   u32      number of ranks
 *        24   u64      number of elements
 *        32   f32[]    the elements
 */
#ifndef SPR_TOOLS_PERF_TRACE_H
#define SPR_TOOLS_PERF_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct trace {
    const char *directory;
    uint32_t *steps; /* ascending */
    size_t step_count;
    uint32_t ranks;
    size_t elements;
};

/* Find the steps of rank 0 and read the first one's header. */
spr_status trace_open(struct trace *trace, const char *directory, struct spr_error *error);
void trace_close(struct trace *trace);
/* Map the elements of one file, read only. */
spr_status trace_map(const struct trace *trace, size_t step, int rank, const float **elements,
                     struct spr_error *error);
void trace_unmap(const struct trace *trace, const float *elements);

#endif
