/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Measuring an operation against a reference: reference, operation, reference, at once. The ratio
 * of such a triple is the operation's time over the mean of the two; what is told is the median of
 * the ratios. Ratios hold where times do not: a machine that slows down slows down both.
 *
 * A triple is dropped when the machine had something else to do meanwhile: another task was
 * runnable (/proc/loadavg) before or after it, or a thread of ours lost its CPU (getrusage). The
 * first sees what disturbs the other CPUs, and so memory; the second what came and went in between.
 * Where hardly any is left, those are taken that the second did not see, or all, and it is said.
 */
#ifndef SPR_TOOLS_CODEC_MEASURE_H
#define SPR_TOOLS_CODEC_MEASURE_H

#include "tools/codec/operations.h"
#include "tools/codec/pool.h"

struct figures {
    double us, reference_us;      /* medians */
    double ratio;                 /* median */
    double ratio_low, ratio_high; /* quartiles */
    int triples;                  /* that count */
    int dropped;
    bool noisy; /* hardly any were calm: those count in which no thread lost its CPU, or all */
};

enum { MOST_WANTED_TRIPLES = 200 };
struct effort {
    int triples;    /* wanted */
    double seconds; /* at most, for one operation */
};

/* A trial that is set up and was run once. */
void measure(struct pool *pool, struct trial *trial, struct trial *reference,
             const struct effort *effort, struct figures *figures);
/* All phases of one run, on all threads of the pool, prepare() included; returns nanoseconds of
 * the phases. */
uint64_t run_once(struct pool *pool, struct trial *trial);

#endif
