/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/option_rows.h"

#include <stdio.h>
#include <string.h>

/* Codes of options without a letter: this and the number of the row. */
#define FIRST_LONG 256

static int code_of(const struct option_row *rows, int i)
{
    return rows[i].letter != 0 ? rows[i].letter : FIRST_LONG + i;
}

void option_rows_print(const struct option_row *rows, int count, int width)
{
    for (int i = 0; i < count; i++) {
        const struct option_row *row = &rows[i];
        if (row->name == NULL) {
            printf("\n%s:\n", row->help);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", row->letter != 0 ? '-' : ' ',
                 row->letter != 0 ? row->letter : ' ', row->letter != 0 ? "," : " ", row->name,
                 row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
        for (const char *line = row->help; *line != '\0';) {
            int length = (int)strcspn(line, "\n");
            printf("  %-*s %.*s\n", width, line == row->help ? left : "", length, line);
            line += length + (line[length] == '\n');
        }
    }
}

void option_rows_tables(const struct option_row *rows, int count, const char *first,
                        struct option *longs, char *letters)
{
    int n = 0;

    for (; *first != '\0'; first++)
        *letters++ = *first;
    for (int i = 0; i < count; i++) {
        const struct option_row *row = &rows[i];
        if (row->name == NULL)
            continue;
        longs[n++] =
            (struct option){row->name, row->argument != NULL ? required_argument : no_argument,
                            NULL, code_of(rows, i)};
        if (row->letter == 0)
            continue;
        *letters++ = row->letter;
        if (row->argument != NULL)
            *letters++ = ':';
    }
    *letters = '\0';
    longs[n] = (struct option){NULL, 0, NULL, 0};
}

const struct option_row *option_rows_find(const struct option_row *rows, int count, int found)
{
    for (int i = 0; i < count; i++)
        if (rows[i].name != NULL && found == code_of(rows, i))
            return &rows[i];
    return NULL;
}

void option_rows_complaint(const struct option_row *rows, int count, int found, char *const *words,
                           char *text, size_t bytes)
{
    const char *word = words[optind - 1];
    const struct option_row *row = option_rows_find(rows, count, optopt);

    if (found == ':')
        snprintf(text, bytes, "a value is missing after %s", word);
    else if (row != NULL && strncmp(word, "--", 2) == 0)
        snprintf(text, bytes, "--%s takes no value", row->name);
    else if (optopt != 0 && optopt < FIRST_LONG)
        snprintf(text, bytes, "unknown option -%c", optopt);
    else
        snprintf(text, bytes, "unknown option %s", word);
}
