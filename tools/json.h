/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON as the tools write it, schema 1. Numbers that do not apply, or are not finite, are null.
 * Without libjansson there is none; a tool that is asked for it says so.
 */
#ifndef SPR_TOOLS_JSON_H
#define SPR_TOOLS_JSON_H

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct json_member {
    const char *name;
    json_t *value;
};

json_t *json_number(double value);
/* Rounded to a whole number. */
json_t *json_whole(double value);
/* NULL: null. What is no UTF-8 is "?": names of files and devices can be anything. */
json_t *json_text(const char *value);
/* An object; takes the values over, also when it returns NULL: no memory. */
json_t *json_object_of(const struct json_member *members, size_t count);
#define OBJECT(...)                                                                                \
    json_object_of((const struct json_member[]){__VA_ARGS__},                                      \
                   sizeof((const struct json_member[]){__VA_ARGS__}) / sizeof(struct json_member))

/* Writes a value, which it takes over, and a line feed. */
bool json_print(FILE *out, json_t *root);
/* In place of all that is in the file, which is opened to append and may be standard output: the
 * same of {"schema": 1, "command": [words], "version": "...", members}. */
bool json_print_run(FILE *out, char *const *words, int word_count,
                    const struct json_member *members, size_t count);

#endif
#endif
