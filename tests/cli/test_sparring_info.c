/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-info as its users see it: what it shows, its JSON, and what the doctor finds where
 * something is missing. This program is its own tool for that: `test_sparring_info --poor WHAT
 * COMMAND...` runs a command in poor surroundings.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/cli/shell_line.h"

#define NOBODY 65534

/* Poor surroundings -----------------------------------------------------------------------------
 */

static bool refuse(unsigned number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = SPR_ARRAY_LEN(code), .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Root is not bound by the limit of locked memory. */
static bool become_nobody(void)
{
    return geteuid() != 0 ||
           (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static bool make_poor(const char *what)
{
    struct rlimit little = {65536, 65536};

    if (!strcmp(what, "io_uring"))
        return refuse(__NR_io_uring_setup);
    if (!strcmp(what, "memfd"))
        return refuse(__NR_memfd_create);
    return !strcmp(what, "nobody") && setrlimit(RLIMIT_MEMLOCK, &little) == 0 && become_nobody();
}

/* The program is opened before: nobody may not be allowed to walk to it. */
static int run_poorly(char **words)
{
    int fd = open(words[3], O_RDONLY); /* a script's interpreter needs it open */

    if (fd < 0 || !make_poor(words[2]))
        return 99;
    fexecve(fd, words + 3, environ);
    return 98;
}

/* Usage -----------------------------------------------------------------------------------------
 */

static void wrong_usage_is_one_line_and_code_2(void **state)
{
    static const struct {
        const char *line;
        const char *text;
    } cases[] = {
        {"$INFO --frob", "unknown option --frob"},
        {"$INFO -xy", "unknown option -x"},
        {"$INFO --json", "a value is missing after --json"},
        {"$INFO --json ''", "--json wants a file"},
        {"$INFO eth0", "it takes no arguments: eth0"},
        {"$INFO --doctor=yes", "--doctor takes no value"},
        {"$INFO --transport nonsense", "unknown transport 'nonsense'"},
        {"SPARRING_TRANSPORTS=tcp $INFO", "unknown transport 'tcp'"},
        {"SPARRING_TIMEOUT=soon $INFO", "SPARRING_TIMEOUT"},
        {"SPARRING_RANK=3 SPARRING_SIZE=2 $INFO", "SPARRING_RANK"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        run(cases[i].line);
        assert_code(2);
        assert_has(result.error, cases[i].text);
        assert_int_equal(count(result.error, "\n"), 1);
        assert_string_equal(result.output, "");
    }
}

static void one_rank_speaks_for_all(void **state)
{
    (void)state;
    run("$RUN -n 3 -- $INFO --frob");
    assert_code(2);
    assert_int_equal(count(result.error, "unknown option --frob"), 1);
    run("$RUN -n 3 -- $INFO --version");
    assert_code(0);
    assert_int_equal(count(result.output, "\n"), 1);
}

static void help_and_version_go_to_standard_output(void **state)
{
    (void)state;
    run("$INFO --help");
    assert_code(0);
    assert_has(result.output, "Usage: sparring-info");
    run("$INFO --version");
    assert_code(0);
    assert_has(result.output, "sparring-info (Sparring) ");
    run("$INFO >/dev/full");
    assert_code(1);
    run("$INFO --json /no/such/folder/file");
    assert_code(1);
}

/* JSON ------------------------------------------------------------------------------------------
 */

/* Members of schema 1 and their types, as the manual page has them: a script reads them, so that
 * what it sees is what users see. */
static const char schema[] =
    "import json, sys\n"
    "O, L, S, I, B, N = dict, list, str, int, bool, type(None)\n"
    "R = float\n"
    "def see(value, form, path):\n"
    "    kinds = form if isinstance(form, tuple) else (form,)\n"
    "    for kind in kinds:\n"
    "        if isinstance(kind, dict):\n"
    "            if isinstance(value, dict):\n"
    "                assert set(value) == set(kind), (path, set(value) ^ set(kind))\n"
    "                for k in kind: see(value[k], kind[k], path + '.' + k)\n"
    "                return\n"
    "        elif isinstance(kind, list):\n"
    "            if isinstance(value, list):\n"
    "                for v in value: see(v, kind[0], path + '[]')\n"
    "                return\n"
    "        elif type(value) is kind: return\n"
    "    raise AssertionError((path, value))\n"
    "limit = {'soft': (I, N), 'hard': (I, N)}\n"
    "gid = {'index': I, 'type': S, 'gid': S, 'address': S, 'interface': (S, N), 'usable': B,\n"
    "       'chosen': B, 'why': S}\n"
    "port = {'port': I, 'state': S, 'link_layer': S, 'mtu_bytes': I, 'max_mtu_bytes': I,\n"
    "        'speed_gbit': (R, N), 'max_message_bytes': I, 'lid': I, 'pkeys': I,\n"
    "        'interface': (S, N), 'why_not': (S, N), 'gids': [gid]}\n"
    "device = {'name': S, 'node_type': S, 'driver': (S, N), 'firmware': (S, N), 'guid': S,\n"
    "          'why_not': (S, N), 'max_qp': I, 'max_qp_wr': I, 'max_sge': I, 'max_cqe': I,\n"
    "          'max_mr': I, 'max_mr_bytes': (I, N), 'max_inline_bytes': I,\n"
    "          'registration': (S, N), 'on_demand_paging': (S, N), 'dmabuf': (S, N),\n"
    "          'ports': [port]}\n"
    "finding = {'check': S, 'state': S, 'text': S, 'remedy': (S, N)}\n"
    "form = {'schema': I, 'version': S,\n"
    " 'system': {'host': S, 'kernel': S, 'machine': S, 'cpus_online': I, 'cpus_usable': I,\n"
    "  'cpu_quota': (R, N), 'simd': (S, N), 'memory_bytes': I, 'memlock_bytes': limit,\n"
    "  'open_files': limit, 'ipc_lock': B, 'transparent_huge_pages': (S, N),\n"
    "  'huge_pages': [{'page_bytes': I, 'total': I, 'free': I}],\n"
    "  'dev_shm': {'bytes': (I, N), 'free_bytes': (I, N), 'writable': B}, 'memory_files': B,\n"
    "  'modules': [{'name': S, 'purpose': S, 'loaded': B}]},\n"
    " 'numa': {'source': S, 'nodes': [{'node': I, 'cpus': (S, N), 'memory_bytes': (I, N)}],\n"
    "  'devices': [{'name': S, 'kind': S, 'node': (I, N), 'cpus': (S, N)}]},\n"
    " 'network': {'interfaces': [{'name': S, 'address': (S, N), 'up': B, 'chosen': B, 'why': S,\n"
    "   'mtu_bytes': (I, N), 'speed_mbit': (I, N), 'driver': (S, N)}],\n"
    "  'why_none': (S, N), 'congestion': S, 'available': (S, N)},\n"
    " 'io_uring': {'usable': B, 'why_not': (S, N), 'ring': (S, N),\n"
    "  'features': [{'name': S, 'there': B, 'needed': B}]},\n"
    " 'rdma': {'built': B, 'why_none': (S, N), 'usable': B, 'chosen': (S, N),\n"
    "  'devices': [device]},\n"
    " 'choice': {'in_job': B, 'ranks': I, 'asked': S, 'error': (S, N),\n"
    "  'transports': [{'name': S, 'open': B, 'refused': B, 'why_not': (S, N)}],\n"
    "  'pairs': [{'from': S, 'to': S, 'pairs': I, 'transport': (S, N), 'other_end': (S, N),\n"
    "   'passed_over': [{'transport': S, 'why': S}]}]},\n"
    " 'doctor': ([{'rank': I, 'host': S, 'findings': [finding]}], N)}\n"
    "r = json.load(sys.stdin)\n"
    "see(r, form, '')\n"
    "assert r['schema'] == 1\n"
    "assert len(r['choice']['pairs']) >= 1\n"
    "for d in r['doctor'] or []:\n"
    "    for f in d['findings']:\n"
    "        assert (f['remedy'] is not None) == (f['state'] in ('problem', 'advice')), f\n"
    "        assert '\\n' not in f['text'] + (f['remedy'] or ''), f\n"
    "print('as described')\n";

static void json_is_as_described(void **state)
{
    static const char *const lines[] = {
        "$INFO --json - | python3 -c \"$SCHEMA\"",
        "$INFO --doctor --json - | python3 -c \"$SCHEMA\"",
        "$RUN -n 3 -- $INFO --doctor --json - | python3 -c \"$SCHEMA\"",
        "f=$(mktemp) && $INFO --json $f >/dev/null && python3 -c \"$SCHEMA\" <$f; rm -f $f",
        "$SELF --poor io_uring $INFO --doctor --json - | python3 -c \"$SCHEMA\"",
    };

    (void)state;
#ifndef HAVE_JANSSON
    skip();
#endif
    setenv("SCHEMA", schema, 1);
    for (size_t i = 0; i < SPR_ARRAY_LEN(lines); i++) {
        run(lines[i]);
        assert_has(result.output, "as described\n");
        assert_code(0);
    }
}

/* The choice ------------------------------------------------------------------------------------
 */

static void alone_it_compares_this_host_with_another_one(void **state)
{
    (void)state;
    run("$INFO --transport auto");
    assert_code(0);
    assert_has(result.output, "this host - this host: shm\n");
    assert_has(result.output, "not shm: they are on different hosts\n");
    run("SPARRING_TRANSPORTS=shm,epoll $INFO");
    assert_code(0);
    assert_has(result.output, "this host - a host like it: epoll\n");
    run("$INFO --transport shm");
    assert_code(0);
    assert_has(result.output, "this host - a host like it: nothing\n");
}

static void the_job_uses_what_it_shows(void **state)
{
    static const char *const lists[] = {"auto", "shm", "epoll", "uring,epoll"};

    (void)state;
#ifndef HAVE_JANSSON
    skip();
#endif
    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        char used[64];
        setenv("SPARRING_TRANSPORTS", lists[i], 1);
        run("json=$($RUN -n 2 -- $PERF -b 1K -e 1K -n 1 --json -) && echo \"$json\" | "
            "sed -n 's/.*\"transport\": \"\\([a-z]*\\)\".*/\\1/p'");
        assert_code(0);
        assert_true(strcspn(result.output, "\n") > 0);
        snprintf(used, sizeof used, "(1): %.*s\n", (int)strcspn(result.output, "\n"),
                 result.output);
        run("$RUN -n 2 -- $INFO");
        unsetenv("SPARRING_TRANSPORTS");
        assert_code(0);
        assert_has(result.output, used);
    }
}

static void the_ranks_of_a_job_give_one_report(void **state)
{
    (void)state;
    run("$RUN -n 4 -- $INFO");
    assert_code(0);
    assert_int_equal(count(result.output, "# sparring-info "), 1);
    assert_has(result.output, " (6): shm\n");
    /* One rank offers less: the others hear of it. */
    run("$RUN -n 3 -- sh -c '[ $SPARRING_RANK = 2 ] && export SPARRING_TRANSPORTS=epoll; exec "
        "$INFO'");
    assert_code(0);
    assert_has(result.output, " (1): shm\n");
    assert_has(result.output, " (2): ");
    assert_has(result.output, "not shm: one of them has no shared memory\n");
    run("$RUN -n 2 -- sh -c '[ $SPARRING_RANK = 1 ] && exit 3; SPARRING_INIT_TIMEOUT=1 exec "
        "$INFO'");
    assert_true(result.code != 0);
}

static void hosts_of_a_job_are_compared(void **state)
{
    (void)state;
    run("$RUN -n 2 --emulate 1gbit -- true");
    if (result.code != 0) {
        print_message("no emulated network here: %s", result.error);
        skip();
    }
    run("$RUN -n 4 --emulate 1gbit --ranks-per-host 2 -- $INFO");
    assert_code(0);
    assert_has(result.output, "h0 - h0 (1): shm\n");
    assert_has(result.output, "h0 - h1 (4): ");
    assert_has(result.output, "h1 - h1 (1): shm\n");
    /* Packets of one host do not fit through the other. */
    run("$RUN -n 2 --emulate 1gbit -- sh -c '[ $SPARRING_RANK = 0 ] || ip link set dev eth0 mtu "
        "1300; exec $INFO --doctor'");
    assert_code(1);
    assert_has(result.output, "eth0 of host h1 has an MTU of 1300, eth0 of host h0 one of 1500");
    assert_has(result.output, "remedy: ip link set dev eth0 mtu 1500 on host h1");
    /* The driver's 10 Gb/s are made up. */
    assert_int_equal(count(result.output, "runs at"), 0);
}

static void addresses_that_are_passed_over_have_the_reason(void **state)
{
    static const char *const lines[] = {
        "* va             10.1.0.1, MTU 1500, 10000 Mb/s, veth: the interface asked for\n",
        "  va             fd01::1, MTU 1500, 10000 Mb/s, veth: IPv4 comes first\n",
        "  vb             10.2.0.1, MTU 1500, 10000 Mb/s, veth: joined with the first one\n",
        "  vb             fd02::1, MTU 1500, 10000 Mb/s, veth: IPv4 comes first\n",
        "  vc             10.3.0.1, MTU 1500, 10000 Mb/s, veth: another one was asked for\n",
    };

    (void)state;
    run("unshare -n true");
    if (result.code != 0) {
        print_message("no network of its own: not root\n");
        skip();
    }
    run("SPARRING_INTERFACE=va+vb unshare -n sh -c 'ip link add va type veth peer name vb;"
        " ip link add vc type veth peer name vd; for i in va vb vc vd; do ip link set $i up; done;"
        " ip addr add 10.1.0.1/24 dev va; ip addr add fd01::1/64 dev va nodad;"
        " ip addr add 10.2.0.1/24 dev vb; ip addr add fd02::1/64 dev vb nodad;"
        " ip addr add 10.3.0.1/24 dev vc; exec $INFO'");
    assert_code(0);
    for (size_t i = 0; i < SPR_ARRAY_LEN(lines); i++)
        assert_has(result.output, lines[i]);
}

/* The doctor ------------------------------------------------------------------------------------
 */

static void the_doctor_names_what_is_refused(void **state)
{
    static const struct {
        const char *line, *check, *remedy;
    } cases[] = {
#ifdef HAVE_URING
        {"$SELF --poor io_uring $INFO --doctor --transport shm,uring,epoll",
         "io_uring        problem: io_uring is refused", "kernel.io_uring_disabled=0"},
#endif
        {"$SELF --poor memfd $INFO --doctor", "shared-memory   problem: no sealed memory files",
         "memfd_create"},
        {"$SELF --poor nobody $INFO --doctor", "memlock         problem: only 64 KiB",
         "ulimit -l unlimited"},
        {"ulimit -n 66; $INFO --doctor", "open-files      problem: 66 descriptors", "nofile"},
        {"SPARRING_CONGESTION=nonsense $INFO --doctor",
         "congestion      problem: congestion control \"nonsense\"", "SPARRING_CONGESTION="},
        {"SPARRING_INTERFACE=nix0 $INFO --doctor", "interface       problem: no interface \"nix0\"",
         "SPARRING_INTERFACE=NAME"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        run(cases[i].line);
        assert_code(1);
        assert_has(result.output, cases[i].check);
        assert_has(strstr(result.output, cases[i].check), cases[i].remedy);
    }
}

static void what_is_refused_is_no_problem_when_nobody_asks_for_it(void **state)
{
    (void)state;
    static const char *const lists[] = {"shm,epoll", "auto"};

    for (size_t i = 0; i < SPR_ARRAY_LEN(lists); i++) {
        char line[128];
        snprintf(line, sizeof line, "$SELF --poor io_uring $INFO --doctor --transport %s",
                 lists[i]);
        run(line);
        assert_has(result.output, "io_uring        does not apply: ");
        assert_code(0);
    }
}

static void a_refused_transport_is_passed_over_with_the_reason(void **state)
{
    (void)state;
#ifndef HAVE_URING
    skip();
#endif
    run("$SELF --poor io_uring $INFO --transport uring,epoll");
    assert_code(0);
    assert_has(result.output, "io_uring is refused: operation not permitted");
    assert_has(result.output, "this host - a host like it: epoll\n");
    assert_has(result.output, "not uring: io_uring is refused");
}

static void rdma_that_is_asked_for_must_be_there(void **state)
{
    (void)state;
    run("[ -e /sys/class/infiniband ]");
    if (result.code == 0) {
        print_message("this host has RDMA devices\n");
        skip();
    }
    run("$INFO --doctor");
    assert_has(result.output, "rdma            does not apply: ");
    assert_has(result.output, "firewall        does not apply: ");
    run("$INFO --doctor --transport auto,verbs");
    if (result.code == 2) /* built without */
        skip();
    assert_code(1);
    assert_has(result.output, "rdma            problem: this host has no RDMA device\n");
    assert_has(result.output, "remedy: load its driver; or soft-RoCE: modprobe rdma_rxe");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_is_one_line_and_code_2),
        cmocka_unit_test(one_rank_speaks_for_all),
        cmocka_unit_test(help_and_version_go_to_standard_output),
        cmocka_unit_test(json_is_as_described),
        cmocka_unit_test(alone_it_compares_this_host_with_another_one),
        cmocka_unit_test(the_job_uses_what_it_shows),
        cmocka_unit_test(the_ranks_of_a_job_give_one_report),
        cmocka_unit_test(hosts_of_a_job_are_compared),
        cmocka_unit_test(addresses_that_are_passed_over_have_the_reason),
        cmocka_unit_test(the_doctor_names_what_is_refused),
        cmocka_unit_test(what_is_refused_is_no_problem_when_nobody_asks_for_it),
        cmocka_unit_test(a_refused_transport_is_passed_over_with_the_reason),
        cmocka_unit_test(rdma_that_is_asked_for_must_be_there),
    };
    char path[4096];
    const char *folder = getenv("top_builddir");
    int failed;

    if (argc > 3 && !strcmp(argv[1], "--poor"))
        return run_poorly(argv);
    shell_line_setup();
    snprintf(path, sizeof path, "%s/tools/sparring-info", folder ? folder : ".");
    setenv("INFO", path, 1);
    snprintf(path, sizeof path, "%s/tools/sparring-perf", folder ? folder : ".");
    setenv("PERF", path, 1);
    snprintf(path, sizeof path, "%s/tests/cli/test_sparring_info", folder ? folder : ".");
    setenv("SELF", path, 1);
    unsetenv("SPARRING_TRANSPORTS");
    unsetenv("SPARRING_INTERFACE");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
