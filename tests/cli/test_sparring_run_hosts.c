/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-run on emulated hosts and on other machines, through shell scripts that stand for ssh.
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

static void emulated_hosts_with_two_links_use_both(void **state)
{
    (void)state;
    /* What the links sent at the end: more or less half and half, 3 to 7 where others take the
     * CPUs. */
    run("$RUN -n 2 --emulate 200mbit+200mbit --tag -- sh -c '$(dirname $RUN)/sparring-perf -b 4M "
        "-e 4M -w 1 -n 4"
        " --transport epoll >/dev/null && sleep 1 && ip -o -4 address show dev eth1 | grep -o "
        "10[0-9./]* &&"
        " tc qdisc show dev eth1 | grep -o \"rate [^ ]*\" && echo $SPARRING_INTERFACE &&"
        " set -- $(sed -n \"s/.*eth[01]://p\" /proc/net/dev | awk \"{ print \\$9 }\") &&"
        " [ $1 -gt $((($1 + $2) / 10)) ] && [ $2 -gt $((($1 + $2) / 10)) ] && echo both'");
    if (result.code == 2)
        skip();
    assert_code(0);
    assert_has(result.output, "[0] 10.78.0.1/16\n");
    assert_has(result.output, "[1] 10.78.0.2/16\n");
    assert_has(result.output, "[0] rate 200Mbit\n");
    assert_has(result.output, "[1] eth0+eth1\n");
    assert_has(result.output, "[0] both\n");
    assert_has(result.output, "[1] both\n");
    /* The caller's choice counts. */
    run("$RUN -n 1 --emulate 100mbit+1gbit --env SPARRING_INTERFACE=eth1 -- sh -c"
        " 'echo $SPARRING_INTERFACE; tc qdisc show dev eth1 | grep -o \"rate [^ ]*\"'");
    assert_code(0);
    assert_string_equal(result.output, "eth1\nrate 1Gbit\n");
}

static void emulated_hosts_vanish_with_a_killed_job(void **state)
{
    (void)state;
    run("$RUN -n 1 --emulate 1gbit -- true");
    if (result.code == 2)
        skip();
    run("$RUN -n 3 --emulate 1gbit -- sh -c '" FAMILY "; " SAY_READY
        "sleep 50' & " AWAIT_READY(3) "kill -9 $!; wait $!");
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
        /* Of a rank that joins a job, which starts one of its own. */
        run_remote(i, "SPARRING_JOIN=1 $RUN --hosts a --rsh $R -- sh -c 'echo [$SPARRING_JOIN]'");
        assert_has(result.output, "[]\n");
    }
}

static void a_host_that_is_named_again_takes_more_ranks(void **state)
{
    static const char *const places[] = {"--hosts a,a,b", "--hostfile $D/hosts"};
    char line[256];

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(line, sizeof line,
                 "printf 'a\\na\\nb\\n' >$D/hosts; $RUN %s --rsh $R --tag -- sh -c 'echo "
                 "$SPARRING_LOCAL_RANK/$SPARRING_LOCAL_SIZE $SPARRING_HOST_INDEX'",
                 places[i]);
        run_remote(0, line);
        assert_code(0);
        assert_has(result.output, "[0] 0/2 0\n");
        assert_has(result.output, "[1] 1/2 0\n");
        assert_has(result.output, "[2] 0/1 1\n");
    }
    run_remote(0, "printf 'a\\nb\\na\\n' >$D/hosts; $RUN --hostfile $D/hosts --rsh $R -- true");
    assert_code(2);
    assert_has(result.error, "each host once, or what is said of it side by side: line 3");
}

