/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options out of a configuration file or the environment (base/opt_load.c, base/opt.c). Input: mode
 * (bit 0: environment, bit 1: the real table), the text.
 *
 * What was taken is printed and taken again: the same. Numbers are in their range.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/options.h"

struct fields {
    bool b;
    int i, e;
    size_t s;
    double t, r, p, d;
    char *text;
};
static const char *const choices[] = {"red", "green", "blue", NULL};
#define FIELD(name) offsetof(struct fields, name)
static const struct spr_opt every_type[] = {
    {"bool", "on", "b", SPR_OPT_BOOL, FIELD(b), NULL, 0, 0},
    {"int-n", "-3", "i", SPR_OPT_INT, FIELD(i), NULL, -100, 100},
    {"enum.e", "green", "e", SPR_OPT_ENUM, FIELD(e), choices, 0, 0},
    {"size", "64K", "s", SPR_OPT_SIZE, FIELD(s), NULL, 0, 0},
    {"time", "5ms", "t", SPR_OPT_TIME, FIELD(t), NULL, 0, 1e6},
    {"rate", "10gbit", "r", SPR_OPT_RATE, FIELD(r), NULL, 0, 0},
    {"ratio", "1%", "p", SPR_OPT_RATIO, FIELD(p), NULL, 0, 1},
    {"double", "-0.5", "d", SPR_OPT_DOUBLE, FIELD(d), NULL, 0, 0},
    {"text", "abc", "x", SPR_OPT_STRING, FIELD(text), NULL, 0, 0},
};

union any {
    struct fields fields;
    struct spr_options options;
};

static spr_status load_file(const struct spr_opt *table, size_t n, void *fields, char *text,
                            size_t bytes, struct spr_error *error)
{
    FILE *file = fmemopen(text, bytes ? bytes : 1, "r");
    spr_status status;

    FUZZ_CHECK(file && spr_opt_defaults(table, n, fields, error) == SPR_OK);
    status = spr_opt_load_stream(table, n, fields, file, "fuzz.conf", error);
    fclose(file);
    FUZZ_CHECK(status == SPR_OK || strncmp(error->text, "fuzz.conf:", 10) == 0);
    return status;
}

static void check_again(const struct spr_opt *opt, const void *fields, void *other)
{
    struct spr_error error = {.rank = -1};
    char first[300], second[300];
    char *text = NULL;

    if (opt->type == SPR_OPT_STRING) {
        memcpy(&text, (const char *)fields + opt->offset, sizeof text);
        FUZZ_CHECK(text);
        return;
    }
    FUZZ_CHECK(spr_opt_print(opt, fields, first, sizeof first) == first);
    FUZZ_CHECK(spr_opt_set(opt, other, first, &error) == SPR_OK);
    FUZZ_CHECK(spr_opt_print(opt, other, second, sizeof second) == second);
    FUZZ_CHECK(strcmp(first, second) == 0);
}

static void check_range(const struct spr_opt *opt, const void *fields)
{
    double d;

    if (opt->min == 0 && opt->max == 0)
        return;
    if (opt->type == SPR_OPT_TIME || opt->type == SPR_OPT_RATIO || opt->type == SPR_OPT_DOUBLE) {
        memcpy(&d, (const char *)fields + opt->offset, sizeof d);
        FUZZ_CHECK(d >= opt->min && d <= opt->max);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct spr_error error = {.rank = -1};
    union any fields = {0}, other = {0};
    int64_t live = spr_mem_live();
    uint8_t mode = fuzz_u8(&in);
    const struct spr_opt *table = mode & 2 ? spr_options_table : every_type;
    size_t n = mode & 2 ? spr_options_count : sizeof every_type / sizeof every_type[0];
    size_t bytes = in.left;
    char *text = fuzz_rest_text(&in);
    spr_status status;

    if (mode & 1) {
        static char no_file[] = "SPARRING_CONF_FILE=";
        char *all = malloc(sizeof no_file + bytes + 1);

        FUZZ_CHECK(all);
        memcpy(all, no_file, sizeof no_file - 1);
        all[sizeof no_file - 1] = '\n'; /* first, and the first one counts */
        memcpy(all + sizeof no_file, text, bytes + 1);
        fuzz_environ_begin(all);
        status = spr_opt_load(table, n, &fields, &error);
        fuzz_environ_end();
        free(all);
    } else {
        status = load_file(table, n, &fields, text, bytes, &error);
    }
    FUZZ_CHECK(status == SPR_OK || (status == SPR_ERR_INVALID && *error.text));
    for (size_t i = 0; i < n && status == SPR_OK; i++) {
        check_again(&table[i], &fields, &other);
        check_range(&table[i], &fields);
    }
    spr_opt_free(table, n, &fields);
    spr_opt_free(table, n, &other);
    FUZZ_CHECK(spr_mem_live() == live);
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"file", 0,
         "# comment\n\n BOOL = off\nINT_N=12\nENUM_E=Blue\nSIZE=1M\nTIME=10us\n"
         "RATE=100mbit\nRATIO=0.5\nDOUBLE=1e300\nTEXT= a text \n"},
        {"file_of_a_shell", 0, "SPARRING_SIZE=inf\r\nSPARRING_TIME=2m\r\n"},
        {"file_wrong", 0, "TIME=1\nINT_N=101\n"},
        {"file_real", 2, "TIMEOUT=30\nEAGER=16K\nTRANSPORTS=shm,epoll\nCRC=no\nSPIN=0\n"},
        {"environment", 1,
         "SPARRING_BOOL=1\nSPARRING_RATIO=3%\nSPARRING_ENUM_E=red\nSPARRING_TEXT=\n"},
        {"environment_real", 3,
         "SPARRING_PROGRESS=caller\nSPARRING_WARN=90s\nSPARRING_SHM_SLOTS=1\n"},
        {"environment_wrong", 3, "SPARRING_EAGER=65537\n"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
