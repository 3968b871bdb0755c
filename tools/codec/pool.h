/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Threads that wait for work without sleeping, each bound to a CPU of its own: starting a task on
 * all of them takes about a microsecond, so that what is measured is the task. The caller is the
 * first of them. While a pool is open its CPUs are busy.
 */
#ifndef SPR_TOOLS_CODEC_POOL_H
#define SPR_TOOLS_CODEC_POOL_H

#include <stdbool.h>

struct pool;

/* The part `slice` of `slices` of a task. */
typedef void pool_task(void *ctx, int slice, int slices);

/* As many slices as a selection can have: operations have room for as many. */
enum { POOL_THREADS_MAX = 256 };
/* CPUs that this process may use, of at most POOL_THREADS_MAX; the most threads of a pool. */
int pool_cpus(void);
/* NULL: no memory, or no thread to be had. The caller stays on its CPU until pool_close(). */
struct pool *pool_open(int threads);
int pool_threads(const struct pool *pool);
/* Returns when all slices are done; one slice per thread. */
void pool_run(struct pool *pool, pool_task *task, void *ctx);
void pool_close(struct pool *pool);

#endif