static void hosts_come_from_a_file(void **state)
{
    static const char *const wrong[] = {"a b",   "a slots=", "a slots=0",  "a slots=4 max=8",
                                        "a,b",   "-a",       "a:x",        "a slots=4x",
                                        "a:2:3", "a;b",      "a:2 slots=2"};
    char line[256];

    (void)state;
    run_remote(0, "printf '# mine\\n\\na slots=2 # two\\r\\n  b:1\\n' >$D/hosts; "
                  "$RUN --hostfile $D/hosts --rsh $R --tag -- sh -c 'echo $HOST $SPARRING_SIZE'");
    assert_code(0);
    assert_has(result.output, "[0] a 3\n");
    assert_has(result.output, "[1] a 3\n");
    assert_has(result.output, "[2] b 3\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(line, sizeof line,
                 "printf 'c\\n%s\\n' >$D/hosts; $RUN --hostfile $D/hosts --rsh $R -- true",
                 wrong[i]);
        run_remote(0, line);
        assert_code(2);
        assert_has(result.error, "h1 slots=4: line 2 is none");
    }
    run_remote(0, "printf 'a:4096\\na\\n' >$D/hosts; $RUN --hostfile $D/hosts --rsh $R -- true");
    assert_code(2);
    assert_has(result.error, "at most 4096 ranks of a host: line 2");
    run_remote(0, "echo '# nobody' >$D/hosts; $RUN --hostfile $D/hosts --rsh $R -- true");
    assert_code(2);
    assert_has(result.error, "there is none in it");
    run_remote(0, "$RUN --hostfile $D/nothing --rsh $R -- true");
    assert_code(2);
    assert_has(result.error, "No such file or directory");
    run_remote(0, "$RUN --hostfile $D --rsh $R -- true");
    assert_code(2);
    assert_has(result.error, "Is a directory");
}

/* Rank 0's host has two addresses for its own name, of which its resolver puts loopback first. */
static void rank_0_listens_wherever_its_name_leads(void **state)
{
    (void)state;
    run("unshare -mn true 2>/dev/null || exit 77; D=$(mktemp -d); head -c 32 /dev/urandom >$D/s; "
        "chmod 600 $D/s; printf '127.0.1.1 node0\n192.0.2.5 node0\n127.0.0.1 localhost\n' >$D/h; "
        "PERF=$(dirname $RUN)/sparring-perf; export PERF D; unshare -mn sh -c '"
        "mount --bind $D/h /etc/hosts && ip link set lo up && export SPARRING_SECRET_FILE=$D/s "
        "SPARRING_JOB=0123456789abcdef "
        "SPARRING_SIZE=2 SPARRING_INIT_TIMEOUT=8s; "
        "SPARRING_RANK=0 SPARRING_ROOT=node0:7777 $PERF -e 8 -n 1 & "
        "SPARRING_RANK=1 SPARRING_ROOT=127.0.0.9:7777 $PERF -e 8 -n 1 && wait $!'; c=$?; rm -r $D; "
        "exit $c");
    if (result.code == 77)
        skip();
    assert_code(0);
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
        run_remote(i, "{ $RUN --hosts a:2,b --rsh $R -- sh -c '" SAY_READY "sleep 50 & sleep 50' &"
                      " " AWAIT_READY(3) "kill -9 $!; wait $!; }");
        assert_code(137);
        run_remote(
            i, "{ $RUN --hosts a,b --rsh $R -- sh -c 'trap \"echo got it; exit 0\" USR1; " SAY_READY
               "while :; do sleep 0.1; done' & " AWAIT_READY(2) "kill -USR1 $!; wait $!; }");
        assert_code(0);
        assert_int_equal(count(result.output, "got it"), 2);
        /* A program whose name looks like an assignment. */
        run_remote(i, "printf '#!/bin/sh\\necho as it is\\n' >$D/a=b; chmod +x $D/a=b; "
                      "$RUN --hosts a --rsh $R -- $D/a=b");
        assert_has(result.output, "as it is\n");
        /* As at a terminal: what a shell starts in the background ignores it. */
        run_remote(i, "env --default-signal=INT true || exit 130; { (trap - INT; exec env "
                      "--default-signal=INT $RUN --hosts a,b --rsh $R -- "
                      "sh -c '" SAY_READY
                      "exec sleep 50') & " AWAIT_READY(2) "kill -INT $!; wait $!; }");
        assert_code(130);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_hosts_have_networks_of_their_own),
        cmocka_unit_test(emulated_hosts_with_two_links_use_both),
        cmocka_unit_test(emulated_hosts_vanish_with_a_killed_job),
        cmocka_unit_test(emulation_without_privileges_says_what_is_needed),
        cmocka_unit_test(ranks_run_on_hosts_block_by_block),
        cmocka_unit_test(a_host_that_is_named_again_takes_more_ranks),
        cmocka_unit_test(hosts_come_from_a_file),
        cmocka_unit_test(rank_0_listens_wherever_its_name_leads),
        cmocka_unit_test(remote_ranks_end_together),
    };
    shell_line_setup();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
