/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The process that the user started: passes signals to the keeper and the terminal's input to rank
 * 0, and clears up should the keeper be killed. See job.h.
 */
#ifndef TOOLS_RUN_FRONT_H
#define TOOLS_RUN_FRONT_H

#include "tools/run/options.h"

/* Returns the exit code of the job. */
int front_run(const struct options *options);

#endif
