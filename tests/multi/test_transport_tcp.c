/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The TCP transports, each test on both twins: frames between transports of one process and of
 * several, the death of a peer, a link that is cut, and strangers at the listener.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/multi/tcp_world.h"
#include "transport/tcp/tcp.h"

static void frames_arrive(const struct variant *v, int size, uint32_t frames)
{
    struct node *n = open_nodes(v, size, frames);

    connect_nodes(n, size);
    run_nodes(n, size, node_finished);
    for (int i = 0; i < size; i++) {
        uint64_t all = (uint64_t)frames * (uint64_t)(size - 1);
        assert_int_equal(n[i].counters.sent_frames, all);
        assert_int_equal(n[i].counters.received_frames, all);
        /* A copy may still be under way to a peer that has had it for long. */
        while (!n[i].t->ops->idle(n[i].t))
            if (!node_step(&n[i]))
                node_sleep(&n[i], 1000);
    }
    close_nodes(n, size);
}

static void two_in_one_process_exchange_frames(void **state)
{
    frames_arrive(*state, 2, scaled_frames(300));
}
static void five_in_one_process_exchange_frames(void **state)
{
    frames_arrive(*state, 5, scaled_frames(60));
}

static int unsent_limit(const struct node_peer *p)
{
    int bytes = -1;
    socklen_t length = sizeof bytes;

    assert_int_equal(
        getsockopt(spr_tcp_link_of(p->link)->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length),
        0);
    return bytes;
}

/* What is unsent is to fit a cache; on one host a larger limit is never set. */
static void a_socket_of_one_host_holds_little(void **state)
{
    struct node *n = open_nodes(*state, 2, 20);

    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    for (int i = 0; i < 2; i++) {
        const struct node_peer *p = &n[i].peers[!i];
        assert_int_equal(unsent_limit(p), SPR_TCP_LOOPBACK_UNSENT);
        if (!n[i].t->ops->limit_unsent) /* verbs: only the handshake is on the socket */
            continue;
        n[i].t->ops->limit_unsent(p->link, 4096);
        assert_int_equal(unsent_limit(p), 4096);
        n[i].t->ops->limit_unsent(p->link, (size_t)1 << 40);
        assert_int_equal(unsent_limit(p), SPR_TCP_LOOPBACK_UNSENT);
    }
    close_nodes(n, 2);
}

/* ---- Several processes ---------------------------------------------------------------------- */

/* What they tell each other: the bootstrap's part in real life. */
struct board {
    struct spr_peer_info info[NODE_PEERS];
    atomic_int written, finished;
};

static struct board *new_board(void)
{
    struct board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(b != MAP_FAILED);
    return b;
}

static void meet(struct board *b, struct node *n)
{
    int size = n->params.size;

    b->info[n->params.rank] = n->info;
    atomic_fetch_add(&b->written, 1);
    while (atomic_load(&b->written) < size)
        poll(NULL, 0, 1);
    for (int r = 0; r < size; r++)
        if (r != n->params.rank)
            node_connect(n, r, &b->info[r]);
}

static void one_of_many(const struct variant *v, struct board *b, int rank, int size, uint64_t seed)
{
    struct node n;

    node_init(&n, rank, size, seed, v->address);
    n.params.one_thread = v->one_thread;
    n.options.sockets = v->sockets ? v->sockets : 1;
    n.frames = scaled_frames(80);
    assert_int_equal(node_open(&n, v->ops[rank % 2]), SPR_OK);
    meet(b, &n);
    while (!node_finished(&n))
        if (!node_step(&n))
            node_sleep(&n, 1000);
    /* Nobody closes before all have everything. */
    atomic_fetch_add(&b->finished, 1);
    while (atomic_load(&b->finished) < size)
        poll(NULL, 0, 1);
    node_close(&n);
}

static void processes_exchange_frames(const struct variant *v, int size)
{
    struct board *b = new_board();
    uint64_t seed = test_seed();
    double begin = now_s();

    for (int r = 1; r < size; r++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm((unsigned)(LIMIT_S * spr_time_factor()));
            one_of_many(v, b, r, size, seed);
            _exit(0);
        }
    }
    one_of_many(v, b, 0, size, seed);
    for (int r = 1; r < size; r++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    /* A wake-up that is lost costs a second of sleep each time. */
    assert_true(now_s() - begin < 20 * spr_time_factor());
    munmap(b, sizeof *b);
}

