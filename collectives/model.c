/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/model.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "collectives/collective.h"
#include "collectives/trials.h"

#define ROW(field, text)                                                                           \
    {                                                                                              \
        .name = #field, .doc = text, .type = SPR_OPT_DOUBLE,                                       \
        .offset = offsetof(struct spr_model, field), .min = 0, .max = 1e6                          \
    }
static const struct spr_opt rows[] = {
    ROW(latency, "seconds until a small message is there"),
    ROW(grant, "seconds until a chunk may leave"),
    ROW(message, "seconds per further message of a step"),
    ROW(byte, "seconds per byte that leaves a host"),
    ROW(copy, "seconds per byte inside a host"),
    ROW(reduce, "seconds per byte of a vector that is summed"),
    ROW(encode, "seconds per entry that is encoded"),
    ROW(merge, "seconds per entry that is summed"),
    ROW(take, "seconds per entry of the result"),
    ROW(clear, "seconds per position of the result"),
    ROW(stream, "seconds per position of a result that no cache holds"),
    ROW(exposed, "part of the shorter one of wire and CPU"),
    ROW(load, "times that work takes longer while all ranks do it"),
};
#undef ROW

/* The place in the table of the algorithm in a name such as "allreduce.ring", or -1. */
static int place_of(const char *name)
{
    const char *dot = strchr(name, '.');
    char collective[32];

    snprintf(collective, sizeof collective, "%.*s", dot ? (int)(dot - name) : 0, name);
    return dot ? spr_algorithm_place(collective, dot + 1) : -1;
}

static const struct spr_opt start_row = {.doc = "seconds that an algorithm takes besides",
                                         .type = SPR_OPT_DOUBLE,
                                         .min = -1e6,
                                         .max = 1e6};

/* One "name=value". */
static spr_status set(const char *word, struct spr_model *model, uint64_t *given,
                      struct spr_error *error)
{
    const char *value = strchr(word, '=');
    struct spr_opt row = start_row;
    struct spr_error cause = {.status = SPR_OK};
    const struct spr_opt *found;
    spr_status status;
    char name[48];
    size_t bit;
    int place;

    snprintf(name, sizeof name, "%.*s", value ? (int)(value - word) : 47, word);
    found = value ? spr_opt_find(rows, SPR_ARRAY_LEN(rows), name) : NULL;
    place = value && !found ? place_of(name) : -1;
    if (!found && (place < 0 || !spr_algorithm_at((size_t)place)->predict))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "SPARRING_MODEL: '%.64s' is no constant of a model; sparring-tune "
                             "prints one",
                             word);
    bit = found ? (size_t)(found - rows) : SPR_ARRAY_LEN(rows) + (size_t)place;
    if (*given >> bit & 1)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "SPARRING_MODEL: '%s' is there twice",
                             name);
    *given |= UINT64_C(1) << bit;
    row.name = name;
    status = found ? spr_opt_set(found, model, value + 1, &cause)
                   : spr_opt_set(&row, &model->start[place], value + 1, &cause);
    return status ? spr_error_set(error, status, -1, "SPARRING_MODEL: %s", cause.text) : SPR_OK;
}

spr_status spr_model_parse(const char *text, struct spr_model *model, struct spr_error *error)
{
    struct spr_model parsed = {.known = true};
    uint64_t given = 0;
    spr_status status;
    char word[80];

    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        if (n >= sizeof word)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "SPARRING_MODEL: '%.40s...' is too long for a constant", at);
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        status = set(word, &parsed, &given, error);
        if (status)
            return status;
        at += n;
        if (!*at)
            break;
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(rows); i++)
        if (!(given >> i & 1))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "SPARRING_MODEL: '%s' is missing; sparring-tune prints all",
                                 rows[i].name);
    *model = parsed;
    return SPR_OK;
}

const char *spr_model_print(const struct spr_model *model, char *text, size_t bytes)
{
    char number[32];
    double value;

    text[0] = '\0';
    for (size_t i = 0; i < SPR_ARRAY_LEN(rows); i++) {
        size_t used = strlen(text);
        memcpy(&value, (const char *)model + rows[i].offset, sizeof value);
        snprintf(text + used, bytes - used, "%s%s=%s", i ? "," : "", rows[i].name,
                 spr_print_double(value, number, sizeof number));
    }
    for (size_t i = 0; i < SPR_ALGORITHMS; i++) {
        const struct spr_algorithm *a = spr_algorithm_at(i);
        size_t used = strlen(text);
        if (model->start[i] != 0)
            snprintf(text + used, bytes - used, ",%s.%s=%s", spr_collective_names[a->collective],
                     a->name, spr_print_double(model->start[i], number, sizeof number));
    }
    return text;
}

spr_status spr_model_check_option(const char *value, struct spr_error *error)
{
    struct spr_model model;

    if (!*value || !strcmp(value, "measure"))
        return SPR_OK;
    return spr_model_parse(value, &model, error);
}

void spr_model_new_era(struct spr_comm *comm)
{
    static _Atomic uint64_t eras;
    const char *value = comm->options.model;
    struct spr_error ignored = {0};

    comm->era = atomic_fetch_add_explicit(&eras, 1, memory_order_relaxed) + 1;
    comm->model = (struct spr_model){0};
    spr_trials_new_era(comm);
    if (value && strchr(value, '='))
        (void)spr_model_parse(value, &comm->model, &ignored); /* it was checked */
}
