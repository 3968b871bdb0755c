/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks that do not come, die or do not fit, and strangers at rank 0's door.
 */
#include "transport/bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/bootstrap_ranks.h"
#include "transport/bootstrap/root_wire.h"

/* A moment after a deadline of one second, on a machine that has other things to do; far from the
 * 30 s that those wait who are not told. */
#define SOON (uint64_t)(5e9 * spr_time_factor())

/* ---- Not all come ---- */

static void missing_ranks_are_named(void **state)
{
    struct plan p = make_plan(8);

    (void)state;
    choose_tcp(&p);
    p.seconds = 1;
    p.absent = 1u << 3 | 7u << 5;
    run(&p);
    expect_text(0, SPR_ERR_BOOTSTRAP, "ranks 3, 5-7 of 8 did not arrive within");
    expect_text(0, SPR_ERR_BOOTSTRAP, " s; root 127.0.0.1:");
    expect_text(1, SPR_ERR_BOOTSTRAP, "ranks 3, 5-7 of 8 did not arrive");
    expect_text(4, SPR_ERR_BOOTSTRAP, "ranks 3, 5-7 of 8 did not arrive");
    for (int rank = 0; rank < 3; rank++)
        assert_true(outcomes[rank].ns < SOON);
}

static void a_missing_rank_0_is_named(void **state)
{
    struct plan p = make_plan(4);

    (void)state;
    choose_tcp(&p);
    p.seconds = 1;
    p.absent = 1;
    run(&p);
    expect_text(2, SPR_ERR_BOOTSTRAP, "rank 2 did not reach rank 0 at 127.0.0.1:");
    expect_text(2, SPR_ERR_BOOTSTRAP, "within ");
    /* Counted from when it began to look, a little later than the deadline is. */
    assert_true(strtod(strstr(outcomes[2].text, "within ") + 7, NULL) >= 0.8);
    expect_text(2, SPR_ERR_BOOTSTRAP, "Connection refused");
    assert_true(outcomes[2].ns < SOON);
}

static void a_rank_that_dies_is_named_at_once(void **state)
{
    (void)state;
    for (int dies = 0; dies < 4; dies += 3) {
        for (int round = 1; round < 3; round++) {
            struct plan p = make_plan(4);

            choose_tcp(&p);
            p.dies = dies;
            p.dies_round = round;
            run(&p);
            for (int rank = 0; rank < 4; rank++) {
                if (rank == dies)
                    continue;
                expect_text(rank, SPR_ERR_BOOTSTRAP, dies ? "rank 3 (" : "rank 0 (");
                assert_int_equal(outcomes[rank].blamed, dies);
                assert_true(outcomes[rank].ns < SOON);
            }
        }
    }
}

/* ---- What does not fit ---- */

static void different_lengths_are_named(void **state)
{
    struct plan p = make_plan(4);

    (void)state;
    choose_tcp(&p);
    p.odd_bytes = 9;
    run(&p);
    for (int rank = 0; rank < 4; rank++) {
        expect_text(rank, SPR_ERR_MISMATCH, "rank 1 exchanges 9 bytes, rank 0 8");
        assert_true(outcomes[rank].ns < SOON);
    }
}

static void different_sizes_are_named(void **state)
{
    struct plan p = make_plan(4);

    (void)state;
    choose_tcp(&p);
    p.odd_size = 5;
    run(&p);
    expect_text(0, SPR_ERR_MISMATCH, "numbers of ranks differ: 4 here, 5 there");
    expect_text(1, SPR_ERR_MISMATCH, "numbers of ranks differ: 5 here, 4 there");
    assert_true(outcomes[0].ns < SOON);
    assert_true(outcomes[1].ns < SOON);
}

static void a_rank_with_a_wrong_secret_is_missing(void **state)
{
    struct plan p = make_plan(4);

    (void)state;
    choose_tcp(&p);
    p.wrong_secret = true;
    p.seconds = 1;
    run(&p);
    expect_text(0, SPR_ERR_BOOTSTRAP, "rank 1 of 4 did not arrive within");
    expect_text(0, SPR_ERR_BOOTSTRAP, "turned away");
    expect_text(1, SPR_ERR_AUTH, "does not have this job's secret");
}

