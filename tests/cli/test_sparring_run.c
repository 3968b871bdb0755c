/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-run as its users see it: each test runs a shell line in which $RUN is the program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 256 * 1024 };

struct result {
    int code; /* exit code of the line, as a shell has it */
    char output[TEXT_BYTES];
    char error[TEXT_BYTES];
    int64_t took_ms;
};

/* What the last run() gave. */
static struct result result;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void read_back(int fd, char *text)
{
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    close(fd);
}

/* Everything that the line starts inherits the write end of a pipe, so the pipe closes when the
 * last process is gone. A process that is left behind keeps it open: that fails the test. */
static void run(const char *line)
{
    int gone[2];
    int output = memfd_create("output", MFD_CLOEXEC);
    int error = memfd_create("error", MFD_CLOEXEC);
    int status = 0;
    int64_t start = now_ms();
    assert_true(output >= 0 && error >= 0 && pipe2(gone, O_CLOEXEC) == 0);
    /* Several processes write, and the offset of a memory file is not theirs together. */
    assert_true(fcntl(output, F_SETFL, O_APPEND) == 0 && fcntl(error, F_SETFL, O_APPEND) == 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(error, STDERR_FILENO);
        dup2(gone[1], 3);
        closefrom(4);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(99);
    }
    close(gone[1]);
    struct pollfd last = {.fd = gone[0]};
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result.took_ms = now_ms() - start;
    int ended = poll(&last, 1, 3000);
    close(gone[0]);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_back(output, result.output);
    read_back(error, result.error);
    if (ended != 1)
        fail_msg("a process was left behind by: %s\n%s", line, result.error);
}

static void assert_code(int code)
{
    if (result.code != code)
        fail_msg("exit code %d instead of %d\n%s%s", result.code, code, result.output,
                 result.error);
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is missing in:\n%s", part, text);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        found++;
    return found;
}

