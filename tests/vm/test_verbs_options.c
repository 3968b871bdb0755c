/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What options of verbs ask the device for. Of a service level and a partition soft-RoCE shows
 * nothing afterwards, and no page comes on demand; so what is asked for is seen on its way, by
 * functions of libibverbs that are this program's.
 */
#include <dlfcn.h>
#include <string.h>

#include "tests/multi/tcp_world.h"
#include "transport/verbs/verbs.h"

#define FRAMES 60

static struct ibv_qp_attr init, path; /* of the last queue pair */

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int (*real)(struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask);

    if (mask & IBV_QP_PKEY_INDEX)
        init = *attr;
    if (mask & IBV_QP_AV)
        path = *attr;
    *(void **)&real = dlsym(RTLD_NEXT, "ibv_modify_qp");
    return real(qp, attr, mask);
}

static struct verbs_link *link_of(const struct node *n)
{
    return (struct verbs_link *)n->peers[!n->params.rank].link;
}

/* ---- Queue pairs ----------------------------------------------------------------------------- */

static void the_lower_mtu_and_what_is_asked_for_reach_the_queue_pair(int connect)
{
    struct node *n = open_nodes(&verbs, 2, FRAMES);

    for (int i = 0; i < 2; i++) {
        n[i].options.verbs_connect = connect;
        n[i].options.verbs_traffic_class = 104;
        n[i].options.verbs_timeout = 16;
        n[i].options.verbs_retry = 3;
    }
    n[1].options.verbs_mtu = IBV_MTU_1024;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr unused;
        struct ibv_qp_attr a;
        int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
        assert_int_equal(ibv_query_qp(link_of(&n[i])->lane[0].qp, &a, mask, &unused), 0);
        assert_int_equal(a.ah_attr.grh.traffic_class, 104);
        assert_int_equal(a.path_mtu, IBV_MTU_1024);
        assert_int_equal(a.timeout, 16);
        assert_int_equal(a.retry_cnt, 3);
        assert_int_equal(link_of(&n[i])->by_cm, connect == SPR_CONNECT_CM);
    }
    close_nodes(n, 2);
}

static void a_queue_pair_is_as_asked_for_by_cards(void **state)
{
    (void)state;
    the_lower_mtu_and_what_is_asked_for_reach_the_queue_pair(SPR_CONNECT_SOCKET);
}

static void a_queue_pair_is_as_asked_for_by_rdma_cm(void **state)
{
    (void)state;
    the_lower_mtu_and_what_is_asked_for_reach_the_queue_pair(SPR_CONNECT_CM);
}

static void the_service_level_is_asked_for(void **state)
{
    (void)state;
    for (int sl = 0; sl < 16; sl += 5) {
        struct node *n = open_nodes(&verbs, 2, FRAMES);
        n[0].options.verbs_sl = n[1].options.verbs_sl = sl;
        path.ah_attr.sl = 99;
        connect_nodes(n, 2);
        run_nodes(n, 2, node_finished);
        assert_int_equal(path.ah_attr.sl, sl);
        assert_int_equal(init.pkey_index, 0);
        close_nodes(n, 2);
    }
}

static void the_partition_is_asked_for(void **state)
{
    struct node *n = open_nodes(&verbs, 2, FRAMES);

    (void)state;
    n[0].options.verbs_pkey = n[1].options.verbs_pkey = 1;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished); /* soft-RoCE takes any index, and has one partition */
    assert_int_equal(init.pkey_index, 1);
    close_nodes(n, 2);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Each rank has as many as it says, and the other one uses no more. */