static void two_processes_exchange_frames(void **state) { processes_exchange_frames(*state, 2); }
static void four_processes_exchange_frames(void **state) { processes_exchange_frames(*state, 4); }

static void a_killed_peer_is_noticed_at_once(void **state)
{
    const struct variant *v = *state;
    struct board *b = new_board();
    uint64_t seed = test_seed();
    struct node n;
    double killed;
    pid_t pid = fork();

    assert_true(pid >= 0);
    node_init(&n, pid == 0, 2, seed, v->address);
    n.params.one_thread = v->one_thread;
    n.options.sockets = v->sockets ? v->sockets : 1;
    n.frames = UINT32_MAX;
    assert_int_equal(node_open(&n, v->ops[0]), SPR_OK);
    meet(b, &n);
    if (pid == 0) {
        alarm((unsigned)(LIMIT_S * spr_time_factor()));
        for (;;)
            if (!node_step(&n))
                node_sleep(&n, 1000);
    }
    while (n.peers[1].received < 50)
        if (!node_step(&n))
            node_sleep(&n, 1000);
    kill(pid, SIGKILL);
    killed = now_s();
    while (!n.peers[1].down)
        if (!node_step(&n))
            node_sleep(&n, 5000);
    print_message("down after %.1f ms: %s\n", (now_s() - killed) * 1e3, n.peers[1].text);
    assert_true(now_s() - killed < 2 * spr_time_factor());
    assert_true(n.peers[1].why == SPR_ERR_RANK_LOST || n.peers[1].why == SPR_ERR_LINK);
    assert_true(n.peers[1].text[0]);
    assert_int_equal(n.peers[1].came_back, n.peers[1].sent);
    assert_int_equal(n.peers[1].link->state, SPR_LINK_DOWN);
    waitpid(pid, NULL, 0);
    node_close(&n);
    munmap(b, sizeof *b);
}

/* ---- Cutting links -------------------------------------------------------------------------- */

static bool moving(const struct node *n) { return n->peers[!n->params.rank].received >= 20; }

static void a_link_is_cut_with_frames_queued(void **state)
{
    struct node *n = open_nodes(*state, 2, UINT32_MAX);
    struct node_peer *p = &n[0].peers[1];
    uint32_t received;

    connect_nodes(n, 2);
    run_nodes(n, 2, moving);
    /* In the middle of a payload, if it comes to that within a second. */
    for (double end = now_s() + 1; !p->into && now_s() < end;) {
        node_step(&n[1]);
        node_step(&n[0]);
    }
    received = p->received;
    node_feed(&n[0]);
    n[0].t->ops->kill(p->link);
    n[0].t->ops->kill(p->link);
    assert_int_equal(p->link->state, SPR_LINK_DOWN);
    /* The memory of the payload that was arriving is the receiver's again. */
    spr_free(p->into);
    p->into = NULL;
    p->up = false; /* no upcall but sent() is allowed now */
    while (p->came_back < p->sent)
        node_step(&n[0]);
    assert_true(p->failed > 0);
    assert_int_equal(p->received, received);
    assert_false(p->down);
    assert_true(n[0].t->ops->idle(n[0].t));
    while (!n[1].peers[0].down) {
        node_step(&n[0]);
        if (!node_step(&n[1]))
            node_sleep(&n[1], 1000);
    }
    print_message("the peer saw: %s\n", n[1].peers[0].text);
    /* An end of file would be proof of death. */
    assert_int_equal(n[1].peers[0].why, SPR_ERR_LINK);
    close_nodes(n, 2);
}

/* Wherever it happens: when frames are unsent, the peer must not see an end of file between two
 * others, and take this rank for dead. */
