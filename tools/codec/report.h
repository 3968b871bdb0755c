/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What `sparring-codec bench` found: a table as it goes, then CSV, JSON and plots.
 */
#ifndef SPR_TOOLS_CODEC_REPORT_H
#define SPR_TOOLS_CODEC_REPORT_H

#include <stdio.h>

#include "tools/codec/goals.h"
#include "tools/codec/measure.h"
#include "tools/codec/options.h"

/* A row. Numbers that do not apply are NAN. */
struct result {
    char operation[OPERATION_NAME_BYTES];
    size_t elements;
    enum data data;
    double density;
    int threads;
    enum reference reference;
    struct figures figures;
    double gbps;       /* 1e9 bytes of input per second, 4 for each element or item */
    double items_rate; /* 1e6 indices or inputs per second */
    double to_memcpy;  /* time over that of a copy of the vector with as many threads */
    double bits, error;
    double wanted;  /* at most this ratio, or at least this many 1e6 items per second */
    double reached; /* the number that `wanted` is of */
    bool met;
    char failure[ERROR_BYTES]; /* "": it was measured */
};

struct report {
    const struct options *options;
    FILE *csv, *json; /* NULL = nowhere */
    struct result *rows;
    size_t count, room;
    int wrong; /* rows that failed */
};

/* False: one line on standard error. */
bool report_open(struct report *report, const struct options *options);
void report_header(const struct report *report);
/* Prints it, too. */
bool report_add(struct report *report, const struct result *row);
/* Footer, and the files. */
bool report_close(struct report *report, bool complete);

/* The goal of a row, or NAN. */
void result_judge(struct result *row, const struct trial *trial);
const char *reference_name(enum reference reference);

/* False: it could not be written. */
bool json_write_bench(const struct report *report);
bool csv_write(const struct report *report);
/* A file for each size and distribution. Says what is wrong itself. */
bool svg_write(const struct report *report);

/* Standard output for "-", else the file is made; NULL: one line on standard error. */
FILE *output_open(const char *path);
/* False: one line on standard error. */
bool output_close(FILE *file, const char *path, bool written);

#endif
