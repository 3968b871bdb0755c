/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON, schema 1. Numbers that do not apply, or are not finite, are null. Without libjansson there
 * is none, and options_parse() has said so.
 */
#ifndef SPR_TOOLS_CODEC_JSON_H
#define SPR_TOOLS_CODEC_JSON_H

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "tools/codec/options.h"

json_t *json_number(double value);
json_t *json_text(const char *value);

struct json_member {
    const char *name;
    json_t *value;
};
/* An object; takes the values over. NULL: no memory. */
json_t *json_object_of(const struct json_member *members, size_t count);
/* {"schema": 1, "command": ..., "version": ..., name: value}; takes the value over. */
bool json_write(FILE *out, const struct options *options, const char *name, json_t *value);

#endif
#endif
