/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options from the configuration file and the environment, and the check for misspelt variables.
 */
#include "base/opt.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define PREFIX "SPARRING_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)
#define NAME_BYTES 64
#define LINE_BYTES 4096
#define MOST_LINES 100000
#define MAX_TABLES 32

/* "io.timeout-ms" -> "IO_TIMEOUT_MS" */
static void upper_name(const char *name, char out[NAME_BYTES])
{
    size_t i;

    for (i = 0; i < NAME_BYTES - 1 && name[i]; i++) {
        char c = name[i];

        if (c >= 'a' && c <= 'z')
            out[i] = (char)(c - 'a' + 'A');
        else
            out[i] = c == '-' || c == '.' ? '_' : c;
    }
    out[i] = '\0';
}

static const struct spr_opt *find_upper(const struct spr_opt *table, size_t n, const char *upper)
{
    char name[NAME_BYTES];

    for (size_t i = 0; i < n; i++) {
        upper_name(table[i].name, name);
        if (strcmp(name, upper) == 0)
            return &table[i];
    }
    return NULL;
}

/* spr_opt_set with the place that the value came from in front of the text. */
static spr_status set_from(const struct spr_opt *opt, void *fields, const char *value,
                           const char *place, struct spr_error *error)
{
    struct spr_error cause = {.status = SPR_OK};
    spr_status status = spr_opt_set(opt, fields, value, &cause);

    if (status != SPR_OK)
        spr_error_set(error, status, -1, "%s: %s", place, cause.text);
    return status;
}

static char *trim(char *text)
{
    size_t length;

    text += strspn(text, " \t\r\n");
    length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* One line: NAME=value, a comment or nothing. Names of other tables are passed over. */
static spr_status load_line(const struct spr_opt *table, size_t n, void *fields, char *line,
                            const char *place, struct spr_error *error)
{
    char *name = trim(line), *equals;
    const struct spr_opt *opt;

    if (*name == '\0' || *name == '#')
        return SPR_OK;
    equals = strchr(name, '=');
    if (!equals)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "%s: not a line NAME=value", place);
    *equals = '\0';
    name = trim(name);
    /* A line copied from a shell script works too. */
    if (strncmp(name, PREFIX, PREFIX_LENGTH) == 0)
        name += PREFIX_LENGTH;
    opt = find_upper(table, n, name);
    return opt ? set_from(opt, fields, trim(equals + 1), place, error) : SPR_OK;
}

/* The next line without its end. False: there is none. */
static bool read_line(FILE *file, char line[LINE_BYTES], const char **wrong)
{
    size_t length = 0;
    int c = EOF;

    *wrong = NULL;
    while (!*wrong && (c = getc(file)) != EOF && c != '\n') {
        if (c == '\0')
            *wrong = "there is a NUL in the line";
        else if (length == LINE_BYTES - 1)
            *wrong = "the line is too long";
        else
            line[length++] = (char)c;
    }
    line[length] = '\0';
    return c != EOF || length > 0;
}

spr_status spr_opt_load_stream(const struct spr_opt *table, size_t n, void *fields, FILE *file,
                               const char *path, struct spr_error *error)
{
    char line[LINE_BYTES], place[512];
    spr_status status = SPR_OK;
    const char *wrong;

    for (int number = 1; status == SPR_OK && read_line(file, line, &wrong); number++) {
        snprintf(place, sizeof(place), "%s:%d", path, number);
        if (number > MOST_LINES) /* a device or pipe may have no end */
            wrong = "there are too many lines";
        if (wrong)
            return spr_error_set(error, SPR_ERR_INVALID, -1, "%s: %s", place, wrong);
        status = load_line(table, n, fields, line, place, error);
    }
    if (status == SPR_OK && ferror(file))
        return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "cannot read %s", path);
    return status;
}

/* One that need not be there, nor in a directory that this user may search. */
static spr_status open_optional(FILE **file, const char *path, struct spr_error *error)
{
    struct stat st;
    int cause;

    *file = fopen(path, "re");
    cause = errno;
    if (*file || cause == ENOENT || cause == ENOTDIR || (cause == EACCES && stat(path, &st) != 0))
        return SPR_OK;
    return spr_error_errno(error, SPR_ERR_INVALID, -1, cause, "cannot read %s", path);
}

/* Open the configuration file; *file stays NULL when there is none. */
static spr_status open_file(FILE **file, char *path, size_t bytes, struct spr_error *error)
{
    const char *named = getenv(PREFIX "CONF_FILE"), *home = getenv("HOME");
    spr_status status = SPR_OK;

    *file = NULL;
    if (named) {
        snprintf(path, bytes, "%s", named);
        if (*named)
            *file = fopen(named, "re");
        if (*named && !*file)
            return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, PREFIX "CONF_FILE='%s'",
                                   named);
        return SPR_OK;
    }
    if (home && *home && snprintf(path, bytes, "%s/.config/sparring.conf", home) < (int)bytes)
        status = open_optional(file, path, error);
    if (status == SPR_OK && !*file) {
        snprintf(path, bytes, "/etc/sparring.conf");
        status = open_optional(file, path, error);
    }
    return status;
}

