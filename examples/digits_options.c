/* SPDX-License-Identifier: BSD-2-Clause */
#include "digits_options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sparring/version.h>

typedef enum option_kind {
    COUNT,   /* uint64_t, at least 1 */
    NATURAL, /* uint64_t */
    REAL,    /* double, at least 0 */
    TEXT,    /* const char * */
    FLAG,    /* bool */
    CODEC,   /* appends to the codecs */
    STEPS,   /* sets the list of steps */
    HELP,
    VERSION
} option_kind;

/* One row per option: the parser and --help are made from this table. */
typedef struct option_row {
    const char *name;
    option_kind kind;
    size_t offset;        /* of the field; unused for lists */
    const char *argument; /* as shown by --help; NULL: takes none */
    const char *help;
} option_row;

#define FIELD(name) offsetof(digits_options, name)

static const option_row rows[] = {
    {"epochs", COUNT, FIELD(epochs), "N", "reports of loss and accuracy per method [10; quick: 2]"},
    {"steps-per-epoch", COUNT, FIELD(steps_per_epoch), "N",
     "steps between two reports [60; quick: 20]"},
    {"batch", COUNT, FIELD(batch), "N", "images per rank and step [16]"},
    {"lr", REAL, FIELD(rate), "RATE", "peak learning rate, after warm-up and before decay [0.15]"},
    {"momentum", REAL, FIELD(momentum), "M",
     "of the averaged gradient, unless a codec has its own; 0 <= M < 1 [0.9]"},
    {"seed", NATURAL, FIELD(seed), "N", "for weights, images and their order [1]"},
    {"mnist", TEXT, FIELD(mnist), "DIR", "read MNIST's IDX files from DIR [draw digits]"},
    {"method", TEXT, FIELD(method_list), "LIST",
     "train by each: dense, or a codec [dense,topk:ratio=1%,topk:ratio=0.1%]"},
    {"codec", CODEC, 0, "SPEC",
     "add a codec to the methods, or A;B;C: in each epoch the fastest of them, or dense; may be "
     "repeated"},
    {"quick", FLAG, FIELD(quick), NULL,
     "fewer steps, under half a minute: too few for compressed training to catch up"},
    {"check", FLAG, FIELD(check), NULL,
     "exit 1 when any other method is more than a point less accurate than dense"},
    {"quality", FLAG, FIELD(quality), NULL,
     "after each codec, what it made of the gradient of each layer"},
    {"dump-gradients", TEXT, FIELD(dump), "DIR",
     "write gradients of the first method, for sparring-perf --pattern trace:DIR"},
    {"dump-steps", STEPS, 0, "LIST", "which steps to write, from 0 [the last of each epoch]"},
    {"json", TEXT, FIELD(json), "FILE", "write the results as JSON; - is standard output"},
    {"help", HELP, 0, NULL, "print this and exit"},
    {"version", VERSION, 0, NULL, "print the version and exit"},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static _Noreturn void usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void usage_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("train_digits: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs(" (--help lists the options)\n", stderr);
    va_end(arguments);
    exit(2);
}

static _Noreturn void print_help(void)
{
    puts("Usage: train_digits [options]\n"
         "Train a network on images of digits, data-parallel over the ranks of the job, once per\n"
         "method of averaging gradients, and compare loss, accuracy, time and bytes.\n");
    for (size_t i = 0; i < ROWS; i++) {
        char left[40];
        snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].argument ? " " : "",
                 rows[i].argument ? rows[i].argument : "");
        printf("  %-22s  %s\n", left, rows[i].help);
    }
    puts("\nStart it as ranks with any launcher, e.g. sparring-run -n 4 --emulate 1gbit -- "
         "train_digits;\nwithout one it is a job of one rank.");
    exit(0);
}

static uint64_t parse_natural(const char *name, const char *text, uint64_t least)
{
    const unsigned long long most = 1000000000;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value < least || value > most)
        usage_error("--%s: '%s' is not a number from %llu to %llu", name, text,
                    (unsigned long long)least, most);
    return value;
}

static double parse_real(const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value < 1e6))
        usage_error("--%s: '%s' is not a number from 0 to 1e6", name, text);
    return value;
}

static void add_method(digits_options *options, const char *text, size_t length)
{
    if (length == 0)
        usage_error("an empty name among the methods");
    if (options->methods == METHODS_MAX)
        usage_error("more than %d methods", METHODS_MAX);
    char *copy = strndup(text, length);
    if (!copy)
        usage_error("no memory");
    options->method[options->methods++] = copy;
}

/*
 * Split at commas, except at those inside a codec string: NAME=VALUE after a comma is one more
 * option of the codec before it, since a method itself starts with a name alone or NAME:.
 */
static void parse_methods(digits_options *options, const char *text)
{
    const char *start = text;

    for (const char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ','))
        if (comma[1 + strcspn(comma + 1, ",:=")] != '=') {
            add_method(options, start, (size_t)(comma - start));
            start = comma + 1;
        }
    add_method(options, start, strlen(start));
}

