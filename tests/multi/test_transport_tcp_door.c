/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The listener of the TCP transports, each test on both twins: strangers, wrong secrets,
 * interfaces.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/multi/tcp_world.h"
#include "transport/tcp/tcp.h"

/* ---- Strangers ------------------------------------------------------------------------------ */

static int visit(const struct node *n, const char *words, size_t bytes)
{
    int kind = node_kind(n->t->ops);
    struct spr_tcp_address a;
    struct sockaddr_storage sa;
    socklen_t length;
    int fd;

    memcpy(&a, n->info.address[kind], sizeof a);
    length = spr_tcp_address_to(&a, &sa);
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, length), 0);
    if (bytes)
        assert_int_equal(send(fd, words, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return fd;
}

static bool was_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* What is done with goes back first: a permission to send more is work of its own. */
static bool falls_asleep(struct node *n)
{
    for (double end = now_s() + 5 * spr_time_factor(); now_s() < end;) {
        struct pollfd fd = {.fd = n->t->ops->fd(n->t), .events = POLLIN};
        if (node_step(n) == 0 && n->borrowed_count == 0 && n->t->ops->arm(n->t) == SPR_OK &&
            poll(&fd, 1, 100) == 0)
            return true;
    }
    return false;
}

static void strangers_do_not_disturb(void **state)
{
    static const char http[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curious/1.0 (a long "
        "line, so that there are enough bytes for a first message)\r\n\r\n";
    struct node *n = open_nodes(*state, 3, 60);
    char garbage[4096];
    int silent[100], web, noise, gone;
    double begin = now_s();

    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)spr_hash_u32(i);
    web = visit(&n[0], http, sizeof http - 1);
    noise = visit(&n[0], garbage, sizeof garbage);
    for (int i = 0; i < 100; i++)
        silent[i] = visit(&n[0], "", 0);
    gone = visit(&n[0], garbage, 10);
    close(gone);
    connect_nodes(n, 3);
    run_nodes(n, 3, node_finished);
    print_message("done after %.2f s\n", now_s() - begin);
    assert_true(now_s() - begin < 20 * spr_time_factor());
    assert_true(was_closed(web));
    assert_true(was_closed(noise));
    /* The silent ones are told to leave after a while. */
    for (int open = 100; open > 0;) {
        open = 0;
        node_step(&n[0]);
        node_sleep(&n[0], 1000);
        for (int i = 0; i < 100; i++)
            open += !was_closed(silent[i]);
    }
    assert_true(now_s() - begin < 40 * spr_time_factor());
    /* Nothing is left that would keep the process awake. */
    assert_true(falls_asleep(&n[0]));
    for (int i = 0; i < 100; i++)
        close(silent[i]);
    close(web);
    close(noise);
    close_nodes(n, 3);
}

static bool has_no_link(const struct node *n) { return n->params.rank == 0 || n->peers[0].down; }

static void a_wrong_secret_is_told_to_who_connects(void **state)
{
    struct node *n = open_nodes(*state, 2, 10);

    n[1].key.secret[0] ^= 1;
    connect_nodes(n, 2);
    run_nodes(n, 2, has_no_link);
    print_message("%s\n", n[1].peers[0].text);
    assert_int_equal(n[1].peers[0].why, SPR_ERR_AUTH);
    assert_false(n[0].peers[1].up);
    close_nodes(n, 2);
}

static void who_connects_gives_up_where_nobody_listens(void **state)
{
    const struct variant *v = *state;
    struct node *n = open_nodes(v, 2, 20);
    struct spr_peer_info gone = n[0].info;
    double begin = now_s();

    n[0].t->ops->close(n[0].t);
    n[0].t = NULL;
    node_connect(&n[1], 0, &gone);
    while (!n[1].peers[0].down) {
        assert_true(now_s() - begin < 10 * spr_time_factor());
        node_step(&n[1]);
        node_sleep(&n[1], 50);
    }
    assert_true(now_s() - begin > spr_time_factor()); /* it may have been an accident */
    print_message("%s\n", n[1].peers[0].text);
    assert_int_equal(n[1].peers[0].why, SPR_ERR_LINK);
    assert_non_null(strstr(n[1].peers[0].text, "connection refused: it has given up or ended"));
    assert_true(falls_asleep(&n[1]));
    close_nodes(n, 2);
}

static void no_descriptors_left_does_not_spin(void **state)
{
    struct node *n = open_nodes(*state, 2, 20);
    struct rlimit old, none;
    int steps = 0, sleeps = 0, fds[3];

    for (int i = 0; i < 3; i++)
        fds[i] = visit(&n[0], "", 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3; /* poll() fails with 0 */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (double end = now_s() + 0.5; now_s() < end; sleeps++) {
        steps += node_step(&n[0]);
        node_sleep(&n[0], 20);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    print_message("%d sleeps, %d steps\n", sleeps, steps);
    assert_true(sleeps < 200);
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    close_nodes(n, 2);
}

/* ---- Interfaces ----------------------------------------------------------------------------- */

static void an_unknown_interface_is_refused(void **state)
{
    struct node n;
    struct spr_tcp_interface i;
    struct spr_error error = {0};

    (void)state;
    node_init(&n, 0, 2, 1, "ib7,nonsense");
    assert_int_equal(node_open(&n, &spr_transport_epoll), SPR_ERR_INVALID);
    print_message("%s\n", n.error.text);
    assert_non_null(strstr(n.error.text, "nonsense"));
    assert_non_null(strstr(n.error.text, "lo 127.0.0.1"));
    node_close(&n);
    assert_int_equal(spr_tcp_interface_choose("nonsense,lo", false, &i, &error), SPR_OK);
    assert_string_equal(i.name, "lo");
    assert_true(i.asked);
    assert_int_equal(spr_tcp_interface_choose("", true, &i, &error), SPR_OK);
    assert_true(i.address.loopback);
    assert_int_equal(spr_tcp_interface_choose("", false, &i, &error), SPR_OK);
    assert_false(i.asked);
}

static void an_unknown_congestion_control_is_refused(void **state)
{
    struct node n;

    (void)state;
    node_init(&n, 0, 2, 1, "127.0.0.1");
    spr_free(n.options.congestion);
    n.options.congestion = spr_strdup("nonsense");
    assert_int_equal(node_open(&n, &spr_transport_epoll), SPR_ERR_INVALID);
    print_message("%s\n", n.error.text);
    assert_non_null(strstr(n.error.text, "nonsense"));
    node_close(&n);
}

static void loopback_reaches_this_host_only(void **state)
{
    struct node *n = open_nodes(*state, 2, 1);
    struct spr_peer_info other = n[1].info;

    assert_null(n[0].t->ops->unusable(&n[0].info, &n[1].info));
    other.boot_id[3]++;
    assert_non_null(n[0].t->ops->unusable(&n[0].info, &other));
    other = n[1].info;
    other.net_namespace++;
    assert_non_null(n[0].t->ops->unusable(&n[0].info, &other));
    other = n[1].info;
    other.transports = 0;
    assert_non_null(n[0].t->ops->unusable(&n[0].info, &other));
    close_nodes(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(strangers_do_not_disturb),
        ON_ALL(a_wrong_secret_is_told_to_who_connects),
        ON_ALL(who_connects_gives_up_where_nobody_listens),
        ON_ALL(no_descriptors_left_does_not_spin),
        ON_ALL(loopback_reaches_this_host_only),
        ON(an_unknown_interface_is_refused, epoll4),
        ON(an_unknown_congestion_control_is_refused, epoll4),
    };

    choose_variants();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