static void without_a_secret_only_loopback_is_allowed(void **state)
{
    struct spr_auth_key key = {.rank = 1, .size = 2};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    struct spr_error error = {.rank = -1};

    (void)state;
    assert_int_equal(spr_bootstrap_tcp("192.0.2.1:1", &key, true, 0, &boot, &error),
                     SPR_ERR_INVALID);
    assert_non_null(strstr(error.text, "SPARRING_INSECURE=yes"));
    spr_error_clear(&error);
    assert_int_equal(spr_bootstrap_tcp("0.0.0.0:1", &key, true, 0, &boot, &error), SPR_ERR_INVALID);
    spr_error_clear(&error);
    assert_int_equal(spr_bootstrap_tcp("127.0.0.1:1", &key, true, 0, &boot, &error), SPR_OK);
    boot.close(boot.ctx);
}

static void a_root_of_another_form_is_refused(void **state)
{
    static const char *const bad[] = {"",        "host",       ":1",     "host:",   "host:x",
                                      "host:-1", "host:99999", "::1:22", "[::1]22", "[]:5"};
    struct spr_auth_key key = {.rank = 1, .size = 2};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(bad); i++) {
        struct spr_error error = {.rank = -1};

        assert_int_equal(spr_bootstrap_tcp(bad[i], &key, false, 0, &boot, &error), SPR_ERR_INVALID);
        assert_non_null(strstr(error.text, "host:port"));
    }
}

/* ---- Strangers ---- */

#define HOSTILE 200

/* Say something as one of many kinds of stranger. Returns whether to stay connected. */
static bool bother(int fd, uint64_t kind, struct spr_rng *rng)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct plan p = make_plan(8);
    struct spr_auth_key key = make_key(&p, 1);
    struct spr_auth auth;
    uint64_t garbage[32];
    short events;

    switch (kind) {
    case 0: /* silence */
        return true;
    case 1:
        (void)send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL);
        return true;
    case 2:
        for (size_t i = 0; i < SPR_ARRAY_LEN(garbage); i++)
            garbage[i] = spr_rng_next(rng);
        (void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
        return true;
    case 3: /* a wrong secret: gets as far as our challenge, and stays there */
        key.secret[1] ^= 1;
        spr_auth_init(&auth, &key, true, SPR_AUTH_ROOT, 0);
        (void)spr_auth_drive(&auth, fd, &events);
        return true;
    default: /* a port scan */
        return false;
    }
}

/* Holds HOSTILE connections, and makes ever new ones in their place. */
static _Noreturn void hostile_process(int port, uint64_t seed, bool all_silent)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timespec moment = {0, 200000};
    struct spr_rng rng = {seed, 0};
    int fds[HOSTILE];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(fds, -1, sizeof(fds));
    for (size_t i = 0;; i = (i + 1) % HOSTILE) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fds[i], (struct sockaddr *)&a, sizeof(a)) != 0 ||
            !bother(fds[i], all_silent ? 0 : spr_rng_below(&rng, 5), &rng)) {
            close(fds[i]);
            fds[i] = -1;
        }
        nanosleep(&moment, NULL);
    }
}

/* How long the slowest rank takes among them. */
static uint64_t run_among_strangers(uint64_t seed, bool all_silent)
{
    struct plan p = make_plan(8);
    uint64_t slowest = 0;
    int port = free_port();
    pid_t hostile;

    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", port);
    p.late = 0xfe; /* the strangers are there first */
    fflush(NULL);
    hostile = fork();
    if (hostile == 0)
        hostile_process(port, seed, all_silent);
    setpgid(hostile, hostile); /* waitpid(0) is for the ranks */
    start_ranks(&p);
    for (int rank = 0; rank < p.size; rank++)
        assert_true(waitpid(0, NULL, 0) > 0);
    kill(hostile, SIGKILL);
    waitpid(hostile, NULL, 0);
    expect_all_ok(&p);
    for (int rank = 1; rank < p.size; rank++)
        if (outcomes[rank].ns > slowest)
            slowest = outcomes[rank].ns;
    return slowest;
}