static void slots_are_as_many_as_asked_for(void **state)
{
    size_t bytes[2];

    (void)state;
    for (int round = 0; round < 2; round++) {
        struct node *n = open_nodes(&verbs, 2, FRAMES);
        n[0].options.verbs_slots = round ? 7 : 1;
        n[1].options.verbs_slots = 1;
        connect_nodes(n, 2);
        run_nodes(n, 2, node_finished);
        assert_int_equal(link_of(&n[0])->own.large, n[0].options.verbs_slots);
        assert_int_equal(link_of(&n[1])->remote.large, n[0].options.verbs_slots);
        assert_int_equal(link_of(&n[0])->remote.large, 1);
        assert_int_equal(n[0].counters.received_frames, FRAMES);
        assert_int_equal(n[1].counters.received_frames, FRAMES);
        bytes[round] = link_of(&n[0])->memory_bytes;
        assert_true(bytes[round] > (size_t)n[0].options.verbs_slots * SPR_FRAME_MAX_PAYLOAD);
        close_nodes(n, 2);
    }
    assert_in_range(bytes[1] - bytes[0], 6 * SPR_FRAME_MAX_PAYLOAD, 6 * (272 << 10) + 8192);
}

/* The device pages on demand, and what becomes of such a registration. */
static bool pages, refuses;
static int paged, pinned; /* registrations of either kind that were asked for */
static int (*query_of_device)(struct ibv_context *context,
                              const struct ibv_query_device_ex_input *input,
                              struct ibv_device_attr_ex *attr, size_t bytes);

static int query_with_paging(struct ibv_context *context,
                             const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attr, size_t bytes)
{
    int failed = query_of_device(context, input, attr, bytes);

    if (pages) {
        attr->odp_caps.general_caps |= IBV_ODP_SUPPORT;
        attr->odp_caps.per_transport_caps.rc_odp_caps |= IBV_ODP_SUPPORT_WRITE;
    }
    return failed;
}

/* The kernel refuses what is on demand here. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova,
                                unsigned access)
{
    struct ibv_mr *(*real)(struct ibv_pd * pd, void *memory, size_t length, uint64_t iova,
                           unsigned access);

    if (access & IBV_ACCESS_ON_DEMAND)
        paged++;
    else
        pinned++;
    *(void **)&real = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
    return real(pd, memory, length, iova,
                refuses ? access : access & ~(unsigned)IBV_ACCESS_ON_DEMAND);
}

/* Two buckets: how often they are asked for on demand, and pinned. */
static void register_two(int want_paged, int want_pinned)
{
    static char bucket[2][1 << 20];
    struct node *n = open_nodes(&verbs, 2, FRAMES);
    struct verbs_context *v = verbs_get_ctx(verbs_of(n[0].t)->rail[0].device.context);

    query_of_device = v->query_device_ex;
    v->query_device_ex = query_with_paging;
    n[0].options.verbs_odp = true;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    paged = pinned = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(verbs_mem_register(n[0].t, bucket[i], sizeof bucket[i], true), SPR_OK);
        assert_non_null(verbs_region_find(verbs_of(n[0].t), bucket[i] + 5, sizeof bucket[i] - 5));
    }
    assert_int_equal(paged, want_paged);
    assert_int_equal(pinned, want_pinned);
    v->query_device_ex = query_of_device;
    close_nodes(n, 2);
}

static void buckets_are_paged_on_demand_where_the_device_can(void **state)
{
    (void)state;
    pages = refuses = false;
    register_two(0, 2); /* soft-RoCE cannot */
    pages = true;
    register_two(2, 0);
    refuses = true;
    register_two(1, 2); /* once is enough */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_queue_pair_is_as_asked_for_by_cards, limit_time),
        cmocka_unit_test_setup(a_queue_pair_is_as_asked_for_by_rdma_cm, limit_time),
        cmocka_unit_test_setup(the_service_level_is_asked_for, limit_time),
        cmocka_unit_test_setup(the_partition_is_asked_for, limit_time),
        cmocka_unit_test_setup(slots_are_as_many_as_asked_for, limit_time),
        cmocka_unit_test_setup(buckets_are_paged_on_demand_where_the_device_can, limit_time),
    };

    if (!verbs_kernel_has_devices())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
