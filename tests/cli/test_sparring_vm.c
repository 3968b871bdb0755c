/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sparring-vm says without a guest: its usage, bad input, a machine without a kernel.
 * tests/vm/ has the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>

#include "tests/cli/shell_line.h"

static void help_and_version_are_printed(void **state)
{
    (void)state;
    run("$VM --help && $VM -h");
    assert_code(0);
    assert_has(result.output, "Usage: sparring-vm [options] -- COMMAND");
    assert_has(result.output, "--script SCRIPT");
    assert_string_equal(result.error, "");
    run("[ \"$($VM --version)\" = \"$($RUN --version | sed s/-run/-vm/)\" ] || $VM --version");
    assert_string_equal(result.output, "");
}

static void closed_streams_lead_nowhere(void **state)
{
    static const char *const lines[] = {"$VM --help >&-", "$VM --version <&- >&- 2>&-"};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        run(lines[i]);
        assert_code(0);
        assert_string_equal(result.error, "");
    }
    run("$VM --frob 2>&-");
    assert_code(2);
}

/* It goes on until it finds no kernel. */
static void a_name_that_begins_with_dev_is_not_of_the_guests(void **state)
{
    (void)state;
    run("mkdir /devel-$$ && trap 'rmdir /devel-$$' EXIT &&"
        " SPARRING_VM_KERNEL=/does/not/exist $VM --write /devel-$$ true");
    if (count(result.error, "mkdir"))
        skip(); /* not root's */
    assert_code(1);
    assert_int_equal(count(result.error, "guests have their own"), 0);
}

static const struct {
    const char *line, *text;
} wrong[] = {
    {"", "no command to run"},
    {"--", "no command to run"},
    {"--gests 2 true", "unknown option --gests"},
    {"-x true", "unknown option -x"},
    {"--guests", "a value is missing after --guests"},
    {"--guests 0 true", "--guests wants a number from 1 to 16, not '0'"},
    {"--guests two true", "not 'two'"},
    {"--guests=17 true", "not '17'"},
    {"--smp 1.5 true", "--smp wants a number"},
    {"--mem 2T true", "--mem wants a size"},
    {"--mem 1M true", "--mem wants a size"},
    {"--rails 9 true", "--rails wants a number"},
    {"--mtu 100 true", "--mtu wants a number from 1280 to 9216"},
    {"--netem '' true", "--netem wants"},
    {"--timeout 0 true", "--timeout wants seconds"},
    {"--timeout -1 true", "--timeout wants seconds"},
    {"--timeout nan true", "--timeout wants seconds"},
    {"--write /does/not/exist true", "--write wants a folder"},
    {"--write / true", "--write wants a folder"},
    {"--write /dev true", "guests have their own /dev"},
    {"--write /proc/self/.. true", "guests have their own /proc"},
    {"--accel xen true", "--accel wants auto, kvm or tcg"},
    {"--tag=yes true", "--tag takes no value"},
    {"--tty --guests 2 true", "--tty is for one guest"},
    {"--tty true", "--tty needs a terminal"},
    {"--prepare true", "--prepare takes no command"},
    {"--tag --outside true", "exclude each other"},
    {"--script '' true", "--script wants"},
    {"--script 'cut' true", "--script wants"},
    {"--script 't=x cut' true", "--script wants"},
    {"--script 't=1 break' true", "--script wants"},
    {"--script 't=1 kill' true", "--script wants"},
    {"--script 't=1 cut 0 now' true", "--script wants"},
    {"--script 't=1 degrade 0' true", "--script wants"},
    {"--script 't=1 kill 0.1' true", "--script wants"},
    {"--script 't=1 kill 1' true", "kill 1: the guests are 0 to 0"},
    {"--script 't=1 cut 0.1' true", "cut 0.1: the rails are 0 to 0"},
    {"exec", "exec wants a guest and a command"},
    {"exec 0", "exec wants a guest and a command"},
    {"exec 0 true", "no guests here: SPARRING_VM_SOCKET is not set"},
    {"control cut", "no guests here: SPARRING_VM_SOCKET is not set"},
};

static void wrong_usage_gets_one_clear_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[256];

        snprintf(line, sizeof line, "$VM %s", wrong[i].line);
        run(line);
        if (result.code != 2 || count(result.error, "\n") != 1)
            print_error("%s\n", line);
        assert_code(2);
        assert_int_equal(count(result.error, "\n"), 1);
        assert_has(result.error, "sparring-vm: ");
        assert_has(result.error, wrong[i].text);
        assert_string_equal(result.output, "");
    }
}

/* A cache of its own; apt-get that has no network. */
#define NO_KERNEL                                                                                  \
    "D=$(mktemp -d); trap 'rm -rf $D' EXIT; printf '#!/bin/sh\\nexit 1\\n' >$D/apt-get;"           \
    " chmod +x $D/apt-get; XDG_CACHE_HOME=$D PATH=$D:$PATH"

