/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks that meet: over TCP, IPv6, a Unix socket and a shared file; alone, and by the user's own
 * means. What that costs rank 0 when it fails.
 */
#include "transport/bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/multi/bootstrap_ranks.h"
#include "transport/bootstrap/root.h"

/* ---- All come ---- */

static const int sizes[] = {1, 2, 8, 64};

static void ranks_meet_over_tcp(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        struct plan p = make_plan(sizes[i]);
        uint64_t ns;

        p.rounds = 5;
        choose_tcp(&p);
        ns = run(&p);
        expect_all_ok(&p);
        printf("# %d ranks, 5 allgathers over TCP: %.0f ms\n", p.size, (double)ns * 1e-6);
    }
}

static void ranks_meet_over_ipv6(void **state)
{
    struct plan p = make_plan(8);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    (void)state;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        skip();
    close(fd);
    snprintf(p.root, sizeof(p.root), "[::1]:%d", free_port());
    run(&p);
    expect_all_ok(&p);
}

static void ranks_meet_by_the_name_localhost(void **state)
{
    struct plan p = make_plan(4);

    (void)state;
    snprintf(p.root, sizeof(p.root), "localhost:%d", free_port());
    run(&p);
    expect_all_ok(&p);
}

static void ranks_meet_at_a_unix_socket(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes); i++) {
        struct plan p = make_plan(sizes[i]);

        p.rounds = 5;
        snprintf(p.root, sizeof(p.root), "unix:sparring-test.%d", (int)getpid());
        run(&p);
        expect_all_ok(&p);
    }
}

static void ranks_meet_at_a_file(void **state)
{
    char folder[] = "/tmp/test_bootstrap.XXXXXX", path[64];
    static const char *const secrets[] = {"hush", ""};

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/meet", folder);
    for (size_t i = 0; i < SPR_ARRAY_LEN(secrets); i++) {
        struct plan p = make_plan(8);

        p.file = path;
        p.secret = secrets[i];
        p.late = 1;
        run(&p);
        expect_all_ok(&p);
        assert_int_not_equal(access(path, F_OK), 0); /* rank 0 has removed it */
    }
    rmdir(folder);
}

/* The file of a job that died: its address refuses, or its rank 0 has another nonce. */
static void a_stale_file_is_passed_over(void **state)
{
    char folder[] = "/tmp/test_bootstrap.XXXXXX", path[64];
    struct plan p = make_plan(4);
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/meet", folder);
    file = fopen(path, "w");
    fprintf(file, "sparring-root 1\nnonce 0123456789abcdef\nat 127.0.0.1:%d\n", free_port());
    fclose(file);
    p.file = path;
    p.late = 1;
    run(&p);
    expect_all_ok(&p);
    rmdir(folder);
}

static void rank_0_may_be_late(void **state)
{
    struct plan p = make_plan(8);

    (void)state;
    choose_tcp(&p);
    p.late = 1;
    run(&p);
    expect_all_ok(&p);
    assert_true(outcomes[3].ns > SECOND / 4);
}

static void a_port_that_is_taken_for_a_moment_is_waited_for(void **state)
{
    struct plan p = make_plan(4);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timespec half = {0, 500000000};
    socklen_t bytes = sizeof(a);
    pid_t holder;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    holder = fork();
    if (holder == 0) {
        nanosleep(&half, NULL);
        _exit(0);
    }
    close(fd);
    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", ntohs(a.sin_port));
    run(&p);
    expect_all_ok(&p);
}

static void two_jobs_in_a_row_may_use_one_port(void **state)
{
    struct plan p = make_plan(8);

    (void)state;
    choose_tcp(&p);
    for (int i = 0; i < 5; i++) {
        run(&p);
        expect_all_ok(&p);
    }
}

/* ---- Alone, and given ---- */

