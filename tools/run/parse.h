/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Values on the command line of sparring-run. Functions that return text return NULL, or what
 * they wanted to see; outputs are written only on success.
 */
#ifndef TOOLS_RUN_PARSE_H
#define TOOLS_RUN_PARSE_H

#include "tools/run/options.h"

/* A whole number from `low` to `high`. */
bool parse_count(const char *text, int low, int high, int *value);
/* Seconds, a positive decimal number. */
const char *parse_seconds(const char *text, double *seconds);
/* 250kbit, 100mbit, 2.5gbit (decimal powers, as tc has them); 1gbit+100mbit: two links;
 * 1gbit,100mbit: of successive hosts. */
const char *parse_rates(const char *text, struct emulated_links *links);
/* H1,H2:4,[fd00::1]:2. This and the next one free the list that was there. */
const char *parse_machines(const char *text, struct machine **machines, size_t *count);
/* A file with a line for each: H1, H2:4 or H2 slots=4; # begins a comment. */
const char *parse_host_file(const char *path, struct machine **machines, size_t *count);
void machines_free(struct machine *machines, size_t count);
/* Gives `ranks` ranks to machines block by block (0: as many as there are slots).
 * Returns how many ranks were given, or 0 when there are not enough slots. */
int machines_fill(struct machine *machines, size_t count, int ranks);
/* ADDRESS or ADDRESS:PORT; *host is allocated, *port 0 when there is none. */
const char *parse_root(const char *text, char **host, int *port);
/* Is this a name that every shell takes for a variable? `length` characters are looked at. */
bool is_variable_name(const char *text, size_t length);

#endif
