/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/options.h"

#include <stdio.h>

#include "base/opt.h"
#include "tools/codec/measure.h"
#include "tools/command_line.h"

/* Takes the value of one option. Returns NULL, or what the option wants to see. */

static bool take_size(const char *word, size_t i, void *sizes)
{
    size_t *size = (size_t *)sizes + i;
    return spr_parse_size(word, size) && *size >= 1 && *size <= UINT32_MAX;
}

static bool take_thread_count(const char *word, size_t i, void *threads)
{
    return option_int(word, 1, pool_cpus(), (int *)threads + i);
}

static const char *take_elements(struct options *options, const char *value)
{
    options->size_count = option_list(value, MAX_SIZES, take_size, options->sizes);
    return options->size_count > 0 ? NULL
                                   : "at most 16 numbers of elements, such as 1M,10M,25557032";
}

static const char *take_density(struct options *options, const char *value)
{
    options->density_count = option_list(value, MAX_DENSITIES, option_density, options->densities);
    return options->density_count > 0 ? NULL : "at most 16 ratios in (0, 1], such as 0.1%,1%,0.1";
}

static const char *take_threads(struct options *options, const char *value)
{
    static char wants[80];

    snprintf(wants, sizeof(wants),
             "at most 8 numbers from 1 to %d, as there are CPUs (256 at most)", pool_cpus());
    options->thread_count =
        option_list(value, MAX_THREAD_COUNTS, take_thread_count, options->threads);
    return options->thread_count > 0 ? NULL : wants;
}

static const char *list_distributions(void)
{
    static char list[256];

    for (int i = 0, used = 0; i < DATA_KINDS; i++)
        used += snprintf(list + used, sizeof(list) - (size_t)used, "%s%s", i ? ", " : "",
                         data_names[i]);
    return list;
}

static bool take_kind(const char *word, size_t i, void *distributions)
{
    bool found = false;

    (void)i;
    for (int kind = 0; kind < DATA_KINDS; kind++)
        if (strcmp(word, "all") == 0 || strcmp(word, data_names[kind]) == 0)
            found = ((bool *)distributions)[kind] = true;
    return found;
}

static const char *take_distribution(struct options *options, const char *value)
{
    static char wants[300];

    snprintf(wants, sizeof(wants), "all, or a list of %s", list_distributions());
    memset(options->distributions, 0, sizeof(options->distributions));
    return option_list(value, SIZE_MAX, take_kind, options->distributions) > 0 ? NULL : wants;
}

static const char *take_filter(struct options *options, const char *value)
{
    options->filter = value;
    return *value != '\0' ? NULL : "part of the name of an operation";
}

static const char *take_quick(struct options *options, const char *value)
{
    (void)value;
    options->quick = true;
    return NULL;
}

static const char *take_lines(struct options *options, const char *value)
{
    (void)value;
    options->lines = true;
    return NULL;
}

static const char *take_goals(struct options *options, const char *value)
{
    (void)value;
    options->goals = true;
    return NULL;
}

static const char *take_triples(struct options *options, const char *value)
{
    return option_int(value, 1, MOST_WANTED_TRIPLES, &options->triples)
               ? NULL
               : "a whole number from 1 to 200";
}

static const char *take_time(struct options *options, const char *value)
{
    return spr_parse_time(value, &options->seconds) && options->seconds > 0
               ? NULL
               : "a time such as 500ms or 10s";
}

static const char *take_seed(struct options *options, const char *value)
{
    return option_whole(value, 0, INT64_MAX, &options->seed) ? NULL : "a whole number below 2^63";
}

static const char *take_ranks(struct options *options, const char *value)
{
    return option_int(value, 2, 65536, &options->ranks) ? NULL : "a whole number from 2 to 65536";
}

static const char *take_share(struct options *options, const char *value)
{
    return option_int(value, 1, 1024, &options->share) ? NULL : "a whole number from 1 to 1024";
}

static const char *take_link(struct options *options, const char *value)
{
    return spr_parse_rate(value, &options->link_bps) && options->link_bps >= 1e3
               ? NULL
               : "a rate such as 1gbit or 940mbit";
}

static const char *take_latency(struct options *options, const char *value)
{
    return spr_parse_time(value, &options->latency) && options->latency >= 0
               ? NULL
               : "a time such as 50us";
}

static const char *take_error(struct options *options, const char *value)
{
    return spr_parse_ratio(value, &options->error) && options->error > 0
               ? NULL
               : "a relative error above 0, such as 1% or 0.5";
}

static const char *take_bytes(struct options *options, const char *value)
{
    return spr_parse_ratio(value, &options->bytes) && options->bytes > 0
               ? NULL
               : "a ratio above 0, such as 10%";
}

static const char *take_codecs(struct options *options, const char *value)
{
    options->codecs = value;
    return *value != '\0' ? NULL : "codecs with ; between them, such as 'none;int8'";
}

static const char *take_csv(struct options *options, const char *value)
{
    options->csv = value;
    return *value != '\0' ? NULL : "the name of a file, or - for standard output";
}

