/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/options.h"

#include <stdio.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/opt.h"
#include "base/util.h"
#include "tools/collective_options.h"

const char *const kind_names[KIND_COUNT] = {"allreduce", "sparse_allreduce",
                                            "compressed_allreduce"};

/* Values. Each take_ function returns NULL, or what the option wants to see. ---------------------
 */

static bool take_rank(const char *word, size_t i, void *ranks)
{
    return option_int(word, 2, MAX_RANKS, (int *)ranks + i);
}

static bool parse_link(const char *text, double *rate)
{
    return spr_parse_rate(text, rate) && *rate >= 1e6 && *rate <= 1e13;
}

static bool take_link(const char *word, size_t i, void *links)
{
    return parse_link(word, (double *)links + i);
}

static const char *take_ranks(struct options *options, const char *value)
{
    options->rank_count = option_list(value, MAX_WORLDS, take_rank, options->ranks);
    return options->rank_count > 0
               ? NULL
               : "a list of at most 16 numbers from 2 to 65536, such as 8,64,512";
}

static const char *take_links(struct options *options, const char *value)
{
    options->link_count = option_list(value, MAX_LINKS, take_link, options->links);
    return options->link_count > 0
               ? NULL
               : "a list of at most 16 rates of at least 1mbit, such as 1gbit,10gbit";
}

static const char *take_local(struct options *options, const char *value)
{
    return parse_link(value, &options->local_link) ? NULL : "a rate, such as 100gbit";
}

static const char *take_count(const char *value, int *out)
{
    return option_int(value, 1, MAX_RANKS, out) ? NULL : "a whole number from 1 to 65536";
}

static const char *take_ranks_per_host(struct options *options, const char *value)
{
    return take_count(value, &options->ranks_per_host);
}

static const char *take_hosts_per_rack(struct options *options, const char *value)
{
    return take_count(value, &options->hosts_per_rack);
}

static const char *take_oversubscription(struct options *options, const char *value)
{
    return spr_parse_double(value, &options->oversubscription) && options->oversubscription >= 1 &&
                   options->oversubscription <= 1000
               ? NULL
               : "a factor from 1 to 1000";
}

static const char *take_slow(struct options *options, const char *value)
{
    return spr_parse_double(value, &options->slow) && options->slow >= 1 && options->slow <= 1000
               ? NULL
               : "a factor from 1 to 1000";
}

static const char *take_time(const char *value, double *seconds)
{
    return spr_parse_time(value, seconds) && *seconds >= 0 && *seconds <= 1
               ? NULL
               : "a time of at most a second, such as 10us";
}

static const char *take_latency(struct options *options, const char *value)
{
    return take_time(value, &options->latency_s);
}

static const char *take_rack_latency(struct options *options, const char *value)
{
    return take_time(value, &options->rack_latency_s);
}

static const char *take_local_latency(struct options *options, const char *value)
{
    return take_time(value, &options->local_latency_s);
}

static const char *take_algorithm(struct options *options, const char *value)
{
    options->algorithm = value;
    return *value != '\0' ? NULL : "auto, all or the name of an algorithm";
}

static const char *take_elements(struct options *options, const char *value)
{
    return spr_parse_size(value, &options->elements) && options->elements >= 1 &&
                   options->elements <= (size_t)1 << 30
               ? NULL
               : "a number of elements up to 1G, such as 256K";
}

static const char *take_densities(struct options *options, const char *value)
{
    options->density_count = option_list(value, MAX_DENSITIES, option_density, options->densities);
    return options->density_count > 0
               ? NULL
               : "a list of at most 32 ratios in (0, 1], such as 0.1%,1%,0.1";
}

static const char *take_pattern(struct options *options, const char *value)
{
    return pattern_parse(value, &options->pattern) ? NULL : "uniform, layers, cluster or zipf";
}

static const char *take_overlap(struct options *options, const char *value)
{
    return spr_parse_ratio(value, &options->overlap) && options->overlap >= 0 &&
                   options->overlap <= 1
               ? NULL
               : "a ratio from 0 to 1, such as 50%";
}

static const char *take_codec(struct options *options, const char *value)
{
    options->codec = value;
    return *value != '\0' ? NULL : "a codec such as topk:ratio=1%+fp16";
}

static const char *take_seed(struct options *options, const char *value)
{
    return option_whole(value, 0, INT64_MAX, &options->seed) ? NULL : "a whole number below 2^63";
}

static const char *take_levels(struct options *options, const char *value)
{
    (void)value;
    options->levels = true;
    return NULL;
}

static const char *take_json(struct options *options, const char *value)
{
    options->json = value;
    return *value != '\0' ? NULL : "the name of a file, or - for standard output";
}

