/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks as processes that meet over TCP, IPv6, a Unix socket and a shared file, and those that do
 * not come, die, or are none of the job.
 */
#include "transport/bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"

#define MOST_RANKS 512
#define SECOND 1000000000ull

/* ---- A job of forked ranks ---- */

/* What a rank leaves behind; shared with the test. */
struct outcome {
    spr_status status;
    int blamed;
    uint64_t ns; /* from its start to its end */
    char text[SPR_ERROR_TEXT_BYTES];
};
static struct outcome *outcomes;

struct plan {
    int size;
    char root[128]; /* or: */
    const char *file;
    const char *secret;
    double seconds;       /* deadline */
    int rounds;           /* allgathers */
    uint64_t absent;      /* bit: this rank never comes */
    uint64_t late;        /* bit: comes half a second late */
    int dies, dies_round; /* rank that is killed before that round; dies -1: none */
    size_t odd_bytes;     /* rank 1 exchanges so many bytes instead */
    int odd_size;         /* rank 1 believes in so many ranks */
    bool wrong_secret;    /* rank 1 has another */
};

static struct plan make_plan(int size)
{
    struct plan p = {.size = size, .secret = "hush", .seconds = 30, .rounds = 3, .dies = -1};

    return p;
}

static struct spr_auth_key make_key(const struct plan *p, int rank)
{
    struct spr_auth_key key = {.job = 77, .rank = rank, .size = p->size};

    key.secret_bytes = strlen(p->secret);
    memcpy(key.secret, p->secret, key.secret_bytes);
    if (rank == 1 && p->wrong_secret)
        key.secret[0] ^= 1;
    if (rank == 1 && p->odd_size)
        key.size = p->odd_size;
    return key;
}

static uint8_t expected(int rank, int round, size_t i)
{
    return (uint8_t)spr_hash_u32((uint64_t)rank << 40 | (uint64_t)round << 32 | i);
}

static size_t round_bytes(const struct plan *p, int rank, int round)
{
    static const size_t bytes[] = {8, 500, 0, 20000, 1};

    if (rank == 1 && p->odd_bytes)
        return p->odd_bytes;
    return bytes[round % 5];
}

static spr_status one_round(const struct plan *p, spr_bootstrap *boot, int rank, int round,
                            uint64_t deadline, struct spr_error *error)
{
    size_t bytes = round_bytes(p, rank, round);
    uint8_t *in = calloc(1, bytes + 1), *out = calloc((size_t)p->size, bytes + 1);
    spr_status status;

    for (size_t i = 0; i < bytes; i++)
        in[i] = expected(rank, round, i);
    status = spr_bootstrap_allgather(boot, in, out, bytes, deadline, error);
    for (int r = 0; r < p->size && status == SPR_OK; r++)
        for (size_t i = 0; i < bytes; i++)
            if (out[(size_t)r * bytes + i] != expected(r, round, i))
                status = SPR_ERR_CORRUPT;
    free(in);
    free(out);
    return status;
}

static spr_status run_rank(const struct plan *p, int rank, struct spr_error *error)
{
    uint64_t deadline = spr_monotonic_ns() + (uint64_t)(p->seconds * 1e9);
    struct spr_auth_key key = make_key(p, rank);
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    spr_status status;

    if (p->file)
        status = spr_bootstrap_file(p->file, &key, deadline, &boot, error);
    else
        status = spr_bootstrap_tcp(p->root, &key, false, deadline, &boot, error);
    if (status != SPR_OK)
        return status;
    for (int round = 0; round < p->rounds && status == SPR_OK; round++) {
        if (rank == p->dies && round == p->dies_round)
            raise(SIGKILL);
        status = one_round(p, &boot, rank, round, deadline, error);
    }
    boot.close(boot.ctx);
    return status;
}

static void rank_process(const struct plan *p, int rank)
{
    struct outcome *o = &outcomes[rank];
    struct spr_error error = {.rank = -1};
    struct timespec half = {0, 500000000};
    uint64_t start;

    if (rank < 64 && p->late >> rank & 1)
        nanosleep(&half, NULL);
    start = spr_monotonic_ns();
    o->status = run_rank(p, rank, &error);
    o->ns = spr_monotonic_ns() - start;
    o->blamed = error.rank;
    memcpy(o->text, error.text, sizeof(o->text));
    _exit(0);
}

/* Run all ranks to their end; returns how long that took. */
static uint64_t run(const struct plan *p)
{
    uint64_t start = spr_monotonic_ns();

    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    fflush(NULL);
    for (int rank = 0; rank < p->size; rank++) {
        pid_t child;

        outcomes[rank].status = -999;
        if (rank < 64 && p->absent >> rank & 1)
            continue;
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
            rank_process(p, rank);
    }
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    return spr_monotonic_ns() - start;
}

