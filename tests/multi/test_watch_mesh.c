/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The control mesh between ranks that live in this process, over loopback: heartbeats, the dead,
 * the expelled, those who leave and those who do not.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/opt.h"
#include "transport/tcp/tcp.h"
#include "transport/watch/mesh.h"

enum { RANKS = 3, INTERVAL_NS = 5000000, PATIENCE_MS = 20000 };

/* What one rank has seen of another. */
struct seen {
    _Atomic int heard, left, lost, death;
    char text[128]; /* before `lost` */
};

struct node {
    int rank;
    struct spr_mesh *mesh;
    struct spr_auth_key key;
    struct seen of[RANKS];
};

static struct node nodes[RANKS];
static uint16_t ports[RANKS]; /* where they listen */
static struct spr_options options;
static int64_t live;

static void on_heard(void *ctx, int rank, uint64_t progress)
{
    (void)progress;
    atomic_fetch_add(&((struct node *)ctx)->of[rank].heard, 1);
}
static void on_left(void *ctx, int rank) { atomic_store(&((struct node *)ctx)->of[rank].left, 1); }
static void on_lost(void *ctx, int rank, const char *text, bool death)
{
    struct seen *s = &((struct node *)ctx)->of[rank];

    snprintf(s->text, sizeof s->text, "%s", text);
    atomic_store(&s->death, death);
    atomic_fetch_add(&s->lost, 1);
}

static void reach(_Atomic int *count, int value)
{
    for (int ms = 0; atomic_load(count) < value; ms++) {
        assert_true(ms < PATIENCE_MS * spr_time_factor());
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static void start(const char *odd_secret)
{
    struct spr_peer_info infos[RANKS];
    struct spr_error error = {0};
    struct spr_tcp_address at;

    memset(nodes, 0, sizeof nodes);
    memset(infos, 0, sizeof infos);
    for (int r = 0; r < RANKS; r++) {
        struct node *n = &nodes[r];
        struct spr_mesh_params params = {.rank = r,
                                         .size = RANKS,
                                         .options = &options,
                                         .key = &n->key,
                                         .loopback_only = true,
                                         .interval_ns = INTERVAL_NS,
                                         .board_fd = -1,
                                         .ctx = n,
                                         .heard = on_heard,
                                         .left = on_left,
                                         .lost = on_lost};
        n->rank = r;
        n->key = (struct spr_auth_key){.job = 7, .epoch = 1, .rank = r, .size = RANKS};
        n->key.secret_bytes = 16;
        memcpy(n->key.secret, r == 2 && odd_secret ? odd_secret : "0123456789abcdef", 16);
        assert_int_equal(spr_mesh_open(&params, &n->mesh, &error), SPR_OK);
        spr_mesh_address(n->mesh, infos[r].watch.address);
        memcpy(&at, infos[r].watch.address, sizeof at);
        ports[r] = at.port;
    }
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < RANKS; p++)
            if (p != r)
                assert_int_equal(spr_mesh_connect(nodes[r].mesh, p, &infos[r], &infos[p], &error),
                                 SPR_OK);
        assert_int_equal(spr_mesh_start(nodes[r].mesh, &error), SPR_OK);
    }
}

static void stop(void)
{
    for (int r = 0; r < RANKS; r++)
        spr_mesh_close(nodes[r].mesh);
    assert_int_equal(spr_mem_live(), live);
}

static void heartbeats_come_until_a_rank_leaves_in_order(void **state)
{
    (void)state;
    start(NULL);
    for (int r = 0; r < RANKS; r++)
        for (int p = 0; p < RANKS; p++)
            if (p != r)
                reach(&nodes[r].of[p].heard, 5);
    spr_mesh_close(nodes[1].mesh);
    nodes[1].mesh = NULL;
    reach(&nodes[0].of[1].left, 1);
    reach(&nodes[2].of[1].left, 1);
    reach(&nodes[0].of[2].heard, atomic_load(&nodes[0].of[2].heard) + 3);
    assert_int_equal(atomic_load(&nodes[0].of[1].lost), 0);
    assert_int_equal(atomic_load(&nodes[2].of[1].lost), 0);
    stop();
}

static void a_death_is_told_to_all_with_who_says_so(void **state)
{
    (void)state;
    start(NULL);
    for (int p = 0; p < 2; p++)
        reach(&nodes[2].of[p].heard, 1);
    spr_mesh_tell(nodes[2].mesh, -1, SPR_MESH_DIED, 1);
    reach(&nodes[0].of[1].lost, 1);
    assert_int_equal(atomic_load(&nodes[0].of[1].death), 1);
    assert_non_null(strstr(nodes[0].of[1].text, "robust futex, told by rank 2"));
    assert_int_equal(atomic_load(&nodes[1].of[1].lost), 0); /* who lives need not be told */
    stop();
}

