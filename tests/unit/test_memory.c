/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bucket memory: allocated, registered, found again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "transport/memory.h"

#define NOBODY 65534

static struct spr_memory memory;
static int64_t live;

static int setup(void **state)
{
    (void)state;
    live = spr_mem_live();
    spr_memory_init(&memory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    spr_memory_destroy(&memory);
    assert_int_equal(spr_mem_live(), live);
    return 0;
}

static void allocated_memory_is_zeroed_aligned_and_found(void **state)
{
    const size_t sizes[] = {1, 4096, 5000, SPR_HUGE_PAGE + 1};
    struct spr_memory_range *r[SPR_ARRAY_LEN(sizes)];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        assert_int_equal(spr_memory_alloc(&memory, sizes[i], &r[i], NULL), SPR_OK);
        assert_int_equal((uintptr_t)r[i]->base % 4096, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(r[i]->base[k], 0);
        memset(r[i]->base, 1, sizes[i]);
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        assert_ptr_equal(spr_memory_find(&memory, r[i]->base, sizes[i]), r[i]);
        assert_ptr_equal(spr_memory_find(&memory, r[i]->base + sizes[i] - 1, 1), r[i]);
        assert_null(spr_memory_find(&memory, r[i]->base, sizes[i] + 1));
    }
    assert_int_equal(spr_memory_free(&memory, r[1]->base, NULL), SPR_OK);
    assert_int_equal(memory.count, SPR_ARRAY_LEN(sizes) - 1);
}

static void misuse_is_refused_and_changes_nothing(void **state)
{
    static unsigned char own[300];
    struct spr_error error = {0};
    struct spr_memory_range *r, *other = NULL;

    (void)state;
    assert_int_equal(spr_memory_alloc(&memory, 0, &r, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_alloc(&memory, SIZE_MAX / 2, &r, NULL), SPR_ERR_NOMEM);
    assert_int_equal(spr_memory_register(&memory, NULL, 5, &r, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_register(&memory, own, 0, &r, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_register(&memory, own, SIZE_MAX, &r, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_register(&memory, own + 100, 100, &r, NULL), SPR_OK);
    for (size_t at = 0; at < 300; at += 50)
        for (size_t bytes = 50; at + bytes <= 300; bytes += 50) {
            bool overlaps = at < 200 && at + bytes > 100;
            spr_status status = spr_memory_register(&memory, own + at, bytes, &other, &error);

            assert_int_equal(status, overlaps ? SPR_ERR_INVALID : SPR_OK);
            if (status == SPR_OK)
                assert_int_equal(spr_memory_deregister(&memory, own + at, NULL), SPR_OK);
        }
    assert_non_null(strstr(error.text, "overlaps"));
    assert_int_equal(spr_memory_deregister(&memory, own + 101, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_deregister(&memory, own, NULL), SPR_ERR_INVALID);
    assert_int_equal(spr_memory_free(&memory, own + 100, NULL), SPR_ERR_INVALID);
    assert_int_equal(memory.count, 1);
    assert_ptr_equal(spr_memory_find(&memory, own + 150, 50), r);
}

/* Against a plain map of bytes. */
static void find_agrees_with_a_map_of_bytes(void **state)
{
    enum { N = 512 };
    static unsigned char own[N];
    struct spr_memory_range *at[N] = {0}; /* the range that covers a byte */
    struct spr_rng rng = {.seed = spr_rng_test_seed()};

    (void)state;
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    for (int step = 0; step < 20000; step++) {
        size_t begin = spr_rng_below(&rng, N),
               n = 1 + spr_rng_below(&rng, spr_min_size(40, N - begin));
        struct spr_memory_range *r = NULL, *expected = at[begin];
        bool is_free = true;

        for (size_t i = begin; i < begin + n; i++) {
            is_free = is_free && !at[i];
            if (at[i] != expected)
                expected = NULL;
        }
        assert_ptr_equal(spr_memory_find(&memory, own + begin, n), expected);
        if (at[begin] && at[begin]->base == own + begin) {
            n = at[begin]->bytes;
            assert_int_equal(spr_memory_deregister(&memory, own + begin, NULL), SPR_OK);
            for (size_t i = begin; i < begin + n; i++)
                at[i] = NULL;
        } else if (spr_memory_register(&memory, own + begin, n, &r, NULL) == SPR_OK) {
            assert_true(is_free);
            for (size_t i = begin; i < begin + n; i++)
                at[i] = r;
        } else {
            assert_false(is_free);
        }
    }
}

static void a_failed_allocation_leaves_everything_as_it_was(void **state)
{
    struct spr_memory_range *r;
    uint64_t n = 0;
    spr_status status;

    (void)state;
    do {
        int64_t before = spr_mem_live();

        spr_mem_fail_nth(++n);
        status = spr_memory_alloc(&memory, 10000, &r, NULL);
        spr_mem_fail_nth(0);
        if (status) {
            assert_int_equal(status, SPR_ERR_NOMEM);
            assert_int_equal(memory.count, 0);
            /* the list may have grown, once */
            assert_in_range(spr_mem_live() - before, 0, 1);
        }
    } while (status);
    assert_true(n > 2);
}

static int warnings;

static void count_warnings(void *ctx, enum spr_log_level level, const char *line)
{
    (void)ctx, (void)line;
    warnings += level == SPR_LOG_WARN;
}

static void without_memlock_there_is_one_warning_and_memory(void **state)
{
    struct rlimit before, none;
    struct spr_memory_range *r[3];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    if (geteuid() == 0)
        assert_int_equal(seteuid(NOBODY), 0); /* drops CAP_IPC_LOCK for now */
    warnings = 0;
    spr_log_set_sink(count_warnings, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(spr_memory_alloc(&memory, 100000, &r[i], NULL), SPR_OK);
        memset(r[i]->base, 1, 100000);
    }
    spr_log_set_sink(NULL, NULL);
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (r[0]->locked)
        skip(); /* the sanitizers replace mlock by nothing */
    for (int i = 0; i < 3; i++)
        assert_false(r[i]->locked);
    assert_int_equal(warnings, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_memlock_there_is_one_warning_and_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(allocated_memory_is_zeroed_aligned_and_found, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(misuse_is_refused_and_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(find_agrees_with_a_map_of_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_everything_as_it_was, setup,
                                        teardown),
    };

    return cmocka_run_group_tests_name("transport/memory", tests, NULL, NULL);
}
