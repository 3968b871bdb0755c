/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Strangers on the network: thousands of connections that are silent, slow, garbage, HTTP, of a
 * wrong key, replayed or too long, to every port of a job, while it starts and while it runs. The
 * job does not care. A report says how much longer the start took; it is not asserted.
 *
 * All of it in a network namespace, where every listening port is the job's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"
#include "transport/bootstrap/auth_wire.h"
#include "transport/bootstrap/identity.h"

#define SECONDS 200
#define RANKS 3
#define ROOT "127.0.0.1:29871"
#define JOB "5ca1ab1e"
#define HELD 300 /* connections that are open at the same time */
#define MOST_PORTS 16

static uint64_t seed;
static const char secret[] = "a secret of the test";

/* In shared memory. */
struct scene {
    _Atomic int ready, enough;
    _Atomic unsigned connections, answered;
    uint64_t start_ns[RANKS]; /* how long spr_comm_create took */
};

/* The strangers -------------------------------------------------------------------------------- */

static int listening_ports(uint16_t ports[MOST_PORTS])
{
    FILE *f = fopen("/proc/self/net/tcp", "re");
    char line[256];
    unsigned port, state;
    int n = 0;

    while (f && n < MOST_PORTS && fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: %*x:%x %*x:%*x %x", &port, &state) == 2 && state == 10)
            ports[n++] = (uint16_t)port;
    if (f)
        fclose(f);
    return n;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static void say(int fd, const void *data, size_t bytes)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    if (poll(&p, 1, 20) > 0)
        (void)!send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct spr_auth_key key_of(const char *text, int rank)
{
    struct spr_auth_key key = {.epoch = 1, .rank = rank, .size = RANKS};
    struct spr_error error = {0};

    memcpy(key.secret, text, strlen(text) + 1);
    key.secret_bytes = strlen(text) + 1;
    if (spr_identity_job(&key, "", &key.job, &error))
        _exit(3);
    return key;
}

/* Moves what the connector has to say to the acceptor, and back; `said` keeps the former. */
static void exchange(struct spr_auth *from, struct spr_auth *to, uint8_t *said, size_t *bytes)
{
    const uint8_t *data;
    uint8_t *into;
    size_t n;

    while ((n = spr_auth_output(from, &data)) > 0 && spr_auth_wants(to, &into) > 0) {
        memcpy(into, data, n);
        if (said)
            memcpy(said + *bytes, data, n);
        *bytes += n;
        spr_auth_sent(from, n);
        spr_auth_received(to, n);
    }
}

/* What a rank says in a whole handshake that the right rank answered: to be replayed. */
static size_t capture(uint64_t config, enum spr_auth_purpose purpose, uint8_t *said)
{
    struct spr_auth_key connector = key_of(secret, 2), acceptor = key_of(secret, 0);
    struct spr_auth c, a;
    size_t bytes = 0, back = 0;

    connector.config_hash = acceptor.config_hash = config;
    spr_auth_init(&c, &connector, true, purpose, 0);
    spr_auth_init(&a, &acceptor, false, purpose, -1);
    for (int i = 0; i < 3; i++) {
        exchange(&c, &a, said, &bytes);
        exchange(&a, &c, NULL, &back);
    }
    return spr_auth_result(&a) == SPR_OK ? bytes : 0;
}

/* A HELLO of a rank, answered with a CHALLENGE that says what the job's settings are. */
static bool challenge(int fd, enum spr_auth_purpose purpose, struct spr_auth_frame *answer)
{
    struct spr_auth_key key = key_of(secret, 2);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const uint8_t *hello;
    struct spr_auth a;

    spr_auth_init(&a, &key, true, purpose, 0);
    say(fd, hello, spr_auth_output(&a, &hello));
    return poll(&p, 1, 50) > 0 &&
           recv(fd, answer, sizeof *answer, MSG_DONTWAIT) == (ssize_t)sizeof *answer;
}

/* One connection; stays open until its place is needed. */
static void annoy(struct scene *scene, int fd, unsigned kind, bool root, struct spr_rng *rng)
{
    enum spr_auth_purpose purpose = root ? SPR_AUTH_ROOT : SPR_AUTH_TCP;
    static uint64_t config; /* once it is known */
    uint8_t bytes[4096];
    struct spr_auth_frame frame;
    size_t n;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)spr_rng_below(rng, 256);
    switch (kind) {
    case 0: /* silent */
        break;
    case 1: /* slow: a part of a HELLO */
        say(fd, "SPRA\1\1", 1 + spr_rng_below(rng, 6));
        break;
    case 2:
        say(fd, bytes, 1 + spr_rng_below(rng, sizeof bytes));
        break;
    case 3:
        say(fd, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 43);
        break;
    case 4: { /* a wrong key, as far as it gets */
        struct spr_auth_key key = key_of("another secret", 2);
        struct spr_auth a;
        short events;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        key.config_hash = config;
        spr_auth_init(&a, &key, true, purpose, 0);
        say(fd, "", 0); /* connected */
        while (spr_auth_drive(&a, fd, &events) == SPR_IN_PROGRESS && poll(&p, 1, 50) > 0)
            ;
        break;
    }
    case 5: /* replayed */
        n = capture(config, purpose, bytes);
        say(fd, bytes, n);
        break;
    default: /* the right beginning, and far too much after it */
        if (challenge(fd, purpose, &frame)) {
            atomic_fetch_add(&scene->answered, 1);
            config = frame.config_hash;
        }
        for (int i = 0; i < 64; i++)
            say(fd, bytes, sizeof bytes);
    }
}

static _Noreturn void stranger(struct scene *scene, unsigned number)
{
    struct spr_rng rng = {seed, number};
    int held[HELD];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SPARRING_JOB", JOB, 1);
    memset(held, -1, sizeof held);
    for (unsigned i = 0; !atomic_load(&scene->enough); i++) {
        uint16_t ports[MOST_PORTS];
        int count = listening_ports(ports), *place = &held[i % HELD];
        uint16_t port = count ? ports[spr_rng_below(&rng, (uint64_t)count)] : 0;
        if (!count) {
            fault_pause_us(1000);
            continue;
        }
        if (*place >= 0)
            close(*place);
        *place = connect_to(port);
        if (*place < 0)
            continue;
        annoy(scene, *place, (unsigned)spr_rng_below(&rng, 7),
              port == strtol(strchr(ROOT, ':') + 1, NULL, 10), &rng);
        atomic_fetch_add(&scene->connections, 1);
    }
    _exit(0);
}

/* The job -------------------------------------------------------------------------------------- */

static void check_round(spr_comm *comm)
{
    enum { N = 30000 };
    static float x[N];

    for (size_t i = 0; i < N; i++)
        x[i] = (float)(spr_comm_rank(comm) + 1) * (float)(i % 100);
    RANK_CHECK(spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    for (size_t i = 0; i < N; i++)
        RANK_CHECK(x[i] == (float)(RANKS * (RANKS + 1) / 2) * (float)(i % 100));
}

/* Instead of job.c's way: with a root, that strangers can find. Ranks come one after the other, so
 * that the root and the first listeners stand in the storm for a while. */
static void be_rank(struct job *job, int rank)
{
    spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    struct scene *scene = (void *)job->shared;
    uint64_t begin;
    spr_comm *comm = NULL;
    char text[16];
    int32_t go_on = 1;

    setenv("SPARRING_JOB", JOB, 1);
    setenv("SPARRING_ROOT", ROOT, 1);
    setenv("SPARRING_SIZE", "3", 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv("SPARRING_RANK", text, 1);
    options.transports = job->transports;
    options.interface_name = "lo";
    options.secret = secret;
    options.secret_bytes = sizeof secret;
    fault_pause_us(rank * 150000L);
    begin = spr_monotonic_ns();
    if (spr_comm_create(&options, &comm) != SPR_OK)
        fprintf(stderr, "rank %d: %s\n", rank, spr_last_error(NULL));
    RANK_CHECK(comm != NULL);
    scene->start_ns[rank] = spr_monotonic_ns() - begin;
    atomic_fetch_add(&scene->ready, 1);
    while (go_on) {
        check_round(comm);
        go_on = !atomic_load(&scene->enough);
        RANK_CHECK(spr_broadcast(comm, &go_on, 1, SPR_INT32, 0, NULL) == SPR_OK);
    }
    spr_comm_destroy(comm);
    _exit(0);
}

static bool a_rank_has_ended(const struct job *job)
{
    for (int r = 0; r < RANKS; r++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)job->pids[r], &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            return true;
    }
    return false;
}

/* Returns the start-up time of the last rank, for which the others wait, in seconds. */
static double run(const char *transport, int strangers, unsigned connections)
{
    struct scene *scene;
    struct job job;
    pid_t pids[8];

    job_prepare = be_rank;
    job_start(&job, RANKS, transport, NULL, NULL);
    scene = (void *)job.shared;
    for (int i = 0; i < strangers; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            stranger(scene, (unsigned)i);
    }
    while (!a_rank_has_ended(&job) &&
           (atomic_load(&scene->ready) < RANKS || atomic_load(&scene->connections) < connections))
        fault_pause_us(1000);
    atomic_store(&scene->enough, 1);
    for (int i = 0; i < strangers; i++)
        assert_true(waitpid(pids[i], NULL, 0) == pids[i]);
    assert_true(job_wait(&job, SECONDS));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(job.codes[r], 0);
    assert_true(atomic_load(&scene->connections) >= connections);
    if (strangers)
        printf("%s: %u hostile connections, %u got a challenge\n", transport,
               atomic_load(&scene->connections), atomic_load(&scene->answered));
    return (double)scene->start_ns[RANKS - 1] * 1e-9;
}

static void strangers_do_not_disturb(void **state)
{
    unsigned connections = (unsigned)fault_repeats(500, 10000);
    struct fault_census before = fault_census_take();

    if (!*(bool *)*state) {
        print_message("needs a network namespace of its own\n");
        skip();
    }
    for (size_t t = 0; t < job_transport_count; t++) {
        double alone, among;
        if (!strcmp(job_transports[t], "shm"))
            continue;
        alone = run(job_transports[t], 0, 0);
        among = run(job_transports[t], 3, connections);
        printf("%s: the start took %.0f ms alone, %.0f ms among strangers\n", job_transports[t],
               alone * 1e3, among * 1e3);
        fflush(stdout);
    }
    fault_census_expect(&before);
}

int main(void)
{
    static bool network;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(strangers_do_not_disturb, &network),
    };

    network = fault_own_network();
    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
