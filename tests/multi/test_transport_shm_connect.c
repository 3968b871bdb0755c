/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport: how links come up, and who is turned away.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/multi/shm_node.h"
#include "transport/shm/private.h"
#include "transport/shm/socket.h"

static struct node nodes[NODE_MAX];
static uint64_t seed;

static bool both_up(void *ctx)
{
    (void)ctx;
    return nodes[0].peers[1].up && nodes[1].peers[0].up;
}

static bool connector_is_down(void *ctx)
{
    (void)ctx;
    return nodes[1].peers[0].down;
}

static void close_both(void)
{
    node_close(&nodes[0]);
    node_close(&nodes[1]);
}

static void a_rank_with_another_secret_is_refused(void **state)
{
    (void)state;
    node_open(&nodes[0], 0, 2, seed);
    node_open_secret(&nodes[1], 1, 2, seed, "a guess");
    node_connect(&nodes[0], 1, &nodes[1].info);
    node_connect(&nodes[1], 0, &nodes[0].info);
    assert_true(node_drive_until(nodes, 2, connector_is_down, NULL));
    assert_int_equal(nodes[1].peers[0].why, SPR_ERR_AUTH);
    for (int i = 0; i < 1000; i++)
        nodes[0].t->ops->progress(nodes[0].t);
    assert_false(nodes[0].peers[1].up || nodes[0].peers[1].down);
    close_both();
}

static void a_rank_that_has_ended_is_reported(void **state)
{
    (void)state;
    node_open(&nodes[0], 0, 2, seed);
    node_open(&nodes[1], 1, 2, seed);
    node_connect(&nodes[1], 0, &nodes[0].info);
    node_close(&nodes[0]);
    assert_true(node_drive_until(&nodes[1], 1, connector_is_down, NULL));
    assert_true(nodes[1].peers[0].why == SPR_ERR_RANK_LOST ||
                nodes[1].peers[0].why == SPR_ERR_LINK);
    node_close(&nodes[1]);
}

/* The connecting side may be far ahead of the accepting side's connect(). */
static void who_comes_early_waits(void **state)
{
    (void)state;
    node_open(&nodes[0], 0, 2, seed);
    node_open(&nodes[1], 1, 2, seed);
    node_connect(&nodes[1], 0, &nodes[0].info);
    for (int i = 0; i < 1000; i++)
        for (int k = 0; k < 2; k++)
            nodes[k].t->ops->progress(nodes[k].t);
    assert_true(nodes[1].peers[0].up);
    assert_int_equal(nodes[0].t->ops->progress(nodes[0].t), 0); /* waits without work */
    nodes[1].max_bytes = nodes[0].max_bytes = 100;
    node_send_next(&nodes[1], 0);
    node_connect(&nodes[0], 1, &nodes[1].info);
    assert_int_equal(nodes[0].t->ops->arm(nodes[0].t), SPR_IN_PROGRESS);
    assert_true(node_drive_until(nodes, 2, both_up, NULL));
    for (int i = 0; i < 10; i++)
        nodes[0].t->ops->progress(nodes[0].t);
    assert_int_equal(nodes[0].peers[1].received, 1);
    close_both();
}

/* ---- Strangers ---- */

static int stranger(const struct node *n)
{
    struct sockaddr_un name;
    socklen_t bytes = spr_shm_socket_name(&name, n->info.address[SPR_T_SHM]);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);
    return fd;
}

static void strangers_do_not_keep_the_job_from_starting(void **state)
{
    enum { STRANGERS = 300 };
    int fd[STRANGERS];
    struct spr_rng rng = {.seed = seed};

    (void)state;
    node_open(&nodes[0], 0, 2, seed);
    node_open(&nodes[1], 1, 2, seed);
    for (int i = 0; i < STRANGERS; i++) {
        unsigned char garbage[300];

        fd[i] = stranger(&nodes[0]);
        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = (unsigned char)spr_rng_next(&rng);
        assert_true(send(fd[i], garbage, sizeof(garbage), MSG_NOSIGNAL) > 0);
    }
    node_connect(&nodes[0], 1, &nodes[1].info);
    node_connect(&nodes[1], 0, &nodes[0].info);
    assert_true(node_drive_until(nodes, 2, both_up, NULL));
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    close_both();
}

