/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Allocation, failure injection, pages, arenas and pools.
 */
#include "base/mem.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"

static bool is_zero(const void *p, size_t bytes)
{
    const unsigned char *c = p;

    for (size_t i = 0; i < bytes; i++)
        if (c[i])
            return false;
    return true;
}

static bool aligned(const void *p, size_t alignment) { return (uintptr_t)p % alignment == 0; }

static void every_allocation_is_counted(void **state)
{
    int64_t bytes = spr_mem_live_bytes();
    void *p[6];

    (void)state;
    assert_int_equal(spr_mem_live(), 0);
    p[0] = spr_malloc(10);
    p[1] = spr_calloc(10, 10);
    p[2] = spr_realloc(NULL, 10);
    p[3] = spr_strdup("text");
    p[4] = spr_aligned_alloc(256, 10);
    p[5] = spr_pages_alloc(10);
    assert_int_equal(spr_mem_live(), 6);
    assert_true(is_zero(p[1], 100));
    assert_string_equal(p[3], "text");
    assert_true(aligned(p[4], 256));
    assert_in_range(spr_mem_live_bytes() - bytes, 145, 1000);
    p[2] = spr_realloc(p[2], 100000);
    assert_int_equal(spr_mem_live(), 6);
    assert_in_range(spr_mem_live_bytes() - bytes, 100135, 110000);
    for (int i = 0; i < 5; i++)
        spr_free(p[i]);
    spr_free(NULL);
    spr_pages_free(p[5], 10);
    spr_pages_free(NULL, 10);
    assert_int_equal(spr_mem_live(), 0);
    assert_int_equal(spr_mem_live_bytes(), bytes);
}

static void nothing_is_a_valid_size(void **state)
{
    void *p;

    (void)state;
    assert_non_null(p = spr_malloc(0));
    assert_non_null(p = spr_realloc(p, 0));
    spr_free(p);
    assert_non_null(p = spr_calloc(0, 8));
    spr_free(p);
    assert_non_null(p = spr_calloc(8, 0));
    spr_free(p);
    assert_non_null(p = spr_aligned_alloc(64, 0));
    spr_free(p);
    assert_non_null(p = spr_pages_alloc(0));
    spr_pages_free(p, 0);
    assert_int_equal(spr_mem_live(), 0);
}

static void an_impossible_size_gives_null(void **state)
{
    /* From a variable, or the compiler warns about the sizes. */
    volatile size_t huge = SIZE_MAX - 4096;

    (void)state;
    assert_null(spr_pages_alloc(huge));
    assert_null(spr_pages_alloc(huge / 2));
    assert_int_equal(spr_mem_live(), 0);
}

static void the_nth_allocation_fails_once(void **state)
{
    void *kept, *p;

    (void)state;
    spr_mem_fail_nth(1);
    assert_null(spr_malloc(8));
    assert_non_null(kept = spr_malloc(8));
    spr_mem_fail_nth(3);
    assert_non_null(p = spr_calloc(1, 8));
    spr_free(p);
    assert_non_null(p = spr_aligned_alloc(64, 8));
    spr_free(p);
    assert_null(spr_realloc(kept, 16));
    assert_non_null(kept = spr_realloc(kept, 16));
    spr_mem_fail_nth(1);
    assert_null(spr_strdup("x"));
    spr_mem_fail_nth(1);
    assert_null(spr_pages_alloc(8));
    spr_mem_fail_nth(1);
    spr_mem_fail_nth(0);
    assert_non_null(p = spr_malloc(8));
    spr_free(p);
    spr_free(kept);
    assert_int_equal(spr_mem_live(), 0);
}

#define THREADS 4
#define ROUNDS 5000

static _Atomic int failures;

static void *allocate_often(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        void *p = spr_malloc(32);

        if (!p)
            atomic_fetch_add(&failures, 1);
        spr_free(p);
    }
    return unused;
}

static void one_failure_hits_one_thread(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    atomic_store(&failures, 0);
    spr_mem_fail_nth(THREADS * ROUNDS / 2);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_often, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 1);
    assert_int_equal(spr_mem_live(), 0);
}

