/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run/parse.h"
#include "tools/option_rows.h"

/* Takes the value of one option. Returns NULL, or what the option wants to see. */

static const char *take_ranks(struct options *options, const char *value)
{
    return parse_count(value, 1, 4096, &options->ranks) ? NULL : "a whole number from 1 to 4096";
}

static const char *take_tag(struct options *options, const char *value)
{
    (void)value;
    options->tag = true;
    return NULL;
}

static const char *take_restarts(struct options *options, const char *value)
{
    bool valid = parse_count(value, 0, 1000000, &options->restarts);
    return valid ? NULL : "a whole number from 0 to 1000000";
}

static const char *take_timeout(struct options *options, const char *value)
{
    return parse_seconds(value, &options->timeout_s);
}

static const char *take_environment(struct options *options, const char *value)
{
    size_t length = strcspn(value, "=");
    if (!is_variable_name(value, length))
        return "NAME=VALUE, or NAME to hand the value on as it is here";
    char *entry = NULL;
    if (value[length] == '=')
        entry = strdup(value);
    else if (getenv(value) == NULL)
        return "the name of a variable that is set here";
    else if (asprintf(&entry, "%s=%s", value, getenv(value)) < 0)
        entry = NULL;
    size_t count = options->environment_count + 1;
    char **list = realloc(options->environment, count * sizeof *list);
    if (list != NULL)
        options->environment = list;
    if (entry == NULL || list == NULL) {
        free(entry);
        return "less (memory is short)";
    }
    list[count - 1] = entry;
    options->environment_count = count;
    return NULL;
}

static const char *take_binding(struct options *options, const char *value)
{
    if (strcmp(value, "none") != 0 && strcmp(value, "rank") != 0)
        return "none or rank";
    options->bind_to_cpu = *value == 'r';
    return NULL;
}

static const char *take_root(struct options *options, const char *value)
{
    char *host = NULL;
    const char *wanted = parse_root(value, &host, &options->root_port);
    if (wanted != NULL)
        return wanted;
    free(options->root_host);
    options->root_host = host;
    return NULL;
}

static const char *take_trace_directory(struct options *options, const char *value)
{
    if (*value == '\0')
        return "a directory, or none";
    options->trace_directory = value;
    return NULL;
}

static const char *take_rate(struct options *options, const char *value)
{
    return parse_rates(value, &options->links);
}

static const char *take_ranks_per_host(struct options *options, const char *value)
{
    bool valid = parse_count(value, 1, 4096, &options->ranks_per_host);
    return valid ? NULL : "a whole number from 1 to 4096";
}

static const char *take_congestion(struct options *options, const char *value)
{
    if (*value == '\0' || strlen(value) > 15)
        return "the name of a congestion control, such as cubic";
    options->congestion = value;
    return NULL;
}

static const char *take_hosts(struct options *options, const char *value)
{
    return parse_machines(value, &options->machines, &options->machine_count);
}

static const char *take_host_file(struct options *options, const char *value)
{
    return parse_host_file(value, &options->machines, &options->machine_count);
}

static const char *take_remote_shell(struct options *options, const char *value)
{
    if (value[strspn(value, " \t")] == '\0')
        return "a command";
    options->remote_shell = value;
    return NULL;
}

