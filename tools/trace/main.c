/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-trace: reads the flight recorders of a job.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command_line.h"
#include "tools/streams.h"
#include "tools/trace/trace.h"

struct options {
    int rank;         /* -1 = all */
    size_t most;      /* events */
    int command;      /* of commands[] */
    const char *path; /* of a file or directory */
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

static const char *take_rank(struct options *options, const char *value)
{
    return option_int(value, 0, 65535, &options->rank) ? NULL : "a rank";
}

static const char *take_last(struct options *options, const char *value)
{
    uint64_t number;

    if (!option_whole(value, 0, UINT64_C(1) << 31, &number))
        return "a number";
    options->most = (size_t)number;
    return NULL;
}

static const struct option_row rows[] = {
    {"rank", 0, "R", take_rank, "events of this rank only"},
    {"last", 0, "N", take_last, "the last N events only"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

static void print_help(void)
{
    puts("Usage: sparring-trace verdict DIR\n"
         "       sparring-trace dump DIR|FILE [--rank R] [--last N]\n"
         "       sparring-trace json DIR|FILE\n"
         "Reads the flight recorders that the ranks of a job kept in DIR (SPARRING_TRACE_DIR).\n\n"
         "  verdict  one line that names who is to blame, then the evidence\n"
         "  dump     the events of all ranks in the order of time\n"
         "  json     the same for chrome://tracing and ui.perfetto.dev\n");
    option_rows_print(rows, SPR_ARRAY_LEN(rows), 14);
}

static enum options_next complete(struct options *options, uint64_t used, int count, char **words)
{
    if (count == 0)
        return options_wrong("what to do? verdict, dump or json");
    while (options->command < COMMANDS && strcmp(words[0], commands[options->command].name) != 0)
        options->command++;
    if (options->command == COMMANDS)
        return options_wrong("unknown command %s", words[0]);
    if (count != 2)
        return options_wrong("one directory or file is wanted after %s", words[0]);
    if (used != 0 && !commands[options->command].picks)
        return options_wrong("--rank and --last are for dump, not for %s", words[0]);
    options->path = words[1];
    return OPTIONS_RUN;
}

const struct tool tool = {.name = "sparring-trace",
                          .rows = rows,
                          .row_count = SPR_ARRAY_LEN(rows),
                          .print_help = print_help,
                          .complete = complete};

int main(int argc, char **argv)
{
    struct options options = {.rank = -1, .most = SIZE_MAX};
    struct trace_set set;
    char error[TRACE_TEXT_BYTES];
    int code;

    streams_open();
    if (options_end(command_line_parse(&options, argc, argv), &code))
        return code;
    bool made = trace_set_read(&set, options.path, error, sizeof error);
    if (*error)
        fprintf(stderr, "sparring-trace: %s\n", error);
    if (!made)
        return 1;
    code = commands[options.command].run(&set, &options);
    trace_set_free(&set);
    return streams_close(tool.name, code);
}
