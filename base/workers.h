/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Threads that help whoever computes: work that is cut into parts is done by them and the caller
 * together. They sleep while there is none. They compute in the caller's floating-point environment
 * (<fenv.h>): what a part does must not depend on who does it.
 */
#ifndef SPR_BASE_WORKERS_H
#define SPR_BASE_WORKERS_H

struct spr_workers;

/* One part of the work, numbered from 0. */
typedef void spr_workers_task(void *ctx, unsigned part);

/* So many threads, or as many as there are to be had; the process's signals are not theirs. NULL:
 * none, or no memory. A line of the log says why there are fewer. */
struct spr_workers *spr_workers_create(unsigned threads);
/* While nobody runs anything. NULL: nothing. */
void spr_workers_destroy(struct spr_workers *w);
/* Those that compute, the caller among them. NULL: 1. */
unsigned spr_workers_width(const struct spr_workers *w);
/* All parts, in any order and at the same time; returns when they are done. Any thread may call it:
 * while they help another one, or w is NULL, the caller does the parts in turn. Not from a task. */
void spr_workers_run(struct spr_workers *w, unsigned parts, spr_workers_task *task, void *ctx);

#endif
