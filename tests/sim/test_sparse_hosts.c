/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The sparse allreduce that sums inside each host first: its bits, on any hosts, against sums of
 * sums that are made here; what goes between hosts, in bytes, against the model; when it is chosen;
 * and who is named when a rank dies under it, or memory ends.
 */
#include "base/mem.h"
#include "collectives/collective.h"
#include "tests/sim/vectors.h"

struct job {
    struct world world;
    size_t n;
    spr_sparse list[WORLD_MAX];
    float *vector[WORLD_MAX], *dense[WORLD_MAX];
};

static void allocate(struct job *j, size_t n)
{
    j->n = n;
    for (int r = 0; r < j->world.ranks; r++) {
        j->list[r] = (spr_sparse){malloc(n * 4), malloc(n * 4), 0, 0};
        j->vector[r] = calloc(n, sizeof(float));
        j->dense[r] = malloc(n * sizeof(float));
    }
}

static void release(struct job *j)
{
    for (int r = 0; r < j->world.ranks; r++) {
        free(j->list[r].index);
        free(j->list[r].value);
        free(j->vector[r]);
        free(j->dense[r]);
    }
}

static void enter(struct job *j, int rank, size_t i, float value)
{
    spr_sparse *list = &j->list[rank];

    list->index[list->count] = (uint32_t)i;
    list->value[list->count++] = j->vector[rank][i] = value;
}

/* Some ranks have little, and one has nothing. */
static void draw(struct job *j, struct spr_rng *rng, double density)
{
    for (int r = 0; r < j->world.ranks; r++) {
        double d = r == 4 ? 0 : r % 3 == 2 ? density / 20 : density;
        for (size_t i = 0; i < j->n; i++)
            if ((double)spr_rng_below(rng, 1u << 30) < d * (1u << 30))
                enter(j, r, i, (float)spr_rng_below(rng, 1u << 24) * 0x1p-20f - 7.3f);
    }
}

static void post(struct job *j, int r, spr_op op, const char *algorithm)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    memset(j->dense[r], 0xee, j->n * sizeof(float));
    assert_int_equal(spr_isparse_allreduce(j->world.comms[r], &j->list[r], j->n, j->dense[r], NULL,
                                           op, &options, &j->world.requests[r]),
                     SPR_OK);
}

static void run(struct job *j, spr_op op, const char *algorithm)
{
    for (int r = 0; r < j->world.ranks; r++)
        post(j, r, op, algorithm);
    run_ok(&j->world);
    world_check_union(&j->world, algorithm, j->list, j->n);
}

/* Bits ----------------------------------------------------------------------------------------- */

/* Element i: ranks of each host in order, then hosts in the order of their first ranks. */
static float sum_of_sums(const struct job *j, size_t i)
{
    const struct spr_topology *t = &j->world.comms[0]->topology;
    float all = 0;

    for (int h = 0; h < t->hosts; h++) {
        float host = 0;
        for (int k = t->first[h]; k < t->first[h + 1]; k++)
            host += j->vector[t->ranks[k]][i];
        all += host;
    }
    return all;
}

static void check_bits(struct job *j, spr_op op)
{
    run(j, op, "hosts");
    for (size_t i = 0; i < j->n; i++) {
        float want = sum_of_sums(j, i);
        if (op == SPR_AVG)
            want /= (float)j->world.ranks;
        for (int r = 0; r < j->world.ranks; r++)
            if (memcmp(&j->dense[r][i], &want, sizeof want))
                fail_msg("%d ranks, %d hosts, n=%zu: element %zu of rank %d is %.9g, not %.9g",
                         j->world.ranks, j->world.comms[0]->topology.hosts, j->n, i, r,
                         (double)j->dense[r][i], (double)want);
    }
}

static void ranks_of_a_host_are_added_first_and_then_the_hosts(void **state)
{
    static const size_t n[] = {1, 65, 640, 5000, 70001, 600001};
    static const double density[] = {0.003, 0.05, 0.7, 1};
    struct spr_rng rng = {seed, 11};

    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++)
        for (size_t i = 0; i < SPR_ARRAY_LEN(n); i++) {
            struct job j;
            if (n[i] > 70001 && ranks != 3 && ranks != 7)
                continue;
            make(&j.world, ranks, 10e9);
            world_draw_hosts(&j.world, &rng);
            allocate(&j, n[i]);
            draw(&j, &rng, density[spr_rng_below(&rng, SPR_ARRAY_LEN(density))]);
            check_bits(&j, ranks % 2 ? SPR_AVG : SPR_SUM);
            release(&j);
            world_destroy(&j.world);
        }
}

