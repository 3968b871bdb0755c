/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/options.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "compress/codec.h"
#include "tools/command_line.h"
#include "tools/first_rank.h"
#include "tools/perf/options_check.h"

/* Takes the value of one option. Returns NULL, or what the option wants to see. */

static bool size(const char *value, size_t low, size_t *bytes)
{
    size_t parsed;
    if (!spr_parse_size(value, &parsed) || parsed < low || parsed > (size_t)1 << 48)
        return false;
    *bytes = parsed;
    return true;
}

#define WANTS_SIZE "a size such as 64, 4K, 16M or 1G"

static const char *take_begin(struct options *options, const char *value)
{
    return size(value, 1, &options->begin_bytes) ? NULL : WANTS_SIZE;
}

static const char *take_end(struct options *options, const char *value)
{
    return size(value, 1, &options->end_bytes) ? NULL : WANTS_SIZE;
}

static const char *take_increment(struct options *options, const char *value)
{
    options->factor = 0;
    return size(value, 1, &options->increment_bytes) ? NULL : WANTS_SIZE;
}

static const char *take_elements(struct options *options, const char *value)
{
    return size(value, 1, &options->elements) ? NULL : "a number of elements, such as 25557032";
}

static const char *take_factor(struct options *options, const char *value)
{
    double factor;
    if (!spr_parse_double(value, &factor) || factor < 1.01)
        return "a factor of at least 1.01";
    options->factor = factor;
    return NULL;
}

static const char *take_iterations(struct options *options, const char *value)
{
    return option_int(value, 1, 1000000, &options->iterations) ? NULL
                                                               : "a whole number from 1 to 1000000";
}

static const char *take_warmup(struct options *options, const char *value)
{
    return option_int(value, 0, 1000000, &options->warmup) ? NULL
                                                           : "a whole number from 0 to 1000000";
}

static const char *take_check(struct options *options, const char *value)
{
    int number;
    if (!option_int(value, 0, 1, &number))
        return "0 or 1";
    options->check = number == 1;
    return NULL;
}

static const char *take_dtype(struct options *options, const char *value)
{
    return spr_dtype_parse(value, &options->dtype) == SPR_OK
               ? NULL
               : "fp32, fp64, fp16, bf16, int32 or int64";
}

static const char *take_op(struct options *options, const char *value)
{
    return spr_op_parse(value, &options->op) == SPR_OK ? NULL : "sum, avg, min or max";
}

static void print_algorithms(void)
{
    for (int kind = 0; kind < KIND_COMPRESSED; kind++) {
        printf("%-17s auto", kind_names[kind]);
        for (int i = 0; spr_algorithm_name(kind_names[kind], i) != NULL; i++)
            printf(" %s", spr_algorithm_name(kind_names[kind], i));
        putchar('\n');
    }
    puts("compressed_allreduce takes those of sparse_allreduce, or of allreduce when the codec\n"
         "sends every element.");
}

static const char *take_algorithm(struct options *options, const char *value)
{
    if (strcmp(value, "help") == 0) {
        if (first_rank())
            print_algorithms();
        return option_shown;
    }
    options->algorithm = value;
    return *value != '\0' ? NULL : "auto, all, help or the name of an algorithm";
}

static const char *take_transports(struct options *options, const char *value)
{
    options->transports = value;
    return *value != '\0' ? NULL : "auto or a list such as shm,verbs,epoll";
}

static const char *take_codec(struct options *options, const char *value)
{
    if (strcmp(value, "help") == 0) {
        if (first_rank())
            spr_codec_help(stdout);
        return option_shown;
    }
    options->codec = value;
    return *value != '\0' ? NULL : "help or a codec such as topk:ratio=1%+fp16";
}

static const char *take_buckets(struct options *options, const char *value)
{
    uint64_t number;
    if (!option_whole(value, 1, MAX_BUCKETS, &number))
        return "a whole number from 1 to 1024";
    options->buckets = (size_t)number;
    return NULL;
}

static const char *take_densities(struct options *options, const char *value)
{
    options->density_count = option_list(value, MAX_DENSITIES, option_density, options->densities);
    return options->density_count > 0
               ? NULL
               : "a list of at most 32 ratios in (0, 1], such as 0.1%,1%,0.1";
}

static const char *take_seed(struct options *options, const char *value)
{
    return option_whole(value, 0, INT64_MAX, &options->seed) ? NULL : "a whole number below 2^63";
}

static const char *take_pattern(struct options *options, const char *value)
{
    if (pattern_parse(value, &options->pattern))
        return NULL;
    if (strncmp(value, "trace:", 6) != 0 || value[6] == '\0')
        return "uniform, layers, cluster, zipf or trace:DIRECTORY";
    options->pattern = PATTERN_TRACE;
    options->trace_directory = value + 6;
    return NULL;
}

static const char *take_overlap(struct options *options, const char *value)
{
    /* A plain number is a percentage too. */
    size_t length = strlen(value);
    double percent;
    char word[32];
    snprintf(word, sizeof word, "%.*s",
             (int)(length > 0 && value[length - 1] == '%' ? length - 1 : length), value);
    if (length >= sizeof word || !spr_parse_double(word, &percent) ||
        !(percent >= 0 && percent <= 100))
        return "a percentage from 0 to 100";
    options->overlap = percent / 100;
    return NULL;
}

