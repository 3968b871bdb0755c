/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every algorithm of the sparse allreduce, over simulated links with jitter: against a naive fp64
 * reference, and where they add in rank order against the bits of a dense allreduce.
 */
#include "tests/sim/sums.h"
#include "transport/frame.h"

/* Which part of the positions a rank has: of some of them hardly any, or none. */
static double density_of(int rank, double density)
{
    return rank % 4 == 3 ? density / 50 : rank == 5 ? 0 : density;
}

static void draw_lists(struct sums *s, double density)
{
    for (int r = 0; r < s->world.ranks; r++)
        for (size_t i = 0; i < s->n; i++) {
            uint32_t h = spr_hash_u32(seed ^ 77 ^ (uint64_t)r << 40 ^ i);
            if ((double)h * 0x1p-32 < density_of(r, density))
                enter(s, r, i, (float)reference_input(seed, SPR_FP32, 9, r, i));
        }
}

/* Near enough to a sum in fp64. */
static void check_values(const struct sums *s)
{
    for (size_t i = 0; i < s->n; i++) {
        double x[WORLD_MAX], bound, want;
        for (int r = 0; r < s->world.ranks; r++)
            x[r] = (double)s->vector[r][i];
        want = reference_reduce(x, s->world.ranks, SPR_FP32, s->op, &bound);
        if (!(fabs((double)s->dense[0][i] - want) <= bound))
            fail_msg("%s P=%d n=%zu: element %zu is %.9g, not %.9g", s->algorithm, s->world.ranks,
                     s->n, i, (double)s->dense[0][i], want);
    }
}

/* Every index of any rank's list, and the values of the dense result. */
static void check_list(const struct sums *s, int rank)
{
    const spr_sparse *list = &s->sum[rank];
    size_t at[WORLD_MAX] = {0}, k = 0;

    for (size_t i = 0; i < s->n; i++) {
        bool listed = false;
        for (int r = 0; r < s->world.ranks; r++)
            if (at[r] < s->list[r].count && s->list[r].index[at[r]] == i) {
                at[r]++;
                listed = true;
            }
        if (!listed)
            continue;
        if (k >= list->count || list->index[k] != i ||
            memcmp(&list->value[k], &s->dense[rank][i], sizeof(float)))
            fail_msg("%s P=%d n=%zu: rank %d: entry %zu of the list, of %zu, is wrong",
                     s->algorithm, s->world.ranks, s->n, rank, k, i);
        k++;
    }
    assert_int_equal(k, list->count);
}

static void check_sparse(struct sums *s, double density)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    bool canonical = spr_algorithm_is_canonical("sparse_allreduce", s->algorithm) &&
                     s->world.comms[0]->options.determinism != SPR_DETERMINISM_OFF;
    int ranks = s->world.ranks;

    options.algorithm = "direct";
    allocate(s);
    draw_lists(s, density);
    run_sparse(s);
    for (int r = 0; r < ranks; r++)
        spr_iallreduce(s->world.comms[r], s->vector[r], s->want[r], s->n, SPR_FP32, s->op, &options,
                       &s->world.requests[r]);
    run_ok(&s->world);
    for (int r = 0; r < ranks; r++)
        if (memcmp(s->dense[r], canonical ? s->want[r] : s->dense[0], s->n * 4))
            fail_msg("%s P=%d n=%zu density %g: other bits on rank %d", s->algorithm, ranks, s->n,
                     density, r);
    check_values(s);
    for (int r = 0; r < ranks && reference_sparse_lists(s->algorithm); r++)
        check_list(s, r);
    free_sums(s);
}

static void all_algorithms_are_right_and_canonical_ones_equal_dense_bit_for_bit(void **state)
{
    static const size_t n[] = {1, 10, 64, 1000, 65536, 300001};
    static const double density[] = {0, 0.001, 0.01, 0.1, 0.6, 1.0};
    struct spr_rng rng = {seed, 2};
    struct sums s;

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        make(&s.world, ranks, 10e9);
        world_draw_hosts(&s.world, &rng);
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
            for (size_t i = 0; i < sizeof n / sizeof *n; i++)
                for (size_t d = 0; d < sizeof density / sizeof *density; d++) {
                    s.n = n[i];
                    s.op = d % 2 ? SPR_AVG : SPR_SUM;
                    if (n[i] <= 65536 || ranks == 8 || (ranks == 3 && density[d] < 0.5))
                        check_sparse(&s, density[d]);
                }
        world_destroy(&s.world);
    }
}