static spr_status load_file(const struct spr_opt *table, size_t n, void *fields,
                            struct spr_error *error)
{
    spr_status status;
    char path[400];
    FILE *file;

    status = open_file(&file, path, sizeof(path), error);
    if (status != SPR_OK || !file)
        return status;
    status = spr_opt_load_stream(table, n, fields, file, path, error);
    fclose(file);
    return status;
}

static spr_status load_environment(const struct spr_opt *table, size_t n, void *fields,
                                   struct spr_error *error)
{
    char variable[PREFIX_LENGTH + NAME_BYTES] = PREFIX;

    for (size_t i = 0; i < n; i++) {
        const char *value;
        spr_status status;

        upper_name(table[i].name, variable + PREFIX_LENGTH);
        value = getenv(variable);
        if (!value)
            continue;
        status = set_from(&table[i], fields, value, variable, error);
        if (status != SPR_OK)
            return status;
    }
    return SPR_OK;
}

spr_status spr_opt_load(const struct spr_opt *table, size_t n, void *fields,
                        struct spr_error *error)
{
    spr_status status = spr_opt_defaults(table, n, fields, error);

    if (status == SPR_OK)
        status = load_file(table, n, fields, error);
    if (status == SPR_OK)
        status = load_environment(table, n, fields, error);
    return status;
}

/* Variables that are read by hand, before there is any table or outside of it. */
static const char *const reserved[] = {
    "RANK",        "SIZE",           "ROOT",       "FILE",
    "SECRET_FILE", "SECRET_FD",      "JOB",        "LOCAL_RANK",
    "LOCAL_SIZE",  "HOST_INDEX",     "LOG",        "LOG_FILE",
    "CONF_FILE",   "TIME_FACTOR",    "SIMD",       "SEED",
    "SOAK",        "TEST_SCALE",     "TEST_LIMIT", "TEST_TRANSPORTS",
    "PROGRESS",    "TEST_SCHEDULES", "TEST_JOBS",  "MEET",
    "JOIN",        "SCENE",          "RSH",
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const struct spr_opt *table;
    size_t n;
} registry[MAX_TABLES];
static size_t registered;

void spr_opt_register(const struct spr_opt *table, size_t n)
{
    size_t i;

    pthread_mutex_lock(&registry_lock);
    for (i = 0; i < registered; i++)
        if (registry[i].table == table)
            break;
    if (i < MAX_TABLES) {
        registry[i].table = table;
        registry[i].n = n;
        registered = spr_max_size(registered, i + 1);
    }
    pthread_mutex_unlock(&registry_lock);
}

/* Insertions, deletions and replacements from a to b (Levenshtein), b cut at NAME_BYTES. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES + 1], length = spr_min_size(strlen(b), NAME_BYTES);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t replace = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            row[j + 1] = spr_min_size(replace, 1 + spr_min_size(row[j], diagonal));
        }
    }
    return row[length];
}

/* The known name nearest to a wanted one. */
struct nearest {
    const char *wanted;
    size_t distance;
    char name[NAME_BYTES];
};

static void consider(struct nearest *best, const char *upper)
{
    size_t distance = edit_distance(best->wanted, upper);

    if (distance < best->distance) {
        best->distance = distance;
        snprintf(best->name, sizeof(best->name), "%s", upper);
    }
}

static void find_nearest(struct nearest *best, const char *const *extra)
{
    char upper[NAME_BYTES];

    best->distance = SIZE_MAX;
    best->name[0] = '\0';
    for (size_t i = 0; i < SPR_ARRAY_LEN(reserved); i++)
        consider(best, reserved[i]);
    for (size_t i = 0; extra && extra[i]; i++) {
        upper_name(extra[i], upper);
        consider(best, strncmp(upper, PREFIX, PREFIX_LENGTH) ? upper : upper + PREFIX_LENGTH);
    }
    pthread_mutex_lock(&registry_lock);
    for (size_t t = 0; t < registered; t++) {
        for (size_t i = 0; i < registry[t].n; i++) {
            upper_name(registry[t].table[i].name, upper);
            consider(best, upper);
        }
    }
    pthread_mutex_unlock(&registry_lock);
}

void spr_opt_warn_unknown_env(const char *const *extra)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (atomic_flag_test_and_set(&warned))
        return;
    for (char **entry = environ; entry && *entry; entry++) {
        const char *start = *entry + PREFIX_LENGTH;
        char wanted[NAME_BYTES];
        struct nearest best = {.wanted = wanted};

        if (strncmp(*entry, PREFIX, PREFIX_LENGTH) != 0)
            continue;
        snprintf(wanted, sizeof(wanted), "%.*s", (int)strcspn(start, "="), start);
        if (strncmp(wanted, "VM_", 3) == 0) /* of sparring-vm */
            continue;
        find_nearest(&best, extra);
        if (best.distance == 0)
            continue;
        /* A name with nothing in common would be no help. */
        if (best.distance <= 1 + strlen(wanted) / 3)
            spr_warn(SPR_SUB_INIT, "unknown variable " PREFIX "%s, did you mean " PREFIX "%s?",
                     wanted, best.name);
        else
            spr_warn(SPR_SUB_INIT, "unknown variable " PREFIX "%s", wanted);
    }
}
