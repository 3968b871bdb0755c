/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-run as its users see it: usage, environment, output, failures and signals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cli/shell_line.h"

static void wrong_usage_is_one_line_and_code_2(void **state)
{
    static const struct {
        const char *arguments;
        const char *text;
    } cases[] = {
        {"", "-n N is missing"},
        {"-n", "a value is missing after -n"},
        {"-n 2 --timeout", "a value is missing after --timeout"},
        {"-n 0 -- true", "--ranks wants a whole number from 1 to 4096, not '0'"},
        {"-n 2x -- true", "not '2x'"},
        {"-n 2", "no program"},
        {"--frobnicate -n 2 -- true", "unknown option --frobnicate"},
        {"-x -n 2 -- true", "unknown option -x"},
        {"-tx -n 2 -- true", "unknown option -x"},
        {"--tag=3 -n 2 -- true", "--tag takes no value"},
        {"-n 2 --emulate 5 -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 5gbps -- true", "--emulate wants a rate"},
        {"-n 2 --emulate nangbit -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 1gbit+ -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 1gbit+1gbit+1gbit+1gbit+1gbit -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 1gbit, -- true", "or those of successive hosts"},
        {"-n 2 --emulate 1gbit,1gbit,1gbit -- true", "rates of more hosts than there are"},
        {"-n 2 --emulate ,1gbit -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 1gbit,1gbit+1gbit -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 1gbit,,1gbit -- true", "--emulate wants a rate"},
        {"-n 2 --timeout 0 -- true", "--timeout wants seconds"},
        {"-n 2 --timeout inf -- true", "--timeout wants seconds"},
        {"-n 2 --env 3=4 -- true", "--env wants NAME=VALUE"},
        {"-n 2 --cpu-bind core -- true", "--cpu-bind wants none or rank"},
        {"-n 2 --ranks-per-host 2 -- true", "--ranks-per-host needs --emulate"},
        {"-n 2 --cc cubic -- true", "--cc needs --emulate"},
        {"-n 2 --rsh rsh -- true", "--rsh needs --hosts"},
        {"-n 3 --hosts a,b:1 -- true", "fewer places"},
        {"--hosts a,,b -- true", "--hosts wants a list"},
        {"--hosts a,b,a:2 -- true", "--hosts wants each host once"},
        {"--hosts a,me@a -- true", "--hosts wants each host once"},
        {"--hosts a:4096,a -- true", "--hosts wants at most 4096 ranks of a host"},
        {"--hosts -oProxyCommand=x -- true", "--hosts wants a list"},
        {"--hosts a:0 -- true", "--hosts wants a list"},
        {"--hosts fd00::1 -- true", "--hosts wants a list"},
        {"-n 2 --hosts a --emulate 1gbit -- true", "exclude each other"},
        {"-n 2 --root :1 -- true", "--root wants ADDRESS"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "$RUN %s", cases[i].arguments);
        run(line);
        assert_code(2);
        assert_has(result.error, cases[i].text);
        assert_int_equal(count(result.error, "\n"), 1);
        assert_string_equal(result.output, "");
    }
}

static void help_and_version_go_to_standard_output(void **state)
{
    (void)state;
    run("$RUN --help");
    assert_code(0);
    assert_has(result.output, "--ranks-per-host G");
    assert_string_equal(result.error, "");
    run("$RUN --version");
    assert_code(0);
    assert_has(result.output, "sparring-run (Sparring) ");
}

static void every_rank_knows_who_it_is(void **state)
{
    (void)state;
    run("$RUN -n 3 -e COLOUR='light  blue' -- sh -c 'echo $SPARRING_RANK/$SPARRING_SIZE"
        " $SPARRING_LOCAL_RANK/$SPARRING_LOCAL_SIZE host $SPARRING_HOST_INDEX \"$COLOUR\" "
        "${#SPARRING_JOB}'");
    assert_code(0);
    assert_has(result.output, "0/3 0/3 host 0 light  blue 16\n");
    assert_has(result.output, "1/3 1/3 host 0 light  blue 16\n");
    assert_has(result.output, "2/3 2/3 host 0 light  blue 16\n");
}