/* Silent ones fill the places of those that are not proven; at the deadline they go. */
static void silent_strangers_are_closed_at_their_deadline(void **state)
{
    enum { STRANGERS = 100 };
    static struct spr_virtual_clock now = {.ns = 1000000000};
    static struct spr_clock clock;
    int fd[STRANGERS];

    (void)state;
    clock = spr_clock_virtual(&now);
    node_clock = &clock;
    node_open(&nodes[0], 0, 2, seed);
    node_open(&nodes[1], 1, 2, seed);
    node_clock = &spr_clock_monotonic;
    for (int i = 0; i < STRANGERS; i++)
        fd[i] = stranger(&nodes[0]);
    node_connect(&nodes[0], 1, &nodes[1].info);
    node_connect(&nodes[1], 0, &nodes[0].info);
    for (int i = 0; i < 1000; i++) {
        nodes[0].t->ops->progress(nodes[0].t);
        nodes[1].t->ops->progress(nodes[1].t);
        assert_in_range(spr_shm_of(nodes[0].t)->half_open, 0, 64);
    }
    assert_int_equal(spr_shm_of(nodes[0].t)->half_open, 64);
    assert_false(nodes[0].peers[1].up);
    now.ns += (uint64_t)(5.1e9 * spr_time_factor());
    assert_true(node_drive_until(nodes, 2, both_up, NULL));
    now.ns += (uint64_t)(5.1e9 * spr_time_factor());
    nodes[0].t->ops->progress(nodes[0].t);
    for (int i = 0; i < STRANGERS; i++) {
        char byte;

        for (int k = 0; k < 600; k++)
            nodes[0].t->ops->progress(nodes[0].t);
        assert_int_equal(recv(fd[i], &byte, 1, 0), 0); /* closed, and nothing was said */
        close(fd[i]);
    }
    close_both();
}

/* ---- Limits ---- */

#define CROWD 64

struct crowd {
    struct spr_transport *t[CROWD];
    struct spr_peer_info info[CROWD];
    struct spr_auth_key key[CROWD];
    struct spr_counters counters;
    struct spr_options options;
    int up;
};

static void crowd_up(struct spr_link *link)
{
    struct crowd *c = link->transport->params.up;

    c->up++;
}

static void crowd_down(struct spr_link *link, spr_status why, const char *text)
{
    fail_msg("rank %d lost rank %d: %d, %s", link->transport->params.rank, link->peer, why, text);
}

static const struct spr_link_events crowd_events = {.up = crowd_up, .down = crowd_down};

static void open_crowd(struct crowd *c, int rank)
{
    struct spr_error error = {0};
    struct spr_transport_params params = {.rank = rank,
                                          .size = CROWD,
                                          .key = &c->key[rank],
                                          .options = &c->options,
                                          .events = &crowd_events,
                                          .up = c,
                                          .clock = &spr_clock_monotonic,
                                          .counters = &c->counters};

    c->key[rank] = (struct spr_auth_key){.rank = rank, .size = CROWD};
    assert_int_equal(spr_transport_shm.open(&params, &c->t[rank], &error), SPR_OK);
    spr_transport_shm.address(c->t[rank], c->info[rank].address[SPR_T_SHM]);
}

/* Each link is two descriptors on each side. */
static void a_crowd_of_64_ranks_connects_soon(void **state)
{
    struct crowd *c = calloc(1, sizeof(*c));
    struct rlimit files;
    uint64_t begin = spr_monotonic_ns();
    double seconds;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (!c || files.rlim_cur < 4 * CROWD * CROWD)
        skip();
    c->options.shm_slots = 24;
    for (int i = 0; i < CROWD; i++)
        open_crowd(c, i);
    for (int i = 0; i < CROWD; i++)
        for (int j = 0; j < CROWD; j++) {
            struct spr_link *link;

            if (i != j)
                assert_int_equal(spr_transport_shm.connect(c->t[i], j, &c->info[j], &link, NULL),
                                 SPR_OK);
        }
    while (c->up < CROWD * (CROWD - 1)) {
        for (int i = 0; i < CROWD; i++)
            spr_transport_shm.progress(c->t[i]);
        assert_in_range(spr_monotonic_ns() - begin, 0, 60000000000);
    }
    seconds = (double)(spr_monotonic_ns() - begin) * 1e-9;
    print_message("%d links in %.3f s\n", CROWD * (CROWD - 1) / 2, seconds);
    for (int i = 0; i < CROWD; i++)
        spr_transport_shm.close(c->t[i]);
    free(c);
    assert_true(seconds < 5 * spr_time_factor());
}

