/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of a tool: its options are a table, its other words are its own affair.
 */
#ifndef SPR_TOOLS_COMMAND_LINE_H
#define SPR_TOOLS_COMMAND_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "tools/option_rows.h"

/* What differs from tool to tool. Each has one, by this name. */
struct tool {
    const char *name;
    const struct option_row *rows; /* 64 at most */
    int row_count;
    void (*print_help)(void);
    /* After the options: the words that are none. `used` has a bit for each row that was there. */
    enum options_next (*complete)(struct options *options, uint64_t used, int count, char **words);
    bool (*is_silent)(void); /* NULL: never; of a job, one rank speaks for all */
};
extern const struct tool tool;

/* Parse, over defaults that are in `options` already. `argv` keeps its order. */
enum options_next command_line_parse(struct options *options, int argc, char **argv);
/* "TOOL: ... (see --help)" on standard error, unless it is silent. Returns OPTIONS_WRONG. */
enum options_next options_wrong(const char *format, ...) SPR_PRINTF(1, 2);
/* For main(): is that all that the tool has to do? *code: how it ends then. */
bool options_end(enum options_next next, int *code);
/* Was the option of this name there? `used` as in complete(). */
bool options_used(uint64_t used, const char *name);
/* A take_fn that has printed what was asked for returns this: the tool then ends. */
extern const char option_shown[];

/* Values. False: it is none. ---------------------------------------------------------------------
 */

bool option_whole(const char *text, uint64_t low, uint64_t high, uint64_t *number);
bool option_int(const char *text, int low, int high, int *number);

/* Word i of a list. */
typedef bool option_word_fn(const char *word, size_t i, void *values);
/* A list with commas, of words below 32 bytes. Returns how many there are; 0: they are more than
 * `most`, or one is not taken. */
size_t option_list(const char *value, size_t most, option_word_fn *take, void *values);
/* An option_word_fn: a ratio in (0, 1]; into an array of double. */
bool option_density(const char *word, size_t i, void *densities);

#endif