static const char *take_json(struct options *options, const char *value)
{
    options->json = value;
    return *value != '\0' ? NULL : "the name of a file, or - for standard output";
}

static const char *take_svg(struct options *options, const char *value)
{
    options->svg = value;
    return *value != '\0' ? NULL : "the name of a directory";
}

/* getopt's table and --help are both made from this one. A row without a name is a heading. */
static const struct option_row rows[] = {
    {NULL, 0, NULL, NULL, "Data (K, M, G are binary)"},
    {"elements", 'n', "LIST", take_elements, "sizes [bench: 1M,10M,25557032; compare, choose: 1M]"},
    {"distribution", 0, "LIST", take_distribution,
     "all, or of the list below [bench: normal; compare:\nnormal,laplace,layers; choose: layers]"},
    {"density", 0, "LIST", take_density, "parts that are sent [0.1%,1%,10%]"},
    {"seed", 0, "N", take_seed, "of the data [1]"},
    {NULL, 0, NULL, NULL, "Measurement (bench)"},
    {"threads", 't', "LIST", take_threads, "[1,2, or 1 where there is one CPU]"},
    {"filter", 'f', "TEXT", take_filter, "only operations whose name has TEXT in it"},
    {"goals", 0, NULL, take_goals, "only rows for which a goal is stated"},
    {"triples", 0, "N", take_triples, "reference, operation, reference [30]"},
    {"time", 0, "T", take_time, "for each row at most [20s]"},
    {"quick", 0, NULL, take_quick, "5 triples, 2s, 1M, 1%, as far as not said otherwise"},
    {"lines", 0, NULL, take_lines,
     "run the lines 'DENSITY OPERATION' of standard input, each\n"
     "once, and print the microseconds; 'save FILE' writes the\n"
     "vector; for programs"},
    {NULL, 0, NULL, NULL, "Prediction (choose)"},
    {"ranks", 0, "N", take_ranks, "of the job"},
    {"link", 0, "RATE", take_link,
     "of each rank, both ways, as collectives reach it: 8 x the\n"
     "wirebw of sparring-perf"},
    {"latency", 0, "T", take_latency, "of the link [50us]"},
    {"share", 0, "N", take_share, "ranks that share a CPU [1]"},
    {"error", 0, "E", take_error, "no codec whose step has a larger relative error"},
    {"bytes", 0, "RATIO", take_bytes, "no codec that sends a larger part of what dense sends"},
    {"codecs", 0, "LIST", take_codecs,
     "instead of the usual ones, with ; between them:\n'int8;topk:ratio=1%,feedback=off+fp16'"},
    {NULL, 0, NULL, NULL, "Output"},
    {"csv", 0, "FILE", take_csv, "also write the rows as CSV; - = standard output"},
    {"json", 0, "FILE", take_json, "also write JSON; - = standard output"},
    {"svg", 0, "DIR", take_svg, "also draw plots, into a directory"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

enum {
    BENCH = 1 << COMMAND_BENCH,
    COMPARE = 1 << COMMAND_COMPARE,
    TRY = 1 << COMMAND_TRY,
    CHOOSE = 1 << COMMAND_CHOOSE,
    LIST = 1 << COMMAND_LIST
};

/* Whose options these are; bench has the others. */
static const struct {
    const char *name;
    int commands;
} shared[] = {
    {"elements", BENCH | COMPARE | CHOOSE},
    {"distribution", BENCH | COMPARE | CHOOSE},
    {"seed", BENCH | COMPARE | CHOOSE},
    {"json", BENCH | COMPARE | TRY | CHOOSE | LIST},
    {"ranks", CHOOSE},
    {"link", CHOOSE},
    {"latency", CHOOSE},
    {"share", CHOOSE},
    {"error", CHOOSE},
    {"bytes", CHOOSE},
    {"codecs", CHOOSE},
};

static bool has_option(enum command command, const char *name)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(shared); i++)
        if (strcmp(shared[i].name, name) == 0)
            return shared[i].commands >> command & 1;
    return command == COMMAND_BENCH;
}

static const struct {
    const char *name, *words; /* what it takes */
    int fewest, most;
    const char *data; /* usual distributions */
} commands[COMMAND_COUNT] = {
    [COMMAND_BENCH] = {"bench", "options only", 0, 0, "normal"},
    [COMMAND_COMPARE] = {"compare", "two codecs", 2, 2, "normal,laplace,layers"},
    [COMMAND_TRY] = {"try", "a codec and a file", 2, 2, "normal"},
    [COMMAND_CHOOSE] = {"choose", "one file, or none", 0, 1, "layers"},
    [COMMAND_LIST] = {"list", "options only", 0, 0, "normal"},
};

static void print_help(void)
{
    puts(
        "Usage: sparring-codec bench [options]         measure every operation of every codec\n"
        "       sparring-codec compare A B [options]   two codecs on the same data\n"
        "       sparring-codec try CODEC FILE          a codec on a gradient: .npy of fp16, fp32\n"
        "                                              or fp64, raw fp32, a trace; - = standard "
        "input\n"
        "       sparring-codec choose [FILE] --ranks N --link RATE [options]\n"
        "                                              which codec, or none, is the fastest there\n"
        "       sparring-codec list                    codecs and coders, with their options");
    option_rows_print(rows, ROW_COUNT, 25);
    printf("\nDistributions: %s\n", list_distributions());
    puts("\nThe exit code is 0, 1 after a wrong result or a failure, 2 for wrong usage.");
}

