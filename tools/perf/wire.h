/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The wire alone: as many bytes as the busiest rank has moved in the last iteration of another
 * trial, from every rank, in equal parts to all others at once, as the direct algorithms send.
 */
#ifndef SPR_TOOLS_PERF_WIRE_H
#define SPR_TOOLS_PERF_WIRE_H

#include "tools/perf/trial.h"

void wire_open(struct trial *trial, const struct trial *row);

#endif
