/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-trace: reads the flight recorders of a job.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/streams.h"
#include "tools/trace/trace.h"

struct options {
    int rank;    /* -1 = all */
    size_t most; /* events */
};

static int print_verdict(const struct trace_set *set, const struct options *options)
{
    char line[TRACE_TEXT_BYTES], *facts = NULL;
    size_t bytes = 0;
    FILE *evidence = open_memstream(&facts, &bytes);

    (void)options;
    trace_verdict(set, line, evidence);
    if (evidence)
        fclose(evidence);
    printf("%s\n%s", line, facts ? facts : "");
    free(facts);
    return 0;
}

static int print_events(const struct trace_set *set, const struct options *options)
{
    if (options->rank >= 0 && (options->rank >= set->size || !set->ranks[options->rank])) {
        fprintf(stderr, "sparring-trace: there is no file of rank %d\n", options->rank);
        return 1;
    }
    trace_dump(set, options->rank, options->most, stdout);
    return 0;
}

static int print_json(const struct trace_set *set, const struct options *options)
{
    (void)options;
    trace_json(set, stdout);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(const struct trace_set *set, const struct options *options);
    bool picks; /* takes --rank and --last */
} commands[] = {
    {"verdict", print_verdict, false}, {"dump", print_events, true}, {"json", print_json, false}};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void)
{
    puts("Usage: sparring-trace verdict DIR\n"
         "       sparring-trace dump DIR|FILE [--rank R] [--last N]\n"
         "       sparring-trace json DIR|FILE\n"
         "Reads the flight recorders that the ranks of a job kept in DIR (SPARRING_TRACE_DIR).\n\n"
         "  verdict  one line that names who is to blame, then the evidence\n"
         "  dump     the events of all ranks in the order of time\n"
         "  json     the same for chrome://tracing and ui.perfetto.dev\n\n"
         "      --rank R   events of this rank only\n"
         "      --last N   the last N events only\n"
         "  -h, --help     print this text\n"
         "  -V, --version  print the version");
}

static int wrong(const char *text, const char *detail)
{
    fprintf(stderr, "sparring-trace: %s%s (see --help)\n", text, detail);
    return 2;
}

static bool parse_number(const char *text, unsigned long most, unsigned long *number)
{
    char *end;

    errno = 0;
    *number = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number <= most;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct options *options, bool *picked)
{
    static const struct option longs[] = {{"rank", required_argument, NULL, 'r'},
                                          {"last", required_argument, NULL, 'n'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {0}};
    unsigned long number;
    int code;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":hV", longs, NULL)) != -1) {
        if (code == 'h') {
            print_help();
            return 0;
        }
        if (code == 'V') {
            printf("sparring-trace (Sparring) %s\n", PACKAGE_VERSION);
            return 0;
        }
        if (code == ':')
            return wrong("a value is missing after ", argv[optind - 1]);
        if (code == '?')
            return wrong("unknown option ", argv[optind - 1]);
        if (!parse_number(optarg, code == 'r' ? 65535 : 1ul << 31, &number))
            return wrong(code == 'r' ? "--rank wants a rank, not " : "--last wants a number, not ",
                         optarg);
        *picked = true;
        if (code == 'r')
            options->rank = (int)number;
        else
            options->most = number;
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct options options = {.rank = -1, .most = SIZE_MAX};
    struct trace_set set;
    char error[TRACE_TEXT_BYTES];
    bool picked = false, made;
    int code, command = 0;

    streams_open();
    code = parse(argc, argv, &options, &picked);
    if (code >= 0)
        return streams_close("sparring-trace", code);
    while (command < COMMANDS && optind < argc && strcmp(argv[optind], commands[command].name) != 0)
        command++;
    if (optind >= argc)
        return wrong("what to do? verdict, dump or json", "");
    if (command == COMMANDS)
        return wrong("unknown command ", argv[optind]);
    if (argc - optind != 2)
        return wrong("one directory or file is wanted after ", commands[command].name);
    if (picked && !commands[command].picks)
        return wrong("--rank and --last are for dump, not for ", commands[command].name);
    made = trace_set_read(&set, argv[optind + 1], error, sizeof error);
    if (*error)
        fprintf(stderr, "sparring-trace: %s\n", error);
    if (!made)
        return 1;
    code = commands[command].run(&set, &options);
    trace_set_free(&set);
    return streams_close("sparring-trace", code);
}