/* Of one host, of as many hosts as ranks, and of hosts of which most ranks lead nothing. */
static void hosts_of_any_size_have_leaders(void **state)
{
    static const int hosts[][7] = {{0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6},
                                   {0, 0, 0, 0, 0, 0, 1}, {0, 1, 1, 1, 1, 1, 1},
                                   {0, 0, 1, 1, 1, 2, 2}, {2, 1, 0, 1, 0, 2, 0}};
    struct spr_rng rng = {seed, 12};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(hosts); i++) {
        struct job j;
        make(&j.world, 7, 1e9);
        world_share_hosts(&j.world, hosts[i]);
        allocate(&j, 300001);
        draw(&j, &rng, 0.04);
        check_bits(&j, SPR_SUM);
        release(&j);
        world_destroy(&j.world);
    }
}

/* Cost ----------------------------------------------------------------------------------------- */

enum { HOSTS = 4, PER_HOST = 2, RANKS = HOSTS * PER_HOST, K = 24000, N = 6000000 };

static void make_hosts(struct world *w)
{
    struct spr_sim_options options = {.ranks = RANKS,
                                      .seed = seed,
                                      .latency_s = 10e-6,
                                      .bandwidth = 1e9,
                                      .ranks_per_host = PER_HOST,
                                      .local_latency_s = 1e-6,
                                      .local_bandwidth = 100e9};
    int host[RANKS];

    for (int r = 0; r < RANKS; r++)
        host[r] = r / PER_HOST;
    world_create(w, &options);
    world_share_hosts(w, host);
    world_set_indices(w, SPR_INDICES_PLAIN);
}

/* What the host that sends most sends to others, in pairs of 6 bytes per entry of a list; the
 * headers of frames are not counted. And how long it takes. */
static double pairs_between(const char *algorithm, int shared, uint64_t *ns)
{
    struct job j;
    double most = 0;

    make_hosts(&j.world);
    allocate(&j, N);
    for (int r = 0; r < RANKS; r++) /* `shared` neighbours have the same positions */
        for (size_t k = 0; k < K; k++)
            enter(&j, r, k * (N / K) + (size_t)(r / shared) * 31, 1);
    *ns = spr_now_ns(spr_sim_clock(j.world.sim));
    run(&j, SPR_SUM, algorithm);
    *ns = spr_now_ns(spr_sim_clock(j.world.sim)) - *ns;
    for (int h = 0; h < HOSTS; h++) {
        struct spr_sim_traffic t = spr_sim_traffic(j.world.sim, SPR_SIM_HOSTS, h);
        uint64_t bytes = t.sent_bytes - SPR_FRAME_BYTES * t.sent_frames;
        most = (double)bytes > most ? (double)bytes : most;
    }
    release(&j);
    world_destroy(&j.world);
    return most / 6 / K;
}

/* (N-1)/N (U(G) + U), in lists of k entries; the flat one sends G (N-1)/N (k + U). */
static void a_host_sends_its_union_once_and_each_sum_once(void **state)
{
    static const struct {
        int shared; /* by how many ranks */
        double host, all;
    } cases[] = {{1, 2, 8}, {PER_HOST, 1, 4}, {RANKS, 1, 1}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        double want = (HOSTS - 1.0) / HOSTS * (cases[i].host + cases[i].all);
        double flat = PER_HOST * (HOSTS - 1.0) / HOSTS * (1 + cases[i].all);
        uint64_t ns, flat_ns;
        double got = pairs_between("hosts", cases[i].shared, &ns);
        double direct = pairs_between("direct", cases[i].shared, &flat_ns);
        printf("positions shared by %d: a host sends %.3f k pairs, not %.3f k, and takes %.2f of "
               "the time\n",
               cases[i].shared, got, direct, (double)ns / (double)flat_ns);
        assert_true(fabs(got / want - 1) < 0.05);
        assert_true(fabs(direct / flat - 1) < 0.05);
        assert_true((double)flat_ns > 1.6 * (double)ns);
    }
}

/* Choice --------------------------------------------------------------------------------------- */

static const char *chosen(spr_comm *comm)
{
    spr_prediction predictions[SPR_CANDIDATES];
    int n = spr_comm_predict(comm, "sparse_allreduce", 20000, SPR_FP32, 10000, 0, predictions,
                             SPR_CANDIDATES);

    for (int i = 0; i < n; i++)
        if (predictions[i].chosen)
            return predictions[i].algorithm;
    return "none";
}