/* All ranks have the same bits, but those of a run depend on when messages came. */
static void sums_in_the_order_of_arrival_are_right(void **state)
{
    struct sums s = {.n = 200003};
    static float bits[200003];
    struct spr_rng rng = {seed, 4};

    (void)state;
    for (int ranks = 2; ranks <= 6; ranks += reference_small_scale() ? 2 : 1) {
        make(&s.world, ranks, 10e9);
        world_draw_hosts(&s.world, &rng);
        world_set_determinism(&s.world, SPR_DETERMINISM_OFF);
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
            check_sparse(&s, 0.01);
            check_sparse(&s, 0.5);
        }
        s.algorithm = "direct";
        allocate(&s);
        draw_lists(&s, 0.5);
        run_sparse(&s);
        memcpy(bits, s.dense[0], sizeof bits);
        world_set_determinism(&s.world, SPR_DETERMINISM_CANONICAL);
        run_sparse(&s);
        if (ranks > 2)
            assert_memory_not_equal(bits, s.dense[0], sizeof bits);
        else
            assert_memory_equal(bits, s.dense[0], sizeof bits);
        free_sums(&s);
        world_destroy(&s.world);
    }
}

/* Whichever of them compress: all that a link carries is the same to those who add it. */
static void compressed_chunks_change_no_bits(void **state)
{
    struct sums s = {.n = reference_small_scale() ? 100001 : 300001};
    struct spr_rng rng = {seed, 6};

    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) {
        make(&s.world, ranks, 10e9);
        world_draw_hosts(&s.world, &rng);
        if (!world_set_zstd(&s.world, 1 + ranks))
            print_message("built without libzstd\n");
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
            check_sparse(&s, 0.001);
            check_sparse(&s, 0.05);
            check_sparse(&s, 1.0);
        }
        world_destroy(&s.world);
    }
}

/* More chunks per stream than may be ahead: each is waited for, and none for ever. */
static void long_streams_of_full_chunks_come_to_an_end(void **state)
{
    static const int ranks[] = {2, 3, 5};
    struct sums s = {.n = reference_small_scale() ? 700001 : 1500001, .op = SPR_AVG};

    (void)state;
    for (size_t i = 0; i < (reference_small_scale() ? 2 : SPR_ARRAY_LEN(ranks)); i++) {
        make(&s.world, ranks[i], i == 1 ? 1e9 : 0);
        world_share_hosts(&s.world, (int[]){0, 0, 1, 1, 1});
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++) {
            check_sparse(&s, 1.0);
            check_sparse(&s, 0.03);
        }
        world_destroy(&s.world);
    }
}

/* A chunk is not filled to its target when a window without gaps comes, whose entries alone are as
 * many as fit. */
static void check_full_window(struct sums *s)
{
    int ranks = s->world.ranks;
    size_t windows = (size_t)ranks * 65536; /* one of each owner */

    s->n = 3 * windows;
    allocate(s);
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < s->n; i++)
            if (i / windows == 1 || i % 13 == 0)
                enter(s, r, i, (float)(r + 1));
    run_sparse(s);
    check_values(s);
    for (int r = 0; r < ranks && reference_sparse_lists(s->algorithm); r++)
        check_list(s, r);
    free_sums(s);
}

static void a_full_window_behind_a_sparse_one_gets_a_chunk_of_its_own(void **state)
{
    static const int host[] = {0, 0, 1, 1};

    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        struct sums s = {.n = 0};
        make(&s.world, ranks, 0);
        world_share_hosts(&s.world, host);
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
            check_full_window(&s);
        world_destroy(&s.world);
    }
}

static void many_ranks_of_any_number_agree(void **state)
{
    static const int ranks[] = {12, 16, 17, 31, 33};
    struct sums s = {.n = 20011};

    (void)state;
    for (size_t i = 0; i < (reference_small_scale() ? 1 : sizeof ranks / sizeof *ranks); i++) {
        make(&s.world, ranks[i], 10e9);
        for (int a = 0; (s.algorithm = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
            check_sparse(&s, 0.02);
        world_destroy(&s.world);
    }
}

/* Frames from the ranks of host 0 to those of others, of one allreduce of one entry per rank. */
static uint64_t frames_between_hosts(struct world *w, const int *host, const char *algorithm)
{
    enum { N = 6 * 64 };
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    uint32_t index = 0;
    float value = 1, dense[WORLD_MAX][N];
    spr_sparse list = {&index, &value, 1, 1};
    uint64_t frames = 0;

    options.algorithm = algorithm;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int from = 0; from < w->ranks; from++)
            for (int to = 0; to < w->ranks; to++)
                if (host[from] == 0 && host[to] != 0)
                    frames += (uint64_t)sign * spr_sim_sent_frames(w->sim, from, to);
        if (sign > 0)
            return frames;
        for (int r = 0; r < w->ranks; r++)
            assert_int_equal(spr_isparse_allreduce(w->comms[r], &list, N, dense[r], NULL, SPR_SUM,
                                                   &options, &w->requests[r]),
                             SPR_OK);
        run_ok(w);
        assert_true(dense[0][0] == (float)w->ranks);
    }
    return 0;
}

