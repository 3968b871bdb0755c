/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One option: find, set, print, help. Where values come from is in opt_load.c.
 */
#include "base/opt.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/util.h"

/* A parsed value; which member counts follows from the type. */
union value {
    bool b;
    int i;
    size_t size;
    double d;
};

static void *field(const struct spr_opt *opt, void *fields) { return (char *)fields + opt->offset; }

static const void *const_field(const struct spr_opt *opt, const void *fields)
{
    return (const char *)fields + opt->offset;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"y", "yes", "on", "true", "1"};
    static const char *const no[] = {"n", "no", "off", "false", "0"};

    for (size_t i = 0; i < SPR_ARRAY_LEN(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *value = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool parse_int(const char *text, int *value)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < INT_MIN || v > INT_MAX)
        return false;
    *value = (int)v;
    return true;
}

static bool parse_choice(const char *const *choices, const char *text, int *value)
{
    for (int i = 0; choices[i]; i++) {
        if (strcasecmp(text, choices[i]) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool parse(const struct spr_opt *opt, const char *text, union value *v)
{
    switch (opt->type) {
    case SPR_OPT_BOOL:
        return parse_bool(text, &v->b);
    case SPR_OPT_INT:
        return parse_int(text, &v->i);
    case SPR_OPT_SIZE:
        return spr_parse_size(text, &v->size);
    case SPR_OPT_TIME:
        return spr_parse_time(text, &v->d);
    case SPR_OPT_RATE:
        return spr_parse_rate(text, &v->d);
    case SPR_OPT_RATIO:
        return spr_parse_ratio(text, &v->d);
    case SPR_OPT_DOUBLE:
        return spr_parse_double(text, &v->d);
    case SPR_OPT_ENUM:
        return parse_choice(opt->choices, text, &v->i);
    case SPR_OPT_STRING:
        break;
    }
    return false;
}

static bool in_range(const struct spr_opt *opt, const union value *v)
{
    double d;

    if (opt->min == 0 && opt->max == 0)
        return true;
    switch (opt->type) {
    case SPR_OPT_INT:
        d = v->i;
        break;
    case SPR_OPT_SIZE:
        d = (double)v->size;
        break;
    case SPR_OPT_TIME:
    case SPR_OPT_RATE:
    case SPR_OPT_RATIO:
    case SPR_OPT_DOUBLE:
        d = v->d;
        break;
    default:
        return true;
    }
    return d >= opt->min && d <= opt->max;
}

static void store(const struct spr_opt *opt, void *fields, const union value *v)
{
    void *to = field(opt, fields);

    switch (opt->type) {
    case SPR_OPT_BOOL:
        memcpy(to, &v->b, sizeof(v->b));
        break;
    case SPR_OPT_INT:
    case SPR_OPT_ENUM:
        memcpy(to, &v->i, sizeof(v->i));
        break;
    case SPR_OPT_SIZE:
        memcpy(to, &v->size, sizeof(v->size));
        break;
    case SPR_OPT_TIME:
    case SPR_OPT_RATE:
    case SPR_OPT_RATIO:
    case SPR_OPT_DOUBLE:
        memcpy(to, &v->d, sizeof(v->d));
        break;
    case SPR_OPT_STRING:
        break;
    }
}

/* What a value of each type looks like: in --help, and in errors. */
static const struct {
    const char *placeholder, *allowed;
} type_text[] = {
    [SPR_OPT_BOOL] = {"on|off", "on or off"},
    [SPR_OPT_INT] = {"N", "an integer"},
    [SPR_OPT_SIZE] = {"BYTES", "a size such as 4096, 64K, 1M or 2G"},
    [SPR_OPT_TIME] = {"TIME", "a time such as 10us, 5ms, 2s or 1m"},
    [SPR_OPT_RATE] = {"RATE", "a rate such as 100mbit or 10gbit"},
    [SPR_OPT_RATIO] = {"RATIO", "a ratio such as 0.01 or 1%"},
    [SPR_OPT_DOUBLE] = {"X", "a number"},
    [SPR_OPT_STRING] = {"TEXT", "a text"},
    [SPR_OPT_ENUM] = {"NAME", ""},
};

/* "a, b or c" */
static void list_choices(const char *const *choices, char *buf, size_t bytes)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; choices[i] && used < bytes; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        int n = snprintf(buf + used, bytes - used, "%s%s", between, choices[i]);

        used += n > 0 ? (size_t)n : 0;
    }
}

static spr_status reject(const struct spr_opt *opt, const char *value, bool range,
                         struct spr_error *error)
{
    char allowed[400], low[32], high[32];

    if (range)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "%s='%s' is out of range: %s to %s",
                             opt->name, value, spr_print_double(opt->min, low, sizeof(low)),
                             spr_print_double(opt->max, high, sizeof(high)));
    if (opt->type == SPR_OPT_ENUM)
        list_choices(opt->choices, allowed, sizeof(allowed));
    else
        snprintf(allowed, sizeof(allowed), "%s", type_text[opt->type].allowed);
    return spr_error_set(error, SPR_ERR_INVALID, -1, "%s='%s' is not valid: use %s", opt->name,
                         value, allowed);
}

