/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How a verbs link ends: each kind of failed completion, events of the device, and messages that
 * break the rules. All frames come back, the text says what was seen, and the other end is told.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tests/multi/tcp_world.h"
#include "transport/verbs/verbs.h"

static struct verbs_link *link_of(struct node *n, int peer)
{
    return (struct verbs_link *)n->peers[peer].link;
}

/* Nothing moves, and there are slots of both sizes to write to. */
static bool at_rest(const struct node *n)
{
    const struct verbs_link *l = (struct verbs_link *)n->peers[!n->params.rank].link;
    uint32_t busy = l->used ^ l->seen_back, small = (1u << l->remote.small) - 1;
    uint32_t large = ((1u << l->remote.large) - 1) << l->remote.small;

    return node_finished(n) && n->borrowed_count == 0 && (small & ~busy) && (large & ~busy);
}

static struct node *two_that_talk(int timeout)
{
    struct node *n = open_nodes(&verbs, 2, 10);

    for (int i = 0; i < 2; i++) {
        n[i].options.verbs_timeout = timeout;
        n[i].options.verbs_retry = 2;
    }
    connect_nodes(n, 2);
    run_nodes(n, 2, at_rest);
    /* Node 0 has more to say, which does not depend on what the other one gives back. */
    n[0].frames = UINT32_MAX;
    return n;
}

/* Only this one makes progress, until its link is down. */
static void run_until_down(struct node *n)
{
    struct node_peer *p = &n->peers[!n->params.rank];
    double begin = now_s();

    while (!p->down)
        if (!node_step(n))
            node_sleep(n, 1000);
    print_message("down after %.0f ms: %s\n", (now_s() - begin) * 1e3, p->text);
    assert_int_equal(p->came_back, p->sent);
    assert_int_equal(p->link->state, SPR_LINK_DOWN);
    assert_true(n->t->ops->idle(n->t));
}

static void a_peer_that_does_not_answer_is_given_up(void **state)
{
    struct node *n = two_that_talk(12);

    (void)state;
    verbs_qp_stop(&link_of(&n[1], 0)->lane[0]); /* its host is gone, for all that can be seen */
    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_LINK);
    assert_non_null(strstr(n[0].peers[1].text, "retry"));
    assert_non_null(strstr(n[0].peers[1].text, "does not answer"));
    assert_non_null(strstr(n[0].peers[1].text, "rxe0:1 (RoCE v2, GID"));
    run_until_down(&n[1]);
    close_nodes(n, 2);
}

static void memory_that_was_taken_back_is_not_written(void **state)
{
    struct node *n = two_that_talk(17);
    struct verbs_link *l = link_of(&n[1], 0);

    (void)state;
    assert_int_equal(ibv_dereg_mr(l->slots_mr[0]), 0);
    l->slots_mr[0] = NULL;
    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_LINK);
    assert_non_null(strstr(n[0].peers[1].text, "remote access error"));
    run_until_down(&n[1]);
    close_nodes(n, 2);
}

static void a_queue_pair_that_failed_here_ends_the_link(void **state)
{
    struct node *n = two_that_talk(17);

    (void)state;
    verbs_qp_stop(&link_of(&n[0], 1)->lane[0]);
    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_LINK);
    assert_non_null(strstr(n[0].peers[1].text, "Flushed"));
    run_until_down(&n[1]);
    assert_int_equal(n[1].peers[0].why, SPR_ERR_LINK);
    close_nodes(n, 2);
}

static void memory_that_is_deregistered_while_it_is_sent_ends_the_link(void **state)
{
    struct node *n = two_that_talk(17);
    struct verbs_link *l = link_of(&n[0], 1);

    (void)state;
    assert_int_equal(ibv_dereg_mr(l->cells_mr[0]), 0);
    /* A registration of other memory in its place. */
    l->cells_mr[0] = verbs_of_link(l)->staging.mr[0];
    run_until_down(&n[0]);
    l->cells_mr[0] = NULL;
    assert_non_null(strstr(n[0].peers[1].text, "protection"));
    run_until_down(&n[1]);
    close_nodes(n, 2);
}

/* ---- Completions that rxe does not fail with ---- */

static enum ibv_wc_status injected;
static uint64_t injected_kind; /* VERBS_RECEIVE_ID, or 0: of what was sent */
static int (*poll_of_device)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* The first completion of that kind is one that failed. */
static int poll_with_fault(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    int taken = poll_of_device(cq, n, wc);

    for (int i = 0; i < taken && injected; i++)
        if ((wc[i].wr_id & VERBS_RECEIVE_ID) == injected_kind) {
            wc[i].status = injected;
            injected = IBV_WC_SUCCESS;
        }
    return taken;
}