/* Three ranks on each of two hosts: of the nine unions from one to the other, three are left; and
 * of the nine lists, if they are summed first. */
static void unions_and_sums_enter_each_host_once(void **state)
{
    static const int host[] = {0, 1, 0, 0, 1, 1};
    struct world w;

    (void)state;
    make(&w, 6, 10e9);
    world_share_hosts(&w, host);
    /* Of each way that is not taken there is a message less, and its grant. */
    assert_int_equal(frames_between_hosts(&w, host, "direct") -
                         frames_between_hosts(&w, host, "hierarchical"),
                     (9 - 3) * 2);
    assert_int_equal(frames_between_hosts(&w, host, "direct") -
                         frames_between_hosts(&w, host, "hosts"),
                     2 * (9 - 3) * 2);
    assert_int_equal(frames_between_hosts(&w, host, "relay"),
                     frames_between_hosts(&w, host, "hierarchical"));
    world_destroy(&w);
}

/* Frames from one rank to another, of a sum of an entry per rank. */
static uint64_t frames_from_to(struct world *w, int from, int to, const char *algorithm)
{
    static const int apart[] = {0, 1, 2, 3};
    uint64_t before = spr_sim_sent_frames(w->sim, from, to);

    (void)frames_between_hosts(w, apart, algorithm);
    return spr_sim_sent_frames(w->sim, from, to) - before;
}

/* A host tells the next one of three unions, where it told each other one of its own; and is told
 * by the one before, which has the grants. What is neither has lists alone. */
static void unions_go_round_a_ring_of_hosts(void **state)
{
    struct world w;

    (void)state;
    make(&w, 4, 10e9);
    world_share_hosts(&w, (int[]){0, 1, 2, 3});
    for (int from = 0; from < 4; from++) {
        int next = (from + 1) % 4, across = (from + 2) % 4, before = (from + 3) % 4;
        assert_int_equal(frames_from_to(&w, from, next, "relay"),
                         frames_from_to(&w, from, next, "direct") + 2 - 1);
        assert_int_equal(frames_from_to(&w, from, across, "relay"),
                         frames_from_to(&w, from, across, "direct") - 2);
        assert_int_equal(frames_from_to(&w, from, before, "relay"),
                         frames_from_to(&w, from, before, "direct") - 1 + 2);
    }
    world_destroy(&w);
}

/* Two racks of two hosts of two ranks. The first one has four owners with a window, and the other
 * two: of the four's unions to four ranks each one is left, and so of the others' two, which are
 * granted. */
static void unions_enter_each_rack_once(void **state)
{
    static const int host[] = {0, 0, 1, 1, 2, 2, 3, 3}, rack[] = {0, 0, 1, 1};
    static const int rack_of_rank[] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct world w;

    (void)state;
    make(&w, 8, 10e9);
    world_share_racks(&w, host, rack);
    assert_int_equal(frames_between_hosts(&w, rack_of_rank, "direct") -
                         frames_between_hosts(&w, rack_of_rank, "hierarchical"),
                     (4 * 4 - 4) + (2 * 4 - 2));
    world_destroy(&w);
}