static void parse_steps(digits_options *options, const char *text)
{
    char *copy = strdup(text), *rest = copy, *item;

    options->dump_steps = 0;
    while ((item = strsep(&rest, ","))) {
        if (options->dump_steps == DUMP_STEPS_MAX)
            usage_error("--dump-steps: more than %d steps", DUMP_STEPS_MAX);
        options->dump_step[options->dump_steps++] = parse_natural("dump-steps", item, 0);
    }
    free(copy);
}

static void parse_row(digits_options *options, const option_row *row, const char *text)
{
    void *field = (char *)options + row->offset;

    switch (row->kind) {
    case COUNT:
        *(uint64_t *)field = parse_natural(row->name, text, 1);
        break;
    case NATURAL:
        *(uint64_t *)field = parse_natural(row->name, text, 0);
        break;
    case REAL:
        *(double *)field = parse_real(row->name, text);
        break;
    case TEXT:
        *(const char **)field = text;
        break;
    case FLAG:
        *(bool *)field = true;
        break;
    case CODEC:
        if (options->codecs == METHODS_MAX)
            usage_error("more than %d codecs", METHODS_MAX);
        options->codec[options->codecs++] = text;
        break;
    case STEPS:
        parse_steps(options, text);
        break;
    case HELP:
        print_help();
    case VERSION:
        puts("train_digits (sparring) " SPR_VERSION_STRING);
        exit(0);
    }
}

/* What was not given, and the methods in their order: the list, then the codecs. */
static void complete(digits_options *options)
{
    if (options->epochs == 0)
        options->epochs = options->quick ? 2 : 10;
    if (options->steps_per_epoch == 0)
        options->steps_per_epoch = options->quick ? 20 : 60;
    parse_methods(options, options->method_list);
    for (size_t i = 0; i < options->codecs; i++)
        add_method(options, options->codec[i], strlen(options->codec[i]));
}

/* Arguments that are right by themselves but not together. */
static void check_together(const digits_options *options)
{
    const uint64_t longest = UINT64_C(1) << 40;
    size_t missing = options->methods;

    if (options->epochs > longest / options->steps_per_epoch / options->batch)
        usage_error("more than %llu images per rank", (unsigned long long)longest);
    if (options->momentum >= 1)
        usage_error("--momentum: must be below 1");
    if (options->dump_steps > 0 && !options->dump)
        usage_error("--dump-steps needs --dump-gradients");
    for (size_t i = 0; i < options->dump_steps; i++)
        if (options->dump_step[i] >= options->epochs * options->steps_per_epoch)
            usage_error("--dump-steps: no step %llu, the last one is %llu",
                        (unsigned long long)options->dump_step[i],
                        (unsigned long long)(options->epochs * options->steps_per_epoch - 1));
    for (size_t i = 0; i < options->methods; i++)
        if (digits_options_find(options, options->method[i]) != i)
            usage_error("method '%s' is there twice", options->method[i]);
    if (options->check &&
        (digits_options_find(options, METHOD_DENSE) == missing || options->methods < 2))
        usage_error("--check needs the method %s, and another one", METHOD_DENSE);
}

void digits_options_parse(digits_options *options, int argc, char **argv)
{
    struct option longs[ROWS + 1] = {{0}};
    int row = 0;

    *options = (digits_options){
        .batch = 16,
        .seed = 1,
        .rate = 0.15,
        .momentum = 0.9,
        .method_list = METHOD_DENSE ",topk:ratio=1%,topk:ratio=0.1%",
    };
    for (size_t i = 0; i < ROWS; i++)
        longs[i] = (struct option){rows[i].name, rows[i].argument ? required_argument : no_argument,
                                   &row, (int)i};
    for (;;) {
        int code = getopt_long(argc, argv, "", longs, NULL);
        if (code == -1)
            break;
        if (code != 0)
            exit(2); /* getopt_long said why */
        parse_row(options, &rows[row], optarg);
    }
    if (optind < argc)
        usage_error("unexpected argument '%s'", argv[optind]);
    complete(options);
    check_together(options);
}

void digits_options_free(digits_options *options)
{
    for (size_t i = 0; i < options->methods; i++)
        free(options->method[i]);
    options->methods = 0;
}

bool digits_options_dumps(const digits_options *options, uint64_t step)
{
    if (!options->dump)
        return false;
    if (options->dump_steps == 0)
        return (step + 1) % options->steps_per_epoch == 0;
    for (size_t i = 0; i < options->dump_steps; i++)
        if (options->dump_step[i] == step)
            return true;
    return false;
}

size_t digits_options_find(const digits_options *options, const char *method)
{
    size_t i = 0;
    while (i < options->methods && strcmp(options->method[i], method) != 0)
        i++;
    return i;
}
