/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What tools write: nothing is lost in silence, and nothing lands where it does not belong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cli/shell_line.h"

static const char *const lines[] = {
    "sparring-perf -e 1K -n 1",
    "sparring-perf --help",
    "sparring-perf --codec help",
    "sparring-sim -n 2 --elements 1K",
    "sparring-sim --version",
    "sparring-codec list",
    "sparring-info",
    "sparring-info --help",
    "sparring-tune --help",
    "sparring-trace --version",
    "sparring-run --help",
    "sparring-run -t -n 1 -- echo hello",
};

static void a_full_disk_is_an_error(void **state)
{
    char line[256];

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(line, sizeof line, "$(dirname $RUN)/%s >/dev/full", lines[i]);
        run(line);
        if (result.code != 1)
            fail_msg("%s: code %d, %s", line, result.code, result.error);
        assert_has(result.error, "cannot write to standard output");
        assert_int_equal(count(result.error, "\n"), 1);
    }
}

/* A file that a tool opens does not become its standard output, or its log. */
static void closed_streams_stay_closed(void **state)
{
    (void)state;
    run("D=$(mktemp -d); $(dirname $RUN)/sparring-sim -n 2 --elements 1K --json $D/j >&-; c=$?; "
        "head -c 1 $D/j; rm -r $D; exit $c");
    assert_code(1);
    assert_string_equal(result.output, "{");
    run("D=$(mktemp -d); SPARRING_DECISIONS_LOG=$D/d SPARRING_LOG=info $(dirname "
        "$RUN)/sparring-perf "
        "-e 1K -n 1 2>&- >/dev/null; c=$?; cat $D/d; rm -r $D; exit $c");
    assert_code(0);
    assert_int_equal(count(result.output, "INFO"), 0);
}

static void results_stay_until_there_are_others(void **state)
{
    (void)state;
    run("$(dirname $RUN)/sparring-perf --json - -b 4 -e 4 -n 1");
    if (strstr(result.error, "libjansson") != NULL)
        skip();
    run("D=$(mktemp -d); echo of yesterday >$D/j; P=$(dirname $RUN); $P/sparring-perf "
        "sparse_allreduce --pattern trace:$D/none --json $D/j; cat $D/j; $P/sparring-perf -e 1K "
        "-n 1 --json $D/j >$D/t && grep -c yesterday $D/j; head -c 1 $D/j; $P/sparring-sim -n 2 "
        "--elements 1K --json $D/j >$D/t && python3 -m json.tool $D/j >$D/t && echo good; "
        "$P/sparring-perf -e 1K -n 1 --json /dev/fd/1 | grep -c schema; rm -r $D");
    assert_string_equal(result.output, "of yesterday\n0\n{good\n1\n");
}

/* A pipe, a device: a file would take its place. */
static void only_a_file_is_written_again(void **state)
{
    (void)state;
    run("D=$(mktemp -d); mkfifo $D/fifo; $RUN -n 2 --trace-dir none -- $(dirname "
        "$RUN)/sparring-tune "
        "--write $D/fifo; c=$?; [ -p $D/fifo ] && ls $D | wc -l; rm -r $D; exit $c");
    assert_code(1);
    assert_has(result.output, "MODEL=");
    assert_has(result.output, "\n1\n");
    assert_has(result.error, "/fifo: not a regular file\n");
}

/* All ranks are started alike, but they may find different things. */
static void a_rank_whose_settings_are_wrong_says_so(void **state)
{
    (void)state;
    run("$RUN -n 2 --trace-dir none -- sh -c '[ $SPARRING_RANK = 0 ] || export "
        "SPARRING_TRANSPORTS=epol; exec $(dirname $RUN)/sparring-perf -e 1K -n 1'");
    assert_code(2);
    assert_has(result.error, "sparring-perf: rank 1: unknown transport 'epol'");
    run("SPARRING_TRANSPORTS=epol $RUN -n 3 --trace-dir none -- $(dirname $RUN)/sparring-perf");
    assert_code(2);
    /* More than rank 0's where that was late. */
    assert_in_range(count(result.error, "unknown transport 'epol'"), 1, 3);
    run("SPARRING_RANK=x SPARRING_SIZE=2 $(dirname $RUN)/sparring-perf");
    assert_code(2);
    assert_has(result.error, "sparring-perf: rank x: SPARRING_RANK='x' is not a rank");
    /* No launcher's. */
    run("RANK=1 $(dirname $RUN)/sparring-perf --bogus");
    assert_code(2);
    assert_has(result.error, "unknown option --bogus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(closed_streams_stay_closed),
        cmocka_unit_test(results_stay_until_there_are_others),
        cmocka_unit_test(only_a_file_is_written_again),
        cmocka_unit_test(a_rank_whose_settings_are_wrong_says_so),
    };
    shell_line_setup();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