static void large_pages_begin_at_a_huge_page(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = {1, page, SPR_HUGE_PAGE - 1, SPR_HUGE_PAGE, 3 * SPR_HUGE_PAGE + 1};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        char *p = spr_pages_alloc(sizes[i]);
        size_t whole = spr_align_up(sizes[i], page);

        assert_non_null(p);
        assert_true(aligned(p, whole >= SPR_HUGE_PAGE ? SPR_HUGE_PAGE : page));
        assert_true(is_zero(p, whole));
        memset(p, 1, whole);
        spr_pages_free(p, sizes[i]);
    }
}

static void count_warning(void *ctx, enum spr_log_level level, const char *line)
{
    if (level == SPR_LOG_WARN && strstr(line, "memlock limit"))
        ++*(int *)ctx;
}

static void a_refused_lock_warns_once(void **state)
{
    /* More than any machine has, whatever the limit. */
    const size_t too_much = (size_t)1 << 46;
    void *p = spr_pages_alloc(4096);
    int warnings = 0;
    bool locked;

    (void)state;
    assert_true(spr_log_configure("warn"));
    spr_log_set_sink(count_warning, &warnings);
    locked = spr_pages_lock(p, too_much);
    if (!locked)
        locked = spr_pages_lock(p, too_much);
    spr_log_set_sink(NULL, NULL);
    spr_pages_free(p, 4096);
    if (locked)
        skip(); /* the sanitizers replace mlock by nothing */
    assert_int_equal(warnings, 1);
}

static void an_arena_gives_aligned_zeros(void **state)
{
    struct spr_arena arena;

    (void)state;
    spr_arena_init(&arena, 1000);
    for (int round = 0; round < 3; round++) {
        for (size_t bytes = 0; bytes < 300; bytes += 7) {
            char *p = spr_arena_alloc(&arena, bytes);

            assert_non_null(p);
            assert_true(aligned(p, 64));
            assert_true(is_zero(p, bytes));
            memset(p, 0xaa, spr_max_size(bytes, 1));
        }
        spr_arena_reset(&arena, SIZE_MAX);
        /* Several blocks are replaced by one that holds all, at the next use. */
        assert_int_equal(spr_mem_live(), round > 0);
    }
    spr_arena_free(&arena);
    spr_arena_free(&arena);
    assert_int_equal(spr_mem_live(), 0);
}

static void a_large_allocation_leaves_the_block_in_use(void **state)
{
    struct spr_arena arena;
    char *small, *next;

    (void)state;
    spr_arena_init(&arena, 4096);
    small = spr_arena_alloc(&arena, 64);
    assert_non_null(spr_arena_alloc(&arena, 1 << 20));
    next = spr_arena_alloc(&arena, 64);
    assert_ptr_equal(next, small + 64);
    spr_arena_free(&arena);
}

static void an_arena_keeps_no_more_than_it_may(void **state)
{
    struct spr_arena arena;

    (void)state;
    spr_arena_init(&arena, 4096);
    assert_int_equal(spr_arena_bytes(&arena), 0);
    assert_non_null(spr_arena_buffer(&arena, 1 << 20));
    assert_int_equal(spr_arena_bytes(&arena), 1 << 20);
    spr_arena_reset(&arena, 1 << 20);
    assert_int_equal(spr_arena_bytes(&arena), 1 << 20);
    spr_arena_reset(&arena, (1 << 20) - 1);
    assert_int_equal(spr_arena_bytes(&arena), 0);
    /* It asks for no more the next time than is needed then. */
    assert_non_null(spr_arena_buffer(&arena, 10));
    assert_int_equal(spr_arena_bytes(&arena), 4096);
    spr_arena_free(&arena);
    assert_int_equal(spr_mem_live(), 0);
}