static void wrong_usage_is_one_line_and_code_2(void **state)
{
    static const struct {
        const char *arguments;
        const char *text;
    } cases[] = {
        {"", "-n N is missing"},
        {"-n", "a value is missing after -n"},
        {"-n 0 -- true", "--ranks wants a whole number from 1 to 4096, not '0'"},
        {"-n 2x -- true", "not '2x'"},
        {"-n 2", "no program"},
        {"--frobnicate -n 2 -- true", "unknown option --frobnicate"},
        {"-x -n 2 -- true", "unknown option -x"},
        {"-n 2 --emulate 5 -- true", "--emulate wants a rate"},
        {"-n 2 --emulate 5gbps -- true", "--emulate wants a rate"},
        {"-n 2 --emulate nangbit -- true", "--emulate wants a rate"},
        {"-n 2 --timeout 0 -- true", "--timeout wants seconds"},
        {"-n 2 --timeout inf -- true", "--timeout wants seconds"},
        {"-n 2 --env 3=4 -- true", "--env wants NAME=VALUE"},
        {"-n 2 --cpu-bind core -- true", "--cpu-bind wants none or rank"},
        {"-n 2 --ranks-per-host 2 -- true", "--ranks-per-host needs --emulate"},
        {"-n 2 --cc cubic -- true", "--cc needs --emulate"},
        {"-n 2 --rsh rsh -- true", "--rsh needs --hosts"},
        {"-n 3 --hosts a,b:1 -- true", "fewer places"},
        {"--hosts a,,b -- true", "--hosts wants a list"},
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

static void the_others_get_time_to_report(void **state)
{
    (void)state;
    run("$RUN -n 3 --tag -- sh -c '[ $SPARRING_RANK = 2 ] && exit 7; sleep 0.2; echo report; sleep "
        "50'");
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
    run("$RUN -n 3 --timeout 0.3 -- sh -c '[ $SPARRING_RANK = 1 ] || exec sleep 50'");
    assert_code(124);
    assert_has(result.error, "timeout after 0.3 s: rank 0 (pid ");
    assert_has(result.error, "timeout after 0.3 s: rank 2 (pid ");
    assert_int_equal(count(result.error, "is still alive (sleeping)\n"), 2);
}

static void who_ignores_term_is_killed(void **state)
{
    (void)state;
    run("$RUN -n 2 --timeout 0.2 -- sh -c 'trap \"\" TERM; while :; do sleep 1; done'");
    assert_code(124);
    assert_true(result.took_ms >= 2000);
}

/* Children, and a session of its own whose leader has gone. */
#define FAMILY "sleep 50 & (setsid sh -c \"trap : TERM HUP; sleep 50; sleep 50\" & )"

static void no_process_outlives_the_job(void **state)
{
    (void)state; /* run() fails when one does */
    run("$RUN -n 3 -- sh -c '" FAMILY "; exit 0'");
    assert_code(0);
    run("$RUN -n 3 --tag -- sh -c '" FAMILY "; exit 3'");
    assert_code(3);
    run("$RUN -n 3 -- sh -c '" FAMILY "; sleep 50' & sleep 0.4; kill -9 $!; wait $!");
    assert_code(137);
    /* The keeper is the child of the process that the user sees. */
    run("$RUN -n 3 -- sh -c '" FAMILY "; sleep 50' & p=$!; sleep 0.4;"
        " kill -9 $(cat /proc/$p/task/$p/children); wait $p");
    assert_code(137);
    assert_has(result.error, "the keeper of the ranks (pid ");
}

static void signals_reach_all_ranks(void **state)
{
    static const char *const names[] = {"TERM", "HUP", "USR1", "USR2"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "$RUN -n 3 -- sh -c 'trap \"echo got %s; exit 0\" %s; while :; do sleep 0.05; done' &"
            " sleep 0.4; kill -%s $!; wait $!",
            names[i], names[i], names[i]);
        run(line);
        assert_code(0);
        assert_int_equal(count(result.output, "got "), 3);
    }
}

static void the_third_request_to_end_kills(void **state)
{
    (void)state;
    run("$RUN -n 2 -- sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & sleep 0.3;"
        " for i in 1 2 3; do kill -TERM $!; sleep 0.1; done; wait $!");
    assert_code(143);
}

static void a_reader_that_stalls_keeps_no_rank_alive(void **state)
{
    (void)state;
    run("{ $RUN -n 2 --tag --timeout 0.3 -- sh -c 'while :; do seq 100000; done'; echo $? >&2; } |"
        " { sleep 1; pgrep -c -x seq >&2; wc -l >/dev/null; }");
    assert_has(result.error, "\n0\n124\n");
    run("$RUN -n 2 --tag -- sh -c 'while echo y; do :; done 2>/dev/null' | head -n 2 >/dev/null");
}

static void emulated_hosts_have_networks_of_their_own(void **state)
{
    (void)state;
    run("ls /sys/class/net; $RUN -n 4 --ranks-per-host 2 --emulate 100mbit --tag -- sh -c"
        " 'echo $(hostname) $(ip -o address show dev eth0 | grep -o -E \"(10|fd)[0-9a-f.:/]+\")"
        " $SPARRING_LOCAL_RANK/$SPARRING_LOCAL_SIZE $SPARRING_HOST_INDEX $SPARRING_ROOT"
        " $(tc qdisc show dev eth0 | grep -o \"rate [^ ]*\")'; c=$?; ls /sys/class/net; exit $c");
    if (result.code == 2)
        skip();
    assert_code(0);
    assert_has(result.output, "[0] h0 10.77.0.1/16 fd77::1/64 0/2 0 10.77.0.1:7077 rate 100Mbit\n");
    assert_has(result.output, "[1] h0 10.77.0.1/16 fd77::1/64 1/2 0 10.77.0.1:7077 rate 100Mbit\n");
    assert_has(result.output, "[2] h1 10.77.0.2/16 fd77::2/64 0/2 1 10.77.0.1:7077 rate 100Mbit\n");
    assert_has(result.output, "[3] h1 10.77.0.2/16 fd77::2/64 1/2 1 10.77.0.1:7077 rate 100Mbit\n");
    size_t half = strcspn(result.output, "[");
    const char *after = result.output + strlen(result.output) - half;
    assert_int_equal(strncmp(result.output, after, half), 0);
}

static void emulated_hosts_vanish_with_a_killed_job(void **state)
{
    (void)state;
    run("$RUN -n 1 --emulate 1gbit -- true");
    if (result.code == 2)
        skip();
    run("$RUN -n 3 --emulate 1gbit -- sh -c '" FAMILY
        "; sleep 50' & sleep 0.8; kill -9 $!; wait $!");
    assert_code(137);
}

static void emulation_without_privileges_says_what_is_needed(void **state)
{
    (void)state;
    run("unshare -Ur true && command -v setpriv >/dev/null");
    if (result.code != 0)
        skip();
    /* A user namespace that may have no further ones, and no capability inside it. */
    run("unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces &&"
        " exec setpriv --bounding-set=-all --inh-caps=-all $RUN -n 2 --emulate 1gbit -- true'");
    assert_code(2);
    assert_has(result.error, "sysctl user.max_user_namespaces=");
    assert_int_equal(count(result.error, "\n"), 1);
}

/* Two kinds of remote shell: one runs the words as they are, one joins them for a shell, as ssh
 * does. */
static const char *const remote_shells[] = {
    "D=$(mktemp -d); R=$D/rsh; printf '#!/bin/sh\\necho \"$*\" >>%s; HOST=$1; export HOST; shift; "
    "exec \"$@\"\\n'"
    " $D/log >$R; chmod +x $R; ",
    "D=$(mktemp -d); R=$D/rsh; printf '#!/bin/sh\\necho \"$*\" >>%s; HOST=$1; export HOST; shift; "
    "exec sh -c \"$*\"\\n'"
    " $D/log >$R; chmod +x $R; ",
};

static void run_remote(size_t shell, const char *line)
{
    char text[2048];
    snprintf(text, sizeof text, "%s %s; c=$?; cat $D/log; rm -rf $D; exit $c", remote_shells[shell],
             line);
    run(text);
}

static void ranks_run_on_hosts_block_by_block(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        run_remote(
            i,
            "SPARRING_FOO=\"it's 5%\" $RUN --hosts me@a:2,b --rsh $R --tag -e 'C=x y' -- sh -c"
            " 'echo $HOST $SPARRING_RANK/$SPARRING_SIZE $SPARRING_LOCAL_RANK/$SPARRING_LOCAL_SIZE"
            " $SPARRING_HOST_INDEX $C $SPARRING_FOO ${SPARRING_ROOT%:*} $(head -c 99 "
            "<&$SPARRING_SECRET_FD"
            " | wc -c) \"$@\"' - \"q'q\" '$D  e'");
        assert_code(0);
        assert_has(result.output, "[0] me@a 0/3 0/2 0 x y it's 5% a 32 q'q $D  e\n");
        assert_has(result.output, "[1] me@a 1/3 1/2 0 x y it's 5% a 32 q'q $D  e\n");
        assert_has(result.output, "[2] b 2/3 0/1 1 x y it's 5% a 32 q'q $D  e\n");
        /* Nothing but the host on the command line. */
        assert_int_equal(count(result.output, "me@a sh -s\n"), 2);
        assert_int_equal(count(result.output, "b sh -s\n"), 1);
    }
}

