/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-vm with real guests. Runs on the host, by `make check-vm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <unistd.h>

#include "tests/cli/shell_line.h"

/* Whatever sparring-vm starts has this in its environment, which nothing else has. */
static char mark[64];

/* Processes of guests that a line has left behind. */
static int left_behind(void)
{
    static char environment[128 * 1024];
    DIR *all = opendir("/proc");
    int found = 0;

    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[300], *at = environment;
        FILE *file;
        size_t n;

        snprintf(path, sizeof path, "/proc/%s/environ", entry->d_name);
        if (strtol(entry->d_name, NULL, 10) == getpid() || (file = fopen(path, "r")) == NULL)
            continue;
        n = fread(environment, 1, sizeof environment - 1, file);
        fclose(file);
        for (environment[n] = '\0'; at < environment + n; at += strlen(at) + 1)
            found += strcmp(at, mark) == 0;
    }
    closedir(all);
    return found;
}

/* QEMU takes a moment to end after its SIGKILL. */
static void assert_nothing_left(void)
{
    for (int i = 0; i < 100 && left_behind() > 0; i++)
        usleep(100000);
    assert_int_equal(left_behind(), 0);
}

static void a_command_runs_as_it_would_here(void **state)
{
    (void)state;
    run("W=$(mktemp -d); D='a  \"b\" $c'; export D; echo 'some input' |"
        " $VM --write $W --timeout 200 -- sh -c 'cat; echo \"$0|$1|$D|$(pwd)\"; echo error "
        ">/dev/stderr;"
        " ulimit -l; cat /sys/class/infiniband/rxe0/ports/1/state; echo written >'$W'/file;"
        " echo x >/tmp/x && cat /tmp/x; echo y >./y; seq 1 30000; exit 7' 'q'\\''q' '*';"
        " c=$?; pwd; cat $W/file; rm -r $W; exit $c");
    assert_code(7);
    assert_has(result.output, "some input\n");
    char here[4096], line[5000];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(line, sizeof line, "q'q|*|a  \"b\" $c|%s\nunlimited\n4: ACTIVE\nx\n1\n2\n", here);
    assert_has(result.output, line);
    snprintf(line, sizeof line, "\n29999\n30000\n%s\nwritten\n", here);
    assert_has(result.output, line);
    assert_has(result.error, "error\n");
    assert_has(result.error, "Read-only file system");
    assert_true(access("y", F_OK) != 0);
    assert_nothing_left();
}

static void guests_differ_in_number_and_address(void **state)
{
    (void)state;
    run("$VM --guests 3 --smp 1 --mem 512M --rails 2 --mtu 1500 --netem 'delay 1ms' --tag"
        " --script 't=0.5 kill 2' --timeout 280 -- sh -c '"
        " echo $SPARRING_VM_GUEST/$SPARRING_VM_GUESTS $(hostname) $SPARRING_VM_ADDRESSES"
        " $(ibv_devinfo | awk \"/active_mtu/ { print \\$2 }\");"
        " [ $SPARRING_VM_GUEST = 2 ] && sleep 1000;"
        " tc qdisc show dev eth1 | grep -o \"netem.*delay 1\";"
        " for a in 10.9.0.1 10.9.0.2 10.9.1.1 10.9.1.2 guest0 fd09::1 fd09:0:0:1::2; do"
        "  /run/sparring-vm/busybox ping -c 1 -W 30 $a | grep -o \"1 packets rec.*\"; done;"
        " exit $((SPARRING_VM_GUEST * 4))'");
    assert_code(4);
    assert_has(result.output, "[0] 0/3 guest0 10.9.0.1 10.9.0.2 10.9.0.3 1024 1024\n");
    assert_has(result.output, "[1] 1/3 guest1 10.9.0.1 10.9.0.2 10.9.0.3 1024 1024\n");
    assert_int_equal(count(result.output, "netem"), 2);
    assert_int_equal(count(result.output, "] 1 packets received"), 14);
    assert_nothing_left();
}

static void a_script_is_played_from_its_first_step_to_its_last(void **state)
{
    (void)state;
    run("$VM --guests 2 --smp 1 --mem 512M --tag --timeout 200"
        " --script 't=3 cut 1; t=5 restore; t=8 degrade 0 delay 30ms; t=10 kill 1' -- sh -c '"
        " now() { echo $(cut -c 1 /sys/class/infiniband/rxe0/ports/1/state)"
        " $(tc qdisc show dev eth0 | grep -c netem); };"
        " until [ \"$s\" = \"4 1\" ]; do s=$(now); [ \"$s\" = \"$was\" ] || echo $s; was=$s;"
        " sleep 0.1; done; exit 5'");
    assert_code(5);
    assert_int_equal(count(result.output, "[0] "), 2);
    assert_has(strstr(result.output, "[0] 4 0\n"), "[0] 4 1\n");
    assert_int_equal(count(result.output, "[1] "), 3);
    assert_has(strstr(result.output, "[1] 4 0\n"), "[1] 1 0\n[1] 4 0\n");
    assert_nothing_left();
}

/* In the shell of a host: the state of a guest's port; whether it reaches the other. */
#define GUEST_TOOLS                                                                                \
    "state() { $VM exec $1 cat /sys/class/infiniband/rxe0/ports/1/state; };"                       \
    " reach() { $VM exec $1 /run/sparring-vm/busybox ping -c 1 -W ${3-2} 10.9.0.$(($2 + 1))"       \
    " >/dev/null && echo $1 reaches $2 || echo $1 does not reach $2; };"                           \
    " await() { until state $1 | grep -q $2; do sleep 0.1; done; echo $1 is $2; };"

/* sparring-run knows the way by itself; whoever calls exec and goes away hangs up. */
#define RANKS_IN_GUESTS                                                                            \
    " $RUN --hosts guest0:2,guest1 --tag -- sh -c \"cat; echo \\$(hostname)"                       \
    " \\$SPARRING_RANK/\\$SPARRING_SIZE \\$SPARRING_ROOT\"; echo first $?;"                        \
    " $RUN --hosts guest0,guest1 --rsh \"$VM exec\" -- sh -c \"[ \\$SPARRING_RANK = 0 ] || "       \
    "kill -9 \\$\\$; sleep 1000\"; echo second $?;"                                                \
    " timeout -s KILL 5 $VM exec 1 sh -c \"trap \\\"echo hung up >/tmp/seen; exit\\\" HUP;"        \
    " while :; do sleep 0.1; done\"; sleep 2; $VM exec 1 cat /tmp/seen;"                           \
    " seq 1 20000 | $VM exec 0 sort -n | tail -n 1;"

static void guests_are_reached_and_fail_as_they_are_told(void **state)
{
    (void)state;
    run("export VM RUN; $VM --guests 2 --smp 1 --mem 1G --outside --timeout 280 -- sh -c "
        "'" GUEST_TOOLS RANKS_IN_GUESTS " await 0 ACTIVE; reach 0 1 30;"
        " $VM control cut 1; await 1 DOWN; state 0; $VM control restore; await 1 ACTIVE;"
        " $VM exec guest1 sh -c \"echo cut >/run/sparring-vm/control\"; await 0 DOWN; await 1 DOWN;"
        " $VM control restore; await 0 ACTIVE; reach 1 0 30;"
        " $VM control silence 0; state 0; reach 1 0; $VM control restore 0; reach 1 0 30;"
        " $VM control degrade 1 loss 100%; sleep 1; reach 1 0; $VM control degrade none; sleep 1; "
        "reach 1 0 30;"
        " $VM control degrade 0 rubbish; sleep 1;"
        " $VM control pause 1; reach 0 1; $VM control resume 1; reach 0 1 30;"
        " $VM control kill 1; reach 0 1; $VM exec 1 true; echo exit $?; $VM exec 5 true; echo exit "
        "$?;"
        " $VM control kill 9; echo exit $?; exit 3'");
    assert_code(3);
    assert_has(result.output, "[0] guest0 0/3 guest0:");
    assert_has(result.output, "[1] guest0 1/3 guest0:");
    assert_has(result.output, "[2] guest1 2/3 guest0:");
    assert_has(result.output, "first 0\n");
    assert_has(result.output, "second 137\nhung up\n20000\n");
    assert_has(result.output, "0 is ACTIVE\n0 reaches 1\n"
                              "1 is DOWN\n4: ACTIVE\n1 is ACTIVE\n" /* cut 1 */
                              "0 is DOWN\n1 is DOWN\n0 is ACTIVE\n1 reaches 0\n"
                              "4: ACTIVE\n1 does not reach 0\n1 reaches 0\n" /* silence */
                              "1 does not reach 0\n1 reaches 0\n"            /* degrade */
                              "0 does not reach 1\n0 reaches 1\n"            /* pause */
                              "0 does not reach 1\nexit 255\nexit 255\nexit 1\n");
    assert_has(result.error, "sparring-vm: exec: guest 1 is gone\n");
    assert_has(result.error, "sparring-vm: exec: there is no guest 5\n");
    assert_has(result.error, "sparring-vm: control: kill 9: the guests are 0 to 1\n");
    assert_has(result.error, "sparring-vm: guest 0: tc does not take 'netem rubbish'\n");
    assert_nothing_left();
}

static void a_guest_that_crashes_is_told_with_its_last_words(void **state)
{
    (void)state;
    run("$VM --mem 512M --timeout 200 -- sh -c 'sync; echo c >/proc/sysrq-trigger; sleep 100'");
    assert_code(1);
    assert_has(result.error, "sparring-vm: guest 0 ended before it was done: ");
    assert_int_equal(count(result.error, "\n"), 1);
    assert_nothing_left();
}

static void a_guest_that_hangs_is_told(void **state)
{
    (void)state;
    run("SPARRING_VM_PATIENCE=3 $VM --mem 512M --timeout 200 -- sh -c 'echo up; sleep 1000'"
        " >$READY & p=$!; " AWAIT_READY(1) "pkill -STOP -P $p qemu; wait $p");
    assert_code(1);
    assert_has(result.error, "sparring-vm: guest 0 hangs, it has not answered for 3 s: ");
    assert_int_equal(count(result.error, "\n"), 1);
    assert_nothing_left();
}

static void signals_reach_the_command(void **state)
{
    (void)state;
    run("$VM --mem 512M --timeout 200 -- sh -c 'trap \"echo got it; exit 6\" TERM; echo up;"
        " while :; do sleep 0.1; done' >$READY & p=$!; " AWAIT_READY(1) "kill $p; wait $p; c=$?;"
                                                                        " cat $READY; exit $c");
    assert_code(6);
    assert_string_equal(result.output, "up\ngot it\n");
    assert_nothing_left();
    run("$VM --mem 512M --timeout 200 --outside -- sh -c"
        " '(sleep 1000 &); kill -TERM $PPID; sleep 1000; true'");
    assert_code(143);
    assert_nothing_left();
}

/* The command never ends by itself: however fast guests start, there is something to end. */
static void nothing_is_left_behind(void **state)
{
    (void)state;
    run("$VM --timeout 2 -- sleep 1000");
    assert_code(124);
    assert_string_equal(result.error, "sparring-vm: the time is over (--timeout 2)\n");
    assert_nothing_left();
    run("$VM --guests 2 -- sleep 1000 & p=$!; sleep 3; kill -INT $p; kill $p; wait $p");
    assert_in_range(result.code, 128 + 2, 128 + 15);
    assert_nothing_left();
    run("$VM --guests 2 -- sleep 1000 & p=$!; sleep 3; kill -KILL $p; wait $p");
    assert_code(137);
    assert_nothing_left();
    /* Nor a folder: the next run clears up. */
    run("D=$(mktemp -d); export TMPDIR=$D; $VM -- sleep 1000 & p=$!;"
        " until ls $D | grep -q ^sparring-vm; do sleep 0.1; done; kill -KILL $p; wait $p;"
        " ls $D; $VM --timeout 60 -- true; ls $D; rmdir $D");
    assert_int_equal(count(result.output, "sparring-vm."), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_runs_as_it_would_here),
        cmocka_unit_test(guests_differ_in_number_and_address),
        cmocka_unit_test(a_script_is_played_from_its_first_step_to_its_last),
        cmocka_unit_test(guests_are_reached_and_fail_as_they_are_told),
        cmocka_unit_test(a_guest_that_crashes_is_told_with_its_last_words),
        cmocka_unit_test(a_guest_that_hangs_is_told),
        cmocka_unit_test(signals_reach_the_command),
        cmocka_unit_test(nothing_is_left_behind),
    };

    snprintf(mark, sizeof mark, "SPARRING_VM_TEST=%ld", (long)getpid());
    setenv("SPARRING_VM_TEST", strchr(mark, '=') + 1, 1);
    shell_line_setup();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
