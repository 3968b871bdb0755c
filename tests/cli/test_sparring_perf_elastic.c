/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-perf --elastic under sparring-run --restart: a rank dies, once, and the job goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cli/perf_line.h"
#include "tests/cli/shell_line.h"

/* Rank 0 begins after so many seconds, rank 1 is killed after as many: the first process that is
 * rank 1, whatever becomes of the job then. All iterations are done, by all ranks, rightly. */
static void run_elastic(const char *begin, const char *death, int iterations)
{
    char line[640], done[80];

    snprintf(line, sizeof line,
             "once=$(mktemp -d)/once; $RUN -n 3 --restart 1 -- sh -c '[ $SPARRING_RANK != 0 ] || "
             "sleep %s; [ $SPARRING_RANK != 1 ] || ! mkdir '$once' 2>&- || (sleep %s; kill -9 $$) "
             "& exec $PERF allreduce --elastic -b 256K -e 256K -n %d'; "
             "rc=$?; rm -r ${once%%/*}; exit $rc",
             begin, death, iterations);
    run(line);
    assert_int_equal(result.code, 0);
    snprintf(done, sizeof done, "%d iterations of 262144 bytes, 3 ranks, ", iterations);
    assert_has(result.output, done);
    assert_has(result.output, " 0 wrong, ");
}

static void an_elastic_job_survives(void **state)
{
    (void)state;
    run_elastic("0", "0.2", 4000); /* of 50 us at least: it is not over by then */
    /* A machine that is so slow that the job was not formed by then begins again. */
    assert_has(result.output, strstr(result.error, "all ranks are started again")
                                  ? " 0 deaths survived, "
                                  : " 1 death survived, ");
    run("$PERF barrier --elastic");
    assert_int_equal(result.code, 2);
}

/* Rank 0 has not even begun: nobody has a communicator. */
static void a_rank_that_dies_before_the_job_is_formed_starts_it_again(void **state)
{
    (void)state;
    run_elastic("0.7", "0.3", 50);
    assert_has(result.error, "all ranks are started again, 1 of 1\n");
    assert_has(result.output, " 0 deaths survived, ");
}

static void a_rank_may_die_while_the_job_is_formed(void **state)
{
    static const char *const deaths[] = {"0", "0.005", "0.01", "0.02", "0.04"};

    (void)state;
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
        run_elastic("0", deaths[i], 400); /* not at the end */
}

/* Rank 0 once rank 1 was taken in, which has the last number then, and whose own number before that
 * is rank 2's: as long as it lives its recorder stays, so that the job is known to be complete. */
static void another_rank_may_die_behind_one_that_joined(void **state)
{
    (void)state;
    run("once=$(mktemp -d); $RUN -n 3 --restart 1 -- sh -c '[ $SPARRING_RANK = 2 ] || "
        "! mkdir '$once'/$SPARRING_RANK 2>&- || (while [ $SPARRING_RANK = 0 ] && "
        "! [ -e $SPARRING_TRACE_DIR/rank-0.1.trace ]; do sleep 0.02; done; sleep 0.4; kill -9 $$) "
        "& exec $PERF allreduce --elastic -b 64K -e 64K -n 20000'; "
        "rc=$?; rm -r $once; exit $rc");
    assert_int_equal(result.code, 0);
    assert_has(result.output, "20000 iterations of 65536 bytes, 3 ranks, ");
    assert_has(result.output, " 0 wrong, ");
    /* As above: begun again, if rank 1 died before the job was formed, and then it is not killed.
     */
    if (!strstr(result.error, "rank 1 ") || !strstr(strstr(result.error, "rank 1 "), "all ranks"))
        assert_has(result.output, " 2 deaths survived, ");
    else
        assert_null(strstr(result.error, "rank 0 (pid"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_elastic_job_survives),
        cmocka_unit_test(a_rank_that_dies_before_the_job_is_formed_starts_it_again),
        cmocka_unit_test(a_rank_may_die_while_the_job_is_formed),
        cmocka_unit_test(another_rank_may_die_behind_one_that_joined),
    };
    int failed;

    perf_line_setup();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