static void remote_ranks_end_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        run_remote(i, "$RUN --hosts a:2,b --rsh $R -- sh -c '[ $SPARRING_RANK = 1 ] && kill -9 $$;"
                      " sleep 50 & sleep 50'");
        assert_code(137);
        assert_has(result.error, "sparring-run: rank 1 (pid ");
        assert_has(result.error, ", host a) was killed by signal 9 (Killed)\n");
        run_remote(i, "$RUN --hosts a:2,b --rsh $R --timeout 0.4 -- sh -c 'trap \"\" TERM;"
                      " while :; do sleep 1; done'");
        assert_code(124);
        run_remote(i, "{ $RUN --hosts a:2,b --rsh $R -- sh -c 'sleep 50 & sleep 50' &"
                      " sleep 0.5; kill -9 $!; wait $!; }");
        assert_code(137);
        run_remote(i, "{ $RUN --hosts a,b --rsh $R -- sh -c 'trap \"echo got it; exit 0\" USR1;"
                      " while :; do sleep 0.1; done' & sleep 0.5; kill -USR1 $!; wait $!; }");
        assert_code(0);
        assert_int_equal(count(result.output, "got it"), 2);
    }
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
        cmocka_unit_test(the_others_get_time_to_report),
        cmocka_unit_test(a_rank_that_ends_well_is_not_missed),
        cmocka_unit_test(a_program_that_does_not_start_is_one_line),
        cmocka_unit_test(the_timeout_names_who_is_alive),
        cmocka_unit_test(who_ignores_term_is_killed),
        cmocka_unit_test(no_process_outlives_the_job),
        cmocka_unit_test(signals_reach_all_ranks),
        cmocka_unit_test(the_third_request_to_end_kills),
        cmocka_unit_test(a_reader_that_stalls_keeps_no_rank_alive),
        cmocka_unit_test(emulated_hosts_have_networks_of_their_own),
        cmocka_unit_test(emulated_hosts_vanish_with_a_killed_job),
        cmocka_unit_test(emulation_without_privileges_says_what_is_needed),
        cmocka_unit_test(ranks_run_on_hosts_block_by_block),
        cmocka_unit_test(remote_ranks_end_together),
        cmocka_unit_test(ranks_are_pinned_on_request),
    };
    const char *folder = getenv("top_builddir");
    char path[4096];
    snprintf(path, sizeof path, "%s/tools/sparring-run", folder != NULL ? folder : ".");
    setenv("RUN", path, 1);
    unsetenv("SPARRING_TIME_FACTOR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