/* Node `which` takes the completion; node 0 is the one that sends. */
static void fail_a_completion(int which, enum ibv_wc_status status, const char *text)
{
    struct node *n = two_that_talk(17);
    struct ibv_context *context = verbs_of(n[which].t)->rail[0].device.context;
    const char *found;

    poll_of_device = context->ops.poll_cq;
    context->ops.poll_cq = poll_with_fault;
    injected = status;
    injected_kind = which ? VERBS_RECEIVE_ID : 0;
    while (!n[which].peers[!which].down) {
        (void)node_step(&n[which]);
        if (injected)
            (void)node_step(&n[!which]);
    }
    context->ops.poll_cq = poll_of_device;
    print_message("%s\n", n[which].peers[!which].text);
    assert_int_equal(n[which].peers[!which].why, SPR_ERR_LINK);
    assert_int_equal(n[which].peers[!which].came_back, n[which].peers[!which].sent);
    found = strstr(n[which].peers[!which].text, text);
    assert_non_null(found);
    assert_non_null(strstr(found, ibv_wc_status_str(status)));
    run_until_down(&n[!which]);
    close_nodes(n, 2);
}

static void a_completion_that_fails_for_any_reason_ends_the_link(void **state)
{
    (void)state;
    for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; status++) {
        fail_a_completion(0, (enum ibv_wc_status)status, "RDMA write: ");
        fail_a_completion(1, (enum ibv_wc_status)status, "receive: ");
    }
}

/* ---- Events of the device ---- */

/* As the kernel would tell it, in place of the kernel, which has nothing to tell any more. Returns
 * the other end of the pipe. */
static int raise_event(struct node *n, enum ibv_event_type type)
{
    struct verbs_rail *rail = &verbs_of(n->t)->rail[0];
    struct ibv_cq *cq = rail->cqs[0]->cq;
    struct ibv_qp *qp = link_of(n, !n->params.rank)->lane[0].qp;
    struct ib_uverbs_async_event_desc event = {.event_type = (uint32_t)type, .element = 1};
    struct epoll_event watched = {.events = EPOLLIN, .data = {.ptr = &rail->device.context}};
    int ends[2], fd = rail->device.context->async_fd;

    /* Whoever destroys these waits until as many events are acknowledged as the kernel counts. */
    if (type == IBV_EVENT_CQ_ERR) {
        event.element = (uintptr_t)cq;
        cq->async_events_completed--;
    } else if (type <= IBV_EVENT_QP_ACCESS_ERR) {
        event.element = (uintptr_t)qp;
        qp->events_completed--;
    }
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(ends[1], &event, sizeof event), sizeof event);
    assert_int_equal(dup2(ends[0], fd), fd);
    assert_int_equal(epoll_ctl(verbs_of(n->t)->epoll_fd, EPOLL_CTL_ADD, fd, &watched), 0);
    close(ends[0]);
    return ends[1];
}

static void an_event_ends_the_link(enum ibv_event_type type, const char *text)
{
    struct node *n = two_that_talk(17);
    int pipe_end = raise_event(&n[0], type);

    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_LINK);
    assert_non_null(strstr(n[0].peers[1].text, text));
    run_until_down(&n[1]);
    close_nodes(n, 2);
    close(pipe_end);
}

static bool has_seen_the_event(const struct node *n)
{
    struct pollfd p = {.fd = verbs_of(n->t)->rail[0].device.context->async_fd, .events = POLLIN};

    return n->params.rank == 1 || poll(&p, 1, 0) == 0;
}

static void events_end_the_links_that_they_concern(void **state)
{
    struct node *n;
    int pipe_end;

    (void)state;
    an_event_ends_the_link(IBV_EVENT_CQ_ERR, "rxe0: a completion queue overflowed");
    an_event_ends_the_link(IBV_EVENT_DEVICE_FATAL, "rxe0: the device failed");
    an_event_ends_the_link(IBV_EVENT_QP_FATAL, "rxe0: the queue pair failed");
    an_event_ends_the_link(IBV_EVENT_QP_REQ_ERR, "rxe0: the queue pair failed");
    an_event_ends_the_link(IBV_EVENT_QP_ACCESS_ERR, "rxe0: the queue pair failed");

    n = two_that_talk(17);
    pipe_end = raise_event(&n[0], IBV_EVENT_PORT_ERR); /* it may come back */
    run_nodes(n, 2, has_seen_the_event);
    n[0].frames = n[1].frames = (uint32_t)n[0].peers[1].sent;
    run_nodes(n, 2, at_rest);
    close_nodes(n, 2);
    close(pipe_end);
}

/* ---- Messages ---- */

/* A message of node 1 that says `word`, with the bytes that are in its first cell. */
static void write_anything(struct node *n, uint32_t word, uint32_t bytes, uint64_t offset)
{
    struct verbs_link *l = link_of(n, 0);
    struct ibv_sge sge = {(uintptr_t)l->lane[0].cells, bytes, l->cells_mr[0]->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = 0, /* of peer 0 */
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                   .imm_data = htonl(word)};

    wr.wr.rdma.rkey = l->theirs.end[0].rkey;
    wr.wr.rdma.remote_addr = l->remote.address + offset;
    assert_int_equal(ibv_post_send(l->lane[0].qp, &wr, &bad), 0);
}