static void hostile_connections_do_not_hold_the_job_up(void **state)
{
    uint64_t seed = *(const uint64_t *)*state;

    for (int all_silent = 0; all_silent < 2; all_silent++) {
        double ms = (double)run_among_strangers(seed, all_silent) * 1e-6;

        printf("# 8 ranks among %d hostile connections%s: %.0f ms\n", HOSTILE,
               all_silent ? ", all silent" : "", ms);
        assert_true(ms < 3000 * spr_time_factor());
    }
}

static void *fork_soon(void *arg)
{
    (void)arg;
    (void)poll(NULL, 0, 500);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)poll(NULL, 0, 60000);
    }
    return NULL;
}

/* A process that forks while strangers are at the door has their connections in the child, too,
 * which keeps epoll from forgetting them. */
static void strangers_are_forgotten_though_a_child_has_them(void **state)
{
    enum { CROWD = 64 };
    struct plan p = make_plan(2);
    int fds[2 * CROWD], port = free_port();
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pid_t server;

    (void)state;
    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", port);
    p.seconds = 2.5;
    p.absent = 2;
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    fflush(NULL);
    server = fork();
    if (server == 0) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, fork_soon, NULL) != 0)
            _exit(1);
        rank_process(&p, 0);
    }
    for (int i = 0; i < 2 * CROWD; i++) {
        if (i == CROWD)
            (void)poll(NULL, 0, 800); /* those that come now have the others thrown out */
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (int tries = 0; i == 0 && tries < 100; tries++) {
            if (connect(fds[0], (struct sockaddr *)&a, sizeof(a)) == 0)
                break;
            (void)poll(NULL, 0, 10); /* rank 0 is not there yet */
        }
        if (i > 0)
            (void)connect(fds[i], (struct sockaddr *)&a, sizeof(a));
    }
    (void)poll(NULL, 0, 300);
    for (int i = 0; i < 2 * CROWD; i++)
        close(fds[i]);
    assert_int_equal(waitpid(server, NULL, 0), server);
    expect_text(0, SPR_ERR_BOOTSTRAP, "rank 1 of 2 did not arrive");
}

/* Root and port are right, nobody is there but somebody else. */
static void a_foreign_listener_is_told_apart(void **state)
{
    struct plan p = make_plan(2);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = sizeof(a);
    pid_t server;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    server = fork();
    if (server == 0) {
        for (;;) {
            int c = accept(fd, NULL, NULL);
            char hello[SPR_AUTH_FRAME_BYTES];

            /* What is left unread would end the connection with a reset, before the greeting. */
            (void)recv(c, hello, sizeof(hello), MSG_WAITALL);
            (void)send(c, "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL);
            close(c);
        }
    }
    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", ntohs(a.sin_port));
    p.seconds = 1;
    p.absent = 1;
    close(fd);
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    if (fork() == 0)
        rank_process(&p, 1);
    assert_true(waitpid(0, NULL, 0) > 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    expect_text(1, SPR_ERR_BOOTSTRAP, "rank 1 did not reach rank 0");
    expect_text(1, SPR_ERR_BOOTSTRAP, ": the peer does not speak this protocol");
}

/* Prove ourselves as rank 0 and say that it is over, with this status. */
static void be_rank_0(const struct plan *p, int listener, int32_t failure)
{
    static const char text[] = "a failure of another build";
    struct spr_root_header h = {.magic = SPR_ROOT_MAGIC,
                                .type = SPR_ROOT_FAIL,
                                .status = failure,
                                .rank = -1,
                                .bytes = sizeof text - 1};
    struct spr_auth_key key = make_key(p, 0);
    struct spr_auth auth;
    struct pollfd ready = {.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)};

    spr_auth_init(&auth, &key, false, SPR_AUTH_ROOT, -1);
    while (spr_auth_drive(&auth, ready.fd, &ready.events) == SPR_IN_PROGRESS)
        (void)poll(&ready, 1, 1000);
    (void)send(ready.fd, &h, sizeof h, MSG_NOSIGNAL);
    (void)send(ready.fd, text, sizeof text - 1, MSG_NOSIGNAL);
    (void)poll(NULL, 0, 60000); /* until it is killed */
    _exit(0);
}

/* Rank 0 of another build may know more of them. */
static void a_status_that_nobody_knows_is_not_passed_on(void **state)
{
    static const int32_t failures[] = {-4242, INT32_MIN, 7, SPR_ERR_AUTH};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(failures); i++) {
        struct plan p = make_plan(2);
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t bytes = sizeof(a);
        pid_t server, client;

        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
        snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", ntohs(a.sin_port));
        server = fork();
        if (server == 0)
            be_rank_0(&p, fd, failures[i]);
        close(fd);
        memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
        client = fork();
        if (client == 0)
            rank_process(&p, 1);
        assert_true(waitpid(client, NULL, 0) == client);
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        expect_text(1, failures[i] == SPR_ERR_AUTH ? SPR_ERR_AUTH : SPR_ERR_BOOTSTRAP,
                    "a failure of another build");
    }
}

