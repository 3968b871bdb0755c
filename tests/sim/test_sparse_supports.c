/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every canonical algorithm of the sparse allreduce against the direct one, bit for bit, with
 * supports that are the same on all ranks, on some of them, or nested; into a list, into a vector,
 * and into both.
 */
#include "tests/sim/vectors.h"

#include "transport/frame.h"

#define MOST 300001

/* Ranks of one group have the same positions; those of a nested one some of them. */
static const struct {
    const char *name;
    int groups;
    bool nested;
    double density;
} supports[] = {
    {"same", 1, false, 0.01},        {"same, all positions", 1, false, 1},
    {"two groups", 2, false, 0.05},  {"two groups, dense", 2, false, 0.6},
    {"nested", 1, true, 0.02},       {"three groups, some nested", 3, true, 0.2},
    {"nothing at all", 1, false, 0},
};

struct results {
    float *dense[WORLD_MAX];
    spr_sparse list[WORLD_MAX];
};

static void allocate(struct results *r, int ranks, size_t n)
{
    for (int i = 0; i < ranks; i++) {
        r->dense[i] = malloc(n * 4);
        r->list[i] = (spr_sparse){malloc(n * 4 + 4), malloc(n * 4 + 4), 0, n};
        memset(r->dense[i], 0xee, n * 4);
    }
}

static void drop_results(struct results *r, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        free(r->dense[i]);
        free(r->list[i].index);
        free(r->list[i].value);
    }
}

static bool has(int shape, int rank, size_t i)
{
    int group = rank % supports[shape].groups;
    uint32_t h = spr_hash_u32(seed ^ 5 ^ (uint64_t)group << 40 ^ i);
    bool inner = supports[shape].nested && rank / supports[shape].groups % 2;

    return (double)h * 0x1p-32 < supports[shape].density / (inner ? 3 : 1);
}

/* Some averages of these are too small to be told from zero, and keep its sign. */
static float value_at(int rank, size_t i)
{
    return i % 5 == 0 ? -0x1p-149f : (float)reference_input(seed, SPR_FP32, 9, rank, i);
}

static void draw(int shape, int rank, size_t n, spr_sparse *list)
{
    *list = (spr_sparse){malloc(n * 4 + 4), malloc(n * 4 + 4), 0, 0};
    for (size_t i = 0; i < n; i++)
        if (has(shape, rank, i)) {
            list->index[list->count] = (uint32_t)i;
            list->value[list->count++] = value_at(rank, i);
        }
}

static void run_as(struct world *w, const char *algorithm, const spr_sparse *in, size_t n,
                   struct results *out, int wanted)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    for (int r = 0; r < w->ranks; r++)
        assert_int_equal(spr_isparse_allreduce(
                             w->comms[r], &in[r], n, wanted & 1 ? out->dense[r] : NULL,
                             wanted & 2 ? &out->list[r] : NULL, SPR_AVG, &options, &w->requests[r]),
                         SPR_OK);
    run_ok(w);
    world_check_union(w, algorithm, in, n);
}

static void compare(const struct results *a, const struct results *b, int ranks, size_t n,
                    int wanted, const char *what)
{
    for (int r = 0; r < ranks; r++) {
        const spr_sparse *x = &a->list[r], *y = &b->list[r];
        if ((wanted & 1) && memcmp(a->dense[r], b->dense[r], n * 4))
            fail_msg("%s, P=%d n=%zu rank %d: another vector", what, ranks, n, r);
        if ((wanted & 2) && (x->count != y->count || memcmp(x->index, y->index, x->count * 4) ||
                             memcmp(x->value, y->value, x->count * 4)))
            fail_msg("%s, P=%d n=%zu rank %d: another list", what, ranks, n, r);
    }
}

