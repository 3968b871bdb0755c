/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-run --restart decides by the flight recorders of the ranks. Here they come from this
 * program, so that they are where a death seldom finds real ones: started as a rank it keeps a
 * recorder as a communicator does, and the first process of rank 1 dies.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/trace.h"
#include "tests/cli/shell_line.h"

enum { JOINS = 3, NO_RECORDER = 4, RANKS = 3 };

static void say_ready(void)
{
    FILE *file = fopen(getenv("READY"), "ae");

    if (file) {
        (void)fputs("ready\n", file);
        (void)fclose(file);
    }
}

static void await_all(void)
{
    struct stat st = {0};

    while (stat(getenv("READY"), &st) || st.st_size < (off_t)(RANKS * strlen("ready\n")))
        usleep(10000);
}

static struct spr_trace *record(int rank)
{
    struct spr_trace *t = spr_trace_new(rank, RANKS);
    uint64_t job = strtoull(getenv("SPARRING_JOB"), NULL, 16);
    char why[128];

    if (t && spr_trace_share(t, getenv("SPARRING_TRACE_DIR"), job, 1, why, sizeof why))
        return t;
    spr_trace_free(t);
    return NULL;
}

/* Rank 1, started again. */
static int join(const char *others_are)
{
    struct spr_trace *t;

    if (strcmp(others_are, "leaves") == 0)
        sleep(20); /* for somebody to take it in */
    if (strcmp(others_are, "takes") != 0)
        return JOINS;
    t = record(1);
    if (!t)
        return NO_RECORDER;
    spr_trace_ready(t);
    sleep(4);
    spr_trace_free(t);
    return 0;
}

/* FOLDER, then what each rank is when rank 1 dies: "begun", "ready", "ended"; "leaves" or "takes",
 * which are ready and end in order a moment later, the latter when they have taken rank 1 in. */
static int be_rank(char **words)
{
    int rank = (int)strtol(getenv("SPARRING_RANK"), NULL, 10);
    const char *is = words[1 + rank];
    struct spr_trace *t;
    char once[512];

    snprintf(once, sizeof once, "%s/once-%d", words[0], rank);
    if (getenv("SPARRING_JOIN"))
        return join(words[1]);
    if (mkdir(once, 0700))
        return 0;
    t = record(rank);
    if (!t)
        return NO_RECORDER;
    if (strcmp(is, "begun") != 0)
        spr_trace_ready(t);
    if (strcmp(is, "ended") == 0)
        spr_trace_free(t);
    say_ready();
    if (strcmp(is, "ended") == 0)
        return 0;
    await_all();
    usleep(300000); /* those that have ended are gone */
    if (rank == 1)
        (void)raise(SIGKILL);
    if (strcmp(is, "leaves") == 0 || strcmp(is, "takes") == 0) {
        usleep(500000);
        spr_trace_free(t);
        return 0;
    }
    sleep(20);
    return NO_RECORDER;
}

static char self[400];

static void run_ranks(const char *are)
{
    char line[640];

    snprintf(line, sizeof line,
             "folder=$(mktemp -d); export READY; $RUN -n 3 --restart 1 -- %s $folder %s; rc=$?; "
             "rm -r $folder; exit $rc",
             self, are);
    run(line);
}

static void all_start_again_while_one_cannot_complete_its_communicator(void **state)
{
    (void)state;
    run_ranks("begun ready ready");
    assert_has(result.error, "all ranks are started again, 1 of 1\n");
    assert_code(0);
    run_ranks("begun begun begun");
    assert_has(result.error, "all ranks are started again, 1 of 1\n");
    assert_code(0);
}

static void one_joins_those_that_have_it_complete(void **state)
{
    (void)state;
    run_ranks("ready ready ready");
    assert_has(result.error, "(Killed): started again, 1 of 1\n");
    assert_has(result.error, "exited with code 3\n");
    assert_code(JOINS);
}

static void nobody_joins_those_that_have_ended(void **state)
{
    (void)state;
    run_ranks("ended ready ended");
    assert_int_equal(count(result.error, "started again"), 0);
    assert_code(128 + SIGKILL);
}

/* Killed when it had said goodbye, while the others end, too. */
static void nobody_waits_to_join_those_that_end(void **state)
{
    (void)state;
    run_ranks("leaves ready leaves");
    assert_int_equal(count(result.error, "started again, 1 of 1\n"), 1);
    assert_int_equal(count(result.error, "has nobody left to join: the others have ended\n"), 1);
    assert_code(128 + SIGKILL);
}

static void who_has_joined_may_end_last(void **state)
{
    (void)state;
    run_ranks("takes ready takes");
    assert_int_equal(count(result.error, "started again, 1 of 1\n"), 1);
    assert_int_equal(count(result.error, "nobody left"), 0);
    assert_code(0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_start_again_while_one_cannot_complete_its_communicator),
        cmocka_unit_test(one_joins_those_that_have_it_complete),
        cmocka_unit_test(nobody_joins_those_that_have_ended),
        cmocka_unit_test(nobody_waits_to_join_those_that_end),
        cmocka_unit_test(who_has_joined_may_end_last),
    };
    ssize_t bytes;
    int failed;

    if (argc > 2 + RANKS - 1)
        return be_rank(argv + 1);
    bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes > 0 ? bytes : 0] = '\0';
    shell_line_setup();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
