/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One piece of work at a time. Its parts are handed out under the lock, so that a thread that wakes
 * late finds either a part of the present work or none; a part takes much longer than the lock.
 */
#include "base/workers.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

struct spr_workers {
    pthread_mutex_t lock;
    pthread_cond_t more; /* there are parts, or it is over */
    pthread_cond_t done; /* the last part is */
    bool busy, stop;
    spr_workers_task *task;
    void *ctx;
    fenv_t floats;              /* the caller's rounding and denormals are those of all parts */
    unsigned parts, next, left; /* of the work: all, the one to take, those that are not done */
    unsigned count;
    pthread_t threads[];
};

/* Do parts until all are taken. With the lock. */
static void take_parts(struct spr_workers *w)
{
    while (w->next < w->parts) {
        unsigned part = w->next++;

        pthread_mutex_unlock(&w->lock);
        w->task(w->ctx, part);
        pthread_mutex_lock(&w->lock);
        if (--w->left == 0)
            pthread_cond_signal(&w->done);
    }
}

static void *work(void *arg)
{
    struct spr_workers *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (w->next < w->parts)
            fesetenv(&w->floats);
        take_parts(w);
        pthread_cond_wait(&w->more, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct spr_workers *spr_workers_create(unsigned threads)
{
    struct spr_workers *w = spr_calloc(1, sizeof *w + threads * sizeof w->threads[0]);
    sigset_t all, old;
    int error = 0;

    if (!w) {
        spr_warn(SPR_SUB_MEM, "no memory for threads that help: computing goes on without");
        return NULL;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->done, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (w->count < threads && !error) {
        error = pthread_create(&w->threads[w->count], NULL, work, w);
        w->count += !error;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        spr_warn(SPR_SUB_MEM, "%u of %u threads that help were started: %s (ulimit -u)", w->count,
                 threads, strerror(error));
    if (w->count > 0)
        return w;
    spr_workers_destroy(w);
    return NULL;
}

void spr_workers_destroy(struct spr_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->count; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    spr_free(w);
}

unsigned spr_workers_width(const struct spr_workers *w) { return w ? w->count + 1 : 1; }

/* The parts from `first` on. False: they help somebody else. */
static bool begin(struct spr_workers *w, unsigned first, unsigned parts, spr_workers_task *task,
                  void *ctx)
{
    bool idle;

    pthread_mutex_lock(&w->lock);
    idle = !w->busy;
    if (idle) {
        w->busy = true;
        w->task = task;
        w->ctx = ctx;
        fegetenv(&w->floats);
        w->next = first;
        w->parts = parts;
        w->left = parts - first;
        for (unsigned i = 0; i < w->count && i + 1 < w->left; i++)
            pthread_cond_signal(&w->more);
    }
    pthread_mutex_unlock(&w->lock);
    return idle;
}

static void finish(struct spr_workers *w)
{
    pthread_mutex_lock(&w->lock);
    take_parts(w);
    while (w->left > 0)
        pthread_cond_wait(&w->done, &w->lock);
    w->busy = false;
    pthread_mutex_unlock(&w->lock);
}

void spr_workers_run(struct spr_workers *w, unsigned parts, spr_workers_task *task, void *ctx)
{
    for (unsigned part = 0; part < parts; part++) {
        if (w && part + 1 < parts && begin(w, part, parts, task, ctx)) {
            finish(w);
            return;
        }
        task(ctx, part);
    }
}