static void a_rank_alone_needs_nobody(void **state)
{
    struct spr_options opts = {.insecure = false};
    struct spr_auth_key key = {.epoch = 1};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    struct spr_error error = {.rank = -1};
    struct spr_identity id;
    int in = 5, out = 0;

    (void)state;
    assert_int_equal(spr_bootstrap_open(NULL, &opts, 0, &id, &key, &boot, &error), SPR_OK);
    assert_string_equal(id.source, "single");
    assert_int_equal(id.size, 1);
    assert_int_equal(key.size, 1);
    assert_int_equal(key.epoch, 1);
    assert_int_equal(spr_bootstrap_allgather(&boot, &in, &out, sizeof(in), 0, &error), SPR_OK);
    assert_int_equal(out, 5);
    boot.close(boot.ctx);
}

static int given_calls;

static spr_status given_allgather(void *ctx, const void *in, void *out, size_t bytes,
                                  void **request)
{
    memcpy(out, in, bytes);
    *request = ctx;
    given_calls = 0;
    return SPR_OK;
}

static spr_status given_test(void *ctx, void *request)
{
    (void)ctx;
    (void)request;
    return ++given_calls < 5 ? SPR_IN_PROGRESS : SPR_OK;
}

static spr_status given_never(void *ctx, void *request)
{
    (void)ctx;
    (void)request;
    return SPR_IN_PROGRESS;
}

static const char *given_error(void *ctx)
{
    (void)ctx;
    return "rank 1 is on holiday";
}

static void given_close(void *ctx) { ++*(int *)ctx; }

static spr_status given_refuses(void *ctx, const void *in, void *out, size_t bytes, void **request)
{
    (void)ctx, (void)in, (void)out, (void)bytes, (void)request;
    return SPR_ERR_BOOTSTRAP;
}

/* Whatever it is that keeps the communicator from being made. */
static void a_bootstrap_of_the_user_is_closed_once(void **state)
{
    static const char *const wrong[][2] = {{"SPARRING_TIMEOUT", "abc"},
                                           {"SPARRING_JOB", "xyz"},
                                           {"SPARRING_SECRET_FILE", "/nonexistent"},
                                           {"SPARRING_JOIN", "1"},
                                           {"SPARRING_DECISIONS", "/nonexistent"},
                                           {NULL, NULL}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(wrong); i++) {
        spr_comm_options options = SPR_COMM_OPTIONS_INIT;
        spr_bootstrap given = SPR_BOOTSTRAP_INIT;
        spr_comm *comm = NULL;
        int closed = 0;

        given.ctx = &closed;
        given.size = 2;
        given.allgather = given_refuses;
        given.test = given_test;
        given.close = given_close;
        options.bootstrap = &given;
        if (wrong[i][0])
            setenv(wrong[i][0], wrong[i][1], 1);
        assert_int_not_equal(spr_comm_create(&options, &comm), SPR_OK);
        if (wrong[i][0])
            unsetenv(wrong[i][0]);
        if (closed != 1)
            fail_msg("%s: closed %d times", wrong[i][0] ? wrong[i][0] : "allgather", closed);
    }
}

static void a_bootstrap_of_the_user_is_passed_through(void **state)
{
    spr_bootstrap given = SPR_BOOTSTRAP_INIT, boot = SPR_BOOTSTRAP_INIT;
    struct spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    struct spr_options opts = {.insecure = false};
    struct spr_auth_key key = {.epoch = 1};
    struct spr_error error = {.rank = -1};
    struct spr_identity id;
    int in = 5, out[2] = {0, 0};

    (void)state;
    given.rank = 0;
    given.size = 2;
    given.allgather = given_allgather;
    given.test = given_test;
    given.error = given_error;
    options.bootstrap = &given;
    assert_int_equal(spr_bootstrap_open(&options, &opts, 0, &id, &key, &boot, &error), SPR_OK);
    assert_int_equal(id.size, 2);
    assert_int_equal(spr_bootstrap_allgather(&boot, &in, out, sizeof(in), UINT64_MAX, &error),
                     SPR_OK);
    boot.test = given_never;
    assert_int_equal(spr_bootstrap_allgather(&boot, &in, out, sizeof(in),
                                             spr_monotonic_ns() + SECOND / 20, &error),
                     SPR_ERR_BOOTSTRAP);
    assert_string_equal(error.text, "rank 1 is on holiday");
    given.rank = 2;
    spr_error_clear(&error);
    assert_int_equal(spr_bootstrap_open(&options, &opts, 0, &id, &key, &boot, &error),
                     SPR_ERR_INVALID);
}

