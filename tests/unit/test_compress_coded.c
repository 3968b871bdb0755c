/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs whose values are coded: what others make of a step is what the codec believes, in any
 * world, and what they do not get stays.
 */
#include "tests/unit/codec_steps.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "compress/chunk.h"
#include "compress/codec_internal.h"
#include "tools/codec/data.h"

#define STEPS 6

static struct spr_rng rng;

static const char *const at_random[] = {"qsgd:levels=4", "terngrad", "natural",
                                        "int8:rounding=stochastic"};

/* The step as rank 1 of `ranks` sends it: chunks to each owner, read again. */
static void send_in_chunks(const struct spr_codec_step *step, const struct spr_codec_place *place,
                           float *out)
{
    static uint32_t offsets[CODEC_N / 64 + 2];
    static uint64_t scratch[(2 * SPR_WINDOW + 128) * 6 / 8 + 64], bytes[CODEC_N * 3];
    static float acc[SPR_WINDOW], values[SPR_WINDOW + 16];
    static uint64_t touched[SPR_WINDOW / 64];
    const struct spr_blocks *b = &place->blocks;
    struct spr_coding coding = step->coding;
    const float *value = step->dense ? step->vector : step->value;
    struct spr_chunk_writer w;
    struct spr_chunk c;
    const char *why = "";

    coding.values = values;
    if (!step->dense)
        assert_true(spr_blocks_offsets(b, step->index, step->count, offsets));
    for (uint32_t owner = 0; owner < b->ranks; owner++) {
        if (spr_blocks_windows(b, owner) == 0)
            continue;
        spr_chunk_writer_init(&w, b, owner, 1, SPR_WINDOW, scratch);
        w.coding = &coding;
        w.indices = owner & 1 ? spr_index_coder_find("bitpack") : NULL;
        spr_chunk_writer_begin(&w, 0);
        size_t n = spr_blocks_gather(b, step->dense ? NULL : offsets, step->index, value, owner, 0,
                                     w.pos, w.val);
        spr_chunk_writer_window(&w, n);
        size_t size =
            spr_chunk_writer_finish(&w, SPR_V_CODED, -1, SPR_CHUNK_LAST, bytes, sizeof bytes);
        assert_int_equal(spr_chunk_open(&c, bytes, size, b, owner, 0, &coding, &why), SPR_OK);
        memset(acc, 0, sizeof acc);
        spr_chunk_add(&c, acc, touched);
        for (uint32_t i = 0; i < spr_blocks_window_len(b, owner, 0); i++)
            out[spr_blocks_global(b, owner, i)] = acc[i];
    }
}

static void chunks_carry_what_the_codec_believes(const char *spec, uint32_t ranks)
{
    static float gradient[CODEC_N], believed[CODEC_N], carried[CODEC_N];
    spr_codec *codec = codec_make(spec);
    struct spr_codec_place place = {.blocks = {spr_codec_vector(codec), ranks, ranks > 5 ? 6 : 10},
                                    .rank = ranks - 1};
    struct spr_codec_step step;

    for (int i = 0; i < STEPS; i++) {
        data_fill(i == 4 ? DATA_NOT_FINITE : DATA_LAYERS, gradient, CODEC_N, &rng);
        assert_int_equal(spr_codec_begin_at(codec, gradient, &place, &step), SPR_OK);
        codec_sent_of(codec, &step, believed);
        send_in_chunks(&step, &place, step.sum ? step.sum : carried);
        if (step.sum)
            assert_false(spr_codec_next(codec, carried, &step));
        for (size_t k = 0; k < CODEC_N; k++)
            assert_true(carried[k] == believed[k] || (isnan(carried[k]) && isnan(believed[k])));
        spr_codec_commit(codec);
    }
    spr_codec_destroy(codec);
}

static void what_arrives_is_what_the_codec_believes(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 400; ranks = ranks * 3 - ranks / 2) {
        for (size_t s = 0; s < SPR_ARRAY_LEN(coded_specs); s++)
            chunks_carry_what_the_codec_believes(coded_specs[s], ranks);
        for (size_t s = 0; s < SPR_ARRAY_LEN(at_random); s++)
            chunks_carry_what_the_codec_believes(at_random[s], ranks);
    }
}

