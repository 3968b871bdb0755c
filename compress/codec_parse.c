/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codec strings:
 *
 *   codec   = stage *( "+" stage )
 *   stage   = name [ ":" option *( "," option ) ]
 *   option  = name "=" value
 *
 * At most one selection, which comes first, and at most one rounding. Without a selection
 * everything is sent ("none"); without a rounding values are sent as they are ("fp32").
 */
#include "compress/codec_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* The registry. */
static const struct spr_codec_selection *const selections[] = {
    &spr_codec_none,
    &spr_codec_topk,
};
static const struct spr_codec_rounding *const roundings[] = {
    &spr_codec_fp32,
    &spr_codec_fp16,
    &spr_codec_bf16,
};

struct parser {
    const char *spec;
    const char *at;
    spr_codec *codec;
    bool have_selection, have_rounding;
    struct spr_error *error;
};

/* INVALID: `what`, then the place, then what would be right. */
static spr_status fail(const struct parser *p, const char *at, const char *what, const char *token,
                       const char *remedy)
{
    return spr_error_set(p->error, SPR_ERR_INVALID, -1,
                         "codec \"%.160s\", character %zu: %s \"%.64s\"; %s", p->spec,
                         (size_t)(at - p->spec) + 1, what, token, remedy);
}

/* Append to a list of names. */
static void append(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used && list[used - 1] != ' ' ? ", " : "", name);
}

/* Copy the text up to one of `stops`; false when it is too long. */
static bool token(struct parser *p, const char *stops, char *buf, size_t bytes)
{
    size_t n = strcspn(p->at, stops);

    snprintf(buf, bytes, "%.*s", (int)spr_min_size(n, bytes - 1), p->at);
    p->at += n;
    return n < bytes;
}

static spr_status fail_stage(const struct parser *p, const char *at, const char *name)
{
    char list[160] = "known are ";

    for (size_t i = 0; i < SPR_ARRAY_LEN(selections); i++)
        append(list, sizeof(list), selections[i]->name);
    for (size_t i = 0; i < SPR_ARRAY_LEN(roundings); i++)
        append(list, sizeof(list), roundings[i]->name);
    return fail(p, at, "unknown codec", name, list);
}

static spr_status fail_option(const struct parser *p, const char *at, const char *stage,
                              const struct spr_opt *table, size_t n, const char *name)
{
    char list[160] = "";

    snprintf(list, sizeof(list), n ? "%s has " : "%s has none", stage);
    for (size_t i = 0; i < n; i++)
        append(list, sizeof(list), table[i].name);
    return fail(p, at, "unknown option", name, list);
}

/* "name=value,..." after the colon of a stage. */
static spr_status parse_options(struct parser *p, const char *stage, const struct spr_opt *table,
                                size_t n)
{
    uint64_t seen = 0;

    for (;;) {
        const char *start = p->at;
        struct spr_error why = {.rank = -1};
        char name[64], value[64];

        bool fits = token(p, "=,+", name, sizeof(name));
        const struct spr_opt *opt = fits ? spr_opt_find(table, n, name) : NULL;
        if (!opt)
            return fail_option(p, start, stage, table, n, name);
        if (*p->at != '=')
            return fail(p, start, "no value for option", name, "write name=value");
        if (seen >> (opt - table) & 1)
            return fail(p, start, "repeated option", name, "give it once");
        seen |= UINT64_C(1) << (opt - table);
        p->at++;
        start = p->at;
        if (!token(p, ",+", value, sizeof(value)))
            return fail(p, start, "value too long", value, opt->doc);
        if (spr_opt_set(opt, p->codec->options, value, &why) != SPR_OK)
            return fail(p, start, "bad value", value, why.text);
        if (*p->at != ',')
            return SPR_OK;
        p->at++;
    }
}

static spr_status parse_selection(struct parser *p, const char *start,
                                  const struct spr_codec_selection *s)
{
    if (p->have_selection || p->have_rounding)
        return fail(p, start, "misplaced", s->name,
                    "a codec has one selection, and it comes first");
    p->have_selection = true;
    p->codec->selection = s;
    if (*p->at != ':')
        return SPR_OK;
    p->at++;
    return parse_options(p, s->name, s->options, s->option_count);
}

static spr_status parse_rounding(struct parser *p, const char *start,
                                 const struct spr_codec_rounding *r)
{
    if (p->have_rounding)
        return fail(p, start, "misplaced", r->name, "a codec has one rounding");
    p->have_rounding = true;
    p->codec->rounding = r;
    if (*p->at == ':')
        return fail_option(p, p->at + 1, r->name, NULL, 0, p->at + 1);
    return SPR_OK;
}

static spr_status parse_stage(struct parser *p)
{
    const char *start = p->at;
    char name[64];

    if (!token(p, ":+", name, sizeof(name)))
        return fail_stage(p, start, name);
    for (size_t i = 0; i < SPR_ARRAY_LEN(selections); i++)
        if (strcmp(selections[i]->name, name) == 0) {
            spr_opt_defaults(selections[i]->options, selections[i]->option_count, p->codec->options,
                             NULL);
            return parse_selection(p, start, selections[i]);
        }
    for (size_t i = 0; i < SPR_ARRAY_LEN(roundings); i++)
        if (strcmp(roundings[i]->name, name) == 0)
            return parse_rounding(p, start, roundings[i]);
    return fail_stage(p, start, name);
}

/* The canonical string: all options, in the order of the table; nothing that is implied. */
static void print_spec(spr_codec *codec)
{
    const struct spr_codec_selection *s = codec->selection;
    bool bare = s == &spr_codec_none && !codec->rounding->lossless;
    char *out = codec->spec, value[64];
    size_t room = sizeof(codec->spec), n = 0;

    if (!bare)
        n += (size_t)snprintf(out, room, "%s", s->name);
    for (size_t i = 0; i < s->option_count; i++)
        n += (size_t)snprintf(out + n, room - n, "%c%s=%s", i ? ',' : ':', s->options[i].name,
                              spr_opt_print(&s->options[i], codec->options, value, sizeof(value)));
    if (!codec->rounding->lossless)
        snprintf(out + n, room - n, "%s%s", bare ? "" : "+", codec->rounding->name);
}

spr_status spr_codec_parse(const char *spec, spr_codec *codec, struct spr_error *error)
{
    struct parser p = {.spec = spec, .at = spec, .codec = codec, .error = error};

    codec->selection = &spr_codec_none;
    codec->rounding = &spr_codec_fp32;
    for (;;) {
        spr_status status = parse_stage(&p);
        if (status != SPR_OK)
            return status;
        if (*p.at == '\0')
            break;
        p.at++; /* '+' */
    }
    print_spec(codec);
    return SPR_OK;
}

void spr_codec_help(FILE *out)
{
    fputs("A codec is a selection and a rounding, joined by '+', e.g. topk:ratio=1%+fp16\n\n"
          "Selections (name:option=value,...):\n",
          out);
    for (size_t i = 0; i < SPR_ARRAY_LEN(selections); i++) {
        const struct spr_codec_selection *s = selections[i];

        fprintf(out, "  %-8s %s\n", s->name, s->doc);
        for (size_t o = 0; o < s->option_count; o++)
            fprintf(out, "    %-10s %s [%s]\n", s->options[o].name, s->options[o].doc,
                    s->options[o].default_value);
    }
    fputs("\nRoundings:\n", out);
    for (size_t i = 0; i < SPR_ARRAY_LEN(roundings); i++)
        fprintf(out, "  %-8s %s\n", roundings[i]->name, roundings[i]->doc);
}