static void running_out_of_memory_is_an_error(void **state)
{
    struct spr_auth_key key = {.rank = 0, .size = 2};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    int64_t live = spr_mem_live();
    spr_status status = SPR_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status != SPR_OK; n++) {
        struct spr_error error = {.rank = -1};

        spr_mem_fail_nth(n);
        status = spr_bootstrap_tcp("127.0.0.1:0", &key, true, 0, &boot, &error);
        spr_mem_fail_nth(0);
        if (status != SPR_OK) {
            assert_int_equal(status, SPR_ERR_NOMEM);
            assert_int_equal(spr_mem_live(), live);
        }
    }
    boot.close(boot.ctx);
    assert_int_equal(spr_mem_live(), live);
}

/* The number that the next file would get is not allowed any more. Returns the limit before. */
static struct rlimit open_no_more(void)
{
    struct rlimit before, none;
    int next = dup(0);

    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

/* It stays for half a second, for those who still come: here nobody does. Either rank 1 does not
 * fit, or it cannot be let in and knocks all the time. */
static void rank_0_sleeps_while_it_stays_after_a_failure(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        struct plan p = make_plan(3);
        struct spr_auth_key key = make_key(&p, 0);
        uint64_t now = spr_monotonic_ns();
        spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
        struct spr_error error = {.rank = -1};
        char in[8] = "", out[3 * sizeof(in)];
        struct rlimit files = {0};
        void *request = NULL;
        spr_status status;
        int rounds = 0;
        pid_t child;

        choose_tcp(&p);
        p.odd_bytes = 9;
        assert_int_equal(spr_bootstrap_tcp(p.root, &key, false, now + 30 * SECOND, &boot, &error),
                         SPR_OK);
        fflush(NULL);
        child = fork();
        if (child == 0)
            rank_process(&p, 1);
        if (full)
            files = open_no_more();
        assert_int_equal(spr_bootstrap_begin(&boot, in, out, sizeof(in), &request, &error), SPR_OK);
        while ((status = boot.test(boot.ctx, request)) == SPR_IN_PROGRESS) {
            struct spr_root *root = spr_root_of(&boot);

            root->side->wait(root, spr_monotonic_ns() + SECOND / 10);
            rounds++;
        }
        if (full)
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
        boot.close(boot.ctx);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(status, full ? SPR_ERR_SYSTEM : SPR_ERR_MISMATCH);
        printf("# looked %d times\n", rounds);
        assert_true(rounds < 1000 * spr_time_factor());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_over_tcp),
        cmocka_unit_test(ranks_meet_over_ipv6),
        cmocka_unit_test(ranks_meet_by_the_name_localhost),
        cmocka_unit_test(ranks_meet_at_a_unix_socket),
        cmocka_unit_test(ranks_meet_at_a_file),
        cmocka_unit_test(a_stale_file_is_passed_over),
        cmocka_unit_test(rank_0_may_be_late),
        cmocka_unit_test(a_port_that_is_taken_for_a_moment_is_waited_for),
        cmocka_unit_test(two_jobs_in_a_row_may_use_one_port),
        cmocka_unit_test(a_rank_alone_needs_nobody),
        cmocka_unit_test(a_bootstrap_of_the_user_is_passed_through),
        cmocka_unit_test(a_bootstrap_of_the_user_is_closed_once),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(rank_0_sleeps_while_it_stays_after_a_failure),
    };

    (void)bootstrap_test_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
