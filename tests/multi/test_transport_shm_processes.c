/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport between processes: traffic, sleep, death.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "tests/multi/shm_node.h"

/* What the processes of a test share. */
struct shared {
    struct spr_peer_info info[NODE_MAX];
    atomic_int opened, up;
    atomic_int failures;
    atomic_int grandchild; /* its process */
};

static struct shared *shared;
static struct node node;
static uint64_t seed;

/* In a forked process there is no cmocka to report to. */
static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: not so: %s\n", node.rank, what);
    atomic_fetch_add(&shared->failures, 1);
    _exit(1);
}
#define CHECK(condition) check(condition, #condition)

static unsigned limit_s(double seconds) { return (unsigned)(seconds * spr_time_factor()); }

/* progress(); when there is nothing to do, sleep until there is. The delay lets news come in
 * between. */
static void progress_or_sleep(int delay)
{
    if (node.t->ops->progress(node.t))
        return;
    for (int i = 0; i < delay; i++)
        spr_cpu_relax();
    if (node.t->ops->arm(node.t) == SPR_OK) {
        struct pollfd p = {.fd = node.t->ops->fd(node.t), .events = POLLIN};

        CHECK(poll(&p, 1, -1) == 1 || errno == EINTR);
    }
}

static void wait_for_all(atomic_int *count, int size)
{
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < size)
        usleep(100);
}

static void join(int rank, int size)
{
    bool all;

    node_open(&node, rank, size, seed);
    shared->info[rank] = node.info;
    wait_for_all(&shared->opened, size);
    for (int i = 0; i < size; i++)
        if (i != rank)
            node_connect(&node, i, &shared->info[i]);
    do {
        progress_or_sleep(0);
        all = true;
        for (int i = 0; i < size; i++)
            all = all && (i == rank || node.peers[i].up);
    } while (!all);
    wait_for_all(&shared->up, size);
}

/* Run body(rank) in `size` processes; rank 0 is a child too, so that an alarm ends only it. */
static void run_ranks(int size, double seconds, void (*body)(int rank, int size))
{
    pid_t pid[NODE_MAX];

    memset(shared, 0, sizeof(*shared));
    for (int i = 0; i < size; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            alarm(limit_s(seconds)); /* a lost wake-up is a test that hangs */
            join(i, size);
            body(i, size);
            CHECK(node.errors == 0);
            node_close(&node);
            _exit(0);
        }
    }
    for (int i = 0; i < size; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            atomic_fetch_add(&shared->failures, 1);
    }
    assert_int_equal(atomic_load(&shared->failures), 0);
}

/* ---- Traffic ---- */

#define FRAMES 3000u

static void exchange(int rank, int size)
{
    bool all;

    do {
        bool idle = true;

        all = true;
        for (int i = 0; i < size; i++) {
            struct node_peer *p = &node.peers[i];

            if (i == rank)
                continue;
            if (p->posted < FRAMES && p->posted - p->sent < NODE_TX) {
                idle = false; /* whether it sends now or not: only who cannot may sleep */
                if (spr_rng_below(&node.rng, 4))
                    node_send_next(&node, i);
            }
            all = all && p->received == FRAMES && p->sent == FRAMES;
        }
        if (spr_rng_below(&node.rng, 4) == 0)
            node_release_one(&node);
        if (!idle || all) {
            node.t->ops->progress(node.t);
            continue;
        }
        /* Who sleeps on payloads of others must not be waited for. */
        node_release_all(&node);
        progress_or_sleep((int)spr_rng_below(&node.rng, 128));
    } while (!all);
    node_release_all(&node);
    for (int i = 0; i < size; i++)
        CHECK(node.peers[i].failed == 0);
}

static void three_processes_exchange_random_frames_and_sleep(void **state)
{
    (void)state;
    node_slots = 2; /* few, so that they sleep for want of slots too */
    run_ranks(3, 120, exchange);
    node_slots = 24;
}

