/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Instruction sets, usable CPUs, control group quotas (in a made-up file tree), clocks.
 */
#include "base/cpu.h"

#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"

static char root[64];

/* root/path with that text, and the folders above it. */
static void put(const char *path, const char *text)
{
    char full[256];
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/test_base_cpu.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void no_control_group_means_no_quota(void **state)
{
    (void)state;
    assert_true(spr_cpu_quota(root) == 0);
    put("/proc/self/cgroup", "0::/\n");
    assert_true(spr_cpu_quota(root) == 0);
}

static void version_2_takes_the_smallest_quota_on_the_way_up(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job/step/task\n");
    put("/sys/fs/cgroup/job/step/task/cpu.max", "max 100000\n");
    assert_true(spr_cpu_quota(root) == 0);
    put("/sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
    assert_true(spr_cpu_quota(root) == 1.5);
    put("/sys/fs/cgroup/job/cpu.max", "400000 100000\n");
    assert_true(spr_cpu_quota(root) == 1.5);
    put("/sys/fs/cgroup/job/step/task/cpu.max", "50000 100000\n");
    assert_true(spr_cpu_quota(root) == 0.5);
}

static void in_a_container_the_root_of_the_mount_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/kubepods/pod1/container2\n");
    put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_true(spr_cpu_quota(root) == 3);
}

static void version_1_is_read_beside_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpuset:/x\n4:cpuacct,cpu:/job\n3:memory:/job\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/job/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/memory/job/cpu.cfs_period_us", "100000\n");
    assert_true(spr_cpu_quota(root) == 0);
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
    assert_true(spr_cpu_quota(root) == 2.5);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_true(spr_cpu_quota(root) == 2);
    put("/sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
    assert_true(spr_cpu_quota(root) == 1);
}

static void damaged_files_count_as_no_quota(void **state)
{
    static const char *const lines[] = {"", "\n", "0\n", "0:\n", "0:cpu\n", ":::\n", "1:cpu,:/\n"};
    static const char *const quotas[] = {"", "max", "0 0\n", "1000\n", "-5 100\n", "100000 0\n"};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(lines); i++) {
        put("/proc/self/cgroup", lines[i]);
        assert_true(spr_cpu_quota(root) == 0);
    }
    put("/proc/self/cgroup", "0::/../..//a/\n");
    for (size_t i = 0; i < SPR_ARRAY_LEN(quotas); i++) {
        put("/sys/fs/cgroup/cpu.max", quotas[i]);
        assert_true(spr_cpu_quota(root) == 0);
    }
}

static void the_affinity_mask_bounds_the_usable_cpus(void **state)
{
    cpu_set_t old, one;
    size_t first = 0;

    (void)state;
    assert_true(spr_cpu_usable() >= 1);
    if (sched_getaffinity(0, sizeof(old), &old) != 0)
        skip();
    assert_true(spr_cpu_usable() <= CPU_COUNT(&old));
    while (!CPU_ISSET(first, &old))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(spr_cpu_usable(), 1);
    sched_setaffinity(0, sizeof(old), &old);
}

static double share_of(struct spr_cpu_set of, const struct spr_cpu_set *sets, size_t n)
{
    uint32_t counts[SPR_CPU_SET_CPUS] = {0};

    for (size_t i = 0; i < n; i++)
        spr_cpu_set_count(&sets[i], counts);
    return spr_cpu_set_share(&of, counts);
}

static void cpus_are_shared_out_among_those_who_may_use_them(void **state)
{
    const struct spr_cpu_set eight = {{0xff}}, first = {{1}}, last = {.words[15] = 1ull << 63};
    const struct spr_cpu_set alike[] = {eight, eight, eight, eight}, bound[] = {first, last},
                             mixed[] = {eight, first, first};

    (void)state;
    assert_true(share_of(eight, alike, 4) == 2);
    assert_true(share_of(first, bound, 2) == 1);
    assert_true(share_of(last, bound, 2) == 1);
    assert_true(share_of(eight, mixed, 3) > 7);
    assert_true(share_of(first, mixed, 3) < 0.5);
    assert_true(share_of((struct spr_cpu_set){{0}}, mixed, 3) == 0);
}

static void the_own_cpus_are_those_of_the_affinity_mask(void **state)
{
    struct spr_cpu_set own;
    uint32_t counts[SPR_CPU_SET_CPUS] = {0};
    cpu_set_t mask;

    (void)state;
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0)
        skip();
    spr_cpu_set_own(&own);
    spr_cpu_set_count(&own, counts);
    for (size_t i = 0; i < SPR_CPU_SET_CPUS; i++)
        assert_int_equal(counts[i], CPU_ISSET(i, &mask) != 0);
}

