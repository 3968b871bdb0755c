/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/util.h"

struct pool {
    int threads;
    pool_task *task; /* NULL: the workers end */
    void *ctx;
    /* Counts tasks: a worker begins when it grows. Apart from `done`, which workers write. */
    _Alignas(SPR_CACHE_LINE) atomic_uint begun;
    _Alignas(SPR_CACHE_LINE) atomic_int done;
    cpu_set_t before; /* the caller's CPUs */
    struct worker {
        struct pool *pool;
        pthread_t thread;
        int slice;
    } workers[];
};

int pool_cpus(void)
{
    cpu_set_t set;
    int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return cpus < POOL_THREADS_MAX ? cpus : POOL_THREADS_MAX;
}

/* The n-th CPU of the set. A refusal only costs steadiness. */
static void bind_to(const cpu_set_t *allowed, int n)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && n-- == 0)
            CPU_SET(cpu, &one);
    if (CPU_COUNT(&one) == 1)
        (void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    unsigned seen = 0;

    bind_to(&pool->before, worker->slice);
    for (;;) {
        while (atomic_load_explicit(&pool->begun, memory_order_acquire) == seen)
            spr_cpu_relax();
        seen++;
        if (!pool->task)
            return NULL;
        pool->task(pool->ctx, worker->slice, pool->threads);
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
    }
}

struct pool *pool_open(int threads)
{
    size_t bytes = sizeof(struct pool) + (size_t)threads * sizeof(struct worker);
    struct pool *pool = aligned_alloc(SPR_CACHE_LINE, spr_align_up(bytes, SPR_CACHE_LINE));

    if (!pool)
        return NULL;
    *pool = (struct pool){.threads = 1};
    if (sched_getaffinity(0, sizeof(pool->before), &pool->before) != 0) {
        free(pool);
        return NULL;
    }
    for (int i = 1; i < threads; i++) {
        pool->workers[i] = (struct worker){.pool = pool, .slice = i};
        if (pthread_create(&pool->workers[i].thread, NULL, work, &pool->workers[i]) != 0) {
            pool_close(pool);
            return NULL;
        }
        pool->threads++;
    }
    bind_to(&pool->before, 0);
    return pool;
}

int pool_threads(const struct pool *pool) { return pool->threads; }

void pool_run(struct pool *pool, pool_task *task, void *ctx)
{
    pool->task = task;
    pool->ctx = ctx;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->begun, 1, memory_order_release);
    task(ctx, 0, pool->threads);
    while (atomic_load_explicit(&pool->done, memory_order_acquire) < pool->threads - 1)
        spr_cpu_relax();
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    pool->task = NULL;
    atomic_fetch_add_explicit(&pool->begun, 1, memory_order_release);
    for (int i = 1; i < pool->threads; i++)
        pthread_join(pool->workers[i].thread, NULL);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(pool->before), &pool->before);
    free(pool);
}
