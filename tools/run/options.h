/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of sparring-run.
 */
#ifndef TOOLS_RUN_OPTIONS_H
#define TOOLS_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/option_rows.h"
#include "tools/run/emulate.h"

/* One machine of --hosts. */
struct machine {
    char *name; /* what the remote shell is given: host or user@host */
    int slots;  /* ranks it may take; 0 = not said */
    int ranks;  /* ranks it gets */
};

struct options {
    int ranks; /* 0 = not said */
    int ranks_per_host;
    int restarts; /* of each rank */
    bool tag;
    bool bind_to_cpu;
    double timeout_s;            /* 0 = none */
    struct emulated_links links; /* of the emulated network */
    const char *congestion;      /* NULL = as the machine has it */
    const char *trace_directory; /* "none" = no flight recorders; NULL = chosen here */
    char *root_host;             /* NULL = chosen here */
    int root_port;               /* 0 = chosen here */
    const char *remote_shell;    /* words separated by blanks */
    struct machine *machines;    /* --hosts; NULL = this machine */
    size_t machine_count;
    char **environment; /* NAME=VALUE strings of --env */
    size_t environment_count;
    char **program; /* argument vector, ends with NULL */
};

/* Fills `options` from the command line. OPTIONS_SHOWN: --help or --version was printed.
 * OPTIONS_WRONG: one line on standard error said what is wrong. */
enum options_next options_parse(struct options *options, int argc, char **argv);
void options_free(struct options *options);

/* The emulated hosts or the machines that the ranks are spread over; 1 without either. */
int options_host_count(const struct options *options);

#endif
