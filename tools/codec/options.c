/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <sparring/version.h>

#include "base/opt.h"
#include "tools/codec/measure.h"
#include "tools/option_rows.h"

/* Takes the value of one option. Returns NULL, or what the option wants to see. */

static enum options_next wrong(const char *format, ...) SPR_PRINTF(1, 2);
static enum options_next wrong(const char *format, ...)
{
    va_list arguments;

    fputs("sparring-codec: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(" (see --help)\n", stderr);
    return OPTIONS_WRONG;
}

static bool whole(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 19 || text[digits] != '\0')
        return false;
    *number = strtoull(text, NULL, 10);
    return *number >= low && *number <= high;
}

/* The next word of a list; false when it is too long. */
static bool next_word(const char **at, char *word, size_t bytes)
{
    size_t length = strcspn(*at, ",");

    snprintf(word, bytes, "%.*s", (int)spr_min_size(length, bytes - 1), *at);
    *at += length;
    return length > 0 && length < bytes;
}

static const char *take_elements(struct options *options, const char *value)
{
    static const char wants[] = "at most 16 numbers of elements, such as 1M,10M,25557032";
    char word[32];

    for (options->size_count = 0;; value++) {
        size_t *size = &options->sizes[options->size_count];
        if (options->size_count == MAX_SIZES || !next_word(&value, word, sizeof(word)) ||
            !spr_parse_size(word, size) || *size < 1 || *size > UINT32_MAX)
            return wants;
        options->size_count++;
        if (*value == '\0')
            return NULL;
    }
}

static const char *take_density(struct options *options, const char *value)
{
    static const char wants[] = "at most 16 ratios in (0, 1], such as 0.1%,1%,0.1";
    char word[32];

    for (options->density_count = 0;; value++) {
        double *density = &options->densities[options->density_count];
        if (options->density_count == MAX_DENSITIES || !next_word(&value, word, sizeof(word)) ||
            !spr_parse_ratio(word, density) || !(*density > 0 && *density <= 1))
            return wants;
        options->density_count++;
        if (*value == '\0')
            return NULL;
    }
}

static const char *take_threads(struct options *options, const char *value)
{
    static char wants[64];
    char word[32];
    uint64_t number;

    snprintf(wants, sizeof(wants), "at most 8 numbers from 1 to %d, as there are CPUs",
             pool_cpus());
    for (options->thread_count = 0;; value++) {
        if (options->thread_count == MAX_THREAD_COUNTS || !next_word(&value, word, sizeof(word)) ||
            !whole(word, 1, (uint64_t)pool_cpus(), &number))
            return wants;
        options->threads[options->thread_count++] = (int)number;
        if (*value == '\0')
            return NULL;
    }
}

static const char *list_distributions(void)
{
    static char list[256];

    for (int i = 0, used = 0; i < DATA_KINDS; i++)
        used += snprintf(list + used, sizeof(list) - (size_t)used, "%s%s", i ? ", " : "",
                         data_names[i]);
    return list;
}

static const char *take_distribution(struct options *options, const char *value)
{
    static char wants[300];
    char word[32];

    snprintf(wants, sizeof(wants), "all, or a list of %s", list_distributions());
    memset(options->distributions, 0, sizeof(options->distributions));
    for (;; value++) {
        bool found = false;
        if (!next_word(&value, word, sizeof(word)))
            return wants;
        for (int i = 0; i < DATA_KINDS; i++)
            if (strcmp(word, "all") == 0 || strcmp(word, data_names[i]) == 0)
                found = options->distributions[i] = true;
        if (!found)
            return wants;
        if (*value == '\0')
            return NULL;
    }
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
    uint64_t number;
    if (!whole(value, 1, MOST_WANTED_TRIPLES, &number))
        return "a whole number from 1 to 200";
    options->triples = (int)number;
    return NULL;
}

static const char *take_time(struct options *options, const char *value)
{
    return spr_parse_time(value, &options->seconds) && options->seconds > 0
               ? NULL
               : "a time such as 500ms or 10s";
}

static const char *take_seed(struct options *options, const char *value)
{
    return whole(value, 0, UINT64_MAX, &options->seed) ? NULL : "a whole number";
}

static const char *take_ranks(struct options *options, const char *value)
{
    uint64_t number;
    if (!whole(value, 2, 65536, &number))
        return "a whole number from 2 to 65536";
    options->ranks = (int)number;
    return NULL;
}

