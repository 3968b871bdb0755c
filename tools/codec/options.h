/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of sparring-codec.
 */
#ifndef SPR_TOOLS_CODEC_OPTIONS_H
#define SPR_TOOLS_CODEC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/codec/data.h"
#include "tools/option_rows.h"

enum command {
    COMMAND_BENCH,
    COMMAND_COMPARE,
    COMMAND_TRY,
    COMMAND_CHOOSE,
    COMMAND_LIST,
    COMMAND_COUNT
};

enum { MAX_SIZES = 16, MAX_DENSITIES = 16, MAX_THREAD_COUNTS = 8, MAX_WORDS = 2 };

struct options {
    enum command command;
    const char *words[MAX_WORDS]; /* what follows the command */
    int word_count;
    size_t sizes[MAX_SIZES];
    size_t size_count;
    double densities[MAX_DENSITIES];
    size_t density_count;
    bool distributions[DATA_KINDS];
    int threads[MAX_THREAD_COUNTS];
    size_t thread_count;
    const char *filter; /* NULL: everything */
    bool quick, lines, goals;
    int triples;
    double seconds; /* of an operation, at most */
    uint64_t seed;
    /* Of choose: */
    int ranks, share; /* share: ranks on a CPU */
    double link_bps, latency;
    double error, bytes;          /* at most; 0: any */
    const char *codecs;           /* separated by ';' */
    const char *csv, *json, *svg; /* NULL: not wanted */
    char **argv;
    int argc;
};

/* One line on standard error when something is wrong. */
enum options_next options_parse(struct options *options, int argc, char **argv);

#endif