static void who_is_expelled_is_told_and_nobody_else(void **state)
{
    (void)state;
    start(NULL);
    reach(&nodes[0].of[1].heard, 1);
    reach(&nodes[1].of[0].heard, 1);
    spr_mesh_tell(nodes[0].mesh, 1, SPR_MESH_EXPELLED, 1);
    reach(&nodes[1].of[1].lost, 1);
    assert_int_equal(atomic_load(&nodes[1].of[1].death), 0);
    assert_int_equal(atomic_load(&nodes[2].of[1].lost), 0);
    stop();
}

/* An end of a connection between rank 0 and one that has called it. */
static int end_of_a_connection_to_0(void)
{
    for (int fd = 3; fd < 1000; fd++) {
        struct sockaddr_in peer = {0};
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == ports[0])
            return fd;
    }
    fail_msg("rank 0 has no connection");
    return -1;
}

/* What rank 0 says of the rank whose connection was broken. */
static const struct seen *broken_for_0(void)
{
    const struct seen *of = nodes[0].of;

    for (int ms = 0; !atomic_load(&of[1].lost) && !atomic_load(&of[2].lost); ms++) {
        assert_true(ms < PATIENCE_MS * spr_time_factor());
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return atomic_load(&of[1].lost) ? &of[1] : &of[2];
}

static void heard_of_all_by_0(void)
{
    reach(&nodes[0].of[1].heard, 1);
    reach(&nodes[0].of[2].heard, 1);
}

/* As when its process dies: end of file without a word. */
static void a_connection_that_ends_without_a_word_is_a_death(void **state)
{
    const struct seen *lost;

    (void)state;
    start(NULL);
    heard_of_all_by_0();
    assert_int_equal(shutdown(end_of_a_connection_to_0(), SHUT_WR), 0);
    lost = broken_for_0();
    assert_non_null(strstr(lost->text, "control connection"));
    assert_int_equal(atomic_load(&lost->death), 1);
    stop();
}

/* A firewall, an address that moved: both processes may be well. */
static void one_that_is_reset_proves_no_death(void **state)
{
    const struct seen *lost;

    (void)state;
    start(NULL);
    heard_of_all_by_0();
    spr_tcp_reset(end_of_a_connection_to_0());
    lost = broken_for_0();
    assert_non_null(strstr(lost->text, "control connection"));
    assert_int_equal(atomic_load(&lost->death), 0);
    stop();
}

static void who_is_forgotten_is_told_and_sees_no_death(void **state)
{
    (void)state;
    start(NULL);
    reach(&nodes[0].of[1].heard, 1);
    reach(&nodes[1].of[0].heard, 1);
    spr_mesh_forget(nodes[0].mesh, 1);
    reach(&nodes[1].of[1].lost, 1);
    assert_int_equal(atomic_load(&nodes[1].of[1].death), 0);
    reach(&nodes[1].of[2].heard, atomic_load(&nodes[1].of[2].heard) + 5);
    assert_int_equal(atomic_load(&nodes[1].of[0].lost), 0);
    assert_int_equal(atomic_load(&nodes[0].of[1].lost), 0); /* it forgot on purpose */
    stop();
}

static void who_does_not_know_the_secret_is_not_heard(void **state)
{
    (void)state;
    start("fedcba9876543210");
    reach(&nodes[0].of[1].heard, 3);
    assert_int_equal(atomic_load(&nodes[0].of[2].heard), 0);
    assert_int_equal(atomic_load(&nodes[1].of[2].heard), 0);
    assert_int_equal(atomic_load(&nodes[2].of[0].heard), 0);
    /* Nor is it lost: it was never there. */
    reach(&nodes[0].of[1].heard, 50);
    for (int p = 0; p < 2; p++)
        assert_int_equal(atomic_load(&nodes[2].of[p].lost), 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heartbeats_come_until_a_rank_leaves_in_order),
        cmocka_unit_test(a_death_is_told_to_all_with_who_says_so),
        cmocka_unit_test(who_is_expelled_is_told_and_nobody_else),
        cmocka_unit_test(a_connection_that_ends_without_a_word_is_a_death),
        cmocka_unit_test(one_that_is_reset_proves_no_death),
        cmocka_unit_test(who_is_forgotten_is_told_and_sees_no_death),
        cmocka_unit_test(who_does_not_know_the_secret_is_not_heard),
    };
    struct spr_error error = {0};
    int failed;

    if (spr_opt_load(spr_options_table, spr_options_count, &options, &error))
        return 1;
    live = spr_mem_live(); /* of the options */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    spr_opt_free(spr_options_table, spr_options_count, &options);
    return failed;
}