/* It needs a job, and one vector. */
static enum options_next check_choose(const struct options *options, uint64_t used)
{
    static const char *const of_data[] = {"elements", "distribution", "seed"};
    int kinds = 0;

    if (options->ranks == 0 || !(options->link_bps > 0))
        return options_wrong("choose needs --%s", options->ranks == 0 ? "ranks N" : "link RATE");
    for (size_t i = 0; options->word_count > 0 && i < SPR_ARRAY_LEN(of_data); i++)
        if (options_used(used, of_data[i]))
            return options_wrong("choose takes --%s, or a file", of_data[i]);
    for (int i = 0; i < DATA_KINDS; i++)
        kinds += options->distributions[i];
    if (options->size_count > 1 || kinds > 1)
        return options_wrong("choose takes one %s",
                             kinds > 1 ? "distribution" : "number of elements");
    return OPTIONS_RUN;
}

/* One vector, on which each line runs one operation. */
static enum options_next check_lines(uint64_t used)
{
    static const char *const of_rows[] = {"density", "filter", "goals", "triples", "time",
                                          "quick",   "csv",    "json",  "svg"};

    for (size_t i = 0; i < SPR_ARRAY_LEN(of_rows); i++)
        if (options_used(used, of_rows[i]))
            return options_wrong("--lines takes no --%s", of_rows[i]);
    return OPTIONS_RUN;
}

/* What was not said; and only what the command has. */
static enum options_next set_rest(struct options *options, uint64_t used)
{
    static const double densities[] = {0.001, 0.01, 0.1};
    static const size_t sizes[] = {(size_t)1 << 20, (size_t)10 << 20, 25557032};
    bool bench = options->command == COMMAND_BENCH, any = false;

    for (int i = 0; i < ROW_COUNT; i++)
        if (used >> i & 1 && rows[i].name != NULL && !has_option(options->command, rows[i].name))
            return options_wrong("--%s is not an option of %s", rows[i].name,
                                 commands[options->command].name);
    if (options->size_count == 0) {
        options->size_count = bench && !options->quick ? 3 : 1;
        memcpy(options->sizes, sizes, sizeof(sizes));
    }
    if (options->density_count == 0) {
        options->density_count = options->quick ? 1 : 3;
        memcpy(options->densities, options->quick ? densities + 1 : densities,
               options->density_count * sizeof(double));
    }
    for (int i = 0; i < DATA_KINDS; i++)
        any |= options->distributions[i];
    if (!any)
        take_distribution(options, commands[options->command].data);
    if (options->thread_count == 0) {
        options->thread_count = pool_cpus() > 1 ? 2 : 1;
        options->threads[0] = 1;
        options->threads[1] = 2;
    }
    if (options->triples == 0)
        options->triples = options->quick ? 5 : 30;
    if (!(options->seconds > 0))
        options->seconds = options->quick ? 2 : 20;
#ifndef HAVE_JANSSON
    if (options->json != NULL)
        return options_wrong("--json: this program was built without libjansson");
#else
    if (options->csv != NULL && options->json != NULL && strcmp(options->csv, "-") == 0 &&
        strcmp(options->json, "-") == 0)
        return options_wrong("--csv and --json want two files, not both standard output");
#endif
    if (options->lines)
        return check_lines(used);
    return options->command == COMMAND_CHOOSE ? check_choose(options, used) : OPTIONS_RUN;
}

static enum options_next take_words(struct options *options, int count, char **words)
{
    int command = 0;

    if (count == 0)
        return options_wrong("a command is missing: bench, compare, try, choose or list");
    while (command < COMMAND_COUNT && strcmp(words[0], commands[command].name) != 0)
        command++;
    if (command == COMMAND_COUNT)
        return options_wrong("unknown command '%s'; there is bench, compare, try, choose and list",
                             words[0]);
    options->command = (enum command)command;
    if (count - 1 < commands[command].fewest || count - 1 > commands[command].most)
        return options_wrong("%s takes %s, not %d word%s", words[0], commands[command].words,
                             count - 1, spr_plural((uint64_t)(count - 1)));
    for (int i = 1; i < count; i++)
        options->words[options->word_count++] = words[i];
    return OPTIONS_RUN;
}

static enum options_next complete(struct options *options, uint64_t used, int count, char **words)
{
    enum options_next next = take_words(options, count, words);

    return next == OPTIONS_RUN ? set_rest(options, used) : next;
}

const struct tool tool = {.name = "sparring-codec",
                          .rows = rows,
                          .row_count = ROW_COUNT,
                          .print_help = print_help,
                          .complete = complete};

enum options_next options_parse(struct options *options, int argc, char **argv)
{
    *options =
        (struct options){.seed = 1, .share = 1, .latency = 50e-6, .argc = argc, .argv = argv};
    return command_line_parse(options, argc, argv);
}