static spr_status set_string(const struct spr_opt *opt, void *fields, const char *value,
                             struct spr_error *error)
{
    char **text = field(opt, fields), *copy = spr_strdup(value);

    if (!copy)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "%s: out of memory", opt->name);
    spr_free(*text);
    *text = copy;
    return SPR_OK;
}

spr_status spr_opt_set(const struct spr_opt *opt, void *fields, const char *value,
                       struct spr_error *error)
{
    union value v;

    if (opt->type == SPR_OPT_STRING)
        return set_string(opt, fields, value, error);
    if (!parse(opt, value, &v))
        return reject(opt, value, false, error);
    if (!in_range(opt, &v))
        return reject(opt, value, true, error);
    store(opt, fields, &v);
    return SPR_OK;
}

const struct spr_opt *spr_opt_find(const struct spr_opt *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

spr_status spr_opt_defaults(const struct spr_opt *table, size_t n, void *fields,
                            struct spr_error *error)
{
    for (size_t i = 0; i < n; i++) {
        spr_status status = SPR_OK;

        if (table[i].default_value)
            status = spr_opt_set(&table[i], fields, table[i].default_value, error);
        if (status != SPR_OK)
            return status;
    }
    return SPR_OK;
}

void spr_opt_free(const struct spr_opt *table, size_t n, void *fields)
{
    char *text, *none = NULL;

    for (size_t i = 0; i < n; i++) {
        if (table[i].type != SPR_OPT_STRING)
            continue;
        memcpy(&text, field(&table[i], fields), sizeof(text));
        memcpy(field(&table[i], fields), &none, sizeof(none));
        spr_free(text);
    }
}

static const char *print_size(size_t size, char *buf, size_t bytes)
{
    static const char letters[] = "KMGT";
    int i = 0;

    if (size == SIZE_MAX) {
        snprintf(buf, bytes, "inf");
        return buf;
    }
    while (i < 4 && size && size % 1024 == 0) {
        size /= 1024;
        i++;
    }
    snprintf(buf, bytes, "%zu%.*s", size, i > 0, i > 0 ? &letters[i - 1] : "");
    return buf;
}

/* With the largest unit that leaves at least 1, as long as that parses back to the same bits. */
static const char *print_unit(double v, const char *const *units, double step, double first,
                              bool (*parse_back)(const char *, double *), char *buf, size_t bytes)
{
    double factor = first, back;
    char number[32];

    for (int i = 0; units[i]; i++, factor /= step) {
        if (v < factor && units[i + 1])
            continue;
        spr_print_double(factor < 1 ? v * (1 / factor) : v / factor, number, sizeof(number));
        snprintf(buf, bytes, "%s%s", number, units[i]);
        if (v != 0 && parse_back(buf, &back) && back == v)
            return buf;
    }
    return spr_print_double(v, buf, bytes);
}

const char *spr_opt_print(const struct spr_opt *opt, const void *fields, char *buf, size_t bytes)
{
    static const char *const times[] = {"s", "ms", "us", "ns", NULL};
    static const char *const rates[] = {"tbit", "gbit", "mbit", "kbit", "bit", NULL};
    const void *from = const_field(opt, fields);
    const char *text;
    union value v;

    switch (opt->type) {
    case SPR_OPT_BOOL:
        memcpy(&v.b, from, sizeof(v.b));
        snprintf(buf, bytes, "%s", v.b ? "on" : "off");
        return buf;
    case SPR_OPT_INT:
    case SPR_OPT_ENUM:
        memcpy(&v.i, from, sizeof(v.i));
        if (opt->type == SPR_OPT_ENUM)
            snprintf(buf, bytes, "%s", opt->choices[v.i]);
        else
            snprintf(buf, bytes, "%d", v.i);
        return buf;
    case SPR_OPT_SIZE:
        memcpy(&v.size, from, sizeof(v.size));
        return print_size(v.size, buf, bytes);
    case SPR_OPT_STRING:
        memcpy(&text, from, sizeof(text));
        snprintf(buf, bytes, "%s", text ? text : "");
        return buf;
    default:
        memcpy(&v.d, from, sizeof(v.d));
        if (opt->type == SPR_OPT_TIME)
            return print_unit(v.d, times, 1e3, 1, spr_parse_time, buf, bytes);
        if (opt->type == SPR_OPT_RATE)
            return print_unit(v.d, rates, 1e3, 1e12, spr_parse_rate, buf, bytes);
        return spr_print_double(v.d, buf, bytes);
    }
}

void spr_opt_help(const struct spr_opt *table, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct spr_opt *opt = &table[i];
        char left[80], choices[400];
        int used =
            snprintf(left, sizeof(left), "  --%s %s", opt->name, type_text[opt->type].placeholder);

        /* A long option pushes its text to the next line, as in other programs. */
        fprintf(out, "%-28s%s%s", left, used < 28 ? "" : "\n                            ",
                opt->doc);
        if (opt->type == SPR_OPT_ENUM) {
            list_choices(opt->choices, choices, sizeof(choices));
            fprintf(out, ": %s", choices);
        }
        if (opt->default_value && *opt->default_value)
            fprintf(out, " [%s]", opt->default_value);
        fputc('\n', out);
    }
}
