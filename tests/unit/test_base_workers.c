/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/workers.h"

#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"

enum { MOST_PARTS = 64, ROUNDS = 300, CALLERS = 3 };

struct work {
    atomic_uint times[MOST_PARTS];
    atomic_uint at_once;
};

static void do_part(void *ctx, unsigned part)
{
    struct work *work = ctx;

    atomic_fetch_add(&work->at_once, 1);
    atomic_fetch_add(&work->times[part], 1);
    atomic_fetch_sub(&work->at_once, 1);
}

static void run_and_check(struct spr_workers *w, unsigned parts)
{
    struct work work = {0};

    spr_workers_run(w, parts, do_part, &work);
    assert_int_equal(work.at_once, 0);
    for (unsigned i = 0; i < MOST_PARTS; i++)
        assert_int_equal(work.times[i], i < parts);
}

static void every_part_is_done_once_before_the_call_returns(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads += 2) {
        struct spr_workers *w = spr_workers_create(threads);

        assert_non_null(w);
        assert_int_equal(spr_workers_width(w), threads + 1);
        for (int round = 0; round < ROUNDS; round++)
            run_and_check(w, (unsigned)round % (MOST_PARTS + 1));
        spr_workers_destroy(w);
    }
}

static void without_workers_the_caller_does_all(void **state)
{
    (void)state;
    assert_int_equal(spr_workers_width(NULL), 1);
    run_and_check(NULL, MOST_PARTS);
    run_and_check(NULL, 0);
    spr_workers_destroy(NULL);
}

/* A part waits until another one has begun, so one thread alone would never end. */
static void meet(void *ctx, unsigned part)
{
    atomic_uint *arrived = ctx;

    (void)part;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 3)
        usleep(100);
}

static void threads_and_caller_work_at_the_same_time(void **state)
{
    struct spr_workers *w = spr_workers_create(2);
    atomic_uint arrived = 0;

    (void)state;
    spr_workers_run(w, 3, meet, &arrived);
    assert_int_equal(arrived, 3);
    spr_workers_destroy(w);
}

enum { BUSY = 2 }; /* parts */

struct late {
    struct spr_workers *w;
    sem_t begun, may_end, over; /* what keeps the workers busy */
    atomic_uint arrived;
};

static void keep_busy(void *ctx, unsigned part)
{
    struct late *late = ctx;

    (void)part;
    sem_post(&late->begun);
    sem_wait(&late->may_end);
}

static void *run_busy(void *ctx)
{
    struct late *late = ctx;

    spr_workers_run(late->w, BUSY, keep_busy, late);
    sem_post(&late->over);
    return NULL;
}

/* The first part ends when the workers are idle; the others as in meet(). */
static void begin_alone(void *ctx, unsigned part)
{
    struct late *late = ctx;

    if (part > 0) {
        meet(&late->arrived, part);
        return;
    }
    for (int i = 0; i < BUSY; i++)
        sem_post(&late->may_end);
    sem_wait(&late->over);
}

static void who_found_them_busy_is_helped_later(void **state)
{
    struct late late = {.w = spr_workers_create(2)};
    pthread_t thread;

    (void)state;
    sem_init(&late.begun, 0, 0);
    sem_init(&late.may_end, 0, 0);
    sem_init(&late.over, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, run_busy, &late), 0);
    sem_wait(&late.begun);
    spr_workers_run(late.w, 4, begin_alone, &late);
    assert_int_equal(late.arrived, 3);
    pthread_join(thread, NULL);
    spr_workers_destroy(late.w);
}

static void note_rounding(void *ctx, unsigned part)
{
    ((int *)ctx)[part] = fegetround();
    usleep(200); /* or one thread does them all */
}

static void all_parts_round_as_the_caller_does(void **state)
{
    static const int modes[] = {FE_UPWARD, FE_TONEAREST, FE_DOWNWARD};
    struct spr_workers *w = spr_workers_create(3);

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(modes); i++) {
        int seen[MOST_PARTS];

        fesetround(modes[i]);
        spr_workers_run(w, MOST_PARTS, note_rounding, seen);
        for (int part = 0; part < MOST_PARTS; part++)
            assert_int_equal(seen[part], modes[i]);
    }
    fesetround(FE_TONEAREST);
    spr_workers_destroy(w);
}

static void *call_often(void *w)
{
    for (int round = 0; round < ROUNDS; round++)
        run_and_check(w, 7);
    return NULL;
}

static void several_threads_may_call(void **state)
{
    struct spr_workers *w = spr_workers_create(2);
    pthread_t threads[CALLERS];

    (void)state;
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, w), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    spr_workers_destroy(w);
}

static void without_memory_or_threads_there_are_none(void **state)
{
    int64_t live = spr_mem_live();
    pthread_attr_t usual, huge;

    (void)state;
    spr_mem_fail_nth(1);
    assert_null(spr_workers_create(2));
    spr_mem_fail_nth(0);
    /* No address space has room for such a stack. */
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 60), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    assert_null(spr_workers_create(2));
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&huge);
    assert_int_equal(spr_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once_before_the_call_returns),
        cmocka_unit_test(without_workers_the_caller_does_all),
        cmocka_unit_test(threads_and_caller_work_at_the_same_time),
        cmocka_unit_test(who_found_them_busy_is_helped_later),
        cmocka_unit_test(all_parts_round_as_the_caller_does),
        cmocka_unit_test(several_threads_may_call),
        cmocka_unit_test(without_memory_or_threads_there_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
