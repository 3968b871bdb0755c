/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Buckets of a gradient, each with a codec of its own, and how much of their communication is
 * hidden behind computing.
 *
 * Three trials are measured in turn: all buckets posted one after another before the first is
 * waited for (time T), each waited for before the next is posted, and an exchange of as many bytes
 * as the busiest rank has moved (time W, the wire alone). C, computing alone, is what the library's
 * counters say of selection, encoding, sums and decoding in the second one, where the buckets do
 * not take the CPU from each other, on the busiest rank. All are medians.
 *
 *   overlap = 1 - (T - max(W, C)) / min(W, C)      0: one after the other, 1: all at once
 */
#ifndef SPR_TOOLS_PERF_BUCKETS_H
#define SPR_TOOLS_PERF_BUCKETS_H

#include "tools/perf/trial.h"

struct bucket {
    size_t first, count; /* elements */
    spr_codec *codec;
};

/* As many as --buckets says, or one, of trial->elements; codecs by trial->codec_spec. */
bool buckets_open(struct trial *trial);
void buckets_close(struct trial *trial);

spr_status buckets_run(struct trial *trial);
spr_status buckets_run_in_turn(struct trial *trial);

/* Entries of the lists that this rank sent last. */
size_t buckets_entries(const struct trial *trial);
/* The residuals of these elements. */
void buckets_residual(const struct trial *trial, size_t first, size_t count, float *values);

/* The trials that are measured beside one of buckets. */
void buckets_beside(struct trial *trial, struct trial *in_turn, struct trial *wire);
/* When all three are measured: the overlap, and what was wrong in any of them. */
void buckets_conclude(struct trial *trial);

#endif
