/* SPDX-License-Identifier: BSD-2-Clause
 *
 * `sparring-codec list`: what there is in the registries of compress/.
 */
#include "tools/codec/commands.h"

#include <stdio.h>

#include "base/opt.h"
#include "compress/codec_internal.h"
#include "compress/indices/indices.h"
#include "compress/select/select.h"
#include "compress/values/values.h"
#include "tools/codec/json.h"
#include "tools/codec/report.h"

struct entry {
    const char *name, *doc, *paper; /* paper: NULL where `doc` is enough */
    const struct spr_opt *options;
    size_t option_count;
};

/* One registry: the i-th entry, false when there are no more. */
struct shelf {
    const char *name, *title;
    bool (*at)(size_t i, struct entry *entry);
};

static bool selection_at(size_t i, struct entry *entry)
{
    static struct spr_opt options[SPR_CODEC_OPTIONS_MAX]; /* until the next call */
    const struct spr_codec_selection *s = &spr_codec_selections[i];

    if (!s->name)
        return false;
    spr_codec_selection_options(s, options);
    *entry = (struct entry){s->name, spr_codec_selection_doc(s), spr_codec_selection_paper(s),
                            options, spr_codec_selection_own_options(s)};
    return true;
}

static bool feedback_at(size_t i, struct entry *entry)
{
    *entry =
        (struct entry){"feedback", "options that each of these has; none and onebit: up to sums",
                       NULL, spr_feedback_table, SPR_FEEDBACK_OPTIONS};
    return i == 0;
}

static bool value_coder_at(size_t i, struct entry *entry)
{
    if (i >= spr_value_coder_count)
        return false;
    const struct spr_value_coder *coder = spr_value_coders[i];
    *entry =
        (struct entry){coder->name, coder->doc, coder->paper, coder->options, coder->option_count};
    return true;
}

static bool alias_at(size_t i, struct entry *entry)
{
    const struct spr_codec_alias *alias = spr_codec_alias_at(i);

    if (alias)
        *entry = (struct entry){.name = alias->name, .doc = alias->doc};
    return alias;
}

static bool index_coder_at(size_t i, struct entry *entry)
{
    const struct spr_index_coder *coder = spr_index_coder_at(i);

    if (!coder)
        return false;
    *entry = (struct entry){.name = spr_index_coder_name(coder),
                            .doc = spr_index_coder_doc(coder),
                            .paper = spr_index_coder_paper(coder)};
    entry->options = spr_index_coder_options(coder, &entry->option_count);
    return true;
}

static const struct shelf shelves[] = {
    {"selections", "Codecs: a selection (name:option=value,...)", selection_at},
    {"feedback", "... with error feedback", feedback_at},
    {"value_coders", "... and a value coder for what it sends, joined by '+'", value_coder_at},
    {"names", "Other names", alias_at},
    {"index_coders", "Coders of indices", index_coder_at},
};

static void print_text(FILE *out)
{
    struct entry e;

    for (size_t s = 0; s < SPR_ARRAY_LEN(shelves); s++) {
        fprintf(out, "%s%s:\n", s ? "\n" : "", shelves[s].title);
        for (size_t i = 0; shelves[s].at(i, &e); i++) {
            fprintf(out, "  %-10s %s\n", e.name, e.doc);
            if (e.paper && *e.paper)
                fprintf(out, "  %-10s   [%s]\n", "", e.paper);
            for (size_t o = 0; o < e.option_count; o++)
                fprintf(out, "    %-12s %s [%s]\n", e.options[o].name, e.options[o].doc,
                        e.options[o].default_value ? e.options[o].default_value : "");
        }
    }
}

#ifdef HAVE_JANSSON
static json_t *option_object(const struct spr_opt *option)
{
    static const char *const types[] = {"bool",  "int",    "size",   "time", "rate",
                                        "ratio", "double", "string", "enum"};
    json_t *choices = json_array();

    for (size_t i = 0; option->choices && option->choices[i]; i++)
        json_array_append_new(choices, json_text(option->choices[i]));
    const struct json_member members[] = {
        {"name", json_text(option->name)},
        {"type", json_text(types[option->type])},
        {"default", json_text(option->default_value)},
        {"doc", json_text(option->doc)},
        {"choices", choices},
    };
    return json_object_of(members, SPR_ARRAY_LEN(members));
}

static json_t *entry_object(const struct entry *e)
{
    json_t *options = json_array();

    for (size_t o = 0; o < e->option_count; o++)
        json_array_append_new(options, option_object(&e->options[o]));
    const struct json_member members[] = {
        {"name", json_text(e->name)},
        {"doc", json_text(e->doc)},
        {"paper", json_text(e->paper)},
        {"options", options},
    };
    return json_object_of(members, SPR_ARRAY_LEN(members));
}

static bool print_json(FILE *out, const struct options *options)
{
    json_t *all = json_object();
    struct entry e;

    for (size_t s = 0; s < SPR_ARRAY_LEN(shelves); s++) {
        json_t *entries = json_array();
        for (size_t i = 0; shelves[s].at(i, &e); i++)
            json_array_append_new(entries, entry_object(&e));
        json_object_set_new(all, shelves[s].name, entries);
    }
    return json_write(out, options, "list", all);
}
#else
static bool print_json(FILE *out, const struct options *options)
{
    (void)out, (void)options;
    return false;
}
#endif

int list_run(const struct options *options)
{
    FILE *json;

    if (!options->json) {
        print_text(stdout);
        return 0;
    }
    json = output_open(options->json);
    if (!json)
        return 1;
    if (json != stdout)
        print_text(stdout);
    return output_close(json, options->json, print_json(json, options)) ? 0 : 1;
}
