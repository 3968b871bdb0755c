/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Gradients written to files, to be replayed by `sparring-perf --pattern trace:DIR`.
 *
 * DIR/step<S>.rank<R>.f32, all little-endian:
 *
 *   byte  0   char[8]  "SPRTRACE"
 *         8   u32      version, 1
 *        12   u32      rank, from 0
 *        16   u32      step, from 0
 *        20   u32      number of ranks
 *        24   u64      number of elements
 *        32   f32[]    the elements
 */
#ifndef EXAMPLES_DIGITS_TRACE_H
#define EXAMPLES_DIGITS_TRACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct digits_trace {
    uint32_t rank, step, ranks;
    uint64_t elements;
} digits_trace;

/* Write one file; the directory is made when it is not there. 0, or -1 with one line in `error`. */
int digits_trace_write(const char *directory, const digits_trace *trace, const float *gradient,
                       char *error, size_t capacity);

#endif