static const char *take_result(struct options *options, const char *value)
{
    bool both = strcmp(value, "both") == 0;
    options->list_result = both || strcmp(value, "list") == 0;
    options->dense_result = both || strcmp(value, "dense") == 0;
    return options->list_result || options->dense_result ? NULL : "dense, list or both";
}

static const char *take_baseline(struct options *options, const char *value)
{
    (void)value;
    options->baseline = true;
    return NULL;
}

static const char *take_explain(struct options *options, const char *value)
{
    (void)value;
    options->explain = true;
    return NULL;
}

static const char *take_tune(struct options *options, const char *value)
{
    (void)value;
    options->tune = true;
    return NULL;
}

static const char *take_elastic(struct options *options, const char *value)
{
    (void)value;
    options->elastic = true;
    return NULL;
}

static const char *take_json(struct options *options, const char *value)
{
    options->json = value;
    return *value != '\0' ? NULL : "the name of a file, or - for standard output";
}

/* getopt's table and --help are both made from this one. A row without a name is a heading. */
static const struct option_row rows[] = {
    {NULL, 0, NULL, NULL, "Sizes of the dense vector (K, M, G are binary)"},
    {"begin", 'b', "BYTES", take_begin, "smallest size [1K]"},
    {"end", 'e', "BYTES", take_end, "largest size [16M]"},
    {"factor", 'f', "F", take_factor, "from one size to the next [4]"},
    {"increment", 'i', "BYTES", take_increment, "from one size to the next, instead of -f"},
    {"elements", 0, "N", take_elements, "one size, in elements"},
    {NULL, 0, NULL, NULL, "Measurement"},
    {"iterations", 'n', "N", take_iterations, "per row [20, fewer when they are long]"},
    {"warmup", 'w', "N", take_warmup, "iterations before those [2]"},
    {"check", 'c', "0|1", take_check, "check the result of one more iteration [1]"},
    {"datatype", 'd', "TYPE", take_dtype, "fp32, fp64, fp16, bf16, int32, int64 [fp32]"},
    {"op", 'o', "OP", take_op, "sum, avg, min, max [sum; compressed_allreduce: avg]"},
    {"algo", 0, "LIST", take_algorithm, "auto, all, names, or help for them [auto]"},
    {"transport", 0, "LIST", take_transports, "auto, or a list of shm, verbs, uring, epoll [auto]"},
    {"explain", 0, NULL, take_explain,
     "choose by a model of links and CPUs, which is measured first\n"
     "unless SPARRING_MODEL gives one; compare it with the times"},
    {"tune", 0, NULL, take_tune,
     "have auto take what is the fastest for a row: first all that\n"
     "can do it are measured (spr_comm_tune_for)"},
    {"seed", 0, "N", take_seed, "of the data [1]"},
    {"elastic", 0, NULL, take_elastic,
     "survive deaths: allreduce of one size, each sum checked;\nwith sparring-run --restart"},
    {NULL, 0, NULL, NULL, "Sparse and compressed"},
    {"density", 0, "LIST", take_densities, "parts of the elements that are sent [1%]"},
    {"codec", 0, "SPEC", take_codec,
     "of compressed_allreduce, or help for a list [topk];\n"
     "topk without a ratio takes those of --density"},
    {"buckets", 0, "N", take_buckets,
     "of compressed_allreduce: post the gradient as N buckets,\n"
     "and say how much of their communication is hidden"},
    {"pattern", 0, "NAME", take_pattern,
     "where the non-zeros are: uniform, layers, cluster, zipf,\n"
     "or trace:DIR for the gradients in DIR [uniform]"},
    {"overlap", 0, "PCT", take_overlap, "part of the non-zeros that all ranks share [0]"},
    {"result", 0, "FORM", take_result, "of sparse_allreduce: dense, list, both [dense]"},
    {"baseline", 0, NULL, take_baseline, "measure dense allreduce beside each, with a verdict"},
    {NULL, 0, NULL, NULL, "Output"},
    {"json", 0, "FILE", take_json, "also write JSON; - = standard output"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static void print_help(void)
{
    puts("Usage: sparring-perf [COLLECTIVE] [options]\n"
         "Measures a collective. Started as the ranks of a job by sparring-run or another "
         "launcher.\n"
         "\nCollectives:\n"
         "  allreduce (default), reduce_scatter, allgather, broadcast, barrier,\n"
         "  sendrecv              from each rank to the next\n"
         "  sparse_allreduce      exact sum of (index, value) lists\n"
         "  compressed_allreduce  dense gradient in, codec with error feedback, average out");
    option_rows_print(rows, ROW_COUNT, 23);
    puts("\nThe exit code is 0, 1 after a wrong result or a failed operation, 2 for wrong usage.");
}

static bool is_silent(void) { return !first_rank(); }

const struct tool tool = {.name = "sparring-perf",
                          .rows = rows,
                          .row_count = ROW_COUNT,
                          .print_help = print_help,
                          .complete = options_complete,
                          .is_silent = is_silent};

enum options_next options_parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.warmup = 2,
                                .check = true,
                                .op = -1,
                                .algorithm = "auto",
                                .codec = "topk",
                                .seed = 1,
                                .factor = 4,
                                .dense_result = true,
                                .command = argv,
                                .command_words = argc};
    return command_line_parse(options, argc, argv);
}
