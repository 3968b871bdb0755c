/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Typed option tables. One const table of options per struct feeds: the environment
 * (SPARRING_<NAME>), the configuration file, --help, `sparring-perf --codec help`, codec strings
 * and man pages.
 *
 * Precedence: value set in the struct by the program > command line > environment > file
 * ($SPARRING_CONF_FILE, else ~/.config/sparring.conf, else /etc/sparring.conf: lines NAME=value,
 * '#' comments) > default of the table. The first of these files that exists is read; a file that
 * SPARRING_CONF_FILE names must exist; SPARRING_CONF_FILE= (empty) means none.
 *
 * NAME is the option's name in upper case with '-' and '.' as '_'. The fields of a struct must be
 * zeroed or valid before the first call.
 */
#ifndef SPR_BASE_OPT_H
#define SPR_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

enum spr_opt_type {
    SPR_OPT_BOOL,   /* bool: y n yes no on off true false 1 0 */
    SPR_OPT_INT,    /* int */
    SPR_OPT_SIZE,   /* size_t: 64K 1M 2G (binary), inf = SIZE_MAX */
    SPR_OPT_TIME,   /* double seconds: 10us 5ms 2s 1m, plain = seconds */
    SPR_OPT_RATE,   /* double bit/s: 100kbit 1mbit 10gbit */
    SPR_OPT_RATIO,  /* double: 0.01 or 1% */
    SPR_OPT_DOUBLE, /* double */
    SPR_OPT_STRING, /* char *: malloc'ed copy, freed by spr_opt_free */
    SPR_OPT_ENUM    /* int: index in choices */
};

struct spr_opt {
    const char *name;          /* "timeout" -> --timeout, SPARRING_TIMEOUT, TIMEOUT= in the file */
    const char *default_value; /* parsed like user input; NULL = leave zero */
    const char *doc;           /* one sentence, no trailing dot */
    enum spr_opt_type type;
    size_t offset;              /* of the field in the struct */
    const char *const *choices; /* SPR_OPT_ENUM: NULL-terminated */
    double min, max;            /* allowed range of numbers; both 0 = any */
};

/* A row: which part of something is selected, in the field `ratio`. */
#define SPR_OPT_RATIO_ROW(fields, standard, text)                                                  \
    {                                                                                              \
        .name = "ratio", .default_value = standard, .doc = text, .type = SPR_OPT_RATIO,            \
        .offset = offsetof(fields, ratio), .min = 1e-9, .max = 1,                                  \
    }

/* Parse one value into its field. On error INVALID with a text that names option, value and what is
 * allowed; the field is unchanged. */
spr_status spr_opt_set(const struct spr_opt *opt, void *fields, const char *value,
                       struct spr_error *error);
const struct spr_opt *spr_opt_find(const struct spr_opt *table, size_t n, const char *name);
/* Defaults, then file, then environment, each overriding. INVALID names variable or file:line. */
spr_status spr_opt_load(const struct spr_opt *table, size_t n, void *fields,
                        struct spr_error *error);
/* The lines of an open file; `path` is for messages, which name path:line. INVALID. */
spr_status spr_opt_load_stream(const struct spr_opt *table, size_t n, void *fields, FILE *file,
                               const char *path, struct spr_error *error);
/* Defaults only. */
spr_status spr_opt_defaults(const struct spr_opt *table, size_t n, void *fields,
                            struct spr_error *error);
void spr_opt_free(const struct spr_opt *table, size_t n, void *fields);
/* Print a field's value as it would be parsed; returns buf. */
const char *spr_opt_print(const struct spr_opt *opt, const void *fields, char *buf, size_t bytes);
/* --help lines: "  --name VALUE   doc [default]". */
void spr_opt_help(const struct spr_opt *table, size_t n, FILE *out);

/* A SPARRING_* variable in the environment that no registered table and no reserved name knows gets
 * one warning with the nearest known name. Once per process. `extra` is a NULL-terminated list. */
void spr_opt_register(const struct spr_opt *table, size_t n);
void spr_opt_warn_unknown_env(const char *const *extra);

/* Value parsers that tools share. false = not a number of that kind. */
bool spr_parse_size(const char *text, size_t *bytes);
bool spr_parse_rate(const char *text, double *bits_per_s);
bool spr_parse_ratio(const char *text, double *ratio);
bool spr_parse_time(const char *text, double *seconds);
/* A finite decimal number. Like all parsers here it does not depend on the locale. */
bool spr_parse_double(const char *text, double *value);
/* The shortest text that parses back to `value`, whatever the locale; also valid JSON when the
 * value is finite. 32 bytes suffice. Returns buf. */
const char *spr_print_double(double value, char *buf, size_t bytes);

#endif
