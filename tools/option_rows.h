/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The options of a tool as a table: one row gives an option to getopt_long, to --help, and to the
 * function that takes its value. Each tool has its own struct options.
 */
#ifndef SPR_TOOLS_OPTION_ROWS_H
#define SPR_TOOLS_OPTION_ROWS_H

#include <getopt.h>
#include <stddef.h>

/* Of options_parse(): do the work, end with exit code 0, end with 2. */
enum options_next { OPTIONS_RUN, OPTIONS_SHOWN, OPTIONS_WRONG };

struct options;
/* NULL, or what would be right. */
typedef const char *take_fn(struct options *options, const char *value);

struct option_row {
    const char *name;     /* NULL: a heading, which is in `help` */
    char letter;          /* 0: none */
    const char *argument; /* NULL = takes none */
    take_fn *take;        /* NULL = handled by options_parse */
    const char *help;     /* lines separated by \n */
};

/* --help: headings and options, their texts from column `width` + 3 on. */
void option_rows_print(const struct option_row *rows, int count, int width);
/* For getopt_long: room for count + 1 and 2 * count + 4. `letters` begin with `first`. */
void option_rows_tables(const struct option_row *rows, int count, const char *first,
                        struct option *longs, char *letters);
/* The row that getopt_long has found; NULL: none. */
const struct option_row *option_rows_find(const struct option_row *rows, int count, int found);
/* What is wrong with the word that getopt_long has returned '?' or ':' for; in one line. */
void option_rows_complaint(const struct option_row *rows, int count, int found, char *const *words,
                           char *text, size_t bytes);

#endif
