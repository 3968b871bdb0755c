/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bytes that algorithms of the sparse allreduce send, against what they say that they are, and
 * against the least that there can be.
 */
#include "collectives/indices.h"
#include "compress/zstd.h"
#include "tests/sim/sums.h"
#include "transport/frame.h"

enum { COST_RANKS = 8, COST_K = 8000, COST_N = 2000000 };

/* What a rank sends, without the headers of frames. */
static double sent_by(const struct world *w, int rank)
{
    const struct spr_counters *c = &w->comms[rank]->counters;

    return (double)(c->sent_bytes - c->sent_frames * SPR_FRAME_BYTES);
}

/* By the rank that sends most, in pairs of 6 bytes per entry of a list. The headers of chunks, and
 * those of windows in them, are small beside them. */
static double pairs_sent(const char *algorithm, bool disjoint, int zstd)
{
    struct sums s = {.algorithm = algorithm, .n = COST_N};
    double sent = 0;

    make(&s.world, COST_RANKS, 0);
    world_set_indices(&s.world, SPR_INDICES_PLAIN);
    if (zstd)
        (void)world_set_zstd(&s.world, zstd);
    allocate(&s);
    for (int r = 0; r < COST_RANKS; r++)
        for (size_t k = 0; k < COST_K; k++)
            enter(&s, r, k * (COST_N / COST_K) + (disjoint ? (size_t)r * 31 : 0), 1);
    run_sparse(&s);
    for (int r = 0; r < COST_RANKS; r++)
        sent = fmax(sent, sent_by(&s.world, r));
    free_sums(&s);
    world_destroy(&s.world);
    return sent / 6 / COST_K;
}

/* In lists of k entries. */
static void each_sends_what_it_says(void **state)
{
    static const struct {
        const char *name;
        double same, disjoint;
    } cases[] = {
        {"direct", 2 * 7 / 8.0, 7 / 8.0 * 9},
        {"relay", 2 * 7 / 8.0, 7 / 8.0 * 9},
        {"allgather", 7, 7},
        {"doubling", 3, 7},
        {"ring", 2 * 7 / 8.0, 1.5 * 7},
        {"server", 7, 7 * 8},
        /* Each tile of 256 has an entry, of every rank. */
        {"blocks", 2 * 7 / 8.0 * COST_N / 256 * 1056 / 6 / COST_K,
         2 * 7 / 8.0 * COST_N / 256 * 1056 / 6 / COST_K},
        {"union", 2 * 7 / 8.0 * 4 / 6, 7 / 8.0 * (8 * 2 + 9 * 4) / 6},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double same = pairs_sent(cases[i].name, false, 0);
        double disjoint = pairs_sent(cases[i].name, true, 0);
        printf("%s: %.3f k pairs of the same positions, %.3f k of disjoint ones\n", cases[i].name,
               same, disjoint);
        assert_true(fabs(same / cases[i].same - 1) < 0.05);
        assert_true(fabs(disjoint / cases[i].disjoint - 1) < 0.05);
    }
}

/* Lists of one value and of positions with a pattern get much shorter, where chunks are compressed
 * at all. */
static void compressed_chunks_take_fewer_bytes(void **state)
{
    static const struct {
        const char *name;
        bool packs;
    } cases[] = {{"direct", true}, {"relay", true}, {"allgather", true}, {"doubling", true},
                 {"server", true}, {"ring", false}, {"union", false},    {"blocks", false}};

    (void)state;
    if (!spr_zstd_is_built_in())
        skip();
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        double ratio = pairs_sent(cases[i].name, true, 3) / pairs_sent(cases[i].name, true, 0);
        printf("%s: %.3f of the bytes\n", cases[i].name, ratio);
        assert_true(cases[i].packs ? ratio < 0.5 : ratio == 1);
    }
}

/* Bits per position of a random set that has this share of them: H(d) / d. */
static double entropy(double d) { return -log2(d) - (1 - d) / d * log2(1 - d); }

/* Bytes that direct sends, over the least that any exact sum of random lists needs: each rank tells
 * its entries, and the union but for what it owns and what it has told. */
static double over_least(double density, int indices)
{
    struct sums s = {.algorithm = "direct", .n = 1000000};
    double k = 0, all = 0, sent = 0, least, d;
    struct spr_rng rng = {seed, 5};

    make(&s.world, COST_RANKS, 0);
    world_set_indices(&s.world, indices);
    allocate(&s);
    for (size_t i = 0; i < s.n; i++) {
        bool any = false;
        for (int r = 0; r < COST_RANKS; r++)
            if (spr_rng_double(&rng) < density) {
                enter(&s, r, i, 1);
                any = true;
                k++;
            }
        all += any;
    }
    run_sparse(&s);
    for (int r = 0; r < COST_RANKS; r++)
        sent += sent_by(&s.world, r) / COST_RANKS;
    free_sums(&s);
    world_destroy(&s.world);
    k /= COST_RANKS;
    d = all / (double)s.n;
    least = k * (4 + entropy(density) / 8) +
            (COST_RANKS - 2.0) / COST_RANKS * all * (4 + entropy(d) / 8);
    return sent / least;
}

static void positions_take_little_more_than_their_entropy(void **state)
{
    static const double densities[] = {0.001, 0.01, 0.1};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(densities); i++) {
        double plain = over_least(densities[i], SPR_INDICES_PLAIN);
        double bits = over_least(densities[i], SPR_INDICES_BITPACK);
        double coded = over_least(densities[i], SPR_INDICES_ELIASFANO);
        double shortest = over_least(densities[i], SPR_INDICES_GOLOMB);
        printf("%g %%: %.3f of the least bytes plain, %.3f packed, %.3f by Elias-Fano, %.3f by "
               "Golomb\n",
               100 * densities[i], plain, bits, coded, shortest);
        assert_true(bits < 0.99 * plain && coded < bits && shortest < coded);
        assert_true(bits < 1.2);
    }
}

static void bytes_of_positions_are_as_the_model_has_them(void **state)
{
    enum { COUNT = 100000 };
    static const double every[] = {6, 10, 37, 100, 1000, 30000};
    uint32_t *index = malloc(COUNT * sizeof *index);
    struct spr_rng rng = {seed, 6};

    (void)state;
    for (size_t e = 0; e < SPR_ARRAY_LEN(every); e++) {
        double gap = log1p(-1 / every[e]), at = -1;

        for (size_t i = 0; i < COUNT; i++) {
            at += 1 + floor(log(1 - spr_rng_double(&rng)) / gap);
            index[i] = (uint32_t)at;
        }
        for (int indices = SPR_INDICES_BITPACK; indices < SPR_INDICES_COUNT; indices++) {
            const struct spr_index_coder *coder = spr_indices_coder(indices);
            void *out = malloc(spr_index_bound(coder, index[COUNT - 1] + 1ull, COUNT));
            size_t bytes =
                spr_index_encode(coder, NULL, index, COUNT, index[COUNT - 1] + 1ull, out);
            double ratio = spr_indices_bytes(indices, every[e]) * COUNT / (double)bytes;

            free(out);
            if (ratio < 0.95 || ratio > 1.05)
                fail_msg("1 of %g by %s: %.3f of the bytes", every[e], spr_index_coder_name(coder),
                         ratio);
        }
    }
    free(index);
}

VECTORS_MAIN(cmocka_unit_test(each_sends_what_it_says),
             cmocka_unit_test(compressed_chunks_take_fewer_bytes),
             cmocka_unit_test(positions_take_little_more_than_their_entropy),
             cmocka_unit_test(bytes_of_positions_are_as_the_model_has_them))