/* getopt's table and --help are both made from this one. A row without a name is a heading. */
static const struct option_row rows[] = {
    {NULL, 0, NULL, NULL, "Ranks"},
    {"ranks", 'n', "N", take_ranks, "how many ranks to start"},
    {"tag", 't', NULL, take_tag, "prefix each line of output with \"[rank] \""},
    {"timeout", 0, "SECONDS", take_timeout,
     "end the whole job after this time, with exit code 124"},
    {"restart", 0, "N", take_restarts,
     "start a rank that fails again, up to N times, to join the\nothers (spr_comm_grow); all "
     "ranks, while they connect"},
    {"env", 'e', "NAME[=VALUE]", take_environment,
     "set (or hand on) a variable for all ranks; may repeat"},
    {"cpu-bind", 0, "none|rank", take_binding,
     "rank: pin rank i to the i-th allowed CPU, modulo their\nnumber [none]"},
    {"root", 0, "ADDRESS[:PORT]", take_root, "where rank 0 listens [chosen]"},
    {"trace-dir", 0, "DIR|none", take_trace_directory,
     "where the ranks' last events are kept [a private\ndirectory, removed when no rank fails]"},
    {NULL, 0, NULL, NULL, "Emulated network on this machine"},
    {"emulate", 0, "RATE", take_rate,
     "each rank becomes a host of its own, on a link of RATE\n"
     "both ways: 100mbit, 1gbit, 2.5gbit; on two: 1gbit+1gbit;\n"
     "100mbit,1gbit: of the first host, and of all behind it"},
    {"ranks-per-host", 0, "G", take_ranks_per_host, "G ranks share one emulated host [1]"},
    {"cc", 0, "NAME", take_congestion, "TCP congestion control inside the emulated hosts"},
    {NULL, 0, NULL, NULL, "Other machines"},
    {"hosts", 0, "H1,H2:4,...", take_hosts,
     "start ranks there, block by block; :4 = up to four ranks"},
    {"hostfile", 0, "FILE", take_host_file, "the same, a line for each host: H1:4 or H1 slots=4"},
    {"rsh", 0, "COMMAND", take_remote_shell,
     "how to run a command on a host [SPARRING_RSH, or\nssh -o BatchMode=yes]"},
    {NULL, 0, NULL, NULL, "About"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static void print_help(void)
{
    puts("Usage: sparring-run -n N [options] -- PROGRAM [ARGUMENTS]\n"
         "Starts N ranks of a job, here, on emulated hosts or on other machines.");
    option_rows_print(rows, ROW_COUNT, 27);
    puts("\nThe exit code is that of the rank that failed first (128 + signal), 0 when none did.");
}

static enum options_next wrong(const char *text, const char *detail)
{
    fprintf(stderr, "sparring-run: %s%s (see --help)\n", text, detail);
    return OPTIONS_WRONG;
}

/* What does not depend on one option alone. */
static enum options_next check(struct options *options)
{
    bool emulated = options->links.count > 0;
    if (options->machine_count > 0) {
        if (emulated)
            return wrong("--hosts or --hostfile, and --emulate exclude each other", "");
        if (options->bind_to_cpu)
            return wrong("--cpu-bind works on this machine only, not with --hosts or --hostfile",
                         "");
        if (options->restarts > 0)
            return wrong("--restart works on this machine only, not with --hosts or --hostfile",
                         "");
        options->ranks = machines_fill(options->machines, options->machine_count, options->ranks);
        if (options->ranks == 0)
            return wrong("the hosts have fewer places than -n asks for", "");
        if (options->ranks > 4096)
            return wrong("more than 4096 ranks", "");
    }
    if (options->ranks == 0)
        return wrong("how many ranks? -n N is missing", "");
    if (options->remote_shell != NULL && options->machine_count == 0)
        return wrong("--rsh needs --hosts or --hostfile", "");
    if (options->ranks_per_host > 0 && !emulated)
        return wrong("--ranks-per-host needs --emulate", "");
    if (options->congestion != NULL && !emulated)
        return wrong("--cc needs --emulate", "");
    if (emulated && options->ranks_per_host == 0)
        options->ranks_per_host = 1;
    if (options->links.hosts > 1 && options->links.hosts > options_host_count(options))
        return wrong("--emulate names rates of more hosts than there are", "");
    if (emulated && options_host_count(options) > 1000)
        return wrong("a bridge has room for 1000 hosts; use --ranks-per-host", "");
    if (*options->program == NULL)
        return wrong("no program to run", "");
    return OPTIONS_RUN;
}

static enum options_next take(struct options *options, const struct option_row *row,
                              const char *value)
{
    const char *wanted = row->take(options, value);
    if (wanted == NULL)
        return OPTIONS_RUN;
    fprintf(stderr, "sparring-run: --%s wants %s, not '%s'\n", row->name, wanted, value);
    return OPTIONS_WRONG;
}

enum options_next options_parse(struct options *options, int argc, char **argv)
{
    struct option longs[ROW_COUNT + 1];
    char letters[2 * ROW_COUNT + 4], text[128];
    /* The first word that is no option is the program. */
    option_rows_tables(rows, ROW_COUNT, "+:", longs, letters);
    *options = (struct options){0};
    opterr = 0;
    int code;
    while ((code = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        const struct option_row *row = option_rows_find(rows, ROW_COUNT, code);
        if (row == NULL || code == ':') {
            option_rows_complaint(rows, ROW_COUNT, code, argv, text, sizeof text);
            return wrong(text, "");
        }
        if (row->letter == 'h' || row->letter == 'V') {
            if (row->letter == 'h')
                print_help();
            else
                printf("sparring-run (Sparring) %s\n", PACKAGE_VERSION);
            return OPTIONS_SHOWN;
        }
        enum options_next next = take(options, row, optarg);
        if (next != OPTIONS_RUN)
            return next;
    }
    options->program = argv + optind;
    return check(options);
}

void options_free(struct options *options)
{
    machines_free(options->machines, options->machine_count);
    for (size_t i = 0; i < options->environment_count; i++)
        free(options->environment[i]);
    free(options->environment);
    free(options->root_host);
    *options = (struct options){0};
}

int options_host_count(const struct options *options)
{
    if (options->machine_count > 0)
        return (int)options->machine_count;
    if (options->links.count > 0)
        return (options->ranks + options->ranks_per_host - 1) / options->ranks_per_host;
    return 1;
}