static void expect_all_ok(const struct plan *p)
{
    for (int rank = 0; rank < p->size; rank++)
        if (outcomes[rank].status != SPR_OK)
            fail_msg("rank %d: status %d: %s", rank, outcomes[rank].status, outcomes[rank].text);
}

static void expect_text(int rank, spr_status status, const char *words)
{
    const struct outcome *o = &outcomes[rank];

    if (o->status != status || !strstr(o->text, words))
        fail_msg("rank %d: status %d, text '%s' instead of %d, '%s'", rank, o->status, o->text,
                 status, words);
}

/* A free port; somebody else may take it before us, which the tests survive by the retry. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port;

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    port = ntohs(a.sin_port);
    close(fd);
    return port;
}

static void choose_tcp(struct plan *p)
{
    snprintf(p->root, sizeof(p->root), "127.0.0.1:%d", free_port());
}

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
        assert_true(outcomes[rank].ns < 2 * SECOND);
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
    expect_text(2, SPR_ERR_BOOTSTRAP, "within 1 s");
    expect_text(2, SPR_ERR_BOOTSTRAP, "Connection refused");
    assert_true(outcomes[2].ns < 2 * SECOND);
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
                assert_true(outcomes[rank].ns < 2 * SECOND);
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
        assert_true(outcomes[rank].ns < 2 * SECOND);
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
    assert_true(outcomes[0].ns < 2 * SECOND);
    assert_true(outcomes[1].ns < 2 * SECOND);
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

/* Connects again and again for a second, with all sorts of behaviour. */
static void hostile_process(int port, uint64_t seed)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct plan p = make_plan(8);
    struct spr_auth_key key = make_key(&p, 1);
    struct spr_rng rng = {seed, 0};
    int fds[HOSTILE], opened = 0;
    uint64_t end = spr_monotonic_ns() + 2 * SECOND;

    key.secret[1] ^= 1;
    while (opened < HOSTILE && spr_monotonic_ns() < end) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        uint8_t garbage[256];
        struct spr_auth auth;
        short events;

        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
            struct timespec moment = {0, 2000000};

            close(fd);
            nanosleep(&moment, NULL);
            continue;
        }
        switch (spr_rng_below(&rng, 5)) {
        case 0: /* silent, for ever */
            break;
        case 1:
            (void)send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL);
            break;
        case 2:
            for (size_t i = 0; i < sizeof(garbage); i++)
                garbage[i] = (uint8_t)spr_rng_next(&rng);
            (void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
            break;
        case 3: /* a wrong secret */
            spr_auth_init(&auth, &key, true, SPR_AUTH_ROOT, 0);
            (void)spr_auth_drive(&auth, fd, &events);
            break;
        default: /* a port scan */
            close(fd);
            fd = -1;
            break;
        }
        fds[opened++] = fd;
    }
    pause();
    (void)fds;
    _exit(0);
}

static void hostile_connections_do_not_hold_the_job_up(void **state)
{
    uint64_t seed = *(const uint64_t *)*state, ns;
    struct plan p = make_plan(8);
    pid_t hostile;
    int port = free_port();

    snprintf(p.root, sizeof(p.root), "127.0.0.1:%d", port);
    p.late = 0xfe; /* the strangers are there first */
    fflush(NULL);
    hostile = fork();
    if (hostile == 0)
        hostile_process(port, seed);
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    for (int rank = 0; rank < p.size; rank++) {
        pid_t child = fork();

        if (child == 0)
            rank_process(&p, rank);
    }
    for (int rank = 0; rank < p.size; rank++)
        assert_true(waitpid(0, NULL, 0) > 0);
    kill(hostile, SIGKILL);
    waitpid(hostile, NULL, 0);
    expect_all_ok(&p);
    ns = outcomes[1].ns;
    printf("# 8 ranks among %d hostile connections: %.0f ms\n", HOSTILE, (double)ns * 1e-6);
    assert_true((double)ns < 1e9 * spr_time_factor());
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
}

int main(void)
{
    static uint64_t seed;
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
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(a_rank_that_dies_is_named_at_once),
        cmocka_unit_test(different_lengths_are_named),
        cmocka_unit_test(different_sizes_are_named),
        cmocka_unit_test(a_rank_with_a_wrong_secret_is_missing),
        cmocka_unit_test(without_a_secret_only_loopback_is_allowed),
        cmocka_unit_test(a_root_of_another_form_is_refused),
        cmocka_unit_test_prestate(hostile_connections_do_not_hold_the_job_up, &seed),
        cmocka_unit_test(a_foreign_listener_is_told_apart),
    };

    alarm(240);
    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    outcomes = mmap(NULL, MOST_RANKS * sizeof(*outcomes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
