/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/operations.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

void operations_add(struct operations *list, const struct operation *row, const char *format, ...)
{
    va_list arguments;

    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 32;
        struct operation *rows = realloc(list->rows, room * sizeof(*rows));
        if (!rows) {
            list->failed = true;
            return;
        }
        list->rows = rows;
        list->room = room;
    }
    struct operation *added = &list->rows[list->count++];
    *added = *row;
    va_start(arguments, format);
    vsnprintf(added->name, sizeof(added->name), format, arguments);
    va_end(arguments);
}

void operations_add_variants(struct operations *list, const struct operation *row, const char *kind,
                             const char *entry, const struct spr_opt *table, size_t options)
{
    static const char *const switches[] = {"off", "on", NULL};

    operations_add(list, row, "%s %s", kind, entry);
    for (size_t i = 0; i < options; i++) {
        const struct spr_opt *option = &table[i];
        const char *const *choices = option->type == SPR_OPT_BOOL   ? switches
                                     : option->type == SPR_OPT_ENUM ? option->choices
                                                                    : &switches[2];
        for (; *choices; choices++) {
            struct operation variant = *row;
            if (option->default_value && strcmp(*choices, option->default_value) == 0)
                continue;
            snprintf(variant.options, sizeof(variant.options), "%s=%s", option->name, *choices);
            operations_add(list, &variant, "%s %s:%s", kind, entry, variant.options);
        }
    }
}

static const struct spr_opt *density_option(const struct spr_opt *table, size_t options)
{
    const struct spr_opt *ratio = spr_opt_find(table, options, "ratio");

    return ratio ? ratio : spr_opt_find(table, options, "density");
}

bool has_density(const struct spr_opt *table, size_t options)
{
    return density_option(table, options) != NULL;
}

bool trial_options(const struct trial *trial, const struct spr_opt *table, size_t options,
                   void *fields, struct spr_error *error)
{
    const struct spr_opt *density = density_option(table, options);
    const char *choice = trial->operation->options, *value = strchr(choice, '=');
    char text[OPERATION_NAME_BYTES];

    if (spr_opt_defaults(table, options, fields, error) != SPR_OK)
        return false;
    if (value) {
        snprintf(text, sizeof(text), "%.*s", (int)(value - choice), choice);
        const struct spr_opt *option = spr_opt_find(table, options, text);
        if (!option || spr_opt_set(option, fields, value + 1, error) != SPR_OK)
            return false;
    }
    snprintf(text, sizeof(text), "%.9g", trial->density);
    return !density || !trial->operation->by_density ||
           spr_opt_set(density, fields, text, error) == SPR_OK;
}

bool operations_list(struct operations *list)
{
    *list = (struct operations){0};
    op_reference_add(list);
    op_select_add(list);
    op_value_add(list);
    op_index_add(list);
    op_hybrid_add(list);
    op_codec_add(list);
    op_merge_add(list);
    return !list->failed;
}

void operations_free(struct operations *list) { free(list->rows); }

void no_prepare(struct trial *trial) { (void)trial; }

void no_close(struct trial *trial) { (void)trial; }

bool one_phase(struct trial *trial, int phase)
{
    (void)trial;
    return phase == 0;
}

void *trial_pages(struct trial *trial, size_t bytes, struct spr_error *error)
{
    void *pages = trial->page_count < TRIAL_PAGES ? spr_pages_alloc(bytes) : NULL;

    if (!pages) {
        spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %s: %zu bytes",
                      trial->operation->name, bytes);
        return NULL;
    }
    trial->pages[trial->page_count].at = pages;
    trial->pages[trial->page_count++].bytes = bytes;
    return pages;
}

void trial_free(struct trial *trial)
{
    trial->operation->close(trial);
    while (trial->page_count > 0) {
        trial->page_count--;
        spr_pages_free(trial->pages[trial->page_count].at, trial->pages[trial->page_count].bytes);
    }
}

uint32_t hint_near(uint32_t threshold_bits, unsigned run)
{
    const uint32_t off = (1u << 23) * 3 / 100; /* of a mantissa */

    if (threshold_bits <= 2 * off || threshold_bits >= 0x7f000000u)
        return 0;
    return run % 2 ? threshold_bits - off : threshold_bits + off;
}

double relative_error(const float *x, const float *y, size_t n)
{
    double difference = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        if (!isfinite(a)) {
            if (isfinite(b))
                return INFINITY;
            continue;
        }
        difference += (a - b) * (a - b);
        all += a * a;
    }
    return all > 0 ? sqrt(difference / all) : difference > 0 ? (double)INFINITY : 0;
}
