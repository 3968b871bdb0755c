/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON of sparring-codec.
 */
#ifndef SPR_TOOLS_CODEC_JSON_H
#define SPR_TOOLS_CODEC_JSON_H

#include "tools/codec/options.h"
#include "tools/json.h"

#ifdef HAVE_JANSSON
/* {"schema": 1, "command": ..., "version": ..., name: value}; takes the value over. */
bool json_write(FILE *out, const struct options *options, const char *name, json_t *value);
#endif
#endif
