/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bits per element on the wire of codecs, densities and kinds of data, headers of chunks and all,
 * are those of tests/golden/bits_per_element.csv; and within the limits that the project has set
 * itself. After a change that is meant:
 *
 *   tests/unit/test_codec_bits --write tests/golden/bits_per_element.csv
 *
 * The vectors are made of integers, so that they are the same everywhere.
 */
#include "base/rng.h"
#include "base/util.h"
#include "tests/unit/golden.h"
#include "tools/codec/subject.h"

enum { N = 1 << 20, ROWS = 1024 };
enum kind { ROUND, PEAKED, LAYERS, KINDS };

static const char *const kind_names[KINDS] = {"round", "peaked", "layers"};
static float x[N];

/* A sum of twelve, about normal, standard deviation 1. */
static double round_one(struct spr_rng *rng)
{
    int64_t sum = -6 * 65535;

    for (int i = 0; i < 12; i++)
        sum += (int64_t)spr_rng_below(rng, 65536);
    return (double)sum * 0x1p-16;
}

/* layers: each 64 Ki a quarter of those before. */
static void fill(enum kind kind)
{
    struct spr_rng rng = {.seed = 1};
    double scale = 1;

    for (size_t i = 0; i < N; i++) {
        double one = round_one(&rng);

        if (kind == PEAKED) /* few large ones, many near zero */
            one *= round_one(&rng) * round_one(&rng);
        if (kind == LAYERS && i > 0 && i % 65536 == 0)
            scale *= 0.25;
        x[i] = (float)(one * scale);
    }
}

/* indices: of positions, or -1: as over TCP. */
static double bits_of(const char *spec, int indices)
{
    struct spr_error error = {.rank = -1};
    struct subject subject;
    size_t bytes;

    if (subject_open(&subject, spec, N, ROWS, &error) != SPR_OK)
        fail_msg("%s: %s", spec, error.text);
    if (indices >= 0)
        subject.wire.indices = spr_index_coder_at((size_t)indices);
    bytes = subject_encode(&subject, x);
    subject_close(&subject);
    return 8.0 * (double)bytes / N;
}

static void print_table(FILE *out)
{
    static const char *const whole[] = {"none",
                                        "fp16",
                                        "bf16",
                                        "int8",
                                        "int8:rounding=stochastic",
                                        "int4",
                                        "sign",
                                        "qsgd",
                                        "terngrad",
                                        "natural",
                                        "qsgd:levels=4,coding=elias",
                                        "onebit",
                                        "bounded:error=0.01",
                                        "powersgd:rank=4"};
    static const char *const selections[] = {
        "topk", "threshold:by=density,", "sampled", "block", "random", "dgc", "adaptive"};
    static const char *const coders[] = {"", "+fp16", "+int8", "+int4", "+sign"};
    static const char *const ratios[] = {"0.1%", "1%", "10%"};

    fprintf(out, "distribution,codec,bits_per_element\n");
    for (int kind = 0; kind < KINDS; kind++) {
        fill((enum kind)kind);
        for (size_t i = 0; i < SPR_ARRAY_LEN(whole); i++)
            fprintf(out, "%s,\"%s\",%.4f\n", kind_names[kind], whole[i], bits_of(whole[i], -1));
        for (size_t s = 0; s < SPR_ARRAY_LEN(selections); s++)
            for (size_t r = 0; r < SPR_ARRAY_LEN(ratios); r++)
                for (size_t c = 0; c < SPR_ARRAY_LEN(coders); c++) {
                    char spec[96];

                    snprintf(spec, sizeof(spec), "%s%sratio=%s%s", selections[s],
                             strchr(selections[s], ':') ? "" : ":", ratios[r], coders[c]);
                    fprintf(out, "%s,\"%s\",%.4f\n", kind_names[kind], spec, bits_of(spec, -1));
                }
    }
}

static void bits_per_element_are_those_committed(void **state)
{
    (void)state;
    golden_compare("bits_per_element.csv", print_table);
}

/* Of the bytes of fp32, at most: those that gradients of the example keep to as they are sent by
 * default, positions that are spread evenly in Elias-Fano codes. Their entropy alone takes 0.01253
 * with fp32 values at 1 %. */
static void bytes_are_within_their_limits(void **state)
{
    static const struct {
        const char *spec;
        double most;
    } limits[] = {
        {"topk:ratio=1%", 0.013},
        {"topk:ratio=1%+fp16", 0.008},
        {"topk:ratio=10%", 0.12},
        {"random:ratio=1%", 0.0101},
        {"fp16", 0.5},
        {"int8", 0.252},
        {"topk:ratio=1%+int8", 0.0055},
    };

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        fill((enum kind)kind);
        for (size_t i = 0; i < SPR_ARRAY_LEN(limits); i++) {
            double part = bits_of(limits[i].spec, SPR_INDEX_ELIASFANO) / 32;

            if (part > limits[i].most)
                fail_msg("%s, %s: %.4f of fp32, more than %.4f", kind_names[kind], limits[i].spec,
                         part, limits[i].most);
        }
    }
}

/* A part of the bytes is asked for, and taken, but for headers and what a block rounds up. */
static void a_ratio_follows_from_bytes(void **state)
{
    static const struct {
        const char *spec;
        double part, least; /* of it */
    } cases[] = {
        {"topk:bytes=1%", 0.01, 0.97},       {"topk:bytes=0.1%", 0.001, 0.97},
        {"topk:bytes=10%+fp16", 0.1, 0.97},  {"topk:bytes=0.5%+int8", 0.005, 0.97},
        {"topk:bytes=2%+sign", 0.02, 0.9},   {"dgc:bytes=0.3%+int4", 0.003, 0.95},
        {"threshold:bytes=1%", 0.01, 0.9},   {"sampled:bytes=1%", 0.01, 0.8},
        {"accumulate:bytes=1%", 0.01, 0.97}, {"adaptive:bytes=1%+fp16", 0.01, 0.95},
        {"random:bytes=1%", 0.01, 0.97},     {"random:bytes=0.5%+int8", 0.005, 0.97},
        {"block:bytes=2%", 0.02, 0.9},
    };

    (void)state;
    fill(ROUND);
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        double part = bits_of(cases[i].spec, -1) / 32 / cases[i].part;
        double headers = WIRE_RANKS * SPR_CHUNK_HEADER_BYTES / (cases[i].part * 4 * N);

        printf("%s: %.3f of that\n", cases[i].spec, part);
        if (!(part >= cases[i].least && part <= 1.03 + 2 * headers))
            fail_msg("%s: %.4f of what was asked for", cases[i].spec, part);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_per_element_are_those_committed),
        cmocka_unit_test(bytes_are_within_their_limits),
        cmocka_unit_test(a_ratio_follows_from_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) { return golden_main(argc, argv, print_table, run); }