static void ranks_share_a_root_and_a_job_that_no_other_job_has(void **state)
{
    (void)state;
    run("for i in 1 2; do $RUN -n 4 -- sh -c 'echo $SPARRING_JOB $SPARRING_ROOT'; done | sort | "
        "uniq -c");
    assert_code(0);
    assert_int_equal(count(result.output, "      4 "), 2);
    assert_int_equal(count(result.output, " 127.0.0.1:"), 2);
    run("SPARRING_JOB=x $RUN -n 1 --root 127.0.0.9:77 -- sh -c 'echo $SPARRING_JOB "
        "$SPARRING_ROOT'");
    assert_has(result.output, " 127.0.0.9:77\n");
}

static void the_secret_is_one_sealed_file_per_rank(void **state)
{
    (void)state;
    run("$RUN -n 4 --tag -- sh -c 'f=/proc/self/fd/$SPARRING_SECRET_FD;"
        " eval \"od -An -tx1 -v <&$SPARRING_SECRET_FD\" | tr -d \"\\n \"; echo;"
        " if (printf x >$f) 2>/dev/null; then echo writable; fi' | cut -c 5- | sort | uniq -c");
    assert_code(0);
    assert_int_equal(count(result.output, "\n"), 1); /* the same for all, each from offset 0 */
    assert_has(result.output, "      4 ");
    assert_int_equal(strlen(result.output), 8 + 64 + 1);
    run("SPARRING_SECRET_FILE=/etc/passwd $RUN -n 1 -- sh -c 'echo \"[$SPARRING_SECRET_FILE]\"'");
    assert_string_equal(result.output, "[]\n");
}

static void ranks_inherit_no_descriptor_but_the_secret(void **state)
{
    (void)state;
    /* 0 to 2, the pipe of this test, the secret, and the directory that ls reads. */
    run("$RUN -n 3 --tag -- ls -U /proc/self/fd | wc -l");
    assert_code(0);
    assert_int_equal(strtol(result.output, NULL, 10), 3 * 6);
}

static void ranks_may_use_what_the_hard_limits_allow(void **state)
{
    (void)state;
    run("ulimit -Sn 64; $RUN -n 40 --tag -- sh -c '[ $(ulimit -Sn) = $(ulimit -Hn) ]'");
    assert_code(0);
    /* More ranks than half of the descriptors that a process may have. */
    run("ulimit -n 24; timeout -s KILL 20 $RUN -n 11 --timeout 10 -- echo here");
    assert_code(0);
    assert_int_equal(count(result.output, "here\n"), 11);
}

static void standard_input_is_rank_0s(void **state)
{
    (void)state;
    run("printf 'one\\ntwo' | $RUN -n 3 --tag -- cat");
    assert_code(0);
    assert_string_equal(result.output, "[0] one\n[0] two\n");
}

static void tagged_lines_stay_whole_and_apart(void **state)
{
    (void)state;
    run("$RUN -n 8 --tag -- sh -c 'for i in 1 2 3 4 5 6 7 8 9; do printf \"%08d\" 1; printf "
        "\"%0200d\\n\" 2;"
        " echo problem >&2; done; printf end' | sort | uniq -c");
    assert_code(0);
    assert_int_equal(count(result.output, "      9 ["), 8);
    assert_int_equal(count(result.output, "      1 ["), 8);
    assert_int_equal(count(result.output, "] end\n"), 8);
    assert_int_equal(count(result.error, "] problem\n"), 72);
}

static void a_line_too_long_is_cut(void **state)
{
    (void)state;
    run("$RUN -n 1 --tag -- sh -c 'head -c 100000 /dev/zero | tr \"\\0\" x'");
    assert_code(0);
    assert_int_equal(strlen(result.output), 100000 + 2 * 5);
    assert_int_equal(count(result.output, "[0] x"), 2);
}