static void the_server_is_on_the_largest_host_and_others_talk_to_it_alone(void **state)
{
    static const struct {
        int host[5], server;
    } cases[] = {{{0, 1, 2, 3, 4}, 0},
                 {{0, 1, 2, 1, 0}, 0},
                 {{0, 1, 2, 2, 1}, 1},
                 {{0, 1, 1, 2, 2}, 1},
                 {{0, 1, 2, 2, 2}, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sums s = {.algorithm = "server", .n = 3000};
        make(&s.world, 5, 0);
        world_share_hosts(&s.world, cases[i].host);
        allocate(&s);
        draw_lists(&s, 0.1);
        run_sparse(&s);
        for (int from = 0; from < 5; from++)
            for (int to = 0; to < 5; to++)
                assert_int_equal(spr_sim_sent_frames(s.world.sim, from, to) > 0,
                                 from != to && (from == cases[i].server || to == cases[i].server));
        free_sums(&s);
        world_destroy(&s.world);
    }
}

/* Whatever else is under way. */
static void phases_add_up(struct world *w, int rank)
{
    spr_stats stats = {.struct_size = sizeof stats};

    assert_int_equal(spr_comm_stats(w->comms[rank], &stats), SPR_OK);
    assert_int_equal(stats.last_reduce_scatter_ns + stats.last_allgather_ns, stats.last_total_ns);
}

static void phases_of_sums_in_flight_are_told_apart(void **state)
{
    static float dense[2][4][300000];
    static uint32_t index[300000];
    static float value[300000];
    const spr_sparse lists[] = {{index, value, 300000, 0}, {index, value, 3, 0}};
    spr_request *requests[2][WORLD_MAX] = {{NULL}};
    struct world w;

    (void)state;
    for (uint32_t i = 0; i < 300000; i++)
        index[i] = i;
    make(&w, 4, 1e9);
    w.before = phases_add_up;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(spr_isparse_allreduce(w.comms[r], &lists[k], 300000, dense[k][r], NULL,
                                                   SPR_SUM, NULL, &requests[k][r]),
                             SPR_OK);
    for (int k = 0; k < 2; k++) {
        memcpy(w.requests, requests[k], sizeof requests[k]);
        run_ok(&w);
    }
    world_destroy(&w);
}

/* Lists --------------------------------------------------------------------------------------- */

static void a_short_list_is_reported_with_the_size_needed(void **state)
{
    uint32_t index[3] = {3, 5, 60}, out_index[2] = {0, 77};
    float value[3] = {1, 2, -0.0f}, out_value[2] = {0, 77}, dense[3][64];
    spr_sparse in = {index, value, 3, 0};
    const char *name;
    struct world w;

    (void)state;
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
        for (int ranks = 1; ranks <= 3 && reference_sparse_lists(name); ranks++) {
            spr_call_options options = SPR_CALL_OPTIONS_INIT;
            make(&w, ranks, 0);
            options.algorithm = name;
            for (int r = 0; r < ranks; r++) {
                spr_sparse out = {out_index, out_value, 0, 1};
                for (int q = 0; q < ranks; q++)
                    assert_int_equal(spr_isparse_allreduce(w.comms[q], &in, 64, dense[q],
                                                           q == r ? &out : NULL, SPR_SUM, &options,
                                                           &w.requests[q]),
                                     SPR_OK);
                assert_true(world_run(&w, LIMIT_NS));
                for (int q = 0; q < ranks; q++)
                    assert_int_equal(w.results[q], q == r ? SPR_ERR_TOO_SMALL : SPR_OK);
                assert_int_equal(out.count, 3);
                assert_true(out_index[1] == 77 && out_value[1] == 77.0f); /* beyond capacity */
                assert_true(dense[r][3] == (float)ranks && dense[r][5] == 2 * (float)ranks);
                assert_false(signbit(dense[r][60])); /* sums start from +0 */
            }
            world_destroy(&w);
        }
}

static void unsorted_lists_are_refused(void **state)
{
    static const uint32_t wrong[][2] = {{5, 3}, {5, 5}, {3, 8}};
    float value[2] = {1, 2}, dense[8];
    const char *name;
    struct world w;

    (void)state;
    make(&w, 1, 0);
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            spr_call_options options = SPR_CALL_OPTIONS_INIT;
            uint32_t index[2] = {wrong[i][0], wrong[i][1]};
            spr_sparse in = {index, value, 2, 0};
            options.algorithm = name;
            assert_int_equal(spr_isparse_allreduce(w.comms[0], &in, 8, dense, NULL, SPR_SUM,
                                                   &options, &w.requests[0]),
                             SPR_ERR_INVALID);
            in.count = (size_t)1 << 32; /* none of which is looked at */
            assert_int_equal(spr_isparse_allreduce(w.comms[0], &in, in.count, dense, NULL, SPR_SUM,
                                                   &options, &w.requests[0]),
                             SPR_ERR_INVALID);
            assert_non_null(strstr(spr_last_error(NULL), "fewer than 2^32"));
        }
    world_destroy(&w);
}

VECTORS_MAIN(cmocka_unit_test(all_algorithms_are_right_and_canonical_ones_equal_dense_bit_for_bit),
             cmocka_unit_test(sums_in_the_order_of_arrival_are_right),
             cmocka_unit_test(compressed_chunks_change_no_bits),
             cmocka_unit_test(long_streams_of_full_chunks_come_to_an_end),
             cmocka_unit_test(a_full_window_behind_a_sparse_one_gets_a_chunk_of_its_own),
             cmocka_unit_test(many_ranks_of_any_number_agree),
             cmocka_unit_test(unions_and_sums_enter_each_host_once),
             cmocka_unit_test(unions_enter_each_rack_once),
             cmocka_unit_test(unions_go_round_a_ring_of_hosts),
             cmocka_unit_test(the_server_is_on_the_largest_host_and_others_talk_to_it_alone),
             cmocka_unit_test(phases_of_sums_in_flight_are_told_apart),
             cmocka_unit_test(a_short_list_is_reported_with_the_size_needed),
             cmocka_unit_test(unsorted_lists_are_refused))
