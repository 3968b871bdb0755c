/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Under a real mpirun: this program starts itself as ranks. Skipped where there is no mpirun.
 *
 *   test_bootstrap_mpirun                 the tests
 *   test_bootstrap_mpirun rank pmix       a rank that must be found through PMIx
 *   test_bootstrap_mpirun rank openmpi    the same without PMIx: a socket named after the job
 *   test_bootstrap_mpirun rank badjob     one whose SPARRING_JOB is refused
 */
#include "transport/bootstrap/bootstrap.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

#define RANKS 4
#define SKIPPED 77

/* Read by the leak sanitizer: libpmix leaves a few bytes behind. */
/* The sanitizer's library has to find it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libpmix"; }

/* ---- A rank ---- */

static int failed(const char *what, const struct spr_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

/* Open, exchange a few times, close. */
static int meet(const char *source)
{
    struct spr_options opts = {.insecure = false};
    struct spr_error error = {.rank = -1};
    struct spr_auth_key key = {.epoch = 0};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    struct spr_identity id;
    uint64_t deadline = spr_monotonic_ns() + 20000000000ull;
    int all[RANKS][100], mine[100];

    if (spr_bootstrap_open(NULL, &opts, deadline, &id, &key, &boot, &error) != SPR_OK)
        return failed("open", &error);
    if (id.size != RANKS || strcmp(id.source, source) != 0) {
        fprintf(stderr, "%d ranks by %s instead of %d by %s\n", id.size, id.source, RANKS, source);
        return 1;
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            mine[i] = id.rank * 1000 + round;
        if (spr_bootstrap_allgather(&boot, mine, all, sizeof(mine), deadline, &error) != SPR_OK)
            return failed("allgather", &error);
        for (int rank = 0; rank < RANKS; rank++)
            if (all[rank][99] != rank * 1000 + round)
                return failed("wrong data", &error);
    }
    boot.close(boot.ctx);
    return 0;
}

/* What the bootstrap had got from PMIx is closed by then, and nothing is left to close again. */
static int be_refused(void)
{
    struct spr_options opts = {.insecure = false};
    struct spr_error error = {.rank = -1};
    struct spr_auth_key key = {.epoch = 0};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    struct spr_identity id;

    setenv("SPARRING_JOB", "xyz", 1);
    if (spr_bootstrap_open(NULL, &opts, 0, &id, &key, &boot, &error) != SPR_ERR_INVALID ||
        strcmp(id.source, "pmix") != 0)
        return failed("not refused", &error);
    return boot.close || boot.ctx || spr_mem_live() != 0 ? failed("not closed", &error) : 0;
}

static int rank_main(const char *how)
{
    bool pmix = strcmp(how, "pmix") == 0;
    uint64_t start = spr_monotonic_ns();
    int status;

    if (strcmp(how, "badjob") == 0)
        return be_refused();
    if (!pmix)
        unsetenv("PMIX_RANK");
    /* Twice: a process may make more than one communicator. */
    status = meet(pmix ? "pmix" : "Open MPI");
    if (status == 0)
        status = meet(pmix ? "pmix" : "Open MPI");
    if (status == 0)
        printf("# met twice by %s in %.0f ms\n", how, (double)(spr_monotonic_ns() - start) * 1e-6);
    return status;
}

/* ---- The tests ---- */

static int run_mpirun(const char *how)
{
    char self[4096],
        *argv[] = {
            "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", self, "rank", NULL,
            NULL};
    char mode[16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int status = -1;
    pid_t child;

    assert_true(n > 0);
    self[n] = '\0';
    snprintf(mode, sizeof(mode), "%s", how);
    argv[7] = mode;
    fflush(NULL);
    assert_int_equal(posix_spawnp(&child, "mpirun", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ranks_meet_through_pmix(void **state)
{
    (void)state;
#ifdef HAVE_PMIX
    assert_int_equal(run_mpirun("pmix"), 0);
#else
    skip();
#endif
}

static void a_job_that_is_refused_is_closed_once(void **state)
{
    (void)state;
#ifdef HAVE_PMIX
    assert_int_equal(run_mpirun("badjob"), 0);
#else
    skip();
#endif
}

static void ranks_meet_without_pmix_on_one_host(void **state)
{
    (void)state;
    assert_int_equal(run_mpirun("openmpi"), 0);
}

static bool have_mpirun(void)
{
    char *argv[] = {"mpirun", "--version", NULL};
    int status = -1;
    pid_t child;

    if (posix_spawnp(&child, "mpirun", NULL, NULL, argv, environ) != 0)
        return false;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_through_pmix),
        cmocka_unit_test(a_job_that_is_refused_is_closed_once),
        cmocka_unit_test(ranks_meet_without_pmix_on_one_host),
    };

    alarm(120);
    if (argc == 3)
        return rank_main(argv[2]);
    if (!have_mpirun()) {
        printf("no mpirun: skipped\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
