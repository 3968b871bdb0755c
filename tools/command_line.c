/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/command_line.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sparring/version.h>

#include "base/opt.h"
#include "tools/streams.h"

enum { MOST_ROWS = 64 };

const char option_shown[] = "";

static bool is_silent(void) { return tool.is_silent != NULL && tool.is_silent(); }

enum options_next options_wrong(const char *format, ...)
{
    va_list arguments;

    if (is_silent())
        return OPTIONS_WRONG;
    fprintf(stderr, "%s: ", tool.name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(" (see --help)\n", stderr);
    return OPTIONS_WRONG;
}

bool options_end(enum options_next next, int *code)
{
    *code = next == OPTIONS_SHOWN ? streams_close(tool.name, 0) : 2;
    return next != OPTIONS_RUN;
}

bool options_used(uint64_t used, const char *name)
{
    for (int i = 0; i < tool.row_count; i++)
        if (used >> i & 1 && tool.rows[i].name != NULL && strcmp(tool.rows[i].name, name) == 0)
            return true;
    return false;
}

static enum options_next show(const struct option_row *row)
{
    if (is_silent())
        return OPTIONS_SHOWN;
    if (row->letter == 'h')
        tool.print_help();
    else
        printf("%s (Sparring) %s\n", tool.name, spr_version());
    return OPTIONS_SHOWN;
}

static enum options_next parse_words(struct options *options, int count, char **words)
{
    struct option longs[MOST_ROWS + 1];
    char letters[2 * MOST_ROWS + 4], text[128];
    uint64_t used = 0;
    int found;

    option_rows_tables(tool.rows, tool.row_count, ":", longs, letters);
    while ((found = getopt_long(count, words, letters, longs, NULL)) != -1) {
        const struct option_row *row = option_rows_find(tool.rows, tool.row_count, found);
        if (row == NULL || found == ':') {
            option_rows_complaint(tool.rows, tool.row_count, found, words, text, sizeof text);
            return options_wrong("%s", text);
        }
        if (row->take == NULL)
            return show(row);
        const char *wanted = row->take(options, optarg);
        if (wanted == option_shown)
            return OPTIONS_SHOWN;
        if (wanted != NULL)
            return options_wrong("--%s wants %s, not '%s'", row->name, wanted, optarg);
        used |= UINT64_C(1) << (row - tool.rows);
    }
    return tool.complete(options, used, count - optind, words + optind);
}

enum options_next command_line_parse(struct options *options, int argc, char **argv)
{
    /* getopt_long sorts the words; JSON shows them as they were. */
    char **words = calloc((size_t)argc + 1, sizeof *words);
    enum options_next next;

    assert(tool.row_count <= MOST_ROWS);
    if (words == NULL)
        return options_wrong("out of memory");
    memcpy(words, argv, (size_t)argc * sizeof *words);
    next = parse_words(options, argc, words);
    free(words);
    return next;
}

bool option_whole(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 19 || text[digits] != '\0')
        return false;
    *number = strtoull(text, NULL, 10);
    return *number >= low && *number <= high;
}

bool option_int(const char *text, int low, int high, int *number)
{
    uint64_t whole;
    if (!option_whole(text, (uint64_t)low, (uint64_t)high, &whole))
        return false;
    *number = (int)whole;
    return true;
}

size_t option_list(const char *value, size_t most, option_word_fn *take, void *values)
{
    for (size_t i = 0; i < most; i++) {
        char word[32];
        size_t length = strcspn(value, ",");
        if (length >= sizeof word)
            return 0;
        memcpy(word, value, length);
        word[length] = '\0';
        if (!take(word, i, values))
            return 0;
        value += length;
        if (*value++ == '\0')
            return i + 1;
    }
    return 0;
}

bool option_density(const char *word, size_t i, void *densities)
{
    double *density = (double *)densities + i;
    return spr_parse_ratio(word, density) && *density > 0 && *density <= 1;
}