/* getopt's table and --help are both made from this one. A row without a name is a heading. */
static const struct option_row rows[] = {
    {NULL, 0, NULL, NULL, "Network"},
    {"ranks", 'n', "LIST", take_ranks,
     "numbers of ranks, 2 to 512, to 65536 by the model alone [8]"},
    {"link", 0, "LIST", take_links, "rates of a host's port, each way [10gbit]"},
    {"slow", 0, "X", take_slow, "the last host's port is X times slower [1]"},
    {"latency", 0, "TIME", take_latency, "between hosts, one way [10us]"},
    {"ranks-per-host", 0, "G", take_ranks_per_host, "ranks that share a host's port [1]"},
    {"local", 0, "RATE", take_local, "between ranks of a host, each way [100gbit]"},
    {"local-latency", 0, "TIME", take_local_latency, "between ranks of a host, one way [1us]"},
    {"hosts-per-rack", 0, "H", take_hosts_per_rack, "hosts that share an uplink [no racks]"},
    {"oversubscription", 0, "X", take_oversubscription, "H ports / rate of the uplink [1]"},
    {"rack-latency", 0, "TIME", take_rack_latency, "between racks, one way, on top [0]"},
    {NULL, 0, NULL, NULL, "Work"},
    {"elements", 0, "N", take_elements, "of the dense vector; K, M are binary [256K]"},
    {"algo", 0, "NAME", take_algorithm, "auto, all, or a name [auto]"},
    {"density", 0, "LIST", take_densities, "parts of the elements that are sent [1%]"},
    {"codec", 0, "SPEC", take_codec,
     "of compressed_allreduce [topk]; without a ratio it takes\nthose of --density"},
    {"pattern", 0, "NAME", take_pattern,
     "where the non-zeros are: uniform, layers, cluster, zipf\n[uniform]"},
    {"overlap", 0, "RATIO", take_overlap, "part of the non-zeros that all ranks share [0]"},
    {"seed", 0, "N", take_seed, "of the data [1]"},
    {NULL, 0, NULL, NULL, "Output"},
    {"levels", 0, NULL, take_levels,
     "below each row what ranks, hosts and racks send, and which\nof them sends and receives most"},
    {"json", 0, "FILE", take_json, "also write JSON; - = standard output"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static void print_help(void)
{
    puts(
        "Usage: sparring-sim [COLLECTIVE] [options]\n"
        "Predicts what a collective costs on many ranks: the library's own algorithms, with data,\n"
        "over a simulated network, in one process. Time is that of the network alone.\n"
        "\nCollectives:\n"
        "  sparse_allreduce      (default) exact sum of (index, value) lists\n"
        "  allreduce             dense\n"
        "  compressed_allreduce  dense gradient in, codec, dense average out");
    option_rows_print(rows, ROW_COUNT, 24);
    puts("\nThe exit code is 0, 1 after a wrong result or a failed operation, 2 for wrong usage.");
}

const char *kind_algorithms(const struct options *options)
{
    return options->kind == KIND_COMPRESSED ? codec_collective(options->codec)
                                            : kind_names[options->kind];
}

bool is_simulated(const struct options *options, enum kind kind, const char *algorithm, int ranks)
{
    static const char *const few[] = {"doubling", "halving", "tree"};
    int talk = ranks; /* so many of them to each other */

    for (size_t i = 0; i < SPR_ARRAY_LEN(few); i++)
        if (strcmp(algorithm, few[i]) == 0)
            talk = 0;
    if (kind == KIND_ALLREDUCE && strcmp(algorithm, "hierarchical") == 0)
        talk = (int)spr_div_ceil((size_t)ranks, (size_t)options->ranks_per_host);
    return ranks <= MAX_SIMULATED_FEW && talk <= MAX_SIMULATED;
}

bool is_modelled(const struct options *options)
{
    return options->kind != KIND_COMPRESSED && options->hosts_per_rack == 0 && options->slow <= 1 &&
           options->pattern == PATTERN_UNIFORM && options->overlap <= 0;
}

/* What does not depend on one option alone. -----------------------------------------------------
 */

static enum options_next complete(struct options *options, uint64_t used, int words, char **word)
{
    int kind = (int)options->kind;

    if (take_collective(words, word, kind_names, KIND_COUNT, &kind) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    options->kind = (enum kind)kind;
    if (options->kind == KIND_ALLREDUCE &&
        (options->density_count > 0 || options->overlap > 0 || options->pattern != PATTERN_UNIFORM))
        return options_wrong("--density, --pattern and --overlap are not of allreduce");
    if (options->kind != KIND_COMPRESSED && strcmp(options->codec, "topk") != 0)
        return options_wrong("--codec is of compressed_allreduce");
    if (options->hosts_per_rack == 0 &&
        (options->oversubscription > 1 || options->rack_latency_s > 0))
        return options_wrong("--oversubscription and --rack-latency want --hosts-per-rack");
    if (!options_used(used, "ranks-per-host") &&
        (options_used(used, "local") || options_used(used, "local-latency")))
        return options_wrong("--local and --local-latency want --ranks-per-host");
    if (options->slow > 1 && options->hosts_per_rack > 0)
        return options_wrong("--slow is of hosts in no racks");
    for (size_t i = 0; i < options->rank_count; i++)
        if (!is_simulated(options, options->kind, options->algorithm, options->ranks[i]) &&
            !is_modelled(options))
            return options_wrong(
                "%d ranks: above 512, or 4096 where each talks to few (man sparring-sim), there is "
                "a model alone, which knows no codecs, racks, slow ports, patterns and overlap",
                options->ranks[i]);
#ifndef HAVE_JANSSON
    if (options->json != NULL)
        return options_wrong("--json: this program was built without libjansson");
#endif
    if (options->kind == KIND_COMPRESSED &&
        check_codec(options->codec, options->densities, &options->density_count) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    if (options->density_count == 0) {
        options->densities[0] = 0.01;
        options->density_count = 1;
    }
    return check_algorithm(kind_algorithms(options), options->algorithm);
}

const struct tool tool = {.name = "sparring-sim",
                          .rows = rows,
                          .row_count = ROW_COUNT,
                          .print_help = print_help,
                          .complete = complete};

enum options_next options_parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.kind = KIND_SPARSE,
                                .ranks = {8},
                                .rank_count = 1,
                                .ranks_per_host = 1,
                                .oversubscription = 1,
                                .slow = 1,
                                .links = {10e9},
                                .link_count = 1,
                                .latency_s = 10e-6,
                                .local_link = 100e9,
                                .local_latency_s = 1e-6,
                                .algorithm = "auto",
                                .elements = (size_t)256 << 10,
                                .codec = "topk",
                                .seed = 1,
                                .command = argv,
                                .command_words = argc};
    return command_line_parse(options, argc, argv);
}