static void the_first_failure_is_named_and_its_code_returned(void **state)
{
    (void)state;
    run("$RUN -n 4 -- sh -c '[ $SPARRING_RANK = 2 ] && exit 7; sleep 50'");
    assert_code(7);
    assert_has(result.error, "sparring-run: rank 2 (pid ");
    assert_has(result.error, ") exited with code 7\n");
    run("$RUN -n 4 -- sh -c '[ $SPARRING_RANK = 1 ] && kill -9 $$; sleep 50'");
    assert_code(137);
    assert_has(result.error, "sparring-run: rank 1 (pid ");
    assert_has(result.error, ") was killed by signal 9 (Killed)\n");
    assert_int_equal(count(result.error, "sparring-run: "), 1);
}

/* Which the keeper, while it is stopped, finds behind the rank that missed it. */
static void of_those_that_failed_at_once_a_killed_one_is_the_first(void **state)
{
    (void)state;
    run("f=$(mktemp -u); $RUN -n 2 -- sh -c '"
        "if [ $SPARRING_RANK = 1 ]; then echo $$ >$0; sleep 50; fi; "
        "until [ -s $0 ]; do sleep 0.01; done; read p <$0; rm $0; kill -STOP $PPID; kill -9 $p; "
        "until grep -q \"^State:.Z\" /proc/$p/status; do sleep 0.01; done; "
        "(sleep 0.5; kill -CONT $PPID) & exit 1' $f");
    assert_code(137);
    assert_has(result.error, "sparring-run: rank 1 (pid ");
}

static void a_rank_that_fails_is_started_again(void **state)
{
    (void)state;
    run("$RUN -n 2 -t --restart 1 --trace-dir none -- sh -c 'echo join=$SPARRING_JOIN; "
        "[ \"$SPARRING_JOIN\" = 1 ] || exit 3; echo there'");
    assert_code(0);
    assert_int_equal(count(result.error, "exited with code 3: started again, 1 of 1\n"), 2);
    for (int rank = 0; rank < 2; rank++) { /* lines of the other one may stand between these */
        static const char *const said[] = {"join=", "join=1", "there"};
        for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
            char line[32];
            snprintf(line, sizeof line, "[%d] %s\n", rank, said[i]);
            assert_int_equal(count(result.output, line), 1);
        }
    }
    run("$RUN -n 1 --restart 2 -- sh -c 'kill -9 $$'");
    assert_code(128 + 9);
    assert_int_equal(count(result.error, "started again"), 2);
    /* Who had not begun to make a communicator does not join. */
    run("$RUN -n 1 --restart 1 -- sh -c 'echo join=$SPARRING_JOIN.; exit 3'");
    assert_code(3);
    assert_string_equal(result.output, "join=.\njoin=.\n");
    run("$RUN -n 2 --restart 1 --hosts a,b -- true");
    assert_code(2);
}

static void the_others_get_time_to_report(void **state)
{
    (void)state;
    run("SPARRING_TIME_FACTOR=10 $RUN -n 3 --tag -- sh -c"
        " '[ $SPARRING_RANK = 2 ] && exit 7; sleep 0.2; echo report'");
    assert_code(7);
    assert_int_equal(count(result.output, "report"), 2);
    run("SPARRING_TIME_FACTOR=0.01 $RUN -n 3 -- sh -c"
        " '[ $SPARRING_RANK = 2 ] && exit 7; sleep 0.4; echo report; sleep 50'");
    assert_code(7);
    assert_int_equal(count(result.output, "report"), 0);
}

static void a_rank_that_ends_well_is_not_missed(void **state)
{
    (void)state;
    run("$RUN -n 3 -- sh -c '[ $SPARRING_RANK = 0 ] && exit 0; sleep 0.8; echo late'");
    assert_code(0);
    assert_string_equal(result.output, "late\nlate\n");
}

static void a_program_that_does_not_start_is_one_line(void **state)
{
    (void)state;
    run("$RUN -n 3 -- no-such-program");
    assert_code(127);
    assert_string_equal(result.error,
                        "sparring-run: cannot run 'no-such-program': No such file or directory\n");
    run("$RUN -n 3 -- /etc/passwd");
    assert_code(126);
    assert_string_equal(result.error,
                        "sparring-run: cannot run '/etc/passwd': Permission denied\n");
}

