/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Links of several queue pairs, on one device and on two: frames come in order whichever way they
 * took; and the chunks of a collective go straight into the receiver's bucket. Needs two devices.
 */
#include <string.h>

#include "collectives/collective.h"
#include "tests/multi/job.h"
#include "tests/multi/tcp_world.h"
#include "transport/verbs/verbs.h"

#define FRAMES 120
#define ELEMENTS ((size_t)384 << 10) /* 1.5 MiB */
#define SECONDS 60

static struct verbs_link *link_of(struct node *n)
{
    return (struct verbs_link *)n->peers[!n->params.rank].link;
}

/* All lanes had something to do. */
static void frames_arrive(const struct variant *v, int other_qps, uint32_t lanes)
{
    struct node *n = open_nodes(v, 2, FRAMES);

    n[1].options.verbs_qps = other_qps;
    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    for (int i = 0; i < 2; i++) {
        const struct verbs_link *l = link_of(&n[i]);
        assert_int_equal(l->lanes, lanes);
        for (uint32_t k = 0; k < lanes; k++)
            assert_true(l->lane[k].wr_next > 0);
        assert_int_equal(n[i].counters.received_frames, FRAMES);
        /* Small ones that followed one another have shared a message. */
        assert_true(l->tx_number < FRAMES);
        print_message("%d frames in %u messages\n", FRAMES, l->tx_number);
    }
    close_nodes(n, 2);
}

static void queue_pairs_share_the_work(void **state)
{
    static const struct variant three = {
        {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 1, 3, 0};

    (void)state;
    frames_arrive(&three, 3, 3);
}

static void as_many_are_connected_as_both_have(void **state)
{
    static const struct variant four = {
        {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 1, 4, 0};

    (void)state;
    frames_arrive(&four, 2, 2);
}

static void devices_share_the_work(void **state)
{
    static const struct variant rails = {
        {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 2, 2, 0};

    (void)state;
    frames_arrive(&rails, 2, 4);
}

static void a_device_that_fails_ends_the_link(void **state)
{
    static const struct variant rails = {
        {&spr_transport_verbs, &spr_transport_verbs}, "10.9.0.1", true, 2, 1, 0};
    struct node *n;

    (void)state;
    n = open_nodes(&rails, 2, UINT32_MAX);
    connect_nodes(n, 2);
    run_nodes(n, 2, node_all_up);
    assert_int_equal(link_of(&n[0])->lanes, 2);
    verbs_qp_stop(&link_of(&n[0])->lane[1]);
    while (!n[0].peers[1].down || !n[1].peers[0].down)
        for (int i = 0; i < 2; i++)
            if (!n[i].peers[!i].down)
                node_step(&n[i]);
    assert_non_null(strstr(n[0].peers[1].text, "rxe1:1"));
    for (int i = 0; i < 2; i++)
        assert_int_equal(n[i].peers[!i].came_back, n[i].peers[!i].sent);
    close_nodes(n, 2);
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static void sum_once(spr_comm *comm, float *bucket, int size)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        bucket[i] = (float)(i % 1000);
    RANK_CHECK(spr_allreduce(comm, bucket, bucket, ELEMENTS, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    for (size_t i = 0; i < ELEMENTS; i++)
        RANK_CHECK(bucket[i] == (float)(i % 1000) * (float)size);
}

static void run_sums(struct job *job, int rank, spr_comm *comm)
{
    spr_stats before = {.struct_size = sizeof before}, after = before;
    /* Its own segment goes to everybody, in four chunks of whole cache lines, and what is left. */
    size_t peers = (size_t)job->size - 1;
    size_t segment = spr_align_up(spr_div_ceil(ELEMENTS, (size_t)job->size), 64);
    size_t chunk = spr_min_size(segment / 4, 2 * SPR_CHUNK_BYTES / sizeof(float)) & ~(size_t)63;
    size_t own = spr_min_size(segment, ELEMENTS - segment * (size_t)rank);
    uint64_t chunks = spr_div_ceil(own, chunk) * peers, steps = 3;
    void *bucket;

    RANK_CHECK(spr_mem_alloc(comm, ELEMENTS * sizeof(float), &bucket) == SPR_OK);
    for (int i = 0; i < 2; i++)
        sum_once(comm, bucket, job->size);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    RANK_CHECK(spr_comm_stats(comm, &before) == SPR_OK);
    for (uint64_t i = 0; i < steps; i++)
        sum_once(comm, bucket, job->size);
    RANK_CHECK(spr_comm_stats(comm, &after) == SPR_OK);
    if (rank == 0)
        print_message("%d ranks: %llu frames in %llu chains per allreduce\n", job->size,
                      (unsigned long long)((after.sent_frames - before.sent_frames) / steps),
                      (unsigned long long)((after.posted_chains - before.posted_chains) / steps));
    /* A payload and its header are posted together. */
    RANK_CHECK(after.posted_chains - before.posted_chains <=
               after.sent_frames - before.sent_frames);
    RANK_CHECK(after.placed_sends - before.placed_sends == steps * chunks);
    RANK_CHECK(after.copied_sends == before.copied_sends);
    spr_mem_free(comm, bucket);
}

static void chunks_go_straight_into_the_bucket(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        struct job job;
        job_start(&job, size, "verbs", run_sums, NULL);
        job_expect_success(&job, SECONDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(queue_pairs_share_the_work, limit_time),
        cmocka_unit_test_setup(as_many_are_connected_as_both_have, limit_time),
        cmocka_unit_test_setup(devices_share_the_work, limit_time),
        cmocka_unit_test_setup(a_device_that_fails_ends_the_link, limit_time),
        cmocka_unit_test(chunks_go_straight_into_the_bucket),
    };

    if (!verbs_kernel_has_devices())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