static void a_cut_link_is_no_death(void **state)
{
    struct spr_rng rng = {test_seed(), 0};

    for (int trial = 0; trial < 40; trial++) {
        struct node *n = open_nodes(*state, 2, UINT32_MAX);
        struct node_peer *p = &n[0].peers[1];

        connect_nodes(n, 2);
        run_nodes(n, 2, moving);
        for (uint64_t steps = spr_rng_below(&rng, 40); steps > 0; steps--)
            node_step(&n[spr_rng_below(&rng, 2)]);
        node_feed(&n[0]);
        n[0].t->ops->kill(p->link);
        spr_free(p->into);
        p->into = NULL;
        p->up = false;
        while (p->came_back < p->sent)
            node_step(&n[0]);
        while (!n[1].peers[0].down) {
            node_step(&n[0]);
            if (!node_step(&n[1]))
                node_sleep(&n[1], 1000);
        }
        if (p->failed > 0 && n[1].peers[0].why != SPR_ERR_LINK)
            fail_msg("trial %d: %s", trial, n[1].peers[0].text);
        close_nodes(n, 2);
    }
}

/* Descriptors of this process that are one end of a TCP connection. */
static int connections(int fds[64])
{
    int n = 0;

    for (int fd = 3; fd < 256 && n < 64; fd++) {
        struct sockaddr_in to;
        socklen_t length = sizeof to;
        if (!getpeername(fd, (struct sockaddr *)&to, &length) && to.sin_family == AF_INET)
            fds[n++] = fd;
    }
    return n;
}

/* As when something between the two closes one of their connections: frames are missing, so the
 * link is over at both ends, and nobody has died. */
static void a_connection_that_breaks_takes_the_others_with_it(void **state)
{
    struct spr_rng rng = {test_seed(), 0};

    for (int trial = 0; trial < 20; trial++) {
        struct node *n = open_nodes(*state, 2, UINT32_MAX);
        int fds[64], count;

        /* Who only receives has nothing unsent, whose loss would show. */
        if (trial % 2)
            n[0].frames = 20;
        connect_nodes(n, 2);
        run_nodes(n, 2, moving);
        for (uint64_t steps = spr_rng_below(&rng, 40); steps > 0; steps--)
            node_step(&n[spr_rng_below(&rng, 2)]);
        count = connections(fds);
        assert_true(count >= 4);
        shutdown(fds[spr_rng_below(&rng, (uint64_t)count)], SHUT_RDWR);
        while (!n[0].peers[1].down || !n[1].peers[0].down) {
            int steps = node_step(&n[0]) + node_step(&n[1]);
            if (!steps)
                node_sleep(&n[spr_rng_below(&rng, 2)], 10);
        }
        for (int i = 0; i < 2; i++) {
            const struct node_peer *p = &n[i].peers[!i];
            assert_int_equal(p->came_back, p->sent);
            if (p->why != SPR_ERR_LINK)
                fail_msg("trial %d: rank %d saw: %s", trial, i, p->text);
        }
        close_nodes(n, 2);
    }
}

/* Also on connections whose turn it was not when the first of them ended. */
static void what_was_sent_before_the_end_arrives(void **state)
{
    const uint32_t frames = 12;

    for (int trial = 0; trial < 20; trial++) {
        struct node *n = open_nodes(*state, 2, frames);

        n[1].frames = 0;
        connect_nodes(n, 2);
        for (int i = 0; n[0].peers[1].came_back < frames || !n[0].t->ops->idle(n[0].t); i++) {
            node_step(&n[0]);
            if (i % 8 == 7)
                node_step(&n[1]);
        }
        node_close(&n[0]);
        while (!n[1].peers[0].down)
            if (!node_step(&n[1]))
                node_sleep(&n[1], 1000);
        assert_int_equal(n[1].peers[0].received, frames);
        assert_int_equal(n[1].peers[0].why, SPR_ERR_RANK_LOST);
        close_nodes(n, 2);
    }
}

static void kill_from_upcall(struct node_peer *p)
{
    if (p->received == 10) {
        p->node->t->ops->kill(p->link);
        p->up = false;
    }
}

static bool second_is_down(const struct node *n)
{
    return n->params.rank == 0 ? n->peers[1].received == 10 && n->t->ops->idle(n->t)
                               : n->peers[0].down;
}

static void a_link_is_cut_inside_an_upcall(void **state)
{
    struct node *n = open_nodes(*state, 2, UINT32_MAX);

    connect_nodes(n, 2);
    n[0].on_payload = kill_from_upcall;
    run_nodes(n, 2, second_is_down);
    assert_false(n[0].peers[1].down);
    close_nodes(n, 2);
}