static void the_timeout_names_who_is_alive(void **state)
{
    (void)state;
    run("$RUN -n 3 --timeout 1 -- sh -c '[ $SPARRING_RANK = 1 ] || exec sleep 50'");
    assert_code(124);
    assert_has(result.error, "timeout after 1 s: rank 0 (pid ");
    assert_has(result.error, "timeout after 1 s: rank 2 (pid ");
    assert_int_equal(count(result.error, "is still alive (sleeping)\n"), 2);
}

static void who_ignores_term_is_killed(void **state)
{
    (void)state;
    run("$RUN -n 2 --timeout 0.2 -- sh -c 'trap \"\" TERM; while :; do sleep 1; done'");
    assert_code(124);
    assert_true(result.took_ms >= 2000);
}

static void no_process_outlives_the_job(void **state)
{
    (void)state; /* run() fails when one does */
    run("$RUN -n 3 -- sh -c '" FAMILY "; exit 0'");
    assert_code(0);
    run("$RUN -n 3 --tag -- sh -c '" FAMILY "; exit 3'");
    assert_code(3);
    run("$RUN -n 3 -- sh -c '" FAMILY "; " SAY_READY
        "sleep 50' & " AWAIT_READY(3) "kill -9 $!; wait $!");
    assert_code(137);
    /* The keeper is the child of the process that the user sees. */
    run("$RUN -n 3 -- sh -c '" FAMILY "; " SAY_READY
        "sleep 50' & p=$!; " AWAIT_READY(3) "kill -9 $(cat /proc/$p/task/$p/children); wait $p");
    assert_code(137);
    assert_has(result.error, "the keeper of the ranks (pid ");
}

static void signals_reach_all_ranks(void **state)
{
    static const char *const names[] = {"TERM", "HUP", "USR1", "USR2"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "$RUN -n 3 -- sh -c 'trap \"echo got %s; exit 0\" %s; " SAY_READY
                 "while :; do sleep 0.05; done' & " AWAIT_READY(3) "kill -%s $!; wait $!",
                 names[i], names[i], names[i]);
        run(line);
        assert_code(0);
        assert_int_equal(count(result.output, "got "), 3);
    }
}

static void the_third_request_to_end_kills(void **state)
{
    (void)state;
    run("$RUN -n 2 -- sh -c 'trap \"\" TERM; " SAY_READY
        "while :; do sleep 0.1; done' & " AWAIT_READY(
            2) "for i in 1 2 3; do kill -TERM $!; sleep 0.1; done; wait $!");
    assert_code(143);
}

static void a_reader_that_stalls_keeps_no_rank_alive(void **state)
{
    (void)state;
    run("{ $RUN -n 2 --tag --timeout 0.3 -- sh -c '" SAY_READY
        "while :; do seq 100000; done'; echo $? >&2; } | { " AWAIT_READY(
            2) "n=0; for p in $(cat $READY); do while kill -0 $p 2>/dev/null && [ $n -lt 100 ];"
               " do sleep 0.1; n=$((n + 1)); done; done; [ $n -lt 100 ] && echo gone >&2;"
               " wc -l >/dev/null; }");
    assert_has(result.error, "gone\n124\n");
    run("$RUN -n 2 --tag -- sh -c 'while echo y; do :; done 2>/dev/null' | head -n 2 >/dev/null");
}

/* A rank has ended, and 20000 tagged lines are more than the pipe takes that nobody reads yet. */
#define STALLED                                                                                    \
    "f=$(mktemp -u); mkfifo $f; $RUN -n 1 -t -- sh -c '" SAY_READY                                 \
    "exec seq 20000' >$f & p=$!; exec 4<$f; rm $f; " AWAIT_READY(                                  \
        1) "while [ -e /proc/$(cat $READY) ]; do sleep 0.02; done; "                               \
           "k=$(cat /proc/$p/task/$p/children); "

static void a_signal_that_asks_for_no_end_is_nothing_to_a_job_whose_ranks_have_ended(void **state)
{
    (void)state;
    run(STALLED "kill -USR1 $k; wc -l <&4; wait $p");
    assert_code(0);
    assert_string_equal(result.output, "20000\n");
    run("$RUN -n 1 -- sh -c 'trap \"\" TERM;"
        " (while [ -e /proc/$$ ]; do sleep 0.01; done; kill -USR1 $PPID) & exit 0'");
    assert_code(0);
}