/* Connections that another user begins, and that are closed at once: until `until` they are
 * begun. */
static void knock_as_another_user(const struct spr_peer_info *info, int count)
{
    struct sockaddr_un name;
    socklen_t bytes = spr_shm_socket_name(&name, info->address[SPR_T_SHM]);

    if (setgid(65534) < 0 || setuid(65534) < 0)
        _exit(1);
    for (int i = 0; i < count; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        if (fd < 0 || connect(fd, (struct sockaddr *)&name, bytes) < 0)
            _exit(1);
    }
    _exit(0);
}

/* However many there are, one call looks at some, so that the rank gets to do its own work. */
static void other_users_do_not_keep_a_rank_busy(void **state)
{
    const int count = 500;
    int status = 0, seen = 0;
    pid_t child;

    (void)state;
    if (geteuid() != 0)
        skip();
    node_open(&nodes[0], 0, 2, seed);
    child = fork();
    if (child == 0)
        knock_as_another_user(&nodes[0].info, count);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int calls = 0; seen < count; calls++) {
        int n;

        spr_shm_of(nodes[0].t)->sockets_due = true;
        n = nodes[0].t->ops->progress(nodes[0].t);
        assert_in_range(n, 0, 64);
        assert_in_range(calls, 0, 100);
        seen += n;
    }
    node_close(&nodes[0]);
}

static void only_ranks_of_this_user_and_host_are_usable(void **state)
{
    struct spr_peer_info mine = {.transports = 1u << SPR_T_SHM, .uid = 5, .net_namespace = 6};
    struct spr_peer_info peer = mine;

    (void)state;
    assert_null(spr_transport_shm.unusable(&mine, &peer));
    peer.uid++;
    assert_non_null(spr_transport_shm.unusable(&mine, &peer));
    peer = mine;
    peer.net_namespace++;
    assert_non_null(spr_transport_shm.unusable(&mine, &peer));
    peer = mine;
    peer.boot_id[15]++;
    assert_non_null(spr_transport_shm.unusable(&mine, &peer));
    peer = mine;
    peer.transports = 1u << SPR_T_EPOLL;
    assert_non_null(spr_transport_shm.unusable(&mine, &peer));
}

/* Every allocation of open and connect fails once: an error, and nothing is left behind. */
static void a_failed_allocation_leaves_nothing_behind(void **state)
{
    int64_t live = spr_mem_live();
    spr_status status = SPR_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status; n++) {
        struct spr_auth_key key = {.size = 2, .rank = 1};
        struct spr_options options = {.shm_slots = 24};
        struct spr_counters counters = {0};
        struct spr_transport_params params = {.rank = 1,
                                              .size = 2,
                                              .key = &key,
                                              .options = &options,
                                              .events = &crowd_events,
                                              .clock = &spr_clock_monotonic,
                                              .counters = &counters};
        struct spr_peer_info info = {.transports = 1u << SPR_T_SHM};
        struct spr_transport *t = NULL;
        struct spr_link *link = NULL;
        struct spr_error error = {0};

        spr_mem_fail_nth(n);
        status = spr_transport_shm.open(&params, &t, &error);
        if (status == SPR_OK) {
            status = spr_transport_shm.connect(t, 0, &info, &link, &error);
            spr_transport_shm.close(t);
        }
        spr_mem_fail_nth(0);
        if (status) {
            assert_int_equal(status, SPR_ERR_NOMEM);
            assert_int_equal(error.status, SPR_ERR_NOMEM);
        }
        assert_int_equal(spr_mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(a_rank_with_another_secret_is_refused),
        NODE_TEST(a_rank_that_has_ended_is_reported),
        NODE_TEST(who_comes_early_waits),
        NODE_TEST(strangers_do_not_keep_the_job_from_starting),
        NODE_TEST(silent_strangers_are_closed_at_their_deadline),
        NODE_TEST(a_crowd_of_64_ranks_connects_soon),
        NODE_TEST(other_users_do_not_keep_a_rank_busy),
        NODE_TEST(only_ranks_of_this_user_and_host_are_usable),
        NODE_TEST(a_failed_allocation_leaves_nothing_behind),
    };

    seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("transport/shm connect", tests, NULL, NULL);
}