static void a_missing_kernel_gets_one_clear_line(void **state)
{
    (void)state;
    run("command -v qemu-system-x86_64");
    if (result.code != 0)
        skip();
    run("! ls /lib/modules/*/kernel/drivers/infiniband/sw/rxe");
    if (result.code == 0) {
        run(NO_KERNEL " $VM true");
        assert_code(1);
        assert_has(result.error, "linux-image-amd64 cannot be fetched with apt-get (no network?)");
        assert_int_equal(count(result.error, "\n"), 1);
    }
    run(NO_KERNEL " SPARRING_VM_KERNEL=/does/not/exist $VM true");
    assert_code(1);
    assert_has(result.error, "SPARRING_VM_KERNEL=/does/not/exist is neither");
    assert_int_equal(count(result.error, "\n"), 1);
    run(NO_KERNEL " SPARRING_VM_KERNEL=$D $VM true");
    assert_code(1);
    assert_has(result.error, "holds no vmlinux");
    run("D=$(mktemp -d); touch $D/vmlinux; SPARRING_VM_KERNEL=$D $VM true; c=$?; rm -r $D; exit "
        "$c");
    assert_code(1);
    assert_has(result.error, "must hold one lib/modules/VERSION");
    assert_int_equal(count(result.error, "\n"), 1);
    run(NO_KERNEL " SPARRING_VM_KERNEL=$D/apt-get $VM true");
    assert_code(1);
    assert_has(result.error, "apt-get cannot be unpacked");
    run("SPARRING_VM_SOCKET=/does/not/exist $VM exec 0 true");
    assert_code(255);
    assert_has(result.error, "the guests are gone");
    assert_int_equal(count(result.error, "\n"), 1);
}

/* The loop of sparring-vm when its command has ended with code 7 and nobody has taken the output
 * yet; the words after it: --timeout, or 0. */
static const char loop[] =
    "import sys, time\n"
    "from types import SimpleNamespace\n"
    "from vm.run import Run\n"
    "from vm.signals import Signals\n"
    "limit = float(sys.argv[1])\n"
    "end = time.monotonic() + limit if limit else None\n"
    "run = Run(SimpleNamespace(script=[], timeout=limit), [], None, None, \"1\", end)\n"
    "for fd in map(int, sys.argv[2:]):\n"
    "    run.sink(fd).put(b\"x\" * 300000)\n"
    "run.result = 7\n"
    "sys.exit(run.loop(Signals()))\n";
#define LOOP "PYTHONPATH=$(dirname $(realpath $VM)) timeout -k 1 60 python3 -B -c \"$LOOP\" "

static void a_reader_that_stalls_keeps_nothing_alive(void **state)
{
    (void)state;
    setenv("LOOP", loop, 1);
    run("{ " LOOP "0 1; echo code $? >&2; } | { sleep 0.2; wc -c; }");
    assert_string_equal(result.output, "300000\n");
    assert_string_equal(result.error, "code 7\n");
    run("D=$(mktemp -d); trap 'rm -r $D' EXIT; mkfifo $D/f; exec 4<>$D/f; " LOOP "0.2 1 >&4");
    assert_code(124);
    assert_string_equal(result.error, "sparring-vm: the time is over (--timeout 0.2)\n");
    run("D=$(mktemp -d); trap 'rm -r $D' EXIT; mkfifo $D/f; exec 4<>$D/f; " LOOP
        "0 1 2 >&4 2>&4 & head -c 1 <&4; kill -TERM $!; wait $!");
    assert_code(128 + SIGTERM);
    assert_string_equal(result.output, "x");
}

/* What `make check-vm` makes of a sparring-vm that cannot prepare guests. */
static void only_what_users_may_lack_has_tests_skipped(void **state)
{
    static const struct {
        const char *ci, *says, *text;
        int code;
    } cases[] = {
        {"", "no kernel: it cannot be fetched with apt-get (no network?);", "skipped, no kernel",
         0},
        {"", "busybox is missing (Debian: busybox-static)", "skipped, busybox is", 0},
        {"true", "no kernel: it cannot be fetched with apt-get (no network?);", "FAILED, no k", 1},
        {"", "the kernel in /cache has no module rdma_rxe", "FAILED, the kernel", 1},
        {"", "Traceback (most recent call last):", "FAILED, Traceback", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("CI", cases[i].ci, 1);
        setenv("SAYS", cases[i].says, 1);
        run("cd ${top_srcdir-.}; T=$PWD/tests/vm/run; D=$(mktemp -d); trap 'rm -r $D' EXIT;"
            " cd $D; mkdir tools; ln -s /bin/true qemu-system-x86_64;"
            " printf '#!/bin/sh\\necho \"sparring-vm: $SAYS\" >&2; exit 1\\n' >tools/sparring-vm;"
            " chmod +x tools/sparring-vm; PATH=$D:$PATH $T -- 2>&1");
        assert_code(cases[i].code);
        assert_has(result.output, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version_are_printed),
        cmocka_unit_test(closed_streams_lead_nowhere),
        cmocka_unit_test(a_name_that_begins_with_dev_is_not_of_the_guests),
        cmocka_unit_test(wrong_usage_gets_one_clear_line),
        cmocka_unit_test(a_missing_kernel_gets_one_clear_line),
        cmocka_unit_test(a_reader_that_stalls_keeps_nothing_alive),
        cmocka_unit_test(only_what_users_may_lack_has_tests_skipped),
    };

    shell_line_setup();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