static void what_is_not_sent_stays(void **state)
{
    (void)state;
    codec_expect_kept(coded_specs, SPR_ARRAY_LEN(coded_specs), STEPS, 0x1p-23, &rng);
}

/* After the loss of a rank the step is retried among others: rounded anew, and nothing is lost. */
static void a_retry_in_another_world_loses_nothing(void **state)
{
    static float gradient[CODEC_N], sum[CODEC_N], sent[CODEC_N];
    struct spr_codec_step step;

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(coded_specs); s++) {
        spr_codec *codec = codec_make(coded_specs[s]);
        size_t n = spr_codec_vector(codec);
        struct spr_codec_place four = {.blocks = {n, 4, 10}, .rank = 2},
                               three = {.blocks = {n, 3, 10}, .rank = 1};

        data_fill(DATA_LAYERS, gradient, CODEC_N, &rng);
        memcpy(sum, gradient, sizeof sum);
        assert_int_equal(spr_codec_begin_at(codec, gradient, &four, &step), SPR_OK);
        spr_codec_abort(codec);
        assert_memory_equal(spr_codec_residual(codec), sum, sizeof sum);
        assert_int_equal(spr_codec_begin_at(codec, gradient, &three, &step), SPR_OK);
        codec_sent_of(codec, &step, sent);
        spr_codec_commit(codec);
        for (size_t i = 0; i < CODEC_N; i++) {
            double error = (double)spr_codec_residual(codec)[i] + (double)sent[i] - (double)sum[i];
            assert_true(fabs(error) <= 0x1p-23 * fmax(fabs((double)sum[i]), fabs((double)sent[i])));
        }
        spr_codec_destroy(codec);
    }
}

/* As in their papers: no residual that would come back. */
static void coders_that_round_at_random_keep_no_residual(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N], again[CODEC_N];
    static const float zero[CODEC_N];

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(at_random); s++) {
        spr_codec *codec = codec_make(at_random[s]);

        data_fill(DATA_NORMAL, gradient, CODEC_N, &rng);
        codec_step_of(codec, gradient, sent);
        spr_codec_abort(codec);
        codec_step_of(codec, gradient, again);
        assert_memory_equal(sent, again, sizeof sent);
        spr_codec_commit(codec);
        assert_memory_equal(spr_codec_residual(codec), zero, sizeof zero);
        /* The next step draws other numbers. */
        codec_step_of(codec, gradient, again);
        assert_memory_not_equal(sent, again, sizeof sent);
        spr_codec_destroy(codec);
    }
}

/* A group that holds a NaN is sent as NaNs; what was finite in it comes with the next step. */
static void a_nan_does_not_cost_its_group(void **state)
{
    static float gradient[CODEC_N], sent[CODEC_N];
    spr_codec *codec = codec_make("int8:group=64");

    (void)state;
    for (size_t i = 0; i < CODEC_N; i++)
        gradient[i] = 1;
    gradient[3] = NAN;
    codec_step_of(codec, gradient, sent);
    spr_codec_commit(codec);
    assert_true(isnan(sent[3]) && isnan(sent[4]) && sent[64] == 1);
    assert_true(spr_codec_residual(codec)[3] == 0 && spr_codec_residual(codec)[4] == 1);
    memset(gradient, 0, sizeof gradient);
    codec_step_of(codec, gradient, sent);
    assert_true(sent[3] == 0 && sent[4] == 1);
    spr_codec_destroy(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_arrives_is_what_the_codec_believes),
        cmocka_unit_test(what_is_not_sent_stays),
        cmocka_unit_test(a_retry_in_another_world_loses_nothing),
        cmocka_unit_test(coders_that_round_at_random_keep_no_residual),
        cmocka_unit_test(a_nan_does_not_cost_its_group),
    };

    rng.seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
