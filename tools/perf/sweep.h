/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The rows: sizes, densities, algorithms.
 */
#ifndef SPR_TOOLS_PERF_SWEEP_H
#define SPR_TOOLS_PERF_SWEEP_H

#include "tools/perf/report.h"

/* Measure and report all rows. */
bool sweep(struct job *job, struct report *report);

#endif