static void check_shape(struct world *w, int shape, size_t n)
{
    spr_sparse in[WORLD_MAX];
    struct results want;
    const char *name;
    char what[128];

    for (int r = 0; r < w->ranks; r++)
        draw(shape, r, n, &in[r]);
    allocate(&want, w->ranks, n);
    run_as(w, "direct", in, n, &want, 3);
    for (int a = 0; (name = spr_algorithm_name("sparse_allreduce", a)) != NULL; a++)
        for (int wanted = 1; wanted <= 3; wanted++) {
            struct results got;
            if (!spr_algorithm_is_canonical("sparse_allreduce", name))
                continue;
            snprintf(what, sizeof what, "%s, %s", name, supports[shape].name);
            allocate(&got, w->ranks, n);
            run_as(w, name, in, n, &got, wanted);
            compare(&want, &got, w->ranks, n, wanted, what);
            drop_results(&got, w->ranks);
        }
    drop_results(&want, w->ranks);
    for (int r = 0; r < w->ranks; r++) {
        free(in[r].index);
        free(in[r].value);
    }
}

static void supports_of_any_shape_give_the_same_bits(void **state)
{
    static const size_t n[] = {10, 5000, MOST};

    (void)state;
    for (int ranks = 1; ranks <= (reference_small_scale() ? 3 : 5); ranks++) {
        struct world w;
        make(&w, ranks, 10e9);
        for (int shape = 0; shape < (int)SPR_ARRAY_LEN(supports); shape++)
            for (size_t i = 0; i < SPR_ARRAY_LEN(n); i++)
                check_shape(&w, shape, n[i]);
        world_destroy(&w);
    }
}

/* A vector so long that a rank owns more windows than one message of sums may have. */
static void long_vectors_give_the_same_bits(void **state)
{
    struct world w;

    (void)state;
    make(&w, 2, 10e9);
    for (int shape = 0; shape < (int)SPR_ARRAY_LEN(supports); shape++)
        if (supports[shape].density < 0.05)
            check_shape(&w, shape, (size_t)40 * 65536 + 17);
    world_destroy(&w);
}

/* Bytes that rank 0 sends, without the headers of frames, of full rows of 256 positions. */
static double bytes_of_rows(const char *algorithm, bool all)
{
    enum { RANKS = 4, N = 1 << 20, ROW = 256, STRIDE = 16 };
    struct spr_counters *c;
    spr_sparse in[RANKS];
    struct results out;
    struct world w;
    double bytes;

    make(&w, RANKS, 0);
    world_set_indices(&w, SPR_INDICES_PLAIN);
    for (int r = 0; r < RANKS; r++) {
        in[r] = (spr_sparse){malloc(N * 4), malloc(N * 4), 0, 0};
        for (uint32_t i = 0; i < N; i++)
            if (i / ROW % STRIDE == (all ? 0 : (uint32_t)r)) {
                in[r].index[in[r].count] = i;
                in[r].value[in[r].count++] = 1;
            }
    }
    allocate(&out, RANKS, N);
    run_as(&w, algorithm, in, N, &out, 1);
    c = &w.comms[0]->counters;
    bytes = (double)(c->sent_bytes - c->sent_frames * SPR_FRAME_BYTES);
    drop_results(&out, RANKS);
    for (int r = 0; r < RANKS; r++) {
        free(in[r].index);
        free(in[r].value);
    }
    world_destroy(&w);
    return bytes / (N / STRIDE);
}

static void full_rows_travel_as_blocks_without_positions(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        double sent = bytes_of_rows("blocks", all), direct = bytes_of_rows("direct", all);
        double rows = 3 / 4.0 * (all ? 2 : 5);
        printf("rows of %s: %.3f bytes per entry as blocks, %.3f directly\n",
               all ? "all ranks" : "each rank", sent, direct);
        assert_true(fabs(sent / (rows * 1056 / 256) - 1) < 0.05);
        assert_true(sent < (all ? 0.7 : 0.87) * direct);
    }
}

VECTORS_MAIN(cmocka_unit_test(full_rows_travel_as_blocks_without_positions),
             cmocka_unit_test(supports_of_any_shape_give_the_same_bits),
             cmocka_unit_test(long_vectors_give_the_same_bits))