static const char *take_share(struct options *options, const char *value)
{
    uint64_t number;
    if (!whole(value, 1, 1024, &number))
        return "a whole number from 1 to 1024";
    options->share = (int)number;
    return NULL;
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
    {"quick", 0, NULL, take_quick, "5 triples, 1M, 1%, as far as not said otherwise"},
    {"lines", 0, NULL, take_lines,
     "run the lines 'OPERATION DENSITY' of standard input, each\n"
     "once, and print the microseconds; for programs"},
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

static enum options_next complain(int found, char **words)
{
    char text[128];

    option_rows_complaint(rows, ROW_COUNT, found, words, text, sizeof text);
    return wrong("%s", text);
}

static bool was_used(int used, const char *name)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (used >> i & 1 && rows[i].name != NULL && strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

/* It needs a job, and one vector. */
static enum options_next check_choose(const struct options *options, int used)
{
    static const char *const of_data[] = {"elements", "distribution", "seed"};
    int kinds = 0;

    if (options->ranks == 0 || !(options->link_bps > 0))
        return wrong("choose needs --%s", options->ranks == 0 ? "ranks N" : "link RATE");
    for (size_t i = 0; options->word_count > 0 && i < SPR_ARRAY_LEN(of_data); i++)
        if (was_used(used, of_data[i]))
            return wrong("choose takes --%s, or a file", of_data[i]);
    for (int i = 0; i < DATA_KINDS; i++)
        kinds += options->distributions[i];
    if (options->size_count > 1 || kinds > 1)
        return wrong("choose takes one %s", kinds > 1 ? "distribution" : "number of elements");
    return OPTIONS_RUN;
}

/* What was not said; and only what the command has. */
static enum options_next complete(struct options *options, int used)
{
    static const double densities[] = {0.001, 0.01, 0.1};
    static const size_t sizes[] = {(size_t)1 << 20, (size_t)10 << 20, 25557032};
    bool bench = options->command == COMMAND_BENCH, any = false;

    for (int i = 0; i < ROW_COUNT; i++)
        if (used >> i & 1 && rows[i].name != NULL && !has_option(options->command, rows[i].name))
            return wrong("--%s is not an option of %s", rows[i].name,
                         commands[options->command].name);
    if (options->size_count == 0) {
        options->size_count = bench && !options->quick ? 3 : 1;
        memcpy(options->sizes, sizes, sizeof(sizes));
    }
    if (options->density_count == 0) {
        options->density_count = options->quick ? 1 : 3;
        memcpy(options->densities, options->quick ? densities + 1 : densities,
               (size_t)options->density_count * sizeof(double));
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
        return wrong("--json: this program was built without libjansson");
#endif
    return options->command == COMMAND_CHOOSE ? check_choose(options, used) : OPTIONS_RUN;
}

static enum options_next take_words(struct options *options, int count, char **words)
{
    int command = 0;

    if (count == 0)
        return wrong("a command is missing: bench, compare, try, choose or list");
    while (command < COMMAND_COUNT && strcmp(words[0], commands[command].name) != 0)
        command++;
    if (command == COMMAND_COUNT)
        return wrong("unknown command '%s'; there is bench, compare, try, choose and list",
                     words[0]);
    options->command = (enum command)command;
    if (count - 1 < commands[command].fewest || count - 1 > commands[command].most)
        return wrong("%s takes %s, not %d word%s", words[0], commands[command].words, count - 1,
                     spr_plural((uint64_t)(count - 1)));
    for (int i = 1; i < count; i++)
        options->words[options->word_count++] = words[i];
    return OPTIONS_RUN;
}

static enum options_next parse_words(struct options *options, int count, char **words)
{
    struct option longs[ROW_COUNT + 1];
    char letters[2 * ROW_COUNT + 4];
    enum options_next next;
    int found, used = 0;

    option_rows_tables(rows, ROW_COUNT, ":", longs, letters);
    while ((found = getopt_long(count, words, letters, longs, NULL)) != -1) {
        const struct option_row *row = option_rows_find(rows, ROW_COUNT, found);
        if (row == NULL || found == ':')
            return complain(found, words);
        if (row->take == NULL) {
            if (row->letter == 'h')
                print_help();
            else
                printf("sparring-codec %s\n", spr_version());
            return OPTIONS_SHOWN;
        }
        const char *wanted = row->take(options, optarg);
        if (wanted != NULL)
            return wrong("--%s wants %s, not '%s'", row->name, wanted, optarg);
        used |= 1 << (row - rows);
    }
    next = take_words(options, count - optind, words + optind);
    return next == OPTIONS_RUN ? complete(options, used) : next;
}

enum options_next options_parse(struct options *options, int argc, char **argv)
{
    /* getopt_long sorts the words; JSON shows them as they were. */
    char **words = calloc((size_t)argc + 1, sizeof *words);
    enum options_next next;

    if (words == NULL)
        return wrong("out of memory");
    memcpy(words, argv, (size_t)argc * sizeof *words);
    *options =
        (struct options){.seed = 1, .share = 1, .latency = 50e-6, .argc = argc, .argv = argv};
    next = parse_words(options, argc, words);
    free(words);
    return next;
}