/* ---- Sleep ---- */

#define ROUNDS 100000u

static void ping_pong(int rank, int size)
{
    uint64_t begin = spr_monotonic_ns();

    (void)size;
    node.max_bytes = 8;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (rank == 0)
            CHECK(node_send_next(&node, 1));
        while (node.peers[!rank].received <= i)
            progress_or_sleep((int)spr_rng_below(&node.rng, 128));
        node_release_all(&node);
        if (rank == 1)
            CHECK(node_send_next(&node, 0));
        while (node.peers[!rank].posted != node.peers[!rank].sent)
            node.t->ops->progress(node.t);
    }
    if (rank == 0)
        printf("%u round trips with sleep: %.1f us each\n", ROUNDS,
               (double)(spr_monotonic_ns() - begin) * 1e-3 / ROUNDS);
    fflush(stdout);
}

static void no_wake_up_is_lost_in_100000_ping_pongs(void **state)
{
    (void)state;
    run_ranks(2, 240, ping_pong);
}

/* ---- Death ---- */

static void send_until_killed(int rank)
{
    for (;;) {
        node_send_next(&node, !rank);
        node_release_one(&node);
        node.t->ops->progress(node.t);
    }
}

/* Rank 1 in a child, which is killed while both send; rank 0 here. Returns the time until down().
 */
static double time_of_death(bool sleeping, bool with_child)
{
    uint64_t begin;
    double us;
    pid_t pid;

    memset(shared, 0, sizeof(*shared));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(limit_s(60));
        join(1, 2);
        if (with_child) {
            pid_t grandchild = fork(); /* keeps all descriptors open */

            if (grandchild == 0) {
                alarm(limit_s(60));
                pause();
                _exit(0);
            }
            atomic_store(&shared->grandchild, grandchild);
        }
        send_until_killed(1);
    }
    alarm(limit_s(60));
    join(0, 2);
    while (node.peers[1].received < 200 || (with_child && !shared->grandchild)) {
        node_send_next(&node, 1);
        node_release_one(&node);
        node.t->ops->progress(node.t);
    }
    kill(pid, SIGKILL);
    begin = spr_monotonic_ns();
    while (!node.peers[1].down) {
        node_release_all(&node);
        if (sleeping)
            progress_or_sleep(0);
        else
            node.t->ops->progress(node.t);
    }
    us = (double)(spr_monotonic_ns() - begin) * 1e-3;
    alarm(0);
    if (with_child)
        kill(shared->grandchild, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(node.peers[1].why == SPR_ERR_RANK_LOST || node.peers[1].why == SPR_ERR_LINK);
    assert_int_equal(node.peers[1].sent, node.peers[1].posted);
    assert_int_equal(node.errors, 0);
    node_close(&node);
    return us;
}

static void report_deaths(const char *what, bool sleeping, bool with_child)
{
    double worst = 0, sum = 0;
    const int n = 10;

    for (int i = 0; i < n; i++) {
        double us = time_of_death(sleeping, with_child);

        sum += us;
        worst = us > worst ? us : worst;
    }
    print_message("%s: SIGKILL to down() in %.0f us on average, %.0f us at worst\n", what, sum / n,
                  worst);
    assert_true(worst < 2e6 * spr_time_factor());
}

static void a_killed_process_takes_its_link_down(void **state)
{
    (void)state;
    report_deaths("spinning", false, false);
    report_deaths("sleeping", true, false);
}

static void a_killed_process_is_missed_though_its_child_lives(void **state)
{
    (void)state;
    report_deaths("with a child", true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(three_processes_exchange_random_frames_and_sleep),
        NODE_TEST(no_wake_up_is_lost_in_100000_ping_pongs),
        NODE_TEST(a_killed_process_takes_its_link_down),
        NODE_TEST(a_killed_process_is_missed_though_its_child_lives),
    };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests_name("transport/shm processes", tests, NULL, NULL);
}
