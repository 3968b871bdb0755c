/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bits per index of every coder, density and distribution are those of
 * tests/golden/bits_per_index.csv, so that a change of ratio is seen in review. After a change that
 * is meant:
 *
 *   tests/unit/test_indices_golden --write tests/golden/bits_per_index.csv
 */
#include "base/util.h"
#include "compress/indices/indices.h"
#include "tests/unit/golden.h"
#include "tests/unit/index_lists.h"

#define UNIVERSE (1u << 20)

static uint32_t list[UNIVERSE];
static uint8_t bytes[8 * UNIVERSE];

/* Thousandths of a bit per index, in integers, so that they are rounded alike everywhere. */
static void print_line(FILE *out, const char *coder, enum list kind, uint32_t ppm, size_t n,
                       size_t size, const char *chosen)
{
    size_t milli = (8000 * size + n / 2) / n;

    fprintf(out, "%s,%s,%u.%04u,%zu,%zu.%03zu,%s\n", list_names[kind], coder, ppm / 10000,
            ppm % 10000, n, milli / 1000, milli % 1000, chosen);
}

static void print_coders(FILE *out, enum list kind, uint32_t ppm, size_t n)
{
    static const struct {
        const char *name;
        double rate;
    } rates[] = {
        {"auto:rate=100mbit", 1e8}, {"auto:rate=10gbit", 1e10}, {"auto:rate=200gbit", 2e11}};
    const struct spr_index_coder *automatic = spr_index_coder_find("auto");

    for (size_t id = 0; id < SPR_INDEX_IDS; id++) {
        const struct spr_index_coder *coder = spr_index_coder_at(id);
        size_t size = spr_index_encode(coder, NULL, list, n, UNIVERSE, bytes);

        print_line(out, spr_index_coder_name(coder), kind, ppm, n, size, "");
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(rates); i++) {
        struct spr_index_options options = {.rate = rates[i].rate};
        size_t size = spr_index_encode(automatic, &options, list, n, UNIVERSE, bytes);

        print_line(out, rates[i].name, kind, ppm, n, size,
                   spr_index_coder_name(spr_index_coder_at(bytes[0])));
    }
}

static void print_table(FILE *out)
{
    static const uint32_t ppm[] = {100, 1000, 10000, 100000, 500000};

    fprintf(out, "distribution,coder,density_percent,indices,bits_per_index,chosen\n");
    for (int kind = 0; kind < LIST_KINDS; kind++)
        for (size_t i = 0; i < SPR_ARRAY_LEN(ppm); i++)
            print_coders(out, (enum list)kind, ppm[i],
                         list_fill((enum list)kind, UNIVERSE, ppm[i], 1, list));
}

static void bits_per_index_are_those_committed(void **state)
{
    (void)state;
    golden_compare("bits_per_index.csv", print_table);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_per_index_are_those_committed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) { return golden_main(argc, argv, print_table, run); }