static void rules_are_kept(uint32_t word, uint32_t bytes, const char *text)
{
    struct node *n = open_nodes(&verbs, 2, 0);

    connect_nodes(n, 2);
    run_nodes(n, 2, node_all_up);
    write_anything(&n[1], word, bytes, SPR_VERBS_LEAD);
    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_PROTO);
    assert_non_null(strstr(n[0].peers[1].text, text));
    run_until_down(&n[1]);
    close_nodes(n, 2);
}

static void messages_that_break_the_rules_end_the_link(void **state)
{
    (void)state;
    rules_are_kept(30, 80, "a slot that it does not have");
    rules_are_kept(12345, 80, "a slot that it does not have");
    rules_are_kept(0, 16, "does not fit its slot");
    rules_are_kept(0, SPR_VERBS_HEAD - 1, "does not fit its slot");
    rules_are_kept(0, 128, "a frame breaks the protocol");
    rules_are_kept(VERBS_WINDOW << SPR_VERBS_NUMBER_BIT, 80, "a number that it cannot have");
    rules_are_kept(0xffu << SPR_VERBS_NUMBER_BIT, 80, "a number that it cannot have");
    rules_are_kept(1u << 16, 80, "a number that it cannot have");
    rules_are_kept(SPR_VERBS_CREDIT | 4, 0, "gave back a slot");
}

/* A frame of the right sequence that says that so many bytes follow it, at this byte of the cell.
 */
static void put_frame(struct node *n, uint32_t at, uint32_t sequence, uint32_t bytes)
{
    struct spr_frame f = {.type = SPR_FRAME_DATA, .sequence = sequence, .bytes = bytes};

    spr_frame_seal(&f);
    memcpy(link_of(n, 0)->lane[0].cells + at, &f, sizeof f);
}

/* A message of so many bytes: a frame, and perhaps a second one, which says that it has `more`. */
static void second_frame_is_refused(uint32_t bytes, uint32_t more)
{
    struct node *n = open_nodes(&verbs, 2, 0);

    while (node_frame_bytes(n[0].seed, 1, 0, 0) != 0 || node_frame_bytes(n[0].seed, 1, 0, 1) != 3)
        n[0].seed++;
    n[1].seed = n[0].seed;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_all_up);
    memset(link_of(&n[1], 0)->lane[0].cells, 0, VERBS_CELL_BYTES);
    put_frame(&n[1], SPR_VERBS_PREFIX, 0, 0);
    put_frame(&n[1], SPR_VERBS_HEAD, 1, more);
    write_anything(&n[1], 0, bytes, SPR_VERBS_LEAD);
    run_until_down(&n[0]);
    assert_int_equal(n[0].peers[1].received, 1);
    assert_int_equal(n[0].peers[1].why, SPR_ERR_PROTO);
    assert_non_null(strstr(n[0].peers[1].text, "not what was announced"));
    run_until_down(&n[1]);
    close_nodes(n, 2);
}

static void no_frame_reaches_beyond_its_message(void **state)
{
    const uint32_t second = SPR_VERBS_HEAD, data = second + SPR_FRAME_BYTES;

    (void)state;
    second_frame_is_refused(second + 1, 0);
    second_frame_is_refused(data - 1, 0);
    second_frame_is_refused(data, 3);
    second_frame_is_refused(data + 2, 3);
    second_frame_is_refused(data + 3, UINT32_MAX);
}

static void what_is_beside_the_slots_cannot_be_written(void **state)
{
    struct node *n = open_nodes(&verbs, 2, 0);

    (void)state;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_all_up);
    write_anything(&n[1], 0, 80, (uint64_t)link_of(&n[0], 1)->memory_bytes - 64);
    run_until_down(&n[1]);
    assert_non_null(strstr(n[1].peers[0].text, "remote access error"));
    run_until_down(&n[0]);
    close_nodes(n, 2);
}

static void a_link_ends_before_it_is_up(void **state)
{
    struct node *n = open_nodes(&verbs, 2, 10);

    (void)state;
    connect_nodes(n, 2);
    while (!link_of(&n[1], 0)->phase) {
        node_step(&n[0]);
        node_step(&n[1]);
    }
    n[1].t->ops->kill(n[1].peers[0].link);
    run_until_down(&n[0]);
    assert_false(n[0].peers[1].up);
    close_nodes(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_does_not_answer_is_given_up),
        cmocka_unit_test(memory_that_was_taken_back_is_not_written),
        cmocka_unit_test(a_queue_pair_that_failed_here_ends_the_link),
        cmocka_unit_test(memory_that_is_deregistered_while_it_is_sent_ends_the_link),
        cmocka_unit_test(a_completion_that_fails_for_any_reason_ends_the_link),
        cmocka_unit_test(events_end_the_links_that_they_concern),
        cmocka_unit_test(messages_that_break_the_rules_end_the_link),
        cmocka_unit_test(no_frame_reaches_beyond_its_message),
        cmocka_unit_test(what_is_beside_the_slots_cannot_be_written),
        cmocka_unit_test(a_link_ends_before_it_is_up),
    };

    alarm((unsigned)(LIMIT_S * spr_time_factor()));
    if (!verbs_kernel_has_devices())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