static void nobody_has_to_read_what_a_job_that_is_told_to_end_has_left(void **state)
{
    (void)state;
    run(STALLED "kill -TERM $p; wait $p");
    assert_code(143);
    run(STALLED "kill -KILL $p; wait $p"); /* the keeper ends, too, or run() fails */
    assert_code(137);
}

static void a_job_that_does_not_fail_leaves_no_directory(void **state)
{
    (void)state;
    run("export XDG_RUNTIME_DIR=$(mktemp -d); $RUN -n 1 -- sh -c '>$SPARRING_TRACE_DIR/meet';"
        " rmdir $XDG_RUNTIME_DIR");
    assert_code(0);
    run("export XDG_RUNTIME_DIR=$(mktemp -d); $RUN -n 1 --root $(printf %0400d 0) -- true;"
        " rmdir $XDG_RUNTIME_DIR");
    assert_code(0);
    assert_has(result.error, "the name of rank 0's host is too long\n");
}

static void ranks_have_to_be_able_to_meet_in_the_directory_that_is_named(void **state)
{
    (void)state;
    run("d=$(mktemp -d); l=$(printf %0160d 0); mkdir $d/$l; "
        "$RUN -n 2 --restart 1 --emulate 1gbit --trace-dir $d/$l/$l -- true; c=$?; rm -r $d; "
        "exit $c");
    assert_code(1);
    assert_has(result.error, "in a directory of more than 299 bytes: /");
}

static void ranks_are_pinned_on_request(void **state)
{
    (void)state;
    run("$RUN -n 3 --cpu-bind rank -- sh -c 'grep Cpus_allowed_list /proc/self/status'"
        " | grep -c -E '[[:space:]][0-9]+$'");
    assert_string_equal(result.output, "3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_is_one_line_and_code_2),
        cmocka_unit_test(help_and_version_go_to_standard_output),
        cmocka_unit_test(every_rank_knows_who_it_is),
        cmocka_unit_test(ranks_share_a_root_and_a_job_that_no_other_job_has),
        cmocka_unit_test(the_secret_is_one_sealed_file_per_rank),
        cmocka_unit_test(ranks_inherit_no_descriptor_but_the_secret),
        cmocka_unit_test(ranks_may_use_what_the_hard_limits_allow),
        cmocka_unit_test(standard_input_is_rank_0s),
        cmocka_unit_test(tagged_lines_stay_whole_and_apart),
        cmocka_unit_test(a_line_too_long_is_cut),
        cmocka_unit_test(the_first_failure_is_named_and_its_code_returned),
        cmocka_unit_test(of_those_that_failed_at_once_a_killed_one_is_the_first),
        cmocka_unit_test(a_rank_that_fails_is_started_again),
        cmocka_unit_test(the_others_get_time_to_report),
        cmocka_unit_test(a_rank_that_ends_well_is_not_missed),
        cmocka_unit_test(a_program_that_does_not_start_is_one_line),
        cmocka_unit_test(the_timeout_names_who_is_alive),
        cmocka_unit_test(who_ignores_term_is_killed),
        cmocka_unit_test(no_process_outlives_the_job),
        cmocka_unit_test(signals_reach_all_ranks),
        cmocka_unit_test(the_third_request_to_end_kills),
        cmocka_unit_test(a_reader_that_stalls_keeps_no_rank_alive),
        cmocka_unit_test(a_signal_that_asks_for_no_end_is_nothing_to_a_job_whose_ranks_have_ended),
        cmocka_unit_test(nobody_has_to_read_what_a_job_that_is_told_to_end_has_left),
        cmocka_unit_test(a_job_that_does_not_fail_leaves_no_directory),
        cmocka_unit_test(ranks_have_to_be_able_to_meet_in_the_directory_that_is_named),
        cmocka_unit_test(ranks_are_pinned_on_request),
    };
    shell_line_setup();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