/* Between the proof of a rank and the answer: it waits longer than for anything before, since rank
 * 0 may have let it in. */
static void a_rank_that_has_proven_itself_waits_for_the_answer(void **state)
{
    struct plan p = make_plan(2);
    struct spr_auth_key key = make_key(&p, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd ready = {.fd = -1};
    struct spr_auth auth;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = sizeof(a);
    spr_status status;
    char byte;
    pid_t client;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", ntohs(a.sin_port));
    p.seconds = 20;
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    client = fork();
    if (client == 0)
        rank_process(&p, 1);
    ready.fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    spr_auth_init(&auth, &key, false, SPR_AUTH_ROOT, -1);
    ready.events = POLLIN;
    assert_int_equal(poll(&ready, 1, 5000), 1);
    /* Its HELLO; our CHALLENGE leaves with the same call, and is answered after that. */
    assert_int_equal(kill(client, SIGSTOP), 0);
    assert_int_equal(spr_auth_drive(&auth, ready.fd, &ready.events), SPR_IN_PROGRESS);
    assert_int_equal(kill(client, SIGCONT), 0);
    (void)poll(NULL, 0, (int)(6000 * spr_time_factor()));
    while ((status = spr_auth_drive(&auth, ready.fd, &ready.events)) == SPR_IN_PROGRESS)
        assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(status, SPR_OK);
    ready.events = POLLIN;
    assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(recv(ready.fd, &byte, 1, MSG_DONTWAIT), 1); /* its part, not its end */
    kill(client, SIGKILL);
    assert_int_equal(waitpid(client, NULL, 0), client);
    close(ready.fd);
    close(fd);
}

int main(void)
{
    static uint64_t seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(a_rank_that_dies_is_named_at_once),
        cmocka_unit_test(different_lengths_are_named),
        cmocka_unit_test(different_sizes_are_named),
        cmocka_unit_test(a_rank_with_a_wrong_secret_is_missing),
        cmocka_unit_test(without_a_secret_only_loopback_is_allowed),
        cmocka_unit_test(a_root_of_another_form_is_refused),
        cmocka_unit_test_prestate(hostile_connections_do_not_hold_the_job_up, &seed),
        cmocka_unit_test(strangers_are_forgotten_though_a_child_has_them),
        cmocka_unit_test(a_foreign_listener_is_told_apart),
        cmocka_unit_test(a_status_that_nobody_knows_is_not_passed_on),
        cmocka_unit_test(a_rank_that_has_proven_itself_waits_for_the_answer),
    };

    seed = bootstrap_test_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