static void a_transport_is_closed_while_frames_fly(void **state)
{
    struct node *n = open_nodes(*state, 5, UINT32_MAX);

    connect_nodes(n, 5);
    for (int i = 0; i < 300; i++)
        for (int r = 0; r < 5; r++)
            node_step(&n[r]);
    close_nodes(n, 5);
}

static void *step_for_a_while(void *arg)
{
    struct node *n = arg;

    for (int i = 0; i < 100; i++) {
        node_step(&n[0]);
        node_step(&n[1]);
    }
    return NULL;
}

/* The library's thread has ended when a communicator is destroyed. */
static void another_thread_closes(void **state)
{
    struct node *n = open_nodes(*state, 2, UINT32_MAX);
    double begin;
    pthread_t thread;

    connect_nodes(n, 2);
    assert_int_equal(pthread_create(&thread, NULL, step_for_a_while, n), 0);
    pthread_join(thread, NULL);
    begin = now_s();
    close_nodes(n, 2);
    assert_true(now_s() - begin < 0.9 * spr_time_factor());
}

/* With its thread the operations end that it had submitted. */
static void another_thread_carries_on(void **state)
{
    struct node *n = open_nodes(*state, 2, 200);
    pthread_t thread;

    connect_nodes(n, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, step_for_a_while, n), 0);
        pthread_join(thread, NULL);
    }
    run_nodes(n, 2, node_finished);
    close_nodes(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(two_in_one_process_exchange_frames),
        ON(two_in_one_process_exchange_frames, epoll6),
        ON_ALL(five_in_one_process_exchange_frames),
        ON_ALL(a_socket_of_one_host_holds_little),
        ON_ALL(two_processes_exchange_frames),
        ON_ALL(four_processes_exchange_frames),
        ON(four_processes_exchange_frames, epoll6),
        ON_ALL(a_killed_peer_is_noticed_at_once),
        ON_ALL(a_link_is_cut_with_frames_queued),
        ON_ALL(a_cut_link_is_no_death),
        ON_ALL(a_link_is_cut_inside_an_upcall),
        ON_ALL(a_transport_is_closed_while_frames_fly),
        ON_ALL(another_thread_closes),
        ON_LANES(two_in_one_process_exchange_frames),
        ON_LANES(five_in_one_process_exchange_frames),
        ON_LANES(two_processes_exchange_frames),
        ON_LANES(four_processes_exchange_frames),
        ON_LANES(a_killed_peer_is_noticed_at_once),
        ON_LANES(a_link_is_cut_with_frames_queued),
        ON_LANES(a_cut_link_is_no_death),
        ON_LANES(a_link_is_cut_inside_an_upcall),
        ON_LANES(a_connection_that_breaks_takes_the_others_with_it),
        ON_LANES(what_was_sent_before_the_end_arrives),
        ON(what_was_sent_before_the_end_arrives, epoll4),
        ON_LANES(a_transport_is_closed_while_frames_fly),
        ON_LANES(another_thread_closes),
        ON(five_in_one_process_exchange_frames, one_lane),
        ON(four_processes_exchange_frames, one_lane),
#ifdef HAVE_URING
        ON(five_in_one_process_exchange_frames, mixed_lanes),
        ON(four_processes_exchange_frames, mixed_lanes),
        ON(a_cut_link_is_no_death, mixed_lanes),
        ON(two_in_one_process_exchange_frames, uring6),
        ON(two_in_one_process_exchange_frames, threads),
        ON(two_in_one_process_exchange_frames, mixed),
        ON(five_in_one_process_exchange_frames, mixed),
        ON(four_processes_exchange_frames, uring6),
        ON(four_processes_exchange_frames, threads),
        ON(four_processes_exchange_frames, mixed),
        ON(a_link_is_cut_with_frames_queued, threads),
        ON(a_cut_link_is_no_death, threads),
        ON(a_killed_peer_is_noticed_at_once, threads),
        ON(another_thread_carries_on, threads),
        ON(another_thread_closes, threads),
#endif
    };

    choose_variants();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
