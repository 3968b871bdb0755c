/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A job that survives the death of ranks, and takes in those that are started again.
 */
#ifndef SPR_TOOLS_PERF_ELASTIC_H
#define SPR_TOOLS_PERF_ELASTIC_H

#include "tools/perf/options.h"

/* All iterations of an allreduce, each checked on all ranks. Returns the exit code. */
int elastic_run(const struct options *options);

#endif