static void an_arena_without_memory_stays_usable(void **state)
{
    volatile size_t huge = SIZE_MAX - 10;
    struct spr_arena arena;

    (void)state;
    spr_arena_init(&arena, 0);
    assert_null(spr_arena_alloc(&arena, huge));
    spr_mem_fail_nth(1);
    assert_null(spr_arena_alloc(&arena, 10));
    spr_arena_reset(&arena, SIZE_MAX);
    assert_non_null(spr_arena_alloc(&arena, 10));
    spr_arena_free(&arena);
    assert_int_equal(spr_mem_live(), 0);
}

static void a_pool_reuses_the_buffer_freed_last(void **state)
{
    struct spr_pool pool;
    void *a, *b;

    (void)state;
    spr_pool_init(&pool, 100, 4, 0);
    a = spr_pool_get(&pool);
    b = spr_pool_get(&pool);
    assert_ptr_not_equal(a, b);
    assert_int_equal(pool.live, 2);
    spr_pool_put(&pool, a);
    spr_pool_put(&pool, b);
    spr_pool_put(&pool, NULL);
    assert_ptr_equal(spr_pool_get(&pool), b);
    assert_ptr_equal(spr_pool_get(&pool), a);
    assert_int_equal(pool.total, 4);
    spr_pool_destroy(&pool);
    spr_pool_destroy(&pool);
    assert_int_equal(spr_mem_live(), 0);
}

static void buffers_of_a_pool_do_not_overlap(void **state)
{
    static const size_t sizes[] = {1, 8, 63, 64, 1000, 4096, 5000, 70000};
    unsigned char *p[10];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        struct spr_pool pool;

        spr_pool_init(&pool, sizes[i], 3, 0);
        for (int k = 0; k < 10; k++) {
            p[k] = spr_pool_get(&pool);
            assert_non_null(p[k]);
            assert_true(aligned(p[k], sizes[i] >= 4096 ? 4096 : 64));
            memset(p[k], k, sizes[i]);
        }
        for (int k = 0; k < 10; k++)
            for (size_t c = 0; c < sizes[i]; c++)
                assert_int_equal(p[k][c], k);
        spr_pool_destroy(&pool);
    }
    assert_int_equal(spr_mem_live(), 0);
}

static void a_pool_stops_at_its_limit(void **state)
{
    struct spr_pool pool;
    void *p[5];

    (void)state;
    spr_pool_init(&pool, 32, 4, 5);
    for (int i = 0; i < 5; i++)
        assert_non_null(p[i] = spr_pool_get(&pool));
    assert_null(spr_pool_get(&pool));
    assert_int_equal(pool.total, 5);
    spr_pool_put(&pool, p[2]);
    assert_ptr_equal(spr_pool_get(&pool), p[2]);
    spr_pool_destroy(&pool);
}

static void a_pool_without_memory_stays_usable(void **state)
{
    (void)state;
    for (size_t bytes = 32; bytes <= 8192; bytes *= 256) {
        for (uint64_t nth = 1; nth <= 2; nth++) {
            struct spr_pool pool;

            spr_pool_init(&pool, bytes, 2, 0);
            spr_mem_fail_nth(nth);
            assert_null(spr_pool_get(&pool));
            assert_int_equal(spr_mem_live(), 0);
            assert_int_equal(pool.live, 0);
            assert_non_null(spr_pool_get(&pool));
            spr_pool_destroy(&pool);
        }
    }
    assert_int_equal(spr_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_is_counted),
        cmocka_unit_test(nothing_is_a_valid_size),
        cmocka_unit_test(an_impossible_size_gives_null),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(one_failure_hits_one_thread),
        cmocka_unit_test(large_pages_begin_at_a_huge_page),
        cmocka_unit_test(a_refused_lock_warns_once),
        cmocka_unit_test(an_arena_gives_aligned_zeros),
        cmocka_unit_test(a_large_allocation_leaves_the_block_in_use),
        cmocka_unit_test(an_arena_keeps_no_more_than_it_may),
        cmocka_unit_test(an_arena_without_memory_stays_usable),
        cmocka_unit_test(a_pool_reuses_the_buffer_freed_last),
        cmocka_unit_test(buffers_of_a_pool_do_not_overlap),
        cmocka_unit_test(a_pool_stops_at_its_limit),
        cmocka_unit_test(a_pool_without_memory_stays_usable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
