/* SPDX-License-Identifier: BSD-2-Clause
 *
 * All runs that the options ask for.
 */
#ifndef SPR_TOOLS_SIM_SWEEP_H
#define SPR_TOOLS_SIM_SWEEP_H

#include "tools/sim/report.h"

/* False: a run has failed, which was said. */
bool sweep(struct report *report);

#endif