static uint32_t features_with(const char *simd)
{
    if (simd)
        setenv("SPARRING_SIMD", simd, 1);
    else
        unsetenv("SPARRING_SIMD");
    spr_cpu_override(UINT32_MAX);
    return spr_cpu_features();
}

static void the_environment_masks_instruction_sets(void **state)
{
    uint32_t best = features_with(NULL), all = features_with("avx512");
    uint32_t slow_there = best & SPR_CPU_EMULATED ? SPR_CPU_AVX2 | SPR_CPU_AVX512 : 0;

    (void)state;
    assert_int_equal(best, all & ~slow_there);
    assert_int_equal(features_with("auto"), best);
    assert_int_equal(features_with("scalar"), 0);
    assert_int_equal(features_with("avx2"), all & ~(uint32_t)SPR_CPU_AVX512);
    assert_int_equal(features_with("neon"), all);
    assert_int_equal(features_with("mmx"), best);
    /* Asked once, then kept. */
    setenv("SPARRING_SIMD", "scalar", 1);
    assert_int_equal(spr_cpu_features(), best);
    spr_cpu_override(SPR_CPU_SSE42);
    assert_int_equal(spr_cpu_features(), SPR_CPU_SSE42);
    spr_cpu_override(0);
    assert_int_equal(spr_cpu_features(), 0);
    assert_int_equal(features_with(NULL), best);
}

/* Our guests have no AVX2, which others of QEMU's have. */
static void vectors_of_256_bits_are_for_cpus_that_are_not_emulated(void **state)
{
    const uint32_t vectors = SPR_CPU_SSE42 | SPR_CPU_AVX2 | SPR_CPU_AVX512;

    (void)state;
    unsetenv("SPARRING_SIMD");
    assert_int_equal(spr_cpu_allowed(vectors), vectors);
    assert_int_equal(spr_cpu_allowed(vectors | SPR_CPU_EMULATED), SPR_CPU_SSE42 | SPR_CPU_EMULATED);
    setenv("SPARRING_SIMD", "avx512", 1);
    assert_int_equal(spr_cpu_allowed(vectors | SPR_CPU_EMULATED), vectors | SPR_CPU_EMULATED);
    unsetenv("SPARRING_SIMD");
}

static void a_larger_set_implies_the_smaller_one(void **state)
{
    uint32_t all = features_with(NULL);

    (void)state;
    if (all & SPR_CPU_AVX512)
        assert_true(all & SPR_CPU_AVX2);
    if (all & SPR_CPU_AVX2)
        assert_true(all & SPR_CPU_SSE42);
#ifdef HAVE_ARM64
    assert_true(all & SPR_CPU_NEON);
#endif
}

static void the_real_clock_runs_forwards(void **state)
{
    uint64_t before = spr_monotonic_ns(), after = spr_now_ns(&spr_clock_monotonic);

    (void)state;
    assert_true(before > 0);
    assert_true(after >= before);
    assert_true(after - before < 60000000000u);
}

static void a_virtual_clock_moves_when_told(void **state)
{
    struct spr_virtual_clock v = {.ns = 5};
    struct spr_clock clock = spr_clock_virtual(&v);

    (void)state;
    assert_int_equal(spr_now_ns(&clock), 5);
    assert_int_equal(spr_now_ns(&clock), 5);
    v.ns += 1000;
    assert_int_equal(spr_now_ns(&clock), 1005);
}

static void the_time_factor_comes_from_the_environment_once(void **state)
{
    (void)state;
    setenv("SPARRING_TIME_FACTOR", "2.5", 1);
    assert_true(spr_time_factor() == 2.5);
    setenv("SPARRING_TIME_FACTOR", "3", 1);
    assert_true(spr_time_factor() == 2.5);
}

#define QUOTA_TEST(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUOTA_TEST(no_control_group_means_no_quota),
        QUOTA_TEST(version_2_takes_the_smallest_quota_on_the_way_up),
        QUOTA_TEST(in_a_container_the_root_of_the_mount_counts),
        QUOTA_TEST(version_1_is_read_beside_version_2),
        QUOTA_TEST(damaged_files_count_as_no_quota),
        cmocka_unit_test(the_affinity_mask_bounds_the_usable_cpus),
        cmocka_unit_test(cpus_are_shared_out_among_those_who_may_use_them),
        cmocka_unit_test(the_own_cpus_are_those_of_the_affinity_mask),
        cmocka_unit_test(the_environment_masks_instruction_sets),
        cmocka_unit_test(vectors_of_256_bits_are_for_cpus_that_are_not_emulated),
        cmocka_unit_test(a_larger_set_implies_the_smaller_one),
        cmocka_unit_test(the_real_clock_runs_forwards),
        cmocka_unit_test(a_virtual_clock_moves_when_told),
        cmocka_unit_test(the_time_factor_comes_from_the_environment_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