/* By the rules they do not, by a model they may. */
static void hosts_show_in_the_bits_unless_they_must_not(void **state)
{
    static const int host[] = {0, 1, 0, 1, 1, 0};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    struct spr_rng rng = {seed, 13};
    float *hosts, *direct;
    size_t bytes;
    struct job j;

    (void)state;
    make(&j.world, 6, 10e9);
    allocate(&j, 20000);
    bytes = j.n * sizeof(float);
    hosts = malloc(bytes);
    direct = malloc(bytes);
    draw(&j, &rng, 0.5);
    run(&j, SPR_SUM, "direct");
    memcpy(direct, j.dense[0], bytes);
    run(&j, SPR_SUM, NULL); /* every rank has a host of its own */
    assert_memory_equal(j.dense[0], direct, bytes);
    world_share_hosts(&j.world, host);
    run(&j, SPR_SUM, "hosts");
    memcpy(hosts, j.dense[0], bytes);
    assert_memory_not_equal(hosts, direct, bytes);
    run(&j, SPR_SUM, NULL);
    assert_memory_equal(j.dense[0], direct, bytes);
    assert_string_equal(chosen(j.world.comms[0]), "hierarchical");
    j.world.comms[0]->model = (struct spr_model){.known = true, .byte = 1e-9, .reduce = 1e-8};
    assert_string_equal(chosen(j.world.comms[0]), "hosts");
    j.world.comms[0]->options.determinism = SPR_DETERMINISM_CANONICAL;
    assert_string_equal(chosen(j.world.comms[0]), "hierarchical");
    options.algorithm = "hosts";
    assert_int_equal(spr_isparse_allreduce(j.world.comms[0], &j.list[0], j.n, j.dense[0], NULL,
                                           SPR_SUM, &options, &j.world.requests[0]),
                     SPR_ERR_INVALID);
    free(hosts);
    free(direct);
    release(&j);
    world_destroy(&j.world);
}

/* Failures ------------------------------------------------------------------------------------- */

/* Each rank of three hosts, of two, three and one rank; some lead, and some own. */
static void a_rank_that_dies_is_named_by_all(void **state)
{
    static const int host[] = {0, 1, 1, 0, 2, 1};
    struct spr_rng rng = {seed, 14};
    int failed = 0;

    (void)state;
    for (int trial = 0; trial < 60; trial++) {
        int victim = trial % 6;
        char name[32];
        struct job j;
        make(&j.world, 6, 1e9);
        world_share_hosts(&j.world, host);
        allocate(&j, 200000);
        draw(&j, &rng, 0.1);
        spr_sim_kill(j.world.sim, victim, spr_rng_below(&rng, 10000000) + 1);
        snprintf(name, sizeof name, "rank %d was lost", victim);
        for (int r = 0; r < 6; r++)
            post(&j, r, SPR_SUM, "hosts");
        assert_true(world_run(&j.world, LIMIT_NS));
        for (int r = 0; r < 6; r++) {
            if (r == victim || j.world.results[r] == SPR_OK)
                continue;
            assert_int_equal(j.world.results[r], SPR_ERR_RANK_LOST);
            assert_non_null(strstr(spr_last_error(j.world.comms[r]), name));
            failed++;
        }
        release(&j);
        world_destroy(&j.world);
    }
    printf("%d of 300 failed\n", failed);
    assert_true(failed > 60);
}

/* Any allocation of the post fails: it returns that, and what it had taken is given back. */
static void without_memory_nothing_begins(void **state)
{
    static const int host[] = {0, 0, 1, 1};
    uint64_t refused = 0, left;

    (void)state;
    for (uint64_t n = 1; n == 1 || refused == n - 1; n++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        int64_t live = spr_mem_live();
        struct spr_rng rng = {seed, 15};
        spr_status status;
        struct job j;
        options.algorithm = "hosts";
        make(&j.world, 4, 1e9);
        world_share_hosts(&j.world, host);
        allocate(&j, 900000);
        draw(&j, &rng, 0.01);
        spr_mem_fail_nth(n);
        status = spr_isparse_allreduce(j.world.comms[0], &j.list[0], j.n, j.dense[0], NULL, SPR_SUM,
                                       &options, &j.world.requests[0]);
        left = spr_mem_fail_nth(0);
        if (left == 0 && status != SPR_OK) {
            assert_int_equal(status, SPR_ERR_NOMEM);
            refused++;
        }
        release(&j);
        world_destroy(&j.world);
        assert_int_equal(spr_mem_live(), live);
    }
    printf("%llu allocations\n", (unsigned long long)refused);
    assert_true(refused > 3);
}

VECTORS_MAIN(cmocka_unit_test(ranks_of_a_host_are_added_first_and_then_the_hosts),
             cmocka_unit_test(hosts_of_any_size_have_leaders),
             cmocka_unit_test(a_host_sends_its_union_once_and_each_sum_once),
             cmocka_unit_test(hosts_show_in_the_bits_unless_they_must_not),
             cmocka_unit_test(a_rank_that_dies_is_named_by_all),
             cmocka_unit_test(without_memory_nothing_begins))
