/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Queue pairs that rdma_cm connects, on one device and on two; going back to the cards at any
 * moment; strangers who ask for connections; peers that end or say nothing meanwhile.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/multi/tcp_world.h"
#include "transport/verbs/verbs.h"

#define FRAMES 60
#define STRANGERS 48

static const struct variant one = {
    {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 1, 1, 0};
static const struct variant many = {
    {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 2, 2, 0};

static struct verbs_link *link_of(const struct node *n)
{
    return (struct verbs_link *)n->peers[!n->params.rank].link;
}

/* Node 1 connects to node 0. */
static struct node *open_two(const struct variant *v, uint32_t frames)
{
    struct node *n = open_nodes(v, 2, frames);

    for (int i = 0; i < 2; i++)
        n[i].options.verbs_connect = SPR_CONNECT_CM;
    connect_nodes(n, 2);
    return n;
}

static void until_phase(struct node *n, int which, int phase)
{
    while ((int)link_of(&n[which])->phase < phase) {
        node_step(&n[0]);
        node_step(&n[1]);
    }
}

/* Both make progress until the links of both are down. */
static void run_until_down(struct node *n)
{
    double begin = now_s();

    while (!n[0].peers[1].down || !n[1].peers[0].down) {
        int steps = 0;
        for (int i = 0; i < 2; i++)
            steps += n[i].peers[!i].down ? 0 : node_step(&n[i]);
        if (!steps)
            usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        print_message("%d: %s\n", i, n[i].peers[!i].text);
        assert_int_equal(n[i].peers[!i].came_back, n[i].peers[!i].sent);
    }
    print_message("after %.0f ms\n", (now_s() - begin) * 1e3);
}

/* ---- Ways -------------------------------------------------------------------------------------*/

static void frames_arrive(const struct variant *v, int zero, int first, bool by_cm)
{
    struct node *n = open_nodes(v, 2, FRAMES);

    n[0].options.verbs_connect = zero;
    n[1].options.verbs_connect = first;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    for (int i = 0; i < 2; i++) {
        const struct verbs_link *l = link_of(&n[i]);
        assert_int_equal(l->by_cm, by_cm);
        assert_false(l->fell_back);
        assert_int_equal(n[i].counters.received_frames, FRAMES);
        for (uint32_t k = 0; k < l->lanes; k++) {
            struct ibv_qp_init_attr unused;
            struct ibv_qp_attr a;
            assert_true(l->lane[k].wr_next > 0);
            assert_int_equal(ibv_query_qp(l->lane[k].qp, &a, IBV_QP_TIMEOUT, &unused), 0);
            assert_int_equal(a.timeout, n[i].options.verbs_timeout);
            assert_int_equal(a.retry_cnt, n[i].options.verbs_retry);
            assert_int_equal(a.path_mtu, l->lane[k].rail->device.port.active_mtu);
        }
    }
    close_nodes(n, 2);
}

static void all_queue_pairs_are_connected_by_rdma_cm(void **state)
{
    (void)state;
    frames_arrive(&one, SPR_CONNECT_CM, SPR_CONNECT_CM, true);
    frames_arrive(&many, SPR_CONNECT_CM, SPR_CONNECT_CM, true);
}

static void the_cards_do_unless_both_want_rdma_cm(void **state)
{
    (void)state;
    frames_arrive(&many, SPR_CONNECT_SOCKET, SPR_CONNECT_SOCKET, false);
    frames_arrive(&one, SPR_CONNECT_SOCKET, SPR_CONNECT_CM, false);
    frames_arrive(&one, SPR_CONNECT_CM, SPR_CONNECT_AUTO, false);
}

/* ---- Back to the cards ------------------------------------------------------------------------*/

static void without_a_listener_the_cards_do(void **state)
{
    struct node *n = open_two(&many, FRAMES);

    (void)state;
    until_phase(n, 0, VERBS_CARDS);
    /* The card has its address already. */
    for (uint32_t i = 0; i < verbs_of(n[0].t)->rails; i++) {
        struct verbs_rail *rail = &verbs_of(n[0].t)->rail[i];
        assert_int_equal(rdma_destroy_id(rail->listener), 0);
        rail->listener = NULL;
    }
    run_nodes(n, 2, node_finished);
    assert_true(link_of(&n[0])->fell_back);
    assert_true(link_of(&n[1])->fell_back);
    close_nodes(n, 2);
}

/* One or both lose patience at any moment; frames arrive all the same, once. */
static void it_can_fail_at_any_moment(void **state)
{
    struct spr_rng rng = {.seed = test_seed()};
    int fell_back = 0;

    (void)state;
    for (int round = 0; round < 12; round++) {
        struct node *n = open_two(round % 2 ? &many : &one, FRAMES / 4);
        uint64_t often = round == 0 ? 1 : 2 + spr_rng_below(&rng, 300); /* at once, at first */
        while (!node_finished(&n[0]) || !node_finished(&n[1])) {
            int i = (int)spr_rng_below(&rng, 2);
            struct verbs_link *l = link_of(&n[i]);
            if (l->phase == VERBS_CM && spr_rng_below(&rng, often) == 0)
                verbs_cm_late(verbs_of(n[i].t), l);
            node_step(&n[i]);
        }
        assert_int_equal(link_of(&n[0])->by_cm, link_of(&n[1])->by_cm);
        fell_back += link_of(&n[0])->fell_back;
        close_nodes(n, 2);
    }
    print_message("%d of 12 went back to the cards\n", fell_back);
    assert_true(fell_back > 0);
}

/* ---- Strangers --------------------------------------------------------------------------------*/

struct stranger {
    struct rdma_cm_id *id;
    struct spr_verbs_hello hello;
    bool silent; /* no private data */
    bool over;
};

/* Everything but the nonce can be guessed. */
static void dress(struct stranger *s, int number, const struct verbs_link *l)
{
    s->hello = (struct spr_verbs_hello){
        .magic = SPR_VERBS_MAGIC, .version = SPR_VERBS_VERSION, .lane = 0, .rank = 1};
    memcpy(s->hello.nonce, l->nonce, sizeof l->nonce);
    s->hello.nonce[(unsigned)number % SPR_VERBS_NONCE] ^= 1;
    switch (number % 6) {
    case 0:
        s->silent = true;
        break;
    case 1:
        memset(&s->hello, 0xff, sizeof s->hello);
        break;
    case 2: /* right, but for the rank */
        memcpy(s->hello.nonce, l->nonce, sizeof l->nonce);
        s->hello.rank = number % 12 == 2 ? 0 : 1u << 31;
        break;
    case 3: /* ... the lane */
        memcpy(s->hello.nonce, l->nonce, sizeof l->nonce);
        s->hello.lane = number % 12 == 3 ? 1 : 0xffff;
        break;
    default:
        break;
    }
}

static void stranger_event(const struct rdma_cm_event *e)
{
    struct stranger *s = e->id->context;
    struct rdma_conn_param param = {.qp_num = 0x123456,
                                    .private_data = s->silent ? NULL : &s->hello,
                                    .private_data_len = s->silent ? 0 : sizeof s->hello,
                                    .retry_count = 1};

    switch (e->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        assert_int_equal(rdma_resolve_route(s->id, 10000), 0);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        assert_int_equal(rdma_connect(s->id, &param), 0);
        break;
    default:
        assert_int_equal(e->event, RDMA_CM_EVENT_REJECTED);
        s->over = true;
    }
}

static int take_stranger_events(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *e;
    int over = 0;

    while (rdma_get_cm_event(channel, &e) == 0) {
        struct stranger *s = e->id->context;
        stranger_event(e);
        over += s->over;
        rdma_ack_cm_event(e);
    }
    return over;
}

static void strangers_are_refused_and_hold_nothing_up(void **state)
{
    struct node *n = open_two(&one, UINT32_MAX);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct stranger *s = spr_calloc(STRANGERS, sizeof *s);
    struct sockaddr_storage sa;
    uint32_t before = 0;
    int over = 0;

    (void)state;
    assert_non_null(channel);
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    until_phase(n, 0, VERBS_CARDS);
    (void)spr_tcp_address_to(&verbs_of(n[0].t)->rail[0].cm, &sa);
    for (int i = 0; i < STRANGERS; i++) {
        assert_int_equal(rdma_create_id(channel, &s[i].id, &s[i], RDMA_PS_TCP), 0);
        dress(&s[i], i, link_of(&n[0]));
        assert_int_equal(rdma_resolve_addr(s[i].id, NULL, (struct sockaddr *)&sa, 10000), 0);
    }
    while (over < STRANGERS || !node_all_up(&n[0]) || !node_all_up(&n[1]) ||
           n[0].peers[1].received < before + FRAMES) {
        node_step(&n[0]);
        node_step(&n[1]);
        over += take_stranger_events(channel);
        if (over < STRANGERS)
            before = n[0].peers[1].received;
    }
    assert_true(link_of(&n[0])->by_cm);
    assert_false(n[0].peers[1].down || n[1].peers[0].down);
    for (int i = 0; i < STRANGERS; i++)
        assert_int_equal(rdma_destroy_id(s[i].id), 0);
    rdma_destroy_event_channel(channel);
    spr_free(s);
    close_nodes(n, 2);
}

/* ---- The end ----------------------------------------------------------------------------------*/

static void an_answer_is_not_waited_for_too_long(void **state)
{
    struct node *n = open_two(&one, FRAMES);
    double begin;

    (void)state;
    n[1].options.init_timeout_s = 0.3;
    until_phase(n, 1, VERBS_CM);
    begin = now_s();
    while (!link_of(&n[1])->fell_back)
        if (!node_step(&n[1]))
            node_sleep(&n[1], 1000 * LIMIT_S);
    print_message("after %.2f s\n", now_s() - begin);
    assert_true(now_s() - begin < 0.3 * spr_time_factor());
    run_nodes(n, 2, node_finished);
    assert_true(link_of(&n[0])->fell_back);
    close_nodes(n, 2);
}

static void a_peer_that_ends_meanwhile_is_noticed(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct node *n = open_two(&many, 10);
        until_phase(n, who, VERBS_CM);
        n[who].t->ops->kill(n[who].peers[!who].link);
        n[who].peers[!who].down = true;
        run_until_down(n);
        assert_int_equal(n[!who].peers[who].why, SPR_ERR_LINK);
        assert_false(n[!who].peers[who].up);
        close_nodes(n, 2);
    }
}

static void a_peer_that_closes_is_lost_as_on_any_link(void **state)
{
    struct node *n = open_two(&one, FRAMES);

    (void)state;
    run_nodes(n, 2, node_finished);
    node_close(&n[0]);
    while (!n[1].peers[0].down)
        if (!node_step(&n[1]))
            node_sleep(&n[1], 1000);
    assert_int_equal(n[1].peers[0].why, SPR_ERR_RANK_LOST);
    assert_non_null(strstr(n[1].peers[0].text, "closed by the peer"));
    node_close(&n[1]);
    spr_free(n);
}

static void a_connection_that_is_ended_takes_the_link_with_it(void **state)
{
    struct node *n = open_two(&one, FRAMES);
    struct verbs_link *l = link_of(&n[1]);

    (void)state;
    run_nodes(n, 2, node_finished);
    assert_int_equal(rdma_disconnect(link_of(&n[0])->lane[0].id), 0);
    while (!l->cm_due_ns) {
        node_step(&n[0]);
        node_step(&n[1]);
    }
    /* It waits for the socket to explain that; not as long as usual. */
    verbs_cm_allow(verbs_of(n[1].t), l, 0.001);
    run_until_down(n);
    assert_non_null(strstr(n[1].peers[0].text, "ended the connection"));
    close_nodes(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_queue_pairs_are_connected_by_rdma_cm, limit_time),
        cmocka_unit_test_setup(the_cards_do_unless_both_want_rdma_cm, limit_time),
        cmocka_unit_test_setup(without_a_listener_the_cards_do, limit_time),
        cmocka_unit_test_setup(it_can_fail_at_any_moment, limit_time),
        cmocka_unit_test_setup(strangers_are_refused_and_hold_nothing_up, limit_time),
        cmocka_unit_test_setup(an_answer_is_not_waited_for_too_long, limit_time),
        cmocka_unit_test_setup(a_peer_that_ends_meanwhile_is_noticed, limit_time),
        cmocka_unit_test_setup(a_peer_that_closes_is_lost_as_on_any_link, limit_time),
        cmocka_unit_test_setup(a_connection_that_is_ended_takes_the_link_with_it, limit_time),
    };

    if (!verbs_kernel_has_devices())
        return 77;
    if (access("/dev/infiniband/rdma_cm", R_OK | W_OK)) {
        perror("/dev/infiniband/rdma_cm (modprobe rdma_ucm)");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
